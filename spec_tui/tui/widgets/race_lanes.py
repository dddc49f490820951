"""The lanes of a race: columns of numbers and text, or bars over the text of one where columns would be too narrow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from textual.events import Click
from textual.message import Message

from engines.report.run_state import RunState
from engines.report.wording import counted
from spec_tui.present import rejected
from spec_tui.present import token_styles as marks
from spec_tui.present.text import LOSSY, cells, one_line, sanitise
from spec_tui.tui.widgets.line_styles import pieces_of
from spec_tui.tui.widgets.strip_panel import BLANK, Row, Span, StripPanel, clip, fit, gauge, rows_of, size, title_row
from spec_tui.tui.widgets.wrap import GHOST, Line, Tok, Wrapper

NARROWEST = 28  # columns of a lane beside others
_PLACE, _SAID = 9, 13  # columns of a rank, and at least of what is said of the text
_BAR, _NUMBERS = 6, 27  # columns of a bar at least, and of the numbers after it
_JUMP = 4  # lines the text moves at a time while it grows: most frames draw one line again


@dataclass(frozen=True, slots=True)
class LaneView:
    """A lane as it is drawn.

    Attributes:
        label: its name. ``lossy``: it does not keep the target's distribution.
        about: what stands where its text will be.
        run: what it has written at this moment, None for nothing to show.
        total: tokens that it writes in the end, None while that is not known.
        seconds: of its clock, at this moment.
        numbers: in a few words each, "" for what there is not; the most important first.
        speed: against the baseline, for a narrow column.
        badge: how its text compares, with a style.
        state: in a word: waiting, running, "1st".
        at: a token that stands out.
    """

    label: str
    about: tuple[str, ...] = ()
    run: RunState | None = None
    total: int | None = None
    seconds: float = 0.0
    numbers: tuple[str, ...] = ()
    speed: str = ""
    badge: tuple[str, str] | None = None
    state: str = ""
    lossy: bool = False
    at: int | None = None


class LaneText:
    """Wraps what a run has brought since the last call. Another run, an earlier moment or another width begin anew."""

    def __init__(self) -> None:
        self._wrap = Wrapper(0)
        self._width = -1
        self._shown = 0
        self._keeps = False  # rejected tokens in the text
        self._first: object = None
        self._run = RunState()

    def __len__(self) -> int:
        """Lines."""
        return len(self._wrap.lines)

    def follow(self, run: RunState, width: int, keeps: bool = False) -> None:
        """Take the run as it is now; with ``keeps`` its rejected tokens stay in the text."""
        first = run.tokens[0] if run.tokens else None
        another = len(run.tokens) < self._shown or (self._shown and first is not self._first)
        if (width, keeps) != (self._width, self._keeps) or another:
            self._wrap, self._width, self._keeps, self._shown = Wrapper(width), width, keeps, 0
            self._wrap.start_line(answer=True)
        self._run, self._first = run, first
        for index, gone in rejected.interleaved(run, self._shown, keeps=keeps):
            self._wrap.push(Tok(label, GHOST, 0, index) for label in gone)
            if text := run.tokens[index].text:
                self._wrap.push([Tok(sanitise(text), None, 0, index)])
        self._shown = len(run.tokens)

    def place(self, height: int, back: int) -> tuple[int, int]:
        """A token that is shown so many lines before the end, and the row it stands on."""
        lines = self._wrap.lines
        top = max(0, len(lines) - height - back)
        return next(((tok.index, row) for row, line in enumerate(lines[top:]) for tok in line.toks if not tok.style),
                    (0, 0))

    def back_to(self, index: int, row: int, height: int) -> int:
        """How many lines before the end the text must be shown so that a token stands on this row."""
        lines = self._wrap.lines
        line = next((y for y, line in enumerate(lines) for tok in line.toks if tok.index >= index and not tok.style), 0)
        return max(0, len(lines) - height - max(0, line - row))

    def rows(self, height: int, view: str, at: int | None = None, back: int = 0) -> list[Row]:
        """The end of the text, or ``back`` lines before it; with ``at`` that token stands out, and its line is among
        those shown."""
        lines = self._wrap.lines
        top = max(0, len(lines) - height - back)
        if at is not None and not back:
            line = next((y for y, line in enumerate(lines) if any(tok.index >= at for tok in line.toks)), len(lines))
            top = max(0, min(line - height // 2, top))
        elif top and self._run.running and not back:
            top = -(-top // _JUMP) * _JUMP
        return [self._row(line, view, at) for line in lines[top : top + height]]

    def _row(self, line: Line, view: str, at: int | None) -> Row:
        here = None if at is None else (0, at)
        return merged(pieces_of(line, view, lambda tok: self._run.tokens[tok.index], here, "changed"))


def merged(spans: Iterable[Span]) -> Row:
    """The same text with one span for each stretch of a style."""
    return [("".join(text for text, _ in run), style) for style, run in groupby(spans, key=itemgetter(1))]


class RaceLanes(StripPanel):
    """Draws the lanes; a click chooses one."""

    @dataclass
    class Picked(Message):
        """A lane was clicked."""

        lane: int

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self.lanes: tuple[LaneView, ...] = ()
        self.order: tuple[int, ...] = ()  # in which bars stand
        self.focused_lane = 0
        self.view = marks.OUTCOME
        self.back = 0  # lines that all texts are scrolled up from their ends
        self._texts: list[LaneText] = []
        self._heights: dict[int, int] = {}  # rows of each lane's text, as they were drawn

    def show(
        self, lanes: tuple[LaneView, ...], focused: int, view: str, order: tuple[int, ...] = (), back: int = 0
    ) -> None:
        self.lanes, self.focused_lane, self.view, self.back = lanes, min(focused, len(lanes) - 1), view, back
        self.order = order or tuple(range(len(lanes)))
        while len(self._texts) < len(lanes):
            self._texts.append(LaneText())
        self.update_rows()

    def show_view(self, view: str) -> int:
        """Another view of the same texts, in which what the reader sees of the lane with the focus stays where it is;
        returns ``back`` as it is then. Texts that are shown to their ends stay so."""
        number = self.focused_lane
        if not self.back or number not in self._heights:
            self.view = view
            self.update_rows()
            return self.back
        text, height = self._texts[number], self._heights[number]
        index, row = text.place(height, self.back)
        self.view = view
        self.update_rows()
        self.back = text.back_to(index, row, height)
        self.update_rows()
        return self.back

    @property
    def lines(self) -> int:
        """Lines of the longest text."""
        return max((len(text) for text in self._texts[: len(self.lanes)]), default=0)

    def columns(self, width: int) -> bool:
        """Whether all lanes have room side by side."""
        return bool(self.lanes) and width // len(self.lanes) >= NARROWEST

    def rows(self, width: int, height: int) -> list[Row]:
        if not self.lanes:
            return []
        return self._columns(width, height) if self.columns(width) else self._bars(width, height)

    # -- side by side -----------------------------------------------------------------------------
    def _widths(self, width: int) -> list[int]:
        """Columns of each lane, the line at its right included."""
        each, rest = divmod(width, len(self.lanes))
        return [each + (n < rest) for n in range(len(self.lanes))]

    def _columns(self, width: int, height: int) -> list[Row]:
        widths = self._widths(width)
        level = min(widths) - 2  # the same words on the same rows of all lanes
        parts = [self._column(n, level, height) for n in range(len(self.lanes))]
        out: list[Row] = []
        for y in range(height):
            row: list[Span] = []
            for part, room in zip(parts, widths):
                spans = part[y] if y < len(part) else BLANK
                row += [*spans, (" " * (room - 2 - size(spans)), "text"), ("│ ", "rule")]
            out.append(row[:-1])
        return out

    def _column(self, number: int, width: int, height: int) -> list[Row]:
        lane = self.lanes[number]
        rows = [self._title(number, width)]
        if lane.run is not None:
            rows.append(_progress(lane, width))
            numbers = [[(row, "text" if n else "strong")] for n, row in enumerate(_packed(lane.numbers, width))]
            most = max(len(_packed(other.numbers, width)) for other in self.lanes)  # so that all texts begin in one row
            rows += [*numbers, *[BLANK] * most][: min(most, height // 4)]
            rows.append([(one_line(lane.badge[0]), lane.badge[1])] if lane.badge else BLANK)
            rows.append(BLANK)
            rows += self._text(number, width, max(1, height - len(rows)))
        else:
            rows.append(BLANK)
            for part in lane.about:
                rows += [*rows_of(one_line(part), width, "muted"), BLANK]
        return [clip(row, width) for row in rows]

    def _title(self, number: int, width: int) -> Row:
        lane = self.lanes[number]
        style, line = ("title-here", "title") if number == self.focused_lane else (f"lane-{number + 1}", "rule")
        mark: list[Span] = [(" ", "text"), (f" {LOSSY} ", "lossy")] if lane.lossy else []
        state = f" {lane.state}" if lane.state else ""
        room = width - size(mark) - len(state) - 1
        label = one_line(f" {number + 1} {lane.label} ", max(6, room))
        rule = max(0, width - len(label) - size(mark) - len(state))
        return [(label, style), *mark, ("─" * rule, line), (state, "strong")]

    def _text(self, number: int, width: int, height: int) -> list[Row]:
        lane, text = self.lanes[number], self._texts[number]
        text.follow(lane.run or RunState(), width, self.view == marks.REJECTED_KEPT)
        self._heights[number] = height
        return text.rows(height, self.view, lane.at, self.back)

    # -- bars -------------------------------------------------------------------------------------
    def _bars(self, width: int, height: int) -> list[Row]:
        state = "1-9 shows another lane's text"
        rows: list[Row] = [title_row(width, "lanes", state)]
        rows += [self._bar(number, width) for number in self.order]
        lane = self.lanes[self.focused_lane]
        rows.append(clip(self._title(self.focused_lane, width - 1), width))
        room = max(1, height - len(rows))
        if lane.run is None:
            about = [row for part in lane.about for row in rows_of(one_line(part), width - 1, "muted")]
            return [*rows, *about[:room]]
        return [*rows, *self._text(self.focused_lane, width - 1, room)]

    def _bar(self, number: int, width: int) -> Row:
        lane = self.lanes[number]
        style = "title-here" if number == self.focused_lane else f"lane-{number + 1}"
        said = max(_SAID, *(cells(lane.badge[0]) for lane in self.lanes if lane.badge is not None), 0)
        label = (26 if width >= 76 else 18) - 3 * (width < 68)
        if lane.run is not None:  # the name gives way to what is said of the text
            label = max(8, min(label, width - _BAR - said - _NUMBERS - 1 - (cells(LOSSY) + 1) * lane.lossy))
        row: list[Span] = [(fit(f" {number + 1} {one_line(lane.label)}", label), style), (" ", "text")]
        if lane.lossy:
            row += [(LOSSY, "lossy"), (" ", "text")]
        if lane.run is None:
            return clip([*row, (lane.state or (lane.about[0] if lane.about else ""), "muted")], width)
        wide = max(_BAR, width - size(row) - _NUMBERS - said)
        place = _PLACE if lane.total and lane.state and wide > _PLACE + 2 else 0  # a rank takes room of the bar
        row += (gauge(_share(lane), wide - place) if lane.total
                else [(fit(counted(len(lane.run.tokens), "token"), wide), "text")])
        row.append((fit(f" {lane.state}", place), "strong"))
        row.append((" " + fit(lane.numbers[0] if lane.numbers else "", 16, right=True), "text"))
        row.append((" " + fit(lane.speed, 8), "text"))
        words, look = lane.badge or ("" if place else lane.state, "text")
        row.append((" " + words, look))
        return clip(row, width)

    def on_click(self, event: Click) -> None:
        if not self.lanes:
            return
        if self.columns(self.size.width):
            edge = 0
            for number, room in enumerate(self._widths(self.size.width)):
                edge += room
                if event.x < edge:
                    self.post_message(self.Picked(number))
                    return
        elif 1 <= event.y <= len(self.order):
            self.post_message(self.Picked(self.order[event.y - 1]))


def _packed(parts: Iterable[str], width: int) -> list[str]:
    """Parts in as few rows of this width as their order allows."""
    rows: list[str] = []
    for part in filter(None, parts):
        if rows and len(rows[-1]) + 3 + len(part) <= width:
            rows[-1] += f"   {part}"
        else:
            rows.append(part)
    return rows


def _share(lane: LaneView) -> float:
    return len(lane.run.tokens) / lane.total if lane.run is not None and lane.total else 0.0


def _progress(lane: LaneView, width: int) -> Row:
    words = f" {counted(len(lane.run.tokens), 'token')}  {lane.seconds:.2f} s"
    if not lane.total:
        return [(words[1:], "text")]
    return [*gauge(_share(lane), max(4, width - len(words))), (words, "muted")]
