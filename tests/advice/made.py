"""A racer on a virtual clock whose engines make as many tokens a round, in as many seconds, as a test says."""

from __future__ import annotations

from dataclasses import dataclass

from engines.advice.adviser import Adviser
from engines.advice.halving import AnswerPace
from engines.bench.suite import parse
from engines.errors import RunFailed
from engines.race.lanes import parse_lanes
from engines.report.events import Audited, Choice, Draft, Emitted, Finished, Origin, Prefilled, Round, Started
from engines.request import Request

SUITE = "\n".join(f'{{"prompt": "{kind} {n}", "category": "{kind}"}}' for kind in ("copy", "story") for n in range(4))
ALONE = 0.010  # seconds of a round of the baseline


@dataclass
class Costs:
    """A round: tokens, seconds of verifying and of drafting; ``kinds`` scales its time on prompts that begin so, by
    more drafting."""

    tokens: int = 1
    verify: float = ALONE
    draft: float = 0.0
    kinds: tuple[tuple[str, float], ...] = ()


class PacedRacer:
    """Attributes: ``now`` seconds; ``costs`` by engine, one token a round where it has none; ``breaks``
    engines; ``price`` t(n); ``mood`` how much slower a run is."""

    def __init__(self, price=(), **costs: Costs) -> None:
        self.now, self.price, self.costs = 0.0, price, costs
        self.breaks: set[str] = set()
        self.asked: list[str] = []
        self.mood = lambda: 1.0

    def run(self, request, cancelled=lambda: False, progress=lambda event: None):
        if request.engine in self.breaks:
            raise RunFailed("it broke", "mend it")
        prompt = request.conversation[-1][1]
        self.asked.append(prompt)
        cost = self.costs.get(request.engine, Costs())
        slower = next((factor for kind, factor in cost.kinds if prompt.startswith(kind)), 1.0)
        jitter = (1 + 0.01 * (hash_of(request.engine + prompt) % 5 - 2)) * self.mood()
        yield Started(request.engine, {}, request.law, 0.0, 1.0, 0, 0, request.max_new_tokens, "m", "float32", "cpu",
                      (1,) * (300 if prompt.startswith("story") else 9),
                      conversation=request.conversation, price=self.price)
        self.now += ALONE
        yield Prefilled(1, 0, ALONE, Emitted(5, "a", "a", "target"), 1)
        made, index = 1, 0
        while made < request.max_new_tokens:
            count = min(cost.tokens, request.max_new_tokens - made)
            drafted = tuple(range(count - 1))
            draft = Draft(drafted, tuple(n - 1 for n in drafted), ("x",) * len(drafted), (None,) * len(drafted),
                          (0,) * len(drafted), (Origin("prompt"),))
            emitted = (*(Emitted(5, "a", "a", "accepted", n) for n in drafted), Emitted(5, "a", "a", "target"))
            drafting = cost.draft + (slower - 1) * (cost.verify + cost.draft)
            verify, drafting = cost.verify * jitter, drafting * jitter
            self.now += verify + drafting
            index += 1
            yield Round(index, made, draft, drafted, emitted, drafting, verify, 0.0, made)
            made += count
        yield Finished("length", (5,) * made, "a" * made)

    def audit(self, answer, cancelled=lambda: False, progress=lambda done: None):
        n = len(answer.tokens)
        choices = (Choice(5, "a", 1.0),) * n
        return Audited("identical", None, None, 0.01, 0.005, n, 0, 0, choices, (0.0,) * n, (1.0,) * n)

    def forget(self):
        """Nothing is kept."""

    def forget_acceptance(self):
        """Nothing is learned."""

    def memory(self, engine, options, rows, draft_model=""):
        return rows


def hash_of(text: str) -> int:
    """The same in every process."""
    return sum(map(ord, text))


def adviser(racer: PacedRacer, lanes: str, seconds: float = 60.0, suite: str = SUITE, **more) -> Adviser:
    return Adviser(racer, parse_lanes([lanes]), parse(suite, "made"), Request((), max_new_tokens=25), seconds,
                   pace=AnswerPace(1 / ALONE, 0.0, 25, 8), clock=lambda: racer.now, **more)


def ran(racer: PacedRacer, lanes: str, seconds: float = 60.0, suite: str = SUITE, **more) -> Adviser:
    found = adviser(racer, lanes, seconds, suite, **more)
    for _ in found.run():
        pass
    return found
