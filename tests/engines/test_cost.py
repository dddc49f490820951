"""Cost curves and budgets against brute force on synthetic costs."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.tree import DraftTree
from engines.cost.budget import Budget, kind_of
from engines.cost.curve import BreakEven, CostCurve, best_length
from engines.cost.forward_times import DraftingTime, ForwardTimes
from engines.methods.drafter import Drafter, Resources
from engines.report.events import Origin
from tests.engines import toys

DRAFT, PROMPT = Origin("draft"), Origin("prompt", place=0, match=2)
COSTS = {
    "flat": lambda n: 1.0,
    "linear": lambda n: float(n),
    "memory-bound": lambda n: 1 + 0.03 * n,
    "steps": lambda n: 1 + 0.5 * ((n - 1) // 8),
    "cpu": lambda n: 1 + 0.1 * (n > 1) + 0.04 * n,
}
ROWS = (1, 2, 4, 8, 16, 32, 64)


def curve(cost) -> CostCurve:
    return CostCurve.fit((rows, cost(rows)) for rows in ROWS)


seconds = st.floats(1e-4, 10)
samples = st.dictionaries(st.integers(1, 200), seconds, min_size=1, max_size=8)


@given(samples)
def test_a_curve_never_falls_and_stays_within_its_samples(found):
    fitted = CostCurve.fit(found.items())
    values = [fitted.at(n) for n in range(1, 260)]
    assert all(a <= b + 1e-12 for a, b in itertools.pairwise(values))
    assert min(found.values()) - 1e-12 <= values[0]
    assert fitted.at(max(found)) <= max(found.values()) + 1e-12


@given(samples)
def test_a_curve_of_rising_samples_goes_through_them(found):
    rising = dict(zip(sorted(found), sorted(found.values())))
    fitted = CostCurve.fit(rising.items())
    for rows, value in rising.items():
        assert fitted.at(rows) == pytest.approx(value)


def test_lines_between_the_points_and_the_last_slope_beyond():
    fitted = CostCurve.fit([(1, 1.0), (4, 4.0), (8, 6.0)])
    assert [fitted.at(n) for n in (1, 2, 4, 6, 8, 16)] == [1, 2, 4, 5, 6, 10]


@pytest.mark.parametrize("bad", [[], [(0, 1.0)], [(1, 0.0)], [(1, float("nan"))]])
def test_nonsense_is_no_curve(bad):
    with pytest.raises(ValueError):
        CostCurve.fit(bad)


def simulated(chances: list[float], length: int) -> float:
    """Expected tokens of a round that drafts so many, by every outcome there is."""
    total = 0.0
    for outcome in itertools.product([True, False], repeat=length):
        weight, kept, alive = 1.0, 0, True
        for accepted, chance in zip(outcome, chances):
            weight *= chance if accepted else 1 - chance
            alive = alive and accepted
            kept += alive
        total += weight * (kept + 1)
    return total


@pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS)
@settings(max_examples=25)
@given(chances=st.lists(st.floats(0, 1), min_size=1, max_size=7), a_token=st.floats(0, 0.6))
def test_the_length_of_a_chain_is_the_best_of_all(cost, chances, a_token):
    price = curve(cost)
    survival = list(itertools.accumulate(chances, lambda a, b: a * b))
    times = [price.at(1 + n) + n * a_token for n in range(len(chances) + 1)]
    rates = [simulated(chances, n) / times[n] for n in range(len(chances) + 1)]
    assert rates[best_length(survival, times)] == pytest.approx(max(rates))


def a_tree(rng: random.Random, nodes: int) -> DraftTree:
    """Random, every node with a probability, siblings together at most 1."""
    tree, left = DraftTree(origins=[DRAFT]), {}
    for token in range(nodes):
        parent = rng.randrange(-1, len(tree))
        prob = left.get(parent, 1.0) * rng.random()
        left[parent] = left.get(parent, 1.0) - prob
        tree.add(token, parent, prob, 0)
    return tree


def subtrees(tree: DraftTree):
    """All sets of nodes closed under parents."""
    for keep in itertools.product([True, False], repeat=len(tree)):
        if all(keep[p] for node, p in enumerate(tree.parents) if keep[node] and p >= 0):
            yield [node for node, kept in enumerate(keep) if kept]


@pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS)
def test_the_nodes_of_a_tree_are_the_best_of_all_subtrees(cost):
    rng, price = random.Random(3), curve(cost)
    for _ in range(12):
        tree, drafted = a_tree(rng, rng.randrange(1, 9)), rng.random() / 2
        budget = past_the_first_rounds(Budget(price))
        values = budget.values(tree)
        rates = {
            tuple(nodes): (1 + sum(values[n] for n in nodes)) / (price.at(1 + len(nodes)) + drafted)
            for nodes in subtrees(tree)
        }
        chosen = budget.prune(tree, drafted)
        nodes = tuple(node for node in range(len(tree)) if tree.tokens[node] in chosen.tokens)
        assert rates[nodes] == pytest.approx(max(rates.values()))


def test_no_more_is_expected_of_siblings_than_of_one_of_them():
    """Two sources may each be sure of another token, but at most one of them is accepted."""
    tree = DraftTree(origins=[DRAFT, PROMPT])
    for token, origin in enumerate((0, 1, 1)):
        tree.add(token, -1, 0.9, origin)
    pruned = past_the_first_rounds(Budget(curve(COSTS["flat"]))).prune(tree)
    assert pruned.budget.expected <= 2


def past_the_first_rounds(budget: Budget) -> Budget:
    for _ in range(4):
        budget.learn(DraftTree(), [], 0, 0)
    return budget


def chain_length(budget: Budget, most: int = 20, a_token: float = 0.0) -> int:
    values: list[float] = []
    while budget.more(kind_of(DRAFT), values, most, lambda n: n * a_token):
        values.append((values[-1] if values else 1.0) * budget.belief(kind_of(DRAFT), len(values) + 1, 0.9))
    return len(values)


def drilled(budget: Budget, chance: float, rounds: int = 200, prob: float = 0.9) -> Budget:
    """After rounds in which each token was accepted with this chance."""
    rng = random.Random(7)
    for _ in range(rounds):
        tree, kept = DraftTree.chain(list(range(6)), DRAFT, [prob] * 6), 0
        while kept < 6 and rng.random() < chance:
            kept += 1
        budget.more(kind_of(DRAFT), [], 6, lambda n: 0.0)
        budget.learn(tree, range(kept), 0, 0)
    return budget


def test_more_is_drafted_where_drafts_are_kept_and_where_rows_are_cheap():
    cheap, dear = curve(COSTS["memory-bound"]), curve(lambda n: 1 + 0.5 * n)
    good, bad = (chain_length(drilled(Budget(cheap), chance), a_token=0.1) for chance in (0.95, 0.3))
    assert good > bad
    assert chain_length(drilled(Budget(dear), 0.95), a_token=0.1) < good
    assert chain_length(drilled(Budget(cheap), 0.95), a_token=0.5) < good


def test_what_cannot_pay_is_not_drafted_and_tried_again_later():
    budget = drilled(Budget(curve(lambda n: 1 + 0.5 * n)), 0.05)
    assert chain_length(budget, a_token=0.1) == 0
    waited = 0
    while waited < 400 and not chain_length(budget, a_token=0.1):
        budget.learn(DraftTree(), [], 0, 0)
        waited += 1
    assert 5 < waited < 400


def test_a_run_begins_by_drafting_so_that_what_does_not_pay_was_measured():
    hopeless = curve(lambda n: float(n * n))
    assert chain_length(Budget(hopeless), a_token=1.0) == 1
    tree = DraftTree.chain([1, 2, 3], PROMPT)
    assert len(Budget(hopeless).prune(tree)) == 1
    assert len(past_the_first_rounds(Budget(hopeless)).prune(tree)) == 0


def test_copies_do_not_pay_for_what_a_draft_model_beside_them_takes():
    """A copy costs no pass of the draft model, however long a draft of that took."""
    def kept(overhead: float) -> int:
        budget = past_the_first_rounds(Budget(curve(lambda n: 1 + 0.2 * n), timed=True))
        budget.acceptance.drafting.more = overhead
        return len(budget.prune(DraftTree.chain(list(range(6)), PROMPT)))

    assert 0 < kept(0.0) == kept(0.3) == kept(3.0)


def test_a_chain_that_pays_gets_as_long_as_the_option_allows():
    """With budget=auto none was longer than 24 tokens, whatever num_tokens said."""
    budget = drilled(Budget(curve(COSTS["flat"])), 1.0)
    assert [chain_length(budget, most) for most in (8, 24, 64)] == [8, 24, 64]


def test_estimates_come_to_what_happens():
    for chance in (0.2, 0.6, 0.95):
        acceptance = drilled(Budget(curve(COSTS["flat"])), chance, 600).acceptance
        assert acceptance.chances(kind_of(DRAFT), copied=False)[0] == pytest.approx(chance, abs=0.15)
        assert acceptance.calibration(kind_of(DRAFT))[0] == pytest.approx(chance / 0.9, abs=0.17)


def test_a_long_match_is_trusted_more_than_a_short_one_before_anything_is_seen():
    def value(match):
        return Budget(curve(COSTS["flat"])).values(DraftTree.chain([1], Origin("prompt", place=0, match=match)))[0]

    assert [round(value(m), 3) for m in (1, 2, 4, 8)] == [0.333, 0.5, 0.667, 0.8]


@pytest.mark.parametrize("most", [0, 1])
def test_a_forecast_of_a_chain_changes_nothing_of_what_nodes_are_worth(most):
    budget, alone = (Budget(curve(COSTS["flat"])) for _ in range(2))
    budget.compete(0.5)
    alone.compete(0.5)
    budget.chain_rate(kind_of(DRAFT), most, lambda n: n * 1e-3)
    for tree in (DraftTree.chain([1, 2], DRAFT), DraftTree.chain([1, 2], DRAFT, [0.5, 0.5])):
        assert budget.values(tree) == alone.values(tree)


def test_a_node_is_never_worth_more_than_its_parent():
    rng = random.Random(0)
    budget = drilled(Budget(curve(COSTS["flat"])), 0.99, prob=0.5)  # a drafter that is too modest
    for _ in range(20):
        tree = a_tree(rng, 12)
        values = budget.values(tree)
        assert all(parent < 0 or values[node] <= values[parent] for node, parent in enumerate(tree.parents))


def test_times_are_learned_only_where_the_text_cannot_depend_on_them():
    """Drafting takes eight times what the curve says."""
    price, tree = curve(COSTS["cpu"]), DraftTree.chain([1, 2], DRAFT, [0.9, 0.9])
    timed, untimed = Budget(price, timed=True), Budget(price)
    for budget in (timed, untimed):
        for _ in range(50):
            budget.more(kind_of(DRAFT), [0.9], 20, lambda n: n * 0.3)
            budget.learn(tree, [0, 1], 8 * 0.6, price.at(3))
    assert chain_length(timed, a_token=0.3) < chain_length(untimed, a_token=0.3)
    assert timed.acceptance.drafting.seconds(0.6) == pytest.approx(4.8, rel=0.1), "the next run knows it"
    assert chain_length(Budget(price, timed.acceptance), a_token=0.3) == chain_length(untimed, a_token=0.3)


def test_what_drafting_takes_is_told_apart_by_pass_and_by_draft():
    """Three milliseconds for any draft, and half of the price for each pass."""
    drafting, rng = DraftingTime(), random.Random(0)
    assert drafting.seconds(0.01) == 0.01
    for _ in range(60):
        foreseen = rng.choice((0.01, 0.02, 0.05))
        drafting.learn(0.003 + 0.5 * foreseen, foreseen)
    assert drafting.factor == pytest.approx(0.5, rel=0.2) and 0.001 < drafting.more < 0.004
    assert drafting.seconds(0.03) == pytest.approx(0.018, rel=0.1)
    drafting.learn(0.0, 0.01)
    drafting.learn(0.01, 0.0)
    assert drafting.factor == pytest.approx(0.5, rel=0.2), "what is not known says nothing"


def test_a_price_of_a_busy_moment_is_corrected_by_the_first_drafts():
    """A draft model whose price was five times too high was asked in the first rounds alone."""
    price = curve(COSTS["cpu"])
    budget, right = (drilled(Budget(price, timed=True), 0.9) for _ in range(2))
    wrong = 0.5
    assert chain_length(budget, a_token=wrong) < chain_length(right, a_token=0.1)
    for _ in range(4):
        budget.more(kind_of(DRAFT), [], 20, lambda n: n * wrong)
        budget.learn(DraftTree.chain([1], DRAFT, [0.9]), [0], 0.1, price.at(2))
        right.learn(DraftTree.chain([1], DRAFT, [0.9]), [0], 0.0, price.at(2))
    assert abs(chain_length(budget, a_token=wrong) - chain_length(right, a_token=0.1)) <= 1


def test_a_method_that_loses_time_rests_ever_longer_until_it_pays():
    price = curve(COSTS["linear"])
    budget, untimed = Budget(price, timed=True), Budget(price)
    chain = DraftTree.chain([1, 2], DRAFT)

    def rests(budget: Budget, path: tuple[int, ...]) -> bool:
        """One more round, whose draft is verified for its price, and is accepted so far."""
        if budget.rests():
            budget.learn(DraftTree(), (), 0.0, price.at(1))
        else:
            budget.learn(chain, path, 0.0, price.at(3))
        return budget.resting

    rounds = [rests(budget, ()) for _ in range(300)]
    lengths = [len([*same]) for resting, same in itertools.groupby(rounds) if resting]
    assert lengths[:5] == [8, 16, 32, 64, 64], "a round of three rows for one token loses two passes"
    assert not any(rests(untimed, ()) for _ in range(50)), "where the text may depend on drafts no clock decides"
    cheap = Budget(curve(COSTS["flat"]), budget.acceptance, timed=True)
    while rests(cheap, (0, 1)):
        pass
    assert not any(rests(cheap, (0, 1)) for _ in range(50)) and budget.acceptance.rest.following == 8


def test_a_method_whose_parts_may_each_lose_little_rests_later():
    def before_a_rest(several: bool) -> int:
        budget = Budget(curve(COSTS["linear"]), timed=True)
        if several:
            budget.compete(0.6)
        for number in range(20):
            if budget.rests():
                return number
            budget.learn(DraftTree.chain([1], DRAFT), (), 0.0, budget.price.at(2))
        return 20

    assert before_a_rest(False) < before_a_rest(True) < 20


@pytest.mark.parametrize("seconds, rests", [(0.5, True), (0.0, False)])
def test_what_a_method_learns_after_a_round_counts_as_its_time(seconds, rests, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("engines.methods.drafter.perf_counter", lambda: clock[0])

    class Learning(Drafter):
        def follow(self, outcome):
            clock[0] += seconds

    budget = Budget(CostCurve(((1, 1.0), (64, 9.0))), timed=True)
    drafter = Learning(Resources(law=None, vocab_size=10, budget=budget), "auto")
    for _ in range(6):
        drafter.learn(toys.outcome([1, 2], 1, DraftTree(), (), (2,)))
    assert bool(budget.acceptance.rest.left) == rests


def test_break_even():
    assert BreakEven(2.0, 3.0).speed_up == 1.5


@given(st.permutations([1, 1, 2, 4, 8, 8, 16, 32]), st.floats(0.7, 3), st.floats(0.7, 3))
def test_times_of_forwards_are_learned_from_rounds(rows, one, more):
    """Two factors of a curve that a busy moment bent, from rounds of other sizes; an accident does not stick."""
    curve, times = CostCurve(((1, 1.0), (4, 1.5), (32, 6.0))), ForwardTimes()
    assert times.seconds(1.0, 3.0) == 3.0, "as foreseen while nothing is known"
    times.learn(1.0, 1.0, 80.0)
    for n in rows * 12:
        times.learn(1.0, curve.at(n), one * 1.0 + more * (curve.at(n) - 1.0))
        times.learn(1.0, curve.at(n), 0.0)
    found = [times.seconds(1.0, curve.at(n)) / (one + more * (curve.at(n) - 1)) for n in (1, 2, 8, 32)]
    assert all(0.75 < ratio < 1.35 for ratio in found), found


def test_rounds_of_one_size_scale_the_whole_curve():
    times = ForwardTimes()
    for _ in range(60):
        times.learn(1.0, 1.0, 2.0)
    assert times.seconds(1.0, 1.0) == pytest.approx(2.0, rel=0.05) and times.seconds(1.0, 4.0) > 6
