"""The dense part of a datastore: what a query brings, how it is built, what is refused."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.datastores.building.build_datastore import build_datastore
from engines.datastores.building.dense_build import estimate_dense, windows
from engines.datastores.search.ann import ExactIndex
from engines.datastores.search.continuations import END
from engines.datastores.search.dense import DenseStore, mean_reciprocal_rank, recall
from engines.datastores.search.reduction import Recipe, fit
from engines.datastores.search.sparse import SparseStore
from engines.datastores.storage import manifest as manifests
from engines.datastores.storage.catalog import open_store
from engines.datastores.storage.datastore import Store
from engines.datastores.storage.manifest import ModelIdentity
from engines.errors import DatastoreProblem, RunFailed, UsageProblem
from engines.model.native import loaded, native_code
from tests.datastores.broken_index import BrokenIndex
from tests.datastores.conftest import Ids, Vocabulary

WIDTH = 24


class Toy:
    """A model whose hidden state says the last three tokens, and when it was called with what."""

    batch = 4096

    def __init__(self, vocab_size=50, context=16, width=WIDTH):
        self.identity, self.context = ModelIdentity("toy", "a" * 64, width), context
        self._rows = np.random.default_rng(3).normal(size=(3, vocab_size, width)).astype(np.float32)
        self.read = []

    def __call__(self, texts):
        self.read += [text.tolist() for text in texts]
        assert all(len(text) <= self.context for text in texts)
        return [self.states(text) for text in texts]

    def states(self, text):
        found = self._rows[0][text].copy()
        for back in (1, 2):
            found[back:] += self._rows[back][text[:-back]] / 2**back
        return found


def corpus(documents=40, length=30, vocab_size=50, seed=0):
    random = np.random.default_rng(seed)
    return [random.integers(0, vocab_size, random.integers(1, length)).tolist() for _ in range(documents)]


def dense(documents, toy=None, name="store", vocab_size=50, **options):
    toy = toy or Toy(vocab_size)
    options = {"recipe": Recipe(8), "index": "exact", "replace": True, **options}
    return DenseStore(build_datastore(name, Ids(documents), Vocabulary(vocab_size), toy, **options))


def by_definition(store, documents, key, emitted, drafts, length, nearest=None):
    """The nearest keys by dot product; those whose next token is the emitted one; the distinct tokens after it."""
    stream = [t for d in documents for t in [*d, None]]
    scores = np.einsum("nd,d->n", store.keys.astype(np.float32), key)  # equal keys, equal scores
    found = []
    for number in np.lexsort((np.arange(len(scores)), -scores))[:nearest]:
        at = int(store.positions[number])
        if emitted is not None:
            if stream[at] != emitted:
                continue
            at += 1
        row = []
        while stream[at] is not None and len(row) < length:
            row.append(stream[at])
            at += 1
        if row and row not in [r for r, _ in found]:
            found.append((row, float(scores[number])))
    return found[:drafts]


def drafted(neighbours):
    return [[t for t in row if t != END] for row in neighbours.tokens.tolist()]


@pytest.mark.usefixtures("lookups")
@pytest.mark.parametrize("emitted", [None, 3, 7])
def test_a_query_brings_what_the_definition_says(emitted):
    documents = [*corpus(vocab_size=12), [3, 7], [7, 3], [3], *corpus(vocab_size=12)[:5]]
    store = dense(documents, Toy(12), vocab_size=12)
    for key in store.keys[::17].astype(np.float32):
        found = store.nearest(key, emitted, 6, 5)
        expected = by_definition(store, documents, key, emitted, 6, 5, found.candidates)
        assert found.candidates == 150 or (found.candidates == min(600, len(store)) and emitted is not None)
        assert drafted(found) == [row for row, _ in expected]
        np.testing.assert_allclose(found.scores, [score for _, score in expected], atol=1e-5)
        assert found.matching <= found.candidates and (found.counts >= 1).all()
        for tokens, at in zip(drafted(found), found.positions.tolist()):
            assert store.tokens[at : at + len(tokens)].tolist() == tokens


@pytest.mark.parametrize("distinct", [True, False])
@pytest.mark.parametrize("emitted", [None, 3])
def test_neighbours_are_the_same_with_native_code_and_without(monkeypatch, emitted, distinct):
    store = dense([*corpus(vocab_size=12), [3, 7], [7, 3], [3]], Toy(12), vocab_size=12)
    for key in store.keys[::23].astype(np.float32):
        monkeypatch.setattr(loaded, "code", native_code.library())
        found = store.nearest(key, emitted, 8, 5, distinct)
        monkeypatch.setattr(loaded, "code", None)
        plain = store.nearest(key, emitted, 8, 5, distinct)
        assert (found.candidates, found.matching) == (plain.candidates, plain.matching)
        np.testing.assert_allclose(found.scores, plain.scores, atol=1e-5)
        for name in ("tokens", "positions", "keys", "counts"):
            assert getattr(found, name).tolist() == getattr(plain, name).tolist(), name


@pytest.mark.usefixtures("lookups")
def test_a_hidden_state_finds_the_place_it_is_from():
    documents = corpus()
    toy = Toy()
    store = dense(documents, toy)
    text = documents[3]
    states = toy.states(np.array(text))
    for i in range(2, len(text) - 2):
        found = store.query(states[i], text[i + 1], drafts=3, length=4)
        assert drafted(found)[0] == text[i + 2 : i + 6] and found.scores[0] > 0.99
        place = store.documents.place(int(found.positions[0]))
        assert (place.document, place.offset) == (3, i + 2)


@pytest.mark.usefixtures("lookups")
def test_drafts_end_with_their_document_and_equal_ones_are_one():
    documents = [[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 5, 6], [9, 8]]
    store = dense(documents, Toy(10), vocab_size=10, recipe=Recipe(0))
    key = Toy(10).states(np.array([1, 2]))[1]
    found = store.query(key, 3, drafts=10, length=3)
    assert drafted(found) == [[4], [5, 6]] and found.counts.tolist() == [2, 1] and found.matching == 3
    assert found.tokens.shape == (2, 3) and found.tokens.dtype == np.int32
    assert store.query(key, 3, drafts=1).tokens.tolist() == [[4, *[END] * 9]]
    assert len(store.query(key, 9)) == 0 == len(store.query(key, 4)) == store.query(key, 9).matching
    assert len(store.query(key, 10**6)) == 0


@pytest.mark.usefixtures("lookups")
def test_neighbours_are_searched_more_widely_where_the_filter_leaves_too_few():
    random = np.random.default_rng(0)
    documents = [[1, 2, int(random.integers(5, 40)), 3] for _ in range(400)] + [[4, 2, 45, 9]] * 3
    store = dense(documents)
    key = Toy().states(np.array([1, 2]))[1]
    asked = []
    candidates = store.index.candidates
    store.index.candidates = lambda query, count: asked.append(count) or candidates(query, count)
    store.query(key, int(documents[0][2]), drafts=2)
    assert store.query(key, 45, drafts=2).candidates == asked[-1] == 4 * asked[-2]


@settings(max_examples=100)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(4, 17))
def test_each_token_that_another_follows_is_read_once_in_a_window_that_knows_enough(lengths, context):
    begins = np.cumsum([0, *[n + 1 for n in lengths]])
    found = list(windows(begins[:-1].astype(np.int32), int(begins[-1]), context))
    rows = [at for w in found for at in range(w.first, w.last)]
    assert rows == [at for b, n in zip(begins, lengths) for at in range(b, b + n - 1)]
    for w in found:
        document = int(np.searchsorted(begins, w.begin, "right")) - 1
        assert begins[document] <= w.begin <= w.first < w.last <= w.end <= begins[document] + lengths[document]
        assert w.end - w.begin <= context
        assert w.first - w.begin >= context // 4 or w.begin == begins[document]


def files_of(store):
    return {f.path: f.sha256 for f in store.manifest.files}


@pytest.mark.parametrize("kind, recipe", [("dense", Recipe(8)), ("both", Recipe(0, z_norm=False))])
def test_a_store_comes_back_from_the_disk_as_it_was_built(kind, recipe):
    documents = corpus(200)
    built = dense(documents, kind=kind, recipe=recipe)
    store = open_store("store")
    store.verify()
    assert (store.manifest.kind, store.manifest.keys, store.manifest.model.name) == (kind, len(built), "toy")
    again = DenseStore(store)
    keys = len(built) + len(built.held_out)
    assert keys == sum(len(d) - 1 for d in documents) and len(built.held_out) == keys // 100
    for query in (0, 100):
        hidden = Toy().states(np.array(documents[query]))[0]
        one, other = built.query(hidden, None), again.query(hidden, None)
        assert one.tokens.tolist() == other.tokens.tolist() and one.scores.tolist() == other.scores.tolist()
    assert again.recipe == recipe and not again.keys.flags.writeable
    if kind == "both":
        assert SparseStore(store).longest(documents[0][:3]) is not None
    names = {p.name for p in store.folder.iterdir()}
    assert not names & {"hidden.raw", "positions.raw", "journal.json"}
    assert ("suffixes.bin" in names) == (kind == "both")


class Interrupted(Exception):
    pass


def stopping(after):
    steps = iter(range(10**6))

    def progress(step):
        if next(steps) == after:
            raise Interrupted

    return progress


@pytest.mark.parametrize("before", [(), (7,)])
def test_the_progress_of_hidden_states_ends_at_their_number(before):
    steps, documents = [], corpus(9)
    store = dense(documents, before=lambda document: before, progress=steps.append)
    last = [step for step in steps if step.stage == "hidden states"][-1]
    assert last.done == last.total == len(store) + len(store.held_out)


def test_an_interrupted_build_gives_the_same_bytes(monkeypatch):
    monkeypatch.setattr("engines.datastores.building.build_journal.EVERY", 0)
    monkeypatch.setattr(Toy, "batch", 40)
    monkeypatch.setattr("engines.datastores.search.reduction.BLOCK", 64)
    monkeypatch.setattr("engines.datastores.building.dense_build.BLOCK", 64)
    documents = corpus(60)
    whole = Toy()
    expected = files_of(dense(documents, whole, sample=200).store)
    steps = []
    dense(documents, sample=200, progress=steps.append)
    assert {"hidden states", "statistics", "keys", "index"} <= {s.stage for s in steps}
    for after in range(2, len(steps), len(steps) // 7):
        toy = Toy()
        with pytest.raises(Interrupted):
            dense(documents, toy, "other", sample=200, progress=stopping(after))
        with pytest.raises(DatastoreProblem):
            Store(open_store("store").folder.with_name("other.partial"))
        store = dense(documents, toy, "other", sample=200)
        assert files_of(store.store) == expected
        assert len(toy.read) < 1.2 * len(whole.read)
    with pytest.raises(Interrupted):
        dense(documents, name="other", progress=stopping(9))
    with pytest.raises(UsageProblem, match="other options"):
        dense(documents, name="other", recipe=Recipe(4))


def test_statistics_come_from_a_random_sample_not_the_first_documents(monkeypatch):
    seen = []

    def watched(blocks, recipe):
        rows = np.concatenate([np.array(b) for b in blocks])
        seen.append(rows)
        return fit([rows], recipe)

    monkeypatch.setattr("engines.datastores.building.dense_build.fit", watched)
    documents = [[1] * 20] * 50 + [[2] * 20] * 50
    store = dense(documents, sample=300)
    first = np.abs(seen[0] - Toy().states(np.array([1] * 20)).astype(np.float16)[-1]).max(1) < 1e-6
    assert len(seen[0]) == 300 and 100 < first.sum() < 180  # half of them, less the first tokens
    assert store.store.manifest.parameters["dense"]["sample"] == 300


def test_what_can_t_become_a_store():
    with pytest.raises(RunFailed, match="no hidden states"):
        dense([[1], [2]], name="short")
    with pytest.raises(UsageProblem, match="no index"):
        dense(corpus(3), name="wrong", index="annoy")

    class Broken(Toy):
        def states(self, text):
            return super().states(text) * np.float32(np.nan)

    with pytest.raises(RunFailed, match="not finite"):
        dense(corpus(3), Broken(), name="broken")
    with pytest.raises(UsageProblem, match="too short"):
        dense(corpus(3), Toy(context=3), name="narrow")


def changed(store, change):
    """A manifest that was changed by someone who knows its checksum."""
    record = json.loads((store.folder / manifests.FILE).read_text())
    record.pop("checksum")
    change(record)
    text = json.dumps(record | {"checksum": manifests._checksum(record)})
    (store.folder / manifests.FILE).write_text(text)
    return DenseStore(Store(store.folder))


def parameter(path, value):
    def change(record):
        *above, last = path.split(".")
        target = record["parameters"]["dense"]
        for name in above:
            target = target[name]
        target[last] = value

    return change


def without(array):
    def change(record):
        record["files"] = [f for f in record["files"] if f["path"] != f"{array}.bin"]

    return change


def swap(record):
    for file in record["files"]:
        if file["path"] == "components.bin":
            file["shape"].reverse()


@pytest.mark.parametrize("change", [
    parameter("dims", 9), parameter("dims", "8"), parameter("dims", -1), parameter("z_norm", 1),
    parameter("index.backend", "pickle"), parameter("index", None), lambda r: r["parameters"].pop("dense"),
    lambda r: r.update(keys=3), swap,
    *[without(n) for n in ("keys", "key_positions", "mean", "components", "held_out")],
])  # fmt: skip
def test_parts_that_don_t_fit_together_are_refused(change):
    store = dense(corpus()).store
    with pytest.raises(DatastoreProblem, match="store"):
        changed(store, change)


@settings(max_examples=25)
@given(st.sampled_from(["keys", "key_positions", "mean", "deviation", "components", "tokens", "documents", "held_out"]),
       st.integers(0, 10**6), st.integers(0, 255))  # fmt: skip
def test_a_damaged_store_is_refused_or_answers_within_bounds(name, at, value):
    folder = open_store("fuzzed").folder if fuzzed() else None
    path = folder / f"{name}.bin"
    saved = path.read_bytes()
    try:
        spoiled = bytearray(saved)
        spoiled[at % len(spoiled)] = value
        path.write_bytes(spoiled)
        with np.errstate(all="ignore"):
            store = DenseStore(Store(folder))
            found = store.query(np.ones(WIDTH, np.float32), 3)
            assert ((found.tokens < store.vocab_size) & (found.tokens >= END)).all()
            assert len(found) <= 10
        if bytes(spoiled) != saved:
            with pytest.raises(DatastoreProblem, match=name):
                Store(folder).verify()
    except (DatastoreProblem, RunFailed):
        pass
    finally:
        path.write_bytes(saved)


def fuzzed():
    """A store to spoil, built once a test."""
    from engines.datastores.storage import catalog

    if not (catalog.home() / "fuzzed").exists():
        dense(corpus(120), name="fuzzed")
    return True


def test_recall_and_rank_are_what_they_are_called():
    store = dense(corpus(400))
    assert len(store.held_out) > 20
    assert recall(store).value == 1 == recall(store, k=3, queries=store.keys[:50]).value
    unique = len({k.tobytes() for k in store.keys}) / len(store)
    assert unique <= mean_reciprocal_rank(store, 10**6) + 0.01

    class Half(ExactIndex):
        """Misses every other key."""

        def search(self, query, k):
            ids, scores = super().search(query, 4 * k)
            return ids[ids % 2 == 0][:k], scores[ids % 2 == 0][:k]

    store.index = Half(store.keys)
    store.index.search_batch = lambda queries, k: ExactIndex.__mro__[1].search_batch(store.index, queries, k)
    found = recall(store)
    assert 0.35 < found.value < 0.65 and (found.k, found.queries) == (10, len(store.held_out))
    assert 0.3 < mean_reciprocal_rank(store, 500) < 0.6
    assert mean_reciprocal_rank(store, 100, seed=4) == mean_reciprocal_rank(store, 100, seed=4)
    assert recall(dense(corpus(2), name="tiny")) is None


def test_equal_keys_share_their_ranks():
    store = dense([[1, 2, 3, 4]] * 25, Toy(10), vocab_size=10, recipe=Recipe(0))
    ranks = mean_reciprocal_rank(store, 10**6)
    expected = np.mean([1 / n for n in range(1, 26)])
    assert abs(ranks - expected) < 0.01


def test_the_estimate_holds():
    documents = corpus(300)
    for recipe in (Recipe(8), Recipe(0)):
        store = dense(documents, recipe=recipe)
        size, building = estimate_dense(sum(len(d) - 1 for d in documents), WIDTH, recipe)
        sparse = {"tokens", "documents", "places", "lines", "names", "name_ends"}
        made = sum(f.size for f in store.store.manifest.files if f.path.removesuffix(".bin") not in sparse)
        assert 0.9 * made <= size <= 1.5 * made and building > size


def test_many_keys_get_an_index_and_its_remark_is_kept(monkeypatch):
    from engines.datastores.search import ann, indexing

    monkeypatch.setitem(indexing._LIBRARIES, "scann", BrokenIndex)
    monkeypatch.setattr(ann, "installed", lambda b: True)
    monkeypatch.setattr(ann, "FEW", 100)
    store = dense(corpus(), index="auto")
    assert store.index.backend == "exact" and "no index today" in store.remark


@pytest.mark.skipif("not __import__('engines.datastores.search.ann').datastores.search.ann.installed('scann')")
def test_a_store_with_a_damaged_index_says_so_and_goes_on(tmp_path):
    documents = corpus(120)
    store = dense(documents, index="scann")
    assert (store.index.backend, store.remark) == ("scann", "")
    assert recall(store).value > 0.9 < mean_reciprocal_rank(store, 200)
    key = store.keys[5].astype(np.float32)
    expected = by_definition(store, documents, key, None, 1, 5)
    assert drafted(store.nearest(key, None, 1, 5)) == [row for row, _ in expected]
    shutil.copytree(store.store.folder, tmp_path / "moved")
    moved = DenseStore(Store(tmp_path / "moved"))
    assert (moved.index.backend, moved.remark) == ("scann", "")
    part = tmp_path / "moved" / "index" / "hashed_dataset.npy"
    part.write_bytes(part.read_bytes()[:-1] + b"\x55")
    harmed = DenseStore(Store(tmp_path / "moved"))
    assert harmed.index.backend == "exact" and "damaged" in harmed.remark
    assert drafted(harmed.nearest(key, None, 1, 5)) == [row for row, _ in expected]
