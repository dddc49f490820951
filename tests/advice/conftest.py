"""Races without the sweep before each run, which takes longer than all of the made-up ones; a final of one repeat."""

from __future__ import annotations

import pytest

from engines.advice import adviser


@pytest.fixture(autouse=True)
def quick(monkeypatch, no_sweeps):
    monkeypatch.setattr(adviser, "REPEATS", 1)
