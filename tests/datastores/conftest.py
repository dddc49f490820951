"""Places of this test's own, and stores built from token ids."""

from __future__ import annotations

import os

import pytest

from engines.datastores.building.build_datastore import build_datastore
from engines.datastores.building.corpus import Document
from engines.datastores.search.sparse import SparseStore
from engines.datastores.storage import catalog


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """The user's datastores, none yet, beside an empty folder of shipped ones; the disk is not waited for."""
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(catalog, "sample_datastores", lambda: tmp_path / "shipped")
    monkeypatch.setattr(os, "fsync", lambda _: None)
    (tmp_path / "shipped").mkdir()
    return tmp_path / "data" / "datastores"


@pytest.fixture(params=["native", "plain"])
def lookups(request, monkeypatch):
    """Lookups in native code, and without it."""
    from engines.model.native import loaded, native_code

    monkeypatch.setattr(loaded, "code", native_code.library() if request.param == "native" else None)


class Vocabulary:
    """A tokenizer as far as a store of token ids needs one."""

    def __init__(self, size):
        self._size = size

    def get_vocab(self):
        return {str(i): i for i in range(self._size)}


class Ids:
    """A corpus of lists of token ids."""

    unit = "documents"

    def __init__(self, documents):
        self._documents = [list(d) for d in documents]
        self.identity, self.total = {"kind": "ids", "documents": self._documents}, len(self._documents)

    def documents(self, resume=None):
        for i in range(resume or 0, len(self._documents)):
            yield Document(f"document {i}", tokens=self._documents[i]), i + 1


def sparse(documents, vocab_size=None, name="store"):
    """A sparse store of documents given as token ids, in the place of an earlier one."""
    size = vocab_size or 1 + max(max(d, default=0) for d in documents)
    return SparseStore(build_datastore(name, Ids(documents), Vocabulary(size), fresh=True, replace=True))
