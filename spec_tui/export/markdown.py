"""Runs as Markdown: what was asked, the answer plain and with its corrections marked, the numbers."""

from __future__ import annotations

from collections.abc import Sequence

from engines.report.run_state import RunState
from spec_tui.export import about, report
from spec_tui.export.report import Report, TextBlock
from spec_tui.present.narration import question
from spec_tui.present.token_facts import marked_text

_MARKED = ("As CriticMarkup: `{~~rejected~>chosen~~}` where the target corrected the draft, `{--rejected--}` where "
           "another branch of it was accepted, `{++x++}` for a bonus.")


def markdown(runs: Sequence[RunState], problems: Sequence[str] = ()) -> str:
    """A document of these runs, which begins with the ``problems`` of their trace."""
    reports = (_report(run, () if number else problems) for number, run in enumerate(runs))
    return "\n\n".join(map(report.markdown, reports)) + "\n"


def _report(run: RunState, problems: Sequence[str]) -> Report:
    asked = [TextBlock("Prompt", question(run.started))] if run.started is not None else []
    asked.append(TextBlock("Answer", run.text))
    if any(token.kind in ("corrected", "bonus") for token in run.tokens):
        asked.append(TextBlock("Answer, marked", marked_text(run), _MARKED))
    setting = [["setting", "value"], *about.origin(run.started)] if run.started is not None else []
    numbers, rounds = [["numbers", ""], *about.outcome(run)], [about.ROUND, *about.rounds(run)]
    return Report(title=about.title(run), verdict=about.notes(problems), setting=setting, asked=asked,
                  tables=[numbers, rounds])
