"""ADMG's rules for what drafting leaves out (Metel et al. 2024, Algorithm 1). Plain data: needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engines.report.events import Layers, Rule

Rules = tuple[Rule, ...]
_RULE: dict[tuple[bool, bool], Rule] = {
    (False, False): "", (True, False): "cosine", (False, True): "interval", (True, True): "both"
}


def removed(
    cosines: Sequence[float | None], alpha: float, m: int, n: int, cosine: bool = True, interval: bool = True
) -> tuple[Rules, Rules]:
    """The rule that leaves out each layer's attention, and its MLP; layers are counted from 1.

    Attention is left out where C_l >= alpha, attention and MLP where l is a multiple of m; nothing of the last n.

    Args:
        cosines: C_l of the attention sublayers, one a layer; None where it is not known.
        cosine, interval: whether the rule is on.
    """
    free = max(0, len(cosines) - n)
    alike = [cosine and layer <= free and c is not None and c >= alpha for layer, c in enumerate(cosines, start=1)]
    multiple = [interval and layer <= free and layer % m == 0 for layer in range(1, len(cosines) + 1)]
    return tuple(_RULE[both] for both in zip(alike, multiple)), tuple(_RULE[False, hit] for hit in multiple)


def leave_out(layers: Layers, alpha: float, m: int, n: int, cosine: bool = True, interval: bool = True) -> Layers:
    """These layers with what the rules leave out of them, by the cosines that they carry; what the model cannot do
    without stays. Arguments as of ``removed``."""
    cosines = layers.attention_cosine or (None,) * len(layers.attention)
    attention, mlp = removed(cosines, alpha, m, n, cosine, interval)
    return replace(
        layers, attention=_but(attention, layers.attention_stays), mlp=_but(mlp, layers.mlp_stays),
        alpha=alpha if cosine else None, m=m if interval else None, n=n if cosine or interval else None,
    )


def _but(rules: Rules, stays: Sequence[int]) -> Rules:
    return tuple("" if layer in stays else rule for layer, rule in enumerate(rules, start=1))
