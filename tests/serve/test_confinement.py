"""What a session's process gets of its machine, and that the kernel keeps everything else from it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from engines.errors import ModelUnavailable, UsageProblem
from engines.folders import sample_heads, sample_model, sample_traces
from engines.heads.find_heads import heads_for
from engines.hub import gguf_file, gguf_folder, kept_weights
from engines.machine import keep
from engines.model.native.compiling import compiler
from spec_tui.serve import session_policy
from spec_tui.serve.confinement import version
from spec_tui.serve.session_policy import SessionPolicy, confinement, furnish, on_this_machine, variables
from spec_tui.session.engine_commands import LoadRequest
from tests.conftest import SMOLLM2

TRY = """
import json, os, socket, sys, msgspec
from spec_tui.serve.confinement import confine
from spec_tui.serve.session_policy import Confinement
limits, tries = msgspec.json.decode(sys.argv[1], type=Confinement), json.loads(sys.argv[2])
listening = socket.create_server(("127.0.0.1", 0))
confine(limits.read, limits.listed, limits.write, limits.port)
def ends(work, *arguments):
    try:
        work(*arguments)
        return "open"
    except OSError as error:
        return type(error).__name__
found = {name: ends(open, path, mode) for name, (path, mode) in tries.items()}
found["listing"] = ends(os.listdir, tries["a host's file"][0].rpartition("/")[0])
found["network"] = ends(socket.create_connection, listening.getsockname())
found["environment"] = ends(open, f"/proc/{os.getppid()}/environ", "rb")
print(json.dumps(found))
"""


@pytest.mark.skipif(not version(), reason="this kernel has no Landlock")
def test_the_kernel_keeps_files_the_network_and_other_processes_from_a_session(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEC_TUI_CACHE_DIR", str(tmp_path / "cache"))
    for name, model in (("own", sample_model("target")), ("other", tmp_path / "other.gguf")):
        keep(kept_weights.folder() / f"{name}.json", {"model": str(model.resolve())})
        (kept_weights.folder() / f"{name}.bin").write_bytes(b"x")
    own, other = tmp_path / "1", tmp_path / "2"
    for folder in (own, other):
        furnish(folder)
    (tmp_path / "secret").write_text("x")
    (other / "said").write_text("x")
    limits = confinement(SessionPolicy(shows="chat", load=LoadRequest(model=str(sample_model("target")))), own)
    tries = {
        "a host's file": (str(tmp_path / "secret"), "r"), "a new file": (str(tmp_path / "new"), "w"),
        "another session's": (str(other / "said"), "r"), "users": ("/etc/passwd", "r"),
        "its own": (str(own / "data" / "new"), "w"), "the program": (session_policy.__file__, "r"),
        "changing the program": (session_policy.__file__, "a"), "nothing": ("/dev/null", "w"),
        "the model": (str(sample_model("target") / "config.json"), "r"),
        "its kept weights": (str(own / "cache" / "weights" / "own.bin"), "r"),
        "changing them": (str(own / "cache" / "weights" / "own.bin"), "a"),
        "another model's": (str(own / "cache" / "weights" / "other.bin"), "r"),
    }
    done = subprocess.run(
        [sys.executable, "-c", TRY, msgspec.json.encode(limits).decode(), json.dumps(tries)], capture_output=True,
        text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    if version() < 4:
        del result["network"]
    allowed = {"its own", "the program", "nothing", "the model", "its kept weights"}
    assert {name for name, end in result.items() if end == "open"} == allowed
    assert {end for name, end in result.items() if name not in allowed} == {"PermissionError"}


LOAD = """
import os, sys, msgspec
from spec_tui.serve.confinement import confine
from spec_tui.serve.session_policy import Confinement
limits = msgspec.json.decode(sys.argv[1], type=Confinement)
import engines
confine(limits.read, limits.listed, limits.write, limits.port)
engines.load(threads=int(sys.argv[2]), progress=lambda step: print(step.stage))
"""


def kept_in(session: Path, *kinds: str) -> dict[Path, bytes]:
    files = (file for kind in kinds for file in (session / "cache" / kind).iterdir() if file.suffix != ".lock")
    return {file: file.read_bytes() for file in files if not file.name.startswith(".")}


def test_a_session_compiles_and_measures_nothing_that_its_host_has_kept(sample, tmp_path):
    """Its folder has what ``sample`` left in the cache of this process."""
    furnish(tmp_path / "1")
    policy = SessionPolicy(shows="chat", load=LoadRequest(model="sample"))
    kinds = ("selftests", *(["native"] if compiler() else []))
    kept, prices = kept_in(tmp_path / "1", *kinds), kept_in(tmp_path / "1", "costs")
    assert {file.parent.name for file in kept} == {*kinds} and prices
    limits = confinement(policy, tmp_path / "1")
    done = subprocess.run(
        [sys.executable, "-c", LOAD, msgspec.json.encode(limits).decode(), str(sample.ready.threads)],
        env=variables(policy, tmp_path / "1") | {"CXX": "/no/such/compiler"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "loading the tokenizer" in done.stdout and "compiling" not in done.stdout
    assert kept_in(tmp_path / "1", *kinds) == kept, "nothing is compiled or tested again"
    assert kept_in(tmp_path / "1", "costs").keys() == prices.keys(), "a price that has become less may be corrected"


def written(folder):
    """When each file of a folder was written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.skipif(not SMOLLM2.is_file(), reason="smollm2 is not here")
def test_a_session_finds_the_tokenizers_of_gguf_files(tmp_path, monkeypatch):
    file = gguf_file.read(SMOLLM2)
    made = gguf_folder.prepared(file)
    other = made.parent / "tmp-of-another-process"
    other.mkdir(exist_ok=True)
    furnish(tmp_path / "1")
    monkeypatch.setenv("SPEC_TUI_CACHE_DIR", str(tmp_path / "1" / "cache"))
    before = written(tmp_path / "1" / "cache")
    found = gguf_folder.prepared(file)
    assert found.is_relative_to(tmp_path) and found.name == made.name
    assert before and written(tmp_path / "1" / "cache") == before, "it is there"
    assert other.name not in {folder.name for folder in found.parent.iterdir()}


def test_the_environment_is_made_of_what_is_allowed(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("HF_TOKEN", "x")
    monkeypatch.setenv("OWN_KEY", "y")
    served = LoadRequest(server="http://h:1", api_key_env="OWN_KEY")
    seen = variables(SessionPolicy(shows="chat", load=served), tmp_path)
    assert "AWS_SECRET_ACCESS_KEY" not in seen and "HF_TOKEN" not in seen and seen["OWN_KEY"] == "y"
    assert {seen[name] for name in ("HOME", "USERPROFILE")} == {str(tmp_path)}
    assert all(seen[name].startswith(str(tmp_path)) for name in ("SPEC_TUI_DATA_DIR", "SPEC_TUI_CACHE_DIR", "TMPDIR"))
    assert "OWN_KEY" not in variables(SessionPolicy(shows="lessons"), tmp_path)


def test_only_a_named_server_can_be_reached(tmp_path):
    assert confinement(SessionPolicy(shows="lessons"), tmp_path).port is None
    ports = {"http://h:8080/v1": 8080, "https://h": 443, "http://h": 80}
    for url, port in ports.items():
        assert confinement(SessionPolicy(shows="chat", load=LoadRequest(server=url)), tmp_path).port == port


def test_the_current_folder_is_not_among_those_that_are_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    limits = confinement(SessionPolicy(shows="replay", names=(str(sample_traces() / "rest.jsonl"),)), tmp_path / "own")
    assert str(tmp_path) not in limits.read and str(sample_traces() / "rest.jsonl") in limits.read
    assert str(tmp_path) not in variables(SessionPolicy(shows="lessons"), tmp_path / "own")["PYTHONPATH"].split(":")


@pytest.mark.parametrize("named", ["mine", "data/heads/mine"], ids=["name", "relative folder"])
def test_a_session_finds_a_head_that_was_trained_here(sample, tmp_path, monkeypatch, named):
    """Its current folder and its data folder are others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path / "data"))
    shutil.copytree(sample_heads() / "sample", tmp_path / "data" / "heads" / "mine")
    load = on_this_machine(LoadRequest(model="sample", head=named))
    monkeypatch.chdir("/")
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path / "1" / "data"))
    heads, notes = heads_for(load.head, sample.target)
    assert heads["EAGLE head"].file.folder == tmp_path / "data" / "heads" / "mine" and not notes
    limits = confinement(SessionPolicy(shows="chat", load=load), tmp_path / "1")
    assert str(tmp_path / "data" / "heads" / "mine") in limits.read


def test_models_are_found_before_sessions_begin(tmp_path, monkeypatch):
    monkeypatch.chdir(sample_model("target").parent)
    assert on_this_machine(LoadRequest(model="target")).model == str(Path(sample_model("target")).resolve())
    assert on_this_machine(LoadRequest(model="sample")).model == "sample"
    with pytest.raises(ModelUnavailable, match="not on this machine"):
        on_this_machine(LoadRequest(model="owner/name"))
    for head in ("nowhere", "./nowhere", "owner/name"):
        with pytest.raises(ModelUnavailable, match="is not on this machine"):
            on_this_machine(LoadRequest(model="sample", head=head))
    for head in (None, "none", "EAGLE-3"):
        assert on_this_machine(LoadRequest(model="sample", head=head)).head == head
    with pytest.raises(UsageProblem, match="starts no other program"):
        on_this_machine(LoadRequest(model="a.gguf", backend="llama.cpp"))
