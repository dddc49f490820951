"""The hybrid engine: who drafts, by which score, from which datastores."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines import Request, UsageProblem
from engines.core.outcome import DraftLimits
from engines.core.tree import DraftTree
from engines.cost.budget import Acceptance, Budget
from engines.cost.curve import CostCurve
from engines.datastores.search.sparse import SparseStore
from engines.errors import SpecError
from engines.methods.drafter import Resources
from engines.methods.hybrid import SPEC
from engines.methods.hybrid.drafter import Hybrid, expected
from engines.methods.shared.predictor import ModelPredictor
from engines.methods.shared.tree_options import DraftNote
from engines.model.feature_request import LAST
from engines.report.events import Origin, Round
from engines.runtime import Prices, Runtime
from tests.conftest import TURN
from tests.datastores.conftest import sparse
from tests.datastores.test_dense import Toy, dense
from tests.engines.toys import outcome, showing
from tests.heads import make_head

ROOM = DraftLimits(100, 500)


@pytest.fixture(autouse=True)
def home(request, tmp_path, monkeypatch):
    if not {"tiny", "sample"} & set(request.fixturenames):  # their datastores lie elsewhere
        monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))


class Stocked:
    """A open_datastores that holds these."""

    def __init__(self, exact=(), near=()):
        self.stores = {False: {s.name: s for s in exact}, True: {s.name: s for s in near}}

    def fitting(self, dense=False):
        return tuple(self.stores[dense])

    default = fitting

    def sparse(self, names, fraction=1.0):
        return [self.stores[False][name] for name in names]

    def dense(self, names, fraction=1.0):
        return [self.stores[True][name] for name in names]


def engine(open_datastores=None, budget=None, datastores=(), detail=False, **options) -> Hybrid:
    given = {"budget": "auto" if budget else "paper", **options}
    resources = Resources(
        law=None, vocab_size=50, target=SimpleNamespace(fingerprint=""), budget=budget, open_datastores=open_datastores,
        datastores=datastores, detail=detail,
    )
    return Hybrid(resources, **SPEC.parse(given))


def draft(drafter, context, hidden=None, prompt_length=1) -> DraftTree:
    if hidden is not None:
        drafter.resources.target.features = showing(torch.from_numpy(hidden)[None]).features
    drafter.start(outcome(list(context), prompt_length, DraftTree(), (), (context[-1],)))
    return drafter.propose(context, ROOM)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(-1, 5), st.floats(0, 1)), max_size=8))
def test_the_score_is_the_sum_of_path_probabilities(nodes):
    tree = DraftTree()
    for i, (parent, prob) in enumerate(nodes):
        tree.add(i, min(parent, i - 1), prob, 0)
    paths = [0.0] * len(nodes)
    for i in range(len(nodes)):
        node, product = i, 1.0
        while node >= 0:
            product, node = product * tree.probs[node], tree.parents[node]
        paths[i] = product
    assert expected(tree) == pytest.approx(sum(paths))


def test_the_better_scoring_source_drafts():
    toy = Toy(10)
    exact = sparse([[1, 2, 3, 4, 5], [1, 2, 3, 4, 6]], 50, "exact")
    near = dense([[7, 8, 9, 6, 6, 6, 6, 6]], toy, "near", 50)
    drafter = engine(Stocked([exact], [near]))
    assert LAST in drafter.features.latest and {name for name, _ in drafter.searched} == {"exact", "near"}
    far = np.zeros(24, np.float32)

    tree = draft(drafter, [1, 2, 3], far)
    assert tree.note.drafted_by == "rest" and tree.tokens == [4, 5, 6]
    assert tree.note.scores == {"suffix": 0, "rest": 2, "dresd": 0}
    tree = draft(drafter, [7, 8, 9], toy.states(np.array([7, 8]))[1])
    assert tree.note.drafted_by == "dresd" and tree.tokens == [6] * 5
    tree = draft(drafter, [1, 2, 3, 9, 9, 9, 9, 1, 2, 3], far, prompt_length=10)
    assert tree.note.drafted_by == "suffix" and tree.tokens == [9, 9, 9]  # the match's length
    assert {o.source for o in tree.origins} == {"prompt"} and tree.retrieval.match == 3
    assert draft(drafter, [40, 41], far).note.drafted_by is None


def test_a_datastore_that_two_sources_search_lies_on_the_disk_once():
    near = dense([[7, 8, 9, 6, 6, 6]], name="both", kind="both")
    drafter = engine(Stocked([SparseStore(near.store)], [near]))
    assert {"rest", "dresd"} <= set(drafter.sources) and {name for name, _ in drafter.searched} == {"both"}
    assert sum(drafter.searched.values()) == near.store.manifest.size, "a file that both parts search counts once"


def test_a_round_says_what_was_looked_up_and_where_nothing_was_nothing():
    """The panel said that no similar state was found where no source had searched by meaning."""
    drafter = engine(Stocked([sparse([[1, 2, 3]], 50, "exact")]))
    assert draft(drafter, [40, 41]).retrieval.match == 0 and draft(drafter, [1, 2]).retrieval.match == 2
    drafter.sources.clear()
    assert draft(drafter, [1, 2]).retrieval is None


def test_a_source_whose_promises_do_not_come_true_is_believed_less():
    exact = sparse([[1, 2, 3, *[5] * 6]], 50, "exact")
    budget = Budget(CostCurve(((1, 1.0), (64, 1.0))))
    drafter = engine(Stocked([exact]), budget)
    context = [1, 2, 3, 4, 4, 4, 1, 2, 3]
    seen = []
    for _ in range(12):
        tree = draft(drafter, context)
        seen.append((tree.note.drafted_by, tree.note.scores["suffix"], tree.note.scores["rest"]))
        path = [0, 1] if tree.note.drafted_by == "rest" else []
        drafter.learn(outcome(context, 1, tree, tuple(path), (5, 5, 5)[: len(path) + 1]))
    assert seen[0][1] == pytest.approx(seen[0][2], abs=1) and seen[-1][0] == "rest"
    assert seen[-1][2] > seen[-1][1]


def test_a_source_that_was_right_is_believed_though_another_was_verified():
    """The text that is written judges every draft; what was verified is judged once."""
    budget = Budget(CostCurve(((1, 1.0), (64, 1.0))))
    right, wrong = (DraftTree.chain([token] * 3, Origin(source, match=1), [1.0] * 3)
                    for token, source in ((5, "prompt"), (6, "retrieval")))
    before = budget.score(right)
    for _ in range(5):
        budget.score(right), budget.score(wrong)
        verified = budget.prune(wrong)
        budget.learn(verified, (), 0.0, 0.0, (5,))
    assert budget.score(right) > before > budget.score(wrong)
    alone, copied, found = Acceptance(), ("prompt", 0), ("retrieval", 0)
    for scored in (2, 1, 1, 1, 1):
        alone.learn(wrong, (), [copied, found])
        for _ in range(scored):
            alone.overhear(DraftTree.chain([5], Origin("prompt", match=1), [1.0]), (5,))
    known = budget.acceptance
    assert known.chances(found, True) == alone.chances(found, True), "once a round, faded"
    assert known.chances(copied, True) == alone.chances(copied, True), (
        "one token was written, so no more is known of the deeper ones")


def test_a_model_beside_copies_loses_no_more_than_a_share_of_the_time():
    """It is tried once rounds without it have paid for a try, again where it won, and hardly where it lost."""
    def tries(accepted: bool) -> list[int]:
        budget = Budget(CostCurve(((1, 1.0), (2, 1.06), (64, 4.0))))
        budget.compete(None)
        tried = []
        for number in range(60):
            tree, none = DraftTree(), Budget(budget.price).rate(DraftTree())
            if budget.chain_rate(("draft", 0), 1, lambda n: 0.08 * n) > none:
                tried.append(number)
                assert budget.more(("draft", 0), [], 1, lambda n: 0.08 * n)
                tree = DraftTree.chain([5], Origin("draft"), [0.5])
            budget.learn(tree, (0,) if accepted and len(tree) else (), 0.0, 0.0, (5,))
        return tried

    won, lost = tries(True), tries(False)
    assert won[0] == lost[0] > 10 and won == list(range(won[0], 60))
    assert 1 <= len(lost) <= 3


def test_a_copy_wins_what_it_saves_over_the_model_that_would_have_drafted():
    budget = Budget(CostCurve(((1, 1.0), (3, 1.2), (64, 4.0))))
    assert budget.won(2, 2) == pytest.approx(3 - 1.2)
    assert budget.won(2, 2, rival=2.0) == pytest.approx(1.5 - 1.2), "the model writes three tokens in 1.5 passes"
    assert budget.won(2, 2, rival=0.5) == budget.won(2, 2), "a model that is slower than no drafts would not draft"


class Searching:
    """A source that takes some time to find two tokens, which come true or not, or nothing (None)."""

    searched, features, reads = {}, None, None

    def __init__(self, clock: list[float], seconds: float, right: bool | None) -> None:
        self.clock, self.seconds, self.right, self.searches = clock, seconds, right, 0

    def propose(self, context, limits):
        self.searches += 1
        self.clock[0] += self.seconds
        found = 0 if self.right is None else 2
        return DraftTree.chain([5 if self.right else 6] * found, Origin("retrieval", match=9), [0.9] * found)

    def follow(self, outcome):
        pass


@pytest.mark.parametrize(("timed", "right", "seconds", "least", "most"), [
    (True, True, 0.3, 100, 100),  # it wins more than it takes
    (True, False, 0.3, 4, 12),  # it does not, and is still looked at
    (True, None, 0.3, 4, 12), (True, None, 0.005, 100, 100),  # it takes next to nothing
    (False, False, 0.3, 100, 100),  # the seed is to repeat the text, whatever the clock says
])
def test_a_source_that_does_not_win_its_time_back_searches_now_and_then(
    timed, right, seconds, least, most, monkeypatch
):
    clock = [0.0]
    monkeypatch.setattr("engines.methods.hybrid.drafter.perf_counter", lambda: clock[0])
    drafter = engine(budget=Budget(CostCurve(((1, 1.0), (2, 1.05), (64, 4.0))), timed=timed))
    source = Searching(clock, seconds, right)
    drafter.sources = {"rest": source}
    for _ in range(100):
        tree = drafter.propose([1, 2, 3], ROOM)
        path = tuple(range(len(tree))) if right else ()
        drafter.learn(outcome([1, 2, 3], 1, tree, path, (5, 5, 5)[: len(path) + 1]))
    assert least <= source.searches <= most


def test_a_search_is_charged_once_though_the_last_round_has_no_room_for_a_draft():
    drafter, charged = engine(budget=Budget(CostCurve(((1, 1.0), (64, 4.0))))), []
    drafter.sources = {"rest": Searching([0.0], 0.3, right=True)}
    drafter.budget.searched = lambda name, seconds, won: charged.append(name)
    tree = drafter.propose([1, 2, 3], ROOM)
    drafter.learn(outcome([1, 2, 3], 1, tree, (0, 1), (5, 5, 5)))
    drafter.learn(outcome([1, 2, 3, 5, 5, 5], 1, DraftTree(), (), (7,)))
    assert charged == ["rest"]


def test_what_was_found_by_meaning_is_believed_as_a_match_of_one_token_until_it_came_true():
    budget = Budget(CostCurve(((1, 1.0), (64, 1.0))))
    meaning = DraftTree.chain([5] * 4, Origin("retrieval"), [1.0] * 4)
    copied = DraftTree.chain([6] * 4, Origin("retrieval", match=1), [1.0] * 4)
    before = budget.score(meaning)
    assert before == pytest.approx(budget.score(copied)) and before < 1
    for _ in range(4):
        budget.score(meaning)
        budget.learn(meaning, (0, 1, 2, 3), 0.0, 0.0)
    assert budget.score(meaning) > 2 > 1 > budget.score(copied)


def test_named_datastores_are_searched_by_what_they_hold(tiny):
    started, *events = tiny.run(Request(TURN, "hybrid", datastores=("tiny-texts",), max_new_tokens=30))
    assert started.datastores == ("tiny-texts",)
    rounds = [e for e in events if isinstance(e, Round)]
    assert set().union(*(r.note["scores"] for r in rounds)) >= {"suffix", "rest", "dresd"}
    _, *published = tiny.run(
        Request(TURN, "hybrid", {"budget": "paper"}, datastores=("tiny-texts",), max_new_tokens=30))
    assert all({"suffix", "rest", "dresd"} <= r.note["scores"].keys() for r in published if isinstance(r, Round))
    assert {r.note.get("drafted_by") for r in rounds} & {"rest", "dresd"}
    with pytest.raises(SpecError, match="nowhere"):
        next(tiny.run(Request(TURN, "hybrid", datastores=("nowhere",))))


def test_without_datastores_the_conversation_is_searched(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))
    started, *_ = tiny.run(Request(TURN, "hybrid", max_new_tokens=5))
    assert started.datastores == ()


def test_the_order_of_the_range_is_checked():
    with pytest.raises(UsageProblem, match="n_min=9 is above n_max=3"):
        engine(n_min=9, n_max=3)


class Promising:
    """A model that says what a chain of it is expected to bring, and drafts a 7."""

    def __init__(self, rate: float | None) -> None:
        self.says = rate

    def rate(self, context, limits):
        return self.says

    def propose(self, context, limits):
        return DraftTree.chain([7], Origin("draft"), [0.5], note=DraftNote(draft_forwards=1))


FLAT = CostCurve(((1, 1.0), (64, 1.0)))


@pytest.mark.parametrize(("context", "rate", "budget", "who"), [
    ([1, 2, 3, 1], None, None, "model"), ([1, 2, 3, 9, 9, 9, 1, 2, 3], None, None, "suffix"),  # scores 1 and 3
    ([1, 2, 3, 9, 9, 9, 1, 2, 3], 1.0, Budget(FLAT), "suffix"),
    ([1, 2, 3, 9, 9, 9, 1, 2, 3], 9.0, Budget(FLAT), "model"),
])
def test_the_model_drafts_where_it_promises_more(context, rate, budget, who):
    drafter = engine(budget=budget)
    drafter.model = "model", Promising(rate)
    tree = draft(drafter, context)
    assert tree.note.drafted_by == who and (tree.tokens == [7]) == (who == "model")
    assert tree.note.model_rate == (rate if budget else None) and "model" not in tree.note.scores
    assert not budget or (tree.note.model_rate > tree.note.copied_rate) == (who == "model")


def test_a_draft_model_is_a_part_where_there_is_no_head(tiny, tmp_path, monkeypatch):
    """It is tried from the first round on, and its weights count."""
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(tiny, "heads", {})
    _, *events = tiny.run(Request(TURN, "hybrid", {"n_min": 12}, max_new_tokens=30))
    by = [e.note.get("drafted_by") for e in events if isinstance(e, Round)]
    assert "draft" in by[:5], by
    assert events[-1].tokens == list(tiny.run(Request(TURN, max_new_tokens=30)))[-1].tokens
    _, *without = tiny.run(Request(TURN, "hybrid", {"model": False}, max_new_tokens=30))
    assert "draft" not in {e.note.get("drafted_by") for e in without if isinstance(e, Round)}
    assert tiny.memory("hybrid", {"model": True}, 10) > tiny.memory("hybrid", {"model": False}, 10)


def test_a_draft_model_that_missed_much_is_not_dearer_for_it_than_later(tiny):
    """To read what others drafted is paid once: it does not keep a model from drafting ever again."""
    predictor = ModelPredictor(tiny.draft, tiny.target.vocab_size)
    tiny.draft.truncate(0)
    assert predictor.unread(range(40)) == 40
    tiny.draft.extend(list(range(3, 33)))
    assert predictor.unread(range(40)) == 10 and predictor.unread(range(20)) == 1
    budget = Budget(CostCurve(((1, 1.0), (2, 1.06), (64, 4.0))), timed=True)
    budget.compete(0.7)
    assert budget.more(("draft", 0), [], 3, lambda n: 0.08 * n, once=5.0)
    budget.learn(DraftTree.chain([5], Origin("draft"), [0.9]), (0,), 5.08, 1.06)
    assert budget.chain_rate(("draft", 0), 3, lambda n: 0.08 * n) > 1.3, "it took what was expected"


def test_a_head_is_a_part_where_there_is_one_and_no_draft_model(tiny):
    _, *events = tiny.run(Request(TURN, "hybrid", {"budget": "paper", "threshold": 64}, max_new_tokens=8))
    assert {e.note["drafted_by"] for e in events if isinstance(e, Round) and e.draft.tokens} == {"draft"}
    tiny = Runtime.measured(tiny.target, tiny.tokenizer, heads=tiny.heads)  # without a draft model
    _, prefilled, *events = tiny.run(
        Request(TURN, "hybrid", {"budget": "paper", "threshold": 64}, max_new_tokens=20))
    rounds = [e for e in events if isinstance(e, Round) and e.draft.tokens]
    assert prefilled.reads.layers == (1, 2, 3) and rounds and all(r.note["drafted_by"] == "eagle" for r in rounds)
    _, *events = tiny.run(Request(TURN, "hybrid", {"model": False, "threshold": 64}, max_new_tokens=20))
    assert all("eagle" not in e.note.get("scores", {}) for e in events if isinstance(e, Round))
    with_head, without = (tiny.memory("hybrid", {"model": on}, 10) for on in (True, False))
    assert with_head > without


@pytest.mark.parametrize(("agreement", "price", "first"), [
    (0.6, 0.05, "eagle"), (0.6, 0.09, "draft"), (0.4, 0.05, "draft"), (None, 0.05, "draft")])
def test_a_head_that_agrees_and_costs_clearly_less_comes_before_the_draft_model(tiny, agreement, price, first):
    head = make_head(tiny.target)
    head.file.card.update({"agreement": [agreement]} if agreement else {})
    of_heads = {head.config.kind: CostCurve(((1, price),))}
    prices = Prices(CostCurve(((1, 1.0), (64, 1.5))), CostCurve(((1, 0.1),)), of_heads)
    made = Runtime(tiny.target, tiny.tokenizer, prices, draft=tiny.draft, heads={head.config.kind: head})
    Runtime.measured(tiny.target, tiny.tokenizer, tiny.draft, made.heads)  # another one of the same head
    assert made.ready.heads[head.config.kind].preferred == (first == "eagle")
    _, *events = made.run(Request(TURN, "hybrid", {"budget": "paper", "threshold": 64}, max_new_tokens=8))
    assert {e.note["drafted_by"] for e in events if isinstance(e, Round) and e.draft.tokens} == {first}


def test_a_text_that_depends_on_drafts_is_the_same_when_stepped_through():
    """The source that drafts is not chosen by what is drafted for display too."""
    texts = [[1, 2, 3, *(10 * n + i for i in range(4))] for n in range(1, 5) for _ in range(4 ** (4 - n))]
    found = []
    for detail in (False, True):
        budget = Budget(CostCurve(((1, 1.0), (64, 20.0))))
        tree = draft(engine(Stocked([sparse(texts, 60, "exact")]), budget, detail=detail), [1, 2, 3])
        found.append((tree.tokens, tree.note.scores))
    assert found[0] == found[1] and found[0][0]


@pytest.mark.parametrize("keeps", [True, False])
def test_it_can_be_stepped_through(sample, keeps):
    """With what the target has at every row each source searches, whatever its searches have won."""
    sample.forget_acceptance()
    asked = Request(TURN, "hybrid", {"n_min": 1}, max_new_tokens=12, keeps=keeps)
    detailed, plain = (list(sample.run(replace(asked, detail=detail))) for detail in (True, False))
    assert detailed[-1] == plain[-1] and all(e.verified for e in detailed if isinstance(e, Round))
