"""A tree without what its drafter would not have begun with (RASD, section 3.2.2), and two trees as one (3.2.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from engines.core.tree import DraftTree, depths


def pruned(tree: DraftTree, stays: Callable[[int], bool]) -> tuple[DraftTree, Counter[int]]:
    """The tree without the branches whose first token does not stay, and by first token how many nodes those had."""
    heads: list[int] = []
    for token, parent in zip(tree.tokens, tree.parents):
        heads.append(heads[parent] if parent >= 0 else token)
    kept = [node for node, head in enumerate(heads) if stays(head)]
    return tree.select(kept), Counter(head for head in heads if not stays(head))


def fuse(first: DraftTree, second: DraftTree, shared: int = 0) -> DraftTree:
    """Both trees merged by their longest common prefixes: nodes of the first, then those that only the second has.

    Args:
        first, second: siblings distinct, nodes point masses.
        shared: the second's nodes down to this depth are the first's own, repeated to hang others below.

    Returns:
        ``also`` names the second's origin where both have a node.
    """
    tree = DraftTree(origins=[*first.origins, *second.origins])
    for node in zip(first.tokens, first.parents, first.probs, first.origin):
        tree.add(*node)
    tree.also = [-1] * len(first)
    index = {-1: -1}
    columns = zip(second.tokens, second.parents, second.probs, second.origin, depths(second.parents))
    for node, (token, parent, prob, origin, depth) in enumerate(columns):
        origin += len(first.origins)
        index[node] = tree.add(token, index[parent], prob, origin)
        if index[node] == len(tree.also):
            tree.also.append(-1)
        elif depth > shared:
            tree.also[index[node]] = origin
    return tree


def side_by_side(first: DraftTree, second: DraftTree, shared: int = 0) -> DraftTree:
    """Both trees under one root, whatever they have in common: siblings may carry one token twice. See ``fuse``."""
    own = [depth <= shared for depth in depths(second.parents)]
    below = [parent + len(first) if parent >= 0 else -1 for parent in second.parents]
    return DraftTree(
        tokens=first.tokens + second.tokens, parents=first.parents + below, probs=first.probs + second.probs,
        origin=first.origin + [0 if mine else origin + len(first.origins) for mine, origin in zip(own, second.origin)],
        origins=[*first.origins, *second.origins],
    )
