"""The price of verification as a screen of its own; it follows the run that is shown behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from textual.app import ComposeResult

from engines.cost.curve import CostCurve
from engines.report.run_state import RunState
from spec_tui.present.price_text import SpeedEstimate
from spec_tui.present.served_price import ServedPrice
from spec_tui.tui.actions import Action
from spec_tui.tui.screens.modal import Box, SpecModal
from spec_tui.tui.widgets.price_panel import PricePanel

EVERY = 0.25  # seconds between two looks at the run
STEP, FIRST = 0.05, 0.7  # of an assumed acceptance; where nothing was measured

Look = Callable[[], tuple[RunState, int, CostCurve | None, SpeedEstimate | None, RunState | None, ServedPrice | None]]


def _here(screen: PriceScreen) -> bool:
    return not screen.elsewhere


class PriceScreen(SpecModal[None]):
    """Shows what ``look`` gives: a run, the round of interest, t(n), the outlook, the baseline; of a model in another
    program what is known from outside. ``measure``: measures t(n) of such a model; says why not, else ""."""

    CSS_PATH: ClassVar = ["modal.tcss", "price.tcss"]
    word_here = "t(n)"
    ACTIONS = (
        Action(id="price.less", run="assume(-1)", keys="left", label="Less", footer=True,
               help="Assume a lower acceptance", when=_here),
        Action(id="price.more", run="assume(1)", keys="right", label="More", footer=True,
               help="Assume a higher acceptance", when=_here),
        Action(id="price.measured", run="measured", keys="backspace", label="Measured", footer=True,
               help="Acceptance as measured", when=_here),
        Action(id="price.ask", run="ask", keys="enter", label="Measure t(n)", footer=True,
               help="Measure t(n) of the model at its server, with short requests", when=lambda screen: screen.asks),
        Action(id="price.close", run="close", keys="p,f10,q", label="Close", help="Close"),
    )

    def __init__(self, look: Look, measure: Callable[[], str]) -> None:
        super().__init__()
        self._look, self._measure, self._refused = look, measure, ""

    def compose(self) -> ComposeResult:
        keys = "← → assume another acceptance · backspace as measured" * (not self.elsewhere) + (
            "enter measures t(n)" * self.asks)
        with Box("the cost of verification", f"{keys} · esc closes".removeprefix(" · ")):
            yield PricePanel(id="price")

    def on_mount(self) -> None:
        self.panel = self.query_one(PricePanel)
        self.panel.focus()
        self._draw()
        self.set_interval(EVERY, self._draw)

    def _draw(self) -> None:
        *shown, served = self._look()
        if served is not None and self._refused:
            served = replace(served, problem=self._refused.rstrip("."))
        self.panel.show_price(*shown, served)

    def action_assume(self, step: int) -> None:
        """Another twentieth more or less than what is assumed, or was measured."""
        run, _, _, outlook, *_ = self._look()
        if outlook is None:
            return
        now = self.panel.assumed
        if now is None:
            now = run.metrics.chance_accepted if outlook.forecast.chances else FIRST - step * STEP
        self.panel.assumed = min(1.0, max(0.0, round(now / STEP + step) * STEP))
        self._draw()

    @property
    def elsewhere(self) -> bool:
        """Whether another program has the model."""
        return self._look()[-1] is not None

    @property
    def asks(self) -> bool:
        """Whether that one's t(n) can be measured."""
        served = self._look()[-1]
        return served is not None and served.asks

    def action_ask(self) -> None:
        self._refused = self._measure()
        self._draw()

    def action_measured(self) -> None:
        self.panel.assumed = None
        self._draw()
