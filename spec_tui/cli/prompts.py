"""What is asked for: a prompt from an argument, a file or a pipe; a list of names; and a yes."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from engines.bench.prompt_files import PromptFile, open_prompts, read
from engines.errors import UsageProblem
from engines.folders import read_input, text_of, typed_file
from engines.request import Request
from spec_tui.cli.failures import narrate

LARGEST = 8 << 20
_WAYS = 'give one: spec-tui run "PROMPT", --prompt-file FILE, or --prompt-file - to read a pipe'


def read_prompt(argument: str | None, file: str | None) -> str:
    """The prompt, exactly as given (a file's last newline included). ``-`` is stdin, and so is a pipe without either.
    Raises UsageProblem: both or none given, no such file, not text, or too long to be a prompt."""
    if argument is not None and file is not None:
        raise UsageProblem("there are two prompts, the argument and --prompt-file", "give one of them")
    if argument not in (None, "-"):
        return argument_text(argument, "the prompt")
    if file not in (None, "-"):
        return read_input(typed_file(file), LARGEST, "a file after --prompt-file")[1]
    if argument is file is None and sys.stdin.isatty():
        raise UsageProblem("there is no prompt", _WAYS)
    return _stdin("the prompt, and end it")


def read_prompts(file: Path | None, request: Request) -> tuple[PromptFile, Request]:
    """As ``open_prompts``, where ``-`` is stdin; and the request with the system prompt of the file, unless it has one.
    What of the file is not asked is told. Raises UsageProblem."""
    found = read(_stdin("the prompts, and end them"), "stdin", "stdin") if file == Path("-") else open_prompts(file)
    for note in found.notes:
        narrate(f"note: {note}")
    own = (("system", found.system),) if found.system else ()
    return found, replace(request, conversation=request.conversation or own)


def _stdin(what: str) -> str:
    if sys.stdin.isatty():
        narrate(f"type {what} with ctrl+d on a line of its own")
    return text_of(sys.stdin.buffer.read(LARGEST + 1), "stdin", LARGEST)


def argument_text(argument: str, name: str) -> str:
    """A text of the command line. Raises UsageProblem if its bytes are not UTF-8."""
    return text_of(argument.encode("utf-8", "surrogateescape"), name, LARGEST)


def comma_separated(text: str, option: str) -> list[str]:
    """The values of an option that takes a list with commas; none if the text is empty. Raises UsageProblem: one of
    them is empty, as where a variable of the shell is not set."""
    parts = [part.strip() for part in text.split(",")] if text else []
    if not all(parts):
        raise UsageProblem(f"a value of {option} is empty: {text!r}", "give values with one comma between them")
    return parts


def confirmed(question: str, otherwise: str) -> bool:
    """Ask on the terminal. Raises UsageProblem where nobody can answer; ``otherwise`` is what to do then."""
    if not sys.stdin.isatty():
        raise UsageProblem(f"there is no terminal to ask: {question}", otherwise)
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
