"""Retrieval and drafting engines over datastores, as the tables of docs/retrieval.md.

    python tools/bench_retrieval.py [auto] [paper] [--model sample|smollm2] [--repeats N] [--tokens N] [--write]

auto: drafts sized by the measured t(n), timed. paper: the published sizes, one repeat, counted and not timed: what is
accepted whatever it costs.

Two sets of prompts that are in no store: the showcase, and others of the templates that the sample store's prompts were
made of. Three datastores: the model's own answers (``sample``), the Python standard library, and as much of it with
hidden states as the sample store holds. Each table is one race (``engines.race``): lanes interleaved, every run cold.

smollm2 has one set, the showcase, and one datastore, that of its own answers, which ships.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("HF_HUB_OFFLINE", "1")
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import pages  # noqa: E402
import sample_prompts  # noqa: E402

if TYPE_CHECKING:
    from engines.race.result import LaneFigures, RaceResult
    from engines.runtime import Runtime

LIBRARY, LIBRARY_DENSE, LIBRARY_TOKENS = "python-stdlib", "bench-python-dense", 60_000
SAMPLE = "sample"
HELD_OUT = 16
PAGE = ROOT / "docs" / "retrieval.md"
COUNTED = ("lane", "rounds that draft", "accepted", "path", "M", "tau")
TIMED = ("tokens/s / autoregressive", "lookup, ms", "drafting, ms")
AUTO = (
    "autoregressive", "pld", "draft", "draft:shape=tree", "rest", "rest:n_min=1", "dresd", "rasd:drafter=draft",
    "hybrid", f"rest:datastore={LIBRARY}", f"dresd:datastore={LIBRARY_DENSE}",
    f"rasd:drafter=draft:datastore={LIBRARY}",
)
PAPER = (
    "autoregressive", "pld:budget=paper", "draft:shape=tree:budget=paper", "rest:budget=paper",
    "rest:budget=paper:c=8", "dresd:budget=paper", "dresd:budget=paper:drafts=3:length=20",
    "rasd:drafter=draft:budget=paper", "rasd:drafter=draft:budget=paper:prune=false",
    "rasd:drafter=draft:budget=paper:fuse=false", f"rest:budget=paper:datastore={LIBRARY}",
    f"dresd:budget=paper:datastore={LIBRARY_DENSE}", f"rasd:drafter=draft:budget=paper:datastore={LIBRARY}",
)

HEADS = {
    "auto": ("eagle", "rasd:drafter=eagle"),
    "paper": ("eagle:shape=tree:budget=paper", "rasd:drafter=eagle:budget=paper"),
}


def lanes_of(sizes: str, model: str) -> tuple[str, ...]:
    """The lanes of a table. smollm2's have no other datastore than its own, and ``rasd`` with its draft head, too."""
    lanes = AUTO if sizes == "auto" else PAPER
    if model == SAMPLE:
        return lanes
    return (*(lane for lane in lanes if "datastore=" not in lane), *HEADS[sizes])


def sets(model: str) -> dict[str, list[str]]:
    """The prompts, by what they are."""
    from spec_tui.learn.showcase_prompts import SHOWCASES

    found = {"the showcase": [case.prompt for case in SHOWCASES]}
    held_out = {"held-out prompts of the store's templates": sample_prompts.held_out(HELD_OUT)}
    return found | (held_out if model == SAMPLE else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", metavar="sizes", help="auto, paper (default: both)")
    parser.add_argument("--model", choices=(SAMPLE, "smollm2"), default=SAMPLE)
    parser.add_argument("--prompts", type=int, help="of each set (default: all)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=160, help="at most so many new tokens a run")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    wanted = arguments.sizes or ["auto", "paper"]
    if set(wanted) - {"auto", "paper"} or arguments.repeats < 1:
        parser.error("sizes are auto and paper; repeats at least 1")
    from engines import load

    model = arguments.model
    runtime = load(model)
    if model == SAMPLE:
        library(runtime)
    for sizes in wanted:
        auto, lanes = sizes == "auto", lanes_of(sizes, model)
        parts = [*([near()] if model == SAMPLE else []), *([price(runtime)] if auto else [])]
        for name, prompts in sets(model).items():
            title = f"### {name[0].upper()}{name[1:]}, {'budget=auto' if auto else 'published sizes'}"
            asked, repeats = prompts[: arguments.prompts], arguments.repeats if auto else 1
            found = table(runtime, lanes, asked, repeats, arguments.tokens, COUNTED + TIMED * auto)
            parts.append(f"{title if model == SAMPLE else title + ', smollm2'}\n\n{found}")
            print(parts[-1], "\n", flush=True)
        if arguments.write:
            pages.put(PAGE, sizes if model == SAMPLE else f"{model}-{sizes}", "\n\n".join(parts))


def near() -> str:
    """How far the prompts are from those of the sample store."""
    mine = [text for prompts in sets(SAMPLE).values() for text in prompts]
    pairs = sample_prompts.overlap(mine, sample_prompts.prompts())
    return (
        f"Overlap: of {len(mine)} prompts, {len(pairs)} share {sample_prompts.SHARED_WORDS} consecutive words (or all"
        f" of a shorter one) with one of the {len(sample_prompts.prompts())} whose answers are in the store."
    )


def price(runtime: Runtime) -> str:
    """What verification cost when this ran."""
    points = "  ".join(f"{n}: {s * 1e3:.1f}" for n, s in runtime.ready.price)
    return f"t(n) of the target in ms, by rows: {points}; {runtime.ready.threads} thread(s), {runtime.ready.backend}."


def library(runtime: Runtime) -> None:
    """Build the standard library's hidden states where they are missing."""
    from engines.datastores.building import build_spec as order
    from engines.datastores.storage import catalog as places

    if LIBRARY_DENSE not in {entry.name for entry in places.listing() if not entry.unfinished}:
        print(f"building {LIBRARY_DENSE} ...", file=sys.stderr, flush=True)
        wanted = order.BuildSpec(LIBRARY_DENSE, (LIBRARY,), "dense", limit=LIBRARY_TOKENS)
        order.build(wanted, order.open_corpus(wanted, lambda: runtime), runtime.tokenizer, runtime)


def table(
    runtime: Runtime, lanes: tuple[str, ...], prompts: list[str], repeats: int, tokens: int, columns: tuple[str, ...]
) -> str:
    """One race as a table; raises SystemExit where the lanes did not write the same texts."""
    from engines import Request
    from engines.race.lanes import Race, parse_lane
    from engines.race.result import RaceResult
    from engines.race.runner import race

    asked = Race(
        tuple(map(parse_lane, lanes)), Request((), max_new_tokens=tokens), tuple((text,) for text in prompts), repeats
    )
    result = RaceResult()
    for event in race(runtime, asked):
        result.add(event)
    others = [pair for pair in result.pairs if pair.verdict != "same"]
    if others:
        raise SystemExit(f"not the same text: {others[0]}")
    rows = []
    for figures in result.figures():
        cells = [f"`{asked.labels[figures.lane]}`", *counted(figures), *timed(figures, result)]
        rows.append(f"| {' | '.join(cells[: len(columns)])} |")
    noise = result.disturbance()
    foot = f"{len(prompts)} prompts, {repeats} repeat(s), all texts the same"
    if columns != COUNTED and noise.other_cores is not None:
        foot += f"; {noise.other_cores:.2f} cores were busy with something else"
    return "\n".join([f"| {' | '.join(columns)} |", "|" + "---|" * len(columns), *rows, "", foot + "."])


def counted(figures: LaneFigures) -> list[str]:
    """What was accepted. Path acceptance is averaged over prompts: DReSD's MAR."""
    metrics = figures.metrics
    return [
        _share(metrics.drafting_rounds / metrics.target_forwards), _share(metrics.acceptance_rate),
        _share(figures.over_prompts.path_acceptance), f"{metrics.mean_generated_length:.2f}", f"{metrics.tau:.2f}",
    ]


def timed(figures: LaneFigures, result: RaceResult) -> list[str]:
    """What it took: the median of the repeats with their interval; the median lookup; a round's mean drafting."""
    metrics, speed = figures.metrics, figures.speed_up
    rounds = [event for run in result.of(figures.lane) for event in run.state.events]
    lookups = [e.retrieval.seconds * 1e3 for e in rounds if getattr(e, "retrieval", None)]
    return [
        f"{speed.median:.2f}" + (f" ({speed.low:.2f}..{speed.high:.2f})" if speed.low else "") if speed else
        f"{figures.rate.median:.0f} tokens/s",
        f"{statistics.median(lookups):.2f}" if lookups else "",
        f"{metrics.draft_seconds / metrics.target_forwards * 1e3:.2f}",
    ]


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


if __name__ == "__main__":
    main()
