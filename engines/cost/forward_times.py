"""What forwards really take over what t(n) foresees, learned from the rounds."""

from __future__ import annotations

_MEMORY = 0.95  # of what earlier rounds say, a round
_ALIKE = 0.5  # rounds that the belief is worth that both parts deviate by the same factor
_AS_FORESEEN = 0.25  # the same of the belief that they do not deviate
_LEAST, _SLOWEST = 0.2, 8.0  # factors: more is an accident
_SMOOTH = 0.2  # weight of the last round's time


class ForwardTimes:
    """Two factors, of the time of one row and of what further rows take beyond it, by least squares over the relative
    errors of the rounds. t(n) is measured at a few sizes in a fraction of a second, and a busy moment bends it.

    Attributes:
        one, more: the factors.
    """

    def __init__(self) -> None:
        self.one = self.more = 1.0
        self._sums = [0.0] * 5  # of one * one, one * more, more * more, one * ratio, more * ratio

    def seconds(self, one: float, foreseen: float) -> float:
        """Time of a forward that t(n) says takes ``foreseen`` seconds, and of one row ``one``."""
        return self.one * one + self.more * (foreseen - one)

    def learn(self, one: float, foreseen: float, took: float) -> None:
        """Such a forward took so many seconds; none: that is not known."""
        if took <= 0:
            return
        a, b, ratio = one / foreseen, 1 - one / foreseen, min(took / foreseen, _SLOWEST)
        self._sums = [_MEMORY * old + new for old, new in zip(
            self._sums, (a * a, a * b, b * b, a * ratio, b * ratio))]
        aa, ab, bb, ar, br = self._sums
        aa, bb, ab = aa + _ALIKE + _AS_FORESEEN, bb + _ALIKE + _AS_FORESEEN, ab - _ALIKE
        ar, br = ar + _AS_FORESEEN, br + _AS_FORESEEN
        size = aa * bb - ab * ab
        self.one, self.more = max((bb * ar - ab * br) / size, _LEAST), max((aa * br - ab * ar) / size, _LEAST)


def blend(scale: float, took: float, foreseen: float) -> float:
    """The ratio of times taken to times foreseen, one round more."""
    return scale + _SMOOTH * (min(took / foreseen, _SLOWEST) - scale) if foreseen > 0 and took > 0 else scale
