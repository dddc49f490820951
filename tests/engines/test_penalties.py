"""Repetitions penalised: each row for its own path, as transformers does it, and every law keeps what it keeps."""

from __future__ import annotations

import random
from dataclasses import fields

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines import Answer, Request, UsageProblem
from engines.core.lossless_laws import Exact, Rejection
from engines.core.sampling import Sampling, to_numpy
from engines.model.penalties import PenalisedModel, Penalties
from engines.randomness import SeededRng
from engines.report import encoding
from engines.report.events import SAMPLING_FIELDS, Started
from tests.engines.test_laws import ENGINES, PROMPT, engine
from tests.engines.test_lossless import IDS, TURNS, VARIANTS, run
from tests.engines.toys import Scripted, ToyModel, answer, enumerate_outcomes, random_tree
from tests.tiers import first_of_each, some

ALL = [Penalties(1.8), Penalties(0.6), Penalties(no_repeat_ngram_size=3), Penalties(1.4, 2)]
WORDS = [f"penalty {p.repetition_penalty} n-gram {p.no_repeat_ngram_size}" for p in ALL]


def alone(model: ToyModel, penalties: Penalties, text: list[int]) -> torch.Tensor:
    """Logits [vocabulary] after a text, without a loop, a tree or a cache."""
    return penalties.apply(model.logits_after(text)[None], [text])[0]


@pytest.mark.parametrize(
    "penalties, sampling",
    [*zip([*ALL, ALL[-1]], [Sampling(1.0), Sampling(1.2, min_p=0.3)] * 2 + [Sampling(0.0)], strict=True)],
    ids=[*WORDS, WORDS[-1] + ", greedy"],
)
@pytest.mark.parametrize("name", some([*ENGINES], lambda name: name in ("autoregressive", "draft tree", "distinct")))
def test_rejection_gives_exactly_the_penalised_targets_distribution(name, penalties, sampling):
    target, draft = ToyModel(4, seed=1), ToyModel(4, seed=2, spread=1.0)
    engine_id, options = ENGINES[name]

    def one(dice: SeededRng) -> tuple:
        target.truncate(0)
        draft.truncate(0)
        law = Rejection(sampling, 0, dice)
        return answer(penalties.of(target), engine(engine_id, law, penalties.of(draft), **options), law, PROMPT, 3)

    expected: dict[tuple, float] = {(): 1.0}
    for _ in range(3):
        expected = {
            (*text, token): weight * p for text, weight in expected.items() for token, p in enumerate(
                sampling.probs(sampling.row(to_numpy(alone(target, penalties, [*PROMPT, *text]))))) if p > 0
        }
    outcomes = enumerate_outcomes(one)
    for text in outcomes.keys() | expected.keys():
        assert outcomes.get(text, 0.0) == pytest.approx(expected.get(text, 0.0), abs=1e-9), text


@settings(max_examples=60)
@given(seed=st.integers(0, 2**63 - 1), temperature=st.sampled_from([0.0, 0.9]), model=st.integers(0, 1000),
       penalties=st.sampled_from(ALL))
def test_exact_gives_the_penalised_autoregressive_text_for_any_tree(seed, temperature, model, penalties):
    target, sampling, rng = ToyModel(9, seed=model), Sampling(temperature), random.Random(model)
    law = Exact(sampling, seed, 9)
    drafter = Scripted(lambda context, room: random_tree(rng, 9, rng.randrange(20)))
    text = answer(penalties.of(target), drafter, law, PROMPT, 20)
    context = list(PROMPT)
    for token in text:
        assert token == int(law.scores(alone(target, penalties, context)[None], len(context)).argmax())
        context.append(token)


def test_each_row_of_a_tree_is_penalised_for_its_own_path():
    """Siblings, cousins, a second level in a forward of its own, and again after some rows were kept."""
    penalties = Penalties(1.5, 2)
    plain, model = ToyModel(7, seed=3), penalties.of(ToyModel(7, seed=3))
    assert isinstance(model, PenalisedModel)
    text = [1, 2, 3, 1]
    assert torch.equal(model.extend(text), alone(plain, penalties, text))
    rows = [*model.forward([2, 5], [-1, -1]), *model.forward([3, 2, 1], [0, 1, 1])]
    for row, path in zip(rows, ([2], [5], [2, 3], [5, 2], [5, 1]), strict=True):
        assert torch.equal(row, alone(plain, penalties, [*text, *path])), path
    model.keep([1, 4])
    assert torch.equal(model.forward([4], [-1])[0], alone(plain, penalties, [*text, 5, 1, 4]))
    model.drop()
    assert torch.equal(model.forward([6], [-1])[0], alone(plain, penalties, [*text, 5, 1, 6]))


def test_without_penalties_the_model_is_the_model():
    model = ToyModel(3)
    assert Penalties().of(model) is model


@pytest.mark.parametrize("how", [{"repetition_penalty": 1.3}, {"no_repeat_ngram_size": 2},
                                 {"repetition_penalty": 0.8, "no_repeat_ngram_size": 3}], ids=str)
def test_greedy_text_is_that_of_transformers(tiny, how):
    request = Request(TURNS["copy"], "autoregressive", max_new_tokens=60, **how)
    *_, ours = events = list(tiny.run(request))
    prompt = torch.tensor([events[0].prompt])
    with torch.inference_mode():
        theirs = tiny.target.model.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=60, **how)
    assert ours.tokens == tuple(theirs[0, prompt.shape[1]:].tolist())
    assert ours.tokens != run(tiny, "autoregressive", new=60)[0].tokens, "the penalty does something"


@pytest.mark.parametrize("how", [
    {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3},
    {"repetition_penalty": 1.2, "temperature": 0.9, "min_p": 0.05, "seed": 4},
], ids=["greedy", "drawn"])
@pytest.mark.parametrize(("engine", "options"), first_of_each(VARIANTS, IDS))
def test_every_engine_writes_the_penalised_text(tiny, engine, options, how):
    wanted = run(tiny, "autoregressive", **how)[0]
    assert run(tiny, engine, options, **how)[0].tokens == wanted.tokens


@pytest.mark.parametrize("law", ["exact", "rejection"])
@pytest.mark.parametrize("how", [
    {"repetition_penalty": 1.3}, {"no_repeat_ngram_size": 2},
    {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "temperature": 1.1, "min_p": 0.1, "top_k": 20},
], ids=str)
def test_the_audit_judges_by_the_same_penalties(tiny, law, how):
    found = Answer.from_events(tiny.run(Request(TURNS["copy"], "draft", max_new_tokens=60, law=law, **how)))
    assert tiny.audit(found).verdict in ("identical", "consistent")
    plain = Answer(**{f.name: getattr(found, f.name) for f in fields(found) if f.name not in how or "temp" in f.name})
    assert tiny.audit(plain).verdict == "BUG", "without them it is another model's text"


def test_a_start_of_an_older_trace_had_none():
    started = next(iter(encoding.plain(x) for x in [Started(
        engine="pld", options={}, law="exact", temperature=0.0, top_p=1.0, top_k=0, seed=0, max_new_tokens=1,
        model="m", dtype="float32", device="cpu", prompt=(1,))]))
    for name in ("min_p", "repetition_penalty", "no_repeat_ngram_size"):
        del started[name]
    old = encoding.build(Started, started)
    assert [getattr(old, name) for name in SAMPLING_FIELDS] == [0.0, 1.0, 0, 0.0, 1.0, 0]


@pytest.mark.parametrize("wrong", [{"min_p": 1.1}, {"repetition_penalty": 0.0}, {"no_repeat_ngram_size": 1},
                                   {"no_repeat_ngram_size": -2}, {"repetition_penalty": float("nan")}], ids=str)
def test_values_that_cannot_be_are_refused_with_their_range(wrong):
    with pytest.raises(UsageProblem, match="out of range"):
        Request(TURNS["copy"], **wrong).check()
