"""Do lanes write the same text? Every pair is compared token by token; where two differ, an audit says why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations_with_replacement

from engines.errors import SpecError
from engines.folders import same_model
from engines.laws import spec_of
from engines.race.race_events import Compared, LaneEvents, RaceEvent
from engines.report.answer import Answer
from engines.report.events import Audited, Auditing, RunEvent
from engines.report.run_state import first_differing

Key = tuple[int, int, int]
"""(lane, repeat, prompt)"""
Audit = Callable[[Answer], Audited | None]
"""Checks an answer; None where it was cancelled. Raises SpecError."""


def compare(answers: Mapping[Key, Answer], audit: Audit, audit_all: bool) -> Iterator[RunEvent | RaceEvent]:
    """``Audited`` for the answers that differ (or for all), then ``Compared`` for each pair of lanes that ran on a
    prompt. Equal answers are audited once; where an audit fails, the pair stays unchecked."""
    pairs = list(_pairs(answers))
    doubtful = {key for pair in pairs if pair.verdict == "unchecked" for key in _keys(pair)}
    wanted = sorted(answers) if audit_all else sorted(doubtful)
    total = len({_comparable(answers[key]) for key in wanted})
    done: dict[Answer, Audited | None] = {}
    found: dict[Key, Audited | None] = {}
    for key in wanted:
        answer = _comparable(answers[key])
        if answer not in done:
            yield Auditing(len(done) / total, len(done) + 1, total)
            try:
                done[answer] = audit(answers[key])
            except SpecError:
                done[answer] = None
        found[key] = done[answer]
        if found[key] is not None:
            yield LaneEvents(*key)
            yield found[key]
    for pair in pairs:
        yield _judged(pair, found)


def judged(answers: Mapping[Key, Answer], found: Mapping[Key, Audited | None]) -> list[Compared]:
    """``Compared`` for each pair of lanes, by audits that are there already; nothing is audited."""
    return [_judged(pair, found) for pair in _pairs(answers)]


def _pairs(answers: Mapping[Key, Answer]) -> Iterator[Compared]:
    """Every pair of lanes on every prompt, with what can be said without audits."""
    ran: dict[int, dict[int, list[int]]] = {}  # by prompt and lane the repeats
    for lane, repeat, prompt in sorted(answers):
        ran.setdefault(prompt, {}).setdefault(lane, []).append(repeat)
    for prompt, lanes in sorted(ran.items()):
        for first, second in combinations_with_replacement(lanes, 2):
            differing, by_design, others = [], False, False
            for r in lanes[second]:
                other = r if first != second and r in lanes[first] else lanes[first][0]
                pair = answers[first, other, prompt], answers[second, r, prompt]
                at = first_differing(pair[0].tokens, pair[1].tokens)
                differing += [(at, other, r)] if at is not None else []
                by_design = by_design or any(_may_differ(answer) for answer in pair)
                others = others or _of_other_weights(*pair)
            if differing:
                verdict = "other weights" if others else "by design" if by_design else "unchecked"
                yield Compared(first, second, prompt, verdict, *min(differing))
            elif first != second:
                yield Compared(first, second, prompt, "same")


def _may_differ(answer: Answer) -> bool:
    """Whether law or engine let its text depend on the draft: random draws, or what is not lossless."""
    return answer.lossless is False or spec_of(answer.law, answer.temperature).text_depends_on_draft


def _of_other_weights(first: Answer, second: Answer) -> bool:
    """Whether both were computed in this program, by weights or in a dtype that the other's were not."""
    known = first.lossless is not None and second.lossless is not None
    return known and not (same_model(first.model, second.model) and first.dtype == second.dtype)


def _keys(pair: Compared) -> tuple[Key, Key]:
    return (pair.first, pair.first_repeat, pair.prompt), (pair.second, pair.second_repeat, pair.prompt)


def _comparable(answer: Answer) -> Answer:
    """The answer without what its audit does not read: recorded probabilities matter where random draws decide."""
    return answer if _may_differ(answer) else replace(answer, probs=())


def _judged(pair: Compared, found: Mapping[Key, Audited | None]) -> Compared:
    """The pair with its verdict, by the audits of the two answers in which it differs."""
    audits = {key: found.get(key) for key in _keys(pair)}
    bugs = tuple(dict.fromkeys(key[0] for key, audit in audits.items() if audit and audit.verdict == "BUG"))
    pair = replace(pair, bugs=bugs)
    if pair.verdict != "unchecked":
        return pair
    if bugs:
        return replace(pair, verdict="BUG")
    if any(audit and audit.verdict == "differs" for audit in audits.values()):
        gaps = [audit.gaps[pair.at] for audit in audits.values() if audit and pair.at < len(audit.gaps)]
        return replace(pair, verdict="differs", gap=max(gaps, default=None))
    return replace(pair, verdict="tie") if all(audits.values()) else pair
