"""Figures that are lists: what to read, and the engines."""

from __future__ import annotations

from engines.methods import specs
from engines.report.events import Round
from engines.report.run_state import RunState
from engines.report.wording import joined
from spec_tui.learn.figures.base import Runs, ScrolledFigure
from spec_tui.learn.lesson import find, names
from spec_tui.present.rows import Row
from spec_tui.present.text import wrap


class ReadingFigure(ScrolledFigure):
    """The sections of the papers that the lessons name."""

    title = "what to read next, by lesson"

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        self.entries: list[Row] = []
        seen: set[str] = set()
        for number, lesson in enumerate(map(find, names()), 1):
            every = [one for page in lesson.pages for one in page.see.split("; ") if one]
            named = dict.fromkeys(one for one in every if one not in seen)
            self.entries.append([(f"{number:>2} {lesson.title} ", "title"), (f"({lesson.name})", "muted")])
            self.entries += [[(f"   {one}", "text")] for one in named]
            seen.update(named)

    def lines(self, width: int) -> list[Row]:
        return self.entries


class EnginesFigure(ScrolledFigure):
    """The engines that draft: what each needs, and how it drafts."""

    title = "the engines: what each of them needs, and how it drafts"

    def lines(self, width: int) -> list[Row]:
        out: list[Row] = []
        for spec in specs():
            either = tuple(spec.drafts_with[1].values()) if spec.drafts_with is not None else ()
            needed = [" or ".join(either)] * bool(either) + [need for need in spec.needs if need not in either]
            needs = f" Needs: {joined(needed)}." if needed else ""
            for n, line in enumerate(wrap(spec.summary.rstrip(".") + "." + needs, width - 17)):
                out.append([(f" {'' if n else spec.id:<16}", "title"), (line, "text")])
        return out
