"""Runs as Markdown: what was asked, the answer plain and with its corrections marked, the numbers."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from engines.report.run_state import RunState
from spec_tui.export import about
from spec_tui.present.narration import question
from spec_tui.present.text import one_line, sanitise
from spec_tui.present.token_facts import marked_text

_MARKED = ("As CriticMarkup: `{~~rejected~>chosen~~}` where the target corrected the draft, `{--rejected--}` where "
           "another branch of it was accepted, `{++x++}` for a bonus.")


def markdown(runs: Sequence[RunState]) -> str:
    """A document of these runs. Texts stand in fences that they cannot close."""
    return "\n".join(line for run in runs for line in _run(run))


def _run(run: RunState) -> Iterable[str]:
    yield f"# {_plain(about.title(run))}\n"
    if run.started is not None:
        yield from _table(("", ""), about.origin(run.started))
        yield from _text("Prompt", question(run.started))
    yield from _text("Answer", run.text)
    if any(token.kind in ("corrected", "bonus") for token in run.tokens):
        yield from _text("Answer, marked", marked_text(run), _MARKED)
    yield "## Numbers\n"
    yield from _table(("", ""), about.outcome(run))
    yield "## Rounds\n"
    yield from _table(about.ROUND, about.rounds(run))


def _text(name: str, text: str, note: str = "") -> Iterable[str]:
    text = sanitise(text)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    yield f"## {name}\n"
    if note:
        yield f"{note}\n"
    yield f"{fence}text\n{text}\n{fence}\n"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield f"| {' | '.join(names)} |\n|{'---|' * len(names)}"
    for row in rows:
        yield f"| {' | '.join(map(_plain, row))} |"
    yield ""


def _plain(text: str) -> str:
    """Text that is no markup."""
    return re.sub(r"([\\`*_\[\]|~#!])", r"\\\1", html.escape(one_line(text), quote=False))
