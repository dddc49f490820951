"""The figures of lessons: what is drawn from a recorded run, and what the reader may move or draw at random in it.

A figure is data and its rows. Random draws come from the code that the laws use (``engines.randomness``), sizes and
times from the run's events; nothing is made up.
"""

from __future__ import annotations

from spec_tui.learn.figures.base import LessonFigure
from spec_tui.learn.figures.cosines import CosinesFigure
from spec_tui.learn.figures.cost import BatchFigure, BreakEvenFigure, CostFigure, OverlapFigure, RaceFigure
from spec_tui.learn.figures.laws import BlockFigure, NoiseFigure, TrialFigure, WaitingFigure
from spec_tui.learn.figures.lists import EnginesFigure, ReadingFigure
from spec_tui.learn.figures.retrieval import CountsFigure, FusionFigure, KeyFigure, NeighboursFigure, TrieFigure

FIGURES: dict[str, type[LessonFigure]] = {
    "cost": CostFigure, "trial": TrialFigure, "weights": BlockFigure, "noise": NoiseFigure,
    "waiting": WaitingFigure, "key": KeyFigure, "engines": EnginesFigure, "counts": CountsFigure, "trie": TrieFigure,
    "neighbours": NeighboursFigure, "cosines": CosinesFigure, "fusion": FusionFigure,
    "break-even": BreakEvenFigure, "batch": BatchFigure, "overlap": OverlapFigure, "race": RaceFigure,
    "reading": ReadingFigure,
}
"""The figures by the names that pages give."""
