"""RASD: fusion and pruning against naive sets of prefixes, its retrieval against Algorithm 1 written down."""

from __future__ import annotations

from collections import Counter
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines import Request, UsageProblem
from engines.core.lossless_laws import Exact
from engines.core.outcome import DraftLimits
from engines.core.sampling import Sampling
from engines.core.tree import DraftTree, depths
from engines.cost.budget import LEVELS, Acceptance, Budget
from engines.methods import DRAFT_MODEL, find
from engines.methods.draft_model.drafter import DraftModel
from engines.methods.drafter import Resources
from engines.methods.rasd import SPEC
from engines.methods.rasd.drafter import Rasd
from engines.methods.rasd.fusion import fuse, pruned, side_by_side
from engines.report.events import Origin, Round
from tests.conftest import TURN
from tests.datastores.conftest import sparse
from tests.engines.test_rest import Here, paths_of
from tests.engines.toys import ToyModel, outcome

DRAFT, COPY = Origin("draft"), Origin("prompt", place=3, match=2)
VOCAB = 4


@pytest.fixture(autouse=True)
def home(request, tmp_path, monkeypatch):
    if not {"tiny", "sample"} & set(request.fixturenames):  # their datastores lie elsewhere
        monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))


def tree_of(paths, origin) -> DraftTree:
    tree = DraftTree(origins=[origin])
    for path in paths:
        node = -1
        for token in path:
            node = tree.add(token, node, 0.5, 0)
    return tree


def prefixes(paths) -> set[tuple]:
    return {tuple(path[:depth]) for path in paths for depth in range(1, len(path) + 1)}


some_paths = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), max_size=6)


@settings(max_examples=150)
@given(some_paths, some_paths)
def test_fusion_is_the_union_of_prefixes_and_says_what_both_had(left, right):
    first, second = tree_of(left, DRAFT), tree_of(right, COPY)
    tree = fuse(first, second)
    tree.check(3)
    paths = paths_of(tree)
    assert len(paths) == len(set(paths)) and set(paths) == prefixes(left) | prefixes(right)
    for path, origin, also in zip(paths, tree.origin, tree.also):
        assert tree.origins[origin] == (DRAFT if path in prefixes(left) else COPY)
        assert (also >= 0) == (path in prefixes(left) & prefixes(right))
        assert also < 0 or tree.origins[also] == COPY


@settings(max_examples=100)
@given(some_paths, some_paths)
def test_without_fusion_both_trees_hang_under_one_root(left, right):
    first, second = tree_of(left, DRAFT), tree_of(right, COPY)
    tree = side_by_side(first, second)
    tree.check(3)
    assert Counter(paths_of(tree)) == Counter(prefixes(left)) + Counter(prefixes(right))
    assert not tree.also and all(tree.parents[n] < len(first) or n >= len(first) for n in range(len(tree)))


@settings(max_examples=100)
@given(some_paths, st.sets(st.integers(0, 2)))
def test_pruning_rejects_by_the_first_token_and_counts_what_hung_there(rows, firsts):
    kept, lost = pruned(tree_of(rows, COPY), firsts.__contains__)
    assert set(paths_of(kept)) == {p for p in prefixes(rows) if p[0] in firsts}
    assert lost == Counter(p[0] for p in prefixes(rows) if p[0] not in firsts)


def algorithm_1(documents, context, n_max, n_min, length) -> set[tuple]:
    """All candidates, the result set never full."""
    return {
        tuple(d[i + n : i + n + length])
        for n in range(n_min, n_max + 1) if n <= len(context)
        for d in documents for i in range(len(d) - n) if list(d[i : i + n]) == list(context[len(context) - n :])
    }


def engine(model, *stores, **options) -> Rasd:
    options = {"budget": "paper", "candidates": 256, "nodes": 256, "n_max": 5, "depth": 3, "top_k": 2, **options}
    law = Exact(Sampling(), 0, VOCAB)
    resources = Resources(law=law, vocab_size=VOCAB, draft_model=model, available=(DRAFT_MODEL,) if model else (),
                          open_datastores=Here(*stores))
    return Rasd(resources, **SPEC.parse(options))


def begin(drafter, context, prompt_length=1):
    drafter.start(outcome(list(context), prompt_length, DraftTree(), (), (context[-1],)))


def drafted_alone(context, depth, top_k, room) -> set[tuple]:
    model = ToyModel(VOCAB, seed=2)
    options = {"budget": "paper", "shape": "tree", "depth": depth, "top_k": top_k}
    from engines.methods.draft_model import SPEC as DRAFT_SPEC

    resources = Resources(law=Exact(Sampling(), 0, VOCAB), vocab_size=VOCAB, draft_model=model)
    part = DraftModel(resources, **DRAFT_SPEC.parse(options))
    return set(paths_of(part.propose(context, room)))


documents = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=16), min_size=1, max_size=4)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents, st.lists(st.integers(0, 3), min_size=1, max_size=8), st.integers(1, 3), st.integers(1, 5),
       st.integers(1, 4), st.booleans())
def test_drafts_the_drafters_tree_and_what_survives_of_algorithm_1(texts, context, n_min, length, top, prune):
    model, room = ToyModel(VOCAB, seed=2), DraftLimits(100, 500)
    drafter = engine(model, sparse(texts, VOCAB), n_min=n_min, length=length, prune=prune, prune_top=top)
    begin(drafter, context)
    tree = drafter.propose(context, room)
    candidates = algorithm_1(texts, context, 5, n_min, length)
    likeliest = np.argsort(-model.logits_after(context).numpy(), kind="stable")[:top]
    kept = {c for c in candidates if not prune or c[0] in likeliest}
    own = drafted_alone(context, 3, 2, room)
    assert set(paths_of(tree)) == own | prefixes(kept) and len(tree) == len(set(paths_of(tree)))
    assert tree.retrieval.used == len(candidates) and tree.retrieval.fused == len(own & prefixes(kept))
    lost = Counter(str(path[0]) for path in prefixes(candidates - kept))
    assert dict(tree.retrieval.pruned) == dict(lost)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents, st.lists(st.integers(0, 3), min_size=1, max_size=8), st.sets(st.integers(0, 3), max_size=3))
def test_what_the_drafter_cannot_rank_is_not_pruned(texts, context, unknown):
    """A head with a vocabulary of its own has no logits for the other tokens, and no opinion of them."""
    model, room = ToyModel(VOCAB, seed=2), DraftLimits(100, 500)
    whole, drafts = model.logits_after, np.array(sorted({*range(VOCAB)} - unknown))
    model.logits_after = lambda context: whole(context)[drafts]
    drafter = engine(model, sparse(texts, VOCAB), n_min=1, length=2, depth=1, top_k=1, prune_top=1)
    drafter.part.predictor.drafts = drafts
    begin(drafter, context)
    tree = drafter.propose(context, room)
    favourite = int(drafts[model.logits_after(context).argmax()])
    retrieved = prefixes(algorithm_1(texts, context, 5, 1, 2))
    kept = {path for path in retrieved if path[0] == favourite or path[0] in unknown}
    assert set(paths_of(tree)) == kept | {(favourite,)}
    assert tree.note.pruned == len(retrieved - kept)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=14), st.integers(1, 3), st.integers(1, 5))
def test_where_the_context_has_nothing_the_drafters_tokens_are_appended(context, n_min, length):
    room = DraftLimits(100, 500)
    drafter = engine(ToyModel(VOCAB, seed=2), retrieval="pld", prune=False, n_min=n_min, length=length)
    begin(drafter, context)
    tree = drafter.propose(context, room)
    own = drafted_alone(context, 3, 2, room)
    expected, depth = algorithm_1([context], context, 5, n_min, length), 0
    while not expected and depth < max(map(len, own)):
        depth += 1
        level = [path for path in own if len(path) == depth]
        assert len(level) >= 2
        likeliest = sorted(level, key=lambda path: -chance(tree, path))[:2]
        expected = {(*p, *c) for p in likeliest for c in algorithm_1([context], [*context, *p], 5, n_min, length)}
    assert set(paths_of(tree)) == own | prefixes(expected)
    assert (tree.note.shared or 0) == (depth if expected else 0)
    copies = {p for p, o in zip(paths_of(tree), tree.also) if o >= 0}
    assert copies == {p for p in own & prefixes(expected) if len(p) > depth}, "what was appended was not found"


def chance(tree, path) -> float:
    probs = dict(zip(paths_of(tree), tree.probs))
    return float(np.prod([probs[path[:depth]] for depth in range(1, len(path) + 1)]))


def test_a_copy_says_whether_it_is_of_the_prompt_or_of_the_answer():
    drafter = engine(ToyModel(VOCAB, seed=2), retrieval="pld", prune=False, n_min=2, n_max=2, length=1, depth=1)
    begin(drafter, [0, 1, 2, 0, 1], prompt_length=5)
    assert Origin("prompt", place=2, match=2) in drafter.propose([0, 1, 2, 0, 1], DraftLimits(9, 99)).origins
    begin(drafter, [0, 1, 2, 0, 1], prompt_length=1)
    assert Origin("output", place=2, match=2) in drafter.propose([0, 1, 2, 0, 1], DraftLimits(9, 99)).origins
    longer = drafter.propose([0, 1, 2, 0, 1, 3, 0, 1], DraftLimits(9, 99))
    assert {o.place for o in longer.origins if o.source == "output"} == {2, 5}, "the text grows as it is written"


def test_room_is_kept():
    drafter = engine(ToyModel(VOCAB, seed=2), sparse([[0, 1, 2, 3, 0, 1, 2, 3]], VOCAB), prune=False)
    begin(drafter, [0, 1])
    assert max(depths(drafter.propose([0, 1], DraftLimits(2, 500)).parents)) == 2
    assert len(drafter.propose([0, 1], DraftLimits(100, 5))) == 5


def test_longer_matches_weigh_more_than_shorter_ones():
    texts = [[0, 1, 2], [3, 1, 3], [3, 1, 3], [3, 1, 3]]
    drafter = engine(ToyModel(VOCAB, seed=2), sparse(texts, VOCAB), prune=False, n_min=1, length=1, depth=1, top_k=1)
    found, _ = drafter.retriever.find([0, 1], DraftLimits(depth=1, nodes=9), DraftTree())
    # two tokens match once, with one next token: half; one matches four times, with two: 4/6 of the rest
    longer, shorter = 1 / 2 + 1 / 2 / 6, 1 / 2 * 3 / 6
    assert dict(zip(found.tokens, found.probs)) == pytest.approx(
        {2: longer / (longer + shorter), 3: shorter / (longer + shorter)})


def test_prefixes_that_many_share_go_before_whole_continuations():
    """REST's Algorithm 2 over all that was found: nothing is chosen before it is counted."""
    texts = [[0, 1, 2, n % 4] for n in range(8)] + [[0, 3, 3, 3]] * 3
    drafter = engine(ToyModel(VOCAB, seed=2), sparse(texts, VOCAB), candidates=1, n_min=1)
    found, _ = drafter.retriever.find([0], DraftLimits(depth=3, nodes=2), DraftTree())
    assert paths_of(found) == [(1,), (1, 2)]


def test_what_cannot_be_fused_is_refused():
    model = ToyModel(VOCAB)
    with pytest.raises(UsageProblem, match="n_min=9 is above n_max=3"):
        engine(model, n_min=9, n_max=3)
    with pytest.raises(UsageProblem, match="no EAGLE head or draft model is loaded"):
        engine(None)
    with pytest.raises(UsageProblem, match="no EAGLE head is loaded") as refused:
        engine(model, drafter="eagle")
    assert "set drafter=auto" in refused.value.hint
    chains = SimpleNamespace(trees=False, name="chains")
    with pytest.raises(UsageProblem, match="chains cannot branch"):
        engine(chains)


@pytest.mark.parametrize(("drafter", "reads"), [("auto", True), ("draft", False), ("eagle", True)])
def test_the_tree_is_that_of_the_engine_chosen(tiny, drafter, reads):
    """The head's tree is EAGLE's own: the same nodes with the same probabilities."""
    sizes = {"budget": "paper", "depth": 3, "top_k": 2, "total_nodes": 6}
    options = {**sizes, "drafter": drafter, "nodes": 1, "prune": False}
    _, prefilled, event, *_ = tiny.run(Request(TURN, "rasd", options, max_new_tokens=9))
    alone = Request(TURN, "eagle" if reads else "draft", {**sizes, "shape": "tree"}, max_new_tokens=9)
    own = next(e for e in tiny.run(alone) if isinstance(e, Round))
    size = len(own.draft.tokens)
    assert event.draft.tokens[:size] == own.draft.tokens
    assert event.draft.probs[:size] == pytest.approx(own.draft.probs, rel=1e-3)
    assert (prefilled.reads is not None) == reads and event.note["drafter"] == alone.engine
    assert event.note["draft_forwards"] == own.note["draft_forwards"]


def test_without_a_draft_model_the_head_drafts(tiny, monkeypatch):
    monkeypatch.setattr(tiny, "draft", None)
    _, prefilled, *_ = tiny.run(Request(TURN, "rasd", max_new_tokens=9))
    assert prefilled.reads.head == "EAGLE-3 head"
    rows = {drafter: tiny.memory("rasd", {"drafter": drafter}, 0) for drafter in ("auto", "eagle")}
    assert rows["auto"] == rows["eagle"] > tiny.memory("autoregressive", {}, 0)


def test_a_draft_model_that_is_named_drafts():
    spec = find("rasd")
    assert spec.with_named_model({"drafter": "auto", "fuse": True}, "draft model") == {"drafter": "draft", "fuse": True}
    assert spec.with_named_model({"drafter": "eagle"}, "draft model") == {"drafter": "eagle"}
    assert find("hybrid").with_named_model({"model": True}, "draft model") == {"model": True}


def judged(tree, path):
    acceptance = Acceptance()
    acceptance.learn(tree, path, ())
    return acceptance


def chances(acceptance, *names):
    return [acceptance.chances((name, 0), name == "prompt") for name in names]


def test_each_source_is_judged_by_what_it_drafted_alone():
    """Levels count for the draft model only where it drafted them; a duplicate of an accepted node was right too."""
    acceptance = Acceptance()
    tree = fuse(tree_of([[1, 2]], DRAFT), tree_of([[1, 3, 0]], COPY))
    path = [tree.tokens.index(1), tree.tokens.index(3), tree.tokens.index(0)]
    acceptance.learn(tree, path, ())
    alone = judged(tree_of([[1, 2]], DRAFT), [0])
    assert chances(acceptance, "draft", LEVELS[0]) == chances(alone, "draft", LEVELS[0])
    assert chances(acceptance, "prompt") > chances(alone, "prompt") == chances(Acceptance(), "prompt")
    twice = judged(side_by_side(tree_of([[1]], DRAFT), tree_of([[1]], COPY)), [0])
    assert chances(twice, "draft") == chances(judged(tree_of([[1]], DRAFT), [0]), "draft")
    assert chances(twice, "prompt") == chances(judged(tree_of([[1]], COPY), [0]), "prompt")


def test_what_both_proposed_is_counted_in_the_draft_that_the_budget_leaves(tiny):
    options = {"retrieval": "pld", "drafter": "draft", "n_min": 1, "prune": False}
    rounds = [e for e in tiny.run(Request(TURN, "rasd", options, max_new_tokens=60)) if isinstance(e, Round)]
    counts = [(e.retrieval.fused, e.note["fused"], sum(o >= 0 for o in e.draft.also)) for e in rounds if e.retrieval]
    assert any(e.budget and e.budget.kept < e.budget.proposed for e in rounds)
    assert all(len({*count}) == 1 for count in counts), counts


def test_the_one_budget_learns_once_a_round(tiny, monkeypatch):
    learnt = []
    monkeypatch.setattr(Budget, "learn", lambda *verdict: learnt.append(verdict))
    rounds = [e for e in tiny.run(Request(TURN, "rasd", max_new_tokens=20)) if isinstance(e, Round)]
    assert len(learnt) == len(rounds)


@settings(max_examples=100)
@given(some_paths, some_paths, st.integers(0, 50), st.sampled_from([0.0, 0.8]))
def test_duplicate_siblings_accept_as_much_as_the_fused_tree(left, right, seed, temperature):
    """Fusion changes what is verified, not what is accepted (the paper's Table 3)."""
    target, law = ToyModel(3, seed=1), Exact(Sampling(temperature), seed, 3)
    first, second = tree_of(left, DRAFT), tree_of(right, COPY)

    def judged(tree):
        rows = [target.logits_after([0, *path]) for path in [(), *paths_of(tree)]]
        verdict = law.judge(tree, torch.stack(rows), 1)
        parents = [tree.parents[node] for node in verdict.path]
        assert parents == [-1, *verdict.path][: len(parents)]
        return verdict.tokens

    assert judged(side_by_side(first, second)) == judged(fuse(first, second))


@pytest.mark.parametrize("retrieval", ["rest", "pld"])
def test_the_switches_of_table_3_on_a_model(tiny, retrieval):
    runs = {}
    for prune, merged in product((True, False), repeat=2):
        options = {"budget": "paper", "retrieval": retrieval, "prune": prune, "fuse": merged, "depth": 2, "top_k": 2,
                   "drafter": "draft"}
        *events, finished = tiny.run(Request(TURN, "rasd", options, max_new_tokens=40))
        rounds = [e for e in events if isinstance(e, Round)]
        accepted, verified = ([len(column) for column in columns] for columns in (
            [r.path for r in rounds], [r.draft.tokens for r in rounds]))
        runs[prune, merged] = finished.tokens, accepted, verified
        assert any(o >= 0 for r in rounds for o in r.draft.also) == (merged and retrieval == "rest")
    assert len({text for text, _, _ in runs.values()}) == 1
    for prune in (True, False):
        (_, fused, few), (_, apart, many) = runs[prune, True], runs[prune, False]
        assert fused == apart and all(a <= b for a, b in zip(few, many)) and sum(few) < sum(many)
    assert len(runs[True, True][1]) >= len(runs[False, True][1]), "pruning makes no draft better"
