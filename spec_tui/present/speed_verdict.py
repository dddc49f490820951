"""How fast a run or a lane is beside autoregressive decoding: one judgement and its words for every screen and command.

``of_runs`` judges a run against a baseline run, ``of_versions`` against a run of whatever engine and settings,
``of_interval`` a lane of a race against the lane it is compared with. Each gives a ``SpeedVerdict``, whose ``words``
("1.42x faster (±0.05)"), ``mark`` and ``style`` say it. A lane or a run is faster or slower only where the whole
interval that is printed, of 95%, lies on one side of 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, stdev

from engines.methods import drafts_nothing
from engines.race.interval import ENOUGH, LEAST_NOISE, MedianInterval, student
from engines.report.run_state import RunState
from spec_tui.present.token_styles import FAILED, UNKNOWN

VAGUE = 0.1  # a ratio known to plus or minus more than this does not tell a gain from no difference
_BLOCKS, _FEWEST = 8, 4  # parts of a run whose times are compared


class Speed(StrEnum):
    """What can be said of a speed."""

    FASTER = "faster"
    SAME = "no difference"
    SLOWER = "slower"
    BASELINE = "the baseline"
    UNMEASURED = "not measured"
    IMPOSSIBLE = "wrong baseline"


_LOOKS = {
    Speed.FASTER: ("✓", "good"), Speed.SAME: ("≈", "warn"), Speed.SLOWER: ("✗", "bad"),
    Speed.BASELINE: (UNKNOWN, "muted"), Speed.UNMEASURED: (UNKNOWN, "muted"), Speed.IMPOSSIBLE: (FAILED, "warn"),
}


@dataclass(frozen=True, slots=True)
class SpeedVerdict:
    """A judgement.

    Attributes:
        speed: the judgement itself; the last three of ``Speed`` are none.
        ratio: times as fast as the baseline; None where it is not known, or not to be trusted.
        low, high: the ratio is known to lie between them, with 95%; None where that cannot be told.
        few: the repeats that it was measured in, where they are fewer than a narrow interval needs; else None.
        reason: why there is no judgement; "" where there is one.
    """

    speed: Speed
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    few: int | None = None
    reason: str = ""

    @property
    def noise(self) -> float | None:
        """The ratio is known to plus or minus this, the larger half of its interval; None where that cannot be told."""
        return None if self.low is None or self.high is None else max(self.high - self.ratio, self.ratio - self.low)

    @property
    def vague(self) -> bool:
        """Whether it was measured, and the noise covers a gain or a loss as well as no difference."""
        return self.speed is Speed.SAME and self.noise > VAGUE

    @property
    def words(self) -> str:
        """The judgement in a few words: "1.42x faster (±0.05)", "no difference (0.98x ±0.04)",
        "too noisy to tell (1.56x ±0.68)", "2 repeats are too few to tell (1.56x, 0.70..3.48)"."""
        if self.speed is Speed.FASTER:
            return f"{self.ratio:.2f}x faster ({self._known})"
        if self.speed in (Speed.SAME, Speed.SLOWER):
            few = "too noisy to tell" if self.few is None else f"{self.few} repeats are too few to tell"
            comma = "" if self._known.startswith("±") else ","
            return f"{few if self.vague else self.speed} ({self.ratio:.2f}x{comma} {self._known})"
        if self.speed is Speed.UNMEASURED:
            return "speed-up not measured" if self.ratio is None else f"{self.ratio:.2f}x, noise unknown"
        return self.speed

    @property
    def _known(self) -> str:
        """The interval: as ± where it reaches as far up as down, else from where to where."""
        up, down = f"{self.high - self.ratio:.2f}", f"{self.ratio - self.low:.2f}"
        return f"±{up}" if up == down else f"{self.low:.2f}..{self.high:.2f}"

    @property
    def brief(self) -> str:
        """The judgement for a table's cell: "1.42x", "≈ 0.98x", "1.56x?" where it is vague or its noise is not known,
        or a dash."""
        if self.ratio is None:
            return "-"
        uncertain = self.vague or self.speed is Speed.UNMEASURED
        return f"{self.ratio:.2f}x?" if uncertain else f"{'≈ ' * (self.speed is Speed.SAME)}{self.ratio:.2f}x"

    @property
    def mark(self) -> str:
        """A glyph of one column."""
        return UNKNOWN if self.vague else _LOOKS[self.speed][0]

    @property
    def style(self) -> str:
        """The name of a style."""
        return _LOOKS[self.speed][1]


def judged(ratio: float | None, noise: float | None, tokens_per_step: float | None = None) -> SpeedVerdict:
    """The judgement on a measured ratio.

    Args:
        noise: plus or minus what the ratio is known to, with 95%; None where there were too few samples to tell.
        tokens_per_step: M. A verification step takes at least as long as the forward pass of one token, so no run is M
            times as fast: a larger ratio means that the baseline was measured under other conditions.
    """
    if ratio is None:
        return SpeedVerdict(Speed.UNMEASURED, reason="no baseline of this prompt and these settings")
    if noise is None:
        return SpeedVerdict(Speed.UNMEASURED, ratio, reason="too few samples to tell it from noise")
    return _between(ratio, ratio - noise, ratio + noise, tokens_per_step)


def _between(ratio: float, low: float, high: float, tokens_per_step: float | None, few: int | None = None,
             ) -> SpeedVerdict:
    """The judgement on a ratio that is known to lie between ``low`` and ``high``."""
    if tokens_per_step is not None and low > tokens_per_step:
        return SpeedVerdict(Speed.IMPOSSIBLE, reason=f"{ratio:.2f}x measured, but a step gives only "
                                                     f"{tokens_per_step:.2f} tokens")
    speed = Speed.FASTER if low > 1 else Speed.SLOWER if high < 1 else Speed.SAME
    return SpeedVerdict(speed, ratio, low, high, few)


def of_runs(run: RunState, baseline: RunState | None) -> SpeedVerdict:
    """The judgement on a run. ``baseline``: an autoregressive run of the same prompt and settings, measured in this
    session; None without one."""
    if run.started is not None and drafts_nothing(run.started.engine):
        return SpeedVerdict(Speed.BASELINE, reason="autoregressive decoding is the baseline")
    return UNMEASURED if baseline is None else of_versions(run, baseline, run.metrics.mean_generated_length)


def of_versions(run: RunState, other: RunState, tokens_per_step: float | None = None) -> SpeedVerdict:
    """The judgement on a run beside another one, of whatever engine and settings. ``tokens_per_step``: as of
    ``judged``, where the other one drafts nothing."""
    rate, beside = run.metrics.tokens_per_second, other.metrics.tokens_per_second
    if not rate or not beside:
        return UNMEASURED
    known = [_noise(run), _noise(other)]
    noise = None if None in known else rate / beside * max(LEAST_NOISE, sum(each * each for each in known) ** 0.5)
    return judged(rate / beside, noise, tokens_per_step)


def seconds_alone(run: RunState, baseline: RunState | None) -> float | None:
    """Seconds of the baseline's rounds, which draft nothing: what a forecast compares the rounds of this run with, so
    that it agrees with ``of_runs``. None without a baseline that can be right."""
    if baseline is None or of_runs(run, baseline).ratio is None:
        return None
    return 1 / baseline.metrics.tokens_per_second


def of_interval(speed_up: MedianInterval | None, tokens_per_step: float | None = None) -> SpeedVerdict:
    """The judgement on a lane of a race, from the interval of its speed-up over the baseline's lane."""
    if speed_up is None:
        return judged(None, None)
    if speed_up.low is None or speed_up.high is None:
        return judged(speed_up.median, None)
    few = speed_up.samples if speed_up.samples < ENOUGH else None
    return _between(speed_up.median, speed_up.low, speed_up.high, tokens_per_step, few)


def _noise(run: RunState) -> float | None:
    """A run's speed is known to plus or minus this share of it, with 95%, from how the times of its passes scatter
    around t(n) (or their mean) from one part of the run to the next; None where it is too short for parts."""
    price, rounds = run.metrics.price, run.rounds
    if len(rounds) < _FEWEST:
        return None
    shares = [r.verify_seconds / (price.at(1 + len(r.draft.tokens)) if price else 1.0)
              for r in rounds if r.verify_seconds is not None]
    size = -(-len(shares) // _BLOCKS)
    blocks = [fmean(shares[at : at + size]) for at in range(0, len(shares), size)]
    if len(blocks) < 2 or not any(blocks):
        return None
    return student(len(blocks) - 1) * stdev(blocks) / len(blocks) ** 0.5 / fmean(blocks)


UNMEASURED = judged(None, None)
