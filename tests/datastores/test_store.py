"""The folder format: names, places, manifests, and what is refused."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.datastores.building import build_journal as journals
from engines.datastores.building.build_journal import build_journal
from engines.datastores.search.open_datastores import OpenDatastores
from engines.datastores.storage import catalog, manifest
from engines.datastores.storage.catalog import open_store
from engines.datastores.storage.datastore import Store
from engines.datastores.storage.manifest import (
    File,
    Manifest,
    ModelIdentity,
    tokenizer_fingerprint,
    vocabulary_fingerprint,
    vocabulary_size,
)
from engines.errors import DatastoreProblem, SpecError, UsageProblem

PRINT = "f" * 64
ROOT = Path(__file__).parents[2]


def describe(name, **changes):
    base = dict(kind="sparse", tokenizer=PRINT, vocab_size=10, documents=1, tokens=3, created="2026-01-01")
    return Manifest(name=name, files=(), **(base | changes))


def hold(name):
    with build_journal(name, {}):
        pass


def build(name, numbers=(1, 2, 3), replace=False, **changes):
    with build_journal(name, {"numbers": list(numbers)}, replace=replace) as place:
        place.open_to_append("numbers.bin").write(np.array(numbers, "<i4").tobytes())
        place.open_to_append("part/notes.txt").write(b"hello")
        place.commit("numbers", None)
        files = {"numbers.bin": ("<i4", (len(numbers),)), "part/notes.txt": None}
        return place.finish(describe(name, **changes), files)


def test_what_was_built_is_listed_found_read_and_removed(home):
    assert catalog.listing() == []
    folder = build("mine", parameters={"limit": 7})
    [entry] = catalog.listing()
    assert (entry.name, entry.folder, entry.problem, entry.shipped) == ("mine", home / "mine", "", False)
    store = open_store("mine", PRINT)
    assert store.array("numbers", "<i4").tolist() == [1, 2, 3] and store.bytes("part/notes.txt")[:] == b"hello"
    assert store.manifest.parameters == {"limit": 7} and store.manifest.size == 17
    assert not store.array("numbers").flags.writeable
    store.verify()
    assert sorted(p.name for p in folder.iterdir()) == ["manifest.json", "numbers.bin", "part"]
    catalog.remove("mine")
    assert catalog.listing() == [] and not folder.exists()


@pytest.mark.parametrize("name", [
    "", ".", "..", "../x", "a/b", "a\\b", "/etc", "a.b", "A", "é", "a ", "-a", "a-", "con", "lpt1", "a\n", "a\0",
    "x" * 65, "١", "~", "x.partial", "C:",
])  # fmt: skip
def test_a_name_is_never_a_path(name):
    for call in (catalog.check_name, catalog.find, catalog.remove, open_store, build):
        with pytest.raises(UsageProblem, match="cannot be the name"):
            call(name)


def test_names_that_are_not_at_hand(home):
    with pytest.raises(UsageProblem) as caught:
        open_store("mine")
    assert "none yet" in caught.value.hint
    build("other")
    with pytest.raises(UsageProblem) as caught:
        catalog.remove("mine")
    assert "other" in caught.value.hint


def test_the_wrong_tokenizer_and_model_are_refused():
    model = ModelIdentity("a/b", "x", 4)
    build("mine")
    build("deep", kind="dense", model=model)
    with pytest.raises(DatastoreProblem, match="another tokenizer"):
        open_store("mine", "0" * 64)
    with pytest.raises(DatastoreProblem, match="no dense part"):
        open_store("mine").check_model(model)
    open_store("deep").check_model(ModelIdentity("renamed", "x", 4))
    for other in (ModelIdentity("a/b", "y", 4), ModelIdentity("a/b", "x", 5)):
        with pytest.raises(DatastoreProblem, match="hidden states of a/b"):
            open_store("deep").check_model(other)


def test_a_newer_format_is_named_as_such(home):
    file = build("mine") / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 2, "new": "field"}))
    with pytest.raises(DatastoreProblem, match="has format 2") as caught:
        open_store("mine")
    assert "update" in caught.value.hint
    assert "format 2" in catalog.listing()[0].problem


@pytest.mark.parametrize("text", [
    "", "null", "[]", "{}", "\0", '{"format": 1}', "[" * 100_000, '{"format": ' + "9" * 5000 + "}", '{"format": "1"}',
])  # fmt: skip
def test_garbage_is_no_manifest(home, text):
    (build("mine") / "manifest.json").write_text(text)
    with pytest.raises(DatastoreProblem):
        open_store("mine")


@settings(max_examples=150)
@given(st.data())
def test_every_change_of_the_manifest_is_noticed(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("m") / "mine"
    folder.mkdir()
    manifest.write_manifest(folder, describe("mine", parameters={"a": [1, 2.5, None, "é"]}))
    file = folder / "manifest.json"
    content = bytearray(file.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    kind = data.draw(st.sampled_from(["flip", "cut", "insert"]))
    if kind == "flip":
        content[at] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        del content[at:]
    else:
        content.insert(at, data.draw(st.integers(0, 255)))
    before = manifest.read_manifest(folder)
    file.write_bytes(content)
    try:
        assert manifest.read_manifest(folder) == before  # white space
    except SpecError as error:
        assert error.hint


@pytest.mark.parametrize("damage, complaint", [
    (lambda f: (f / "numbers.bin").unlink(), "numbers.bin is missing"),
    (lambda f: (f / "numbers.bin").write_bytes(b"1234"), "has 4 bytes instead of 12"),
    (lambda f: (f / "part" / "notes.txt").write_bytes(b"hello, world"), "has 12 bytes instead of 5"),
    (lambda f: shutil.rmtree(f / "part"), "notes.txt is missing"),
    (lambda f: ((f / "numbers.bin").unlink(), (f / "numbers.bin").mkdir()), "numbers.bin is missing"),
    (lambda f: (f / "manifest.json").unlink(), "is not a datastore"),
])  # fmt: skip
def test_damage_is_named(home, damage, complaint):
    damage(build("mine"))
    with pytest.raises(DatastoreProblem, match=complaint) as caught:
        open_store("mine")
    assert caught.value.hint
    assert complaint in catalog.listing()[0].problem
    catalog.remove("mine")
    assert catalog.listing() == []


@pytest.mark.parametrize("number, hint", [
    (errno.EACCES, "allow this user to read it"), (errno.EMFILE, "ulimit -n"), (errno.EIO, "check the disk"),
])
def test_what_could_not_be_opened_is_not_called_damaged(home, monkeypatch, number, hint):
    def refused(path):
        raise OSError(number, os.strerror(number), str(path))

    folder = build("mine")
    store = open_store("mine")
    for place in ("datastores.storage.datastore", "hub.untrusted_json"):
        monkeypatch.setattr(f"engines.{place}.open_file", refused)
    monkeypatch.setattr("engines.folders.open_file", refused)
    for use in (lambda: store.bytes("numbers.bin"), lambda: manifest.read_manifest(folder), store.verify):
        with pytest.raises(DatastoreProblem, match=f"cannot be read \\({os.strerror(number)}\\)") as caught:
            use()
        assert hint in caught.value.hint and "build" not in caught.value.hint


def test_a_damaged_datastore_that_ships_is_not_to_be_built_again(home, monkeypatch):
    folder = build("mine")
    monkeypatch.setattr(manifest, "sample_datastores", lambda: folder.parent)
    (folder / "numbers.bin").write_bytes(b"1234")
    with pytest.raises(DatastoreProblem, match="has 4 bytes") as caught:
        open_store("mine")
    assert caught.value.hint == "reinstall spec-tui, which it ships with"


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(home):
    for file in ("numbers.bin", "manifest.json"):
        folder = build("mine")
        (folder / file).unlink()
        os.mkfifo(folder / file)
        with pytest.raises(DatastoreProblem, match=r"pipe or a device|is missing"):
            open_store("mine")
        assert file in catalog.listing()[0].problem
        catalog.remove("mine")


def test_verify_finds_what_sizes_don_t_show(home):
    folder = build("mine")
    (folder / "numbers.bin").write_bytes(b"x" * 12)
    seen = []
    with pytest.raises(DatastoreProblem, match=r"damaged: numbers\.bin$"):
        open_store("mine").verify(lambda done, total: seen.append((done, total)))
    assert seen[-1] == (17, 17)


@pytest.mark.parametrize("changes", [
    {"path": "../x"}, {"path": "/x"}, {"path": "a/../b"}, {"path": "manifest.json"}, {"path": "a/b/c"}, {"size": -1},
    {"sha256": "x"}, {"dtype": "|O", "shape": (1,)}, {"dtype": "<i4", "shape": (2,)}, {"dtype": "<i4", "shape": (-1,)},
    {"dtype": "<i4"}, {"shape": (1,)}, {"dtype": "<i4", "shape": (1, 1, 1, 1, 1)},
])  # fmt: skip
def test_files_that_a_manifest_cannot_name(changes):
    with pytest.raises(ValueError):
        File(**({"path": "a.bin", "size": 4, "sha256": PRINT} | changes))


def test_an_array_is_what_it_has_to_be(home):
    build("mine")
    store = open_store("mine")
    for name, dtype, ndim in (("numbers", "<i8", 1), ("numbers", None, 2), ("other", None, 1)):
        with pytest.raises(DatastoreProblem):
            store.array(name, dtype, ndim)
    assert store.has("numbers") and not store.has("notes")


def test_shipped_ones_are_found_and_stay(home, tmp_path):
    build("mine").rename(tmp_path / "shipped" / "theirs")
    assert [(e.name, e.shipped) for e in catalog.listing()] == [("theirs", True)]
    open_store("theirs").verify()
    with pytest.raises(UsageProblem, match="ships with"):
        catalog.remove("theirs")
    with pytest.raises(UsageProblem, match="ships with"):
        build("theirs")


def test_those_of_papers_tables_are_searched_where_they_are_named(home):
    for name in ("mine", "paper-python-sparse-0123456789"):
        build(name)
    stores = OpenDatastores(PRINT)
    assert stores.default() == ("mine",) and set(stores.fitting()) == {"mine", "paper-python-sparse-0123456789"}


def test_a_build_under_way_is_not_taken_for_a_store_and_holds_its_name(home):
    with build_journal("mine", {}) as place:
        place.open_to_append("numbers.bin").write(b"1")
        [entry] = catalog.listing()
        assert entry.unfinished and entry.manifest is None
        with pytest.raises(UsageProblem, match="no datastore"):
            open_store("mine")
        for call in (catalog.remove, hold):
            with pytest.raises(DatastoreProblem, match="being built"):
                call("mine")
        place.commit("stage", 1)
    assert catalog.listing()[0].unfinished
    catalog.remove("mine")
    assert catalog.listing() == []


def test_a_build_that_came_to_nothing_leaves_nothing(home):
    with pytest.raises(ZeroDivisionError), build_journal("mine", {}) as place:
        place.open_to_append("numbers.bin").write(b"1")
        raise ZeroDivisionError
    assert catalog.listing() == []


def test_an_existing_store_gives_way_only_when_told_and_when_the_new_one_is_complete(home):
    build("mine")
    with pytest.raises(UsageProblem, match="there is a datastore"):
        build("mine", (4,))
    with pytest.raises(ZeroDivisionError), build_journal("mine", {"numbers": [4]}, replace=True):
        raise ZeroDivisionError
    assert open_store("mine").array("numbers").tolist() == [1, 2, 3]
    (home / "mine.replaced.partial").mkdir()  # from an attempt that was cut off in the middle
    (home / "mine.replaced.partial" / "numbers.bin").touch()
    build("mine", (4,), replace=True)
    assert open_store("mine").array("numbers").tolist() == [4]
    assert sorted(p.name for p in home.iterdir() if not p.name.startswith(".")) == ["mine"]


def test_what_a_replacement_left_that_was_killed_is_removed_with_the_next_build_or_the_datastore(home):
    old = home / "mine.replaced.partial"
    build("mine")
    old.mkdir()
    with pytest.raises(ZeroDivisionError), build_journal("mine", {}, replace=True):
        assert not old.exists(), "it may be gigabytes that the new one needs"
        raise ZeroDivisionError
    old.mkdir()
    catalog.remove("mine")
    assert not [path.name for path in home.iterdir() if not path.name.startswith(".")]
    old.mkdir()
    with pytest.raises(ZeroDivisionError), build_journal("mine", {}):
        assert old.exists(), "all that is left of the datastore, until the new one is there"
        raise ZeroDivisionError


def test_what_was_not_committed_is_cut_off(home):
    def attempt(stop):
        with build_journal("mine", {"v": 1}) as place:
            begin = place.state("count") or 0
            for n in range(begin, 10):
                place.open_to_append("numbers.bin").write(np.array([n], "<i4").tobytes())
                if n == stop:
                    raise KeyboardInterrupt
                if n % 3 == 2:
                    place.commit("count", n + 1)
            return place.finish(describe("mine"), {"numbers.bin": ("<i4", (10,))})

    for stop in (1, 4, 7, 9):
        with pytest.raises(KeyboardInterrupt):
            attempt(stop)
    attempt(None)
    assert open_store("mine").array("numbers").tolist() == list(range(10))


def test_an_unfinished_build_of_something_else_is_not_gone_on_with(home):
    with build_journal("mine", {"v": 1}) as place:
        place.commit("stage", 1)
        created = place.created
    with pytest.raises(UsageProblem, match="other sources"), build_journal("mine", {"v": 2}):
        pass
    with build_journal("mine", {"v": 1}) as place:
        assert place.state("stage") == 1 and place.created == created and not place.damaged
    with build_journal("mine", {"v": 2}, fresh=True) as place:
        assert place.state("stage") is None


def test_an_unfinished_build_stays_where_a_build_cannot_take_it_up_now(home, monkeypatch):
    with build_journal("mine", {}) as place:
        place.commit("stage", 1)

    def refused(words: str, **options: bool) -> None:
        with pytest.raises(DatastoreProblem, match=words), build_journal("mine", {}, **options):
            pass

    def too_many(path):
        raise OSError(errno.EMFILE, "Too many open files", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(journals, "read_file", too_many)
        refused("unfinished build of mine cannot be read")
        assert journals.unfinished_spec("mine") is None
    (home / "mine").mkdir()
    (home / "mine.replaced.partial").write_text("no folder: it cannot be removed as one")
    refused("mine.replaced.partial cannot be removed", replace=True)
    (home / "mine.replaced.partial").unlink()
    with build_journal("mine", {}, replace=True) as place:
        assert place.state("stage") == 1 and not place.damaged


@pytest.mark.parametrize("damage", [
    lambda b: b"", lambda b: b[:-1], lambda b: b"{}", lambda b: b.replace(b": 4", b": 3"), lambda b: b + b"\xff",
])  # fmt: skip
def test_a_damaged_journal_means_starting_over(home, damage):
    with build_journal("mine", {}) as place:
        place.open_to_append("numbers.bin").write(b"1234")
        place.commit("stage", 1)
    journal = home / "mine.partial" / "journal"
    journal.write_bytes(damage(journal.read_bytes()))
    with build_journal("mine", {}) as place:
        assert place.state("stage") is None and place.damaged


def test_only_the_disk_s_own_errors_are_said_to_be_the_disk_s(home):
    with pytest.raises(BrokenPipeError), build_journal("mine", {}):
        raise BrokenPipeError
    with pytest.raises(DatastoreProblem, match="cannot be written"), build_journal("mine", {}) as place:
        shutil.rmtree(place.folder)
        place.open_to_append("numbers.bin")


def test_a_file_shorter_than_the_journal_says_means_starting_over(home):
    with build_journal("mine", {}) as place:
        place.open_to_append("numbers.bin").write(b"1234")
        place.commit("stage", 1)
    (home / "mine.partial" / "numbers.bin").write_bytes(b"12")
    with build_journal("mine", {}) as place:
        assert place.state("stage") is None


def test_removing_a_link_leaves_what_it_leads_to(home, tmp_path):
    build("mine").rename(tmp_path / "elsewhere")
    (home / "mine").symlink_to(tmp_path / "elsewhere")
    open_store("mine").verify()
    catalog.remove("mine")
    assert not (home / "mine").exists() and Store(tmp_path / "elsewhere")


def test_a_fingerprint_is_of_the_meaning_of_ids(tokenizer):
    from tests.conftest import make_tokenizer

    mine = tokenizer_fingerprint(tokenizer)
    assert mine == tokenizer_fingerprint(make_tokenizer(template=False))
    words = tokenizer.get_vocab()
    assert mine == vocabulary_fingerprint(dict(reversed(words.items())))
    more = make_tokenizer()
    more.add_tokens(["<new>"])
    assert tokenizer_fingerprint(more) != mine and vocabulary_size(more) == 261
    swapped = words | {"a": words["b"], "b": words["a"]}
    assert vocabulary_fingerprint(swapped) != mine
    assert vocabulary_fingerprint({"1 1 a": 1}) != vocabulary_fingerprint({"a": 1})


@pytest.mark.parametrize("place", ["numbers.bin", "later.bin", ""])
def test_links_in_an_unfinished_build_are_not_followed(home, tmp_path, place):
    """What they lead to is not cut, not written and not deleted; the build begins anew."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "diary").write_text("dear diary")
    with pytest.raises(KeyboardInterrupt), build_journal("mine", {"numbers": [1, 2, 3]}) as journal:
        journal.open_to_append("numbers.bin").write(bytes(12))
        journal.commit("numbers", None)
        raise KeyboardInterrupt
    folder = home / "mine.partial"
    if place:
        (folder / place).unlink(missing_ok=True)
        (folder / place).symlink_to(elsewhere / "diary")
    else:
        for file in folder.iterdir():
            file.rename(elsewhere / file.name)
        folder.rmdir()
        folder.symlink_to(elsewhere)
    before = {file.name: file.read_bytes() for file in elsewhere.iterdir()}
    assert build("mine").is_dir() and not folder.exists()
    assert {file.name: file.read_bytes() for file in elsewhere.iterdir()} == before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="drops a right as Linux does")
def test_a_home_that_cannot_be_written(tmp_path):
    """Commands that only read work; those that write say where they cannot, and how to choose another place."""
    (tmp_path / "home").mkdir(mode=0o555)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPEC_TUI_", "XDG_", "HF_"))}
    environment |= {"HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}

    def as_anybody():
        """Root may write everywhere: give that right up (CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, PR_CAPBSET_DROP)."""
        for right in (1, 2):
            ctypes.CDLL(None).prctl(24, right, 0, 0, 0)

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "spec_tui", *arguments], env=environment, cwd=tmp_path, capture_output=True,
            text=True, preexec_fn=as_anybody,
        )

    listed = run("datastore", "list")
    assert listed.returncode == 0 and "python-stdlib" in listed.stdout
    (tmp_path / "notes.txt").write_text("The fox sleeps. The fox eats.")
    built = run("datastore", "build", "notes", "--from", "notes.txt", "--model", "sample")
    assert built.returncode == 3 and "cannot be written in" in built.stderr and "SPEC_TUI_DATA_DIR" in built.stderr
    assert "make room" not in built.stderr and "bug" not in built.stderr
