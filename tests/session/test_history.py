"""What is kept of former sessions: it comes back as it was, whatever lies in the folder."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from engines.errors import UsageProblem
from engines.race.lanes import Lane, Race
from engines.race.race_events import LaneFinished, RaceFinished
from engines.report.run_state import fold_all
from engines.request import Request
from engines.wire import read_trace
from spec_tui.session import history as module
from spec_tui.session.history import SETTING, History, RaceRecord, numbered
from tests.tui.fakes import script


def run_of(prompt: str, text: str = "an answer"):
    return fold_all(script(Request((("user", prompt),), engine="draft"), text))


@pytest.fixture
def history(tmp_path) -> History:
    return History(tmp_path / "history")


def test_runs_come_back_in_order_with_their_tokens(history):
    runs = [run_of(f"question {n}") for n in range(12)]
    history.begin("conversations", "twelve", "a model", numbered(runs))
    (entry,) = history.entries("conversations")
    assert (entry.title, entry.about, entry.count) == ("twelve", "a model", 12)
    assert [run.text for run in entry.runs().values()] == [run.text for run in runs]
    assert list(entry.runs().values())[3].tokens == runs[3].tokens
    assert entry.questions(2) == ["question 0", "question 1"]
    assert not history.entries("races")


def test_each_file_is_a_trace(history):
    entry = history.begin("races", "a race", runs=numbered([run_of("x")]))
    (file,) = entry.folder.glob("*.jsonl")
    assert read_trace(file).complete
    assert entry.folder.stat().st_mode & 0o077 == 0, "other users do not read conversations"


def test_only_what_changed_is_written_and_what_is_gone_is_removed(history):
    first, second = run_of("one"), run_of("two")
    entry = history.begin("conversations", "t", runs=numbered([first, second]))
    (entry.folder / "0001.jsonl").write_text("as it was")
    entry.keep(numbered([first]))
    assert (entry.folder / "0001.jsonl").read_text() == "as it was"
    assert not (entry.folder / "0002.jsonl").exists()
    entry.keep(numbered([second]))
    assert read_trace(entry.folder / "0001.jsonl").events[0].conversation == (("user", "two"),)


def test_renamed_and_deleted(history):
    entry = history.begin("conversations", "old", runs=numbered([run_of("x")]))
    entry.rename("  new \x1b[1m ")
    entry.rename("  ")
    (found,) = history.entries("conversations")
    assert found.title == "new \x1b[1m"
    found.delete()
    assert history.entries("conversations") == [] and not entry.folder.exists()
    found.delete()  # another window was first
    with pytest.raises(UsageProblem, match="was deleted in another window"):
        entry.rename("x")


def test_two_windows_lose_nothing(history):
    """One renames: the title stays. Both go on: each has its own from there."""
    first, second = run_of("one"), run_of("two")
    here = history.begin("conversations", "old", runs=numbered([first]))
    (there,) = history.entries("conversations")
    there.rename("new")
    here.keep(numbered([first, second]))
    assert [entry.title for entry in history.entries("conversations")] == ["new"]
    there.runs()
    there.keep(numbered([first, run_of("three")]))
    found = {tuple(entry.questions(9)) for entry in history.entries("conversations")}
    assert found == {("one", "two"), ("one", "three")}


def test_what_another_window_deleted_is_written_anew_with_the_next_answer(history):
    first, second, third = (run_of(word) for word in ("one", "two", "three"))
    here = history.begin("conversations", "title", runs=numbered([first]))
    (there,) = history.entries("conversations")
    there.delete()
    here.keep(numbered([first, second]))
    here.keep(numbered([first, second, third]))
    (found,) = history.entries("conversations")
    assert found.title == "title" and found.questions(9) == ["one", "two", "three"]
    shutil.rmtree(history.folder)
    here.keep(numbered([first]))
    assert history.entries("conversations")[0].questions(9) == ["one"]


def test_a_clock_that_is_set_back_loses_nothing(history, monkeypatch):
    now = [1_000_000.0]
    monkeypatch.setattr(module.time, "time", lambda: now[0])
    first, second = run_of("one"), run_of("two")
    here = history.begin("conversations", "t", runs=numbered([first]))
    (there,) = history.entries("conversations")
    now[0] -= 3600
    there.runs()
    there.keep(numbered([first, second]))
    here.keep(numbered([first, run_of("three")]))
    found = {tuple(entry.questions(9)) for entry in history.entries("conversations")}
    assert found == {("one", "two"), ("one", "three")}


def test_of_a_disk_that_is_full_what_was_kept_is_left_and_later_all_is(history, monkeypatch):
    runs = [run_of("one"), run_of("two"), run_of("three")]
    entry = history.begin("conversations", "t", runs=numbered(runs[:1]))
    whole = Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        whole(path, content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        for _ in range(2):
            with pytest.raises(UsageProblem, match="cannot be saved: No space left"):
                entry.keep(numbered(runs[:2]))
        with pytest.raises(UsageProblem, match="No space left"):
            history.begin("conversations", "another", runs=numbered(runs))
    (found,) = history.entries("conversations")
    assert found.questions(9) == ["one"] and found.runs().keys() == {"0001"}
    assert {file.suffix for file in entry.folder.iterdir()} == {".json", ".jsonl"}, "no half of a file is left"
    entry.keep(numbered(runs))
    (found,) = history.entries("conversations")
    assert found.questions(9) == ["one", "two", "three"]


@pytest.mark.parametrize("words", [
    b"", b"{}", b"[]", b"\xff\xfe", b'{"title": 3, "about": null, "changed": "x", "count": 1}', b"[" * 60_000,
    b'{"title": "t", "about": "", "changed": 1e999, "count": 1}',
])
def test_a_damaged_description_hides_nothing(history, words):
    entry = history.begin("conversations", "title", runs=numbered([run_of("x")]))
    (entry.folder / "entry.json").write_bytes(words)
    (found,) = history.entries("conversations")
    assert found.title and len(found.runs()) == 1


@pytest.mark.parametrize("whole, damaged", [
    (None, b""), (None, b"{}"), (None, b"\xff"), (None, b"[" * 60_000), (b'"pld"', b'"none"'),
    (b'"lane":1', b'"lane":9'),
])
def test_of_a_race_whose_record_is_damaged_its_runs_are_left(history, whole, damaged):
    """A whole file, or a part of it."""
    asked = Race((Lane("autoregressive"), Lane("pld")), Request((("user", "x"),), temperature=0.5), repeats=2)
    ends = tuple(LaneFinished(lane, 0, 0, 3, 2.0, 1.5, memory=7, other_seconds=0.5) for lane in range(2))
    record = RaceRecord(asked, ends, RaceFinished("cancelled"))
    entry = history.begin("races", "title", runs={"1-autoregressive.repeat-1.prompt-1": run_of("x")}, race=record)
    file = entry.folder / "race.json"
    (found,) = history.entries("races")
    assert found.race() == record and len(found.runs()) == 1
    file.write_bytes(file.read_bytes().replace(whole, damaged) if whole else damaged)
    assert found.race() is None and len(found.runs()) == 1


def test_a_fifo_does_not_hang_and_a_link_is_not_followed(history, tmp_path):
    entry = history.begin("conversations", "title", runs=numbered([run_of("x")]))
    (entry.folder / "entry.json").unlink()
    os.mkfifo(entry.folder / "entry.json")
    os.mkfifo(entry.folder / "0002.jsonl")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (history.folder / "conversations" / "link").symlink_to(elsewhere)
    (found,) = history.entries("conversations")
    assert len(found.runs()) == 1 and found.questions(9) == ["x"]


def test_runs_that_cannot_be_read_are_left_out(history):
    entry = history.begin("conversations", "t", runs=numbered([run_of("one"), run_of("two")]))
    (entry.folder / "0001.jsonl").write_text("not a trace")
    assert list(entry.runs()) == ["0002"]
    (entry.folder / "0002.jsonl").unlink()
    with pytest.raises(UsageProblem, match="nothing of 't' can be read"):
        entry.runs()


@pytest.mark.parametrize("end", [0, -60])
def test_a_damaged_run_stays_on_the_disk_and_what_follows_is_saved_elsewhere(history, end):
    """Nothing of the run can be read, or all but its end."""
    runs = [run_of("one"), run_of("two"), run_of("three")]
    history.begin("conversations", "t", runs=numbered(runs))
    (entry,) = history.entries("conversations")
    damaged, old = entry.folder / "0002.jsonl", entry.folder
    damaged.write_bytes(damaged.read_bytes()[:end])
    was = {file.name: file.read_bytes() for file in old.glob("*.jsonl")}
    first, *_, third = entry.runs().values()
    assert entry.damaged == 1
    entry.keep(numbered([first, third, run_of("four")]))
    assert {file.name: file.read_bytes() for file in old.glob("*.jsonl")} == was
    assert entry.folder != old and entry.questions(9) == ["one", "three", "four"]
    new = entry.folder
    entry.keep(numbered([first]))
    assert entry.folder == new, "only once"


def test_a_disk_that_refuses_is_a_sentence(history):
    history.folder.parent.mkdir(exist_ok=True)
    history.folder.write_text("a file where the folder should be")
    with pytest.raises(UsageProblem, match="cannot be saved"):
        history.begin("conversations", "t")
    assert history.entries("conversations") == []


@pytest.mark.parametrize(("value", "kept"), [("off", False), ("0", False), (" No ", False), ("on", True), ("", True)])
def test_one_setting_turns_it_off(monkeypatch, value, kept):
    monkeypatch.setenv(SETTING, value)
    assert (History.of_user() is not None) is kept
