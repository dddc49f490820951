"""Recorded runs carry the races that are made of them, and one of a busy machine does not."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from statistics import mode

import pytest

from engines.report.events import Round
from engines.report.run_state import RunState, fold_all
from engines.report.wording import seconds_of
from spec_tui.learn.figures import RaceFigure
from spec_tui.learn.lesson import find, names
from spec_tui.learn.lesson_progress import LessonProgress

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from quiet_recordings import contradictions, doubts, steady_seconds


def raced(name: str) -> list[RunState]:
    """The lanes of a lesson's race; [] where it has none."""
    progress = LessonProgress.of(find(name))
    return next((f.lanes for page in progress.pages if isinstance(f := progress.figure(page), RaceFigure)), [])


def slowed(run: RunState, factor: float, part: slice) -> RunState:
    """The same rounds, some of which took longer."""
    chosen = {event.index for event in run.rounds[part]}
    return fold_all([
        replace(event, verify_seconds=event.verify_seconds * factor)
        if isinstance(event, Round) and event.index in chosen else event for event in run.events])


@pytest.mark.parametrize("name", names())
def test_what_a_lesson_races_agrees_with_itself(name):
    assert doubts(LessonProgress.of(find(name))) == []


def test_a_disturbed_baseline_and_a_lane_that_stalls_are_refused():
    lanes = raced("payoff")
    at, plain = next((n, lane) for n, lane in enumerate(lanes) if lane.started.engine == "autoregressive")
    busy = contradictions([*lanes[:at], slowed(plain, 6.0, slice(0, 6)), *lanes[at + 1 :]])
    assert any("on average" in words for words in busy) and any("speed says" in words for words in busy)
    draft = next(lane for lane in lanes if lane.started.engine == "draft")
    sizes = [len(event.draft.tokens) for event in draft.rounds]
    at = sizes.index(mode(sizes))  # of a size that is known from other rounds, too
    turned = contradictions([plain, slowed(draft, 30.0, slice(at, at + 1))])
    assert any("by medians" in words for words in turned)


def test_one_stall_hardly_changes_what_a_run_would_take():
    plain = next(lane for lane in raced("payoff") if lane.started.engine == "autoregressive")
    stalled = slowed(plain, 30.0, slice(3, 4))
    assert sum(map(seconds_of, stalled.rounds)) > 1.5 * sum(map(seconds_of, plain.rounds))
    assert steady_seconds(stalled) == pytest.approx(steady_seconds(plain), rel=0.02)


def test_whether_self_speculation_paid_is_said_by_medians():
    """One of its runs was recorded while the machine did other things."""
    progress = LessonProgress.of(find("admg"))
    page = next(page for page in progress.pages if page.title == "Does it pay here?")
    ours, plain = progress.runs["smollm2-admg"], progress.runs["smollm2-plain"]
    paid = steady_seconds(ours) < steady_seconds(plain)
    progress.at = progress.pages.index(page)
    assert any(words.startswith("So it paid here") for words in progress.view().paragraphs) == paid
