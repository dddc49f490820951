"""What the keys of the chat screen do."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding
from textual.events import Key
from textual.screen import Screen

from engines.methods.registry import find
from engines.report.run_state import RunState
from spec_tui.present import token_styles as marks
from spec_tui.tui.screens.layers_actions import PANELS


class ChatActions(Screen):
    """The bindings of the chat and their actions; ``ChatScreen`` adds the widgets and the drawing."""

    _asked_new = False

    BINDINGS: ClassVar = [
        Binding("escape", "stop", "Stop", id="run.stop", tooltip="Stop the answer and keep its text; stop a download"),
        Binding("escape", "back", "Back", id="chat.back", tooltip="Close what is enlarged, drop the cursor, or change "
                "between prompt and text"),
        Binding("v", "view", "View", id="chat.view", tooltip="Colour tokens by outcome, source, confidence, or not"),
        Binding("b", "baseline", "Baseline", id="run.baseline",
                tooltip="Measure the autoregressive rate with the last prompt"),
        Binding("a", "audit", "Audit", id="run.audit",
                tooltip="Check every token of the answer (under the cursor, else the last) against the plain model"),
        # The same by keys that are no letters: after sending the focus is in the prompt.
        Binding("f6", "audit", "Audit", id="run.audit-anywhere", show=False, priority=True, tooltip="As a, in the "
                "prompt too: check the answer"),
        Binding("f7", "baseline", "Baseline", id="run.baseline-anywhere", show=False, priority=True,
                tooltip="As b, in the prompt too: measure the autoregressive rate"),
        Binding("y", "copy(False)", "Copy", id="chat.copy", show=False, tooltip="Copy the answer"),
        Binding("Y", "copy(True)", "Copy marked", id="chat.copy-marked", show=False,
                tooltip="Copy the answer with corrections marked (CriticMarkup)"),
        Binding("ctrl+e,f2", "engine", "Engine", id="chat.engine", key_display="^e", priority=True,
                tooltip="Engine, its options, sampling"),
        Binding("ctrl+o,f3", "showcase", "Showcase", id="chat.showcase", key_display="^o", show=False,
                tooltip="Prompts that show something"),
        Binding("ctrl+r,f4", "again", "Again", id="run.again", key_display="^r", show=False, priority=True,
                tooltip="Ask the last prompt again with the same seed; restart a dead engine"),
        Binding("n", "ask_new", "New", id="chat.new", show=False, tooltip="Start a new conversation (press twice)"),
        Binding("t,f5", "panel('tree')", "Tree", id="chat.tree", show=False, tooltip="Show or hide the draft tree"),
        Binding("s,f8", "panel('speed')", "Speed", id="chat.speed", show=False, tooltip="Show or hide the speed panel"),
        Binding("l", "layers", "Layers", id="chat.layers", show=False, tooltip="Go to the layers that drafting leaves "
                "out, and from there hide them"),
        Binding("p,f10", "price", "Price", id="chat.price", show=False,
                tooltip="What verification costs, and whether drafting pays"),
        Binding("r", "race", "Race", id="chat.race", show=False, tooltip="Engines side by side on one prompt"),
        Binding("full_stop", "step", "Step", id="chat.step", show=False, key_display=".",
                tooltip="Go through the answer phase by phase, from the round of the cursor on"),
        Binding("d", "data", "Data", id="chat.data", show=False,
                tooltip="The datastores: which are searched; build, probe, remove"),
        Binding("m,f9", "enlarge", "Enlarge", id="chat.enlarge", show=False, tooltip="Enlarge the focused panel"),
        Binding("g", "ghosts", "Ghosts", id="chat.ghosts", show=False,
                tooltip="Show or hide rejected drafts behind the text"),
        Binding("i", "prompt", "Prompt", id="chat.prompt", show=False, tooltip="Go to the prompt"),
        Binding("e", "export", "Export", id="chat.export", show=False,
                tooltip="Save the answer as trace, Markdown, web page or recording, or the screen as a picture"),
        Binding("f1,question_mark", "app.help", "Help", id="app.help", key_display="F1", tooltip="All keys"),
    ]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "stop":
            return self.sitting.stoppable
        if action == "back":
            return not self.sitting.stoppable
        return True

    def action_stop(self) -> None:
        self.sitting.cancel()
        if text := self.sitting.take_restored():
            self.prompt.put(text)
            self._message = ""
        else:
            at_work = "stopping the audit" if self.sitting.auditing is not None else "stopping after this round"
            at_work = "" if self.sitting.stock.busy else at_work  # the status line says so itself
            self._message = at_work if self.sitting.busy else "stopping the download"
        self._draw_status()
        self.refresh_bindings()

    def action_back(self) -> None:
        """Undo one thing: a notice, an enlarged panel, the cursor, the focus."""
        enlarged = [name for name in self.classes if name.startswith("max-")]
        if self.sitting.problem is not None and self.sitting.phase == "ready":
            self.sitting.problem = None
            self._draw_notice()
        elif self._long:
            self.say("")
        elif enlarged:
            self.remove_class(*enlarged)
            self.call_after_refresh(self.draw_all)
        elif self.transcript.cursor is not None:
            self.transcript.action_jump(True)
        elif self.focused is self.prompt:
            self.transcript.focus()
        else:
            self.prompt.focus()

    def action_prompt(self) -> None:
        self.remove_class(*(f"max-{name}" for name in PANELS))
        self.prompt.focus()

    def action_view(self) -> None:
        at = marks.VIEWS.index(self.transcript.view)
        self.set_view(marks.VIEWS[(at + 1) % len(marks.VIEWS)])

    def set_view(self, view: str) -> None:
        """Colour the tokens by this."""
        self.transcript.set_view(view)
        self._draw_title()
        self._draw_legend()

    def action_ghosts(self) -> None:
        self.transcript.show_ghosts = not self.transcript.show_ghosts
        self.say("rejected drafts are " + ("shown" if self.transcript.show_ghosts else "hidden"))

    def action_round(self, step: int) -> None:
        self.transcript.action_round(step)

    def action_again(self) -> None:
        if self.sitting.phase in ("dead", "failed"):
            self.sitting.restart()
            self.draw_all()
            return
        if self.sitting.busy:
            self.say(self.sitting.still)
            return
        before = len(self.sitting.turns)
        refused = self.sitting.again()
        if refused:
            self.say(refused)
            return
        if before:
            self.transcript.drop_last()
        self._message = ""
        self._draw_text(set())
        self.draw_all()

    def action_baseline(self) -> None:
        self.say(self.sitting.measure_baseline())
        self.draw_all()
        self.refresh_bindings()

    def action_audit(self) -> None:
        cursor = self.transcript.cursor
        self.say(self.sitting.audit(cursor[0] if cursor else None))
        self.draw_all()
        self.refresh_bindings()

    def action_ask_new(self) -> None:
        """The key: a letter meant for the prompt must not cost the conversation."""
        turns = len(self.sitting.turns)
        if turns and not self._asked_new:
            self._asked_new = True
            self.say(f"n again forgets {turns} turn{'s' if turns > 1 else ''}; any other key keeps them")
        else:
            self._asked_new = False
            self.action_new()

    def on_key(self, event: Key) -> None:
        if event.key != "n":
            self._asked_new = False

    def action_new(self) -> None:
        refused = self.sitting.new()
        if not refused:
            self.transcript.clear()
            self.prompt.focus()
        self._message = refused or "new conversation"
        self.draw_all()

    def action_panel(self, name: str) -> None:
        """Beside the text: show or hide a panel. In one column: enlarge it, and back."""
        if self.has_class("-narrow"):
            self.remove_class(*(f"max-{other}" for other in PANELS if other != name))
            self.toggle_class(f"max-{name}")
            target = self.query_one(f"#{name}") if self.has_class(f"max-{name}") else self.transcript
            target.focus()
        else:
            self.show_panel(name, self.query_one(f"#{name}").has_class("hidden"))
        self.call_after_refresh(self.draw_all)

    def action_enlarge(self) -> None:
        focused = self.focused.id if self.focused else ""
        self.toggle_class(f"max-{focused}" if focused in PANELS else "max-text")
        self.call_after_refresh(self.draw_all)

    def action_copy(self, marked: bool) -> None:
        from spec_tui.tui.copying import marked_text

        cursor = self.transcript.cursor
        turn = self.sitting.turns[cursor[0]] if cursor else self.sitting.last
        if turn is None or not turn.run.text:
            self.say("Nothing to copy yet.")
            return
        self.app.copy_to_clipboard(marked_text(turn.run) if marked else turn.run.text)
        self.say("copied the answer" + (" with corrections marked" if marked else ""))

    def action_export(self) -> None:
        from spec_tui.tui.screens.export import ExportScreen

        run = self._run_to_save()
        self.app.push_screen(ExportScreen(run is not None), self._export_chosen)

    def _run_to_save(self) -> RunState | None:
        """The answer under the cursor, else the last; None before its first token."""
        cursor = self.transcript.cursor
        turn = self.sitting.turns[cursor[0]] if cursor else self.sitting.last
        return turn.run if turn is not None and turn.run.tokens else None

    def _export_chosen(self, form: str | None) -> None:
        if form is not None:
            self.call_after_refresh(self._save, form)  # the dialog shall not be in the picture

    def _save(self, form: str) -> None:
        from spec_tui.tui.copying import save, save_svg
        from spec_tui.tui.screens.export import PICTURE, document

        try:
            if form == PICTURE:
                self.say(f"saved the screen as {save_svg(self.app.export_screenshot(title='spec-tui'))}")
            else:
                self.say(f"saved the answer as {save(*document(self._run_to_save(), form))}")
        except OSError as error:
            self.say(f"could not save it: {error.strerror or error}")

    def action_engine(self) -> None:
        from spec_tui.tui.screens.engine import EngineScreen

        self.app.push_screen(EngineScreen(self.sitting.settings, self.sitting.ready), self._engine_chosen)

    def _engine_chosen(self, settings) -> None:
        if settings is not None:
            self.sitting.settings = settings
            self.say(f"next answer: {find(settings.resolved(self.sitting.ready)).title}")
            self._draw_top()

    def action_price(self) -> None:
        from spec_tui.tui.screens.price import PriceScreen

        self.app.push_screen(PriceScreen(self.shown_price))

    def action_step(self) -> None:
        cursor = self.transcript.cursor
        turn = self.sitting.turns[cursor[0]] if cursor else self.sitting.last
        if turn is None or not turn.run.tokens:
            self.say("Nothing to step through yet: ask something first.")
            return
        from spec_tui.tui.screens.step_live import stepping

        self.app.push_screen(stepping(self.sitting, turn, cursor[1] if cursor else None, self.app.presenter))

    def action_learn(self) -> None:
        from spec_tui.tui.screens.lessons import LessonsScreen

        self.app.push_screen(LessonsScreen())

    def action_race(self) -> None:
        if self.sitting.busy:
            self.say(self.sitting.still)
            return
        from spec_tui.tui.screens.race import RaceScreen

        self.ticking.pause()  # a race takes in what the engine says, and nothing is drawn beside it
        self.app.push_screen(RaceScreen(self.sitting), self._raced)

    def _raced(self, happened) -> None:
        self.ticking.resume()
        self._draw_text(happened)
        self._settle(happened)

    def action_data(self) -> None:
        from spec_tui.tui.screens.data import DataScreen

        self.app.push_screen(DataScreen(self.sitting), self._data_chosen)

    def _data_chosen(self, settings) -> None:
        if settings is not None:
            self.sitting.settings = settings
            self.say(f"next answers search {', '.join(settings.datastores) or 'the datastores that ship'}")
            self._draw_top()

    def action_showcase(self) -> None:
        from spec_tui.tui.screens.showcase import ShowcaseScreen

        self.app.push_screen(ShowcaseScreen(), self._showcase_chosen)

    def _showcase_chosen(self, choice) -> None:
        if choice is None:
            return
        prompt, send = choice
        if send and self.sitting.phase == "ready" and not self.sitting.busy:
            self.action_new()  # it shows what it shall as a first prompt; the dialog says so
        self.prompt.focus()
        if not (send and self.ask(prompt)):
            self.prompt.put(prompt)
