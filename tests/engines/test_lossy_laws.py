"""The two biased laws: what they make of the text and the bias they report, against enumeration and by hand."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.lossless_laws import Exact
from engines.core.outcome import Stop
from engines.core.sampling import Sampling, softmax
from engines.core.tree import DraftTree
from engines.laws import LAWS, make_law
from engines.laws.lossy_laws import DELTA, EPSILON, Redraw, Typical, threshold
from engines.randomness import SeededRng
from engines.report.events import Round
from engines.report.recorder import record
from tests.engines.toys import (
    Scripted,
    ToyModel,
    Words,
    answer,
    autoregressive,
    enumerate_outcomes,
    random_tree,
)

PROMPT = [0, 1, 2, 0, 1]
LOSSY = {"redraw": Redraw, "typical": Typical}


def judged(law_class, tree: DraftTree, logits: torch.Tensor, sampling=Sampling(1.0)):
    """Every outcome of the first token with its probability, and the bias that the law reports."""
    biases = set()

    def run(dice: SeededRng) -> int:
        verdict = law_class(sampling, 0, dice).judge(tree, logits, 0)
        biases.add(round(verdict.bias, 12))
        return verdict.tokens[0]

    outcomes = enumerate_outcomes(run)
    (bias,) = biases  # what the random draw says changes nothing about it
    return outcomes, bias


def logits_of(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows).log()


def distance(outcomes: dict[int, float], p: np.ndarray) -> float:
    return sum(abs(outcomes.get(token, 0.0) - float(q)) for token, q in enumerate(p)) / 2


def flat_tree(tokens: list[int], parents: list[int]) -> DraftTree:
    return DraftTree(tokens, parents, [None] * len(tokens), [0] * len(tokens))


def test_one_redrawn_candidate_of_a_half_comes_out_three_times_of_four():
    outcomes, bias = judged(Redraw, flat_tree([1], [-1]), logits_of([0.5, 0.5], [0.5, 0.5]))
    assert outcomes[1] == pytest.approx(0.75) and bias == pytest.approx(0.25)


def test_three_rows_of_two_tokens_as_in_the_published_code():
    """Rows B, B, C over (.5, .3, .2): (.838, .128, .035)."""
    tree = flat_tree([0, 0, 1], [-1, -1, -1])
    outcomes, bias = judged(Redraw, tree, logits_of(*[[0.5, 0.3, 0.2]] * 4))
    assert [outcomes[t] for t in range(3)] == pytest.approx([0.8375, 0.1275, 0.035], abs=1e-6)
    assert bias == pytest.approx(0.3375, abs=1e-6)


def test_a_node_is_redrawn_once_for_each_path_through_it():
    """B with two leaves below it is drawn twice, so it comes out as two rows B do."""
    tree = flat_tree([0, 1, 0, 1], [-1, -1, 0, 0])
    outcomes, bias = judged(Redraw, tree, logits_of(*[[0.5, 0.3, 0.2]] * 5))
    hits = {n: len([t for t in _trials(tree) if t.node == n]) for n in range(2)}
    assert hits == {0: 2, 1: 1}
    assert bias == pytest.approx(distance(outcomes, np.array([0.5, 0.3, 0.2])))


def _trials(tree: DraftTree):
    return Redraw(Sampling(1.0), 3).judge(tree, logits_of(*[[0.5, 0.3, 0.2]] * 5), 0).trials[0]


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000), nodes=st.integers(0, 6), law=st.sampled_from(list(LOSSY)), duplicates=st.booleans(),
    sampling=st.sampled_from([Sampling(1.0), Sampling(0.6, top_p=0.8), Sampling(1.4, top_k=2), Sampling(0.0)]),
)
def test_the_bias_is_the_distance_that_enumeration_finds(seed, nodes, law, duplicates, sampling):
    tree = random_tree(random.Random(seed), 3, nodes, duplicates)
    logits = torch.randn(nodes + 1, 3, generator=torch.Generator().manual_seed(seed)) * 1.5
    outcomes, bias = judged(LOSSY[law], tree, logits, sampling)
    assert sum(outcomes.values()) == pytest.approx(1)
    p = sampling.probs(sampling.row(logits[0].numpy()))
    assert bias == pytest.approx(distance(outcomes, p), abs=1e-9)
    if sampling.greedy or not nodes:
        assert bias == 0


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), temperature=st.sampled_from([0.5, 1.0, 2.0]))
def test_typical_acceptance_is_its_definition(seed, temperature):
    """Longest path whose every token passes the threshold of its own position, the likelier among equals."""
    tree, sampling = random_tree(random.Random(seed), 5, 12), Sampling(temperature)
    logits = torch.randn(len(tree) + 1, 5, generator=torch.Generator().manual_seed(seed)) * 2
    verdict = Typical(sampling, seed).judge(tree, logits, 0)
    best = (0, 0.0)
    for node in range(len(tree)):
        path, likelihood, at = [], 1.0, node
        while at >= 0:
            p = (logits[tree.parents[at] + 1].double() / temperature).softmax(-1)
            entropy = float(-(p * (p + 1e-5).log()).sum())
            passed = float(p[tree.tokens[at]]) > min(0.09, 0.3 * math.exp(-entropy))
            path, likelihood = [at, *path], likelihood * float(p[tree.tokens[at]]) * passed
            at = tree.parents[at]
        if likelihood:
            best = max(best, (len(path), likelihood))
        if path == verdict.path:
            found = (len(path), likelihood)
    assert (found if verdict.path else (0, 0.0)) == pytest.approx(best)


def test_the_threshold_falls_where_the_target_is_unsure():
    sure, unsure = softmax(np.array([9.0, 0.0, 0.0])), np.full(100, 0.01)
    assert threshold(sure) == EPSILON == 0.09
    assert threshold(unsure) == pytest.approx(DELTA / 100, rel=0.01)


@pytest.mark.parametrize("name", LOSSY)
def test_at_temperature_zero_they_are_greedy_and_say_that_the_bias_is_none(name):
    target, rng = ToyModel(7, seed=3), random.Random(3)
    drafter = Scripted(lambda context, room: random_tree(rng, 7, rng.randrange(20)))
    law = make_law(name, Sampling(), 0, 7)
    events = list(record(target, drafter, law, PROMPT, Stop(frozenset(), 30), Words()))
    assert events[-1].tokens == autoregressive(ToyModel(7, seed=3), PROMPT, 30)
    rounds = [e for e in events if isinstance(e, Round)]
    assert any(r.path for r in rounds) and {r.bias for r in rounds} == {0.0}


@pytest.mark.parametrize("name", LOSSY)
def test_without_a_draft_they_have_no_bias(name):
    model = ToyModel(3, seed=1)
    logits = model.logits_after(PROMPT)[None]
    outcomes, bias = judged(LOSSY[name], DraftTree(), logits)
    assert bias == 0 and distance(outcomes, softmax(logits[0].numpy())) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("name", LOSSY)
def test_their_drafts_are_favourites_and_can_be_repeated(name):
    law = make_law(name, Sampling(0.8), 5, 8)
    logits = ToyModel(8, seed=1).logits_after(PROMPT)
    token, belief, dist = law.suggest(logits, 0)
    assert token == int(logits.argmax()) and dist is None and not law.draws
    assert belief == pytest.approx(float((logits / 0.8).softmax(-1).max()), rel=1e-5)
    drafter = Scripted(lambda context, room: random_tree(random.Random(len(context)), 8, 9))
    texts = {answer(ToyModel(8), drafter, make_law(name, Sampling(0.8), seed, 8), PROMPT, 20) for seed in (1, 1, 2)}
    assert len(texts) == 2


def test_laws_say_whether_they_are_lossless():
    laws = {name: make_law(name, Sampling(1.0), 0, 4) for name in LAWS}
    assert {name for name, spec in LAWS.items() if not spec.lossless} == set(LOSSY)
    assert all(law.name == name for name, law in laws.items())
    verdict = Exact(Sampling(1.0), 0, 2).judge(flat_tree([1], [-1]), logits_of([0.5, 0.5], [0.5, 0.5]), 0)
    assert verdict.bias is None
