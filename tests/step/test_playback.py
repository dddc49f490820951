"""The clock of playback: it never leaves its ends, and its speed goes step by step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spec_tui.present.playback import SPEEDS, PlaybackClock


@given(st.lists(st.floats(0, 3)), st.sampled_from((*SPEEDS, float("inf"))), st.floats(0, 9))
def test_however_it_ticks_it_stays_within_its_ends(ticks, speed, end):
    clock = PlaybackClock(end, speed=speed)
    assert not clock.tick(1.0) and clock.position == 0
    clock.toggle()
    assert clock.playing is (end > 0)
    before = 0.0
    for seconds in ticks:
        assert clock.tick(seconds) is (before < end)
        assert before <= clock.position <= end and clock.playing is not clock.over
        before = clock.position
    clock.skip()
    assert clock.over and not clock.playing and clock.share == 1
    clock.toggle()
    assert clock.position == 0 and clock.playing is (end > 0)


def test_speeds_go_step_by_step_and_come_back_from_any():
    clock = PlaybackClock(1.0)
    clock.faster(1)
    assert clock.speed == 2
    clock.faster(-2)
    assert clock.speed == 1 / 2
    clock.faster(99)
    assert clock.speed == SPEEDS[-1]
    clock.speed = float("inf")
    clock.faster(1)
    assert clock.speed == float("inf")
    clock.faster(-1)
    assert clock.speed == SPEEDS[-1]
    clock.speed = 3.0
    clock.faster(-1, (0.25, 2.0, 8.0))
    assert clock.speed == 2.0


def test_the_speed_that_was_asked_for_is_a_step_too():
    clock = PlaybackClock(1.0, speed=0.1)
    seen = []
    for step in (-1, 1, 1, 1, -1, -1):
        clock.faster(step)
        seen.append(clock.speed)
    assert seen == [1 / 16, 0.1, 1 / 8, 1 / 4, 1 / 8, 0.1]
    clock = PlaybackClock(1.0, speed=float("inf"))
    clock.faster(-1)
    clock.faster(1)
    assert clock.speed == float("inf"), "all at once, as asked for"
