"""End to end: what whole runs on a real model write, over many seeds, against the model's exact distribution.

The seeds are fixed, so nothing here is left to chance. The biased laws fail the same test by far, which shows that it
would see a bias. Small biases are the business of ``test_laws``, where every outcome is enumerated.
"""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from engines import Request, measure
from tests.conftest import make_llama
from tests.tiers import some

PROMPT = (("user", "abc"),)
TEMPERATURE, TOP_K, NEW, RUNS = 0.9, 3, 4, 240  # 81 texts; the last three tokens are drafted, or follow a draft
CHAIN = {"budget": "paper", "num_tokens": 2, "confidence": 0.0}
TREE = {"budget": "paper", "shape": "tree", "depth": 2, "top_k": 3}
LOSSLESS = {
    "exact": ("exact", TREE),
    "chain": ("rejection", CHAIN),
    "block": ("block", CHAIN),
    "independent": ("rejection", TREE | {"draw": "independent"}),
    "distinct": ("rejection", TREE | {"draw": "distinct"}),
}
BIASED = {"redraw": ("redraw", TREE | {"top_k": 2}), "typical": ("typical", TREE)}


@pytest.fixture(scope="module")
def texts(tiny) -> dict[tuple[int, ...], float]:
    """The probability of every text, by plain forwards of transformers."""
    model = make_llama(1, layers=3)
    prompt = tiny.tokenizer.apply_chat_template(
        [{"role": "user", "content": PROMPT[0][1]}], add_generation_prompt=True
    )["input_ids"]
    out: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(NEW):
        with torch.inference_mode():
            logits = model(torch.tensor([[*prompt, *text] for text in out])).logits[:, -1].double() / TEMPERATURE
        best = logits.topk(TOP_K)
        shares = best.values.softmax(-1).tolist()
        out = {
            (*text, token): weight * share
            for (text, weight), tokens, row in zip(out.items(), best.indices.tolist(), shares)
            for token, share in zip(tokens, row)
        }
    assert not any(tiny.end_tokens & set(text) for text in out)
    return out


def observe(tiny, law: str, options: dict) -> tuple[Counter, float]:
    """Texts of many seeds, and how many tokens a forward brought."""
    counts, tokens, forwards = Counter(), 0, 0
    for seed in range(RUNS):
        request = Request(
            PROMPT, "draft", options, law=law, temperature=TEMPERATURE, top_k=TOP_K, seed=seed, max_new_tokens=NEW
        )
        events = list(tiny.run(request))
        counts[events[-1].tokens] += 1
        metrics = measure(events)
        tokens, forwards = tokens + metrics.new_tokens - 1, forwards + metrics.target_forwards
    return counts, tokens / forwards


def g_test(counts: Counter, expected: dict[tuple[int, ...], float]) -> float:
    """p-value of the likelihood ratio test; texts expected fewer than five times are one class."""
    assert counts.keys() <= expected.keys(), "a text that the model cannot write"
    total = counts.total()
    classes = {text: text if p * total >= 5 else None for text, p in expected.items()}
    want, got = Counter(), Counter()
    for text, of in classes.items():
        want[of] += expected[text] * total
        got[of] += counts[text]
    g = 2 * sum(n * math.log(n / want[of]) for of, n in got.items() if n)
    return float(torch.special.gammaincc(torch.tensor((len(want) - 1) / 2), torch.tensor(g / 2).double()))


@pytest.mark.parametrize("name", some([*LOSSLESS], lambda name: name in ("exact", "block", "distinct")))
def test_lossless_laws_write_what_the_model_would_write(tiny, texts, name):
    counts, length = observe(tiny, *LOSSLESS[name])
    assert g_test(counts, texts) > 0.01
    assert length > 1.2, "too few drafts are accepted for this to prove anything"


@pytest.mark.parametrize("name", some([*BIASED], lambda name: name == "redraw"))
def test_biased_laws_fail_the_same_test(tiny, texts, name):
    counts, _ = observe(tiny, *BIASED[name])
    assert g_test(counts, texts) < 1e-6
