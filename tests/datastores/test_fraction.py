"""A share of a datastore: its first documents, as if only these had been built."""

from __future__ import annotations

import numpy as np
import pytest

from engines.datastores.search.dense import DenseStore
from engines.datastores.search.sparse import SparseStore
from engines.reproduce.measures import RowFacts
from tests.datastores.conftest import sparse
from tests.datastores.test_dense import Toy, corpus, dense

FRACTIONS = (0.1, 0.25, 0.5, 0.75)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))


def kept(store, fraction):
    """How many documents a share has."""
    return next(n for n in range(1 + len(store.documents)) if n == len(store.documents)
                or store.documents.bounds(n)[0] >= store.documents.first(fraction))


def size(part):
    return sum(part.sizes.values())


def found(store, context):
    match = store.longest(context, 4, 1)
    if match is None:
        return None
    rows = store.continuations(match, 5)
    return match.length, match.count, rows.tokens.tolist(), rows.positions.tolist()


def test_a_share_of_a_sparse_store_is_what_a_build_of_its_first_documents_would_be():
    documents, counts = corpus(20, vocab_size=4), []
    whole = sparse(documents, vocab_size=4).store
    parts = {fraction: SparseStore(whole, fraction) for fraction in FRACTIONS}
    for fraction, part in parts.items():
        counts.append(kept(part, fraction))
        alone = sparse(documents[: counts[-1]], vocab_size=4)
        assert len(part) == len(alone) == sum(map(len, documents[: counts[-1]]))
        assert len(part) >= fraction * len(SparseStore(whole)) > 0 and size(part) < whole.manifest.size
        assert all(found(part, text[:6]) == found(alone, text[:6]) for text in documents)
    assert counts == sorted(counts) and len(set(counts)) == len(counts)
    assert len(SparseStore(whole, 1.0)) == sum(map(len, documents)) and size(SparseStore(whole)) == whole.manifest.size


def test_measures_of_a_row_are_of_the_share_that_it_searches():
    store = dense(corpus(20, vocab_size=12), Toy(12), vocab_size=12).store
    row = RowFacts(stores=(store,), fraction=0.3)
    assert len(row.dense) == len(DenseStore(store, 0.3)) < len(DenseStore(store)) / 2


def test_the_size_of_a_part_is_that_of_the_files_that_its_searches_need():
    documents = corpus(20, vocab_size=12)
    both, alone = dense(documents, Toy(12), "both", 12, kind="both"), sparse(documents, vocab_size=12)
    part, keys = SparseStore(both.store), both.store.manifest.file("keys.bin").size
    assert part.sizes == alone.sizes and size(part) == alone.store.manifest.size < size(both) - keys
    assert size(both) == both.store.manifest.size - both.store.manifest.file("suffixes.bin").size
    assert size(SparseStore(both.store, 0.5)) < size(part) * 0.7


def test_a_share_of_a_dense_store_has_the_keys_of_its_first_documents():
    documents, toy = corpus(20, vocab_size=12), Toy(12)
    whole = dense(documents, toy, vocab_size=12)
    for fraction in FRACTIONS:
        part = DenseStore(whole.store, fraction)
        end = part.documents.first(fraction)
        assert len(part) == np.count_nonzero(np.asarray(whole.positions) < end) and 0 < size(part) < size(whole)
        for text in documents[:4]:
            near = part.query(toy.states(np.array(text))[-1], None, drafts=5)
            assert len(near) and (near.positions < end).all()
    assert len(DenseStore(whole.store, 1.0)) == len(whole)
