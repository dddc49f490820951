"""The draft tree of one round: what was guessed, what was kept, what the target wrote instead."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from engines.core.tree import children, depths
from engines.methods import origin_kind, remarks
from engines.report.events import Draft, Round
from engines.report.run_state import RunState, origin_of
from spec_tui.present.rows import taps
from spec_tui.present.step.nodes import Fate, fates_of
from spec_tui.present.tables import count_or_dash
from spec_tui.present.text import LOSSY, cells, one_line, visible
from spec_tui.present.token_facts import budget_words
from spec_tui.present.token_styles import FATE_MARKS, UNJUDGED, spans
from spec_tui.tui.actions import Action, HasActions
from spec_tui.tui.widgets import retrieval_rows
from spec_tui.tui.widgets.strip_panel import BLANK, Row, Span, StripPanel, clip, fit, title_row

PIECE = 14  # columns a token's label may take
_OF_LOOKUP = frozenset({"match", "hits", "neighbours", "similarity", "fused", "pruned"})  # remarks told with the lookup


@dataclass(frozen=True, slots=True)
class _Pen:
    """What drawing a round's tree needs to know."""

    draft: Draft
    accepted: frozenset[int]
    children: dict[int, list[int]]
    width: int
    pruned: tuple[tuple[str, int], ...] = ()
    judged: bool = True
    fates: list[Fate] = field(default_factory=list)


class TreePanel(HasActions, StripPanel, can_focus=True):
    """A round's tree, chains folded onto one line, the accepted path first; below it what was looked up for it."""

    word_here = "draft tree"
    ACTIONS = (
        Action(id="tree.back", run="screen.round(-1)", keys="left_square_bracket", label="Round",
               help="The previous round"),
        Action(id="tree.next", run="screen.round(1)", keys="right_square_bracket", label="Round",
               help="The next round"),
    )

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self._run = RunState()
        self._index = -1

    def show_round(self, run: RunState, index: int) -> None:
        """Show this round of the run; -1 shows the last."""
        self._run, self._index = run, index if index >= 0 else len(run.rounds) - 1
        self.update_rows()

    def rows(self, width: int, height: int) -> list[Row]:
        run, index = self._run, self._index
        if not 0 <= index < len(run.rounds):
            return [title_row(width, "draft tree"), [], [("the draft of each round appears here", "muted")]]
        event = run.rounds[index]
        head = title_row(width, "draft tree", f"round {event.index:>3}")
        below = retrieval_rows.room_for(run, event, height, self.detailed)
        foot = self._foot(event, width, _OF_LOOKUP if below and event.retrieval else frozenset())
        room = height - 1 - len(foot) - below
        body = tree_rows(event, run, index, width, max(1, room), hint=" (tab, then m)")
        body += [BLANK] * (room - len(body))
        return [head, *body, *foot, *(
            retrieval_rows.rows(run, index, width, below, detailed=self.detailed) if below else ())]

    def _foot(self, event: Round, width: int, told: frozenset[str]) -> list[Row]:
        drafted, (verified, expected) = event.drafted, budget_words(event.budget)
        rests = event.budget is not None and event.budget.rests
        words = f"{drafted:>3} drafted  {len(event.path):>2} accepted" if drafted else (
            "drafting is paused: it did not pay" if rests else "nothing drafted in this round")
        if drafted is None:
            words = f"  — drafted  {count_or_dash(event.accepted):>2} accepted (not disclosed)"
        if not self.detailed:
            notes = []
        else:
            words += f"  depth {max(depths(event.draft.parents)):>2}  {expected}" if drafted else ""
            others = {label: value for label, value in remarks(self._run.started, event) if label not in told}
            others |= {"threads": event.threads} if event.threads is not None else {}
            notes = [f"the budget verifies {verified}"] * bool(verified)
            notes += [f"{one_line(str(name))} {_scalar(value)}" for name, value in others.items()]
        rows: list[Row] = [[(fit(words, width), "muted")]]
        if self._run.prefilled is not None and self._run.prefilled.reads is not None:
            rows.append(clip(taps(self._run.prefilled.reads, width), width))
        if notes:
            rows.append([(fit(_whole(notes, width), width), "muted")])
        if event.bias is not None:
            rows.append(spans(f"{LOSSY}: bias {event.bias:.3f} in this round", "muted"))
        return rows


def _whole(notes: list[str], width: int) -> str:
    """As many remarks as fit in a row; a half one says nothing."""
    while len(notes) > 1 and cells(" · ".join(notes)) > width:
        notes.pop()
    return " · ".join(notes)


def tree_rows(
    event: Round, run: RunState, index: int, width: int, room: int, judged: bool = True, hint: str = ""
) -> list[Row]:
    """The tree in so many rows: as many of its heaviest paths as fit, and how many nodes are left out, with a ``hint``
    how to see them. Where it is not ``judged`` yet, it tells nothing of what became of it."""
    if not judged:
        event = replace(event, path=(), emitted=())
    order = by_weight(event.draft, frozenset(event.path))
    rows = _tree(event, run, index, width, order, judged)
    if len(rows) <= room:
        return rows
    low, high = 0, len(order)
    while low < high:
        middle = (low + high + 1) // 2
        if len(_tree(event, run, index, width, order[:middle], judged)) < room:
            low = middle
        else:
            high = middle - 1
    rows = _tree(event, run, index, width, order[:low], judged)
    return [*rows[: room - 1], [(f"  … {len(order) - low} more{hint}", "muted")]]


def by_weight(draft: Draft, accepted: frozenset[int]) -> list[int]:
    """The nodes: those accepted, then by the probability of the whole path to them; parents before children."""
    weights: list[float] = []
    for parent, prob in zip(draft.parents, draft.probs):
        weights.append((weights[parent] if parent >= 0 else 1.0) * (1.0 if prob is None else min(1.0, prob)))
    return sorted(range(len(weights)), key=lambda n: (n not in accepted, -weights[n], n))


def _tree(event: Round, run: RunState, index: int, width: int, shown: list[int], judged: bool = True) -> list[Row]:
    kept = frozenset(shown)
    below = {node: [n for n in nodes if n in kept] for node, nodes in children(event.draft.parents).items()}
    pruned = event.retrieval.pruned if event.retrieval else ()
    pen = _Pen(event.draft, frozenset(event.path), below, width, pruned, judged, fates_of(event))
    root = run.root_of(index)
    rows: list[Row] = [[("◌ ", "muted"), (_label(root.piece) if root else "missing", "text")]]
    choice = _choice(event)
    _branches(pen, -1, "", choice, event.path[-1] if event.path else -1, rows)
    return rows


def _choice(event: Round) -> list[Span] | None:
    """What the target wrote by itself at the end of the accepted path."""
    if not event.emitted or event.emitted[-1].node >= 0:
        return None
    last = event.emitted[-1]
    words = {"corrected": " target instead", "bonus": " bonus", "target": " target"}.get(last.kind, "")
    style = last.kind if last.kind in ("corrected", "bonus") else "text"
    return [("◐ ", "accent"), (_label(last.piece), style), (f" {_p(last.prob)}T{words}", "muted")]


def _branches(pen: _Pen, node: int, indent: str, choice: list[Span] | None, end: int, rows: list[Row]) -> None:
    """The subtrees below a node; the accepted one first, then what the target chose, then the rest."""
    nodes = sorted(pen.children.get(node, ()), key=lambda n: (n not in pen.accepted, -(pen.draft.probs[n] or 0), n))
    here = choice is not None and node == end
    pruned = node < 0 and bool(pen.pruned)
    total = len(nodes) + here + pruned
    if here:
        rows.append([(indent + ("├─" if nodes or pruned else "└─"), "rule"), *choice])
    for number, child in enumerate(nodes):
        last = number + here == total - 1
        _chain(pen, child, indent, last, choice, end, rows)
    if pruned:
        cut = "  ".join(f"{_label(piece)} ×{count}" for piece, count in pen.pruned)
        rows.append([("└─", "rule"), ("✂ ", "muted"), (fit(cut, pen.width - 4).rstrip(), "ghost")])


def _chain(pen: _Pen, node: int, indent: str, last: bool, choice: list[Span] | None, end: int, rows: list[Row]) -> None:
    """A node and those below it while there is one way on, on as few lines as fit."""
    row: list[Span] = [(indent + ("└─" if last else "├─"), "rule")]
    below = indent + ("  " if last else "│ ")
    used = cells(row[0][0])
    while True:
        spans = _node(pen, node)
        size = sum(cells(text) for text, _ in spans)
        if used + size > pen.width and used > len(below) + 2:
            rows.append(row)
            row, used = [(below + "  ", "rule")], len(below) + 2
        row += spans
        used += size
        onward = pen.children.get(node, ())
        if len(onward) != 1 or (choice is not None and node == end):
            break
        node = onward[0]
    rows.append(row)
    _branches(pen, node, below, choice, end, rows)


def _node(pen: _Pen, node: int) -> list[Span]:
    draft, good = pen.draft, node in pen.accepted
    prob, letter = draft.probs[node], origin_kind(origin_of(draft, node).source).letter
    both = bool(draft.also) and draft.also[node] >= 0
    if both:
        letter += origin_kind(draft.origins[draft.also[node]].source).letter
    if pen.judged:
        mark = [(f"{FATE_MARKS[pen.fates[node]][0]} ", "accepted" if good else "muted"),
                (_label(draft.pieces[node]), "accepted" if good else "ghost")]
    else:
        mark = [(f"{UNJUDGED} ", "muted"), (_label(draft.pieces[node]), "text")]
    return [*mark, (f" {_p(prob) if prob is not None else ''}{letter} ", "accent" if both else "muted")]


def _label(piece: str) -> str:
    """A token's label: blanks as dots, many of them as a count."""
    text = re.sub(r"·{4,}", lambda m: f"·×{len(m[0])}", visible(piece))
    return text if cells(text) <= PIECE else fit(text, PIECE)


def _p(prob: float | None) -> str:
    """A probability in three columns: .93, 1.0; a dash where it is not known."""
    if prob is None:
        return " — "
    return "1.0" if prob >= 0.995 else f"{prob:.2f}"[1:]


def _scalar(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else one_line(str(value), 24)
