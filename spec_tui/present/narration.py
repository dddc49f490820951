"""A run in plain sentences, one a line: for screen readers, logs, and lectures without a screen.

    round 41: drafted 16, accepted 4, corrected 1, wrote " += 1\\n"
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from engines.folders import model_label
from engines.report.events import Audited, Emitted, Failed, Finished, Prefilled, Round, Started
from engines.report.metrics import Metrics
from engines.report.run_state import RunState
from engines.report.traces import UNKNOWN
from engines.report.wording import counted
from engines.wire import Event
from spec_tui.present.audit_text import sentence
from spec_tui.present.text import LOSSY, lossy, one_line, sanitise

REASONS = {"stop": "ended by the model", "length": "cut at the limit", "cancelled": "interrupted"}
_NAMED_FATES = ("accepted", "corrected", "bonus")


def narration(event: Event, run: RunState) -> Iterator[str]:
    """The lines about an event, none about what does not belong to a run; ``run`` is the run with it."""
    if isinstance(event, Started):
        yield from _start(event)
    elif isinstance(event, Prefilled):
        kept = f", {event.reused} already in the KV cache" if event.reused else ""
        milliseconds = f"{event.seconds * 1000:.0f} ms"
        read = "prompt" if event.prompt_tokens is None else counted(event.prompt_tokens, "token")
        yield f"prefill: {read}{kept}, {milliseconds}, wrote {quoted(event.first)}"
    elif isinstance(event, Round):
        yield round_words(event)
    elif isinstance(event, Finished):
        yield f"end: {why_ended(event)}, {_totals(run.metrics)}"
    elif isinstance(event, Failed):
        yield f"failed: {one_line(event.message)}"
    elif isinstance(event, Audited):
        yield f"audit: {sentence(event, run.metrics.bias)}"


def why_ended(end: Finished) -> str:
    """Why a run ended."""
    return f"ended by the server: {one_line(end.ended_by, 40)}" if end.ended_by else REASONS[end.reason]


def _totals(m: Metrics) -> str:
    speed = f", {m.tokens_per_second:.1f} {m.unit}s/s" if m.tokens_per_second is not None else ""
    rate = f", {m.acceptance_rate:.0%} of {m.drafted} drafted accepted" if m.acceptance_rate is not None else ""
    return f"{counted(m.new_tokens, m.unit)} in {passes(m)}{speed}{rate}"


def passes(m: Metrics) -> str:
    """What a run took after the prefill, or the messages that it came in."""
    if m.messages:
        return f"{counted(m.messages, 'message')} of the server"
    return f"{counted(m.target_forwards, 'forward pass')} of the target"


def round_words(event: Round) -> str:
    """A round in a line."""
    fates = Counter(token.kind for token in event.emitted)
    drafted = len(event.draft.tokens)
    rests = event.budget is not None and event.budget.rests
    what = f"drafted {drafted}" if drafted else "nothing drafted: paused" if rests else "nothing drafted"
    parts = [what if event.known == "all" else "draft not disclosed"]
    parts += [f"{kind} {fates[kind]}" for kind in _NAMED_FATES if fates[kind] or (kind == "accepted" and drafted)]
    if event.bias is not None:
        parts.append(f"{LOSSY}: bias {event.bias:.3f}")
    return f"round {event.index}: {', '.join(parts)}, wrote {quoted(*event.emitted)}"


def asked(started: Started) -> str:
    """How a run was asked for, in a line: engine, its options, sampling where it is known."""
    sampling = ", greedy" if not started.temperature else f", temperature {started.temperature:g}, seed {started.seed}"
    sampling = "" if started == UNKNOWN else sampling
    options = "".join(f", {one_line(str(k))} {one_line(str(v), 40)}" for k, v in started.options.items())
    lossy_mark = f"{lossy(None)} " if started.lossy else ""
    return f"{one_line(started.engine)}{options}; {lossy_mark}law {one_line(started.law)}{sampling}"


def question(started: Started) -> str:
    """The last thing that was asked."""
    return started.conversation[-1][1] if started.conversation else ""


def quoted(*tokens: Emitted) -> str:
    """The text of these tokens in quotes, line breaks as ``\\n``."""
    return json.dumps(sanitise("".join(token.text for token in tokens)), ensure_ascii=False)


def _start(event: Started) -> Iterator[str]:
    yield f"model: {one_line(model_label(event.model))}, {one_line(event.dtype)}, {one_line(event.device)}"
    yield f"engine: {asked(event)}"
    for role, text in event.conversation[:-1]:
        yield f"{one_line(role)}: {json.dumps(sanitise(text), ensure_ascii=False)}"
    if text := question(event):
        yield f"prompt: {json.dumps(sanitise(text), ensure_ascii=False)}"
