"""The panels of the step screen; each draws what a ``StepPlayer`` is at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textual.events import Click
from textual.geometry import Size
from textual.message import Message

from engines.laws import trying
from engines.methods import origin_kind, who_proposes
from engines.report.events import Choice, Emitted, Round
from engines.report.run_state import MISSING, RunState
from engines.report.wording import between, counted, prompt_length, rows_before, seconds_of, times_of
from spec_tui.present import token_styles as marks
from spec_tui.present.rejected import interleaved
from spec_tui.present.step.explain import explain
from spec_tui.present.step.nodes import TreeNode, nodes_of, order, root_of
from spec_tui.present.step.phases import (
    Phase,
    StepPosition,
    emits,
    event_of,
    mask,
    number_of,
    phases_of,
    title_of,
    written,
)
from spec_tui.present.step.player import MOST, StepPlayer
from spec_tui.present.tables import count_or_dash
from spec_tui.present.text import cells, one_line, visible, wrap
from spec_tui.present.token_facts import unit_of
from spec_tui.present.token_styles import spans
from spec_tui.tui.border import said_instead
from spec_tui.tui.widgets import retrieval_rows
from spec_tui.tui.widgets.strip_panel import BLANK, Row, Span, StripPanel, bar, clip, fit, rows_of, size, title_row
from spec_tui.tui.widgets.strip_plot import columns
from spec_tui.tui.widgets.tree_panel import tree_rows
from spec_tui.tui.widgets.wrap import GHOST, Tok, wrapped

REST: Row = [("… page down for the rest", "muted")]
_WIDE = 72  # columns from which on there is room for long labels
_NOISE = 56  # and for the noise of a choice
_TEXT_ROWS = ((26, 12), (16, 5), (0, 2))  # from so many rows on, at most so many of the text above what happens
_ENDLESS = 10_000  # rows: all of a panel fits


def named(name: str, value: str, style: str = "text") -> Row:
    """A row with its name in front."""
    return [(fit(name, 12), "muted"), (value, style)]


class StepPanel(StripPanel):
    """A panel that follows a player; ``airy`` is set in presenter mode."""

    player: StepPlayer | None = None
    airy = False

    def follow(self, player: StepPlayer) -> None:
        self.player = player
        self.update_rows()

    def rows(self, width: int, height: int) -> list[Row]:
        if self.player is None:
            return []
        return [clip(row, width) for row in self.draw(self.player, width, height)]

    def draw(self, player: StepPlayer, width: int, height: int) -> list[Row]:
        """The rows."""
        raise NotImplementedError

    def needed(self, player: StepPlayer, width: int) -> int:
        """In how many rows everything is shown, where a style sheet lets the panel choose its height."""
        return len(self.draw(player, width, _ENDLESS))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        if self.player is None or not width:
            return 0
        try:
            return self.needed(self.player, width)
        except Exception as error:  # drawing it fails as well, and says this
            return len(rows_of(said_instead(self.app, error), width))


class ScrolledPanel(StepPanel):
    """A panel that may have more rows than room: ``scrolled`` of them are scrolled away, by keys or the wheel."""

    scrolled = 0

    def scroll(self, rows: int) -> None:
        """Show further rows, or those before."""
        self.scrolled += rows
        self.update_rows()

    def window(self, lines: list[Row], room: int) -> list[Row]:
        """So many of the lines, from where the reader is; a mark says that more follow."""
        self.scrolled = max(0, min(self.scrolled, len(lines) - room))
        shown = lines[self.scrolled : self.scrolled + room]
        return [*shown[:-1], REST] if len(lines) - self.scrolled > room else shown

    def on_mouse_scroll_down(self) -> None:
        self.scroll(1)

    def on_mouse_scroll_up(self) -> None:
        self.scroll(-1)


class PhaseBar(StepPanel):
    """The phases of this round, the present one marked; a click goes there."""

    @dataclass
    class Picked(Message):
        """A phase was clicked."""

        phase: Phase

    def on_click(self, event: Click) -> None:
        player, end = self.player, 0
        for number, (text, _) in enumerate(self.draw(player, self.size.width, 1)[0] if player is not None else ()):
            end += cells(text)
            if event.x < end:
                phases = phases_of(player.run, player.place.round)
                self.post_message(self.Picked(phases[max(0, number - 1) // 2]))
                break

    def draw(self, player: StepPlayer, width: int, height: int) -> list[Row]:
        row = self._bar(player, named=True)
        return [row if size(row) <= width else self._bar(player, named=False)]

    @staticmethod
    def _bar(player: StepPlayer, named: bool) -> Row:
        row: list[Span] = [(" ", "text")]
        for number, phase in enumerate(phases := phases_of(player.run, player.place.round), 1):
            here, place = phase == player.place.phase, StepPosition(player.place.round, phase)
            hidden = player.hides and phases.index(player.place.phase) < number - 1
            name = title_of(None if hidden else player.run, place)
            label = f"{number} {name}" if named or here else str(number)
            row.append((f" {label} ", "title-here" if here else "muted"))
            row.append(("›" if number < len(phases) else " ", "rule"))
        return row


class Doing(ScrolledPanel):
    """The text so far, and what the machine does with it in this phase: the text leaves the table its rows, and one
    that is longer is scrolled. ``keeps_rejected``: the text shows what became of every token, and the rejected ones."""

    keeps_rejected = False

    def draw(self, player: StepPlayer, width: int, height: int) -> list[Row]:
        run, place = player.run, player.place
        head = [] if self.airy else [title_row(width, "what happens here", self._state(player))]
        lines = next(lines for rows, lines in _TEXT_ROWS if height >= rows)
        table = len(phase_rows(run, place, width, _ENDLESS))
        lines = max(min(lines, 2), min(lines, height - len(head) - table - 1))
        text = text_so_far(run, place, width, lines, self.keeps_rejected)
        gap = [BLANK] if height > len(head) + len(text) + table or height >= 16 else []
        room = max(1, height - len(head) - len(text) - len(gap))
        self.scrolled = max(0, min(self.scrolled, furthest(run, place, width, room)))
        return [*head, *text, *gap, *phase_rows(run, place, width, room, self.scrolled)]

    def needed(self, player: StepPlayer, width: int) -> int:
        text = text_so_far(player.run, player.place, width, _TEXT_ROWS[1][1], self.keeps_rejected)
        return (not self.airy) + len(text) + 1 + len(phase_rows(player.run, player.place, width, _ENDLESS))

    @staticmethod
    def _state(player: StepPlayer) -> str:
        event = event_of(player.run, player.place.round)
        if event is None:
            return "prefill"
        return "rows not disclosed" if event.drafted is None else counted(1 + event.drafted, "row")


class Explaining(ScrolledPanel):
    """Why, in words; the question where a guess is asked for."""

    def draw(self, player: StepPlayer, width: int, height: int) -> list[Row]:
        told = explain(player.run, player.place, player.deep)
        level = "in detail" if player.deep else "basics"
        head = [title_row(width, f"explanation: {told.title.lower()}", level)]
        if self.airy:
            head = [[(told.title, "title")], BLANK]
        question = self._question(player, width)
        lines: list[Row] = []
        for paragraph in told.paragraphs:
            gap = [BLANK] if lines and (height >= 14 or self.airy) else []
            lines += [*gap, *[spans(line, "text") for line in wrap(paragraph, max(20, width - 1))]]
        foot = rows_of(f"→ {told.reference}", max(20, width - 1), "muted") if told.reference else []
        lines += [*([BLANK] if height >= 14 else []), *foot]
        room = max(1, height - len(head) - len(question))
        return [*head, *question, *self.window(lines, room)]

    @staticmethod
    def _question(player: StepPlayer, width: int) -> list[Row]:
        guess = player.guessed(player.place.round)
        if player.asks:
            most = player.most()
            more = " or more" if most == MOST else ""
            words = f"? Guess how many will be accepted: press {between(0, most)}{more}"
            return rows_of(words, max(20, width - 1), "warn")
        if guess is None or player.hides:
            return []
        more = " or more" if guess.said == MOST else ""
        return [[("✓ " if guess.right else "✗ ", "good" if guess.right else "bad"),
                 (f"you said {guess.said}{more}, {guess.came} {'was' if guess.came == 1 else 'were'} accepted",
                  "strong")]]


class StepTree(StepPanel):
    """The draft tree of the round; what became of it is drawn when it is decided."""

    def draw(self, player: StepPlayer, width: int, height: int) -> list[Row]:
        event = event_of(player.run, player.place.round)
        if event is None:
            return [title_row(width, "draft tree", "prefill"), [("nothing is drafted before the first token", "muted")]]
        judged = player.place.phase in ("accept", "correct", "keep")
        head = title_row(width, "draft tree", f"{count_or_dash(event.drafted)} drafted" + (
            f", {count_or_dash(event.accepted)} accepted" if judged else ""))
        return [head, *tree_rows(event, player.run, player.place.round - 1, width, max(1, height - 1), judged)]


class SoFar(StepPanel):
    """The numbers of the run up to this round, and how the guesses came true."""

    def draw(self, player: StepPlayer, width: int, height: int) -> list[Row]:
        number, started = player.place.round, player.run.started
        title = "in this branch" if started is not None and started.continued else "so far"
        m = player.run.until(number if player.place.phase == "keep" else number - 1).metrics
        accepted = "—" if m.acceptance_rate is None else f"{m.accepted} of {m.drafted}, {m.acceptance_rate:.0%}"
        made = "—" if m.mean_generated_length is None else f"{m.mean_generated_length:.2f} tokens per verify step"
        rate = "—" if m.tokens_per_second is None else f"{m.tokens_per_second:.1f}"
        return [title_row(width, title, f"after {counted(m.target_forwards, 'round')}"),
                named(f"{m.unit}s", f"{m.new_tokens}"), named("accepted", accepted), named("M", made),
                named(f"{m.unit}s/s", rate), *(self._guesses(player) if height >= 8 else [])]

    @staticmethod
    def _guesses(player: StepPlayer) -> list[Row]:
        if player.guesses:
            return [named("guesses", player.score, "strong")]
        return [] if player.guessing else [named("guesses", "G asks for them", "muted")]


class Timeline(StepPanel):
    """The rounds as columns, as high as the tokens that each gained; a click goes there."""

    @dataclass
    class Picked(Message):
        """A round was clicked."""

        number: int

    def draw(self, player: StepPlayer, width: int, height: int) -> list[Row]:
        rounds, here = player.run.rounds, player.place.round
        bars = max(1, height - 3)
        first = self.first(player, width)
        last = min(len(rounds), first + width - 1)
        known = here - player.hides  # of a round that is guessed nothing is told
        gained = [len(rounds[n - 1].emitted) if n <= known or not player.guessing else 0
                  for n in range(first, last + 1)]
        top = max([1, *gained]) if player.guessing else max((len(event.emitted) for event in rounds), default=1)
        head = title_row(width, "rounds: height is tokens gained", f"at most {top}")
        rows: list[Row] = [] if self.airy else [head]
        for line in columns(gained, top, bars + self.airy):
            now = here - first
            rows.append([(line[:now], "bar"), (line[now : now + 1], "accent"), (line[now + 1 :], "muted")]
                        if now >= 0 else [(line, "muted")])
        row = "".join(marks.HERE if n == here else marks.BOOKMARK if n in player.bookmarks else " "
                      for n in range(first, last + 1))
        rows.append([(row, "accent")])
        rows.append(self._foot(player, width))
        return rows

    def first(self, player: StepPlayer, width: int) -> int:
        """The round in the first column: all fit, or the present one stands in the middle."""
        count = len(player.run.rounds)
        if count <= width:
            return 1
        return max(1, min(player.place.round - width // 2, count - width + 1))

    @staticmethod
    def _foot(player: StepPlayer, width: int) -> Row:
        event = event_of(player.run, player.place.round)
        if event is None:
            words = "prefill"
        elif player.hides:
            words = f"round {event.index}: drafted {count_or_dash(event.drafted)}"
        else:
            words = (f"round {event.index}: drafted {count_or_dash(event.drafted)}, accepted "
                     f"{count_or_dash(event.accepted)}, gained {len(event.emitted)}")
        kept = ", ".join(str(number_of(player.run, n)) for n in player.bookmarks)
        return [(words, "text"), (f"   bookmarks {marks.BOOKMARK} {kept}" if kept else "   k sets a bookmark", "muted")]

    def on_click(self, event: Click) -> None:
        if self.player is not None:
            number = self.first(self.player, self.size.width) + event.x
            if 1 <= number <= self.player.rounds:
                self.post_message(self.Picked(number))


def tree_first(player: StepPlayer) -> bool:
    """Whether a phase is about the tree more than about its table."""
    event = event_of(player.run, player.place.round)
    return player.place.phase in ("context", "draft") and (event is None or event.retrieval is None)


# -- what happens here --------------------------------------------------------------------
def text_so_far(run: RunState, place: StepPosition, width: int, height: int, rejected: bool = False) -> list[Row]:
    """The end of the text as it stands after a phase; what the phase added stands out, else the root does. With
    ``rejected``, what became of every token stands out, and rejected ones are struck through in the text."""
    count, fresh = written(run, place), len(emits(run, place))
    tail = max(60, width * height // 2)  # tokens looked at: long texts cost no more than short ones
    toks = []
    if count < tail and run.started is not None and (pieces := run.started.prompt_pieces[count - tail :]):
        own = max(0, len(pieces) - run.started.continued)  # the rest is an answer that was begun
        toks = [*(Tok(visible_text(piece), "muted") for piece in pieces[:own]), Tok("\n", "muted"),
                *(Tok(visible_text(piece), "text") for piece in pieces[own:])]
    missing = place.round > 0 and count == run.starts[place.round - 1] and run.missing_before(place.round - 1)
    root = -1 if fresh or missing else count - 1
    for index, gone in interleaved(run, max(0, count - tail), count, keeps=rejected):
        token = run.tokens[index]
        style = token.kind if index >= count - fresh else "strong" if index == root else "text"
        style = token.kind if rejected else style
        toks += [Tok(label, GHOST) for label in gone]
        toks.append(Tok(visible_text(token.text or ("" if index < count - 1 else token.piece)), style))
    toks += [Tok(MISSING, "strong")] * missing
    rows = wrapped(toks, width)
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


def phase_rows(run: RunState, place: StepPosition, width: int, height: int, skip: int = 0) -> list[Row]:
    """The rows of a phase, at most ``height``, after the first ``skip`` of its table; a mark says what is left out."""
    event = event_of(run, place.round)
    if event is None:
        return _part(_prefill(run, place.phase, width), height, skip)
    found = _found(run, place, event, width, height)
    return [*_part(_ROUND[place.phase](run, place, event, width, height), height - len(found), skip), *found]


def furthest(run: RunState, place: StepPosition, width: int, height: int) -> int:
    """How many rows of a phase's table can be scrolled away."""
    event = event_of(run, place.round)
    if event is None:
        return 0
    rows = len(_ROUND[place.phase](run, place, event, width, height))
    room = height - len(_found(run, place, event, width, height))
    return rows - room + 1 if rows > room else 0


def _part(rows: list[Row], height: int, skip: int) -> list[Row]:
    """A table, whole or as many of its rows as there is room for; its head stays."""
    if len(rows) <= height:
        return rows
    room = max(0, height - 2)
    skip = max(0, min(skip, len(rows) - 1 - room))
    below = len(rows) - 1 - room - skip
    more = " · ".join([f"↓ {below} more"] * bool(below) + [f"↑ {skip} above"] * bool(skip))
    return [rows[0], *rows[1 + skip : 1 + skip + room], [(f"… {more}", "muted")]][: max(0, height)]


def _found(run: RunState, place: StepPosition, event: Round, width: int, height: int) -> list[Row]:
    """What was retrieved, below what was drafted of it."""
    if place.phase != "draft" or event.retrieval is None or height < 5:
        return []
    if height < 9:
        return retrieval_rows.best_place(event.retrieval, width)
    return [BLANK, *retrieval_rows.rows(run, place.round - 1, width, min(height // 2, 9) - 1, judged=False)]


def _draft(run: RunState, place: StepPosition, event: Round, width: int, height: int) -> list[Row]:
    if not event.draft.tokens:
        return [[("nothing drafted: the pass reads one row" if event.known == "all" else
                  "what was drafted is not disclosed", "muted")]]
    label = label_width(width)
    head: Row = [(fit("drafted", label), "muted"), ("drafter ", "muted"), ("proposed by", "muted")]
    rows = [[*_label(node, label, "text"), (f" {_p(node.q)}  ", "text"),
             (_origin(run, node, width - label - 8), "muted")] for node in _reading(event)]
    return [head, *rows, *(_layers(run, width) if len(rows) + 6 < height and event.retrieval is None else [])]


def _tree(run: RunState, place: StepPosition, event: Round, width: int, height: int) -> list[Row]:
    """The attention mask: a row for each token that is verified, a column for each that it may see."""
    table, wide = mask(event.draft.parents), label_width(width)
    nodes = [_root(run, place, event), *_reading(event)]
    step = 2 if wide + 10 + 2 * len(nodes) <= width else 1
    room = max(1, (width - wide - 10) // step)
    columns = nodes if len(nodes) <= room else nodes[: room - 1]
    rows: list[Row] = [[(fit("row \\ sees", wide), "muted"), ("context   ", "muted"),
                        ("itself and its ancestors", "muted")]]
    for node in nodes:
        sees = [table[node.index + 1][column.index + 1] for column in columns]
        rows.append([*_label(node, wide, "text"), (f"{event.position - 1:>5} + ", "muted"),
                     *((("█" if seen else "·") + " " * (step - 1), "accepted" if seen else "rule") for seen in sees),
                     ("…" if len(columns) < len(nodes) else "", "muted")])
    return rows


def _verify(run: RunState, place: StepPosition, event: Round, width: int, height: int) -> list[Row]:
    noise = any(row.noise is not None for row in event.verified) or any(e.noise is not None for e in event.emitted)
    noise = noise and width >= _NOISE
    wide, room = label_width(width), 18 if width >= _WIDE else 10
    head: Row = [(fit("row", wide), "muted"), (" drafter target p ", "muted"),
                 (fit("target's next", room + 6), "muted"), ("  noise" if noise else "", "muted")]
    nodes = [_root(run, place, event), *_reading(event)]
    return [head, *([*_label(node, wide, "text"), *_both(node.q, node.p), *_choice(node, noise, room)]
                    for node in nodes)]


def _both(q: float | None, p: float | None) -> Row:
    """The probabilities of a drafter (what a law tried has q in its place) and of the target, below their heads."""
    return [(f"   {_p(q)}    {_p(p)} ", "text")]


def _accept(run: RunState, place: StepPosition, event: Round, width: int, height: int) -> list[Row]:
    """What became of each node. Where a law tried several, they stand in the order of their trials, each with p and q
    as the law had them then; it had none of those that it did not try."""
    law = trying(run.started.law if run.started is not None else "")
    tried = [trial.node for e in event.emitted for trial in e.trials]
    told = law.trials_column(event) if tried else "target's token"
    wide = label_width(width)
    rows: list[Row] = [[(fit("drafted", wide), "muted"), (f" {'draft q' if tried else 'drafter'} target p ", "muted"),
                        (told if cells(told) <= width - wide - 18 else told.partition(",")[0], "muted")]]
    visited = dict(zip([-1, *event.path], event.emitted))
    for node in _reading(event, tried or event.path):
        mark, style = marks.FATE_MARKS[node.fate]
        trial = node.decisive
        row: list[Span] = _label(node, wide, style, mark)
        row += _both(*(trial.draft_prob, trial.target_prob) if trial is not None else
                     (None, None) if tried else (node.q, node.p))
        above = visited.get(event.draft.parents[node.index])
        if trial is not None:
            count = len(node.trials)
            row += [(law.compared(trial), "accepted" if trial.accepted else "ghost"),
                    (f"  ({count} draws)" if count > 1 else "", "muted"),
                    ("  another path won" if trial.accepted and node.fate == "rejected" else "", "muted")]
        elif node.fate == "unreached":
            row.append(("not reached" if above is None else "not tried", "muted"))
        elif not tried and above is not None:
            style = "accepted" if node.fate == "accepted" else {"accepted": "muted"}.get(above.kind, above.kind)
            row.append((_quoted(above.piece), style))
        rows.append(row)
    return rows


def _correct(run: RunState, place: StepPosition, event: Round, width: int, height: int) -> list[Row]:
    return _distribution(event.emitted[-1], event.emitted[-1].kind, width)


def _distribution(own: Emitted, style: str, width: int) -> list[Row]:
    """The target's likeliest tokens, its own marked."""
    choices, label = list(own.top), label_width(width)
    if own.prob is not None and all(choice.token != own.token for choice in choices):
        choices.append(Choice(own.token, own.piece, own.prob))
    rows: list[Row] = [[("the target's distribution here", "muted")]]
    for choice in choices:
        mine = choice.token == own.token
        rows.append([("▸ " if mine else "  ", "accent"), (fit(_quoted(choice.piece), label), style if mine else "text"),
                     (f" {choice.prob:.3f} ", "text"), (bar(choice.prob, max(4, min(40, width - label - 10))), "bar")])
    return rows


def _keep(run: RunState, place: StepPosition, event: Round, width: int, height: int) -> list[Row]:
    kept, nodes = {-1, *event.path}, [-1, *range(len(event.draft.tokens))]
    signs: Row = [(marks.PRESENT, "accepted") if node in kept else (marks.ABSENT, "ghost") for node in nodes]
    if len(signs) > width - 12:
        signs = [*signs[: max(0, width - 13)], ("…", "muted")]
    forgotten = None if event.drafted is None else event.drafted - len(event.path)
    stay = None if event.accepted is None else 1 + event.accepted
    rows: list[Row] = [
        named("before", f"{count_or_dash(rows_before(run, place.round))} KV rows"), [*named("new rows", ""), *signs],
        named("after", f"{count_or_dash(event.cache_length)} KV rows: {count_or_dash(stay)} kept, "
                       f"{count_or_dash(forgotten)} forgotten"),
    ]
    total, gained = seconds_of(event), len(event.emitted)
    times = [(name, seconds) for name, seconds in times_of(event) if seconds is not None]
    if height < len(rows) + len(times) + 2:
        rows.append(named("time", " · ".join(f"{name} {seconds * 1000:.2f}" for name, seconds in times) + " ms"))
    else:
        rows.append(BLANK)
        for name, seconds in times:
            share = bar(seconds / total if total > 0 else 0.0, max(4, min(40, width - 24)))
            rows.append([*named(name, f"{seconds * 1000:>8.2f} ms "), (share, "bar")])
    each = f", {total * 1000 / gained:.2f} ms each" if gained else ""
    return [*rows, named("gained", f"{counted(gained, unit_of(event))}{each}", "strong")]


def _prefill(run: RunState, phase: Phase, width: int) -> list[Row]:
    made = run.prefilled
    if made is None:
        return [[("the beginning of this run is missing", "muted")]]
    if phase == "correct":
        return _distribution(made.first, "target", width)
    if phase == "keep":
        return [named("KV cache", f"{count_or_dash(made.cache_length)} rows, one per token that was read")]
    begun = run.started.continued if run.started is not None else 0
    given = f"{count_or_dash(made.prompt_tokens)} tokens" if not begun else (
        f"{prompt_length(run)} tokens, and {begun} of an answer")
    return [named("prompt", given),
            named("in cache", f"{count_or_dash(made.reused)} from before"),
            named("prefill", f"{made.seconds * 1000:.1f} ms"), *_layers(run, width)]


def _layers(run: RunState, width: int) -> list[Row]:
    """Which sublayers drafting leaves out: a column a layer."""
    layers = run.prefilled.layers if run.prefilled is not None else None
    if layers is None:
        return []
    rows: list[Row] = [BLANK]
    for name, rules in (("attention", layers.attention), ("MLP", layers.mlp)):
        signs = [(marks.ABSENT, "ghost") if rule else (marks.PRESENT, "accepted")
                 for rule in rules[: max(1, width - 24)]]
        rows.append([*named(name, ""), *signs, (f"  {sum(map(bool, rules))} left out", "muted")])
    return rows


def _context(run: RunState, place: StepPosition, event: Round, width: int, height: int) -> list[Row]:
    prompt = prompt_length(run)
    return [named("context", f"{event.position} tokens: {prompt} prompt, {event.position - prompt} answer"),
            [*named("root", _quoted(_root_piece(run, place)), "strong"), ("  last token, not read yet", "muted")],
            named("KV cache", f"{count_or_dash(rows_before(run, place.round))} rows")]


def _reading(event: Round, first: Sequence[int] = ()) -> list[TreeNode]:
    """The nodes in reading order; of siblings those in ``first`` first, in its order."""
    nodes = nodes_of(event)
    return [nodes[n] for n in order(event.draft.parents, first)]


def _label(node: TreeNode, width: int, style: str, mark: str = "") -> Row:
    """A node below its depth, or the root, in so many columns."""
    if node.index < 0:
        return [(fit(f"{marks.ROOT} {visible(node.piece)}", width), "strong")]
    indent = " " * (min(node.depth - 1, 6) + bool(mark))
    room = width - len(indent) - cells(mark)
    word = fit(visible(node.piece), room).rstrip()
    sign = "muted" if style == "ghost" else style  # a line through a mark and blanks would hide the mark
    return [(mark, sign), (indent, "text"), (word, style), (" " * max(0, room - cells(word)), "text")]


def _root(run: RunState, place: StepPosition, event: Round) -> TreeNode:
    return root_of(event, _root_piece(run, place))


def _root_piece(run: RunState, place: StepPosition) -> str:
    root = run.root_of(place.round - 1)
    return root.piece if root is not None else "missing"


def _choice(node: TreeNode, noise: bool, width: int) -> Row:
    if node.choice is None:
        return [("not recorded", "muted")]
    shown = fit(_quoted(node.choice.piece), width)
    extra = f"  {node.noise:+.2f}" if noise and node.noise is not None else ""
    return [(shown, "text"), (f" {node.choice.prob:.3f}", "text"), (extra, "muted")]


def _origin(run: RunState, node: TreeNode, width: int) -> str:
    words = []
    for origin in node.origins:
        word = origin_kind(origin.source).letter + " "
        if origin.document:
            word += retrieval_rows.place_words(origin.datastore, origin.document, origin.line)
        else:
            word += who_proposes(origin.source, run)
            word += f" at {origin.place + 1}" if origin.place is not None else ""
            word += f", match {origin.match}" if origin.match is not None else ""
        words.append(word)
    return fit(" + ".join(words), max(4, width)).rstrip()


def _quoted(piece: str) -> str:
    return f"‹{visible(piece)}›"


def _p(value: float | None) -> str:
    return "  —  " if value is None else f"{value:.3f}"


_ROUND: dict[Phase, Callable[[RunState, StepPosition, Round, int, int], list[Row]]] = {
    "context": _context, "draft": _draft, "tree": _tree, "verify": _verify, "accept": _accept, "correct": _correct,
    "keep": _keep,
}
