"""A column plot whose axis starts at zero and says where it ends, so that heights can be compared."""

from __future__ import annotations

from collections.abc import Sequence

_STEPS = " ▁▂▃▄▅▆▇█"


def nice_top(value: float) -> float:
    """The next round number at or above: the top of the axis."""
    if value <= 1:
        return 1.0
    size = 1.0
    while size * 10 <= value:
        size *= 10
    return next(size * step for step in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if size * step >= value)


def columns(values: Sequence[float], top: float, height: int) -> list[str]:
    """``height`` rows of text, the upper one first: one column a value, from zero."""
    eighths = [max(0, min(height * 8, round(v / top * height * 8))) if top > 0 else 0 for v in values]
    rows = []
    for row in range(height - 1, -1, -1):
        rows.append("".join(_STEPS[max(0, min(8, e - row * 8))] for e in eighths))
    return rows


def spark(values: Sequence[float]) -> str:
    """One row from zero to the greatest value."""
    top = max(values, default=0.0)
    return columns(values, top, 1)[0] if top > 0 else " " * len(values)
