"""A racer on a virtual clock: every token takes what the clock says, and whoever looks at an event moves it."""

from __future__ import annotations

from collections.abc import Callable

from engines.errors import ModelUnavailable, RunFailed
from engines.laws import LAWS
from engines.methods import find
from engines.report.events import Audited, Choice, Draft, Emitted, Finished, Prefilled, Prefilling, Round, Started

TOKENS = (7, 8, 9, 10, 11, 12, 13, 14)


class VirtualRacer:
    """A decoder whose lanes all need the same for a token, save what the machine's mood adds.

    Attributes:
        now: the clock, seconds.
        mood: how much slower the machine is at a time.
        texts: tokens by engine, ``TOKENS`` where it is not there.
        verdicts: findings by engine, "identical" where it is not there.
    """

    def __init__(self, mood: Callable[[float], float] = lambda now: 1.0) -> None:
        self.now, self.mood = 0.0, mood
        self.cached = self.learned = 0
        self.ran: list[str] = []
        self.limits: list[int] = []
        self.asked: list[tuple] = []
        self.texts: dict[str, tuple[int, ...]] = {}
        self.verdicts: dict[str, str] = {}
        self.breaks: dict[str, int] = {}  # by engine: the run (from 0, the warm-up) that fails
        self.missing: set[str] = set()  # draft models that cannot be loaded
        self.audits = 0

    def forget(self) -> None:
        self.cached = 0

    def forget_acceptance(self) -> None:
        self.learned = 0

    def memory(self, engine, options, rows, draft_model=""):
        self._load(draft_model)
        return 1000 * len(engine) + rows

    def run(self, request, cancelled=lambda: False, progress=lambda event: None):
        self._load(request.draft_model)
        progress(Prefilling(256, 1500, 2.0))
        if self.breaks.get(request.engine) == self.ran.count(request.engine):
            raise RunFailed("it broke", "mend it")
        self.ran.append(request.engine)
        self.limits.append(request.max_new_tokens)
        self.asked.append(request.conversation)
        tokens = self.texts.get(request.engine, TOKENS)[: request.max_new_tokens]
        yield Started(
            request.engine, {}, request.law, request.temperature, 1.0, 0, request.seed, request.max_new_tokens, "model",
            "float32", "cpu", (1, 2, 3), conversation=request.conversation,
            lossless=find(request.engine).lossless_under(LAWS[request.law]),
        )
        reused, clock = self.cached, self.now
        self._work(0 if reused else 3)
        before, clock = clock, self.now
        yield Prefilled(3, reused, clock - before, Emitted(tokens[0], "a", "a", "target"), 3)
        for index, token in enumerate(tokens[1:], 1):
            if cancelled():
                yield Finished("cancelled", tokens[:index], "a" * index)
                return
            self._work(0.5**self.learned)  # so that sums are exact
            self.learned += 1
            made, before, clock = (Emitted(token, "a", "a", "target"),), clock, self.now
            yield Round(index, 3 + index, Draft(), (), made, 0.0, clock - before, 0.0, 3 + index)
        self.cached = 3
        yield Finished("length", tokens, f"{request.engine} says")

    def audit(self, answer, cancelled=lambda: False, progress=lambda done: None):
        self.audits += 1
        engine = next((name for name, tokens in self.texts.items() if tokens == answer.tokens), "")
        verdict = self.verdicts.get(engine, "identical")
        if verdict == "broken":
            raise RunFailed("the audit broke")
        if cancelled():
            return None
        n = len(answer.tokens)
        choices = tuple(Choice(token, "a", 1.0) for token in answer.tokens)
        return Audited(verdict, None, None, 0.01, 0.005, n, 0, 0, choices, (0.0,) * n, (1.0,) * n)

    def _load(self, draft_model: str) -> None:
        if draft_model in self.missing:
            raise ModelUnavailable(f"there is no model {draft_model}", "check the path")

    def _work(self, amount: float) -> None:
        self.now += amount * self.mood(self.now)
