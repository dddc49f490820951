"""Training a draft model for a target from elsewhere, on a tiny one: answers, distillation, a file llama.cpp loads."""

from __future__ import annotations

import gzip
import json
import sys

import numpy as np
import pytest
import torch

from engines.hub.model_source import locate
from engines.model.loading import load_tokenizer, read_model
from tests.sources.gguf_files import Tiny
from tests.test_sample_models import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import train_draft_model
from training import foreign

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
