"""Lesson texts with places for facts: ``{run.tokens}``, ``{round.verify:ms}``, ``{round.drafted|token}``.

Before the dot stands whose fact it is: the run of the page, its round, or another run of the lesson by name. Behind a
colon stands a format, ``ms`` for milliseconds; behind a bar the word that is counted. A paragraph that begins with
``[when run.m < 2]`` is there only where that holds.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping

from engines.report.wording import counted, ms
from spec_tui.learn.lesson_facts import Fact, Missing

Facts = Mapping[str, Fact]
"""Facts by their whole name: ``run.tokens``."""

PLACE = re.compile(r"\{([a-z0-9_.-]+)(?::([^}|]+))?(?:\|([a-z ]+))?\}")
_WHEN = re.compile(r"\[when ([^\]]+)\]\s*")
_TESTS = {"<": operator.lt, "<=": operator.le, "==": operator.eq, ">=": operator.ge, ">": operator.gt}


def fill(text: str, facts: Facts) -> str:
    """The text with its facts. Raises Missing."""

    def put(match: re.Match) -> str:
        value, spec, word = _value(match[1], facts), match[2], match[3]
        if word:
            return counted(value, word)
        return ms(value) if spec == "ms" else format(value, spec or "")

    return PLACE.sub(put, text)


def paragraphs(text: str, facts: Facts) -> tuple[str, ...]:
    """The paragraphs that hold of this run, filled. Raises Missing."""
    out = []
    for part in re.split(r"\n\s*\n", text.strip()):
        part = " ".join(part.split())
        if (when := _WHEN.match(part)) is not None:
            if not holds(when[1], facts):
                continue
            part = part[when.end() :]
        out.append(fill(part, facts))
    return tuple(out)


def holds(condition: str, facts: Facts) -> bool:
    """Whether conditions hold: ``a < b``, several joined by ``and``; a and b are facts or numbers, b may be ``0.9 *`` a
    fact. Raises Missing."""
    return all(_holds(part.split(), facts) for part in condition.split(" and "))


def _holds(words: list[str], facts: Facts) -> bool:
    left, test, *right = words
    value = _value(right[-1], facts) * (float(right[0]) if right[1:2] == ["*"] else 1)
    return _TESTS[test](_value(left, facts), value)


def _value(name: str, facts: Facts) -> Fact:
    if name in facts:
        return facts[name]
    try:
        return float(name)
    except ValueError:
        raise Missing(f"this run has no {name}") from None
