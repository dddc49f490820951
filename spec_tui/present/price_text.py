"""What the screens say of an engine's price: a forecast by the numbers of a run, or of the load before there is one,
and the sentences made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from engines.cost.curve import CostCurve
from engines.cost.speedup_model import SpeedupModel
from engines.methods import DRAFT_MODEL, MethodSpec, available, drafts_nothing, heads_of, known
from engines.methods.options import Option
from engines.report.events import Ready, Started
from engines.report.run_state import RunState
from spec_tui.present.speed_verdict import seconds_alone

BUSY = "other programs kept the cores busy while t(n) was measured, as far as the system tells"
_OFF = 0.15  # of the curve, worth noticing
_LEVEL = 2.0  # nodes of a tree's level that are verified, before any is seen
_DEPTH = 16  # looked at, of an engine without an option for it


@dataclass(frozen=True, slots=True)
class SpeedEstimate:
    """An engine with the loaded models.

    Attributes:
        engine: its title.
        unit: what a draft's size counts: tokens of a chain, levels of a tree.
        paper: the published size; None where there is none.
        published: the forecast at the published width of a tree; of a chain it is ``forecast``.
        forward: seconds of a forward pass of what drafts, the mean of the run's; None where no model does.
    """

    engine: str
    unit: str
    paper: int | None
    forecast: SpeedupModel
    published: SpeedupModel
    forward: float | None = None

    @property
    def dear(self) -> float | None:
        """The share of the time of a target's forward pass that one of what drafts takes; None where no model does."""
        f = self.forecast
        return None if self.forward is None else self.forward / (f.scale * f.price.at(1))


def outlook(started: Started | Ready, engine: str, options: Mapping[str, Any], run: RunState | None = None,
            baseline: RunState | None = None) -> SpeedEstimate | None:
    """The outlook of an engine with its options; None where it drafts nothing, t(n) is unknown, it drafts with a part
    of the target, whose time only a run can tell, or another program drafts and does not say what that takes.

    Args:
        started: tells the prices.
        run: whose times and acceptance count; without one those of the load do, and acceptance is unknown.
        baseline: what it is compared with; without one, with rounds that draft nothing by t(n) and this run's own pace.
    """
    spec = known(engine)
    if spec is None or spec.host or not started.price or not spec.options:  # a trace may be of another version
        return None
    itself = spec.self_speculative
    if itself and (run is None or not run.metrics.drafted):
        return None
    named = {option.name: option for option in spec.options}
    tree = options.get("shape") == "tree"
    size = named.get("depth") if tree else named.get("num_tokens") or named.get("length")
    heads = started.heads if isinstance(started, Ready) else heads_of(started)
    points = {DRAFT_MODEL: started.draft_price} | {kind: head.price for kind, head in heads.items()}
    priced = {need: CostCurve(points[need]) for need in available(started.draft_price, heads) if points[need]}
    draft = next((priced[need] for need in spec.used(options, tuple(priced))), None)
    each = _forward(draft, run) if draft or itself else None
    further = draft.at(int(options.get("top_k", 1)) if tree else 1) if draft and not spec.one_pass else 0.0
    forecast = SpeedupModel(
        CostCurve(started.price), first=draft.at(1) if draft else 0.0, each=further, rows=_LEVEL if tree else 1.0,
        most=_most(size, options))
    if run is not None:
        forecast = replace(forecast, alone=seconds_alone(run, baseline))
        forecast = run.metrics.forecast(forecast) or forecast
    paper = None if size is None else int(size.default if size.paper is None else size.paper)
    return SpeedEstimate(engine=spec.title, unit="level" if tree or forecast.rows > 1 else "token", paper=paper,
                         forecast=forecast, published=_published(spec, forecast, draft) if tree else forecast,
                         forward=each)


def _forward(draft: CostCurve | None, run: RunState | None) -> float | None:
    copied = run is not None and draft is not None and run.metrics.levels > (run.metrics.draft_forwards or 0)
    if run is None or copied or not run.metrics.draft_forwards:
        return draft.at(1) if draft else None
    took = run.metrics.draft_seconds
    return None if took is None else took / run.metrics.draft_forwards


def _published(spec: MethodSpec, forecast: SpeedupModel, draft: CostCurve | None) -> SpeedupModel:
    """A tree as wide as published: all of its nodes are verified."""
    paper = spec.defaults({"budget": "paper"})
    wide = draft.at(paper["top_k"]) / draft.at(1) if draft and "top_k" in paper else 1.0
    if "total_nodes" not in paper or not paper.get("depth"):
        return forecast
    return replace(forecast, rows=paper["total_nodes"] / paper["depth"], each=forecast.first * wide)


def _most(size: Option | None, options: Mapping[str, Any]) -> int:
    if size is None:
        return _DEPTH
    return max(int(size.default), int(size.paper or 0), int(options.get(size.name, 0)))


def percent(value: float) -> str:
    """A share in words."""
    return f"{value * 100:.0f}%"


def conclusion(found: SpeedEstimate, assumed: float | None = None) -> str:
    """What follows, in a sentence or two."""
    f = found.forecast if assumed is None else found.forecast.assuming(assumed)
    least, unit = found.forecast.pays_from, found.unit
    if least is None:
        dear = f" A draft forward pass takes {percent(found.dear)} of the time of the target's." if found.dear else ""
        return (f"Forecast: slower at any acceptance; with every token accepted drafting would reach "
                f"{found.forecast.at_best:.2f}x.{dear}")
    if not f.chances:
        return (f"Acceptance is not measured yet. Forecast from the times measured at load: drafting is faster from "
                f"{percent(least)} acceptance per {unit}.")
    given = "Forecast" if assumed is None else f"Forecast at {percent(assumed)} acceptance per {unit}"
    if not f.best:
        return f"{given}: drafting does not pay; it is faster from {percent(least)} acceptance per {unit}."
    thin = "" if assumed is not None or f.best <= len(f.chances) else ", though no draft that deep was verified yet"
    text = f"{given}: drafts of {f.best} {unit}{'s' * (f.best > 1)} are best, {f.speed_up(f.best):.2f}x{thin}."
    if found.paper and found.published is not found.forecast:
        text += f" The published tree, {found.paper} levels of {found.published.rows:.0f} nodes, needs " \
                f"{found.published.needs(found.paper):.2f} tokens per round to break even."
    elif found.paper and found.paper != f.best:
        text += f" The published size, {found.paper}, would give {f.speed_up(found.paper):.2f}x."
    return text


def hopeless(ready: Ready | None, spec: MethodSpec, options: Mapping[str, Any]) -> str:
    """Why an engine cannot be faster with the loaded models and these options, in a sentence; "" if it may."""
    found = outlook(ready, spec.id, options) if ready is not None else None
    return conclusion(found) if found is not None and found.forecast.pays_from is None else ""


def off(scale: float) -> bool:
    """Whether a run's verification is so far off t(n) that it is worth noticing."""
    return abs(scale - 1) > _OFF


def curve(run: RunState, ready: Ready | None) -> CostCurve | None:
    """t(n) of a run's target, else of the loaded one."""
    there = ready is not None and ready.price
    return run.metrics.price or (CostCurve(ready.price, ready.price_busy) if there else None)


Chosen = tuple[str, Mapping[str, Any]]
"""The engine of the next answer, and its options."""


def outlook_of(run: RunState, ready: Ready | None, chosen: Chosen, baseline: RunState | None = None,
               measured: bool = True) -> SpeedEstimate | None:
    """The outlook of a run by its own numbers and its baseline's, if they are ``measured``; before there is one that of
    the next answer."""
    started = run.started
    if started is not None:
        return outlook(started, started.engine, started.options, run if measured else None, baseline)
    return outlook(ready, *chosen) if ready is not None else None


at_load = partial(outlook_of, measured=False)
"""The same by the times of the load alone, which stay while a run goes on."""


def why(run: RunState, baseline: RunState | None, found: SpeedEstimate | None, brief: bool = False,
        measures: bool = True) -> list[tuple[str, str]]:
    """What a verification step makes, and what it must make to be as fast as the baseline (≈ by t(n), where none was
    measured), in 51 columns, or a brief 35; before a run from which acceptance on drafts are expected to be faster.
    ``measures``: whether a baseline can be measured."""
    m = run.metrics
    if run.started is not None and drafts_nothing(run.started.engine):
        return [("one token per verification step", "muted")]
    if m.drafted:
        rate = baseline.metrics.tokens_per_second if baseline is not None else None
        needs = m.decode_seconds / m.target_forwards * rate if rate else m.break_even and m.break_even.needs
        makes, about = m.mean_generated_length or 0.0, "" if rate else "≈"
        row = [("M ", "muted"), (f"{makes:.2f}", "strong")] if brief else [
            (f"{makes:.2f}", "strong"), (" tokens per verify step (M)", "muted")]
        return row if needs is None else [*row, (", break-even ", "muted"), (f"{about}{needs:.2f}", "strong")]
    if run.rounds:
        return [("nothing drafted so far" if m.drafted is not None else "how much was drafted is not known", "muted")]
    if found is None:
        tells = "measures whether drafting is faster" if measures else "shows tokens per verify step"
        return [("known after the first answer" if brief else f"an answer {tells}", "muted")]
    if (least := found.forecast.pays_from) is None:
        most = f", at most {found.forecast.at_best:.2f}x" + " with all accepted" * (not brief)
        return [("forecast: ", "muted"), ("slower", "bad"), (most, "muted")]
    rest = " accepted" if brief else f" acceptance per {found.unit}"
    return [("forecast: faster from ", "muted"), (percent(least), "strong"), (rest, "muted")]
