"""Indexes: exact search is the oracle for the others; files on the disk are believed only as they were written."""

from __future__ import annotations

import shutil
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.datastores.search import ann, indexing
from engines.datastores.search.ann import ExactIndex, Index, IndexDescription, best, choose, largest
from engines.datastores.search.indexing import FOLDER, build_index, open_index
from engines.datastores.storage.manifest import File
from engines.errors import UsageProblem
from engines.report import encoding
from tests.datastores.broken_index import BrokenIndex

LIBRARIES = [pytest.param(b, marks=pytest.mark.skipif(not ann.installed(b), reason=f"{b} is not installed"))
             for b in ("scann", "faiss")]  # fmt: skip


def clustered(rows, dims=32, centres=300, seed=0, spread=0.6):
    """Keys of unit length around some centres, float16: neighbours are near, as those of real keys are."""
    random = np.random.default_rng(seed)
    middle = np.random.default_rng(99).normal(size=(centres, dims))
    keys = middle[random.integers(centres, size=rows)] + spread * random.normal(size=(rows, dims))
    return (keys / np.linalg.norm(keys, axis=1, keepdims=True)).astype(np.float16)


def plain_search(keys, query, k):
    """By the definition: all dot products, sorted, equal ones by number."""
    scores = keys.astype(np.float64) @ query.astype(np.float64)
    return np.lexsort((np.arange(len(keys)), -scores))[:k], scores


def stored(keys, root, backend):
    """Keys and their index in a folder, and the manifest's entries of its files."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "keys.bin").write_bytes(keys.tobytes())
    description = build_index(root / "keys.bin", keys.shape, root / FOLDER, backend)
    files = [File(f"{FOLDER}/{p.name}", p.stat().st_size, sha256(p.read_bytes()).hexdigest())
             for p in (root / FOLDER).iterdir()]  # fmt: skip
    return description, files


@pytest.fixture(scope="module")
def keys():
    return clustered(24_000)


@pytest.fixture(scope="module")
def built(keys, tmp_path_factory):
    """Description and files of an index by each library that is here, and the folder."""
    root = tmp_path_factory.mktemp("indexes")
    return {b: (root / b, *stored(keys, root / b, b)) for b in ("scann", "faiss") if ann.installed(b)}


@settings(max_examples=200)
@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, -1.0, 2.0, -3.5]), min_size=1, max_size=600), st.integers(1, 30))
def test_the_largest_are_the_largest_even_among_equals(numbers, k):
    scores = np.array(numbers, np.float32)
    found = largest(scores, k)
    assert len(found) == len(set(found.tolist())) == min(k, len(numbers))
    assert sorted(scores[found], reverse=True) == sorted(numbers, reverse=True)[:k]


@settings(max_examples=60)
@given(st.integers(1, 500), st.integers(1, 40), st.integers(0, 10**6), st.booleans())
def test_exact_search_is_exact_in_memory_and_in_blocks(rows, k, seed, few_values):
    random = np.random.default_rng(seed)
    draw = (lambda size: random.integers(-2, 3, size)) if few_values else (lambda size: random.normal(size=size))
    keys, query = draw((rows, 4)).astype(np.float16), draw(4).astype(np.float32)
    expected, scores = plain_search(keys, query, k)
    index = ExactIndex(keys)
    blocks = ExactIndex(keys)
    blocks._copies = None
    for one in (index, blocks):
        ids, found = one.search(query, k)
        np.testing.assert_allclose(found, scores[expected], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(scores[ids], found, rtol=1e-5, atol=1e-5)
        assert len(set(ids.tolist())) == len(ids) == min(k, rows)
        many, values = one.search_batch(np.stack([query, -query]), k)
        assert many.shape == values.shape == (2, k) and (many[:, min(k, rows):] == -1).all()
        np.testing.assert_allclose(values[0][: len(found)], found, rtol=1e-5, atol=1e-5)


def test_exact_search_goes_block_by_block_where_the_keys_are_many(monkeypatch):
    monkeypatch.setattr(ann, "_COPY", 1000)
    monkeypatch.setattr(ann, "_BLOCK", 37)
    keys = clustered(500)
    index = ExactIndex(keys)
    for query in clustered(10, seed=5).astype(np.float32):
        expected, _ = plain_search(keys, query, 12)
        assert index.search(query, 12)[0].tolist() == expected.tolist()
        assert index.search_batch(query[None], 12)[0][0].tolist() == expected.tolist()


def test_equal_scores_are_ranked_by_number():
    ids, scores = best(np.array([9, 2, 7, 4]), np.array([1.0, 3.0, 1.0, 3.0], np.float32), 3)
    assert ids.tolist() == [2, 4, 7] and scores.tolist() == [3, 3, 1]


@pytest.mark.parametrize("backend", LIBRARIES)
def test_an_index_finds_what_exact_search_finds(backend, keys, built):
    root, description, files = built[backend]
    index, remark = open_index(keys, root, description, files)
    assert (index.backend, remark, len(index)) == (backend, "", len(keys))
    assert description.version and description == encoding.build(IndexDescription, encoding.plain(description))
    queries = clustered(200, seed=1).astype(np.float32)
    _, wanted = ExactIndex(keys).search_batch(queries, 10)
    ids, scores = index.search_batch(queries, 10)
    assert (scores >= wanted[:, -1:] - 1e-5).mean() >= 0.9
    exact = np.einsum("qkd,qd->qk", keys[ids].astype(np.float32), queries)
    np.testing.assert_allclose(scores, exact, rtol=1e-4, atol=1e-4)  # never an estimate
    assert (np.diff(scores, axis=1) <= 0).all() and all(len(set(row)) == 10 for row in ids.tolist())
    one_ids, one_scores = index.search(queries[0], 10)
    assert one_ids.tolist() == ids[0].tolist() and one_scores.tolist() == scores[0].tolist()
    wide = index.candidates(queries[0], 2000)
    assert len(set(wide.tolist())) == len(wide) > 1000


@pytest.mark.parametrize("backend", LIBRARIES)
def test_an_index_survives_a_move_of_its_folder_and_another_working_directory(
    backend, keys, built, tmp_path, monkeypatch
):
    root, description, files = built[backend]
    shutil.copytree(root, tmp_path / "a" / "moved")
    monkeypatch.chdir(tmp_path / "a")
    index, remark = open_index(keys, Path("moved"), description, files)
    assert (index.backend, remark) == (backend, "")
    for path in (root / FOLDER).iterdir():
        content = path.read_bytes()
        assert str(root).encode() not in content and root.name.encode() + b"/" not in content
        assert not path.name.endswith(".pkl") and not content.startswith(b"\x80\x04")


@pytest.mark.parametrize("backend", LIBRARIES)
def test_the_same_keys_give_an_index_as_good(backend, keys, built, tmp_path):
    """Not always the same bytes: ScaNN draws its random numbers from addresses in memory."""
    root, description, files = built[backend]
    again, others = stored(keys, tmp_path / "again", backend)
    assert again == description and [f.path for f in others] == [f.path for f in files]
    one, _ = open_index(keys, root, description, files)
    other, _ = open_index(keys, tmp_path / "again", again, others)
    found = [[set(index.search(keys[row].astype(np.float32), 10)[0].tolist()) for row in range(0, 400, 10)]
             for index in (one, other)]
    assert np.mean([len(a & b) / len(a) for a, b in zip(*found)]) > 0.8


@pytest.mark.parametrize("backend", LIBRARIES)
@pytest.mark.parametrize("harm", ["cut", "empty", "flip", "gone", "more"])
def test_a_damaged_index_is_never_used(backend, harm, keys, built, tmp_path):
    root, description, files = built[backend]
    for name in [f.path for f in files]:
        shutil.rmtree(tmp_path / "bad", ignore_errors=True)
        shutil.copytree(root, tmp_path / "bad")
        path = tmp_path / "bad" / name
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        if harm == "gone":
            path.unlink()
        elif harm == "more":
            (path.parent / "scann_docids.pkl").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
        else:
            path.write_bytes({"cut": content[: len(content) // 2], "empty": b"", "flip": content}[harm])
        index, remark = open_index(keys, tmp_path / "bad", description, files)
        assert index.backend == "exact" and "can't be used" in remark and "24,000 keys" in remark
        assert index.search(keys[7].astype(np.float32), 1)[0].tolist() == [7]


@pytest.mark.parametrize("backend", LIBRARIES)
def test_an_index_of_other_keys_is_noticed(backend, keys, built):
    root, description, files = built[backend]
    for others in (keys[:-1], clustered(24_000, seed=8, spread=3)):
        index, remark = open_index(others, root, description, files)
        assert index.backend == "exact" and "can't be used" in remark


@pytest.mark.skipif(not ann.installed("scann"), reason="scann is not installed")
def test_files_named_in_an_index_lie_in_its_folder(keys, built, tmp_path):
    root, description, _ = built["scann"]
    shutil.copytree(root, tmp_path / "bad")
    assets = tmp_path / "bad" / FOLDER / "scann_assets.pbtxt"
    assets.write_text(assets.read_text().replace('"ah_codebook.pb"', f'"{root / FOLDER}/ah_codebook.pb"'))
    files = [File(f"{FOLDER}/{p.name}", p.stat().st_size, sha256(p.read_bytes()).hexdigest())
             for p in (tmp_path / "bad" / FOLDER).iterdir()]  # fmt: skip
    index, remark = open_index(keys, tmp_path / "bad", description, files)
    assert index.backend == "exact" and "scann_assets.pbtxt" in remark


def test_few_keys_are_searched_exactly_many_by_what_is_installed(monkeypatch):
    here = {"scann", "faiss"}
    monkeypatch.setattr(ann, "installed", lambda b: b == "exact" or b in here)
    assert choose("auto", ann.FEW) == "exact" and choose("auto", ann.FEW + 1) == "scann"
    here.remove("scann")
    assert choose("auto", 10**6) == "faiss"
    with pytest.raises(UsageProblem, match="scann is not installed"):
        choose("scann", 10**6)
    here.clear()
    assert choose("auto", 10**6) == "exact" == choose("exact", 10**6)
    with pytest.raises(UsageProblem, match="faiss-cpu is not installed"):
        choose("faiss", 10**6)
    with pytest.raises(UsageProblem, match="no index"):
        choose("hnsw", 1)


def test_a_store_from_a_machine_with_more_libraries_is_searched_exactly(monkeypatch, tmp_path):
    monkeypatch.setattr(indexing, "installed", lambda b: False)
    index, remark = open_index(clustered(50), tmp_path, IndexDescription("scann", "1.4.2", {"leaves": 0}), [])
    assert index.backend == "exact" and "scann is not installed" in remark


def test_a_library_that_fails_leaves_exact_search(tmp_path, monkeypatch):
    monkeypatch.setitem(indexing._LIBRARIES, "scann", BrokenIndex)
    monkeypatch.setattr(ann, "installed", lambda b: True)
    keys = clustered(100)
    description, files = stored(keys, tmp_path, "scann")
    assert (description.backend, files) == ("exact", []) and "no index today" in description.remark


def test_a_build_can_be_stopped(tmp_path, monkeypatch):
    monkeypatch.setitem(indexing._LIBRARIES, "scann", BrokenIndex)
    monkeypatch.setattr(ann, "installed", lambda b: True)

    def stop():
        raise KeyboardInterrupt

    (tmp_path / "keys.bin").write_bytes(clustered(99).tobytes())
    with pytest.raises(KeyboardInterrupt):
        build_index(tmp_path / "keys.bin", (99, 32), tmp_path / FOLDER, "scann", stop)


@pytest.mark.parametrize("record", [
    None, [], {}, {"backend": "pickle", "settings": {}}, {"backend": "scann"}, {"backend": "auto", "settings": {}},
    {"backend": "scann", "settings": {"leaves": -1}}, {"backend": "scann", "settings": {"leaves": "9"}},
    {"backend": "scann", "settings": {"leaves": True}}, {"backend": "scann", "settings": {"leaves": 1 << 40}},
])  # fmt: skip
def test_descriptions_that_are_none(record):
    with pytest.raises(ValueError):
        encoding.build(IndexDescription, record)


def test_the_face_is_abstract():
    with pytest.raises(NotImplementedError):
        Index(clustered(5)).search(np.zeros(32, np.float32), 1)
