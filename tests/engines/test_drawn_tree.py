"""Trees whose nodes dice draw: their shape, what they hand to the law, and that nothing of them can be cut away."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.lossless_laws import Exact, Rejection
from engines.core.outcome import DraftLimits
from engines.core.sampling import Sampling
from engines.core.tree import DraftTree, children, depths
from engines.errors import RunFailed
from engines.laws import make_law
from engines.methods.draft_model import SPEC
from engines.methods.draft_model.drafter import DraftModel
from engines.methods.drafter import Resources
from engines.randomness import SeededRng
from tests.engines.toys import Scripted, ToyModel, answer

CONTEXT = [1, 2, 3, 1, 2]


def drafted(
    draw: str, seed=0, law=None, room=DraftLimits(50, 50), ends=frozenset(), model=None, **options
) -> DraftTree:
    model = model or ToyModel(8, seed=seed)
    law = law or Rejection(Sampling(0.9), 0, SeededRng(seed))
    given = {"shape": "tree", "draw": draw, "depth": 4, "top_k": 3, "total_nodes": 60} | options
    resources = Resources(law=law, vocab_size=8, draft_model=model, end_tokens=ends)
    return DraftModel(resources, **SPEC.parse(given)).propose(CONTEXT, room)


def path_to(tree: DraftTree, node: int) -> list[int]:
    return [*path_to(tree, tree.parents[node]), tree.tokens[node]] if node >= 0 else []


@settings(max_examples=60)
@given(
    draw=st.sampled_from(["independent", "distinct"]), seed=st.integers(0, 1000), depth=st.integers(1, 5),
    top_k=st.integers(1, 6), total_nodes=st.integers(1, 12),
)
def test_drawn_trees_keep_to_their_sizes_and_carry_what_they_were_drawn_from(draw, seed, depth, top_k, total_nodes):
    model = ToyModel(8, seed=seed)
    tree = drafted(draw, seed, depth=depth, top_k=top_k, total_nodes=total_nodes)
    tree.check(8)
    assert 1 <= len(tree) <= total_nodes and max(depths(tree.parents)) <= depth
    for parent, nodes in children(tree.parents).items():
        assert len({tree.tokens[node] for node in nodes}) == len(nodes), "siblings carry distinct tokens"
        q = (model.logits_after([*CONTEXT, *path_to(tree, parent)]) / 0.9).softmax(-1).numpy()
        assert np.allclose(tree.dists[parent], q, atol=1e-6)
        assert [tree.probs[node] for node in nodes] == pytest.approx([q[tree.tokens[node]] for node in nodes], rel=1e-4)
    draws_a_level = Counter()
    for parent, nodes in tree.tries().items():
        draws_a_level[depths(tree.parents)[parent] if parent >= 0 else 0] += len(nodes)
    assert max(draws_a_level.values()) <= top_k and sum(draws_a_level.values()) == tree.note.draws


@given(st.integers(0, 1000))
def test_independent_paths_are_as_many_as_asked_for(seed):
    """A node that was drawn twice is drawn below twice, so every level has top_k draws."""
    tree = drafted("independent", seed, top_k=4, depth=3)
    levels, times = depths(tree.parents), Counter({-1: 4})
    for nodes in tree.draws.values():
        times.update(nodes)
    assert all(len(nodes) == times[parent] for parent, nodes in tree.draws.items())
    assert Counter(levels[n] for nodes in tree.draws.values() for n in nodes) == {1: 4, 2: 4, 3: 4}


@pytest.mark.parametrize("draw", ["independent", "distinct"])
def test_one_draft_forward_a_level(draw):
    model, forwards = ToyModel(8, seed=3), []
    forward = model.forward
    model.forward = lambda tokens, parents: (forwards.append(len(tokens)), forward(tokens, parents))[1]
    tree = drafted(draw, 3, model=model, depth=4)
    levels = Counter(depths(tree.parents))
    assert forwards == [levels[1], levels[2], levels[3]] and tree.note.draft_forwards == 4
    assert model.pending == 0, "the draft model's rows are given back"


@pytest.mark.parametrize("draw", ["independent", "distinct"])
def test_nothing_is_drawn_past_an_end_token_or_the_room(draw):
    for seed in range(20):
        tree = drafted(draw, seed, ends=frozenset({1, 2, 3}))
        assert not any(tree.tokens[parent] in (1, 2, 3) for parent in tree.parents if parent >= 0)
        small = drafted(draw, seed, room=DraftLimits(2, 4))
        assert max(depths(small.parents)) <= 2 and len(small) <= 4


def test_distinct_draws_stop_where_nothing_is_left():
    law = Rejection(Sampling(1.0, top_k=2), 0, SeededRng(1))
    tree = drafted("distinct", 1, law, top_k=5, depth=1)
    assert len(tree) == 2


@pytest.mark.parametrize(
    ("law", "words"),
    [
        (Exact(Sampling(0.9), 0, 8), "by the law's noise"),
        (Exact(Sampling(), 0, 8), "top: nothing to draw"),
        (Rejection(Sampling(), 0), "top: nothing to draw"),
        (make_law("typical", Sampling(0.9), 0, 8), "top: nothing to draw"),
    ],
)
def test_where_nothing_is_drawn_the_tree_says_so(law, words):
    tree, usual = drafted("independent", law=law), drafted("top", law=law)
    assert tree.note.draw == words and tree.dists is None and usual.note.draw is None
    assert (tree.tokens, tree.parents) == (usual.tokens, usual.parents)


def test_some_of_drawn_siblings_cannot_be_cut_away():
    tree = drafted("distinct", 1, depth=2)
    with pytest.raises(ValueError, match="only be left out together"):
        tree.select([0])
    whole = tree.select([n for n, d in enumerate(depths(tree.parents)) if d == 1])
    assert whole.dists.keys() >= {-1} and max(depths(whole.parents)) == 1
    repeats = drafted("independent", 5, depth=3, top_k=6)
    level = repeats.select([n for n, d in enumerate(depths(repeats.parents)) if d == 1])
    assert level.draws == {-1: repeats.draws[-1]}


def test_a_drafter_that_draws_more_than_there_is_room_for_fails_with_a_sentence():
    law = Rejection(Sampling(1.0), 0, SeededRng(1))
    tree = DraftTree([0] * 600, [-1] * 600, [None] * 600, [0] * 600, [None], dists={-1: np.full(3, 1 / 3)})
    with pytest.raises(RunFailed, match="that were drawn can only be left out together"):
        answer(ToyModel(3), Scripted(lambda context, room: tree), law, CONTEXT[:1], 5)


def test_of_drawn_siblings_a_model_that_cannot_branch_gets_the_first():
    tree = drafted("independent", 5, depth=3, top_k=6)
    path = tree.first_path()
    node, expected = -1, []
    while node in tree.draws:
        node = tree.draws[node][0]
        expected.append(tree.tokens[node])
    assert path.tokens == expected and path.draws is None
    assert path.tries() == {parent: [parent + 1] for parent in range(-1, len(path) - 1)}
