"""Models of a given shape with random weights: what a token costs, against generate, and as the context grows."""

from __future__ import annotations

import copy
import random
import statistics
import sys
from time import perf_counter

from benches.rows import Row

NEW_TOKENS = 24
CONTEXTS = (256, 2048)
ROUNDS = 16
TREE = 16  # rows


def bench_qwen(repeats: int) -> list[Row]:
    """A model in the shape of Qwen2-0.5B: our autoregressive loop over generate on an untouched copy, same threads."""
    from transformers import Qwen2Config

    model = _random(Qwen2Config(
        vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
        num_key_value_heads=2, max_position_embeddings=2048, tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=None,
    ))
    peer, ours = copy.deepcopy(model), _ours(model, "Qwen2-0.5B shape")
    prompt = random_tokens(64, ours.vocab_size)
    contenders = {"ours": lambda: decode(ours, prompt), "theirs": lambda: _generate(peer, prompt)}
    assert contenders["ours"]()[0] == contenders["theirs"]()[0], "the texts differ"  # and the warm-up
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for repeat in range(repeats):
        for name in list(contenders)[:: 1 if repeat % 2 else -1]:
            tokens, seconds = contenders[name]()
            rates[name].append((len(tokens) - 1) / seconds)
    return [
        Row("autoregressive / generate, Qwen2-0.5B shape",
            [a / b for a, b in zip(rates["ours"], rates["theirs"])], "x", ">= 1.7"),
        Row("autoregressive, Qwen2-0.5B shape", rates["ours"], "tokens/s"),
    ]


def bench_context(repeats: int) -> list[Row]:
    """The sample target's shape: a round at context 2048 over one at 256, and the same for forwards of 16 rows."""
    from transformers import LlamaConfig

    model = _ours(_random(LlamaConfig(
        vocab_size=8192, hidden_size=256, intermediate_size=688, num_hidden_layers=12, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=4096, tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=None,
    )), "sample shape")
    prompts = {length: random_tokens(length, model.vocab_size) for length in CONTEXTS}
    measures = {"autoregressive": _round, f"a chain of {TREE} rows": _chain, f"a tree of {TREE} rows": _tree}
    spent: dict[tuple[str, int], list[float]] = {}
    for repeat in range(repeats + 1):  # the first is the warm-up
        for length in CONTEXTS[:: 1 if repeat % 2 else -1]:
            for name, measure in measures.items():
                spent.setdefault((name, length), []).append(measure(model, prompts[length]))
    rows, (low, high) = [], CONTEXTS
    for name in measures:
        short, long = spent[name, low][1:], spent[name, high][1:]
        bound = "<= 1.5" if name == "autoregressive" else ""
        rows.append(Row(f"time of a round, context {high} / {low}, {name}",
                        [a / b for a, b in zip(long, short)], "x", bound))
        rows.append(Row(f"a round at context {low}, {name}", [s * 1e3 for s in short], "ms"))
    return rows


def _random(config):
    """A model of this shape in float32, transformers' own initialisation."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


def _ours(model, name: str):
    import torch

    from engines.model.loading import wrap

    ours = wrap(model, name)
    print(f"{name}: {torch.get_num_threads()} threads, {ours.backend}", file=sys.stderr, flush=True)
    return ours


def random_tokens(count: int, vocab: int) -> list[int]:
    draw = random.Random(count)
    return [draw.randrange(vocab) for _ in range(count)]


def forward_seconds(model, rows: int) -> float:
    """Of a forward over a chain of so many rows behind those that are cached, which stay."""
    tokens = random_tokens(rows, model.vocab_size)
    clock = perf_counter()
    model.forward(tokens, list(range(-1, rows - 1)))
    seconds = perf_counter() - clock
    model.drop()
    return seconds


def decode(model, prompt: list[int]) -> tuple[list[int], float]:
    """Our answer, and the seconds after its first token."""
    from engines.report.events import Prefilled

    for event in _events(model, prompt, NEW_TOKENS + 1):
        if isinstance(event, Prefilled):
            clock = perf_counter()
    return list(event.tokens), perf_counter() - clock


def _generate(model, prompt: list[int]) -> tuple[list[int], float]:
    """The same of generate."""
    import torch

    from engines.bench.generate_runs import Stamps

    inputs, stamps = torch.tensor([prompt]), Stamps()
    with torch.inference_mode():
        out = model.generate(
            inputs, attention_mask=torch.ones_like(inputs), do_sample=False, max_new_tokens=NEW_TOKENS + 1,
            streamer=stamps,
        )
    return out[0, len(prompt):].tolist(), stamps.times[-1] - stamps.times[0]


def _events(model, prompt: list[int], new: int):
    from engines.core.outcome import Stop
    from engines.core.sampling import Sampling
    from engines.laws import make_law
    from engines.methods.drafter import Drafter, Resources
    from engines.report.recorder import record

    model.truncate(0)
    law = make_law("exact", Sampling(0.0, 1.0, 0), 0, model.vocab_size)
    drafter = Drafter(Resources(law=law, vocab_size=model.vocab_size))
    return record(model, drafter, law, prompt, Stop(frozenset(), new), _Words())


class _Words:
    """A vocabulary without words."""

    @staticmethod
    def piece(token: int) -> str:
        return f"<{token}>"

    def stream(self) -> _Words:
        return self

    def step(self, token: int) -> str:
        return self.piece(token)


def _round(model, prompt: list[int]) -> float:
    """Seconds of a median round behind this prompt."""
    from engines.report.events import Round

    rounds = [event for event in _events(model, prompt, ROUNDS + 1) if isinstance(event, Round)]
    return statistics.median(r.draft_seconds + r.verify_seconds + r.other_seconds for r in rounds)


def _chain(model, prompt: list[int]) -> float:
    return _forward(model, prompt, range(-1, TREE - 1))


def _tree(model, prompt: list[int]) -> float:
    """Two children below every node."""
    return _forward(model, prompt, [-1, *((row - 1) // 2 for row in range(1, TREE))])


def _forward(model, prompt: list[int], parents) -> float:
    """Seconds of a median forward of these rows behind the prompt, its root kept."""
    reused = model.rewind(prompt)
    model.extend(prompt[reused:])
    seconds = []
    for start in range(ROUNDS):
        clock = perf_counter()
        model.forward(random_tokens(TREE + start, model.vocab_size)[:TREE], list(parents))
        model.keep([0])
        seconds.append(perf_counter() - clock)
    return statistics.median(seconds)
