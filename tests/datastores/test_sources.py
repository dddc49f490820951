"""Which files become documents, in which order, and what is left out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engines.datastores.building.text_files import standard_library, text_files
from engines.errors import UsageProblem
from engines.progress import SomeProgress


def names(found):
    return [f.name for f in found.files]


def test_order_does_not_depend_on_the_file_system(tmp_path, monkeypatch):
    for name in ("b/z.txt", "b/a.txt", "a.txt", "c.txt", "b.txt", "B.txt"):
        (tmp_path / "t" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / name).write_text(name)
    first = text_files([tmp_path / "t"])
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda p: list(reversed(sorted(listdir(p)))))
    second = text_files([tmp_path / "t"])
    assert names(first) == names(second)
    assert names(first) == [f"t/{n}" for n in ("B.txt", "a.txt", "b/a.txt", "b/z.txt", "b.txt", "c.txt")]
    assert first.identity == second.identity
    (tmp_path / "t" / "c.txt").write_text("C.txt")
    assert text_files([tmp_path / "t"]).identity != first.identity


def test_what_is_left_out_is_counted(tmp_path):
    root, outside = tmp_path / "t", tmp_path / "outside"
    (root / ".git").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    (root / "a.txt").write_text("text")
    (root / "again.txt").write_text("text")
    (root / "mark.txt").write_bytes(b"\xef\xbb\xbf\r\nbom\r\n")
    (root / "binary").write_bytes(b"a\0b")
    (root / "latin").write_bytes(b"\xe9t\xe9")
    (root / "large.txt").write_text("x" * 101)
    (root / "empty.txt").write_text("")
    (root / "only-a-mark.txt").write_bytes(b"\xef\xbb\xbf")
    (root / ".git" / "config").write_text("hidden")
    (root / ".env").write_text("hidden")
    (root / "file-link").symlink_to(outside / "secret.txt")
    (root / "folder-link").symlink_to(outside)
    (root / "loop").symlink_to(root)
    (root / "dead-link").symlink_to(tmp_path / "nothing")
    os.mkfifo(root / "pipe")
    found = text_files([root], largest=100)
    assert names(found) == ["t/a.txt", "t/mark.txt"]
    assert dict(found.skipped) == {
        "duplicate": 1, "binary": 1, "not UTF-8": 1, "too large": 1, "empty": 2, "hidden": 2, "link": 4,
        "no regular file": 1,
    }  # fmt: skip
    assert [d.text for d, _ in found.documents()] == ["text", "\nbom\n"]
    assert found.identity["skipped"]["link"] == 4


def test_a_file_that_is_named_may_be_large(tmp_path):
    large = tmp_path / "large.txt"
    large.write_text("x" * 101)
    assert names(text_files([large], largest=100)) == ["large.txt"]
    with pytest.raises(UsageProblem) as refused:
        text_files([tmp_path], largest=100)
    assert "100 bytes at most" in refused.value.hint


def test_the_last_report_counts_all_files(tmp_path):
    for number in range(30):
        (tmp_path / f"{number}.txt").write_text(str(number))
    steps = []
    text_files([tmp_path], progress=SomeProgress(steps.append, lambda: None))
    assert steps[-1].done == 30


def test_named_files_and_folders_in_the_order_given_without_what_was_there(tmp_path, monkeypatch):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "one.txt").write_text("1")
    (tmp_path / "two.txt").write_text("2")
    (tmp_path / "link").symlink_to(tmp_path / "d")
    monkeypatch.chdir(tmp_path / "d")
    assert names(text_files([tmp_path / "two.txt", Path("."), tmp_path / "link"])) == ["two.txt", "d/one.txt"]
    assert names(text_files([tmp_path / "link"])) == ["link/one.txt"]
    assert str(tmp_path) not in str(text_files([tmp_path / "d"]).identity)


def test_unreadable_files_are_counted(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.txt").write_text("b")
    read = Path.read_bytes

    def refuse(path):
        if path.name == "a.txt":
            raise PermissionError
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    found = text_files([tmp_path])
    assert [f.path.name for f in found.files] == ["b.txt"] and found.skipped == {"unreadable": 1}


def test_nothing_to_read_is_said(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(UsageProblem, match="1 empty"):
        text_files([tmp_path])
    with pytest.raises(UsageProblem, match="does not exist"):
        text_files([tmp_path / "missing"])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageProblem, match="neither a file nor a folder"):
        text_files([tmp_path / "pipe"])
    with pytest.raises(UsageProblem, match="neither a file nor a folder"):
        text_files([Path("/dev/null")])


def test_the_standard_library_is_modules_without_tests():
    found = standard_library()
    here = [n.partition("/")[2] for n in names(found)]
    assert {"json/decoder.py", "os.py", "asyncio/base_events.py"} <= {*here} and len(here) > 300
    assert all(n.endswith(".py") for n in here)
    assert not any(part in n.split("/") for n in here for part in ("test", "tests", "site-packages", "dist-packages"))
    assert all(n.startswith("python3.") for n in names(found))
