"""Numbers of a run: a pure fold over its events. The glossary (drafted, accepted, mean generated length, tau, ...) is
the one of docs/glossary.md; ratios with nothing to divide by are None, never 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from typing import Any

from engines.core.tree import depths
from engines.cost.curve import BreakEven, CostCurve
from engines.cost.speedup_model import SpeedupModel, chances
from engines.report.events import UNDISCLOSED, Finished, Prefilled, Round, RunEvent, ServerTotals, Started

_AT_ONCE = 2e-4  # seconds a token, or a message: no model decodes so fast, they came together


@dataclass(frozen=True, slots=True)
class Metrics:
    """Totals of a run so far; ``add`` folds the next event in.

    Attributes:
        answers: prefills, each of which gave a token; more than one where runs are taken together.
        new_tokens: tokens of the answer, the end token included.
        target_forwards: verification passes, the prefill excluded.
        drafted, accepted: nodes sent to verification; those kept. None where a server does not say.
        messages: of a server that tells no tokens, or joins steps: what it sent at once, the first as the prefill, the
            others as rounds that need not be verification passes; ``uncounted``: those of which it has not said yet how
            many tokens they are, each of which counts as one.
        path_acceptances: sum over drafting rounds of accepted / depth of the draft, None where a server does not say;
            ``drafting_rounds`` counts them, None likewise, and ``levels`` sums these depths.
        depth_tried, depth_accepted: by depth (index 0 = first drafted position): rounds in which the path came so far
            that something drafted at this depth was judged; rounds that accepted there.
        rows: rounds by how many tokens they verified, the root counted; ``draft_forwards``: passes that drafted, in
            ``forward_rounds`` rounds.
        lookups: rounds that looked something up, and took ``lookup_seconds`` for it.
        sources: emitted tokens by who proposed them.
        matches: of retrieval by exact match: rounds by the length in tokens of the longest suffix that was found,
            0 for none (REST's Fig. 13).
        prompt_tokens: as a server says them at the end of an answer.
        price: t(n) of the target, where the run says it; ``priced_seconds`` is the sum of it over the rounds' rows.
        draft_seconds, verify_seconds, other_seconds: sums over the rounds; None where some round does not say.
        arrival: the times are those at which a server's messages arrived.
        bias_total: sum of the rounds' biases under a lossy law; ``biased_rounds`` counts them.
    """

    answers: int = 0
    new_tokens: int = 0
    target_forwards: int = 0
    drafted: int | None = 0
    accepted: int | None = 0
    messages: int = 0
    uncounted: int = 0
    path_acceptances: float | None = 0.0
    drafting_rounds: int | None = 0
    levels: int = 0
    prefill_seconds: float = 0.0
    draft_seconds: float | None = 0.0
    verify_seconds: float | None = 0.0
    other_seconds: float | None = 0.0
    depth_tried: tuple[int, ...] = ()
    depth_accepted: tuple[int, ...] = ()
    rows: dict[int, int] = field(default_factory=dict)
    draft_forwards: int = 0
    forward_rounds: int = 0
    lookups: int = 0
    lookup_seconds: float = 0.0
    sources: dict[str, int] = field(default_factory=dict)
    matches: dict[int, int] = field(default_factory=dict)
    prompt_tokens: int | None = None
    price: CostCurve | None = None
    priced_seconds: float = 0.0
    arrival: bool = False
    bias_total: float = 0.0
    biased_rounds: int = 0

    def add(self, event: RunEvent) -> Metrics:
        """These totals with one more event."""
        if isinstance(event, Started):
            return replace(self, price=CostCurve(event.price) if event.price else self.price, arrival=event.arrival)
        if isinstance(event, Prefilled):
            begun = replace(
                self, answers=self.answers + 1, new_tokens=self.new_tokens + 1,
                prefill_seconds=self.prefill_seconds + event.seconds, sources=_count(self.sources, ["target"]),
            )
            return begun._of_messages() if event.first.token == UNDISCLOSED else begun
        if isinstance(event, Round):
            return self._add_round(event)
        if isinstance(event, Finished) and event.totals is not None:
            return self._correct(event.totals)
        return self

    def _of_messages(self) -> Metrics:
        """The same where the prefill was the first message of a server that tells no tokens: more than one may have
        been in it."""
        unknown = dict.fromkeys(("drafted", "accepted", "path_acceptances", "draft_seconds", "other_seconds"))
        return replace(self, messages=self.messages + 1, uncounted=self.uncounted + 1, **unknown)

    def _correct(self, totals: ServerTotals) -> Metrics:
        """What a server says of a single answer, in the place of what its messages said."""
        said = {name: getattr(totals, name) for name in ("drafted", "accepted", "depth_tried", "depth_accepted")}
        known = {name: value for name, value in said.items() if value not in (None, ())}
        if totals.drafts is not None or self.accepted is None:
            known |= {"drafting_rounds": totals.drafts, "path_acceptances": None}
        if totals.joined:
            known |= {"accepted": None, "messages": self.answers + self.target_forwards}
        if totals.drafted_by_round:
            known["rows"] = _count({}, [1 + drafted for drafted in totals.drafted_by_round])
        # a message with two steps looks like one that accepted one token more
        hidden = max(0, (self.accepted or 0) - totals.accepted) if totals.accepted is not None else 0
        known["target_forwards"] = self.target_forwards + hidden
        if totals.steps is not None:
            known |= {"target_forwards": totals.steps, "messages": 0}
        if totals.tokens:
            known |= {"new_tokens": totals.tokens, "uncounted": 0}
        return replace(self, **known, prompt_tokens=totals.prompt_tokens)

    def _add_round(self, r: Round) -> Metrics:
        whole, step = r.known == "all", r.known != "text"
        depth = max(depths(r.draft.parents), default=0) if whole else 0
        end = r.path[-1] if r.path else -1
        reached = len(r.path) + (end in r.draft.parents)  # one more where something was drafted below the path's end
        reached = reached if whole else 0
        tried, kept = _grow(self.depth_tried, reached), _grow(self.depth_accepted, reached)
        for d in range(reached):
            tried[d] += 1
        for d in range(len(r.path) if whole else 0):
            kept[d] += 1
        who = [r.draft.origins[r.draft.origin[e.node]].source if e.node >= 0 else "target" for e in r.emitted]
        return replace(
            self,
            new_tokens=self.new_tokens + len(r.emitted),
            target_forwards=self.target_forwards + 1,
            drafted=_both(self.drafted, len(r.draft.tokens) if whole else None),
            accepted=_both(self.accepted, len(r.path) if step else None),
            messages=self.messages + (not step),
            uncounted=self.uncounted + any(e.token == UNDISCLOSED for e in r.emitted),
            path_acceptances=_both(self.path_acceptances, len(r.path) / depth if depth else 0.0),
            drafting_rounds=self.drafting_rounds + (depth > 0),
            levels=self.levels + depth,
            draft_seconds=_both(self.draft_seconds, r.draft_seconds),
            verify_seconds=_both(self.verify_seconds, r.verify_seconds),
            other_seconds=_both(self.other_seconds, r.other_seconds),
            depth_tried=tuple(tried),
            depth_accepted=tuple(kept),
            rows=_count(self.rows, [1 + len(r.draft.tokens)] if whole else []),
            draft_forwards=self.draft_forwards + (r.draft_forwards or 0),
            forward_rounds=self.forward_rounds + bool(r.draft_forwards),
            lookups=self.lookups + (r.retrieval is not None),
            lookup_seconds=self.lookup_seconds + (r.retrieval.seconds if r.retrieval is not None else 0.0),
            sources=_count(self.sources, who),
            matches=_count(self.matches, [r.retrieval.match] if r.retrieval and r.retrieval.match is not None else []),
            priced_seconds=self.priced_seconds + (self.price.at(1 + len(r.draft.tokens)) if self.price else 0.0),
            bias_total=self.bias_total + (r.bias or 0.0),
            biased_rounds=self.biased_rounds + (r.bias is not None),
        )

    @property
    def decode_seconds(self) -> float:
        """Seconds of all rounds, as far as they are known."""
        return (self.draft_seconds or 0.0) + (self.verify_seconds or 0.0) + (self.other_seconds or 0.0)

    @property
    def acceptance_rate(self) -> float | None:
        """accepted / drafted nodes."""
        return None if self.accepted is None or self.drafted is None else _ratio(self.accepted, self.drafted)

    @property
    def by_depth(self) -> list[float]:
        """The share of drafts accepted at each depth, the first drafted position first."""
        return [kept / tried for kept, tried in zip(self.depth_accepted, self.depth_tried) if tried]

    @property
    def chance_accepted(self) -> float | None:
        """How often a drafted token was accepted once those before it were, over all depths; None where none was
        judged."""
        return _ratio(sum(self.depth_accepted), sum(self.depth_tried))

    @property
    def path_acceptance(self) -> float | None:
        """accepted / depth of the draft, averaged over the rounds that drafted."""
        return None if self.path_acceptances is None else _ratio(self.path_acceptances, self.drafting_rounds)

    @property
    def mean_generated_length(self) -> float | None:
        """(new tokens - 1) / target forwards: REST's M, exactly 1 for autoregressive decoding."""
        return None if self.messages else _ratio(self.new_tokens - self.answers, self.target_forwards)

    @property
    def tau(self) -> float | None:
        """accepted / target forwards: RASD's, without the bonus."""
        return None if self.accepted is None else _ratio(self.accepted, self.target_forwards)

    @property
    def calls(self) -> float | None:
        """Target forwards of an answer, the prefill excluded."""
        return None if self.messages else _ratio(self.target_forwards, self.answers)

    @property
    def accepted_length(self) -> float | None:
        """accepted / rounds that drafted: how much of a draft is accepted where there is one."""
        return None if self.accepted is None else _ratio(self.accepted, self.drafting_rounds)

    @property
    def seconds_per_lookup(self) -> float | None:
        """Of a round that looked something up."""
        return _ratio(self.lookup_seconds, self.lookups)

    @property
    def unit(self) -> str:
        """What ``new_tokens`` counts, and ``tokens_per_second``."""
        return "message" if self.uncounted else "token"

    @property
    def tokens_per_second(self) -> float | None:
        """(new tokens - 1) / decoding time; the first token belongs to the prefill. See ``unit``. None where all came
        ``at_once``."""
        later = self.new_tokens - self.answers
        return _ratio(later, self.decode_seconds) if later and not self.at_once else None

    @property
    def at_once(self) -> bool:
        """Whether a server's messages came together, so that their times say nothing of how fast it decoded."""
        return self.arrival and self.decode_seconds < _AT_ONCE * (self.new_tokens - self.answers)

    @property
    def verify_scale(self) -> float | None:
        """What verification took in this run over what t(n) says: the context and the machine's mood are in it."""
        known = self.draft_seconds is not None and self.verify_seconds is not None  # else drafting may be in it
        return _ratio(self.verify_seconds, self.priced_seconds) if known else None

    def priced_by(self, price: CostCurve) -> float:
        """Seconds that verifying the rows of all rounds takes by a t(n)."""
        return sum(count * price.at(rows) for rows, count in self.rows.items())

    @property
    def break_even(self) -> BreakEven | None:
        """What a round of this run had to yield, and did: its mean time over that of a round with nothing drafted, one
        row at this run's own scale and the loop's other time."""
        found = self.forecast(SpeedupModel(self.price)) if self.price is not None else None
        if found is None:
            return None
        took = self.decode_seconds / self.target_forwards
        return BreakEven(took / found.seconds(0), self.mean_generated_length or 0.0)

    def forecast(self, known: SpeedupModel) -> SpeedupModel | None:
        """Rounds with drafts of other depths, by the times and the acceptance of this run; None where a time is not
        known, or how much was drafted.

        What drafts and has a price keeps the proportion of its first pass to further ones. Else passes are of equal
        time, and at least as many as levels are one a level; with fewer, as where most drafts were copied, drafting
        takes the same at any depth. ``known``: what is known without a run: t(n), costs of drafting, the deepest
        draft, a baseline's time.
        """
        passes, rounds = self.draft_forwards, self.target_forwards
        if not self.verify_seconds or not self.rows or None in (self.drafted, self.draft_seconds, self.other_seconds):
            return None
        copied = known.each and self.draft_seconds and passes < self.levels
        if known.first and not copied:
            foreseen = self.forward_rounds * known.first + (passes - self.forward_rounds) * known.each
            slower = self.draft_seconds / foreseen if foreseen else 1.0
            first, each = slower * known.first, slower * known.each
        elif passes and passes >= self.levels:
            first = each = self.draft_seconds / passes
        else:
            first, each = self.draft_seconds / rounds, 0.0
        return replace(
            known, first=first, each=each, rows=self.drafted / self.levels if self.levels else known.rows,
            scale=self.verify_seconds / self.priced_by(known.price), other=self.other_seconds / rounds,
            chances=chances(self.depth_tried, self.depth_accepted))

    @property
    def break_even_length(self) -> float | None:
        """Tokens a round must yield to be as fast as autoregressive decoding."""
        return self.break_even.needs if self.break_even else None

    @property
    def bias(self) -> float | None:
        """Mean bias of a round's first token (``Round.bias``); None under a lossless law."""
        return _ratio(self.bias_total, self.biased_rounds)

    def stats(self) -> dict[str, float | int | dict[str, int] | None]:
        """The numbers of ``run --format json``: seconds, shares from 0 to 1, counts; None for what is not known, as of
        messages of a server how many passes they took, and of some how many tokens they are."""
        lengths = {str(length): rounds for length, rounds in sorted(self.matches.items())}
        return {"match_lengths": lengths or None} | {
            name: getattr(self, name)
            for name in (
                "new_tokens", "target_forwards", "drafted", "accepted", "acceptance_rate", "path_acceptance",
                "mean_generated_length", "tau", "tokens_per_second", "prefill_seconds", "decode_seconds",
                "draft_seconds", "verify_seconds", "other_seconds", "break_even_length", "bias",
            )
        } | dict.fromkeys(["target_forwards"] * bool(self.messages) + ["new_tokens", "tokens_per_second"] * bool(
            self.uncounted))


def measure(events: Iterable[RunEvent]) -> Metrics:
    """The metrics of a whole run."""
    metrics = Metrics()
    for event in events:
        metrics = metrics.add(event)
    return metrics


def run_object(
    started: Started, metrics: Metrics, tokens: Sequence[int], text: str, reason: str | None
) -> dict[str, Any]:
    """A run as ``--format json`` has it, without an audit."""
    return {
        **{name: getattr(started, name) for name in ("engine", "model", "dtype", "device", "law")},
        "lossless": started.lossless,
        "temperature": started.temperature,
        "seed": started.seed,
        "prompt_tokens": len(started.prompt) or metrics.prompt_tokens,
        **({} if started.round_trip is None else {"round_trip_seconds": started.round_trip}),
        "tokens": list(tokens),
        "text": text,
        "finish_reason": reason,
        "stats": metrics.stats(),
    }


def together(runs: Iterable[Metrics]) -> Metrics:
    """The totals of several runs; without ``price``, which they need not share."""
    runs = list(runs)
    depth = max((len(m.depth_tried) for m in runs), default=0)
    sums = {
        f.name: reduce(_both, (getattr(m, f.name) for m in runs), 0)
        for f in fields(Metrics) if isinstance(f.default, (int, float)) and f.name != "priced_seconds"
    }
    columns = ("depth_tried", "depth_accepted")
    sums |= {name: tuple(map(sum, zip(*(_grow(getattr(m, name), depth) for m in runs)))) for name in columns}
    counts = {name: dict(sum((Counter(getattr(m, name)) for m in runs), Counter())) for name in
              ("sources", "matches", "rows")}
    return Metrics(**sums, **counts)


def _ratio(a: float, b: float) -> float | None:
    return a / b if b else None


def _both(a: float | None, b: float | None) -> float | None:
    """The sum; None where one is not known."""
    return None if a is None or b is None else a + b


def _grow(counts: tuple[int, ...], size: int) -> list[int]:
    return list(counts) + [0] * (size - len(counts))


def _count(counts: dict, names: list) -> dict:
    counts = dict(counts)
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts
