"""The heads that ship: they fit their targets, are taken by themselves, and draft what is accepted now and then."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from engines import Request, UsageProblem, measure
from engines.folders import sample_heads
from engines.heads.head_config import EAGLE_HEAD, MEDUSA_HEADS
from engines.heads.local_heads import local_heads
from spec_tui.cli import call

_LARGEST = 12_000_000  # bytes


def test_each_is_small_and_named_in_the_readme():
    ships = [head for head in local_heads() if head.ships]
    readme = (sample_heads() / "README.md").read_text("utf-8")
    assert ships
    for head in ships:
        assert sum(file.stat().st_size for file in head.folder.iterdir()) <= _LARGEST
        assert f"`{head.name}`" in readme and head.target_fingerprint


@pytest.mark.parametrize("kind, name, engine, options", [
    (EAGLE_HEAD, "sample-eagle-2", "eagle", {"budget": "paper"}),
    (EAGLE_HEAD, "sample-eagle-2", "eagle", {"budget": "paper", "shape": "tree"}),
    (MEDUSA_HEADS, "sample-medusa", "medusa", {"budget": "paper", "nodes": 20}),
])
def test_the_sample_targets_heads_are_taken_and_accepted(sample, kind, name, engine, options):
    assert sample.ready.heads[kind].name == name and sample.ready.heads[kind].price
    request = Request((("user", "What is a tree?"),), engine, options, max_new_tokens=60)
    metrics = measure(list(sample.run(request)))
    assert metrics.accepted > 0
    assert measure(list(sample.run(request))).accepted == metrics.accepted


@pytest.mark.parametrize("asked, name, family, drafts, least", [
    ("eagle", "sample-eagle-2", "EAGLE", 8192, 1.5), ("eagle-3", "sample", "EAGLE-3", 2048, 1.1)])
def test_a_head_is_taken_by_its_family(asked, name, family, drafts, least):
    from engines import load

    runtime = load("sample", head=asked)
    head = runtime.heads[EAGLE_HEAD]
    assert (head.name, head.config.family, head.config.draft_vocabulary) == (name, family, drafts)
    turn = (("user", "What is a tree?"),)
    drafted, plain = (
        list(runtime.run(Request(turn, engine, options, max_new_tokens=40)))
        for engine, options in (("eagle", {"budget": "paper", "num_tokens": "4"}), ("autoregressive", {})))
    assert drafted[-1].tokens == plain[-1].tokens and measure(drafted).mean_generated_length > least


@pytest.mark.parametrize("asked, found", [("eagle", "sample-eagle-2"), ("medusa", "sample-medusa"), ("none", None)])
def test_a_head_is_described_by_its_family(sample, monkeypatch, asked, found):
    from engines.heads.find_heads import heads_for
    from spec_tui.cli import head as commands
    from spec_tui.session.engine_commands import LoadRequest

    heads, _ = heads_for(asked, sample.target)
    monkeypatch.setattr(commands, "load_once", lambda request: SimpleNamespace(heads=heads))
    if found is None:
        with pytest.raises(UsageProblem, match="none names no head of this model"):
            commands._with_head(asked, SimpleNamespace(load=LoadRequest()))
    else:
        assert commands._with_head(asked, SimpleNamespace(load=LoadRequest()))[1].name == found


def test_a_head_of_another_target_is_described_by_its_files_and_says_what_it_was_trained_for(capsys):
    assert call(["head", "info", "smollm2", "--model", "sample", "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["fits"], facts["trained_for"], facts["target_width"]) == (False, "smollm2", 576)
    assert "does not fit sample: it is for hidden states of 576 numbers" in facts["problem"]
    assert call(["head", "check", "smollm2", "--model", "sample"]) == 2
    assert "it was trained for smollm2: --model smollm2" in capsys.readouterr().err


@pytest.mark.parametrize("name, given, loaded", [
    ("sample-medusa", [], "sample"), ("smollm2", [], None), ("sample", ["--model", "a/b"], "a/b"), ("eagle", [], None)])
def test_where_no_model_is_named_the_one_that_the_heads_file_names_is_loaded_if_it_is_here(monkeypatch, name, given,
                                                                                          loaded):
    from spec_tui.cli import head as commands

    asked = []
    monkeypatch.setattr(commands, "load_once", lambda load: asked.append(load.model) or SimpleNamespace(heads={}))
    assert call(["head", "info", name, *given]) == 2
    assert asked == [loaded]


@pytest.mark.parametrize("engine", ["eagle", "hybrid"])
def test_a_head_that_drafts_with_rows_of_the_target_does_so_without_native_code(engine):
    from engines import load

    runtime = load("sample", head="sample-eagle-2", native=False, device="cpu", threads=1)
    turn = (("user", "Tell me a story about a cat."),)
    texts = [list(runtime.run(Request(turn, one, options, max_new_tokens=20)))
             for one, options in ((engine, {"budget": "paper"}), ("autoregressive", {}))]
    assert texts[0][-1].tokens == texts[1][-1].tokens and measure(texts[0]).accepted > 0
