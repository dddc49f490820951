"""What a round of an engine takes, and where its time goes: measured over the showcase, for ``spec-tui price``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from spec_tui.present.tables import aligned, text_width
from spec_tui.present.text import one_line, wrap

if TYPE_CHECKING:
    from engines.race.lanes import Lane
    from engines.report.metrics import Metrics
    from engines.runtime import Runtime

TOKENS = 64  # of each answer, at most
_NAME = 24  # columns of an engine and its options
_PARTS = (("searching", "search"), ("drafting", "drafts"), ("verifying", "verify"), ("forecast", "t(n)"),
          ("other", "other"))
_NOTE = ("Milliseconds a round, mean over {answers} prompts of {tokens} tokens, each answered with nothing learned "
         "before. search: in datastores. drafts: all else that makes a draft: passes of a draft model or head (their "
         "number a round in brackets), lookups in the text, and the choice of nodes to verify. verify: the target's "
         "pass, measured; t(n): the same, computed from its rows. other: the law, the text, and updates after the "
         "round.")


def lanes_of(texts: Sequence[str]) -> list[Lane]:
    """The engines to profile, decoding without drafts first. Raises UsageProblem."""
    from engines.methods import baseline
    from engines.race.lanes import parse_lanes

    plain = baseline().id
    return [*parse_lanes([plain]), *(lane for lane in parse_lanes(texts) if lane.engine != plain)]


def profile(
    runtime: Runtime, lanes: Sequence[Lane], progress: Callable[[int, int], None] = lambda done, total: None
) -> dict[str, Any]:
    """Seconds a round of each lane, by part; lanes take turns at each prompt of the showcase. Each answers the first
    one before, so that nothing is read from disk for the first time."""
    from engines.report.metrics import together
    from engines.request import Request
    from spec_tui.learn.showcase_prompts import SHOWCASES

    requests = [Request((("user", case.prompt),), max_new_tokens=TOKENS, keeps=False) for case in SHOWCASES]
    found: dict[str, list[Metrics]] = {lane.label: [] for lane in lanes}
    for lane in lanes:
        _measured(runtime, lane.of(requests[0]))
    for number, request in enumerate(requests):
        progress(number, len(requests))
        for lane in lanes:
            found[lane.label].append(_measured(runtime, lane.of(request)))
    progress(len(requests), len(requests))
    plain = found[lanes[0].label]
    return {"answers": len(requests), "tokens": TOKENS, "engines": [
        {"engine": label, **_parts(together(runs), sum(run.priced_seconds for run in runs), together(plain))}
        for label, runs in found.items()]}


def _measured(runtime: Runtime, request: Any) -> Metrics:
    from engines.report.metrics import measure

    runtime.forget()
    runtime.forget_acceptance()
    return measure(list(runtime.run(request)))


def _parts(of: Metrics, priced: float, plain: Metrics) -> dict[str, float]:
    """Means over the rounds."""
    rounds, speeds = of.target_forwards, [m.tokens_per_second for m in (of, plain)]
    each = {"searching": of.lookup_seconds, "drafting": of.draft_seconds - of.lookup_seconds,
            "verifying": of.verify_seconds, "forecast": priced, "other": of.other_seconds}
    return {"rounds": rounds, "tokens_a_round": of.mean_generated_length, "passes": of.draft_forwards / rounds,
            **{name: seconds / rounds for name, seconds in each.items()}, "gain": speeds[0] / speeds[1]}


def lines(facts: dict[str, Any]) -> list[str]:
    """The same for people."""
    rows = [["engine", "M", "round", *(name for _, name in _PARTS), "gain"]]
    for of in facts["engines"]:
        whole = sum(of[name] for name, _ in _PARTS if name != "forecast")
        passes = f" ({of['passes']:.1f})" if of["passes"] else ""
        times = (whole, *(of[name] for name, _ in _PARTS))
        rows.append([one_line(of["engine"], _NAME - len(passes)) + passes, f"{of['tokens_a_round']:.2f}",
                     *(f"{seconds * 1e3:.2f}" for seconds in times), f"{of['gain']:.2f}x"])
    return [*aligned(rows), "", *wrap(_NOTE.format(**facts), text_width())]
