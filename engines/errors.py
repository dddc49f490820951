"""Errors a user can act on: one sentence of what went wrong, one of what to do about it."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from traceback import walk_tb

PLUG_IN_ERRORS = (Exception, SystemExit, GeneratorExit)
"""What a plug-in may raise without ending the program: an argument parser that it calls exits."""


class SpecError(Exception):
    """A failure with a way out.

    Args:
        message: what went wrong, a sentence without a trailing full stop.
        hint: what the user can do about it.
    """

    exit_code = 1
    kind = "failed"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class RunFailed(SpecError):
    """A run that started could not go on."""


class StartCancelled(RunFailed):
    """A run was cancelled before it began: another program was being started or asked, a draft model loaded or a
    datastore built."""

    exit_code = 130
    kind = "cancelled"

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} was stopped", "ask again to start it")


class UsageProblem(SpecError):
    """An option, a prompt or a combination of them that cannot be run."""

    exit_code = 2
    kind = "usage"


class ModelUnavailable(SpecError):
    """A model that is not there, cannot be fetched, or is not one this program can decode with."""

    exit_code = 3
    kind = "model"


class LibraryProblem(SpecError):
    """A library that is not installed, or in a version that this program cannot work with."""

    exit_code = 3
    kind = "library"


class DatastoreProblem(SpecError):
    """A datastore that is not there, damaged, or made for another tokenizer, model or version of this program."""

    exit_code = 3
    kind = "datastore"


def way_out(error: OSError, otherwise: str) -> str:
    """What the user can do where a file that may be sound could not be read: the permission or the limit that is in the
    way, in words; ``otherwise`` where it is none of these."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "raise the limit of open files: ulimit -n 1024"
    if error.errno == errno.ENOMEM:
        return "close other programs, or raise the limit of memory: ulimit -v"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "allow this user to read it"
    return "check the disk that it is on" if error.errno in (errno.EIO, getattr(errno, "ESTALE", None)) else otherwise


@contextmanager
def drafting() -> Iterator[None]:
    """Within, a drafter works, maybe a plug-in's. Raises RunFailed for what it raises."""
    try:
        yield
    except (SpecError, MemoryError):
        raise
    except PLUG_IN_ERRORS as error:
        said = f"the engine failed: {first_line(error, named=True)}{_place(error)}"
        raise RunFailed(said, "take another engine") from error


def _place(error: BaseException) -> str:
    """Where another package's code failed, as " (its_folder/file.py:24)": the innermost line of the first package
    outside this one that was called. "" where only this one ran."""
    frames = [(frame.f_globals.get("__name__", "").partition(".")[0], frame.f_code.co_filename, line)
              for frame, line in walk_tb(error.__traceback__)]
    others = [frame for frame in frames if frame[0] not in (__name__.partition(".")[0], "importlib")]
    if not others:
        return ""
    file, line = next((file, line) for package, file, line in reversed(others) if package == others[0][0])
    return f" ({'/'.join(PurePath(file).parts[-2:])}:{line})"


def finite(value: float) -> float:
    """One of a model's logits or probabilities. Raises RunFailed where it is nan or infinite."""
    if not math.isfinite(value):
        raise RunFailed("the model's logits are not numbers", "use --dtype float32, or get the model again")
    return value


def first_line(error: BaseException, named: bool = False, without: Callable[[str], str] = str) -> str:
    """What an exception of another library says, in one line of at most 200 characters; a line that ends with a colon
    goes on with the next. ``named``: after its kind, which is always said of KeyError and others whose text is no
    sentence. ``without`` takes out of the whole text what nobody is to read."""
    try:
        text = str(error)
    except PLUG_IN_ERRORS:  # its own class says it, and fails
        text = ""
    lines = [line.strip() for line in without(text).splitlines() if line.strip()]
    end = next((i for i, line in enumerate(lines) if not line.endswith(":")), -1)
    said = " ".join(lines[: end + 1] or lines)
    if len(said) > 200:
        cut = said.rfind(" ", 150, 199)
        said = f"{said[: cut if cut > 0 else 199]}…"
    no_sentence = isinstance(error, LookupError | ArithmeticError | SystemExit)
    kind = type(error).__name__ if named or not said or no_sentence else ""
    return ": ".join(filter(None, (kind, said)))
