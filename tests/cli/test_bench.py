"""``spec-tui bench`` with a decoder that needs no model, and a generate that needs no transformers."""

from __future__ import annotations

import errno
import json
import os
import re

import pytest

from engines.errors import ModelUnavailable, RunFailed, UsageProblem
from engines.race.token_times import TokenTimes
from engines.report.events import Draft, Emitted, Finished, Prefilled, Round, Started
from spec_tui.cli import bench
from tests.cli.test_compare import interrupt_after
from tests.session.fake_runtime import FakeRuntime
from tests.tiers import some

QUICK = ("--max-new-tokens", "3", "--limit", "1", "--repeats", "1")
ENGINES = ("--engines", "pld,rest:c=16")


class FakeGenerate:
    """Says what the fake runtime says, in half of its speed."""

    def __init__(self):
        self.token_times, self.ran = None, []

    def memory(self, engine, rows):
        return 2000 + rows

    def run(self, request, cancelled):
        self.ran.append(request.engine)
        yield Started(request.engine, {}, "exact", 0.0, 1.0, 0, 0, 3, "fake", "float32", "cpu", (1, 2, 3))
        yield Prefilled(3, 0, 0.02, Emitted(7, "first", "first", "target"), 3)
        for index, pair in enumerate(((9, 8), (9, 8)), 1):
            made = tuple(Emitted(token, "x", "x", "target") for token in pair)
            yield Round(index, 3 + index, Draft(), (), made, 0.0, 0.008, 0.0, 3 + index)
        self.token_times = TokenTimes(1, 0.02, 4, 0.016, 2)
        yield Finished("length", (7, 9, 8, 9, 8), "first...")


@pytest.fixture(autouse=True)
def generated(monkeypatch, no_sweeps):
    """With the fake generate."""
    found = FakeGenerate()
    monkeypatch.setattr(bench, "load_generator", lambda decoder, draft, load: found)
    return found


def test_engines_and_generate_over_our_own_suite(cli):
    done = cli("bench", *ENGINES, *QUICK, "--format", "json")
    found = json.loads(done.out)
    assert done.code == 0 and done.out.isascii()
    assert [lane["lane"] for lane in found["lanes"]] == ["autoregressive", "pld", "rest:c=16"]
    assert [lane["lane"] for lane in found["generate"]] == ["generate", "generate+lookup"]
    assert found["suite"]["name"] == "spec-tui's own" and len(found["suite"]["tasks"]) >= 6
    assert len(found["runs"]) == 5 * sum(found["suite"]["tasks"].values())
    assert found["lanes"][1]["over_generate"]["median"] > 0 and found["lanes"][2]["over_generate"] is None
    assert found["baseline"] == "autoregressive" and {pair["verdict"] for pair in found["pairs"]} == {"same"}
    assert found["generate"][0]["tokens_per_second"]["median"] == pytest.approx(250)


def test_all_engines_by_default_and_a_table(cli):
    done = cli("bench", *QUICK)
    assert done.code == 0 and max(map(len, done.out.splitlines())) <= 80
    assert all(f"\n{name} " in done.out for name in ("admg", "draft:shape=tree", "hybrid", "generate+assistant"))
    assert "all lanes write the same text" in done.out and "runs" not in done.out.splitlines()[0]


def test_a_suite_of_spec_benchs_shape(cli, tmp_path):
    file = tmp_path / "question.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in (
        {"question_id": 81, "category": "writing", "turns": ["Hello?", "Again?"]},
        {"question_id": 481, "category": "rag", "turns": ["What now?"], "reference": ["x"]},
        {"question_id": 482, "category": "rag", "turns": ["long " * 600]},
    )))
    done = cli("bench", "--suite", str(file), *ENGINES, "--max-new-tokens", "3", "--format", "json")
    found = json.loads(done.out)
    assert done.code == 0 and found["suite"] == {
        "name": "question.jsonl", "tasks": {"writing": 2, "rag": 1}, "questions": 2
    }
    assert found["repeats"] == 1 and {run["question"] for run in found["runs"]} == {"81", "481"}
    assert "questions too long for the context of 512 tokens are left out: 1 of rag" in done.err
    assert found["left_out"][0] in " ".join(found["notes"])


def test_categories_of_several_turns_have_rows_of_their_own(cli, tmp_path):
    """Twelve tasks, and the table still fits."""
    names = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
    rows = [{"category": name, "turns": ["Hello?", "Again?"]} for name in names]
    rows += [{"category": name, "turns": ["Hello?"]} for name in ("translation", "summarization", "qa", "rag")]
    file = tmp_path / "question.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    done = cli("bench", "--suite", str(file), *ENGINES, "--max-new-tokens", "3")
    assert done.code == 0 and max(map(len, done.out.splitlines())) <= 80
    assert all(name in done.out for name in names)


def test_who_cannot_run_is_said_and_the_others_run(cli, monkeypatch):
    run = FakeRuntime.run

    def picky(self, request, cancelled=lambda: False, progress=None):
        if request.engine == "draft":
            raise UsageProblem("there is no draft model", "give --draft-model")
        return run(self, request, cancelled)

    monkeypatch.setattr(FakeRuntime, "run", picky)
    done = cli("bench", "--engines", "draft,pld", *QUICK, "--format", "json")
    found = json.loads(done.out)
    assert done.code == 5 and [lane["lane"] for lane in found["lanes"]] == ["autoregressive", "pld"]
    assert found["left_out"] == ["draft is left out: there is no draft model (give --draft-model)"]
    assert [lane["lane"] for lane in found["generate"]] == ["generate", "generate+lookup"]
    assert "note: draft is left out" in done.err
    done = cli("bench", "--no-peers", *QUICK, "--format", "json")
    assert done.code == 0 and "note: draft is left out" in done.err, "nobody asked for it by name"


def test_generate_is_left_out_where_it_is_not_wanted_or_not_there(cli, monkeypatch, generated):
    for flags, words in ((("--no-peers",), ""), (("--temperature", "0.8"), "above temperature 0 it writes")):
        done = cli("bench", *ENGINES, *QUICK, *flags)
        assert done.code == 0 and "x generate" not in done.out and words in " ".join(done.out.split())
    assert not generated.ran

    def lacking(*_):
        raise ModelUnavailable("there is no memory", "buy some")

    monkeypatch.setattr(bench, "load_generator", lacking)
    done = cli("bench", *ENGINES, *QUICK)
    assert done.code == 0 and "generate is left out: there is no memory" in done.out


def test_audit_checks_every_answer_and_a_bug_of_ours_costs_the_exit_code(cli):
    ask = ("bench", "--engines", "pld", *QUICK, "--audit", "--format", "json", "--model")
    done = cli(*ask, "fake")
    assert done.code == 0 and {run["audit"] for run in json.loads(done.out)["runs"]} == {"identical"}
    done = cli(*ask, "bug")
    assert done.code == 1
    assert {run["audit"] for run in json.loads(done.out)["runs"] if "generate" not in run["lane"]} == {"BUG"}


def test_a_lane_that_breaks_later_costs_the_exit_code_and_nothing_else(cli, monkeypatch):
    run, ran = FakeRuntime.run, []

    def breaking(self, request, cancelled=lambda: False, progress=None):
        ran.append(request.engine)
        if request.engine == "pld" and ran.count("pld") == 12:
            raise RunFailed("the model failed", "try a shorter text")
        yield from run(self, request, cancelled)

    monkeypatch.setattr(FakeRuntime, "run", breaking)
    done = cli("bench", *ENGINES, *QUICK[:4], "--repeats", "2", "--format", "json")
    found = json.loads(done.out)
    assert done.code == 1 and "spec-tui: pld: the model failed" in done.err
    assert [lane["tokens_per_second"]["samples"] for lane in found["lanes"]] == [2, 1, 2]


def test_what_nobody_can_run_is_refused(cli, monkeypatch):
    def broken(self, request, cancelled=lambda: False, progress=None):
        raise RunFailed("the model failed", "try another")

    monkeypatch.setattr(FakeRuntime, "run", broken)
    done = cli("bench", *QUICK)
    assert done.code == 2 and "no engine can run here" in done.err and "the model failed" in done.err and not done.out


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("format", some(["table", "json", "csv", "md"], lambda f: f in ("table", "json")))
def test_an_interrupted_benchmark_prints_what_is_complete(cli, monkeypatch, tmp_path, times, format):
    interrupt_after(monkeypatch, 12, times)
    out = tmp_path / "out"
    done = cli("bench", *ENGINES, "--max-new-tokens", "3", "--format", format, "--out", str(out))
    assert done.code == 130 and re.search(r"interrupted; 1[12] of \d+ runs are complete", done.err)
    assert done.out and json.loads((out / "results.json").read_text())["finish_reason"] == "cancelled"
    if format == "table":
        assert re.search(r"cut short: the numbers are of the 2 of \d+ prompts", " ".join(done.out.split()))


def test_a_folder_is_written_and_other_peoples_files_are_not_touched(cli, tmp_path):
    out = tmp_path / "out"
    assert cli("bench", *ENGINES, *QUICK, "--out", str(out)).code == 0
    written = sorted(path.name for path in out.iterdir())
    assert written == ["generate.svg", "results.json", "runs.csv", "speed-ups.svg", "tables.md", "tasks.svg"]
    (out / "results.json").write_text("a diary")
    done = cli("bench", *ENGINES, *QUICK, "--out", str(out))
    assert done.code == 2 and "was not written by spec-tui bench" in done.err and not done.out
    assert (out / "results.json").read_text() == "a diary"


def test_a_plot_that_cannot_be_written_whole_leaves_nothing_behind(cli, tmp_path, monkeypatch):
    replace = os.replace

    def full(source, target):
        if str(target).endswith(".svg"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    done = cli("bench", *ENGINES, *QUICK, "--out", str(tmp_path / "out"))
    assert done.code == 1 and "No space left on device" in done.err and "all lanes write the same text" in done.out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"results.json", "runs.csv", "tables.md"}


@pytest.mark.parametrize("arguments, words", [
    (("--suite", "nowhere"), "there is no file nowhere"), (("--limit", "0"), "--limit 0 is out of range"),
    (("--repeats", "0"), "repeats 0 is out of range"), (("--engines", "pld,nobody"), "there is no engine 'nobody'"),
    (("--temperature", "-1"), "temperature -1.0 is out of range"), (("--format", "xml"), "--format"),
    (("hello",), "hello"), (("--prompt-file", "x"), "--prompt-file"),
])  # fmt: skip
def test_usage(cli, arguments, words):
    done = cli("bench", *arguments)
    assert done.code == 2 and words in done.err and not done.out
