"""Real files, computed as they are stored: against llama.cpp on the same file, what verifying costs, and memory."""

from __future__ import annotations

import statistics
import sys

from benches.llama_cpp import OURS, THEIRS, THREADS, first_tokens, lacking
from benches.peers import measured, ratios, timed
from benches.rows import Row, shuffled
from benches.shapes import CONTEXTS, forward_seconds, random_tokens

NEW_TOKENS = 100
PROMPTS = (
    "Write a Python function that merges two sorted lists into one sorted list.",
    "Write a bash script that renames all .jpeg files of a folder to .jpg.",
    "Explain how a hash table finds a key and when its lookups are slow.",
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

    if lacking():
        return []
    files = [file for known in KNOWN.values() for file in known.files if file.present and file.name in BOUNDS]
    if not files:
        print(f"no model of {', '.join(BOUNDS)} is on this machine", file=sys.stderr)
    return [row for file in files for row in _of_model(file, repeats, most)]


def _of_model(file, repeats: int, most: int | None) -> list[Row]:
    from engines import load
    from engines.race.lanes import parse_lane
    from engines.race.peers import Peers

    runtime = load(str(file.path), threads=THREADS)
    plain, peer = OURS[0], THEIRS[0]
    with Peers(runtime) as runner:
        contenders = {name: timed(runner, parse_lane(name), NEW_TOKENS) for name in (plain, peer)}
        rates = measured(contenders, list(PROMPTS)[:most], repeats)
        firsts = first_tokens(runner, (plain, peer), repeats)
    over, by_rows = BOUNDS[file.name]
    (short, long), one = CONTEXTS, ROWS[0]
    seconds = forwards(runtime.target, {short: ROWS, long: (one,)}, repeats)
    held = runtime.target.weight_bytes / file.path.stat().st_size
    return [
        *(Row(f"{file.name}, {name}", rates[name], "tokens/s") for name in rates),
        Row(f"{file.name}, {plain} / {peer}", ratios(rates, plain, peer), "x", over),
        Row(f"{file.name}, 512-token prompt, ours / {peer}", ratios(firsts, plain, peer), "x", "<= 0.6"),
        Row(f"{file.name}, t(1)", [s * 1e3 for s in seconds[short, one]], "ms"),
        *(Row(f"{file.name}, t({rows}) / t(1)", ratios(seconds, (short, rows), (short, one)), "x",
              by_rows.get(rows, "")) for rows in ROWS[1:]),
        Row(f"{file.name}, a round at context {long} / {short}", ratios(seconds, (long, one), (short, one)), "x",
            "<= 1.25"),
        Row(f"{file.name}, weights in memory / file", [held], "x", "<= 1.1"),
    ]


def forwards(model, wanted: dict[int, tuple[int, ...]], repeats: int) -> dict[tuple[int, int], list[float]]:
    """Seconds of forwards over chains of so many rows after each context, by context and rows: a median of five for
    each repeat, all by turns, after a warm-up."""
    text = random_tokens(max(wanted), model.vocab_size)
    found: dict[tuple[int, int], list[float]] = {(context, rows): [] for context in wanted for rows in wanted[context]}
    for repeat in range(repeats + 1):
        for context in shuffled(wanted, repeat):
            model.extend(text[model.rewind(text[:context]) : context])
            spent = [[forward_seconds(model, rows) for rows in wanted[context]] for _ in range(5)]
            for rows, seconds in zip(wanted[context], zip(*spent)):
                found[context, rows].append(statistics.median(seconds))
    return {which: seconds[1:] for which, seconds in found.items()}
