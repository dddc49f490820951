"""Races of real models: every engine writes the same text, and one that does not is found out."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from engines import specs
from engines.race import runner
from engines.race.lanes import Lane, Race, parse_lanes
from engines.race.result import RaceResult
from engines.race.runner import race
from engines.report.events import Finished, Round, Started
from engines.request import Request
from spec_tui.present.race_text import pairs_summary
from tests.conftest import TURN


@pytest.fixture(autouse=True)
def quick(monkeypatch, no_sweeps):
    """With a short warm-up."""
    monkeypatch.setattr(runner, "WARM_UP", 2)


def hold(racer, asked: Race) -> RaceResult:
    result = RaceResult()
    for event in race(racer, asked):
        result.add(event)
    return result


def every_engine() -> tuple[Lane, ...]:
    return (*(Lane(spec.id) for spec in specs()), Lane("draft", {"shape": "tree"}))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_all_engines_write_the_same_text(tiny, temperature):
    request = Request(TURN, temperature=temperature, seed=5, max_new_tokens=16, datastores=("tiny-texts",))
    asked = Race(every_engine(), request)
    result = hold(tiny, asked)
    assert result.finished.reason == "done" and len(result.complete) == len(asked.lanes)
    assert {pair.verdict for pair in result.pairs} == {"same"}
    assert pairs_summary(result.pairs, asked.labels) == ["all lanes write the same text"]
    plain, draft = result.figures()[0], result.figures()[asked.lanes.index(Lane("draft"))]
    assert plain.metrics.mean_generated_length == 1 and plain.metrics.drafted == 0 and draft.metrics.drafted > 0
    assert draft.memory > plain.memory > tiny.target.parameters * 4  # float32, and the rows
    assert result.disturbance().other_cores is None or result.disturbance().other_cores >= 0


def timeless(events) -> list:
    """The events of a run without what clocks said."""
    times = {"seconds", "draft_seconds", "verify_seconds", "other_seconds", "note"}
    return [
        replace(event, **{f.name: None for f in fields(event) if f.name in times})
        for event in events if not isinstance(event, Started)
    ]


def test_a_lane_does_what_a_run_alone_does(tiny):
    """Whatever ran before it: the same prefill, drafts, forwards and rows; clocks are tools/bench.py's business."""
    lanes = parse_lanes(["autoregressive,pld:budget=paper,draft:budget=paper,draft:budget=paper:shape=tree"])
    request = Request(TURN, max_new_tokens=24)
    result = hold(tiny, Race(lanes, request, repeats=3))
    for number, lane in enumerate(lanes):
        tiny.forget()
        tiny.forget_acceptance()
        alone = timeless(tiny.run(lane.of(request)))
        assert [timeless(run.state.events) == alone for run in result.of(number)] == [True] * 3


def test_the_sample_model_too(sample):
    request = Request((("user", "Write a Python function that adds two numbers."),), max_new_tokens=16)
    result = hold(sample, Race(every_engine(), request))
    assert {pair.verdict for pair in result.pairs} == {"same"} and len(result.complete) == len(every_engine())


class Planted:
    """A runtime whose ``pld`` says another token once: what a broken engine would do."""

    def __init__(self, runtime, at: int) -> None:
        self._runtime, self._at = runtime, at

    def __getattr__(self, name):
        return getattr(self._runtime, name)

    def run(self, request, cancelled=lambda: False, progress=None):
        written = 1
        for event in self._runtime.run(request, cancelled):
            if request.engine == "pld" and isinstance(event, Round):
                here = self._at - written
                written += len(event.emitted)
                if 0 <= here < len(event.emitted):
                    emitted = list(event.emitted)
                    emitted[here] = replace(emitted[here], token=(emitted[here].token + 1) % 260)
                    event = replace(event, emitted=tuple(emitted))
            if request.engine == "pld" and isinstance(event, Finished) and self._at < len(event.tokens):
                tokens = list(event.tokens)
                tokens[self._at] = (tokens[self._at] + 1) % 260
                event = replace(event, tokens=tuple(tokens))
            yield event


def test_a_planted_fault_is_found_and_blamed(tiny):
    asked = Race(parse_lanes(["autoregressive,pld,draft"]), Request(TURN, max_new_tokens=16))
    result = hold(Planted(tiny, at=7), asked)
    assert [(p.first, p.second, p.verdict, p.at, p.bugs) for p in result.pairs] == [
        (0, 1, "BUG", 7, (1,)), (0, 2, "same", None, ()), (1, 2, "BUG", 7, (1,)),
    ]
    assert result.bugs
    said = pairs_summary(result.pairs, asked.labels)
    assert "first at token 8" in said[0] and said[0].endswith("the audit found a BUG in pld")


def test_texts_of_dice_may_differ(tiny):
    request = Request(TURN, law="rejection", temperature=1.0, seed=1, max_new_tokens=40)
    result = hold(tiny, Race(parse_lanes(["autoregressive,draft"]), request))
    assert [pair.verdict for pair in result.pairs] == ["by design"]
    assert "which is allowed" in pairs_summary(result.pairs, ("a", "b"))[0]
