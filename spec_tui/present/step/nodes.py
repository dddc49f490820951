"""What is known of each drafted node: who proposed it, what draft and target gave it, what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engines.core.tree import children, depths
from engines.report.events import Choice, Emitted, Origin, Round, Trial, Verified
from engines.report.run_state import origin_of

Fate = Literal["accepted", "rejected", "unreached"]
"""accepted: on the path. rejected: judged, and not on the path. unreached: something above it was not accepted."""


@dataclass(frozen=True, slots=True)
class TreeNode:
    """One row of the verification; the root has index -1 and no draft.

    Attributes:
        q: the drafter's probability of its token given its parent; None where it has none.
        p: the target's; None where it was not recorded.
        trials: what a law with random draws or a threshold tried on it.
        choice: what the target has at this row, so for the token after it; None where it was not recorded.
        noise: the Gumbel noise of the choice.
    """

    index: int
    depth: int
    piece: str
    fate: Fate
    q: float | None = None
    p: float | None = None
    trials: tuple[Trial, ...] = ()
    choice: Choice | None = None
    noise: float | None = None
    origins: tuple[Origin, ...] = ()


def order(parents: tuple[int, ...], first: frozenset[int] = frozenset()) -> list[int]:
    """The nodes as a person reads a tree: each before what hangs below it; of siblings those in ``first`` first."""
    below, out, stack = children(parents), [], [-1]
    while stack:
        node = stack.pop()
        out.append(node)
        stack += sorted(below.get(node, ()), key=lambda n: (n not in first, n), reverse=True)
    return out[1:]


def nodes_of(event: Round) -> list[TreeNode]:
    """The nodes of a round in the order drafted."""
    visited = dict(zip([-1, *event.path], event.emitted))
    depth = depths(event.draft.parents)
    return [_node(event, index, depth[index], visited) for index in range(len(event.draft.tokens))]


def root_of(event: Round, piece: str) -> TreeNode:
    """The row of the root."""
    return TreeNode(-1, 0, piece, "accepted", choice=_choice(event, -1, event.emitted[0] if event.emitted else None),
                noise=_noise(event, -1, event.emitted[0] if event.emitted else None))


def unrecorded(event: Round) -> int:
    """At how many nodes it was not recorded what the target has there."""
    return 0 if event.verified else len(event.draft.tokens) - max(0, len(event.emitted) - 1)


def _node(event: Round, index: int, depth: int, visited: dict[int, Emitted]) -> TreeNode:
    draft, parent = event.draft, event.draft.parents[index]
    fate: Fate = "accepted" if index in event.path else "rejected" if parent in visited else "unreached"
    trials = tuple(t for t in visited[parent].trials if t.node == index) if parent in visited else ()
    second = (draft.origins[draft.also[index]],) if draft.also and draft.also[index] >= 0 else ()
    return TreeNode(
        index, depth, draft.pieces[index], fate, draft.probs[index], _target(event, index, visited.get(parent)), trials,
        _choice(event, index, visited.get(index)), _noise(event, index, visited.get(index)),
        (origin_of(draft, index), *second),
    )


def _row(event: Round, index: int) -> Verified | None:
    return event.verified[index + 1] if index + 1 < len(event.verified) else None


def _target(event: Round, index: int, above: Emitted | None) -> float | None:
    """The target's probability of a node's token: recorded for all rows, or told where the walk came by."""
    row = _row(event, index)
    if row is not None:
        return row.drafted
    if above is None:
        return None
    token = event.draft.tokens[index]
    if above.token == token:
        return above.prob
    return next((choice.prob for choice in above.top if choice.token == token), None)


def _choice(event: Round, index: int, here: Emitted | None) -> Choice | None:
    row = _row(event, index)
    if here is not None and not here.trials:
        return Choice(here.token, here.piece, here.prob)
    if row is not None:
        return row.choice
    return here.top[0] if here is not None and here.top else None


def _noise(event: Round, index: int, here: Emitted | None) -> float | None:
    row = _row(event, index)
    return here.noise if here is not None else row.noise if row is not None else None
