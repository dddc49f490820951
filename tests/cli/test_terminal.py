"""``spec-tui run`` as a process: on a terminal, in a pipe, and on the models that ship."""

from __future__ import annotations

import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engines.datastores.building.model_answers import read_prompts
from engines.errors import UsageProblem, first_line
from engines.folders import sample_model
from engines.wire import read_trace
from spec_tui.cli import call
from spec_tui.session import loader
from spec_tui.session.sample_traces import trace_path
from tests.e2e.terminal import Terminal
from tests.tiers import some

FAKE = [
    sys.executable,
    "-c",
    "from spec_tui.session import loader; from tests.session import fake_runtime\n"
    "loader.load_here = fake_runtime.load\n"
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


@pytest.mark.parametrize("arguments, instead", [
    ([], "run PROMPT"), (["replay", "pld"], "replay FILE --format text"), (["learn", "3"], "learn NAME --format text")])
def test_the_application_needs_a_terminal_that_can_be_drawn_on(arguments, instead):
    with Terminal([*REAL, *arguments], TERM="unknown") as terminal:
        assert terminal.exit_code() == 2
        assert "TERM=unknown" in terminal.text and f"spec-tui {instead}" in terminal.text


def test_ctrl_c_keeps_the_text():
    with Terminal([*FAKE, "run", "endless"]) as terminal:
        terminal.wait_for("first t1! t2! t3!")
        terminal.type("\x03")
        assert terminal.exit_code() == 130
        shown = terminal.text
        assert "interrupted" in shown and "Traceback" not in shown and "pld: " in shown


def test_ctrl_c_while_the_program_is_imported_ends_it_quietly():
    """Imports stop at the first of a module that never ends."""
    program = ("import importlib.abc, sys, time\n"
               "class Slow(importlib.abc.MetaPathFinder):\n"
               "    def find_spec(self, name, *_):\n"
               "        if name == 'spec_tui.cli':\n"
               "            print('importing', flush=True); time.sleep(60)\n"
               "sys.meta_path.insert(0, Slow())\n"
               "from spec_tui.__main__ import main; main()")
    with Terminal([sys.executable, "-c", program]) as terminal:
        terminal.wait_for("importing")
        terminal.type("\x03")
        assert terminal.exit_code() == -signal.SIGINT and "Traceback" not in terminal.text


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
        ("{} engines 2>&1 >&-", 1, "spec-tui: the output cannot be written: Bad file descriptor"),
        ("{} export pld --to md -o - 2>&1 >&-", 1, "spec-tui: the output cannot be written: Bad file descriptor"),
        ("{} forget 2>&1 >&-", 0, "no past answers are kept"),
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


def test_what_the_encoding_of_the_output_lacks_is_replaced():
    done = subprocess.run([*REAL, "datastore", "probe", "return self", "--datastore", "sample", "--model", "sample"],
                          env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, text=True)
    assert (done.returncode, done.stdout.isascii()) == (0, True) and "?self" in done.stdout


@pytest.mark.parametrize("streams, answer_ends", [("2>&1", b"!\n"), ("2>/dev/null", b"!"), ("2>&-", b"!")])
def test_messages_in_the_same_file_begin_on_a_line_of_their_own(streams, answer_ends):
    """Alone, the answer is exact: it gets no line end that the model did not write."""
    line = f"{shlex.join(FAKE)} run hello --max-new-tokens 3 {streams}"
    done = subprocess.run(["bash", "-c", line], stdout=subprocess.PIPE)
    assert done.returncode == 0
    assert done.stdout.partition(b"pld: ")[0] == b"first t1! t2" + answer_ends


def test_a_folder_that_was_deleted_is_told(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    line = f"cd {shlex.quote(str(gone))}; rmdir {shlex.quote(str(gone))}; {sys.executable} -P -m spec_tui run hello"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr == (
        "spec-tui: the current folder no longer exists\n  go to another one: cd ~\n")


@pytest.mark.parametrize("before", [None, "an earlier one"])
def test_a_full_disk_leaves_no_part_of_an_export(tmp_path, before):
    """Files may not grow beyond 4 kB here; the page is larger."""
    target = tmp_path / "pld.html"
    if before is not None:
        target.write_text(before)
    done = subprocess.run(
        [*REAL, "export", "pld", "--output", str(target), *["--force"] * (before is not None)], capture_output=True,
        text=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
    )
    assert done.returncode == 1 and "cannot be written: File too large" in done.stderr
    assert [path.read_text() for path in tmp_path.iterdir()] == ([] if before is None else [before])


@pytest.mark.parametrize("command", [
    ["replay", "{}"], ["export", "{}", "--to", "md"], ["run", "--prompt-file", "{}"], ["bench", "--suite", "{}"],
    ["compare", "--engines", "pld,autoregressive", "--prompts", "{}"],
    ["replay", "{}", "pld", "--screen", "race"],
], ids=lambda command: command[0])  # fmt: skip
def test_a_file_that_never_ends_is_refused(tmp_path, cli, command):
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    for path, words in ((pipe, "is a pipe that nobody writes to"), ("/dev/zero", "is a device, not a file")):
        done = cli(*(word.format(path) for word in command))
        assert done.code == 2 and f"{path} {words}" in done.err
        with pytest.raises(UsageProblem, match=words):
            read_prompts(Path(path))


def test_a_pipe_that_is_written_is_read(tmp_path):
    trace = shlex.quote(str(trace_path("pld")))
    line = f"{shlex.join(REAL)} replay <(sleep 0.3; cat {trace}) --format text"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "end: ended by the model" in done.stdout and not done.stderr


@pytest.mark.parametrize("size", some(
    ["100000000", "0" * 5000 + "9" * 5000, "-3", "0", "wide"], lambda size: size in ("-3", "0")))
def test_a_terminal_of_an_absurd_size(size):
    code, out, err = outcome("engines", COLUMNS=size, LINES=size)
    assert (code, err) == (0, "") and b"autoregressive" in out and len(out) < 100_000
    assert outcome("--help", COLUMNS=size)[0] == 0


@pytest.mark.parametrize("command", [["run", "hello", "--max-new-tokens", "3", "--trace", "{}"],
                                     ["export", "pld", "--to", "md", "--force", "--output", "{}"]])
def test_a_pipe_that_nobody_reads_and_a_link_to_itself_are_not_written(tmp_path, cli, command):
    pipe, loop = tmp_path / "pipe", tmp_path / "loop"
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    for path, words in ((pipe, "it is a pipe that nobody reads"), (loop, "Too many levels of symbolic links")):
        done = cli(*(word.format(path) for word in command))
        assert done.code in (1, 2) and f"{words}" in done.err and "unexpected" not in done.err
        assert not done.out, "this is told before anything is run"


@pytest.mark.parametrize("before, target", [
    ("mkfifo pipe; cat pipe > copy & sleep 0.3", "pipe"), ("true", ">(cat > copy)"),
], ids=["named", "of the shell"])  # fmt: skip
def test_a_trace_is_written_to_a_pipe_that_is_read(tmp_path, before, target):
    run = shlex.join([*FAKE, "run", "hello", "--max-new-tokens", "3", "--trace"])
    line = f"{before}; {run} {target}; code=$?; wait; exit $code"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, env=os.environ | {"PYTHONPATH": os.getcwd()}, timeout=60)
    assert done.returncode == 0 and read_trace(tmp_path / "copy").complete


LONG = "x" * 5000


@pytest.mark.parametrize("arguments, words", [
    (["run", "hi", "--model", LONG], "File name too long"), (["replay", LONG], "File name too long"),
    (["export", LONG, "--to", "md"], "File name too long"),
    (["run", "--prompt-file", LONG], "File name too long"),
    (["run", "hi", "--trace", LONG], "File name too long"),
    (["export", "pld", "-o", LONG, "--to", "md"], "File name too long"),
    (["run", "hi", "--engine", LONG], "there is no engine"),
    (["replay", "~nouser/x"], "~nouser stands for no home folder here"),
    (["model", "info", "~nouser/x"], "there is no model ~nouser/x"),
    (["datastore", "build", "x", "--from", "~nouser/x"], "~nouser stands for no home folder here"),
    (["replay", ""], "the name of a file or folder is empty"),
    (["export", "", "--to", "md"], "the name of a file or folder is empty"),
    (["datastore", "build", "x", "--from", ""], "the name of a file or folder is empty"),
    *(([*line.split(), ""], "the name of a file or folder is empty") for line in (
        "run hi --trace", "run --prompt-file", "advise --prompts", "compare hi --trace-dir", "reproduce --out",
        "head export none", "head train x --prompts")),
    (["export", ".", "--to", "md"], ". is a folder, not a trace\n  name a trace in it"),
    (["run", "hi", "--model", "~nouser/x"], "there is no model ~nouser/x"),
])  # fmt: skip
def test_names_that_can_be_none_are_told_and_no_bug(capsys, arguments, words):
    assert call(arguments) in (2, 3)
    told = capsys.readouterr().err
    assert words in told and "unexpected" not in told and len(told) < 900


def test_a_cache_folder_that_is_none_is_not_the_models_fault(cli, monkeypatch):
    for name in ("SPEC_TUI_CACHE_DIR", "SPEC_TUI_DATA_DIR"):
        monkeypatch.setenv(name, "~nouser/x")
    done = cli("datastore", "list")
    assert done.code == 2 and "names no folder: ~nouser/x" in done.err


@pytest.mark.skipif(sys.platform != "linux", reason="counts open files as Linux does")
def test_a_limit_of_open_files_is_named_and_no_bug():
    done = subprocess.run(["sh", "-c", f"ulimit -n 12; exec {shlex.join([*REAL, 'doctor'])}"], capture_output=True,
                          text=True)
    assert done.returncode == 1 and "raise the limit of open files: ulimit -n" in done.stderr
    assert "bug" not in done.stderr


@pytest.fixture
def locked(tmp_path):
    """A folder that this user may not search, and what begins a command that has no more rights than its user."""
    folder = tmp_path / "locked"
    folder.mkdir(mode=0)
    yield folder, ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    folder.chmod(0o700)


@pytest.mark.skipif(os.name != "posix" or (os.geteuid() == 0 and not shutil.which("setpriv")), reason="needs rights")
@pytest.mark.parametrize("arguments, code, words", [
    (["head", "list"], 0, "EAGLE-3 head for sample"), (["model", "list", "--local"], 0, "sample target"),
    (["datastore", "list"], 0, "ships with the program"), (["forget"], 0, "no past answers are kept"),
    (["head", "train", "x", "--prompts", __file__], 2, "set SPEC_TUI_DATA_DIR to another folder"),
], ids=lambda given: " ".join(given[:2]) if isinstance(given, list) else "")
def test_a_home_folder_that_may_not_be_searched_is_as_one_with_nothing_in_it(locked, arguments, code, words):
    home, limited = locked
    own = {name: value for name, value in os.environ.items() if not name.startswith(("SPEC_TUI_", "XDG_", "HF_HOME"))}
    done = subprocess.run([*limited, sys.executable, "-m", "spec_tui", *arguments], env=own | {"HOME": str(home)},
                          capture_output=True, text=True)
    assert done.returncode == code and words in done.stdout + done.stderr and "unexpected" not in done.stderr


@pytest.mark.parametrize("arguments, code, words", [
    (["head", "list"], 0, ""), (["model", "list", "--local"], 0, ""), (["datastore", "list"], 0, ""),
    (["run", "hello"], 0, ""), (["head", "train", "x", "--prompts", __file__], 2, "set SPEC_TUI_DATA_DIR"),
], ids=lambda given: " ".join(given[:2]) if isinstance(given, list) else "")
def test_a_data_folder_whose_name_is_too_long_keeps_nothing(cli, monkeypatch, tmp_path, arguments, code, words):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path / LONG[:300]))
    monkeypatch.setenv("HOME", str(tmp_path / LONG[:300]))
    done = cli(*arguments)
    assert done.code == code and words in done.err and "unexpected" not in done.err


def test_the_reason_of_another_library_is_not_cut_off():
    assert first_line(ValueError("Validation error for 'x':\n    TypeError: expected int\nmore")) == (
        "Validation error for 'x': TypeError: expected int")
    assert first_line(ValueError("one\ntwo")) == "one" and first_line(ValueError()) == "ValueError"
    assert first_line(KeyError("a")) == "KeyError: 'a'" and first_line(ValueError("one"), named=True) == (
        "ValueError: one")
    assert first_line(ValueError("word " * 60)) == " ".join(["word"] * 39) + "…"
    assert first_line(ValueError("x" * 300)) == "x" * 199 + "…"


def outcome(*arguments: str, stdin: bytes = b"", **environment: str) -> tuple[int, bytes, str]:
    done = subprocess.run(
        [*REAL, *arguments], input=stdin, capture_output=True, timeout=120, env={**os.environ, **environment}
    )
    return done.returncode, done.stdout, done.stderr.decode()


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
    assert "Warning" not in err


@pytest.mark.thorough
def test_the_default_engine_says_what_it_was_and_nothing_else_on_stderr():
    asked = ("run", "Count from 1 to 9.", "--max-new-tokens", "24")
    found = json.loads(outcome(*asked, "--engine", "pld", "--format", "json")[1])
    code, out, err = outcome(*asked)
    assert (code, out.decode()) == (0, found["text"]), "the default engine prints the same text, exactly"
    assert err.startswith("hybrid: ") and "Warning" not in err


LOAD, LOADED = loader.load_here, {}


def load_once(asked, progress):
    """What was loaded with the same options before, if it was."""
    if asked not in LOADED:
        LOADED[asked] = LOAD(asked, progress)
    return LOADED[asked]


@pytest.fixture
def real(capsys, monkeypatch):
    """The command line in this process, with real models: torch is imported and each model loaded once for all."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(loader, "load_here", load_once)

    def run(*arguments: str) -> tuple[int, str, str]:
        return call(["run", *arguments]), *capsys.readouterr()

    return run


def test_models_that_are_none(real, tmp_path):
    broken = shutil.copytree(sample_model("draft"), tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"no")
    for model, words in [(str(broken), "broken"), ("some/model", "some/model"), (str(tmp_path), "config.json")]:
        code, out, err = real("x", "--model", model)
        assert (code, out) == (3, "") and words in err
        assert err.startswith("spec-tui: ") and "\n  " in err and "Traceback" not in err


def test_a_prompt_longer_than_the_context(real):
    code, out, err = real("word " * 2000)
    assert (code, out) == (2, "") and "the model's context holds 1,024" in err


def test_a_missing_device(real):
    code, out, err = real("x", "--device", "abacus")
    assert (code, out) == (2, "") and "abacus" in err
    assert real("x", "--dtype", "float3")[0] == 2


def test_raw_prompts_have_no_chat_template(real):
    chat, raw = (json.loads(real("one two three", "--format", "json", "--max-new-tokens", "1", *more)[1])
                 for more in ([], ["--raw"]))
    assert raw["prompt_tokens"] < chat["prompt_tokens"]


def test_every_engine_prints_the_same_text(real):
    asked = ("Name three colours.", "--max-new-tokens", "16", "--temperature", "0.8", "--seed", "3")
    texts = {real(*asked, "--engine", engine)[1] for engine in ("autoregressive", "pld", "draft")}
    assert len(texts) == 1 and texts != {""}
