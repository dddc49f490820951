"""Real files, computed as they are stored: against llama.cpp on the same file, what verifying costs, and memory."""

from __future__ import annotations

import statistics
from time import perf_counter

from benches.llama_cpp import OURS, THEIRS, THREADS, first_tokens
from benches.peers import measured, ratios, timed
from benches.rows import Row
from benches.shapes import CONTEXTS, random_tokens

NEW_TOKENS = 100
PROMPTS = (
    "Write a Python function that merges two sorted lists into one sorted list.",
    "Write a bash script that renames all .jpeg files of a folder to .jpg.",
    "Explain what a hash table is and when its lookups are slow.",
    "Write a SQL query that lists the three customers with the most orders.",
    "Write unit tests for a function that checks whether a string is a palindrome.",
)
ROWS = (1, 4, 8, 16)
BOUNDS = {  # over autoregressive of llama.cpp; t(n) / t(1)
    "smollm2": (">= 1.8", {4: "<= 1.1", 8: "<= 1.4", 16: "<= 2.2"}),
    "qwen-coder": (">= 1.7", {4: "<= 1.15", 8: "<= 1.4", 16: "<= 2.0"}),
    "qwen-coder-draft": (">= 1.7", {}),
}


def bench_arithmetic(repeats: int, most: int | None = None) -> list[Row]:
    """All models of ``BOUNDS`` that are here."""
    from engines.hub.known_models import KNOWN

    files = [file for known in KNOWN.values() for file in known.files if file.present]
    return [row for file in files if file.name in BOUNDS for row in _of_model(file, repeats, most)]


def _of_model(file, repeats: int, most: int | None) -> list[Row]:
    from engines import load
    from engines.race.lanes import parse_lane
    from engines.race.peers import Peers

    runtime = load(str(file.path), threads=THREADS)
    plain, peer = OURS[0], THEIRS[0]
    with Peers(runtime) as runner:
        contenders = {name: timed(runner, parse_lane(name), NEW_TOKENS) for name in (plain, peer)}
        rates = measured(contenders, list(PROMPTS)[:most], repeats)
        firsts = {name: first_tokens(runner, parse_lane(name), repeats) for name in (plain, peer)}
    over, by_rows = BOUNDS[file.name]
    seconds = _rounds(runtime.target, ROWS, CONTEXTS[0], repeats)
    longer = _rounds(runtime.target, (1,), CONTEXTS[1], repeats)[1]
    held = runtime.target.weight_bytes / file.path.stat().st_size
    return [
        *(Row(f"{file.name}, {name}", rates[name], "tokens/s") for name in rates),
        Row(f"{file.name}, {plain} / {peer}", ratios(rates, plain, peer), "x", over),
        Row(f"{file.name}, 512-token prompt, ours / {peer}", ratios(firsts, plain, peer), "x", "<= 0.6"),
        Row(f"{file.name}, t(1)", [s * 1e3 for s in seconds[1]], "ms"),
        *(Row(f"{file.name}, t({rows}) / t(1)", [a / b for a, b in zip(seconds[rows], seconds[1])], "x",
              by_rows.get(rows, "")) for rows in ROWS[1:]),
        Row(f"{file.name}, a round at context {CONTEXTS[1]} / {CONTEXTS[0]}",
            [a / b for a, b in zip(longer, seconds[1])], "x", "<= 1.25"),
        Row(f"{file.name}, weights in memory / file", [held], "x", "<= 1.1"),
    ]


def _rounds(model, sizes: tuple[int, ...], context: int, repeats: int) -> dict[int, list[float]]:
    """Seconds of forwards over chains of so many rows after a context: a median of five for each repeat, by turns."""
    model.truncate(0)
    model.extend(random_tokens(context, model.vocab_size))
    found: dict[int, list[float]] = {rows: [] for rows in sizes}
    for _ in range(repeats):
        spent: dict[int, list[float]] = {rows: [] for rows in sizes}
        for _ in range(5):
            for rows in sizes:
                clock = perf_counter()
                model.forward(random_tokens(rows, model.vocab_size), list(range(-1, rows - 1)))
                spent[rows].append(perf_counter() - clock)
                model.drop()
        for rows in sizes:
            found[rows].append(statistics.median(spent[rows]))
    return found
