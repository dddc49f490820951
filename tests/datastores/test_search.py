"""Exact search against a look at every place."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from engines.datastores.search.continuations import END, collect, in_order, merge, spread
from engines.methods.shared.conversation import Conversation
from tests.datastores.conftest import sparse

pytestmark = pytest.mark.usefixtures("lookups")
few = st.lists(st.lists(st.integers(0, 2), max_size=20), min_size=1, max_size=4).filter(any)
some = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def occurrences(documents, suffix):
    """(document, index of the token after) of every occurrence that has one."""
    n = len(suffix)
    return [
        (d, i + n) for d, tokens in enumerate(documents) for i in range(len(tokens) - n) if tokens[i : i + n] == suffix
    ]


def expected(documents, context, n_max, n_min):
    """Per suffix length, falling, the occurrences."""
    sizes = range(min(n_max, len(context)), max(1, n_min) - 1, -1)
    found = [(n, occurrences(documents, context[len(context) - n :])) for n in sizes]
    return [(n, at) for n, at in found if at]


def rows(documents, at, length):
    """Continuations by definition, an ended one after those that go on."""
    found = [documents[d][i : i + length] for d, i in at]
    return sorted((r + [END] * (length - len(r)) for r in found), key=lambda r: [t % 2**32 for t in r])


CONTEXTS = [list(c) for n in range(4) for c in product(range(4), repeat=n)]


@some
@given(few, st.lists(st.integers(0, 2), max_size=8), st.integers(0, 6), st.integers(0, 3), st.integers(1, 5))
@example([[1]], [1], 4, 1, 3)
@example([[1, 1, 1, 1]], [1, 1], 4, 1, 3)
@example([[2, 2], [], [2]], [2], 1, 1, 1)
def test_every_match_is_found_and_none_crosses_documents(documents, context, n_max, n_min, length):
    store = sparse(documents, 3)
    names = [f"document {i}" for i, d in enumerate(documents) if d]
    kept = [d for d in documents if d]
    begins = np.cumsum([0] + [len(d) + 1 for d in kept]).tolist()
    for query in [context, *CONTEXTS]:
        wanted = expected(kept, query, n_max, n_min)
        matches = list(store.falling(query, n_max, n_min))
        assert [(m.length, m.count) for m in matches] == [(n, len(at)) for n, at in wanted]
        assert store.longest(query, n_max, n_min) == (matches[0] if matches else None)
        for match, (n, at) in zip(matches, wanted):
            found = store.continuations(match, length)
            assert found.tokens.tolist() == rows(kept, at, length)
            assert sorted(found.positions.tolist()) == [begins[d] + i for d, i in at]
            assert found.matched.tolist() == [n] * len(found) and found.total == len(at)
    for d, tokens in enumerate(kept):
        for i in range(len(tokens)):
            place = store.documents.place(begins[d] + i)
            assert (place.document, place.source, place.line, place.offset) == (d, names[d], None, i)
            assert store.documents.passage(begins[d] + i, 2, 3) == (tokens[max(0, i - 2) : i + 3], min(i, 2))


@some
@given(st.lists(st.integers(0, 2), max_size=40), st.lists(st.integers(0, 3), max_size=6), st.integers(1, 6),
       st.integers(0, 3), st.integers(1, 5), st.integers(0, 40))  # fmt: skip
def test_a_conversation_is_searched_like_a_document(tokens, context, n_max, n_min, length, cut):
    store = Conversation()
    store.extend(tokens[:cut])
    store.extend(tokens[cut:])
    for query in [context, *CONTEXTS]:
        wanted = expected([tokens], query, n_max, n_min)
        matches = list(store.falling(query, n_max, n_min))
        assert [(m.length, m.count) for m in matches] == [(n, len(at)) for n, at in wanted]
        assert (store.longest(query, n_max, n_min) is None) == (not matches)
        for match, (_, at) in zip(matches, wanted):
            found = store.continuations(match, length)
            assert found.tokens.tolist() == rows([tokens], at, length)
            assert sorted(found.positions.tolist()) == [i for _, i in at]
            for row, position in zip(found.tokens.tolist(), found.positions.tolist()):
                assert row == (tokens[position:] + [END] * length)[:length]


def test_a_conversation_grows_past_its_first_room():
    store = Conversation([1, 2, 3, 1, 2])
    [row] = store.continuations(store.longest([1, 2]), 3).tokens.tolist()
    assert row == [3, 1, 2] and len(store) == 5
    store.extend(range(5000))
    assert store.continuations(store.longest([4998], n_min=1), 2).tokens.tolist() == [[4999, END]]


@pytest.mark.parametrize("vocab_size, width", [(300, 2), (65_535, 2), (65_536, 4), (151_936, 4)])
def test_vocabularies_of_every_size(vocab_size, width):
    top = vocab_size - 1
    store = sparse([[top, 1, top, 2, top - 1], [256, 1, top, 0], [1, 256, 1]], vocab_size)
    assert store.store.array("tokens").itemsize == width
    match = store.longest([9, 1, top], 16, 1)
    assert (match.length, match.count) == (2, 2)
    assert store.continuations(match, 2).tokens.tolist() == [[0, END], [2, top - 1]]
    assert store.longest([256], 16, 1).count == 2
    assert store.documents.passage(0)[0] == [top, 1, top, 2, top - 1]


@pytest.mark.parametrize("alien", [-1, 3, 65_535, 65_536, 2**32 - 1, 2**40])
def test_tokens_that_no_document_holds_match_nothing(alien):
    store = sparse([[0, 1, 2], [0, 1, 2]], 3)
    assert store.longest([alien], 16, 1) is None and store.longest([0, 1, alien], 16, 1) is None
    assert store.longest([alien, 0, 1], 16, 1).length == 2


def test_many_matches_are_sampled_at_equal_strides():
    store = sparse([[0, n] for n in range(1, 1001)])
    match = store.longest([0], 16, 1)
    assert match.count == 1000
    found = store.continuations(match, 1, limit=100)
    assert found.total == 1000 and found.tokens[:, 0].tolist() == list(range(6, 1001, 10))
    assert len(store.continuations(match, 1, limit=1000)) == 1000


@given(st.integers(0, 10**10), st.integers(1, 200))
def test_strides(count, limit):
    found = spread(count, limit) if count <= limit or count < 10**5 else spread(count, min(limit, 200))
    assert len(found) == min(count, limit) and all(np.diff(found) > 0)
    if count > limit:
        gaps = np.diff(np.concatenate([-found[:1] - 1, found, 2 * count - found[-1:] - 1]))
        assert gaps.max() - gaps.min() <= 2
    else:
        assert found.tolist() == list(range(count))


@given(st.lists(st.lists(st.sampled_from([END, 0, 1, 255, 256, 70_000]), min_size=3, max_size=3), max_size=12))
def test_rows_in_order(given_rows):
    tokens = np.array(given_rows, np.int32).reshape(len(given_rows), 3)
    key = [[t % 2**32 for t in row] for row in given_rows]
    assert in_order(tokens).tolist() == sorted(range(len(key)), key=key.__getitem__)


def test_several_stores_as_one():
    one, two = sparse([[5, 1, 3], [5, 2]], 6, "one"), sparse([[5, 1, 2, 4]], 6, "two")
    parts = [s.continuations(s.longest([5], 16, 1), n) for s, n in ((one, 2), (two, 3))]
    both = merge(parts)
    assert both.tokens.tolist() == [[1, 2, 4], [1, 3, END], [2, END, END]]
    assert both.stores.tolist() == [1, 0, 0] and both.total == 3
    assert both.positions.tolist() == [1, 1, 5]


def test_of_the_last_suffix_all_continuations_are_collected():
    store = sparse([[0, 1], [0, 1], [0, 1], [0, 2], [0, 3]], 4)
    found = collect(store, [0], 1, 1, 4, 1)
    assert found.tokens.tolist() == [[1], [2], [3]] and found.weights.tolist() == pytest.approx([3 / 8, 1 / 8, 1 / 8])


@some
@given(few, st.lists(st.integers(0, 2), min_size=1, max_size=6), st.integers(1, 6), st.integers(1, 3))
def test_candidates_are_collected_over_falling_lengths(documents, context, count, length):
    """RASD's Algorithm 1, with Witten and Bell's weights."""
    store = sparse(documents, 3)
    found = collect(store, context, count, length, 4, 1)
    chosen, sizes = [tuple(r) for r in found.tokens.tolist()], found.matched.tolist()
    assert len(set(chosen)) == len(chosen)
    seen, weights, left = set(), Counter(), 1.0
    for n, at in expected([d for d in documents if d], context, 4, 1):
        here = Counter(tuple(r) for r in rows([d for d in documents if d], at, length))
        assert {r for r, size in zip(chosen, sizes) if size == n} == set(here) - seen
        level = left / (here.total() + len({row[0] for row in here}))
        left -= level * here.total()
        weights.update({row: level * times for row, times in here.items()})
        seen |= set(here)
        if len(seen) >= count:
            break
    assert dict(zip(chosen, found.weights.tolist())) == pytest.approx(weights)
    assert seen == set(chosen)
    assert found.tokens[in_order(found.tokens)].tolist() == found.tokens.tolist()
