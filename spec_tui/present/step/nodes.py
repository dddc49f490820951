"""What is known of each drafted node: who proposed it, what draft and target gave it, what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from engines.core.tree import children, depths
from engines.report.events import Choice, Emitted, Origin, Round, Trial, Verified
from engines.report.run_state import origin_of

Fate = Literal["accepted", "rejected", "unreached"]
"""accepted: on the path. rejected: judged, and not on the path. unreached: something above it was not accepted, or
a law that tries drafts did not try it."""


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

    @property
    def decisive(self) -> Trial | None:
        """The trial by which it was accepted, else its last one: some laws try a node several times."""
        return next((trial for trial in self.trials if trial.accepted), self.trials[-1] if self.trials else None)


def order(parents: tuple[int, ...], first: Sequence[int] = ()) -> list[int]:
    """The nodes as a person reads a tree: each before what hangs below it; of siblings those in ``first`` first, in its
    order."""
    below, out, stack = children(parents), [], [-1]
    rank = {node: place for place, node in reversed(list(enumerate(first)))}
    while stack:
        node = stack.pop()
        out.append(node)
        stack += sorted(below.get(node, ()), key=lambda n: (rank.get(n, len(first)), n), reverse=True)
    return out[1:]


def fates_of(event: Round) -> list[Fate]:
    """What became of each drafted node."""
    path, tried = {-1, *event.path}, {trial.node for emitted in event.emitted for trial in emitted.trials}
    return ["accepted" if node in path else
            "rejected" if parent in path and (node in tried or not tried) else "unreached"
            for node, parent in enumerate(event.draft.parents)]


def nodes_of(event: Round) -> list[TreeNode]:
    """The nodes of a round in the order drafted."""
    draft, visited, depth = event.draft, dict(zip([-1, *event.path], event.emitted)), depths(event.draft.parents)
    nodes, tried = [], [trial for emitted in event.emitted for trial in emitted.trials]
    for index, (parent, fate) in enumerate(zip(draft.parents, fates_of(event))):
        above = visited.get(parent)
        choice, noise = _here(event, index, visited.get(index))
        nodes.append(TreeNode(
            index=index, depth=depth[index], piece=draft.pieces[index], fate=fate,
            q=draft.probs[index], p=_target(event, index, above),
            trials=tuple(trial for trial in tried if trial.node == index),
            choice=choice, noise=noise, origins=tuple(origins_of(event, index)),
        ))
    return nodes


def root_of(event: Round, piece: str) -> TreeNode:
    choice, noise = _here(event, -1, event.emitted[0] if event.emitted else None)
    return TreeNode(-1, 0, piece, "accepted", choice=choice, noise=noise)


def origins_of(event: Round, node: int) -> list[Origin]:
    """Who proposed a node: of a fused tree it may be two."""
    draft = event.draft
    second = [draft.origins[draft.also[node]]] if draft.also and draft.also[node] >= 0 else []
    return [origin_of(draft, node), *second]


def unrecorded(event: Round) -> int:
    """At how many nodes it was not recorded what the target has there."""
    return 0 if event.verified else len(event.draft.tokens) - max(0, len(event.emitted) - 1)


def _row(event: Round, index: int) -> Verified | None:
    return event.verified[index + 1] if index + 1 < len(event.verified) else None


def _target(event: Round, index: int, above: Emitted | None) -> float | None:
    """The target's probability of a node's token: recorded for all rows, or told where the walk came by."""
    if (row := _row(event, index)) is not None or above is None:
        return row.drafted if row is not None else None
    token = event.draft.tokens[index]
    return next((choice.prob for choice in (above, *above.top) if choice.token == token), None)


def _here(event: Round, index: int, here: Emitted | None) -> tuple[Choice | None, float | None]:
    """What the target has at a row, and the noise of it; ``here`` is what was emitted there."""
    row = _row(event, index)
    noise = here.noise if here is not None else row.noise if row is not None else None
    if here is not None and not here.trials and here.prob is not None:
        return Choice(here.token, here.piece, here.prob), noise
    if row is not None:
        return row.choice, noise
    return here.top[0] if here is not None and here.top else None, noise
