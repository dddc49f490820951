"""The draft engine's proposals, against straightforward re-derivations on a table-driven model."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines import UsageProblem
from engines.core.lossless_laws import Exact, Rejection
from engines.core.outcome import DraftLimits
from engines.core.sampling import Sampling
from engines.core.tree import depths
from engines.methods.draft_model import SPEC
from engines.methods.draft_model.drafter import DraftModel
from engines.methods.drafter import Resources
from engines.randomness import SeededRng
from tests.engines.toys import ToyModel

CONTEXT = [1, 2, 3, 1, 2]
BIG = DraftLimits(1000, 1000)


def drafter(model, law=None, **options) -> DraftModel:
    law = law or Exact(Sampling(), 0, model.vocab_size)
    return DraftModel(Resources(law=law, vocab_size=model.vocab_size, draft_model=model), **SPEC.parse(options))


def log_probs(model, law, context):
    return law.scores(model.logits_after(context)[None], len(context)).log_softmax(-1)[0].tolist()


def eagle2(model, law, context, depth, top_k, nodes):
    """The dynamic tree from its definition: {path: path probability} of the kept nodes."""
    everything: dict[tuple, float] = {}
    beam = {(): 0.0}
    for _ in range(depth):
        level = {}
        for path, above in beam.items():
            scores = log_probs(model, law, [*context, *path])
            for token in sorted(range(len(scores)), key=lambda t: -scores[t])[:top_k]:
                level[(*path, token)] = above + scores[token]
        everything |= level
        beam = dict(sorted(level.items(), key=lambda item: -item[1])[:top_k])
    return dict(sorted(everything.items(), key=lambda item: -item[1])[:nodes])


def paths(tree):
    above: list[tuple] = []
    for token, parent in zip(tree.tokens, tree.parents):
        above.append((*(above[parent] if parent >= 0 else ()), token))
    return above


@settings(max_examples=80)
@given(
    seed=st.integers(0, 1000), depth=st.integers(1, 5), top_k=st.integers(1, 5), nodes=st.integers(1, 30),
    temperature=st.sampled_from([0.0, 0.8]),
)
def test_the_tree_is_eagle2s(seed, depth, top_k, nodes, temperature):
    model = ToyModel(8, seed=seed)
    law = Exact(Sampling(temperature), seed, 8)
    tree = drafter(model, law, shape="tree", depth=depth, top_k=top_k, total_nodes=nodes).propose(CONTEXT, BIG)
    expected = eagle2(ToyModel(8, seed=seed), law, CONTEXT, depth, top_k, nodes)
    assert set(paths(tree)) == set(expected)
    for path, prob in zip(paths(tree), tree.probs):
        assert prob == pytest.approx(math.exp(log_probs(model, law, [*CONTEXT, *path[:-1]])[path[-1]]), rel=1e-4)
    tree.check(8)


def test_certain_drafts_tie_and_the_tree_stays_closed_under_parents():
    model = ToyModel(8, spread=400.0)  # probabilities of one: a child scores what its parent scores
    for nodes in range(1, 12):
        tree = drafter(model, shape="tree", depth=4, top_k=4, total_nodes=nodes).propose(CONTEXT, BIG)
        tree.check(8)
        assert len(tree) == nodes


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_chain_is_the_draft_models_own_text_under_the_laws_noise(temperature):
    model, law = ToyModel(8, seed=4), Exact(Sampling(temperature), 3, 8)
    tree = drafter(model, law, num_tokens=7, confidence=0.0).propose(CONTEXT, BIG)
    context = list(CONTEXT)
    for token, prob in zip(tree.tokens, tree.probs):
        scores = log_probs(model, law, context)
        assert token == max(range(8), key=lambda t: scores[t])
        assert prob == pytest.approx(math.exp(scores[token]), rel=1e-4)
        context.append(token)
    assert len(tree) == 7 and tree.dists is None


@settings(max_examples=50)
@given(seed=st.integers(0, 1000), confidence=st.floats(0, 1), temperature=st.sampled_from([0.0, 0.7]))
def test_the_chain_ends_with_the_first_token_below_the_confidence(seed, confidence, temperature):
    law = Rejection(Sampling(temperature), seed)

    def entropy(model, context) -> float:
        q = (model.logits_after(context).double() / (temperature or 1)).softmax(-1)
        return float(-(q * q.log()).sum())

    for rule in ("top", "entropy", "cumulative"):
        model = ToyModel(8, seed=seed)
        tree = drafter(model, law, num_tokens=6, stop=rule, confidence=confidence).propose(CONTEXT, BIG)
        sure = {
            "top": tree.probs, "cumulative": [math.prod(tree.probs[: n + 1]) for n in range(len(tree))],
            "entropy": [1 - math.sqrt(0.15 * entropy(model, [*CONTEXT, *tree.tokens[:n]])) for n in range(len(tree))],
        }[rule]
        assert all(value >= confidence - 1e-4 for value in sure[:-1])
        assert len(tree) == 6 or sure[-1] < confidence + 1e-4


def test_under_rejection_the_chain_hands_over_the_distributions_it_drew_from():
    model = ToyModel(8, seed=1)
    law = Rejection(Sampling(0.7), 0, SeededRng(2))
    tree = drafter(model, law, num_tokens=4, confidence=0.0).propose(CONTEXT, BIG)
    context = list(CONTEXT)
    for token, dist, prob in zip(tree.tokens, tree.dists.values(), tree.probs):
        expected = (model.logits_after(context) / 0.7).softmax(-1)
        assert dist.tolist() == pytest.approx(expected.tolist(), abs=1e-6)
        assert prob == pytest.approx(float(expected[token]), rel=1e-4)
        context.append(token)


def test_filters_apply_to_the_draft_too():
    law = Rejection(Sampling(1.0, top_k=2), 0, SeededRng(2))
    tree = drafter(ToyModel(8, seed=1), law, num_tokens=4, confidence=0.0).propose(CONTEXT, BIG)
    assert all(int((dist > 0).sum()) == 2 for dist in tree.dists.values())
    law = Exact(Sampling(1.0, top_k=2), 0, 8)
    tree = drafter(ToyModel(8, seed=1), law, shape="tree", top_k=5, depth=1).propose(CONTEXT, BIG)
    assert len(tree) == 2, "what the target can never choose is not drafted"


def test_feeds_only_what_its_cache_lacks():
    model = ToyModel(8, seed=2)
    fed: list[int] = []
    extend = model.extend
    model.extend = lambda tokens, *a: (fed.append(len(tokens)), extend(tokens, *a))[1]
    engine = drafter(model, num_tokens=4, confidence=0.0)
    tree = engine.propose(CONTEXT, BIG)
    fed.clear()
    engine.propose([*CONTEXT, *tree.tokens[:2], 7], BIG)  # two accepted, then a correction
    assert fed[0] == 1
    fed.clear()
    everything = [*CONTEXT, *tree.tokens[:2], 7, 7, 7]
    engine.propose(everything, BIG)
    assert fed[0] <= 3


def test_room_and_the_draft_models_own_context_bound_the_draft():
    for options in ({"confidence": 0.0}, {"shape": "tree"}):
        model = ToyModel(8, seed=2, context_limit=len(CONTEXT) + 2)
        tree = drafter(model, **options).propose(CONTEXT, BIG)
        assert max(depths(tree.parents)) == 2
        assert len(drafter(ToyModel(8), **options).propose(CONTEXT, DraftLimits(0, 9))) == 0
        assert len(drafter(ToyModel(8), **options).propose(CONTEXT, DraftLimits(9, 3))) <= 3


def test_nothing_is_drafted_past_an_end_token():
    model, law = ToyModel(8, seed=4), Exact(Sampling(), 0, 8)
    free = drafter(ToyModel(8, seed=4), num_tokens=6, confidence=0.0).propose(CONTEXT, BIG)
    end = free.tokens[2]
    for options in ({"num_tokens": 6, "confidence": 0.0}, {"shape": "tree", "total_nodes": 60}):
        resources = Resources(law=law, vocab_size=8, draft_model=model, end_tokens=frozenset({end}))
        tree = DraftModel(resources, **SPEC.parse(options)).propose(CONTEXT, BIG)
        assert end in tree.tokens and len(tree.ending_at(frozenset({end}))) == len(tree)


def test_without_a_draft_model_the_error_says_what_to_give():
    with pytest.raises(UsageProblem, match="needs a draft model"):
        DraftModel(Resources(law=None, vocab_size=8), **SPEC.parse({}))
