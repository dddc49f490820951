"""Races without the sweep before each run, which takes longer than all of the made-up ones; a final of one repeat."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from engines.advice import adviser
from engines.race import runner


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(runner, "gc", SimpleNamespace(collect=lambda: None))
    monkeypatch.setattr(adviser, "REPEATS", 1)
