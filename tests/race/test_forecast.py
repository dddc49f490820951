"""How long a race takes is known before it begins, and one that is not asked for ends soon."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.race.forecast import expected_seconds
from engines.race.lanes import Lane
from engines.report.events import Ready
from spec_tui.session.settings import ChatSettings
from spec_tui.tui.race_controller import RaceSetup

READY = Ready("m", "float32", "cpu", 10, 100, 512, True)
LANES = tuple(Lane(engine) for engine in ("autoregressive", "pld", "draft", "recycling", "suffix"))


def test_a_race_takes_a_pass_for_each_token_and_those_of_the_prompt():
    ready = replace(READY, price=((1, 0.1), (64, 0.64)))
    prefill = 10 * 0.01
    assert expected_seconds(6, 2, 10, 100, ready) == pytest.approx(6 * (prefill + 100 * 0.1) + 2 * (prefill + 32 * 0.1))
    assert expected_seconds(6, 2, 10, 100, READY) is None is expected_seconds(6, 2, 10, 100, None)


@pytest.mark.parametrize(("pass_of_one", "repeats", "most"), [
    (0.0036, 3, 256),  # smollm2
    (0.063, 3, 64),  # Qwen2.5-Coder 1.5B
    (0.3, 1, 32),
])
def test_a_race_to_begin_with_ends_within_a_minute_or_two(pass_of_one, repeats, most):
    ready, settings = replace(READY, price=((1, pass_of_one), (64, 8 * pass_of_one))), ChatSettings()
    setup = RaceSetup(LANES, "Write a function that merges two sorted lists.").short(settings, ready)
    assert (setup.repeats, setup.new_tokens(settings)) == (repeats, most)
    assert setup.race(settings, None).request.max_new_tokens == most
    assert setup.seconds(settings, ready) < 120
