"""Progress and the estimate of a build in words, for the command line and the screens."""

from __future__ import annotations

from engines.datastores.datastore_events import BuildEstimate
from engines.hub.download_progress import in_bytes, in_time
from engines.progress import BuildProgress
from engines.report.events import Loading, Preparing
from engines.report.plain_text import one_line
from engines.report.wording import counted


def progress_line(step: BuildProgress) -> str:
    """A step in words: "tokens: 3.2 MB of 10.0 MB, 1.1 MB/s, 6 s left"."""
    return f"{step.stage}: {amount_done(step)}{rate_and_time_left(step)}"


def short_progress(step: BuildProgress) -> str:
    """A step in few words: "tokens 32%, 6 s left"."""
    how = f"{step.done / step.total * 100:.0f}%" if step.total else amount(step.done, step.unit)
    return f"{step.stage} {how}" + (f", {in_time(step.seconds_left)} left" if step.seconds_left else "")


def amount_done(step: BuildProgress) -> str:
    """How much of it is done: "3.2 MB of 10.0 MB"."""
    if step.total is None:
        return amount(step.done, step.unit)
    if step.unit == "bytes":
        return f"{in_bytes(step.done)} of {in_bytes(step.total)}"
    return f"{step.done:,} of {amount(step.total, step.unit)}"


def rate_and_time_left(step: BuildProgress) -> str:
    """The rate and the time left, as far as they are known: ", 1.1 MB/s, 6 s left"."""
    rate = f", {amount(step.rate, step.unit)}/s" if step.rate else ""
    return rate + (f", {in_time(step.seconds_left)} left" if step.seconds_left else "")


def amount(number: float, unit: str) -> str:
    """A number with its unit."""
    if unit == "bytes":
        return in_bytes(int(number))
    if number == 1:
        unit = unit.removesuffix("s")
    return f"{number:,.1f} {unit}" if number < 10 and number != int(number) else f"{number:,.0f} {unit}"


def preparing_words(event: Preparing) -> str:
    """What a run waits for: "reading the prompt: 1,024 of 2,900 tokens, 6 s left"."""
    if isinstance(event, Loading):
        return one_line(event.stage, 64)
    left = f", {in_time(event.seconds_left)} left" if event.seconds_left is not None else ""
    what = "draft model: reading" if event.draft else "reading the prompt:"
    return f"{what} {event.done:,} of {event.total:,} tokens{left}"


def preparing_share(event: Preparing) -> float | None:
    """How much of it is done, 0..1; None where that is unknown."""
    return event.done if isinstance(event, Loading) else event.done / event.total


def time_left(seconds: float) -> str:
    """What is left of a time that was set: ", 3 min left"."""
    return f", {in_time(seconds)} left" if seconds >= 1 else ", almost done"


def race_left(seconds: float, done: int, runs: int, lanes: int) -> str:
    """The time that is left of a race if it goes on as before: ", about 40 s left"; "" before every lane has run once,
    and for a race that is soon over. ``seconds``: since its beginning; ``done`` of its ``runs`` are over, warm-ups
    included."""
    left = seconds / max(1, done) * (runs - done)
    if done < lanes or left < 20:
        return ""
    return f", about {in_time(left)} left"


def estimate_parts(estimate: BuildEstimate, limit: str = "") -> list[str]:
    """What a build will take, part by part. ``limit``: name of the option that limits the tokens; "" without one."""
    if estimate.tokens is None:
        return ["the size is not known" + f"; {limit} bounds it" * bool(limit)]
    bound = "at most" if estimate.upper_bound else "about"
    parts = [f"{bound} {counted(estimate.tokens, 'token')}", in_bytes(estimate.size)]
    if estimate.building and estimate.building > estimate.size:
        parts.append(f"{in_bytes(estimate.building)} while it is built")
    return parts + ([in_time(estimate.seconds)] if estimate.seconds else [])


def left_out(skipped: dict[str, int]) -> str:
    """The files or rows that are left out, by reason; "" without any."""
    return "left out: " + ", ".join(f"{n:,} {why}" for why, n in sorted(skipped.items())) if skipped else ""
