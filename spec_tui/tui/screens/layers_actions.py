"""What the layers panel's keys do to the chat: show it, move its rules, measure."""

from __future__ import annotations

from dataclasses import replace

from textual.screen import Screen

from engines.cost.self_speculation import ENGINES
from engines.errors import SpecError, UsageProblem
from engines.methods.registry import find
from spec_tui.tui import layers_view as layers
from spec_tui.tui.chat_session import ChatSession
from spec_tui.tui.widgets.layers_panel import LayersPanel

PANELS = ("tree", "layers", "speed")
_FINE = 0.99  # thresholds from here on go by small steps


class LayersActions(Screen):
    """Of the chat: shows the panel when the engine drafts with a part of the target."""

    _drafts_itself = False

    def _draw_layers(self) -> None:
        sitting = self.sitting
        engine = sitting.settings.resolved(sitting.ready)
        if (engine in ENGINES) != self._drafts_itself:
            self._drafts_itself = not self._drafts_itself
            self.show_panel("layers", self._drafts_itself)
        run, _ = self.shown_run()
        baseline = sitting.baseline(run)
        self.query_one(LayersPanel).show_look(layers.look(
            run, sitting.layers, engine, sitting.settings.options(engine), baseline.ratio(run) if baseline else None))

    def show_panel(self, name: str, shown: bool) -> None:
        """Show or hide a panel beside the text."""
        self.query_one(f"#{name}").set_class(not shown, "hidden")
        gone = {n for n in PANELS if self.query_one(f"#{n}").has_class("hidden")}
        forest, everything = gone >= {"tree", "layers"}, len(gone) == len(PANELS)
        for selector, hidden in (("#stack", everything), ("#divider", everything), ("#forest", forest),
                                 ("#divider-2", forest or "speed" in gone)):
            self.query_one(selector).set_class(hidden, "hidden")
        self.set_class("layers" not in gone, "with-layers")
        self.call_after_refresh(self.draw_all)

    def action_layers(self) -> None:
        """Go to the layers, and from there hide them."""
        panel = self.query_one(LayersPanel)
        if self.has_class("-narrow"):
            self.action_panel("layers")
        elif self.focused is panel:
            self.transcript.focus()
            self.show_panel("layers", False)
        else:
            self.show_panel("layers", True)
            self.call_after_refresh(panel.focus)

    def action_rule(self, name: str, step: int) -> None:
        """Another threshold, interval or number of last layers for the next answer."""
        settings, engine = self.sitting.settings, self.sitting.settings.resolved(self.sitting.ready)
        if engine != "admg":
            self.say(_other(engine))
            return
        value = settings.options(engine)[name]
        value = stepped(value, step) if name == "alpha" else value + step
        try:
            self.sitting.settings = settings.with_option(engine, name, value)
        except UsageProblem as error:
            self.say(f"{error.message}: {error.hint}")
            return
        off = {"alpha": "cosine", "m": "interval"}.get(name, "")
        rule_off = off and not settings.options(engine)[off]
        self.say(f"{name} is of a rule that is off: /set {off}=true" if rule_off else "")
        self._draw_top()
        self._draw_layers()

    def action_measure_layers(self) -> None:
        """The cosines of a prompt, without an answer."""
        self.say(measure(self.sitting, self.prompt.text))
        self.draw_all()
        self.refresh_bindings()

    def layers_measured(self) -> str:
        """How a measurement ended, in words."""
        found = self.sitting.layers
        if self.sitting.problem is not None or found is None:
            return ""
        return f"measured the cosines over {found.positions} tokens; nothing was added to the conversation"


def stepped(alpha: float, step: int) -> float:
    """The next threshold up or down: near 1 the steps are small, for there the cosines are."""
    fine = alpha >= _FINE if step > 0 else alpha > _FINE
    return round(alpha + step * (0.001 if fine else 0.005), 4)


def _other(engine: str) -> str:
    """Why another engine than ADMG has no rules and no cosines."""
    if engine in ENGINES:
        return f"{find(engine).title} leaves out a fixed set: spec-tui search-layers finds one, /set layers= names one"
    return f"{find(engine).title} leaves no layers out: /engine admg does"


def measure(sitting: ChatSession, typed: str) -> str:
    """Measure the cosines of what is typed, as the next turn, else of the last prompt: a run of a single token, beside
    the conversation. Returns "" or why not."""
    settings = sitting.settings
    engine = settings.resolved(sitting.ready)
    if engine != "admg":
        return _other(engine)
    if sitting.busy:
        return sitting.still
    if sitting.phase != "ready":
        return "The model is still loading." if sitting.phase == "loading" else "The engine is not running: ctrl+r."
    typed = typed.strip()
    if not typed and sitting.last is None:
        return "Type a prompt first: the cosines are those of its tokens."
    try:
        asked = sitting.last.request.conversation if sitting.last else ()
        turns = (*sitting.history(), ("user", typed)) if typed else tuple(turn for turn in asked if turn[0] != "system")
        request = replace(settings.request(turns, sitting.ready), max_new_tokens=1)
        request.check()
    except SpecError as error:
        return f"{error.message}: {error.hint}"
    sitting.measure(typed or sitting.last.prompt, request)
    return ""
