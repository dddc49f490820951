"""The one judgement on speeds: faster, no difference, slower, or none, and why."""

from __future__ import annotations

import pytest

from engines.race.interval import MedianInterval
from spec_tui.present.speed_verdict import Speed, judged, of_interval
from spec_tui.present.tables import or_dash


@pytest.mark.parametrize(("ratio", "noise", "m", "speed", "words"), [
    (1.42, 0.05, 2.0, Speed.FASTER, "1.42x faster (±0.05)"),
    (0.98, 0.04, 2.0, Speed.SAME, "no difference (0.98x ±0.04)"),
    (1.03, 0.04, None, Speed.SAME, "no difference (1.03x ±0.04)"),
    (1.56, 0.68, None, Speed.SAME, "too noisy to tell (1.56x ±0.68)"),
    (0.8, 0.04, 1.0, Speed.SLOWER, "slower (0.80x ±0.04)"),
    (1.42, 0.05, 1.29, Speed.IMPOSSIBLE, "wrong baseline"),
    (1.31, 0.05, 1.29, Speed.FASTER, "1.31x faster (±0.05)"),  # within the noise of M
    (1.42, None, 2.0, Speed.UNMEASURED, "1.42x, noise unknown"),
    (None, None, 2.0, Speed.UNMEASURED, "speed-up not measured"),
])
def test_the_verdict(ratio, noise, m, speed, words):
    found = judged(ratio, noise, m)
    assert found.speed is speed and found.words == words
    assert bool(found.reason) == (speed not in (Speed.FASTER, Speed.SAME, Speed.SLOWER))


def test_a_table_tells_no_difference_from_what_noise_hides():
    assert judged(None, None).brief == or_dash(None, str), "the dash of the other cells"
    assert [judged(ratio, noise).brief for ratio, noise in ((0.98, 0.04), (1.56, 0.68), (1.42, 0.05))] == [
        "≈ 0.98x", "1.56x?", "1.42x"]
    assert judged(1.56, 0.68).mark not in ("≈", "✓")


def test_an_interval_that_holds_1_is_no_difference():
    assert of_interval(MedianInterval.of([1.02, 0.99, 1.01, 1.03, 0.98, 1.04])).speed is Speed.SAME
    assert of_interval(MedianInterval.of([1.5, 1.49, 1.51, 1.5, 1.52, 1.48])).words == "1.50x faster (±0.02)"
    assert of_interval(MedianInterval.of([1.5, 1.3, 1.4, 1.45, 1.4, 1.1])).words == "1.40x faster (1.10..1.50)"
    assert of_interval(MedianInterval.of([1.0, 1.56])).words == "2 repeats are too few to tell (1.28x, 0.07..21.08)"
    assert of_interval(MedianInterval.of([1.5])).speed is Speed.UNMEASURED  # a single repeat
    assert of_interval(None).speed is Speed.UNMEASURED
