"""Why an answer was faster or slower than without drafts: three sentences of its own numbers, and what to try first."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from engines import methods
from engines.advice.findings import RoundCosts
from engines.cost.curve import BreakEven
from engines.report.run_state import RunState
from engines.report.wording import counted
from spec_tui.present.price_text import conclusion, outlook, percent
from spec_tui.present.speed_verdict import of_runs, seconds_alone
from spec_tui.present.tables import milliseconds

_CLOSE = 0.05  # of the speed: what t(n) says of a single run is no surer
_ADVISE = "spec-tui advise compares engines on prompts like yours"
_RARELY = 0.5  # of the rounds, or of the drafted tokens
_ms = partial(milliseconds, digits=1)


def explanation(run: RunState, baseline: RunState | None = None) -> list[str]:
    """What a round took, what it made for that, and what to try first; less where less was measured. Where there is a
    ``baseline`` of the same prompt and settings, the run is compared with that, else with what t(n) says."""
    costs, even = RoundCosts.of(run.metrics), run.metrics.break_even
    if run.started is not None and run.rounds and run.metrics.draft_seconds is None:
        return ["Separate times of drafting and verification are not disclosed: at most, a server reports the total "
                "time of a round."]
    if run.started is None or costs is None:
        return ["There is nothing to explain: no round was timed."]
    if not run.metrics.drafted:
        other = "an engine that drafts" if methods.drafts_nothing(run.started.engine) else "another engine"
        return [_alone(run, costs), f"First to try: {other}; {_ADVISE}."]
    measured = of_runs(run, baseline)
    if (alone := seconds_alone(run, baseline)) is not None:
        even, known = BreakEven(costs.seconds / alone, costs.tokens), f"{measured.words}, against the baseline."
    elif even is not None:
        known = f"about {even.speed_up:.2f}x, computed, not measured against a baseline."
    else:
        return [_times(run, costs, None), "The time of a round without drafts is not known for this model."]
    tried = next(_ideas(run, costs, even))
    times = _times(run, costs, costs.seconds / even.needs, "in the baseline" if alone is not None else "by t(n)")
    return [times, _outcome(run, even, known, measured.vague), f"First to try: {tried}."]


def _alone(run: RunState, costs: RoundCosts) -> str:
    why = ("because this engine never drafts" if methods.drafts_nothing(run.started.engine) else
           "because it found no draft")
    return (f"Nothing was drafted, {why}: each of {counted(run.metrics.target_forwards, 'round')} made one token in "
            f"{_ms(costs.seconds)}, {_ms(costs.verify)} of them in the model.")


def _times(run: RunState, costs: RoundCosts, alone: float | None, source: str = "") -> str:
    """``alone``: seconds of a round without drafts, and what says so."""
    m = run.metrics
    rows = 1 + m.drafted / m.target_forwards
    beside = "" if alone is None else f"; {source} a round without drafts takes {_ms(alone)}"
    return (f"A round took {_ms(costs.seconds)}: {_ms(costs.verify)} to verify {rows:.1f} tokens, "
            f"{_ms(costs.draft)} to draft and {_ms(costs.other)} for all else{beside}.")


def _outcome(run: RunState, even: BreakEven, known: str, vague: bool) -> str:
    m = run.metrics
    accepted, drafted = m.accepted / m.target_forwards, m.drafted / m.target_forwards
    if vague:
        said = ""
    elif abs(even.speed_up - 1) <= _CLOSE:
        said = ", so drafting changed little"
    else:
        said = f", so drafting made it {'faster' if even.speed_up > 1 else 'slower'}"
    return (f"It made {even.makes:.2f} tokens: {accepted:.2f} of {drafted:.1f} drafted tokens were accepted; the "
            f"break-even is {even.needs:.2f}{said}: {known}")


def _ideas(run: RunState, costs: RoundCosts, even: BreakEven) -> Iterator[str]:
    """What could help, the likeliest first; at least one."""
    m, started = run.metrics, run.started
    fewer = sum(event.threads is not None for event in run.rounds)
    if 2 * fewer > len(run.rounds):
        yield "a quieter machine: other programs kept it so busy that most rounds ran on fewer threads"
    found = outlook(started, started.engine, started.options, run)
    slower = even.speed_up < 1 - _CLOSE
    if slower and found is not None and found.forecast.pays_from is None:
        yield f"no drafts, or an engine with cheaper ones. {conclusion(found).removesuffix('.')}"
    if started.options.get("budget") == "paper":
        yield ("budget=auto, which verifies only what pays" +
               (f". {conclusion(found).removesuffix('.')}" if found is not None else ""))
    drafting = m.drafting_rounds / m.target_forwards
    if drafting < _RARELY:
        yield f"another engine: this one drafted in only {percent(drafting)} of the rounds; {_ADVISE}"
    if slower and found is not None and "budget" not in started.options:
        yield f"drafts of another size. {conclusion(found).removesuffix('.')}"
    rate, alone = m.acceptance_rate, costs.seconds / even.needs
    missed = rate is not None and rate < _RARELY and costs.free_drafts() * alone <= 1 + _CLOSE  # cheaper is not enough
    if slower and not missed and costs.draft > max(0.0, costs.verify - alone):
        yield (f"an engine whose drafts cost less: drafting takes {percent(costs.draft / costs.seconds)} of a round; "
               f"{_ADVISE}")
    if slower and rate is not None:
        yield f"another engine: only {percent(rate)} of the drafted tokens were accepted; {_ADVISE}"
    yield f"nothing clear from this run; {_ADVISE}"
