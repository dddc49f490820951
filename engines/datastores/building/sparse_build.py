"""Building the sparse part of a datastore: tokens with a table of documents, then their suffix array.

Stages work in a ``build_journal.BuildJournal``. A build can be interrupted between any two steps, and gives the same
bytes when it continues.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from engines.datastores.building.build_journal import BuildJournal
from engines.datastores.building.corpus import CHARACTERS, Corpus, Document, EncodedText, Encoder
from engines.datastores.search.sparse import token_dtype
from engines.errors import DatastoreProblem, UsageProblem
from engines.progress import Progress, ProgressReporter, no_progress

MOST_TOKENS = 2**31 - 2  # with the separators; positions are int32


@dataclass(slots=True)
class CorpusCounts:
    """What the token stage has written so far.

    Attributes:
        documents, tokens, positions, lines, sources, name_bytes: counts; positions are tokens and separators, lines are
            all but the first of each document, and ``name_bytes`` is the length of all sources' names.
        done: how much of the corpus has been read, in its unit.
        resume: where the corpus continues (``Corpus.documents``).
        source: of the last document.
    """

    documents: int = 0
    tokens: int = 0
    positions: int = 0
    lines: int = 0
    sources: int = 0
    name_bytes: int = 0
    done: int = 0
    resume: Any = None
    source: str | None = None
    complete: bool = False

    def left(self, limit: int | None, document_limit: int | None) -> int | None:
        """Most tokens of the next document, None for all."""
        return min([most for most in (limit and limit - self.tokens, document_limit) if most is not None], default=None)


def sparse_files(counts: CorpusCounts, vocab_size: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The files that the stages here write, with dtype and shape, for ``BuildJournal.finish``."""
    return {
        "tokens.bin": (token_dtype(vocab_size), (counts.positions,)),
        "suffixes.bin": ("<i4", (counts.tokens,)),
        "documents.bin": ("<i4", (counts.documents,)),
        "places.bin": ("<i4", (counts.documents, 2)),
        "lines.bin": ("<i4", (counts.lines,)),
        "names.bin": ("|u1", (counts.name_bytes,)),
        "name_ends.bin": ("<i8", (counts.sources,)),
    }


def write_tokens(
    journal: BuildJournal, corpus: Corpus, encoder: Encoder, limit: int | None = None,
    progress: Progress = no_progress, document_limit: int | None = None,
) -> CorpusCounts:
    """Stage 1: tokens, and the table of documents (``datastore.Documents``). Documents without tokens are left out.

    Raises:
        UsageProblem: the corpus has no tokens, or the limit allows none.
        DatastoreProblem: more than ``MOST_TOKENS``; a token that the vocabulary lacks.
    """
    if limit is not None and limit < 1:
        raise UsageProblem(f"a limit of {limit} tokens leaves nothing to build", "the limit must be at least 1")
    counts = CorpusCounts(**(journal.state("tokens") or {}))
    reporter = ProgressReporter("tokens", corpus.unit, progress, counts.done)
    reporter.report(counts.done, corpus.total)
    for batch in _batches(corpus.documents(counts.resume) if not counts.complete else iter(()), journal):
        last = batch[-1][0].size  # the only one that may be long
        try:
            encoded = encoder(
                [document for document, _ in batch], counts.left(limit, document_limit),
                lambda share, size=last: reporter.report(counts.done + int(share * size), corpus.total),
            )
        except ValueError as error:
            raise DatastoreProblem(str(error), "choose the sources for this tokenizer") from None
        for (document, resume), text in zip(batch, encoded):
            _append(journal, counts, document, text, encoder.vocab_size, counts.left(limit, document_limit))
            counts.done, counts.resume = counts.done + document.size, resume
            if limit is not None and counts.tokens >= limit:
                break
        if journal.due:
            journal.commit("tokens", asdict(counts))
        reporter.report(counts.done, corpus.total)
        if limit is not None and counts.tokens >= limit:
            break
    if not counts.tokens:
        raise UsageProblem("there is no text to build from", "name sources that hold some")
    if not counts.complete:
        counts.complete = True
        for file in sparse_files(counts, encoder.vocab_size):
            journal.open_to_append(file)  # an empty array is a file too
        journal.commit("tokens", asdict(counts))
    return counts


def _batches(documents: Iterator[tuple[Document, Any]], journal: BuildJournal) -> Iterator[list[tuple[Document, Any]]]:
    """Documents in batches of about ``CHARACTERS``, or of what came before a commit is due (a model writes
    answers slowly)."""
    batch: list[tuple[Document, Any]] = []
    size = 0
    for document, resume in documents:
        batch.append((document, resume))
        size += _characters(document)
        if size >= CHARACTERS or journal.due:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _characters(document: Document) -> int:
    if document.chat is not None:
        return sum(len(content) for _, content in document.chat)
    return len(document.text or "") if document.tokens is None else 4 * len(document.tokens)


def _append(
    journal: BuildJournal, counts: CorpusCounts, document: Document, text: EncodedText, vocab_size: int,
    most: int | None,
) -> None:
    tokens = text.tokens[:most]
    if not len(tokens):
        return
    if counts.positions + len(tokens) + 1 > MOST_TOKENS:
        raise DatastoreProblem(f"a datastore holds at most {MOST_TOKENS:,} tokens, these sources have more",
                               "build several and use them together, or limit one: --limit")
    if document.source != counts.source:
        name = document.source.encode("utf-8", "replace")
        counts.source = document.source
        counts.sources, counts.name_bytes = counts.sources + 1, counts.name_bytes + len(name)
        journal.open_to_append("names.bin").write(name)
        _write(journal, "name_ends.bin", [counts.name_bytes], "<i8")
    dtype = np.dtype(token_dtype(vocab_size))
    journal.open_to_append("tokens.bin").write(tokens.astype(dtype).tobytes() + b"\xff" * dtype.itemsize)
    _write(journal, "documents.bin", [counts.positions], "<i4")
    _write(journal, "places.bin", [counts.sources - 1, document.line], "<i4")
    lines = text.lines[text.lines < len(tokens)]
    _write(journal, "lines.bin", lines + counts.positions, "<i4")
    counts.documents += 1
    counts.tokens += len(tokens)
    counts.positions += len(tokens) + 1
    counts.lines += len(lines)


def _write(journal: BuildJournal, path: str, numbers: Any, dtype: str) -> None:
    journal.open_to_append(path).write(np.asarray(numbers, np.int64).astype(dtype).tobytes())


def write_suffixes(
    journal: BuildJournal, counts: CorpusCounts, vocab_size: int, progress: Progress = no_progress
) -> None:
    """Stage 2: the suffix array of the tokens, separators left out. It takes about 30 bytes of memory a token. Raises
    DatastoreProblem: there is not enough memory, or no pydivsufsort for this Python."""
    reporter = ProgressReporter("suffix array", "tokens", progress)
    if journal.state("suffixes") is None:
        reporter.report(0, counts.tokens)
        tokens = np.fromfile(journal.folder / "tokens.bin", token_dtype(vocab_size), counts.positions)
        try:
            suffixes = suffix_array(tokens, vocab_size)[: counts.tokens]
        except MemoryError:
            raise DatastoreProblem(f"the suffix array of {counts.tokens:,} tokens does not fit into memory",
                                   "build from less: --limit") from None
        journal.open_to_append("suffixes.bin").write(suffixes.astype("<i4").tobytes())
        journal.commit("suffixes", True)
    reporter.report(counts.tokens, counts.tokens)


def suffix_array(tokens: np.ndarray, vocab_size: int) -> np.ndarray:
    """Positions [n] of the tokens [n], sorted by what begins there; every number from ``vocab_size`` on is the
    separator, the largest token.

    Tokens are replaced by their rank among those that occur, which keeps their order and often fits fewer bytes. Raises
    DatastoreProblem: there is no pydivsufsort for this Python."""
    try:
        from pydivsufsort import divsufsort
    except ImportError:
        raise DatastoreProblem("pydivsufsort, which makes suffix arrays, is not installed",
                               "pip install pydivsufsort (Python up to 3.14)") from None
    small = np.minimum(tokens, vocab_size)
    occurs = np.zeros(vocab_size + 1, bool)
    occurs[small] = True
    ranks = np.cumsum(occurs) - 1
    dtype = next(k for k in (np.uint8, np.uint16, np.uint32) if ranks[-1] <= np.iinfo(k).max)
    return divsufsort(ranks.astype(dtype)[small])
