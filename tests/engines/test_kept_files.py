"""Whatever lies in the cache folder may be damaged at any byte: it is noticed, and made anew."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engines import machine
from engines.machine import keep, kept
from engines.model.native import native_check, native_code
from engines.model.native.compiling import compiler
from tests.sources.gguf_files import Tiny

RUN = """
import sys
from engines.request import Request
from engines import load
runtime = load(sys.argv[1], threads=1)
*_, finished = runtime.run(Request((("user", "the thin"),), max_new_tokens=4))
print(finished.tokens)
"""

COMPILER = "compiler"
"""One that takes no time: it gives what the machine's own made of the same code."""


def started(model: Path, cache: Path) -> str:
    """What a process of its own writes with a model and a cache folder; its compiler is ``COMPILER``."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(model)], capture_output=True, text=True, timeout=100,
        env={**os.environ, "SPEC_TUI_CACHE_DIR": str(cache), "HF_HUB_OFFLINE": "1",
             "CXX": str(model.parent / COMPILER)},
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return done.stdout


@pytest.fixture(scope="module")
def full(tmp_path_factory) -> tuple[Path, Path, str]:
    """A model, a cache folder with all kinds of files in it, and what the model writes."""
    folder = tmp_path_factory.mktemp("kept")
    if compiler():
        native_code.library()
        file = machine.measured_file("native", [native_code.digest()]).with_suffix(".so")
        (folder / COMPILER).write_text(f'#!/bin/sh\nfor last; do :; done\nexec cp {shlex.quote(str(file))} "$last"\n')
        (folder / COMPILER).chmod(0o755)
    model = Tiny("llama", "Q8_0").write(folder / "m.gguf")
    return model, folder / "cache", started(model, folder / "cache")


def contents(cache: Path) -> dict[str, bytes]:
    return {str(f.relative_to(cache)): f.read_bytes() for f in sorted(cache.rglob("*"))
            if f.is_file() and f.suffix != ".lock" and not f.name.startswith(".")}


DAMAGES = {
    "cut": lambda content, rng: content[: rng.randrange(len(content))],
    "zeros": lambda content, rng: bytes(len(content)),
    "a byte": lambda content, rng: _changed(content, rng.randrange(len(content)), 1 << rng.randrange(8)),
    "empty": lambda content, rng: b"",
}


def _changed(content: bytes, at: int, bits: int) -> bytes:
    return content[:at] + bytes([content[at] ^ bits]) + content[at + 1 :]


@pytest.mark.parametrize("damage", [
    "cut", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("zeros", "a byte", "empty")),
])
def test_every_file_of_the_cache_is_made_anew_where_it_is_damaged(damage, full, tmp_path):
    model, cache, written = full
    before = contents(cache)
    kinds = {name.split("/")[0] for name in before}
    assert kinds >= {"gguf", "costs"} and (not compiler() or "native" in kinds), kinds
    rng = random.Random(damage)
    copy = shutil.copytree(cache, tmp_path / "cache")
    for name, content in before.items():
        (copy / name).write_bytes(DAMAGES[damage](content, rng))
    assert started(model, copy) == written
    after = contents(copy)
    for name, content in before.items():  # what was measured has other numbers now
        if name.startswith("gguf/") and name.endswith(".json"):
            assert after[name] == content, name
        if name.endswith((".json", ".check")):
            assert json.loads(after[name]), name
    assert started(model, copy) == written
    late = contents(copy).keys() ^ after.keys()  # what a busy machine measures may be kept at a later start only
    assert late <= contents(copy).keys()
    assert all(name.endswith(".json") and not name.startswith("gguf/") for name in late), late


def test_pipes_in_the_cache_are_not_waited_for(full, tmp_path):
    model, cache, written = full
    copy = shutil.copytree(cache, tmp_path / "cache")
    for name in contents(cache):
        (copy / name).unlink()
        os.mkfifo(copy / name)
    assert started(model, copy) == written


def test_a_tokenizer_of_the_cache_is_written_again(tmp_path, monkeypatch):
    from engines.hub.model_source import locate
    from engines.model.loading import load_tokenizer

    monkeypatch.setenv("SPEC_TUI_CACHE_DIR", str(tmp_path / "cache"))
    path = str(Tiny("llama").write(tmp_path / "m.gguf"))
    folder = locate(path).folder
    whole = contents(folder)
    assert {"tokenizer.json", "config.json", "generation_config.json"} <= whole.keys()
    rng = random.Random(0)
    for name in whole:
        for change in DAMAGES.values():
            (folder / name).write_bytes(change(whole[name], rng))
            assert load_tokenizer(path)("the thin").input_ids and contents(folder) == whole, name
        for put in (lambda file: None, os.mkfifo):  # which nobody writes to
            (folder / name).unlink()
            put(folder / name)
            assert load_tokenizer(path) and contents(folder) == whole, name
    assert not list(folder.parent.glob("tmp*"))


def test_a_kept_value_is_whole_or_not_there(tmp_path):
    file = tmp_path / "x" / "value.json"
    value = {"threads": 2, "layout": "plain", "times": [0.1, 1 / 3]}
    keep(file, value)
    assert kept(file) == value
    whole = file.read_bytes()
    for at in range(len(whole)):
        for content in (whole[:at], _changed(whole, at, 1 << at % 8)):
            file.write_bytes(content)
            assert kept(file) in (None, value), content  # a blank may be another
    file.unlink()
    assert kept(file) is None
    (tmp_path / "a file").touch()
    keep(tmp_path / "a file" / "value.json", value)  # cannot be written: nothing is kept


def test_a_value_is_kept_for_so_many_days(tmp_path, monkeypatch):
    now = [1_000_000_000.0]
    monkeypatch.setattr(machine, "time", lambda: now[0])
    keep(tmp_path / "some.json", 1, days=2)
    keep(tmp_path / "always.json", 2)
    assert kept(tmp_path / "some.json") == 1
    now[0] += 3 * 86_400
    assert kept(tmp_path / "some.json") is None and kept(tmp_path / "always.json") == 2
    now[0] -= 400 * 86_400  # it was written by a clock that was far ahead
    assert kept(tmp_path / "some.json") is None


@pytest.fixture
def timed(tmp_path, monkeypatch):
    """What native code and torch take, what else is running, and how often it was measured."""
    monkeypatch.setenv("SPEC_TUI_CACHE_DIR", str(tmp_path))
    times, busy, asked = [2.0, 1.0], [0.0], []
    monkeypatch.setattr(native_check, "_times", lambda: asked.append(1) or list(times))
    monkeypatch.setattr(native_check.OtherLoad, "cores", lambda self: busy[0])
    monkeypatch.setattr(native_check, "digest", lambda: "code")

    def slow() -> bool:
        native_check._slow.cache_clear()
        try:
            return native_check._slow()
        finally:
            native_check._slow.cache_clear()

    return slow, times, busy, asked


@pytest.mark.parametrize("load", [1.0, None])
def test_an_unlucky_measurement_of_a_busy_machine_disables_nothing(load, timed):
    slow, times, busy, asked = timed
    busy[0] = load
    assert not slow() and not slow() and len(asked) == 2, "nor is it kept"
    times[:] = [0.5, 1.0]
    assert not slow() and not slow() and len(asked) == 3, "a good one is"


def test_that_native_code_is_slower_is_asked_again_some_days_later(timed, monkeypatch):
    slow, times, _, asked = timed
    now = [1_000_000_000.0]
    monkeypatch.setattr(machine, "time", lambda: now[0])
    assert slow() and slow() and len(asked) == native_check._ATTEMPTS
    now[0] += 10 * 86_400
    times[:] = [1.0, 1.0]
    assert not slow() and len(asked) == native_check._ATTEMPTS + 1
