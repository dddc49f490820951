"""What is drawn on a terminal that was closed."""

from __future__ import annotations

import os

from spec_tui.tui.terminal_restore import TerminalOutput


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
