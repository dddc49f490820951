"""REST against its two algorithms written down naively."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines import Request, UsageProblem
from engines.core.outcome import DraftLimits
from engines.core.tree import DraftTree, depths
from engines.datastores.building.build_datastore import build_datastore
from engines.datastores.building.text_files import text_files
from engines.datastores.storage import catalog
from engines.methods.drafter import Resources
from engines.methods.rest import SPEC
from engines.methods.rest.drafter import Rest
from engines.report.events import Round
from tests.datastores.conftest import sparse
from tests.engines.toys import outcome


class Here:
    """A open_datastores that holds these."""

    def __init__(self, *stores):
        self.stores = list(stores)

    def sparse(self, names, fraction=1.0):
        return self.stores

    dense = sparse


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))


def propose(context, *stores, room=DraftLimits(100, 500), **options) -> DraftTree:
    resources = Resources(law=None, vocab_size=10, open_datastores=Here(*stores))
    drafter = Rest(resources, **SPEC.parse({"budget": "paper", **options}))
    return drafter.draft(context, room)


def retrieve(documents, context, n_max, n_min, length):
    """Algorithm 1: the longest suffix that occurs, and all that follows its occurrences."""
    for n in range(min(n_max, len(context)), n_min - 1, -1):
        suffix = list(context[len(context) - n :])
        found = [
            tuple(d[i + n : i + n + length])
            for d in documents for i in range(len(d) - n) if list(d[i : i + n]) == suffix
        ]
        if found:
            return n, found
    return 0, []


def heaviest(found, c):
    """Algorithm 2: the c heaviest prefixes, the shallower first, then in order of token ids."""
    counts = Counter(t[: i + 1] for t in found for i in range(len(t)))
    return set(sorted(counts, key=lambda prefix: (-counts[prefix], len(prefix), prefix))[:c])


def paths_of(tree) -> list[tuple]:
    above: list[tuple] = []
    for token, parent in zip(tree.tokens, tree.parents):
        above.append((*(above[parent] if parent >= 0 else ()), token))
    return above


documents = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=20), min_size=1, max_size=4)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents, st.lists(st.integers(0, 3), min_size=1, max_size=8), st.integers(1, 3), st.integers(1, 5),
       st.integers(1, 12))
def test_drafts_what_the_two_algorithms_give(texts, context, n_min, length, c):
    tree = propose(context, sparse(texts, 4), n_min=n_min, n_max=5, length=length, c=c)
    match, found = retrieve(texts, context, 5, n_min, length)
    assert set(paths_of(tree)) == heaviest(found, c) and len(tree) == len(set(paths_of(tree)))
    assert (tree.retrieval.match, tree.retrieval.hits) == (match, len(found))
    counts = Counter(t[: i + 1] for t in found for i in range(len(t)))
    for path, prob in zip(paths_of(tree), tree.probs):
        assert prob == pytest.approx(counts[path] / (counts[path[:-1]] if len(path) > 1 else len(found)))


def test_the_longest_match_of_several_datastores_wins_and_equal_ones_are_merged():
    near, far = sparse([[1, 2, 3, 5]], 10, "near"), sparse([[2, 3, 6], [2, 3, 6]], 10, "far")
    assert paths_of(propose([1, 2, 3], near, far)) == [(5,)]
    tree = propose([0, 2, 3], near, far)
    assert set(paths_of(tree)) == {(5,), (6,)}
    assert {(tree.origins[o].datastore, t) for o, t in zip(tree.origin, tree.tokens)} == {("near", 5), ("far", 6)}


def test_a_node_says_where_it_came_from():
    tree = propose([7, 1, 2], sparse([[9, 9], [1, 2, 3, 4]], 10, "one"))
    origin = tree.origins[tree.origin[0]]
    assert (origin.source, origin.datastore, origin.document, origin.place, origin.match) == (
        "retrieval", "one", "document 1", 2, 2)
    passage = tree.retrieval.passages[origin.passage]
    assert (passage.datastore, passage.document, passage.weight) == ("one", "document 1", 1)


def test_a_miss_drafts_nothing_and_room_is_kept():
    store = sparse([[1, 2, 3, 4, 5, 6, 7]], 10)
    assert len(propose([9, 9], store)) == 0
    assert max(depths(propose([1, 2], store, room=DraftLimits(2, 500)).parents)) == 2
    assert len(propose([1, 2], store, room=DraftLimits(100, 3))) == 3


def test_the_order_of_the_range_is_checked():
    with pytest.raises(UsageProblem, match="n_min=9 is above n_max=3"):
        propose([1], sparse([[1, 2]], 10), n_min=9, n_max=3)


def test_a_new_run_reads_the_store_before_the_clock_of_drafting_starts(monkeypatch):
    store = sparse([[1, 2, 3]], 10)
    drafter, read = Rest(Resources(law=None, vocab_size=10, open_datastores=Here(store)), **SPEC.parse({})), []
    monkeypatch.setattr(store, "longest", lambda context, *sizes: read.append(list(context)))
    drafter.start(outcome([1, 2], 2, DraftTree(), (), (2,)))
    assert read == [[1, 2]]


def test_without_a_fitting_datastore_the_run_is_refused_with_the_way_out(tiny):
    with pytest.raises(UsageProblem, match="no datastore of this model's tokenizer") as refused:
        next(tiny.run(Request((("user", "x"),), "rest")))
    assert "spec-tui datastore build" in refused.value.hint
    assert "add --datastore python-stdlib, which is built when it is first searched" in refused.value.hint
    with pytest.raises(UsageProblem, match="nowhere"):
        next(tiny.run(Request((("user", "x"),), "rest", datastores=("nowhere",))))


def test_rounds_carry_the_lookup(sample, monkeypatch):
    monkeypatch.setattr(sample.open_datastores, "sparse", lambda names, fraction=1.0: [
        sparse([sample.tokenizer("def add(a, b):\n    return a + b\n")["input_ids"]], len(sample.tokenizer), "adds")
    ])
    options = {"n_min": 1, "budget": "paper"}  # with budget=auto a round may rest
    request = Request((("user", "Write a Python function that adds two numbers."),), "rest", options)
    started, *events = sample.run(request)
    assert started.datastores == ("adds",)
    looked = [e for e in events if isinstance(e, Round) and e.retrieval.match]
    assert looked and all(o.source == "retrieval" for e in looked for o in e.draft.origins)
    assert any("return" in p.after or "add" in p.before for e in looked for p in e.retrieval.passages)


def test_a_run_searches_what_another_program_built_and_nothing_that_it_removed(tiny, tmp_path):
    request = Request((("user", "x"),), "rest", max_new_tokens=2, datastores=("kept",))
    for text in ("import one", "import two"):
        (tmp_path / "text.txt").write_text(text)
        built = build_datastore("kept", text_files([tmp_path / "text.txt"]), tiny.tokenizer, replace=True)
        assert list(tiny.run(request))[-1].tokens
        assert tiny.open_datastores.open("kept").manifest == built.manifest, text
    catalog.remove("kept")
    with pytest.raises(UsageProblem, match="no datastore"):
        next(tiny.run(request))
