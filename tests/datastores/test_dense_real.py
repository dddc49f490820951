"""Real keys: hidden states of the sample model over this project's own source, against exact search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engines.datastores.building.build_datastore import build_datastore
from engines.datastores.building.corpus import Document
from engines.datastores.building.hidden_states import HiddenStates
from engines.datastores.search import ann
from engines.datastores.search.ann import ExactIndex
from engines.datastores.search.dense import DenseStore, mean_reciprocal_rank, recall
from engines.datastores.search.indexing import build_index, open_index
from engines.datastores.storage.manifest import File
from engines.folders import checksum

ROOT = Path(__file__).resolve().parents[2] / "engines"
TEXTS = ("core/tree.py", "cost/curve.py", "methods/options.py")
OTHER = "report/answer.py"


class Texts:
    """Files of this project."""

    unit, total, identity = "files", len(TEXTS), {"kind": "texts"}

    def documents(self, resume=None):
        for i, name in enumerate(TEXTS):
            yield Document(name, (ROOT / name).read_text("utf-8")), i + 1


@pytest.fixture(scope="module")
def real(sample, tmp_path_factory):
    """A store of real keys, and hidden states with the tokens after them, of a text that is not in it."""
    patch = pytest.MonkeyPatch()
    patch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path_factory.mktemp("real")))
    reader = HiddenStates(sample.target, sample.identity, 256)
    store = DenseStore(build_datastore("real", Texts(), sample.tokenizer, reader, index="exact"))
    ids = np.array(sample.tokenizer((ROOT / OTHER).read_text("utf-8"), add_special_tokens=False)["input_ids"][:257])
    [hidden] = reader([ids[:256]])
    yield store, hidden, ids[1:]
    patch.undo()


@pytest.mark.parametrize("backend", ["scann", "faiss"])
def test_an_index_finds_the_nearest_of_real_keys(backend, real, tmp_path):
    if not ann.installed(backend):
        pytest.skip(f"{backend} is not installed")
    store, hidden, _ = real
    description = build_index(store.store.folder / "keys.bin", store.keys.shape, tmp_path / "index", backend)
    files = [File(f"index/{p.name}", p.stat().st_size, checksum(p)) for p in (tmp_path / "index").iterdir()]
    index, remark = open_index(store.keys, tmp_path, description, files)
    assert remark == "" and index.backend == backend
    store.index = index
    try:
        assert recall(store, 10, store.reduction(hidden)).value >= 0.85
        assert mean_reciprocal_rank(store, 300) >= 0.95
    finally:
        store.index = ExactIndex(store.keys)


def test_the_hidden_state_of_a_token_leads_to_what_follows_it(real, sample):
    store, _, _ = real
    assert len(store) > 2000 and store.reduction.width == 64
    assert 0.5 < store.reduction.arrays()["explained"].sum() < 1
    ids = sample.tokenizer((ROOT / TEXTS[0]).read_text("utf-8"), add_special_tokens=False)["input_ids"][:128]
    [hidden] = HiddenStates(sample.target, sample.identity, 256)([np.array(ids)])
    right = 0
    for i in range(40, 120):
        found = store.query(hidden[i], ids[i + 1], drafts=1, length=4)
        right += found.tokens[0].tolist() == ids[i + 2 : i + 6]
    assert right >= 78  # but for keys held out


def test_neighbours_are_like_the_text_they_are_found_for(real):
    """Unseen text: what the nearest neighbour goes on with is right more often than what a random key goes on with."""
    store, hidden, following = real
    rows = range(0, 254)
    found = [store.query(hidden[i], int(following[i]), drafts=1, length=1) for i in rows]
    near = np.mean([len(f) and f.tokens[0, 0] == following[i + 1] for i, f in zip(rows, found)])
    others = np.random.default_rng(0).permutation(254)
    far = [store.query(hidden[others[i]], int(following[i]), drafts=1, length=1) for i in rows]
    random = np.mean([len(f) and f.tokens[0, 0] == following[i + 1] for i, f in zip(rows, far)])
    assert near > 1.3 * random > 0
