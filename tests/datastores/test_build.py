"""Building: the same bytes however often it is interrupted, the right lines, and what is refused."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from engines.datastores.building import build_journal
from engines.datastores.building import build_spec as orders
from engines.datastores.building import corpus as corpora
from engines.datastores.building import sparse_build as building
from engines.datastores.building.build_datastore import build_datastore
from engines.datastores.building.build_spec import BuildSpec, estimate_sparse
from engines.datastores.building.corpus import Document, Encoder, JoinedCorpus
from engines.datastores.building.sparse_build import suffix_array
from engines.datastores.building.text_files import text_files
from engines.datastores.search.sparse import SparseStore
from engines.datastores.storage import catalog, manifest
from engines.datastores.storage.catalog import open_store
from engines.errors import DatastoreProblem, UsageProblem
from tests.datastores.conftest import Ids, Vocabulary

ROOT = Path(__file__).parents[2]
TEXTS = [
    "def f(x):\n    return x\n\n\nprint(f(1))\n", "été\n日本\n\nend", "\n\nafter two", "one line", "a\r\nb\r\n",
    "<|end|> text\n",
    *(f"file {n}\n" * n for n in range(2, 9)),
]  # fmt: skip


class Stop(Exception):
    """The user's ctrl+c."""


@pytest.fixture
def folder(tmp_path):
    """Text files."""
    root = tmp_path / "texts"
    root.mkdir()
    for n, text in enumerate(TEXTS):
        (root / f"{n:02}.txt").write_bytes(text.encode())
    return root


@pytest.fixture
def often(monkeypatch):
    """Small batches, each committed."""
    monkeypatch.setattr(building, "CHARACTERS", 20)
    monkeypatch.setattr(build_journal, "EVERY", -1.0)


def content(folder):
    """Every file of a datastore, and its manifest but for the time."""
    data = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.name != manifest.FILE}
    return data, dataclasses.replace(manifest.read_manifest(folder), created="", name="")


def stopping(at):
    """A progress that stops the build at its ``at``-th word."""
    count = iter(range(10**6))

    def progress(step):
        if next(count) == at:
            raise Stop

    return progress


def interrupted(name, corpus, tokenizer, at, **options):
    """The same build begun again and again, each attempt stopped a few steps in; how often it was."""
    for attempt in range(1000):
        try:
            build_datastore(name, corpus, tokenizer, progress=stopping(at + attempt // 3), **options)
            return attempt
        except Stop:
            assert all(e.unfinished for e in catalog.listing() if e.name == name)
    raise AssertionError("never done")


@pytest.mark.parametrize("at", [0, 1, 2, 3, 5, 8])
def test_interrupted_builds_give_the_same_bytes(folder, tokenizer, often, at):
    corpus = text_files([folder])
    whole = content(build_datastore("whole", corpus, tokenizer).folder)
    assert interrupted("cut", corpus, tokenizer, at) > 2
    assert content(catalog.find("cut")) == whole
    open_store("cut", Encoder(tokenizer).fingerprint).verify()


def test_the_same_bytes_where_little_was_committed_and_in_other_batches(folder, tokenizer, monkeypatch):
    corpus = text_files([folder])
    whole = content(build_datastore("whole", corpus, tokenizer).folder)
    monkeypatch.setattr(building, "CHARACTERS", 30)
    assert interrupted("cut", corpus, tokenizer, 4)
    assert content(catalog.find("cut")) == whole


KILLED = """
import os, sys
from engines.datastores.building import build_journal
from engines.datastores.building import sparse_build as build
from engines.datastores.building.build_datastore import build_datastore
from tests.datastores.conftest import Ids, Vocabulary
build.CHARACTERS, build_journal.EVERY, steps = 20, -1.0, iter(range(%d))
def progress(step):
    if next(steps, None) is None:
        os._exit(9)  # nothing is closed, flushed or unlocked
build_datastore("cut", Ids([[n %% 5] * 30 for n in range(20)]), Vocabulary(5), progress=progress)
"""


def test_a_build_that_was_killed_is_taken_up(often):
    corpus, tokenizer = Ids([[n % 5] * 30 for n in range(20)]), Vocabulary(5)
    whole = content(build_datastore("whole", corpus, tokenizer).folder)
    for steps in (5, 11):
        assert subprocess.run([sys.executable, "-c", KILLED % steps], cwd=ROOT).returncode == 9
        assert catalog.listing()[0].unfinished
    seen = []
    build_datastore("cut", corpus, tokenizer, progress=seen.append)
    assert seen[0].done > 10
    assert content(catalog.find("cut")) == whole


def test_that_an_unfinished_build_was_damaged_is_said(home, folder, tokenizer, often):
    corpus, seen = text_files([folder]), []
    for damaged in (False, True):
        with pytest.raises(Stop):
            build_datastore("cut", corpus, tokenizer, progress=stopping(4), replace=True)
        if damaged:
            (home / "cut.partial" / "journal").write_text("no journal")
        build_datastore("cut", corpus, tokenizer, progress=seen.append, replace=True)
        assert ("starting over, the unfinished build was damaged" in {step.stage for step in seen}) == damaged


def test_joined_corpora_are_taken_up_inside_any_of_them(tmp_path, folder, tokenizer, often):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "z.txt").write_text("more\n" * 20)
    corpus = JoinedCorpus([text_files([folder]), Ids([[1, 2, 3], [4] * 40]), text_files([tmp_path / "more"])])
    store = build_datastore("whole", corpus, tokenizer)
    interrupted("cut", corpus, tokenizer, 2)
    assert content(catalog.find("cut")) == content(store.folder)
    documents = SparseStore(store).documents
    sources = [documents.place(documents.bounds(n)[0]).source for n in range(len(documents))]
    assert sources[-3:] == ["document 0", "document 1", "more/z.txt"] and corpus.total is None


def test_joined_corpora_count_what_each_leaves_out(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "text.txt").write_text(name)
        (tmp_path / name / "bytes.txt").write_bytes(bytes(50))
    corpora = [text_files([tmp_path / name]) for name in ("one", "two")]
    joined = JoinedCorpus([*corpora, Ids([[1, 2, 3]])])
    assert joined.skipped == {"binary": 2} and corpora[0].skipped == {"binary": 1}


@pytest.mark.parametrize("limit", [1, 7, 50, 100, 10**6])
def test_a_limit_is_kept_to_the_token(folder, tokenizer, often, limit):
    corpus = text_files([folder])
    all_ = build_datastore("all", corpus, tokenizer).array("tokens")
    store = build_datastore("some", corpus, tokenizer, limit=limit)
    kept = all_[all_ != 0xFFFF][:limit]
    assert store.manifest.tokens == len(kept) == min(limit, (all_ != 0xFFFF).sum())
    tokens = store.array("tokens")
    assert tokens[tokens != 0xFFFF].tolist() == kept.tolist() and tokens[-1] == 0xFFFF
    assert all(store.array("lines") < len(tokens))
    interrupted("cut", corpus, tokenizer, 1, limit=limit)
    assert content(catalog.find("cut")) == content(store.folder)


def test_every_token_has_its_document_and_line(folder, tokenizer):
    store = SparseStore(build_datastore("mine", text_files([folder]), tokenizer))
    sizes = []
    for n, text in enumerate(TEXTS):
        text = text.replace("\r\n", "\n")
        begin, end = store.documents.bounds(n)
        sizes.append(end - begin)
        written = text.encode()
        assert end - begin == len(written)  # a token is a byte
        for i in range(len(written)):
            place = store.documents.place(begin + i)
            assert (place.document, place.source, place.offset) == (n, f"texts/{n:02}.txt", i)
            assert place.line == 1 + written[:i].count(b"\n")
        ids, at = store.documents.passage(begin, 5, 10**6)
        assert at == 0 and tokenizer.decode(ids) == text
    assert len(store) == sum(sizes) == store.store.manifest.tokens


def merging(text):
    """A tokenizer that joins words, and spaces across line ends, as usual ones do."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe, alphabet = Tokenizer(models.BPE()), pre_tokenizers.ByteLevel.alphabet()
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.train_from_iterator([text] * 9, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet))
    return PreTrainedTokenizerFast(tokenizer_object=bpe)


PROGRAM = "def f(x):\n\n\n        return {\n            'a': 1,\n        }\n\n\nclass A:\n    pass\n"


def test_lines_of_tokens_that_span_lines(tmp_path):
    (tmp_path / "a.py").write_text(PROGRAM)
    tokenizer = merging(PROGRAM)
    store = SparseStore(build_datastore("mine", text_files([tmp_path / "a.py"]), tokenizer))
    begins = [begin for begin, _ in tokenizer(PROGRAM, return_offsets_mapping=True)["offset_mapping"]]
    lines = [store.documents.place(i).line for i in range(len(store))]
    assert lines == [1 + PROGRAM[:b].count("\n") for b in begins] and len(store) < len(PROGRAM) / 3


@pytest.mark.parametrize("text", [PROGRAM * 20, PROGRAM.replace("\n", " ") * 20], ids=["lines", "one line"])
def test_a_long_text_read_in_pieces_has_the_same_tokens_and_lines(text, monkeypatch):
    encoder, document = Encoder(merging(PROGRAM)), Document("a.py", text, line=1)
    [whole] = encoder([document])
    monkeypatch.setattr(corpora, "CHARACTERS", 150)
    shares = []
    [found] = encoder([document], reading=shares.append)
    assert found.tokens.tolist() == whole.tokens.tolist() and found.lines.tolist() == whole.lines.tolist()
    assert len(shares) > 10 and shares == sorted(shares) and shares[-1] == 1, "it can be stopped between two"


@pytest.mark.parametrize("limits", [{"limit": 50}, {"document_limit": 50}])
def test_no_more_of_a_long_text_is_read_than_a_limit_takes(tmp_path, limits, monkeypatch):
    (tmp_path / "a.py").write_text(PROGRAM * 50)
    monkeypatch.setattr(corpora, "CHARACTERS", 200)
    seen = []
    store = build_datastore("some", text_files([tmp_path / "a.py"]), merging(PROGRAM), progress=seen.append, **limits)
    read = [step.done for step in seen if step.stage == "tokens"][:-1]
    assert store.manifest.tokens == 50 and 0 < max(read) < 500


def test_what_looks_like_a_special_token_is_text(tokenizer):
    [found] = Encoder(tokenizer)([Document("x", "<|end|>a")])
    assert len(found.tokens) == 8 and 0 not in found.tokens
    assert tokenizer("<|end|>a")["input_ids"][0] == 0, "read as one without the precaution"


def test_the_suffix_array_is_in_order():
    rng = np.random.default_rng(0)
    for vocab_size, used in ((3, 3), (300, 300), (70_000, 40), (70_000, 70_000)):
        tokens = rng.choice(rng.choice(vocab_size, used, False), 400).astype(">u4")
        tokens[rng.random(400) < 0.1] = 0xFFFFFFFF
        tokens[-1] = 0xFFFFFFFF
        numbers = tokens.tolist()
        kept = (tokens != 0xFFFFFFFF).sum()
        assert suffix_array(tokens, vocab_size)[:kept].tolist() == sorted(range(400), key=lambda i: numbers[i:])[:kept]


def test_progress_tells_rate_and_time_left(folder, tokenizer, often):
    seen = []
    corpus = text_files([folder], progress=seen.append)
    assert seen[-1].stage == "reading" and seen[-1].done == len(TEXTS)
    build_datastore("mine", corpus, tokenizer, progress=seen.append)
    assert list(dict.fromkeys(s.stage for s in seen)) == ["reading", "tokens", "suffix array", "checksums"]
    tokens = [s for s in seen if s.stage == "tokens"]
    assert tokens[0].done == 0 and tokens[-1].done == tokens[-1].total == sum(len(t.encode()) for t in TEXTS)
    assert tokens[-1].rate > 0 and tokens[-1].seconds_left == 0
    assert all(a.done <= b.done for a, b in pairwise(tokens))


def test_an_estimate_is_near_what_comes_out(folder, tokenizer):
    corpus, encoder = text_files([folder]), Encoder(tokenizer)
    guess, store = estimate_sparse(corpus, encoder), build_datastore("mine", corpus, tokenizer)
    assert abs(guess.tokens / store.manifest.tokens - 1) < 0.1
    assert 0.5 < guess.size / store.manifest.size < 1.5 and guess.seconds > 0
    half = estimate_sparse(corpus, encoder, limit=guess.tokens // 2)
    assert abs(half.tokens / guess.tokens - 0.5) < 0.01 and half.size < guess.size


def test_an_estimate_of_several_sources_is_that_of_all(folder, tokenizer, tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "text.txt").write_text("some more text\n" * 500)
    parts = [text_files([folder]), text_files([tmp_path / "more"])]
    one, other = (estimate_sparse(part, Encoder(tokenizer)) for part in parts)

    def guess(limit=None):
        return orders.estimate_build(BuildSpec("mine", ("a", "b"), limit=limit), JoinedCorpus(parts), tokenizer)

    assert guess().tokens == one.tokens + other.tokens and guess().size == one.size + other.size
    assert guess(one.tokens + 100).tokens == one.tokens + 100 and guess(one.tokens // 2).tokens == one.tokens // 2
    assert not guess().upper_bound and guess().seconds > 0


@pytest.mark.parametrize("vocab_size, size", [(60_000, 6000), (70_000, 8000)])
def test_an_estimate_by_a_limit_knows_how_large_a_token_is(vocab_size, size):
    spec = BuildSpec("mine", ("hf:rows",), limit=1000)
    guess = orders.estimate_build(spec, Ids([[1] * 2000]), Vocabulary(vocab_size))
    store = build_datastore("mine", Ids([[1] * 2000]), Vocabulary(vocab_size), limit=1000)
    assert guess.size == size <= store.manifest.size < size + 100


def test_what_cannot_be_built(folder, tokenizer, monkeypatch):
    with pytest.raises(UsageProblem, match="no text"):
        build_datastore("mine", Ids([[], []]), Vocabulary(3))
    with pytest.raises(UsageProblem, match="limit of -1"):
        build_datastore("mine", Ids([[1, 2]]), Vocabulary(3), limit=-1)
    with pytest.raises(DatastoreProblem, match="not in the vocabulary"):
        build_datastore("other", Ids([[1, 7]]), Vocabulary(3))
    with pytest.raises(DatastoreProblem, match="not in the vocabulary"):
        build_datastore("negative", Ids([[1, -1]]), Vocabulary(3))
    monkeypatch.setattr(building, "MOST_TOKENS", 9)
    with pytest.raises(DatastoreProblem, match="at most 9 tokens") as caught:
        build_datastore("big", Ids([[1] * 4, [1] * 4]), Vocabulary(3))
    assert "--limit" in caught.value.hint
    build_datastore("fits", Ids([[1] * 4, [1] * 3]), Vocabulary(3))
    monkeypatch.setitem(sys.modules, "pydivsufsort", None)
    with pytest.raises(DatastoreProblem, match="not installed"):
        build_datastore("without", Ids([[1]]), Vocabulary(3))


def test_a_full_disk_is_said_and_the_build_taken_up_afterwards(folder, tokenizer, often, monkeypatch):
    corpus = text_files([folder])
    whole = content(build_datastore("whole", corpus, tokenizer).folder)
    room = iter(range(20))

    def fsync(_):
        if next(room, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(DatastoreProblem, match="No space left") as caught:
        build_datastore("mine", corpus, tokenizer)
    assert "SPEC_TUI_DATA_DIR" in caught.value.hint
    monkeypatch.setattr(os, "fsync", lambda _: None)
    assert content(build_datastore("mine", corpus, tokenizer).folder) == whole


def test_changed_sources_are_not_mixed(folder, tokenizer, often):
    corpus = text_files([folder])
    with pytest.raises(Stop):
        build_datastore("mine", corpus, tokenizer, progress=stopping(3))
    (folder / "11.txt").write_text("other")
    with pytest.raises(DatastoreProblem, match=r"11\.txt has changed"):
        build_datastore("mine", corpus, tokenizer)
    with pytest.raises(UsageProblem, match="other sources") as caught:
        build_datastore("mine", text_files([folder]), tokenizer)
    assert "--fresh" in caught.value.hint
    store = build_datastore("mine", text_files([folder]), tokenizer, fresh=True)
    assert content(store.folder) == content(build_datastore("again", text_files([folder]), tokenizer).folder)


def test_an_unfinished_build_knows_what_it_was_begun_with(tokenizer, folder, monkeypatch):
    order = BuildSpec("cut", (folder.name, "python-stdlib"), limit=900)
    monkeypatch.chdir(folder.parent)
    with pytest.raises(Stop):
        orders.build(order, text_files([Path(folder.name)]), tokenizer, progress=stopping(1))
    assert orders.unfinished_build("cut") is None, "nothing was done"
    monkeypatch.setattr(build_journal, "EVERY", -1.0)
    with pytest.raises(Stop):
        orders.build(order, text_files([Path(folder.name)]), tokenizer, progress=stopping(1))
    kept = orders.unfinished_build("cut")
    assert kept == BuildSpec("cut", (str(folder), "python-stdlib"), limit=900)
    monkeypatch.chdir("/")
    corpus = text_files([folder])
    assert orders.open_corpus(dataclasses.replace(kept, sources=kept.sources[:1])).identity == corpus.identity
    assert orders.build(kept, corpus, tokenizer).manifest.tokens and orders.unfinished_build("cut") is None


@pytest.mark.parametrize("told", [
    None, [], {}, {"name": 3, "sources": []}, {"name": "a", "sources": ["x"], "recipe": {"dims": -1}},
    {"name": "a", "sources": "x"}, {"name": "a", "sources": ["x"], "kind": None},
])  # fmt: skip
def test_an_order_that_cannot_be_read_is_none(home, told):
    for text in (json.dumps({"order": told, "lengths": {}}), json.dumps([told]), json.dumps({"lengths": told})):
        (home / "odd.partial").mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        (home / "odd.partial" / "journal").write_text(f"{digest}\n{text}")
        assert orders.unfinished_build("odd") is None
