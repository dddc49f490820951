"""A replay on the screen: cell by cell what was there live, under keys that hold and hurry it, whatever the file."""

from __future__ import annotations

import math
import random
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from textual.geometry import Region

from engines.report.events import Finished, Round, Started
from engines.report.traces import Trace, TraceWriter
from engines.request import Request
from engines.wire import read_trace
from spec_tui.session.replay_client import ReplayClient
from spec_tui.session.sample_traces import trace_path
from spec_tui.tui.recorded import replay
from spec_tui.tui.screens.chat import ChatScreen
from spec_tui.tui.screens.export import document
from spec_tui.tui.screens.inspector import Inspector
from tests.tiers import some
from tests.tui.conftest import Session
from tests.tui.fakes import ANSWER, FakeClient, finding, script

PROMPT = "Write a function that merges two sorted lists."
ASKED = Request((("user", PROMPT),), "draft")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def playing(trace: Trace, speed: float = math.inf, size=(120, 40)):
    """The application over a trace, with a clock that the test winds: (session, clock)."""
    clock = Clock()
    app = replay(ReplayClient(trace, speed, clock, "a-trace"))
    async with app.run_test(size=size) as pilot:
        s = Session(app, None, pilot)
        await s.settle()
        await s.settle()
        yield s, clock


def cells(session: Session, *names: str) -> list:
    """Every segment of these widgets, text and style; of the transcript beyond what fits on the screen too."""
    transcript = session.chat.transcript
    whole = Region(0, -transcript.scroll_offset.y, transcript.size.width, len(transcript.wrapped.lines))
    strips = transcript.render_lines(whole)
    for name in names:
        strips += session.chat.query_one(name).render_lines(session.chat.query_one(name).size.region)
    offers = "baseline"  # which a recording cannot measure
    return [[(s.text, s.style) for s in strip] for strip in strips if offers not in strip.text]


async def test_enter_without_a_cursor_opens_the_last_token():
    async with playing(Trace(tuple(script(ASKED)))) as (s, _):
        last = len(s.app.session.last.run.tokens) - 1
        await s.pilot.press("enter")
        await s.pilot.pause()
        assert isinstance(s.app.screen, Inspector) and s.app.screen.cursor[1] == last


async def test_a_saved_trace_keeps_its_baseline_and_audit(session, tmp_path):
    async with session(client=FakeClient(ANSWER), request=replace(ASKED, conversation=())) as live:
        await live.ask(PROMPT)
        await live.pilot.press("f7")
        live.client.feed()
        await live.settle()
        await live.pilot.press("f6")
        live.client.feed()
        await live.settle()
        file = tmp_path / "t.jsonl"
        file.write_bytes(document(live.chat.turn.run, "trace", live.app.session.baseline(live.chat.turn.run))[0])
        foot = live.shown[live.shown.index("· 136 tokens") :]
        assert "faster" in foot or "noise unknown" in foot, foot
    async with playing(read_trace(file)) as (s, _):
        assert s.shown[s.shown.index("· 136 tokens") :] == foot and len(s.app.session.turns) == 1
        assert s.app.session.turns[0].run.audited is not None
        assert "\n".join(s.chat.query_one("#speed").text_rows()).count("not measured") == 0


async def test_a_prefill_shows_how_far_it_is():
    events = script(ASKED)
    events[1] = replace(events[1], seconds=4.0, prompt_tokens=1000)
    async with playing(Trace(tuple(events)), speed=1.0) as (s, clock):
        for clock.now, read in ((0.0, "0 of 1,000 tokens"), (1.0, "250 of 1,000 tokens")):
            s.chat.pump()
            s.chat.draw_all()
            assert f"reading the prompt: {read}" in s.status
        clock.now = 4.1
        await s.settle()
        s.chat.draw_all()
        assert "reading" not in s.status


@pytest.mark.parametrize("rounds", [1, 12, None])
async def test_replay_equals_live_cell_by_cell(session, tmp_path, rounds):
    given = None if rounds is None else 2 + rounds
    shown = ("#tree", "#speed", "#legend", "#answer-title")
    async with session(client=FakeClient(ANSWER), request=replace(ASKED, conversation=())) as live:
        await live.ask(PROMPT, given)
        live.chat.transcript.focus()
        live.chat.draw_all()
        await live.settle()
        with TraceWriter(tmp_path / "t.jsonl") as writer:
            for event in script(live.client.requests[0]):
                writer.write(event)
        trace = read_trace(tmp_path / "t.jsonl")
        async with playing(trace, 1.0) as (replayed, clock):
            replayed.chat.pump()
            if rounds is None:
                clock.now = 1e9
            else:
                replayed.app.client.clock.playing = False
                for _ in range(1 + rounds):
                    replayed.app.client.step()
            await replayed.settle()
            replayed.chat.draw_all()
            await replayed.settle()
            assert replayed.app.session.turns[0].run == live.app.session.turns[0].run
            assert replayed.shown == live.shown
            assert len(cells(live, *shown)) > 30 and cells(replayed, *shown) == cells(live, *shown)


async def test_keys_of_the_clock():
    events = tuple(script(ASKED))
    async with playing(Trace(events), 1.0) as (s, clock):
        assert "playing ×1" in s.status and s.chat.prompt.disabled and "takes no prompts" in s.chat.prompt.placeholder
        assert s.chat.focused is s.chat.transcript
        await s.pilot.press("space")
        before = s.shown
        clock.now += 100
        await s.settle()
        assert "paused" in s.status and s.shown == before
        await s.pilot.press("N", "N", "N")
        await s.settle()
        assert len(s.app.session.last.run.rounds) == 2 and "paused" in s.status
        await s.pilot.press(">", ">", "<")
        assert "×2" in s.status
        await s.pilot.press("<", "<", "<")
        assert "×1/4" in s.status and "paused" in s.status
        await s.pilot.press("space", "0")
        await s.settle()
        assert s.app.session.last.run.finished and "at the end" in s.status and "lists once" in s.shown
        await s.pilot.press("ctrl+r")
        await s.settle()
        assert "playing" in s.status and not s.app.session.last.run.finished


async def test_what_needs_a_model_is_not_offered_and_the_rest_works():
    async with playing(Trace(tuple(script(ASKED)))) as (s, _):
        await s.pilot.press("b", "a", "f6", "f7", "n", "n", "d", "i", "ctrl+e", "ctrl+o")
        await s.settle()
        assert s.app.screen is s.chat and len(s.app.session.turns) == 1 and not s.notice
        footer = {key.description for key in s.chat.query("FooterKey")}
        assert {"Play", "Faster", "Slower"} <= footer and not footer & {"Baseline", "Audit", "Engine", "Stop"}
        await s.pilot.press("v")
        assert s.chat.transcript.view == "rejected"
        await s.pilot.press("left", "enter")
        await s.pilot.pause()
        assert s.app.screen is not s.chat
        await s.pilot.press("escape", "escape")
        assert s.chat.transcript.cursor is None


async def test_steps_through_a_trace_first(tmp_path):
    from spec_tui.tui.screens.step import StepScreen

    events = tuple(script(ASKED))
    app = replay(ReplayClient(Trace(events), 1.0, Clock()), "step")
    async with app.run_test(size=(120, 40)) as pilot:
        for _ in range(4):
            await pilot.pause()
        assert isinstance(app.screen, StepScreen)
        assert len(app.screen.player.run.rounds) == sum(isinstance(event, Round) for event in events)
        await pilot.press("f1")
        await pilot.pause()
        told = str(app.screen.query_one("#text").content)
        assert "The next phase" in told and "Change something" not in told and "Run the answer again" not in told
        await pilot.press("escape", "right", "escape")
        await pilot.pause()
        assert isinstance(app.screen, ChatScreen) and "lists once" in Session(app, None, pilot).shown


async def test_the_step_screen_shows_where_a_round_is_missing(tmp_path):
    lines = trace_path("rasd").read_bytes().splitlines(keepends=True)
    (tmp_path / "t.jsonl").write_bytes(b"".join(lines[:9] + lines[10:]))
    app = replay(ReplayClient(read_trace(tmp_path / "t.jsonl"), math.inf, Clock()), "step")
    async with app.run_test(size=(120, 40)) as pilot:
        for _ in range(6):
            await pilot.pause()

        def shown() -> str:
            return "\n".join("".join(segment.text for segment in strip) for strip in
                             app.screen._compositor.render_strips())

        assert "round 1 of 13" in shown() and "part of this trace could not be read: line 10" in shown()
        await pilot.press(*["right"] * 7)
        assert "round 9 of 13" in shown() and "round 9: drafted 8" in shown()
        assert "What comes between round 7 and round 9 is missing in this trace." in shown()
        assert "◌ missing" in shown() and "One day, Dan […]" in shown() and "KV cache    — rows" in shown()
        assert "The last one is the root" in " ".join(shown().split())
        await pilot.press("right", "number_sign", "8", "enter")
        assert "round 9 of 13" in shown() and "Round 8 is missing in this trace." in shown()
        await pilot.press("number_sign", "1", "3", "enter")
        assert "round 13 of 13" in shown() and "But›" in shown()
        await pilot.press("escape")
        await pilot.pause()
        assert "cut at 64 tokens" in shown().replace("\u00a0", " "), "not for want of context"


async def test_an_audit_and_a_second_run_are_played_too():
    from engines.report.answer import Answer

    first = tuple(script(replace(ASKED, engine="autoregressive")))
    second = tuple(script(ASKED))
    audited = (*first, finding(Answer.from_events(first), "identical"))
    async with playing(Trace((*audited, *second))) as (s, _):
        await s.settle()
        await s.settle()
        assert [turn.request.engine for turn in s.app.session.turns] == ["autoregressive", "draft"]
        assert "✓ identical" in s.shown and s.shown.count(PROMPT[:20]) == 2
        assert "x faster" in s.chat.query_one("#speed").text_rows()[1], "the first run is the second's baseline"


async def test_a_run_that_failed_and_one_that_was_stopped():
    from engines.report.events import Failed

    events = script(ASKED)
    for last in (Failed("the model broke", "mend it"), Finished("cancelled", (), "")):
        async with playing(Trace((*events[:5], last))) as (s, _):
            assert ("the model broke" in s.shown) == isinstance(last, Failed)
            assert len(s.app.session.turns) == 1 and not s.app.session.busy and not s.chat.prompt.text


async def test_of_a_damaged_file_the_rest_is_shown_and_the_damage_said():
    events = tuple(script(ASKED))
    problems = ("line 3 is not text", "line 4 is not text", "line 9 is not text")
    async with playing(Trace(events[2:], problems)) as (s, _):
        assert "line 3 is not text; line 4 is not text; 1 more" in s.notice
        assert "unknown" in s.shown and "out.append" in s.shown and "greedy" not in s.shown, "what is lost is not known"
        await s.pilot.press("escape")
        await s.settle()
        assert not s.notice and "out.append" in s.shown


async def test_a_trace_of_a_newer_version_plays():
    events = [replace(e, engine="telepathy", law="hope", options={"mood": [1, {}]}, warnings=("\x1b[31m",))
              if isinstance(e, Started) else e for e in script(ASKED)]
    events = [replace(e, note={"\x1b]0;x\x07": "\n"}) if isinstance(e, Round) else e for e in events]
    async with playing(Trace(tuple(events))) as (s, _):
        assert "telepathy" in s.shown and "hope" in s.shown and "out.append" in s.shown
        await s.pilot.press("left", "[", "p", "escape", "s", "t")
        await s.settle()


NOISE = [-1, 0, 7, 10**9, None, "", "\x1b[2J", 1e300, [], {}, True]


@pytest.mark.parametrize("seed", some(range(4), lambda seed: seed == 0))
async def test_whatever_the_file_says_the_screen_stands(tmp_path, seed):
    """Values replaced at random in every line, as the reader lets them through."""
    import json

    dice = random.Random(seed)
    data = trace_path(("draft-sampled", "rest", "admg", "rasd")[seed % 4]).read_bytes()
    lines = [json.loads(line) for line in data.splitlines()]
    for record in lines:
        for _ in range(dice.choice([0, 0, 1, 2])):
            spot, key = record, dice.choice(sorted(set(record) - {"event"}))
            while isinstance(spot[key], (dict, list)) and spot[key] and dice.random() < 0.8:
                spot = spot[key]
                key = dice.choice(sorted(spot)) if isinstance(spot, dict) else dice.randrange(len(spot))
            spot[key] = dice.choice(NOISE)
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(record) + "\n" for record in lines))
    trace = read_trace(tmp_path / "t.jsonl")
    async with playing(trace) as (s, _):
        for _ in range(3):
            await s.settle()
        assert s.notice and s.app.session.phase == "ready"
        await s.pilot.press("escape", "left", "[", "enter", "escape", "p", "escape", "v", "l", "l", "end")
        await s.settle()
        await s.pilot.press("full_stop", *["full_stop"] * 9, "x", "right", "right", "end", "escape")
        await s.settle()
        assert s.app.is_running


def still(app):
    """Before the picture: nothing blinks, everything is drawn."""

    async def steps(pilot):
        for _ in range(4):
            await pilot.pause()
        app.screen.pump()
        app.screen.draw_all()
        await pilot.pause()

    return steps


async def test_the_layers_of_a_replay_are_those_of_its_engine():
    async with playing(read_trace(trace_path("draft"))) as (s, _):
        await s.pilot.press("escape", "l", "left")
        await s.settle()
        shown = "\n".join("".join(segment.text for segment in strip) for strip in
                          s.app.screen._compositor.render_strips())
        assert "This is a replay" in shown and "spec-tui replay" in shown
        assert "Hybrid" not in shown and "/engine" not in shown


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
def test_picture_of_a_replay(snap_compare, size):
    clock = Clock()
    app = replay(ReplayClient(Trace(tuple(script(ASKED))), 0.25, clock, "a-trace"))

    async def steps(pilot):
        await still(app)(pilot)
        clock.now = 1.0
        await still(app)(pilot)

    assert snap_compare(app, terminal_size=size, run_before=steps)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_picture_of_the_export_dialog(snap_compare, size):
    app = replay(ReplayClient(Trace(tuple(script(ASKED))), math.inf, Clock(), "a-trace"))

    async def steps(pilot):
        await still(app)(pilot)
        await pilot.press("e", "down")
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=steps)
