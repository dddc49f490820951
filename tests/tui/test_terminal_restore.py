"""Signals that ask the application to end, and what is drawn on a terminal that was closed."""

from __future__ import annotations

import os
import signal
import sys
import time

from spec_tui.tui.terminal_restore import TerminalOutput
from tests.e2e.terminal import Terminal

STUCK = [sys.executable, "-c", """
import time
from textual.app import App
from spec_tui.tui.terminal_restore import leave_on_signals, restored

class Stuck(App):
    def on_mount(self):
        leave_on_signals(self)
        print("it is stuck", file=__import__("sys").__stdout__, flush=True)
        time.sleep(60)

with restored():
    Stuck().run()
"""]


def test_a_second_signal_ends_an_application_that_does_not_answer():
    with Terminal(STUCK) as terminal:
        terminal.wait_for("it is stuck")
        for name in (signal.SIGHUP, signal.SIGHUP):  # as a window that closes sends it, and its shell
            terminal.process.send_signal(name)
        time.sleep(1.2)
        assert terminal.process.poll() is None
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.exit_code(10) == -signal.SIGTERM


def test_drawing_on_a_closed_terminal_is_lost_and_no_error():
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as file:
        out = TerminalOutput(file)
        out.write("a")
        out.flush()
        assert os.read(ours, 9) == b"a" and out.isatty() and out.fileno() == file.fileno()
        os.close(ours)
        for _ in range(40):
            out.write("b" * 10_000)
            out.flush()
