"""Prompt lookup against a brute-force search."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.outcome import DraftLimits
from engines.errors import UsageProblem
from engines.methods.drafter import Resources
from engines.methods.pld import SPEC
from engines.methods.pld.drafter import PromptLookup


def lookup(context, prompt_length=None, room=DraftLimits(100, 100), **options):
    drafter = PromptLookup(Resources(law=None, vocab_size=100), **SPEC.parse(options))
    drafter.conversation.prompt_length = len(context) if prompt_length is None else prompt_length
    return drafter.propose(context, room)


def brute_force(context, max_ngram, min_ngram, num_tokens, num_candidates):
    """Continuations in order of preference, straight from the definition."""
    found = []
    for size in range(max_ngram, min_ngram - 1, -1):
        suffix = context[len(context) - size :]
        if size > len(context):
            continue
        ends = [e for e in range(size, len(context)) if context[e - size : e] == suffix]
        full = [e for e in ends if e + num_tokens <= len(context)]
        short = [e for e in ends if e + num_tokens > len(context)]
        for end in [*by_match(context, reversed(full)), *by_match(context, short)]:
            found.append(tuple(context[end : end + num_tokens]))
    paths: list[tuple] = []
    for continuation in found:
        if not any(p[: len(continuation)] == continuation for p in paths):
            paths.append(continuation)
        if len(paths) == num_candidates:
            break
    return paths


def by_match(context, ends):
    """Longest common suffix first; sorting is stable."""
    def matched(end):
        return next((n for n in range(end) if context[end - 1 - n] != context[-1 - n]), end)

    return sorted(ends, key=matched, reverse=True)


def prefixes(paths):
    return {p[: n + 1] for p in paths for n in range(len(p))}


def paths_of(tree):
    above: list[tuple] = []
    for token, parent in zip(tree.tokens, tree.parents):
        above.append((*(above[parent] if parent >= 0 else ()), token))
    return above


@settings(max_examples=300)
@given(
    context=st.lists(st.integers(0, 3), min_size=1, max_size=40), low=st.integers(1, 3), extra=st.integers(0, 2),
    num_tokens=st.integers(1, 6), num_candidates=st.integers(1, 4),
)
def test_drafts_what_brute_force_finds(context, low, extra, num_tokens, num_candidates):
    tree = lookup(
        context, min_ngram=low, max_ngram=low + extra, num_tokens=num_tokens, num_candidates=num_candidates
    )
    expected = brute_force(context, low + extra, low, num_tokens, num_candidates)
    assert set(paths_of(tree)) == prefixes(expected)
    assert len(set(paths_of(tree))) == len(tree), "a path is drafted once"


@settings(max_examples=100)
@given(context=st.lists(st.integers(0, 3), min_size=3, max_size=40), cut=st.integers(1, 39))
def test_an_index_that_grew_finds_what_a_fresh_one_finds(context, cut):
    drafter = PromptLookup(Resources(law=None, vocab_size=100), **SPEC.parse({"num_candidates": 3}))
    drafter.propose(context[:cut], DraftLimits(10, 10))
    grown = drafter.propose(context, DraftLimits(10, 10))
    assert grown.tokens == lookup(context, room=DraftLimits(10, 10), num_candidates=3).tokens


def test_prefers_the_latest_match_with_a_full_continuation():
    #          v older, full            v latest, full     v too close to the end
    context = [7, 1, 1, 1, 9, 7, 2, 2, 2, 9, 7, 3, 7]
    assert lookup(context, num_tokens=3, max_ngram=1).tokens == [2, 2, 2]
    assert lookup(context, num_tokens=3, max_ngram=1).note.plain() == {"match": 1, "position": 6}


def test_longest_n_first():
    context = [5, 6, 7, 1, 9, 7, 2, 9, 5, 6, 7]
    assert lookup(context, num_tokens=1).tokens == [1]


def test_says_where_it_copied_from():
    context = [5, 6, 8, 0, 5, 6, 9, 0, 5, 6]
    tree = lookup(context, prompt_length=4, max_ngram=2, num_tokens=2, num_candidates=2)
    assert [(o.source, o.place, o.match) for o in tree.origins] == [("output", 6, 3), ("prompt", 2, 2)]
    assert [tree.origins[o].source for o in tree.origin] == ["output", "output", "prompt", "prompt"]


def test_stays_inside_the_room():
    assert lookup([1, 2, 3, 4, 1], num_tokens=3, room=DraftLimits(2, 9)).tokens == [2, 3]
    assert len(lookup([1, 2, 3, 4, 1], room=DraftLimits(0, 9))) == 0


def test_nothing_found_is_the_empty_tree():
    assert len(lookup([1, 2, 3])) == 0 and len(lookup([1])) == 0


def test_min_above_max_is_an_error():
    with pytest.raises(UsageProblem, match="min_ngram"):
        lookup([1], min_ngram=4, max_ngram=2)
