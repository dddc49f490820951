"""Where what a lookup in datastores found lies, as origins and passages of a draft: shared by the engines that
retrieve."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from engines.methods.origins import RETRIEVAL
from engines.report.events import Origin, Passage

if TYPE_CHECKING:
    from engines.core.tree import DraftTree
    from engines.tokenization import Detokenizer

_BEFORE, _AFTER = 12, 12  # tokens of a passage that are shown
_NAME = 200  # characters of a document's name that are kept
_SHOWN = 5  # passages kept with their text


class FoundOrigin(NamedTuple):
    """An ``Origin`` to be: its document is not looked up yet (``described``), as most drafts of a lookup are never
    verified.

    Attributes:
        match: as of ``Origin``.
        store: the datastore (``SparseStore`` or ``DenseStore``).
        position: in it, of what is copied; ``weight``: as of ``Passage``.
        source: as of ``Origin``.
    """

    match: int | None
    store: Any
    position: int
    weight: float
    source: str = RETRIEVAL.name


class FoundOrigins:
    """The distinct origins of one draft: a place counts once."""

    def __init__(self) -> None:
        self.origins: list[FoundOrigin] = []
        self._known: dict[tuple[str, int], int] = {}

    def index(self, store: Any, position: int, match: int | None, weight: float) -> int:
        """Index of the origin of what begins at a position of a datastore."""
        number = self._known.setdefault((store.name, position), len(self.origins))
        if number == len(self.origins):
            self.origins.append(FoundOrigin(match, store, position, weight))
        return number


def is_described(tree: DraftTree) -> bool:
    """Whether every origin of a tree has been looked up."""
    return all(type(origin) is not FoundOrigin for origin in tree.origins)


def described(tree: DraftTree, words: Detokenizer | None, all_of_them: bool = True) -> DraftTree:
    """The tree with each origin's place, and the first passages in its ``retrieval``; without the origins of what was
    cut off, unless ``all_of_them`` are wanted."""
    if not all_of_them and len(used := sorted({*tree.origin, *tree.also} - {-1}) or [0]) < len(tree.origins):
        place = {old: new for new, old in enumerate(used)} | {-1: -1}
        tree.origins = [tree.origins[old] for old in used]
        tree.origin, tree.also = [place[old] for old in tree.origin], [place[old] for old in tree.also]
    tree.origins, passages = described_origins(tree.origins, words)
    tree.retrieval = replace(tree.retrieval, passages=tuple(passages))
    return tree


def described_origins(
    origins: Iterable[Origin | FoundOrigin], words: Detokenizer | None, shown: int = _SHOWN
) -> tuple[list[Origin], list[Passage]]:
    """The same of origins alone; ``shown``: passages at most."""
    out: list[Origin] = []
    passages: list[Passage] = []
    for origin in origins:
        if type(origin) is FoundOrigin:
            number = len(passages) if len(passages) < shown else None
            store, position = origin.store, origin.position
            place = store.documents.place(position)
            source = place.source[:_NAME]
            if number is not None:
                tokens, at = store.documents.passage(position, _BEFORE, _AFTER)
                passages.append(Passage(store.name, source, place.line, _text(words, tokens[:at]),
                                        _text(words, tokens[at:]), origin.weight))
            origin = Origin(origin.source, place.offset, source, origin.match, store.name, place.line, number)
        out.append(origin)
    return out, passages


def _text(words: Detokenizer | None, tokens: Sequence[int]) -> str:
    return words.text(tokens) if words is not None else ""
