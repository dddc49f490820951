"""``spec-tui compare`` and ``sweep`` with a decoder that needs no model."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest

from engines.errors import RunFailed, UsageProblem
from engines.race.lanes import Lane, Race
from engines.race.peers import Peers
from engines.race.race_events import LaneFinished, RaceStarted
from engines.race.result import RaceResult
from engines.report.events import Loading, Ready, Round
from engines.request import Request
from engines.wire import read_trace
from spec_tui.cli import call, compare, leave, sweep
from spec_tui.cli.status_line import Status
from spec_tui.present.tables import as_text
from spec_tui.present.text import cells
from spec_tui.session import loader
from tests.cli.test_run import STATS, Stdin
from tests.session import fake_runtime
from tests.session.fake_runtime import FakeRuntime

LANES = ("--engines", "autoregressive,pld,rest:c=16", "--max-new-tokens", "3")


pytestmark = pytest.mark.usefixtures("no_sweeps")


def differing(monkeypatch, engine: str = "pld") -> None:
    """One engine writes another last token."""
    run = FakeRuntime.run

    def other(self, request, cancelled=lambda: False, progress=None):
        for event in run(self, request, cancelled):
            if isinstance(event, Round) and event.index == 2 and request.engine == engine:
                event = replace(event, emitted=(event.emitted[0], replace(event.emitted[1], token=99)))
            yield event

    monkeypatch.setattr(FakeRuntime, "run", other)


def test_a_table_for_people(cli):
    done = cli("compare", "hello", *LANES, "--repeats", "6")
    assert done.code == 0
    assert done.out.splitlines()[:4] == [
        "lane            tokens/s      interval  x autoregressive    interval",
        "autoregressive     500.0  500.0..500.0          baseline           -",
        "pld                500.0  500.0..500.0           ≈ 1.00x  1.00..1.00",
        "rest:c=16          500.0  500.0..500.0           ≈ 1.00x  1.00..1.00",
    ]
    assert "autoregressive       50%      50%         2.00      10 ms  1.01 kB" in done.out
    assert "all lanes write the same text" in done.out and "95% or more (6 repeats)" in done.out
    assert max(map(len, done.out.splitlines())) <= 80
    assert done.err.count(" tokens, 500.0 tokens/s") == 18 and all(f"{n} of 18: " in done.err for n in range(1, 19))
    assert "\x1b" not in done.out + done.err


def test_json_has_every_run_as_run_has_it(cli):
    done = cli("compare", "hello", *LANES, "--repeats", "2", "--format", "json", "--seed", "9")
    found = json.loads(done.out)
    assert done.code == 0 and done.out.isascii()
    one = ("run", "hello", "--engine", "pld", "--max-new-tokens", "3", "--seed", "9", "--format", "json")
    alone = json.loads(cli(*one).out)
    runs = [run for run in found["runs"] if run["lane"] == "pld"]
    assert [run["run"] for run in runs] == [alone, alone] and [run["repeat"] for run in runs] == [0, 1]
    assert len(found["runs"]) == 6 and found["baseline"] == "autoregressive" and found["finish_reason"] == "done"
    lane = found["lanes"][2]
    assert (lane["lane"], lane["engine"], lane["options"]) == ("rest:c=16", "rest", {"c": 16})
    assert lane["tokens_per_second"] == {
        "median": pytest.approx(500), "low": pytest.approx(500 / 1.03), "high": pytest.approx(500 * 1.03),
        "coverage": 0.95, "samples": 2,
    }
    assert found["lanes"][0]["speed_up"] is None and lane["speed_up"]["median"] == pytest.approx(1)
    assert lane["acceptance_by_depth"] == [1.0, 0.0] and lane["memory_bytes"] == 1007
    assert {(pair["first"], pair["second"], pair["verdict"]) for pair in found["pairs"]} == {
        ("autoregressive", "pld", "same"), ("autoregressive", "rest:c=16", "same"), ("pld", "rest:c=16", "same")
    }


def test_csv_has_every_run_and_markdown_the_table(cli):
    rows = list(csv.DictReader(io.StringIO(cli("compare", "hello", *LANES, "--repeats", "2", "--format", "csv").out)))
    around = {"lane", "repeat", "prompt", "engine", "finish_reason", "ttft_seconds", "wall_seconds", "memory_bytes",
              "other_programs_seconds", "waited_seconds"}
    assert len(rows) == 6 and (STATS - {"match_lengths"}) | around == set(rows[0])
    assert {row["lane"] for row in rows} == {"autoregressive", "pld", "rest:c=16"}
    assert all(float(row["tokens_per_second"]) == pytest.approx(500) for row in rows)
    text = cli("compare", "hello", *LANES, "--repeats", "2", "--format", "md").out
    assert "| pld | 500.0 | 485.4..515.0 | ≈ 1.00x | 0.97..1.03 |" in text.splitlines()
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(tables) == 5 and all(len({line.count("|") for line in table}) == 1 for table in tables)


def test_a_race_as_a_document_says_what_was_asked_of_whom(cli):
    ask = ("compare", "one\n```\n| two", *LANES, "--repeats", "2", "--temperature", "0.5", "--seed", "9")
    text = cli(*ask, "--format", "md").out
    head, _, tables = text.partition("| lane |")
    assert head.startswith("# Race on ") and "````text\none\n```\n| two\n````" in head and tables
    settings = dict(re.findall(r"^\| (.+?) \| (.+) \|$", head, re.MULTILINE))
    assert settings["sampling"] == "temperature 0.5, seed 9" and settings["repeats"] == "2"
    assert settings["model"] and settings["verification law"] and settings["maximum new tokens"]
    found = json.loads(cli(*ask, "--format", "json").out)
    assert found["asked"] == [["user", "one\n```\n| two"]] and found["setting"]["model"] == settings["model"]


def test_what_a_race_sampled_from_is_said_once_and_in_full(cli):
    ask = ("compare", "hello", *LANES, "--repeats", "1", "--temperature", "0.5", "--top-p", "0.9", "--min-p", "0.1")
    settings = json.loads(cli(*ask, "--format", "json").out)["setting"]
    assert settings["sampling"] == "temperature 0.5, seed 0"
    assert settings["sampled from"] == "top-p 0.9, top-k 0, min-p 0.1"


def test_lanes_that_differ_at_the_end_of_long_names_are_told_apart(cli):
    many = [("--engine", f"rest:n_max=8:length=10:samples=500:c={c}") for c in (16, 64)]
    done = cli("compare", "hello", *many[0], *many[1], "--repeats", "1", "--max-new-tokens", "3")
    rows = [line for line in done.out.splitlines() if re.match(r"\d rest", line) and "500.0" in line]
    names = [row.split("  ")[0] for row in rows]
    assert done.code == 0 and len(set(names)) == 2 and all(name.endswith(f"c={c}") for name, c in zip(names, (16, 64)))
    said = " ".join(done.out.split())
    assert all(f"{name}: rest:" in said for name in names) and max(map(len, done.out.splitlines())) <= 80


@pytest.mark.parametrize(
    "model, law, code, words",
    [
        ("bug", "exact", 1, "differ, first at token 5, and rounding does not explain it; the audit found a BUG in"),
        ("tie", "exact", 0, "differ, first at token 5, and both tokens are the target's choice within rounding"),
        ("broken", "exact", 0, "differ, first at token 5, and no audit explains it"),
        ("fake", "typical", 0, "differ, first at token 5, which is allowed: random draws or a lossy law decide here"),
    ],
)
def test_lanes_that_differ(cli, monkeypatch, model, law, code, words):
    differing(monkeypatch)
    ask = ("compare", "hello", *LANES, "--repeats", "1", "--model", model, "--law", law)
    done = cli(*ask)
    said = " ".join(done.out.split())
    assert done.code == code and f"autoregressive and pld {words}" in said
    assert ("auditing answer 1 of 2; ctrl+c ends it and keeps what is complete" in done.err) is (law == "exact")
    assert ("LOSSY" in said) is (law == "typical")
    found = json.loads(cli(*ask, "--format", "json").out)
    assert [pair["at"] for pair in found["pairs"]] == [4, None, 4]


def test_an_engine_that_cannot_run_leaves_the_others_running(cli, monkeypatch):
    run = FakeRuntime.run

    def picky(self, request, cancelled=lambda: False, progress=None):
        if request.engine == "rest":
            raise UsageProblem("there is no datastore of this model's tokenizer", "build one")
        return run(self, request, cancelled)

    monkeypatch.setattr(FakeRuntime, "run", picky)
    done = cli("compare", "hello", *LANES, "--repeats", "2", "--format", "json")
    found = json.loads(done.out)
    assert done.code == 5 and {run["lane"] for run in found["runs"]} == {"autoregressive", "pld"}
    assert found["lanes"][2]["tokens_per_second"] is None and found["finish_reason"] == "done"
    assert "rest:c=16 failed and is left out: there is no datastore" in done.err and "the others continue" in done.err
    assert done.err.rstrip().endswith("build one")


def test_an_engine_without_what_it_needs_is_named_before_the_others_run(cli, monkeypatch):
    ready = Ready("fake", "float32", "cpu", 10, 100, 512, True, price=((1, 0.1), (64, 0.8)))
    monkeypatch.setattr(loader, "load_here", lambda *_: FakeRuntime(ready))
    done = cli("compare", "hello", *LANES, "--repeats", "2", "--format", "json", "--max-new-tokens", "256")
    found = json.loads(done.out)
    assert done.code == 5 and [lane["lane"] for lane in found["lanes"]] == ["autoregressive", "pld"]
    said = done.err.splitlines()
    assert said[0].startswith("rest:c=16 cannot run, and is left out: no sparse datastore fits the model")
    assert said[0].endswith("build one (spec-tui datastore build --kind sparse)"), "no key of the application"
    assert said[1].startswith("4 runs, about 2 min") and "failed" not in done.err
    done = cli("compare", "hello", "--engines", "rest,rest:c=8", "--repeats", "2")
    assert done.code == 2 and "no engine can run with what is loaded" in done.err


def test_audit_is_in_every_run(cli):
    done = cli("compare", "hello", *LANES, "--repeats", "1", "--audit", "--model", "bug", "--format", "json")
    found = json.loads(done.out)
    assert done.code == 1 and {run["run"]["audit"]["verdict"] for run in found["runs"]} == {"BUG"}


@pytest.mark.parametrize("ask", [("compare", "--prompts"), ("bench", "--no-peers", "--suite")])
def test_prompts_from_a_pipe(cli, monkeypatch, ask):
    monkeypatch.setattr(sys, "stdin", Stdin("one\n\nhällo\n".encode()))
    done = cli(*ask, "-", *LANES, "--format", "json")
    assert done.code == 0 and {run["prompt"] for run in json.loads(done.out)["runs"]} == {0, 1}


def test_all_runs_of_an_interrupted_race_are_counted(cli, monkeypatch, tmp_path):
    """Where nothing has begun, too: two prompts, one of two turns."""
    file = tmp_path / "question.jsonl"
    file.write_text('{"turns": ["One?", "And two?"]}\n{"prompt": "Three?"}\n')
    monkeypatch.setattr(compare, "race", lambda racer, asked, *_: iter([signal.raise_signal(signal.SIGINT)]))
    done = cli("compare", "--prompts", str(file), *LANES, "--repeats", "2")
    assert done.code == 130 and "0 of 18 runs are complete" in done.err


def test_prompts_from_a_file(cli, tmp_path):
    file = tmp_path / "question.jsonl"
    file.write_text(
        '\ufeff{"question_id": 81, "category": "writing", "turns": ["One?", "And two?"]}\n\n{"prompt": "Three?"}\n',
        "utf-8",
    )
    done = cli("compare", "--prompts", str(file), *LANES, "--format", "json", "--system", "brief")
    found = json.loads(done.out)
    assert done.code == 0 and (found["prompts"], found["repeats"], len(found["runs"])) == (3, 1, 9)
    assert [run["prompt"] for run in found["runs"] if run["lane"] == "pld"] == [0, 1, 2]
    assert "single repeat" in " ".join(found["notes"])


@pytest.mark.parametrize("given, system", [((), "In French."), (("--system", "brief"), "brief")])
@pytest.mark.parametrize("ask", [
    ("compare", *LANES, "--prompts"), ("sweep", "--engine", "rest", "--vary", "c=8", "--prompts"),
    ("bench", "--no-peers", *LANES, "--suite"), ("advise", "--minutes", "0.001", "--prompts"),
], ids=lambda ask: ask[0])
def test_a_chat_log_keeps_its_system_prompt_and_says_what_is_left_out(cli, monkeypatch, tmp_path, ask, given, system):
    log = [{"role": role, "content": text} for role, text in (("system", "In French."), ("user", "Hi"), ("tool", "1"))]
    file = tmp_path / "log.jsonl"
    file.write_text(json.dumps({"messages": log}))
    run, asked = FakeRuntime.run, []
    monkeypatch.setattr(FakeRuntime, "run", lambda self, request, *rest, **more: asked.append(request.conversation) or
                        run(self, request, *rest, **more))
    monkeypatch.setattr(FakeRuntime, "open_datastores", SimpleNamespace(sparse=lambda names: []), raising=False)
    done = cli(*ask, str(file), *given)
    assert done.code == 0 and set(asked) == {(("system", system), ("user", "Hi"))}
    assert "note: results of tools in the chat log are left out" in done.err


@pytest.mark.parametrize(
    "content, words",
    [
        ("", "there is no prompt in"),
        ('{"prompt": "a"', "line 1 of .* is not JSON"),
        ('{"prompt": "a"}\n{"text": "b"}', "line 2 of .* has no prompt"),
        ('{"turns": []}', "has no prompt"),
        ('{"turns": "abc"}', "has no prompt"),
        ('{"prompt": " "}', "has no prompt"),
        ("[1]", "has no prompt"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_files_that_are_none(cli, tmp_path, content, words):
    file = tmp_path / "q.jsonl"
    file.write_text(content)
    done = cli("compare", "--prompts", str(file), *LANES)
    assert done.code == 2 and re.search(words, done.err) and "Traceback" not in done.err


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("hello",), "at least two engines"),
        (("hello", "--engines", "pld"), "at least two engines"),
        (("hello", "--engines", "pld,nobody"), "there is no engine 'nobody'"),
        (("hello", "--engines", "pld,rest", "--repeats", "0"), "repeats 0 is out of range"),
        (("hello", "--engines", "pld,rest", "--set", "nothing=3"), "none of these engines has an option 'nothing'"),
        (("hello", "--engines", "pld,rest", "--prompts", "x"), "two kinds of prompts"),
        (("--engines", "pld,rest", "--prompts", "nowhere"), "there is no file nowhere"),
        (("hello", "--engines", "pld,rest", "--temperature", "-1"), "temperature -1.0 is out of range"),
        (("hello", "--engines", "pld,rest", "--format", "xml"), "--format"),
    ],
)
def test_usage(cli, arguments, words):
    done = cli("compare", *arguments)
    assert done.code == 2 and words in done.err and not done.out


def test_lanes_with_commas_and_options_for_all_that_have_them(cli):
    done = cli(
        "compare", "hello", "--engine", "autoregressive", "--engine", "rest:datastore=a,b", "--set", "budget=paper",
        "--engine", "pld:budget=auto", "--repeats", "1", "--format", "json",
    )
    lanes = json.loads(done.out)["lanes"]
    assert [lane["lane"] for lane in lanes] == ["autoregressive", "rest:budget=paper:datastore=a,b", "pld:budget=auto"]
    assert lanes[1]["datastores"] == ["a", "b"]


def test_traces_of_every_run(cli, tmp_path):
    folder = tmp_path / "new" / "traces"
    ask = ("compare", "hello", *LANES, "--repeats", "2", "--trace-dir", str(folder), "--audit")
    assert cli(*ask).code == 0
    files = sorted(path.name for path in folder.iterdir())
    assert len(files) == 6 and files[4:] == [
        "3-rest-c=16.repeat-1.prompt-1.jsonl", "3-rest-c=16.repeat-2.prompt-1.jsonl"
    ]
    assert all(read_trace(path).complete and not read_trace(path).problems for path in folder.iterdir())
    assert cli(*ask).code == 0  # traces are overwritten, nothing else is
    (folder / files[0]).write_text("a diary")
    done = cli(*ask)
    assert done.code == 2 and "not a trace" in done.err and (folder / files[0]).read_text() == "a diary"
    assert cli(*ask[:-2], str(folder / files[1]), "--audit").code == 2


def test_a_race_whose_traces_cannot_be_written_is_shown_all_the_same(cli, tmp_path, monkeypatch):
    def full(file, data, replace=True):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("spec_tui.export.race_report.write_whole", full)
    done = cli("compare", "hello", *LANES, "--repeats", "1", "--trace-dir", str(tmp_path))
    assert done.code == 1 and "tokens/s" in done.out
    assert f"the traces in {tmp_path} could not be written: No space left on device" in done.err
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_what_cannot_be_shown_is_written_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(loader, "load_here", fake_runtime.load)
    monkeypatch.setattr("spec_tui.cli.failures.forget_stdout", lambda: None)  # it is the test's
    with suppress(OSError), open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        code = call(["compare", "hello", *LANES, "--repeats", "1", "--trace-dir", str(tmp_path)])
    assert code == 1 and len(list(tmp_path.iterdir())) == 3


def interrupt_after(monkeypatch, runs: int, times: int = 1, number: int = signal.SIGINT) -> None:
    """Ctrl+c, once or twice, when this many runs are complete; or another signal."""
    add, seen = RaceResult.add, []

    def counting(self, event):
        add(self, event)
        if isinstance(event, LaneFinished):
            seen.append(event)
            for _ in range(times if len(seen) == runs else 0):
                os.kill(os.getpid(), number)

    monkeypatch.setattr(RaceResult, "add", counting)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("format", ["table", "json", "csv", "md"])
def test_an_interrupted_race_prints_what_is_complete(cli, monkeypatch, times, format):
    interrupt_after(monkeypatch, 4, times)
    done = cli("compare", "hello", *LANES, "--repeats", "3", "--format", format)
    assert done.code == 130 and "interrupted; " in done.err and "of 9 runs are complete" in done.err
    complete = 4 if times == 1 else 3  # the second one does not wait for the events of the fourth
    if format == "json":
        found = json.loads(done.out)
        assert len(found["runs"]) == complete and found["finish_reason"] == "cancelled"
    elif format == "csv":
        assert len(done.out.splitlines()) == 1 + complete
    else:
        assert "autoregressive" in done.out


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_race_that_is_ended_by_a_signal_prints_and_writes_what_is_complete(cli, monkeypatch, tmp_path, name):
    """As ``timeout``, a scheduler and a closed terminal end it."""
    number = getattr(signal, name)
    before = signal.signal(number, leave)
    interrupt_after(monkeypatch, 4, number=number)
    try:
        done = cli("compare", "hello", *LANES, "--repeats", "3", "--trace-dir", str(tmp_path))
    finally:
        signal.signal(number, before)
    assert done.code == 128 + number and "of 9 runs are complete" in done.err
    assert "autoregressive" in done.out and len(list(tmp_path.iterdir())) == 4


def test_ctrl_c_while_other_programs_are_closed_loses_nothing(cli, monkeypatch, tmp_path):
    monkeypatch.setattr(Peers, "__exit__", lambda self, *error: os.kill(os.getpid(), signal.SIGINT))
    done = cli("compare", "hello", *LANES, "--repeats", "1", "--trace-dir", str(tmp_path))
    assert done.code == 130 and "autoregressive" in done.out and len(list(tmp_path.iterdir())) == 3


def test_a_race_interrupted_in_its_warm_up(cli, monkeypatch):
    run = FakeRuntime.run

    def pressed(self, request, cancelled=lambda: False, progress=None):
        os.kill(os.getpid(), signal.SIGINT)
        return run(self, request, cancelled)

    monkeypatch.setattr(FakeRuntime, "run", pressed)
    for format in ("table", "json", "csv", "md"):
        done = cli("compare", "hello", *LANES, "--format", format)
        assert done.code == 130 and "0 of 18 runs are complete" in done.err
        assert bool(done.out) is (format in ("json", "csv"))


def test_a_lane_that_cannot_run_says_which(cli):
    done = cli("compare", "refuse", *LANES)
    assert done.code == 2 and "the prompt is too long" in done.err and "shorten it" in done.err and not done.out
    left_out = [line for line in done.err.splitlines() if "is left out" in line]
    assert [line.endswith("the others continue") for line in left_out] == [True, True, False], "none is left"


def test_a_lane_that_breaks_later_costs_the_exit_code_and_nothing_else(cli, monkeypatch):
    run, ran = FakeRuntime.run, []

    def breaking(self, request, cancelled=lambda: False, progress=None):
        ran.append(request.engine)
        if request.engine == "pld" and ran.count("pld") == 3:
            raise RunFailed("the model failed", "try a shorter text")
        yield from run(self, request, cancelled)

    monkeypatch.setattr(FakeRuntime, "run", breaking)
    done = cli("compare", "hello", *LANES, "--repeats", "3", "--format", "json")
    found = json.loads(done.out)
    assert done.code == 1 and "spec-tui: pld: the model failed\n  try a shorter text" in done.err
    assert [lane["tokens_per_second"]["samples"] for lane in found["lanes"]] == [3, 1, 3]
    assert found["finish_reason"] == "done" and len(found["runs"]) == 7


def test_every_flag_of_run_is_there():
    from typer.main import get_command

    from spec_tui.cli.commands import app

    commands = get_command(app).commands
    flags = {name: {o for p in commands[name].params for o in p.opts} for name in ("run", "compare", "sweep")}
    alone = {"--trace", "--detail", "--narrate", "--explain", "--rejected",
             "--server", "--api-key-env", "--backend", "--served-model"}
    assert flags["run"] - flags["compare"] <= alone and flags["run"] - flags["sweep"] <= alone


def test_hostile_text_steers_nothing(cli):
    for format in ("table", "json", "csv", "md"):
        done = cli("compare", "hostile", *LANES, "--repeats", "1", "--format", format)
        assert not any(mark in done.out + done.err for mark in ("\x1b", "\x07", "\x9b", "\u202e"))


def test_a_name_of_wide_letters_shifts_no_bar_and_wraps_no_status_line(monkeypatch, capsys):
    lanes = (Lane("autoregressive"), *(Lane("rest", datastores=(name,)) for name in ("notes", "要約" * 12)))
    result = RaceResult()
    result.add(RaceStarted(lanes, 1, 1, 0))
    _, *lines = sweep.plot(result, Race(lanes, Request(())), "datastore").split("\n")
    assert len(set(map(cells, lines))) == 1 and "約要…" in lines[2], "a dash for the speed ends each"
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    Status().show(Loading("要約" * 30, 0.5))
    assert cells(capsys.readouterr().err.removeprefix("\r\x1b[K")) < 40


def test_a_label_that_is_cut_keeps_what_its_lane_alone_has():
    lanes = [f"rest:budget=paper:fraction={value}:datastore=mine" for value in ("0.03", "0.5", "1")]
    shown = as_text([[["lane"], *([lane] for lane in lanes)]], lanes, [], 100).split("\n")
    assert shown[1:4] == ["1 rest:…:fraction=0.03", "2 rest:…:fraction=0.5", "3 rest:…:fraction=1"]
    assert shown[-1] == f"3 rest:…:fraction=1: {lanes[-1]}"


def test_a_sweep_is_drawn_from_zero(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    def run(self, request, cancelled=lambda: False, progress=lambda event: None):
        slow = {8: 1, 16: 2, 32: 4}.get(request.options.get("c"), 4)
        for event in plain(self, request, cancelled):
            if isinstance(event, Round):
                event = replace(event, verify_seconds=0.001 * slow, draft_seconds=0.0, other_seconds=0.0)
            yield event

    plain = FakeRuntime.run
    monkeypatch.setattr(FakeRuntime, "run", run)
    ask = ("sweep", "hello", "--engine", "rest", "--vary", "c=8,16,32", "--repeats", "1", "--max-new-tokens", "5")
    done = cli(*ask)
    lines = done.out.splitlines()
    assert done.code == 0, done.err
    assert lines[0] == "rest: tokens/s by c, and acceptance (a full bar is 100%)"
    bars = [line.split()[1].count("█") for line in lines[1:5]]
    assert [round(bars[1] / bar) for bar in bars] == [4, 1, 2, 4]
    assert max(map(len, lines)) <= 80 and "rest:c=16" in done.out
    assert "budget=auto drafts fewer" in done.err
    assert "budget=auto" not in cli(*ask, "--set", "budget=paper").err
    assert len(json.loads(cli(*ask, "--format", "json").out)["lanes"]) == 4
    assert cli(*ask, "--format", "md").out.startswith("```text\nrest: tokens/s by c")


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("--engine", "rest"), "--vary is missing"),
        (("--vary", "c=1"), "there is no engine to vary"),
        (("--engine", "rest", "--vary", "c"), "is not OPTION=VALUE,VALUE"),
        (("--engine", "rest", "--vary", "c="), "is not OPTION=VALUE,VALUE"),
        (("--engine", "rest", "--vary", "nodes=8"), "engine rest has no option 'nodes'"),
        (("--engine", "rest", "--vary", "c=8,0"), "option c=0 is out of range"),
        (("--engine", "rest", "--vary", "c=8", "--set", "c=9"), "both varied and --set"),
        (("--engine", "nobody", "--vary", "x=1"), "there is no engine 'nobody'"),
    ],
)
def test_sweep_usage(cli, arguments, words):
    done = cli("sweep", "hello", *arguments)
    assert done.code == 2 and words in done.err and not done.out


def test_a_long_race_that_is_refused_says_that_nothing_was_run(cli, monkeypatch):
    terminal = io.StringIO("no\n")
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stdin", terminal)
    done = cli("compare", "hello", "--engines", "autoregressive,pld", "--repeats", "150")
    assert done.code == 1 and "begin?" in done.err and done.err.endswith("nothing was run\n") and not done.out
