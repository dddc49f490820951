"""The number of threads follows what else the machine does, on a clock of our own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.cost.curve import CostCurve
from engines.model.thread_governor import ThreadGovernor

PRICE = CostCurve(((1, 0.010), (8, 0.016)))


class Machine:
    """Two cores; ``busy`` says when a neighbour has one of them. All takes ``times`` as long as the price says."""

    def __init__(self, busy, threads: int = 2, times: float = 1.0, price: CostCurve = PRICE) -> None:
        self.now, self.busy, self.threads, self.times, self.price = 0.0, busy, threads, times, price
        self.governor = ThreadGovernor(price.at, threads, self.use, lambda: self.now)

    def use(self, threads: int) -> None:
        self.threads = threads

    def forward(self, rows: int = 1) -> None:
        seconds = self.price.at(rows) * (1.4 if self.threads == 1 else 2.5 if self.busy(self.now) else 1.0) * self.times
        self.now += seconds
        self.governor.record(rows, seconds)

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
    assert machine.threads == 2 == machine.governor.threads


def test_a_hiccup_changes_nothing():
    machine = Machine(lambda now: int(now * 10) % 10 == 0 and int(now * 100) % 10 < 2)
    machine.until(5)
    assert machine.threads == 2


@pytest.mark.parametrize("forward", [0.003, 0.010])
@pytest.mark.parametrize("frame", [0.02, 0.06, 0.12])
def test_the_frames_of_a_screen_change_nothing(frame, forward):
    machine = Machine(lambda now: now % 0.3 < frame, price=CostCurve(((1, forward), (8, 2 * forward))))
    used = set()
    while machine.now < 5:
        machine.forward()
        used.add(machine.threads)
    assert used == {2}


@pytest.mark.parametrize("forward", [0.01, 0.05, 0.3, 2.0])
@pytest.mark.parametrize(("busy", "times", "best"), [(True, 1.0, 1), (False, 1.9, 2)])
def test_trials_take_a_small_share_of_the_time(forward, busy, times, best):
    machine, spent = Machine(lambda now: busy, 2, times, CostCurve(((1, forward), (8, 2 * forward)))), {1: 0.0, 2: 0.0}
    while machine.now < 2000 * forward:
        threads, before = machine.threads, machine.now
        machine.forward()
        spent[threads] += machine.now - before
    assert spent[3 - best] < 0.13 * machine.now
    assert spent[3 - best] > 0, "it does try"


def test_where_everything_is_slow_all_threads_stay():
    machine, used = Machine(lambda now: False), []
    for _ in range(300):
        machine.now += 0.05
        machine.governor.record(1, 0.05 if machine.threads == 2 else 0.09)
        used.append(machine.threads)
    assert used.count(1) < 0.13 * len(used), "but for its trials"


def test_the_end_of_a_run_gives_the_threads_back():
    machine = Machine(lambda now: True)
    machine.until(1)
    assert machine.threads == 1
    machine.governor.restore()
    assert machine.threads == 2 == machine.governor.threads


@given(st.lists(st.floats(1e-4, 10), max_size=60))
def test_one_thread_is_never_touched(times):
    def use(threads):
        raise AssertionError

    governor = ThreadGovernor(PRICE.at, 1, use)
    for seconds in times:
        governor.record(1, seconds)
    governor.restore()
