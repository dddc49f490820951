"""Benchmarks of the playground, as ratios in one interleaved run.

    python tools/bench.py [decode|peers|qwen|context|quantised|showcase|race|loop|paint|ui|chat|waiting|real|llama.cpp
                           |arithmetic|served]...
                           [--repeats N] [--prompts N] [--json] [--write]

showcase: engines at budget=auto, and at the published sizes, against autoregressive decoding on the showcase prompts;
        with t(n) and each engine's break-even, so that a miss explains itself.
decode: our autoregressive loop and each engine against transformers.generate on the shipped pair, same threads.
peers:  prompt lookup and the draft model against transformers.generate with the same method.
qwen:   autoregressive decoding of a model in the shape of Qwen2-0.5B against transformers.generate.
context: a round at context 2048 against one at 256.
quantised: smollm2 in float32, bfloat16, int8 and as its file holds it, natively and by torch, on two threads.
race:   lanes of spec-tui compare against spec-tui run alone, and a lane against itself.
loop:   the loop's own time a round (everything but drafting and the forward), at temperature 0 and 0.8.
paint:  from the start of the process to the first full screen, in a pseudo-terminal.
ui:     the share of one core that drawing 500 tokens a second takes (tools/bench_ui.py).
chat:   tokens a second in the chat screen, in a pseudo-terminal, against decoding without a screen.
waiting: a forward under each policy of waiting threads, alone and beside a busy process.
llama.cpp: smollm2's file in llama.cpp, with and without its own drafts, beside ours on as many threads.
arithmetic: smollm2 and both models of qwen-coder, where they are here: against llama.cpp, t(n), prompts, memory.
served: what the chat shows of llama.cpp, against a client that only reads.
real:   smollm2, where it is here: against generate, engines on the own suite, first tokens, memory.

Each figure comes with its median, its spread (minimum and maximum over the repeats) and the bound it should keep.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path

import pages
from benches.arithmetic import bench_arithmetic
from benches.chat import bench_chat
from benches.llama_cpp import bench_llama_cpp, bench_served
from benches.peers import bench_decode, bench_peers
from benches.quantised import bench_quantised
from benches.real import bench_real
from benches.rows import Row, shuffled, table
from benches.shapes import bench_context, bench_qwen
from benches.terminal import Terminal
from benches.waiting import bench_waiting

from spec_tui.session.environment import begin_in_huge_pages

PROMPTS = (
    "Write a Python function that reverses a string.",
    "Tell me a short story about a fox and a well.",
    "Repeat these lines: red apple, green pear, red apple, yellow plum, red apple, green pear.",
)
NEW_TOKENS = 100
PAGE = Path(__file__).parents[1] / "docs" / "speed.md"


def bench_showcase(repeats: int) -> list[Row]:
    """Tokens a second over those of autoregressive decoding, all prompts of a kind together, interleaved."""
    from engines import load
    from engines.report.metrics import Metrics
    from spec_tui.learn.showcase_prompts import SHOWCASES

    runtime = load("sample")
    for name, points in (("t(n)", runtime.ready.price), ("draft model's t(n)", runtime.ready.draft_price)):
        print(f"{name}: " + "  ".join(f"{n}: {s * 1e3:.2f} ms" for n, s in points), file=sys.stderr)
    contenders = {
        "autoregressive": ("autoregressive", {}), "pld": ("pld", {}), "draft": ("draft", {}),
        "draft tree": ("draft", {"shape": "tree"}), "rest": ("rest", {}), "dresd": ("dresd", {}),
        "rasd": ("rasd", {}), "hybrid": ("hybrid", {}), "admg": ("admg", {}), "draft-verify": ("draft-verify", {}),
        "pld, paper": ("pld", {"budget": "paper"}), "draft, paper": ("draft", {"budget": "paper"}),
        "rest, paper": ("rest", {"budget": "paper"}), "dresd, paper": ("dresd", {"budget": "paper"}),
        "rasd, paper": ("rasd", {"budget": "paper"}), "admg, paper": ("admg", {"preset": "paper"}),
    }
    runs: dict[tuple[str, str], list[list[Metrics]]] = {}
    for repeat in range(repeats):
        runtime.forget_acceptance()
        for name in shuffled(contenders, repeat):
            if repeat == 0:
                run_of(runtime, SHOWCASES[0].prompt, *contenders[name])  # warm-up
            for case in SHOWCASES:
                metrics = run_of(runtime, case.prompt, *contenders[name])
                for prompts in ("all showcase prompts", f"{case.kind} prompts"):
                    of_these = runs.setdefault((name, prompts), [[] for _ in range(repeats)])
                    of_these[repeat].append(metrics)
    return showcase_rows(runs)


def showcase_rows(runs: dict) -> list[Row]:
    """Ratios to the baseline of the same repeat, bounds where the project promises one."""
    bounds = {("pld", "copying prompts"): ">= 1.3", ("draft", "all showcase prompts"): ">= 1.15"}
    bounds |= {(engine, "all showcase prompts"): ">= 1.5" for engine in ("rest", "dresd")}
    rows = []
    for (name, prompts), repeats in runs.items():
        if name == "autoregressive":
            continue
        base = [rate(metrics) for metrics in runs["autoregressive", prompts]]
        ratios = [rate(metrics) / b for metrics, b in zip(repeats, base)]
        rows.append(Row(f"{name} / autoregressive, {prompts}", ratios, "x", bounds.get((name, prompts), "")))
        print(f"{name}, {prompts}: {what_it_did(repeats[-1])}", file=sys.stderr)
    return sorted(rows, key=lambda row: row.name.split(", ")[-1])


def what_it_did(runs: list) -> str:
    """Acceptance and break-even of runs, the counts of all of them together."""
    rounds, drafted = (sum(getattr(m, name) for m in runs) for name in ("target_forwards", "drafted"))
    accepted, new = sum(m.accepted for m in runs), sum(m.new_tokens - 1 for m in runs)
    paths = sum(m.path_acceptances for m in runs) / max(1, sum(m.drafting_rounds for m in runs))
    needs = sum(m.break_even.needs * m.target_forwards for m in runs if m.break_even) / rounds
    return (
        f"accepted {accepted / max(1, drafted):.0%} of {drafted / rounds:.1f} a round, path acceptance {paths:.0%},"
        f" M {new / rounds:.2f}, needs {needs:.2f}"
    )


def rate(metrics: list) -> float:
    """Tokens a second of several runs together, prefills left out."""
    return sum(m.new_tokens - 1 for m in metrics) / sum(m.decode_seconds for m in metrics)


def run_of(runtime, prompt: str, engine: str, options: dict):
    """The metrics of a cold run."""
    from engines import Request, measure

    runtime.forget()
    return measure(runtime.run(Request((("user", prompt),), engine, options, max_new_tokens=200, keeps=False)))


def bench_race(repeats: int) -> list[Row]:
    """Tokens a second of lanes over those of the same engines run alone, each in a process of its own, by turns: by
    ``run``, whose first answer finds the process cold, and in a race against itself, warmed up like the others."""
    engines = ("autoregressive", "draft", "draft")
    prompt = [PROMPTS[1], "--max-new-tokens", "150", "--format", "json"]
    ratios: dict[str, list[float]] = {}
    for _ in range(repeats):
        alone = {name: command("run", *prompt, "--engine", name)["stats"] for name in sorted(set(engines))}
        found = command("compare", *prompt, "--engines", ",".join(engines), "--repeats", "2")
        rates = [lane["tokens_per_second"]["median"] for lane in found["lanes"]]
        only = {name: command("compare", *prompt, "--engines", f"{name},{name}", "--repeats", "1") for name in alone}
        for name, lane in dict(zip(engines, rates)).items():
            warm = statistics.mean(twin["tokens_per_second"]["median"] for twin in only[name]["lanes"])
            ratios.setdefault(f"{name}, lane / run alone (cold)", []).append(lane / alone[name]["tokens_per_second"])
            ratios.setdefault(f"{name}, lane / racing itself", []).append(lane / warm)
        ratios.setdefault("draft, a lane / the same lane again", []).append(rates[1] / rates[2])
        load = "unknown" if found["other_cores"] is None else f"{found['other_cores']:.1f} cores"
        print(f"other load while lanes ran: {load}", file=sys.stderr)
    return [Row(name, samples, "x", "in 0.9..1.1") for name, samples in ratios.items()]


def command(*arguments: str) -> dict:
    """What a command of spec-tui prints as JSON."""
    done = subprocess.run([sys.executable, "-m", "spec_tui", *arguments], capture_output=True, check=True, text=True)
    return json.loads(done.stdout)


def bench_loop(repeats: int) -> list[Row]:
    """Milliseconds a round outside drafting and the forward, of answers written for the first time."""
    from engines import Request, load
    from engines.report.events import Round

    runtime, rows = load("sample"), []
    engines = ("autoregressive", "pld", "draft", "rest", "dresd", "rasd", "hybrid", "admg")
    for engine, options in [*((engine, {}) for engine in engines), ("draft", {"shape": "tree"})]:
        for temperature in (0.0, 0.8):
            samples = []
            for repeat in range(repeats + 1):
                request = Request(
                    (("user", PROMPTS[1]),), engine, options, temperature=temperature, seed=repeat,
                    max_new_tokens=NEW_TOKENS, keeps=False,  # else some engines draft from the answers before
                )
                rounds = [e.other_seconds * 1e3 for e in runtime.run(request) if isinstance(e, Round)]
                samples += [statistics.median(rounds)] if repeat else []
            name = " ".join(["loop outside forward passes,", engine, *options.values(), f"temperature {temperature:g}"])
            bound = "<= 0.25" if (engine, temperature) == ("autoregressive", 0.0) else "<= 0.3"
            rows.append(Row(name, samples, "ms/round", bound))
    return rows


def bench_paint(repeats: int) -> list[Row]:
    """Seconds from the start of the process to a screen with the prompt box on it."""
    return [Row("first paint of the application", [first_paint() for _ in range(repeats + 1)][1:], "s", "<= 0.3")]


def first_paint() -> float:
    """Start the application in a pseudo-terminal and wait for the prompt's placeholder."""
    clock = time.perf_counter()
    terminal = Terminal([sys.executable, "-m", "spec_tui"])
    try:
        if not terminal.wait_for(b"a prompt, or press", 30):
            raise SystemExit("the prompt was not drawn within 30 seconds")
        return time.perf_counter() - clock
    finally:
        terminal.close()


def bench_ui(repeats: int) -> list[Row]:
    """What drawing costs, measured by tools/bench_ui.py in a process of its own."""
    script = Path(__file__).with_name("bench_ui.py")
    command = [sys.executable, str(script), "--seconds", "5"]
    outputs = [subprocess.run(command, capture_output=True, check=True, text=True).stdout for _ in range(repeats)]
    return [Row("drawing 500 tokens/s, share of one core", [printed_share(output) for output in outputs], "%", "<= 15")]


def printed_share(output: str) -> float:
    """The percentage while streaming, in what tools/bench_ui.py prints."""
    return float(re.search(r"([\d.]+)% of one core", output)[1])


SECTIONS = {
    "decode": bench_decode, "peers": bench_peers, "qwen": bench_qwen, "context": bench_context,
    "quantised": bench_quantised, "showcase": bench_showcase, "race": bench_race, "loop": bench_loop,
    "paint": bench_paint, "ui": bench_ui, "chat": bench_chat, "waiting": bench_waiting,
    "real": bench_real, "llama.cpp": bench_llama_cpp,
    "arithmetic": bench_arithmetic, "served": bench_served,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="section", help=f"{', '.join(SECTIONS)} (default: all)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--prompts", type=int,
                        help="most prompts that real, llama.cpp and arithmetic ask (default: all)")
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    parser.add_argument("--write", action="store_true", help=f"write the tables into {PAGE.name} too")
    arguments = parser.parse_args()
    unknown = set(arguments.sections) - set(SECTIONS)
    if unknown or arguments.repeats < 1:
        parser.error(f"sections are: {', '.join(SECTIONS)}; repeats at least 1")
    rows: list[Row] = []
    failed: list[str] = []
    for name in arguments.sections or SECTIONS:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        few = {"most": arguments.prompts} if name in ("real", "llama.cpp", "arithmetic") else {}
        try:
            measured = SECTIONS[name](arguments.repeats, **few)
        except (Exception, SystemExit):
            traceback.print_exc()
            failed.append(name)
            continue
        rows += measured
        if not arguments.json:
            print("\n".join(row.line() for row in measured), flush=True)
        if arguments.write and measured:
            pages.put(PAGE, name, table(measured))
    if arguments.json:
        print(json.dumps([asdict(row) | {"median": row.median, "kept": row.kept} for row in rows], indent=1))
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # users start what Python has compiled before
    begin_in_huge_pages()
    main()
