"""What the keys of the step screen do."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from textual.app import SystemCommand
from textual.binding import Binding
from textual.events import Key
from textual.screen import Screen

from spec_tui.present.step.player import SPEEDS, StepPlayer, score
from spec_tui.tui.widgets.step_panels import Explaining

LIGHT = "spec-light"
_NAMES = {"full_stop": ".", "comma": ",", "plus": "+", "minus": "-", "escape": "esc", "left": "←", "right": "→"}


class StepActions(Screen):
    """The bindings of the step screen and their actions; ``StepScreen`` adds the widgets and the drawing."""

    player: StepPlayer
    message: str
    typed: str | None
    pressed = ""

    BINDINGS: ClassVar = [
        Binding("space", "play", "Play", id="step.play", tooltip="Play, pause"),
        Binding("full_stop", "phase(1)", "Phase", id="step.phase", key_display=".", tooltip="The next phase"),
        Binding("comma", "phase(-1)", "Phase before", id="step.phase-back", show=False, key_display=",",
                tooltip="The phase before"),
        Binding("right", "round(1)", "Round", id="step.round", key_display="→", tooltip="The next round"),
        Binding("left", "round(-1)", "Round before", id="step.round-back", show=False, key_display="←",
                tooltip="The round before"),
        Binding("home", "ends(-1)", "Begin", id="step.begin", show=False, tooltip="The beginning"),
        Binding("end", "ends(1)", "End", id="step.end", show=False, tooltip="The end"),
        Binding("plus,equals_sign", "speed(1)", "Faster", id="step.faster", show=False, key_display="+",
                tooltip="Play faster"),
        Binding("minus", "speed(-1)", "Slower", id="step.slower", show=False, key_display="-", tooltip="Play slower"),
        Binding("x", "deeper(True)", "Deeper", id="step.deeper", tooltip="Explain more deeply"),
        Binding("X", "deeper(False)", "Simpler", id="step.simpler", show=False, tooltip="Explain more simply"),
        Binding("pagedown", "scroll(1)", "Read on", id="step.more", show=False, tooltip="The rest of the explanation"),
        Binding("pageup", "scroll(-1)", "Read back", id="step.less", show=False, tooltip="Its beginning"),
        Binding("p", "predict", "Guess", id="step.predict",
                tooltip="Guess how many tokens will be accepted before it is shown; digits answer"),
        Binding("b", "mark", "Bookmark", id="step.mark", show=False,
                tooltip="Set or take away a bookmark at this round"),
        Binding("n", "next_mark(1)", "Next mark", id="step.next-mark", show=False, tooltip="To the next bookmark"),
        Binding("N", "next_mark(-1)", "Mark before", id="step.mark-before", show=False,
                tooltip="To the bookmark before"),
        Binding("g", "type_round", "Go to", id="step.go", show=False, tooltip="Type the number of a round"),
        Binding("P,f", "present", "Present", id="step.present", show=False,
                tooltip="Large, without chrome, light: for a projector"),
        Binding("enter", "enter", "Go", id="step.enter", show=False, tooltip="Go to the round that was typed"),
        Binding("escape", "leave", "Back", id="step.leave", tooltip="Back to where you came from"),
        Binding("f1,question_mark", "app.help", "Help", id="step.help", key_display="F1", show=False,
                tooltip="All keys"),
        *[Binding(str(digit), f"digit({digit})", str(digit), id=f"step.{digit}", show=False,
                  tooltip="A guess, or a digit of the round to go to") for digit in range(10)],
    ]

    def commands(self) -> Iterable[SystemCommand]:
        """What the keys do, by name."""
        for owner in type(self).__mro__:
            for binding in owner.__dict__.get("BINDINGS", ()) if issubclass(owner, StepActions) else ():
                if not binding.key.isdigit() and binding.action not in ("app.help", "enter"):
                    run = partial(self.run_action, binding.action)
                    yield SystemCommand(f"Step: {binding.description.lower()}", binding.tooltip, run)

    def moved(self) -> None:
        """The place changed by hand: forget what was said, and draw."""
        self.message = ""
        self.query_one(Explaining).scrolled = 0
        self.draw()

    def on_key(self, event: Key) -> None:
        name = _NAMES.get(event.key, event.character if event.is_printable else event.key)
        self.pressed = name or event.key
        if self.has_class("presenting"):
            self._draw_said()

    def action_play(self) -> None:
        self.player.playing = not self.player.playing
        self.moved()

    def action_phase(self, step: int) -> None:
        self.player.playing = False
        moved = self.player.forward() if step > 0 else self.player.back()
        self.moved()
        if not moved:
            self.say(self._why_not(step))

    def _why_not(self, step: int) -> str:
        if step < 0:
            return "This is the beginning."
        if self.player.asks:
            return f"How many will be accepted? Press 0 to {self.player.most()}; . again passes."
        if self.player.run.running:
            return "The run goes on: more will come."
        return f"{self._scored()}." if self.player.guesses else "This is the end."

    def _scored(self) -> str:
        """The score, short enough for 80 columns."""
        found = score(self.player.guesses)
        return (f"{found.exact} of {found.count} guesses right, {found.off:.1f} off on average; one number always: "
                f"{found.constant:.0%}")

    def action_round(self, step: int) -> None:
        self.player.playing = False
        self.player.jump(self.player.place.round + step)
        self.moved()

    def action_ends(self, which: int) -> None:
        self.player.playing = False
        if which > 0:
            self.player.end()
        else:
            self.player.home()
        self.moved()
        if which > 0 and self.player.guesses:
            self.say(f"{self._scored()}.")

    def action_speed(self, step: int) -> None:
        self.player.faster(step)
        self.draw()
        self.say(f"speed {SPEEDS[self.player.speed]:g}×")

    def action_deeper(self, deep: bool) -> None:
        self.player.deep = deep
        self.moved()

    def action_scroll(self, step: int) -> None:
        panel = self.query_one(Explaining)
        panel.scrolled += step * max(1, panel.size.height - 3)
        panel.update_rows()

    def action_predict(self) -> None:
        self.player.guessing = not self.player.guessing
        self.moved()
        self.say("Predict is on: before a draft is verified, say how many will be accepted."
                 if self.player.guessing else f"Off: {self._scored()}." if self.player.guesses else
                 "Predict is off.")

    def action_digit(self, digit: int) -> None:
        if self.typed is not None:
            self.typed = (self.typed + str(digit))[:6]
            self._draw_said()
        elif not self.player.guess(digit):
            self.say(self._no_guess(digit))
        else:
            self.moved()

    def _no_guess(self, digit: int) -> str:
        if not self.player.guessing:
            return "p turns guessing on; then digits are guesses. g goes to a round by number."
        if self.player.asks:
            return f"The draft is {self.player.most()} deep: press 0 to {self.player.most()}."
        return "Nothing to guess here: go on with . to the next draft."

    def action_mark(self) -> None:
        there = self.player.mark()
        self.moved()
        self.say(f"bookmark {'set' if there else 'taken away'}; n goes to the next one")

    def action_next_mark(self, step: int) -> None:
        if self.player.next_mark(step):
            self.moved()
        else:
            self.say("No bookmarks: b sets one at this round.")

    def action_type_round(self) -> None:
        self.typed = ""
        self._draw_said()

    def action_enter(self) -> None:
        if self.typed:
            self.player.playing = False
            self.player.jump(int(self.typed))
        self.typed = None
        self.moved()

    def action_leave(self) -> None:
        """Undo one thing: a number half typed, presenter mode; else close."""
        if self.typed is not None:
            self.typed = None
            self._draw_said()
        elif self.has_class("presenting") and not self.begins_presenting:
            self.action_present()
        else:
            self.dismiss(None)

    def action_present(self) -> None:
        """Large, no chrome, light; and back."""
        presenting = not self.has_class("presenting")
        self.set_class(presenting, "presenting")
        if presenting and self.app.theme != LIGHT:
            self._theme_before, self.app.theme = self.app.theme, LIGHT
        elif not presenting and self._theme_before:
            self.app.theme, self._theme_before = self._theme_before, ""
        self.call_after_refresh(self.draw)
