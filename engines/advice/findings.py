"""The numbers of an adviser's round: a race, read prompt by prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from math import inf
from statistics import median

from engines.advice.paired_ratio import Pace, PairedRatio
from engines.advice.pass_times import Key, PassTimes
from engines.bench.suite import Case, Suite
from engines.laws import spec_of
from engines.race.lanes import Lane, Race
from engines.race.result import RaceResult
from engines.report.events import Failed
from engines.report.metrics import Metrics, together
from engines.request import Request

_BOUNDS = (0, 128, 512, 2048, 8192, inf)
_LENGTHS = tuple(pairwise(_BOUNDS))  # of prompts, in tokens: from the first, below the second
BASELINE = 0
"""The lane of the baseline in every round."""


@dataclass
class Screening:
    """A round of an adviser, over or under way: the settings on some of the prompts.

    Attributes:
        asked: the race; its lane 0 is the baseline.
        suite: its prompts, with their kinds.
        final: whether it is the last one, whose numbers a verdict is made of.
        result: its race as it comes in.
        held_out: the prompts, by number, that do not count.
    """

    asked: Race
    suite: Suite
    final: bool
    result: RaceResult
    held_out: frozenset[int] = frozenset()
    _passes: tuple[frozenset[Key], PassTimes] | None = field(default=None, init=False, repr=False)

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return self.asked.lanes

    @property
    def over(self) -> bool:
        """Whether it came to its own end."""
        return self.result.finished is not None and self.result.finished.reason == "done"

    @property
    def failed(self) -> dict[int, Failed]:
        """Why lanes broke, by lane."""
        return {run.lane: run.failed for run in self.result.runs.values() if run.failed}

    def counted(self) -> frozenset[tuple[int, int]]:
        """The (repeat, prompt) that every lane that did not break has answered, those held out excepted."""
        done = [{(run.repeat, run.prompt) for run in self.result.of(lane)}
                for lane in range(len(self.lanes)) if lane not in self.failed]
        both = set.intersection(*done) if done else ()
        return frozenset(key for key in both if key[1] not in self.held_out)

    def room_for(self, times: float) -> bool:
        """Whether more answers may count than so many times those that do: a prompt is asked a few times at most."""
        most = self.asked.repeats * (len(self.asked.prompts) - len(self.held_out))
        return times * len(self.counted()) < most

    def prompts(self) -> int:
        """How many different prompts count."""
        return len({prompt for _, prompt in self.counted()})

    def kinds(self) -> list[str]:
        """The kinds of the prompts that count, in the order of the suite."""
        counted = {prompt for _, prompt in self.counted()}
        return [task for task in self.suite.tasks if counted.intersection(self.suite.numbers(task))]

    def by_length(self) -> dict[str, frozenset[int]]:
        """The prompts that count, by their length in tokens, chat template and earlier turns included; the shortest
        first."""
        found: dict[str, set[int]] = {}
        known = {run.prompt: len(run.state.started.prompt) for run in self._runs(BASELINE, None)}
        for prompt, tokens in sorted(known.items(), key=lambda item: item[1]):
            low, high = next(bounds for bounds in _LENGTHS if tokens < bounds[1])
            found.setdefault(f"< {high}" if not low else f">= {low}" if high == inf else f"{low}..{high - 1}",
                             set()).add(prompt)
        return {label: frozenset(prompts) for label, prompts in found.items()}

    def of_kind(self, kind: str | None) -> frozenset[int] | None:
        """The numbers of the prompts of a kind; None, which stands for all, without one."""
        return None if kind is None else frozenset(self.suite.numbers(kind))

    def ratio(
        self, lane: int, other: int = BASELINE, kind: str | None = None, prompts: frozenset[int] | None = None
    ) -> PairedRatio | None:
        """Tokens a second of one lane over another's, on prompts of a kind, on these, or on all. Its noise is what runs
        are off by; where the texts depend on the drafts, also what prompts differ by."""
        on = self.of_kind(kind) if prompts is None else prompts
        found = PairedRatio.of(self._paces(lane, on), self._paces(other, on), self.passes().noise)
        request = self.asked.request
        if found is not None and spec_of(request.law, request.temperature).text_depends_on_draft:
            known = (found.noise, found.spread)
            return replace(found, noise=None if None in known else max(known))
        return found

    def passes(self) -> PassTimes:
        """What the times of passes say, over the runs that count."""
        counted = self.counted()
        if self._passes is None or self._passes[0] != counted:
            runs = {lane: {(run.repeat, run.prompt): run.state.metrics for run in self._runs(lane)}
                    for lane in range(len(self.lanes)) if lane not in self.failed}
            timed = [key for key in counted if all(lane[key].decode_seconds for lane in runs.values())]
            self._passes = counted, PassTimes.of(
                {lane: {key: _scale(found[key]) for key in timed} for lane, found in runs.items()})
        return self._passes[1]

    def score(self, lane: int) -> float | None:
        """By what lanes are ranked: tokens over computed seconds, beside the baseline's. A pass counts as long as t(n)
        says, times what is the lane's own; drafting and all else as measured. Tokens and rows do not depend on the
        clock, so this is steadier than ``ratio``, which stands in where t(n) is not known."""
        mine, theirs = ({key: (tokens, self._computed(each, m)) for key, (tokens, m) in self._made(each).items()}
                        for each in (lane, BASELINE))
        found = PairedRatio.of(mine, theirs)
        return None if found is None else found.ratio

    def metrics(self, lane: int, prompts: frozenset[int] | None = None) -> Metrics:
        """All runs of a lane that count, on these prompts or on all, together."""
        return together(run.state.metrics for run in self._runs(lane, prompts))

    def ttft(self, lane: int) -> float | None:
        """Median seconds to the first token."""
        known = [run.ttft for run in self._runs(lane) if run.ttft is not None]
        return median(known) if known else None

    def _paces(self, lane: int, prompts: frozenset[int] | None) -> dict[Key, Pace]:
        return {key: (tokens, m.decode_seconds) for key, (tokens, m) in self._made(lane, prompts).items()}

    def _made(self, lane: int, prompts: frozenset[int] | None = None) -> dict[Key, tuple[int, Metrics]]:
        """By run the tokens that its rounds made, and its numbers."""
        return {(run.repeat, run.prompt): (m.new_tokens - m.answers, m)
                for run in self._runs(lane, prompts) for m in (run.state.metrics,)}

    def _computed(self, lane: int, m: Metrics) -> float:
        """Seconds of a run by t(n)."""
        if not m.priced_seconds:
            return m.decode_seconds
        return m.priced_seconds * self.passes().own.get(lane, 1.0) + (m.draft_seconds or 0) + (m.other_seconds or 0)

    def _runs(self, lane: int, wanted: frozenset[int] | None = None):
        counted = self.counted()
        return [run for run in self.result.of(lane)
                if (run.repeat, run.prompt) in counted and (wanted is None or run.prompt in wanted)]


@dataclass(kw_only=True, eq=False)
class Findings:
    """What an adviser, here or in another process, was asked and has found so far.

    Attributes:
        suite: the prompts; ``request``: what is common to all; its conversation (a system prompt) comes before each
            prompt; ``seconds``: in which it should be done, audits of texts that differ excepted.
        rounds: those that began; each is complete at any moment.
        stages: of the rounds that are planned.
        held_out: the questions that do not count and are not asked again, since their answers lie in a datastore;
            ``copied``: how many count all the same, since there are no others.
    """

    suite: Suite
    request: Request
    seconds: float
    rounds: list[Screening] = field(default_factory=list)
    stages: Sequence[object] = ()
    held_out: list[Case] = field(default_factory=list)
    copied: int = 0

    @property
    def finished(self) -> bool:
        """Whether the final came to its end."""
        return any(screening.final and screening.over for screening in self.rounds)


@dataclass(frozen=True)
class RoundCosts:
    """What a round of a lane takes and makes, on average.

    Attributes:
        tokens: it makes, the mean generated length.
        verify, draft, other: seconds of the forward pass that verifies, of drafting, and of all else.
    """

    tokens: float
    verify: float
    draft: float
    other: float

    @classmethod
    def of(cls, metrics: Metrics) -> RoundCosts | None:
        """Of a lane's runs; None where something was not timed."""
        seconds = metrics.verify_seconds, metrics.draft_seconds, metrics.other_seconds
        if not metrics.target_forwards or None in seconds or not metrics.mean_generated_length:
            return None
        return cls(metrics.mean_generated_length, *(value / metrics.target_forwards for value in seconds))

    @cached_property
    def seconds(self) -> float:
        return self.verify + self.draft + self.other

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds

    def tokens_for(self, rate: float) -> float:
        """Tokens that a round would have to make for this many tokens a second."""
        return rate * self.seconds

    def free_rows(self, alone: RoundCosts) -> float:
        """Tokens a second if verifying a draft took no longer than a pass over one token (``alone``: the baseline)."""
        return self.tokens / (min(self.verify, alone.verify) + self.draft + self.other)

    def free_drafts(self) -> float:
        """Tokens a second if drafting took no time."""
        return self.tokens / (self.verify + self.other)


def _scale(m: Metrics) -> float:
    """What a run's passes took over what t(n) says, or, where that is not known, what one took."""
    return m.verify_scale or (m.verify_seconds or m.decode_seconds) / m.target_forwards


def reach(metrics: Metrics, share: float = 0.9) -> int:
    """How deep drafts have to be for this share of the accepted tokens; 1 where none were."""
    total, found = sum(metrics.depth_accepted), 0
    for depth, kept in enumerate(metrics.depth_accepted, 1):
        found += kept
        if found >= share * total and total:
            return depth
    return 1
