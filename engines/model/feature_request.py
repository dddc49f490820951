"""Which hidden states a drafter asks the target for. Importing this module does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Tap = int | Literal["last", "cosines"]
"""Where hidden states are taken. A layer, counted from 1: the residual stream after it, [rows, width]."""
LAST: Tap = "last"
"""After the final norm: what the language modelling head reads, [rows, width]."""
COSINES: Tap = "cosines"
"""Not states but the cosine of the residual stream before and after each sublayer, float32 [rows, 2 layers]: attention
and MLP of layer 1, attention and MLP of layer 2, and so on."""
LEAST_RECENT = 64
"""How many of the context's last rows have what is asked of recent rows, at least; all where the context is shorter."""


@dataclass(frozen=True, slots=True)
class FeatureRequest:
    """Hidden states by tap.

    Attributes:
        latest: wanted of the last forward only: of its rows, or of a prefill's last row.
        history: wanted of every row of the context too, those of the prefill and of accepted drafts. They are kept
            beside the keys and values, through rewinds and between turns; a cached row that lacks them is read again.
        recent: wanted of the context's last rows, ``LEAST_RECENT`` or more: kept as ``history``, but of cached rows
            that lack them only the last are read again.
    """

    latest: frozenset[Tap] = frozenset()
    history: frozenset[Tap] = frozenset()
    recent: frozenset[Tap] = frozenset()

    @property
    def taps(self) -> frozenset[Tap]:
        """All taps that are asked for."""
        return self.latest | self.kept

    @property
    def kept(self) -> frozenset[Tap]:
        """Those that are kept beside keys and values."""
        return self.history | self.recent

    def __or__(self, other: FeatureRequest) -> FeatureRequest:
        return FeatureRequest(self.latest | other.latest, self.history | other.history, self.recent | other.recent)
