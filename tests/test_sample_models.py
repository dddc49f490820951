"""The shipped pair, and a tiny run of the scripts that train such a pair and write its card."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import signal
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "sample_models"
KINDS = ("target", "draft")

sys.path.insert(0, str(ROOT / "tools"))

import make_model_card  # noqa: E402
import train_sample_models  # noqa: E402
from training import card, functions, loop, stages, streams, sublayers  # noqa: E402


def settings(kind: str, name: str) -> dict:
    return json.loads((SAMPLES / kind / name).read_text(encoding="utf-8"))


# --- the shipped pair ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_loads_with_plain_transformers_as_bfloat16(kind):
    model = AutoModelForCausalLM.from_pretrained(SAMPLES / kind, dtype="auto")
    assert model.config.model_type == "llama"
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert not list((SAMPLES / kind).glob("*.bin"))


def test_one_tokenizer():
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (SAMPLES / "target" / name).read_bytes() == (SAMPLES / "draft" / name).read_bytes()


def test_size():
    assert sum(f.stat().st_size for f in SAMPLES.rglob("*") if f.is_file()) < 64e6


@pytest.mark.parametrize("kind", KINDS)
def test_config_and_tokenizer_state_the_same_context(kind):
    context = settings(kind, "config.json")["max_position_embeddings"]
    assert context >= 512
    assert settings(kind, "tokenizer_config.json")["model_max_length"] == context


@pytest.mark.parametrize("kind", KINDS)
def test_generation_config_says_only_what_it_must(kind):
    assert settings(kind, "generation_config.json") == {
        "do_sample": False,
        "eos_token_id": 5,
        "pad_token_id": 1,
    }


def test_chat_template_of_several_turns():
    tokenizer = AutoTokenizer.from_pretrained(SAMPLES / "target")
    turns = [("system", "Be brief."), ("user", " Hi "), ("assistant", "Hello!"), ("user", "Bye")]
    messages = [{"role": role, "content": content} for role, content in turns]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    expected = "<|system|>\nBe brief.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\nHello!<|end|>\n"
    assert text == expected + "<|user|>\nBye<|end|>\n<|assistant|>\n"
    assert tokenizer.encode("<|end|>", add_special_tokens=False) == [tokenizer.eos_token_id] == [5]


@pytest.mark.parametrize(
    "text", ["def f(x):\n\treturn  x\n", "Grüße, 世界 🙂", "a  b\n\n\n c 1234", " lead", "\x00\x7f"]
)
def test_tokenizer_round_trip(text):
    tokenizer = AutoTokenizer.from_pretrained(SAMPLES / "draft")
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_card_is_about_these_weights_and_has_all_parts():
    text = (SAMPLES / "README.md").read_text(encoding="utf-8")
    for part in ("Recipe", "held-out", "with and without dropped", "Twenty prompts", "Ten small functions"):
        assert part in text
    for part in ("can't do", "Sources and licences", "CC-BY-4.0", "PSF-2.0", "MIT", "Apache-2.0"):
        assert part in text
    measured = json.loads((SAMPLES / "measured.json").read_text(encoding="utf-8"))
    for kind in KINDS:
        weights = (SAMPLES / kind / "model.safetensors").read_bytes()
        assert measured["models"][kind]["sha256"] == hashlib.sha256(weights).hexdigest()
    assert len(measured["prompts"]["answers"]) == 20
    assert len(measured["functions"]["answers"]) == 10
    training = json.loads((SAMPLES / "training.json").read_text(encoding="utf-8"))
    texts = json.loads((ROOT / "tools/card_texts.json").read_text(encoding="utf-8"))
    assert text == card.render(measured, training, texts), "run tools/make_model_card.py"


# --- a tiny run of the scripts ------------------------------------------------------------------

SHAPE = ["--tiny", "--context", "32", "--batch-tokens", "128", "--vocabulary", "300"]
TINY = [*SHAPE, "--threads", "1", "--device", "cpu", "--steps", "4"]


def write_rows(path: Path, rows: list[dict]) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder of made-up rows in the form of the training data."""
    folder, rng = tmp_path_factory.mktemp("data"), random.Random(0)
    words = ["red", "blue", "cat", "dog", "tree", "runs", "sees", "the", "a", "and"]

    def sentence(n):
        return " ".join(rng.choice(words) for _ in range(n))

    def chat():
        messages = [{"role": "user", "content": sentence(5)}, {"role": "assistant", "content": sentence(9)}]
        return {"messages": messages, "source": "made up", "license": "own"}

    for suffix, count in (("", 40), (".valid", 4)):
        write_rows(folder / f"chat{suffix}.jsonl.gz", [chat() for _ in range(count)])
        write_rows(folder / f"chat_own{suffix}.jsonl.gz", [chat() for _ in range(count)])
    stories = [{"text": sentence(80), "source": "made up", "license": "MIT"} for _ in range(10)]
    write_rows(
        folder / "stories.jsonl.gz", [*stories, {"text": "secret", "source": "GPTeacher", "license": "?"}]
    )
    return folder


def run(monkeypatch, *arguments) -> int:
    threads = torch.get_num_threads()
    monkeypatch.setattr(sys, "argv", ["train_sample_models.py", *map(str, arguments), *TINY])
    try:
        return train_sample_models.main()
    finally:
        torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """A pair trained in one go, and the folder it was installed in."""
    work, out = tmp_path_factory.mktemp("work"), tmp_path_factory.mktemp("out")
    with pytest.MonkeyPatch.context() as patch:
        assert run(patch, "all", "--data", data, "--work", work, "--install", out) == 0
    return work, out


def test_tiny_run_makes_a_pair(trained):
    _, out = trained
    for kind in KINDS:
        model = AutoModelForCausalLM.from_pretrained(out / kind, dtype="auto")
        tokenizer = AutoTokenizer.from_pretrained(out / kind)
        assert model.dtype == torch.bfloat16
        assert model.config.max_position_embeddings == tokenizer.model_max_length == 32
        assert tokenizer.encode("<|user|>", add_special_tokens=False) == [2]
    reports = json.loads((out / "training.json").read_text(encoding="utf-8"))
    assert [(r["steps"], r["tokens"]) for r in reports.values()] == [(4, 512)] * 3


def test_interrupted_and_resumed_equals_uninterrupted(trained, data, tmp_path, monkeypatch, capsys):
    work, _ = trained
    stops = 0
    while run(monkeypatch, "all", "--data", data, "--work", tmp_path, "--resume", "--stop-after", 3):
        stops += 1
        assert stops < 10
    assert stops == 3
    assert "resumed at step 3" in capsys.readouterr().err
    for kind in KINDS:
        again = (tmp_path / kind / "model.safetensors").read_bytes()
        assert again == (work / kind / "model.safetensors").read_bytes()


def test_continuing_from_a_pair_reuses_its_tokenizer(trained, data, tmp_path, monkeypatch):
    work, _ = trained
    start = ("--tokenizer", work / "target", "--init-target", work / "target", "--init-draft", work / "draft")
    assert run(monkeypatch, "all", "--data", data, "--work", tmp_path, *start) == 0
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert json.loads((tmp_path / "draft" / name).read_text()) == json.loads((work / "draft" / name).read_text())
    assert json.loads((tmp_path / "target.json").read_text(encoding="utf-8"))["continued"] is True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prepare", "--work", "w"], "--data DIR"),
        (["target", "--work", "w", "--context", "0"], "above zero"),
        (["target", "--work", "w", "--init-target", "nowhere"], "no model with a tokenizer"),
        (["bake", "--work", "w"], "invalid choice"),
    ],
)
def test_wrong_arguments_are_explained(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train_sample_models.py", *arguments])
    with pytest.raises(SystemExit):
        train_sample_models.main()
    assert message in capsys.readouterr().err


def test_card_of_the_tiny_pair(trained, data, monkeypatch):
    _, out = trained
    monkeypatch.setattr(make_model_card, "ANSWER_TOKENS", 3)
    monkeypatch.setattr(sys, "argv", ["x", "--models", str(out), "--data", str(data), "--threads", "1"])
    assert make_model_card.main() == 0
    text = (out / "README.md").read_text(encoding="utf-8")
    assert "at random, as in training" in text and "### 20" in text and "**0 of\n10 pass**" in text
    assert "| made up | MIT | 10 |" in text and "GPTeacher" not in text

    monkeypatch.setattr(
        sys, "argv", ["x", "--models", str(out), "--data", str(out / "none"), "--threads", "1"]
    )
    assert make_model_card.main() == 0
    assert (out / "README.md").read_text(encoding="utf-8") == text


# --- parts ----------------------------------------------------------------------------------------


def test_windows_cover_the_stream():
    starts = streams.window_starts([0, 5, 30, 33], total=40, length=10)
    covered = {token for start in starts for token in range(start, start + 10)}
    assert covered == set(range(40))
    assert all(0 <= start <= 30 for start in starts)


def test_gates_drop_sublayers():
    options = stages.Options(work=Path(), minutes={}, context=32, vocabulary=300, tiny=True)
    model = stages.new_model("target", options, None).eval()
    tokens = torch.arange(20)[None]
    with torch.no_grad():
        plain = model(tokens).logits
        gates = sublayers.SublayerGates(model)
        gates.values = torch.ones(6, 1)
        assert torch.equal(model(tokens).logits, plain)
        gates.values = torch.zeros(6, 1)
        bare = model.lm_head(model.model.norm(model.model.embed_tokens(tokens)))
        assert torch.allclose(model(tokens).logits, bare)
        gates.remove()
        assert torch.equal(model(tokens).logits, plain)


def test_drop_probabilities_rise_and_gates_keep_the_mean():
    chances = sublayers.drop_probabilities(12, 0.2, 0.1)
    assert chances[:2].tolist() == [0, 0] and chances[-2:].tolist() == pytest.approx([0.2, 0.1])
    gates = sublayers.random_gates(chances, 20000, seed=1)
    assert torch.allclose(gates.mean(dim=1), torch.ones(24), atol=0.02)


def test_a_signal_only_asks_for_an_end():
    with loop.Interrupt() as interrupt:
        signal.raise_signal(signal.SIGINT)
        assert interrupt.requested


def test_functions_run_apart_and_in_time():
    answer = "Sure:\n```python\ndef f(x):\n    return 2 * x\n```\nDone."
    assert functions.passes(answer, ["f(2) == 4"])
    assert not functions.passes(answer, ["f(2) == 5"])
    assert not functions.passes("```python\nwhile True:\n    pass\n```", ["True"], seconds=0.5)
    assert not functions.passes("raise SystemExit(0)", ["True"])


def test_answers_cannot_break_the_card():
    block = card.fenced("```\n# not a heading\n\x1b[31m ````")
    assert block.splitlines()[0] == "`````text" and block.splitlines()[-1] == "`````"
    assert "\x1b" not in block and "\\u001b" in block
