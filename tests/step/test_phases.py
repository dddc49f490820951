"""The way through a run: every token once, every place reachable both ways, any round without folding."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.report.events import Audited, Finished, Prefilled, Round
from engines.report.run_state import RunState, fold_all
from engines.request import Request
from spec_tui.present.step.nodes import nodes_of, order, unrecorded
from spec_tui.present.step.phases import (
    PHASES,
    StepPosition,
    emits,
    event_of,
    following,
    in_round,
    mask,
    phases_of,
    preceding,
    written,
)
from tests.tui.fakes import ANSWER, script

seeds = st.integers(0, 99)
engines = st.sampled_from(["draft", "autoregressive", "rest"])


def run_of(engine: str = "draft", seed: int = 1, text: str = ANSWER, **kw):
    return script(Request((("user", "hello there"),), engine=engine, **kw), text, seed)


def walk(run: RunState) -> list[StepPosition]:
    places, place = [], StepPosition()
    while place is not None:
        places.append(place)
        place = following(run, place)
    return places


@settings(max_examples=30)
@given(engines, seeds)
def test_the_phases_cover_every_token_once_and_in_order(engine, seed):
    run = fold_all(run_of(engine, seed))
    places = walk(run)
    assert [t for place in places for t in emits(run, place)] == list(run.tokens)
    count = 0
    for place in places:
        count += len(emits(run, place))
        assert written(run, place) == count
    assert places[-1] == StepPosition(len(run.rounds), "keep")


@settings(max_examples=30)
@given(engines, seeds)
def test_backwards_is_forwards(engine, seed):
    run = fold_all(run_of(engine, seed))
    places, back = walk(run), []
    place = places[-1]
    while place is not None:
        back.append(place)
        place = preceding(run, place)
    assert back[::-1] == places
    for place in places:
        assert list(phases_of(run, place.round)) == [p for p in PHASES if p in phases_of(run, place.round)]
        jump = in_round(run, place, place.round + 1)
        assert jump.phase in phases_of(run, jump.round)


@settings(max_examples=40)
@given(engines, seeds, st.data())
def test_any_round_is_what_a_fold_from_the_start_gives(engine, seed, data):
    events = run_of(engine, seed)
    run = fold_all(events)
    number = data.draw(st.integers(0, len(run.rounds)))
    rounds = [event for event in events if isinstance(event, Round)][:number]
    assert run.until(number) == fold_all([events[0], events[1], *rounds])
    assert fold_all(events[2 + number :], run.until(number)) == run  # and it can be gone on from


def test_looking_back_changes_nothing():
    events = run_of()
    run = fold_all(events)
    early = run.until(3)
    changed = fold_all([replace(events[9], index=99)], early)
    assert run == fold_all(events) and changed.rounds[-1].index == 99 and len(early.rounds) == 3


def test_a_run_without_a_beginning_can_be_walked():
    events = [e for e in run_of() if isinstance(e, Round)]
    run = fold_all(events)
    assert [t for place in walk(run) for t in emits(run, place)] == list(run.tokens)
    assert walk(fold_all([]))[0] == StepPosition()


@given(st.lists(st.integers(-1, 30), max_size=30).map(lambda ps: tuple(min(p, i - 1) for i, p in enumerate(ps))))
def test_a_row_sees_its_ancestors_and_itself(parents):
    table = mask(parents)
    for node in range(len(parents)):
        seen, at = {0, node + 1}, node
        while at >= 0:
            seen.add(at + 1)
            at = parents[at]
        assert {column for column, sees in enumerate(table[node + 1]) if sees} == seen
    assert table[0] == [True] + [False] * len(parents)
    reading = order(parents)
    assert sorted(reading) == list(range(len(parents)))
    assert all(parents[n] < 0 or reading.index(parents[n]) < reading.index(n) for n in reading)


@pytest.mark.parametrize("engine", ["draft", "rest"])
def test_fates_of_nodes(engine):
    run = fold_all(run_of(engine))
    for event in run.rounds:
        nodes = nodes_of(event)
        assert [n.index for n in nodes if n.fate == "accepted"] == list(event.path)
        for n in nodes:
            above = event.draft.parents[n.index]
            reached = above < 0 or above in event.path
            assert (n.fate == "unreached") == (not reached)
        assert unrecorded(event) == sum(n.choice is None for n in nodes)


def test_the_events_outside_of_rounds_do_not_count():
    events = run_of()
    assert isinstance(events[1], Prefilled) and isinstance(events[-1], Finished)
    found = Audited("identical", None, None, 0.1, 0.1, 1, 0, 0)
    assert walk(fold_all([*events, found])) == walk(fold_all(events))
    assert event_of(fold_all(events), 0) is None
