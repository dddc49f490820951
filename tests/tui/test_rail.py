"""The scroll bar draws what Textual's own would, with the mouse and the theme in mind."""

from __future__ import annotations

from itertools import pairwise

import pytest
from textual.geometry import Offset, Region
from textual.widget import Widget

from tests.tui.fakes import ANSWER, FakeClient


def look(strips) -> list:
    """Each line's text, style and what a click on it does."""
    return [[(s.text, s.style.without_color, s.style.meta, s.style.color, s.style.bgcolor) for s in x] for x in strips]


@pytest.mark.parametrize("theme", ["spec-dark", "spec-light", "ansi-dark"])
async def test_the_scroll_bar_looks_like_textuals_own_wherever_it_stands(session, theme):
    async with session((80, 24), FakeClient(ANSWER * 12), theme=theme) as s:
        bar, seen = s.chat.transcript.vertical_scrollbar, []

        def check() -> None:
            whole = Region(0, 0, *bar.size)
            own = Widget.render_lines(bar, whole)
            assert look(bar.render_lines(whole)) == look(own)
            assert look(bar.render_lines(Region(0, 3, bar.size.width, 5))) == look(own[3:8])
            seen.append(look(own))

        check()
        await s.ask("Long?")
        check()
        for line in (0, 7, 14):
            s.chat.transcript.scroll_to(y=line, animate=False)
            await s.pilot.pause()
            check()
        bar.mouse_over = True
        await s.pilot.pause()
        check()
        bar.grabbed = Offset(0, 0)
        await s.pilot.pause()
        check()
        assert all(a != b for a, b in pairwise(seen[:-1])), "each of these is another picture"
        bar.grabbed = None
        before = bar.render_lines(Region(0, 0, *bar.size))
        assert bar.render_lines(Region(0, 0, *bar.size))[4] is before[4], "what did not change is not made again"
