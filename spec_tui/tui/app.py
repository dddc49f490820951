"""The application: themes, the chat screen, the command palette. No model is in this process."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import ClassVar

from textual.app import ComposeResult, SystemCommand
from textual.events import Event, Paste
from textual.reactive import Reactive
from textual.screen import Screen
from textual.theme import Theme, ThemeProvider
from textual.widgets import Static

from engines.errors import UsageProblem
from engines.request import Request
from spec_tui.present.styles import CONTRAST, DARK, DARK_TOKENS, LIGHT, LIGHT_TOKENS
from spec_tui.present.text import sanitise
from spec_tui.present.token_styles import OUTCOME, REJECTED_KEPT
from spec_tui.session.chat_session import ChatSession
from spec_tui.session.client import EngineClient
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.session.history import History
from spec_tui.session.kept_settings import KeptSettings, head_left_out, keep_view, kept_view
from spec_tui.session.settings import ChatSettings
from spec_tui.tui.actions import HasActions
from spec_tui.tui.border import HasBorder
from spec_tui.tui.chat_actions import APPLICATION
from spec_tui.tui.key_order import HasKeysInOrder
from spec_tui.tui.legible import make_legible
from spec_tui.tui.screens.chat import ChatScreen
from spec_tui.tui.screens.palette import Palette
from spec_tui.tui.terminal_input import decode_input_of
from spec_tui.tui.terminal_restore import leave_on_signals

with suppress(ImportError):  # Windows has another one
    from textual.drivers import linux_driver

    decode_input_of(linux_driver)


def _theme(name: str, colours: dict[str, str], dark: bool = True) -> Theme:
    """A theme of ours; colours that Textual's themes don't have are variables."""
    own = {field.name for field in fields(Theme)} & colours.keys()
    variables = {key: colour for key, colour in colours.items() if key not in own}
    return Theme(name=name, dark=dark, variables=variables, **{key: colours[key] for key in own})


_PROJECTED = "spec-light"
THEMES = (_theme("spec-dark", DARK), _theme("spec-light", LIGHT, dark=False), _theme("spec-contrast", CONTRAST))


class Opening(Screen):
    """Stands there until the first screen is made, where that is not the chat."""

    def compose(self) -> ComposeResult:
        yield Static(" opening …", markup=False)

    def on_screen_suspend(self) -> None:
        self.query_one(Static).display = False  # a dialog is transparent


class SpecTui(HasActions, HasKeysInOrder, HasBorder):
    """spec-tui in a terminal.

    Args:
        client: the engine; it is loaded after the first paint and closed at the end.
        load: what to load.
        theme: name of a theme; None takes ours.
        initial_request_options: engine, options and sampling to begin with (its conversation gives the system prompt).
        presenter: begin large, light and without frames, as ``present`` makes it.
        rejected: texts begin with the rejected drafts kept in them, as they do for a presenter.
        remembers: else they begin in the view that was chosen last; the one that is chosen now is remembered, unless it
            is a presenter's.
        step: the chat begins with the Step screen over it, on the first run of a recording.
        first: makes the screen to begin with, where it is not the chat; leaving it leaves the application.
        store: where conversations and races are kept; None for nowhere.
    """

    TITLE = "spec-tui"
    CSS_PATH = "screens/chat.tcss"  # of the default screen, whose own CSS_PATH Textual does not read
    HORIZONTAL_BREAKPOINTS: ClassVar = [(0, "-tiny"), (60, "-narrow"), (100, "-wide"), (160, "-xwide")]
    VERTICAL_BREAKPOINTS: ClassVar = [(0, "-flat"), (16, "-short"), (30, "-tall")]
    ACTIONS = APPLICATION
    theme: Reactive[str] = Reactive("spec-dark")  # our default; setting another one parses all style sheets again

    def __init__(
        self, client: EngineClient, load: LoadRequest, *, theme: str | None = None,
        initial_request_options: Request | None = None, presenter: bool = False, step: bool = False,
        rejected: bool = False, first: Callable[[ChatSession], Screen] | None = None, store: History | None = None,
        remembers: bool = False,
    ) -> None:
        super().__init__()
        self._step, self._first = step, first
        self.client, self.presenter, self._theme_before = client, presenter, ""
        self._remembers = remembers and not presenter
        self.view = REJECTED_KEPT if rejected or presenter else kept_view() if self._remembers else OUTCOME
        self.session = ChatSession(client, load, ChatSettings.from_request(initial_request_options), store)
        for ours in THEMES:
            self.register_theme(ours)
        if theme in self.available_themes:
            self.theme = theme
        self.stylesheet.set_variables(self.get_css_variables())  # now that our themes are known

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """The token colours for themes that don't bring their own."""
        return LIGHT_TOKENS if not self.current_theme.dark else DARK_TOKENS

    def get_css_variables(self) -> dict[str, str]:
        """The theme's colours, those of words such that they can be read."""
        colours = super().get_css_variables()
        if self.current_theme not in THEMES:
            make_legible(self.current_theme, colours)
        return colours

    async def on_event(self, event: Event) -> None:
        if isinstance(event, Paste):
            event.text = _pasted(event.text)
        await super().on_event(event)

    @property
    def clipboard(self) -> str:
        """What was copied here and ctrl+v puts in; the terminal's own clipboard has it as it was."""
        return _pasted(super().clipboard)

    def get_default_screen(self) -> Screen:
        return Opening() if self._first is not None else ChatScreen(self.session, self._step)

    def on_mount(self) -> None:
        self.set_timer(0.5, _settle_memory)
        if self.presenter:
            self.present(True)
        if not self.is_headless:
            leave_on_signals(self)
        if self._first is not None:
            self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        """After the first paint, so that there is something to read: making a screen takes its time."""
        self.push_screen(self._first(self.session), lambda _: self.exit())

    def present(self, on: bool) -> None:
        """Large, light and without frames, for a projector, on every screen; and back."""
        self.presenter = on
        if on and self.theme != _PROJECTED:
            self._theme_before, self.theme = self.theme, _PROJECTED
        elif not on and self._theme_before:
            self.theme, self._theme_before = self._theme_before, ""
        for screen in self.screen_stack:
            screen.set_class(on, "presenting")
            if screen.is_mounted and (presented := getattr(screen, "presented", None)) is not None:
                presented(on)
            if (draw := getattr(screen, "draw", None)) is not None:
                screen.call_after_refresh(draw)

    def action_present(self) -> None:
        self.present(not self.presenter)

    def choose_view(self, view: str) -> None:
        """Begin with this view of texts, on the next screen and at the next start."""
        self.view = view
        if self._remembers:
            keep_view(view)

    def action_help(self) -> None:
        from spec_tui.tui.screens.help import HelpScreen

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen())

    def action_glossary(self) -> None:
        from spec_tui.tui.screens.glossary import GlossaryScreen

        if not isinstance(self.screen, GlossaryScreen):
            self.push_screen(GlossaryScreen())

    def action_explain(self) -> None:
        """The glossary at the word of what the cursor is on, else the help."""
        from spec_tui.tui.screens.glossary import GlossaryScreen

        words = (getattr(host, "word_here", "") for host in (self.focused, self.screen))
        if word := next(filter(None, words), ""):
            self.push_screen(GlossaryScreen(word))
        else:
            self.action_help()

    def action_help_quit(self) -> None:
        """ctrl+c with nothing selected."""
        if isinstance(self.screen, ChatScreen):
            self.screen.say("ctrl+c copies a selection; ctrl+q leaves, esc stops an answer")

    def action_command_palette(self) -> None:
        if not Palette.is_open(self):
            self.push_screen(Palette(id="--command-palette"))

    def search_themes(self) -> None:
        self.push_screen(Palette([ThemeProvider], "Search for themes…"))

    def get_system_commands(self, screen: Screen) -> Iterable[SystemCommand]:
        """Everything a key does, by name."""
        if isinstance(screen, HasActions):
            yield from screen.palette()
        chat = self.screen_stack[0]
        if isinstance(chat, ChatScreen) and screen is not chat and self.can_leave:
            yield from chat.palette(self._open_from_chat)
        yield SystemCommand("Theme", "Choose the colours", self.action_change_theme)
        yield from self.palette()

    @property
    def can_leave(self) -> bool:
        """Whether all screens can be left: none has something running that would end with it."""
        return all(getattr(screen, "can_leave", True) for screen in self.screen_stack)

    async def _open_from_chat(self, action: str) -> None:
        """Leave what lies over the chat, and do this there."""
        while len(self.screen_stack) > 1:
            await self.screen.dismiss(None)
        await self.screen.run_action(action)

    def show_papers(self, first: Sequence[str] = ()) -> None:
        """The list of papers' tables, at the first of these; the rows of a chosen one are raced, where there is an
        engine."""
        from spec_tui.tui.screens.papers import PapersScreen

        chat = self.screen_stack[0]
        races = isinstance(chat, ChatScreen) and bool(chat.check_action("papers", ()))

        async def chosen(name: str | None) -> None:
            if name is not None and races:
                await self._open_from_chat(f"papers({name!r})")

        self.push_screen(PapersScreen(next(iter(first), ""), chat.session if races else None), chosen)

    def on_unmount(self) -> None:
        self.session.leave()
        self.client.close()


def _pasted(text: str) -> str:
    """A text from anywhere, harmless for any field."""
    return sanitise(text.replace("\r\n", "\n").replace("\r", "\n"))


def _settle_memory() -> None:
    """What is loaded now stays: the collector need not look at it in the middle of a frame."""
    gc.collect()
    gc.enable()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def check_theme(name: str | None) -> None:
    """Raises UsageProblem with the themes there are, if this is none of them."""
    if name is not None and name not in themes():
        raise UsageProblem(f"there is no theme {name!r}", "themes are: " + ", ".join(themes()))


def themes() -> tuple[str, ...]:
    """The names of our themes, then of Textual's."""
    from textual.theme import BUILTIN_THEMES

    return (*(theme.name for theme in THEMES), *BUILTIN_THEMES)


def run_app(
    load: LoadRequest, *, theme: str | None = None, initial_request_options: Request | None = None,
    presenter: bool = False, rejected: bool = False, kept: KeptSettings | None = None,
) -> int:
    """Run the application with an engine in its own process; the exit code."""
    from spec_tui.session.process import ProcessClient

    gc.disable()  # until the first screen is painted (``_settle_memory``)
    check_theme(theme)
    client = ProcessClient()
    app = SpecTui(
        client, load, theme=theme, initial_request_options=initial_request_options, presenter=presenter,
        rejected=rejected, store=History.of_user(), remembers=True)
    app.session.kept, app.session.head_left_out = kept, head_left_out(load)
    try:
        app.run()
        return app.return_code or 0
    finally:
        client.close()
