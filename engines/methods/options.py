"""Options of engines: declared once, read by the command line, the screens and the documentation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engines.errors import UsageProblem

_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a word"}
_BOUNDLESS = 1 << 53  # a higher upper bound is not shown
_WORDS = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}


@dataclass(frozen=True, slots=True)
class Option:
    """One option of an engine.

    Attributes:
        name: as written after ``--set`` and in the paper.
        default: its type is the option's type (int, float, bool or str).
        help: what it means, one sentence.
        low, high: inclusive range of numbers, None where open.
        choices: the allowed words of a str option.
        several: words of theirs may be joined by "+", each once and not with the default.
        lossy: those of them that change what the target would write: marked LOSSY where choices are shown.
        paper: the published default, taken with ``budget=paper``; None where it is ``default``, or there is none.
        lane: it is set for a lane of a race only, and offered nowhere else.
    """

    name: str
    default: int | float | bool | str
    help: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    several: bool = False
    lossy: tuple[str, ...] = ()
    paper: int | float | bool | str | None = None
    lane: bool = False

    @property
    def type(self) -> str:
        return type(self.default).__name__

    @property
    def range(self) -> str:
        """The allowed values in words."""
        if self.choices:
            words = " | ".join(f"{word} (LOSSY)" if word in self.lossy else word for word in self.choices)
            return f"{words}, or several of them joined by +" if self.several else words
        if isinstance(self.default, bool):
            return "true | false"
        high = None if self.high is None or self.high > _BOUNDLESS else self.high
        if self.low is None or high is None:
            return "any" if self.low is high else f">= {self.low:g}" if high is None else f"<= {high:g}"
        return f"{self.low:g}..{high:g}"

    def parse(self, value: Any) -> int | float | bool | str:
        """The value in the option's type. Raises UsageProblem: the wrong type or outside the range; the message states
        the range."""
        try:
            parsed = self._convert(value)
        except (TypeError, ValueError, OverflowError):
            raise self._bad(value, f"is not {_KINDS[self.type]}") from None
        if self.choices and not self._chosen(parsed):
            raise self._bad(value, "is not one of its values")
        below = self.low is not None and not parsed >= self.low  # "not >=" also catches nan
        if below or (self.high is not None and not parsed <= self.high):
            hidden = self.high is not None and self.high > _BOUNDLESS and not below  # ``range`` does not state it
            raise self._bad(value, f"is above {self.high}" if hidden else "is out of range")
        return parsed

    def _chosen(self, word: str) -> bool:
        words = word.split("+") if self.several else [word]
        alone = len(words) == 1 or (self.default not in words and len(set(words)) == len(words))
        return alone and set(words) <= set(self.choices)

    def _convert(self, value: Any) -> int | float | bool | str:
        if isinstance(self.default, bool):
            word = str(value).strip().lower()
            if word not in _WORDS:
                raise ValueError
            return _WORDS[word]
        if isinstance(self.default, int):
            if isinstance(value, float) and not value.is_integer():
                raise ValueError
            return int(value)
        return type(self.default)(value)

    def _bad(self, value: Any, why: str) -> UsageProblem:
        default = f"{self.default:g}" if isinstance(self.default, float) else self.default
        return UsageProblem(f"option {self.name}={value} {why}", f"{self.name} takes {self.range} (default {default})")


FRACTION = Option(
    "fraction", 1.0,
    "Share of each datastore's tokens that is searched, counted from its first document.",
    0.0001, 1, lane=True,
)

BUDGET = Option(
    "budget", "auto",
    "How much to verify per round. auto: what gives the most expected tokens per second, by the measured cost of a "
    "pass, t(n), and the acceptance so far, up to the sizes below. paper: the sizes below as published, or as set.",
    choices=("auto", "paper"),
)
