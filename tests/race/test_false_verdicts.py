"""Lanes that are equally fast, and one that is not, timed with noise: how often a verdict is wrong, how often right."""

from __future__ import annotations

import random

import pytest

from engines.advice.paired_ratio import PairedRatio
from engines.advice.pass_times import PassTimes
from spec_tui.present.advice_text import judge
from spec_tui.present.race_text import ranks, verdict
from spec_tui.present.speed_verdict import Speed
from tests.race.test_verdicts import MadeRace

RACES, NOISE, MOST = 1500, 0.05, 0.065  # 95% and three standard errors of so many races
REPEATS = (2, 3, 4, 5, 6, 9)
QUIET, BUSY = 0.0, 0.1
"""How many of the runs take 1.5 times as long."""


def a_race(dice: random.Random, repeats: int, busy: float, gain: float = 1.0) -> MadeRace:
    """Two lanes; the noise of their ratio is ``NOISE``. ``gain``: the second one is so many times as fast."""
    def seconds() -> float:
        return dice.lognormvariate(0, NOISE / 2**0.5) * (1.5 if dice.random() < busy else 1)

    return MadeRace(tuple(1 / seconds() for _ in range(repeats)), tuple(gain / seconds() for _ in range(repeats)))


@pytest.mark.parametrize("busy", (QUIET, BUSY))
@pytest.mark.parametrize("repeats", REPEATS)
def test_equal_lanes_are_seldom_told_apart(repeats, busy):
    dice = random.Random(repeats)
    races = [a_race(dice, repeats, busy) for _ in range(RACES)]
    judged = [verdict(race.figures()[1], 0) for race in races]
    assert sum(found.speed is not Speed.SAME for found in judged) / RACES <= MOST
    assert all((found.low <= 1 <= found.high) == (found.speed is Speed.SAME) for found in judged), "as it is printed"
    for race, found in zip(races, judged):
        assert (len(set(ranks(race).values())) == 1) == (found.speed is Speed.SAME), "the rank says the same"


@pytest.mark.parametrize(("repeats", "least"), [*zip(REPEATS, (0.1, 0.4, 0.65, 0.8, 0.8, 0.9))])
def test_a_lane_that_is_faster_by_a_tenth_is_found(repeats, least):
    dice = random.Random(repeats)
    found = [verdict(a_race(dice, repeats, QUIET, 1.1).figures()[1], 0).speed for _ in range(RACES)]
    assert found.count(Speed.FASTER) / RACES >= least and Speed.SLOWER not in found


def test_a_gain_of_half_needs_three_repeats():
    dice = random.Random(3)
    found = [verdict(a_race(dice, 3, QUIET, 1.5).figures()[1], 0).speed for _ in range(RACES)]
    assert found.count(Speed.FASTER) / RACES > 0.95


@pytest.mark.parametrize(("lanes", "runs"), [(2, 2), (2, 4), (4, 3), (4, 8)])
def test_neither_is_an_evaluation_misled(lanes, runs):
    dice, wrong = random.Random(lanes * runs), 0
    for _ in range(RACES):
        took = {lane: {(0, prompt): dice.lognormvariate(0, NOISE) for prompt in range(runs)} for lane in range(lanes)}
        paces = [{key: (100, seconds) for key, seconds in took[lane].items()} for lane in (0, 1)]
        wrong += judge(PairedRatio.of(paces[1], paces[0], PassTimes.of(took).noise)).speed is not Speed.SAME
    assert wrong / RACES <= MOST
