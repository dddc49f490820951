"""The number of threads follows what else the machine does, on a clock of our own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.cost import CostCurve
from engines.target.crowd import Crowd

PRICE = CostCurve(((1, 0.010), (8, 0.016)))


class Machine:
    """Two cores; ``busy`` says when a neighbour has one of them."""

    def __init__(self, busy, threads: int = 2) -> None:
        self.now, self.busy, self.threads = 0.0, busy, threads
        self.crowd = Crowd(PRICE, threads, self.use, lambda: self.now)

    def use(self, threads: int) -> None:
        self.threads = threads

    def forward(self, rows: int = 1) -> None:
        seconds = PRICE.at(rows) * (1.4 if self.threads == 1 else 2.5 if self.busy(self.now) else 1.0)
        self.now += seconds
        self.crowd.told(rows, seconds)

    def until(self, moment: float, rows: int = 1) -> None:
        while self.now < moment:
            self.forward(rows)


@pytest.mark.parametrize("rows", [1, 8])
def test_a_neighbour_comes_and_goes(rows):
    machine = Machine(lambda now: 1 < now < 6)
    machine.until(1)
    assert machine.threads == 2
    machine.until(1.6, rows)
    assert machine.threads == 1
    spent = {1: 0, 2: 0}
    while machine.now < 6:
        machine.forward(rows)
        spent[machine.threads] += 1
    assert spent[1] > 5 * spent[2], "it looks whether the neighbour is still there, but rarely"
    machine.until(9, rows)
    assert machine.threads == 2 == machine.crowd.using


def test_a_hiccup_changes_nothing():
    machine = Machine(lambda now: int(now * 10) % 10 == 0 and int(now * 100) % 10 < 2)
    machine.until(5)
    assert machine.threads == 2


def test_where_everything_is_slow_all_threads_stay():
    machine = Machine(lambda now: False)
    for _ in range(300):
        machine.now += 0.05
        machine.crowd.told(1, 0.05 if machine.threads == 2 else 0.09)
    assert machine.threads == 2


def test_the_end_of_a_run_gives_the_threads_back():
    machine = Machine(lambda now: True)
    machine.until(1)
    assert machine.threads == 1
    machine.crowd.leave()
    assert machine.threads == 2 == machine.crowd.using


@given(st.lists(st.floats(1e-4, 10), max_size=60))
def test_one_thread_is_never_touched(times):
    def use(threads):
        raise AssertionError

    crowd = Crowd(PRICE, 1, use)
    for seconds in times:
        crowd.told(1, seconds)
    crowd.leave()
