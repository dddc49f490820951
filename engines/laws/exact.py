"""The law ``exact`` in words (``engines.core.lossless_laws.Exact``)."""

from __future__ import annotations

from engines.laws.spec import LawSpec
from engines.report.events import Emitted, Started


class ExactSpec(LawSpec):
    """Coupled sampling: one text for every engine."""

    name = "exact"
    summary = "the target's own token, by noise of seed and position; every engine writes the same text"
    brief = "by noise, one text for all engines"
    source = "Daliri et al. 2024, coupled sampling"
    shares_noise = True

    def rule(self, started: Started) -> str:
        return (f"At every row the target has one token: the best of its scores and noise that seed {started.seed} and "
                "the position fix.")

    def own_token(self, last: Emitted) -> list[str]:
        return ["It is fixed by prompt, seed and position: any engine would have come to it."]


SPEC = ExactSpec()
