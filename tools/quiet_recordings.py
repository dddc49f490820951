"""Whether recorded runs can carry what a race of them says: a disturbed one would contradict itself from page to page.

A race prints speeds, draws bars over time, and its lesson says who won. All three come from the same rounds, so they
agree only if the machine was quiet throughout.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, median

from engines.report.run_state import RunState
from engines.report.wording import ms, seconds_of
from spec_tui.learn.figures import RaceFigure
from spec_tui.learn.lesson_progress import LessonProgress

CALM = 1.15
"""So many times its median may the mean of equal rounds be."""
CLEAR = 1.05
"""From so many times on one speed is called higher than another."""


def steady_seconds(run: RunState) -> float:
    """What the rounds of a run would take if each took the median time of those that verified as many tokens."""
    groups: defaultdict[int, list[float]] = defaultdict(list)
    for event in run.rounds:
        groups[len(event.draft.tokens)].append(seconds_of(event))
    return sum(len(times) * median(times) for times in groups.values())


def contradictions(lanes: Sequence[RunState]) -> list[str]:
    """Why these runs of one prompt must not be shown as a race; [] where they may. The lanes without drafts are those
    that the others are compared with."""
    said = [words for lane in lanes for words in (*_disturbed(lane), *_uneven(lane, lanes))]
    for plain in (lane for lane in lanes if not any(event.draft.tokens for event in lane.rounds)):
        said += [words for lane in lanes if lane is not plain for words in _verdicts(lane, plain)]
    return said


def doubts(progress: LessonProgress) -> list[str]:
    """What speaks against the race of a lesson; [] where it has none, too."""
    figures = filter(None, map(progress.figure, progress.pages))
    return next((contradictions(one.lanes) for one in figures if isinstance(one, RaceFigure)), [])


def _name(run: RunState) -> str:
    return run.started.engine if run.started is not None else "a run"


def _disturbed(run: RunState) -> list[str]:
    """Rounds without a draft do the same work, so their mean and their median are alike on a quiet machine."""
    idle = [seconds_of(event) for event in run.rounds if not event.draft.tokens]
    if len(idle) < 3 or fmean(idle) <= CALM * median(idle):
        return []
    return [f"{_name(run)}: passes over one token took {ms(fmean(idle))} on average, {ms(median(idle))} at the median"]


def _uneven(run: RunState, lanes: Sequence[RunState]) -> list[str]:
    """When the first lane ends, each bar is about as long as its lane's speed says."""
    until = min(sum(map(seconds_of, lane.rounds)) for lane in lanes)
    spent, there = 0.0, 0
    for event in run.rounds:
        spent += seconds_of(event)
        if spent > until:
            break
        there += len(event.emitted)
    gains = [len(event.emitted) for event in run.rounds]
    due = sum(gains) * min(1.0, until / sum(map(seconds_of, run.rounds)))
    if abs(due - there) <= max(gains) + (CALM - 1) * due:
        return []
    return [f"{_name(run)}: {there} tokens after {until:.1f} s, where its speed says {due:.0f}"]


def _verdicts(run: RunState, plain: RunState) -> list[str]:
    """Whether drafting paid comes out the same by all the time that was spent and by medians."""
    ratios = []
    for seconds in (lambda lane: sum(map(seconds_of, lane.rounds)), steady_seconds):
        ours, theirs = (sum(len(event.emitted) for event in lane.rounds) / seconds(lane) for lane in (run, plain))
        ratios.append(ours / theirs)
    won = {ratio > 1 for ratio in ratios}
    if len(won) == 1 or max(max(ratios), 1 / min(ratios)) < CLEAR:
        return []
    return [f"{_name(run)} against {_name(plain)}: {ratios[0]:.2f}x by all its time, {ratios[1]:.2f}x by medians"]
