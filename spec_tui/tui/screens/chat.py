"""The chat: transcript, prompt, the draft tree and the numbers of the run beside it."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widgets import Footer, Static, TextArea

from engines.cost.curve import CostCurve
from engines.errors import SpecError
from engines.report.events import Started
from engines.report.run_state import RunState
from spec_tui.present import audit_words as verdict
from spec_tui.present import token_styles as marks
from spec_tui.present.text import one_line
from spec_tui.tui import chat_words as words
from spec_tui.tui import price_words as price
from spec_tui.tui import slash
from spec_tui.tui.chat_session import ChatSession, Happening
from spec_tui.tui.screens.chat_actions import ChatActions
from spec_tui.tui.screens.layers_actions import LayersActions
from spec_tui.tui.widgets.layers_panel import LayersPanel
from spec_tui.tui.widgets.lines import Lines, Sides, size
from spec_tui.tui.widgets.pane import Divider, Pane
from spec_tui.tui.widgets.prompt_box import PromptBox
from spec_tui.tui.widgets.speed_panel import SpeedPanel, telemetry
from spec_tui.tui.widgets.strip_panel import title_row
from spec_tui.tui.widgets.transcript import Block, Transcript
from spec_tui.tui.widgets.tree_panel import TreePanel

FRAMES = 20  # text, a second: a frame costs what it draws around the text, and the engine may need the core
TREE_EVERY, NUMBERS_EVERY = 2, 5  # frames: the tree 10 times a second, numbers 4 times


class ChatScreen(ChatActions, LayersActions, Screen):
    """Draws a ``ChatSession`` and hands it what is typed."""

    def __init__(self, sitting: ChatSession) -> None:
        super().__init__()
        self.sitting = sitting
        self._message = ""
        self._long = False  # the message does not fit on the status line
        self._noticed: tuple = ()
        self._frame = 0
        self._keys_of: bool | None = None  # whether there was something to stop when keys were last looked up
        self._downloading = False
        self._tree_due = self._numbers_due = False
        self._at_load = price.AtLoad()

    # -- building -------------------------------------------------------------------------------
    def compose(self) -> ComposeResult:
        yield Sides(id="top")
        with Pane(id="body"):
            with Pane(id="left"):
                yield Sides(id="answer-title")
                yield Transcript(id="transcript")
            yield Divider(id="divider")
            with Pane(id="stack"):
                with Pane(id="forest"):
                    yield TreePanel(id="tree")
                    yield LayersPanel(id="layers", classes="hidden")
                yield Divider(id="divider-2")
                yield SpeedPanel(id="speed")
        yield Lines(id="legend")
        yield Lines(id="telemetry")
        yield Static("", id="notice", markup=False)
        with Horizontal(id="ask"):
            yield Static("›", id="mark", markup=False)
            yield PromptBox(self._complete, id="prompt", placeholder="Ask something, or press ctrl+o for a showcase")
        yield Sides(id="status")
        yield Footer()
        yield Static(words.TOO_SMALL, id="enlarge", markup=False)

    def on_mount(self) -> None:
        self.transcript = self.query_one(Transcript)
        self.prompt = self.query_one(PromptBox)
        self.query_one("#answer-title", Sides).heads = "transcript"
        self.prompt.focus()
        self._draw_title()
        self._draw_notice()
        self.query_one("#top", Sides).show([(" spec-tui ", "title"), (" " + words.model(self.sitting), "muted")])
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        """After the first paint: everything that takes time, such as reading what engines there are."""
        self.sitting.start()
        self.draw_all()
        self.ticking = self.set_interval(1 / FRAMES, self.pump)

    def render_lines(self, crop: Region) -> list[Strip]:
        """The background, without the detour over a style cache: it lies under everything and is asked each frame."""
        return [Strip.blank(crop.width, self.rich_style)] * crop.height

    # -- drawing --------------------------------------------------------------------------------
    def pump(self) -> None:
        """Take what the engine said and draw it: text at once, the tree and the numbers less often."""
        happened = self.sitting.pump()
        self._frame += 1
        if happened:
            self._tree_due = self._numbers_due = True
            self._draw_text(happened)
        final = bool(happened - {"text", "loading", "auditing", "building"})
        if final:
            self._settle(happened)
        if self._tree_due and (final or self._frame % TREE_EVERY == 0):
            self._tree_due = False
            self._draw_tree()
        if self._numbers_due and (final or self._frame % NUMBERS_EVERY == 0):
            self._numbers_due = False
            self._draw_numbers()
        if happened & {"loading", "auditing", "building"}:
            self._draw_status()
        if self.sitting.downloading != self._downloading:
            self._downloading = self.sitting.downloading
            self.refresh_bindings()

    def draw_all(self) -> None:
        """Draw everything from the state."""
        self._draw_top()
        self._draw_title()
        self._draw_tree()
        self._draw_numbers()
        self._draw_status()
        self._draw_legend()
        self._draw_notice()
        self.transcript.welcome = words.welcome(self.sitting)

    def _draw_text(self, happened: set[Happening]) -> None:
        sitting, transcript = self.sitting, self.transcript
        while len(transcript.blocks) > len(sitting.turns):
            transcript.drop_last()
        while len(transcript.blocks) < len(sitting.turns):
            turn = sitting.turns[len(transcript.blocks)]
            transcript.begin(Block(turn.prompt, words.head(turn), turn.run))
        if sitting.turns and sitting.measuring is None and not transcript.blocks[-1].closed:
            turn = sitting.turns[-1]
            foot, bad = words.foot(turn)
            transcript.update_run(turn.run, foot, bad, words.head(turn))
            self._draw_legend()

    def _settle(self, happened: set[Happening]) -> None:
        """Something began or ended: put everything right once."""
        if "baseline" in happened and self.transcript.blocks and self.sitting.turns:
            self._message = words.same_text(self.sitting)
            self._put_foot(len(self.sitting.turns) - 1)
        if "began" in happened:
            self._message = ""  # what was said while the model loaded
        for event, here in ((self.sitting.ready, "ready" in happened), (self._started(), "began" in happened)):
            if here and event is not None and event.warnings:
                self._message = "; ".join(event.warnings)
        text = self.sitting.take_restored()
        if text and not self.prompt.text.strip():
            self.prompt.put(text)
        if happened & {"dead", "failed", "broke", "finished"}:
            self._message = ""
        if "audited" in happened:
            self._show_verdict(self.sitting.audited)
        if "stocked" in happened:
            self._message = words.stocked(self.sitting.stock.news()) or self._message
        if "layers" in happened:
            self._message = self.layers_measured()
        if "unaudited" in happened:
            self._message = "" if self.sitting.problem else "the audit was stopped"
        self.draw_all()
        if self.sitting.stoppable != self._keys_of:
            self.refresh_bindings()

    def refresh_bindings(self) -> None:
        """Ask anew which keys there are: the footer is built again, in the time of several frames."""
        self._keys_of = self.sitting.stoppable  # all that ``check_action`` asks
        super().refresh_bindings()

    def _put_foot(self, number: int) -> None:
        """What was measured and found goes below a closed answer."""
        self.transcript.set_foot(number, *words.closing(self.sitting, number))

    def _show_verdict(self, number: int) -> None:
        """Badge, sentence, and on a BUG the cursor on its token."""
        found = self.sitting.turns[number].run.audited
        self._put_foot(number)
        self._message = verdict.sentence(found, self.sitting.turns[number].run.metrics.bias)
        if found.verdict == "BUG":
            self.transcript.select((number, found.at))

    def _started(self) -> Started | None:
        return self.sitting.last.run.started if self.sitting.last else None

    def shown_run(self) -> tuple[RunState, int]:
        """The run and round the panels show: those of the token cursor, else the last."""
        cursor = self.transcript.cursor
        if cursor is not None:
            run = self.sitting.turns[cursor[0]].run
            return run, max(0, run.tokens[cursor[1]].round)
        if self.sitting.measures == "the baseline":
            return self.sitting.measuring.run, -1
        return (self.sitting.last.run if self.sitting.last else RunState()), -1

    def shown_price(self) -> tuple[RunState, int, CostCurve | None, price.SpeedEstimate | None, float | None]:
        """What the view of the price shows: run, round, t(n), the outlook by the run's own numbers, the speed-up
        measured."""
        run, index = self.shown_run()
        ready, settings = self.sitting.ready, self.sitting.settings
        baseline = self.sitting.baseline(run)
        measured = baseline.ratio(run) if baseline else None
        return run, index, price.curve(run, ready), price.outlook_of(run, ready, settings), measured

    def _draw_tree(self) -> None:
        self.query_one(TreePanel).show_round(*self.shown_run())

    def _draw_numbers(self) -> None:
        sitting = self.sitting
        run, index = self.shown_run()
        baseline, limit = sitting.baseline(run), sitting.ready.context_limit if sitting.ready else None
        title = "measuring the baseline" if sitting.measures == "the baseline" else ""
        outlook = self._at_load(run, sitting.ready, sitting.settings)
        self.query_one(SpeedPanel).show_run(
            run, baseline, limit, title, index=index, curve=price.curve(run, sitting.ready), outlook=outlook)
        lines = self.query_one("#telemetry", Lines)
        if lines.is_on_screen_tree:
            lines.show(*telemetry(run, baseline, limit, lines.size.width, outlook))
        self._draw_layers()
        self._draw_title()

    def _draw_top(self) -> None:
        left = [(" spec-tui ", "title"), (" " + words.model(self.sitting), "muted")]
        right = marks.spans(one_line(self.sitting.settings.summary(self.sitting.ready)) + " ", "text")
        self.query_one("#top", Sides).show(left, right)

    def _draw_title(self) -> None:
        where, width = words.where(self.transcript, self.sitting), self.query_one("#answer-title").size.width
        self.query_one("#answer-title", Sides).show(
            title_row(width, "answer", f"{self.transcript.view} · {where}") if width else [])

    def _draw_status(self) -> None:
        text = self.prompt.text
        if slash.is_command(text) and not self._message:
            row = [("   ", "text"), *marks.spans(one_line(slash.describe(text)), "muted")]
        else:
            row = words.status(self.sitting, self._message)
        status = self.query_one("#status", Sides)
        self._long = bool(self._message) and 0 < status.size.width < size(row)
        self._draw_notice()
        status.show(words.status(self.sitting, "") if self._long and self.sitting.problem is None else row)

    def _draw_legend(self) -> None:
        self.query_one("#legend", Lines).show(words.legend(self.transcript, self.sitting.answering))

    def _draw_notice(self) -> None:
        """A problem, else what does not fit on the status line; laid out again only for another one."""
        notice, problem = self.query_one("#notice", Static), self.sitting.problem
        of = (problem, self.sitting.phase, self._long and self._message)
        if of == self._noticed:
            return
        self._noticed = of
        notice.set_class(problem is not None or self._long, "shown")
        notice.set_class(problem is None, "said")
        if problem is not None:
            notice.update(words.problem(self.sitting))
        elif self._long:
            notice.update(marks.marked(one_line(self._message)))

    def say(self, message: str) -> None:
        """A sentence on the status line, or above the prompt if it does not fit there, until the next one."""
        self._message = message
        self._draw_status()

    # -- what widgets say ------------------------------------------------------------------------
    def on_prompt_box_sent(self, event: PromptBox.Sent) -> None:
        text = event.text
        if slash.is_command(text):
            self._command(text)
            return
        self.ask(text[1:] if text.startswith("//") else text, typed=text)

    def ask(self, text: str, typed: str = "") -> bool:
        """Send this; what was typed leaves the box only if it was taken."""
        refused = self.sitting.send(text)
        if refused:
            self._draw_notice()
            self.say(refused)
            return False
        self.prompt.taken(typed or text)
        self._message = ""
        self._draw_text(set())
        self.draw_all()
        self.refresh_bindings()
        return True

    def _command(self, text: str) -> None:
        try:
            outcome = slash.execute(text, self.sitting.settings, self.sitting.ready)
        except SpecError as error:
            self.say(f"{error.message}: {error.hint}")
            return
        self.prompt.taken(text)
        self.sitting.settings = outcome.settings
        self.say(outcome.message)
        self._draw_top()
        self._draw_numbers()
        actions = {
            "new": self.action_new, "again": self.action_again, "baseline": self.action_baseline,
            "audit": self.action_audit, "price": self.action_price, "data": self.action_data,
            "layers": self.action_layers, "step": self.action_step, "race": self.action_race,
            "learn": self.action_learn,
            "showcase": self.action_showcase, "help": self.app.action_help, "quit": self.app.exit,
        }
        if outcome.action == "view":
            self.set_view(outcome.argument)
        elif outcome.action:
            actions[outcome.action]()

    def _complete(self, text: str) -> list[str]:
        return slash.complete(text, self.sitting.settings, self.sitting.ready)

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        if event.text_area.text:
            self._message = ""
        self._draw_status()

    def on_token_cursor_selected(self, event: Transcript.Selected) -> None:
        self._draw_tree()
        self._draw_numbers()

    def on_token_cursor_inspect(self, event: Transcript.Inspect) -> None:
        from spec_tui.tui.screens.inspector import Inspector

        self.app.push_screen(Inspector(self.sitting, event.cursor), self._inspected)

    def _inspected(self, cursor: tuple[int, int] | None) -> None:
        if cursor is not None and cursor[0] < len(self.transcript.blocks):
            self.transcript.select(cursor)

    def on_descendant_focus(self) -> None:
        self.query_one("#answer-title", Sides).forget_ink()

    def on_resize(self) -> None:
        self.call_after_refresh(self._resized)

    def on_screen_resume(self) -> None:
        self.call_after_refresh(self.draw_all)

    def _resized(self) -> None:
        # While the screen was too small everything was hidden, and what is hidden loses the focus: letters typed for
        # the prompt would then be keys.
        if self.focused is None and not (self.has_class("-tiny") or self.has_class("-flat")):
            self.prompt.focus()
        self.draw_all()
