"""Damaged datastores: noticed when opened or verified; never a crash, never a token that there is not."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.datastores.building.build_datastore import build_datastore
from engines.datastores.search.sparse import SparseStore
from engines.datastores.search.trie import drawn, heaviest
from engines.datastores.storage.datastore import Store
from engines.errors import DatastoreProblem, SpecError
from tests.datastores.conftest import Ids, Vocabulary

pytestmark = pytest.mark.usefixtures("lookups")
NAMES = ["tokens.bin", "suffixes.bin", "documents.bin", "places.bin", "lines.bin", "names.bin", "name_ends.bin"]


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A datastore in which all is well: documents with and without lines, many matches."""
    from engines.datastores.building.corpus import Document
    from engines.datastores.storage import catalog

    rng = np.random.default_rng(0)

    class Mixed(Ids):
        def documents(self, resume=None):
            for document, at in super().documents(resume):
                yield Document(document.source, tokens=document.tokens, line=at % 2), at

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path_factory.mktemp("sound")))
        patch.setattr(catalog, "sample_datastores", lambda: None)
        return build_datastore("sound", Mixed(rng.integers(0, 4, (8, 30)).tolist()), Vocabulary(4)).folder


def use(store):
    """All that is done with a store; tokens are of the vocabulary."""
    sparse = SparseStore(store)
    for context in ([0], [1, 2], [3, 2, 1, 0], [0, 0, 0, 1], [2, 3] * 8):
        for match in sparse.falling(context, 16, 1):
            found = sparse.continuations(match, 6, limit=9)
            for nodes in (heaviest(found, 12), drawn(found, 12, 0)):
                assert all(0 <= t < 4 for t in nodes.tokens)
            for position in found.positions.tolist():
                place = sparse.documents.place(position)
                assert isinstance(place.source, str)
                ids, _ = sparse.documents.passage(position)
                assert all(0 <= t < 4 for t in ids)


def test_a_sound_one_is_sound(sound):
    store = Store(sound)
    assert sorted(f.path for f in store.manifest.files) == sorted(NAMES)
    store.verify()
    use(store)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_bytes_never_crash_it(sound, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("d") / "mine"
    shutil.copytree(sound, folder)
    name = data.draw(st.sampled_from([n for n in NAMES if n != "lines.bin"]))
    content = bytearray((folder / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 12))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= data.draw(st.integers(1, 255))
    (folder / name).write_bytes(content)
    unchanged = bytes(content) == (sound / name).read_bytes()
    try:
        use(Store(folder))
    except SpecError as error:
        assert error.hint
    if not unchanged:
        with pytest.raises(DatastoreProblem, match=name.replace(".", r"\.")):
            Store(folder).verify()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fill", [b"\0", b"\xff", b"\x7f"])
def test_files_of_one_byte_never_crash_it(sound, tmp_path, name, fill):
    folder = tmp_path / "mine"
    shutil.copytree(sound, folder)
    (folder / name).write_bytes(fill * (folder / name).stat().st_size)
    try:
        use(Store(folder))
    except SpecError as error:
        assert error.hint


@pytest.mark.parametrize("name", NAMES)
def test_another_size_is_noticed_at_once(sound, tmp_path, name):
    content = (sound / name).read_bytes()
    others = [content + b"x", content[:-1], content[: len(content) // 2], b""] if content else [b"x"]
    for n, other in enumerate(others):
        folder = tmp_path / f"{n}"
        shutil.copytree(sound, folder)
        (folder / name).write_bytes(other)
        with pytest.raises(DatastoreProblem, match=f"{name} has"):
            Store(folder)
    (folder / name).unlink()
    with pytest.raises(DatastoreProblem, match=f"{name} is missing"):
        Store(folder)


def test_arrays_that_don_t_fit_each_other_are_refused(sound, tmp_path):
    """A manifest can be whole and still be of other files."""
    import dataclasses

    from engines.datastores.storage import manifest

    for changes in ({"tokens": 5}, {"documents": 3}, {"vocab_size": 70_000}, {"documents": 0, "tokens": 0}):
        folder = tmp_path / str(changes)[:12].strip("{'")
        shutil.copytree(sound, folder)
        manifest.write_manifest(folder, dataclasses.replace(manifest.read_manifest(folder), **changes))
        with pytest.raises(DatastoreProblem):
            SparseStore(Store(folder))
        shutil.rmtree(folder)
