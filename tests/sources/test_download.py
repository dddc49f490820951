"""Downloads from a hub on this machine: what is fetched, what is said meanwhile, what survives an interruption."""

from __future__ import annotations

import re
import sys
import threading
import time

import pytest

from engines.errors import ModelUnavailable, UsageProblem
from engines.hub import hub_cache as cache
from engines.hub.model_source import TrustPolicy, locate
from engines.progress import with_heartbeat
from engines.report.events import Loading
from tests.hub import NEEDED, digest

NAME = "someone/tiny"
WEIGHTS = "model.safetensors"


class Stopped(BaseException):
    """As the engine process leaves a loader."""


class Watcher:
    """A progress report that keeps what it hears, and leaves when a condition holds."""

    def __init__(self, leave=lambda event: False) -> None:
        self.events: list[Loading] = []
        self._leave = leave

    def __call__(self, event: Loading) -> None:
        self.events.append(event)
        if self._leave(event):
            raise Stopped

    @property
    def stages(self) -> list[str]:
        return [e.stage for e in self.events]


def fetch(name: str = NAME, revision: str | None = None, terms: TrustPolicy | None = None, progress=lambda _: None):
    source = locate(name, revision, terms, progress=progress)
    source.fetch_weights(progress)
    return source


def refused(*args, kind=ModelUnavailable, **kw) -> str:
    with pytest.raises(kind) as caught:
        fetch(*args, **kw)
    assert caught.value.hint and "Traceback" not in caught.value.message
    return f"{caught.value.message} | {caught.value.hint}"


def here(source) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in source.folder.iterdir()}


def partials() -> list[int]:
    return [p.stat().st_size for p in (cache.repository(NAME) / "blobs").glob("*.incomplete")]


def test_what_is_needed_is_fetched_and_nothing_else(hub, crowded):
    hub.publish(NAME, crowded)
    source = fetch()
    wanted = NEEDED | {WEIGHTS}
    assert hub.fetched() == wanted
    assert here(source) == {name: crowded[name] for name in wanted}
    assert {a.path for a in hub.asked if "/api/" in a.path} == {f"/api/models/{NAME}"}, "no telemetry"


def test_the_size_is_said_before_and_the_progress_during(hub, crowded):
    hub.publish(NAME, crowded)
    hub.pause = 0.01
    watcher = Watcher(lambda _: hub.fetched() and not any(e.bytes for e in watcher.events))  # said too late
    fetch(progress=watcher)
    size = sum(len(crowded[name]) for name in NEEDED | {WEIGHTS})
    first, *rest = (e for e in watcher.events if e.bytes)
    assert first.stage == f"downloading {NAME}: 6 files, {size / 1e3:.0f} kB"
    assert (first.done, first.bytes) == (None, size)
    assert any(re.fullmatch(r"downloading [\d.]+ of \d+ kB, [\d.]+ [kM]B/s, \d s left", e.stage) for e in rest)
    assert max(map(len, watcher.stages)) < 60
    assert [e.done for e in rest] == sorted(e.done for e in rest) and 0.5 < rest[-1].done <= 1


def test_reports_come_at_their_own_pace(hub, crowded, monkeypatch):
    monkeypatch.setattr("engines.hub.download.TICK", 0.1)
    hub.publish(NAME, crowded | {WEIGHTS: bytes(3_000_000)})
    hub.pause = 0.001
    watcher, begun = Watcher(), time.monotonic()
    fetch(progress=watcher)
    assert len([e for e in watcher.events if e.bytes]) <= 2 + (time.monotonic() - begun) / 0.1


def test_a_complete_model_asks_the_hub_nothing(hub, crowded):
    commit = hub.publish(NAME, crowded)
    fetch()
    hub.asked.clear()
    for offline in (False, True):
        hub.offline(offline)
        for revision in (None, "main", commit):
            assert (fetch(revision=revision).folder / WEIGHTS).exists()
    assert hub.asked == []


def test_files_here_already_are_not_fetched_again(hub, crowded):
    hub.publish(NAME, crowded)
    fetch()
    hub.publish(NAME, crowded | {"generation_config.json": b"{}"})
    hub.publish(NAME, crowded | {"generation_config.json": b"{}"}, "v2")
    hub.asked.clear()
    watcher = Watcher()
    fetch(revision="v2", progress=watcher)
    assert hub.fetched() == {"generation_config.json"}
    assert any(f"{NAME}: 1 file, 2 bytes" in s for s in watcher.stages)


def test_branches_tags_and_commits(hub, crowded):
    old = hub.publish(NAME, crowded | {"generation_config.json": b'{"top_k": 1}'}, "v1")
    hub.publish(NAME, crowded)
    assert here(fetch(revision="v1"))["generation_config.json"] == b'{"top_k": 1}'
    assert fetch(revision=old).folder.name == old
    assert here(fetch())["generation_config.json"] == crowded["generation_config.json"]
    assert cache.snapshot(NAME, "v1") == fetch(revision="v1").folder


def test_a_revision_that_is_not_there(hub, crowded, saved):
    hub.publish(NAME, crowded)
    assert "has no revision v9" in refused(revision="v9")
    for nonsense in ("", "../../main", "/etc", "--force"):
        assert "--revision takes" in refused(revision=nonsense, kind=UsageProblem)
    assert "is a folder" in refused(str(saved), revision="main", kind=UsageProblem)


def test_a_lost_connection_goes_on_where_it_was(hub, crowded):
    hub.publish(NAME, crowded)
    hub.cuts[WEIGHTS] = [40_000, 30_000]
    assert here(fetch())[WEIGHTS] == crowded[WEIGHTS]
    assert [a.range for a in hub.got(WEIGHTS)] == [None, "bytes=40000-", "bytes=70000-"]


def test_what_was_fetched_before_the_hub_went_away_is_used_later(hub, crowded):
    hub.publish(NAME, crowded)
    hub.cuts[WEIGHTS] = [50_000] + [0] * 9
    message = refused()
    assert "connection to the hub was lost" in message and "try again" in message
    assert partials() == [50_000]
    hub.cuts.clear()
    hub.asked.clear()
    watcher = Watcher()
    assert here(fetch(progress=watcher))[WEIGHTS] == crowded[WEIGHTS]
    assert [a.range for a in hub.got(WEIGHTS)] == ["bytes=50000-"] and hub.fetched() == {WEIGHTS}
    left = len(crowded[WEIGHTS]) - 50_000
    [said] = filter(None, (re.search(r"1 file, ([\d.]+) kB \(50 kB are here already\)", s) for s in watcher.stages))
    assert float(said[1]) == pytest.approx(left / 1e3, rel=0.01)
    assert max(e.bytes for e in watcher.events if e.bytes) == left


def test_a_cancel_in_the_middle_leaves_nothing_that_looks_complete(hub, crowded):
    hub.publish(NAME, crowded)
    hub.held.add(WEIGHTS)
    watcher = Watcher(lambda e: hub.holding.is_set() and (e.done or 0) > 0.4)
    begun = time.monotonic()
    with pytest.raises(Stopped):
        fetch(progress=watcher)
    assert time.monotonic() - begun < 5, "a cancel does not wait for the silent connection"
    [size] = partials()
    assert 0 < size < len(crowded[WEIGHTS])
    hub.released.set()
    time.sleep(0.2)
    assert partials() == [size], "nothing is written after the cancel"
    hub.offline()
    assert "incomplete" in refused() and "HF_HUB_OFFLINE" in refused()
    hub.offline(False)
    hub.asked.clear()
    assert here(fetch())[WEIGHTS] == crowded[WEIGHTS]
    assert [a.range for a in hub.got(WEIGHTS)] == [f"bytes={size}-"]


def test_a_cancel_while_the_hub_is_asked(hub, crowded):
    hub.publish(NAME, crowded)
    with pytest.raises(Stopped):
        fetch(progress=Watcher(lambda e: "asking the hub" in e.stage))
    assert not (cache.folder() / f"models--{NAME}").exists()


def test_a_server_that_knows_no_ranges(hub, crowded):
    hub.publish(NAME, crowded)
    hub.ignores_ranges = True
    hub.cuts[WEIGHTS] = [40_000]
    watcher = Watcher()
    assert here(fetch(progress=watcher))[WEIGHTS] == crowded[WEIGHTS]


def test_what_arrives_damaged_is_thrown_away(hub, crowded):
    hub.publish(NAME, crowded)
    for damaged in ("tokenizer.json", WEIGHTS):
        hub.damages = {damaged}
        assert f"{damaged} arrived damaged" in refused()
        blob = cache.repository(NAME) / "blobs" / digest(damaged, crowded[damaged])
        assert not blob.exists() and not blob.with_name(blob.name + ".incomplete").exists()
    hub.damages.clear()
    assert here(fetch())[WEIGHTS] == crowded[WEIGHTS]


def test_a_partial_file_that_was_tampered_with_is_noticed(hub, crowded):
    hub.publish(NAME, crowded)
    hub.cuts[WEIGHTS] = [50_000] + [0] * 9
    refused()
    [partial] = (cache.repository(NAME) / "blobs").glob("*.incomplete")
    partial.write_bytes(bytes(50_000))
    assert "damaged" in refused()
    assert here(fetch())[WEIGHTS] == crowded[WEIGHTS]


def test_no_room_on_the_disk_is_said_before(hub, crowded, monkeypatch):
    hub.publish(NAME, crowded)
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    message = refused()
    assert "has 1 kB free" in message and "HF_HOME" in message
    assert hub.fetched() == set()


def test_a_disk_that_fills_up_on_the_way(hub, crowded, monkeypatch):
    def full(out, block):
        raise OSError(28, "No space left on device")

    hub.publish(NAME, crowded)
    monkeypatch.setattr("engines.hub.download._write", full)
    assert "is full" in refused()


def test_two_processes_do_not_write_the_same_file(hub, crowded):
    from huggingface_hub.utils import WeakFileLock

    hub.publish(NAME, crowded)
    place = cache.folder() / ".locks" / f"models--{NAME.replace('/', '--')}" / "spec-tui.lock"
    place.parent.mkdir(parents=True)
    watcher = Watcher()
    with WeakFileLock(place):
        thread = threading.Thread(target=fetch, kwargs={"progress": watcher})
        thread.start()
        deadline = time.monotonic() + 10
        while not any("another process" in s for s in watcher.stages):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert hub.fetched() == set()
    thread.join(10)
    assert WEIGHTS in hub.fetched()


def test_the_ways_in_which_a_hub_says_no(hub, crowded):
    hub.publish(NAME, crowded, gated=True)
    assert "is gated" in refused() and "hf auth login" in refused()
    assert "no/such is not on the hub" in refused("no/such"), "the same is said of a dataset"
    assert "neither a folder nor a hub id" in refused("a b c")
    assert "known names are sample, smollm2, " in refused("nosuch")
    assert "did you mean" not in refused("no/smollm2")
    for typed, meant in (("smolm2", "smollm2"), ("SmolLM2", "smollm2"), ("qwen_coder", "qwen-coder")):
        assert f"did you mean {meant}?" in refused(typed)
    hub.broken = 503
    assert "error 503" in refused()
    hub.broken = 429
    assert "too many requests" in refused()
    hub.broken = None
    hub.offline()
    assert "is not in the local cache, and spec-tui runs offline" in refused("other/model")


def test_a_token_opens_a_gated_model_and_goes_nowhere_else(hub, crowded, monkeypatch):
    hub.publish(NAME, crowded, gated=True)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    fetch()
    elsewhere = [a for a in hub.asked if a.path.startswith("/cdn/")]
    assert elsewhere and not any(a.sent_token for a in elsewhere)


def test_a_call_that_ends_in_any_way_is_not_waited_for():
    with pytest.raises(SystemExit):
        with_heartbeat(lambda: sys.exit(3), lambda: None, 0.01)
    assert with_heartbeat(lambda: 7, lambda: None, 0.01) == 7


def test_a_hub_that_is_not_there_is_said_quickly(hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    begun = time.monotonic()
    assert f"{NAME} at revision v1 is not in the local cache and the hub could not be reached" in refused(revision="v1")
    assert time.monotonic() - begun < 6


def test_a_cache_that_cannot_be_written(hub, crowded, monkeypatch, tmp_path):
    hub.publish(NAME, crowded)
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "file"))
    assert "fetched" in refused() or "written" in refused()


def test_a_hostile_hub_writes_nowhere_else(hub, crowded, tmp_path):
    files = {"../../evil.json": b"x", "/etc/tokenizer.json": b"x", "a/../tokenizer.json": b"x", "vocab.\x1b[2J": b"x"}
    hub.publish(NAME, crowded | files)
    fetch()
    written = {p for p in tmp_path.rglob("*") if p.is_file()}
    assert all(p.is_relative_to(tmp_path / "cache") for p in written)
    assert not hub.fetched() & {"../../evil.json", "/etc/tokenizer.json", "a/../tokenizer.json"}
