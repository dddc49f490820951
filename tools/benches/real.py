"""smollm2, where it is on this machine: speed on the own suite, the time to the first token, memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from benches.peers import loaded, measured, ours, ratios, theirs
from benches.rows import Row

MODEL = "smollm2"
ENGINES = ("pld", "rest", "dresd", "hybrid", "admg")  # and those of the draft model, where one is here
TOKENS = 64  # of an answer
BOUNDS = {"hybrid": ">= 1.4", "draft": ">= 1.3"}
CONTEXT = 1500  # tokens before a second turn


def bench_real(repeats: int, most: int | None = None) -> list[Row]:
    """The bounds that the project sets for smollm2, on so many prompts of the own suite (None: all)."""
    from engines.hub.known_models import KNOWN

    if not KNOWN[MODEL].present:
        print(f"{MODEL} is not on this machine: spec-tui model get {MODEL} fetches it", file=sys.stderr)
        return []
    rows = _starts(repeats)
    for dtype, bound in (("float32", ">= 2.5"), ("bfloat16", ">= 1.7")):
        runtime, generator = loaded(draft=False, model=MODEL, dtype=dtype)
        engines = (*ENGINES, *(("draft",) if runtime.draft else ())) if dtype == "float32" else ()
        contenders = {"generate": theirs(generator, "autoregressive", TOKENS)}
        contenders |= {engine: ours(runtime, engine, {}, TOKENS) for engine in ("autoregressive", *engines)}
        rates = measured(contenders, _prompts(most), repeats)
        faster = ratios(rates, "autoregressive", "generate")
        rows += [Row(f"{MODEL}, autoregressive, {dtype}", rates["autoregressive"], "tokens/s"),
                 Row(f"{MODEL}, autoregressive / generate, {dtype}", faster, "x", bound)]  # fmt: skip
        found = [Row(f"{MODEL}, {engine} / autoregressive", ratios(rates, engine, "autoregressive"), "x",
                     BOUNDS.get(engine, "")) for engine in engines]  # fmt: skip
        rows += found
        if dtype == "float32":
            best = max(found, key=lambda row: row.median)
            rows.append(Row(f"{best.name}, the best", best.samples, "x", ">= 1.5"))
            rows.append(Row(f"{MODEL}, a second turn's first token", _second_turns(runtime, repeats), "s", "<= 0.5"))
    return rows


def _prompts(most: int | None) -> list[str]:
    """First turns of the own suite, at equal strides; none is in a datastore that ships."""
    from engines.bench.suite import shipped

    found = [turns[0] for turns in shipped().prompts]
    return found[:: -(-len(found) // most)] if most else found


def _starts(repeats: int) -> list[Row]:
    """From the command to the first token, and memory at its most, of processes of their own, by turns."""
    found: dict[str, list[tuple[float, float]]] = {"sample": [], MODEL: []}
    for _ in range(repeats):
        for model, runs in found.items():
            runs.append(_first_token(model))
    rows = [Row(f"{model}, from the command to the first token", [s for s, _ in runs], "s")
            for model, runs in found.items()]  # fmt: skip
    more = [ours - sample for (ours, _), (sample, _) in zip(found[MODEL], found["sample"])]
    rows.append(Row(f"{MODEL}, that later than the sample pair", more, "s", "<= 2"))
    return [*rows, *(Row(f"{model}, memory", [m for _, m in runs], "MB") for model, runs in found.items())]


def _first_token(model: str) -> tuple[float, float]:
    """Seconds until a process has printed an answer of one token, and its resident memory at its most, in MB."""
    arguments = ("run", "Hello!", "--model", model, "--max-new-tokens", "1", "--engine", "autoregressive")
    clock = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "spec_tui", *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    process.stdout.read(1)
    seconds = time.perf_counter() - clock
    process.stdout.read()
    process.stdout.close()
    _, process.returncode, usage = os.wait4(process.pid, 0)
    return seconds, usage.ru_maxrss / 1000


def _second_turns(runtime, repeats: int) -> list[float]:
    """Seconds from asking to the first token in a conversation of ``CONTEXT`` tokens whose cache is kept."""
    from engines import Request
    from engines.report.events import Prefilled

    words = "the boat went past the mill and the old bridge, "
    size = len(runtime.tokenizer(words, add_special_tokens=False).input_ids)
    first = ("user", f"Say in one sentence where the boat went: {words * (CONTEXT // size)}")
    found = []
    for _ in range(repeats):
        runtime.forget()
        *_, finished = runtime.run(Request((first,), "pld", max_new_tokens=32))
        turns = (first, ("assistant", finished.text), ("user", "And where will it go tomorrow?"))
        clock = time.perf_counter()
        for event in runtime.run(Request(turns, "pld", max_new_tokens=2)):
            if isinstance(event, Prefilled):
                found.append(time.perf_counter() - clock)
    return found
