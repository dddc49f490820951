"""ADMG's rules for what drafting leaves out (Metel et al. 2024, Algorithm 1). Plain data: needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engines.report.events import Layers, Rule

Rules = tuple[Rule, ...]


def removed(
    cosines: Sequence[float | None], alpha: float, m: int, n: int, cosine: bool = True, interval: bool = True
) -> tuple[Rules, Rules]:
    """The rule that leaves out each layer's attention, and its MLP; layers are counted from 1.

    Attention is left out where C_l >= alpha, attention and MLP where l is a multiple of m; nothing of the last n.

    Args:
        cosines: C_l of the attention sublayers, one a layer; None where it is not known.
        cosine, interval: whether the rule is on.
    """
    attention: list[Rule] = []
    mlp: list[Rule] = []
    for layer, similarity in enumerate(cosines, start=1):
        free = layer <= len(cosines) - n
        by_cosine = cosine and free and similarity is not None and similarity >= alpha
        by_interval = interval and free and layer % m == 0
        attention.append("both" if by_cosine and by_interval else "cosine" if by_cosine else _interval(by_interval))
        mlp.append(_interval(by_interval))
    return tuple(attention), tuple(mlp)


def _interval(left_out: bool) -> Rule:
    return "interval" if left_out else ""


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
