"""The loop against drafters that mean harm, on a table-driven model: the text never changes, the events add up."""

from __future__ import annotations

import pytest
import torch

from engines import Metrics
from engines.core.lossless_laws import Exact, Rejection
from engines.core.outcome import Stop
from engines.core.sampling import Sampling
from engines.core.tree import DraftTree
from engines.errors import RunFailed
from engines.methods.drafter import Drafter, Resources
from engines.report.events import Finished, Prefilled, Round
from engines.report.recorder import record
from tests.engines.toys import Scripted, ToyModel, Words, adversaries, answer, autoregressive, chain

PROMPT, NEW, VOCAB, END = [3, 1, 4, 1, 5], 40, 6, 2
NAMES = list(adversaries(ToyModel(VOCAB), [], 0, END))


@pytest.mark.parametrize("end", [frozenset(), frozenset({END})], ids=["length", "end token"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", NAMES)
def test_an_adversary_never_changes_the_text(name, temperature, end):
    for seed in range(4):
        model, sampling = ToyModel(VOCAB, seed=seed), Sampling(temperature)
        truth = autoregressive(model, PROMPT, NEW, sampling, seed, end)
        drafter = adversaries(model, truth, len(PROMPT), END)[name]
        assert answer(model, drafter, Exact(sampling, seed, VOCAB), PROMPT, NEW, end) == truth


@pytest.mark.parametrize("name", NAMES)
def test_greedy_rejection_is_the_greedy_text(name):
    model = ToyModel(VOCAB, seed=3)
    truth = autoregressive(model, PROMPT, NEW)
    drafter = adversaries(model, truth, len(PROMPT), END)[name]
    assert answer(model, drafter, Rejection(Sampling(), 1), PROMPT, NEW) == truth


@pytest.mark.parametrize("name", NAMES)
def test_events_add_up(name):
    model = ToyModel(VOCAB, seed=1)
    truth = autoregressive(model, PROMPT, NEW, end={END})
    drafter = adversaries(model, truth, len(PROMPT), END)[name]
    stop = Stop(frozenset({END}), NEW)
    events = list(record(model, drafter, Exact(Sampling(), 0, VOCAB), PROMPT, stop, Words()))
    prefilled, *rounds, finished = events
    assert isinstance(prefilled, Prefilled) and isinstance(finished, Finished)
    emitted = [prefilled.first, *(e for r in rounds for e in r.emitted)]
    assert tuple(e.token for e in emitted) == finished.tokens == truth
    assert "".join(e.text for e in emitted) == finished.text
    position = len(PROMPT) + 1
    for index, event in enumerate(rounds, start=1):
        check_round(event, index, position)
        position += len(event.emitted)
    assert sum(Metrics().add(e).accepted for e in rounds) == sum(e.kind == "accepted" for e in emitted)


def check_round(event: Round, index: int, position: int) -> None:
    assert (event.index, event.position) == (index, position)
    carried = [e.node for e in event.emitted if e.node >= 0]
    assert carried == list(event.path)
    parent = -1
    for emitted, node in zip(event.emitted, event.path):
        assert emitted.kind == "accepted" and event.draft.tokens[node] == emitted.token
        assert event.draft.parents[node] == parent
        parent = node
    if len(event.emitted) > len(event.path):
        last = event.emitted[-1]
        children = [t for t, p in zip(event.draft.tokens, event.draft.parents) if p == parent]
        assert last.kind == ("target" if not event.draft.tokens else "corrected" if children else "bonus")
        assert last.token not in children


def test_oracle_needs_the_fewest_forwards():
    model = ToyModel(VOCAB, seed=2)
    truth = autoregressive(model, PROMPT, NEW)
    drafter = adversaries(model, truth, len(PROMPT), END)["oracle"]
    stop = Stop(frozenset(), NEW)
    events = record(model, drafter, Exact(Sampling(), 0, VOCAB), PROMPT, stop, Words())
    rounds = [e for e in events if isinstance(e, Round)]
    assert len(rounds) == 4  # 39 tokens, 10 a round
    assert all(e.kind == "accepted" for r in rounds for e in r.emitted[:-1])


def test_autoregressive_is_one_token_a_forward():
    model = ToyModel(VOCAB)
    law = Exact(Sampling(), 0, VOCAB)
    drafter, stop = Drafter(Resources(law=law, vocab_size=VOCAB)), Stop(frozenset(), 12)
    *events, finished = record(model, drafter, law, PROMPT, stop, Words())
    metrics = Metrics()
    for event in events:
        metrics = metrics.add(event)
    assert metrics.mean_generated_length == 1 and metrics.acceptance_rate is None and metrics.tau == 0
    assert {e.kind for r in events[1:] for e in r.emitted} == {"target"}
    assert finished.reason == "length"


def test_one_new_token_needs_no_round():
    model = ToyModel(VOCAB)
    drafter, law = Scripted(lambda c, r: chain([1])), Exact(Sampling(), 0, VOCAB)
    events = list(record(model, drafter, law, PROMPT, Stop(frozenset(), 1), Words()))
    assert [type(e) for e in events] == [Prefilled, Finished]


@pytest.mark.parametrize(("token", "parent"), [(1, 0), (99, -1), (-1, -1), (1, -2)])
def test_a_broken_tree_is_a_clear_error(token, parent):
    tree = DraftTree([token], [parent], [None], [0])
    with pytest.raises(RunFailed, match=r"the engine failed: (.*draft tree|TypeError)"):
        answer(ToyModel(VOCAB), Scripted(lambda c, r: tree), Exact(Sampling(), 0, VOCAB), PROMPT, 9)


@pytest.mark.parametrize(
    "error, named", [(KeyError("missing"), "KeyError: 'missing'"), (SystemExit(3), "SystemExit: 3")])
@pytest.mark.parametrize("step", ["start", "draft", "learn"])
def test_a_drafter_that_fails_is_named_for_what_it_is(step, error, named):
    def fail(*_):
        raise error

    line = fail.__code__.co_firstlineno + 1

    drafter = Scripted(lambda c, r: chain([1]))
    setattr(drafter, step, fail)
    with pytest.raises(RunFailed, match=rf"^the engine failed: {named} \(engines/test_loop\.py:{line}\)$"):
        answer(ToyModel(VOCAB), drafter, Exact(Sampling(), 0, VOCAB), PROMPT, 9)
    with pytest.raises(RunFailed, match=r"the engine failed: (.*draft tree|TypeError)"):
        answer(ToyModel(VOCAB), Scripted(lambda c, r: chain(["a"])), Exact(Sampling(), 0, VOCAB), PROMPT, 9)


def test_logits_that_are_not_numbers_are_a_clear_error():
    model = ToyModel(VOCAB)
    model.logits_after = lambda context: torch.full((VOCAB,), float("nan"))
    for law in (Exact(Sampling(), 0, VOCAB), Exact(Sampling(0.8), 0, VOCAB), Rejection(Sampling(), 0)):
        with pytest.raises(RunFailed, match="not numbers"):
            answer(model, Scripted(lambda c, r: chain([1])), law, PROMPT, 9)


def test_cancel_keeps_what_was_emitted():
    model = ToyModel(VOCAB, seed=4)
    polls = iter([False] * 5 + [True] * 9)
    stop, law = Stop(frozenset(), NEW), Exact(Sampling(), 0, VOCAB)
    *_, finished = record(model, Scripted(lambda c, r: chain([1, 2])), law, PROMPT, stop, Words(), lambda: next(polls))
    assert finished.reason == "cancelled"
    assert 1 < len(finished.tokens) < NEW
    assert finished.tokens == autoregressive(model, PROMPT, NEW)[: len(finished.tokens)]


def test_a_model_that_cannot_branch_gets_first_paths_only():
    model = ToyModel(VOCAB, seed=5)
    truth = autoregressive(model, PROMPT, NEW)
    model.trees = False
    drafter = adversaries(model, truth, len(PROMPT), END)["random trees"]
    stop = Stop(frozenset(), NEW)
    *rounds, finished = record(model, drafter, Exact(Sampling(), 0, VOCAB), PROMPT, stop, Words())
    assert finished.tokens == truth
    for event in rounds[1:]:
        assert list(event.draft.parents) == list(range(-1, len(event.draft.parents) - 1))


def fails(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("does, said", [
    (lambda outcome: outcome.context.append(1), "changed the outcome"),
    (lambda outcome: outcome.context.__setitem__(0, 5), "changed the outcome"),
    (lambda outcome: outcome.verdict.tokens.clear(), "changed the outcome"),
    (lambda outcome: setattr(outcome, "reason", "stop"), "changed the outcome"),
    (lambda outcome: fails(GeneratorExit()), "GeneratorExit"),
])
@pytest.mark.parametrize("when", ["start", "follow"])
def test_a_drafter_that_writes_to_what_it_is_told_ends_the_run(when, does, said):
    kind = type("Forger", (Drafter,), {when: lambda self, outcome: does(outcome), "__module__": __name__})
    with pytest.raises(RunFailed, match=said):
        answer(ToyModel(VOCAB), kind(Resources(law=None, vocab_size=VOCAB)), Exact(Sampling(), 0, VOCAB), PROMPT, NEW)
