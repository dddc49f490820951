"""Engine, its options and sampling of the next answer, in one dialog."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option as Item

from engines.errors import UsageProblem
from engines.methods import MethodSpec, find, specs
from engines.methods.options import Option
from engines.report.events import Ready
from spec_tui.present import price_text as price
from spec_tui.present.on_screen import on_screen
from spec_tui.present.text import LOSSY, one_line
from spec_tui.session.settings import SAMPLING, ChatSettings, stores, unavailable
from spec_tui.tui.actions import Action
from spec_tui.tui.screens.modal import Box, DescribedList, SpecModal
from spec_tui.tui.widgets.field import Field
from spec_tui.tui.widgets.styled_widget import STAND_OUT, marked

DEFAULT_ONES = "the default ones"  # no datastore can have a name with blanks


class EngineScreen(SpecModal[ChatSettings]):
    """Gives back the settings chosen, None if closed."""

    CSS_PATH: ClassVar = ["modal.tcss", "engine.tcss"]
    ACTIONS = (
        Action(id="engine.apply", run="apply", keys="enter", anywhere="ctrl+s,f2", label="Use", footer=True,
               help="Use these settings"),
        Action(id="engine.next", run="app.focus_next", keys="tab", label="Next field", palette="",
               help="The next field"),
        Action(id="engine.before", run="app.focus_previous", keys="shift+tab", label="Previous field", palette="",
               help="The field before"),
        Action(id="engine.defaults", run="defaults", anywhere="ctrl+d", label="Defaults", footer=True,
               help="Set everything back to its default"),
    )

    ABOUT: ClassVar = "engine and sampling"
    ENTER: ClassVar = "uses them"
    SAMPLED: ClassVar = True  # whether the form has what engines share, too
    SYSTEM: ClassVar = True  # and what the model is told first

    def __init__(self, settings: ChatSettings, ready: Ready | None) -> None:
        super().__init__()
        self.settings, self.ready = settings, ready
        self.chosen = settings.resolved(ready)
        self._said: tuple[str, ...] = ()  # of the engine under the cursor

    def compose(self) -> ComposeResult:
        with Box(self.ABOUT, f"enter {self.ENTER} · tab next field · ctrl+d defaults · esc closes"):
            with Horizontal(id="columns"):
                with Vertical(id="side"):
                    items = [Item(self._label(spec), id=spec.id) for spec in self._offered]
                    yield DescribedList(*items, id="engines")
                    yield Static("", id="about", markup=False)
                with VerticalScroll(id="form", can_focus=False):
                    yield Static("options", classes="section", id="options-title", markup=False)
                    yield Vertical(id="options")
                    if self.SAMPLED:
                        yield from self._sampling()
                    yield self._datastores()
            yield Static("", id="hint", markup=False)

    def _datastores(self) -> Field:
        """Those that fit the model, one at a time, and several that were chosen elsewhere."""
        chosen = " ".join(self.settings.datastores)
        offered = tuple(dict.fromkeys([DEFAULT_ONES, *stores(self.ready), *filter(None, [chosen])]))
        searched = ", ".join(replace(self.settings, datastores=()).searched(self.ready)) or "none"
        words = f"Searched by engines with retrieval. Default: {searched}. Choose several among the datastores (d)."
        return Field(Option("datastores", DEFAULT_ONES, words, choices=offered), chosen or DEFAULT_ONES,
                     classes="wide datastores")

    def _sampling(self) -> ComposeResult:
        yield Static("sampling", classes="section", markup=False)
        for option in SAMPLING:
            yield Field(option, getattr(self.settings, option.name), classes="sampling")
        if self.SYSTEM:
            yield Field(Option("system", "", "Instructions before the conversation."), self.settings.system,
                        classes="wide system")

    async def on_mount(self) -> None:
        engines = self.query_one("#engines", OptionList)
        ids = [spec.id for spec in self._offered]
        engines.highlighted = ids.index(self.chosen) if self.chosen in ids else None  # None for one of another program
        engines.focus()

    @property
    def word_here(self) -> str:
        return self.chosen

    @property
    def _offered(self) -> tuple[MethodSpec, ...]:
        return specs(self.ready.host if self.ready is not None else "")

    def unavailable(self, spec: MethodSpec, settings: ChatSettings | None = None) -> str:
        """Why an engine cannot run with these settings (None: with any); "" where it can."""
        if settings is None:
            return on_screen(unavailable(spec, self.ready))
        return on_screen(unavailable(spec, self.ready, settings.options(spec.id), settings.datastores))

    def _label(self, spec: MethodSpec) -> Content:
        """Its name; greyed where it cannot run as it is set now, crossed out where no option helps."""
        never = bool(self.unavailable(spec))
        if never or self._reason(spec):
            return Content.assemble((spec.title, "$tok-prompt strike" if never else "$tok-prompt"),
                                    (" not available" if never else " cannot run yet", "$tok-prompt"))
        if spec.lossless is False:
            return Content.assemble((spec.title, "bold"), (f" {LOSSY} ", STAND_OUT))
        mark = (" lossless" if spec.lossless else " not checked", "$tok-prompt")
        return Content.assemble((spec.title, "bold"), mark)

    def _reason(self, spec: MethodSpec) -> str:
        """Why an engine cannot run as it is set now; "" where it can."""
        return self.unavailable(spec, self.settings)

    async def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        if event.option is not event.option_list.highlighted_option:
            return  # the cursor has gone on
        spec = find(event.option.id)
        self.chosen = spec.id
        reason = self._reason(spec)
        never = "Not available" if self.unavailable(spec) else "Not with these options"
        missing = f"{never}: {one_line(reason)}" if reason else price.hopeless(
                self.ready, spec, self.settings.options(spec.id))
        self._say(*filter(None, (spec.summary, missing, spec.source)))
        await self._show_options(spec)

    async def _show_options(self, spec: MethodSpec) -> None:
        form = self.query_one("#options", Vertical)
        await form.query(Field).remove()
        self.query_one("#options-title", Static).update(
            f"options of {spec.title}" if spec.options else f"{spec.title} has no options")
        values = self.settings.options(spec.id)
        defaults = spec.defaults(values)
        await form.mount_all([
            Field(option, values[option.name], defaults[option.name], classes="option")
            for option in spec.options if not option.lane
        ])

    def on_field_changed(self, event: Field.Changed) -> None:
        """Another budget or preset has other defaults: those that stand in the form follow it."""
        option, value = event.field.option, event.field.editor.value
        if option.name in ("budget", "preset") and value in option.choices:
            new = find(self.chosen).defaults({option.name: value}, self.settings.model)
            for other in self.query("#options Field").results(Field):
                other.follow(new[other.option.name])

    def _say(self, *words: str) -> None:
        """What there is to say of an engine: below the list, or across the dialog where there is no room below."""
        self._said = words
        self.query_one("#about", Static).update("\n\n".join(words))
        tall, _ = self.app.VERTICAL_BREAKPOINTS[-1]
        self.query_one("#hint", Static).update("" if self.app.size.height >= tall else " ".join(words))

    def on_resize(self) -> None:
        if isinstance(self.focused, OptionList):  # else the hint is about a field
            self._say(*self._said)

    def on_field_explained(self, event: Field.Explained) -> None:
        self.tell("#hint", marked(one_line(event.words)), event.wrong)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.action_apply()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.action_apply()

    def action_apply(self) -> None:
        """Check everything; close if it is right, else show what is wrong."""
        fields = [*self.query(Field)]
        wrong = [field for field in fields if not field.check()]
        if wrong:
            wrong[0].editor.focus()
            return
        spec = find(self.chosen)
        if never := self.unavailable(spec):
            self._say(f"{spec.title} is not available.", one_line(never))
            return
        settings = replace(self.settings, engine=self.chosen)
        for field in fields:
            try:
                settings = self._with(settings, field)
            except UsageProblem as error:
                field.complain(error.hint)
                field.editor.focus()
                return
        if reason := self.unavailable(spec, settings):
            self.on_field_explained(Field.Explained(reason, True))
            return
        self.choose(settings)

    def choose(self, settings: ChatSettings) -> None:
        self.dismiss(settings)

    def _with(self, settings: ChatSettings, field: Field) -> ChatSettings:
        if field.has_class("system"):
            return replace(settings, system=str(field.value))
        if field.has_class("datastores"):
            names = "" if field.value == DEFAULT_ONES else str(field.value)
            return settings.with_datastores(names.split(), self.ready)
        if field.has_class("sampling"):
            return settings.with_sampling(field.option.name, field.value)
        return settings.with_option(self.chosen, field.option.name, field.value)

    def action_defaults(self) -> None:
        for field in self.query(Field):
            field.put(field.default)  # the chosen preset's; if the preset changes too, its defaults are put afterwards
