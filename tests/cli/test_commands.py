"""The other commands, and the command line as a whole."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from importlib.metadata import version

import pytest
from typer.main import get_command

from engines.bench import suite
from engines.datastores.building.build_spec import BuildSpec
from engines.folders import sample_model
from engines.hub import local_models as available
from engines.libraries import versions
from engines.methods import of_other_programs, specs
from engines.model.load_options import CHOICES
from engines.reproduce.entry import shipped
from spec_tui.cli import library_probe
from spec_tui.cli.commands import app
from spec_tui.cli.failures import do_all, exit_code, narrate
from spec_tui.learn.lesson import names as lessons
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.session.sample_traces import names as traces
from spec_tui.session.shell_lines import build_line, chat_line, probe_line


def test_ctrl_c_while_results_are_written_waits_until_all_are(capsys):
    def tell() -> None:
        signal.raise_signal(signal.SIGINT)
        print("told")

    with pytest.raises(KeyboardInterrupt):
        do_all(tell, tell, lambda: print("kept"))
    assert capsys.readouterr().out == "told\ntold\nkept\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_cannot_be_drawn_costs_no_table(capsys):
    def draw() -> None:
        raise ValueError("the font is broken")

    with pytest.raises(ValueError, match="the font is broken"):
        do_all(draw, lambda: print("told"), draw)
    done = capsys.readouterr()
    assert done.out == "told\n" and "unexpected error: ValueError: the font is broken" in done.err


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.EMFILE])
def test_a_file_that_may_not_be_opened_is_no_bug(capsys, number):
    def write() -> int:
        raise OSError(number, os.strerror(number), "/home/me/.bashrc")

    assert exit_code(write) == 1
    said = capsys.readouterr().err
    assert f"/home/me/.bashrc cannot be opened: {os.strerror(number)}" in said and "bug" not in said
    assert number == errno.EMFILE or "check who may read and write it" in said


def test_completion_is_for_the_shell_that_is_named(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "/.zfunc/_spec-tui" in cli("--install-completion", "zsh").out
    assert [path.name for path in tmp_path.iterdir() if "bash" in path.name] == []
    assert "complete_fish" in cli("--show-completion", "fish").out
    done = cli("--show-completion", "tcsh")
    assert done.code == 2 and "no completion for the shell tcsh" in done.err and "fish" in done.err


def test_completion_that_cannot_be_installed_is_no_bug(cli, monkeypatch, tmp_path):
    home = tmp_path / "home"
    home.touch()
    monkeypatch.setenv("HOME", str(home))
    done = cli("--install-completion", "bash")
    assert done.code == 2 and f"completion cannot be installed in {home}: " in done.err
    assert "spec-tui --show-completion bash prints it" in done.err


def test_completion_is_for_the_shell_that_calls():
    line = f"{sys.executable} -m spec_tui --show-completion; true"  # true: or the shell becomes the command
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert "complete -o default -F" in done.stdout


def test_tasks_that_help_names_are_those_of_the_default_suite(cli):
    for name in ("bench", "advise"):
        said = " ".join(cli(name, "--help").out.split())
        (named,) = re.findall(r"--task LIST Only [a-z ]+, for example ([a-z,]+)\.", said)
        assert set(named.split(",")) <= set(suite.shipped().tasks), name


def test_bare_command_without_a_terminal(cli):
    done = cli()
    assert done.code == 2 and "needs a terminal" in done.err and "spec-tui run PROMPT" in done.err


def test_version(cli):
    assert cli("--version").out == f"spec-tui {version('spec-tui')}\n"


@pytest.mark.parametrize("arguments", [
    ["--model", "x", "run", "y"], ["--theme", "x", "doctor"], ["--show-completion", "zsh", "doctor"]])
def test_options_before_the_command_are_not_ignored(cli, arguments):
    done = cli(*arguments)
    assert done.code == 2 and "after the command" in done.err


@pytest.mark.parametrize("line, flag, meant", [
    ("learn forward -o x.html", "--output", "learn export"), ("learn forward --notes", "--notes", "--format text"),
    ("learn export --presenter", "--presenter", "on the screen"),
    ("replay rest --format text --theme nord", "--theme", "--format screen"),
    ("replay rest --format json --speed 2", "--speed", "what is played"),
    ("replay --speed 2", "--speed", "that is named"), ("replay --rejected", "--rejected", "that is named"),
    ("export rest --to md --size 80x24", "--size", "svg and cast"),
    ("export rest --to md --rejected", "--rejected", "svg, cast and html"),
    ("head train x --prompts a --family medusa --layers 1,2", "--layers", "--family eagle-3"),
    ("head train x --prompts a --heads 2", "--heads", "--family medusa"),
    ("advise --undo --minutes 2", "--minutes", "one of them"), ("advise --undo --seed 1", "--seed", "one of them"),
    ("serve learn --engine pld", "--engine", "sessions with a model"),
    ("price --acceptance 0.5", "--acceptance", "--requests"), ("price --context 100", "--context", "--requests"),
    ("run hello --narrate --format json", "--narrate", "--format text"),
    ("reproduce --list rest-trie", "NAME", "one of them"), ("reproduce --list --quick", "--quick", "one of them"),
    ("reproduce --list --format csv", "--format", "text or json"), ("learn --list --path 15", "--path", "one of them"),
    ("datastore verify --recall --sample 5", "--sample", "--mrr"),
    ("datastore build x --from . --dims 32", "--dims", "--kind dense"),
    ("datastore build x --from . --no-z-norm", "--z-norm", "--kind dense"),
    ("datastore build x --from . --sample 5", "--sample", "--kind dense"),
    ("datastore build x --from . --index exact", "--index", "--kind dense"),
    ("datastore build x --from . --window 7", "--window", "--kind dense"),
    ("datastore build x --from . --max-new-tokens 3", "--max-new-tokens", "model-answers"),
    ("datastore build x --from . --engine nosuch", "--engine", "model-answers"),
])  # fmt: skip
def test_a_flag_that_would_change_nothing_is_refused(cli, line, flag, meant):
    done = cli(*line.split())
    assert done.code == 2 and f"{flag} would change nothing" in done.err and meant in done.err


@pytest.mark.parametrize("line, said", [
    ("engines --format xml", "--format: 'xml' is not one of 'text', 'json'"),
    ("model export sample --type f64", "--type: 'f64' is not one of 'f32', 'bf16', 'f16'"),
    ("replay rest --screen foo", "--screen: 'foo' is not one of 'chat', 'step', 'race'"),
    ("replay rest --speed abc", "--speed takes a number"), ("learn --path x", "--path takes a whole number"),
    ("price --acceptance 3", "--acceptance"), ("reproduce x --limit 0", "--limit"),
    ("serve --memory inf", "--memory is at most 1048576, not inf"), ("serve --memory nan", "--memory is at most"),
    ("head train x --minutes inf", "--minutes is at most 525600, not inf"),
])  # fmt: skip
def test_a_value_that_is_none_is_told_in_our_words(cli, line, said):
    done = cli(*line.split())
    assert done.code == 2 and done.err.startswith(f"spec-tui: {said}") and "Input should" not in done.err


@pytest.mark.parametrize("line", ["export rest -o {}/x.md", "learn export -o {}/x.html", "run x --trace {}/x.jsonl",
                                  "advise --html {}/x.html"])
def test_a_folder_that_is_missing_is_told_before_anything_is_done(cli, tmp_path, line):
    done = cli(*line.format(tmp_path / "no").split())
    assert done.code == 2 and done.err.startswith(f"spec-tui: there is no folder {tmp_path / 'no'} to write to\n")


@pytest.mark.parametrize("flag", [("--threads", "2"), ("--quantize", "int8"), ("--revision", "a")])
def test_options_of_a_model_need_one_beside_a_server(cli, flag):
    done = cli("run", "hello", "--server", "http://127.0.0.1:1", *flag)
    assert done.code == 2 and "in its own way" in done.err and "--model" in done.err


def test_unknown_command(cli):
    done = cli("race")
    assert done.code == 2 and "race" in done.err and "--help" in done.err


@pytest.mark.parametrize("command", [[], ["run"], ["engines"], ["doctor"]])
def test_help(cli, command):
    done = cli(*command, "--help")
    assert done.code == 0 and done.out.startswith("Usage: spec-tui") and done.err == ""


def test_usage_brackets_an_argument_once():
    groups = [get_command(app)]
    for group in groups:
        for command in group.commands.values():
            groups += [command] * hasattr(command, "commands")
            usage = command.get_usage(command.make_context(command.name, [], resilient_parsing=True))
            assert "[[" not in usage and "[]" not in usage, usage


def test_engines_as_json(cli):
    listed = json.loads(cli("engines", "--format", "json").out)
    assert [engine["id"] for engine in listed] == [spec.id for spec in (*specs(), *of_other_programs())]
    for engine in listed:
        assert {"id", "title", "source", "needs", "lossless", "options"} <= set(engine)
        for option in engine["options"]:
            assert {"name", "type", "default", "range", "help"} <= set(option)


def test_engines_as_text(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")  # words of a range stay on their line
    text = cli("engines").out
    for spec in specs():
        assert spec.id in text and spec.title in text
        for option in spec.options:
            assert option.name in text and option.range in text
    assert "lossless" in text and "needs: draft model" in text


def test_a_narrow_terminal_cuts_no_name(cli, monkeypatch):
    for columns in (40, 70, 100):
        monkeypatch.setenv("COLUMNS", str(columns))
        for command in (("engines",), ("model", "info", "sample")):
            text = cli(*command).out
            assert "…" not in text and max(map(len, text.splitlines())) <= columns
        assert "float32" in text and "float16" in text
        lines = cli("engines").out.splitlines()
        assert all(any(option.name in line for line in lines) for spec in specs() for option in spec.options)
        assert "1..256" in " ".join(lines)


def test_in_a_pipe_a_row_of_a_table_is_a_line(cli, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    for command, rows in (
            ("learn --list", lessons()), ("replay", traces()), ("reproduce --list", ["name", *shipped()])):
        lines = cli(*command.split()).out.splitlines()
        assert [line.split()[command == "learn --list"] for line in lines] == list(rows)
        assert lines == [line.rstrip() for line in lines]


def test_a_message_on_a_terminal_has_whole_words(monkeypatch, capsys):
    message = "one sentence that is longer than a narrow terminal\n  and its hint, which is longer than that too"
    narrate(message)
    assert capsys.readouterr().err == f"{message}\n", "a pipe gets it as it is"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "36")
    narrate(message)
    assert capsys.readouterr().err.splitlines() == [
        "one sentence that is longer than a", "narrow terminal", "  and its hint, which is longer than",
        "  that too"]


@pytest.fixture
def no_probe(monkeypatch):
    works = {name: {"works": True, "problem": None} for name in library_probe.LIBRARIES}
    works["torch"] |= {
        "threads": 2, "cuda": [], "mps": False, "no_native_code": "", "native_obtainable": True,
        "native_code": "compiled with the package, AVX-512 VNNI",
    }
    checks = [{"engine": engine, "problem": "", "seconds": 0.1} for engine in ("autoregressive", "pld", "draft")]
    works[library_probe.DECODING] = {"works": True, "problem": None, "engines": checks}
    monkeypatch.setattr("spec_tui.cli.doctor.probe_libraries", lambda: works)
    return works


def test_doctor_as_json(cli, no_probe):
    found = json.loads(cli("doctor", "--format", "json").out)
    assert found["versions"]["python"] and found["versions"]["torch"]
    native = ("2 threads, native code: compiled with the package, AVX-512 VNNI; tested: no slower than torch's "
              "operations")
    assert found["devices"][0] == {"device": "cpu", "detail": native}
    assert [model["role"] for model in found["samples"]] == ["target", "draft", "draft"], "the pair, and smollm2's"
    assert all(model["problem"] is None and model["parameters"] > 1e6 for model in found["samples"])
    assert any(store["name"] == "sample" and store["problem"] is None for store in found["datastores"])
    assert found["telemetry"].startswith("none")


def test_doctor_as_text(cli, no_probe):
    text = cli("doctor").out
    for word in ("torch", "devices", "sample models", "hub cache", "datastores", "No text leaves"):
        assert word in text


def test_doctor_says_where_the_memory_is_not_known(cli, no_probe, monkeypatch):
    monkeypatch.setattr("engines.machine.ram", lambda: (None, None))
    assert "None" not in cli("doctor").out


def test_doctor_says_why_there_is_no_native_code(cli, no_probe):
    no_probe["torch"] |= {"no_native_code": "no C++ compiler was found", "native_obtainable": False}
    text = " ".join(cli("doctor").out.split())
    assert "2 threads, no native code" in text
    assert "no native code (no C++ compiler was found): models run slower" in text


def test_doctor_names_folders_that_cannot_be_written(cli, no_probe, monkeypatch, tmp_path):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path / ("x" * 300)))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPEC_TUI_CACHE_DIR", str(tmp_path / "file" / "cache"))
    done = cli("doctor")
    text = " ".join(done.out.split())
    assert "cannot be written (File name too long)" in text and "set SPEC_TUI_DATA_DIR to another folder" in text
    assert f"({tmp_path / 'file'} is not a folder)" in text and "set SPEC_TUI_CACHE_DIR to another folder" in text


def test_doctor_survives_what_is_broken(cli, no_probe, monkeypatch):
    no_probe["torch"] = {"works": False, "problem": "crashes (exit code -4)"}
    monkeypatch.setattr(available, "sample_model", lambda role: None)
    done = cli("doctor")
    assert done.code == 1
    assert "torch does not work (crashes" in " ".join(done.out.split())
    assert "sample target model is unusable" in " ".join(done.out.split())


def test_doctor_fails_where_an_engine_writes_other_tokens_than_generate(cli, no_probe):
    checks = no_probe[library_probe.DECODING]["engines"]
    checks[1]["problem"] = "token 3 differs from that of transformers.generate"
    no_probe[library_probe.DECODING] |= {"works": False, "problem": f"pld: {checks[1]['problem']}"}
    done = cli("doctor")
    assert done.code == 1
    assert "the sample pair is not decoded as it should be (pld: token 3 differs" in " ".join(done.out.split())


def test_doctor_fails_where_native_code_was_compiled_and_is_wrong(cli, no_probe):
    no_probe["torch"]["no_native_code"] = "what the compiler made computes something else"
    done = cli("doctor")
    assert done.code == 1 and "native code does not work" in " ".join(done.out.split())


def test_doctor_names_libraries_in_versions_that_are_not_asked_for(cli, no_probe, monkeypatch):
    monkeypatch.setattr(versions, "unsatisfied", lambda: ("rich 13.0 is installed, spec-tui needs >=14.2",))
    done = cli("doctor")
    assert done.code == 1 and "broken: rich 13.0 is installed, spec-tui needs >=14.2" in " ".join(done.out.split())


def test_probing_a_library_that_kills_its_process(tmp_path, monkeypatch):
    (tmp_path / "killer.py").write_text("import os; os.abort()")
    (tmp_path / "broken.py").write_text("raise RuntimeError('bad build')")
    (tmp_path / "noisy.py").write_text("print('hello')")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = library_probe.probe_libraries(("killer", "broken", "noisy", "absent"))
    assert found["killer"] == {"works": False, "problem": "crashes (exit code -6)"}
    assert found["broken"]["problem"] == "RuntimeError: bad build"
    assert found["noisy"]["works"] and found["absent"]["problem"] == "not installed"


def test_libraries_that_hang_are_waited_for_together(monkeypatch):
    waited = []

    class Hanging:
        def __init__(self, *_, **__):
            self.killed = False

        def communicate(self, timeout=None):
            if not self.killed:
                waited.append(timeout)
                raise subprocess.TimeoutExpired("python", timeout)

        def kill(self):
            self.killed = True

    monkeypatch.setattr(subprocess, "Popen", Hanging)
    monkeypatch.setattr(library_probe, "monotonic", lambda: sum(waited))
    found = library_probe.probe_libraries(("torch", "faiss", "scann"))
    assert {each["problem"] for each in found.values()} == {"does not answer within 120 s"} and sum(waited) < 121


def test_models_in_the_hub_cache(tmp_path, monkeypatch):
    sample = sample_model("draft")
    for owner, name, revision in [("some", "model", "abc"), ("cut", "off", "def"), ("no", "weights", "012")]:
        folder = tmp_path / f"models--{owner}--{name}"
        snapshot = folder / "snapshots" / revision
        snapshot.mkdir(parents=True)
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text(revision)
        for file in sample.iterdir():
            if name != "weights" or file.suffix != ".safetensors":
                (snapshot / file.name).write_bytes(file.read_bytes()[: -1 if name == "off" else None])
    encoder = tmp_path / "models--an--encoder" / "snapshots" / "x"
    encoder.mkdir(parents=True)
    (encoder / "config.json").write_text('{"architectures": ["BertModel"]}')
    (tmp_path / "models--empty--one").mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    problems = {model["id"]: model["problem"] for model in available.cached()}
    assert problems["some/model"] is None
    assert "cut off" in problems["cut/off"] and "no weights" in problems["no/weights"]
    assert set(problems) == {"some/model", "cut/off", "no/weights"}


def test_help_is_fast_and_needs_no_torch():
    program = (
        "import sys; from spec_tui.cli import call; code = call(['--help'])\n"
        "heavy = {'torch', 'transformers', 'textual', 'rich', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy; assert len(sys.modules) < 425, len(sys.modules); sys.exit(code)"
    )
    before = os.times().children_user
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
    assert os.times().children_user - before < 1.5, "a busy machine included"


def test_lines_that_the_screens_show_have_the_options_of_their_commands():
    load = LoadRequest("m", "d", "h", strict=True, native=False, threads=2, allow_pickle=True)
    spec = BuildSpec("name", ("file",))
    shown = [build_line(spec, load), probe_line("name", "text", None, load), chat_line(["name"], load)]
    for line in shown:
        words = shlex.split(line)[1:]
        found = get_command(app)
        while words and words[0] in getattr(found, "commands", {}):
            found = found.commands[words.pop(0)]
        known = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
        assert {word.partition("=")[0] for word in words if word.startswith("--")} - {"--"} <= known, line


def test_the_choices_of_quantize_are_the_engines():
    option = next(option for option in get_command(app).params if option.name == "quantize")
    offered = [item.value for item in option.shell_complete(None, "")]
    assert offered == [*CHOICES] and all(choice in option.help for choice in CHOICES)


@pytest.mark.parametrize("typed, offered", [
    ("spec-tui repl", "replay"), ("spec-tui --engine hyb", "hybrid"), ("spec-tui run --law rej", "rejection"),
    ("spec-tui --theme spec-d", "spec-dark"), ("spec-tui reproduce ", "rest-speed"), ("spec-tui learn ad", "admg"),
])
def test_the_shell_completes_what_is_typed(typed, offered):
    """As the script for bash asks: by a call without arguments."""
    words = str(len(typed.split()) - (not typed.endswith(" ")))
    asked = {"_SPEC_TUI_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": words}
    command = [sys.executable, "-m", "spec_tui"]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, timeout=60)
    assert offered in done.stdout.split() and not done.stderr
