"""The command line."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from engines import folders
from engines.errors import UsageProblem
from spec_tui.cli.failures import INTERRUPTED, Interrupt, exit_code
from spec_tui.cli.starting import starting
from spec_tui.session.environment import begin_in_huge_pages
from spec_tui.tui.terminal_restore import LEAVING

_DECODE = {  # commands that decode in this process, or measure t(n)
    "run", "compare", "bench", "reproduce", "advise", "sweep", "price", "head check", "head export", "head info",
    "head train", "datastore build", "datastore probe",
}
_DIGITS = 4  # of the largest size of a terminal


def main() -> NoReturn:
    """Run the command line of this process; exits with its code."""
    if not _DECODE.isdisjoint((" ".join(sys.argv[1:2]), " ".join(sys.argv[1:3]))):
        begin_in_huge_pages()
    for name, mode, access in (("stdin", "r", os.O_RDONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY)):
        if getattr(sys, name) is None:  # closed by the caller; a result that is written there is lost, which is told
            setattr(sys, name, open(os.open(os.devnull, access), mode))  # noqa: SIM115 (for the process's life)
    sys.stdout.reconfigure(errors="replace")  # what its encoding lacks; stderr escapes it by itself
    for name in LEAVING:
        number = getattr(signal, name, None)
        if number and signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, leave)
    for name in ("COLUMNS", "LINES"):  # a terminal's size, which libraries make room for
        value = os.environ.get(name, "")
        if not (value.isdecimal() and len(value) <= _DIGITS and int(value)):  # 0 says that it is not known
            os.environ.pop(name, None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # until here, by __main__
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code = call(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    folders.remove_temporary_folder()
    # There is nothing to save, and an orderly end would wait: a second or two for torch, and for ever for a key
    # reader of Textual's where the process was once stopped and continued from outside.
    os._exit(code)


def leave(number: int, frame: FrameType | None) -> None:
    """Asked to end: what has been measured is written, as after ctrl+c; progress is cleared, files are closed. Where
    nothing is measured it raises KeyboardInterrupt, not SystemExit: SystemExit from a plug-in is caught and would end
    nothing."""
    if Interrupt.entered is None:
        Interrupt.number = number
        raise KeyboardInterrupt
    Interrupt.entered.take(number, frame)


def call(arguments: list[str]) -> int:
    """Parse the arguments and do what they say. Returns the exit code; errors are reported on stderr."""
    Interrupt.number = signal.SIGINT
    code = exit_code(lambda: _done(arguments))
    return 128 + Interrupt.number if code == INTERRUPTED else code


def _done(arguments: list[str]) -> int:
    try:
        os.getcwd()
    except FileNotFoundError:  # libraries end the process where they look for it
        raise UsageProblem("the current folder no longer exists", "go to another one: cd ~") from None
    if not arguments and "_SPEC_TUI_COMPLETE" not in os.environ:  # without the parser, to paint the first screen soon
        with starting():
            from spec_tui.cli.application import open_application
            from spec_tui.session.engine_commands import LoadRequest

        return open_application(LoadRequest())
    with starting():
        from spec_tui.cli.commands import app

    called = app(args=arguments, prog_name="spec-tui", standalone_mode=False)
    return called() if callable(called) else int(called or 0)  # a number after --help
