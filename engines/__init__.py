"""Speculative decoding, headless: engines, laws, trees, events. Knows nothing of terminals.

    from engines import Request, load
    runtime = load("path/or/hub-id")
    for event in runtime.run(Request(conversation=(("user", "Hello"),), engine="pld")):
        ...

A runtime does one run at a time: a second one, of the same thread or another, is refused until the first is read to its
end or closed. To run two at once, load two.

Importing this package is cheap: torch comes with the first ``load``.
"""

from __future__ import annotations

from engines.errors import ModelUnavailable, RunFailed, SpecError, UsageProblem
from engines.methods import MethodSpec, find, specs
from engines.report.answer import Answer
from engines.report.metrics import Metrics, measure
from engines.request import Request

__version__ = "0.2.0"
__all__ = [
    "Answer", "MethodSpec", "Metrics", "ModelUnavailable", "Request", "RunFailed", "SpecError", "UsageProblem",
    "find", "load", "measure", "specs",
]


def load(*args, **kwargs):
    """Load models and return a ``engines.runtime.Runtime``; see ``Runtime.load`` for the arguments."""
    from engines.runtime import Runtime

    return Runtime.load(*args, **kwargs)
