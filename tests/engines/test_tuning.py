"""The number of threads is measured once on this machine, and again where what was kept says nothing."""

from __future__ import annotations

import pytest
import torch

from engines.model import tuning
from tests.conftest import make_llama

MODEL = make_llama(1)


@pytest.fixture
def four(monkeypatch):
    """Four cores, and all numbers of threads that torch was told."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(tuning, "_replaced", {})
    now = [4]
    monkeypatch.setattr(torch, "get_num_threads", lambda: now[-1])
    monkeypatch.setattr(torch, "set_num_threads", now.append)
    return now


@pytest.fixture
def machine(four, monkeypatch, tmp_path):
    """Of them two are best: what is measured, and what else is running."""
    monkeypatch.setenv("SPEC_TUI_CACHE_DIR", str(tmp_path))
    now, measured, others = four, [], [0.0]

    def measure(forward, threads):
        measured.append(threads)
        return {1: 2.0, 2: 1.0, 4: 1.0}[threads]

    monkeypatch.setattr(tuning, "measure", measure)
    monkeypatch.setattr(tuning.OtherLoad, "cores", lambda self: others[0])
    return measured, others, now, tmp_path / "tunings"


def tune(model=MODEL, forward=lambda: None, threads=None) -> None:
    tuning.tune_once(model, forward, ["native"], threads)


def test_tuning_takes_what_it_measured(four, monkeypatch):
    costs = {1: 4.0, 2: 3.7, 4: 1.0}
    monkeypatch.setattr(tuning, "measure", lambda forward, threads: costs[threads])

    def tuned(threads=None):
        tuning.tune(lambda rows: None, threads)
        return four[-1]

    assert tuned() == 1, "3.7 is not a tenth below 4: no need to try 4 threads"
    costs |= {2: 3.0, 4: 2.9}
    assert tuned() == 2, "3 is, 2.9 is not a tenth below that"
    costs |= {n: 0.02 / n**0.5 for n in (1, 2, 4)}
    assert tuned(-1) == 2, "a core is left to others"
    costs |= {n: 0.2 / n**0.5 for n in (1, 2, 4)}
    assert tuned(-3) == 4, "not where a forward is long"
    costs |= {n: 0.02 / n for n in (1, 2, 4)}
    assert tuned(-1) == 4, "nor where they gain much"


def test_a_later_model_may_have_all_threads(four, monkeypatch):
    now = four
    monkeypatch.setattr(tuning, "measure", lambda forward, threads: forward(threads))
    small, large = (lambda threads: 1.0), (lambda threads: 1 / threads)
    measured, chosen = tuning.tune, tuning.use_threads
    for set_threads, of, expected in (
        (measured, small, 1), (chosen, 1, 1), (measured, large, 4), (chosen, 2, 2), (measured, large, 4),
    ):
        set_threads(of)
        assert now[-1] == expected
    now.append(3)  # by someone else
    tuning.tune(large)
    assert now[-1] == 3


def test_where_a_second_thread_does_not_pay_a_later_model_may_still_have_all(four, monkeypatch):
    clock, costs = [0.0], {1: 1.0, 2: 0.95, 4: 0.1}
    monkeypatch.setattr(tuning, "perf_counter", lambda: clock[0])

    def forward(rows):
        clock[0] += costs[four[-1]]

    tuning.tune(forward)
    assert four[-1] == 1 and tuning.own_threads() == 4, "4 threads were not tried"
    costs[2] = 0.2
    tuning.tune(forward)
    assert four[-1] == 4


def test_it_is_measured_once(machine):
    measured, _, now, _ = machine
    tune()
    assert measured == [1, 2, 4] and now[-1] == 2
    now.append(4)
    tune()
    assert measured == [1, 2, 4] and now[-1] == 2
    tune(make_llama(1, layers=3))
    assert len(measured) == 6, "another model is measured"


def test_a_forward_to_be_timed_is_made_only_where_it_is_measured(machine):
    made = []
    for _ in range(2):
        tune(forward=lambda: made.append(True))
    assert made == [True]


@pytest.mark.parametrize("busy", [1.0, None])
def test_it_is_not_kept_of_a_busy_machine(machine, busy):
    measured, others, *_ = machine
    others[0] = busy
    tune()
    tune()
    assert measured == [1, 2, 4, 1, 2, 4]


@pytest.mark.parametrize(("threads", "environment", "expected"), [
    (1, {}, 1), (3, {}, 3), (4, {}, 4), (None, {"OMP_NUM_THREADS": "4"}, 4), (-1, {"OMP_NUM_THREADS": "4"}, 4),
])
def test_a_number_that_is_given_is_not_measured(machine, monkeypatch, threads, environment, expected):
    measured, _, now, folder = machine
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    tune(threads=threads, forward=lambda: pytest.fail("nothing is to be timed"))
    assert not measured and now[-1] == expected and not folder.exists()


@pytest.mark.parametrize("damage", ["", "{}", "[]", "400", "0", "true", "2.0", '"2"', "[" * 100_000])
def test_a_damaged_file_is_measured_anew(machine, damage):
    measured, _, now, folder = machine
    tune()
    (file,) = folder.iterdir()
    file.write_text(damage)
    tune()
    assert measured == [1, 2, 4] * 2 and now[-1] == 2


def test_a_long_forward_is_not_repeated_for_seconds(monkeypatch):
    clock, sent = [0.0], []

    def forward(rows):
        sent.append(rows)
        clock[0] += 1.0

    monkeypatch.setattr(tuning, "perf_counter", lambda: clock[0])
    before = torch.get_num_threads()
    try:
        assert tuning.measure(forward, 1) == 1.0 and sent == [1, 8, 1, 8]
    finally:
        torch.set_num_threads(before)
