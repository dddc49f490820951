"""Threads and layout are measured once on this machine, and again where what was kept says nothing."""

from __future__ import annotations

import pytest
import torch

from engines.model import kept_tuning, tuning
from engines.model.tuning import Cost
from tests.conftest import make_llama

MODEL = make_llama(1)


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Four cores on which two threads and transposed layers are best: what is measured, and what else is running."""
    monkeypatch.setenv("SPEC_TUI_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(tuning, "_replaced", {})
    now, measured, others = [4], [], [0.0]

    def measure(model, threads, *_):
        measured.append(threads)
        return Cost({1: 2.0, 2: 1.0, 4: 1.0}[threads], {"plain": 1.0, "transposed": 0.5})

    monkeypatch.setattr(torch, "get_num_threads", lambda: now[-1])
    monkeypatch.setattr(torch, "set_num_threads", now.append)
    monkeypatch.setattr(tuning, "measure", measure)
    monkeypatch.setattr(kept_tuning.OtherLoad, "cores", lambda self: others[0])
    return measured, others, now, tmp_path / "tunings"


def test_it_is_measured_once(machine):
    measured, _, now, _ = machine
    assert kept_tuning.tune_once(MODEL) == "transposed" and measured == [1, 2, 4] and now[-1] == 2
    now.append(4)
    assert kept_tuning.tune_once(MODEL) == "transposed" and measured == [1, 2, 4] and now[-1] == 2
    kept_tuning.tune_once(make_llama(1, layers=3))
    assert len(measured) == 6, "another model is measured"


def test_a_forward_to_be_timed_is_made_only_where_it_is_measured(machine):
    made = []
    for _ in range(2):
        kept_tuning.tune_once(MODEL, row=lambda: made.append(True))
    assert made == [True]


@pytest.mark.parametrize("busy", [1.0, None])
def test_how_many_threads_is_not_kept_of_a_busy_machine(machine, busy):
    measured, others, *_ = machine
    others[0] = busy
    kept_tuning.tune_once(MODEL)
    kept_tuning.tune_once(MODEL)
    assert measured == [1, 2, 4, 1, 2, 4]
    for _ in range(2):
        kept_tuning.tune_once(MODEL, threads=2)
    assert measured[6:] == [2], "the layout for a given number is"


@pytest.mark.parametrize("damage", [
    "", "{}", "[]", '{"threads": 2}', '{"threads": 400, "layout": "plain"}', '{"threads": 0, "layout": "plain"}',
    '{"threads": 2, "layout": "../plain"}', "[" * 100_000,
])
def test_a_damaged_file_is_measured_anew(machine, damage):
    measured, _, _, folder = machine
    kept_tuning.tune_once(MODEL)
    (file,) = folder.iterdir()
    file.write_text(damage)
    assert kept_tuning.tune_once(MODEL) == "transposed" and measured == [1, 2, 4] * 2
