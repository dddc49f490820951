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


Cell = tuple[str, int]
"""A character of a line plot and the number of the line it belongs to, -1 for none."""

# Dots of a braille cell by row and column, as bits of its code point.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BRAILLE = 0x2800


def lines(series: Sequence[tuple[str, Sequence[tuple[float, float]]]], right: float, top: float, width: int,
          height: int) -> list[list[Cell]]:
    """Lines on common axes from zero to ``right`` and ``top``: ``height`` rows of ``width`` cells, the upper first.

    Each of ``series`` is a mark and its points in the order of x; it starts at the origin, rises in steps, and ends
    where its last point is. Marks stand at the ends and along the lines, so that lines are told apart without colour.
    """
    bits = [[0] * width for _ in range(height)]
    owner = [[-1] * width for _ in range(height)]
    marks: dict[tuple[int, int], Cell] = {}
    for number, (mark, points) in enumerate(series):
        heights = _heights(points, right, top, width * 2, height * 4)
        for x, (low, high) in enumerate(heights):
            for dot in range(low, high + 1):
                y, row = divmod(height * 4 - 1 - dot, 4)
                bits[y][x // 2] |= _DOTS[row][x % 2]
                owner[y][x // 2] = number
        _place(marks, mark, number, [(x // 2, (height * 4 - 1 - high) // 4) for x, (_, high) in enumerate(heights)])
    return [
        [marks.get((x, y)) or (chr(_BRAILLE + bits[y][x]) if bits[y][x] else " ", owner[y][x]) for x in range(width)]
        for y in range(height)
    ]


def _heights(points: Sequence[tuple[float, float]], right: float, top: float, width: int,
             height: int) -> list[tuple[int, int]]:
    """For each dot column up to the last point the lowest and the highest dot of the line."""
    if not points or right <= 0 or top <= 0:
        return []
    out, at, level = [], 0, 0
    for x in range(min(width, int(points[-1][0] / right * width) + 1)):
        low = level
        while at < len(points) and points[at][0] <= (x + 1) / width * right:
            level = max(0, min(height - 1, round(points[at][1] / top * (height - 1))))
            at += 1
        out.append((low, level))
    return out


def _place(marks: dict[tuple[int, int], Cell], mark: str, number: int, cells: list[tuple[int, int]]) -> None:
    """Put a line's mark at its end and, where there is room, on its way."""
    if not cells:
        return
    x, y = cells[-1]
    while (x, y) in marks and x:  # another line ends in the same cell
        x -= 1
    marks[x, y] = mark, number
    way = cells[len(cells) // 3 + 2 * number :: max(24, len(cells) // 2)]
    for spot in way[:1] if len(cells) > 16 else ():
        marks.setdefault(spot, (mark, number))
