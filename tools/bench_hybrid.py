"""``hybrid`` beside its sources, by computed time: on each task of the own suite, is it as fast as the best of them?

    python tools/bench_hybrid.py [--model MODEL] [--tokens N] [--lanes LANE,LANE...] [--tasks TASK,TASK...] [--session]

Greedy, each answer with nothing learned before it; with --session what was accepted is known from one answer of a task
to the next, as in a conversation. Seconds are t(n) of a quiet machine (two cores, float32, in units of t(1)) for the
rows of each round, and the head's share of it for its passes; lookups count nothing. With budget=auto the number of
drafted rows also depends on the times of earlier rounds, so a busy machine may give another table.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from engines import Request, load, measure
from engines.bench import suite
from engines.cost.curve import CostCurve
from engines.race.lanes import parse_lanes
from engines.report.metrics import Metrics, together

T1 = 0.034  # seconds
TARGET = CostCurve(tuple((rows, T1 * over) for rows, over in ((1, 1.0), (2, 1.06), (4, 1.16), (8, 1.36), (16, 1.78),
                                                             (32, 2.55), (64, 4.2))))
HEAD = CostCurve(((1, 0.08 * T1), (64, 0.3 * T1)))
LANES = "hybrid,hybrid:model=false,suffix,rest,dresd,eagle"


def seconds(m: Metrics) -> float:
    return sum(count * TARGET.at(rows) for rows, count in m.rows.items()) + m.draft_forwards * HEAD.at(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--lanes", default=LANES)
    parser.add_argument("--tasks", default="", help="only these of the own suite")
    parser.add_argument("--session", action="store_true", help="keep what was accepted within a task")
    given = parser.parse_args()
    lanes = parse_lanes([given.lanes])
    runtime = load(given.model)
    prices = runtime.prices
    runtime.prices = prices._replace(target=TARGET, heads=dict.fromkeys(prices.heads, HEAD))
    tasks: dict[str, list[str]] = {}
    for case in suite.shipped().cases:
        if not given.tasks or case.task in given.tasks.split(","):
            tasks.setdefault(case.task, []).append(case.turns[0])
    print(f"| task | {' | '.join(f'`{lane.label}`' for lane in lanes)} | first / best other | drafted by |")
    print("|---" * (len(lanes) + 3) + "|", flush=True)
    for task, prompts in tasks.items():
        speeds, texts, drafted = [], set(), Counter()
        for number, lane in enumerate(lanes):
            found, said = [], []
            for position, prompt in enumerate(prompts):
                runtime.forget()
                if not (given.session and position):
                    runtime.forget_acceptance()
                request = Request((("user", prompt),), max_new_tokens=given.tokens)
                events = list(runtime.run(lane.of(request)))
                found.append(measure(events))
                said.append(events[-1].tokens)
                drafted.update(e.note.get("drafted_by") for e in events if number == 0 and getattr(e, "note", None))
            total = together(found)
            speeds.append((total.new_tokens - total.answers) * T1 / seconds(total))
            texts.add(tuple(said))
        best = max(speed for lane, speed in zip(lanes, speeds) if lane.engine != lanes[0].engine)
        differ = "" if len(texts) == 1 else ", texts differ"
        print(f"| {task}, {len(prompts)} | {' | '.join(f'{speed:.2f}x' for speed in speeds)} | {speeds[0] / best:.2f}"
              f"{differ} | {dict(drafted)} |", flush=True)


if __name__ == "__main__":
    main()
