"""``budget=paper`` is as published, where the methods' own choices would be others."""

from __future__ import annotations

import numpy as np
import pytest

from engines.core.lossless_laws import Exact
from engines.core.outcome import DraftLimits
from engines.core.sampling import Sampling
from engines.core.tree import depths
from engines.methods import find
from engines.methods.draft_model import SPEC as DRAFT
from engines.methods.draft_model.drafter import DraftModel
from engines.methods.drafter import Resources
from engines.methods.pld import SPEC as PLD
from engines.methods.pld.drafter import PromptLookup
from tests.datastores.conftest import sparse
from tests.datastores.test_dense import Toy, dense
from tests.engines.test_dresd import after
from tests.engines.test_rest import paths_of, propose
from tests.engines.toys import ToyModel

ROOM = DraftLimits(1000, 1000)
PAPER = {"budget": "paper"}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))


def drafted(**options):
    model = ToyModel(40, seed=3)
    resources = Resources(law=Exact(Sampling(), 0, 40), vocab_size=40, draft_model=model)
    return DraftModel(resources, **DRAFT.parse({**PAPER, **options})).propose([1, 2, 3], ROOM)


def test_eagle_2_verifies_59_nodes_of_510_after_six_forward_passes():
    """total_tokens 60 with the root; depth 5 after the first; top_k 10."""
    tree = drafted(shape="tree")
    assert len(tree) == 60 - 1 and tree.note.draft_forwards == 5 + 1 and tree.note.candidates == 10 + 5 * 100
    assert max(depths(tree.parents)) <= 6


@pytest.mark.parametrize("engine", ["draft", "eagle", "rasd"])
def test_every_tree_of_eagle_2_has_its_size(engine):
    sizes = find(engine).parse(PAPER)
    assert (sizes["depth"], sizes["top_k"], sizes["total_nodes"]) == (6, 10, 59)


@pytest.mark.parametrize("engine", ["draft", "eagle"])
def test_a_chain_has_its_length_however_unsure_the_drafter_is(engine):
    assert find(engine).parse(PAPER)["stop"] == "none" and find(engine).parse(PAPER)["num_tokens"] == 5
    tree = drafted()
    assert len(tree) == 5 and min(tree.probs) < 0.4


def test_prompt_lookup_takes_the_oldest_match_that_has_all_of_its_tokens():
    context = [5, 6, 7, *range(10, 20), 5, 6, 7, *range(20, 30), 8, 5, 6, 7]

    def copied(context, **options):
        return PromptLookup(Resources(law=None, vocab_size=99), **PLD.parse(options)).propose(context, ROOM).tokens

    assert copied(context, **PAPER) == list(range(10, 20)) and copied(context)[:10] == list(range(20, 30))
    late = [1, 2, 3, 40, 41, 42, 1, 2, 3]  # nothing has ten tokens after it
    assert copied(late, **PAPER) == [] and copied(late)[:3] == [40, 41, 42]
    shorter = [9, 3, *range(50, 60), 1, 2, 3, 40, 1, 2, 3]  # nor has the longest n-gram: the next shorter one does
    assert copied(shorter, **PAPER) == list(range(50, 60))


def test_dresd_drafts_the_nearest_whether_or_not_they_go_on_alike():
    toy, documents, paper = Toy(10), [[1, 2, 3, 4]] * 3 + [[5, 2, 3, 6]], find("dresd").parse(PAPER)
    store, hidden = dense(documents, toy, vocab_size=10), Toy(10).states(np.array([1, 2]))[1]
    assert after([1, 2, 3], hidden, store, drafts=3, distinct=paper["distinct"]).tokens == [4]
    assert sorted(after([1, 2, 3], hidden, store, drafts=3, distinct=True).tokens) == [4, 6]
    near = store.query(hidden, 3, drafts=3, distinct=False)
    assert near.counts.tolist() == [1, 1, 1] and len(set(near.keys.tolist())) == 3 and near.matching == 4


def test_dresd_looks_at_the_50_nearest_and_then_filters():
    """Not at more where few of them are left: the 51st nearest is out of reach."""
    paper = find("dresd").parse(PAPER)
    assert paper["neighbours"] == 50 and find("dresd").parse({})["neighbours"] == 0
    toy = Toy(300)
    documents = [[n, 299, 150 + n, 3] for n in range(1, 120)]
    store, hidden = dense(documents, toy, vocab_size=300), toy.states(np.array([120, 299]))[1]
    nearest = [store.tokens[store.positions[key]] for key in store.index.search(store.reduction.one(hidden), 1000)[0]]
    once = [rank for rank, token in enumerate(nearest) if nearest.count(token) == 1]
    assert min(once) < 50 <= max(once)
    for rank in once:
        near = store.query(hidden, int(nearest[rank]), neighbours=paper["neighbours"])
        assert near.candidates == 50 and bool(near.matching) == (rank < 50)
        assert store.query(hidden, int(nearest[rank])).matching, "our own search is wider"


def test_random_selection_takes_8_sequences_of_8():
    store = sparse([[0, 1, *row] for row in np.random.default_rng(0).integers(2, 10, (30, 12)).tolist()])
    tree = propose([0, 1], store, select="random")
    paths = paths_of(tree)
    leaves = [path for n, path in enumerate(paths) if n not in tree.parents]
    assert len(leaves) == 8 and {len(path) for path in leaves} == {8}
    assert max(map(len, paths_of(propose([0, 1], store, c=256)))) == 10  # the trie's continuations have ten
