"""The arithmetic: by task and overall, against our baseline and against generate, of what was cut short."""

from __future__ import annotations

import pytest

from engines.bench.hf_generate import generate_lanes
from engines.methods import specs
from engines.race.lanes import Lane, parse_lanes
from engines.race.token_times import TokenTimes
from tests.bench.made import LANES, pace, standings

AUTO, PLD, REST, GENERATE, LOOKUP = range(5)


def steady(lane, repeat, prompt):
    """Ten tokens in a second, times what the lane is faster; the second repeat of everybody takes twice as long."""
    faster = {AUTO: 1, PLD: 4 if prompt == 0 else 1, REST: 2, GENERATE: 0.5, LOOKUP: 1}[lane]
    return pace(10, (1 + repeat) / faster, rounds={PLD: 5, LOOKUP: 4}.get(lane, 10))


def test_ratios_are_taken_within_a_repeat():
    found = standings(steady)
    overall = found.by_task()
    assert overall[AUTO].rates == (10.0, 5.0) and overall[AUTO].speed_ups == ()
    assert overall[REST].rates == (20.0, 10.0) and overall[REST].speed_ups == (2.0, 2.0)
    # all answers together: 30 tokens in 1/4 + 1 + 1 seconds, not a mean of ratios
    assert overall[PLD].speed_ups == pytest.approx((3 / 2.25, 3 / 2.25))
    assert found.ratio(AUTO, GENERATE).median == 2 and found.ratio(AUTO, GENERATE).samples == 2
    assert found.ratio(PLD, found.counterpart(PLD)).median == pytest.approx(3 / 2.25)


def test_tasks_have_their_own():
    found = standings(steady)
    assert found.tasks == ["copy", "chat"]
    assert found.by_task("copy")[PLD].speed_up.median == 4 and found.by_task("chat")[PLD].speed_up.median == 1
    assert found.ratio(PLD, LOOKUP, "copy").median == 4 and found.ratio(PLD, LOOKUP, "chat").median == 1


def test_a_whole_run_has_its_prefill():
    found = standings(lambda lane, repeat, prompt: pace(10, 1.0, first=1, first_seconds=1.0 if lane == AUTO else 4.0))
    assert found.ratio(AUTO, GENERATE).median == 1
    assert found.ratio(AUTO, GENERATE, whole=True).median == pytest.approx(5 / 2)
    assert found.by_task()[AUTO].ttft == 1.0 and found.by_task()[GENERATE].ttft == 4.0


def test_peers_are_those_of_the_same_method():
    found = standings(steady)
    assert (found.own, found.generate_lanes) == ([AUTO, PLD, REST], [GENERATE, LOOKUP])
    assert [found.counterpart(lane) for lane in found.own] == [GENERATE, LOOKUP, None]
    assert found.plain_generate == GENERATE and found.ratio(REST, found.counterpart(REST)) is None
    assert found.length(PLD) == 2 and found.length(LOOKUP) == 2.5 and found.length(AUTO) == 1
    assert [peer.engine for peer in generate_lanes(parse_lanes(["rest,draft:shape=tree,draft"]))] == [
        "generate", "generate+assistant"
    ]
    assert {spec.id for spec in specs() if spec.generate} == {"autoregressive", "pld", "draft"}


def test_means_are_over_prompts_and_not_over_rounds():
    found = standings(lambda lane, repeat, prompt: pace(10, 1.0, rounds=(2, 5, 5)[prompt] + repeat))
    rest = found.by_task()[REST]
    assert rest.over_prompts.calls == pytest.approx((2.5 + 5.5 + 5.5) / 3)
    assert rest.over_prompts.path_acceptance == 0.5 and rest.over_prompts.accepted_length == 1
    assert found.by_task("copy")[REST].over_prompts.calls == 2.5
    assert found.by_task()[AUTO].over_prompts.path_acceptance is None  # it drafts nothing


def test_a_repeat_counts_once_it_is_complete():
    cut = standings(lambda lane, repeat, prompt: None if (repeat, prompt) == (1, 2) else steady(lane, repeat, prompt))
    assert cut.counted == {0, 1, 2} and cut.by_task()[AUTO].rates == (10.0,)
    assert cut.by_task("copy")[AUTO].rates == (10.0, 5.0) and len(cut.by_task("chat")[REST].speed_ups) == 1


def test_before_the_first_is_complete_what_all_answered_counts():
    cut = standings(
        lambda lane, repeat, prompt: steady(lane, repeat, prompt) if repeat == 0 and prompt + (lane > 2) < 2 else None,
        reason="cancelled",
    )
    assert cut.counted == {0} and cut.tasks == ["copy"]
    assert cut.by_task()[PLD].speed_ups == (4.0,) and cut.ratio(PLD, LOOKUP).median == 4
    assert standings(lambda *where: None).counted == frozenset()


def test_a_lane_that_broke_keeps_its_repeats_and_does_not_hold_the_others_up():
    found = standings(steady, breaks={REST: 1})
    assert found.by_task()[REST].rates == (20.0,)
    assert found.by_task()[PLD].rates == pytest.approx((30 / 2.25, 15 / 2.25))
    assert standings(steady, breaks={REST: 0}).counted == {0, 1, 2}


def test_token_times_add_up():
    runs = TokenTimes(1, 1.0, 4, 2.0, 2), TokenTimes(3, 1.0, 2, 1.0, 1)
    assert TokenTimes.total(runs) == TokenTimes(4, 2.0, 6, 3.0, 3)
    assert TokenTimes(1, 1.0, 0, 0.0, 0).rate is None and TokenTimes(1, 1.0, 0, 0.0, 0).length is None
    assert TokenTimes(2, 1.0, 6, 3.0, 3).rate == 2 and TokenTimes(2, 1.0, 6, 3.0, 3).whole == 2


def test_a_peer_is_a_lane_without_options():
    peers = generate_lanes([Lane("pld")])
    assert [peer.label for peer in peers] == ["generate", "generate+lookup"] and LANES[3:] == peers
    for peer in peers:
        peer.check()
