"""Speculative decoding, headless: engines, laws, trees, events. Knows nothing of terminals.

    from engines import Request, load
    runtime = load("path/or/hub-id")
    for event in runtime.run(Request(conversation=(("user", "Hello"),), engine="pld")):
        ...

A runtime does one run at a time: a second one, of the same thread or another, is refused until the first is read to its
end or closed, which ``Runtime.stop`` does too. To run two at once, load two. A process that is forked after the first
``load`` cannot decode: start it with ``multiprocessing.get_context("spawn")``.

Importing this package is cheap: torch comes with the first ``load``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from typing import TYPE_CHECKING

from engines.errors import (
    DatastoreProblem,
    LibraryProblem,
    ModelUnavailable,
    RunFailed,
    SpecError,
    StartCancelled,
    UsageProblem,
)
from engines.methods import MethodSpec, find, specs
from engines.model.load_options import LoadOptions
from engines.report.answer import Answer
from engines.report.metrics import Metrics, measure
from engines.request import Request

if TYPE_CHECKING:
    from engines.progress import Loading
    from engines.runtime import Runtime

__version__ = "0.2.0"
__all__ = [
    "Answer", "DatastoreProblem", "LibraryProblem", "LoadOptions", "MethodSpec", "Metrics", "ModelUnavailable",
    "Request", "RunFailed", "SpecError", "StartCancelled", "UsageProblem", "find", "load", "measure", "specs",
]


def load(
    model: str | PathLike | None = None, draft_model: str | PathLike | None = None, *,
    progress: Callable[[Loading], None] = lambda _: None, **options,
) -> Runtime:
    """Load models. While torch is imported, ctrl+c waits.

    Args:
        model: a folder, a GGUF file, an id on the hub or a known name; None for the model that was fetched or chosen
            last, else the sample model.
        draft_model: the same; None for one that is known for the model, or ships with its vocabulary.
        progress: told of each stage.
        options: other fields of ``engines.model.load_options.LoadOptions``.

    Raises:
        As of ``Runtime.load``.
    """
    with _interrupted_later():
        from engines.runtime import Runtime

    given = {"model": model, "draft_model": draft_model, **options}
    given = {name: fspath(value) if isinstance(value, PathLike) else value for name, value in given.items()}
    return Runtime.load(LoadOptions(**given), progress)


@contextmanager
def _interrupted_later() -> Iterator[None]:
    """Within, ctrl+c waits for the end: a process that breaks off the import of torch crashes when it imports it
    again."""
    import signal
    from threading import current_thread, main_thread

    usual, came = signal.getsignal(signal.SIGINT), []
    if current_thread() is not main_thread() or not callable(usual):  # nothing is raised here, or it cannot be put back
        yield
        return
    signal.signal(signal.SIGINT, lambda *given: came.append(given))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if came:
            usual(*came[0])
