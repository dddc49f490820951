"""The draft tree: every method's guesses in one shape (chains, copied spans, tries, EAGLE trees)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import lt
from typing import Any


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


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial of a drafted node: target and draft probability of its token, the random draw, the verdict.

    Accepted when ``draw < target_prob / draft_prob`` (or ``bound``); ``target_prob`` is of what rejections left of p.
    """

    node: int
    target_prob: float
    draft_prob: float
    draw: float
    accepted: bool
    bound: float | None = None


@dataclass(slots=True)
class DraftTree:
    """Guesses for the tokens after the root (the last emitted token); columns with one entry a node.

    Attributes:
        tokens: token ids. Siblings should carry distinct ones (``add`` sees to it); a repeat only wastes its row.
        parents: index of each node's parent, -1 for the root; a parent comes before its children.
        probs: the drafter's probability of each node given its parent; None where it has none.
        origin: index into ``origins`` for each node; ``also``: of a fused tree the second one, -1 for none.
        origins: the distinct origins (``engines.report.events.Origin``).
        dists: by parent, the distribution its children were drawn from, float64 [vocabulary]; the children of other
            parents are point masses. None for drafts that are not drawn.
        distinct: siblings were drawn without replacement, each from its parent's distribution without the earlier ones.
        draws: by parent, its children in the order they were drawn, with repeats. None where each was drawn once.
        note, budget, retrieval: what is shown of the draft: the method's note, what the budget chose, the lookup.
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    probs: list[float | None] = field(default_factory=list)
    origin: list[int] = field(default_factory=list)
    origins: list[Any] = field(default_factory=list)
    also: list[int] = field(default_factory=list)
    dists: dict[int, Any] | None = None
    distinct: bool = False
    draws: dict[int, list[int]] | None = None
    note: Any = None
    budget: Any = None
    retrieval: Any = None
    _known: dict[tuple[int, int], int] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def chain(cls, tokens: list[int], origin: Any, probs: list[float] | None = None, **more: Any) -> DraftTree:
        """One path from the root."""
        n = len(tokens)
        return cls(list(tokens), list(range(-1, n - 1)), list(probs or [None] * n), [0] * n, [origin], **more)

    def add(self, token: int, parent: int, prob: float | None, origin: int) -> int:
        """Append a node, or find the sibling that carries the token. Returns its index."""
        index = self._known.setdefault((parent, token), len(self.tokens))
        if index == len(self.tokens):
            self.tokens.append(token)
            self.parents.append(parent)
            self.probs.append(prob)
            self.origin.append(origin)
        return index

    def carrying(self, node: int, token: int) -> list[int]:
        """The children of a node, or of the root (-1), that carry a token: more than one where siblings repeat it."""
        if token not in self.tokens:
            return []
        return [n for n, (t, parent) in enumerate(zip(self.tokens, self.parents)) if t == token and parent == node]

    def tries(self) -> dict[int, list[int]]:
        """By parent, the children that a law tries in turn, with repeats."""
        return self.draws if self.draws is not None else children(self.parents)

    def capped(self, depth: int, nodes: int) -> DraftTree:
        """This tree without nodes deeper than ``depth``, and with at most ``nodes`` of them, the first ones."""
        if len(self) <= min(depth, nodes):  # no node is deeper than there are nodes
            return self
        return self.select([i for i, d in enumerate(depths(self.parents)) if d <= depth][: max(0, nodes)])

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
        return self.select(keep)

    def first_path(self) -> DraftTree:
        """The path of first children, or first draws: what a model that cannot branch can verify."""
        below, path, node = children(self.parents), [], -1
        while node in below:
            node = below[node][0]
            path.append(node)
        return self._pick(path, None)

    def select(self, keep: list[int]) -> DraftTree:
        """The nodes ``keep`` (ascending, closed under parents) as a tree.

        Raises ValueError where only some of the siblings that were drawn would stay: which ones would depend on the
        draws, and the rejection law would be biased. Draw fewer instead.
        """
        if len(keep) == len(self):
            return self
        kept, draws = set(keep), self.tries() if self.draws is not None or self.dists else {}
        whole = {parent: nodes for parent, nodes in draws.items() if nodes and kept.issuperset(nodes)}
        if any(kept.intersection(draws[parent]) for parent in draws.keys() & (self.dists or {}) if parent not in whole):
            raise ValueError("draft tree: siblings that were drawn can only be left out together")
        return self._pick(keep, whole if self.draws is not None else None)

    def _pick(self, keep: list[int], draws: dict[int, list[int]] | None) -> DraftTree:
        index = {-1: -1} | {old: new for new, old in enumerate(keep)}
        tokens, probs, origin, also = (
            [column[i] for i in keep] if column else [] for column in (self.tokens, self.probs, self.origin, self.also))
        return DraftTree(
            tokens, [index[self.parents[i]] for i in keep], probs, origin, self.origins, also,
            distinct=self.distinct, note=self.note, budget=self.budget, retrieval=self.retrieval,
            dists={index[p]: q for p, q in self.dists.items() if p in index} if self.dists is not None else None,
            draws={index[p]: [index[n] for n in nodes] for p, nodes in draws.items()} if draws is not None else None,
        )

    def check(self, vocab_size: int) -> None:
        """Raises ValueError: columns differ in length, a parent comes too late, a token is not of the vocabulary."""
        n = len(self.tokens)
        if not n == len(self.parents) == len(self.probs) == len(self.origin) == len(self.also or self.origin):
            raise ValueError("draft tree: columns of unequal length")
        if n and not (min(self.parents) >= -1 and all(map(lt, self.parents, range(n)))):
            raise ValueError("draft tree: a node comes before its parent")
        if n and not (min(self.tokens) >= 0 and max(self.tokens) < vocab_size):
            raise ValueError(f"draft tree: a token is outside the vocabulary of {vocab_size}")
