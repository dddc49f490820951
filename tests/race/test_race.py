"""A race is fair: on a virtual clock, where what is fair can be said exactly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from time import monotonic
from types import SimpleNamespace

import pytest

from engines.errors import RunFailed
from engines.race import peers, runner
from engines.race.lanes import Race, parse_lanes
from engines.race.race_events import Compared, LaneEvents, LaneFinished, LaneStarted, RaceFinished, RaceStarted
from engines.race.result import RaceResult
from engines.race.runner import defer_events, race
from engines.race.system_load import LoadWatch
from engines.report.events import Auditing, Prefilled, Started
from engines.request import Request
from engines.wire import from_json, to_json
from spec_tui.present.race_text import disturbance_sentence
from spec_tui.session.race_state import timeline
from tests.race.fakes import TOKENS, VirtualRacer

pytestmark = pytest.mark.usefixtures("no_sweeps")


def ask(lanes: str = "autoregressive,pld,rest", max_new_tokens: int = 99, law="exact", temperature=0.0, **more) -> Race:
    request = Request((("user", "hello"),), max_new_tokens=max_new_tokens, law=law, temperature=temperature, seed=3)
    return Race(parse_lanes([lanes]), request, **more)


def fold(events) -> RaceResult:
    result = RaceResult()
    for event in events:
        result.add(event)
    return result


def drifting(now: float) -> float:
    return 1 + now / 500  # a machine that gets warm


def off(result: RaceResult) -> list[float]:
    """How far lanes that are equally fast seem to be from the baseline."""
    return [abs(f.speed_up.median - 1) for f in result.figures() if f.speed_ups]


def test_a_drifting_machine_favours_nobody(monkeypatch):
    asked = ask("autoregressive,pld,rest,draft", repeats=6)
    fair = max(off(fold(race(VirtualRacer(drifting), asked))))
    monkeypatch.setattr(runner, "order", lambda lanes, turn, seed: list(range(lanes)))
    assert fair < 0.003 < 0.015 < max(off(fold(race(VirtualRacer(drifting), asked))))


def test_lanes_are_alone_with_their_time():
    """Whoever draws takes time; only a live race is watched while it runs."""
    alone = fold(race(VirtualRacer(), ask(repeats=2)))
    for live in (False, True):
        racer, seen = VirtualRacer(), []
        for event in race(racer, ask(repeats=2, live=live)):
            racer.now += 0.5
            seen.append(event)
        assert [e.live for e in seen if isinstance(e, RaceStarted)] == [live]
        same = [f.rates for f in fold(seen).figures()] == [f.rates for f in alone.figures()]
        assert same is not live


@pytest.mark.parametrize("live", [False, True])
def test_of_a_long_prompt_only_runs_that_are_not_timed_tell(live):
    at, told = [], []

    def tell(step):
        told.append((at[-1].warm_up, step.done == step.total))

    for event in race(VirtualRacer(), ask(repeats=2, live=live), progress=tell):
        if isinstance(event, LaneStarted):
            at.append(event)
    assert told == [(True, False), (True, True)] * 3 + [(False, False)] * (6 * live)


def test_every_lane_pays_its_own_prefill_and_learns_for_itself():
    racer = VirtualRacer()
    events = list(race(racer, ask("pld,pld,autoregressive", repeats=2)))
    assert all(e.reused == 0 and e.seconds == 3 for e in events if isinstance(e, Prefilled))
    assert len({f.rates for f in fold(events).figures()}) == 1


def test_a_server_lane_s_first_token_counts_the_encoding_of_the_prompt_and_not_the_connection(monkeypatch):
    class Served(VirtualRacer):
        token_ids = True

        def run(self, request, cancelled, prompt):
            assert prompt == encoded
            return super().run(request, cancelled)

    def takes(seconds, result):
        served.now += seconds
        return result

    served, encoded = Served(), ((1, 2, 3), ("a", "b", "c"))
    served.ready = SimpleNamespace(host="", vocab_size=16, model="model", device="cpu")
    host = SimpleNamespace(ready=served.ready, prompt=lambda request: takes(0.5, encoded))
    monkeypatch.setattr(peers, "connect", lambda *_: takes(30.0, served))
    monkeypatch.setattr(peers, "perf_counter", lambda: served.now)
    racer = peers.Peers(host)
    for _ in racer.run(ask("server:url=http://a").lanes[0].of(ask().request)):
        pass
    assert racer.token_times.first_seconds == 0.5 + 3, "its prefill takes 3"


def test_lanes_are_warmed_up_and_that_counts_nowhere():
    racer = VirtualRacer()
    events = list(race(racer, ask("autoregressive,pld", max_new_tokens=200, repeats=2)))
    assert sorted(racer.ran[:2]) == ["autoregressive", "pld"] and len(racer.ran) == 6
    assert racer.limits[:2] == [32, 32] and set(racer.limits[2:]) == {200}
    starts = [e for e in events if isinstance(e, LaneStarted)]
    assert [e.step for e in starts] == [1, 2, 3, 4, 5, 6] and {e.steps for e in starts} == {6}
    assert [e.warm_up for e in starts] == [True] * 2 + [False] * 4
    assert len(fold(events).runs) == 4


def test_numbers_are_those_of_the_runs():
    racer = VirtualRacer()
    racer.texts["pld"] = TOKENS[:5]
    result = fold(race(racer, ask("autoregressive,pld", repeats=3)))
    plain, pld = result.figures()
    assert plain.rates == (pytest.approx(7 / sum(0.5**i for i in range(7))),) * 3 and plain.speed_up is None
    assert pld.speed_ups == (pytest.approx(pld.rates[0] / plain.rates[0]),) * 3
    assert (plain.ttft, plain.memory, plain.metrics.new_tokens) == (3, 14000 + 10, 24)
    assert plain.rate.samples == 3 and plain.rate.coverage == 0.95
    points = timeline(result.runs[1, 0, 0].state)
    assert [tokens for _, tokens in points] == [1, 2, 3, 4, 5] and points[0][0] == 3
    assert points[-1][0] == pytest.approx(3 + sum(0.5**i for i in range(4)))


def test_held_back_events_tell_the_same(tmp_path):
    events = list(race(VirtualRacer(), ask(repeats=2, audit=True)))
    later = list(defer_events(events))
    assert sorted(map(to_json, later)) == sorted(map(to_json, events))
    kinds = [type(event) for event in later]
    assert max(i for i, k in enumerate(kinds) if k is LaneFinished) < kinds.index(LaneEvents) < kinds.index(Auditing)
    one, other = fold(events), fold(from_json(to_json(event)) for event in later)
    assert {k: (r.state, r.measured) for k, r in one.runs.items()} == {
        k: (r.state, r.measured) for k, r in other.runs.items()
    }
    assert one.figures() == other.figures() and one.pairs == other.pairs
    live = list(race(VirtualRacer(), ask(live=True)))
    assert list(defer_events(live)) == live


@pytest.mark.parametrize(
    "verdicts, law, verdict, bugs",
    [
        ({"pld": "BUG"}, "exact", "BUG", (1,)),
        ({"pld": "tie"}, "exact", "tie", ()),
        ({"pld": "broken"}, "exact", "unchecked", ()),
        ({}, "typical", "by design", ()),
        ({}, "rejection", "by design", ()),
    ],
)
def test_what_differs_is_judged(verdicts, law, verdict, bugs):
    racer = VirtualRacer()
    racer.texts["pld"], racer.verdicts = (*TOKENS[:4], 99, *TOKENS[5:]), verdicts
    result = fold(race(racer, ask(repeats=2, law=law, temperature=0.8)))
    assert result.pairs == [
        Compared(0, 1, 0, verdict, 4, bugs=bugs), Compared(0, 2, 0, "same"), Compared(1, 2, 0, verdict, 4, bugs=bugs),
    ]
    assert result.bugs is bool(bugs) and result.pair(1, 0).verdict == verdict
    assert racer.audits == (2 if law == "exact" else 0)  # equal texts are read once


def test_a_text_that_ends_early_differs_there_and_repeats_that_differ_are_told():
    racer = VirtualRacer()
    racer.texts["pld"] = TOKENS[:5]
    assert fold(race(racer, ask("autoregressive,pld"))).pair(0, 1).at == 5

    class Fickle(VirtualRacer):
        def run(self, request, cancelled=lambda: False, progress=None):
            self.texts["pld"] = TOKENS if self.ran.count("pld") < 2 else (*TOKENS[:2], 99)
            return super().run(request, cancelled)

    pairs = fold(race(Fickle(), ask("autoregressive,pld", repeats=2))).pairs
    assert pairs == [Compared(0, 1, 0, "tie", 2, 1, 1), Compared(1, 1, 0, "tie", 2, 0, 1)]


def test_all_answers_are_audited_where_that_is_asked():
    racer = VirtualRacer()
    racer.texts, racer.verdicts = {name: TOKENS for name in ("autoregressive", "pld")}, {"autoregressive": "BUG"}
    result = fold(race(racer, ask("autoregressive,pld", repeats=2, audit=True)))
    assert result.pairs == [Compared(0, 1, 0, "same", bugs=(0, 1))] and result.bugs and racer.audits == 1
    assert all(run.state.audited.verdict == "BUG" for run in result.runs.values())


def test_audits_say_which_answer_of_how_many_they_are_at():
    racer = VirtualRacer()
    racer.texts = {"pld": (7, 99), "draft": (7, 98)}
    events = list(race(racer, ask("autoregressive,pld,draft", repeats=2)))
    assert [e for e in events if isinstance(e, Auditing)] == [Auditing(n / 3, n + 1, 3) for n in range(3)]


def test_audits_that_are_cut_short_keep_what_they_found():
    racer, asked = VirtualRacer(), ask("autoregressive,pld,draft")
    racer.texts, racer.verdicts = {"pld": (7, 99), "draft": (7, 98)}, {"pld": "BUG"}
    result = fold(race(racer, asked, cancelled=lambda: racer.audits == 2))
    assert result.finished.reason == "cancelled" and racer.audits == 2
    assert [run.lane for run in result.runs.values() if run.state.audited] == [0] and len(result.complete) == 3
    assert result.pair(1, 2).verdict == "unchecked"


def test_texts_of_other_weights_are_not_audited():
    class Unquantised(VirtualRacer):
        def run(self, request, *watched, **more):
            for event in super().run(request, *watched, **more):
                other = isinstance(event, Started) and request.engine == "pld"
                yield replace(event, dtype="float32, weights as stored") if other else event

    racer = Unquantised()
    racer.texts["pld"] = (*TOKENS[:4], 99)
    result = fold(race(racer, ask("autoregressive,pld")))
    assert result.pairs == [Compared(0, 1, 0, "other weights", 4)] and racer.audits == 0


def test_turns_are_shown_the_same_answers():
    racer = VirtualRacer()
    asked = Race(
        parse_lanes(["pld,rest"]), Request((("system", "be brief"),), max_new_tokens=9), (("one", "two"), ("three",)), 2
    )
    result = fold(race(racer, asked))
    assert result.started.prompts == 3 and len(result.complete) == 12
    system = ("system", "be brief")
    second = (system, ("user", "one"), ("assistant", "pld says"), ("user", "two"))
    for run in result.complete:
        expected = [(system, ("user", "one")), second, (system, ("user", "three"))][run.prompt]
        assert run.state.started.conversation == expected
    alone = fold(race(VirtualRacer(), ask("pld,rest", max_new_tokens=9))).figures()
    for figures, one in zip(result.figures(), alone):  # several answers have no other speed, and no other M, than one
        assert figures.rate.samples == 2 and figures.rate.median == pytest.approx(one.rate.median)
        assert figures.metrics.mean_generated_length == one.metrics.mean_generated_length == 1


@pytest.mark.parametrize(
    "others, waited, cores, matters",
    [(0.0, 0.0, 2, False), (0.25, 0.0, 2, True), (0.25, 0.0, 16, False), (0.0, 0.03, 16, True), (None, None, 2, False),
     (None, 0.5, 2, True), (9.0, None, 16, True)],
)
def test_other_load_is_said(others, waited, cores, matters):
    racer = VirtualRacer()
    result = RaceResult()
    for event in race(racer, ask("autoregressive,pld")):
        if isinstance(event, Started):
            event = replace(event, machine={"cpus": cores})
        if isinstance(event, LaneFinished):
            many = None if others is None else others * event.seconds
            late = None if waited is None else waited * event.seconds
            event = replace(event, other_seconds=many, waited_seconds=late)
        result.add(event)
    found = result.disturbance()
    assert found.matters is matters is bool(disturbance_sentence(found))
    assert found.other_cores == (others if others is None else pytest.approx(others))


@pytest.mark.parametrize(("seconds", "others", "waited", "said"), [
    (0.02, (0.01, -0.01, 0.01, -0.01), 0.0, ""),
    (1.0, (3.0,), 1.2, "other programs kept 2.0 of 2 cores busy and decoding waited for a core 100% of the time"),
])
def test_rounding_evens_out_and_no_load_is_beyond_the_machine(monkeypatch, seconds, others, waited, said):
    """Runs of which the system counted now a step of 10 ms too many, now one too few."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    result = RaceResult()
    for repeat, many in enumerate(others):
        result.add(LaneFinished(0, repeat, 0, 5, 10.0, seconds, other_seconds=many, waited_seconds=waited))
    assert disturbance_sentence(result.disturbance()).partition(":")[0] == said


def test_a_full_machine_is_never_more_than_full(monkeypatch):
    """Each look at the system takes a millisecond, and every core is busy meanwhile, here and elsewhere."""
    now = [0.0]

    def after(a_look, cores):
        def look():
            now[0] += a_look
            return cores * now[0]
        return look

    for name, cores in (("busy_seconds", 2), ("_waited_seconds", 1), ("_process_seconds", 0), ("_children_seconds", 0)):
        monkeypatch.setattr(f"engines.race.system_load.{name}", after(0.001, cores))
    monkeypatch.setattr("engines.race.system_load.perf_counter", after(0, 1))
    watch = LoadWatch()
    now[0] += 0.002
    seconds, others, waited = watch.stop()
    assert 0 < others <= 2 * seconds and 0 < waited <= seconds


def spinning(code):
    """What a LoadWatch measures of 0.6 seconds of work, while this code runs in another process."""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as neighbour:
        try:
            neighbour.stdout.readline()
            watch = LoadWatch()
            end = monotonic() + 0.6
            while monotonic() < end:
                pass
            return watch.stop()
        finally:
            os.killpg(neighbour.pid, signal.SIGKILL)


def test_a_busy_neighbour_is_seen():
    """Another process that computes shows as other load; this one's own work, and its children's, do not."""
    spin = "import time; end = time.time() + 30\nprint('on', flush=True)\nwhile time.time() < end: pass"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spin!r}])"
    seconds, others, waited = spinning(child)
    if others is None:
        pytest.skip("the system counts other cores than these")
    assert others > 0.1 * seconds and (waited is None or 0 <= waited <= seconds)


def test_where_the_system_is_silent_nothing_is_claimed(monkeypatch, tmp_path):
    def silent():
        raise OSError("the system does not say")

    monkeypatch.setattr("psutil.cpu_times", silent)
    monkeypatch.setattr("engines.race.system_load._SCHEDULED", tmp_path / "none")
    seconds, *claims = LoadWatch().stop()
    assert seconds >= 0 and claims == [None, None]


def test_a_lane_that_breaks_is_out_and_the_others_go_on():
    racer = VirtualRacer()
    racer.breaks["pld"] = 2
    result = fold(race(racer, ask(repeats=3)))
    assert [len(result.of(lane)) for lane in range(3)] == [3, 1, 3]
    broke = [run for run in result.runs.values() if run.failed]
    assert [(run.lane, run.failed.message, run.failed.hint) for run in broke] == [(1, "it broke", "mend it")]
    assert result.figures()[1].rate.samples == 1 and result.finished.reason == "done"
    assert {(p.first, p.second) for p in result.pairs} == {(0, 1), (0, 2), (1, 2)}


def test_a_lane_that_fails_in_its_warm_up_leaves_the_others_running():
    racer = VirtualRacer()
    racer.breaks["pld"] = 0
    events = list(race(racer, ask(repeats=3)))
    result = fold(events)
    assert [len(result.of(lane)) for lane in range(3)] == [3, 0, 3]
    assert result.runs[1, 0, 0].failed.message == "it broke"
    assert result.finished.reason == "done" and {(p.first, p.second) for p in result.pairs} == {(0, 2)}
    last = [event for event in events if isinstance(event, LaneStarted)][-1]
    assert last.step == last.steps  # the bar ends where the race does
    racer.breaks = {lane.engine: racer.ran.count(lane.engine) for lane in ask().lanes}
    with pytest.raises(RunFailed, match="autoregressive: it broke"):
        list(race(racer, ask()))


def test_a_lane_whose_draft_model_cannot_be_loaded_leaves_the_others_running():
    racer = VirtualRacer()
    racer.missing = {"/no/such"}
    result = fold(race(racer, ask("autoregressive,draft:model=/no/such", repeats=2)))
    assert [len(result.of(lane)) for lane in range(2)] == [2, 0] and result.finished.reason == "done"
    broke = result.runs[1, 0, 0]
    assert broke.failed.message == "there is no model /no/such" and broke.measured.memory is None


@pytest.mark.parametrize("after", [0, 1, 5, 9, 15])
def test_a_cancelled_race_keeps_what_is_complete(after):
    asked, events = ask(repeats=3, audit=True), []
    racer = VirtualRacer()

    def cancelled() -> bool:
        return racer.now > after * 3

    for event in race(racer, asked, cancelled):
        events.append(event)
    result = fold(events)
    assert events[-1] == RaceFinished("cancelled") and racer.audits == 0
    finished = [(e.lane, e.repeat, e.prompt) for e in events if isinstance(e, LaneFinished)]
    assert sorted(run.state.finished.tokens for run in result.complete) == [TOKENS] * len(finished)
    assert len(finished) < 9 and all(f.rate is None or f.rate.samples <= 3 for f in result.figures())
