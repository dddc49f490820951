"""The chat as it is read: views, the cursor, sizes, panels, copies and exports, presenting."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.events import MouseScrollUp

from engines.report.events import Failed
from engines.report.run_state import fold_all
from engines.request import Request
from engines.wire import read_trace
from spec_tui.present.token_styles import VIEWS
from spec_tui.session.host_access import HostAccess
from spec_tui.session.kept_settings import keep_view, kept_view
from spec_tui.tui.screens.export import CHOICES
from spec_tui.tui.screens.glossary import GlossaryScreen
from spec_tui.tui.screens.help import HelpScreen
from spec_tui.tui.screens.inspector import Inspector
from tests.tiers import SMALL_FIRST
from tests.tui.fakes import ANSWER, FakeClient
from tests.tui.test_hostile import screen_text


async def test_the_view_keeps_to_the_end_when_an_answer_is_closed(session):
    for count in range(100, 112, 3):
        async with session(size=(100, 30), client=FakeClient(ANSWER * 4)) as s:
            await s.ask("one", feed=count)
            await s.pilot.press("escape")
            await s.settle()
            transcript = s.chat.transcript
            assert transcript.following and transcript.scroll_offset.y == transcript.max_scroll_y


async def test_views_cycle_and_colour_the_same_text_and_the_chosen_one_is_remembered(session, tmp_path, monkeypatch):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))
    first, *others = VIEWS
    keep_view(others[-1])
    async with session(remembers=True) as s:
        await s.ask("one")
        assert s.chat.transcript.view == others[-1], "as it was left"
        await s.pilot.press("escape", "v")
        before, seen = s.shown, []
        for _ in VIEWS:
            seen.append(s.chat.transcript.view)
            assert kept_view() == seen[-1]
            await s.pilot.press("v")
        assert seen == list(VIEWS) and s.chat.transcript.view == first and s.shown == before


async def test_legend_names_only_what_is_there(session):
    async with session() as s:
        await s.ask("/engine autoregressive")
        await s.ask("one")
        legend = s.chat.query_one("#legend").text_rows()[0]
        assert "target" in legend and "corrected" not in legend and "bonus" not in legend
        await s.ask("/view source")
        assert "copied" not in s.chat.query_one("#legend").text_rows()[0]


async def test_token_cursor_moves_and_the_inspector_explains(session):
    async with session() as s:
        await s.ask("one")
        await s.pilot.press("escape", "left")
        transcript, run = s.chat.transcript, s.chat.session.turns[0].run
        assert transcript.cursor == (0, len(run.tokens) - 1)
        await s.pilot.press("left_square_bracket")
        assert run.tokens[transcript.cursor[1]].round == len(run.rounds) - 2
        rows = s.chat.query_one("#tree").text_rows()
        assert f"round {run.rounds[-2].index:>3}" in rows[0]
        await s.pilot.press("home")
        assert transcript.cursor == (0, 0)
        await s.pilot.press("down", "up")
        await s.pilot.press("enter")
        assert isinstance(s.app.screen, Inspector)
        assert "prefill" in str(s.app.screen.query_one("#text").content)
        await s.pilot.press("right")
        text = str(s.app.screen.query_one("#text").content)
        assert "proposed by" in text and "target's distribution" in text
        for key, opened in (("question_mark", GlossaryScreen), ("f1", HelpScreen)):
            await s.pilot.press(key)
            assert isinstance(s.app.screen, opened)
            await s.pilot.press("escape")
            await s.pilot.pause()
        await s.pilot.press("escape")
        await s.pilot.pause()
        assert transcript.cursor == (0, 1)
        await s.pilot.press("escape")
        assert transcript.cursor is None and transcript.following


async def test_a_click_on_a_token_inspects_it(session):
    async with session() as s:
        await s.ask("one")
        line = next(y for y, row in enumerate(s.shown.splitlines()) if row.startswith("def merge"))
        await s.pilot.click("#transcript", offset=(3, line))
        await s.pilot.pause()
        assert isinstance(s.app.screen, Inspector) and s.app.screen.cursor == (0, 0)


async def test_palette_and_help_open(session):
    async with session() as s:
        await s.pilot.press("ctrl+p")
        await s.pilot.pause()
        await s.pilot.press(*"measure")
        await s.pilot.pause(0.3)
        await s.pilot.press("escape", "escape")
        await s.pilot.pause()
        await s.pilot.press("f1")
        assert isinstance(s.app.screen, HelpScreen)
        text = str(s.app.screen.query_one("#text").content)
        assert "ctrl+j" in text and "/engine" in text and "telemetry" in text
        await s.pilot.press("escape")
        await s.pilot.press("question_mark")
        assert isinstance(s.app.screen, HelpScreen)


async def test_commands_of_the_palette_cover_the_keys(session):
    async with session() as s:
        titles = [c.title for c in s.app.get_system_commands(s.chat)]
        for needed in ("Engine and options", "Examples", "Measure baseline", "Theme", "Export", "Quit"):
            assert needed in titles
        assert len(titles) == len(set(titles))


@pytest.mark.parametrize("size", [*SMALL_FIRST, (60, 16)])
async def test_resize_keeps_the_text(session, size):
    async with session() as s:
        await s.ask("one", feed=20)
        await s.pilot.resize_terminal(*size)
        await s.settle()
        s.client.feed()
        await s.settle()
        transcript = s.chat.transcript
        text = "".join(
            ("\n" if line.soft is None else line.soft) + "".join(t.text for t in line.toks if t.style is None)
            for line in transcript.wrapped.lines if line.at[1] >= 0
        )
        assert ANSWER.strip() in text
        assert transcript.following and transcript.scroll_offset.y == transcript.max_scroll_y


async def test_too_small_asks_to_be_enlarged(session):
    async with session(size=(50, 12)) as s:
        assert s.chat.query_one("#enlarge").display and not s.chat.query_one("#body").display
        assert "or use spec-tui run" in screen_text(s.app)
        await s.pilot.resize_terminal(120, 40)
        await s.pilot.pause()
        assert not s.chat.query_one("#enlarge").display


async def test_a_visitor_in_a_small_window_is_told_of_no_command(session, monkeypatch):
    for name, value in HostAccess(False).variables.items():
        monkeypatch.setenv(name, value)
    async with session(size=(50, 12)) as s:
        assert "enlarge the window" in screen_text(s.app) and "spec-tui run" not in screen_text(s.app)


async def test_panels_toggle_wide_and_enlarge_narrow(session):
    async with session() as s:
        await s.ask("one")
        await s.pilot.press("f5")
        await s.pilot.pause()
        assert not s.chat.query_one("#tree").display
        await s.pilot.press("f5", "f8")
        await s.pilot.pause()
        assert s.chat.query_one("#tree").display and not s.chat.query_one("#speed").display
    async with session(size=(80, 24)) as s:
        await s.ask("one")
        assert s.chat.query_one("#telemetry").display
        await s.pilot.press("escape", "t")
        await s.pilot.pause()
        assert s.chat.query_one("#tree").size.height > 10 and not s.chat.query_one("#left").display
        await s.pilot.press("escape")
        assert s.chat.query_one("#left").display


async def test_a_reader_who_scrolled_up_is_left_alone(session):
    async with session(size=(100, 30), client=FakeClient(ANSWER * 4)) as s:
        await s.ask("one", feed=120)
        transcript = s.chat.transcript
        assert transcript.max_scroll_y > 0 and transcript.following
        transcript.focus()
        await s.pilot.press("up", "up", "up")
        at = transcript.scroll_offset.y
        s.client.feed(30)
        await s.settle()
        assert transcript.scroll_offset.y == at and not transcript.following
        await s.pilot.press("end")
        s.client.feed()
        await s.settle()
        assert transcript.scroll_offset.y == transcript.max_scroll_y


async def test_the_title_says_at_once_that_the_wheel_left_the_end(session):
    async with session(size=(100, 30), client=FakeClient(ANSWER * 4)) as s:
        await s.ask("one")
        title = s.chat.query_one("#answer-title")
        assert "following" in title.text_rows()[0]
        wheel = dict(delta_x=0, delta_y=-1, button=0, shift=False, meta=False, ctrl=False)
        s.chat.transcript.post_message(MouseScrollUp(s.chat.transcript, 5, 5, **wheel))
        await s.settle()
        assert "press End to follow" in title.text_rows()[0]
        s.chat.transcript.focus()
        await s.pilot.press("end")
        assert "following" in title.text_rows()[0]


async def test_copy(session):
    async with session() as s:
        await s.ask("one")
        await s.pilot.press("escape", "y")
        assert s.app.clipboard == ANSWER
        await s.pilot.press("Y")
        assert "{~~" in s.app.clipboard and "{++" in s.app.clipboard


async def export(s, name):
    """Choose this in the dialog of e; the file that came of it."""
    before = set(Path.cwd().iterdir())
    await s.pilot.press("e")
    await s.pilot.pause()
    await s.pilot.press(*["down"] * list(CHOICES).index(name), "enter")
    for _ in range(3):
        await s.settle()
    (made,) = set(Path.cwd().iterdir()) - before
    return made


async def test_export_of_an_answer(session, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with session() as s:
        await s.ask("one")
        await s.ask("two")
        await s.pilot.press("escape", "home")
        run = s.chat.session.turns[0].run
        made = {name: await export(s, name) for name in ("trace", "md", "html", "cast")}
        trace = read_trace(made["trace"])
        assert not trace.problems and trace.complete and fold_all(trace.events) == run
        assert run.text in made["md"].read_text() and "data-facts" in made["html"].read_text()
        assert '"version": 2' in made["cast"].read_text() and made["cast"].name in s.status
        again = await export(s, "trace")
        assert again != made["trace"] and read_trace(again) == trace, "nothing is overwritten"


async def test_export_that_cannot_be_written(session, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("spec_tui.tui.screens.export.save", full)
    async with session() as s:
        await s.ask("one")
        await s.pilot.press("escape", "e", "enter")
        await s.settle()
        assert "could not save it: No space left" in s.status


async def test_without_an_answer_the_screen_is_what_there_is(session, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with session() as s:
        await s.pilot.press("escape", "e")
        assert s.app.screen.query_one("#list").option_count == 1
        await s.pilot.press("escape")
        assert not list(tmp_path.iterdir())


async def test_export_of_the_screen(session, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with session() as s:
        await s.ask("one")
        await s.pilot.press("escape")
        picture = await export(s, "svg")
        svg = picture.read_text()
        assert "enter&#160;saves" not in svg, "the dialog is not in the picture"
        assert "@font-face" not in svg and "cdnjs" not in svg and "http://www.w3.org" in svg
        assert str(picture.name) in s.status


async def test_the_cursor_stays_in_sight_and_in_step_at_another_size(session):
    """Also behind a dialog; the line that stands for the panels tells of the cursor's round."""
    async with session(size=(120, 40), client=FakeClient(ANSWER * 4)) as s:
        for prompt in ("one", "two", "three"):
            await s.ask(prompt)
        await s.pilot.press("escape", *["left"] * 20)
        turn, index = s.chat.transcript.cursor
        for size in ((80, 24), (60, 20), (120, 40)):
            await s.pilot.press("enter")
            await s.pilot.resize_terminal(*size)
            await s.pilot.pause()
            assert "token" in s.chat.query_one("#answer-title").text_rows()[0]
            await s.pilot.press("escape")
            await s.pilot.pause()
            transcript = s.chat.transcript
            top = transcript.scroll_offset.y
            shown = [tok for line in transcript.wrapped.lines[top : top + transcript.size.height] for tok in line.toks]
            assert any((tok.turn, tok.index) == (turn, index) for tok in shown), size
            if size[0] < 100:
                run = s.chat.session.turns[turn].run
                number = run.rounds[run.tokens[index].round].index
                assert f"round {number:>4}" in s.chat.query_one("#telemetry").text_rows()[1]


async def test_the_footer_fits_eighty_columns_in_every_place(session):
    from textual.widgets._footer import FooterKey

    async with session(size=(80, 24)) as s:
        await s.ask("one", feed=20)
        for place in ("prompt", "transcript", "tree", "speed"):
            for busy in (True, False):
                if not busy:
                    s.client.feed()
                    await s.settle()
                s.chat.query_one(f"#{place}").focus()
                await s.pilot.pause(0.1)
                keys = list(s.chat.query(FooterKey))
                for _ in range(40):  # the footer is made anew when the keys change
                    if keys:
                        break
                    await s.pilot.pause(0.05)
                    keys = list(s.chat.query(FooterKey))
                assert 0 < len(keys) <= 8
                *others, palette = sorted(keys, key=lambda key: key.region.x)
                assert max(key.region.right for key in others) <= palette.region.x and palette.region.right <= 80


async def test_typing_goes_on_after_the_window_was_too_small(session):
    async with session() as s:
        await s.pilot.resize_terminal(50, 12)
        await s.pilot.pause()
        await s.pilot.resize_terminal(120, 40)
        await s.pilot.pause(0.2)
        await s.pilot.press("a", "n")
        assert s.chat.prompt.text == "an"


async def test_a_sentence_that_does_not_fit_is_shown_whole_until_esc_or_typing(session):
    async with session(size=(80, 24)) as s:
        for away in ("escape", "x"):
            await s.ask("/law foo")
            assert "foo" in s.notice and "typical" in s.notice and s.chat.query_one("#notice").size.height > 1
            await s.pilot.pause()
            keys = {key.key: key.description for key in s.chat.query("FooterKey")}
            assert keys["escape"] == "Close", "the first esc closes the notice"
            await s.pilot.press(away)
            assert s.notice == "" and s.chat.focused is s.chat.prompt
            s.chat.prompt.put("")
        await s.ask("/engine zz")
        assert "there is no engine 'zz'; engines are: autoregressive" in s.notice
        await s.pilot.press("escape")
        s.chat.prompt.put("")
        await s.ask("/temp 0.5")
        assert s.notice == "" and "0.5" in s.status
        await s.pilot.press("escape", "x")
        await s.pilot.pause(0.3)
        assert "all details; none is shown here" in s.status
        await s.pilot.press("s", "x")
        await s.pilot.pause(0.3)
        assert "the short view" in s.status and "none" not in s.status


async def test_the_id_of_a_model_is_not_capitalised(session):
    refused = Failed("nosuch/model is not on the hub", "look at the id", "model")
    async with session(client=FakeClient(ready=refused)) as s:
        assert "! nosuch/model is not on the hub.\n  Look at the id." in s.notice


async def test_help_is_laid_out_for_the_width_it_has(session):
    async with session(size=(80, 24)) as s:
        await s.pilot.press("f1")
        await s.pilot.pause()
        text = s.app.screen.query_one("#text")
        lines = [line.rstrip() for line in str(text.content).split("\n") if line.startswith(" ")]
        assert max(map(len, lines)) <= text.size.width


async def test_keys_are_looked_up_again_only_when_esc_means_something_else(session, monkeypatch):
    async with session() as s:
        looked_up, really = [], s.chat.refresh_bindings
        monkeypatch.setattr(s.chat, "refresh_bindings", lambda: (looked_up.append(s.chat.session.stoppable), really()))
        await s.ask("Why?", feed=3)
        assert s.chat.session.last.run.prefilled is not None and looked_up == [True], "once, when it was sent"
        s.client.feed(None)
        await s.settle()
        assert s.chat.session.last.run.finished is not None and looked_up == [True, False]
        await s.pilot.press("ctrl+r")
        s.client.feed(3)
        await s.settle()
        assert looked_up == [True, False, True], "asked again, it can be stopped again"


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 40)])
async def test_rejected_drafts_stay_in_the_text_and_move_no_reader(session, size):
    async with session(size=size) as s:
        for prompt in ("one", "two", "three"):
            await s.ask(prompt)
        await s.pilot.press("escape")
        transcript = s.chat.transcript

        def rows():
            """The tokens of each row of the window, those of the answer."""
            top = transcript.scroll_offset.y
            lines = transcript.wrapped.lines[top : top + transcript.size.height]
            return [[(tok.turn, tok.index) for tok in line.toks if tok.style is None] for line in lines]

        def row_of(token):
            return next(row for row, tokens in enumerate(rows()) if token in tokens)

        def own():
            lines = transcript.wrapped.lines
            return "".join(t.text for line in lines for t in line.toks if t.style is None).replace(" ", "")

        before, answer = s.shown, own()
        for y in (3, transcript.max_scroll_y // 2, transcript.max_scroll_y - 1):
            transcript.scroll_to(y=y, animate=False, immediate=True)
            await s.pilot.pause()
            row, seen = next((row, tokens[0]) for row, tokens in enumerate(rows()) if tokens)
            await s.pilot.press("v")
            await s.pilot.pause()
            assert transcript.view == "rejected" and seen in rows()[row], "the reader's place"
            assert own() == answer and "ghost" in transcript.seen, "the legend names them"
            struck = [t for line in transcript.wrapped.lines for t in line.toks if t.style == "ghost"]
            assert struck and all(t.index >= 0 for t in struck)
            await s.pilot.press(*"vvvv")
            await s.pilot.pause()
            assert transcript.view == "outcome" and s.shown == before and seen in rows()[row]
        await s.pilot.press("end", "v")
        assert transcript.following and transcript.scroll_offset.y == transcript.max_scroll_y
        transcript.select((1, 20))
        row = row_of((1, 20))
        await s.pilot.press(*"vvvv")
        assert transcript.cursor == (1, 20) and row_of((1, 20)) == row, "the cursor stays on its line of the screen"


async def test_p_presents_on_every_screen(session):
    async with session() as s:
        await s.ask("one")
        theme = s.app.theme
        await s.pilot.press("escape", "P")
        await s.pilot.pause()
        assert s.app.theme == "spec-light" and not s.chat.query_one("#top").display and "P ends" in s.status
        figures = [digits.value for digits in s.chat.query("#figures Digits")]
        assert figures[0] == f"{s.app.session.last.run.metrics.tokens_per_second:.1f}" and figures[1] == "-"
        await s.pilot.press("t", "m")
        assert "P ends it" in s.status and s.chat.transcript.is_on_screen
        await s.pilot.press("full_stop")
        await s.pilot.pause()
        assert s.app.screen.has_class("presenting") and s.app.screen is not s.chat
        await s.pilot.press("P")
        await s.pilot.pause()
        assert s.app.theme == theme and not s.app.screen.has_class("presenting")
        await s.pilot.press("escape")
        assert s.app.screen is s.chat and s.chat.query_one("#top").display and not s.chat.has_class("presenting")
        assert "P ends" not in s.status
        for opens in ("E", "d"):
            await s.pilot.press(opens, "P")
            assert s.app.theme == "spec-light" and s.app.screen is not s.chat
            await s.pilot.press("P", "escape")
            assert s.app.theme == theme and s.app.screen is s.chat


async def test_a_presenter_sees_rejected_drafts_at_once(session):
    async with session(presenter=True) as s:
        await s.ask("one")
        assert s.chat.transcript.view == "rejected"
        assert any(t.style == "ghost" for line in s.chat.transcript.wrapped.lines for t in line.toks)
        await s.pilot.press("escape", "full_stop", "right")
        await s.pilot.pause()
        await s.pilot.press("end")
        await s.pilot.pause()
        doing = s.app.screen.query_one("#doing")
        rows = doing.rows(*doing.size)
        assert any(style == "ghost" for row in rows for _, style in row)
        await s.pilot.press("v")
        await s.pilot.pause()
        assert doing.rows(*doing.size) != rows


async def test_a_long_stream_keeps_them_as_it_goes_on(session):
    """What is added while it streams is what a later layout of the whole gives."""
    async with session(size=(60, 24), request=Request((), "draft")) as s:
        await s.ask("/view rejected")
        await s.ask("x", feed=1)
        while not s.chat.session.last.run.finished:
            s.client.feed(1)
            await s.settle()
        streamed = [line.toks for line in s.chat.transcript.wrapped.lines]
        assert any(tok.style == "ghost" for toks in streamed for tok in toks)
        s.chat.transcript.rewrap()
        assert [line.toks for line in s.chat.transcript.wrapped.lines] == streamed
