"""``spec-tui``, and ``python -m spec_tui``. Until the imports are done and ``spec_tui.cli`` deals with ctrl+c, it ends
the process without a traceback."""

from __future__ import annotations

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line of this process; exits with its code."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as a shell leaves it for background jobs
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from spec_tui import cli

    cli.main()


if __name__ == "__main__":
    main()
