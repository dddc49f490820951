"""The adviser beside an exhaustive sweep: for each set of prompts, whether it named the setting that is the fastest.

    python tools/bench_advise.py [--model MODEL] [--minutes 2] [--sweep-minutes 4] [--sample 4] [--tokens 48]
                                 [--out FILE] [FILE...]

FILE: prompts as ``spec-tui advise --prompts`` takes them; without any, the three sets of tools/advise_prompts. Of each
--sample prompts are asked, of all kinds, the same ones of the adviser and of the sweep. The adviser has its minutes.
Then all of its candidates, those that it dropped too, answer the prompts in one race, in turns, until the sweep's
minutes are over. The ratio is the advised setting's speed over that of the sweep's fastest one, both in the sweep: the
adviser's own measurements are no part of it. The fastest is the one by computed time (``Screening.score``); "by t(n)"
is the ratio of these times, the other one is measured. It is a tie where 1 is within the noise.

The tables are written to --out after every prompt of a sweep: ctrl+c leaves what is known.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from engines import Request, load, methods
from engines.advice import halving
from engines.advice.adviser import Adviser, Stopwatch
from engines.advice.findings import BASELINE, Screening
from engines.bench.prompt_files import open_prompts
from engines.bench.suite import Suite
from engines.folders import write_whole
from engines.race.lanes import Lane, Race
from engines.race.race_events import LaneFinished
from engines.race.result import RaceResult
from engines.race.runner import race
from engines.runtime import Runtime
from spec_tui.present.advice_text import chosen, judge, last_measured, ranked, sentences
from spec_tui.present.speed_verdict import Speed
from spec_tui.session.advice_setup import prepare

PROMPTS = Path(__file__).with_name("advise_prompts")


@dataclass
class Case:
    """One set of prompts: the adviser at work on it, and the sweep, None before it begins."""

    name: str
    adviser: Adviser
    sweep: Screening | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def choice(self) -> Lane | None:
        """What is advised; None without a verdict."""
        last = last_measured(self.adviser)
        lane = chosen(last) if last is not None else None
        return None if lane is None else last.lanes[lane]

    def best(self) -> int | None:
        """The sweep's fastest lane, the baseline among them; None before anything was measured."""
        order = ranked(self.sweep) if self.sweep is not None else []
        if not order:
            return None
        return order[0] if self.sweep.score(order[0]) > 1 else BASELINE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--sweep-minutes", type=float, default=4.0)
    parser.add_argument("--sample", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    files = given.files or [PROMPTS / f"{name}.jsonl" for name in ("chat", "code_editing", "retrieval")]
    runtime, cases = load(given.model), []
    try:
        for file in files:
            suite = halving.sampled(open_prompts(file).suite, given.sample)
            for _ in measured(runtime, suite, given, cases):
                write(given.out, cases)
    except KeyboardInterrupt:
        print("stopped: what is known so far\n")
    print(report(cases), flush=True)


def measured(runtime: Runtime, suite: Suite, given: argparse.Namespace, cases: list[Case]) -> Iterator[None]:
    """Append a set's case, and fill it; pauses wherever there is more to write."""
    request = Request((("user", "x"),), max_new_tokens=given.tokens)
    adviser, _, _ = prepare(runtime, suite, request, given.minutes * 60)
    case = Case(Path(suite.name).stem, adviser)
    cases.append(case)
    clock = perf_counter()
    for event in adviser.run():
        if isinstance(event, LaneFinished) and event.failed is not None:
            print(f"{case.name}: a lane failed: {event.failed.message}", flush=True)
    case.seconds["adviser"] = perf_counter() - clock
    print(f"{case.name}: {' '.join(sentences(adviser))}\n", flush=True)
    yield
    suite = replace(adviser.suite, cases=halving.spread(adviser.suite))
    lanes = (Lane(methods.baseline().id), *adviser.lanes)
    asked = Race(lanes, request, suite.prompts, warm_up=halving.WARM)
    case.sweep = Screening(asked, suite, True, RaceResult(keep_runs=False))
    clock = perf_counter()
    watch = Stopwatch(perf_counter, clock + given.sweep_minutes * 60)
    done = 0
    for event in race(runtime, asked, enough=watch.enough):
        case.sweep.result.add(event)
        watch.see(event)
        case.seconds["sweep"] = perf_counter() - clock
        if case.sweep.prompts() > done:
            done = case.sweep.prompts()
            yield
    yield


def report(cases: Sequence[Case]) -> str:
    """All tables, as Markdown."""
    rows = ["| set | adviser's choice | sweep's fastest | choice / fastest | | by t(n) | settings | prompts | "
            "adviser, sweep |", "|---|---|---|---|---|---|---|---|---|"]
    return "\n".join([*rows, *map(_row, cases), *map(_sweep, cases)])


def _row(case: Case) -> str:
    choice, best = case.choice, case.best()
    name = "no verdict" if choice is None else f"`{choice.label}`"
    if best is None:
        return f"| {case.name} | {name} | not measured | | | | {len(case.adviser.lanes)} | | {_minutes(case)} |"
    lane = None if choice is None else next(n for n, each in enumerate(case.sweep.lanes) if each.label == choice.label)
    found = judge(case.sweep.ratio(lane, best)) if lane not in (None, best) else None
    ratio, tie, computed = "", "no verdict", ""
    if lane is not None:
        computed = f"{case.sweep.score(lane) / case.sweep.score(best):.2f}"
    if lane == best:
        ratio, tie = "1", "the same"
    elif found is not None and found.ratio is not None:
        ratio = f"{found.ratio:.2f}" + ("" if found.noise is None else f" ±{found.noise:.2f}")
        tie = {Speed.SLOWER: "slower", Speed.UNMEASURED: "too few"}.get(found.speed, "a tie")
    return (f"| {case.name} | {name} | `{case.sweep.lanes[best].label}` | {ratio} | {tie} | {computed} | "
            f"{len(case.adviser.lanes)} | {case.sweep.prompts()} | {_minutes(case)} |")


def _minutes(case: Case) -> str:
    return ", ".join(f"{seconds / 60:.1f} min" for seconds in case.seconds.values())


def _sweep(case: Case) -> str:
    """Every setting of the sweep, the fastest first, beside how far it came in the adviser."""
    if case.sweep is None or not case.sweep.prompts():
        return ""
    busy = ", while other programs kept the machine busy" if case.sweep.result.disturbance().matters else ""
    rows = [f"\n{case.name}{busy}\n",
            "| setting | x autoregressive | ± | by t(n) | M | the adviser's last round with it |",
            "|---|---|---|---|---|---|"]
    for lane in ranked(case.sweep):
        found, label = judge(case.sweep.ratio(lane)), case.sweep.lanes[lane].label
        last = max((number for number, each in enumerate(case.adviser.rounds, 1)
                    if label in {other.label for other in each.lanes}), default=None)
        noise = "" if found.noise is None else f"{found.noise:.2f}"
        tokens = case.sweep.metrics(lane).mean_generated_length
        rows.append(f"| `{label}` | {found.ratio:.2f} | {noise} | {case.sweep.score(lane):.2f} | {tokens:.2f} | "
                    f"{'out with its method' if last is None else f'{last} of {len(case.adviser.stages)}'} |")
    return "\n".join(rows)


def write(out: Path | None, cases: Sequence[Case]) -> None:
    """What is known so far, where a file was named."""
    if out is not None:
        write_whole(out, (report(cases) + "\n").encode(), replace=True)


if __name__ == "__main__":
    main()
