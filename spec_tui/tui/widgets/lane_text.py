"""The text of a lane as rows: wrapped once as it grows, coloured as in the chat."""

from __future__ import annotations

from engines.report.run_state import RunState
from spec_tui.present import token_styles as marks
from spec_tui.present.text import sanitise
from spec_tui.tui.widgets.strip_panel import Row, Span
from spec_tui.tui.widgets.wrap import Line, Tok, Wrapper

_JUMP = 4  # lines the text moves at a time while it grows: most frames draw one line again


class LaneText:
    """Wraps what a run has brought since the last look. Another run, an earlier moment or another width begin anew."""

    def __init__(self) -> None:
        self._wrap = Wrapper(0)
        self._width = -1
        self._shown = 0
        self._first: object = None
        self._run = RunState()

    def __len__(self) -> int:
        """Lines."""
        return len(self._wrap.lines)

    def follow(self, run: RunState, width: int) -> None:
        """Take the run as it is now."""
        first = run.tokens[0] if run.tokens else None
        if width != self._width or len(run.tokens) < self._shown or (self._shown and first is not self._first):
            self._wrap, self._width, self._shown = Wrapper(width), width, 0
            self._wrap.start_line()
        self._run, self._first = run, first
        fresh = run.tokens[self._shown :]
        self._wrap.push(
            Tok(sanitise(token.text), None, 0, index) for index, token in enumerate(fresh, self._shown) if token.text
        )
        self._shown = len(run.tokens)

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
        row: list[Span] = []
        for tok in line.toks:
            style, text = marks.style_of(self._run.tokens[tok.index], view), tok.text
            if tok.index == at:
                row.append((text, "changed"))
                continue
            inked = text.lstrip(" ")
            if style in marks.INKED_BLANKS and len(inked) < len(text):  # the blank before a word carries no line
                row.append((text[: len(text) - len(inked)], "text"))
                text = inked
            if row and row[-1][1] == style:
                row[-1] = (row[-1][0] + text, style)
            elif text:
                row.append((text, style))
        return row
