"""The conversation as text: every token in its style, streaming at the cost of the line it stands on.

Wrapped lines are kept as data, a finished strip is kept for each, and ``render_lines`` hands them out directly.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.events import Click
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import var
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from engines.report.run_state import RunState, ghosts
from spec_tui.present import rejected
from spec_tui.present import token_styles as marks
from spec_tui.present.blocks import LONGEST_SPAN, Piece
from spec_tui.present.text import LOSSY, cells, one_line, sanitise
from spec_tui.tui.actions import Action, HasActions, can
from spec_tui.tui.widgets.cached_scrollbar import CachedScrollbar
from spec_tui.tui.widgets.line_styles import pieces_of
from spec_tui.tui.widgets.styled_widget import StyledWidget
from spec_tui.tui.widgets.wrap import GHOST, GUTTER, Line, Tok, Wrapper


@dataclass(slots=True)
class Block:
    """One turn as the transcript sees it: the prompt, a line above and one below the answer, the run. ``badge`` is a
    verdict behind the line below, with its style."""

    prompt: str
    head: str
    run: RunState
    foot: str = ""
    bad: bool = False
    badge: tuple[str, str] | None = None
    shown: int = 0
    closed: bool = False


class Transcript(HasActions, StyledWidget, ScrollView, can_focus=True):
    """The scrolling text with a token cursor."""

    ACTIONS = (
        Action(id="token.left", run="move(-1)", keys="left", label="Token", help="Select the previous token"),
        Action(id="token.right", run="move(1)", keys="right", label="Token", help="Select the next token"),
        Action(id="token.up", run="line(-1)", keys="up", label="Line", help="A line up"),
        Action(id="token.down", run="line(1)", keys="down", label="Line", help="A line down"),
        Action(id="round.back", run="round(-1)", keys="left_square_bracket", label="Round",
               help="Select the previous round"),
        Action(id="round.next", run="round(1)", keys="right_square_bracket", label="Round",
               help="Select the next round"),
        Action(id="token.home", run="jump(False)", keys="home", label="Start", help="Go to the first token"),
        Action(id="token.end", run="jump(True)", keys="end", label="Follow", help="Go to the end and follow the text"),
        Action(id="token.inspect", run="inspect", keys="enter", label="Why", footer=True,
               when=lambda text: text.cursor is not None or not can("ask")(text.screen),
               help="Why this token (in a replay: the last one): who proposed it, what the target chose"),
    )
    DEFAULT_CSS = """
    Transcript {
        overflow-x: hidden; overflow-y: scroll; height: 1fr; scrollbar-size-vertical: 1;
        scrollbar-background: $background; scrollbar-background-hover: $background; scrollbar-color: $border;
    }
    """
    JUMP = 4  # lines scrolled at a time while following: fewer full repaints
    following: var[bool] = var(True)  # whether the view stays at the end as the text grows

    class Selected(Message):
        """The token cursor moved, or is gone."""

    @dataclass
    class Inspect(Message):
        """A token is to be explained."""

        cursor: tuple[int, int]

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self.blocks: list[Block] = []
        self.view = marks.OUTCOME
        self.show_ghosts = True
        self.cursor: tuple[int, int] | None = None
        self.wrapped = Wrapper(80)
        self._width = 0
        self._count = 0
        self._tail: list[str] = []
        self._welcome = ""
        self.seen: set[str] = set()

    def on_mount(self) -> None:
        self.vertical_scrollbar.render_lines = CachedScrollbar(self.vertical_scrollbar)

    # -- the text -------------------------------------------------------------------------------
    @property
    def welcome(self) -> str:
        """What stands here while there is no conversation."""
        return self._welcome

    @welcome.setter
    def welcome(self, text: str) -> None:
        if text != self._welcome:
            self._welcome = text
            if not self.blocks:
                self.rewrap()

    def begin(self, block: Block) -> None:
        """A new turn at the end; the view follows it."""
        if not self.blocks:
            self.wrapped.lines.clear()
        self.blocks.append(block)
        self.cursor, self.following = None, True
        self._changed(self._open(len(self.blocks) - 1))

    def update_run(self, run: RunState, foot: str = "", bad: bool = False, head: str | None = None) -> None:
        """Show what the last turn's run has brought since; ``foot`` closes the answer."""
        block = self.blocks[-1]
        block.run = run
        if head is not None and head != block.head:
            block.head = head
            self.rewrap()
        if foot:
            block.foot, block.bad = foot, bad
        first = self.wrapped.drop_tail()
        start = len(self.wrapped.lines) - 1 if first is None else first
        added = len(run.tokens) > block.shown or (foot and not block.closed)
        self._extend(len(self.blocks) - 1)
        tail = ghosts(run) if self.show_ghosts and not foot and self.view != marks.REJECTED_KEPT else []
        if not added and first is None and not tail:
            return
        if foot and self.view != marks.REJECTED_KEPT:
            self.seen.discard(GHOST)
        elif tail and self.view != "plain":
            self.seen.add(GHOST)
        if tail and block.shown:
            self.wrapped.put_tail(Tok(one_line(piece), GHOST) for piece in tail)
        if added or tail != self._tail:
            self._tail = tail
            self._changed(self._recoloured(start))

    def _recoloured(self, row: int) -> int:
        """The first row that looks different when this one goes on: what ends here may be emphasis or code."""
        reach = LONGEST_SPAN if self.view == "plain" else 0
        while reach > 0 and self.wrapped.lines[row].soft is not None:
            row, reach = row - 1, reach - self.wrapped.width
        return row

    def set_foot(self, number: int, foot: str, badge: tuple[str, str] | None = None) -> None:
        """Another closing line for an answer that is closed."""
        block = self.blocks[number]
        if block.closed and (block.foot, block.badge) != (foot, badge):
            block.foot, block.badge = foot, badge
            self.rewrap()

    def set_heads(self, heads: Sequence[str]) -> None:
        """Other lines above the answers, from the first on."""
        if [block.head for block in self.blocks[: len(heads)]] != [*heads]:
            for block, head in zip(self.blocks, heads):
                block.head = head
            self.rewrap()

    def drop_last(self) -> None:
        """Take the last turn away again."""
        if self.blocks:
            self.blocks.pop()
            self.cursor = None
            self.rewrap()

    def clear(self) -> None:
        """An empty conversation."""
        self.blocks.clear()
        self.cursor, self.following = None, True
        self.rewrap()

    def rewrap(self) -> None:
        """Lay everything out anew, for a new width."""
        if not self._width:
            return
        self.wrapped = Wrapper(self._width - GUTTER - 1)
        self._strips.clear()
        self.seen.clear()
        if not self.blocks:
            self.wrapped.start_line(copied=False)
            self.wrapped.push(Tok(word, "muted") for word in _words(self._welcome))
        for number, block in enumerate(self.blocks):
            block.shown, block.closed = 0, False
            self._open(number)
            self._extend(number)
        self._changed(0)
        self.refresh()

    def _open(self, number: int) -> int:
        """The prompt and the line above the answer; returns the first line that is new."""
        if not self._width:
            return 0
        block, wrap, first = self.blocks[number], self.wrapped, len(self.wrapped.lines)
        if number:
            wrap.start_line(copied=False)
        wrap.start_line("bar", (number, -1))
        wrap.push(Tok(word, "prompt", number) for word in _words(sanitise(block.prompt)))
        wrap.start_line(at=(number, -1), copied=False)
        wrap.start_line(at=(number, -1), copied=False)
        wrap.push(_line(block.head, "muted", number))
        wrap.start_line(at=(number, 0), answer=True)
        return first

    def _extend(self, number: int) -> None:
        """Place the tokens that are new, and the closing line."""
        block, wrap = self.blocks[number], self.wrapped
        if not self._width:
            return
        tokens = block.run.tokens
        wrap.push(self._toks(number, block.shown))
        self.seen |= marks.present(tokens[block.shown :], self.view)
        block.shown = len(tokens)
        if block.foot and not block.closed:
            block.closed = True
            if wrap.lines[-1].toks:
                wrap.start_line(at=(number, block.shown), copied=False)
            wrap.start_line(at=(number, block.shown), copied=False)
            wrap.push(_line(block.foot, "bad" if block.bad else "muted", number))
            if block.badge is not None:
                text, style = block.badge
                wrap.push([Tok(" ·", "muted", number), Tok(" " + one_line(text), style, number)])

    def _toks(self, number: int, start: int) -> Iterator[Tok]:
        """The tokens of a turn from ``start`` on, with the rejected ones before what came instead where the view keeps
        them."""
        run, keeps = self.blocks[number].run, self.view == marks.REJECTED_KEPT
        for index, gone in rejected.interleaved(run, start, keeps=keeps):
            if gone:
                self.seen.add(GHOST)
            yield from (Tok(label, GHOST, number, index) for label in gone)
            if text := run.tokens[index].text:
                yield Tok(sanitise(text), None, number, index)

    def _changed(self, first: int) -> None:
        """Lines from this one on are to be drawn again; keep to the end if the view is there."""
        if not self._width:
            return
        count = len(self.wrapped.lines)
        for y in range(first, count):
            self._strips.pop(y, None)
        height = count
        if self.blocks and not self.blocks[-1].closed:
            jump = self.JUMP if count - self._count < 2 else 2 * self.JUMP
            jump = min(jump, max(1, self.size.height // 4))  # in a small window most of the page stays
            height = max(-(-count // jump) * jump, self.virtual_size.height if count > self._count else 0)
        lowest, self._count = max(count, self._count), count  # lines that are gone must be wiped, too
        if self.virtual_size != (size := Size(self._width, height)):
            # Not by assignment: that would lay out the whole screen, and nothing on it depends on this height.
            self.set_reactive(Transcript.virtual_size, size)
            self._scroll_update(size)
        if self.following:
            self.scroll_end(animate=False, immediate=True, x_axis=False, force=True)
        top = self.scroll_offset.y
        self.refresh(Region(0, max(0, first - top), self._width, min(lowest - first, self.size.height)))

    # -- drawing --------------------------------------------------------------------------------
    def on_resize(self) -> None:
        width = self.scrollable_content_region.width
        if width and width != self._width:
            self._rewrap_in_place(width)
        elif self.following:
            self.scroll_end(animate=False, immediate=True, x_axis=False, force=True)

    def set_view(self, view: str) -> None:
        """Another way to show the same text. What stands at the top of the window, or the cursor where it is in the
        window, stays on its line of the screen."""
        before, self.view = self.view, view
        if (before == marks.REJECTED_KEPT) == (view == marks.REJECTED_KEPT):
            self._strips.clear()
            self.seen = {name for block in self.blocks for name in marks.present(block.run.tokens, view)}
            self.refresh()
            return
        self._rewrap_in_place(self._width)

    def _rewrap_in_place(self, width: int) -> None:
        following, (at, row) = self.following, self._place()
        self._width = width
        self.rewrap()
        if not following:
            row = max(0, min(row, self.size.height - 1))
            self.scroll_to(y=max(0, self._line_of(at) - row), animate=False, immediate=True, force=True)
            self.following = False

    def _place(self) -> tuple[tuple[int, int], int]:
        """A token that the reader sees, and the row of the window that it stands on."""
        top, height = round(self.scroll_offset.y), self.size.height
        if self.cursor is not None and 0 <= (row := self._line_of(self.cursor) - top) < height:
            return self.cursor, row
        for row, line in enumerate(self.wrapped.lines[top : top + height]):
            if first := next(((tok.turn, tok.index) for tok in line.toks if tok.style is None), None):
                return first, row
        return (self.wrapped.lines[top].at if top < len(self.wrapped.lines) else (0, 0)), 0

    def render_lines(self, crop: Region) -> list[Strip]:
        width, top, count = self.size.width, self.scroll_offset.y, len(self.wrapped.lines)
        blank = Strip.blank(width, self.style_of("text"))
        lines, selection = range(crop.y + top, crop.bottom + top), self.text_selection
        out = [self._strip(y, width, selection) if y < count else blank for y in lines]
        if crop.column_span != (0, width):
            out = [strip.crop(*crop.column_span) for strip in out]
        return out

    def render_line(self, y: int) -> Strip:
        """One row of the window, for Textual to find what the mouse marks."""
        return self.render_lines(Region(0, y, self.size.width, 1))[0]

    def _strip(self, y: int, width: int, selection: Selection | None) -> Strip:
        if selection is None and (strip := self._strips.get(y)) is not None:
            return strip
        line = self.wrapped.lines[y]
        strip = Strip(self._segments(line)).adjust_cell_length(width, self.style_of("text") + self._back_of(line))
        if selection is not None and (span := selection.get_span(y)):
            strip = self._mark_selection(strip, *span)
        for line_filter in self.get_line_filters():
            strip = strip.apply_filter(line_filter, self.background_colors[1])
        strip = strip.apply_offsets(0, y)
        if selection is None:
            self._strips[y] = strip
        return strip

    def _segments(self, line: Line) -> list[Segment]:
        """One segment for each run of equal style; the gutter first. Never a style None: NO_COLOR cannot draw it."""
        here = self.cursor is not None and any(
            t.style is None and t.turn == self.cursor[0] and self._round(t.turn, t.index) == self._round(*self.cursor)
            for t in line.toks)
        out, back = [self._gutter(line, here)], self._back_of(line)
        for name, run in groupby(self._pieces(line), key=itemgetter(1)):
            out.append(Segment("".join(text for text, _ in run), self.style_of(name) + back))
        return out

    def _pieces(self, line: Line) -> Iterator[Piece]:
        return pieces_of(line, self.view, lambda tok: self.blocks[tok.turn].run.tokens[tok.index], self.cursor,
                         "cursor")

    def _back_of(self, line: Line) -> Style:
        """What a line stands on, where it is code."""
        surface = self.app.theme_variables["surface"]
        return Style(bgcolor=Color.parse(surface).rich_color) if line.code else Style.null()

    def _round(self, turn: int, index: int) -> int:
        return self.blocks[turn].run.tokens[index].round

    def _gutter(self, line: Line, in_round: bool) -> Segment:
        if line.gutter:
            return Segment("▌ ", self.style_of(line.gutter))
        if in_round:
            return Segment("│ ", self.style_of("bar"))
        return Segment("▏ " if line.code else "  ", self.style_of("rule"))

    def _mark_selection(self, strip: Strip, start: int, end: int) -> Strip:
        text = strip.text
        left = cells(text[:start])
        right = strip.cell_length if end == -1 else cells(text[:end])
        marked = (Segment(segment.text, (segment.style or Style.null()) + self.selection_style)
                  for segment in strip.crop(left, right))
        return Strip.join([strip.crop(0, left), Strip(marked), strip.crop(right)])

    # -- the token cursor --------------------------------------------------------------
    def select(self, cursor: tuple[int, int] | None) -> None:
        """Put the token cursor here, and scroll to it."""
        self.cursor = cursor
        self._strips.clear()
        if cursor is not None:
            self.following = False
            self._scroll_to_line(self._line_of(cursor))
        self.refresh()
        self.post_message(self.Selected())

    def _line_of(self, cursor: tuple[int, int]) -> int:
        lines = self.wrapped.lines
        return max(0, bisect_right(lines, cursor, key=lambda line: line.at) - 1)

    def _scroll_to_line(self, y: int) -> None:
        top, height = self.scroll_offset.y, self.size.height
        if y < top:
            self.scroll_to(y=max(0, y - 1), animate=False)
        elif y >= top + height:
            self.scroll_to(y=y - height + 2, animate=False)

    def _places(self) -> list[tuple[int, int]]:
        """Where the cursor can stand: the tokens that have text."""
        return [(turn, index) for turn, block in enumerate(self.blocks)
                for index, token in enumerate(block.run.tokens) if token.text]

    def action_move(self, step: int) -> None:
        places = self._places()
        if self.cursor is None:
            self.select(places[-1] if places else None)
            return
        at = bisect_right(places, self.cursor) if step > 0 else bisect_left(places, self.cursor) - 1
        if 0 <= at < len(places):
            self.select(places[at])

    def action_round(self, step: int) -> None:
        if self.cursor is None:
            self.action_move(-1)
            return
        turn, index = self.cursor
        run = self.blocks[turn].run
        target = run.tokens[index].round + step
        if target < len(run.rounds):
            places = self._places()
            at = bisect_left(places, (turn, run.starts[target] if target >= 0 else 0))
            self.select(places[min(at, len(places) - 1)])

    def action_line(self, step: int) -> None:
        """With a cursor, to the token above or below it; else scroll."""
        if self.cursor is None:
            self.scroll_relative(y=step, animate=False)
            self.following = step > 0 and self.scroll_offset.y >= self.max_scroll_y
            return
        y = self._line_of(self.cursor)
        column = 0
        for tok in self.wrapped.lines[y].toks:
            if (tok.turn, tok.index) == self.cursor:
                break
            column += cells(tok.text)
        y += step
        while 0 <= y < len(self.wrapped.lines):
            if target := self._token_in(self.wrapped.lines[y], column):
                self.select(target)
                return
            y += step

    def action_jump(self, end: bool) -> None:
        if end:
            self.following = True
            self.select(None)
            self.scroll_end(animate=False, immediate=True, x_axis=False, force=True)
        elif places := self._places():
            self.select(places[0])
            self.scroll_home(animate=False)

    def action_inspect(self) -> None:
        if self.cursor is None:
            self.action_move(-1)
        if self.cursor is not None:
            self.post_message(self.Inspect(self.cursor))

    def _token_in(self, line: Line, column: int) -> tuple[int, int] | None:
        found = None
        for tok in line.toks:
            if tok.style is None:
                found = (tok.turn, tok.index)
                if column < cells(tok.text):
                    return found
            column -= cells(tok.text)
        return found

    def on_click(self, event: Click) -> None:
        y = event.y + self.scroll_offset.y
        if self.text_selection is not None or not 0 <= y < len(self.wrapped.lines):
            return
        column = event.x - GUTTER
        for tok in self.wrapped.lines[y].toks:
            width = cells(tok.text)
            if 0 <= column < width and tok.index >= 0:  # a rejected token tells of what came instead
                self.select((tok.turn, tok.index))
                self.post_message(self.Inspect((tok.turn, tok.index)))
                return
            column -= width

    # -- selection ------------------------------------------------------------------------------
    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text without gutter, ghosts, headings, and the line breaks of the wrap."""
        out: list[str] = []
        for y, line in enumerate(self.wrapped.lines):
            if not line.copied or (span := selection.get_span(y)) is None:
                continue
            start, end = span
            if out:
                out.append("\n" if line.soft is None else line.soft)
            own = [(char, tok.is_text) for tok in line.toks for char in tok.text]
            own = own[max(0, start - GUTTER) : None if end == -1 else max(0, end - GUTTER)]
            out.append("".join(char for char, kept in own if kept))
        return "".join(out), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self._strips.clear()
        self.refresh()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if new_value < min(old_value, self.max_scroll_y):  # not where the text only got shorter
            self.following = False
        elif self.cursor is None and new_value >= self.max_scroll_y:
            self.following = True


def _line(text: str, style: str, number: int) -> list[Tok]:
    """A line above or below an answer; what is LOSSY in it stands out."""
    return [Tok(word, "lossy" if LOSSY in word else style, number) for word in _words(one_line(text))]


def _words(text: str) -> list[str]:
    """Text in pieces a wrap can use: each word with the blanks before it, line breaks alone."""
    return re.findall(r"\n| *[^ \n]+| +", text)
