"""Who goes on, how long a round is, what is asked: pure functions on made-up numbers."""

from __future__ import annotations

import random
from dataclasses import replace
from math import exp, log
from statistics import fmean

import pytest

from engines.advice import halving
from engines.advice.halving import AnswerPace, Plan, Stage, plan
from engines.advice.paired_ratio import PairedRatio
from engines.advice.pass_times import PassTimes
from engines.bench.suite import parse


@pytest.mark.parametrize("groups, stages", [
    ("abc", "final"), ("aab", "final"), ("aabb", "settings final"), ("abcd", "methods final"),
    ("aabcd", "methods settings final"),
])
def test_methods_come_first_then_their_settings_and_few_go_straight_to_the_final(groups, stages):
    assert [stage.value for stage in halving.stages(groups)] == stages.split()
    assert [halving.kept(methods) for methods in (2, 5, 10, 22)] == [3, 3, 5, 11]


def test_a_short_time_goes_to_the_likeliest_and_to_answers_that_can_be_judged():
    pace, groups, likeliest = AnswerPace(12.0, 1.0, 256, 12), [*"ddpps", *"rrhh"], "dpsrh"
    plans = {minutes: plan(groups, likeliest, 60 * minutes, pace) for minutes in (1, 5, 6, 20)}
    assert plans[1] == plans[5] == Plan((Stage.FINAL,), tuple("dps"))
    assert plans[6] == Plan((Stage.METHODS, Stage.FINAL), tuple("dpsrh"))
    assert plans[20] == Plan((Stage.METHODS, Stage.SETTINGS, Stage.FINAL), tuple("dpsrh"))
    assert plan(groups, likeliest, 60, None).methods == tuple(likeliest), "what an answer takes is not known"
    fast = replace(pace, rate=300.0, overhead=0.05)
    assert plan(groups, likeliest, 60, fast) == plans[20], "a fast model tries all in a minute"


def test_the_final_gets_half_of_the_time():
    left, taken = 120.0, []
    for number in range(3):
        taken.append(halving.round_seconds(left, number, 3))
        left -= taken[-1]
    assert taken == [30, 30, 60] and halving.round_seconds(50, 0, 1) == 50


def test_the_best_go_on_and_another_method_with_them():
    scores = [1.9, 1.2, 1.8, None, 1.7, 0.9]
    assert halving.survivors(scores, list("aabbcc"), 3) == [0, 2, 4]
    assert halving.survivors(scores, list("aababb"), 3) == [0, 2, 4] == halving.survivors(scores, list("aababa"), 3)
    assert halving.survivors([1.9, 1.8, 1.7, 0.5, 0.9], list("aaabc"), 3) == [0, 1, 4]
    assert halving.survivors([1.9, 1.8], list("aa"), 3) == [0, 1]
    assert halving.survivors([None, None], list("ab"), 1) == []


def test_answers_are_as_long_as_the_time_allows():
    long = halving.answer_length(600, 50.0, 0.0, 4, 20, 256)
    short = halving.answer_length(60, 50.0, 0.0, 20, 20, 256)
    assert long == 256 and short == 32
    fitting = halving.answer_length(120, 50.0, 0.0, 8, 20, 256)
    assert 32 < fitting < 256
    assert halving.answer_length(120, 50.0, 0.5, 8, 20, 256) == pytest.approx(fitting - 25, abs=1), "a prompt is read"
    assert halving.answer_length(1, 50.0, 0.0, 8, 20, 16) == 16
    assert halving.answer_length(9, None, 0.0, 8, 20, 256) == 64


def test_a_sample_is_of_all_kinds():
    names = [*(f"a{n}" for n in range(6)), "b0", "b1"]
    suite = parse("\n".join(f'{{"prompt": "{name}", "category": "{name[0]}"}}' for name in names), "made")
    assert [case.turns[0] for case in halving.spread(suite)][:5] == ["a0", "b0", "a1", "b1", "a2"]
    assert [case.turns[0] for case in halving.sampled(suite, 4).cases] == ["a0", "b0", "a3", "b1"]
    assert len(halving.sampled(suite, 100).cases) == 8 and len(halving.sampled(suite, 1).cases) == 1


def test_a_ratio_knows_how_far_it_can_be_off():
    mine = {(0, n): (10.0, 1.0) for n in range(8)}
    steady = PairedRatio.of(mine, {(0, n): (10.0, 2.0) for n in range(8)})
    assert steady == PairedRatio(2.0, None, 0.0, (2.0,) * 8) and steady.samples == steady.ahead == 8
    seconds = (1.0, 3.0, 1.5, 2.5, 2.0, 2.0, 1.0, 3.0)
    varied = PairedRatio.of(mine, {(0, n): (10.0, s) for n, s in enumerate(seconds)}, noise=0.1)
    assert varied.ratio == pytest.approx(2.0) and 0.5 < varied.spread < 1.0 and varied.ahead == 6
    assert varied.each == tuple(sorted(seconds)) and 2 * 0.1 * (2 / 8) ** 0.5 <= varied.noise < 0.12
    twice = {(r, n): pace for r in range(2) for (_, n), pace in mine.items()}
    assert PairedRatio.of(twice, twice, noise=0.1).noise == pytest.approx(0.1 / 8**0.5), "more runs say more"
    assert PairedRatio.of({(0, 0): (10, 1.0), (1, 0): (10, 1.0)}, {(0, 0): (10, 1.0)}) == PairedRatio(
        1.0, None, None, (1.0,))
    assert PairedRatio.of({}, mine) is None and PairedRatio.of({(0, 0): (0, 0.0)}, mine) is None


def test_the_noise_of_runs_is_told_from_what_lanes_and_turns_have_of_their_own():
    dice, held = random.Random(1), 0
    for _ in range(400):
        turns = {(0, n): dice.gauss(0, 0.3) for n in range(5)}
        scales = {lane: {key: exp(own + turn + dice.gauss(0, 0.05)) for key, turn in turns.items()}
                  for lane, own in enumerate((0.0, 0.4, 0.0))}
        found = PassTimes.of(scales)
        held += abs(dice.gauss(0, 0.05)) <= found.noise
        assert found.own[1] / found.own[0] == pytest.approx(exp(0.4), rel=0.2)
    assert 0.92 < held / 400 < 0.98, "95%"
    still = PassTimes.of({lane: {(0, n): 1.0 for n in range(3)} for lane in range(2)})
    assert still == PassTimes({0: 1.0, 1: 1.0}, 0.0)
    alone = PassTimes.of({0: {(0, 0): 1.0}, 1: {(0, 0): 2.0}})
    assert alone == PassTimes.of({0: {}, 1: {}}) == PassTimes.of({}) == PassTimes() and alone.noise is None


def test_what_cannot_be_told_from_noise_is_not_a_lanes_own():
    dice = random.Random(2)
    scales = {lane: {(0, n): exp(dice.gauss(0, 0.1)) for n in range(6)} for lane in range(20)}
    own = PassTimes.of(scales).own.values()
    raw = [fmean(log(scale) for scale in runs.values()) for runs in scales.values()]
    assert sum(log(value) ** 2 for value in own) < 0.5 * sum(value**2 for value in raw)
