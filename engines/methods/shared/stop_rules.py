"""When a chain ends early: by how sure its drafter still is, a number of 0..1 that may not fall below a threshold.

Sources: top, the probability of the drafted token: llama.cpp's p-min, Zhang et al. 2024 (Draft & Verify). entropy,
``1 - sqrt(c H)``, a lower bound on the chance of acceptance by the entropy H (nats) of the distribution drafted from:
Agrawal et al. 2024 (AdaEDL, c = 0.2) and Zhang et al. 2025 (SVIP, c = 0.15, threshold 0.7), the same curve; c is
SVIP's. cumulative, the probability of the whole path: Li et al. 2024 (EAGLE-2's score).

The token that falls below the threshold is drafted all the same: leaving out what was drawn would bias the
rejection law.
"""

from __future__ import annotations

from math import prod, sqrt
from typing import TYPE_CHECKING

from engines.methods.options import Option

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from engines.core.sampling import Sampling

NONE, TOP, ENTROPY, CUMULATIVE = "none", "top", "entropy", "cumulative"
_SVIP = 0.15
_WORDS = ("top: the probability of its token. entropy: 1 - sqrt(0.15 H) by the entropy H of its distribution, a bound "
          "on the chance of acceptance. cumulative: the probability of the whole chain.")


STOPPED = (
    {"budget": "paper", "num_tokens": 8, "stop": TOP, "confidence": 0.6},
    {"budget": "paper", "num_tokens": 8, "stop": ENTROPY, "confidence": 0.7},
)
"""Settings of a chain that a rule ends, to be tried: llama.cpp's rule at a threshold that its users found good, and
SVIP's at its own."""


def stop_option(default: str, threshold: str) -> Option:
    """The option ``stop``, of a method whose option ``threshold`` says below which value a chain ends."""
    rules = (TOP, ENTROPY, CUMULATIVE)
    return Option(
        "stop", default, f"Chain: the measure that ends the chain when it falls below {threshold}. {_WORDS}"
        + (" none: nothing, the budget decides alone." if default == NONE else ""),
        choices=(NONE, *rules) if default == NONE else rules,
    )


def sureness(rule: str, sampling: Sampling, logits: torch.Tensor, probs: Sequence[float]) -> float:
    """How sure a drafter is after its last token, 0..1.

    Args:
        logits: [vocabulary], which that token was chosen from.
        probs: its belief in each token of the chain, that one the last.
    """
    if rule == CUMULATIVE:
        return prod(probs)
    if rule != ENTROPY:
        return probs[-1]
    import numpy as np

    from engines.core.sampling import softmax, to_numpy

    q = softmax(sampling.row(to_numpy(logits)))
    found = q[q > 0]
    return max(0.0, 1 - sqrt(_SVIP * max(0.0, -float((found * np.log(found)).sum()))))
