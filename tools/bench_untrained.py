"""Drafters without training, beside prompt lookup: tokens a verify step, speed, and a drafter's own time.

    python tools/bench_untrained.py [--model MODEL] [--lanes LANE,LANE...] [--tokens N] [--repeats N]
    python tools/bench_untrained.py --drafting

Greedy, on sets of prompts: copying (the own suite's tasks copy and edit), a session of ten similar prompts, asked
one after another, and some asked again and again: a repeated task. Every lane answers a prompt before the next one is
asked, in an order that favours none; each begins a session and a repeat with nothing learned and no past answers. Two
lanes that keep past answers would share them: give them in two calls.

--drafting: what a drafter itself takes a round, with 100,000 tokens of past answers (of the datastores of smollm2 that
ship, twelve of whose answers are written): median, mean, and the slowest of a hundred, in processor time. All is
written several times, and of each round the shortest time counts: the others are longer by what else the machine did.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from time import thread_time
from types import SimpleNamespace

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).parent.parent))

from benches.rows import shuffled

from engines import Request, load, measure, methods
from engines.bench import suite
from engines.core.lossless_laws import Verdict
from engines.core.outcome import DraftLimits, Outcome
from engines.core.tree import DraftTree
from engines.cost.budget import Acceptance, Budget
from engines.cost.curve import CostCurve
from engines.methods.drafter import Drafter, Resources
from engines.methods.shared import past_answers
from engines.methods.shared.past_answers import PastAnswers
from engines.race.lanes import Lane, parse_lane

PEOPLE = ("Anna", "Bernd", "Clara", "David", "Elena", "Frank", "Greta", "Hugo", "Ida", "Jonas")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
NUMBERS = ("sum", "product", "largest number", "smallest number", "average", "median", "second largest number",
           "number of even numbers", "sum of the squares", "range")
SESSIONS = {
    "ten emails": [f"Write a short email to my colleague {name} to move our meeting from {DAYS[i % 5]} to "
                   f"{DAYS[(i + 2) % 5]}." for i, name in enumerate(PEOPLE)],
    "ten functions": [f"Write a Python function that takes a list of numbers and returns their {what}, with an example."
                      for what in NUMBERS],
}
HISTORY = 100_000
TIMES = 5  # that all is written with --drafting


def sets() -> dict[str, list[str]]:
    """Prompts by the name of their set."""
    copying = [case.turns[0] for case in suite.shipped().cases if case.task in ("copy", "edit")]
    again = SESSIONS["ten functions"][:3]
    return {"copying": copying, **SESSIONS, "a repeated task": again * 3}


def run(model: str | None, lanes: list[Lane], tokens: int, repeats: int) -> None:
    """All sets: a table of each."""
    runtime = load(model, threads=os.cpu_count())
    os.environ["SPEC_TUI_DATA_DIR"] = tempfile.mkdtemp(prefix="spec-tui-bench-")  # the user's answers stay out of it
    names = [lane.label for lane in lanes]
    for name, prompts in sets().items():
        rates: dict[str, list[float]] = {lane: [] for lane in names}
        steps: dict[str, float] = {}
        drafting: dict[str, list[float]] = {lane: [] for lane in names}
        for repeat in range(repeats):
            past_answers.forget()
            runtime.forget_acceptance()
            made, forwards, seconds = (dict.fromkeys(names, 0.0) for _ in range(3))
            for number, prompt in enumerate(prompts):
                for lane in shuffled(names, repeat * len(prompts) + number):
                    chosen = lanes[names.index(lane)]
                    runtime.forget()
                    if name == "copying":
                        past_answers.forget()
                    asked = chosen.of(Request((("user", prompt),), max_new_tokens=tokens))
                    found = measure(runtime.run(replace(asked, keeps=True)))
                    made[lane] += found.new_tokens - 1
                    forwards[lane] += found.target_forwards
                    seconds[lane] += found.decode_seconds
                    drafting[lane].append(found.draft_seconds / max(1, found.target_forwards))
            for lane in names:
                rates[lane].append(made[lane] / seconds[lane])
                steps[lane] = made[lane] / forwards[lane]
        print(f"\n{name}: {len(prompts)} prompts, {repeats} repeats\n")
        print("| lane | M | tokens/s / " + names[0] + " | drafting, ms a round |\n|---|---|---|---|")
        for lane in names:
            ratios = sorted(rate / base for rate, base in zip(rates[lane], rates[names[0]]))
            spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f})"
            print(f"| `{lane}` | {steps[lane]:.2f} | {spread} | {1e3 * statistics.median(drafting[lane]):.2f} |",
                  flush=True)


def drafting(lanes: list[Lane]) -> None:
    """Own times with a long history."""
    answers, vocab_size = shipped_answers()
    os.environ["SPEC_TUI_DATA_DIR"] = tempfile.mkdtemp(prefix="spec-tui-bench-")
    written = [answer for answer in answers if len(answer) > 60][-12:]
    kept = PastAnswers("bench", vocab_size)
    count = 0
    for answer in (answer for answer in answers * 2 if answer not in written):
        if count + len(answer) > HISTORY:
            break
        count += len(answer)
        kept.add(answer)
    print(f"{count:,} tokens of past answers\n\n| lane | median | mean | slowest of 100 |\n|---|---|---|---|")
    for lane in lanes:
        spec, every = methods.find(lane.engine), []
        for _ in range(TIMES):
            memory, acceptance, took = {}, Acceptance(), []
            for answer in written:
                resources = Resources(
                    law=None, vocab_size=vocab_size, target=SimpleNamespace(fingerprint="bench"), memory=memory,
                    keeps=True, budget=Budget(CostCurve(((1, 0.02), (8, 0.024), (64, 0.06))), acceptance),
                )
                took += rounds(spec.load_drafter()(resources, **spec.parse(lane.options)), answer)
            every.append(took)
        took = sorted(1e3 * min(times) for times in zip(*every, strict=True))
        print(f"| `{lane.label}` | {statistics.median(took):.3f} ms | {statistics.mean(took):.3f} ms | "
              f"{took[99 * len(took) // 100]:.3f} ms |", flush=True)


def rounds(drafter: Drafter, answer: list[int]) -> Iterable[float]:
    """Seconds of each round in which the drafter helps to write this answer; its last round is left out, so that
    nothing is kept of it."""
    prompt, context = answer[:16], answer[:17]

    def outcome(tree: DraftTree, path: list[int], new: list[int]) -> Outcome:
        return Outcome(context=context, prompt_length=len(prompt), position=len(context) - len(new), tree=tree,
                       verdict=Verdict(path=path, tokens=new), logits=None)

    drafter.start(outcome(DraftTree(), [], context[-1:]))
    while (room := len(answer) - len(context) - 1) > 0:
        clock = thread_time()
        tree = drafter.propose(context, DraftLimits(room, 512)).capped(room, 512)
        seconds = thread_time() - clock
        path, node = [], -1
        for token in answer[len(context) :]:
            if not (below := tree.carrying(node, token)):
                break
            node = below[0]
            path.append(node)
        new = answer[len(context) : len(context) + len(path) + 1]
        context.extend(new)
        clock = thread_time()
        drafter.learn(outcome(tree, path, new))
        yield seconds + thread_time() - clock


def shipped_answers() -> tuple[list[list[int]], int]:
    """The model's own answers in the datastores of smollm2, and the size of its vocabulary."""
    from engines.datastores.storage import catalog
    from engines.datastores.storage.datastore import Documents, Store

    found = []
    for name in ("smollm2", "smollm2-dense"):
        entry = next(entry for entry in catalog.listing() if entry.name == name)
        store = Store(entry.folder)
        documents, tokens = Documents(store), store.array("tokens")
        bounds = [documents.bounds(number) for number in range(len(documents))]
        found += [tokens[begin:end].astype(int).tolist() for begin, end in bounds]
    return found, store.manifest.vocab_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--lanes", default="autoregressive,pld,suffix")
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--drafting", action="store_true")
    given = parser.parse_args()
    lanes = [parse_lane(lane) for lane in given.lanes.split(",")]
    if given.drafting:
        drafting([lane for lane in lanes if not methods.find(lane.engine).baseline])
    else:
        run(given.model, lanes, given.tokens, given.repeats)


if __name__ == "__main__":
    main()
