"""What is asked for: prompts from an argument, a file, a pipe, or a file of many; and a yes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO

from engines.bench.suite import records
from engines.errors import UsageProblem
from engines.folders import open_input
from spec_tui.cli.failures import narrate

LARGEST = 8 << 20
_WAYS = 'give one: spec-tui run "PROMPT", --prompt-file FILE, or --prompt-file - to read a pipe'


def read_prompt(argument: str | None, file: str | None) -> str:
    """The prompt, exactly as given (a file's last newline included). ``-`` is stdin, and so is a pipe without
    either.

    Raises:
        UsageProblem: both or none given, no such file, not text, or too long to be a prompt.
    """
    if argument is not None and file is not None:
        raise UsageProblem("there are two prompts, the argument and --prompt-file", "give one of them")
    if argument not in (None, "-"):
        return argument_text(argument, "the prompt")
    if file not in (None, "-"):
        return read_text(Path(file), "--prompt-file")
    if argument is file is None and sys.stdin.isatty():
        raise UsageProblem("there is no prompt", _WAYS)
    if sys.stdin.isatty():
        narrate("type the prompt, and end it with ctrl+d on a line of its own")
    return _text(_read(sys.stdin.buffer, "stdin"), "stdin")


def argument_text(argument: str, name: str) -> str:
    """A text of the command line. Raises UsageProblem if its bytes are not UTF-8."""
    return _text(argument.encode("utf-8", "surrogateescape"), name)


def read_prompts(path: Path) -> tuple[tuple[str, ...], ...]:
    """The turns of each prompt in a file with lines of JSON, each with a ``prompt``, or with ``turns`` as Spec-Bench's
    question file has them; other fields are ignored. Raises UsageProblem, which names the line."""
    return tuple(tuple(record["turns"]) for _, record in records(read_text(path, "--prompts"), str(path)))


def confirmed(question: str, otherwise: str) -> bool:
    """Ask on the terminal. Raises UsageProblem where nobody can answer; ``otherwise`` is what to do then."""
    if not sys.stdin.isatty():
        raise UsageProblem(f"{question}: there is no terminal to ask", otherwise)
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def read_text(path: Path, flag: str) -> str:
    """The text of a file that a flag names. Raises UsageProblem."""
    try:
        with open_input(path) as file:
            return _text(_read(file, str(path)), str(path))
    except FileNotFoundError:
        raise UsageProblem(f"there is no file {path}", f"check the path after {flag}") from None
    except IsADirectoryError:
        raise UsageProblem(f"{path} is a folder", f"name a file after {flag}") from None
    except OSError as error:
        raise UsageProblem(f"{path} cannot be read: {error.strerror}", "check its permissions") from None


def _read(file: IO[bytes], name: str) -> bytes:
    data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise UsageProblem(f"{name} is longer than {LARGEST >> 20} MB", "give a part of it as the prompt")
    return data


def _text(data: bytes, name: str) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageProblem(f"{name} is not text in UTF-8", "convert it, e.g. with iconv -t UTF-8") from None
    if "\0" in text:
        raise UsageProblem(f"{name} is not text: it holds zero bytes", "give a text file")
    return text
