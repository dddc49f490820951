"""Machines and sets of prompts that are made up, with all settings that the adviser tries: what it advises, beside what
is true there.

    python -m tests.advice.simulated [--machines N] [--minutes M]

Tokens of a round are drawn once for a setting and a prompt, as greedy decoding has them; times are t(n) with a
setting's own factor, drafting, a machine whose pace drifts, and noise of single runs. The truth is the time of whole
answers to all prompts without drift and noise.
"""

from __future__ import annotations

import argparse
import gc
import math
import random
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from engines.advice.adviser import Adviser
from engines.advice.halving import AnswerPace
from engines.advice.trial_lanes import candidates
from engines.bench.suite import parse
from engines.cost.curve import CostCurve, best_length
from engines.race import runner
from engines.race.lanes import Lane
from engines.report.events import Draft, Emitted, Finished, Origin, Prefilled, Round, Started
from engines.request import Request
from spec_tui.present.advice_text import chosen, last_measured, ranked, verdict_of
from spec_tui.present.speed_verdict import Speed
from tests.advice.made import PacedRacer

KINDS = ("advice", "code", "story", "facts")
SUITE = "\n".join(f'{{"prompt": "{kind} {n}", "category": "{kind}"}}' for kind in KINDS for n in range(2))
ALONE, ROW, PREFILL = 0.034, 0.05, 0.25  # seconds of a pass, the share that a row adds, seconds of a prompt
PRICE = tuple((rows, ALONE * (1 + ROW * (rows - 1))) for rows in (1, 2, 4, 8, 16, 64))
LANES = candidates(lambda spec, options, draft: "")[0]


@dataclass(frozen=True)
class Setting:
    """A lane on this machine: what is accepted by prompt, how much it drafts, seconds of drafting a round, and how long
    its passes take over t(n)."""

    accepted: dict[str, float]
    size: int | None
    drafting: float
    own: float


class SimulatedMachine(PacedRacer):
    """A racer; ``noise``: of a run, as a share of its time."""

    def __init__(self, seed: int, noise: float = 0.03, gain: float = 0.0) -> None:
        super().__init__(PRICE)
        self.seed, self.noise = seed, noise
        self.dice, self.pace = random.Random(seed), 0.0
        self.settings: dict[str, Setting] = {}
        prompts = [case.turns[0] for case in parse(SUITE, "made").cases]
        methods: dict[object, tuple] = {}
        for lane in LANES:
            if lane.method not in methods:
                kinds = {kind: self.dice.gauss(0, 0.7) for kind in KINDS}
                base = self.dice.gauss(gain - 1.0, 0.7)
                methods[lane.method] = ({p: base + kinds[p.split()[0]] + self.dice.gauss(0, 0.5) for p in prompts},
                                        self.dice.choice((0.0003, 0.0006, 0.005, 0.012)))
            logits, drafting = methods[lane.method]
            shift = self.dice.gauss(0, 0.15)
            accepted = {p: 1 / (1 + math.exp(-value - shift - self.dice.gauss(0, 0.15))) for p, value in logits.items()}
            size = self.dice.choice((3, 10)) if lane.options.get("budget") == "paper" else None
            self.settings[lane.label] = Setting(accepted, size, drafting, math.exp(self.dice.gauss(0, 0.02)))

    @cached_property
    def truth(self) -> dict[str, float]:
        """By label the speed-up over autoregressive decoding on all prompts."""
        return {label: 8 * 47 * ALONE / sum(self._seconds(label, prompt, 48) for prompt in setting.accepted)
                for label, setting in self.settings.items()} | {"autoregressive": 1.0}

    def _seconds(self, label: str, prompt: str, most: int) -> float:
        return sum(drafting + verify for *_, drafting, verify in self._rounds(label, prompt, most))

    def _rounds(self, label: str, prompt: str, most: int):
        """(drafted, accepted, seconds of drafting, of verifying) of each round, without noise."""
        setting = self.settings.get(label)
        dice, made, curve = random.Random(f"{self.seed} {label} {prompt}"), 1, CostCurve(PRICE)
        chance = setting.accepted[prompt] if setting else 0.0
        survival = list(accumulate([chance] * 10, lambda a, b: a * b))
        size = 0 if setting is None else setting.size or best_length(survival, [curve.at(1 + n) for n in range(11)])
        while made < most:
            drafted = min(size, most - made - 1)
            kept = next((n for n in range(drafted) if dice.random() > chance), drafted)
            own = setting.own if setting and drafted else 1.0
            yield drafted, kept, setting.drafting if setting else 0.0, curve.at(1 + drafted) * own
            made += kept + 1

    def run(self, request, cancelled=lambda: False, progress=lambda event: None):
        label, prompt = Lane(request.engine, dict(request.options)).label, request.conversation[-1][1]
        yield Started(request.engine, {}, request.law, 0.0, 1.0, 0, 0, request.max_new_tokens, "m", "float32", "cpu",
                      (1,) * 9, conversation=request.conversation, price=self.price)
        self.now += PREFILL
        yield Prefilled(1, 0, PREFILL, Emitted(5, "a", "a", "target"), 1)
        self.pace = 0.9 * self.pace + self.dice.gauss(0, 0.02)
        slower, made = math.exp(self.pace + self.dice.gauss(0, self.noise)), 1
        rounds = self._rounds(label, prompt, request.max_new_tokens)
        for index, (drafted, kept, drafting, verify) in enumerate(rounds, 1):
            draft = Draft((5,) * drafted, tuple(range(-1, drafted - 1)), ("x",) * drafted, (None,) * drafted,
                          (0,) * drafted, (Origin("prompt"),) if drafted else ())
            emitted = (*(Emitted(5, "a", "a", "accepted", n) for n in range(kept)), Emitted(5, "a", "a", "target"))
            self.now += (drafting + verify) * slower
            yield Round(index, made, draft, tuple(range(kept)), emitted, drafting * slower, verify * slower, 0.0, made)
            made += kept + 1
        yield Finished("length", (5,) * made, "a" * made)


@dataclass(frozen=True)
class Outcome:
    """Of an adviser on a machine: the advised setting's true speed over the best one's, and what was said."""

    regret: float
    advised: float
    best: float
    wrong: bool
    missed: bool
    unsure: bool


def advised_on(machine: SimulatedMachine, minutes: float = 3.0) -> Outcome:
    """Run it."""
    adviser = Adviser(machine, LANES, parse(SUITE, "made"), Request((), max_new_tokens=48), 60 * minutes,
                      pace=AnswerPace(0.5 / ALONE, 0.0, 48, 8), clock=lambda: machine.now, temperature=0.8)
    for _ in adviser.run():
        pass
    last = last_measured(adviser)
    lane = chosen(last)
    said = verdict_of(last, ranked(last)[0]).speed
    true, best = 1.0 if lane is None else machine.truth[last.lanes[lane].label], max(machine.truth.values())
    return Outcome(true / best, true, best, wrong=bool(lane) and true < 1, missed=best > 1.05 and not lane,
                   unsure=said is Speed.SAME or lane is None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=3.0)
    given = parser.parse_args()
    runner.gc = type("NoSweep", (), {"collect": staticmethod(lambda: None)})
    gc.freeze()
    print("| machine | advised / best, mean | within 5% | within 10% | slower called faster | a gain of 5% missed |")
    print("|---|---|---|---|---|---|")
    for words, noise, gain in (("quiet, drafts gain", 0.02, 0.5), ("quiet, they barely do", 0.02, -1.0),
                               ("busy, drafts gain", 0.10, 0.5), ("busy, they barely do", 0.10, -1.0)):
        found = [advised_on(SimulatedMachine(seed, noise, gain), given.minutes) for seed in range(given.machines)]
        shares = [sum(each) / len(found) for each in (
            [f.regret for f in found], [f.regret > 0.95 for f in found], [f.regret > 0.90 for f in found],
            [f.wrong for f in found], [f.missed for f in found])]
        print(f"| {words} (best {sum(f.best for f in found) / len(found):.2f}x) | {shares[0]:.3f} | "
              + " | ".join(f"{share:.0%}" for share in shares[1:]) + " |", flush=True)


if __name__ == "__main__":
    main()
