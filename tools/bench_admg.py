"""ADMG's rules one by one, as in Table 5 of the paper, against autoregressive decoding on the showcase prompts.

    python tools/bench_admg.py [--model MODEL] [--preset PRESET] [--set NAME=VALUE]...
                               [--tokens N] [--repeats N] [--json]

Greedy, the order turned by one arm from repeat to repeat; prefills are not in the rates. The exit threshold is kept
from prompt to prompt, as in the paper, and begins anew with each arm and repeat. For each arm:

left out    attention and MLP sublayers, the mean over the prompts
fraction    time of a draft forward over that of a full one
agrees      drafted tokens that the target agreed to, of those it judged
a round     tokens drafted; M: mean generated length; draft, verify: milliseconds
tokens/s    and the ratio to autoregressive decoding of the same repeat: median, and its spread
paper       the paper's speed-up with these rules: Llama-2-13B, CNN/DM, greedy, two V100
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).parent.parent))

from engines import Request, load, measure, methods
from engines.errors import SpecError
from engines.methods.shared.payoff import draft_forwards
from engines.report.events import Prefilled, Round
from engines.report.metrics import Metrics
from spec_tui.learn.showcase_prompts import SHOWCASES

ARMS: dict[str, tuple[dict[str, Any] | None, float | None]] = {
    "autoregressive": (None, None),
    "cosine": ({"interval": False, "n": 0}, 1.307),
    "cosine, last n stay": ({"interval": False}, 1.340),
    "interval, last n stay": ({"cosine": False}, 1.179),
    "all rules (ADMG)": ({}, 1.443),
    "nothing left out": ({"cosine": False, "interval": False}, None),
}
"""Arms: changes to the options, and the paper's speed-up (Table 5)."""


@dataclass
class Arm:
    """What an arm did: the metrics of each prompt by repeat, draft forwards, sublayers left out."""

    name: str
    paper: float | None
    runs: list[list[Metrics]] = field(default_factory=list)
    forwards: int = 0
    left_out: list[tuple[int, int]] = field(default_factory=list)

    def rates(self) -> list[float]:
        """Tokens a second of each repeat, all prompts together."""
        return [sum(m.new_tokens - 1 for m in runs) / sum(m.decode_seconds for m in runs) for runs in self.runs]

    def row(self, baseline: list[float]) -> dict[str, Any]:
        """The arm as figures; None where there is nothing to divide by."""
        runs = [metrics for repeat in self.runs for metrics in repeat]
        rounds = sum(m.target_forwards for m in runs)
        judged, kept = (sum(sum(getattr(m, name)) for m in runs) for name in ("depth_tried", "depth_accepted"))
        drafts, verifies = (sum(getattr(m, name) for m in runs) / rounds * 1e3 for name in (
            "draft_seconds", "verify_seconds"))
        ratios = [ours / theirs for ours, theirs in zip(self.rates(), baseline)]
        return {
            "arm": self.name,
            "attention": _mean([a for a, _ in self.left_out]), "mlp": _mean([m for _, m in self.left_out]),
            "fraction": self.fraction(runs), "agrees": kept / judged if judged else None,
            "drafted": sum(m.drafted for m in runs) / rounds, "M": sum(m.new_tokens - 1 for m in runs) / rounds,
            "draft_ms": drafts, "verify_ms": verifies, "tokens_per_second": statistics.median(self.rates()),
            "speed_up": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios), "paper": self.paper,
        }

    def fraction(self, runs: list[Metrics]) -> float | None:
        """Time of a draft forward over that of a full one of one row, at the pace of these runs."""
        priced, verify = sum(m.priced_seconds for m in runs), sum(m.verify_seconds for m in runs)
        if not self.forwards or not priced or runs[0].price is None:
            return None
        return sum(m.draft_seconds for m in runs) / self.forwards / (verify / priced * runs[0].price.at(1))


def _mean(values: list[int]) -> float | None:
    return statistics.mean(values) if values else None


def bench(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """All arms on all prompts, interleaved."""
    runtime = load(arguments.model)
    given = {"preset": arguments.preset} | dict(pair.split("=", 1) for pair in arguments.set)
    options = methods.find("admg").parse(given, runtime.target.name)
    print("options: " + ", ".join(f"{name}={value}" for name, value in options.items()), file=sys.stderr)
    print("t(n): " + "  ".join(f"{n}: {s * 1e3:.2f} ms" for n, s in runtime.ready.price), file=sys.stderr)
    arms = [Arm(name, paper) for name, (_, paper) in ARMS.items()]
    for arm in arms:
        once(runtime, arm, options, SHOWCASES[0].prompt, 8)  # warm-up
    arms = [Arm(arm.name, arm.paper) for arm in arms]
    for repeat in range(arguments.repeats):
        turn = repeat % len(arms)
        for arm in arms[turn:] + arms[:turn]:
            print(f"\rrepeat {repeat + 1} of {arguments.repeats}: {arm.name:<24}", end="", file=sys.stderr, flush=True)
            runtime.forget_acceptance()
            arm.runs.append([once(runtime, arm, options, case.prompt, arguments.tokens) for case in SHOWCASES])
    print(file=sys.stderr)
    baseline = arms[0].rates()
    return [arm.row(baseline) for arm in arms]


def once(runtime, arm: Arm, options: dict[str, Any], prompt: str, tokens: int) -> Metrics:
    """A cold run."""
    changes, engine = ARMS[arm.name][0], "autoregressive"
    if changes is not None:
        engine, changes = "admg", options | changes
    runtime.forget()
    events = list(runtime.run(Request((("user", prompt),), engine, changes or {}, max_new_tokens=tokens)))
    arm.forwards += sum(draft_forwards(event) for event in events if isinstance(event, Round))
    layers = next((event.layers for event in events if isinstance(event, Prefilled)), None)
    if layers is not None:
        arm.left_out.append((sum(map(bool, layers.attention)), sum(map(bool, layers.mlp))))
    return measure(events)


COLUMNS = (
    ("arm", "", 24), ("attention", ".1f", 10), ("mlp", ".1f", 6), ("fraction", ".0%", 10), ("agrees", ".0%", 8),
    ("drafted", ".1f", 9), ("M", ".2f", 7), ("draft_ms", ".1f", 10), ("verify_ms", ".1f", 11),
    ("tokens_per_second", ".1f", 19), ("speed_up", ".2f", 10), ("lowest", ".2f", 8), ("highest", ".2f", 9),
    ("paper", ".3f", 8),
)


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as text."""
    def cell(value: Any, form: str, width: int) -> str:
        text = "-" if value is None else format(value, form)
        return text.ljust(width) if isinstance(value, str) else text.rjust(width)

    lines = ["".join(cell(name, "", width) if name == "arm" else name.rjust(width) for name, _, width in COLUMNS)]
    return "\n".join(lines + ["".join(cell(row[name], form, width) for name, form, width in COLUMNS) for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder or hub id (default: the target that ships)")
    parser.add_argument("--preset", default="auto", help="values of alpha, m and n")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="an option of admg")
    parser.add_argument("--tokens", type=int, default=200, help="of each answer")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    arguments = parser.parse_args()
    if arguments.repeats < 1 or arguments.tokens < 2 or not all("=" in pair for pair in arguments.set):
        parser.error("--repeats is at least 1, --tokens at least 2, --set takes NAME=VALUE")
    try:
        rows = bench(arguments)
    except SpecError as error:
        parser.exit(error.exit_code, f"{error.message}\n{error.hint}\n")
    print(json.dumps(rows, indent=1) if arguments.json else table(rows))


if __name__ == "__main__":
    main()
