"""A race in words: how two lanes' texts compare, how well a number is known, what else the machine did."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from engines.race.interval import ENOUGH, LEAST_NOISE, MedianInterval
from engines.race.race_events import Compared
from engines.race.result import Disturbance, LaneFigures, RaceResult
from engines.report.events import Failed, Started
from spec_tui.present.speed_verdict import Speed, SpeedVerdict, of_interval
from spec_tui.present.tables import Rows, interval, length, median, memory, milliseconds, share
from spec_tui.present.text import capital, lossy

NOT_COMPARABLE = "live: updating the screen slowed the lanes, so these numbers are not comparable"
_SEEN = 0.05  # times: how far a speed-up is from the ratio of the speeds beside it where a reader divides them
AT_ONCE = "the answer came all at once: how fast it was decoded is not known"
MEMORY = "weights and KV rows, computed; datastores not included"

_FOUND = {
    "same": ("✓", "good", "same text", ""),
    "tie": ("≈", "warn", "tie", "and both tokens are the target's choice within rounding"),
    "BUG": ("✗", "bad", "BUG, differs", "and rounding does not explain it"),
    "by design": ("≠", "warn", "differs", "which is allowed: random draws or a lossy law decide here"),
    "differs": ("≠", "warn", "differs", "another program computes or drafts differently"),
    "other weights": ("≠", "warn", "differs",
                      "which is allowed: one has other weights (quantised or not) or another dtype; an audit uses the "
                      "target's weights, so it cannot tell whether there is another reason"),
    "unchecked": ("?", "warn", "differs", "and no audit explains it"),
}
"""By how two texts compare: a mark, its style, a few words, and what it means."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: heading, width, its cell, what it sorts by (greatest first; None where it does not), and how early it
    goes where there is no room."""

    title: str
    width: int
    cell: Callable[[LaneFigures, int], str]
    key: Callable[[LaneFigures], float | None] | None = None
    needed: int = 0


def _rate(f: LaneFigures) -> float | None:
    return f.rate.median if f.rate else None


def verdict(f: LaneFigures, base: int) -> SpeedVerdict:
    """How fast a lane is beside the baseline's lane ``base`` of the same race."""
    if f.lane == base and f.rate:
        return SpeedVerdict(Speed.BASELINE)
    return of_interval(f.speed_up, f.metrics.mean_generated_length if f.same_program else None)


def speed_up(f: LaneFigures, base: int) -> str:
    """The verdict for a table's cell."""
    return "baseline" if f.lane == base and f.rate else verdict(f, base).brief


def ranks(result: RaceResult) -> dict[int, tuple[int, bool]]:
    """By lane its rank by tokens/s, from 1, and whether it shares it: a lane ties with those before it until one of
    them is judged to be faster, so that no rank contradicts a verdict. A pair of equal lanes is told apart by
    mistake in 5% of races at most, and among many lanes some pair more often. Lanes without a rate have none."""
    lanes = [f for f in result.figures() if f.rate]
    groups: list[list[int]] = []
    for f in sorted(lanes, key=lambda f: -f.rate.median):
        if groups and all(_ties(result.over(other, f.lane)) for other in groups[-1]):
            groups[-1].append(f.lane)
        else:
            groups.append([f.lane])
    before = accumulate((len(group) for group in groups), initial=1)
    return {lane: (rank, len(group) > 1) for rank, group in zip(before, groups) for lane in group}


def _ties(ratio: MedianInterval | None) -> bool:
    """Whether a lane that is so many times as fast as another is not told from it; single runs, of which no noise is
    known, repeat no better than ``LEAST_NOISE``."""
    found = of_interval(ratio)
    if found.speed is Speed.UNMEASURED:
        return found.ratio is not None and found.ratio - 1 <= LEAST_NOISE
    return found.speed is not Speed.FASTER


def verdict_sentences(figures: Sequence[LaneFigures], labels: Sequence[str], base: int) -> Iterator[str]:
    """How fast each of these lanes is beside the baseline's lane ``base``, in sentences without a full stop."""
    if any(f.rate for f in figures) and not any(f.rate for f in figures if f.lane == base):
        yield f"{labels[base]} has no measured speed, so no speed-up over it is known"
        return
    for f in figures:
        if f.rate and f.lane != base:
            found = verdict(f, base)
            if found.speed is Speed.UNMEASURED:  # that one repeat is not enough is said of the intervals
                continue
            why = f": {found.reason}" if found.reason else ""
            again = "; race again" if found.speed is Speed.IMPOSSIBLE else ""
            yield f"{labels[f.lane]} against {labels[base]}: {found.words}{why}{again}"


def _low(value: float | None) -> float | None:
    """So that the least comes first."""
    return None if value is None else -value


COLUMNS = (
    Column("tokens/s", 9, lambda f, _: median(f.rate, 1), _rate),
    Column("interval", 15, lambda f, _: interval(f.rate), None, 1),
    Column("speed-up", 10, speed_up),
    Column("interval", 11, lambda f, _: interval(f.speed_up, 2), None, 5),
    Column("accepted", 10, lambda f, _: share(f.metrics.acceptance_rate), lambda f: f.metrics.acceptance_rate, 2),
    Column("of path", 9, lambda f, _: share(f.metrics.path_acceptance), lambda f: f.metrics.path_acceptance, 6),
    Column("tokens/step", 13, lambda f, _: length(f.metrics.mean_generated_length),
           lambda f: f.metrics.mean_generated_length),
    Column("1st token", 11, lambda f, _: milliseconds(f.ttft), lambda f: _low(f.ttft), 3),
    Column("memory", 9, lambda f, _: memory(f.memory), lambda f: _low(f.memory), 4),
)


def figure_rows(columns: Sequence[Column], lanes: Iterable[tuple[str, LaneFigures]], base: int) -> Rows:
    """A table of these columns, the header first; ``base``: the lane that speed-ups are measured against."""
    return [["lane", *(column.title for column in columns)],
            *([label, *(column.cell(f, base) for column in columns)] for label, f in lanes)]


def pair_mark(pair: Compared) -> tuple[str, str]:
    """How two texts compare, in a cell, and its style."""
    mark, style = _FOUND[pair.verdict][:2]
    return mark if pair.at is None else f"{mark} {pair.at + 1}", style


def pair_badge(pair: Compared) -> tuple[str, str]:
    """The same in a few words."""
    mark, style, words, _ = _FOUND[pair.verdict]
    return f"{mark} {words}" + ("" if pair.at is None else f" at {pair.at + 1}"), style


def pair_sentence(pair: Compared, labels: Sequence[str]) -> str:
    """The same in a sentence without a full stop; ``labels`` are the lanes'."""
    first, second = labels[pair.first], labels[pair.second]
    blamed = f"; the audit found a BUG in {' and '.join(labels[lane] for lane in pair.bugs)}" if pair.bugs else ""
    if pair.verdict == "same":
        return f"{first} and {second} write the same text{blamed}"
    who = f"{first} differs between its repeats" if pair.first == pair.second else f"{first} and {second} differ"
    apart = f" (gap {pair.gap:.2g})" if pair.verdict == "differs" and pair.gap is not None else ""
    return f"{who}, first at token {pair.at + 1}, {_FOUND[pair.verdict][3]}{apart}{blamed}"


def pairs_summary(pairs: Iterable[Compared], labels: Sequence[str]) -> list[str]:
    """All pairs in sentences: one where all texts are the same, else one for each pair that differs (of several
    prompts the first, and a count)."""
    pairs = list(pairs)
    differing: dict[tuple[int, int, str], list[Compared]] = {}
    for pair in pairs:
        if pair.verdict != "same" or pair.bugs:
            differing.setdefault((pair.first, pair.second, pair.verdict), []).append(pair)
    if not pairs:
        return []
    if not differing:
        return ["all lanes write the same text" if len(pairs) > 1 else pair_sentence(pairs[0], labels)]
    prompts = len({pair.prompt for pair in pairs})
    return [
        pair_sentence(found[0], labels)
        + (f" (prompt {found[0].prompt + 1}; {len(found)} of {prompts} prompts)" if prompts > 1 else "")
        for found in differing.values()
    ]


def interval_meaning(estimates: Iterable[MedianInterval | None]) -> str:
    """What the intervals of a table are, in a sentence: how sure they are, and what they come from."""
    known = [e for e in estimates if e is not None and e.coverage is not None]
    if not known:
        return "a single repeat does not tell how much these numbers vary; six do"
    least = min(known, key=lambda e: e.samples).samples
    if least >= ENOUGH:
        return f"intervals: of the median, by order statistics, 95% or more ({least} repeats)"
    return f"intervals: 95%, by Student's t, at least ±{LEAST_NOISE:.0%} ({least} repeats; {ENOUGH} tell more)"


def ratio_meaning(figures: Sequence[LaneFigures], base: int) -> str:
    """What speed-ups are ratios of, where one is not that of the speeds beside it; else ""."""
    alone = next((f.rate for f in figures if f.lane == base), None)
    beside = [(f.speed_up.median, f.rate.median / alone.median) for f in figures if alone and f.rate and f.speed_up]
    if all(abs(shown - divided) < _SEEN for shown, divided in beside):
        return ""
    return "a speed-up is the median of the repeats' own ratios, not the ratio of the median speeds"


def disturbance_sentence(found: Disturbance) -> str:
    """What else the machine did meanwhile, in a sentence; "" where it was quiet, or says nothing."""
    if not found.matters:
        return ""
    parts = []
    if found.other_cores is not None:
        parts.append(f"other programs kept {found.other_cores:.1f} of {found.cores} cores busy")
    if found.waited is not None:
        parts.append(f"decoding waited for a core {found.waited:.0%} of the time")
    return " and ".join(parts) + ": speeds are lower and less certain than on an idle machine"


def remarks(result: RaceResult, labels: Sequence[str]) -> list[str]:
    """What the runs warned of, each remark once with its lane, or without where it is of all; LOSSY first."""
    runs = [(figures, next(iter(result.of(figures.lane)), None)) for figures in result.figures()]
    begun = [(figures, run.state.started) for figures, run in runs if run is not None and run.state.started is not None]
    shared = set.intersection(*(set(started.warnings) for _, started in begun)) if len(begun) > 1 else set()
    found: dict[str, None] = {}
    for figures, started in begun:
        if started.lossy:
            found[f"{labels[figures.lane]}: {lossy(figures.metrics.bias)}"] = None
        for warning in started.warnings:
            found[f"note: {warning}" if warning in shared else f"note: {labels[figures.lane]}: {warning}"] = None
    at_once = [f"{labels[figures.lane]}: {AT_ONCE}" for figures, _ in begun if figures.metrics.at_once]
    return [*found, *at_once, *connections(begun, labels)]


def connections(begun: Iterable[tuple[LaneFigures, Started]], labels: Sequence[str]) -> Iterator[str]:
    """How long the way to each lane's server is, and whether the times of its rounds have it in them."""
    for figures, started in begun:
        if started.round_trip is not None:
            timed = "as messages arrive, connection included" if started.arrival else "by the server, without it"
            yield (f"{labels[figures.lane]}: connection {milliseconds(started.round_trip, 1)} for an empty request; "
                   f"its rounds are timed {timed}")


def failure_sentences(failed: Failed) -> str:
    """A failure as two sentences: what happened, and what to do."""
    return " ".join(f"{capital(part).rstrip('.')}." for part in (failed.message, failed.hint) if part)


def notes(result: RaceResult, labels: Sequence[str], before: Sequence[str] = (), pairs: Sequence[str] | None = None,
          ) -> list[str]:
    """What the numbers of a race do not say themselves, in sentences. ``before``: what is to be said first; ``pairs``:
    how the texts compare, where ``pairs_summary`` is not all that there is to say."""
    figures = result.figures()
    texts = pairs_summary(result.pairs, labels) if pairs is None else pairs
    base = result.started.baseline if result.started else 0
    said = [*before, *remarks(result, labels), *verdict_sentences(figures, labels, base), *texts]
    if any(f.rate for f in figures):
        said += filter(None, [ratio_meaning(figures, base), interval_meaning(f.rate for f in figures)])
    if any(f.memory is not None for f in figures):
        said.append(f"memory: {MEMORY}")
    return [*said, *filter(None, [disturbance_sentence(result.disturbance())])]
