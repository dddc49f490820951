"""The chat: transcript, prompt, the draft tree and the numbers of the run beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.events import DescendantFocus, Key
from textual.widgets import Static, TextArea

from engines.cost.curve import CostCurve
from engines.errors import SpecError, UsageProblem
from engines.folders import same_model
from engines.methods import drafts_itself, find
from engines.report.run_state import RunState
from engines.report.wording import counted
from spec_tui.learn.glossary_entries import word_of
from spec_tui.present import audit_text as verdict
from spec_tui.present import price_text as price
from spec_tui.present import token_styles as marks
from spec_tui.present.on_screen import failure, on_screen
from spec_tui.present.served_price import ServedPrice, served_price
from spec_tui.present.text import one_line
from spec_tui.session.chat_session import ChatSession, Turn
from spec_tui.session.engine_commands import LoadRequest, MeasurePrice
from spec_tui.session.history import Entry
from spec_tui.session.jobs import Job, SessionChange
from spec_tui.session.settings import FIT_LATER, ChatSettings
from spec_tui.tui import chat_text as words
from spec_tui.tui import layers_view as layers
from spec_tui.tui import slash
from spec_tui.tui.actions import HasActions
from spec_tui.tui.chat_actions import CHAT, PLAYBACK
from spec_tui.tui.widgets.large_numbers import LargeNumbers
from spec_tui.tui.widgets.layers_panel import LayersPanel
from spec_tui.tui.widgets.prompt_box import Choices, PromptBox
from spec_tui.tui.widgets.speed_panel import SpeedPanel, telemetry
from spec_tui.tui.widgets.strip_panel import Backdrop, Divider, Lines, Pane, SplitLine, StripPanel, TitleLine, size
from spec_tui.tui.widgets.styled_widget import marked
from spec_tui.tui.widgets.transcript import Block, Transcript
from spec_tui.tui.widgets.tree_panel import TreePanel

if TYPE_CHECKING:
    from spec_tui.session.advice_state import AdviceState
    from spec_tui.tui.race_controller import RaceController

class Pace(NamedTuple):
    """How often is drawn: text so many times a second; the tree and the numbers with every so many of these frames."""

    frames: float
    tree: int
    numbers: int


PACE = Pace(frames=20, tree=2, numbers=5)
SHARED = Pace(frames=10 / 3, tree=5, numbers=5)
"""Where the model computes on all cores: its threads wait for the one that a frame delays. The tree and the numbers are
drawn together, as what surrounds them costs as much again."""
TIMED = Pace(frames=4, tree=1, numbers=1)
"""Where the screen above has something timed: it is looked for what came, and nothing is drawn here."""
NOTHING_TO_ASK = "A replay takes no prompts. space pauses, < and > change its speed"
PANELS = ("tree", "layers", "speed")
_NO_PANELS = "Panels are hidden while presenting: P ends it."
_FIGURES = ("tokens/s", "times as fast", "tokens/step", "% accepted")


class ChatScreen(HasActions, Backdrop):
    """Draws a ``ChatSession`` and hands it what is typed.

    Args:
        session: a conversation, or a recording that plays.
        step: of a recording: play its first run at once, and open the Step screen over it.
    """

    ACTIONS = (*CHAT, *PLAYBACK)
    TYPING = 0.15  # seconds within which another letter makes two a word; 0: each is a key at once

    def __init__(self, session: ChatSession, step: bool = False) -> None:
        super().__init__()
        self.session = session
        self._step_first = step
        self._asked_new = False  # n was pressed once
        self._letter = ""  # pressed in the text: a key, unless another one follows at once
        self._several = False  # models: those that answered, and the one that is loaded
        self._drafts_itself = False  # the next answer is drafted by a part of the target
        self._message = ""
        self._message_job: Job | None = None  # what was under way at the last look
        self._long = False  # the message does not fit on the status line
        self._noticed: tuple = ()
        self._frame = 0
        self._keys_of: list[bool] = []  # which keys applied when they were last looked up
        self._tree_due = self._numbers_due = False
        self._race: RaceController | None = None  # of the race that was looked at last
        self._evaluated: AdviceState | None = None  # the evaluation that was looked at last

    # -- building -------------------------------------------------------------------------------
    def compose(self) -> ComposeResult:
        yield SplitLine(id="top")
        with Pane(id="body"):
            with Pane(id="left"):
                yield TitleLine(id="answer-title")
                yield Transcript(id="transcript")
            yield Divider(id="divider")
            with Pane(id="stack"):
                with Pane(id="forest"):
                    yield TreePanel(id="tree", classes="panel")
                    yield LayersPanel(id="layers", classes="panel hidden")
                yield Divider(id="divider-2")
                yield SpeedPanel(id="speed", classes="panel")
        yield LargeNumbers(_FIGURES, id="figures")
        yield Lines(id="legend")
        yield Lines(id="telemetry")
        yield Static("", id="notice", markup=False)
        yield Choices()
        with Horizontal(id="ask"):
            yield Static("›", id="mark", markup=False)
            yield PromptBox(
                lambda text: slash.complete(text, self.session.settings, self.session.ready),
                id="prompt", placeholder="Type a prompt, or press ctrl+o for examples")
        yield from self.foot(SplitLine(id="status"))

    def on_mount(self) -> None:
        self.transcript = self.query_one(Transcript)
        self.prompt = self.query_one(PromptBox)
        self.query_one(TitleLine).heads = "transcript"
        self.transcript.view = self.app.view
        self.prompt.focus()
        self._letter_due = self.set_interval(self.TYPING or 1, self._act_on_letter, pause=True)
        self.watch(self.transcript, "following", self._draw_title)
        self._draw_notice()
        top = self.query_one("#top", SplitLine)
        top.least = 26  # for the name of the model
        top.show([(" spec-tui ", "title"), (" " + words.model(self.session), "muted")])
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        """After the first paint: everything that takes time, such as reading what engines there are."""
        if not self.session.client.capabilities.ask:
            self.prompt.placeholder, self.prompt.disabled = NOTHING_TO_ASK, True
            self.transcript.focus()
        self.session.start()
        self.draw_all()
        self._tick()

    # -- drawing --------------------------------------------------------------------------------
    def _tick(self) -> None:
        """A timer of the application: one of this screen would, under another one, have that drawn again each time."""
        if self.is_attached:
            self.app.set_timer(1 / self.pace.frames, self._tick)
            self.pump()

    @property
    def pace(self) -> Pace:
        """How often is drawn now."""
        job = self.session.jobs.at_work
        if job is not None and job.timed:
            return TIMED
        return SHARED if self.session.takes_all_cores else PACE

    def pump(self) -> None:
        """Take what the engine said, for whichever screen asked, and draw what belongs here: text at once, the tree and
        the numbers less often."""
        happened = self.session.pump()
        self._frame, pace = self._frame + 1, self.pace
        if pace is TIMED:
            return
        if happened:
            self._tree_due = self._numbers_due = True
            self._draw_text()
        final = bool(happened - {"text", "progress"})
        if final:
            self._settle(happened)
        if self._tree_due and (final or self._frame % pace.tree == 0):
            self._tree_due = False
            self._draw_tree()
        if self._numbers_due and (final or self._frame % pace.numbers == 0):
            self._numbers_due = False
            self._draw_numbers()
        if "progress" in happened or (self.session.stuck and self._frame % PACE.numbers == 0):
            self._draw_status()
        if self._step_first and self.session.turns:
            self._step_first = False
            self.action_rest()
            self.action_step()
        client = self.session.client
        if client.capabilities.clock and client.clock.playing and self._frame % PACE.numbers == 0:
            self._draw_status()

    def draw_all(self) -> None:
        """Draw everything from the state; an enlarged panel in detail."""
        for panel in self.query(".panel").results(StripPanel):
            panel.detailed = self.has_class("details") or self.has_class(f"max-{panel.id}")
        self._draw_top()
        self._draw_title()
        self._draw_tree()
        self._draw_numbers()
        self._draw_status()
        self._draw_legend()
        self._draw_notice()
        self.transcript.welcome = words.welcome(self.session)

    def _draw_text(self) -> None:
        session, transcript, several = self.session, self.transcript, self.session.several_models
        while len(transcript.blocks) > len(session.turns):
            transcript.drop_last()
        while len(transcript.blocks) < len(session.turns):
            turn = session.turns[len(transcript.blocks)]
            transcript.begin(Block(turn.prompt, words.head(turn, several), turn.run))
            transcript.update_run(turn.run, *words.foot(turn))  # a conversation that was kept is there at once
            self._close(len(transcript.blocks) - 1)
        if session.turns and session.measuring is None and not transcript.blocks[-1].closed:
            turn = session.turns[-1]
            foot, bad = words.foot(turn)
            transcript.update_run(turn.run, foot, bad, words.head(turn, several))
            self._draw_legend()
        transcript.set_heads([words.head(turn, several) for turn in session.turns] if several != self._several else [])
        self._several = several

    def _settle(self, happened: set[SessionChange]) -> None:
        """Something began or ended: put everything right once."""
        self.prompt.stand_still(self.session.takes_all_cores)  # each blink of its cursor is a frame
        if happened & {"began", "ready"}:
            self._message = ""  # it told of what was before
        started = self.session.last.run.started if self.session.last else None
        for event, here in ((self.session.ready, "ready" in happened), (started, "began" in happened)):
            if here and event is not None and event.warnings:
                self._message = on_screen("; ".join(event.warnings))
        if "baseline" in happened and self.transcript.blocks and self.session.turns:
            self._message = self._and_unsaved(words.same_text(self.session))
            self._close(len(self.session.turns) - 1)
        self._put_back(self.session.take_restored())
        if "finished" in happened and len(self.session.turns) - 1 in self.session.same_text:  # recorded with a baseline
            self._close(len(self.session.turns) - 1)
        if happened & {"dead", "failed", "broke", "finished"}:
            last = self.session.last if "finished" in happened else None  # None too where nothing was said
            caveats = self.session.caveats(last.run) if last is not None else []
            self._message = self._and_unsaved(caveats[0].brief if caveats else "")
        if "audited" in happened:
            self._close(self.session.audited)
            run = self.session.turns[self.session.audited].run
            self._message = verdict.sentence(run.audited, run.metrics.bias)
            if run.audited.verdict == "BUG":
                self.transcript.select((self.session.audited, run.audited.at))
        if "stocked" in happened:
            self._message = words.stocked(self.session.datastore_jobs.news(), self.session) or self._message
        if "layers" in happened and (found := self.session.layers) is not None:
            self._message = f"measured the cosines over {found.positions} tokens; nothing was added to the conversation"
        for ended, said in (("unaudited", "the audit was stopped"), ("unmeasured", "the measurement was stopped")):
            if ended in happened:
                self._message = "" if self.session.problem else said  # a problem has a line of its own
        self.draw_all()

    def _and_unsaved(self, said: str) -> str:
        """What is said, after why the conversation could not be kept, if it could not."""
        return "; ".join(filter(None, (self.session.unsaved, said)))

    def _close(self, number: int) -> None:
        """What was measured and found goes below a closed answer."""
        self.transcript.set_foot(number, *words.closing(self.session, number))

    def shown_run(self) -> tuple[RunState, int]:
        """The run and round the panels show: those of the token cursor, else the last."""
        cursor = self.transcript.cursor
        if cursor is not None:
            run = self.session.turns[cursor[0]].run
            return run, max(0, run.tokens[cursor[1]].round)
        if self.session.measures == "baseline":
            return self.session.measuring.run, -1
        return (self.session.last.run if self.session.last else RunState()), -1

    def shown_price(self) -> tuple[RunState, int, CostCurve | None, price.SpeedEstimate | None, RunState | None,
                                   ServedPrice | None]:
        """What the view of the price shows: run, round, t(n), the outlook by the run's own numbers, the baseline, and
        what is known from outside of a model in another program."""
        run, index = self.shown_run()
        ready, settings = self.session.ready, self.session.settings
        baseline = self.session.baseline(run)
        outlook = price.outlook_of(run, ready, settings.chosen(ready), baseline)
        failed = self.session.problem.message if self.session.problem is not None else ""
        job = self.session.jobs.at_work
        pricing = job is not None and isinstance(job.command, MeasurePrice)
        share = (job.progress.done if job.progress else 0.0) if pricing else None
        served = served_price(run, (turn.run for turn in self.session.turns), ready, share, failed)
        return run, index, price.curve(run, ready), outlook, baseline, served

    def _draw_tree(self) -> None:
        self.query_one(TreePanel).show_round(*self.shown_run())

    def _draw_numbers(self) -> None:
        session = self.session
        run, index = self.shown_run()
        baseline, limit = session.baseline(run), session.ready.context_limit if session.ready else None
        if run.started and session.ready and not same_model(run.started.model, session.ready.model):
            limit = None  # another model wrote it
        title = "measuring the baseline" if session.measures == "baseline" else ""
        outlook = price.at_load(run, session.ready, session.settings.chosen(session.ready))
        if self.app.presenter:
            self.query_one(LargeNumbers).show(*words.figures(run, baseline))
        panel = self.query_one(SpeedPanel)
        panel.measures = session.client.capabilities.baseline
        panel.show_run(run, baseline, limit, title, outlook, session.caveats(run))
        lines = self.query_one("#telemetry", Lines)
        if lines.is_on_screen_tree:
            lines.show(*telemetry(run, baseline, limit, lines.size.width, outlook, index))
        self._draw_layers()
        self._draw_title()

    def _draw_top(self) -> None:
        self.query_one("#top", SplitLine).show(*words.top(self.session))

    def _draw_title(self) -> None:
        where = words.where(self.transcript, self.session)
        self.query_one(TitleLine).show([("answer", "title")], [(f"{self.transcript.view} · {where}", "muted")])

    def _draw_status(self) -> None:
        """The status line; and the footer, which takes the time of several frames, only when other keys apply."""
        job, text = self.session.jobs.at_work, self.prompt.text
        if job is not None and job is not self._message_job:
            self._message = ""  # another one began, maybe on another screen
        self._message_job = job
        if slash.is_command(text) and not self._message:
            row = [("   ", "text"), *marks.spans(one_line(slash.describe(text)), "muted")]
        else:
            row = words.status(self.session, self._message, self.size.width)
        status = self.query_one("#status", SplitLine)
        self._long = bool(self._message) and 0 < status.size.width < size(row)
        self._draw_notice()
        status.show(words.status(self.session, "", self.size.width) if self._long else row)
        keys_of = [a.when(on) and a.offered(on) for on in (self, self.transcript) for a in on.actions if a.footer]
        if keys_of != self._keys_of:
            self._keys_of = keys_of
            self.refresh_bindings()

    def _draw_legend(self) -> None:
        self.query_one("#legend", Lines).show(words.legend(self.transcript))

    def _draw_notice(self) -> None:
        """A problem, and what does not fit on the status line; laid out again only for another one."""
        notice, problem = self.query_one("#notice", Static), self.session.problem
        of = (problem, self.session.phase, self._long and self._message)
        if of == self._noticed:
            return
        self._noticed = of
        notice.set_class(problem is not None or self._long, "shown")
        notice.set_class(problem is None, "said")
        said = [*([words.problem(self.session)] if problem is not None else ()),
                *([one_line(self._message)] if self._long else ())]
        notice.update(marked("\n".join(said)))

    def say(self, message: str) -> None:
        """A sentence on the status line, or above the prompt if it does not fit there, until the next one."""
        self._message = message
        self._draw_status()

    # -- what widgets say ------------------------------------------------------------------------
    async def on_prompt_box_sent(self, event: PromptBox.Sent) -> None:
        text = event.text
        if slash.is_command(text):
            await self._command(text)
            return
        self.ask(slash.sent(text), typed=text)

    def on_prompt_box_pasted(self, event: PromptBox.Pasted) -> None:
        """Say at once that a text cannot fit: each of its words is a token or more."""
        limit, text = self.session.ready and self.session.ready.context_limit, self.prompt.text
        if limit is not None and (count := len(text.split())) >= limit:
            self.say(f"The prompt has {count:,} words ({len(text):,} characters), and the model's context holds "
                     f"{limit:,} tokens. The prompt is kept: shorten it, or load a model with a longer context.")

    def ask(self, text: str, typed: str = "") -> bool:
        """Send this; what was typed leaves the box only if it was taken."""
        refused = self.session.send(text)
        if refused:
            self._draw_notice()
            self.say(refused)
            return False
        self.prompt.taken(typed or text)
        self._started()
        return True

    async def _command(self, text: str) -> None:
        try:
            outcome = slash.execute(text, self.session.settings, self.session.ready)
        except SpecError as error:
            self.say(failure(error))
            return
        self.prompt.taken(text)
        self._chosen(outcome.settings, outcome.message)
        if outcome.action:
            await self.run_action(outcome.action)

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        if event.text_area.text or event.text_area.history.redo_stack:  # an undone paste may leave nothing
            self._message = ""
        self._draw_status()

    def on_transcript_selected(self, event: Transcript.Selected) -> None:
        self._draw_tree()
        self._draw_numbers()
        self._draw_status()

    def on_transcript_inspect(self, event: Transcript.Inspect) -> None:
        from spec_tui.tui.screens.inspector import Inspector

        if self.is_active:  # a second click may come before the first one's screen
            self.app.push_screen(Inspector(self.session, event.cursor), self._inspected)

    def _inspected(self, cursor: tuple[int, int] | None) -> None:
        if cursor is not None and cursor[0] < len(self.transcript.blocks):
            self.transcript.select(cursor)

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        self._focused = event.widget
        self.query_one(TitleLine).forget_styles()

    def draw(self) -> None:
        # What another size hides loses the focus. It comes back to where it was, else to the text.
        if self.focused is None and not (self.has_class("-tiny") or self.has_class("-flat")):
            (self._focused if self._focused in self.focus_chain else self.transcript).focus()
        self.draw_all()

    # -- what the keys do -----------------------------------------------------------------------
    def action_stop(self) -> None:
        self.session.cancel()
        if text := self.session.take_restored():
            self._put_back(text)
            self._message = ""
        else:
            self._message = words.stopping(self.session)
        self._draw_status()

    def _put_back(self, prompt: str) -> None:
        """Show a prompt that was not answered, unless another is typed already; up brings it back."""
        if prompt and not self.prompt.text.strip():
            self.prompt.put(slash.typed(prompt))

    @property
    def in_text(self) -> bool:
        """Whether letters are keys: nothing is being typed."""
        return self.focused is not self.prompt

    @property
    def _enlarged(self) -> list[str]:
        return [name for name in self.classes if name.startswith("max-")]

    @property
    def escape_does(self) -> str:
        """What esc does now, always in the same direction: "close" what is open, "stop" what runs, go to the "text"; ""
        for nothing."""
        problem = self.session.problem is not None and self.session.phase == "ready"
        if self.query_one(Choices).display or problem or self._enlarged:
            return "close"
        if self.session.stoppable:
            return "stop"
        if self._long or self.transcript.cursor is not None:
            return "close"
        return "" if self.focused is self.transcript else "text"

    def action_close(self) -> None:
        if self.query_one(Choices).display:
            self.query_one(Choices).show({})
        elif self.session.problem is not None and self.session.phase == "ready":
            self.session.problem = None
        elif self._long:
            self._message = ""
        elif self._enlarged:
            self.remove_class(*self._enlarged)
            self.call_after_refresh(self.draw)
        else:
            self.transcript.action_jump(True)
        self._draw_status()

    def action_text(self) -> None:
        self.set_focus(self.transcript)  # at once: the next letter is a key

    def action_prompt(self) -> None:
        self.remove_class(*(f"max-{name}" for name in PANELS))
        self.set_focus(self.prompt)  # at once: what is typed next is for it

    def action_slash(self) -> None:
        """The letter goes to the prompt too, so that what is typed after it is not taken for keys. A prompt that was
        begun comes back after the command."""
        if slash.is_command(self.prompt.text):
            self.prompt.put("")
        else:
            self.prompt.set_aside()
        self._type("/")

    def action_view(self, view: str = "") -> None:
        """Show the text in this view, else in the next one in turn."""
        self.transcript.set_view(view or marks.next_view(self.transcript.view))
        self.app.choose_view(self.transcript.view)
        self._draw_title()
        self._draw_legend()

    def action_ghosts(self) -> None:
        self.transcript.show_ghosts = not self.transcript.show_ghosts
        self.say("rejected drafts are " + ("shown" if self.transcript.show_ghosts else "hidden"))

    def action_round(self, step: int) -> None:
        self.transcript.action_round(step)

    def action_restart(self) -> None:
        self.session.restart()
        self._message = ""
        self.draw_all()

    def action_again(self) -> None:
        if self.session.restartable:
            self.action_restart()
            return
        if not (refused := self.session.again()):
            self.transcript.drop_last()
        self._started(refused)

    def action_baseline(self) -> None:
        self._started(self.session.measure_baseline())

    def action_audit(self) -> None:
        cursor = self.transcript.cursor
        self._started(self.session.audit(cursor[0] if cursor else None))

    def _started(self, message: str = "") -> None:
        """Something began, or the message says why not."""
        self._message = message
        self._draw_text()
        self.draw_all()

    def action_ask_new(self) -> None:
        """The key: a letter meant for the prompt must not cost the conversation."""
        turns = len(self.session.turns)
        if turns and not self._asked_new:
            self._asked_new = True
            lost = f"forgets {turns} turn{'s' if turns > 1 else ''}"
            does = lost if self.session.entry is None else "starts a new conversation; h lists this one"
            self.say(f"n again {does}; any other key cancels")
        else:
            self._asked_new = False
            self.action_new()

    async def on_key(self, event: Key) -> None:
        if event.key != "n":
            self._asked_new = False
        letter = (event.character or "") if event.is_printable else ""
        if not self.session.client.capabilities.ask or self.focused is self.prompt:
            return
        begun, repeats = self._letter, letter == self._letter
        if not (letter.isalpha() and begun and not repeats):
            await self._act_on_letter()
            begun = ""
        bound = self.active_bindings.get(event.key)
        if begun or (letter.strip() and bound is None):
            event.stop()
            self._letter = ""
            self._type(begun + letter)
        elif letter.isalpha() and self.TYPING:
            event.stop()
            self._letter = letter
            self._letter_due.reset()
            self._letter_due.resume()

    def _type(self, text: str) -> None:
        """What is typed is meant for the prompt: go there with it."""
        self.action_prompt()
        self.prompt.insert(text)

    async def _act_on_letter(self) -> None:
        """Do what the letter that waited means, as no other one followed it."""
        letter, self._letter = self._letter, ""
        self._letter_due.pause()
        if self.app.screen is self and (found := self.active_bindings.get(letter)) is not None:
            await self.app.run_action(found.binding.action, found.node)

    def action_new(self) -> None:
        refused = self.session.new()
        if not refused:
            self.transcript.clear()
            self.prompt.focus()
        self._message = refused or "new conversation"
        self.draw_all()

    def action_panel(self, name: str) -> None:
        """Beside the text: show or hide a panel. In one column: enlarge it, and back."""
        if self.app.presenter:
            self.say(_NO_PANELS)
        elif self.has_class("-narrow"):
            self.remove_class(*(f"max-{other}" for other in PANELS if other != name))
            self.toggle_class(f"max-{name}")
            target = self.query_one(f"#{name}") if self.has_class(f"max-{name}") else self.transcript
            target.focus()
        else:
            self.show_panel(name, self.query_one(f"#{name}").has_class("hidden"))
        self.call_after_refresh(self.draw_all)

    def action_enlarge(self) -> None:
        focused = self.focused.id if self.focused else ""
        if self.app.presenter:
            self.say(_NO_PANELS)
            return
        self.toggle_class(f"max-{focused}" if focused in PANELS else "max-text")
        self.call_after_refresh(self.draw_all)

    def presented(self, on: bool) -> None:
        """Presenting begins or ends, here or on a screen above."""
        self.say(("P ends presenting" if self.in_text else "esc, then P, ends presenting") if on else "")

    def action_details(self) -> None:
        """Everything the panels know, or the first look."""
        self.toggle_class("details")
        unseen = not any(panel.is_on_screen_tree for panel in self.query(".panel").results(StripPanel))
        self.say("panels: " + ("all details" if self.has_class("details") else "the short view")
                 + "; none is shown here, t or s shows one" * unseen)
        self.call_after_refresh(self.draw_all)

    @property
    def word_here(self) -> str:
        cursor = self.transcript.cursor
        if cursor is None or self.focused is not self.transcript:
            return ""
        return word_of(self.session.turns[cursor[0]].run.tokens[cursor[1]].kind)

    @property
    def turn(self) -> Turn | None:
        """The turn under the cursor, else the last."""
        cursor = self.transcript.cursor
        return self.session.turns[cursor[0]] if cursor else self.session.last

    def action_copy(self, marked: bool) -> None:
        from spec_tui.present.token_facts import marked_text

        turn = self.turn
        if turn is None or not turn.answer:
            self.say("Nothing to copy yet.")
            return
        self.app.copy_to_clipboard(marked_text(turn.run) if marked else turn.answer)
        self.say("copied the answer" + (" with corrections marked" if marked else ""))

    def action_copy_text(self) -> None:
        super().action_copy_text()
        nothing = "Nothing was copied: select text in an answer."
        self.say("copied the marked text" if (self.get_selected_text() or "").strip() else nothing)

    def action_export(self) -> None:
        from spec_tui.tui.screens.export import ExportScreen

        answered = self.turn is not None and bool(self.turn.run.tokens)
        self.app.push_screen(ExportScreen(answered), self._export_chosen)

    def _export_chosen(self, form: str | None) -> None:
        if form is not None:
            self.call_after_refresh(self._save, form)  # the dialog shall not be in the picture

    def _save(self, form: str) -> None:
        from spec_tui.tui.screens.export import deliver

        run = self.turn.run if self.turn is not None else RunState()
        self.say(deliver(self.app, form, run, self.session.baseline(run)))

    def action_engine(self) -> None:
        from spec_tui.tui.screens.engine import EngineScreen

        before = self.session.settings

        def chosen(settings: ChatSettings | None) -> None:
            if settings is None:
                return
            now = self.session.settings  # a model may have been loaded meanwhile
            unfit = {*before.datastores} - {*now.datastores}
            left = tuple(name for name in settings.datastores if name not in unfit)
            self._chosen(replace(settings, model=now.model, datastores=left),
                         f"next answer: {find(settings.resolved(self.session.ready)).title}")

        self.app.push_screen(EngineScreen(before, self.session.ready), chosen)

    def action_price(self) -> None:
        from spec_tui.tui.screens.price import PriceScreen

        self.app.push_screen(PriceScreen(self.shown_price, self.session.measure_price))

    def action_explain(self) -> None:
        """Why the answer was faster or slower: the one under the cursor, else the last."""
        from spec_tui.tui.screens.explain import ExplainScreen

        turn = self.turn
        if turn is None or not turn.run.rounds:
            self.say("Nothing to explain yet: ask something first.")
            return
        self.app.push_screen(ExplainScreen(turn.run, self.session.baseline(turn.run)))

    def action_step(self) -> None:
        cursor, turn = self.transcript.cursor, self.turn
        if turn is None or not turn.run.tokens:
            self.say("Nothing to step through yet: ask something first.")
            return
        from spec_tui.tui.screens.step import StepScreen

        self.app.push_screen(StepScreen.of_turn(self.session, turn, cursor[1] if cursor else None))

    def action_learn(self) -> None:
        from spec_tui.tui.screens.lessons import LessonsScreen

        self.app.push_screen(LessonsScreen())

    def action_race(self, paper: str = "") -> None:
        if self.session.busy:
            self.say(self.session.still)
            return
        from spec_tui.tui.screens.race import RaceScreen

        screen = RaceScreen(self.session, before=self._race, paper=paper)
        self._race = screen.controller  # its result outlives the screen
        self.app.push_screen(screen)

    def action_papers(self, name: str = "") -> None:
        self.action_race(name)
        if not self.session.busy and not name:
            self.app.call_after_refresh(self._papers)

    def _papers(self) -> None:
        from spec_tui.tui.screens.race import RaceScreen

        if isinstance(self.app.screen, RaceScreen):
            self.app.screen.action_papers()

    def action_evaluate(self) -> None:
        if self.session.busy:
            self.say(self.session.still)
            return
        from spec_tui.tui.screens.evaluate import EvaluateScreen

        screen = EvaluateScreen(self.session, self._evaluated)

        def left(_: None) -> None:
            self._evaluated = screen.state  # it outlives the screen

        self.app.push_screen(screen, left)

    def action_models(self) -> None:
        if self.session.busy:
            self.say(self.session.still)
            return
        from spec_tui.tui.screens.models import ModelsScreen

        self.app.push_screen(ModelsScreen(self.session), self._models_chosen)

    def _models_chosen(self, chosen: LoadRequest | str | None) -> None:
        from spec_tui.tui.screens.models import DATASTORES

        if chosen == DATASTORES:
            self.action_data()
        elif chosen is not None:
            self._evaluated = None  # its advice is for those models
            self.session.change_models(chosen)
            self._message = ""
            self.draw_all()
            self.refresh_bindings()

    def action_data(self) -> None:
        from spec_tui.tui.screens.data import DataScreen

        self.app.push_screen(DataScreen(self.session), self._data_chosen)

    def _data_chosen(self, settings: ChatSettings | None) -> None:
        if settings is not None:
            names = ", ".join(settings.searched(self.session.ready))
            unknown = self.session.ready is None
            none = f"datastores: {FIT_LATER}" if unknown else "no datastore is searched: press d, then n, to build one"
            self._chosen(settings, f"the next answers search {names}" if names else none)

    def _chosen(self, settings: ChatSettings, message: str) -> None:
        """Other settings for the next answer."""
        self.session.settings = settings
        self.say(message)
        self._draw_top()
        self._draw_numbers()
        self.transcript.welcome = words.welcome(self.session)

    def action_history(self) -> None:
        from spec_tui.tui.screens.history_list import HistoryScreen

        if self.session.busy:
            self.say(self.session.still)
        else:
            self.app.push_screen(
                HistoryScreen(self.session.store, "conversations", self.session.forget), self._continue)

    def action_forget_answers(self, which: str = "") -> None:
        """Say what is kept to draft from, or remove all of it: the engine notices that at its next answer."""
        from engines.methods.shared import past_answers

        kept = past_answers.kept()
        if kept.size and not which:
            self.say(f"/forget all removes {counted(kept.answers, 'past answer')} of {counted(kept.models, 'model')}")
            return
        try:
            past_answers.forget()
        except UsageProblem as problem:
            self.say(failure(problem))
            return
        self.say(f"forgot {counted(kept.answers, 'past answer')}" if kept.size else "no past answers are kept")

    def _continue(self, entry: Entry | None) -> None:
        if entry is None:
            return
        refused = self.session.resume(entry)
        if not refused:
            self.transcript.clear()
            self._draw_text()
            self.prompt.focus()
        self.say(refused or words.continuing(entry))
        self.draw_all()

    def action_showcase(self) -> None:
        from spec_tui.tui.screens.showcase import ShowcaseScreen

        self.app.push_screen(ShowcaseScreen("asks in a new conversation"), self._showcase_chosen)

    def _showcase_chosen(self, choice) -> None:
        if choice is None:
            return
        prompt, send = choice
        if send and self.session.phase == "ready" and not self.session.busy:
            self.action_new()  # it shows what it shall as a first prompt; the dialog says so
        self.prompt.focus()
        if not (send and self.ask(prompt)):
            self.prompt.put(prompt)

    # -- the clock of a recording ---------------------------------------------------------------
    def action_pause(self) -> None:
        clock = self.session.client.clock
        if clock.over:
            self.action_rewind()
            return
        clock.playing = not clock.playing
        self._clock_changed()

    def action_speed(self, steps: int) -> None:
        self.session.client.clock.faster(steps)
        self._clock_changed()

    def action_one_round(self) -> None:
        self.session.client.clock.playing = False
        self.session.client.step()
        self._clock_changed()

    def action_rest(self) -> None:
        self.session.client.skip()
        self._clock_changed()

    def action_rewind(self) -> None:
        self.session.rewind()
        self.transcript.clear()
        self._clock_changed()

    def _clock_changed(self) -> None:
        self._message = ""
        self.pump()
        self._draw_status()
        self._draw_top()

    # -- panels and layers ----------------------------------------------------------------------
    def _draw_layers(self) -> None:
        """The layers panel; it comes and goes with an engine that drafts with a part of the target."""
        session, (run, _) = self.session, self.shown_run()
        if session.client.capabilities.ask:
            engine, options = session.settings.chosen(session.ready)
        else:
            engine, options = run.started.engine if run.started is not None else "", None
        if drafts_itself(engine) != self._drafts_itself:
            self._drafts_itself = not self._drafts_itself
            self.show_panel("layers", self._drafts_itself)
        self.query_one(LayersPanel).show_look(layers.look(run, session.layers, engine, options, session.baseline(run)))

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
        new, said = layers.with_rule(self.session, name, step)
        self._chosen(new, said) if new is not None else self.say(said)

    def action_measure_layers(self) -> None:
        """The cosines of a prompt, without an answer."""
        self._started(layers.measure(self.session, self.prompt.text))
