"""The forms that a recorded run can be written in, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engines.report.run_state import RunState, fold_all
from engines.report.traces import Trace
from spec_tui.export.cast import cast
from spec_tui.export.markdown import markdown
from spec_tui.export.page import page


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """How documents look: cells of the terminal, a theme (None: ours), speed of recordings; with ``rejected`` the
    rejected draft tokens stay in the text."""

    size: tuple[int, int] | None = None
    theme: str | None = None
    speed: float = 1.0
    rejected: bool = False


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """A form: what it is, in words, and what makes it from a trace, its name and the options."""

    words: str
    make: Callable[[Trace, str, ExportOptions], str]


def _runs(trace: Trace) -> list[RunState]:
    return [fold_all(run) for run in trace.runs]


FORMATS = {
    "md": ExportFormat("Markdown: the answer, its corrections, the rounds in a table",
                       lambda trace, name, options: markdown(_runs(trace), trace.problems)),
    "html": ExportFormat("web page: colours, views, facts about the token you point at",
                         lambda trace, name, options: page(_runs(trace), options.rejected, trace.problems)),
    "cast": ExportFormat("recording of a terminal (asciicast v2), by the engine's clock",
                         lambda trace, name, options: cast(_runs(trace), *(options.size or (80, 24)), options.speed,
                                                             options.rejected, trace.problems)),
}
"""By name, which is the ending of the file too. A picture of the application is the application's to make."""
