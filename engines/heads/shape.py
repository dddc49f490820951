"""What a head of the EAGLE family is: its sizes and the choices in which checkpoints differ. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

EAGLE, EAGLE3 = "EAGLE", "EAGLE-3"
"""Families: EAGLE-1 and EAGLE-2 have the same weights and read the last feature; EAGLE-3 reads several layers."""

PLAIN_ROPE = 10_000.0
"""Base of the rotation where a file names none. It is not the target's: published heads rely on that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadShape:
    """Attributes:
    family: ``EAGLE`` or ``EAGLE3``.
    width: of the head's hidden states; ``target_width``: of the target's.
    mlp, heads, kv_heads, head_dim: sizes of the one decoder layer.
    vocabulary: of the target; ``draft_vocabulary``: tokens that the head can draft.
    layers: EAGLE-3: numbers of the target's layers, counted from 1, after which its residual stream is read (HF's
        ``hidden_states`` with the same index).
    eps: of the norms.
    rope_theta: base of the rotation.
    norm_before_residual: EAGLE-3: the residual stream begins with the normalised feature.
    norm_output: EAGLE-3.1: the next step reads the normalised output.
    tap_norm: EAGLE-3: how taps are normalised before ``fc``: not (""), "whole", or "each" by itself.
    attention_bias: queries, keys and values have biases.
    """

    family: str
    width: int
    target_width: int
    mlp: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    draft_vocabulary: int
    layers: tuple[int, ...] = ()
    eps: float = 1e-5
    rope_theta: float = PLAIN_ROPE
    norm_before_residual: bool = False
    norm_output: bool = False
    tap_norm: str = ""
    attention_bias: bool = False

    @property
    def reads(self) -> str:
        """Which features it reads, in words."""
        if self.family == EAGLE:
            return "the last hidden state"
        return "the residual stream after layers " + ", ".join(map(str, self.layers))


def usual_layers(layers: int) -> tuple[int, ...]:
    """The taps of an EAGLE-3 head that names none, for a target of so many layers."""
    return (2, layers // 2, layers - 3)
