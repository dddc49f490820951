"""What is known from outside of the price of a model in another program: t(n) where it can be measured, and the times
of the rounds that were seen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from engines.methods import known
from engines.report.events import Ready
from engines.report.run_state import RunState

WHAT_IT_IS = ("t(n) is the time that the server reports for reading n new tokens after a cached prompt. A "
              "verification step takes longer: it computes the logits of all n, not of one, and "
              "drafting takes extra time.")


@dataclass(frozen=True, slots=True)
class SeenRounds:
    """Rounds that verified the same number of tokens.

    Attributes:
        rows: that number, the root counted; None of the rounds of which the server does not say it.
        count: of rounds.
        seconds: median of a round, drafting included.
    """

    rows: int | None
    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ServedPrice:
    """What is known of a served model's price.

    Attributes:
        program: that computes the model.
        asks: t(n) can be measured.
        done: the share done of a measurement, None where none is under way.
        problem: why the last thing that was asked of it failed.
        seen: by the number of tokens verified.
        arrival: the rounds' times are those at which messages arrived.
        messages: the server tells no rounds, only messages.
    """

    program: str
    asks: bool
    done: float | None
    problem: str
    seen: tuple[SeenRounds, ...]
    arrival: bool
    messages: bool

    def of_curve(self, measured: bool) -> str:
        """What there is to say of t(n), in a sentence or two."""
        if self.done is not None:
            return f"Measuring t(n) with short prompts at {self.program}: {self.done * 100:.0f}%."
        if measured:
            return WHAT_IT_IS
        if self.asks:
            failed = f"{self.problem}. " if self.problem else ""
            return (f"{failed}t(n) is not measured: enter measures it, with some fifty short requests. The server "
                    f"then caches their prompt and has to read this conversation again.")
        return f"t(n) is not known: {self.program} reports no times of its own, so it cannot be measured from outside."

    @property
    def of_rounds(self) -> str:
        """What the rounds' times are."""
        if self.messages:
            return f"{self.program} does not report rounds, so their times are not known."
        if not self.seen:
            return "No rounds yet: answers with these settings show how long they take."
        clock = "as messages arrived, connection included" if self.arrival else "by the server's clock"
        return f"rounds with these settings, {clock}; drafting included"


def served_price(
    shown: RunState, runs: Iterable[RunState], ready: Ready | None, done: float | None, problem: str
) -> ServedPrice | None:
    """What is known of the model that a run is of, or that the next one is of; None where it runs here.

    Args:
        shown: whose settings those runs must have that are counted.
        runs: those of the session.
    """
    started = shown.started
    spec = known(started.engine) if started is not None else None
    if not (spec.host if spec is not None else ready is not None and ready.served):
        return None
    same = [run for run in runs if _settings(run) == _settings(shown)] if started is not None else []
    backend = ready.backend if ready is not None and ready.served else started.versions.get("server", "the server")
    return ServedPrice(
        program=backend, asks=ready is not None and ready.capabilities.asks_price, done=done, problem=problem,
        seen=seen_rounds(same), arrival=any(run.started.arrival for run in same),
        messages=any(run.metrics.messages for run in same),
    )


def seen_rounds(runs: Iterable[RunState]) -> tuple[SeenRounds, ...]:
    """The times of rounds, by the number of tokens verified; those of unknown number last."""
    times: dict[int | None, list[float]] = {}
    for run in runs:
        for index, event in enumerate(run.rounds):
            if event.known == "text" or not event.verify_seconds:
                continue
            drafted = run.drafted_in(index)
            times.setdefault(None if drafted is None else 1 + drafted, []).append(event.verify_seconds)
    by_rows = sorted(times.items(), key=lambda item: (item[0] is None, item[0]))
    return tuple(SeenRounds(rows, len(seconds), median(seconds)) for rows, seconds in by_rows)


def _settings(run: RunState) -> tuple | None:
    s = run.started
    return s and (s.engine, s.options, s.model, s.device, s.versions.get("server"))
