"""How a command ends badly: one sentence, a way out, an exit code, never a traceback; and ctrl+c during a run."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType, TracebackType
from typing import ClassVar, TypeVar

from engines.errors import ModelUnavailable, SpecError, UsageProblem, way_out
from engines.folders import room_or
from spec_tui.present.text import one_line, sanitise, wrap

T = TypeVar("T")
FAILED, LEFT_OUT, INTERRUPTED = 1, 5, 130
_WORST_FIRST = INTERRUPTED, FAILED, ModelUnavailable.exit_code, UsageProblem.exit_code, LEFT_OUT, 0
_LONGEST = 600
_VALUES = {
    "Input should be a valid number.*|'.*' is not a valid float.*": "takes a number",
    "Input should be a valid integer.*|'.*' is not a valid int.*": "takes a whole number",
    "Input should be greater than or equal to ": "is at least ",
    "Input should be less than or equal to ": "is at most ",
}
"""What the libraries of the parser say of values, as patterns that hold for all their versions; what we say instead."""
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF}  # the last: stdout is closed
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_NO_BUG = {errno.EMFILE, errno.ENFILE, *_FORBIDDEN}  # limits and permissions of the machine


def narrate(text: str) -> None:
    """Something for the person, not for the pipe: to stderr, free of what could steer a terminal. On a terminal,
    lines break between words."""
    with suppress(OSError, ValueError):  # nobody is there to read it
        lines = sanitise(text).split("\n")
        if sys.stderr.isatty():
            lines = [part for line in lines for part in _wrapped(line)]
        print("\n".join(lines), file=sys.stderr, flush=True)


def _wrapped(line: str) -> list[str]:
    """A line broken to the width of the terminal; all its parts are indented as it is."""
    from spec_tui.present.tables import text_width  # not imported for the application's sake: see ``_other``

    indent = " " * (len(line) - len(line.lstrip()))
    return wrap(line, text_width(), subsequent_indent=indent, break_long_words=False) or [line]


def exit_code(work: Callable[[], int]) -> int:
    """Do the work; its exit code, or that of its failure, which is told on stderr."""
    try:
        code = work()
        sys.stdout.flush()
        return code
    except SpecError as error:
        tell_failure(error.message, error.hint)
        return error.exit_code
    except KeyboardInterrupt:
        narrate("\nspec-tui: interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        forget_stdout()
        return 0  # the reader has what it wanted
    except SystemExit as leaving:
        if isinstance(leaving.__context__, BrokenPipeError):  # so rich takes a reader that left
            return 0
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except Exception as error:
        return _other(error)


def worst(*codes: int) -> int:
    """The exit code of work in parts: a BUG or a failed run counts more than what could not run at all."""
    return min(codes, key=_WORST_FIRST.index)


def _other(error: Exception) -> int:
    """Tell of what is none of ours: the parser's complaints, a full disk, a bug. Returns the exit code."""
    typer = sys.modules.get("typer")  # not imported for the application's sake: its first paint waits for every import
    if typer and isinstance(error, typer.Abort) and isinstance(error.__cause__, EOFError):
        error = error.__cause__  # which the parser takes for a key; a file of compiled Python that is cut off raises it
    if typer and isinstance(error, typer.Abort):
        narrate("\nspec-tui: interrupted")
        return INTERRUPTED
    if typer and isinstance(error, typer.BadParameter.__mro__[2]):  # click's, inside typer or beside it by version
        context = getattr(error, "ctx", None)
        tell_failure(_of_parser(error), f"see {context.command_path if context else 'spec-tui'} --help")
        return error.exit_code
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        tell_failure(f"the output cannot be written: {error.strerror}", room_or(error, "write elsewhere"))
        forget_stdout()
    elif isinstance(error, OSError) and error.errno in _NO_BUG:
        tell_failure(f"{one_line(str(error.filename or 'a file'))} cannot be opened: {error.strerror}",
                     "check who may read and write it" if error.errno in _FORBIDDEN else way_out(error, ""))
    else:
        tell_failure(f"unexpected error: {type(error).__name__}: {error}", _bug_report())
    return FAILED


def _of_parser(error: Exception) -> str:
    """What a complaint of the parser says, in our words where it has the words of a library for values."""
    found = re.fullmatch(r"Invalid value for '([^']*)': (.*)", error.format_message().rstrip("."), re.DOTALL)
    if found is None:
        return error.format_message().rstrip(".")
    name, said = found.groups()
    ours = next((re.sub(theirs, ours, said) for theirs, ours in _VALUES.items() if re.match(theirs, said)), None)
    if ours is None:
        return f"{name}: {said.removeprefix('Value error, ')}"
    given = [one_line(str(each["input"])) for each in getattr(error.__cause__, "errors", list)()[:1]]
    return ", not ".join([f"{name} {ours}", *given])


def do_all(*steps: Callable[[], object]) -> None:
    """Do them all, whatever fails of them and however often ctrl+c is pressed meanwhile: what was measured is not lost
    where a file cannot be written, nor a file where stdout cannot. Raises their first exception at the end; the others
    are told. Raises KeyboardInterrupt at the end where nothing failed."""
    failed = None
    with Interrupt() as interrupted:
        for step in steps:
            try:
                step()
            except Exception as error:  # of a library that draws, too
                if failed is None:
                    failed = error
                elif isinstance(error, SpecError):
                    tell_failure(error.message, error.hint)
                elif not isinstance(error, OSError):
                    _other(error)
    if failed is not None:
        raise failed
    if interrupted():
        raise KeyboardInterrupt


def forget_stdout() -> None:
    """Point stdout at nothing, so that the interpreter does not complain of the closed pipe at its end."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    with suppress(OSError, ValueError):
        os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


def tell_failure(message: str, hint: str) -> None:
    """A failure and the way out, to stderr."""
    if len(message) > _LONGEST:  # a name of thousands of characters
        message = f"{message[:_LONGEST // 2]} … {message[-_LONGEST // 2:]}"
    narrate(f"spec-tui: {message}" + (f"\n  {hint}" if hint else ""))


def _bug_report() -> str:
    """Writes the traceback of the exception being handled to a file; returns the sentence that says where."""
    from spec_tui.session.log import log_path, open_log

    log = open_log("spec-tui")
    if log is None:
        return "this is a bug"
    with log:
        log.write(traceback.format_exc().encode("utf-8", "backslashreplace") + b"\n")
    return f"this is a bug; the details are in {log_path('spec-tui')}"


class Interrupt:
    """While entered, the first ctrl+c asks for an end (calling this says True from then on), the second
    raises KeyboardInterrupt, though only while the next event is awaited, so that none is half dealt with. So does
    another signal that asks the process to end.

    A process that was started with SIGINT ignored goes on ignoring it: a shell starts background jobs so, and ctrl+c
    is then meant for what runs in the foreground.

    Attributes:
        entered: the one that signals go to now.
        number: of the last signal that was taken; SIGINT before.
    """

    entered: ClassVar[Interrupt | None] = None
    number: ClassVar[int] = signal.SIGINT

    def __init__(self) -> None:
        self._times = 0
        self._awaiting = False

    def __call__(self) -> bool:
        return self._times > 0

    def over(self, events: Iterator[T]) -> Iterator[T]:
        """The events. Raises KeyboardInterrupt after the second ctrl+c."""
        while True:
            self._awaiting = True
            try:
                if self._times > 1:
                    raise KeyboardInterrupt
                event = next(events, None)
            finally:
                self._awaiting = False
            if event is None:
                return
            yield event

    def __enter__(self) -> Interrupt:
        self._before, self._outer = signal.getsignal(signal.SIGINT), Interrupt.entered
        if self._before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self.take)
        Interrupt.entered = self
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        Interrupt.entered = self._outer
        signal.signal(signal.SIGINT, self._before)

    def take(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        Interrupt.number = number
        self._times += 1
        if self._times > 1 and self._awaiting:
            raise KeyboardInterrupt
