"""``--what-if`` held against this machine: speeds modelled for another dtype or thread count, and measured there.

    python tools/bench_what_if.py [--model smollm2] [--lanes LANE,LANE...] [--tokens 48] [--prompts 4]

The settings are measured in float32 on all cores. From that, and from t(n) of the model on one core and in bfloat16,
the speeds there are modelled as ``spec-tui advise --what-if`` does it; then the same race is run there. Acceptance is
that of float32 in the model, and what it is there in the measurement: bfloat16 may write another text.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from engines import Request, load, methods
from engines.advice import halving
from engines.advice.findings import BASELINE, Screening
from engines.advice.what_if import modelled
from engines.bench.prompt_files import open_prompts
from engines.bench.suite import Suite
from engines.cost.curve import CostCurve
from engines.cost.other_machine import OtherMachine
from engines.race.lanes import Lane, Race, parse_lanes
from engines.race.result import RaceResult
from engines.race.runner import race
from engines.runtime import Runtime
from spec_tui.present.advice_text import judge

CORES = os.cpu_count() or 1
HERE, THERE = ("float32", CORES), (("float32", 1), ("bfloat16", CORES))
LANES = "pld,suffix,rest,eagle"
PROMPTS = Path(__file__).with_name("advise_prompts") / "code_editing.jsonl"


def raced(runtime: Runtime, lanes: tuple[Lane, ...], suite: Suite, tokens: int) -> Screening:
    """The settings beside autoregressive decoding on the prompts."""
    request = Request((), max_new_tokens=tokens)
    asked = Race((Lane(methods.baseline().id), *lanes), request, suite.prompts, warm_up=halving.WARM)
    found = Screening(asked, suite, True, RaceResult(keep_runs=False))
    for event in race(runtime, asked):
        found.result.add(event)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--lanes", default=LANES)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--prompts", type=int, default=4)
    given = parser.parse_args()
    lanes, suite = parse_lanes([given.lanes]), halving.sampled(open_prompts(PROMPTS).suite, given.prompts)
    runtime = load(given.model, dtype=HERE[0], threads=HERE[1])
    ready, here = runtime.ready, raced(runtime, lanes, suite, given.tokens)
    print("| setting | dtype, threads | here | modelled | measured there | modelled / measured |")
    print("|---|---|---|---|---|---|", flush=True)
    for dtype, threads in THERE:
        runtime = load(given.model, dtype=dtype, threads=threads)
        machine = OtherMachine(f"{dtype}, {threads}", table=runtime.prices.target, draft_table=runtime.prices.draft)
        said, there = modelled(here, machine, ready), raced(runtime, lanes, suite, given.tokens)
        rows = CostCurve(ready.price).at(1) / runtime.prices.target.at(1)
        print(f"| a pass over one token | {dtype}, {threads} | | | {rows:.2f}x | |")
        for lane, label in enumerate(here.asked.labels):
            if lane == BASELINE or lane not in said or lane in there.failed:
                continue
            measured = judge(there.ratio(lane))
            noise = "" if measured.noise is None else f" ±{measured.noise:.2f}"
            modelled_ratio = said[lane].speed_up
            print(f"| `{label}` | {dtype}, {threads} | {judge(here.ratio(lane)).ratio:.2f}x | {modelled_ratio:.2f}x | "
                  f"{measured.ratio:.2f}x{noise} | {modelled_ratio / measured.ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
