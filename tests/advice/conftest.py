"""Races without the sweep before each run, which takes longer than all of the made-up ones."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from engines.race import runner


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(runner, "gc", SimpleNamespace(collect=lambda: None))
