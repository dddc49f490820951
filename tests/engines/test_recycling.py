"""Token Recycling: its table, the published tree, the tree by hit rates."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.lossless_laws import Exact
from engines.core.outcome import DraftLimits
from engines.core.sampling import Sampling
from engines.core.tree import DraftTree
from engines.cost.budget import Budget
from engines.cost.curve import CostCurve
from engines.methods.drafter import Resources
from engines.methods.recycling import SPEC
from engines.methods.recycling.drafter import PUBLISHED, HitRates, Recycling, likeliest, successors
from engines.methods.shared.ranked_trees import best_first, of_ranks
from tests.engines.toys import ToyModel, answer, outcome


@pytest.mark.parametrize("width", [5, 64, 700, 1000, 4096])
def test_the_likeliest_of_a_row_are_found_by_blocks(width):
    logits = torch.randn(7, width, generator=torch.Generator().manual_seed(width))
    assert likeliest(logits, 8).tolist() == logits.topk(min(8, width), -1).indices.tolist()


def test_the_published_tree():
    assert len(PUBLISHED) == len(set(PUBLISHED)) == 80
    assert list(Counter(map(len, PUBLISHED)).values()) == [8, 21, 25, 15, 8, 3]
    table = {token: [10 * token + rank for rank in range(8)] for token in (1, *range(10, 18))}
    for token in [int("1" + path) for path in PUBLISHED]:
        table[token] = [10 * token + rank for rank in range(8)]

    def published(table, depth):
        return list(of_ranks(PUBLISHED, (1, 0), successors(table, range(8), depth)))

    paths = []
    for (token, parent, rank), path in zip(published(table, 6), PUBLISHED, strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), rank))
        assert "".join(map(str, paths[-1])) == path and str(token).endswith(path)
    assert len(published(table, 2)) == 29 and not published({}, 6)
    assert len(published({1: [2, 3]}, 6)) == 2  # what was never read has no successors


@settings(max_examples=60)
@given(st.data())
def test_the_tree_by_hit_rates_has_the_likeliest_paths(data):
    k, depth, root = 3, 3, 0
    lists = st.lists(st.integers(0, 4), unique=True, max_size=k)
    table = {token: data.draw(lists) for token in range(5)}
    rates = data.draw(st.lists(st.sampled_from([0.5, 0.25, 0.125]), min_size=k, max_size=k))
    chances = []
    for length in range(1, depth + 1):
        for ranks in product(range(k), repeat=length):
            token, chance = root, 1.0
            for rank in ranks:
                if rank >= len(table[token]):
                    break
                token, chance = table[token][rank], chance * rates[rank]
            else:
                chances.append(chance)
    found, values = list(best_first((root, 0), successors(table, rates, depth))), []
    for _, parent, rate in found:
        values.append(rate * (values[parent] if parent >= 0 else 1.0))
    assert values == sorted(values, reverse=True) == sorted(chances, reverse=True)
    assert len({(token, parent) for token, parent, _ in found}) == len(found)


def test_hit_rates_come_to_what_happens():
    rates = HitRates()
    for number in range(2000):
        rates.count((0, 0, 3, None)[number % 4])
    assert rates.rates()[0] == pytest.approx(0.5, abs=0.03) and rates.rates()[3] == pytest.approx(0.25, abs=0.03)


def test_it_reads_no_rows_while_it_rests():
    budget = Budget(CostCurve(((1, 1.0), (64, 9.0))), timed=True)
    drafter = Recycling(Resources(law=None, vocab_size=40, budget=budget), **SPEC.parse({}))
    resting, drafting = (replace(outcome([1, 2], 1, DraftTree(), (), (2,)), logits=torch.eye(40)[:1]) for _ in "ab")
    budget.resting = True
    drafter.follow(resting)
    assert not drafter.table
    budget.resting = False
    drafter.follow(drafting)
    assert drafter.table


def test_every_row_teaches_the_token_that_it_read():
    """A model that looks at the last token alone: once a token was read, its successors are the model's own."""
    model = ToyModel(40, seed=3)
    model.logits_after = lambda context: ToyModel.logits_after(model, [context[-1]] * 12)
    resources = Resources(law=None, vocab_size=40)
    drafter = Recycling(resources, **SPEC.parse({"budget": "paper"}))
    answer(model, drafter, Exact(Sampling(), 0, 40), [1, 2, 3], 60)
    assert len(drafter.table) > len({*range(8)})  # rejected rows too
    for token, known in drafter.table.items():
        assert known == model.logits_after([token]).topk(8).indices.tolist()
    tree = drafter.propose([1, next(iter(drafter.table))], DraftLimits(6, 500))
    assert len(tree) > 8 and tree.origins[0].source == "recycled" and tree.note.hit_rate > 0.9
