"""Benchmarks of the playground, as ratios in one interleaved run.

    python tools/bench.py [decode|showcase|race|loop|paint|ui]... [--repeats N] [--json]

showcase: engines at budget=auto, and at the published sizes, against autoregressive decoding on the showcase prompts;
        with t(n) and each engine's break-even, so that a miss explains itself.
decode: our autoregressive loop and each engine against transformers.generate on the shipped pair, same threads.
race:   lanes of spec-tui compare against spec-tui run alone, and a lane against itself.
loop:   the loop's own time a round (everything but drafting and the forward), at temperature 0 and 0.8.
paint:  from the start of the process to the first full screen, in a pseudo-terminal.
ui:     the share of one core that drawing 500 tokens a second takes (tools/bench_ui.py).

Each figure comes with its median, its spread (minimum and maximum over the repeats) and the bound it should keep.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import select
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

PROMPTS = (
    "Write a Python function that reverses a string.",
    "Tell me a short story about a fox and a well.",
    "Repeat these lines: red apple, green pear, red apple, yellow plum, red apple, green pear.",
)
NEW_TOKENS = 100


@dataclass
class Row:
    """A measured figure: what, its samples, its unit, and the bound it should keep ("" for none)."""

    name: str
    samples: list[float]
    unit: str
    bound: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def kept(self) -> bool | None:
        if not self.bound:
            return None
        sense, limit = self.bound.split()
        if sense == "in":
            low, high = map(float, limit.split(".."))
            return low <= self.median <= high
        return self.median >= float(limit) if sense == ">=" else self.median <= float(limit)

    def line(self) -> str:
        mark = {None: "", True: "ok", False: "MISSED"}[self.kept]
        spread = f"{min(self.samples):.3g}..{max(self.samples):.3g}"
        return f"{self.name:<58}{self.median:>9.3g} {self.unit:<9}{spread:<17}{self.bound:<13}{mark}"


def bench_decode(repeats: int) -> list[Row]:
    """Tokens a second of each engine over transformers.generate's, pairwise within a repeat."""
    import torch
    from transformers import AutoModelForCausalLM

    from engines import load

    runtime = load()
    plain = AutoModelForCausalLM.from_pretrained(runtime.ready.model, dtype=torch.float32)
    contenders = {"generate": lambda p: generate_rate(plain, runtime, p)}
    for engine, options in (("autoregressive", {}), ("pld", {}), ("draft", {}), ("draft", {"shape": "tree"})):
        name = " ".join([engine, *options.values()])
        contenders[name] = lambda p, e=engine, o=options: engine_rate(runtime, p, e, o)
    for contender in contenders.values():
        contender(PROMPTS[0])  # warm-up
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for repeat in range(repeats):
        for name in shuffled(contenders, repeat):
            spent = [contenders[name](p) for p in PROMPTS]
            rates[name].append(sum(t for t, _ in spent) / sum(s for _, s in spent))
    rows = [Row("transformers.generate, greedy", rates["generate"], "tokens/s")]
    for name in list(contenders)[1:]:
        ratios = [ours / theirs for ours, theirs in zip(rates[name], rates["generate"])]
        rows.append(Row(f"{name} / generate", ratios, "x", ">= 1.1" if name == "autoregressive" else ""))
        if name != "autoregressive":
            ratios = [ours / base for ours, base in zip(rates[name], rates["autoregressive"])]
            rows.append(Row(f"{name} / autoregressive", ratios, "x"))
    return rows


def bench_showcase(repeats: int) -> list[Row]:
    """Tokens a second over those of autoregressive decoding, all prompts of a kind together, interleaved."""
    from engines import load
    from engines.layersearch import kept
    from engines.metrics import Metrics
    from spec_tui.tui.showcase import SHOWCASES

    runtime = load()
    for name, points in (("t(n)", runtime.ready.price), ("draft model's t(n)", runtime.ready.draft_price)):
        print(f"{name}: " + "  ".join(f"{n}: {s * 1e3:.2f} ms" for n, s in points), file=sys.stderr)
    contenders = {
        "autoregressive": ("autoregressive", {}), "pld": ("pld", {}), "draft": ("draft", {}),
        "draft tree": ("draft", {"shape": "tree"}), "rest": ("rest", {}), "dresd": ("dresd", {}),
        "rasd": ("rasd", {}), "hybrid": ("hybrid", {}), "admg": ("admg", {}),
        "pld, paper": ("pld", {"budget": "paper"}), "draft, paper": ("draft", {"budget": "paper"}),
        "rest, paper": ("rest", {"budget": "paper"}), "dresd, paper": ("dresd", {"budget": "paper"}),
        "rasd, paper": ("rasd", {"budget": "paper"}), "admg, paper": ("admg", {"preset": "paper"}),
    }
    if kept.find(kept.identify(runtime.target)):  # spec-tui search-layers made it
        contenders["draft-verify"] = ("draft-verify", {})
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


def shuffled(names, repeat: int) -> list[str]:
    """These names in the order that favours none."""
    from engines.race.lanes import order

    names = list(names)
    return [names[i] for i in order(len(names), repeat)]


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
    return measure(runtime.run(Request((("user", prompt),), engine, options, max_new_tokens=200)))


def generate_rate(model, runtime, prompt: str) -> tuple[int, float]:
    """(tokens after the first, seconds) of transformers' greedy search, its prefill measured apart and taken off."""
    import torch

    inputs = runtime.tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    seconds = []
    for new in (1, NEW_TOKENS):
        clock = time.perf_counter()
        with torch.inference_mode():
            out = model.generate(**inputs, do_sample=False, max_new_tokens=new, min_new_tokens=new)
        seconds.append(time.perf_counter() - clock)
    return out.shape[1] - inputs["input_ids"].shape[1] - 1, seconds[1] - seconds[0]


def engine_rate(runtime, prompt: str, engine: str, options: dict) -> tuple[int, float]:
    """(tokens after the first, seconds) by the wall clock of whoever reads the events, prefill taken off."""
    from engines import Request
    from engines.events import Prefilled

    runtime.forget()
    saved, runtime.end_tokens = runtime.end_tokens, frozenset()  # the same number of tokens for everyone
    try:
        for event in runtime.run(Request((("user", prompt),), engine, options, max_new_tokens=NEW_TOKENS)):
            if isinstance(event, Prefilled):
                clock = time.perf_counter()
    finally:
        runtime.end_tokens = saved
    return len(event.tokens) - 1, time.perf_counter() - clock


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
    """Milliseconds a round outside drafting and the forward."""
    from engines import Request, load
    from engines.events import Round

    runtime, rows = load(), []
    for engine, options in (("autoregressive", {}), ("pld", {}), ("draft", {}), ("draft", {"shape": "tree"})):
        for temperature in (0.0, 0.8):
            samples = []
            for repeat in range(repeats + 1):
                request = Request(
                    (("user", PROMPTS[1]),), engine, options, temperature=temperature, seed=repeat,
                    max_new_tokens=NEW_TOKENS,
                )
                rounds = [e.other_seconds * 1e3 for e in runtime.run(request) if isinstance(e, Round)]
                samples += [statistics.median(rounds)] if repeat else []
            name = " ".join(["loop outside forwards,", engine, *options.values(), f"temperature {temperature:g}"])
            rows.append(Row(name, samples, "ms/round", "<= 0.5"))
    return rows


def bench_paint(repeats: int) -> list[Row]:
    """Seconds from the start of the process to a screen with the prompt box on it."""
    return [Row("first paint of the application", [first_paint() for _ in range(repeats + 1)][1:], "s", "<= 0.5")]


def first_paint() -> float:
    """Start the application in a pseudo-terminal and wait for the prompt's placeholder."""
    leader, follower = pty.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    clock = time.perf_counter()
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    process = subprocess.Popen(
        [sys.executable, "-m", "spec_tui"], stdin=follower, stdout=follower, stderr=follower, env=environment,
        start_new_session=True,
    )
    os.close(follower)
    seen = b""
    try:
        while b"Ask" not in seen and time.perf_counter() - clock < 30:
            if select.select([leader], [], [], 0.05)[0]:
                seen += os.read(leader, 65536)
        return time.perf_counter() - clock
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(leader)


def bench_ui(repeats: int) -> list[Row]:
    """What drawing costs, measured by tools/bench_ui.py in a process of its own."""
    script = Path(__file__).with_name("bench_ui.py")
    command = [sys.executable, str(script), "--seconds", "5"]
    outputs = [subprocess.run(command, capture_output=True, check=True, text=True).stdout for _ in range(repeats)]
    percent = [float(re.search(r"([\d.]+) % of one core", output)[1]) for output in outputs]
    return [Row("drawing 500 tokens/s, share of one core", percent, "%", "<= 15")]


SECTIONS = {
    "decode": bench_decode, "showcase": bench_showcase, "race": bench_race, "loop": bench_loop, "paint": bench_paint,
    "ui": bench_ui,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="section", help=f"{', '.join(SECTIONS)} (default: all)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    arguments = parser.parse_args()
    unknown = set(arguments.sections) - set(SECTIONS)
    if unknown or arguments.repeats < 1:
        parser.error(f"sections are: {', '.join(SECTIONS)}; repeats at least 1")
    rows: list[Row] = []
    for name in arguments.sections or SECTIONS:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        for row in SECTIONS[name](arguments.repeats):
            rows.append(row)
            if not arguments.json:
                print(row.line(), flush=True)
    if arguments.json:
        print(json.dumps([asdict(row) | {"median": row.median, "kept": row.kept} for row in rows], indent=1))


if __name__ == "__main__":
    main()
