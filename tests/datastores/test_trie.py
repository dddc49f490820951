"""What is chosen among continuations, against a trie by definition."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.tree import DraftTree
from engines.cost.budget import Budget
from engines.cost.curve import CostCurve
from engines.datastores.search.continuations import END, Continuations, Match, in_order
from engines.datastores.search.trie import drawn, heaviest
from engines.report.events import Origin

pytestmark = pytest.mark.usefixtures("lookups")
paths = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), max_size=40)


def found(lists, length=5):
    tokens = np.array([row + [END] * (length - len(row)) for row in lists], np.int32).reshape(len(lists), length)
    tokens = tokens[in_order(tokens)]
    return Continuations.of(tokens, np.arange(len(tokens)), Match(1, len(tokens), None))


def prefixes(rows):
    """Weight of every prefix (REST's Algorithm 2, lines 2-7)."""
    return Counter(tuple(row[: n + 1]) for row in rows for n in range(len(row)))


def nodes_of(nodes):
    """Path of each node."""
    above = []
    for token, parent in zip(nodes.tokens, nodes.parents):
        above.append((*(above[parent] if parent >= 0 else ()), token))
    return above


def check_shape(nodes, rows):
    """Parents first, depth first, siblings distinct and the heavier first; rows are of the node's own."""
    above = nodes_of(nodes)
    assert len(set(above)) == len(above)
    for i, (parent, path) in enumerate(zip(nodes.parents, above)):
        assert -1 <= parent < i
        assert rows[nodes.rows[i]][: len(path)] == list(path)
        if parent >= 0 and parent != i - 1:  # a later child: everything since is below an earlier, heavier one
            first = parent + 1
            assert nodes.counts[first] >= nodes.counts[i]
            assert all(p[: len(above[parent])] == above[parent] for p in above[parent:i])
        if parent == i - 1 and parent >= 0:
            assert nodes.rows[parent] == nodes.rows[i]
    children = {p: [i for i, q in enumerate(nodes.parents) if q == p] for p in {*nodes.parents}}
    for siblings in children.values():
        counts = [nodes.counts[i] for i in siblings]
        assert counts == sorted(counts, reverse=True)


@settings(max_examples=250)
@given(paths, st.integers(0, 60))
def test_the_heaviest_nodes_are_those_of_a_heap(lists, count):
    here = found(lists)
    nodes = heaviest(here, count)
    weights = prefixes(lists)
    best = heapq.nsmallest(count, weights, key=lambda p: (-weights[p], len(p), p))
    assert dict(zip(nodes_of(nodes), nodes.counts)) == {p: weights[p] for p in best}
    assert len(nodes) == len(best) and nodes.total == len(lists)
    check_shape(nodes, here.tokens.tolist())
    for path, prob in zip(nodes_of(nodes), nodes.probs):
        assert prob == weights[path] / (weights[path[:-1]] if len(path) > 1 else len(lists))


shares = st.lists(st.floats(0, 0.7), min_size=5, max_size=5).map(sorted)


@settings(max_examples=150)
@given(paths.filter(bool), shares)
def test_nodes_of_small_shares_are_left_out_by_depth_but_for_the_heaviest(lists, least):
    nodes, weights = heaviest(found(lists), 64, least), prefixes(lists)
    top = max(weights.values())
    kept = {p for p, n in weights.items() if n >= least[len(p) - 1] * len(lists) or (len(p) == 1 and n == top)}
    assert set(nodes_of(nodes)) == {p for p in kept if all(p[:d] in kept for d in range(1, len(p)))}


@settings(max_examples=150)
@given(paths.filter(bool), st.integers(1, 8), st.floats(0.02, 0.3), st.lists(st.booleans(), max_size=30))
def test_what_is_left_out_for_its_share_is_not_worth_a_row(lists, match, row, luck):
    """A budget keeps the same nodes of the whole trie as of what reaches its least shares."""
    def tree(least=()):
        nodes = heaviest(found(lists), 64, least)
        return DraftTree(nodes.tokens, nodes.parents, nodes.probs, [0] * len(nodes), [Origin("retrieval", match=match)])

    def budget():
        made = Budget(CostCurve(((1, 1.0), (65, 1 + 64 * row))))
        for came_true in luck:
            made.learn(whole, [0] if came_true else [], 0.0, 0.0)
        return made

    whole = tree()
    all_of_it, some = budget(), budget()
    kept = some.prune(tree(some.least_shares(match, 5, 64)))
    assert nodes_of(kept) == nodes_of(all_of_it.prune(whole)), "or fewer rows would have been verified"


@pytest.mark.parametrize("seed", range(3))
def test_the_heaviest_nodes_of_many_long_continuations(seed):
    rng = np.random.default_rng(seed)
    lists = [(rng.geometric(0.25, 10) - 1).tolist()[: rng.integers(1, 11)] for _ in range(3000)]
    weights = prefixes(lists)
    nodes = heaviest(found(lists, 10), 64)
    best = sorted(weights, key=lambda p: (-weights[p], len(p), p))[:64]
    assert dict(zip(nodes_of(nodes), nodes.counts)) == {p: weights[p] for p in best}


@settings(max_examples=100)
@given(st.lists(st.tuples(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.integers(1, 9)), max_size=12),
       st.integers(0, 30))
def test_continuations_count_by_their_weights(weighed, count):
    """A row of weight n is n rows; the row of a node is the heaviest below it."""
    lists, weights = [row for row, _ in weighed], [n for _, n in weighed]
    order = in_order(np.array([row + [END] * (5 - len(row)) for row in lists], np.int32).reshape(len(lists), 5))
    here = replace(found(lists), weights=np.array(weights, float)[order])
    nodes, repeated = heaviest(here, count), heaviest(found([row for row, n in weighed for _ in range(n)]), count)
    assert (nodes_of(nodes), nodes.counts, nodes.total) == (nodes_of(repeated), repeated.counts, repeated.total)
    check_shape(nodes, here.tokens.tolist())
    for node, path in enumerate(nodes_of(nodes)):
        if node not in nodes.parents:
            below = [w for row, w in zip(here.tokens.tolist(), here.weights) if tuple(row[: len(path)]) == path]
            assert here.weights[nodes.rows[node]] == max(below)


def test_siblings_of_one_weight_are_in_order_of_tokens():
    nodes = heaviest(found([[3], [1], [2, 2], [2, 1], [0]]), 10)
    assert nodes_of(nodes) == [(2,), (2, 1), (2, 2), (0,), (1,), (3,)]
    assert nodes.probs == [2 / 5, 1 / 2, 1 / 2, 1 / 5, 1 / 5, 1 / 5]


def test_a_heavy_path_comes_from_one_passage():
    nodes = heaviest(found([[1, 1], [1, 2, 3], [1, 2, 4], [1, 2, 4]]), 4)
    assert nodes_of(nodes) == [(1,), (1, 2), (1, 2, 4), (1, 1)]
    assert nodes.rows == [2, 2, 2, 0]


@settings(max_examples=200)
@given(paths, st.integers(0, 30), st.integers(0, 5), st.one_of(st.none(), st.integers(1, 8)))
def test_drawn_continuations(lists, count, seed, sequences):
    here = found(lists)
    rows = [[t for t in row if t != END] for row in here.tokens.tolist()]
    nodes = drawn(here, count, seed, sequences)
    assert nodes == drawn(here, count, seed, sequences)
    order = np.random.default_rng(seed).permutation(len(rows))[:sequences]
    taken = []
    for row in order if count else ():  # whole ones while they fit, then what fits of the next
        fits = next((n for n in range(len(rows[row]), -1, -1) if len(prefixes([*taken, rows[row][:n]])) <= count), 0)
        taken.append(rows[row][:fits])
        if len(prefixes(taken)) == count:
            break
    assert dict(zip(nodes_of(nodes), nodes.counts)) == prefixes(taken)
    assert nodes.total == len(taken)
    check_shape(nodes, here.tokens.tolist())


def test_drawing_is_random_and_every_continuation_can_come_first():
    here = found([[n] for n in range(4)])
    first = Counter(drawn(here, 1, seed).tokens[0] for seed in range(400))
    assert set(first) == {0, 1, 2, 3} and min(first.values()) > 60
