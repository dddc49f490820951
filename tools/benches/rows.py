"""A measured figure, the time of a call, and orders that favour nobody."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter


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


def microseconds(call: Callable, over: Iterable[tuple]) -> list[float]:
    """What each call takes with these arguments."""
    times = []
    for arguments in over:
        began = perf_counter()
        call(*arguments)
        times.append(1e6 * (perf_counter() - began))
    return times
