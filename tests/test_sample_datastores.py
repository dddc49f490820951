"""The datastore that ships: whose answers it holds, and that no prompt that measures is near its prompts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engines.datastores.building.build_spec import ANSWERS, BuildSpec
from engines.datastores.search.dense import DenseStore, recall
from engines.datastores.search.sparse import SparseStore
from engines.datastores.storage.datastore import Store
from engines.datastores.storage.manifest import tokenizer_fingerprint

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import build_sample_datastores as tool  # noqa: E402
import sample_prompts  # noqa: E402


@pytest.fixture(scope="module")
def store():
    return Store(ROOT / "sample_datastores" / tool.NAME)


def shipped_prompts(store):
    documents = SparseStore(store).documents
    return [documents.place(documents.bounds(number)[0]).source for number in range(len(documents))]


def test_no_prompt_of_the_store_is_near_one_that_measures(store):
    measured = sample_prompts.measured()
    assert {"showcase", "model card", "bench.py"} <= set(measured.values())
    assert sample_prompts.overlap(shipped_prompts(store), measured) == []


def test_the_store_holds_the_answers_to_the_prompts_of_the_tool(store):
    assert shipped_prompts(store) == sample_prompts.prompts()
    assert len(set(sample_prompts.prompts())) == store.manifest.documents == sample_prompts.MOST


@pytest.mark.parametrize("mine, theirs, near", [
    ("One two three four five six seven eight nine ten eleven twelve thirteen!",
     "zero ONE, two three four five six seven eight nine ten eleven twelve thirteen fourteen", True),
    ("one two three four five six seven eight nine ten eleven twelve",
     "zero one two three four five six seven eight nine ten eleven twelve more", False),
    ("Please: tell me a story about a fox, today", "Tell me a story about a fox.", True),
    ("Tell me a story about a dog", "Tell me a story about a fox.", False),
])  # fmt: skip
def test_what_counts_as_near(mine, theirs, near):
    assert sample_prompts.overlap([mine], [theirs]) == ([(mine, theirs)] if near else [])


def test_the_tool_refuses_prompts_that_are_too_near(monkeypatch, capsys):
    from spec_tui.learn.showcase_prompts import SHOWCASES

    monkeypatch.setattr(sample_prompts, "prompts", lambda: ["fine", SHOWCASES[0].prompt])
    monkeypatch.setattr(sys, "argv", ["build"])
    assert tool.main() == 1 and SHOWCASES[0].prompt in capsys.readouterr().out


def test_it_is_whole_small_and_of_the_sample_model(store, sample):
    store.verify()
    store.check_tokenizer(tokenizer_fingerprint(sample.tokenizer))
    store.check_model(sample.identity)
    assert store.manifest.kind == "both" and 50_000 <= store.manifest.tokens <= 120_000
    shipped = (ROOT / "sample_datastores").rglob("*")
    assert sum(p.stat().st_size for p in shipped if p.is_file()) <= 40e6
    assert recall(DenseStore(store)).value >= 0.85


@pytest.mark.parametrize("number", [2, 403])
def test_an_answer_is_what_the_model_says_alone(store, sample, number):
    part = DenseStore(store)
    begin, end = part.documents.bounds(number)
    spec = BuildSpec(tool.NAME, (ANSWERS,), max_new_tokens=tool.MAX_NEW_TOKENS, engine="autoregressive")
    *_, last = sample.run(spec.request(shipped_prompts(store)[number]))
    assert list(last.tokens) == part.tokens[begin:end].tolist()
