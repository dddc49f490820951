"""How long forward passes and drafts take, beside what t(n) says: learned from the rounds."""

from __future__ import annotations

_MEMORY = 0.95  # weight of earlier rounds after each further one
_ALIKE = 0.5  # weight, in rounds, of the prior that both factors are equal
_AS_FORESEEN = 0.25  # weight, in rounds, of the prior that both are 1
_LEAST, _SLOWEST = 0.2, 8.0  # the smallest factor; the largest ratio that is not taken for an accident
_DRAFTS = 0.8  # weight of earlier drafts after each further one


class ForwardTimes:
    """Two factors that correct t(n): one for the time of a single row, one for the time that further rows add. They are
    fitted to the rounds by least squares of relative errors. t(n) is measured at a few sizes in a fraction of a second,
    so a busy moment distorts it. ``one``, ``more``: the factors."""

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
        self._sums = [_MEMORY * old + new for old, new in zip(self._sums, (a * a, a * b, b * b, a * ratio, b * ratio))]
        aa, ab, bb, ar, br = self._sums
        aa, bb, ab = aa + _ALIKE + _AS_FORESEEN, bb + _ALIKE + _AS_FORESEEN, ab - _ALIKE
        ar, br = ar + _AS_FORESEEN, br + _AS_FORESEEN
        size = aa * bb - ab * ab
        self.one, self.more = max((bb * ar - ab * br) / size, _LEAST), max((aa * br - ab * ar) / size, _LEAST)


class DraftingTime:
    """What drafting takes, beside what the price of its passes says: a factor for each pass (a price of a busy moment
    corrects itself), and seconds for a draft of any length (reading what others drafted, what is between the passes).
    They are fitted to the drafts by least squares of relative errors, the latest counting most. ``factor``, ``more``: 1
    and 0 before anything is seen."""

    def __init__(self) -> None:
        self.factor, self.more = 1.0, 0.0
        self._sums = [0.0] * 5  # of 1, u, u * u, ratio, u * ratio, where u is one over the seconds foreseen

    def seconds(self, foreseen: float) -> float:
        """Seconds that a draft is expected to take, where the price says ``foreseen``."""
        return self.factor * foreseen + self.more

    def learn(self, took: float, foreseen: float) -> None:
        """Drafting that was foreseen to take so many seconds took others; 0 where either is not known."""
        if foreseen <= 0 or took <= 0:
            return
        u, ratio = 1 / foreseen, min(took / foreseen, _SLOWEST)
        self._sums = [_DRAFTS * old + new for old, new in zip(self._sums, (1, u, u * u, ratio, u * ratio))]
        count, us, squares, ratios, products = self._sums
        prior = _AS_FORESEEN * squares / count
        count, squares, ratios = count + _AS_FORESEEN, squares + prior, ratios + _AS_FORESEEN
        size = count * squares - us * us
        self.factor, self.more = (ratios * squares - us * products) / size, (count * products - us * ratios) / size
        if self.more < 0:
            self.factor, self.more = ratios / count, 0.0
        self.factor = max(self.factor, _LEAST)
