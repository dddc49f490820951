"""The engine process: ``python -m spec_tui.session.worker``. Commands come in on stdin, events go out on
stdout, both as lines of JSON; what libraries print goes to stderr, which the parent points at a log file.

The main thread loads and decodes; a reader thread takes commands, so that a cancel is heard at any moment. Events are
written between rounds by the main thread, outside the timed regions; where the parent does not read for long and the
pipe is full, decoding waits. When stdin ends, the parent is gone and so is this process.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import IO

from engines import folders
from engines.wire import Event
from spec_tui.session.engine_commands import Close, event_line, read_command
from spec_tui.session.engine_service import Loader, Service
from spec_tui.session.loader import LOADER

_PATIENCE = 1.0  # seconds a run gets to end by itself once the parent has closed or died
_PIPE_SIZE = 1 << 20


def main(argv: list[str] | None = None) -> None:
    """Serve the parent until it closes or dies. Does not return."""
    parser = argparse.ArgumentParser(prog="spec-tui engine process")
    parser.add_argument("--factory", default=LOADER, help="module:function that loads a model")
    factory = parser.parse_args(argv).factory
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl+c is the parent's; it says cancel if it means that
    commands, events = _take_streams()
    service = Service(_writer(events), lambda *asked: _resolve(factory)(*asked))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        threading.Thread(target=_read, args=(commands, service), daemon=True).start()
        service.serve()
    folders.remove_temporary_folder()
    os._exit(0)  # a loaded torch takes long to take down in order, and there is nothing to save


def _take_streams() -> tuple[IO[bytes], IO[bytes]]:
    """The parent's pipes, out of reach of libraries: those find an empty stdin, and the log as their stdout."""
    commands, events = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    _enlarge(events)
    return open(commands, "rb"), open(events, "wb")


def _enlarge(pipe: int) -> None:
    """Room for some seconds of rounds, so that a busy screen does not hold up decoding. Linux only."""
    try:
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
    except (ImportError, AttributeError, OSError):
        pass


def _writer(events: IO[bytes]) -> Callable[[int, Event], None]:
    def emit(job: int, event: Event) -> None:
        try:
            events.write(event_line(job, event))
            events.flush()
        except OSError:  # nobody listens any more
            os._exit(0)

    return emit


def _read(commands: IO[bytes], service: Service) -> None:
    try:
        for line in commands:
            job, command = read_command(line)
            if isinstance(command, Close):
                break
            service.command(job, command)
    finally:  # however this thread ends, the process must not outlive its parent
        service.command(0, Close())
        # What does not look whether it is to end is interrupted: it ends its compilers and removes their files.
        threading.Timer(_PATIENCE / 2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        threading.Timer(_PATIENCE, os._exit, (0,)).start()


def _resolve(factory: str) -> Loader:
    module, _, name = factory.partition(":")
    return getattr(importlib.import_module(module), name)


if __name__ == "__main__":
    main(sys.argv[1:])
