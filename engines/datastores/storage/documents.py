"""Which document a position of a datastore is in: its source, its line, the tokens around it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.datastores.storage.datastore import Store
from engines.datastores.storage.manifest import damaged


@dataclass(frozen=True, slots=True)
class DocumentPlace:
    """A position, as a person would look it up.

    Attributes:
        document: its number.
        source: file (relative to what was named at the build), prompt, or what else the document came from. Untrusted.
        line: of the source, from 1; None where the source has no lines.
        offset: tokens of the document before it.
    """

    document: int
    source: str
    line: int | None
    offset: int


class Documents:
    """The documents of a datastore. Positions count tokens and the separator after each document.

    Arrays: ``documents`` int32 [documents], where each begins; ``places`` int32 [documents, 2], number of its source
    and the line it begins at (0: no lines); ``lines`` int32, the token with which each further line begins, of all
    documents; ``names`` and ``name_ends``, the sources, UTF-8.

    Raises:
        DatastoreProblem: an array is missing or doesn't fit the others.
    """

    def __init__(self, store: Store) -> None:
        self._tokens = store.array("tokens")
        self._begins = store.array("documents", "<i4")
        self._places = store.array("places", "<i4", ndim=2)
        self._lines = store.array("lines", "<i4")
        self._names, self._ends = store.array("names", "|u1"), store.array("name_ends", "<i8")
        shape = (store.manifest.documents, 2)
        if len(self._begins) != shape[0] or self._places.shape != shape or not len(self._begins):
            raise damaged(store.name, "its table of documents doesn't fit")
        self._vocab_size = store.manifest.vocab_size

    def __len__(self) -> int:
        return len(self._begins)

    def document(self, position: int) -> int:
        """Number of the document that a position is in."""
        return max(0, _rank(self._begins, position, "right") - 1)

    def bounds(self, document: int) -> tuple[int, int]:
        """First position of a document, and that of its separator."""
        after = document + 1
        end = int(self._begins[after]) if after < len(self) else len(self._tokens)
        return int(self._begins[document]), end - 1

    def place(self, position: int) -> DocumentPlace:
        """Document, source and line of a position."""
        document = self.document(position)
        begin, _ = self.bounds(document)
        source, line = self._places[document].tolist()
        if line:
            line += _rank(self._lines, position, "right") - _rank(self._lines, begin, "left")
        return DocumentPlace(document, self.source(source), line or None, position - begin)

    def source(self, number: int) -> str:
        """Name of a source by its number, "?" where there is none."""
        if not 0 <= number < len(self._ends):
            return "?"
        begin = int(self._ends[number - 1]) if number else 0
        return self._names[max(begin, 0) : max(int(self._ends[number]), 0)].tobytes().decode("utf-8", "replace")

    def passage(self, position: int, before: int = 16, after: int = 32) -> tuple[list[int], int]:
        """Token ids around a position, of its own document only, and the index of the position among them."""
        begin, end = self.bounds(self.document(position))
        first = max(begin, position - before, 0)
        found = self._tokens[first : max(first, min(end, position + after))].tolist()
        return [t for t in found if t < self._vocab_size], position - first


def _rank(numbers: np.ndarray, position: int, side: str) -> int:
    """Where a position goes among int32 numbers; as one of them, else numpy would convert them all."""
    return int(np.searchsorted(numbers, np.int32(min(max(position, 0), 0x7FFFFFFF)), side))
