"""Which sublayers drafting leaves out, as data and as a word: ``a3,a5-7,m4`` is the attention of layers 3, 5, 6 and 7
and the MLP of layer 4, counted from 1."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from engines.errors import UsageProblem

FORM = "write a3,a5-7,m4 for the attention of layers 3, 5, 6 and 7 and the MLP of layer 4, counted from 1"
_ITEM = re.compile(r"([am])([0-9]{1,4})(?:-([0-9]{1,4}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class SkippedLayers:
    """Attention and MLP sublayers that drafting leaves out, by their layer, counted from 1, ascending."""

    attention: tuple[int, ...] = ()
    mlp: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.attention) + len(self.mlp)

    def __str__(self) -> str:
        return ",".join([*_spans("a", self.attention), *_spans("m", self.mlp)])

    @classmethod
    def parse(cls, text: str, layers: int) -> SkippedLayers:
        """The sublayers that a word names, of a model with so many layers. Raises UsageProblem: not such a word, or a
        layer that the model has not."""
        found: dict[str, set[int]] = {"a": set(), "m": set()}
        for item in filter(None, re.split(r"[,\s]+", text.strip().lower())):
            match = _ITEM.fullmatch(item)
            if match is None:
                raise UsageProblem(f"{item[:40]!r} names no sublayers", FORM)
            first, last = int(match[2]), int(match[3] or match[2])
            if not 1 <= first <= last <= layers:
                raise UsageProblem(f"{item} is outside of the model's {layers} layers", FORM)
            found[match[1]] |= set(range(first, last + 1))
        return cls(tuple(sorted(found["a"])), tuple(sorted(found["m"])))


def _spans(letter: str, numbers: Iterable[int]) -> list[str]:
    """``a3`` and ``a5-7`` for 3, 5, 6, 7."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return [f"{letter}{a}" if a == b else f"{letter}{a}-{b}" for a, b in spans]
