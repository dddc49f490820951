"""``spec-tui search-layers`` on a tiny model: it searches, says what it found, goes on, lists and removes."""

from __future__ import annotations

import json

import pytest

import engines
from engines.methods.draft_verify.layer_search import search as layer_search
from engines.methods.draft_verify.layer_search import search_store


@pytest.fixture
def searcher(cli, tiny, monkeypatch, tmp_path):
    """The command on the tiny target and two prompts."""
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(engines, "load", lambda **_: tiny)
    (tmp_path / "prompts.txt").write_text('aaaa\n{"prompt": "def add(a, b):"}\n')

    def run(*arguments, prompts="prompts.txt", tokens=4):
        return cli("search-layers", "--prompts", str(tmp_path / prompts), "--tokens", str(tokens), *arguments)

    return run


def test_it_searches_saves_and_goes_on(searcher, tiny):
    done = searcher("--trials", "3", "--format", "json")
    facts = json.loads(done.out)
    assert (done.code, facts["layers"], facts["prompts"], facts["tokens"]) == (0, 3, 2, 4)
    assert len({trial["skipped"] for trial in facts["trials"]}) == 3
    best = facts["best"]
    assert best["confirmed"] and best["skipped"] in [trial["skipped"] for trial in facts["trials"]]
    assert best["speed_up"] == pytest.approx(best["tokens_per_second"] / best["baseline"])
    assert best["low"] <= best["speed_up"] <= best["high"] and len(best["attention"]) + len(best["mlp"]) > 0
    assert search_store.find(search_store.identify(tiny.target)).found.skipped == best["skipped"]

    more = json.loads(searcher("--trials", "5", "--format", "json").out)
    assert more["trials"][:3] == facts["trials"] and len(more["trials"]) == 5
    again = searcher("--trials", "5")
    assert f"best: without {more['best']['skipped']}" in again.out and "trials" not in again.err
    assert "draft-verify" in again.out and max(map(len, again.out.splitlines())) <= 80


def test_other_settings_do_not_go_on_with_it(searcher):
    assert searcher("--trials", "1").code == 0
    other = searcher("--trials", "2", "--seed", "1")
    assert other.code == 2 and "2 prompts, 4 tokens, seed 0 (1 trials)" in other.err and "--fresh" in other.err
    assert searcher("--trials", "1", "--seed", "1", "--fresh").code == 0


def test_ctrl_c_keeps_the_trials(searcher, monkeypatch):
    trial = layer_search.TrialRunner.__call__

    def interrupted(self, removed):
        if self._trials == 2:
            raise KeyboardInterrupt
        return trial(self, removed)

    monkeypatch.setattr(layer_search.TrialRunner, "__call__", interrupted)
    stopped = searcher("--trials", "4")
    assert stopped.code == 130 and "2 trials are kept: the same command goes on" in stopped.err and not stopped.out
    unfinished = searcher("--show")
    assert "2 trials, unfinished" in unfinished.out
    assert "the same command without --fresh goes on" in searcher("--trials", "4", "--fresh").err
    monkeypatch.undo()


def test_searches_are_listed_and_removed(searcher):
    assert searcher("--show").out == "no layer search was run yet\n"
    searcher("--trials", "1")
    (entry,) = json.loads(searcher("--show", "--format", "json").out)
    assert entry["model"] == "tiny-target" and entry["problem"] is None
    assert entry["best"]["skipped"] in searcher("--show").out
    assert searcher("--remove", "nothing").code == 2
    assert searcher("--remove", entry["id"]).code == 0
    assert searcher("--show", "--format", "json").out == "[]\n"


def test_a_damaged_search_says_what_to_do(searcher, tiny, tmp_path):
    searcher("--trials", "1")
    (file,) = (tmp_path / "data" / "layers").glob("*.json")
    file.write_text("{")
    assert file.stem in searcher("--show").out
    broken = searcher("--trials", "2")
    assert broken.code == 2 and "damaged" in broken.err and "--fresh" in broken.err
    assert searcher("--trials", "1", "--fresh").code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--trials", "0"), "--trials is at least 1"), (("--seed", "-1"), "--seed is at least 0"),
        (("--tokens", "1"), "--tokens is at least 2"), (("--prompts", "nowhere"), "nowhere"),
    ],
)
def test_what_cannot_be_searched_is_refused_before_a_model_is_loaded(searcher, monkeypatch, arguments, words):
    monkeypatch.setattr(engines, "load", lambda **_: pytest.fail("a model was loaded"))
    refused = searcher(*arguments)
    assert refused.code == 2 and words in refused.err


def test_a_prompt_that_does_not_fit_is_named(searcher, tmp_path):
    (tmp_path / "long.txt").write_text("short\n" + "x" * 400 + "\n")
    refused = searcher("--trials", "1", prompts="long.txt")
    assert refused.code == 2 and "prompt 2 of 2" in refused.err
