"""The draft tree: every method's guesses in one shape (chains, PLD spans, tries, EAGLE trees)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import lt
from typing import TYPE_CHECKING, Any

from engines.report.events import Origin, Retrieval

if TYPE_CHECKING:
    import numpy as np


def depths(parents: Sequence[int]) -> list[int]:
    """Depth of each node, children of the root 1; parents come before their children, -1 is the root."""
    out: list[int] = []
    for parent in parents:
        out.append(1 if parent < 0 else out[parent] + 1)
    return out


def children(parents: Sequence[int]) -> dict[int, list[int]]:
    """Nodes by parent, in the order drafted."""
    out: dict[int, list[int]] = {}
    for node, parent in enumerate(parents):
        out.setdefault(parent, []).append(node)
    return out


@dataclass(slots=True)
class DraftTree:
    """Guesses for the tokens after the root (the last emitted token).

    Attributes:
        tokens: token ids, one a node.
        parents: index of each node's parent, -1 for the root; a parent comes before its children. Siblings should carry
            distinct tokens (``add`` sees to it); a repeated one is harmless, only its row is wasted.
        probs: the drafter's probability of each node given its parent (None where it has none).
        origin: index into ``origins`` for each node.
        origins: the distinct origins.
        dists: for the rejection law, by parent: the distribution its children were drawn from, float64 [vocabulary].
            None for drafts that are point masses, and so are children of a parent that is not in it.
        distinct: siblings were drawn without replacement, each from its parent's distribution without the earlier ones.
        draws: by parent, its children in the order they were drawn, with repeats. None where each was drawn once.
        note: remarks for display (match length, hits, ...): JSON scalars.
        also: of a fused tree, each node's second origin, -1 for none; empty for all others.
        retrieval: the lookup behind it, for display.
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    probs: list[float | None] = field(default_factory=list)
    origin: list[int] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    dists: dict[int, np.ndarray] | None = None
    distinct: bool = False
    draws: dict[int, list[int]] | None = None
    note: dict[str, Any] = field(default_factory=dict)
    also: list[int] = field(default_factory=list)
    retrieval: Retrieval | None = None
    _known: dict[tuple[int, int], int] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, child: tuple[int, int]) -> bool:
        """Whether a (parent, token) was added."""
        return child in self._known

    def add(self, token: int, parent: int, prob: float | None, origin: int) -> int:
        """Append a node, or find the sibling that already carries the token. Returns its index."""
        if (parent, token) in self._known:
            return self._known[parent, token]
        self._known[parent, token] = len(self.tokens)
        self.tokens.append(token)
        self.parents.append(parent)
        self.probs.append(prob)
        self.origin.append(origin)
        return len(self.tokens) - 1

    @classmethod
    def chain(cls, tokens: list[int], origin: Origin, probs: list[float] | None = None, **kw: Any) -> DraftTree:
        """One path from the root."""
        n = len(tokens)
        return cls(list(tokens), list(range(-1, n - 1)), list(probs) if probs else [None] * n, [0] * n, [origin], **kw)

    def depths(self) -> list[int]:
        """Depth of each node, children of the root 1."""
        return depths(self.parents)

    def children(self) -> dict[int, list[int]]:
        """Nodes by parent, in the order drafted."""
        return children(self.parents)

    def carrying(self, node: int, token: int) -> list[int]:
        """The children of a node, or of the root (-1), that carry a token: more than one where siblings repeat it."""
        found, at, tokens, parents = [], node, self.tokens, self.parents
        for _ in range(tokens.count(token)):
            try:
                at = tokens.index(token, at + 1)
            except ValueError:  # the others come before the node
                break
            if parents[at] == node:
                found.append(at)
        return found

    def tries(self) -> dict[int, list[int]]:
        """What a law that tries siblings in turn has to try below each node."""
        return self.draws if self.draws is not None else self.children()

    def capped(self, depth: int, nodes: int) -> DraftTree:
        """This tree without nodes deeper than ``depth`` and with at most ``nodes`` of them, the first ones."""
        if len(self) <= min(depth, nodes):  # no node is deeper than there are nodes
            return self
        keep = [i for i, d in enumerate(self.depths()) if d <= depth][: max(0, nodes)]
        return self if len(keep) == len(self) else self.select(keep)

    def ending_at(self, ends: frozenset[int]) -> DraftTree:
        """This tree without what hangs below an end token: it could never be emitted."""
        if ends.isdisjoint(self.tokens):
            return self
        open_nodes, keep = {-1}, []
        for node, (token, parent) in enumerate(zip(self.tokens, self.parents)):
            if parent in open_nodes:
                keep.append(node)
                if token not in ends:
                    open_nodes.add(node)
        return self.select(keep) if len(keep) < len(self) else self

    def first_path(self) -> DraftTree:
        """The path of first children: what a model that cannot branch can verify. Of drawn siblings the first draw
        stays, whatever the others were."""
        children, path, node = self.children(), [], -1
        while node in children:
            node = children[node][0]
            path.append(node)
        return self._pick(path, None) if len(path) < len(self) or self.draws is not None else self

    def select(self, keep: list[int]) -> DraftTree:
        """The nodes ``keep`` (ascending, closed under parents) as a tree.

        Raises:
            ValueError: some of the siblings that dice drew would go and some stay. What is left out would depend on
                the dice that chose it, and the rejection law would be biased: draw fewer instead.
        """
        kept = set(keep)
        draws = self.draws if self.draws is not None else self.children() if self.dists else {}
        whole = {parent: nodes for parent, nodes in draws.items() if nodes and kept.issuperset(nodes)}
        if any(kept.intersection(draws[parent]) for parent in draws.keys() & (self.dists or {}) if parent not in whole):
            raise ValueError("draft tree: siblings drawn by dice can only be left out together")
        return self._pick(keep, whole if self.draws is not None else None)

    def _pick(self, keep: list[int], draws: dict[int, list[int]] | None) -> DraftTree:
        index = {-1: -1} | {old: new for new, old in enumerate(keep)}
        return DraftTree(
            [self.tokens[i] for i in keep],
            [index[self.parents[i]] for i in keep],
            [self.probs[i] for i in keep],
            [self.origin[i] for i in keep],
            self.origins,
            {index[p]: q for p, q in self.dists.items() if p in index} if self.dists is not None else None,
            self.distinct,
            {index[p]: [index[n] for n in nodes] for p, nodes in draws.items()} if draws is not None else None,
            self.note,
            [self.also[i] for i in keep] if self.also else [],
            self.retrieval,
        )

    def check(self, vocab_size: int) -> None:
        """Raises ValueError where a parent does not come first or a token is not of the vocabulary."""
        n = len(self.tokens)
        if not n == len(self.parents) == len(self.probs) == len(self.origin):
            raise ValueError("draft tree: columns of unequal length")
        if not n or (
            min(self.tokens) >= 0 and max(self.tokens) < vocab_size
            and min(self.parents) >= -1 and all(map(lt, self.parents, range(n)))
        ):
            return
        for i, (token, parent) in enumerate(zip(self.tokens, self.parents)):
            if not -1 <= parent < i:
                raise ValueError(f"draft tree: node {i} has parent {parent}")
            if not 0 <= token < vocab_size:
                raise ValueError(f"draft tree: node {i} has token {token}, the vocabulary has {vocab_size}")
