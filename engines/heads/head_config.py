"""What a head is: its sizes and the choices in which checkpoints of its family differ. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

EAGLE, EAGLE3, MEDUSA = "EAGLE", "EAGLE-3", "Medusa"
"""Families: EAGLE-1 and EAGLE-2 have the same weights and read the last feature; EAGLE-3 reads several layers."""
FAMILIES = {family.lower(): family for family in (EAGLE, EAGLE3, MEDUSA)}
"""Families by the names that users type."""

EAGLE_HEAD, MEDUSA_HEADS = "EAGLE head", "Medusa heads"
HEADS = (EAGLE_HEAD, MEDUSA_HEADS)
"""Kinds of heads, as ``MethodSpec.needs`` names them: beside a model at most one of each is loaded."""

PLAIN_ROPE = 10_000.0
"""Base of the rotation where a file names none. It is not the target's: published heads rely on that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadConfig:
    """A head of the EAGLE family.

    Attributes:
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
    kind: ClassVar[str] = EAGLE_HEAD
    rows_a_pass: ClassVar[int] = 1

    @property
    def title(self) -> str:
        """What it is, in words."""
        return f"{self.family} head"

    def choices(self) -> list[tuple[str, str]]:
        """What else checkpoints differ in, as names and words."""
        return [("rope theta", f"{self.rope_theta:g}"),
                ("norm before residual", "yes" if self.norm_before_residual else "no")]


@dataclass(frozen=True, slots=True, kw_only=True)
class MedusaConfig:
    """Medusa heads (Cai et al. 2024), all of a file: each drafts for one place, from the same hidden state.

    Attributes:
    heads: how many; the first drafts the token after the root.
    blocks: residual blocks of each.
    width: of the hidden states, the target's too.
    bias: the blocks have biases.
    vocabulary, draft_vocabulary: as of ``HeadConfig``.
    """

    heads: int
    blocks: int
    width: int
    vocabulary: int
    draft_vocabulary: int
    bias: bool = True
    family: ClassVar[str] = MEDUSA
    kind: ClassVar[str] = MEDUSA_HEADS
    title: ClassVar[str] = MEDUSA_HEADS
    layers: ClassVar[tuple[int, ...]] = ()

    @property
    def rows_a_pass(self) -> int:
        """What a pass costs: t(n) of so many rows."""
        return self.heads

    @property
    def target_width(self) -> int:
        """Width of the target's hidden states."""
        return self.width

    def choices(self) -> list[tuple[str, str]]:
        """What checkpoints differ in, as names and words."""
        return [("heads", str(self.heads)), ("residual blocks of each", str(self.blocks))]


def usual_layers(layers: int) -> tuple[int, ...]:
    """The taps of an EAGLE-3 head that names none, for a target of so many layers."""
    return (2, layers // 2, layers - 3)
