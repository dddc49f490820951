"""A law that is not lossless is marked on every screen that shows it, and the mark needs no colour."""

from __future__ import annotations

import pytest

from spec_tui.tui.widgets.field import Field
from tests.tiers import SMALL_FIRST
from tests.tui.conftest import drawn


def styled(session, word: str) -> list[str]:
    """Style names of the transcript's words that contain this one."""
    return [tok.style for line in session.chat.transcript.wrapped.lines for tok in line.toks if word in tok.text]


async def lossy_answer(s) -> None:
    await s.ask("/law redraw")
    await s.ask("/temp 0.8")
    await s.ask("Tell me a story.")


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_an_answer_under_a_lossy_law_is_marked(session, size):
    async with session(size=size) as s:
        await lossy_answer(s)
        assert "LOSSY · Hybrid" in s.shown and "LOSSY: bias 0.250 per round" in s.shown.replace("\n", " ")
        assert styled(s, "LOSSY") == ["lossy", "lossy"]
        style = s.chat.transcript.style_of("lossy")
        assert style.reverse and style.bold
        top = s.chat.query_one("#top")
        assert ("LOSSY", top.style_of("lossy")) in drawn(top)
        panels = [*s.chat.query_one("#speed").text_rows(), *s.chat.query_one("#telemetry").text_rows()]
        assert any("LOSSY" in row for row in panels)


async def test_the_status_line_says_what_was_chosen(session):
    async with session() as s:
        await s.ask("/law typical")
        assert s.status.startswith("law set to typical LOSSY: keeps drafts that the target finds likely enough")
        await s.ask("/law rejection")
        assert "LOSSY" not in s.status


async def test_nothing_is_marked_under_a_lossless_law(session):
    async with session() as s:
        await s.ask("/law rejection")
        await s.ask("/temp 0.8")
        await s.ask("Tell me a story.")
        assert "LOSSY" not in s.shown and not any("LOSSY" in row for row in s.chat.query_one("#speed").text_rows())


async def test_a_baseline_under_a_lossy_law_proves_nothing(session):
    async with session() as s:
        await lossy_answer(s)
        await s.ask("/baseline", feed=3)
        s.client.feed()
        await s.settle()
        assert "the redraw law is LOSSY: it keeps neither text nor distribution" in s.status


async def test_a_baseline_at_temperature_0_proves_something_under_every_law(session):
    async with session() as s:
        for law in ("rejection", "typical"):
            await s.ask(f"/law {law}", feed=0)
            await s.ask("Tell me a story.")
            await s.ask("/baseline", feed=3)
            s.client.feed()
            await s.settle()
            assert "✓ the same text as autoregressive decoding" in s.status


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_dialog_marks_the_choices(session, size):
    async with session(size=size) as s:
        await s.pilot.press("ctrl+e")
        field = next(f for f in s.app.screen.query(Field) if f.option.name == "law")
        field.editor.focus()
        await s.pilot.pause()
        assert "redraw and typical are LOSSY" in str(s.app.screen.query_one("#hint").content)
        chosen = field.query_one("#label")
        assert str(chosen.content) == "exact"
        field.put("typical")
        await s.pilot.pause()
        assert str(chosen.content) == "typical LOSSY" and chosen.content.spans, "it stands out"
        assert chosen.size.width >= len("typical LOSSY")
        await s.pilot.press("enter")
        offered = field.query_one("SelectOverlay")
        assert [str(offered.get_option_at_index(n).prompt) for n in range(5)] == [
            "exact", "rejection", "block", "redraw LOSSY", "typical LOSSY"]


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 40)])
async def test_the_mark_is_there_before_asking_however_much_is_set(session, size):
    async with session(size=size) as s:
        for command in ("/engine draft", "/set shape=tree", "/set draw=distinct", "/temp 0.8", "/law redraw"):
            await s.ask(command)
        top = s.chat.query_one("#top").text_rows()[0]
        assert "redraw LOSSY · Draft model" in top and len(top.rstrip()) <= size[0]
        assert "spec-tui  sample" in top, "and the model's name"


@pytest.mark.parametrize("size", [*SMALL_FIRST, (60, 16)])
async def test_the_view_of_the_price_is_marked(session, size):
    async with session(size=size) as s:
        await lossy_answer(s)
        await s.pilot.press("f10")
        panel = s.app.screen.query_one("#price")
        assert panel.text_rows()[0].startswith("redraw LOSSY  ") and "tokens per" in panel.text_rows()[0]
        assert ("LOSSY", panel.style_of("lossy")) in drawn(panel)
