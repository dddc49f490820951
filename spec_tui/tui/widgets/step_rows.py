"""What the machine is doing in a phase, as rows: the text, the draft, the mask, the verification, the cache."""

from __future__ import annotations

from collections.abc import Callable

from engines.laws import LawSpec, trying
from engines.report.events import Choice, Round
from engines.report.run_state import RunState
from engines.report.wording import prompt_length, rows_before
from spec_tui.present.step.nodes import TreeNode, nodes_of, order, root_of
from spec_tui.present.step.phases import StepPosition, emits, event_of, mask, written
from spec_tui.present.text import one_line, visible
from spec_tui.present.token_styles import LETTERS, proposer
from spec_tui.tui.widgets import retrieval_rows
from spec_tui.tui.widgets.strip_panel import Row, Span, bar, fit
from spec_tui.tui.widgets.tree_panel import by_weight
from spec_tui.tui.widgets.wrap import GUTTER, Tok, Wrapper, cells

_WIDE = 72  # columns from which on there is room for long labels
_FATES = {"accepted": ("✓", "accepted"), "rejected": ("✗", "ghost"), "unreached": ("·", "muted")}


def text(run: RunState, place: StepPosition, width: int, height: int) -> list[Row]:
    """The end of the text as it stands after a phase; what the phase added stands out, else the root does."""
    count, fresh = written(run, place), len(emits(run, place))
    tail = max(60, width * height // 2)  # tokens looked at: long texts cost no more than short ones
    wrapper = Wrapper(width - GUTTER)
    wrapper.start_line()
    if count < tail and run.started is not None:
        pieces = run.started.prompt_pieces[count - tail :]
        wrapper.push(Tok(visible_text(piece), "muted") for piece in pieces)
        wrapper.push([Tok("\n", "muted")] if pieces else [])
    for index in range(max(0, count - tail), count):
        token = run.tokens[index]
        style = token.kind if index >= count - fresh else "strong" if index == count - 1 and not fresh else "text"
        wrapper.push([Tok(visible_text(token.text or ("" if index < count - 1 else token.piece)), style)])
    rows = [[(tok.text, tok.style or "text") for tok in line.toks] for line in wrapper.lines]
    while rows and not rows[-1]:
        rows.pop()
    shown = rows[-height:]
    while len(shown) > 1 and not any(text.strip() for text, _ in shown[0]):
        shown.pop(0)
    return shown


def label_width(width: int) -> int:
    """Columns of a node's label."""
    return 20 if width >= _WIDE else 14


def visible_text(piece: str) -> str:
    """A token inside running text: line breaks stay, what could steer is shown."""
    return "\n".join(one_line(part) for part in piece.split("\n"))


def body(run: RunState, place: StepPosition, width: int, height: int) -> list[Row]:
    """The rows of a phase, at most ``height``."""
    event = event_of(run, place.round)
    if event is None:
        return _PREFILL[place.phase](run, width, height)[:height]
    return _BODIES[place.phase](run, place, event, width, height)[:height]


# -- draft, mask, verification, acceptance --------------------------------------------------------
def _draft(run: RunState, place: StepPosition, event: Round, width: int, height: int) -> list[Row]:
    if not event.draft.tokens:
        return [[("nothing was drafted: the target's forward has one row", "muted")]]
    label = label_width(width)
    head: Row = [(fit("drafted", label), "muted"), ("   q    ", "muted"), ("proposed by", "muted")]
    below = min(height // 2, 9) if event.retrieval is not None and height >= 9 else 0
    shown = _window(nodes_of(event), event, height - 1 - below, judged=False)
    room = width - label - 8
    rows = [[*_label(node, label, "text"), (f" {_p(node.q)}  ", "text"), (_origin(run, node, room), "muted")]
            for node in shown]
    rows += _left_out(event, len(shown), width)
    rows += _layers(run, width) if len(rows) + 5 < height - below else []
    found = retrieval_rows.rows(run, place.round - 1, width, below, judged=False) if below else []
    return [head, *rows, *[[("", "text")]] * (height - 1 - len(rows) - below), *found]


def _tree(run: RunState, place: StepPosition, event: Round, width: int, height: int) -> list[Row]:
    """The attention mask: a row for each token that is verified, a column for each that it may see."""
    table = mask(event.draft.parents)
    shown = _window(nodes_of(event), event, height - 2, judged=False)
    reading = [node.index for node in shown]
    columns, wide = [-1, *reading], label_width(width)
    step = 2 if wide + 10 + 2 * len(columns) <= width else 1
    columns = columns[: max(1, (width - wide - 10) // step)]
    before = f"{event.position - 1:>5} + "
    head: Row = [(fit("row \\ sees", wide), "muted"), ("context   ", "muted"), ("itself and its ancestors", "muted")]
    rows: list[Row] = [head]
    for index, node in [(-1, None), *zip(reading, shown)]:
        label = _label(node, wide, "text") if node is not None else _root(run, place, wide)
        spans: list[Span] = [*label, (before, "muted")]
        for column in columns:
            sees = table[index + 1][column + 1]
            spans.append((("█" if sees else "·") + " " * (step - 1), "accepted" if sees else "rule"))
        rows.append(spans)
    return rows + _left_out(event, len(reading), width)


def _verify(run: RunState, place: StepPosition, event: Round, width: int, height: int) -> list[Row]:
    noise = any(row.noise is not None for row in event.verified) or any(e.noise is not None for e in event.emitted)
    wide = label_width(width)
    room = 18 if width >= _WIDE else 11
    head: Row = [(fit("row", wide), "muted"), (" draft q  target p  ", "muted"),
                 (fit("target has next", room + 7), "muted"), ("noise" if noise else "", "muted")]
    shown = _window(nodes_of(event), event, height - 2, judged=False)
    rows: list[Row] = [head]
    for node in [root_of(event, _root_piece(run, place)), *shown]:
        label = _label(node, wide, "text") if node.index >= 0 else _root(run, place, wide)
        rows.append([*label, (f"   {_p(node.q)}     {_p(node.p)}  ", "text"), *_choice(node, noise, room)])
    return rows + _left_out(event, len(shown), width)


def _accept(run: RunState, place: StepPosition, event: Round, width: int, height: int) -> list[Row]:
    law = trying(run.started.law if run.started is not None else "")
    tried = any(e.trials for e in event.emitted)
    told = f"  {law.trials_column(event)}" if tried else "  the target had"
    wide = label_width(width)
    head: Row = [(fit("drafted", wide), "muted"), (" draft q  target p", "muted"), (told, "muted")]
    nodes = nodes_of(event)
    shown = _window(nodes, event, height - 1, judged=True)
    visited = dict(zip([-1, *event.path], event.emitted))
    rows: list[Row] = [head]
    for node in shown:
        mark, style = _FATES[node.fate]
        spans: list[Span] = [*_label(node, wide, style, mark), (f"   {_p(node.q)}     {_p(node.p)}", "text")]
        above = visited.get(event.draft.parents[node.index])
        if node.trials:
            spans += _trials(node, law)
        elif node.fate == "unreached":
            spans.append(("  not reached", "muted"))
        elif not tried and above is not None:
            style = "accepted" if node.fate == "accepted" else {"accepted": "muted"}.get(above.kind, above.kind)
            spans += [("  ", "text"), (_quoted(above.piece), style)]
        rows.append(spans)
    return rows + _left_out(event, len(shown), width)


def _trials(node: TreeNode, law: LawSpec) -> Row:
    trial = node.trials[-1]
    again = f"  ({len(node.trials)} draws)" if len(node.trials) > 1 else ""
    return [("  ", "text"), (law.compared(trial), "accepted" if trial.accepted else "ghost"), (again, "muted")]


# -- what the target wrote, and what is kept ------------------------------------------------------
def _correct(run: RunState, place: StepPosition, event: Round, width: int, height: int) -> list[Row]:
    own = event.emitted[-1]
    return _distribution(own.top, own.token, own.piece, own.prob, own.kind, width)


def _distribution(
    top: tuple[Choice, ...], token: int, piece: str, prob: float, kind: str, width: int
) -> list[Row]:
    choices = list(top)
    if all(choice.token != token for choice in choices):
        choices.append(Choice(token, piece, prob))
    label = label_width(width)
    rows: list[Row] = [[("the target's distribution here", "muted")]]
    for choice in choices:
        mine = choice.token == token
        rows.append([("▸ " if mine else "  ", "accent"), (fit(_quoted(choice.piece), label), kind if mine else "text"),
                     (f" {choice.prob:.3f} ", "text"), (bar(choice.prob, max(4, min(40, width - label - 10))), "bar")])
    return rows


def _keep(run: RunState, place: StepPosition, event: Round, width: int, height: int) -> list[Row]:
    kept, nodes = {-1, *event.path}, [-1, *range(len(event.draft.tokens))]
    before = rows_before(run, place.round)
    new: list[Span] = [(fit("new rows", 12), "muted")]
    for node in nodes[: width - 12]:
        new.append(("■", "accepted") if node in kept else ("×", "ghost"))
    rows: list[Row] = [
        [(fit("before", 12), "muted"), (f"{before} KV rows", "text")], new,
        [(fit("after", 12), "muted"), (f"{event.cache_length} KV rows: {len(kept)} kept, {len(nodes) - len(kept)} "
                                       "forgotten", "text")],
    ]
    total = event.draft_seconds + event.verify_seconds + event.other_seconds
    times = (("draft", event.draft_seconds), ("verify", event.verify_seconds), ("other", event.other_seconds))
    if height < len(rows) + len(times) + 2:
        words = " · ".join(f"{name} {seconds * 1000:.2f}" for name, seconds in times)
        rows.append([(fit("time", 12), "muted"), (f"{words} ms", "text")])
    else:
        rows.append([("", "text")])
        for name, seconds in times:
            share = seconds / total if total > 0 else 0.0
            rows.append([(fit(name, 12), "muted"), (f"{seconds * 1000:>8.2f} ms ", "text"),
                         (bar(share, max(4, min(40, width - 24))), "bar")])
    gained = len(event.emitted)
    each = f", {total * 1000 / gained:.2f} ms each" if gained else ""
    rows.append([(fit("gained", 12), "muted"), (f"{gained} token{'s' if gained != 1 else ''}{each}", "strong")])
    return rows


# -- the prefill ----------------------------------------------------------------------------------
def _read(run: RunState, width: int, height: int) -> list[Row]:
    made = run.prefilled
    if made is None:
        return [[("the beginning of this run is missing", "muted")]]
    return [
        [(fit("prompt", 12), "muted"), (f"{made.prompt_tokens} tokens", "text")],
        [(fit("in cache", 12), "muted"), (f"{made.reused} from before", "text")],
        [(fit("prefill", 12), "muted"), (f"{made.seconds * 1000:.1f} ms", "text")], *_layers(run, width),
    ]


def _began(run: RunState, width: int, height: int) -> list[Row]:
    if run.prefilled is None:
        return _read(run, width, height)
    first = run.prefilled.first
    return _distribution(first.top, first.token, first.piece, first.prob, "target", width)


def _filled(run: RunState, width: int, height: int) -> list[Row]:
    made = run.prefilled
    if made is None:
        return _read(run, width, height)
    return [[(fit("KV cache", 12), "muted"), (f"{made.cache_length} rows, one a token of the prompt", "text")]]


def _layers(run: RunState, width: int) -> list[Row]:
    """Which sublayers drafting leaves out: a column a layer."""
    layers = run.prefilled.layers if run.prefilled is not None else None
    if layers is None:
        return []
    rows: list[Row] = [[("", "text")]]
    for name, rules in (("attention", layers.attention), ("MLP", layers.mlp)):
        spans: list[Span] = [(fit(name, 12), "muted")]
        for rule in rules[: max(1, width - 24)]:
            spans.append(("□", "ghost") if rule else ("■", "accepted"))
        rows.append([*spans, (f"  {sum(map(bool, rules))} left out", "muted")])
    return rows


# -- parts ----------------------------------------------------------------------------------------
def _context(run: RunState, place: StepPosition, event: Round, width: int, height: int) -> list[Row]:
    made = event.position - prompt_length(run)
    return [[(fit("context", 12), "muted"), (f"{event.position} tokens: {prompt_length(run)} prompt, {made} answer",
                                             "text")],
            [(fit("root", 12), "muted"), (_quoted(_root_piece(run, place)), "strong"),
             ("  the last token, not read yet", "muted")],
            [(fit("KV cache", 12), "muted"), (f"{rows_before(run, place.round)} rows", "text")]]


def _window(nodes: list[TreeNode], event: Round, room: int, judged: bool) -> list[TreeNode]:
    """The nodes that fit, in reading order: once they are judged the path and what it was tried against come first,
    before that what the drafter holds likeliest."""
    reading = order(event.draft.parents, frozenset(event.path) if judged else frozenset())
    if len(nodes) > room:
        rank = {"accepted": 0, "rejected": 1, "unreached": 2}
        best = by_weight(event.draft, frozenset()) if not judged else sorted(
            reading, key=lambda n: (rank[nodes[n].fate], reading.index(n)))
        kept = set(best[: max(0, room - 1)])
        reading = [n for n in reading if n in kept]
    return [nodes[n] for n in reading]


def _left_out(event: Round, shown: int, width: int) -> list[Row]:
    more = len(event.draft.tokens) - shown
    return [[(fit(f"… {more} more", width).rstrip(), "muted")]] if more > 0 else []


def _label(node: TreeNode, width: int, style: str, mark: str = "") -> Row:
    indent = min(node.depth - 1, 6)
    lead = f"{mark} " if mark else ""
    word = visible(node.piece)
    room = width - indent - cells(lead)
    word = fit(word, room).rstrip()
    sign = "muted" if style == "ghost" else style  # a line through a mark and blanks would hide the mark
    return [(lead.rstrip(), sign), (" " * (indent + cells(lead) - cells(lead.rstrip())), "text"), (word, style),
            (" " * max(0, room - cells(word)), "text")]


def _root(run: RunState, place: StepPosition, width: int) -> Row:
    return [(fit(f"◌ {visible(_root_piece(run, place))}", width), "strong")]


def _root_piece(run: RunState, place: StepPosition) -> str:
    root = run.root_of(place.round - 1)
    return root.piece if root is not None else "start"


def _choice(node: TreeNode, noise: bool, width: int) -> Row:
    if node.choice is None:
        return [("not recorded", "muted")]
    shown = fit(_quoted(node.choice.piece), width)
    extra = f"  {node.noise:+.2f}" if noise and node.noise is not None else ""
    return [(shown, "text"), (f" {node.choice.prob:.3f}", "text"), (extra, "muted")]


def _origin(run: RunState, node: TreeNode, width: int) -> str:
    words = []
    for origin in node.origins:
        word = LETTERS.get(origin.source, "?") + " "
        if origin.document:
            word += retrieval_rows.place_words(origin.datastore, origin.document, origin.line)
        elif origin.source in ("prompt", "output"):
            word += f"{'prompt' if origin.source == 'prompt' else 'answer'} at {origin.place}, match {origin.match}"
        else:
            word += one_line(proposer(origin.source, run) if origin.source == "draft" else origin.source)
        words.append(word)
    return fit(" + ".join(words), max(4, width)).rstrip()


def _quoted(piece: str) -> str:
    return f"‹{visible(piece)}›"


def _p(value: float | None) -> str:
    return "  —  " if value is None else f"{value:.3f}"


_Body = Callable[[RunState, StepPosition, Round, int, int], list[Row]]
_BODIES: dict[str, _Body] = {
    "context": _context, "draft": _draft, "tree": _tree, "verify": _verify, "accept": _accept, "correct": _correct,
    "keep": _keep,
}
_PREFILL: dict[str, Callable[[RunState, int, int], list[Row]]] = {
    "context": _read, "verify": _read, "correct": _began, "keep": _filled,
}
