"""Ranks and speed-ups of a race: one judgement, so that neither contradicts the other."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from engines.race.lanes import Race, parse_lanes
from engines.race.race_events import RaceStarted
from engines.race.result import RaceResult
from engines.race.runner import race
from engines.report.events import Round, Started
from engines.report.run_state import fold_all
from engines.request import Request
from spec_tui.present.race_text import notes, ranks, ratio_meaning, speed_up, verdict, verdict_sentences
from spec_tui.present.speed_verdict import Speed, of_interval
from tests.race.fakes import VirtualRacer
from tests.tui.fakes import script

LANES = parse_lanes(["autoregressive,pld,rest,hybrid"])
LABELS = tuple(lane.label for lane in LANES)


class MadeRace(RaceResult):
    """A race whose lanes have these tokens/s in their repeats."""

    def __init__(self, *made: tuple[float, ...]) -> None:
        super().__init__()
        self.made = made
        self.started = RaceStarted(LANES[: len(made)], 1, max(map(len, made)), 0)

    def rates(self, lane, prompts):
        return dict(enumerate(self.made[lane]))


def test_lanes_that_noise_does_not_tell_apart_tie():
    found = MadeRace((100, 104, 98), (103, 101, 100), (151, 149, 150), (50, 51, 49))
    assert ranks(found) == {2: (1, False), 0: (2, True), 1: (2, True), 3: (4, False)}
    assert [verdict(f, 0).speed for f in found.figures()] == [Speed.BASELINE, Speed.SAME, Speed.FASTER, Speed.SLOWER]
    said = list(verdict_sentences(found.figures(), LABELS, 0))
    assert said[0].startswith("pld against autoregressive: no difference (")
    assert "1.51x faster (" in said[1] and "slower (0.50x, 0.48..0.51)" in said[2]


def test_what_moves_all_lanes_alike_is_no_noise():
    """The machine slows down from repeat to repeat: speeds overlap, and yet one lane wins every repeat."""
    found = MadeRace((100, 80, 60), (110, 88, 66))
    assert verdict(found.figures()[1], 0).speed is Speed.FASTER and ranks(found) == {1: (1, False), 0: (2, False)}


def test_two_repeats_that_agree_by_chance_tell_nothing_small():
    found = MadeRace((100, 100), (98, 97.9), (90, 86), (162, 168))
    judged = [verdict(f, 0) for f in found.figures()[1:]]
    assert [each.speed for each in judged] == [Speed.SAME, Speed.SAME, Speed.FASTER]
    assert judged[0].words == "no difference (0.98x ±0.03)"
    assert judged[1].words == "2 repeats are too few to tell (0.88x, 0.66..1.17)"
    assert ranks(found) == {3: (1, False), 0: (2, True), 1: (2, True), 2: (2, True)}


def test_single_runs_are_ranked_and_not_judged():
    found = MadeRace((100,), (102,), (150,))
    assert ranks(found) == {2: (1, False), 1: (2, True), 0: (2, True)}
    assert verdict(found.figures()[2], 0).speed is Speed.UNMEASURED
    assert not list(verdict_sentences(found.figures(), LABELS, 0))
    assert verdict(found.figures()[2], 0).words == "1.50x, noise unknown"


def test_more_than_the_tokens_of_a_step_is_no_speed_up():
    found = MadeRace((10, 10, 10), (50, 51, 49))
    plain, fast = found.figures()
    assert verdict(fast, 0).speed is Speed.FASTER  # where M is not known
    two = replace(fast, metrics=fold_all(script(Request((("user", "x"),), "draft"), "one two three " * 9)).metrics)
    assert 1 < two.metrics.mean_generated_length < 4.9 and verdict(two, 0).speed is Speed.IMPOSSIBLE
    (said,) = verdict_sentences([plain, two], LABELS, 0)
    assert "wrong baseline" in said and "a step gives only" in said and "race again" in said
    assert verdict(replace(two, same_program=False), 0).speed is Speed.FASTER  # another program's pass may take less


def test_a_lane_whose_answer_came_all_at_once_has_no_speed():
    class OneLate(VirtualRacer):
        def run(self, request, cancelled=lambda: False, progress=lambda event: None):
            for event in super().run(request, cancelled, progress):
                late = {Started: {"arrival": True}, Round: {"verify_seconds": 1e-6}}.get(type(event), {})
                yield replace(event, **late if request.engine == "pld" else {})

    asked, found = Race(LANES[:2], Request((("user", "x"),)), repeats=2), RaceResult()
    for event in race(OneLate(), asked):
        found.add(event)
    plain, late = found.figures()
    assert plain.rate and (late.rate, speed_up(late, 0), ranks(found)) == (None, "-", {0: (1, False)})
    said = notes(found, asked.labels)
    assert any(note.startswith("pld: the answer came all at once") for note in said)
    assert not any("faster" in note for note in said)


def test_without_a_baseline_there_is_no_verdict():
    found = MadeRace((), (10, 11))
    (said,) = verdict_sentences(found.figures(), LABELS, 0)
    assert said == "autoregressive has no measured speed, so no speed-up over it is known"


@given(st.lists(st.tuples(*[st.floats(50, 100)] * 3), min_size=2, max_size=4))
def test_no_rank_contradicts_a_verdict(rates):
    found = MadeRace(*rates)
    places, figures = ranks(found), found.figures()
    for one in range(len(rates)):
        for other in range(len(rates)):
            judged = of_interval(found.over(one, other)) if one != other else None
            ahead = figures[one].rate.median > figures[other].rate.median
            if judged is not None and judged.speed is Speed.FASTER and ahead:
                assert places[one][0] < places[other][0]
            if judged is not None:  # the judgement is the same from the other side
                opposite = {Speed.FASTER: Speed.SLOWER, Speed.SLOWER: Speed.FASTER}.get(judged.speed, Speed.SAME)
                assert of_interval(found.over(other, one)).speed is opposite
    assert sorted(rank for rank, _ in places.values())[0] == 1


def test_speed_ups_that_the_speeds_beside_them_do_not_give_are_explained():
    alone, doubled, uneven = (390, 314, 310), (780, 628, 620), (379, 200, 600)
    assert ratio_meaning(MadeRace(alone, doubled).figures(), 0) == ""
    assert "median of the repeats' own ratios" in ratio_meaning(MadeRace(alone, doubled, uneven).figures(), 0)
