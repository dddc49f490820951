"""A race over the pipe: the same events as in this process, those of the runs where they disturb nobody."""

from __future__ import annotations

from engines.race.lanes import Race, parse_lanes
from engines.race.race_events import Compared, LaneEvents, LaneFinished, LaneStarted, RaceFinished, RaceStarted
from engines.race.result import RaceResult
from engines.report.events import Failed, Round, Started
from engines.request import Request
from spec_tui.session.engine_commands import LoadRequest, StartRace
from tests.session.test_process import client, either, load, until  # noqa: F401


def ask(prompt: str, max_new_tokens: int = 3, **more) -> Race:
    request = Request((("user", prompt),), max_new_tokens=max_new_tokens)
    return Race(parse_lanes(["autoregressive,pld"]), request, **more)


def race(client, asked: Race) -> int:  # noqa: F811
    return client.submit(StartRace(asked))


def test_events_of_runs_come_when_nobody_runs_any_more(either):  # noqa: F811
    load(either, LoadRequest())
    race(either, ask("hello", repeats=2))
    events = [e for e in until(either, RaceFinished) if not isinstance(e, LaneStarted)]
    kinds = [type(event) for event in events]
    at = kinds.index(RaceStarted)
    assert kinds[at + 1 : at + 5] == [LaneFinished] * 4
    assert kinds[at + 5 : at + 10] == [LaneEvents, Started, *kinds[at + 7 : at + 10]] and kinds.count(LaneEvents) == 4
    assert kinds[-2:] == [Compared, RaceFinished] and events[-1].reason == "done"
    result = RaceResult()
    for event in events:
        result.add(event)
    assert [(run.lane, run.repeat) for run in result.of(0) + result.of(1)] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert all(run.complete and run.state.metrics.new_tokens == 5 for run in result.runs.values())


def test_a_live_race_is_streamed(client):  # noqa: F811
    load(client, LoadRequest())
    job = race(client, ask("slow", live=True, max_new_tokens=100_000))
    seen = until(client, Round)
    assert not any(isinstance(event, LaneFinished) for event in seen)
    client.cancel(job)
    assert until(client, RaceFinished)[-1].reason == "cancelled"


def test_a_cancelled_race_gives_what_is_complete(either):  # noqa: F811
    load(either, LoadRequest())
    job = race(either, ask("slow", repeats=1000))
    seen = until(either, LaneFinished)
    either.cancel(job)
    seen += until(either, RaceFinished)
    result = RaceResult()
    for event in seen:
        result.add(event)
    assert result.finished.reason == "cancelled" and result.complete
    assert all(run.complete for run in result.runs.values() if run.measured)


def test_a_race_that_cannot_run_fails_and_the_engine_stays(either):  # noqa: F811
    load(either, LoadRequest())
    race(either, Race((), Request((("user", "x"),))))
    assert until(either, Failed)[-1].kind == "usage"
    race(either, ask("refuse"))
    lane, problem = until(either, Failed)[-1].message.split(": ")
    assert lane in ("autoregressive", "pld") and problem == "the prompt is too long"
    race(either, ask("hello"))
    assert until(either, RaceFinished)[-1].reason == "done"
