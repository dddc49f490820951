"""Laws: who decides which drafted tokens stay.

Two lossless ones are part of the algorithm (``engines.core.lossless_laws``), a third is for chains that were drawn, and
two lossy ones are here to be seen and measured. What a law says of itself, for the command line and every screen, is
its ``LawSpec``. Importing this needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engines.errors import UsageProblem
from engines.laws.spec import GREEDY, LAWS, REJECTION, LawSpec

if TYPE_CHECKING:
    from engines.core.lossless_laws import Law
    from engines.core.sampling import Sampling

__all__ = ["DEFAULT", "LAWS", "LawSpec", "find", "make_law", "spec_of", "trying"]

DEFAULT = next(iter(LAWS))


def find(name: str) -> LawSpec:
    """The law with this name. Raises UsageProblem that names those there are."""
    if name not in LAWS:
        raise UsageProblem(f"there is no law {name!r}", "laws are: " + ", ".join(law.label for law in LAWS.values()))
    return LAWS[name]


def spec_of(name: str, temperature: float = 1.0) -> LawSpec:
    """The words for a law at a temperature; for an unknown one (of a trace) those of comparing."""
    return LAWS.get(name, GREEDY).at(temperature)


def trying(name: str) -> LawSpec:
    """The words for trials; for a law that tries nothing, or an unknown one (of a trace), speculative sampling's."""
    return LAWS[name] if name in LAWS and LAWS[name].trials_title else REJECTION


def make_law(name: str, sampling: Sampling, seed: int, vocab_size: int, begun: int = 0) -> Law:
    """The law with this name, for an answer of which ``begun`` tokens are there. Imports torch."""
    from engines.core.lossless_laws import Exact, Rejection
    from engines.laws.block_verification import BlockVerification
    from engines.laws.lossy_laws import Redraw, Typical
    from engines.randomness import SeededRng

    if name == Exact.name:
        return Exact(sampling, seed, vocab_size)
    drawing = {law.name: law for law in (Rejection, BlockVerification, Redraw, Typical)}
    return drawing[name](sampling, seed, SeededRng(seed, begun))
