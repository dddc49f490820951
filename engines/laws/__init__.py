"""Laws: who decides which drafted tokens stay. One law a file; ``engines.request.LAWS`` says what each is for."""

from __future__ import annotations

from engines.core.exact import Exact
from engines.core.law import Law, Verdict
from engines.core.rejection import Rejection
from engines.core.sampling import Sampling, SeededRng
from engines.laws.redraw import Redraw
from engines.laws.typical import Typical

__all__ = ["Exact", "Law", "Redraw", "Rejection", "Typical", "Verdict", "make_law"]

_WITH_DICE = {law.name: law for law in (Rejection, Redraw, Typical)}


def make_law(name: str, sampling: Sampling, seed: int, vocab_size: int, begun: int = 0) -> Law:
    """The law with this name, one of ``engines.request.LAWS``, for an answer of which ``begun`` tokens are there."""
    if name == Exact.name:
        return Exact(sampling, seed, vocab_size)
    return _WITH_DICE[name](sampling, seed, SeededRng(seed, begun))
