"""Weights that are kept in the cache folder: the same as were made, mapped the next time, and never those of another
file."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

import engines
from engines.errors import ModelUnavailable
from engines.hub import gguf_file, kept_weights
from engines.hub.kept_weights import forget, kept_bytes
from engines.request import Request
from tests.sources.gguf_files import Tiny

pytestmark = pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="nothing is kept here")

SIZES = [100, 5_000_000, 64, 2 << 20, 3, 9_000_001]
KEPT = sum(-(-size // 64) * 64 for size in SIZES)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """A cache folder of its own, in which weights of small models are kept too."""
    monkeypatch.setenv("SPEC_TUI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(kept_weights, "WORTH", 0)
    return tmp_path / "cache" / "weights"


@pytest.fixture
def model(tmp_path) -> Path:
    file = Tiny("llama", "Q8_0").write(tmp_path / "m.gguf")
    with file.open("ab") as end:
        end.truncate(16 << 20)  # room for what the tests keep of it
    return file


def taken(
    model: Path, sizes: list[int] = SIZES, seed: int = 1, order: str = "", made_by: str = "code"
) -> tuple[list[np.ndarray], int]:
    """Memory of these sizes, and how much of it was made."""
    rng, made = np.random.default_rng(seed), []

    def fill(memory: np.ndarray) -> None:
        memory[:] = rng.integers(0, 256, len(memory), np.uint8)
        made.append(memory.copy())

    with kept_weights.kept_weights(gguf_file.read(model), [order], made_by) as place:
        found = [place(size, fill) for size in sizes]
    return found, len(made)


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return all(np.array_equal(*both) for both in zip(one, other, strict=True))


def test_what_was_made_is_mapped_the_next_time(model):
    (first, made), (second, again) = taken(model), taken(model, seed=2)
    assert made == len(SIZES) and again == 0 and [len(memory) for memory in second] == SIZES
    assert same(first, second) and not same(first, taken(model, seed=2, order="another")[0])


def test_what_was_changed_is_made_anew(model, cache):
    first = [memory.copy() for memory in taken(model)[0]]
    for change in (lambda: os.utime(model, ns=(1, 1)), lambda: [file.write_text("{") for file in cache.glob("*.json")],
                   lambda: [os.truncate(file, 100) for file in cache.glob("*.bin")],
                   lambda: [file.write_bytes(bytes(KEPT)) for file in cache.glob("*.bin")],
                   lambda: [file.unlink() for file in cache.glob("*.bin")]):
        change()
        found, made = taken(model)
        assert made == len(SIZES) and same(found, first)
        assert taken(model)[1] == 0


def test_other_code_replaces_what_was_kept_of_the_same_model_and_order(model, cache):
    for order in ("", "another"):
        taken(model, order=order)
    assert kept_bytes(model) == 2 * KEPT
    assert taken(model, made_by="newer code")[1] == len(SIZES)
    assert kept_bytes(model) == 2 * KEPT and len([*cache.glob("*.bin")]) == 2
    assert taken(model, made_by="newer code")[1] == 0 and taken(model, order="another")[1] == 0


def test_another_order_than_was_kept_gets_memory_of_its_own(model):
    taken(model)
    found, made = taken(model, [*SIZES[:2], 700, *SIZES[2:]], seed=1)
    assert made == len(SIZES) - 1 and [len(memory) for memory in found] == [*SIZES[:2], 700, *SIZES[2:]]


def test_where_making_fails_nothing_is_kept(model, cache):
    with pytest.raises(ZeroDivisionError), kept_weights.kept_weights(gguf_file.read(model), [""], "code") as place:
        place(5_000_000, lambda memory: memory.fill(1))
        raise ZeroDivisionError
    assert not [*cache.iterdir()] and taken(model)[1] == len(SIZES)


@pytest.mark.parametrize("refuses", ["posix_fallocate", "open"])
def test_where_there_is_no_room_weights_are_in_memory(model, cache, monkeypatch, refuses):
    opens = os.open

    def full(what, flags, *more):
        if refuses == "open" and not flags & os.O_CREAT:  # to read is allowed
            return opens(what, flags, *more)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kept_weights.os, refuses, full)
    found, made = taken(model)
    assert made == len(SIZES) and [len(memory) for memory in found] == SIZES and not [*cache.glob("*")]


@pytest.mark.parametrize("worth", [0, 1 << 60])
def test_each_weight_begins_at_a_line_of_the_caches(model, monkeypatch, worth):
    monkeypatch.setattr(kept_weights, "WORTH", worth)
    for _ in range(2):  # made, then as it was kept
        found, _ = taken(model)
        assert {memory.ctypes.data % 64 for memory in found} == {0}


def test_a_weight_may_be_larger_than_what_is_written_at_once(model, monkeypatch):
    writev = os.writev
    monkeypatch.setattr(kept_weights.os, "writev", lambda handle, parts: writev(handle, [parts[0][:999_999]]))
    (first, _), (second, again) = taken(model), taken(model, seed=2)
    assert again == 0 and same(first, second)


def test_a_disk_that_fails_meanwhile_says_what_to_do(model, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kept_weights.os, "writev", full)
    with pytest.raises(ModelUnavailable, match="cannot be written") as caught:
        taken(model)
    assert "SPEC_TUI_CACHE_DIR" in caught.value.hint


def test_what_was_used_least_recently_goes(model, cache, monkeypatch):
    monkeypatch.setattr(kept_weights, "MOST", 2 * KEPT + (20 << 20))
    for seed, order in enumerate("abc"):
        taken(model, order=order, seed=seed)
        time.sleep(0.01)
    taken(model, order="a")
    taken(model, order="d")
    assert taken(model, order="a")[1] == 0 and taken(model, order="b")[1] == len(SIZES)
    assert kept_bytes(model) <= 3 * KEPT


def test_what_another_process_removes_meanwhile_is_made_anew(model, cache, monkeypatch):
    first = [memory.copy() for memory in taken(model)[0]]
    opens = Path.open

    def removed(file, *args, **more):
        if file.suffix == ".bin":
            file.unlink(missing_ok=True)
        return opens(file, *args, **more)

    monkeypatch.setattr(Path, "open", removed)
    found, made = taken(model)
    assert made == len(SIZES) and same(found, first)


def test_what_belongs_to_no_model_any_more_goes(model, tmp_path, cache):
    other = Path(tmp_path / "other.gguf")
    other.write_bytes(model.read_bytes())
    taken(other)
    other.unlink()
    (cache / ".killed.1").touch()
    os.utime(cache / ".killed.1", (0, 0))
    taken(model)
    assert len([*cache.glob("*.bin")]) == 1 and not [*cache.glob(".*")]
    assert kept_bytes(model) == KEPT == forget(model) and not [*cache.iterdir()]


def test_what_cannot_be_removed_does_not_stop_the_keeping(model, cache):
    (cache / ".nfs").mkdir(parents=True)
    os.utime(cache / ".nfs", (0, 0))
    taken(model)
    assert taken(model)[1] == 0


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "F32"])
def test_a_model_from_kept_weights_writes_the_same(tmp_path, kind):
    model = Tiny("llama", kind).write(tmp_path / "m.gguf")
    request = Request((("user", "the thin"),), max_new_tokens=8)
    texts = []
    for _ in range(2):
        *_, finished = engines.load(str(model), threads=1).run(request)
        texts.append(finished.tokens)
    assert texts[0] == texts[1]
    assert bool(kept_bytes(model)) == (kind != "F32"), "what is unpacked is not kept"
