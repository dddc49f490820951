"""How a command ends badly: one sentence, a way out, an exit code; never a traceback."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import typer

from engines.errors import SpecError
from spec_tui.text import sanitise

FAILED, INTERRUPTED = 1, 130
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EIO}
_ClickException = typer.BadParameter.__mro__[2]  # typer has click inside or beside it, by version


@dataclass(slots=True)
class Outcome:
    """The exit code of a command."""

    code: int = 0


def narrate(text: str) -> None:
    """Something for the person, not for the pipe: to stderr, free of what could steer a terminal."""
    with suppress(OSError, ValueError):  # nobody is there to read it
        print(sanitise(text), file=sys.stderr, flush=True)


@contextmanager
def reported() -> Iterator[Outcome]:
    """Turns every way of failing into a message on stderr and ``Outcome.code``."""
    outcome = Outcome()
    try:
        yield outcome
        sys.stdout.flush()
    except SpecError as error:
        outcome.code = error.exit_code
        _tell(error.message, error.hint)
    except _ClickException as error:
        outcome.code = error.exit_code
        _tell(error.format_message().rstrip("."), _help_for(error))
    except (KeyboardInterrupt, typer.Abort):
        outcome.code = INTERRUPTED
        narrate("\nspec-tui: interrupted")
    except BrokenPipeError:
        outcome.code = 0  # the reader has what it wanted
        forget_stdout()
    except SystemExit as leaving:
        outcome.code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if isinstance(leaving.__context__, BrokenPipeError):  # so rich takes a reader that left
            outcome.code = 0
    except Exception as error:
        outcome.code = FAILED
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            _tell(f"the output cannot be written: {error.strerror}", "make room, or write elsewhere")
            forget_stdout()
        else:
            _tell(f"something unexpected happened: {type(error).__name__}: {error}", _bug_report())


def forget_stdout() -> None:
    """Point stdout at nothing, so that the interpreter does not complain of the closed pipe at its end."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    with suppress(OSError, ValueError):
        os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


def _tell(message: str, hint: str) -> None:
    narrate(f"spec-tui: {message}" + (f"\n  {hint}" if hint else ""))


def _help_for(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return f"see {context.command_path if context else 'spec-tui'} --help"


def _bug_report() -> str:
    """Writes the traceback of the exception being handled to a file; returns the sentence that says where."""
    from spec_tui.session.log import log_path, open_log

    log = open_log("spec-tui")
    if log is None:
        return "this is a bug"
    with log:
        log.write(traceback.format_exc().encode("utf-8", "backslashreplace") + b"\n")
    return f"this is a bug; the details are in {log_path('spec-tui')}"
