"""The application: themes, the chat screen, the command palette. No model is in this process."""

from __future__ import annotations

import gc
from codecs import getincrementaldecoder
from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.screen import Screen

from engines.errors import UsageProblem
from engines.request import Request
from spec_tui.present.styles import DARK_TOKENS, LIGHT_TOKENS
from spec_tui.present.token_styles import VIEWS
from spec_tui.session.client import EngineClient, LoadRequest
from spec_tui.tui.chat_session import ChatSession
from spec_tui.tui.screens.chat import ChatScreen
from spec_tui.tui.settings import ChatSettings
from spec_tui.tui.theme import THEMES


class SpecTui(App[int]):
    """spec-tui in a terminal.

    Args:
        client: the engine; it is loaded after the first paint and closed at the end.
        load: what to load.
        theme: name of a theme; None takes ours.
        initial_request_options: engine, options and sampling to begin with (its conversation gives the system prompt).
        presenter: what steps through a run begins large, light and without chrome.
    """

    TITLE = "spec-tui"
    CSS_PATH = "screens/chat.tcss"  # of the default screen, whose own CSS_PATH Textual does not read
    ENABLE_COMMAND_PALETTE = True
    HORIZONTAL_BREAKPOINTS: ClassVar = [(0, "-tiny"), (60, "-narrow"), (100, "-wide"), (160, "-xwide")]
    VERTICAL_BREAKPOINTS: ClassVar = [(0, "-flat"), (16, "-short"), (30, "-tall")]
    BINDINGS: ClassVar = [
        Binding("ctrl+q", "quit", "Quit", id="app.quit", show=False, priority=True, tooltip="Leave spec-tui"),
    ]

    def __init__(
        self, client: EngineClient, load: LoadRequest, *, theme: str | None = None,
        initial_request_options: Request | None = None, presenter: bool = False,
    ) -> None:
        super().__init__()
        self.client, self.presenter = client, presenter
        self.sitting = ChatSession(client, load, ChatSettings.from_request(initial_request_options))
        for ours in THEMES:
            self.register_theme(ours)
        self.theme = theme if theme in self.available_themes else "spec-dark"

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """The token colours for themes that don't bring their own."""
        return LIGHT_TOKENS if not self.current_theme.dark else DARK_TOKENS

    def get_default_screen(self) -> Screen:
        return ChatScreen(self.sitting)

    def on_mount(self) -> None:
        self.set_timer(0.5, _settle_memory)

    def action_help(self) -> None:
        """All keys, commands and marks."""
        from spec_tui.tui.screens.help import HelpScreen

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen())

    def action_help_quit(self) -> None:
        """ctrl+c with nothing selected."""
        if isinstance(self.screen, ChatScreen):
            self.screen.say("ctrl+c copies a selection; ctrl+q leaves, esc stops an answer")

    def get_system_commands(self, screen: Screen) -> Iterable[SystemCommand]:
        """Everything a key does, by name."""
        if isinstance(screen, ChatScreen):
            yield from self.chat_commands(screen)
        elif hasattr(screen, "commands"):  # step, race and lessons, loaded when they are opened
            yield from screen.commands()
        yield SystemCommand("Theme", "Choose the colours", self.action_change_theme)
        yield SystemCommand("Help", "All keys, commands and marks", self.action_help)
        yield SystemCommand("Quit", "Leave spec-tui", self.action_quit)

    def chat_commands(self, screen: ChatScreen) -> Iterable[SystemCommand]:
        """Those of the chat screen."""
        yield from _asking(screen)
        yield from looking(screen)

    def on_unmount(self) -> None:
        self.client.close()


def _settle_memory() -> None:
    """What is loaded now stays: the collector need not look at it in the middle of a frame."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def _asking(screen: ChatScreen) -> Iterable[SystemCommand]:
    """What needs an engine."""
    yield SystemCommand("Engine and options", "Choose the engine, its options, sampling", screen.action_engine)
    yield SystemCommand("Showcase", "Prompts that show something", screen.action_showcase)
    yield SystemCommand("Measure baseline", "Run the last prompt autoregressively", screen.action_baseline)
    yield SystemCommand("Audit the answer", "Check every token against the plain model", screen.action_audit)
    yield SystemCommand("Ask again", "The last prompt with the same seed", screen.action_again)
    yield SystemCommand("New conversation", "Forget the turns so far", screen.action_new)
    yield SystemCommand("Race", "Engines side by side on one prompt", screen.action_race)
    yield SystemCommand("Price of verification", "What it costs, and whether drafting pays", screen.action_price)
    yield SystemCommand("Lessons", "Speculative decoding in short lessons", screen.action_learn)
    yield SystemCommand("Datastores", "What drafts are retrieved from: build, look into, choose", screen.action_data)
    yield SystemCommand("Export", "The answer as trace or document, the screen as picture", screen.action_export)
    if screen.sitting.phase in ("dead", "failed"):
        yield SystemCommand("Restart the engine", "The conversation is kept", screen.action_again)


def looking(screen: ChatScreen) -> Iterable[SystemCommand]:
    """What can be done with an answer that is there."""
    for view in VIEWS:
        yield SystemCommand(f"View: {view}", f"Colour tokens by {view}", lambda view=view: screen.set_view(view))
    yield SystemCommand("View: ghosts", "Show or hide rejected drafts behind the text", screen.action_ghosts)
    yield SystemCommand("Panel: draft tree", "Show or hide it", lambda: screen.action_panel("tree"))
    yield SystemCommand("Panel: speed", "Show or hide it", lambda: screen.action_panel("speed"))
    yield SystemCommand("Panel: layers", "What drafting with a part of the model leaves out", screen.action_layers)
    yield SystemCommand("Step through the answer", "Phase by phase, with explanations", screen.action_step)
    yield SystemCommand("Copy: answer", "The text of the last answer", lambda: screen.action_copy(False))
    yield SystemCommand("Copy: marked answer", "With corrections, as CriticMarkup", lambda: screen.action_copy(True))


def check_theme(name: str | None) -> None:
    """Raises UsageProblem with the themes there are, if this is none of them."""
    from textual.theme import BUILTIN_THEMES

    known = [*(theme.name for theme in THEMES), *BUILTIN_THEMES]
    if name is not None and name not in known:
        raise UsageProblem(f"there is no theme {name!r}", "themes are: " + ", ".join(known))


def run_app(
    load: LoadRequest, *, theme: str | None = None, initial_request_options: Request | None = None,
    presenter: bool = False,
) -> int:
    """Run the application with an engine in its own process; the exit code."""
    from spec_tui.session.process import ProcessClient

    check_theme(theme)
    _take_any_byte()
    client = ProcessClient()
    try:
        app = SpecTui(
            client, load, theme=theme, initial_request_options=initial_request_options, presenter=presenter)
        app.run()
        return app.return_code or 0
    finally:
        client.close()


def _take_any_byte() -> None:
    """Bytes that are not UTF-8 (a pasted Latin-1 text) become replacement marks: Textual's key reader would end the
    application with them."""
    try:
        from textual.drivers import linux_driver
    except ImportError:  # Windows
        return
    decoder = getincrementaldecoder("utf-8")
    linux_driver.getincrementaldecoder = lambda name: partial(decoder, errors="replace")
