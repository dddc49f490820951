"""The picture of a page as rows: its figure, or the text so far with the draft of its round and what became of it."""

from __future__ import annotations

from engines.core.tree import chain_to
from engines.report.events import Round
from engines.report.run_state import best_path
from engines.report.wording import context_tail, quoted
from spec_tui.learn.walk import View
from spec_tui.present.rows import Row
from spec_tui.present.step.nodes import nodes_of, order
from spec_tui.present.step.phases import PHASES, event_of, mask
from spec_tui.present.text import one_line
from spec_tui.present.token_styles import ACCEPTED, CHOSEN, REJECTED, UNJUDGED

MARKS = (f"Marks: {ACCEPTED} accepted, {REJECTED} rejected, {UNJUDGED} not reached, {CHOSEN} the target's own token; "
         "in a token · is a space, ↵ a line break.")
_BRANCHES = 10  # drawn at most
_MASKED = 20  # rows of a mask, at most
_MARKS = {"accepted": (ACCEPTED, "accepted"), "rejected": (REJECTED, "ghost"), "unreached": (UNJUDGED, "muted")}


def picture(view: View, width: int, height: int) -> list[Row]:
    """What stands beside the text of a page on paper. What a question asks for is left out."""
    if view.figure is not None:
        return view.figure.still(width, height)
    event = event_of(view.run, view.place.round)
    if event is None:
        return [[("prompt ", "muted"), (one_line("".join(view.run.started.prompt_pieces)[-width:], width - 8), "text")]]
    tail = one_line("".join(context_tail(view.run, event.position, 24)), 400)[-(width - 8) :]
    rows: list[Row] = [[("text   ", "muted"), (tail, "text")]]
    judged = not view.asks and PHASES.index(view.place.phase) >= PHASES.index("accept")
    nodes, inner = nodes_of(event), set(event.draft.parents)
    first = [*event.path, *best_path(event.draft)] if judged else best_path(event.draft)
    leaves = [nodes[index] for index in order(event.draft.parents, first) if index not in inner]
    for number, leaf in enumerate(leaves[:_BRANCHES]):
        row: list = [("draft  " if number == 0 else " " * 7, "muted")]
        for node in (nodes[index] for index in chain_to(event.draft.parents, leaf.index)):
            mark, style = _MARKS[node.fate] if judged else ("", "text")
            row.append((f"{mark}{quoted(node.piece)} ", style))
        rows.append(row)
    if len(leaves) > _BRANCHES:
        rows.append([(f"       … and {len(leaves) - _BRANCHES} more branches", "muted")])
    if not nodes:
        rows.append([("draft  ", "muted"), ("nothing", "muted")])
    own = [one for one in event.emitted if one.node < 0]
    if own and (judged or (not nodes and not view.asks)):
        rows.append([("target ", "muted"), (f"{CHOSEN}{quoted(own[-1].piece)} {own[-1].kind}", own[-1].kind)])
    rows += _trials(event) if judged else []
    return [*rows, *_mask(event)] if view.place.phase == "tree" else rows


def _trials(event: Round) -> list[Row]:
    """What a law with random draws tried, in its order."""
    trials = [trial for emitted in event.emitted for trial in emitted.trials]
    return [[("trial  " if number == 0 else " " * 7, "muted"),
             (f"{one_line(quoted(event.draft.pieces[t.node]), 12):<13}", "text"),
             (f"p {t.target_prob:.3f}  q {t.draft_prob:.3f}  draw {t.draw:.3f}  ", "text"),
             ("accepted" if t.accepted else "rejected", "accepted" if t.accepted else "ghost")]
            for number, t in enumerate(trials)]


def _mask(event: Round) -> list[Row]:
    """The attention mask: a row for each token, a column for each that it may see beside the text so far."""
    table = mask(event.draft.parents)
    labels = ["root", *map(quoted, event.draft.pieces)]
    nodes = [0, *(index + 1 for index in order(event.draft.parents, best_path(event.draft)))]
    if len(nodes) > _MASKED:
        return [[("mask   ", "muted"), (f"{len(nodes)} rows: each sees the text, its ancestors and itself", "muted")]]
    return [[("mask   " if number == 0 else " " * 7, "muted"), (f"{one_line(labels[node], 12):<13}", "text"),
             ("".join("█ " if table[node][other] else "· " for other in nodes), "accepted")]
            for number, node in enumerate(nodes)]
