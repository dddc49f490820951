"""The environment the engines' libraries see: quiet, offline-minded, polite to other processes, in huge pages."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

_ALWAYS = {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1", "DO_NOT_TRACK": "1"}
_HUGE_PAGES = "GLIBC_TUNABLES"  # read by glibc alone, and only when a process begins
_UNLESS_SET = {
    # A pass reads so much that the addresses of 4-kB pages, the interpreter's own too, are looked up anew in each.
    _HUGE_PAGES: "glibc.malloc.hugetlb=1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_VERBOSITY": "error",  # an unreachable hub is our message, not one for each of its retries
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
}


def prepare_this_process() -> None:
    """Give this process the engines' environment; the user's own settings win, except that telemetry is always off.
    Has an effect only before torch and transformers are imported."""
    os.environ.update({**_UNLESS_SET, **os.environ, **_ALWAYS})


def begin_in_huge_pages() -> None:
    """Begin this process anew with huge pages, where nobody has set glibc's variable. What was read from standard input
    would be lost. Where that is not possible the process goes on as it is."""
    if sys.platform != "linux" or _HUGE_PAGES in os.environ or not sys.executable:
        return
    with suppress(OSError):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**_UNLESS_SET, **os.environ})


def working_folder() -> str:
    """The current folder, or the root where that was deleted: libraries end a process that has none."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return os.path.abspath(os.sep)


def child_environment() -> dict[str, str]:
    """The environment of a child process. It finds modules where this process does and, if started with ``-P``, nowhere
    else."""
    path = os.pathsep.join(entry or working_folder() for entry in sys.path)
    return {**_UNLESS_SET, **os.environ, **_ALWAYS, "PYTHONPATH": path}
