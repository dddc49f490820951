"""Training a draft model for a target from elsewhere, on a tiny one: answers, distillation, a file llama.cpp loads."""

from __future__ import annotations

import gzip
import json
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from engines import folders
from engines.datastores.building.build_datastore import build_datastore
from engines.datastores.building.corpus import Document
from engines.hub import local_models
from engines.hub.known_models import known_name, resolve
from engines.hub.model_source import locate
from engines.model.loading import load_models, load_tokenizer, read_model
from spec_tui.session import model_choices
from spec_tui.session.engine_commands import LoadRequest
from tests.conftest import ONE
from tests.sources.gguf_files import Tiny
from tests.test_sample_models import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import train_draft_model
from training import answers, draft_card, evaluate, foreign

WORDS = ("a cat", "the sea", "12 + 34", "an inn", "tin", "rain " * 40, "sun", "ice")
QUESTIONS = [f"what is {word}?" for word in WORDS]


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A tiny target, rows to ask it, and its answers."""
    folder = tmp_path_factory.mktemp("draft")
    Tiny("llama", "F32").write(folder / "target.gguf")
    (folder / "data").mkdir()
    with gzip.open(folder / "data" / "chat.jsonl.gz", "wt") as rows:
        for question in QUESTIONS:
            rows.write(json.dumps({"messages": [{"role": "user", "content": question}], "source": "-"}) + "\n")
    assert run(folder, "answers") == 0
    return folder


def run(folder, *arguments, work=None) -> int:
    threads = torch.get_num_threads()
    small = ["--rows", "3", "--longest", "12", "--longest-prompt", "60", "--steps", "4", "--hidden", "64"]
    small += ["--layers", "1"]
    common = ["--target", folder / "target.gguf", "--data", folder / "data", "--mlp", "64"]
    common += ["--work", work or folder / "work"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["train_draft_model.py", *map(str, [*arguments, *common]), *small])
        try:
            return train_draft_model.main()
        finally:
            torch.set_num_threads(threads)


def written(answers) -> list[dict]:
    return [json.loads(line) for line in (answers / "0000.jsonl").read_text().splitlines()]


@torch.no_grad()
def hold_what_the_target_says(answers, target, rounding: float) -> list[dict]:
    """The kept distributions of a shard are the target's, one answer at a time, within what bfloat16 rounds."""
    source = locate(str(target))
    model, tokenizer = read_model(source, torch.bfloat16, torch.device("cpu")), load_tokenizer(source)
    rows = written(answers)
    with np.load(answers / "0000.npz") as arrays:
        ends = np.cumsum(arrays["lengths"].sum(1))
        answered = np.cumsum(arrays["lengths"][:, 1])
        for row, (prompt, count), end, top_end in zip(rows, arrays["lengths"], ends, answered, strict=True):
            tokens = arrays["tokens"][end - count - prompt : end].tolist()
            messages = [{"role": "user", "content": row["prompt"]}]
            asked = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
            assert tokens[:prompt] == asked
            likely = model.float()(torch.tensor([tokens])).logits[0, prompt - 1 : -1].log_softmax(-1)
            kept = torch.from_numpy(arrays["top_tokens"][top_end - count : top_end].astype(np.int64))
            logprobs = torch.from_numpy(arrays["top_logprobs"][top_end - count : top_end].astype(np.float32))
            assert (likely.gather(1, kept) - logprobs).abs().max() < rounding
            row["greedy"] = kept[:, 0].tolist() == tokens[prompt:]
        return rows


def test_greedy_answers_are_what_the_model_generates(work):
    rows = hold_what_the_target_says(work / "work/answers", work / "target.gguf", 0.1)
    assert {row["prompt"] for row in rows} == {q for q in map(str.strip, QUESTIONS) if "rain" not in q}  # too long
    assert {row["temperature"] for row in rows} == {0.0, 0.8}
    assert all(row["greedy"] for row in rows if row["temperature"] == 0)


def test_answers_that_are_there_are_not_made_again(work):
    before = (work / "work/answers/0000.jsonl").stat().st_mtime_ns
    assert run(work, "answers") == 0
    assert (work / "work/answers/0000.jsonl").stat().st_mtime_ns == before
    assert not (work / "work/answers/0001.npz").exists()


def test_ctrl_c_keeps_the_answers_that_are_finished(work, tmp_path, monkeypatch):
    step = answers.Generator.step

    def interrupted(generator):
        if ended := step(generator):
            signal.raise_signal(signal.SIGINT)
        return ended

    with monkeypatch.context() as patch:
        patch.setattr(answers.Generator, "step", interrupted)
        assert run(work, "answers", work=tmp_path) != 0
    kept = {row["prompt"] for row in written(tmp_path / "answers")}
    assert 0 < len(kept) < 7
    assert run(work, "answers", work=tmp_path) == 0
    assert kept == {row["prompt"] for row in written(tmp_path / "answers")}
    assert len(answers.finished_prompts(tmp_path / "answers")) == 7


def test_ctrl_c_keeps_the_answers_that_were_just_read(work, tmp_path, monkeypatch):
    with gzip.open(tmp_path / "answered.jsonl.gz", "wt") as rows:
        rows.write((work / "work/answers/0000.jsonl").read_text())
    read = answers._read
    monkeypatch.setattr(answers, "SHARD", 4)
    monkeypatch.setattr(answers, "_read", lambda *given: (read(*given), signal.raise_signal(signal.SIGINT)))
    assert run(work, "answers", "--answered", tmp_path / "answered.jsonl.gz", work=tmp_path) != 0
    assert len(written(tmp_path / "answers")) == 4 and not (tmp_path / "answers/0001.npz").exists()


def test_a_disk_that_was_full_leaves_nothing_in_the_way(work, tmp_path, monkeypatch):
    def full(file, **arrays):
        Path(file).write_bytes(b"half")
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(answers.np, "savez", full)
        with pytest.raises(OSError, match="no space"):
            run(work, "answers", work=tmp_path)
    assert run(work, "answers", work=tmp_path) == 0 and len(written(tmp_path / "answers")) == 7


def test_answers_written_elsewhere_are_read_as_their_own(work, tmp_path):
    with gzip.open(tmp_path / "answered.jsonl.gz", "wt") as rows:
        rows.write((work / "work/answers/0000.jsonl").read_text())
    assert run(work, "answers", "--answered", tmp_path / "answered.jsonl.gz", work=tmp_path) == 0
    rows = hold_what_the_target_says(tmp_path / "answers", work / "target.gguf", 0.15)
    assert {row["prompt"] for row in rows} == {row["prompt"] for row in written(work / "work/answers")}
    assert not (tmp_path / "answers/0001.npz").exists()


def test_the_loss_is_the_divergence_from_the_target_s_distribution(work):
    batches = foreign.AnswerBatches(work / "work/answers", 200, 276, 0)
    target = read_model(locate(str(work / "target.gguf")), torch.float32, torch.device("cpu"))
    model = foreign.new_model(target, foreign.Size(64, 1, 64), 0)
    batches.whole_vocabulary = True
    batch = batches.batch(0)
    ours = model(batch.tokens).logits[batch.answered].log_softmax(-1)
    wanted = batch.top_logprobs.exp()
    known = (wanted * (batch.top_logprobs - ours.gather(1, batch.top_tokens))).sum(-1)
    rest, others = 1 - wanted.sum(-1), 1 - ours.gather(1, batch.top_tokens).exp().sum(-1)
    expected = (known + rest * (rest / others).log()).mean()
    assert foreign.divergence(model, batch).item() == pytest.approx(expected.item(), rel=0.02)
    batches.restore([0, 0])
    batches.whole_vocabulary = False  # 276 tokens are all among the frequent ones
    assert foreign.divergence(model, batches.batch(0)).item() == pytest.approx(expected.item(), rel=0.02)


def test_stopped_and_resumed_training_equals_training_in_one_go(work, tmp_path):
    assert run(work, "train") == 0
    whole = (work / "work/draft/model.safetensors").read_bytes()
    for checkpoint in (work / "work").glob("*.checkpoint.pt"):
        checkpoint.unlink()
    stops = 0
    while run(work, "train", "--resume", "--stop-after", "3"):
        stops += 1
        assert stops < 5
    assert stops == 2 and (work / "work/draft/model.safetensors").read_bytes() == whole


def test_the_file_is_a_draft_model_of_the_target_here_and_in_llama_cpp(work):
    from tests.sources.llama_cpp import LlamaCpp

    assert run(work, "train", "--resume") == 0 and run(work, "export") == 0
    path = work / "work/draft-Q8_0.gguf"
    trained = foreign.LlamaForCausalLM.from_pretrained(work / "work/draft", dtype=torch.float32)
    read = read_model(locate(str(path)), torch.float32, torch.device("cpu"))
    prompt = [5, 80, 81, 90, 7, 100]
    ours = read(torch.tensor([prompt])).logits[0, -1].log_softmax(-1)
    assert (ours - trained(torch.tensor([prompt])).logits[0, -1].log_softmax(-1)).abs().max() < 0.1  # 8 bits
    theirs = LlamaCpp(path).logprobs(prompt, 100, ord("a"))
    assert max(abs(ours[token].item() - value) for token, value in theirs.items()) < 0.1
    assert load_tokenizer(str(path)).get_vocab() == load_tokenizer(str(work / "target.gguf")).get_vocab()


@pytest.mark.parametrize("right, chain, count", [
    ("", 4, 0), ("1111", 4, 1), ("11111", 4, 1), ("111111", 4, 2), ("0000", 4, 4), ("1101", 4, 2), ("10101", 1, 3),
])  # fmt: skip
def test_rounds_of_chains(right, chain, count):
    assert evaluate.rounds([mark == "1" for mark in right], chain) == count


class Answered:
    """A corpus of answers: to a question that was asked, and to two that were not."""

    unit, total = "answers", 3

    def __init__(self, tokens):
        self.identity, self.tokens = {"kind": "answers"}, tokens

    def documents(self, resume=None):
        for number, prompt in enumerate(("What is... the SEA?", "write a function: inn", "why?")):
            yield Document(prompt, tokens=self.tokens), number + 1


@pytest.fixture(scope="module")
def shipped(work, tmp_path_factory):
    """The tiny draft model as it ships, with its card."""
    folder, tokenizer = tmp_path_factory.mktemp("models"), load_tokenizer(str(work / "target.gguf"))
    store = build_datastore("held-out", Answered(tokenizer("a tin cat").input_ids), tokenizer, replace=True)
    assert run(work, "train", "--resume") == 0
    assert run(work, "ship", "--held-out", store.folder, "--out", folder / "tiny-draft") == 0
    return folder


def test_the_card_says_how_often_it_guesses_what_it_was_not_trained_on(work, shipped):
    folder = shipped / "tiny-draft"
    measured = json.loads((folder / "measured.json").read_text(encoding="utf-8"))
    draft = read_model(locate(str(folder / "tiny-draft-Q8_0.gguf")), torch.float32, torch.device("cpu"))
    tokenizer = load_tokenizer(str(work / "target.gguf"))
    answer, same = tokenizer("a tin cat").input_ids, 0
    for prompt in ("write a function: inn", "why?"):
        messages = [{"role": "user", "content": prompt}]
        tokens = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False) + answer
        guesses = draft(torch.tensor([tokens])).logits[0].argmax(-1)
        same += sum(int(guesses[i - 1]) == tokens[i] for i in range(len(tokens) - len(answer), len(tokens)))
    found = measured["agreement"]
    assert found["all"] | {"rounds": 0} == {"answers": 2, "tokens": 2 * len(answer), "same": same, "rounds": 0}
    assert set(found) == {"code", "questions", "all"} and measured["left_out"] == 1
    assert (folder / "README.md").read_text(encoding="utf-8") == draft_card.render(measured)
    assert "Apache-2.0" in draft_card.render(measured)


def test_a_target_takes_the_usual_draft_model_that_has_its_tokens(work, shipped, monkeypatch):
    for name in folders.PAIR:
        (shipped / name).exists() or (shipped / name).symlink_to(folders.sample_model(name))
    monkeypatch.setattr(folders, "_samples", lambda kind: shipped)
    file = shipped / "tiny-draft" / "tiny-draft-Q8_0.gguf"
    assert folders.sample_models() == ("target", "draft", "tiny-draft")
    assert resolve("tiny-draft") == str(file) and known_name(str(file)) == known_name("tiny-draft") == "tiny-draft"
    target, sample = str(work / "target.gguf"), str(shipped / "target")
    assert local_models.usual_draft(Path(target)).place == file
    assert local_models.usual_draft(Path(sample)).title == "sample draft"
    found = {}
    for name in (target, sample):
        *_, draft, warnings = load_models(replace(ONE, model=name))
        found[name] = draft.model.name
        assert not warnings
    assert found == {target: str(file), sample: str(shipped / "draft")}
    names = {model["name"]: model["role"] for model in local_models.shipped()}
    assert names == {"sample target": "target", "sample draft": "draft", "tiny-draft": "draft"}
    choices = model_choices.targets(LoadRequest(model=target))
    assert [choice.title for choice in choices if choice.origin == "ships with the program"] == ["sample target"]
    mine = next(choice for choice in choices if str(choice.folder) == target)
    first = model_choices.drafts(mine, choices)[0]
    assert (first.name, first.title, first.fits) == (None, "tiny-draft", True)
