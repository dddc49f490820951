"""A cursor that goes from token to token over the turns of a transcript."""

from __future__ import annotations

from bisect import bisect_right

from textual import events
from textual.message import Message
from textual.scroll_view import ScrollView

from spec_tui.tui.actions import Action, HasActions
from spec_tui.tui.widgets.wrap import GUTTER, Line, Tok, cells


class TokenCursor(HasActions, ScrollView):
    """The keys and the mouse of the transcript; ``Transcript`` adds the text and draws it."""

    ACTIONS = (
        Action(id="token.left", run="move(-1)", keys="left", label="Token", help="Select the token before"),
        Action(id="token.right", run="move(1)", keys="right", label="Token", help="Select the next token"),
        Action(id="token.up", run="line(-1)", keys="up", label="Line", help="A line up"),
        Action(id="token.down", run="line(1)", keys="down", label="Line", help="A line down"),
        Action(id="round.back", run="round(-1)", keys="left_square_bracket", label="Round",
               help="Select the round before"),
        Action(id="round.next", run="round(1)", keys="right_square_bracket", label="Round",
               help="Select the next round"),
        Action(id="token.home", run="jump(False)", keys="home", label="Start", help="Go to the first token"),
        Action(id="token.end", run="jump(True)", keys="end", label="Follow",
               help="Go to the end and follow the text"),
        Action(id="token.inspect", run="inspect", keys="enter", label="Why", footer=True,
               help="Why this token: who proposed it, what the target chose"),
    )
    class Selected(Message):
        """The token cursor moved (None: there is no cursor any more)."""

        def __init__(self, cursor: tuple[int, int] | None) -> None:
            super().__init__()
            self.cursor = cursor

    class Inspect(Message):
        """A token is to be explained."""

        def __init__(self, cursor: tuple[int, int]) -> None:
            super().__init__()
            self.cursor = cursor

    def _round(self, tok: Tok) -> int:
        return self.blocks[tok.turn].run.tokens[tok.index].round

    def _chosen_round(self) -> tuple[int, int] | None:
        if self.cursor is None:
            return None
        turn, index = self.cursor
        return turn, self.blocks[turn].run.tokens[index].round

    def select(self, cursor: tuple[int, int] | None) -> None:
        """Put the token cursor here, and scroll to it."""
        self.cursor = cursor
        self._strips.clear()
        if cursor is not None:
            self.following = False
            self._scroll_to_line(self._line_of(cursor))
        self.refresh()
        self.post_message(self.Selected(cursor))

    def _line_of(self, cursor: tuple[int, int]) -> int:
        lines = self._wrap.lines
        return max(0, bisect_right(lines, cursor, key=lambda line: line.at) - 1)

    def _scroll_to_line(self, y: int) -> None:
        top, height = self.scroll_offset.y, self.size.height
        if y < top:
            self.scroll_to(y=max(0, y - 1), animate=False)
        elif y >= top + height:
            self.scroll_to(y=y - height + 2, animate=False)

    def _last(self) -> tuple[int, int] | None:
        for turn in range(len(self.blocks) - 1, -1, -1):
            if count := len(self.blocks[turn].run.tokens):
                return self._seen(turn, count - 1, -1)
        return None

    def _seen(self, turn: int, index: int, step: int) -> tuple[int, int] | None:
        """The next token from here that has text, over the turns."""
        while 0 <= turn < len(self.blocks):
            tokens = self.blocks[turn].run.tokens
            while 0 <= index < len(tokens):
                if tokens[index].text:
                    return turn, index
                index += step
            turn += step
            index = 0 if step > 0 else (len(self.blocks[turn].run.tokens) - 1 if turn >= 0 else 0)
        return None

    def action_move(self, step: int) -> None:
        if self.cursor is None:
            target = self._last()
        else:
            turn, index = self.cursor
            target = self._seen(turn, index + step, step)
            if target is None:
                return
        self.select(target)

    def action_round(self, step: int) -> None:
        if self.cursor is None:
            self.select(self._last())
            return
        turn, index = self.cursor
        run = self.blocks[turn].run
        target = run.tokens[index].round + step
        if 0 <= target < len(run.rounds):
            index = run.starts[target]
        elif target < 0:
            index = 0
        else:
            return
        if found := self._seen(turn, index, 1):
            self.select(found)

    def action_line(self, step: int) -> None:
        """With a cursor, to the token above or below it; else scroll."""
        if self.cursor is None:
            self.scroll_relative(y=step, animate=False)
            self.following = step > 0 and self.scroll_offset.y >= self.max_scroll_y
            return
        y = self._line_of(self.cursor)
        column = 0
        for tok in self._wrap.lines[y].toks:
            if (tok.turn, tok.index) == self.cursor:
                break
            column += cells(tok.text)
        y += step
        while 0 <= y < len(self._wrap.lines):
            if target := self._token_in(self._wrap.lines[y], column):
                self.select(target)
                return
            y += step

    def action_jump(self, end: bool) -> None:
        if end:
            self.following = True
            self.select(None)
            self.scroll_end(animate=False, immediate=True, x_axis=False, force=True)
        elif self.blocks and (found := self._seen(0, 0, 1)):
            self.select(found)
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

    def on_click(self, event: events.Click) -> None:
        y = event.y + self.scroll_offset.y
        if self.text_selection is not None or not 0 <= y < len(self._wrap.lines):
            return
        column = event.x - GUTTER
        for tok in self._wrap.lines[y].toks:
            width = cells(tok.text)
            if 0 <= column < width and tok.style is None:
                self.select((tok.turn, tok.index))
                self.post_message(self.Inspect((tok.turn, tok.index)))
                return
            column -= width
