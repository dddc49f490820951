"""The chosen nodes of what a lookup found as a draft tree, with the place that each was copied from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engines.core.tree import DraftTree
from engines.methods.passages import FoundOrigins
from engines.report.events import Origin, Retrieval

if TYPE_CHECKING:
    from engines.datastores.search.continuations import Continuations
    from engines.datastores.search.sparse import SparseStore
    from engines.datastores.search.trie import Nodes
    from engines.methods.shared.conversation import Conversation


def from_stores(found: Continuations, chosen: Nodes, stores: Sequence[SparseStore], seconds: float) -> DraftTree:
    """Nodes of what was found in ``stores``; ``seconds`` is what finding it took."""
    origins = FoundOrigins()
    where = (column.take(chosen.rows).tolist() for column in (found.stores, found.positions, found.matched))
    origin = [origins.index(stores[store], position, match, count)
              for store, position, match, count in zip(*where, chosen.counts)]
    return _tree(found, chosen, origin, origins.origins, seconds)


def from_conversation(found: Continuations, chosen: Nodes, conversation: Conversation, seconds: float) -> DraftTree:
    """The same of what was found in prompt and answer."""
    index: dict[Origin, int] = {}
    origin = [
        index.setdefault(conversation.origin(int(found.positions[row]), int(found.matched[row])), len(index))
        for row in chosen.rows
    ]
    return _tree(found, chosen, origin, list(index), seconds)


def _tree(
    found: Continuations, chosen: Nodes, origin: list[int], origins: Sequence[Origin], seconds: float
) -> DraftTree:
    match = int(found.matched.max(initial=0))
    retrieval = Retrieval(seconds=seconds, match=match, hits=found.total, used=len(found))
    return DraftTree(
        tokens=chosen.tokens, parents=chosen.parents, probs=chosen.probs, origin=origin, origins=list(origins),
        retrieval=retrieval,
    )
