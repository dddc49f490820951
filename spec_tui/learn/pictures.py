"""The picture of a page as rows: its figure, or the text so far with the draft of its round and what became of it."""

from __future__ import annotations

from engines.folders import model_label
from engines.laws import LawSpec, trying
from engines.methods import drafts_nothing
from engines.report.events import Round
from engines.report.run_state import best_path
from engines.report.wording import context_tail, counted, quoted
from spec_tui.learn.lesson_progress import View
from spec_tui.present.narration import question
from spec_tui.present.rows import Row, struck, words_of
from spec_tui.present.step.nodes import nodes_of, order
from spec_tui.present.step.phases import PHASES, event_of, mask
from spec_tui.present.text import in_column, one_line
from spec_tui.present.token_styles import ACCEPTED, CHOSEN, FATE_MARKS, HERE, PRUNED, REJECTED, UNJUDGED
from spec_tui.present.tree_paths import chain_to

MARKS = (f"Marks: {ACCEPTED} accepted, {REJECTED} rejected, {UNJUDGED} not reached, {PRUNED} cut off, {CHOSEN} the "
         "target's own token; in a token · is a space, ↵ a line break; ~ is estimated between or beyond measured sizes;"
         f" {HERE} is the row that the line below a figure is about; in a mask █ is what a row may read.")
READING = (
    "spec-tui, the program of these lessons, generates text with language models and shows each step. All numbers are "
    "from its recorded runs on two cores of an x86 processor without a graphics card. Three models take part: smollm2 "
    "(135 million weights, 98 MB; with a draft model of 12 million), qwen-coder (1.5 billion weights, 1.1 GB; with one "
    "of 0.5 billion), and a sample model (sample_models/target, 12 million weights, 23 MB: two bytes for each "
    "weight; the other models store most weights in 4 to 6 bits). Each picture says which run it shows. Answers are "
    "cut off at a set number of tokens. Numbers are rounded, so a sum may be off in its last digit.",
    "A picture of a round has the end of the text so far (… is what came before), the draft, and what the target "
    "wrote itself. A round goes through phases: Draft, Tree (the draft and its mask), Verify (the target reads it), "
    "Accept (what stays), Correct (the target's own token; this phase is named Bonus after a draft that was accepted "
    "to its end, and Target where nothing was drafted) and Keep (what stays in memory). <|im_start|> and <|im_end|> "
    "are tokens that mark where a speaker's turn begins and ends; the turn of the assistant is the model's answer.",
)
"""How to read lessons where there is no screen."""
_BRANCHES = 10  # drawn at most
_MASKED = 20  # rows of a mask, at most


def caption(view: View, seen: set[str]) -> str:
    """Which run a picture shows, and with which models; what was asked as well where it is not among ``seen``, to which
    it is added. "" of a figure that shows no run."""
    if view.figure is not None and not view.figure.of_run:
        return ""
    run = view.run.started
    drafts = " without drafts" if drafts_nothing(run.engine) else f" with {one_line(run.engine, 40)}"
    words = [f"Run {one_line(view.name, 40)}: the model {one_line(model_label(run.model), 40)}{drafts}, "
             f"temperature {run.temperature:g}"]
    if view.figure is None:
        words.append(f"round {view.place.round} of {len(view.run.rounds)}" if view.place.round else "the prompt")
    asked = f' It was asked: "{one_line(question(run), 300)}"' if question(run) and view.name not in seen else ""
    seen.add(view.name)
    return f"{', '.join(words)}.{asked}"


def picture(view: View, width: int, height: int) -> list[Row]:
    """What stands beside the text of a page on paper. What the reader is asked for is left out."""
    if view.figure is not None:
        return view.figure.still(width, height)
    event = event_of(view.run, view.place.round)
    if event is None:
        return [[("prompt ", "muted"), (one_line("".join(view.run.started.prompt_pieces)[-width:], width - 8), "text")]]
    rows: list[Row] = [[("text   ", "muted"), (_ending(context_tail(view.run, event.position, 24), width - 9), "text")]]
    judged = not view.hides and PHASES.index(view.place.phase) >= PHASES.index("accept")
    nodes, inner = nodes_of(event), set(event.draft.parents)
    first = [*event.path, *best_path(event.draft)] if judged else best_path(event.draft)
    leaves = [nodes[index] for index in order(event.draft.parents, first) if index not in inner]
    for number, leaf in enumerate(leaves[:_BRANCHES]):
        row: list = [("draft  " if number == 0 else " " * 7, "muted")]
        for node in (nodes[index] for index in chain_to(event.draft.parents, leaf.index)):
            mark, style = FATE_MARKS[node.fate] if judged else ("", "text")
            cell = f"{mark}{quoted(node.piece)} "
            if len(words_of(row)) + len(cell) > width and len(row) > 1:
                rows.append(row)
                row = [(" " * 9, "muted")]
            row += struck(mark, cell[len(mark) :]) if style == "ghost" else [(cell, style)]
        rows.append(row)
    if len(leaves) > _BRANCHES:
        rows.append([(f"       … and {counted(len(leaves) - _BRANCHES, 'more branch')}", "muted")])
    if not nodes:
        rows.append([("draft  ", "muted"), ("nothing", "muted")])
    own = [one for one in event.emitted if one.node < 0]
    if own and (judged or (not nodes and not view.hides)):
        rows.append([("target ", "muted"), (f"{CHOSEN}{quoted(own[-1].piece)} {own[-1].kind}", own[-1].kind)])
    rows += _trials(event, trying(view.run.started.law)) if judged else []
    return [*rows, *_mask(event)] if view.place.phase == "tree" else rows


def _ending(pieces: list[str], room: int) -> str:
    """The end of the text, begun with a whole token."""
    out = ""
    for number, piece in enumerate(reversed(pieces)):
        longer = one_line(piece, 80) + out
        if number and len(longer) > room:
            break
        out = longer
    return f"…{out}"


def _trials(event: Round, law: LawSpec) -> list[Row]:
    """What a law tried, in its order and in its words."""
    trials = [trial for emitted in event.emitted for trial in emitted.trials]
    return [[("trial  " if number == 0 else " " * 7, "muted"),
             (in_column(quoted(event.draft.pieces[t.node]), 13), "text"),
             (law.trial(t, trials[:number]), "accepted" if t.accepted else "muted")]
            for number, t in enumerate(trials)]


def _mask(event: Round) -> list[Row]:
    """The attention mask: a row for each token, a column for each that it may see beside the text so far."""
    table = mask(event.draft.parents)
    labels = ["root", *map(quoted, event.draft.pieces)]
    nodes = [0, *(index + 1 for index in order(event.draft.parents, best_path(event.draft)))]
    if len(nodes) > _MASKED:
        return [[("mask   ", "muted"), (f"{len(nodes)} rows: each sees the text, its ancestors and itself", "muted")]]
    return [[("mask   " if number == 0 else " " * 7, "muted"), (in_column(labels[node], 13), "text"),
             ("".join("█ " if table[node][other] else "· " for other in nodes), "accepted")]
            for number, node in enumerate(nodes)]
