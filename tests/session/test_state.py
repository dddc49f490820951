"""The fold: what a screen shows follows from the events, from nothing else, and costs what the event brings."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.report.events import Audited, Failed, Finished, Loading, Prefilled, Round, Started
from engines.report.metrics import measure
from engines.report.run_state import (
    MISSING,
    Log,
    RunState,
    best_path,
    first_difference,
    fold,
    fold_all,
    ghosts,
    rate_now,
    rates,
)
from engines.report.wording import context_tail, rows_before
from engines.request import Request
from tests.tui.fakes import ANSWER, script

texts = st.text(alphabet="ab \n(é漢🙂", min_size=1, max_size=120)


def run_of(text: str = ANSWER, engine: str = "draft", seed: int = 1, limit: int = 256):
    return script(Request((("user", "hello there"),), engine=engine, max_new_tokens=limit), text, seed)


@settings(max_examples=60)
@given(texts, st.integers(0, 99), st.sampled_from(["draft", "autoregressive"]))
def test_text_of_the_fold_is_the_answer(text, seed, engine):
    events = run_of(text, engine, seed)
    state = fold_all(events)
    assert state.text == events[-1].text
    assert [t.emitted.token for t in state.tokens] == [
        e.token for x in events for e in ([x.first] if isinstance(x, Prefilled) else getattr(x, "emitted", ()))
    ]
    assert not state.running and state.finished is events[-1]


@settings(max_examples=40)
@given(texts, st.integers(0, 99))
def test_folding_is_deterministic_and_leaves_earlier_states_alone(text, seed):
    events = run_of(text, seed=seed)
    states = [RunState()]
    for event in events:
        states.append(fold(states[-1], event))
    lengths = [(len(s.tokens), len(s.rounds), s.text) for s in states]
    again = fold_all(events)
    assert again == states[-1]
    assert [(len(s.tokens), len(s.rounds), s.text) for s in states] == lengths
    assert states[-1].metrics == measure(events)


def test_a_state_can_be_gone_on_from_twice():
    events = run_of()
    middle = fold_all(events[:6])
    one = fold_all(events[6:10], middle)
    other = fold_all(events[6:8], middle)
    assert other == fold_all(events[:8]) and one == fold_all(events[:10])


def test_rounds_and_tokens_belong_together():
    state = fold_all(run_of())
    for index, event in enumerate(state.rounds):
        tokens = state.tokens_of(index)
        assert [t.emitted for t in tokens] == list(event.emitted)
        assert all(t.round == index for t in tokens)
        root = state.root_of(index)
        assert root is state.tokens[state.starts[index] - 1]
    assert state.tokens[0].round == -1 and state.tokens[0].source == "target"


def test_started_begins_anew_and_loading_changes_nothing():
    events = run_of()
    state = fold_all(events)
    assert fold(state, Loading("x")) is state
    new = fold(state, events[0])
    assert isinstance(events[0], Started) and not new.tokens and new.running
    failed = fold(new, Failed("the context is full", "start a new conversation"))
    assert failed.failed.message == "the context is full" and not failed.running


@settings(max_examples=40)
@given(texts, st.integers(1, 60))
def test_rates_keep_every_token(text, bins):
    state = fold_all(run_of(text))
    series = rates(state, bins)
    expected = len(state.tokens) - 1
    if not state.rounds:
        assert series == []
    else:
        assert sum(series) * state.clock[-1] / bins == pytest.approx(expected)
        assert len(series) == bins and min(series) >= 0


def test_rate_now_looks_at_the_last_half_second():
    state = fold_all(run_of(ANSWER * 20, limit=2000))
    assert state.clock[-1] > 1
    assert rate_now(state) == pytest.approx(state.metrics.tokens_per_second, rel=0.5)
    assert rate_now(RunState()) is None


def test_ghosts_are_the_favourite_path_after_the_accepted_part():
    events = run_of()
    for stop in range(3, len(events)):
        state = fold_all(events[:stop])
        last = state.rounds[-1]
        words = ghosts(state)
        assert len(words) <= 4
        if words:
            start = last.path[-1] if last.path else -1
            assert words == [last.draft.pieces[n] for n in best_path(last.draft, start)][:4]
            assert not set(best_path(last.draft, start)) & set(last.path)
    assert ghosts(fold_all(events)) == []  # over: nothing is shown behind the text


def test_an_audit_belongs_to_its_run_and_changes_nothing_else():
    events = run_of()
    state = fold_all(events)
    found = Audited("identical", None, None, 1e-5, 1e-6, len(state.tokens), 0, 0)
    audited = fold(state, found)
    assert audited.audited is found and state.audited is None and replace(audited, audited=None) == state
    assert fold(audited, events[0]).audited is None, "a new answer has none"
    answer = state.answer
    assert answer.tokens == tuple(t.emitted.token for t in state.tokens) and answer.prompt == events[0].prompt
    assert answer.probs == tuple(t.prob for t in state.tokens) and fold_all(events[:1]).answer is None


def test_first_difference():
    a, b = fold_all(run_of()), fold_all(run_of(engine="autoregressive"))
    assert first_difference(a, b) is None
    other = fold_all(run_of(ANSWER.replace("stable", "firm")))
    at = first_difference(a, other)
    assert a.tokens[at].text == " stable" and other.tokens[at].text == " firm"
    short = fold_all(run_of(limit=20))
    assert first_difference(a, short) == first_difference(short, a) == 20, "one ends where the other goes on"
    assert first_difference(a, short, ends=False) is None
    stopped = replace(short, finished=replace(short.finished, reason="cancelled"))
    assert first_difference(a, stopped) is None and first_difference(a, replace(short, finished=None)) is None


def test_baseline_key_is_about_model_and_sampling_only():
    a, b = fold_all(run_of()), fold_all(run_of(engine="autoregressive"))
    assert a.baseline_key == b.baseline_key is not None
    assert RunState().baseline_key is None


def test_log_is_a_sequence_that_shares_and_forks():
    a = Log([1, 2])
    b, c = a.extended([3]), a.extended([4, 5])
    assert list(a) == [1, 2] and list(b) == [1, 2, 3] and list(c) == [1, 2, 4, 5]
    assert b[-1] == 3 and b[1:] == [2, 3] and b == Log([1, 2, 3])
    with pytest.raises(IndexError):
        a[2]


def test_folding_is_linear():
    """Twice the rounds take about twice the memory, all states of a run together: storage is shared, not copied."""
    events = [e for e in run_of(ANSWER * 40, limit=10**6) if isinstance(e, Round)]

    def taken(count: int) -> int:
        states = [fold(RunState(), run_of()[0])]
        tracemalloc.start()
        try:
            for event in events[:count]:
                states.append(fold(states[-1], event))
            assert len(states[-1].rounds) == count
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    assert len(events) > 500 and taken(len(events)) < 2.5 * taken(len(events) // 2)


def test_cancelled_text_comes_from_the_tokens():
    events = run_of()
    state = fold_all([*events[:5], Finished("cancelled", (), "")])
    assert state.text and ANSWER.startswith(state.text)


def test_after_a_missing_round_nothing_is_taken_from_before_it():
    events = run_of()
    lost = next(event for event in events if isinstance(event, Round) and event.index == 3)
    whole, state = fold_all(events), fold_all(event for event in events if event is not lost)
    assert [state.missing_before(index) for index in range(4)] == [False, False, True, False]
    assert state.root_of(2) is None and rows_before(state, 3) is None
    assert state.root_of(3).emitted == whole.root_of(4).emitted and rows_before(state, 4) == rows_before(whole, 5)
    before, _, after = state.text.partition(MISSING)
    assert before == "".join(token.text for token in whole.tokens[: whole.starts[2]])
    assert after == "".join(token.text for token in whole.tokens[whole.starts[3] :])
    assert context_tail(state, state.rounds[2].position, 9) == [MISSING]
    assert context_tail(state, state.rounds[3].position, 99) == [MISSING, *(e.piece for e in state.rounds[2].emitted)]
    assert context_tail(whole, whole.rounds[3].position, 1) == [whole.root_of(3).piece]


def test_without_its_prefill_the_first_round_has_no_root():
    state = fold_all(event for event in run_of() if not isinstance(event, Prefilled))
    assert state.root_of(0) is None and rows_before(state, 1) is None and state.text.startswith(MISSING)
