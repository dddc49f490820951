"""What a lookup in datastores found, as a draft tree and for display: shared by the engines that retrieve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engines.methods.origins import RETRIEVAL
from engines.report.events import Origin, Passage

if TYPE_CHECKING:
    from engines.datastores.search.dense import DenseStore
    from engines.datastores.search.sparse import SparseStore
    from engines.tokenization import Detokenizer

_BEFORE, _AFTER = 12, 12  # tokens of a passage that are shown
_NAME = 200  # characters of a document's name that are kept


class Passages:
    """Origins and passages of one draft; a place is looked up once.

    Args:
        shown: passages kept with their text.
    """

    def __init__(self, words: Detokenizer | None, shown: int = 5) -> None:
        self.words, self.shown = words, shown
        self.origins: list[Origin] = []
        self.passages: list[Passage] = []
        self._known: dict[tuple[str, int], int] = {}

    def origin(self, store: SparseStore | DenseStore, position: int, match: int | None, weight: float) -> int:
        """Index of the origin of what begins at a position of a datastore."""
        key = (store.name, position)
        if key not in self._known:
            self._known[key] = len(self.origins)
            self.origins.append(self._origin(store, position, match, weight))
        return self._known[key]

    def _origin(self, store, position: int, match: int | None, weight: float) -> Origin:
        place = store.documents.place(position)
        number = None
        if len(self.passages) < self.shown:
            number = len(self.passages)
            tokens, at = store.documents.passage(position, _BEFORE, _AFTER)
            self.passages.append(
                Passage(store.name, place.source[:_NAME], place.line, self._text(tokens[:at]),
                        self._text(tokens[at:]), weight)
            )
        return Origin(RETRIEVAL.name, place.offset, place.source[:_NAME], match, store.name, place.line, number)

    def _text(self, tokens: Sequence[int]) -> str:
        return "".join(self.words.piece(token) for token in tokens) if self.words is not None else ""
