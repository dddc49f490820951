"""What the engines say for a command line, as it is said on a screen: with keys, without names of flags."""

from __future__ import annotations

import re
from collections.abc import Collection

from engines.errors import SpecError
from engines.report.events import Failed
from engines.report.plain_text import one_line

_WAYS = (  # what is said there, and what is done here
    (r"\(in the application: (/\w+)\)", r"(\1)"),
    (r"give one with --draft-model", "choose one (ctrl+l)"),
    (r"(load it here to choose an engine)(?! \()", r"\1 (ctrl+l)"), (r"(make it a lane of a race)(?! \()", r"\1 (r)"),
    (r"build one \($", "build one (d, then n, or "),  # a command follows
    (r"give --draft-model or --head\b", "choose a draft model or head (ctrl+l)"),
    (r"(?:give|start with) --draft-model(?: a smaller model| with it)?(?: to use the draft engine)?",
     "choose a draft model (ctrl+l)"),
    (r"give --head(?: one| a file of them)?(?: that was trained for this model)?", "choose a draft head (ctrl+l)"),
    (r"\bgive --model\b", "choose a model (ctrl+l)"),
    (r"\b(?:started )?with --strict,?", "started with the option strict,"),
    (r",? or (?:--dtype \w+|start with --[^,;:)]*)", ""),
)
_FLAG = re.compile(r"(?<![\w-])--([a-z][a-z-]+)")
_COMMAND = re.compile(r"((?:spec-tui (?!with\b|is\b)[a-z]+|pip install)(?: [^\s;:,()]+)*)")  # as it is typed in a shell


def on_screen(words: str, fields: Collection[str] = ()) -> str:
    """A message or a hint without flags; of what only a start can change it says so. A command to be typed in a shell
    keeps its flags. ``fields``: of a form, which have the names of flags."""
    parts = _COMMAND.split(words)
    return "".join(part if number % 2 else _without_flags(part, fields) for number, part in enumerate(parts))


def _without_flags(words: str, fields: Collection[str]) -> str:
    for said, done in _WAYS:
        words = re.sub(said, done, words)
    return _FLAG.sub(lambda flag: flag[1] if flag[1] in fields else f"the start option {flag[1]}", words)


def failure(problem: SpecError | Failed) -> str:
    """A problem in one line of a screen; what has a colon of its own stands after a semicolon."""
    between = "; " if ": " in problem.message + problem.hint else ": "
    return one_line(on_screen(between.join(filter(None, (problem.message, problem.hint)))))
