"""Evaluate: the adviser on a screen, over a client that plays one with made-up engines."""

from __future__ import annotations

import pytest
from textual.widgets import Input

from engines.advice.advice_events import AdviceFinished, AdviceStarted, ScreeningFinished
from engines.bench.prompt_files import open_prompts
from engines.race.race_events import LaneFinished
from engines.race.runner import defer_events
from engines.wire import from_json, to_json
from spec_tui.session import kept_settings
from spec_tui.session.engine_commands import LoadRequest, StartAdvice
from spec_tui.tui.screens.evaluate import EvaluateScreen
from tests.advice.made import Costs, PacedRacer, adviser
from tests.tui.fakes import FakeClient


class AdvisedClient(FakeClient):
    """Plays an adviser; its events go through JSON, as from an engine process. ``go_on`` lets them through."""

    def submit(self, command):
        if isinstance(command, StartAdvice):
            self.advise(command.suite, command.request, command.seconds)
        return super().submit(command)

    def advise(self, suite, request, seconds):
        self.asked, self.stop = (suite, request, seconds), False
        found = adviser(PacedRacer(pld=Costs(3, 0.015)), "pld,pld:num_tokens=4,rest,suffix,recycling", seconds=seconds)

        def events():
            yield AdviceStarted(suite=found.suite, rounds=len(found.stages), left_out={"eagle": "no head"})
            yield from defer_events(found.run(lambda: self.stop))
            yield AdviceFinished()

        self.events_left = events()

    def cancel(self, job, at_once=False):
        super().cancel(job, at_once)
        self.stop = True

    def go_on(self, until=None):
        for event in self.events_left:
            self.say(from_json(to_json(event)))
            if until is not None and isinstance(event, until):
                return


def text(screen, name="text"):
    screen.app.screen_stack[0].pump()
    screen.look()
    return str(screen.query_one(f"#evaluate-{name}").content)


def heading(screen):
    (row,) = screen.query_one("#evaluate-top").rows(80, 1)
    return "".join(words for words, _ in row)


async def opened(s) -> EvaluateScreen:
    await s.pilot.press("escape", "E")
    await s.pilot.pause()
    assert isinstance(s.app.screen, EvaluateScreen)
    return s.app.screen


async def test_from_the_start_to_what_is_used_from_now_on(session, tmp_path, monkeypatch):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))
    client = AdvisedClient()
    async with session(client=client) as s:
        screen = await opened(s)
        assert "enter starts, +" in text(screen) and not screen.advised
        assert text(screen).startswith("First autoregressive and the methods that are likeliest to gain answer")
        await s.pilot.press("plus", "enter")
        assert client.asked[2] == 600 and client.asked[1].engine == "" and not client.asked[1].keeps
        client.go_on(LaneFinished)
        assert "stage 1 of 3" in text(screen, "said") and "tokens/s" in text(screen)
        client.go_on()
        said = text(screen)
        assert said.startswith("Use pld: 2.0") and "--speculative-config" in said
        assert "not tried: eagle: no head" in said
        await s.pilot.press("u")
        kept = kept_settings.find(s.chat.session.load_request)
        assert kept.engine == s.chat.session.settings.engine == "pld" and "from now on" in text(screen, "said")
        await s.pilot.press("escape")
        assert s.app.screen is s.chat
        assert text(await opened(s)) == said, "it is still there"


async def test_a_lossy_law_is_marked_before_it_starts(session):
    async with session(client=AdvisedClient()) as s:
        await s.ask("/temp 0.8", feed=0)
        await s.ask("/law redraw", feed=0)
        screen = await opened(s)
        assert "temperature 0.8, law redraw LOSSY" in heading(screen)


async def test_a_report_is_headed_by_the_settings_that_it_was_measured_with(session):
    client = AdvisedClient()
    async with session(client=client) as s:
        await opened(s)
        await s.pilot.press("enter")
        client.go_on()
        await s.pilot.press("escape")
        await s.ask("/temp 0.8", feed=0)
        assert "temperature" not in heading(await opened(s))


async def test_advice_for_a_model_does_not_outlive_it(session):
    client = AdvisedClient()
    async with session(client=client) as s:
        screen = await opened(s)
        await s.pilot.press("enter")
        client.go_on()
        assert text(screen).startswith("Use pld")
        await s.pilot.press("escape")
        s.chat._models_chosen(LoadRequest(model="another"))
        await s.settle()
        screen = await opened(s)
        assert "enter starts, +" in text(screen) and not screen.advised


async def test_before_the_model_is_there_it_says_so(session):
    async with session(client=AdvisedClient(auto=False)) as s:
        s.chat.transcript.focus()  # esc would stop the loading
        await s.pilot.press("E")
        await s.pilot.pause()
        screen = s.app.screen
        await s.pilot.press("enter")
        assert "still loading" in text(screen, "said") and not screen.running


async def test_it_can_be_stopped_and_says_what_is_known(session):
    client = AdvisedClient()
    async with session(client=client) as s:
        screen = await opened(s)
        await s.pilot.press("enter")
        client.go_on(ScreeningFinished)
        await s.pilot.press("escape")
        assert client.stop and screen.running and "stopping" in text(screen, "said")
        client.go_on()
        assert text(screen).startswith("Unfinished: this is what stage 1") and s.app.screen is screen


async def test_the_file_of_prompts_is_remembered(session, tmp_path, monkeypatch):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "mine.jsonl").write_text('{"prompt": "my own question"}\n')
    monkeypatch.chdir(tmp_path)
    for keys in (["i", *"mi", "tab", "enter", "enter"], ["enter"]):  # named once
        client = AdvisedClient()
        async with session(client=client) as s:
            screen = await opened(s)
            await s.pilot.press(*keys)
            assert [case.turns for case in client.asked[0].cases] == [("my own question",)]
            assert "mine.jsonl" in screen.query_one(Input).value
    (tmp_path / "mine.jsonl").unlink()
    assert kept_settings.kept_prompts() == "", "a file that is gone is not asked with"


@pytest.mark.parametrize(("typed", "why"), [("gone", "there is no file"), (".", "is a folder")])
async def test_enter_refuses_what_is_no_file_of_prompts_and_esc_leaves_the_choice_as_it_was(session, typed, why):
    client = AdvisedClient()
    async with session(client=client) as s:
        screen = await opened(s)
        before = text(screen, "said")
        await s.pilot.press("i", *typed, "enter", "enter")
        assert why in text(screen, "said") and screen.query_one(Input).has_focus and not screen.running
        await s.pilot.press("escape")
        assert text(screen, "said") == before and screen.query_one(Input).value == ""
        await s.pilot.press("enter")
        assert screen.running and client.asked[0] == open_prompts(None).suite


@pytest.mark.parametrize("over", [[], ["f1"]])
async def test_the_palette_does_not_end_one_that_runs(session, over):
    """Nor where the help is open over it."""
    client = AdvisedClient()
    async with session(client=client) as s:
        screen = await opened(s)
        names = [command.title for command in s.app.get_system_commands(screen)]
        assert "Race" in names and "Evaluate: stop" not in names
        await s.pilot.press("enter")
        client.go_on(LaneFinished)
        await s.pilot.press(*over)
        names = [command.title for command in s.app.get_system_commands(s.app.screen)]
        assert "Race" not in names and "Quit" in names
        await s.pilot.press(*["escape"] * len(over))
        client.go_on()
        text(screen)
        assert screen.advised


async def test_an_engine_that_does_not_stop_is_restarted_here(session):
    client = AdvisedClient()
    async with session(client=client) as s:
        screen = await opened(s)
        await s.pilot.press("enter")
        client.go_on(LaneFinished)
        text(screen)
        await s.pilot.press("escape")
        screen.job.heard -= 6
        assert "the engine does not answer  ctrl+r restarts it" in text(screen, "said")
        await s.pilot.press("ctrl+r")
        assert client.restarts == 1 and not screen.running and "restarts it" not in text(screen) + text(screen, "said")
        await s.pilot.press("escape")
        assert s.app.screen is s.chat and s.chat.session.phase == "ready"
