"""The tables of docs/qwen-coder.md: spec-tui bench on qwen-coder and our own coding tasks, a group of lanes a table.

    python tools/bench_pair.py [GROUP ...] [--limit N] [--max-new-tokens N] [--repeats N]

qwen-coder has to be here (``spec-tui model get qwen-coder``), for rest and hybrid the datastore python-stdlib too. A
group takes some four minutes on two cores; the machine should have nothing else to do. A group that is interrupted
leaves its table as it was.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pages

PAGE = Path(__file__).resolve().parent.parent / "docs" / "qwen-coder.md"
FLAGS = ("--model", "qwen-coder", "--suite", "coding", "--no-peers", "--format", "csv")
GROUPS = {
    "methods": ("Ways to draft", (
        "draft", "draft:shape=tree", "pld", "suffix", "recycling", "rest:datastore=python-stdlib",
        "hybrid:datastore=python-stdlib")),
    "chains": ("The length of a chain, and when it ends", (
        "draft", "draft:num_tokens=4", "draft:num_tokens=24", "draft:budget=paper:num_tokens=3",
        "draft:budget=paper:num_tokens=6", "draft:budget=paper:num_tokens=8:stop=top:confidence=0.6",
        "draft:budget=paper:num_tokens=8:stop=entropy:confidence=0.7")),
    "copies": ("Copies", (
        "pld", "pld:budget=paper", "suffix", "suffix:shape=chain", "suffix:budget=paper", "recycling",
        "recycling:nodes=8", "recycling:budget=paper")),
    "layers": ("The target without some of its layers", (
        "admg:preset=paper", "admg:preset=paper-code", "admg:interval=false", "admg:alpha=0.993:interval=false",
        "admg:alpha=0.95:interval=false", "draft-verify:layers=a8-24", "draft-verify:layers=a8-24,m12,m16")),
}
"""By name: the heading of the table, and its lanes beside autoregressive."""


def measured(group: str, flags: list[str]) -> dict[str, Any]:
    """What spec-tui bench found. Raises SystemExit where it did not come to its end."""
    lanes = [word for lane in GROUPS[group][1] for word in ("--engine", lane)]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "spec_tui", "bench", *FLAGS, *lanes, *flags, "--out", folder]
        try:
            done = subprocess.run(command, stdout=subprocess.DEVNULL)
        except KeyboardInterrupt:
            raise SystemExit(f"interrupted: the table of {group} is as it was") from None
        if done.returncode != 0:
            raise SystemExit(f"spec-tui bench ended with {done.returncode}: the table of {group} is as it was")
        return json.loads(Path(folder, "results.json").read_text("utf-8"))


def table(found: dict[str, Any]) -> str:
    """A row a lane: tokens/s over autoregressive and M, by task; then how it was asked, and on what."""
    tasks = list(found["suite"]["tasks"])
    rows = [f"| engine | {' | '.join(tasks)} | M: {' | '.join(tasks)} |", "|---" * (1 + 2 * len(tasks)) + "|"]
    for lane in found["lanes"]:
        of = [lane["tasks"][task] for task in tasks]
        alone = lane["lane"] == "autoregressive"
        speeds = [f"{task['tokens_per_second']['median']:.1f} tokens/s" if alone else
                  f"{task['speed_up']['median']:.2f}x" for task in of]
        lengths = [f"{task['mean_generated_length']:.2f}" for task in of]
        rows.append(f"| `{lane['lane']}` | {' | '.join((*speeds, *lengths))} |")
    machine, suite = found["machine"], found["suite"]
    return "\n".join([*rows, "", (
        f"{suite['questions']} of the coding tasks, at most {found['asked']['max_new_tokens']} tokens each, greedy;"
        f" {found['threads']} thread(s) of {machine.get('model') or machine.get('processor')}, torch"
        f" {found['versions']['torch']}."
    )])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"{', '.join(GROUPS)} (default: all)")
    for name, usual in (("limit", "1"), ("max-new-tokens", "80"), ("repeats", "1")):
        parser.add_argument(f"--{name}", default=usual, metavar="N", help=f"default: {usual}")
    arguments = parser.parse_args()
    if unknown := set(arguments.groups) - set(GROUPS):
        parser.error(f"there is no group {unknown.pop()}; there are {', '.join(GROUPS)}")
    flags = ["--limit", arguments.limit, "--max-new-tokens", arguments.max_new_tokens, "--repeats", arguments.repeats]
    for group in arguments.groups or GROUPS:
        pages.put(PAGE, group, f"### {GROUPS[group][0]}\n\n{table(measured(group, flags))}")
        print(f"wrote the table of {group} into {PAGE.name}")


if __name__ == "__main__":
    main()
