"""What a datastore is built from: documents in a fixed order, their tokens, and the loaded model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from engines.datastores.storage.manifest import ModelIdentity, tokenizer_fingerprint, vocabulary_size

if TYPE_CHECKING:
    from engines.cost.curve import CostCurve
    from engines.datastores.search.open_datastores import OpenDatastores
    from engines.model.causal_model import CausalModel
    from engines.request import Request
    from engines.tokenization import Detokenizer


CHARACTERS = 1 << 18  # of texts that are encoded together, and of a piece of a long text
_PIECE = re.compile(r"(?s).*[^\W_](?=\n)|.*[^\W_](?=\s)|.+")  # to a word that ends a line; else any word; else all
_WORD = "a"  # stands for the word that a piece is read after


class LoadedModel(Protocol):
    """A loaded model, as far as builds and probes use it (``engines.runtime.Runtime``).

    Attributes:
        target: its hidden states become the keys.
        identity: of the target, for the manifest.
        prices: t(n) of the target comes first.
    """

    target: CausalModel
    tokenizer: Any
    identity: ModelIdentity
    prices: tuple[CostCurve, ...]
    open_datastores: OpenDatastores
    words: Detokenizer

    def run(self, request: Request) -> Iterator[Any]:
        """Answers a request, as events; the last one is ``Finished``."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document; nothing matches across its end.

    Attributes:
        source: the file, prompt or row that it comes from, for people. Untrusted text.
        text: its text, or
        tokens: its token ids, if they are known already, or
        chat: a conversation (role, content) as the model's chat template writes it, the last turn its answer.
        line: number of its first line in the source; 0 if the source has no lines.
        size: its part of ``Corpus.total``.
    """

    source: str
    text: str | None = None
    tokens: Sequence[int] | None = None
    chat: tuple[tuple[str, str], ...] | None = None
    line: int = 0
    size: int = 1


class Corpus(Protocol):
    """Documents to build from.

    Attributes:
        identity: JSON with everything that the documents depend on (contents, not places). It goes into the manifest,
            and an interrupted build continues only if it is the same.
        total: size of all documents together; None if unknown.
        unit: what ``total`` counts: "bytes", "prompts".
    """

    identity: dict[str, Any]
    total: int | None
    unit: str

    def documents(self, resume: Any = None) -> Iterator[tuple[Document, Any]]:
        """The documents, each with the JSON value to pass as ``resume`` to continue after it. None starts at the
        first."""


class JoinedCorpus:
    """Several corpora, the ``parts``, one after another. ``skipped``: how many files or rows of all are left out, by
    reason."""

    def __init__(self, parts: Sequence[Corpus]) -> None:
        self.parts = list(parts)
        self.identity = {"kind": "joined", "parts": [p.identity for p in parts]}
        totals = [p.total for p in parts]
        same_unit = len({p.unit for p in parts}) == 1
        self.total = sum(totals) if same_unit and None not in totals else None
        self.unit = parts[0].unit if same_unit else "documents"
        self.skipped: Counter[str] = Counter()
        for part in parts:
            self.skipped.update(getattr(part, "skipped", {}))

    def documents(self, resume: Any = None) -> Iterator[tuple[Document, Any]]:
        first, inner = resume or (0, None)
        for i in range(first, len(self.parts)):
            for document, state in self.parts[i].documents(inner if i == first else None):
                yield document, [i, state]


@dataclass(frozen=True, slots=True)
class EncodedText:
    """A tokenized text: int64 ids [n], and for each line but the first the index of the token that it begins with."""

    tokens: np.ndarray
    lines: np.ndarray


class Encoder:
    """Tokenizes texts as the model reads them in a prompt; what looks like a special token is plain text.
    ``fingerprint``, ``vocab_size``: see ``engines.datastores.storage.manifest``.

    A text of more than ``CHARACTERS`` is read in pieces, each up to the last word with a line end after it (without
    one, the last with a space after it). Where no token holds both a word's last character and a space or line end
    after it, as with the usual pre-tokenizers, the tokens are those of the whole text.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.fingerprint = tokenizer_fingerprint(tokenizer)
        self.vocab_size = vocabulary_size(tokenizer)

    def __call__(
        self, documents: Sequence[Document], most: int | None = None,
        reading: Callable[[float], None] = lambda share: None,
    ) -> list[EncodedText]:
        """The tokens of each document.

        Args:
            most: tokens of a document that are wanted, its first ones; the rest of a long text is not read. None: all.
            reading: gets the share that is read of a long text; what it raises leaves this method.

        Raises:
            ValueError: an id is not in the vocabulary.
        """
        texts = [d.text for d in documents if d.text is not None and len(d.text) <= CHARACTERS]
        tokenized = iter(self._tokenize(texts) if texts else ())
        no_lines, out = np.zeros(0, np.int64), []
        for document in documents:
            if document.text is None:
                ids = document.tokens if document.chat is None else self._chat(document.chat)
                out.append(EncodedText(np.asarray(ids, np.int64), no_lines))
            else:
                long = len(document.text) > CHARACTERS
                ids, starts = self._in_pieces(document.text, most, reading) if long else next(tokenized)
                known = document.line and starts is not None
                out.append(EncodedText(ids, _line_tokens(document.text, starts) if known else no_lines))
            ids = out[-1].tokens
            if len(ids) and not 0 <= ids.min() <= ids.max() < self.vocab_size:
                raise ValueError(f"a token of {document.source[:80]!r} is not in the vocabulary of {self.vocab_size}")
        return out

    def _chat(self, turns: tuple[tuple[str, str], ...]) -> list[int]:
        """The turns before the answer as a prompt, the answer as the model would have written it, and its end. Raises
        UsageProblem: the model's chat template refuses them."""
        from engines.request import Request
        from engines.tokenization import encode

        prompt, _ = encode(self._tokenizer, Request(turns[:-1]), self.vocab_size)
        answer = self._tokenizer(turns[-1][1], add_special_tokens=False, split_special_tokens=True, verbose=False)
        end = self._tokenizer.eos_token_id
        return [*prompt, *answer["input_ids"], *([] if end is None else [end])]

    def _in_pieces(
        self, text: str, most: int | None, reading: Callable[[float], None]
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """As ``_tokenize`` gives them of a long text. A piece that goes on after a word is read after one, so that
        no tokenizer puts a space before it."""
        [(word, _)] = self._tokenize([_WORD])
        begin, count, ids, starts = 0, 0, [], []
        while begin < len(text) and (most is None or count < most):
            last = len(text) - begin <= CHARACTERS
            end = len(text) if last else _PIECE.match(text, begin, begin + CHARACTERS).end()
            lead = _WORD if begin and text[begin].isspace() else ""
            [(found, at)] = self._tokenize([lead + text[begin:end]])
            kept = slice(len(word) if lead else 0, None)
            ids.append(found[kept])
            starts.append(None if at is None else at[kept] + begin - len(lead))
            begin, count = end, count + len(ids[-1])
            reading(begin / len(text))
        return np.concatenate(ids), None if starts[0] is None else np.concatenate(starts)

    def _tokenize(self, texts: list[str]) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """Ids, and the character that each token starts at (None if the tokenizer does not tell)."""
        fast = self._tokenizer.is_fast
        result = self._tokenizer(
            texts, add_special_tokens=False, split_special_tokens=True, return_attention_mask=False,
            return_token_type_ids=False, return_offsets_mapping=fast, verbose=False,
        )
        for i, ids in enumerate(result["input_ids"]):
            starts = np.array([b for b, _ in result["offset_mapping"][i]], np.int64) if fast else None
            yield np.array(ids, np.int64), starts


def _line_tokens(text: str, starts: np.ndarray) -> np.ndarray:
    """Index of the first token of each line but the first."""
    line_starts = np.array([m.end() for m in re.finditer("\n", text)], np.int64)
    tokens = np.searchsorted(np.maximum.accumulate(starts), line_starts)
    return tokens[tokens < len(starts)]
