"""``spec-tui reproduce``: what it lists, what it refuses, what it says of entries that cannot be run."""

from __future__ import annotations

import json
import weakref

import pytest

from engines.errors import ModelUnavailable, RunFailed, UsageProblem
from engines.reproduce.entry import shipped
from spec_tui.cli.failures import worst
from spec_tui.cli.reproduce import EntryRun
from spec_tui.export.reproduce_report import unable
from spec_tui.session import loader
from tests.session import fake_runtime
from tests.session.fake_runtime import FakeRuntime


def test_the_list(cli):
    done = cli("reproduce", "--list")
    assert done.code == 0 and all(name in done.out for name in shipped())
    found = json.loads(cli("reproduce", "--list", "--format", "json").out)
    assert [entry["name"] for entry in found] == list(shipped())


@pytest.mark.parametrize("arguments, words", [
    ((), "no entry was named"), (("rest-nothing",), "there is no entry"),
    (("--all", "rest-trie"), "give either --all"),
    (("rest-trie", "--repeats", "0"), "--repeats"), (("nowhere.toml",), "cannot be read"),
])  # fmt: skip
def test_usage(cli, arguments, words):
    done = cli("reproduce", *arguments)
    assert done.code == 2 and words in done.err and not done.out


def test_an_entry_that_cannot_be_run_says_why(cli, tmp_path):
    file = tmp_path / "big.toml"
    file.write_text('title = "t"\npaper = "REST (He et al. 2024)"\ntables = ["Table 3"]\nshows = "s"\n'
                    'cannot = "the moon is needed"\n')
    done = cli("reproduce", str(file))
    assert done.code == 5 and "big cannot be run here: the moon is needed" in " ".join(done.out.split())
    assert not done.out.endswith("\n\n")
    assert "2.65" in done.out and "CodeLlama 7B" in done.out
    found = json.loads(cli("reproduce", str(file), "--format", "json").out)
    assert found["cannot"] == "the moon is needed" and found["published"]


def test_an_entry_that_cannot_be_run_does_not_hide_that_others_failed(cli, monkeypatch, tmp_path):
    def fail(self):
        raise RunFailed("the model failed", "try another")

    monkeypatch.setattr(FakeRuntime, "heads", {}, raising=False)
    monkeypatch.setattr(EntryRun, "run", fail)
    file = tmp_path / "big.toml"
    file.write_text('title = "t"\npaper = "p"\ntables = ["Table 3"]\nshows = "s"\ncannot = "the moon is needed"\n')
    done = cli("reproduce", str(file), "rest-trie", "rest-speed")
    assert done.code == 1 and done.err.count("the model failed") == 2


def test_a_row_that_cannot_run_is_said_and_costs_the_exit_code(cli, monkeypatch, tmp_path):
    run = FakeRuntime.run

    def picky(self, request, cancelled=lambda: False, progress=None):
        if request.engine == "draft":
            raise UsageProblem("there is no draft model", "give --draft-model")
        return run(self, request, cancelled)

    file = tmp_path / "mine.toml"
    file.write_text('title = "t"\npaper = "p"\ntables = ["Table 3"]\nshows = "s"\nmeasures = ["tokens/s"]\n' + "".join(
        f'[[rows]]\nname = "{engine}"\nlane = "{engine}"\n' for engine in ("autoregressive", "draft")))
    ask = ("reproduce", str(file), "--limit", "1", "--repeats", "1", "--max-new-tokens", "3")
    monkeypatch.setattr(FakeRuntime, "heads", {}, raising=False)
    assert cli(*ask).code == 0
    monkeypatch.setattr(FakeRuntime, "run", picky)
    done = cli(*ask)
    assert done.code == 5 and "note: draft is left out: there is no draft model" in done.err


def test_what_one_entry_loaded_is_gone_before_the_next_one_loads(cli, monkeypatch, tmp_path):
    loaded, there = [], []

    def load(*args, **how):
        there.append(sum(runtime() is not None for runtime in loaded))
        runtime = fake_runtime.load(*args, **how)
        runtime.itself = runtime  # as in a real one, parts refer to the whole
        loaded.append(weakref.ref(runtime))
        return runtime

    monkeypatch.setattr(loader, "load_here", load)
    monkeypatch.setattr(FakeRuntime, "heads", {}, raising=False)
    files = []
    for name, head in (("plain", ""), ("headed", 'head = "EAGLE"\n')):
        files.append(tmp_path / f"{name}.toml")
        files[-1].write_text('title = "t"\npaper = "p"\ntables = ["Table 3"]\nshows = "s"\nmeasures = ["tokens/s"]\n'
                             f'[[rows]]\nname = "pld"\nlane = "pld"\n{head}')
    done = cli("reproduce", *map(str, files), "--limit", "1", "--repeats", "1", "--max-new-tokens", "3")
    assert done.code == 0 and there == [0, 0], done.err
    assert "kept for this model" not in cli("run", "hello", "--model", "sample").err, "a head of an entry is not"


def test_an_entry_whose_model_does_not_load_is_reported_and_the_next_one_runs(cli, monkeypatch, tmp_path):
    def load(options, *args, **how):
        if options.head:
            raise ModelUnavailable("its head is not here", "train one")
        return fake_runtime.load(options, *args, **how)

    monkeypatch.setattr(loader, "load_here", load)
    monkeypatch.setattr(FakeRuntime, "heads", {}, raising=False)
    entry = 'title = "t"\npaper = "p"\ntables = ["Table 3"]\nshows = "s"\nmeasures = ["tokens/s"]\n'
    for name, head in (("a", 'head = "EAGLE"\n'), ("b", ""), ("c", 'head = "Medusa"\n')):
        (tmp_path / f"{name}.toml").write_text(f'{entry}[[rows]]\nname = "plain"\nlane = "pld"\n{head}')
    files = [str(tmp_path / f"{name}.toml") for name in "abc"]
    short = ("--limit", "1", "--repeats", "1", "--max-new-tokens", "3", "--format", "csv")
    done = cli("reproduce", *files, *short)
    assert done.code == ModelUnavailable.exit_code and done.out.count("plain") == 1
    assert all(f"{name}: its head is not here" in done.err for name in "ac")
    assert cli("reproduce", files[0], *short).code == ModelUnavailable.exit_code


def test_an_entry_whose_model_cannot_be_measured_is_reported_and_the_next_one_runs(cli, monkeypatch, tmp_path):
    def refuse(self, request):
        raise UsageProblem("its layers are not understood", "try another model")

    monkeypatch.setattr(FakeRuntime, "heads", {}, raising=False)
    monkeypatch.setattr(FakeRuntime, "prompt", refuse, raising=False)
    file = tmp_path / "mine.toml"
    file.write_text('title = "t"\npaper = "p"\ntables = ["Table 3"]\nshows = "s"\nmeasures = ["M"]\n'
                    '[[rows]]\nname = "plain"\nlane = "autoregressive"\n')
    done = cli("reproduce", str(file), "admg-sublayers", "--limit", "1", "--repeats", "1", "--max-new-tokens", "3",
               "--format", "csv")
    assert done.code == 2 and "admg-sublayers: its layers are not understood" in done.err
    assert "Attention" in done.out and "plain" in done.out


@pytest.mark.parametrize("codes, code", [((0, 5), 5), ((5, 2), 2), ((2, 3), 3), ((5, 1, 3), 1), ((1, 130), 130)])
def test_of_the_exit_codes_of_parts_the_worst_is_taken(codes, code):
    assert worst(*codes) == worst(*codes[::-1]) == code


@pytest.mark.parametrize("name", [name for name, entry in shipped().items() if entry.cannot])
def test_published_numbers_of_an_entry_that_cannot_be_run_are_told_apart(name):
    (rows,) = unable(name, shipped()[name]).tables
    assert len({tuple(row[:-1]) for row in rows}) == len(rows)


def test_files_of_others_are_not_overwritten(cli, tmp_path):
    (tmp_path / "rest-trie").mkdir()
    (tmp_path / "rest-trie" / "results.json").write_text('{"schema": "a diary"}')
    done = cli("reproduce", "rest-trie", "--out", str(tmp_path))
    assert done.code == 2 and "it is not overwritten" in done.err and not done.out


def test_a_file_with_control_characters_steers_no_terminal(cli, tmp_path):
    file = tmp_path / "bad.toml"
    file.write_text(r"""
title = "\u001b[31mred"
paper = "p"
tables = ["\u009b2J"]
shows = "s"
cannot = "no\u0007"
""")
    done = cli("reproduce", str(file))
    assert done.code == 2 and "unprintable characters" in done.err and not done.out
    assert not set("\x1b\x9b\x07") & set(done.err)
