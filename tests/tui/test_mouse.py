"""The mouse in the chat: text is marked and copied, tokens and lists are clicked."""

from __future__ import annotations

from textual.events import MouseDown, MouseUp


async def test_what_the_mouse_marks_is_shown_and_copied(session):
    from spec_tui.tui.widgets.wrap import GUTTER

    async with session() as s:
        await s.ask("one two three", feed=12)
        await s.pilot.press("escape")
        transcript = s.chat.transcript
        y = next(y for y, line in enumerate(transcript.wrapped.lines) if any(t.is_text for t in line.toks))
        text = "".join(tok.text for tok in transcript.wrapped.lines[y].toks)
        row = y - transcript.scroll_offset.y
        await s.pilot.mouse_down(transcript, offset=(GUTTER + 1, row))
        await s.pilot.hover(transcript, offset=(GUTTER + 5, row))
        await s.pilot.mouse_up(transcript, offset=(GUTTER + 5, row))
        marked = [seg.text for seg in transcript.render_line(row) if seg.style.bgcolor == (
            transcript.selection_style.bgcolor)]
        assert "".join(marked) == text[1:6]
        await s.pilot.press("ctrl+c")
        assert s.app.clipboard == text[1:6] and "copied" in s.status
        head = next(y for y, line in enumerate(transcript.wrapped.lines) if not line.copied and line.toks)
        row = head - transcript.scroll_offset.y
        await s.pilot.mouse_down(transcript, offset=(GUTTER + 1, row))
        await s.pilot.hover(transcript, offset=(GUTTER + 5, row))
        await s.pilot.mouse_up(transcript, offset=(GUTTER + 5, row))
        await s.pilot.press("ctrl+c")
        assert "Nothing was copied" in s.status


async def test_a_click_marks_an_engine_and_a_second_one_chooses_it(session):
    async with session() as s:
        await s.pilot.press("ctrl+e")
        screen = s.app.screen
        engines = screen.query_one("#engines")
        before, row = s.chat.session.settings.engine, next(n for n in range(6) if n != engines.highlighted)
        await s.pilot.click(engines, offset=(3, row))
        assert s.app.screen is screen and engines.highlighted == row and s.chat.session.settings.engine == before
        await s.pilot.click(engines, offset=(3, row))
        await s.pilot.pause()
        assert s.app.screen is s.chat and s.chat.session.settings.engine == engines.get_option_at_index(row).id


async def test_what_is_copied_has_no_rejected_drafts_and_a_click_on_one_explains(session):
    from textual.geometry import Offset
    from textual.selection import Selection

    async with session() as s:
        await s.ask("/view rejected")
        await s.ask("one")
        transcript, run = s.chat.transcript, s.chat.session.turns[0].run
        copied, _ = transcript.get_selection(Selection(None, None))
        assert run.text in copied
        y, line = next((y, line) for y, line in enumerate(transcript.wrapped.lines) if any(
            t.style == "ghost" for t in line.toks))
        x = 2
        for tok in line.toks:
            if tok.style == "ghost":
                break
            x += len(tok.text)
        part, _ = transcript.get_selection(Selection(Offset(0, y), Offset(x + len(tok.text), y)))
        assert part == "".join(t.text for t in line.toks[: line.toks.index(tok)]), "columns count what is struck, too"
        await s.pilot.click(transcript, offset=(x, y - transcript.scroll_offset.y))
        await s.pilot.pause()
        assert transcript.cursor == (0, tok.index) and s.app.screen is not s.chat


async def test_selection_leaves_out_gutter_and_ghosts(session):
    from textual.selection import SELECT_ALL

    async with session() as s:
        await s.ask("one", feed=12)
        text, _ = s.chat.transcript.get_selection(SELECT_ALL)
        assert text.startswith("one\n") and s.chat.session.turns[0].run.text.strip() in text
        assert "▌" not in text and "exact" not in text


async def test_more_clicks_take_no_line_of_a_list_that_is_gone(session):
    async with session() as s:
        s.chat.prompt.put("/ne")
        await s.pilot.pause(0.3)
        at = s.chat.prompt.choices.content_region
        for event in (MouseDown, MouseUp) * 3:
            s.app.post_message(event(None, at.x + 1, at.y, 0, 0, 1, False, False, False, at.x + 1, at.y))
        await s.pilot.pause(0.3)
        assert s.chat.prompt.text == "" and "new conversation" in s.status
