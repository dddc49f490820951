"""Evaluate: which engine and settings, for the loaded model and prompts like yours; ``spec-tui advise`` on a screen."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input, Static

from engines.bench.prompt_files import PromptFile, open_prompts
from engines.errors import SpecError
from engines.folders import typed_file
from engines.report.wording import counted
from engines.wire import Event
from spec_tui.export import advice_report
from spec_tui.export.advice_report import Advice
from spec_tui.export.report import text
from spec_tui.present.advice_text import decoding, planned
from spec_tui.present.on_screen import failure, on_screen
from spec_tui.present.progress_text import time_left
from spec_tui.present.rows import bar
from spec_tui.present.text import in_column, one_line
from spec_tui.present.token_styles import spans
from spec_tui.session import kept_settings
from spec_tui.session.advice_setup import foresee
from spec_tui.session.advice_state import AdviceState
from spec_tui.session.chat_session import ChatSession
from spec_tui.session.engine_commands import StartAdvice
from spec_tui.session.host_access import HostAccess
from spec_tui.session.jobs import Job
from spec_tui.tui import chat_text as words
from spec_tui.tui.actions import Action, HasActions
from spec_tui.tui.screens.modal import turn_page
from spec_tui.tui.widgets.footer import Footer
from spec_tui.tui.widgets.path_input import PathInput
from spec_tui.tui.widgets.strip_panel import SplitLine

_MINUTES = (1, 2, 3, 5, 10, 20, 30, 60)
_TIMED, _RESTING = 1.0, 0.1  # seconds between two looks, while lanes are timed and else
_RUNNING, _IDLE, _ADVISED = attrgetter("running"), attrgetter("idle"), attrgetter("advised")
_KEYS = """enter starts, + and - change the time, i selects a file of prompts: lines of text or JSON, or a chat log; \
without one it uses built-in prompts. You cannot ask anything else meanwhile, and other programs disturb the \
measurement."""


class EvaluateScreen(HasActions, Screen[None]):
    """Looks for the best engine and settings over a session's engine; the chat below takes in what that says.

    Args:
        session: that of the chat.
        state: of an evaluation that is over, to be shown again.
    """

    CSS_PATH: ClassVar = ["evaluate.tcss"]
    word_here = "lane"
    AUTO_FOCUS = ""
    PALETTE: ClassVar = "Evaluate: "
    ACTIONS = (
        Action(id="evaluate.stop", run="stop", keys="escape", label="Stop", footer=True, when=_RUNNING,
               help="Stop, and report what is known so far"),
        Action(id="evaluate.restart", run="restart", keys="ctrl+r,f4", label="Restart", footer=True,
               palette="Restart the engine", help="Start an engine again that is dead or does not stop",
               when=attrgetter("session.restartable")),
        Action(id="evaluate.leave", run="leave", keys="escape", label="Back", footer=True, when=_IDLE,
               help="Leave the file's name; then go back to the chat"),
        Action(id="evaluate.go", run="go", keys="enter", label="Start", footer=True, when=_IDLE,
               help="Start the evaluation"),
        Action(id="evaluate.more", run="minutes(1)", keys="plus,equals_sign", label="More", footer=True, when=_IDLE,
               help="More time"),
        Action(id="evaluate.less", run="minutes(-1)", keys="minus", label="Less", footer=True, when=_IDLE,
               help="Less time"),
        Action(id="evaluate.file", run="file", keys="i", label="Prompts", footer=True, when=_IDLE,
               help="Select a file of prompts"),
        Action(id="evaluate.use", run="use", keys="u", label="Use it", footer=True, when=_ADVISED,
               help="Use the advice from now on with this model; spec-tui advise --undo removes it"),
        Action(id="evaluate.copy", run="copy", keys="c", label="Copy", footer=True, when=_ADVISED,
               help="Copy the settings for spec-tui, vLLM, llama.cpp and transformers"),
        Action(id="evaluate.up", run="scroll(-1)", keys="pageup,up", label="Up", palette="", help="Scroll up"),
        Action(id="evaluate.down", run="scroll(1)", keys="pagedown,down", label="Down", palette="", help="Scroll down"),
        Action(id="evaluate.help", run="app.help", keys="f1", label="Help", footer=True, palette="", help="All keys"),
    )

    def __init__(self, session: ChatSession, state: AdviceState | None = None) -> None:
        super().__init__()
        self.session, self.state = session, state
        self.minutes, self.message = 5 if state is None else round(state.seconds / 60), ""
        self.file = kept_settings.kept_prompts() if HostAccess.here().whole else ""  # that is asked with; "": our own
        self.job: Job | None = None
        self._seen: tuple = ()  # of the work and the session, at the last look
        self._arrived = False

    def compose(self) -> ComposeResult:
        yield SplitLine(id="evaluate-top")
        with VerticalScroll(id="evaluate-scroll", can_focus=False):
            yield Static("", id="evaluate-text", markup=False)
        yield PathInput(value=self.file, endings=(), placeholder="a file of prompts; enter takes it",
                        id="evaluate-file")
        yield Static("", id="evaluate-said", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(Input).display = False
        self.call_after_refresh(self.draw)
        self._next_look()

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    # -- what it is in ------------------------------------------------------------------------------
    @property
    def running(self) -> bool:
        return self.state is not None and self.state.running

    @property
    def idle(self) -> bool:
        return not self.running

    can_leave = idle

    @property
    def advised(self) -> bool:
        return self.idle and self.found is not None and advice_report.advised(self.found) is not None

    @property
    def found(self) -> Advice | None:
        """What there is to say; None before anything was measured."""
        state, ready = self.state, self.session.ready
        if state is None or ready is None or not state.rounds:
            return None
        left_out = {method: on_screen(why) for method, why in state.left_out.items()}
        return Advice(state, ready, self.session.load_request, left_out, state.notes)

    # -- time ---------------------------------------------------------------------------------------
    def _next_look(self) -> None:
        timed = self.state is not None and self.state.timing
        self.set_timer(_TIMED if timed else _RESTING, self._look)

    def _look(self) -> None:
        self.look()
        self._next_look()

    def _take_event(self, state: AdviceState, event: Event) -> None:
        state.add(event)
        self._arrived = True
        if state.problem is not None:
            self.message = failure(state.problem)

    def look(self) -> None:
        """Draw what has come and what goes on by itself; nothing while a lane is timed."""
        phase = self.session.phase
        seen, arrived = (self.running, self.session.ready, self.session.stuck, phase), self._arrived
        self._arrived = False
        if self._seen and self._seen[-1] != phase:
            self.message = ""
        if arrived or seen != self._seen or phase == "loading" or (self.running and not self.state.timing):
            self.draw()
        if seen != self._seen:
            self._seen = seen
            self.refresh_bindings()

    # -- drawing ------------------------------------------------------------------------------------
    def draw(self) -> None:
        state = self.state
        asked = f"{self.minutes} min" if self.idle else time_left(state.seconds * (1 - state.done)).lstrip(", ")
        sampled = self.session.settings if state is None else state.request  # as what is shown was measured
        how = f"{decoding(sampled.temperature, sampled.law)} · " if sampled.temperature else ""
        self.query_one("#evaluate-top", SplitLine).show(
            [(" evaluate ", "title"), (" which engine, which settings", "muted")], spans(f"{how}{asked} ", "muted"))
        self.query_one("#evaluate-said", Static).update(Content(one_line(self._said())))
        self.query_one("#evaluate-text", Static).update(Content(self._text()))

    def _said(self) -> str:
        state = self.state
        waits = not self.running and not self.message and self.session.phase != "ready"
        if waits or self.session.stuck:
            return "".join(text for text, _ in words.status(self.session, "", self.size.width))
        if not self.running:
            return self.message or f"{self.file or 'built-in prompts'} · {counted(self.minutes, 'minute')}"
        if self.job.stopping:
            return "stopping after the current answer …"
        if not state.rounds:
            return "reading the prompts …"
        screening = state.rounds[-1]
        where = f"stage {len(state.rounds)} of {len(state.stages)}"
        if state.auditing:
            return f"{where}: auditing texts that differ"
        if state.at is None:
            return where
        what = "warm-up" if state.at.warm_up else f"prompt {state.at.prompt + 1}"
        return f"{where}: {screening.asked.labels[state.at.lane]}, {what}"

    def _text(self) -> str:
        state, found = self.state, self.found
        if state is None:
            return f"{self._plan()}\n\n{_KEYS}"
        if state.problem is not None and found is None:
            return failure(state.problem)
        if self.running:
            return self._progress()
        if found is None:
            return "Nothing was measured."
        return text(advice_report.report(found), max(60, self.size.width - 4))

    def _plan(self) -> str:
        """What it will do, in which order."""
        session = self.session
        if session.ready is None:
            return "The plan is shown when the model is loaded."
        try:
            asked = _prompts(self.file)
            request = session.settings.request((("user", "x"),), session.ready)
            return planned(foresee(session.ready, asked.suite, request, self.minutes * 60.0))
        except SpecError as error:
            return failure(error)

    def _progress(self) -> str:
        """The rounds so far, and the standings in the one under way."""
        state = self.state
        width = max(20, min(60, self.size.width - 12))
        room = max(20, min(44, self.size.width - 23))
        lines = [f"{bar(state.done, width):·<{width}} {state.done:>4.0%}", ""]
        lines += [f"{'setting':<{room}}{'answers':>9}{'tokens/s':>10}"] if state.rounds else []
        for name, answers, rate in state.so_far():
            shown = "-" if rate is None else f"{rate:.1f}"
            lines.append(f"{in_column(name, room)}{answers:>9}{shown:>10}")
        if state.rates:
            lines += ["", "Medians of the answers so far; the verdict compares answers to the same prompts."]
        return "\n".join(lines)

    # -- what a person does -------------------------------------------------------------------------
    def action_go(self) -> None:
        session = self.session
        if session.blocked_reason:
            self._say(session.blocked_reason)
            return
        try:
            asked = _prompts(self.file)
        except SpecError as error:
            self._say(failure(error))
            return
        if HostAccess.here().whole:
            kept_settings.keep_prompts(typed_file(self.file) if self.file else None)
        request = session.settings.request((("user", "x"),), session.ready)
        turns = tuple(turn for turn in request.conversation if turn[0] == "system")
        if asked.system and not turns:
            turns = (("system", asked.system),)
        request = replace(request, conversation=turns, engine="", options={}, keeps=False)
        self.state, self.message = AdviceState(asked.suite, request, self.minutes * 60.0), " ".join(asked.notes)
        self.job = session.jobs.submit(
            StartAdvice(asked.suite, request, self.minutes * 60.0), partial(self._take_event, self.state), "evaluating")
        self.refresh_bindings()
        self.draw()

    def action_stop(self) -> None:
        if self.running and not self.job.stopping:
            self.session.jobs.stop(self.job)
            self.draw()

    def action_restart(self) -> None:
        """A fresh engine; an evaluation that the old one did not stop goes no further."""
        self.session.restart()
        if self.state is not None and self.state.problem is not None:
            self.state.problem = replace(self.state.problem, hint="")  # it is done
        self._say("")

    def action_leave(self) -> None:
        if self.query_one(Input).has_focus:
            self._close_file()
        else:
            self.dismiss(None)

    def action_minutes(self, step: int) -> None:
        place = _MINUTES.index(self.minutes) + step
        self.minutes = _MINUTES[max(0, min(len(_MINUTES) - 1, place))]
        self._say("")

    def action_file(self) -> None:
        box = self.query_one(Input)
        box.display = True
        box.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        name = event.value.strip()
        try:
            _prompts(name)
        except SpecError as error:
            self._say(failure(error))
        else:
            self.file = name
            self._close_file()

    def _close_file(self) -> None:
        box = self.query_one(Input)
        box.value, box.display = self.file, False
        self.set_focus(None)
        self._say("")

    def action_use(self) -> None:
        lane = advice_report.advised(self.found)
        lane = replace(lane, datastores=lane.datastores or self.state.request.datastores)
        try:
            settings = self.session.settings
            settings = replace(settings, given={**settings.given, lane.engine: {}})  # what was measured, and no more
            settings = settings.with_engine(lane.engine, self.session.ready)
            for name, value in lane.options.items():
                settings = settings.with_option(lane.engine, name, value)
            kept = kept_settings.keep(self.session.load_request, lane, "found by Evaluate")
        except SpecError as error:
            self._say(failure(error))
            return
        self.session.settings = settings
        self._say(f"from now on {kept.words}")

    def action_copy(self) -> None:
        pastes = advice_report.pastes(self.found)
        self.app.copy_to_clipboard("\n\n".join(f"{paste.name}:\n{paste.text}" for paste in pastes))
        self._say("the settings are copied")

    def action_scroll(self, step: int) -> None:
        turn_page(self.query_one("#evaluate-scroll"), step)

    def _say(self, words: str) -> None:
        self.message = words
        self.draw()


def _prompts(name: str) -> PromptFile:
    """What a file asks, "" for our own prompts. Raises UsageProblem."""
    if name:
        HostAccess.here().need("reading a file")
    return open_prompts(typed_file(name) if name else None)
