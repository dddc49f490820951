"""``spec-tui model``: for people at 80 columns, for programs as JSON; and the flags on their way to the loader."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys

import pytest

from engines.hub.download_progress import in_bytes
from spec_tui.session import loader
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.session.model_choices import targets
from tests.sources.gguf_files import Tiny

NAME = "someone/tiny"
FLAGS = ("--revision", "v1", "--draft-model", "d", "--draft-revision", "v2", "--allow-pickle", "--trust-remote-code")


def test_the_shipped_model_as_text(cli):
    done = cli("model", "info")
    assert done.code == 0 and done.err == ""
    assert max(map(len, done.out.splitlines())) <= 80
    text = " ".join(done.out.split())
    for words in (
        "LlamaForCausalLM (llama)", "12, hidden size 256, 4 heads of 64", "full: 12 layers", "1,024 tokens",
        "11.6 M, stored as BF16", "chat template yes", "trees, according to the configuration",
        "bfloat16 23.2 MB 24.6 MB 25.2 MB 48.4 MB yes: ram", "✓ sample draft 1.65 M; the same tokens",
    ):
        assert words in text


def test_a_file_is_where_it_lies_and_says_what_memory_it_may_take(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    path = Tiny("llama").write(tmp_path / "tiny.gguf")
    for native in (True, False):
        monkeypatch.setattr("engines.model.description.obtainable", lambda found=native: found)
        text = " ".join(cli("model", "info", str(path)).out.split())
        assert f"where the file {path} architecture" in text
        assert f"files 1 needed, {in_bytes(path.stat().st_size)} (GGUF)" in text
        assert ("int8" in text) == native, "native code multiplies integers"


def test_the_shipped_model_as_json(cli):
    found = json.loads(cli("model", "info", "--format", "json").out)
    assert found["shape"]["layers"] == 12 and found["drafts"] == "trees" and found["where"] == "folder"
    assert found["memory"][0]["dtype"] == "float32" and found["draft_models"][0]["fits"] is True


def test_a_model_of_the_hub(cli, hub, crowded):
    hub.publish(NAME, crowded, "v1", licence="mit\x1b[2J", gated=False, counted={"F32": 41_376})
    done = cli("model", "info", NAME, "--revision", "v1", "--draft-model", NAME)
    text = " ".join(done.out.split())
    assert done.code == 3 and "has no revision main" in done.err, "the draft model's revision is its own"
    done = cli("model", "info", NAME, "--revision", "v1", "--draft-model", NAME, "--draft-revision", "v1")
    text = " ".join(done.out.split())
    assert re.search(r"the hub, not downloaded, revision v1 \(commit [0-9a-f]{10}\)", text)
    assert re.search(r"6 needed, 1\d\d kB \(safetensors\); 1\d\d kB to download", text)
    assert "licence mit␛[2J" in text and "\x1b" not in done.out
    assert "✓ someone/tiny" in text and "no smaller than the target" in text
    assert "✓ sample draft 1.65 M; it has 8,192 tokens, the target 260; it has all tokens of the target" in text
    assert "~ smollm2-draft 12.1 M; it has 49,152 tokens" in text
    assert "it has 235 of the target's 260 tokens (90%) and drafts only these" in text
    assert max(map(len, done.out.splitlines())) <= 80


def test_what_will_be_refused_says_so_first(cli, hub, crowded):
    hub.publish(NAME, {n: d for n, d in crowded.items() if not n.endswith("safetensors")})
    lines = cli("model", "info", NAME).out.splitlines()
    assert lines[1].split()[0] == "refused" and "--allow-pickle" in " ".join(lines[1:3])
    assert "refused" not in cli("model", "info", NAME, "--allow-pickle").out


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        (["info", "/no/such/folder"], 3, "there is no model folder"),
        (["info", "no/such"], 3, "no/such is not on the hub"),
        (["info", NAME, "--revision", "../x"], 2, "--revision takes"),
        (["info", NAME, "--draft-model", "/no/such"], 3, "there is no model folder"),
        ([], 2, "spec-tui model takes export, get, info, list or remove"),
        (["inform"], 2, "--help"),
    ],
)
def test_mistakes_are_sentences(cli, hub, crowded, arguments, code, words):
    hub.publish(NAME, crowded)
    done = cli("model", *arguments)
    assert (done.code, done.out) == (code, "") and words in done.err


def test_the_models_at_hand(cli, hub, crowded):
    from typer.main import get_command

    from engines.hub.known_models import KNOWN
    from engines.hub.model_source import locate
    from spec_tui.cli.commands import app

    hub.publish(NAME, crowded)
    locate(NAME).fetch_weights()
    listed = json.loads(cli("model", "list", "--format", "json").out)
    here = [m for m in listed if m["name"] not in KNOWN]
    names = [m["name"] for m in here]
    assert names[:2] == ["sample target", "sample draft"] and names[-1] == NAME
    assert all(m["problem"] is None and m["parameters"] for m in here)
    assert "sample draft" in cli("model", "list").out
    option = next(option for option in get_command(app).params if option.name == "model")
    offered = {typed: [item.value for item in option.shell_complete(None, typed)] for typed in ("some", "x", "sam")}
    assert offered == {"some": [NAME], "x": [], "sam": ["sample", "sample-draft"]}


def test_files_of_other_programs_are_found(cli, hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LLAMA_CACHE", "")  # as good as not set
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "elsewhere"))
    whole = Tiny("llama").write(tmp_path / "tiny.gguf").read_bytes()
    files = {
        ".lmstudio/models/someone/tiny/a\x1b[2J.gguf": whole, ".cache/llama.cpp/b.gguf": whole[: len(whole) // 2],
        "elsewhere/blobs/sha256-c": whole, "elsewhere/blobs/sha256-template": b"{{ .Prompt }}",
        ".ollama/models/blobs/sha256-d": whole,
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    os.mkfifo(tmp_path / "elsewhere/blobs/sha256-pipe")
    assert "LM Studio" not in cli("model", "list").out
    found = {model["name"]: model for model in json.loads(cli("model", "list", "--local", "--format", "json").out)}
    theirs = {name: model["problem"] for name, model in found.items() if ": " in name}
    assert set(theirs) == {"LM Studio: a\x1b[2J.gguf", "Ollama: sha256-c", "llama.cpp: b.gguf"}
    assert "is cut off" in theirs.pop("llama.cpp: b.gguf") and set(theirs.values()) == {None}
    assert "\x1b" not in cli("model", "list", "--local").out
    chosen = {choice.title: choice for choice in targets(LoadRequest())}
    assert chosen["Ollama: sha256-c"].name == str(tmp_path / "elsewhere/blobs/sha256-c")
    assert not chosen["Ollama: sha256-c"].problem and chosen["llama.cpp: b.gguf"].problem


def test_the_flags_reach_the_loader(cli, monkeypatch):
    heard, before = [], loader.load_here
    monkeypatch.setattr(loader, "load_here", lambda *asked: heard.append(asked[0]) or before(*asked))
    assert cli("run", "hello", *FLAGS, "--max-new-tokens", "2").code == 0
    [load] = heard
    asked = (load.revision, load.draft_revision, load.allow_pickle, load.trust_remote_code)
    assert asked == ("v1", "v2", True, True)


def test_the_flags_reach_the_application(cli, monkeypatch):
    heard = []
    monkeypatch.setattr("spec_tui.cli.commands.open_application", lambda load, *rest: heard.append(load) or 0)
    assert cli(*FLAGS).code == 0
    load = heard[0]
    asked = (load.revision, load.draft_revision, load.allow_pickle, load.trust_remote_code)
    assert asked == ("v1", "v2", True, True)


def test_the_engine_to_begin_with_reaches_the_application(cli, monkeypatch):
    heard = []
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr("spec_tui.cli.application.restored", contextlib.nullcontext)
    monkeypatch.setattr(
        "spec_tui.tui.app.run_app", lambda load, **rest: heard.append(rest["initial_request_options"]) or 0)
    assert cli("--engine", "pld", "--set", "num_tokens=4").code == 0
    assert (heard[0].engine, heard[0].options) == ("pld", {"num_tokens": "4"})
    for wrong, words in ((("--engine", "plod"), "there is no engine"), (("--set", "num_tokens=4"), "add --engine ID"),
                         (("--engine", "pld", "--set", "nope=1"), "nope")):
        told = cli(*wrong)
        assert told.code == 2 and words in told.err
    assert len(heard) == 1


def test_how_large_a_download_is_goes_to_stderr_also_in_a_pipe(capsys):
    from engines.report.events import Loading
    from spec_tui.cli.status_line import Status

    with Status() as status:
        status.show(Loading("downloading a/b: 6 files, 1.5 GB\x1b[2J", None, 10**9))
        status.show(Loading("downloading 0.1 of 1.5 GB", 0.07, 10**9))
    assert capsys.readouterr() == ("", "downloading a/b: 6 files, 1.5 GB␛[2J\n")


def test_an_interrupted_download_says_that_it_goes_on(capsys):
    from engines.report.events import Loading
    from spec_tui.cli.status_line import Status

    for stage, said in ((Loading("downloading", 0.1, 10), True), (Loading("loading the weights", 0.2), False)):
        with pytest.raises(KeyboardInterrupt), Status() as status:
            status.show(stage)
            raise KeyboardInterrupt
        assert ("the same command continues" in capsys.readouterr().err) is said


@pytest.mark.thorough
def test_a_hub_that_sends_something_else_is_refused_and_the_next_try_works(hub, crowded, tmp_path):
    """From end to end: the real command in a process of its own."""
    hub.publish(NAME, crowded)
    command = [sys.executable, "-m", "spec_tui", "run", "a", "--model", NAME, "--max-new-tokens", "2", "--threads", "1"]

    def run() -> subprocess.CompletedProcess:
        environment = os.environ | hub.environment(tmp_path)
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)

    hub.damages = {"model.safetensors"}
    done = run()
    assert done.returncode == 3 and "model.safetensors arrived damaged" in done.stderr and "bug" not in done.stderr
    hub.damages = set()
    assert run().returncode == 0
