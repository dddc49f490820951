"""The datastores that ship: whose answers they hold, and that no prompt that measures is near their prompts."""

from __future__ import annotations

import ast
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from engines import load
from engines.datastores.building.build_spec import ANSWERS, BuildSpec
from engines.datastores.building.hidden_states import HiddenStates
from engines.datastores.building.model_answers import ModelAnswers
from engines.datastores.search.dense import DenseStore, recall
from engines.datastores.storage.datastore import Documents, Store
from engines.datastores.storage.manifest import tokenizer_fingerprint
from tests.conftest import SMOLLM2

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import build_sample_datastores as tool  # noqa: E402
import sample_prompts  # noqa: E402


@pytest.fixture(scope="module")
def store():
    return opened("sample")


def opened(name):
    return Store(ROOT / "sample_datastores" / name)


def shipped_prompts(store):
    documents = Documents(store)
    return [documents.place(documents.bounds(number)[0]).source for number in range(len(documents))]


def texts_of_the_repository():
    """Constants of the tests and of the program that may be prompts, each with its file; and the lessons."""
    found = {}
    for file in [*(ROOT / "tests").rglob("*.py"), *(ROOT / "spec_tui").rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                found[node.value] = file.name
    return found | {file.read_text("utf-8"): file.name for file in (ROOT / "spec_tui").rglob("*.toml")}


@pytest.mark.parametrize("name", tool.STORES)
def test_no_prompt_of_a_store_is_near_one_that_measures(name):
    measured = sample_prompts.measured()
    places = {"showcase", "model card", "bench.py", "arithmetic.py", "bench_untrained.py", "code_editing.jsonl"}
    assert places <= set(measured.values())
    assert tool.STORES[name].overlap(measured) == []


def test_no_prompt_of_smollm2s_store_is_in_a_test_or_a_lesson():
    kept = tool.STORES["smollm2"]
    texts = texts_of_the_repository()
    same = {" ".join(sample_prompts.words(text)) for text in texts}
    assert not [prompt for prompt in kept.prompts() if " ".join(sample_prompts.words(prompt)) in same]
    long = {text: file for text, file in texts.items() if len(sample_prompts.words(text)) >= kept.shared_words}
    assert kept.overlap(long) == []


@pytest.mark.parametrize("name", tool.STORES)
def test_a_store_holds_the_answers_to_the_prompts_of_the_tool(name):
    store, prompts = opened(name), tool.STORES[name].prompts()
    assert shipped_prompts(store) == prompts
    assert len(set(prompts)) == store.manifest.documents >= 280
    store.verify()


def test_answers_that_a_store_holds_are_not_made_again():
    spec = BuildSpec("x", (ANSWERS,), max_new_tokens=200)
    made = opened("smollm2").manifest.parameters["sources"]
    prompts = [*tool.smollm2_prompts()[:2], "one that is new"]

    def asked(model="", **spec_of):
        runtime = SimpleNamespace(
            identity=SimpleNamespace(fingerprint=model or made["model"]),
            run=lambda request: iter([SimpleNamespace(tokens=[request.conversation[-1][1]])]),
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ModelAnswers, "_checked", lambda self, number: 0)
            answers = tool.KeptAnswers(opened("smollm2").folder, runtime, prompts, replace(spec, **spec_of))
        return [list(document.tokens) == [document.source] for document, _ in answers.documents()]

    assert asked() == [False, False, True]
    assert asked(model="another") == asked(max_new_tokens=9) == [True, True, True]


@pytest.mark.parametrize("mine, theirs, near", [
    ("One two three four five six seven eight nine ten eleven twelve thirteen!",
     "zero ONE, two three four five six seven eight nine ten eleven twelve thirteen fourteen", True),
    ("zero one two three four five six seven eight nine ten eleven twelve",
     "one two three four five six seven eight nine ten eleven twelve thirteen", False),
    ("Please: tell me a story about a fox, today", "Tell me a story about a fox.", True),
    ("Tell me a story about a fox.", "Please: tell me a story about a fox, today", True),
    ("Tell me a story about a dog", "Tell me a story about a fox.", False),
])  # fmt: skip
def test_what_counts_as_near(mine, theirs, near):
    assert sample_prompts.overlap([mine], [theirs]) == ([(mine, theirs)] if near else [])


def test_the_tool_refuses_prompts_that_are_too_near(monkeypatch, capsys):
    from spec_tui.learn.showcase_prompts import SHOWCASES

    monkeypatch.setattr(sample_prompts, "prompts", lambda: ["fine", SHOWCASES[0].prompt])
    monkeypatch.setattr(sys, "argv", ["build", "sample"])
    assert tool.main() == 1 and SHOWCASES[0].prompt in capsys.readouterr().out


def test_it_is_small_and_of_the_sample_model(store, sample):
    store.check_tokenizer(tokenizer_fingerprint(sample.tokenizer))
    store.check_model(sample.identity)
    assert store.manifest.kind == "both" and 50_000 <= store.manifest.tokens <= 120_000
    assert size(store) <= 20e6 and recall(DenseStore(store)).value >= 0.85


@pytest.mark.thorough
def test_smollm2s_is_small_and_found_with_it(smollm2):
    store = opened("smollm2")
    store.check_tokenizer(tokenizer_fingerprint(smollm2.tokenizer))
    assert store.manifest.kind == "sparse" and store.manifest.tokens >= 300_000 and size(store) <= 3e6
    assert smollm2.open_datastores.default() == ("smollm2",)
    assert smollm2.open_datastores.default(dense=True) == ("smollm2-dense",)


def test_smollm2s_keys_are_of_its_hidden_states_and_fit_into_24_mb(smollm2):
    store = opened("smollm2-dense")
    store.check_model(smollm2.identity)
    assert store.manifest.keys >= 100_000 and size(store) <= 24e6 and recall(DenseStore(store)).value >= 0.85
    dense, documents = DenseStore(store), Documents(store)
    begin, end = next((b, e) for b, e in map(documents.bounds, range(len(documents))) if 20 <= e - b <= 40)
    spec = BuildSpec("x", (ANSWERS,), max_new_tokens=200)
    before = ModelAnswers(smollm2, [documents.place(begin).source], spec).context(0)
    read = np.array([*before, *store.array("tokens")[begin:end]])
    [states] = HiddenStates(smollm2.target, smollm2.identity)([read])
    chosen = np.flatnonzero((dense.positions >= begin) & (dense.positions < end))
    keys = dense.reduction(states[len(before) - 1 - begin + dense.positions[chosen]])
    assert len(chosen) >= 15 and ((keys * dense.keys[chosen]).sum(1) > 0.99).all()


def size(store):
    return sum(path.stat().st_size for path in store.folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("number", [2, 403])
def test_an_answer_is_what_the_model_says_alone(store, sample, number):
    begin, end = Documents(store).bounds(number)
    request = spec_of(store).request(shipped_prompts(store)[number])
    assert list(list(sample.run(request))[-1].tokens) == store.array("tokens")[begin:end].tolist()


@pytest.mark.parametrize("number", [3, 700, 1600])
def test_an_answer_is_what_smollm2_says_as_far_as_rounding_lets_it(number):
    """Inputs rounded to 8 bits turn the last bits of a processor's sums into steps: some of its near ties differ."""
    if not SMOLLM2.is_file():
        pytest.skip("smollm2 is not on this machine: spec-tui model get smollm2 fetches it")
    smollm2, store = load(str(SMOLLM2)), opened("smollm2")
    begin, end = Documents(store).bounds(number)
    answer = store.array("tokens")[begin:end].tolist()
    before = ModelAnswers(smollm2, [shipped_prompts(store)[number]], spec_of(store)).context(0)
    smollm2.target.extend(before)
    logits = smollm2.target.forward(answer[:-1], range(-1, len(answer) - 2))
    gaps = logits.amax(1) - logits.gather(1, torch.tensor(answer[1:])[:, None])[:, 0]
    assert (gaps == 0).float().mean() >= 0.9 and (gaps / logits.std(1)).max() < 0.2


def test_an_answer_without_near_ties_is_what_smollm2_says_alone():
    if not SMOLLM2.is_file():
        pytest.skip("smollm2 is not on this machine: spec-tui model get smollm2 fetches it")
    smollm2, store = load(str(SMOLLM2)), opened("smollm2")
    documents, prompts = Documents(store), shipped_prompts(store)
    for number, (begin, end) in enumerate(map(documents.bounds, range(len(documents)))):
        answer = store.array("tokens")[begin:end].tolist()
        if not 20 <= len(answer) <= 40:
            continue
        smollm2.target.truncate(0)
        first = smollm2.target.extend(ModelAnswers(smollm2, [prompts[number]], spec_of(store)).context(0))
        logits = torch.cat([first[None], smollm2.target.forward(answer[:-1], range(-1, len(answer) - 2))])
        best = logits.topk(2, dim=1).values
        if ((best[:, 0] - best[:, 1]) / logits.std(1)).min() > 0.2:
            break
    else:
        pytest.fail("no short answer is without near ties")
    *_, last = smollm2.run(spec_of(store).request(prompts[number]))
    assert list(last.tokens) == answer


def spec_of(store):
    made = tool.STORES[store.name]
    return BuildSpec(made.name, (ANSWERS,), max_new_tokens=made.max_new_tokens, engine="autoregressive")
