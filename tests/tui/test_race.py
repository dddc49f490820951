"""A race on the screen: nothing is drawn while lanes are timed, then all are on one clock; what is complete is kept."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import pytest
from textual.events import MouseScrollDown, MouseScrollUp
from textual.widget import Widget

from engines.race.lanes import Lane
from engines.race.race_events import LaneFinished, LaneStarted, RaceFinished
from engines.report.events import Failed, Prefilling
from engines.report.run_state import fold_all
from engines.reproduce.entry import shipped
from engines.request import Request
from engines.wire import read_trace
from spec_tui.present.race_text import NOT_COMPARABLE
from spec_tui.session import shell_lines as command
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.session.recorded_race import kept_race
from spec_tui.session.settings import ChatSettings
from spec_tui.tui import race_controller
from spec_tui.tui.app import SpecTui
from spec_tui.tui.screens import lane as lane_screen
from spec_tui.tui.screens.chat import PACE, TIMED, ChatScreen
from spec_tui.tui.screens.papers import PapersScreen
from spec_tui.tui.screens.race import RaceScreen
from spec_tui.tui.widgets.prompt_box import PromptBox
from spec_tui.tui.widgets.race_lanes import RaceLanes
from tests.session.inprocess import InProcessClient
from tests.tiers import SIZES
from tests.tui.conftest import drawn
from tests.tui.fakes import ANSWER, script
from tests.tui.racing import LANES, RacingClient, racing
from tests.tui.test_hostile import BAD, HOSTILE, screen_text

OTHER = ANSWER.replace("out = []", "out = list()")


async def test_before_a_race_it_is_said_how_long_it_takes_and_max_makes_it_shorter(monkeypatch):
    monkeypatch.setattr(lane_screen, "has_llama_cpp", lambda ready: True)
    async with racing(repeats=3) as r:
        r.controller.session.ready = replace(r.controller.session.ready, price=((1, 0.1), (64, 0.8)))
        await r.settle()
        r.screen.changed()
        assert "enter starts, about 5 min" in r.said, r.said
        await r.press("i")
        r.screen.query_one("#race-prompt").put("/max 32")
        await r.press("enter")
        assert "max 32" in r.rows("#race-top")[0] and "enter starts" in r.said
        await r.press("plus")  # llama.cpp, where it is installed and can read the model's file
        r.app.screen.query_one("#engines").focus()
        await r.pilot.press("end", "ctrl+s")
        await r.settle()
        assert r.controller.setup.lanes[-1] == Lane("llama.cpp") and "lane 5: llama.cpp" in r.said
        assert r.controller.setup.race(r.controller.session.settings, r.controller.session.ready)


async def test_a_race_from_the_chat_ends_at_the_fold_of_every_lane():
    async with racing(repeats=3) as r:
        assert [view.label for view in r.screen.query_one(RaceLanes).lanes] == list(LANES)
        await r.whole(skip=False)
        assert r.controller.finished and r.controller.replay.clock.playing and "photo finish" in r.said
        await r.press("end")
        race = r.controller.race
        for lane, view in enumerate(r.screen.query_one(RaceLanes).lanes):
            assert view.run == fold_all(race.shown(lane).state.events) and view.run.finished is not None
            rates = sorted(run.state.metrics.tokens_per_second for run in race.result.of(lane))
            assert race.shown(lane).state.metrics.tokens_per_second == rates[1]  # the middle one
        table = "\n".join(r.rows("#race-table"))
        for figures in race.figures():
            assert f"{figures.rate.median:.1f}" in table
        assert "all lanes write the same text" in table and "at least ±3% (3 repeats" in table
        assert sum(row.count("✓") for row in r.rows("#race-table")) == 6  # every pair of four
        lanes = "\n".join(r.rows("#race-lanes"))
        assert lanes.count("✓ same text") == 3 and "baseline" in lanes and "1st" in lanes


async def test_a_prompt_that_a_running_race_cannot_take_is_answered():
    async with racing() as r:
        raced = r.controller.setup.prompt
        await r.press("enter", "i", "ctrl+u", *"other", "enter")
        box = r.screen.query_one(PromptBox)
        assert "still running" in r.said and box.text == raced
        await r.press("i", "ctrl+u", *"/lanes pld,draft", "enter")
        assert "still running" in r.said and box.text == raced
        assert r.controller.setup.lanes == r.controller.race.asked.lanes
        await r.press("up")
        assert box.text == "/lanes pld,draft"


async def test_a_command_that_was_typed_is_done_and_not_raced():
    async with racing() as r:
        await r.press("i", "ctrl+u", *"/lanes pld,draft")
        r.screen.set_focus(None)
        await r.press("enter")
        assert not r.controller.running and r.controller.setup.labels == ("pld", "draft") and "enter starts" in r.said
        await r.whole()
        await r.press("i", "ctrl+u", *"/max 16", "enter")
        assert r.controller.finished and "R races again" in r.said and "enter" not in r.said


async def test_the_last_lane_is_removed_after_a_model_took_others_away():
    async with racing() as r:
        session = r.controller.session
        await r.press("left")
        session.ready = replace(session.ready, draft_model=None, no_draft_model="none is loaded")
        await r.settle()
        await r.press("minus")
        assert "rest is removed" in r.said and r.controller.setup.labels == ("autoregressive", "pld")


async def test_an_example_says_that_it_is_raced():
    async with racing() as r:
        await r.press("ctrl+o")
        assert "enter starts the race" in screen_text(r.app)


async def test_nothing_is_drawn_while_a_lane_is_timed(monkeypatch):
    drawn: list[str] = []
    async with racing(repeats=2) as r:
        await r.press("enter")
        refresh = Widget.refresh

        def noted(self, *args, **kwargs):
            drawn.append(self.id)
            return refresh(self, *args, **kwargs)

        monkeypatch.setattr(Widget, "refresh", noted)
        for _ in range(len(LANES) * 2):
            r.client.race_to(LaneStarted)
            await r.settle()
            assert "nothing is drawn" in r.said
            drawn.clear()
            for _ in range(3):  # as long as it runs
                await r.settle()
            assert drawn == []
            r.client.race_to(LaneFinished)
        r.client.race_on()
        await r.settle()
        assert "race-lanes" in drawn and r.controller.finished


async def test_a_race_is_not_part_of_the_chat_below_which_goes_on_after_it():
    async with racing() as r:
        chat = next(s for s in r.app.screen_stack if isinstance(s, ChatScreen))
        await r.press("enter")
        assert chat.pace is TIMED and "still running" in r.controller.start()
        r.client.race_on()
        await r.settle()
        assert not chat.session.turns and not chat.session.busy
        await r.press("escape")
        assert r.app.screen is chat and chat.pace is PACE
        chat.ask("Go on.")
        r.client.feed()
        chat.pump()
        assert chat.session.last.run.finished is not None


async def test_cancel_keeps_what_is_complete():
    async with racing(repeats=3) as r:
        await r.press("enter")
        r.client.race_to(LaneFinished, 6)
        await r.settle()
        await r.press("escape")
        assert r.client.cancels == 1 and "stopping" in r.said
        events = r.client.race_on()
        assert isinstance(events[-1], RaceFinished) and events[-1].reason == "cancelled"
        await r.settle()
        assert isinstance(r.app.screen, RaceScreen) and not r.controller.running
        complete = r.controller.race.result.complete
        assert len(complete) == 6 and all(run.state.finished.reason != "cancelled" for run in complete)
        assert "6 of 12 runs are complete" in " ".join(r.rows("#race-table")).replace("\n", " ")
        await r.press("end")
        for lane in r.controller.replay.runs:
            assert r.controller.replay.at(lane) == fold_all(r.controller.race.shown(lane).state.events)
        await r.press("R")
        assert len(r.client.races) == 2 and r.controller.running


async def test_a_result_survives_leaving_the_screen():
    async with racing(repeats=2) as r:
        await r.whole()
        rows, race = r.rows("#race-table"), r.controller.race
        await r.press("escape")
        assert not isinstance(r.app.screen, RaceScreen)
        r.app.screen.transcript.focus()
        await r.pilot.press("r")
        await r.pilot.pause()
        again = r.app.screen
        assert again is not r.screen and again.controller.race is race
        r.app.screen_stack[0].pump()
        again.look()
        await r.pilot.pause()
        assert again.query_one("#race-table").text_rows() == rows
        await r.pilot.press("R")
        assert len(r.client.races) == 2
        r.client.cancel(0)
        r.client.race_on()
        r.app.screen_stack[0].pump()
        again.look()
        await r.pilot.press("escape")
        r.app.session.ready = replace(r.app.session.ready, model="another")
        await r.pilot.press("r")
        await r.pilot.pause()
        assert r.app.screen.controller.race is None


async def test_a_race_stopped_before_any_lane_ran_has_nothing_to_show():
    async with racing() as r:
        await r.press("enter", "escape")
        r.client.race_on()
        await r.settle()
        assert not r.controller.running and not r.controller.finished and r.controller.replay is None
        assert "stopped before any run was complete" in r.said and r.screen.has_class("before")
        assert "earlier in the prompt" in " ".join(r.rows("#race-lanes"))  # what the lanes are, as before
        await r.press("enter")
        assert r.controller.running


async def test_live_streams_and_says_that_it_cannot_be_compared():
    async with racing() as r:
        await r.press("f")
        assert "LIVE, not comparable" in r.rows("#race-top")[0]
        await r.press("enter")
        r.client.race_to(LaneStarted)
        r.client.race_on(9)
        await r.settle()
        running = r.controller.race.at.lane
        view = r.screen.query_one(RaceLanes).lanes[running]
        assert 0 < len(view.run.tokens) < 100 and view.run.running and "not comparable" in r.said
        words = view.run.text.split()
        assert words[0] in " ".join(r.rows("#race-lanes"))
        await r.pilot.resize_terminal(80, 24)
        await r.settle()
        bar = next(row for row in r.rows("#race-lanes") if row.startswith(f" {running + 1} "))
        assert f"{len(view.run.tokens)} tokens " in bar and "···" not in bar
        await r.pilot.resize_terminal(120, 40)
        r.client.race_on()
        await r.settle()
        assert r.controller.replay.clock.over and NOT_COMPARABLE[:40] in " ".join(r.rows("#race-table"))


async def test_the_first_line_says_how_the_race_that_is_shown_was_asked():
    async with racing() as r:
        await r.press("f", "asterisk", "enter")
        r.client.race_on()
        await r.settle()
        before = r.rows("#race-top")[0]
        assert "LIVE, not comparable" in before and "3 repeats" in before
        r.app.session.settings = replace(r.app.session.settings, temperature=0.7)
        await r.press("f", "asterisk")
        assert r.rows("#race-top")[0] == before
        await r.press("R")
        assert "fair · 6 repeats" in r.rows("#race-top")[0] and "0.7" in r.rows("#race-top")[0]


async def test_live_shows_the_run_under_way_in_every_repeat():
    async with racing(repeats=3) as r:
        await r.press("f", "enter")
        r.client.race_to(LaneStarted, 6)
        r.client.race_on(9)
        await r.settle()
        at = r.controller.race.at
        view = r.screen.query_one(RaceLanes).lanes[at.lane]
        assert at.repeat == 1 and r.controller.race.result.of(at.lane) and view.run.running


async def test_diff_goes_to_the_first_token_that_differs():
    client = RacingClient()
    client.racer.texts["pld"] = OTHER
    client.racer.finds = ("BUG", 12, 2.0)
    async with racing(client=client, repeats=2) as r:
        await r.whole(skip=False)
        found = [p for p in r.controller.race.result.pairs if p.at is not None]
        assert {(p.first, p.second) for p in found} == {(0, 1), (1, 2), (1, 3)}
        assert {p.verdict for p in found} == {"BUG"}
        await r.press("D")
        pair = r.controller.differing
        assert pair == found[0] and r.controller.replay.clock.over and r.screen.lane == pair.second
        runs = [view.run for view in r.screen.query_one(RaceLanes).lanes]
        a, b = runs[pair.first].tokens[pair.at], runs[pair.second].tokens[pair.at]
        assert a.emitted.token != b.emitted.token
        assert [t.text for t in runs[0].tokens[: pair.at]] == [t.text for t in runs[1].tokens[: pair.at]]
        assert "[" in r.said and "list" in r.said and "rounding does not explain it" in r.said
        lanes = r.screen.query_one(RaceLanes)
        assert [style for _, style in drawn(lanes)].count(lanes.style_of("changed")) == 2
        assert "✗ BUG" in " ".join(r.rows("#race-lanes")) and "✗" in " ".join(r.rows("#race-table"))
        await r.press("D", "D", "D")
        assert r.controller.differing is None and "No more pairs differ" in r.said
        await r.press("D", "escape")
        assert r.controller.differing is None and isinstance(r.app.screen, RaceScreen)


async def test_a_lane_that_breaks_is_told_and_the_others_race_on():
    client = RacingClient()
    client.racer.breaks = {"pld"}
    async with racing(client=client) as r:
        await r.whole()
        lanes = " ".join(r.rows("#race-lanes"))
        assert r.controller.finished and "broke" in lanes and "Mend it" in lanes
        assert len(r.controller.race.result.complete) == 3 and "! " in lanes


async def test_an_engine_that_dies_or_fails_ends_the_race_with_a_way_out():
    async with racing() as r:
        await r.press("enter")
        r.client.race_to(LaneStarted)
        r.client.die()
        await r.settle()
        assert not r.controller.running and "ended" in r.said and "Ctrl+r in the chat restarts it" in r.said
        await r.press("escape")
        assert isinstance(r.app.screen, ChatScreen) and r.app.screen.session.phase == "dead"
    async with racing() as r:
        await r.press("enter")
        r.client.race_to(LaneStarted)
        r.client.say(Failed("out of memory", "try a smaller model", "failed"))
        await r.settle()
        assert not r.controller.running and "Out of memory. Try a smaller model." in r.said
        await r.press("enter")
        assert r.controller.running


async def test_an_engine_that_does_not_stop_is_restarted_here_as_in_the_chat():
    async with racing(repeats=3) as r:
        await r.press("enter")
        r.client.race_to(LaneStarted, 2)
        await r.press("escape", "ctrl+r")
        assert "stopping after this round" in r.said and r.controller.running, "it has a few seconds"
        r.controller.job.heard -= 6
        await r.settle()
        assert "the engine does not answer  ctrl+r restarts it" in r.said
        assert any("Restart" in str(key.description) for key in r.screen.query("FooterKey"))
        await r.press("ctrl+r")
        assert not r.controller.running and r.app.session.phase == "ready"
        assert "The engine does not answer." in r.said and "restarts it" not in r.said
        await r.press("enter")
        assert len(r.client.races) == 2 and r.controller.running


async def test_a_killed_engine_leaves_what_is_complete_and_says_the_way_out_in_any_window():
    async with racing(size=(80, 24), repeats=3) as r:
        await r.press("f", "enter")  # a fair one hands over its runs after the last
        r.client.race_to(LaneFinished, 8)
        r.client.die()
        await r.settle()
        assert "unexpectedly. Ctrl+r in the chat restarts it" in r.said
        assert r.controller.finished and len(r.controller.race.result.complete) == 8
        await r.press("D")
        assert "not compared" in r.said


async def test_a_killed_engine_takes_the_runs_of_a_fair_race_with_it_and_that_is_said():
    async with racing(size=(80, 24), repeats=3) as r:
        await r.press("enter")
        r.client.race_to(LaneStarted)
        r.client.die()
        await r.settle()
        assert "restarts it." in r.said and "No run is kept" not in r.said, "none had come to its end"
    async with racing(size=(80, 24), repeats=3) as r:
        await r.press("enter")
        r.client.race_to(LaneFinished, 8)
        r.client.die()
        await r.settle()
        assert "No run is kept: a fair race saves its runs only at its end." in r.said and not r.controller.finished


async def test_a_warm_up_tells_how_much_of_a_long_prompt_is_read(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(race_controller, "perf_counter", lambda: now[0])
    async with racing(size=(80, 24)) as r:
        await r.press("enter")
        r.client.race_on(2)
        r.client.say(Prefilling(256, 1500, 9.0))
        await r.settle()
        assert "reading the prompt: 256 of 1,500 tokens, 9 s left · esc stops" in r.said and "…" not in r.said
        r.client.say(Prefilling(1500, 1500))
        await r.settle()
        assert "reading the prompt" not in r.said, "it was read, and the warm-up writes its tokens"
        now[0] += 30
        r.client.race_to(LaneStarted)
        await r.settle()
        assert "reading the prompt" not in r.said and "nothing is drawn while it runs, about" in r.said
        r.client.race_on()
        await r.settle()
        await r.press("end")
        assert any("1st" in row for row in r.rows("#race-lanes")[1:5]), "which lane is the fastest is seen at once"
        assert sum("✓ same text" in row for row in r.rows("#race-lanes")[1:5]) == 3


async def test_what_is_said_of_a_race_is_whole_in_a_narrow_window():
    async with racing(size=(80, 24), lanes=(Lane("autoregressive"), Lane("rasd", {"retrieval": "pld"}))) as r:
        await r.press("enter")
        r.client.race_to(LaneStarted, 2)
        await r.settle()
        assert "nothing is drawn while it runs · esc stops" in r.said and "…" not in r.said
        r.client.race_on()
        await r.settle()
        await r.press("end")
        assert "R new race" in r.said and "…" not in r.said


async def test_typing_over_the_prompt_replaces_it():
    async with racing() as r:
        await r.press("i", *"/lanes", "space", *"pld,draft", "enter")
        assert r.controller.setup.labels == ("pld", "draft") and r.controller.setup.prompt
        await r.press("i", "end", "!")
        assert r.screen.query_one("#race-prompt").text == f"{r.controller.setup.prompt}!"


async def test_lanes_are_added_taken_away_and_typed():
    async with racing() as r:
        await r.press("2", "minus")
        assert [lane.engine for lane in r.controller.setup.lanes] == ["autoregressive", "draft", "rest"]
        await r.press("plus")
        screen = r.app.screen
        assert not screen.query(".sampling") and "add a lane" in str(screen.query_one(".box").border_title)
        screen.query_one("#engines").highlighted = [o.id for o in screen.query_one("#engines").options].index("pld")
        await r.pilot.pause()
        next(f for f in screen.query("#options Field") if f.option.name == "num_tokens").put(7)
        await r.pilot.press("ctrl+s")
        await r.settle()
        assert r.controller.setup.lanes[-1] == Lane("pld", {"num_tokens": 7}) and "pld:num_tokens=7" in r.said
        await r.press("i")
        box = r.screen.query_one("#race-prompt")
        before = box.text
        box.put("/lanes pld,pld:num_tokens=4")
        await r.press("enter")
        assert r.controller.setup.labels == ("pld", "pld:num_tokens=4") and box.text == before
        await r.press("minus")
        assert "2 to 6 lanes, not 1" in r.said
        await r.press("i")
        box.put("/lanes pld,nonsense")
        await r.press("enter")
        assert "nonsense" in r.said and len(r.controller.setup.lanes) == 2
        await r.press("escape", "asterisk")
        assert r.controller.setup.repeats == 3


async def test_typed_prompt_and_chat_sampling_are_what_is_raced():
    async with racing(request=Request((("system", "Be brief."),), engine="pld", temperature=0.7, seed=5)) as r:
        await r.press("i")
        r.screen.query_one("#race-prompt").put("Count.\nTo ten.")
        await r.press("enter")
        asked = r.client.races[0]
        assert asked.request.conversation == (("system", "Be brief."), ("user", "Count.\nTo ten."))
        assert (asked.request.temperature, asked.request.seed) == (0.7, 5) and not asked.live
        assert not isinstance(r.app.focused, type(r.screen.query_one("#race-prompt")))  # nothing blinks


async def test_step_opens_the_run_of_a_lane(tmp_path):
    from spec_tui.tui.screens.step import StepScreen

    async with racing() as r:
        await r.whole()
        await r.pilot.press("3", "enter")
        await r.pilot.pause()
        assert isinstance(r.app.screen, StepScreen)
        assert r.app.screen.player.run == fold_all(r.controller.race.shown(2).state.events)
        await r.pilot.press("escape")
        await r.pilot.pause()
        assert r.app.screen is r.screen


async def test_export_is_what_compare_writes_with_a_trace_of_every_run(tmp_path, monkeypatch):
    from spec_tui.export.race_report import report
    from spec_tui.export.report import WRITERS

    monkeypatch.chdir(tmp_path)
    async with racing(repeats=2) as r:
        await r.whole()
        await r.press("e")
        (folder,) = tmp_path.iterdir()
        assert folder.name in r.said
        asked = r.client.races[0]
        written = report(r.controller.race.result, asked)
        for name in ("json", "md", "csv"):
            assert (folder / f"race.{name}").read_text("utf-8") == WRITERS[name](written) + "\n"
        assert len(json.loads((folder / "race.json").read_text("utf-8"))["runs"]) == 8
        traces = sorted((folder / "traces").iterdir())
        assert len(traces) == 8
        run = r.controller.race.run(0, 1)
        read = read_trace(traces[1])
        assert list(read.runs[0]) == run.state.events and not read.problems


async def test_the_command_line_that_is_copied_holds_the_same_race(monkeypatch):
    from spec_tui.cli import call, compare

    asked = []
    monkeypatch.setattr(compare, "run_race", lambda load, race, *rest: asked.append((load, race)) or 0)
    lanes = (Lane("autoregressive"), Lane("pld", {"num_tokens": 4}), Lane("rest", {}, ("a b", "c")))
    request = Request((("system", "Be brief."),), temperature=0.5, top_k=4, seed=9, max_new_tokens=33, law="rejection")
    async with racing(lanes=lanes, repeats=6, request=request) as r:
        await r.press("i")
        r.screen.query_one("#race-prompt").put("-x 'y' \"z\"\n$(no)")
        await r.press("enter")
        race = r.client.races[0]
        await r.press("c")
        line = r.app.clipboard
        assert line == command.compare_line(race, LoadRequest())
        assert call(shlex.split(line)[1:]) == 0
        assert asked == [(LoadRequest(), race)]


async def test_lossy_laws_are_marked_everywhere():
    async with racing(request=Request((), engine="draft", law="redraw", temperature=0.8)) as r:
        assert "LOSSY" in r.rows("#race-top")[0]
        assert " ".join(r.rows("#race-lanes")).count("LOSSY") == 3, "without drafts no law is"
        await r.whole()
        assert " ".join(r.rows("#race-lanes")).count("LOSSY") == 3
        assert "LOSSY: bias" in " ".join(r.rows("#race-table"))


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_hostile_text_and_small_windows(size):
    client = RacingClient()
    client.racer.texts = dict.fromkeys(LANES, HOSTILE * 3)
    async with racing(size=size, client=client) as r:
        r.screen.query_one("#race-prompt").put(HOSTILE)
        await r.whole()
        assert not BAD & set(screen_text(r.app))
        await r.press("m")
        assert not BAD & set(screen_text(r.app)) and any("tokens/s" in row for row in r.rows("#race-table"))
        await r.pilot.resize_terminal(50, 10)
        await r.pilot.pause()
        assert "enlarge" in screen_text(r.app)


async def test_clicks_and_digits_choose_lanes():
    async with racing(size=(120, 40)) as r:
        await r.pilot.click("#race-lanes", offset=(100, 4))
        await r.settle()
        assert r.screen.lane == 3
        await r.press("left")
        assert r.screen.lane == 2
        await r.press("9")
        assert r.screen.lane == 2
        await r.whole()
        end = r.rows("#race-lanes")
        assert "merge stable." in " ".join(end) and "def merge" not in " ".join(end)
        await r.press("pageup", "pageup", "pageup", "pageup")
        assert "def merge(a, b):" in " ".join(r.rows("#race-lanes"))
        await r.press(*["pagedown"] * 4)
        assert r.rows("#race-lanes") == end


async def test_every_key_is_in_the_palette_and_in_the_help():
    from spec_tui.tui.screens.help import help_text

    async with racing() as r:
        await r.whole()
        names = [entry.title for entry in r.app.get_system_commands(r.screen)]
        assert {"Race: export", "Race: diff", "Race: again", "Race: step"} <= set(names)
        entry = next(e for e in r.app.get_system_commands(r.screen) if e.title == "Race: sort")
        await entry.callback()
        assert r.screen.sort == 1
    assert "photo finish" in help_text(90).plain.lower() and "/race" in help_text(90).plain


async def test_two_slashes_race_a_prompt_that_starts_with_one():
    async with racing() as r:
        await r.press("i")
        box = r.screen.query_one("PromptBox")
        box.put("//etc is what?")
        await r.press("enter")
        assert r.client.races[-1].request.conversation[-1] == ("user", "/etc is what?")
        assert box.text == "//etc is what?"
        r.client.race_on()
        await r.settle()
        await r.press("enter")
        assert r.client.races[-1].request.conversation[-1] == ("user", "/etc is what?"), "raced again"


async def test_the_palette_does_not_end_a_race_over_which_the_help_is_open():
    async with racing() as r:
        await r.press("enter")
        r.client.race_to(LaneStarted)
        await r.press("f1")
        assert r.app.screen is not r.screen
        assert "Race" not in [entry.title for entry in r.app.get_system_commands(r.app.screen)]
        r.client.race_on()
        await r.settle()
        assert "Race" in [entry.title for entry in r.app.get_system_commands(r.app.screen)]


async def test_a_real_race_in_the_engine(tiny):
    """The tiny models in a thread of this process, through the same commands as an engine process."""
    client = InProcessClient(lambda *_: tiny)
    app = SpecTui(client, LoadRequest(), initial_request_options=Request((), engine="pld", max_new_tokens=24))
    async with app.run_test(size=(120, 40)) as pilot:
        for _ in range(200):
            await pilot.pause(0.02)
            if app.session.phase == "ready":
                break
        app.screen.transcript.focus()
        await pilot.press("r")
        await pilot.pause()
        screen = app.screen
        screen.query_one("#race-prompt").put("one two three one two three one two")
        await pilot.press("asterisk", "asterisk", "asterisk", "enter")
        for _ in range(500):
            await pilot.pause(0.02)
            if screen.controller.race is not None and not screen.controller.running:
                break
        assert screen.controller.finished, screen.query_one("#race-said").text_rows()
        race = screen.controller.race
        assert len(race.result.complete) == len(race.labels) >= 3
        assert {pair.verdict for pair in race.result.pairs} <= {"same", "tie"}
        await pilot.press("end")
        for lane in range(len(race.labels)):
            assert screen.controller.replay.at(lane) == fold_all(race.shown(lane).state.events)


async def test_three_keys_from_the_first_screen_begin_a_race_with_a_draft_model():
    """``racing`` presses the first two."""
    async with racing() as r:
        await r.press("enter")
        race = r.client.races[-1]
        assert [lane.engine for lane in race.lanes][:3] == ["autoregressive", "pld", "draft"]
        assert race.request.conversation[-1][1].startswith("Write a Python function")


@pytest.mark.thorough
@pytest.mark.timeout(900)
async def test_the_same_keys_show_a_gain_on_the_pair(qwen_coder):
    client = InProcessClient(lambda *_: qwen_coder)
    app = SpecTui(client, LoadRequest(), initial_request_options=Request((), max_new_tokens=64))
    async with app.run_test(size=(120, 40)) as pilot:
        while app.session.phase != "ready":
            await pilot.pause(0.02)
        await pilot.press("escape", "r", "enter")
        race = app.screen.controller
        while not race.finished:
            await pilot.pause(0.2)
        assert race.race.result.complete, app.screen.query_one("#race-said").text_rows()
        await pilot.press("end")
        await pilot.pause()
        best = max(figures.speed_up.median for figures in race.race.figures() if figures.speed_up)
        rows = " ".join(app.screen.query_one("#race-table").text_rows())
        assert best > 1.05 and f"{best:.2f}" in rows, rows
    client.close()


# -- how it looks ---------------------------------------------------------------------------------


def picture(snap_compare, size, keys=(), until=None, live=False, other=False) -> bool:
    client = RacingClient()
    if other:
        client.racer.texts["rest"] = OTHER
    app = SpecTui(client, LoadRequest(), initial_request_options=Request((), engine="draft"))

    async def steps(pilot) -> None:
        await pilot.pause()
        app.screen.prompt.cursor_blink = False
        app.screen.pump()
        app.screen.transcript.focus()
        await pilot.press("r")
        await pilot.pause()
        screen = app.screen
        if live:
            await pilot.press("f")
        if until is not None:
            await pilot.press("enter")
            until(client)
            app.screen_stack[0].pump()
            screen.look()
            if screen.controller.replay is not None:
                screen.controller.replay.clock.playing = False
                screen.controller.replay.clock.position = 0.25
                screen.draw()
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        screen.draw()
        await pilot.pause()

    return snap_compare(app, terminal_size=size, run_before=steps)


def run_live(client: RacingClient) -> None:
    client.race_to(LaneStarted, 2)
    client.race_on(12)


@pytest.mark.parametrize("size", SIZES[:2])
def test_before_a_race(snap_compare, size):
    assert picture(snap_compare, size)


@pytest.mark.parametrize("size", SIZES[:2])
def test_photo_finish_under_way(snap_compare, size):
    assert picture(snap_compare, size, until=RacingClient.race_on)


@pytest.mark.parametrize("size", SIZES)
def test_result_sorted_with_a_difference(snap_compare, size):
    assert picture(snap_compare, size, ["end", "S", "D"], RacingClient.race_on, other=True)


@pytest.mark.parametrize("size", SIZES[1:])
def test_result_without_colour(snap_compare, size, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert picture(snap_compare, size, ["end"], RacingClient.race_on)


def test_the_table_alone_in_one_column(snap_compare):
    assert picture(snap_compare, (80, 24), ["end", "m"], RacingClient.race_on)


async def test_the_numbers_alone_can_be_scrolled_to_their_end():
    async with racing(size=(80, 17), repeats=3) as r:
        await r.whole()
        await r.press("m")
        table = r.app.screen.query_one("#race-table")
        last = r.controller.race.notes()[-1]
        assert "page up and page down scroll" in table.text_rows()[-1] and last not in "\n".join(table.text_rows())
        await r.press("pagedown", "pagedown", "pagedown")
        assert last in "\n".join(table.text_rows()) and "numbers" not in table.text_rows()[0]
        await r.press("m", "m")
        assert "numbers" in table.text_rows()[0]


async def test_the_mouse_wheel_scrolls_texts_and_numbers_line_by_line():
    async with racing(size=(80, 24), repeats=3) as r:
        async def turn(wheel: type, widget: str) -> list[str]:
            await r.pilot._post_mouse_events([wheel], widget, (5, 5))
            await r.settle()
            return r.rows(widget)

        await r.whole()
        end = r.rows("#race-lanes")
        assert (await turn(MouseScrollUp, "#race-lanes"))[-1] == end[-2] and r.screen.back == 1
        assert await turn(MouseScrollDown, "#race-lanes") == end
        await r.pilot.resize_terminal(80, 17)
        await r.press("m")
        top = r.rows("#race-table")
        assert (await turn(MouseScrollDown, "#race-table"))[0] == top[1]
        assert await turn(MouseScrollUp, "#race-table") == top


def test_a_live_race(snap_compare):
    assert picture(snap_compare, (120, 40), until=run_live, live=True)


async def test_a_race_is_kept_and_can_be_shown_and_run_again(tmp_path):
    from spec_tui.session.history import History
    from spec_tui.tui.screens.history_list import HistoryScreen
    from spec_tui.tui.screens.modal import Description

    async with racing(repeats=3) as r:
        r.app.session.store = store = History(tmp_path)
        r.client.racer.texts["rest"] = OTHER
        await r.whole()
        (entry,) = store.entries("races")
        assert entry.count == 12 and "autoregressive, pld, draft, rest on" in entry.about
        before, pairs = r.controller.race.figures(), r.controller.race.result.pairs
        r.controller.change(lanes=r.controller.setup.lanes[:2])
        assert r.controller.race is None
        await r.press("h")
        assert isinstance(r.app.screen, HistoryScreen)
        told = str(r.app.screen.query_one(Description).text.content)
        assert told.count("› ") == 1 and entry.about in told, "each prompt once, and the whole line"
        await r.pilot.press("enter")
        await r.pilot.pause()
        await r.settle()
        race = r.controller.race
        assert "HISTORY, kept from" in r.rows("#race-top")[0] and len(race.labels) == 4
        assert [f.rate for f in race.figures()] == [f.rate for f in before]
        assert [f.speed_up for f in race.figures()] == [f.speed_up for f in before]
        assert {(p.first, p.second, p.at) for p in race.result.pairs} == {(p.first, p.second, p.at) for p in pairs}
        await r.press("R")
        assert r.client.races[-1].lanes == race.asked.lanes and r.client.races[-1].repeats == 3
        r.client.race_on()
        await r.settle()
        assert len(store.entries("races")) == 2 and not r.controller.race.origin


def test_a_race_that_was_kept_is_asked_as_it_was():
    lanes = (Lane("autoregressive"), Lane("rest"), Lane("rest", {}, ("notes",)), Lane("draft", {}, (), "owner/name"))
    asked = Request((("user", "one"),), temperature=0.7, min_p=0.1, repetition_penalty=1.2, no_repeat_ngram_size=3,
                    seed=5, datastores=("sample",))
    runs = {}
    for number, lane in enumerate(lanes):
        run = fold_all(script(lane.of(asked)))
        started = replace(run.started, draft_model=lane.draft_model or run.started.draft_model)
        runs[f"{number + 1}-{lane.engine}.repeat-1.prompt-1"] = replace(run, started=started)
    race = kept_race(runs, "yesterday").asked
    assert race.lanes == lanes and race.request == asked


async def show_latest(r) -> None:
    """Show the race that was kept last."""
    await r.press("h")
    await r.pilot.press("enter")
    await r.pilot.pause()
    await r.settle()


async def test_a_race_that_was_kept_is_run_again_as_it_was_asked_until_the_settings_change(tmp_path):
    from spec_tui.session.history import History

    async with racing(request=Request((("system", "Be brief."),), temperature=0.7, seed=5)) as r:
        r.app.session.store = History(tmp_path)
        await r.press("i", *"/lanes", "space", *"pld,draft", "enter", "i", *"/max", "space", *"16", "enter")
        await r.whole()
        (asked,) = r.client.races
        r.app.session.settings = ChatSettings(temperature=0.0)
        r.controller.change(most=None)
        await show_latest(r)
        top = r.rows("#race-top")[0]
        assert "HISTORY, kept from" in top and "fair · 1 repeat · T 0.7 · seed 5 · max 16" in top
        await r.press("R")
        assert r.client.races[-1] == asked
        r.client.race_on()
        await r.settle()
        r.app.session.settings = ChatSettings(temperature=0.2)
        await r.press("R")
        again = r.client.races[-1].request
        assert (again.temperature, again.max_new_tokens) == (0.2, 16) and len(again.conversation) == 1


@pytest.mark.parametrize("recorded", [True, False])
async def test_a_race_that_was_kept_says_how_it_ended_what_disturbed_it_and_which_lane_failed(tmp_path, recorded):
    """One of a version that kept the traces alone says that it does not know."""
    from spec_tui.session.history import History

    client = RacingClient()
    client.racer.breaks = {"pld"}
    busy = 1000.0  # cores: more than any machine has
    client._still = lambda event: (
        replace(event, other_seconds=event.seconds * busy) if isinstance(event, LaneFinished) else event)
    async with racing(client=client, repeats=2) as r:
        r.app.session.store = store = History(tmp_path)
        await r.press("enter")
        r.client.race_to(LaneFinished, 5)
        await r.press("escape")
        r.client.race_on()
        await r.settle()
        before, notes = r.controller.race.figures(), r.controller.race.notes()
        assert any("runs are complete" in note for note in notes) and any("cores busy" in note for note in notes)
        (entry,) = store.entries("races")
        if not recorded:
            (entry.folder / "race.json").unlink()
        await show_latest(r)
        race = r.controller.race
        shown = r.rows("#race-lanes")
        if not recorded:
            assert len(race.labels) == 3 and any("were not kept" in note for note in race.notes())
            return
        assert race.notes()[1:] == notes and [f.memory for f in race.figures()] == [f.memory for f in before]
        assert race.labels == LANES and "It broke" in " ".join(shown)
        assert race.result.finished.reason == "cancelled" and race.asked.repeats == 2


async def test_who_quits_in_the_middle_of_a_race_keeps_its_complete_runs(tmp_path, monkeypatch):
    from spec_tui.session.history import History

    async with racing(repeats=3) as r:
        r.app.session.store = store = History(tmp_path)
        await r.press("enter")
        r.client.race_to(LaneStarted, 7)
        stop = r.client.cancel
        monkeypatch.setattr(r.client, "cancel", lambda *job, **how: (stop(*job, **how), r.client.race_on()))
    (entry,) = store.entries("races")
    assert entry.count == 6


async def test_a_live_race_and_one_without_an_end_are_not_kept(tmp_path):
    from spec_tui.session.history import History

    async with racing() as r:
        r.app.session.store = store = History(tmp_path)
        await r.press("f")
        await r.whole()
        assert r.controller.finished and not store.entries("races")
        await r.press("f", "R", "escape")
        r.client.race_on()
        await r.settle()
        assert not store.entries("races")


@pytest.mark.parametrize("name, words, lanes", [
    ("rest-trie", "rest-trie: its rows, with the chosen datastores", 2), ("rest-draft-size", "6 of 7 rows", 6),
    ("admg-xsum", "cannot be run here", 0), ("dresd-explained", "too few of its rows", 0),
])
async def test_rows_of_a_papers_table_become_lanes(name, words, lanes):
    async with racing(repeats=1) as r:
        before = r.controller.setup
        await r.press("L")
        screen = r.app.screen
        assert isinstance(screen, PapersScreen) and screen.listed.option_count == len(shipped())
        screen.listed.highlighted = list(shipped()).index(name)
        await r.press()
        about = str(screen.query_one("#about").content)
        assert ("cannot be" in about) == (not lanes) and (lanes or words in about), "it is said before it is chosen"
        await r.press("enter")
        setup = r.controller.setup
        assert words in r.said and name in r.said
        assert setup == before if not lanes else len(setup.lanes) == lanes and setup.prompt != before.prompt
        await r.press("L", "escape")
        assert r.app.screen is r.screen and r.controller.setup == setup
