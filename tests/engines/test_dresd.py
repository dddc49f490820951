"""DReSD against its definition, on keys of a toy whose hidden states say the last three tokens."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from engines import Request, UsageProblem, measure
from engines.core.outcome import DraftLimits
from engines.core.tree import DraftTree
from engines.methods.drafter import Resources
from engines.methods.dresd import SPEC
from engines.methods.dresd.drafter import _SHARPNESS, DReSD
from engines.report.events import Round
from tests.conftest import TURN
from tests.datastores.test_dense import Toy, by_definition, corpus, dense
from tests.engines.test_rest import Here, paths_of
from tests.engines.toys import outcome, showing


@pytest.fixture(autouse=True)
def home(request, tmp_path, monkeypatch):
    if not {"tiny", "sample"} & set(request.fixturenames):  # their datastores lie elsewhere
        monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))


def after(context, hidden, *stores, room=DraftLimits(100, 500), **options) -> DraftTree:
    """The draft after a prefill that left this hidden state."""
    target = showing(torch.from_numpy(hidden)[None])
    resources = Resources(law=None, vocab_size=50, target=target, open_datastores=Here(*stores))
    drafter = DReSD(resources, **SPEC.parse({"budget": "paper", "distinct": True, "neighbours": 0, **options}))
    drafter.start(outcome(context, 1, DraftTree(), (), (context[-1],)))
    return drafter.draft(context, room)


def naive_trie(rows, weights):
    """The weight of every prefix."""
    mass = {}
    for row, weight in zip(rows, weights):
        for depth in range(len(row)):
            mass[tuple(row[: depth + 1])] = mass.get(tuple(row[: depth + 1]), 0.0) + weight
    return mass


@pytest.mark.parametrize(("drafts", "length"), [(10, 10), (3, 20), (1, 1), (4, 2)])
def test_drafts_what_followed_the_nearest_keys(drafts, length):
    documents, toy = corpus(vocab_size=12), Toy(12)
    store = dense(documents, toy, vocab_size=12)
    for text in corpus(8, vocab_size=12, seed=5):
        hidden, emitted = toy.states(np.array(text))[-1], text[-1] % 7
        found = by_definition(store, documents, store.reduction.one(hidden), emitted, drafts, length)
        tree = after([1, emitted], hidden, store, drafts=drafts, length=length)
        mass = naive_trie([row for row, _ in found], [1.0] * len(found))
        assert set(paths_of(tree)) == set(mass) and len(tree) == len(mass)
        assert tree.retrieval.scores == pytest.approx([score for _, score in found], abs=1e-4)
        for parent in {-1, *tree.parents}:
            assert sum(p for p, above in zip(tree.probs, tree.parents) if above == parent) <= 1 + 1e-9


def test_a_node_weighs_by_similarity_and_by_how_often_it_was_there():
    documents, toy = [[1, 2, 3, 4], [1, 2, 3, 4], [5, 2, 3, 6]], Toy(10)
    store = dense(documents, toy, vocab_size=10)
    tree = after([1, 2, 3], toy.states(np.array([1, 2]))[1], store)
    near, far = tree.retrieval.scores
    other = math.exp(_SHARPNESS * (far - near))
    assert tree.tokens == [4, 6] and near > far
    assert tree.probs == pytest.approx([2 / (2 + other), other / (2 + other)], abs=1e-3)


def test_the_nearest_of_several_datastores_are_drafted_and_nodes_say_where_they_came_from():
    toy = Toy(10)
    first = dense([[8, 1, 2, 3, 4], [0, 0, 2, 3, 5]], toy, "first", 10)
    second = dense([[9, 9, 9, 9, 9, 9], [8, 1, 2, 3, 6]], toy, "second", 10)
    tree = after([1, 2, 3], toy.states(np.array([8, 1, 2]))[2], first, second, drafts=2)
    assert sorted(tree.tokens) == [4, 6]  # the third, of another context, is left out
    said = {tree.tokens[n]: tree.origins[o] for n, o in enumerate(tree.origin)}
    assert (said[4].source, said[4].datastore, said[4].document, said[4].place, said[4].match) == (
        "retrieval", "first", "document 0", 4, None)
    assert said[6].datastore == "second" and tree.retrieval.passages[said[6].passage].document == "document 1"


def test_room_is_kept_and_a_miss_drafts_nothing():
    documents, toy = [[1, 2, 3, 4, 5, 6, 7]], Toy(10)
    store, hidden = dense(documents, toy, vocab_size=10), toy.states(np.array([1, 2]))[1]
    assert after([1, 2, 3], hidden, store, room=DraftLimits(2, 500)).tokens == [4, 5]
    assert after([1, 2, 3], hidden, store, room=DraftLimits(100, 3)).tokens == [4, 5, 6]
    missed = after([1, 2, 8], hidden, store)
    assert len(missed) == 0 and missed.retrieval.scores == () and missed.retrieval.used == 0


def test_the_key_is_of_the_row_that_produced_the_last_token():
    toy = Toy(10)
    target = showing(torch.arange(5.0)[:, None].expand(5, 24))
    store, asked = dense([[1, 2, 3]], toy, vocab_size=10), []
    query, store.query = store.query, lambda hidden, *rest: asked.append(hidden[0]) or query(hidden, *rest)
    drafter = DReSD(Resources(law=None, vocab_size=10, target=target, open_datastores=Here(store)), **SPEC.parse({}))
    tree = DraftTree([1, 1, 2, 3], [-1, -1, 1, 2], [None] * 4, [0] * 4)
    for path, emitted, row in (((), (7,), 0), ((1, 2), (1, 2, 7), 3), ((1, 2, 3), (1, 2, 3), 3), ((1,), (1,), 0)):
        drafter.follow(outcome([0, *emitted], 1, tree, path, emitted))
        drafter.propose([0, *emitted], DraftLimits(4, 8))
        assert asked.pop() == row, (path, emitted)


def test_without_a_fitting_datastore_the_run_is_refused(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))
    with pytest.raises(UsageProblem, match="no dense datastore of this model"):
        next(tiny.run(Request((("user", "x"),), "dresd")))


def test_a_text_in_the_datastore_is_found_again(tiny):
    """The keys were made in batches without cache, the queries are of the loop's forwards: they meet."""
    events = list(tiny.run(Request(TURN, "dresd", {"budget": "paper"}, max_new_tokens=80)))
    rounds = [e for e in events if isinstance(e, Round)]
    assert any(r.retrieval.scores and r.retrieval.scores[0] > 0.99 for r in rounds)
    assert measure(events).accepted > 0
    assert not any(r.retrieval.dropped for r in rounds), "that takes time, and is said on request"


def test_what_the_filter_dropped_is_said_on_request(tiny):
    request = Request(TURN, "dresd", {"budget": "paper"}, max_new_tokens=30, detail=True)
    rounds = [e for e in tiny.run(request) if isinstance(e, Round)]
    pairs = [(kept.before[-1:], left.before[-1:]) for r in rounds for left in r.retrieval.dropped
             for kept in r.retrieval.passages]
    letters = [(kept, left) for kept, left in pairs if kept.isalnum() and left.isalnum()]  # tokens here are bytes
    assert letters and all(kept != left for kept, left in letters)
    for r in rounds:
        weights = [passage.weight for passage in r.retrieval.dropped]
        assert len(weights) <= 3 and weights == sorted(weights, reverse=True)
        shown = (*r.retrieval.passages, *r.retrieval.dropped)
        assert len(r.retrieval.map) == len(shown) * (len(shown) > 1)
        for passage, (x, y) in zip(shown, r.retrieval.map):  # of keys of length 1; a map is flat
            assert x * x + y * y <= 2 - 2 * passage.weight + 0.01
