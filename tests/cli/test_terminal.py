"""``spec-tui run`` as a process: on a terminal, in a pipe, and on the models that ship."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys

import pytest

import engines
from engines.folders import sample_model
from engines.wire import read_trace
from spec_tui.cli import call
from tests.e2e.terminal import Terminal

FAKE = [
    sys.executable,
    "-c",
    "import engines; from tests.session import fake_runtime; engines.load = fake_runtime.load\n"
    "from spec_tui.cli import main; main()",
]
REAL = [sys.executable, "-m", "spec_tui"]


def test_fates_are_marked_on_a_terminal_and_explained():
    with Terminal([*FAKE, "run", "hello", "--max-new-tokens", "3"]) as terminal:
        assert terminal.exit_code() == 0
        assert "first t1! t2!\n\naccepted   corrected by target   bonus of target" in terminal.text
        assert "pld: 5 tokens" in terminal.text
        assert b"first\x1b[36m t1\x1b[0m\x1b[1;4;33m!\x1b[0m" in terminal.raw
        assert b"loading" in terminal.raw and "loading" not in terminal.text


def test_no_color_leaves_the_attributes():
    with Terminal([*FAKE, "run", "hello", "--max-new-tokens", "2"], NO_COLOR="1") as terminal:
        assert terminal.exit_code() == 0
        assert b"first t1\x1b[1;4m!\x1b[0m" in terminal.raw


def test_hostile_text_cannot_steer_the_terminal():
    with Terminal([*FAKE, "run", "hostile", "--max-new-tokens", "2"], TERM="dumb") as terminal:
        assert terminal.exit_code() == 0
        assert b"\x1b" not in terminal.raw and b"\x07" not in terminal.raw and b"\xc2\x9b" not in terminal.raw
        assert "a␛]0;owned␇b␛[31mc" in terminal.text


def test_ctrl_c_keeps_the_text():
    with Terminal([*FAKE, "run", "endless"]) as terminal:
        terminal.wait_for("first t1! t2! t3!")
        terminal.type("\x03")
        assert terminal.exit_code() == 130
        shown = terminal.text
        assert "interrupted" in shown and "Traceback" not in shown and "pld: " in shown


def test_a_reader_that_leaves_ends_the_run_quietly():
    process = subprocess.Popen([*FAKE, "run", "endless"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.read(10) == b"first t1! "
    process.stdout.close()
    assert process.wait(30) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


def test_a_killed_run_leaves_a_readable_trace(tmp_path):
    path = tmp_path / "t.jsonl"
    process = subprocess.Popen([*FAKE, "run", "endless", "--trace", str(path)], stdout=subprocess.PIPE)
    process.stdout.read(100)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    read = read_trace(path)
    assert len(read.events) > 3 and not read.complete


@pytest.mark.parametrize(
    "command, code, words",
    [
        ("{} engines | head -1", 0, "autoregressive  Autoregressive\n"),
        ("{} engines --format json | head -c 1", 0, "["),
        ("{} engines >&-", 0, ""),
        ("{} run <&- 2>&1", 2, "spec-tui: the prompt is empty"),
        ("{} <&- 2>&1", 2, "spec-tui: the application needs a terminal"),
        ("{} nonsense 2>&-", 2, ""),
        ("{} engines 2>&1 >/dev/full", 1, "spec-tui: the output cannot be written: No space left on device"),
    ],
)
def test_streams_that_are_closed_or_full(command, code, words):
    line = "set -o pipefail; " + command.format(shlex.join(REAL))
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, "") and done.stdout.startswith(words)


def outcome(*arguments: str, stdin: bytes = b"", **environment: str) -> tuple[int, bytes, str]:
    done = subprocess.run(
        [*REAL, *arguments], input=stdin, capture_output=True, timeout=120, env={**os.environ, **environment}
    )
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.mark.slow
def test_the_shipped_models_from_a_pipe(tmp_path):
    trace = tmp_path / "t.jsonl"
    arguments = ("run", "--prompt-file", "-", "--max-new-tokens", "24", "--trace", str(trace))
    code, out, err = outcome(*arguments, "--format", "json", "--engine", "pld", stdin=b"Count from 1 to 9.")
    found = json.loads(out)
    assert code == 0, err
    assert found["engine"] == "pld" and found["dtype"] == "float32" and found["device"] == "cpu"
    assert found["model"] == str(sample_model("target"))
    assert found["stats"]["new_tokens"] == len(found["tokens"]) <= 24
    read = read_trace(trace)
    assert read.complete and not read.problems and read.events[-1].text == found["text"]
    code, out, err = outcome("run", "Count from 1 to 9.", "--max-new-tokens", "24")
    assert (code, out.decode()) == (0, found["text"]), "the default engine prints the same text, exactly"
    assert err.startswith("draft: ") and "Warning" not in err


LOAD, LOADED = engines.load, {}


def load_once(*args, **kwargs):
    """What was loaded with the same arguments before, if it was."""
    key = repr((args, sorted(item for item in kwargs.items() if not callable(item[1]))))
    if key not in LOADED:
        LOADED[key] = LOAD(*args, **kwargs)
    return LOADED[key]


@pytest.fixture
def real(capsys, monkeypatch):
    """The command line in this process, with real models: torch is imported and each model loaded once for all."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(engines, "load", load_once)

    def run(*arguments: str) -> tuple[int, str, str]:
        return call(["run", *arguments]), *capsys.readouterr()

    return run


@pytest.mark.slow
def test_models_that_are_none(real, tmp_path):
    broken = shutil.copytree(sample_model("draft"), tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"no")
    for model, words in [(str(broken), "broken"), ("some/model", "some/model"), (str(tmp_path), "config.json")]:
        code, out, err = real("x", "--model", model)
        assert (code, out) == (3, "") and words in err
        assert err.startswith("spec-tui: ") and "\n  " in err and "Traceback" not in err


@pytest.mark.slow
def test_a_prompt_longer_than_the_context(real):
    code, out, err = real("word " * 2000)
    assert (code, out) == (2, "") and "the model's context holds 1024" in err


@pytest.mark.slow
def test_a_missing_device(real):
    code, out, err = real("x", "--device", "abacus")
    assert (code, out) == (2, "") and "abacus" in err
    assert real("x", "--dtype", "float3")[0] == 2


@pytest.mark.slow
def test_raw_prompts_have_no_chat_template(real):
    chat, raw = (json.loads(real("one two three", "--format", "json", "--max-new-tokens", "1", *more)[1])
                 for more in ([], ["--raw"]))
    assert raw["prompt_tokens"] < chat["prompt_tokens"]


@pytest.mark.slow
def test_every_engine_prints_the_same_text(real):
    asked = ("Name three colours.", "--max-new-tokens", "16", "--temperature", "0.8", "--seed", "3")
    texts = {real(*asked, "--engine", engine)[1] for engine in ("autoregressive", "pld", "draft")}
    assert len(texts) == 1 and texts != {""}
