"""``spec-tui replay`` and ``run --narrate``: recorded runs in words and numbers, damaged ones too."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.report.events import Failed
from engines.wire import to_json
from spec_tui.cli.commands import app
from spec_tui.session.recorded_race import read_recorded as side_by_side
from spec_tui.session.sample_traces import names, trace_path


@pytest.fixture
def recorded(cli, tmp_path):
    """What a run printed as JSON, and its trace."""
    path = tmp_path / "run.jsonl"
    done = cli("run", "hello", "--max-new-tokens", "4", "--audit", "--format", "json", "--trace", str(path))
    assert done.code == 0
    return done.out, path


def test_numbers_are_those_of_the_run(cli, recorded):
    out, path = recorded
    done = cli("replay", str(path), "--format", "json")
    assert (done.code, done.out, done.err) == (0, out, "")


def test_narrated_live_and_from_the_trace_alike(cli, recorded):
    told = cli("run", "hello", "--max-new-tokens", "4", "--audit", "--narrate")
    replayed = cli("replay", str(recorded[1]), "--format", "text")
    assert told.code == replayed.code == 0 and told.out == replayed.out
    assert replayed.out.splitlines() == [
        "model: fake, float32, cpu",
        "engine: pld; law exact, greedy",
        'prompt: "hello"',
        'prefill: 3 tokens, 10 ms, wrote "first"',
        'round 1: drafted 2, accepted 1, corrected 1, wrote " t1!"',
        'round 2: drafted 2, accepted 1, corrected 1, wrote " t2!"',
        'round 3: drafted 2, accepted 1, corrected 1, wrote " t3!"',
        "end: cut at the limit, 7 tokens in 3 forward passes of the target, 500.0 tokens/s, 50% of 6 drafted accepted",
        "audit: identical: each of its 7 tokens is the target's own choice; its two best scores were "
        "never closer than 1.5",
    ]


def test_what_models_write_cannot_steer_the_terminal(cli, tmp_path):
    cli("run", "hostile \x1b[31m", "--max-new-tokens", "2", "--trace", str(tmp_path / "t"))
    done = cli("replay", str(tmp_path / "t"), "--format", "text")
    assert done.code == 0 and "owned" in done.out
    assert not any((ord(c) < 32 and c != "\n") or 0x7F <= ord(c) < 0xA0 for c in done.out)


def test_damage_is_told_and_the_rest_is_played(cli, recorded):
    path = recorded[1]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"garbage\n", *lines[3:-1]]))
    done = cli("replay", str(path), "--format", "text")
    assert done.code == 0 and "round 2: drafted 2" in done.out and "round 1:" not in done.out
    assert "note: line 3 is not an event of this version" in done.err and "no checksum" in done.err


@given(data=st.data())
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_damage_ends_in_words(cli, recorded, tmp_path, data):
    whole = recorded[1].read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    cut = data.draw(st.booleans())
    path = tmp_path / "damaged.jsonl"
    path.write_bytes(whole[:at] if cut else whole[:at] + b"7" + whole[at + 1 :])
    for form in ("text", "json"):
        done = cli("replay", str(path), "--format", form)
        assert done.code in (0, 2) and "unexpected" not in done.err


def test_runs_behind_one_another_are_told_one_by_one(cli, recorded):
    out, path = recorded
    path.write_bytes(path.read_bytes() * 2)
    assert cli("replay", str(path), "--format", "text").out.count("round 1:") == 2
    assert cli("replay", str(path), "--format", "json").out == out * 2


def test_a_damaged_trace_says_so_in_numbers_too(cli, tmp_path):
    lines = trace_path("rasd").read_bytes().splitlines(keepends=True)
    (tmp_path / "t.jsonl").write_bytes(b"".join(lines[:9] + lines[10:]))
    found = json.loads(cli("replay", str(tmp_path / "t.jsonl"), "--format", "json").out)
    assert found["problems"][0] == "line 10 is round 9, and what comes between it and round 7 is missing"
    assert "One day, Dan […] \"It shows" in found["text"]
    assert "problems" not in json.loads(cli("replay", "rasd", "--format", "json").out)


def test_a_run_that_failed_says_so_in_numbers_too(cli, recorded):
    out, path = recorded
    whole = path.read_bytes()
    failed = to_json(Failed("the memory is full", "close what needs it"))
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:3]) + failed + b"\n" + whole)
    broken, complete = map(json.loads, cli("replay", str(path), "--format", "json").out.splitlines())
    assert broken["failed"] == {"message": "the memory is full", "hint": "close what needs it", "kind": "failed"}
    assert broken["finish_reason"] is None and broken["tokens"]
    assert complete.pop("problems") and complete == json.loads(out)


def test_with_a_speed_the_lines_come_by_the_engines_clock(cli, recorded):
    begun = time.perf_counter()
    done = cli("replay", str(recorded[1]), "--format", "text", "--speed", "0.1")
    assert done.code == 0 and 0.2 < time.perf_counter() - begun < 5  # 22 ms of the engine's clock


def test_without_a_name_those_that_ship_are_listed(cli, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    done = cli("replay")
    assert done.code == 0 and [line.split()[0] for line in done.out.splitlines()] == list(names())
    assert all(cli("replay", name, "--format", "json").code == 0 for name in ("pld", "tree"))


@pytest.mark.parametrize("arguments, words", [
    (["no-such"], "there is no trace 'no-such'"), (["gone.jsonl"], "cannot be read: No such file"),
    (["pld", "--speed", "0"], "out of range"), (["pld", "--speed", "-1"], "out of range"),
    (["pld", "--speed", "nan"], "out of range"),
    (["pld", "--speed", "1e-300"], "0.001 to 1000, or inf"), (["pld"], "the application needs a terminal"),
    (["pld", "--format", "xml"], "xml"), (["pld", "tree"], "add --screen race"),
    (["pld", "tree", "--screen", "step"], "add --screen race"), (["pld", "tree", "--format", "text"], "one"),
    (["pld", "tree", "--screen", "race", "--format", "text"], "leave one out"),
    (["pld", "tree", "--screen", "race"], "the application needs a terminal"),
    (["pld", "gone", "--screen", "race"], "there is no trace 'gone'"),
    (["pld"] * 7 + ["--screen", "race"], "7 runs"),
])  # fmt: skip
def test_wrong_arguments(cli, arguments, words):
    done = cli("replay", *arguments)
    assert done.code == 2 and words in done.err and not done.out


def test_a_file_that_is_no_trace(cli, tmp_path):
    (tmp_path / "letter.txt").write_text("dear all")
    told = cli("replay", str(tmp_path / "letter.txt")).err
    assert "is not a trace" in told and "Expecting" not in told
    (tmp_path / "odd.jsonl").write_text('{"event":"Loading","stage":"x","done":null,"bytes":null}\n')
    assert "contains no run" in cli("replay", str(tmp_path / "odd.jsonl"), "--format", "text").err


def test_a_folder_of_compare_is_its_first_repeats(cli, tmp_path):
    assert "only --screen race opens one" in cli("replay", str(tmp_path)).err
    assert "holds no trace" in cli("replay", str(tmp_path), "--screen", "race").err
    engines = "autoregressive,pld,pld:num_tokens=3"
    assert cli("compare", "hello", "--engines", engines, "--repeats", "2", "--trace-dir", str(tmp_path)).code == 0
    for path in tmp_path.glob("*.repeat-2.*"):
        path.write_text("not read")
    race = side_by_side([str(tmp_path)])
    assert race.labels == tuple(engines.split(",")) and any("3 more traces" in note for note in race.notes())
    for path in tmp_path.glob("*.repeat-1.*"):
        path.unlink()
    assert "no trace of a first repeat" in cli("replay", str(tmp_path), "--screen", "race").err
    for number in range(7):
        (tmp_path / f"{number}.jsonl").touch()
    assert "holds 7 lanes" in cli("replay", str(tmp_path), "--screen", "race").err


def test_names_are_completed():
    from typer.main import get_command

    (argument,) = (one for one in get_command(app).commands["replay"].params if one.name == "traces")
    assert [item.value for item in argument.shell_complete(None, "pl")] == ["pld", "pld-in-vain"]


def test_no_torch_is_loaded(tmp_path):
    program = (
        "import sys; from spec_tui.cli import call\n"
        "assert call(['replay', 'tree', '--format', 'text']) == 0\n"
        "import spec_tui.tui.recorded, spec_tui.tui.screens.race\n"
        "from spec_tui.session.recorded_race import read_recorded\n"
        "assert read_recorded(['tree', 'pld']).notes()\n"
        "assert not {'torch', 'transformers', 'huggingface_hub', 'tokenizers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
