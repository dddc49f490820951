"""How long forward passes and drafts take, beside what t(n) says: learned from the rounds."""

from __future__ import annotations

_MEMORY = 0.95  # weight of earlier rounds after each further one
_ALIKE = 0.5  # weight, in rounds, of the prior that both factors are equal
_AS_FORESEEN = 0.25  # weight, in rounds, of the prior that both are 1
_LEAST, _SLOWEST = 0.2, 8.0  # the smallest factor; the largest ratio that is not taken for an accident
_DRAFTS = 0.8  # weight of earlier drafts after each further one


class ForwardTimes:
    """Two factors that correct t(n): one for the time of a single row, one for the time that further rows add. They
    are fitted to the rounds by least squares of relative errors. t(n) is measured at a few sizes in a fraction of a
    second, so a busy moment distorts it.

    Attributes:
        one, more: the factors.
    """

    def __init__(self) -> None:
        self.one = self.more = 1.0
        self._sums = [0.0] * 5  # of one * one, one * more, more * more, one * ratio, more * ratio

    def seconds(self, one: float, foreseen: float) -> float:
        """Seconds that a forward pass is expected to take, where t(n) says ``foreseen``, and ``one`` for a single
        row."""
        return self.one * one + self.more * (foreseen - one)

    def learn(self, one: float, foreseen: float, took: float) -> None:
        """Such a pass took so many seconds; 0 where that is not known."""
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


class DraftingTime:
    """A factor that corrects what drafting is foreseen to take. A price that was measured in a busy moment is corrected
    by the first drafts.

    Attributes:
        factor: the mean ratio, the latest drafts counting most.
    """

    def __init__(self) -> None:
        self.factor = 1.0
        self._drafts, self._sum = _AS_FORESEEN, _AS_FORESEEN  # that were seen, and of their ratios

    def learn(self, took: float, foreseen: float) -> None:
        """Drafting that was foreseen to take so many seconds took others; 0 where either is not known."""
        if foreseen > 0 and took > 0:
            self._drafts = _DRAFTS * self._drafts + 1
            self._sum = _DRAFTS * self._sum + min(took / foreseen, _SLOWEST)
            self.factor = self._sum / self._drafts
