"""What is known of a race before it begins: about how long it takes, and whether llama.cpp can be a lane of it."""

from __future__ import annotations

from importlib.util import find_spec

from engines.cost.curve import CostCurve
from engines.errors import SpecError
from engines.race.runner import WARM_UP
from engines.report.events import Ready

LETTERS = 3
"""Of a token of a prompt; code has few."""
_PREFILL_ROWS = 64  # of a forward pass that reads a prompt


def expected_seconds(runs: int, lanes: int, prompt_tokens: int, new_tokens: int, ready: Ready | None) -> float | None:
    """Seconds that a race takes on an idle machine where drafts neither gain nor cost anything and no answer ends
    early: too many where drafts gain, too few where they cost or another program is slower. None where t(n) is not
    known. ``runs``: those that are measured; ``lanes`` are warmed up before."""
    if ready is None or not ready.price:
        return None
    price = CostCurve(ready.price)
    prefill = prompt_tokens * price.at(_PREFILL_ROWS) / _PREFILL_ROWS
    return runs * (prefill + new_tokens * price.at(1)) + lanes * (prefill + min(WARM_UP, new_tokens) * price.at(1))


def has_llama_cpp(ready: Ready | None) -> bool:
    """Whether llama.cpp is installed, and can read the file of the loaded model."""
    if ready is None or ready.served or find_spec("xllamacpp") is None:
        return False
    from engines.hub.model_source import locate

    try:
        return locate(ready.model).gguf is not None
    except SpecError:
        return False
