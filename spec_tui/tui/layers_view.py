"""What the layers panel shows: what drafts left out, what those of the next answer would, and whether that paid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from engines.cost.speedup_model import SpeedupModel
from engines.errors import SpecError, UsageProblem
from engines.methods import drafts_itself, find, known, with_rules
from engines.report.events import Layers
from engines.report.metrics import Metrics
from engines.report.run_state import RunState
from spec_tui.present.on_screen import failure
from spec_tui.present.speed_verdict import UNMEASURED, SpeedVerdict, of_runs, seconds_alone
from spec_tui.session.chat_session import REFUSED, ChatSession
from spec_tui.session.settings import ChatSettings

_FINE = 0.99  # thresholds from here on go by small steps
_LONGEST = 12  # drafts of a forecast: those of Draft & Verify


@dataclass(frozen=True, slots=True)
class Payoff:
    """What leaving out layers did in a run.

    Attributes:
        fraction: time of a draft forward over that of a whole one of a single row. Removed layers save what they take;
            the embedding, the head and the choice of the token stay.
        kept, judged: drafted tokens that the target agreed to, of those it judged (what hangs below a mismatch was
            never judged).
        forecast: chains of any length at these costs and this agreement.
    """

    fraction: float
    kept: int
    judged: int
    forecast: SpeedupModel

    @property
    def agreement(self) -> float:
        """kept / judged."""
        return self.kept / self.judged

    @property
    def needed(self) -> float | None:
        """The least agreement a token at which chains of some length break even; None where even 1 is not enough.

        A chain of k drafts yields 1 + a + ... + a^k tokens at agreement a, and takes k draft forwards and one forward
        over k + 1 rows. Where verifying more rows costs no more, k = 1 is the first to be faster, at a = ``fraction``.
        """
        return self.forecast.pays_from


@dataclass(frozen=True, slots=True)
class LayersView:
    """Everything in the panel.

    Attributes:
        engine: id of the engine of the next answer, in a replay of the run shown.
        used: the layers as the answer shown (or else the last measurement) had them; None where nothing was measured.
        planned: the same with the rules of the next answer applied to the same cosines; None where its engine has none.
        payoff: what leaving out layers did in the run shown.
        verdict: on the speed of the run shown.
        asks: whether there can be a next answer: a replay has none.
    """

    engine: str = ""
    used: Layers | None = None
    planned: Layers | None = None
    payoff: Payoff | None = None
    verdict: SpeedVerdict = UNMEASURED
    asks: bool = True

    @property
    def shown(self) -> Layers | None:
        """What the cells show: the plan, else what was used."""
        return self.planned or self.used

    @property
    def changes(self) -> bool:
        """Whether the next answer would leave out other layers than the one shown."""
        a, b = self.used, self.planned
        if a is None or b is None:
            return False
        return removed(a) != removed(b) or (a.alpha, a.m, a.n) != (b.alpha, b.m, b.n)


def removed(layers: Layers) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
    """Which attention and which MLP sublayers are left out."""
    return tuple(map(bool, layers.attention)), tuple(map(bool, layers.mlp))


def payoff(metrics: Metrics, alone: float | None = None) -> Payoff | None:
    """The payoff of a run that drafts chains with a part of its target; None before anything was judged, or where t(n)
    or the number of its draft forwards is not known. ``alone``: seconds of a round that drafts nothing, where a
    baseline measured it."""
    kept, judged = sum(metrics.depth_accepted), sum(metrics.depth_tried)
    if metrics.price is None or not judged or not metrics.draft_forwards:
        return None
    found = metrics.forecast(SpeedupModel(metrics.price, most=_LONGEST, alone=alone))
    if found is None:
        return None
    return Payoff(found.each / (found.scale * found.price.at(1)), kept, judged, found.assuming(kept / judged))


def look(
    run: RunState, last: Layers | None, engine: str, options: Mapping[str, Any] | None, baseline: RunState | None
) -> LayersView:
    """The look at a run, with the rules of the next answer.

    Args:
        last: of the last measurement of cosines, where the run has none.
        engine: of the next answer, in a replay of the run.
        options: of the next answer; None in a replay, which has none.
        baseline: what the run is compared with.
    """
    used = (run.prefilled.layers if run.prefilled else None) or last
    by = used if used is not None and used.attention_cosine else last
    fits = by is not None and (used is None or len(by.attention) == len(used.attention))
    planned = find(engine).layer_rules(by, options) if fits and options is not None and has_rules(engine) else None
    found = None
    if run.started is not None and drafts_itself(run.started.engine):
        found = payoff(run.metrics, seconds_alone(run, baseline))
    return LayersView(engine=engine, used=used, planned=planned, payoff=found, verdict=of_runs(run, baseline),
                      asks=options is not None)


def with_rule(session: ChatSession, name: str, step: int) -> tuple[ChatSettings | None, str]:
    """Settings with another threshold, interval or number of last layers, None where there are no others; and what
    there is to say."""
    if not session.client.capabilities.ask:
        return None, REFUSED
    settings = session.settings
    engine = settings.resolved(session.ready)
    if not has_rules(engine):
        return None, no_rules(engine)
    options = settings.options(engine)
    value = stepped(options[name], step) if name == "alpha" else options[name] + step
    try:
        new = settings.with_option(engine, name, value)
    except UsageProblem as error:
        return None, failure(error)
    off = {"alpha": "cosine", "m": "interval"}.get(name, "")
    return new, f"{name} belongs to a rule that is off: /set {off}=true" if off and not options[off] else ""


def stepped(alpha: float, step: int) -> float:
    """The next threshold up or down: near 1 the steps are small, for there the cosines are."""
    fine = alpha >= _FINE if step > 0 else alpha > _FINE
    return round(alpha + step * (0.001 if fine else 0.005), 4)


def has_rules(engine: str) -> bool:
    """Whether an engine leaves out layers by rules that its options move."""
    return (spec := known(engine)) is not None and spec.layer_rules is not None


def no_rules(engine: str) -> str:
    """Why an engine without rules has none."""
    spec = find(engine)
    return f"{spec.title} leaves out " + (
        f"a fixed set: {spec.layers_hint}" if drafts_itself(engine) else f"no layers: /engine {with_rules()} does")


def measure(session: ChatSession, typed: str) -> str:
    """Measure the cosines of what is typed, as the next turn, else of the last prompt: a run of a single token, beside
    the conversation. Returns "" or why not."""
    if not session.client.capabilities.ask:
        return REFUSED
    settings = session.settings
    engine = settings.resolved(session.ready)
    if not has_rules(engine):
        return no_rules(engine)
    if session.blocked_reason:
        return session.blocked_reason
    typed = typed.strip()
    if not typed and session.last is None:
        return "Type a prompt first: the cosines are measured over its tokens."
    try:
        asked = session.last.request.conversation if session.last else ()
        turns = (*session.history(), ("user", typed)) if typed else tuple(turn for turn in asked if turn[0] != "system")
        request = replace(settings.request(turns, session.ready), max_new_tokens=1)
        request.check()
    except SpecError as error:
        return failure(error)
    session.measure(typed or session.last.prompt, request, "layers")
    return ""
