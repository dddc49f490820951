"""How good the advice is, on machines and prompts that are made up: ``simulated.py`` says how."""

from __future__ import annotations

import pytest

from tests.advice.simulated import SimulatedMachine, advised_on


@pytest.fixture(autouse=True)
def repeats(monkeypatch):
    monkeypatch.setattr("engines.advice.adviser.REPEATS", 6)


@pytest.mark.parametrize(("noise", "gain"), [(0.02, 0.5), (0.10, -1.0)])
def test_what_is_advised_is_nearly_the_best_and_never_slower_than_no_drafts(noise, gain):
    found = [advised_on(SimulatedMachine(seed, noise, gain), minutes=2.0) for seed in range(2)]
    assert not any(each.wrong for each in found), "slower than no drafts, called faster"
    assert sum(each.regret for each in found) / len(found) > 0.9
    assert not any(each.missed for each in found if each.best > 1.3)
