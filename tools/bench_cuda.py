"""What the GPU path promises, measured on a GPU: models with random weights, half precision, batch 1.

    python tools/bench_cuda.py [--shape llama-7b|qwen2-0.5b|sample|tiny]... [--dtype bfloat16|float16] [--context N]

For each shape: autoregressive tokens a second against the limit of the memory (the bytes of the weights that a token
reads, over the bandwidth of a copy measured here), and t(n) / t(1) up to 64 rows; with the forward as it is loaded and,
to compare, without CUDA graphs. Bounds are of the 7B shape: at least 80% of the limit, and t(64) at most 1.2 t(1).
Where there is no CUDA device it says so and measures nothing; --device cpu tries the tool, not the bounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from time import perf_counter

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from engines.core.sampling import to_numpy
from engines.model.causal_model import CausalModel
from engines.model.lean_forward import LeanForward
from engines.model.load_options import LoadOptions
from engines.model.loading import wrap

SHARE, RATIO = 0.80, 1.2
SIZES = (1, 2, 4, 8, 16, 32, 64)
_COPY = {"cuda": 4 << 30, "cpu": 64 << 20}  # bytes
_ENDS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "max_position_embeddings": 4096}
SHAPES: dict[str, Callable[[], torch.nn.Module]] = {
    "llama-7b": lambda: LlamaForCausalLM(LlamaConfig(
        vocab_size=32000, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=32, **_ENDS,
    )),
    "qwen2-0.5b": lambda: Qwen2ForCausalLM(Qwen2Config(
        vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
        num_key_value_heads=2, tie_word_embeddings=True, **_ENDS,
    )),
    "sample": lambda: LlamaForCausalLM(LlamaConfig(
        vocab_size=8192, hidden_size=256, intermediate_size=688, num_hidden_layers=12, num_attention_heads=4,
        num_key_value_heads=4, tie_word_embeddings=True, **_ENDS,
    )),
    "tiny": lambda: LlamaForCausalLM(LlamaConfig(
        vocab_size=260, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, **_ENDS,
    )),
}


def build(shape: str, dtype: torch.dtype, device: torch.device) -> CausalModel:
    """A loaded model of random weights, made where it will run."""
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model = SHAPES[shape]()
    finally:
        torch.set_default_dtype(before)
    return wrap(model, f"{shape} shape", LoadOptions(threads=torch.get_num_threads()))


def bandwidth(device: torch.device, repeats: int = 10) -> float:
    """Bytes a second that a copy reads and writes, the best of a few."""
    source = torch.zeros(_COPY[device.type], dtype=torch.uint8, device=device)
    target, best = torch.empty_like(source), float("inf")
    for _ in range(repeats):
        _wait(device)
        clock = perf_counter()
        target.copy_(source)
        _wait(device)
        best = min(best, perf_counter() - clock)
    return 2 * source.nbytes / best


def read_bytes(model: CausalModel) -> int:
    """Bytes of the weights that a token reads: all but the table of embeddings, unless the head is tied to it."""
    return model.weight_bytes - (0 if model.model.config.tie_word_embeddings
                                 else model.model.get_input_embeddings().weight.nbytes)


def decode(model: CausalModel, context: int, tokens: int) -> float:
    """Tokens a second of greedy decoding behind a prompt, each read by the host, as the loop does."""
    model.truncate(0)
    model.extend([(7 * i) % model.vocab_size for i in range(context)])
    token = 1
    for i in range(tokens + 4):
        if i == 4:
            _wait(model.device)
            clock = perf_counter()
        row = to_numpy(model.forward([token], [-1]))[0]
        token = int(row.argmax())
        model.keep([0])
    return tokens / (perf_counter() - clock)


def prices(model: CausalModel, context: int, repeats: int) -> dict[int, float]:
    """t(n) in seconds, the median of forwards over chains in turns."""
    model.truncate(0)
    model.extend([(7 * i) % model.vocab_size for i in range(context)])
    times: dict[int, list[float]] = {}
    for repeat in range(repeats + 1):  # the first warms up, and records
        for rows in SIZES:
            model.synchronize()
            clock = perf_counter()
            model.forward([1] * rows, list(range(-1, rows - 1)))
            model.synchronize()
            if repeat:
                times.setdefault(rows, []).append(perf_counter() - clock)
            model.drop()
    return {rows: statistics.median(taken) for rows, taken in times.items()}


def report(shape: str, model: CausalModel, speed: float, context: int, tokens: int, repeats: int) -> bool:
    """Measure and print; whether the bounds hold."""
    limit = speed / read_bytes(model)
    rate = statistics.median(decode(model, context, tokens) for _ in range(3))
    taken = prices(model, context, repeats)
    share, ratio = rate / limit, taken[64] / taken[1]
    fast, flat = share >= SHARE, ratio <= RATIO
    shown = model.device.type == "cuda"
    print(f"\n{shape}, {str(model.dtype).removeprefix('torch.')}, context {context}: {model.backend}")
    for remark in model.remarks:
        print(f"  note: {remark}")
    print(f"  weights a token reads     {read_bytes(model) / 1e9:8.3f} GB")
    print(f"  limit                     {limit:8.1f} tokens/s")
    print(f"  autoregressive            {rate:8.1f} tokens/s   {share:.0%} of the limit{_verdict(fast, shown)}")
    print("  t(n), ms                  " + "  ".join(f"{rows}: {taken[rows] * 1e3:.2f}" for rows in SIZES))
    print(f"  t(64) / t(1)              {ratio:8.2f}x{_verdict(flat, shown)}")
    plain = CausalModel(model.model, "plain", compute=LeanForward(model.model))
    print(f"  lean without graphs       {decode(plain, context, tokens):8.1f} tokens/s")
    return fast and flat


def _verdict(good: bool, shown: bool) -> str:
    return "" if good or not shown else "   MISSED"


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", action="append", choices=SHAPES, help="default: llama-7b, qwen2-0.5b, sample")
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), default="bfloat16")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=20)
    asked = parser.parse_args(arguments)
    device = torch.device(asked.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("there is no CUDA device here: nothing was measured", file=sys.stderr)
        return 3
    bound = device.type == "cuda"
    print(torch.cuda.get_device_name(device) if bound else "not a CUDA device: the bounds do not apply")
    speed, kept = bandwidth(device), True
    print(f"a copy moves {speed / 1e9:.0f} GB/s (read and written)")
    for shape in asked.shape or ("llama-7b", "qwen2-0.5b", "sample"):
        model = build(shape, getattr(torch, asked.dtype), device)
        held = report(shape, model, speed, asked.context, asked.tokens, asked.repeats)
        kept = kept and (held or shape != "llama-7b")
        del model
        if bound:
            torch.cuda.empty_cache()
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
