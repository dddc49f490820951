"""A measured figure, and orders that favour nobody."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass
class Row:
    """What, its samples, its unit, and the bound it should keep ("" for none)."""

    name: str
    samples: list[float]
    unit: str
    bound: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def kept(self) -> bool | None:
        if not self.bound:
            return None
        sense, limit = self.bound.split()
        if sense == "in":
            low, high = map(float, limit.split(".."))
            return low <= self.median <= high
        return self.median >= float(limit) if sense == ">=" else self.median <= float(limit)

    def line(self) -> str:
        mark = {None: "", True: "ok", False: "MISSED"}[self.kept]
        spread = f"{min(self.samples):.3g}..{max(self.samples):.3g}"
        return f"{self.name:<62}{self.median:>9.3g} {self.unit:<9}{spread:<17}{self.bound:<13}{mark}"


def table(rows: Iterable[Row]) -> str:
    """Rows as Markdown."""
    lines = ["| | median | spread | bound |", "|---|---|---|---|"]
    for row in rows:
        missed = " **missed**" if row.kept is False else ""
        spread = f"{min(row.samples):.3g}..{max(row.samples):.3g}"
        lines.append(f"| {row.name} | {row.median:.3g} {row.unit} | {spread} | {row.bound}{missed} |")
    return "\n".join(lines)


def shuffled(names: Iterable[str], repeat: int) -> list[str]:
    """These names in the order that favours none."""
    from engines.race.lanes import order

    names = list(names)
    return [names[i] for i in order(len(names), repeat)]
