"""Laws: who decides which drafted tokens stay. One law a file; ``engines.request.LAWS`` says what each is for."""

from __future__ import annotations

from engines.laws.base import Law, Verdict
from engines.laws.exact import Exact
from engines.laws.redraw import Redraw
from engines.laws.rejection import Rejection
from engines.laws.typical import Typical
from engines.sampling import Sampling

__all__ = ["Exact", "Law", "Redraw", "Rejection", "Typical", "Verdict", "make_law"]

_WITH_DICE = {law.name: law for law in (Rejection, Redraw, Typical)}


def make_law(name: str, sampling: Sampling, seed: int, vocab_size: int) -> Law:
    """The law with this name, one of ``engines.request.LAWS``."""
    return Exact(sampling, seed, vocab_size) if name == Exact.name else _WITH_DICE[name](sampling, seed)
