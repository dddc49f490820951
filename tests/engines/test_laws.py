"""The laws, proven: rejection and block by enumerating every outcome, exact by comparing with plain decoding."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines import methods
from engines.core.lossless_laws import Exact, Rejection
from engines.core.sampling import Sampling, softmax, to_numpy
from engines.core.tree import DraftTree
from engines.errors import RunFailed
from engines.laws.block_verification import BlockVerification
from engines.laws.lossy_laws import Redraw, Typical
from engines.methods.drafter import Drafter, Resources
from engines.model.favourites import COUNT
from engines.model.native import loaded, native_code
from engines.randomness import GumbelNoise, SeededRng
from engines.report.recorder import summarise
from tests.engines.toys import (
    Scripted,
    ToyModel,
    answer,
    autoregressive,
    chain,
    enumerate_outcomes,
    random_tree,
)
from tests.tiers import some

PROMPT = [0, 1, 2, 0, 1]


def target_distribution(
    model: ToyModel, sampling: Sampling, new: int, end=frozenset(), prompt=PROMPT
) -> dict[tuple, float]:
    """Probability of every answer, by multiplying the target's own conditionals."""
    out: dict[tuple, float] = {(): 1.0}
    for _ in range(new):
        step: dict[tuple, float] = {}
        for text, weight in out.items():
            if text and text[-1] in end:
                step[text] = weight
                continue
            probs = sampling.probs(sampling.row(to_numpy(model.logits_after([*prompt, *text])))).tolist()
            step |= {(*text, token): weight * p for token, p in enumerate(probs) if p > 0}
        out = step
    return out


def engine(name: str, law: Rejection, draft: ToyModel, **options) -> Drafter:
    spec = methods.find(name)
    resources = Resources(law=law, vocab_size=draft.vocab_size, draft_model=draft, available=(methods.DRAFT_MODEL,))
    return spec.load_drafter()(resources, **spec.parse(options))


PICKED = {
    "pld": ("pld", {"num_tokens": 2, "num_candidates": 3}),
    "suffix": ("suffix", {"num_tokens": 4, "min_prob": 0}),
    "recycling": ("recycling", {"nodes": 5, "depth": 2}),
    "draft chain": ("draft", {"num_tokens": 2, "confidence": 0.0}),
    "draft chain that stops early": ("draft", {"num_tokens": 3, "stop": "top", "confidence": 0.45}),
    "draft chain that stops by entropy": ("draft", {"num_tokens": 3, "stop": "entropy", "confidence": 0.65}),
    "draft chain that stops by its path": ("draft", {"num_tokens": 3, "stop": "cumulative", "confidence": 0.4}),
    "draft tree": ("draft", {"shape": "tree", "depth": 2, "top_k": 2, "total_nodes": 4}),
    "independent": ("draft", {"shape": "tree", "draw": "independent", "depth": 2, "top_k": 2}),
    "independent cut by nodes": ("draft", {"shape": "tree", "draw": "independent", "top_k": 2, "total_nodes": 2}),
    "distinct": ("draft", {"shape": "tree", "draw": "distinct", "depth": 2, "top_k": 2}),
    "rasd": ("rasd", {"retrieval": "pld", "depth": 2, "top_k": 2, "length": 2}),
    "rasd apart": ("rasd", {"retrieval": "pld", "fuse": False, "depth": 1, "top_k": 2, "length": 2}),
    "distinct cut by nodes": ("draft", {"shape": "tree", "draw": "distinct", "top_k": 3, "total_nodes": 4}),
}


def drafting() -> dict[str, tuple[str, dict]]:
    """Those above, and all other methods that draft from nothing but the text."""
    listed = {engine for engine, _ in PICKED.values()}
    return PICKED | {spec.id: (spec.id, {}) for spec in methods.specs() if spec.id not in listed
                     and not (spec.needs or spec.searches or spec.self_speculative)}


ENGINES = drafting()


@pytest.mark.parametrize("sampling", some(
    [Sampling(1.0), Sampling(0.7, top_p=0.8), Sampling(1.3, top_k=2), Sampling(0.0)], lambda s: s.top_p == 0.8
))
@pytest.mark.parametrize("name", ENGINES)
def test_rejection_gives_exactly_the_targets_distribution(name, sampling):
    assert error_of(Rejection, name, sampling) < 1e-9


CHAINS = ["draft chain", *(name for name in ENGINES if name.startswith("draft chain that"))]


def error_of(law_class: type[Rejection], name: str, sampling: Sampling) -> float:
    """The largest error of a text's probability."""
    target, draft = ToyModel(3, seed=1), ToyModel(3, seed=2, spread=1.0)
    engine_id, options = ENGINES[name]

    def run(dice: SeededRng) -> tuple:
        target.truncate(0)
        draft.truncate(0)
        law = law_class(sampling, 0, dice)
        return answer(target, engine(engine_id, law, draft, **options), law, PROMPT, 4)

    outcomes, expected = enumerate_outcomes(run), target_distribution(target, sampling, 4)
    assert sum(outcomes.values()) == pytest.approx(1)
    return max(abs(outcomes.get(text, 0.0) - expected.get(text, 0.0)) for text in outcomes.keys() | expected.keys())


@pytest.mark.parametrize("sampling", [Sampling(1.0), Sampling(0.7, top_p=0.8), Sampling(0.0)])
@pytest.mark.parametrize("name", [*CHAINS, "pld", "distinct cut by nodes"])
def test_block_gives_exactly_the_targets_distribution(name, sampling):
    """Chains of any end; and copies and trees, which it judges token by token where a round has them."""
    assert error_of(BlockVerification, name, sampling) < 1e-9


class ForgetsTheWeight(BlockVerification):
    """Block verification whose bounds are those of single tokens, though it cuts from the end."""

    def _bounds(self, tree, ps):
        weights, bounds = super()._bounds(tree, ps)
        alone = [min(1.0, ps[n][token] / tree.dists[n - 1][token]) for n, token in enumerate(tree.tokens)]
        return weights, [*bounds[:-1], alone[-1]]


def test_the_weight_of_a_chain_belongs_to_its_bound():
    """Without it the text is biased, and the enumeration sees it."""
    assert error_of(ForgetsTheWeight, "draft chain", Sampling(1.0)) > 0.003


def accepted_of(law_class: type[Rejection], ps: np.ndarray, qs: np.ndarray) -> float:
    """The expected number of accepted tokens of a chain of two, by enumeration: ps [1 + V + V * V, V] by the tokens
    above, qs [1 + V, V] likewise."""
    width = ps.shape[1]

    def run(dice: SeededRng) -> tuple:
        first = dice.draw(qs[0])
        second = dice.draw(qs[1 + first])
        tree = chain([first, second])
        tree.dists = {-1: qs[0], 0: qs[1 + first]}
        rows = np.log(ps[[0, 1 + first, 1 + width + width * first + second]])
        return (len(law_class(Sampling(1.0), 0, dice).judge(tree, torch.from_numpy(rows).float(), 5).path),)

    return sum(count * weight for (count,), weight in enumerate_outcomes(run).items())


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), spread=st.sampled_from([0.3, 1.0, 3.0]))
def test_block_accepts_what_the_theorem_says_and_never_less_than_rejection(seed, spread):
    """Sun et al. 2024, theorem 2: the expected length is the sum of the expected weights."""
    rng = np.random.default_rng(seed)
    ps, qs = rng.dirichlet([spread] * 3, size=13) + 1e-6, rng.dirichlet([spread] * 3, size=4) + 1e-6
    ps, qs = (table / table.sum(axis=1, keepdims=True) for table in (ps, qs))
    first = np.minimum(1, ps[0] / qs[0])
    second = np.minimum(1, first[:, None] * ps[1:4] / qs[1:4])
    block = accepted_of(BlockVerification, ps, qs)
    assert block == pytest.approx(float(qs[0] @ first + qs[0] @ (qs[1:4] * second).sum(axis=1)), abs=1e-5)
    assert block >= accepted_of(Rejection, ps, qs) - 1e-6


def test_a_block_is_tried_from_its_end_and_its_trials_are_told_in_that_order():
    q, logits = np.full(8, 1 / 8), torch.zeros(6, 8)
    logits[1:, 7] = 9.0  # only the first token of the chain is likely
    tree = DraftTree.chain([1, 2, 3, 4, 5], None, [1 / 8] * 5, dists={parent: q for parent in range(-1, 4)})
    verdict = BlockVerification(Sampling(1.0), 0).judge(tree, logits, 0)
    assert [[(trial.node, trial.accepted) for trial in tried] for tried in verdict.trials] == [
        [(0, True)], [(4, False), (3, False), (2, False), (1, False)]]


def test_block_accepts_more_where_a_token_makes_up_for_another():
    """The example of Sun et al. 2024, section 2: p = (1/3, 2/3), q = (2/3, 1/3) at every place; 11/9 against 10/9."""
    ps, qs = np.tile([1 / 3, 2 / 3], (7, 1)), np.tile([2 / 3, 1 / 3], (3, 1))
    assert accepted_of(Rejection, ps, qs) == pytest.approx(10 / 9, abs=1e-6)
    assert accepted_of(BlockVerification, ps, qs) == pytest.approx(11 / 9, abs=1e-6)


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), nodes=st.integers(0, 6), dists=st.booleans(), duplicates=st.booleans(),
       law_class=st.sampled_from([Rejection, BlockVerification]))
def test_a_drawing_law_is_exact_for_any_tree(seed, nodes, dists, duplicates, law_class):
    """One round over a random tree: point masses, or i.i.d. draws from given distributions with repeats."""
    model, sampling, rng = ToyModel(3, seed=seed), Sampling(1.0), random.Random(seed)
    shape = random_tree(rng, 3, nodes, duplicates)
    qs = np.random.default_rng(seed).dirichlet([1, 1, 1], size=max(len(shape), 1))

    def run(dice: SeededRng) -> tuple:
        tree = DraftTree(list(shape.tokens), shape.parents, shape.probs, shape.origin, shape.origins)
        if dists and len(tree):
            tree.dists = {p: qs[p + 1] for p in tree.parents}
            tree.tokens = [dice.draw(tree.dists[p]) for p in tree.parents]
        model.truncate(0)
        model.extend(PROMPT[:-1])
        logits = model.forward([PROMPT[-1], *tree.tokens], [-1, *(p + 1 for p in tree.parents)])
        return (law_class(sampling, 0, dice).judge(tree, logits, len(PROMPT)).tokens[0],)

    outcomes = enumerate_outcomes(run)
    expected = sampling.probs(sampling.row(to_numpy(model.logits_after(PROMPT)))).tolist()
    for token, p in enumerate(expected):
        assert outcomes.get((token,), 0.0) == pytest.approx(p, abs=1e-9)


def drawn_error(draw: str, seed: int, change=lambda tree: None) -> float:
    """The largest error of a text's probability with drawn siblings of four tokens: with three tokens a rejection often
    leaves one, and then nothing can go wrong."""
    target, draft, sampling = ToyModel(4, seed=seed), ToyModel(4, seed=seed + 1, spread=1.0), Sampling(1.0)

    def run(dice: SeededRng) -> tuple:
        target.truncate(0)
        draft.truncate(0)
        law = Rejection(sampling, 0, dice)
        drafter = engine("draft", law, draft, shape="tree", draw=draw, depth=1, top_k=3)

        def propose(context, room):
            tree = drafter.propose(context, room)
            change(tree)
            return tree

        return answer(target, Scripted(propose), law, PROMPT[:seed % 5 + 1], 3)

    outcomes = enumerate_outcomes(run)
    expected = target_distribution(target, sampling, 3, prompt=PROMPT[:seed % 5 + 1])
    return max(abs(outcomes.get(text, 0.0) - p) for text, p in expected.items())


@pytest.mark.parametrize("draw", some(["independent", "distinct"], lambda draw: draw == "distinct"))
def test_drawn_siblings_must_be_tried_as_they_were_drawn(draw):
    """Repeats of independent draws are tried, and each distinct sibling against a distribution of its own. Without
    either the text is biased, and this test would see it."""

    def wrong(tree: DraftTree) -> None:
        tree.draws, tree.distinct = None, False

    assert max(drawn_error(draw, seed) for seed in (1, 2)) < 1e-9
    assert max(drawn_error(draw, seed, wrong) for seed in (1, 2)) > 0.003


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), draw=st.sampled_from(["independent", "distinct"]))
def test_drawn_trees_on_a_target_that_cannot_branch(seed, draw):
    """Cut to the first draw below each node, whatever the others are: still exact."""
    target, draft, sampling = ToyModel(3, seed=seed), ToyModel(3, seed=seed + 1), Sampling(1.0)
    target.trees = False

    def run(dice: SeededRng) -> tuple:
        target.truncate(0)
        draft.truncate(0)
        law = Rejection(sampling, 0, dice)
        return answer(target, engine("draft", law, draft, shape="tree", draw=draw, top_k=2), law, PROMPT, 3)

    outcomes = enumerate_outcomes(run)
    for text, p in target_distribution(target, sampling, 3).items():
        assert outcomes.get(text, 0.0) == pytest.approx(p, abs=1e-9)


def test_leaving_out_a_low_confidence_draft_would_be_biased():
    """Why a chain keeps the token that ends it: dropping it makes what is drafted depend on the random draw."""
    target, draft, sampling = ToyModel(3, seed=1), ToyModel(3, seed=2), Sampling(1.0)

    def run(dice: SeededRng) -> tuple:
        target.truncate(0)
        law = Rejection(sampling, 0, dice)

        def propose(context, room):
            token, prob, dist = law.suggest(draft.logits_after(context), len(context))
            if prob < 0.5:
                return DraftTree()
            tree = chain([token])
            tree.dists = {-1: dist}
            return tree

        return answer(target, Scripted(propose), law, PROMPT, 3)

    outcomes, expected = enumerate_outcomes(run), target_distribution(target, sampling, 3)
    assert max(abs(outcomes.get(t, 0) - p) for t, p in expected.items()) > 0.01


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**63 - 1), temperature=st.sampled_from([0.0, 0.3, 0.8, 1.5]),
    top_p=st.sampled_from([0.5, 1.0]), top_k=st.sampled_from([0, 3]), model=st.integers(0, 1000),
)
def test_exact_gives_the_autoregressive_text_for_any_tree(seed, temperature, top_p, top_k, model):
    target, sampling, rng = ToyModel(7, seed=model), Sampling(temperature, top_p, top_k), random.Random(model)
    drafter = Scripted(lambda context, room: random_tree(rng, 7, rng.randrange(20)))
    text = answer(target, drafter, Exact(sampling, seed, 7), PROMPT, 25)
    assert text == autoregressive(ToyModel(7, seed=model), PROMPT, 25, sampling, seed)


def test_exact_draws_from_the_targets_distribution():
    """Frequencies over positions, against the softmax, within five standard deviations."""
    logits = torch.tensor([[1.0, 0.2, -0.5, -2.0]])
    law, n = Exact(Sampling(0.9), seed=3, vocab_size=4), 20_000
    counts = torch.zeros(4)
    for position in range(n):
        counts[law.judge(DraftTree(), logits, position).tokens[0]] += 1
    p = (logits[0] / 0.9).softmax(-1)
    assert ((counts / n - p).abs() < 5 * (p * (1 - p) / n).sqrt()).all()


def test_noise_depends_on_seed_and_position_only():
    a, b = GumbelNoise(7, 100), GumbelNoise(7, 100)
    later = [b.at(p) for p in reversed(range(200))][::-1]
    assert all(np.array_equal(a.at(p), later[p]) for p in range(200))
    assert not np.array_equal(a.at(1), a.at(2))
    assert not np.array_equal(a.at(1), GumbelNoise(8, 100).at(1))
    assert np.isfinite(np.stack(later)).all()


def test_no_noise_rules_a_token_out():
    """The largest raw values round to one; the noise stays finite there. A seed and position where one of them is that
    of the only token that the filter leaves."""
    assert -4 < GumbelNoise(4, 262144).at(19)[199257] < -2
    logits = torch.zeros(1, 262144)
    logits[0, 199257] = 50.0
    assert Exact(Sampling(1.0, 1.0, 1), 4, 262144).judge(DraftTree(), logits, 19).tokens == [199257]


def test_a_shared_noise_draft_agrees_more_often_than_independent_draws():
    target, draft = ToyModel(12, seed=1), ToyModel(12, seed=1, spread=1.2)
    law, other = Exact(Sampling(1.0), 5, 12), Exact(Sampling(1.0), 6, 12)
    agree = independent = 0
    for position in range(300):
        context = [position % 12, (position * 7) % 12, (position // 5) % 12]
        wanted = law.judge(DraftTree(), target.logits_after(context)[None], position).tokens[0]
        agree += law.suggest(draft.logits_after(context), position)[0] == wanted
        independent += other.suggest(draft.logits_after(context), position)[0] == wanted
    assert agree > 1.5 * independent


def test_dice_draw_follows_the_distribution_and_never_takes_the_impossible():
    dice, probs = SeededRng(1), np.array([0.0, 0.25, 0.0, 0.75, 0.0])
    drawn = [dice.draw(probs) for _ in range(4000)]
    assert set(drawn) == {1, 3}
    assert drawn.count(3) / 4000 == pytest.approx(0.75, abs=0.04)


ROWS = st.integers(1, 9).flatmap(
    lambda width: st.lists(
        st.lists(st.sampled_from([-math.inf, -2.0, -1.0, 0.0, 0.5, 3.0, 200.0]), min_size=width, max_size=width).filter(
            lambda row: max(row) > -math.inf
        ),
        min_size=1, max_size=5,
    )
)


@pytest.fixture(params=["native", "plain"], scope="module")
def summaries(request):
    """Rows are summarised in native code, or without it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loaded, "code", native_code.library() if request.param == "native" else None)
        yield


@given(rows=ROWS, data=st.data())
def test_summaries_of_many_rows_are_those_of_each(summaries, rows, data):
    """Ties, filtered entries, a single token, more favourites asked for than there are."""
    tokens = [data.draw(st.integers(0, len(row) - 1)) for row in rows]
    arrays = [np.array(row, np.float32) for row in rows]
    looks = summarise(arrays, tokens)
    assert [a.tolist() for a in arrays] == rows, "the rows are not touched"
    for row, token, seen in zip(rows, tokens, looks, strict=True):
        order = sorted((i for i, value in enumerate(row) if value > -math.inf), key=lambda i: -row[i])
        weights = [math.exp(value - max(row)) for value in row]
        probs = [weight / sum(weights) for weight in weights]
        assert [t for t, _ in seen.top] == order[:COUNT]
        assert [p for _, p in seen.top] == pytest.approx([probs[i] for i in order[:COUNT]], rel=1e-5)
        assert seen.prob == pytest.approx(probs[token], rel=1e-5)
        ranked = sorted(row, reverse=True)
        assert seen.lead == (ranked[0] - ranked[1] if len(row) > 1 else 0.0)


@pytest.mark.parametrize("width", [130, 4099, 50_001])
@pytest.mark.parametrize("filtered", [0.0, 0.9, 0.9999])
def test_summaries_of_wide_rows(summaries, width, filtered):
    """Rows of several vectors and some numbers more, with ties."""
    rng = np.random.default_rng(width)
    row = rng.normal(0, 5, width).round(1).astype(np.float32)
    row[rng.random(width) < filtered] = -np.inf
    row[:2] = 1.0, 2.0
    (seen,) = summarise([row], [7])
    order, probs = np.argsort(-row, kind="stable")[:COUNT], softmax(row)
    order = order[row[order] > -np.inf]
    assert [t for t, _ in seen.top] == order.tolist()
    assert [p for _, p in seen.top] == pytest.approx(probs[order].tolist(), rel=1e-5)
    assert seen.prob == pytest.approx(probs[7], rel=1e-5)
    assert seen.lead == row[order[0]] - row[order[1]]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("law", [
    lambda sampling, seed: Exact(sampling, seed, 3), Rejection, BlockVerification, Redraw, Typical])
def test_rows_that_are_no_numbers_are_refused(law, temperature, value):
    with pytest.raises(RunFailed, match="not numbers"):
        law(Sampling(temperature), 0).judge(DraftTree(), torch.full((1, 3), value), 0)


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), temperature=st.sampled_from([0.0, 0.8]), top_k=st.sampled_from([0, 2]),
       vocab=st.integers(1, 5), nodes=st.integers(0, 12), duplicates=st.booleans())
def test_the_exact_verdict_is_the_plain_walk(seed, temperature, top_k, vocab, nodes, duplicates):
    """Row by row, with nothing but sorted lists: path, tokens, gaps, noise."""
    rng = random.Random(seed)
    tree, sampling = random_tree(rng, vocab, nodes, duplicates), Sampling(temperature, top_k=top_k)
    logits = torch.tensor([[rng.choice([-1.0, 0.0, 1.0, 2.5]) for _ in range(vocab)] for _ in range(1 + len(tree))])
    verdict = Exact(sampling, seed, vocab).judge(tree, logits, 10)
    node, noise = -1, GumbelNoise(seed, vocab)
    for step, token in enumerate(verdict.tokens):
        row = sampling.row(logits[node + 1].numpy())
        drawn = np.zeros(vocab, np.float32) if sampling.greedy else noise.at(10 + step)
        ranked = sorted(range(vocab), key=lambda i: -(row + drawn)[i])
        assert token == ranked[0]
        gap = verdict.gaps[step] if verdict.gaps else summarise([row], [token])[0].lead
        assert gap == (float((row + drawn)[token] - (row + drawn)[ranked[1]]) if vocab > 1 else 0.0)
        assert sampling.greedy or verdict.noise[step] == drawn[token]
        same = [i for i in range(len(tree)) if tree.parents[i] == node and tree.tokens[i] == token]
        assert bool(same) == (step < len(verdict.path)), "it goes on as long as a child carries the token"
        assert not same or verdict.path[step] in (same if duplicates else same[:1])
        node = verdict.path[step] if same else node
    assert len(verdict.tokens) == len(verdict.path) + 1
