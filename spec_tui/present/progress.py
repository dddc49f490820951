"""Progress and what a build takes, in words: for the command line and the screens."""

from __future__ import annotations

from typing import Protocol

from engines.hub.download_progress import in_bytes


class ProgressLike(Protocol):
    """``engines.datastores.building.progress.BuildProgress``, or the event that tells it."""

    stage: str
    done: int
    total: int | None
    unit: str
    rate: float | None
    left: float | None


def line(step: ProgressLike) -> str:
    """A step in words: "tokens: 3.2 MB of 10.0 MB, 1.1 MB/s, 6 s left"."""
    return f"{step.stage}: {done(step)}{pace(step)}"


def short(step: ProgressLike) -> str:
    """The same in few words: "tokens 32 %, 6 s left"."""
    how = f"{step.done / step.total * 100:.0f} %" if step.total else amount(step.done, step.unit)
    return f"{step.stage} {how}" + (f", {in_time(step.left)} left" if step.left else "")


def done(step: ProgressLike) -> str:
    """How much of it: "3.2 MB of 10.0 MB"."""
    if step.total is None:
        return amount(step.done, step.unit)
    if step.unit == "bytes":
        return f"{in_bytes(step.done)} of {in_bytes(step.total)}"
    return f"{step.done:,} of {amount(step.total, step.unit)}"


def pace(step: ProgressLike) -> str:
    """Rate and time left, as far as they are known: ", 1.1 MB/s, 6 s left"."""
    rate = f", {amount(step.rate, step.unit)}/s" if step.rate else ""
    return rate + (f", {in_time(step.left)} left" if step.left else "")


def amount(number: float, unit: str) -> str:
    """So much of a unit."""
    if unit == "bytes":
        return in_bytes(int(number))
    return f"{number:,.1f} {unit}" if number < 10 and number != int(number) else f"{number:,.0f} {unit}"


def in_time(seconds: float) -> str:
    """A time as people say it: "40 s", "12 min", "3.5 h"."""
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def takes(tokens: int | None, size: int | None, building: int | None, seconds: float | None, most: bool) -> list[str]:
    """What a build will take, in parts; see ``engines.datastores.building.build_spec.BuildEstimate``."""
    if tokens is None:
        return ["how much this will be is not known: a limit bounds it"]
    parts = [f"{'at most' if most else 'about'} {tokens:,} tokens", in_bytes(size)]
    if building and building > size:
        parts.append(f"{in_bytes(building)} while it is built")
    return parts + ([in_time(seconds)] if seconds else [])


def left_out(skipped: dict[str, int]) -> str:
    """Files that are not read, by reason; "" without any."""
    return "left out: " + ", ".join(f"{n:,} {why}" for why, n in sorted(skipped.items())) if skipped else ""
