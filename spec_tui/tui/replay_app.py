"""A recorded run on the chat screen: the same drawing, fed by a ``ReplayClient``; keys for its clock in place of those
that need a model."""

from __future__ import annotations

from textual.screen import Screen

from engines.report.events import Audited, Failed, Finished, Ready, Started
from engines.report.run_state import RunState, fold
from engines.wire import Event
from spec_tui.present.narration import question
from spec_tui.present.playback import speed_words
from spec_tui.present.text import one_line
from spec_tui.session.client import LoadRequest
from spec_tui.session.replay_client import ReplayClient, request_of
from spec_tui.tui import chat_words as words
from spec_tui.tui.actions import Action
from spec_tui.tui.app import SpecTui
from spec_tui.tui.chat_session import ChatSession, Happening, Turn
from spec_tui.tui.screens.chat import NUMBERS_EVERY, ChatScreen
from spec_tui.tui.settings import ChatSettings
from spec_tui.tui.widgets.lines import Sides
from spec_tui.tui.widgets.speed_panel import SpeedPanel
from spec_tui.tui.widgets.strip_panel import Row, bar

REFUSED = "This is a replay: no model is loaded."
PLACEHOLDER = "A replay cannot be asked anything. space pauses, + and - change its speed"
_TOLD = 2  # problems of the file that the notice has room for


class Replaying(ChatSession):
    """The runs of a trace as a conversation; nothing can be asked.

    Args:
        client: what plays.
        name: the trace's, for people.
    """

    def __init__(self, client: ReplayClient, name: str) -> None:
        super().__init__(client, LoadRequest(), ChatSettings())
        self.name = name

    @property
    def playing(self) -> int:
        """Number of the run that plays."""
        return max(0, len(self.turns) - 1)

    @property
    def ended(self) -> bool:
        """Every run was played to its end."""
        return len(self.turns) == len(self.client.runs) and self.client.player.over

    def rewind(self) -> None:
        """From the beginning."""
        self.turns.clear()
        self._begin(0)

    def send(self, prompt: str) -> str:
        return REFUSED

    def measure_baseline(self) -> str:
        return REFUSED

    def audit(self, number: int | None = None) -> str:
        return REFUSED

    def new(self) -> str:
        return REFUSED

    def again(self) -> str:
        self.rewind()
        return ""

    def pump(self) -> set[Happening]:
        if self.turns and not self._busy and self.client.player.over and len(self.turns) < len(self.client.runs):
            self._begin(len(self.turns))
        return super().pump()

    def _begin(self, number: int) -> None:
        started = self.client.runs[number][0]
        self.turns.append(Turn(question(started), request_of(started), fold(RunState(), started)))
        self._busy = True
        self.client.play(number)

    def _take(self, event: Event) -> Happening:
        if isinstance(event, Ready):
            self.phase, self.ready = "ready", event
            self.problem = _damage(self.client.trace.problems, self.name)
            self._begin(0)
            return "ready"
        turn = self.turns[-1]
        turn.run = fold(turn.run, event)
        if isinstance(event, Finished):
            return self._ended(turn) if turn.run.text else self._over()
        if isinstance(event, Failed):
            return self._over()
        if isinstance(event, Audited):
            self.audited = len(self.turns) - 1
            return "audited"
        return "began" if isinstance(event, Started) else "text"

    def _over(self) -> Happening:
        self._busy = False
        return "finished"


def _damage(problems: tuple[str, ...], name: str) -> Failed | None:
    """What is wrong with the file, as far as a notice has room."""
    if not problems:
        return None
    told, more = "; ".join(problems[:_TOLD]), len(problems) - _TOLD
    rest = f"; {more} more: spec-tui replay {name} --format text names them" if more > 0 else ""
    return Failed(f"of this trace not all could be read: {told}{rest}", "what can be read is played", "usage")


class ReplayScreen(ChatScreen):
    """The chat screen without a prompt and with a clock.

    Args:
        session: what plays.
        step: open the Step screen over it, with the whole first run.
    """

    ACTIONS = (
        Action(id="replay.pause", run="pause", keys="space", label="Pause", footer=True,
               help="Hold the replay, and go on"),
        Action(id="replay.faster", run="speed(True)", keys="plus,equals_sign", label="Faster", footer=True,
               help="Twice as fast"),
        Action(id="replay.slower", run="speed(False)", keys="minus", label="Slower", footer=True,
               help="Half as fast"),
        Action(id="replay.round", run="one_round", keys="greater_than_sign", label="One round",
               help="One round more, then hold"),
        Action(id="replay.again", run="again", keys="less_than_sign", label="Rewind", footer=True,
               palette="From the start", help="Play it from the beginning"),
        Action(id="replay.rest", run="rest", keys="0", label="To the end", help="The rest of this run at once"),
    )
    NEED_A_MODEL = frozenset(
        {"baseline", "audit", "engine", "showcase", "ask_new", "data", "prompt", "race", "stop", "learn"}
    )
    session: Replaying

    def __init__(self, session: Replaying, step: bool = False) -> None:
        super().__init__(session)
        self._step_first = step

    def _begin(self) -> None:
        self.prompt.placeholder, self.prompt.disabled = PLACEHOLDER, True
        self.query_one(SpeedPanel).measures = False
        self.transcript.focus()
        super()._begin()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action == "back" or (action not in self.NEED_A_MODEL and super().check_action(action, parameters))

    @property
    def client(self) -> ReplayClient:
        """What plays."""
        return self.session.client

    def pump(self) -> None:
        super().pump()
        if self._step_first and self.session.turns:
            self._step_first = False
            self.client.cancel()
            super().pump()
            self.action_step()
        if self.session.busy and self._frame % NUMBERS_EVERY == 0:
            self._draw_status()

    # -- keys -----------------------------------------------------------------------------------
    def action_pause(self) -> None:
        self.client.paused = not self.client.paused
        self._settle_clock()

    def action_speed(self, faster: bool) -> None:
        _ = self.client.faster() if faster else self.client.slower()
        self._settle_clock()

    def action_one_round(self) -> None:
        self.client.paused = True
        self.client.step()
        self._settle_clock()

    def action_rest(self) -> None:
        self.client.cancel()
        self._settle_clock()

    def action_again(self) -> None:
        self.session.rewind()
        self.transcript.clear()
        self._settle_clock()

    def action_back(self) -> None:
        super().action_back()
        self.transcript.focus()  # there is nothing to type

    def _settle_clock(self) -> None:
        self._message = ""
        self.pump()
        self._draw_status()

    # -- drawing --------------------------------------------------------------------------------
    def _draw_top(self) -> None:
        left: Row = [(" spec-tui ", "title"), (f" replay of {one_line(self.session.name, 40)} ", "strong"),
                     ("· " + words.model(self.session), "muted")]
        self.query_one("#top", Sides).show(left, [(f"{speed_words(self.client.speed)} ", "text")])

    def _draw_status(self) -> None:
        super()._draw_status()
        if self.client.player is not None and (self._long or not self._message):
            self.query_one("#status", Sides).show(self._clock_row())
        self._draw_top()

    def _clock_row(self) -> Row:
        player, runs = self.client.player, len(self.client.runs)
        share = player.now / player.length if player.length else 1.0
        if player.over:
            state = (" ■ ", "muted"), ("at its end", "text")
        elif player.paused:
            state = (" ‖ ", "warn"), ("held", "text")
        else:
            state = (" ▶ ", "good"), ("playing", "text")
        filled = bar(share, 20)
        which = f" · run {self.session.playing + 1} of {runs}" if runs > 1 else ""
        pace = "" if player.over else f" {speed_words(self.client.speed)}"
        return [*state, (f"{pace}  ", "text"), (filled, "bar"),
                ("·" * (20 - len(filled)), "track"), (f" {player.now:.2f} of {player.length:.2f} s{which}", "muted")]


class ReplayApp(SpecTui):
    """The application over a trace.

    Args:
        client: what plays.
        name: the trace's, for people.
        screen: where it begins, "chat" or "step".
        theme: name of a theme; None takes ours.
        presenter: as in ``SpecTui``.
    """

    def __init__(
        self, client: ReplayClient, name: str, screen: str = "chat", theme: str | None = None, presenter: bool = False
    ) -> None:
        super().__init__(client, LoadRequest(), theme=theme, presenter=presenter)
        self.session = Replaying(client, name)
        self._first = screen

    def get_default_screen(self) -> Screen:
        return ReplayScreen(self.session, self._first == "step")


def run_replay(
    client: ReplayClient, name: str, screen: str = "chat", theme: str | None = None, presenter: bool = False
) -> int:
    """Play a trace in the application; the exit code."""
    from spec_tui.tui.app import check_theme

    check_theme(theme)
    app = ReplayApp(client, name, screen, theme, presenter)
    app.run()
    return app.return_code or 0
