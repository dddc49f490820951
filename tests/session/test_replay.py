"""A trace as an engine: the same events and states as live, on a clock that tests wind."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.report.answer import Answer
from engines.report.events import Failed, Prefilled, Ready, Round
from engines.report.run_state import RunState, fold, fold_all
from engines.report.traces import Trace, TraceWriter
from engines.request import Request
from engines.wire import read_trace
from spec_tui.present.playback import SPEEDS
from spec_tui.session.engine_commands import Audit, Load, LoadRequest, Run
from spec_tui.session.replay_client import ReplayClient

ASKED = Request((("user", "abab"),), "draft", {"shape": "tree"}, max_new_tokens=24)


@pytest.fixture(scope="module")
def live(tiny):
    events = list(tiny.run(ASKED))
    return (*events, tiny.audit(Answer.from_events(events)))


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def said(client: ReplayClient) -> list:
    return [event for _, event in client.events()]


def everything(client: ReplayClient, clock: Clock, step: float = 0.001) -> list:
    out = said(client)
    while not client.over:
        clock.now += step
        out += said(client)
    return out


def test_replay_equals_live_event_by_event(live, tmp_path):
    with TraceWriter(tmp_path / "t") as writer:
        for event in live:
            writer.write(event)
    trace, clock = read_trace(tmp_path / "t"), Clock()
    client = ReplayClient(trace, time=clock)
    client.submit(Load(LoadRequest()))
    ready, *replayed = everything(client, clock)
    assert isinstance(ready, Ready) and ready.model == "tiny-target" and ready.price == live[0].price
    assert tuple(replayed) == live

    a, b = RunState(), RunState()
    for one, other in zip(live, replayed, strict=True):
        a, b = fold(a, one), fold(b, other)
        assert a == b


@pytest.mark.parametrize("speed", [0.25, 1.0, 8.0, math.inf])
def test_events_come_when_the_engines_clock_says(live, speed):
    clock = Clock()
    client = ReplayClient(Trace(live), speed, clock)
    metrics = fold_all(live).metrics
    length = metrics.prefill_seconds + metrics.decode_seconds
    seen: list = []
    for _ in range(200_000):
        if came := said(client):
            seen += came
            passed = (clock.now - 100.0) * speed if clock.now > 100.0 else 0.0
            metrics = fold_all(seen).metrics
            assert metrics.prefill_seconds + metrics.decode_seconds <= passed + 1e-9 or speed == math.inf
        if client.over:
            break
        clock.now += 1e-4
    assert tuple(seen) == live and client.clock.over and client.clock.end == pytest.approx(length)
    assert speed == math.inf or (clock.now - 100.0) * speed == pytest.approx(length, abs=2e-4 * speed)


@given(st.lists(st.tuples(st.sampled_from(["wait", "pause", "faster", "slower", "step"]), st.floats(0, 0.05))))
def test_whatever_is_pressed_the_events_stay_in_order(live, presses):
    clock = Clock()
    client = ReplayClient(Trace(live), time=clock)
    out, before = [], 0.0
    for press, seconds in presses:
        clock.now += seconds
        if press == "pause":
            client.clock.playing = not client.clock.playing
        elif press == "step":
            client.step()
        elif press != "wait":
            client.clock.faster(1 if press == "faster" else -1)
        out += said(client)
        assert client.clock.position >= before and tuple(out) == live[: len(out)]
        before = client.clock.position
    client.skip()
    assert tuple(out + said(client)) == live


def test_paused_is_paused_and_a_step_is_a_round(live):
    clock = Clock()
    client = ReplayClient(Trace(live), time=clock)
    client.clock.playing = False
    client.events()
    clock.now += 1e6
    assert client.events() == []
    client.step()
    assert isinstance(said(client)[-1], Prefilled)
    client.step()
    (one,) = said(client)
    assert isinstance(one, Round) and one.index == 1
    client.clock.playing = True
    assert client.events() == [], "the time of the pause does not count"


def test_speeds_are_steps_with_two_ends(live):
    clock = ReplayClient(Trace(live)).clock
    for steps, speed in ((8, SPEEDS[-1]), (-20, SPEEDS[0]), (1, SPEEDS[1])):
        clock.faster(steps)
        assert clock.speed == speed


def test_runs_play_one_after_the_other_and_again(live):
    client = ReplayClient(Trace(live * 2), speed=math.inf)
    for number in (0, 1, 0, 1):
        if not number:
            client.play()
        assert tuple(said(client)) == live and client.number == number
    assert client.over and client.events() == []


def test_there_is_no_model(live):
    client = ReplayClient(Trace(live))
    client.submit(Audit(Answer.from_events(live)))
    client.submit(Run(ASKED))
    assert [type(event) for event in said(client)[:2]] == [Failed, Failed] and client.alive
    client.close()
    assert not client.alive


def test_the_command_that_names_all_damage_can_be_typed(live):
    client = ReplayClient(Trace(live, ("one", "two", "three")), title="my run", path="runs/my run.jsonl")
    client.submit(Load(LoadRequest()))
    notice = next(event.message for event in said(client) if isinstance(event, Failed))
    assert notice.endswith("one; two; 1 more: spec-tui replay 'runs/my run.jsonl' --format text names them")


def test_a_run_without_a_start_plays(live):
    client = ReplayClient(Trace(live[2:]), speed=math.inf)
    client.submit(Load(LoadRequest()))
    ready, *events = said(client)
    assert ready.model == "unknown" and fold_all(events).tokens and fold_all(events).finished


def test_no_torch_for_a_replay():
    program = (
        "import sys; import spec_tui.session.replay_client\n"
        "assert not {'torch', 'transformers', 'huggingface_hub'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
