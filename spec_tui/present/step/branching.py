"""Two versions of one text: the run as it went on from a round, and as it goes on with something changed."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from itertools import accumulate

from engines.laws import LAWS
from engines.methods import find
from engines.methods.origins import HISTORY
from engines.report.events import SAMPLING_FIELDS
from engines.report.metrics import measure
from engines.report.run_state import Log, RunState, first_difference
from engines.report.wording import counted
from engines.request import Request
from spec_tui.present.text import LOSSY, one_line


def version_from(run: RunState, number: int) -> RunState:
    """What came after the root of a round (1 is the first): the run without what was before, and with its own metrics.
    The root is not among the tokens."""
    rounds = run.rounds[number - 1 :]
    start = run.starts[number - 1] if number <= len(run.starts) else len(run.tokens)
    return RunState(
        started=run.started, rounds=Log(rounds), tokens=Log(run.tokens[start:]), metrics=measure(rounds),
        finished=run.finished, failed=run.failed,
    )


def as_far_as_both_go(a: RunState, b: RunState) -> tuple[RunState, RunState]:
    """Two versions, the longer one without the rounds that go beyond the tokens of the shorter one: later text may be
    easier or harder to draft, so the speed of the whole runs compares their texts rather than what was changed."""
    length = min(len(a.tokens), len(b.tokens))
    return _first_tokens(a, length), _first_tokens(b, length)


def _first_tokens(version: RunState, length: int) -> RunState:
    """The rounds of a version that are within its first so many tokens, with their own metrics."""
    ends = [0, *accumulate(len(event.emitted) for event in version.rounds)]
    count = bisect_right(ends, length) - 1
    rounds = version.rounds[:count]
    return replace(version, rounds=Log(rounds), tokens=Log(version.tokens[: ends[count]]), metrics=measure(rounds))


def going_on(asked: Request, run: RunState, number: int, changed: Request) -> Request:
    """``changed``, from the root of a round on: the tokens up to it are given, the length stays that of the whole.

    ``asked`` is the request of the run; ``changed`` may have another engine, options, law and sampling.
    """
    given = tuple(token.emitted.token for token in run.tokens[: run.starts[number - 1]])
    begun = (*asked.continued[:-1], *given)
    return replace(
        changed, conversation=asked.conversation, raw=asked.raw, continued=begun,
        max_new_tokens=max(1, changed.max_new_tokens - len(given) + 1),
    )


def same_text(asked: Request, changed: Request, a: RunState, b: RunState) -> tuple[str, bool | None]:
    """What the two texts say about each other, in a sentence; True: alike as they must be, False: a BUG or a tie, None:
    nothing to expect."""
    at = first_difference(a, b, ends=False)
    where = "" if at is None else f" They differ from token {at + 1} on."
    lossy = [one for one in (asked, changed) if one.text_depends_on_draft and not LAWS[one.law].lossless
             and not (one.engine and find(one.engine).baseline)]
    if lossy:
        return f"The law {lossy[0].law} is {LOSSY}: the texts need not be alike.{where}", None
    if any(find(request.engine).lossless is False for request in (asked, changed) if request.engine):
        return f"One of the engines is {LOSSY}: the texts need not be alike.{where}", None
    if _sampling(asked) != _sampling(changed):
        return f"Sampling was changed: the texts need not be alike.{where}", None
    if asked.text_depends_on_draft:
        return f"Random draws decide: the law keeps the distribution, not the text.{where}", None
    if at is not None:
        return f"The texts differ from token {at + 1} on: a tie within rounding or a BUG. An audit tells which.", False
    short = counted(min(len(a.tokens), len(b.tokens)), "token")
    if a.running or b.running or len(a.tokens) != len(b.tokens):
        return f"The same text to the end of the shorter, {short}: drafts never change the text.", True
    return f"The same text, all {short}: drafts change the speed, never the text.", True


def uses_past_answers(run: RunState) -> bool:
    """Whether a draft of the run came from past answers, which branches and other measurements leave out."""
    return any(origin.source == HISTORY.name for event in run.rounds for origin in event.draft.origins)


def _sampling(request: Request) -> tuple:
    drawn = request.temperature > 0
    filters = (request.top_p, request.top_k, request.min_p, request.seed, request.law) if drawn else ()
    return (request.temperature, request.repetition_penalty, request.no_repeat_ngram_size, *filters)


def differences(asked: Request, changed: Request) -> list[str]:
    """What was changed, in words."""
    words = []
    if asked.engine != changed.engine:
        words.append(f"engine {changed.engine}")
    defaults = find(changed.engine).defaults(changed.options)
    before = asked.options if asked.engine == changed.engine else defaults
    for name, value in changed.options.items():
        if str(value) != str(before.get(name, defaults.get(name))):
            words.append(f"{name} {one_line(str(value), 24)}")
    for name in ("law", *SAMPLING_FIELDS, "seed", "datastores"):
        if getattr(asked, name) != getattr(changed, name):
            value = getattr(changed, name)
            words.append(f"{name} {one_line(', '.join(value) if isinstance(value, tuple) else str(value), 40)}")
    return words
