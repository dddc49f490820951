"""What a datastore is built from: documents in a fixed order, taken up again anywhere; and their tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from engines.datastores.storage import tokenizer_fingerprint as fingerprint


@dataclass(frozen=True, slots=True)
class Document:
    """One document; nothing matches across its end.

    Attributes:
        source: where it comes from, for people: a file, a prompt. Untrusted text.
        text: its text, or
        tokens: its token ids, where they are known.
        line: number in the source of its first line; 0 where the source has no lines.
        size: how much of ``Corpus.total`` it is.
    """

    source: str
    text: str | None = None
    tokens: Sequence[int] | None = None
    line: int = 0
    size: int = 1


class Corpus(Protocol):
    """Documents to build from.

    Attributes:
        identity: JSON: all that the documents depend on (content, not places). Goes into the manifest, and an
            interrupted build is taken up only where it is the same.
        total: of all documents together, None where unknown.
        unit: what ``total`` counts: "bytes", "prompts".
    """

    identity: dict[str, Any]
    total: int | None
    unit: str

    def documents(self, resume: Any = None) -> Iterator[tuple[Document, Any]]:
        """The documents, each with what to pass as ``resume`` to go on after it (JSON). None begins at the first."""


class Joined:
    """Several corpora, one after another."""

    def __init__(self, parts: Sequence[Corpus]) -> None:
        self._parts = list(parts)
        self.identity = {"kind": "joined", "parts": [p.identity for p in parts]}
        totals = [p.total for p in parts]
        alike = len({p.unit for p in parts}) == 1
        self.total = sum(totals) if alike and None not in totals else None
        self.unit = parts[0].unit if alike else "documents"

    def documents(self, resume: Any = None) -> Iterator[tuple[Document, Any]]:
        """See ``Corpus``."""
        at, inner = resume or (0, None)
        for i in range(at, len(self._parts)):
            for document, state in self._parts[i].documents(inner if i == at else None):
                yield document, [i, state]


@dataclass(frozen=True, slots=True)
class Encoded:
    """Tokens of a text: int64 ids, and the index of the token that each line but the first begins with."""

    tokens: np.ndarray
    lines: np.ndarray


class Encoder:
    """Texts to token ids, as the model reads them in a prompt; what looks like a special token is plain text.

    Args:
        tokenizer: of transformers.

    Attributes:
        fingerprint, vocab_size: see ``engines.datastores.storage.tokenizer_fingerprint``.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.fingerprint = fingerprint.of_tokenizer(tokenizer)
        self.vocab_size = fingerprint.vocab_size(tokenizer)

    def __call__(self, documents: Sequence[Document]) -> list[Encoded]:
        """Tokens of each document. Raises ValueError for ids that the vocabulary does not have."""
        texts = [d.text for d in documents if d.tokens is None]
        read = iter(self._read(texts) if texts else ())
        none, out = np.zeros(0, np.int64), []
        for document in documents:
            if document.tokens is not None:
                out.append(Encoded(np.asarray(document.tokens, np.int64), none))
            else:
                ids, begins = next(read)
                known = document.line and begins is not None
                out.append(Encoded(ids, _lines(document.text, begins) if known else none))
            ids = out[-1].tokens
            if len(ids) and not 0 <= ids.min() <= ids.max() < self.vocab_size:
                raise ValueError(f"a token of {document.source[:80]!r} is not in the vocabulary of {self.vocab_size}")
        return out

    def _read(self, texts: list[str]) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """Ids, and the character that each token begins with (None where the tokenizer does not say)."""
        fast = self._tokenizer.is_fast
        found = self._tokenizer(
            texts, add_special_tokens=False, split_special_tokens=True, return_attention_mask=False,
            return_token_type_ids=False, return_offsets_mapping=fast, verbose=False,
        )
        for i, ids in enumerate(found["input_ids"]):
            begins = np.array([b for b, _ in found["offset_mapping"][i]], np.int64) if fast else None
            yield np.array(ids, np.int64), begins


def _lines(text: str, begins: np.ndarray) -> np.ndarray:
    starts = np.array([m.end() for m in re.finditer("\n", text)], np.int64)
    found = np.searchsorted(np.maximum.accumulate(begins), starts)
    return found[found < len(begins)]
