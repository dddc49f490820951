"""smollm2 by how its weights lie in memory: what a token and a forward of several rows cost, and how a text is read."""

from __future__ import annotations

import sys
from math import exp
from pathlib import Path
from time import perf_counter

from benches.rows import Row, shuffled
from benches.shapes import decode, forward_seconds, random_tokens
from engines.model.load_options import LoadOptions

MODEL = "smollm2"
PROMPT, ROWS = 64, (4, 8)
TEXT = Path(__file__).parents[2] / "docs" / "architecture.md"
_KINDS = {  # dtype, --quantize, --native
    "float32": ("float32", "none", True), "bfloat16": ("bfloat16", "none", True), "int8": ("float32", "int8", True),
    "as stored": ("float32", "auto", True), "float32 by torch": ("float32", "none", False),
}


def bench_quantised(repeats: int) -> list[Row]:
    """Autoregressive decoding of each kind of weights against bfloat16 and float32, forwards of several rows against
    one of their own, the memory's bandwidth by a copy, and how a text is read; nothing where the model is not here."""
    from engines.hub.known_models import KNOWN

    if not KNOWN[MODEL].path.is_file():
        print(f"{MODEL} is not here: spec-tui model get {MODEL}", file=sys.stderr)
        return []
    models = {name: _load(name) for name in _KINDS}
    prompt = random_tokens(PROMPT, 40_000)
    rates: dict[str, list[float]] = {name: [] for name in models}
    several: dict[tuple[str, int], list[float]] = {(name, rows): [] for name in models for rows in ROWS}
    copies = []
    for repeat in range(repeats + 1):  # the first is the warm-up
        for name in shuffled(models, repeat):
            answer, seconds = decode(models[name], prompt)
            rates[name].append((len(answer) - 1) / seconds)
            for rows in ROWS:
                several[name, rows].append(forward_seconds(models[name], rows) * rates[name][-1])
        copies.append(_copy())
    rates, several = ({name: samples[1:] for name, samples in found.items()} for found in (rates, several))
    rows = [Row(f"{MODEL}, {name}", rates[name], "tokens/s") for name in models]
    pairs = (("int8", "bfloat16", ">= 1.5"), ("as stored", "bfloat16", ""), ("as stored", "float32", ""),
             ("float32", "float32 by torch", ""))
    for name, other, bound in pairs:
        ratios = [a / b for a, b in zip(rates[name], rates[other])]
        rows.append(Row(f"{MODEL}, {name} / {other}", ratios, "x", bound))
    rows += [Row(f"{MODEL}, {name}: a forward of {count} rows / a round", samples, "x")
             for (name, count), samples in several.items()]
    rows.append(Row("memory, by a copy (read and written)", copies[1:], "GB/s"))
    return [*rows, *_readings(models)]


def _readings(models: dict) -> list[Row]:
    """Of each kind of weights: their size, the perplexity of a text of this project, and how often the most probable
    token after its tokens is that of the first kind."""
    from engines.model.loading import load_tokenizer

    tokens = load_tokenizer(MODEL).encode(TEXT.read_text("utf-8"))
    rows, favourites = [], None
    for name, model in models.items():
        logits = model.forward(tokens, range(-1, len(tokens) - 1))[:-1].float()
        model.drop()
        of_next = logits.log_softmax(-1)[range(len(tokens) - 1), tokens[1:]]
        own = logits.argmax(-1)
        favourites = own if favourites is None else favourites
        same = (own == favourites).float().mean().item()
        rows += [
            Row(f"{MODEL}, {name}: weights", [model.weight_bytes / 1e6], "MB"),
            Row(f"{MODEL}, {name}: perplexity of {len(tokens)} tokens", [exp(-of_next.mean().item())], ""),
            Row(f"{MODEL}, {name}: the most probable token of float32", [100 * same], "%"),
        ]
    return rows


def _load(name: str):
    import torch

    from engines.model.loading import load_model

    dtype, quantize, native = _KINDS[name]
    threads = min(2, torch.get_num_threads())
    how = LoadOptions(dtype=dtype, device="cpu", threads=threads, native=native, quantize=quantize)
    model = load_model(MODEL, how)
    size = model.weight_bytes / 1e6
    print(f"{MODEL}, {name}: {threads} threads, {model.backend}, {size:.0f} MB", file=sys.stderr, flush=True)
    return model


def _copy() -> float:
    """10^9 bytes a second that a copy of 128 MB reads and writes."""
    import torch

    source = torch.ones(1 << 25)
    target = torch.empty_like(source)
    target.copy_(source)
    clock = perf_counter()
    target.copy_(source)
    return 2 * source.nbytes / (perf_counter() - clock) / 1e9
