"""What the keys of the race screen do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from textual.app import SystemCommand
from textual.binding import Binding
from textual.screen import Screen

from engines.errors import SpecError
from engines.race.lanes import Lane
from spec_tui.present import token_styles as marks
from spec_tui.present.text import one_line
from spec_tui.tui import race_words
from spec_tui.tui.race_controller import RaceController
from spec_tui.tui.race_setup import RaceSetup
from spec_tui.tui.replay_app import speed_words
from spec_tui.tui.widgets.prompt_box import PromptBox
from spec_tui.tui.widgets.race_lanes import RaceLanes
from spec_tui.tui.widgets.race_table import SORTS


class RaceActions(Screen):
    """The bindings of the race screen and their actions; ``RaceScreen`` adds the widgets and the drawing."""

    contest: RaceController
    message: str
    lane = 0  # that has the focus
    sort = 0
    view = "outcome"
    back = 0

    BINDINGS: ClassVar = [
        Binding("escape", "stop", "Stop", id="race.stop", tooltip="Stop the race; what is complete stays"),
        Binding("escape", "leave", "Back", id="race.leave", tooltip="Leave the prompt, what is enlarged, the "
                "difference; then back to the chat"),
        Binding("enter", "go", "Start", id="race.go", tooltip="Start the race"),
        Binding("enter", "open", "Step", id="race.open", tooltip="Step through the lane's run, round by round"),
        Binding("space", "play", "Play", id="race.play", tooltip="Photo finish: play, hold, play again"),
        Binding("greater_than_sign", "speed(1)", "Faster", id="race.faster", key_display=">", show=False,
                tooltip="Photo finish: twice as fast"),
        Binding("less_than_sign", "speed(-1)", "Slower", id="race.slower", key_display="<", show=False,
                tooltip="Photo finish: half as fast"),
        Binding("end", "skip", "End", id="race.end", show=False, tooltip="Photo finish: to its end"),
        Binding("home", "rewind", "Start", id="race.begin", show=False, tooltip="Photo finish: from the start"),
        Binding("R", "again", "Again", id="race.again", show=False, tooltip="Race again"),
        Binding("a", "add", "Add", id="race.add", show=False, tooltip="Add a lane: an engine with its options"),
        Binding("minus", "remove", "Remove", id="race.remove", key_display="-", show=False,
                tooltip="Take the lane away"),
        Binding("d", "diff", "Diff", id="race.diff", tooltip="To the first token in which two lanes differ; again: the "
                "next pair"),
        Binding("o", "sort", "Sort", id="race.sort", tooltip="Sort the table by the next column"),
        Binding("w", "numbers", "Numbers", id="race.numbers", tooltip="The table alone, and back"),
        Binding("v", "view", "View", id="race.view", show=False,
                tooltip="Colour tokens by outcome, source, confidence, or not"),
        Binding("t", "repeats", "Repeats", id="race.repeats", show=False,
                tooltip="How often each lane runs; 6 give an interval of 95 %"),
        Binding("f", "mode", "Fair or live", id="race.mode", show=False,
                tooltip="Fair draws nothing while a lane runs; live shows lanes as they run, and its numbers are not "
                        "comparable"),
        Binding("i", "prompt", "Prompt", id="race.prompt", show=False, tooltip="Go to the prompt; /lanes a,b,c there "
                "sets all lanes"),
        Binding("ctrl+o,f3", "showcase", "Showcase", id="race.showcase", key_display="^o", show=False,
                tooltip="Prompts that show something"),
        Binding("e", "export", "Export", id="race.export", show=False,
                tooltip="Save numbers (JSON, Markdown, CSV) and a trace of every run in a folder here"),
        Binding("c", "copy", "Copy", id="race.copy", show=False, tooltip="Copy the command line that does the same"),
        Binding("right,down", "focus_lane(1)", "Next lane", id="race.next", show=False, tooltip="The next lane"),
        Binding("left,up", "focus_lane(-1)", "Lane before", id="race.before", show=False, tooltip="The lane before"),
        Binding("pageup", "scroll(1)", "Read back", id="race.up", show=False, tooltip="Earlier lines of the texts"),
        Binding("pagedown", "scroll(-1)", "Read on", id="race.down", show=False, tooltip="Later lines of the texts"),
        Binding("f1,question_mark", "app.help", "Help", id="race.help", key_display="F1", tooltip="All keys"),
        *[Binding(str(digit), f"lane({digit})", str(digit), id=f"race.{digit}", show=False,
                  tooltip="The lane of this number") for digit in range(1, 10)],
    ]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        running, finished = self.contest.running, self.contest.finished
        if action == "stop":
            return running
        if action in ("leave", "go", "again", "add", "remove", "repeats", "mode", "showcase", "export"):
            idle = not running
            return idle and not (finished if action == "go" else action in ("again", "export") and not finished)
        if action in ("open", "play", "speed", "skip", "rewind", "diff", "sort", "numbers"):
            return finished
        return True

    def commands(self) -> Iterable[SystemCommand]:
        """Everything a key does, by name."""
        for binding in RaceActions.BINDINGS:
            action, _, argument = binding.action.partition("(")
            if (not argument or action == "speed") and "." not in action and self.check_action(action, ()):
                name = f"Race: {binding.description.lower()}"
                yield SystemCommand(name, binding.tooltip, self._runner(binding.action))

    def _runner(self, action: str):
        async def run() -> None:
            await self.run_action(action)

        return run

    # -- the race ---------------------------------------------------------------------------------
    def action_go(self) -> None:
        box = self.query_one(PromptBox)
        if box.text.strip():
            self.contest.change(self._with(prompt=box.text))
        refused = self.contest.start()
        if not refused:
            self.set_focus(None)  # no cursor blinks while lanes are timed
            self.remove_class("numbers")
            self.back = 0
            self.draw_race()  # once, before the first lane begins
        self.changed(refused)

    def action_again(self) -> None:
        self.action_go()

    def action_stop(self) -> None:
        self.contest.cancel()
        self.changed()

    def action_leave(self) -> None:
        if isinstance(self.focused, PromptBox):
            self.set_focus(None)
        elif self.has_class("numbers"):
            self.action_numbers()
        elif self.contest.differing is not None:
            while self.contest.next_difference() is not None:
                pass
            self.changed()
        else:
            self.dismiss(self.contest.happened)

    def _with(self, **changes) -> RaceSetup:
        return replace(self.contest.setup, **changes)

    # -- what will run ----------------------------------------------------------------------------
    def action_add(self) -> None:
        from spec_tui.tui.screens.lane import LaneScreen

        sitting = self.contest.sitting
        self.app.push_screen(LaneScreen(sitting.settings, sitting.ready), self._added)

    def _added(self, lane: Lane | None) -> None:
        if lane is not None:
            self.set_up(lambda: self.contest.setup.with_lane(lane), f"lane {len(self.contest.setup.lanes) + 1}: "
                        f"{one_line(lane.label)}")

    def action_remove(self) -> None:
        labels = self.contest.setup.labels
        name = labels[self.lane] if self.lane < len(labels) else ""
        self.set_up(lambda: self.contest.setup.without(self.lane), f"{name} is out of the race")

    def set_up(self, make, said: str) -> None:
        """Take another setup, or say why it cannot be."""
        try:
            self.contest.change(make())
        except SpecError as error:
            said = f"{error.message}: {error.hint}"
        self.lane = min(self.lane, len(self.contest.setup.lanes) - 1)
        self.changed(said)

    def action_repeats(self) -> None:
        self.set_up(self.contest.setup.more_repeats, "")
        count = self.contest.setup.repeats
        enough = "enough for an interval of 95 %" if count >= 6 else "6 give an interval of 95 %"
        self.changed(f"{count} repeat{'s' * (count > 1)}; {enough}")

    def action_mode(self) -> None:
        live = not self.contest.setup.live
        said = ("live: drawing takes time from the lanes, so the numbers will not be comparable" if live else
                "fair: nothing is drawn while a lane runs; then all are shown on one clock")
        self.set_up(lambda: self._with(live=live), said)

    def action_prompt(self) -> None:
        box = self.query_one(PromptBox)
        box.select_all()  # another prompt or /lanes replaces it; an arrow key goes into it
        self.set_focus(box)  # at once: what is typed next is for it

    def action_showcase(self) -> None:
        from spec_tui.tui.screens.showcase import ShowcaseScreen

        self.app.push_screen(ShowcaseScreen(), self._showcase_chosen)

    def _showcase_chosen(self, choice: tuple[str, bool] | None) -> None:
        if choice is None:
            return
        self.query_one(PromptBox).put(choice[0])
        if choice[1]:
            self.action_go()

    # -- the result -------------------------------------------------------------------------------
    def action_open(self) -> None:
        from spec_tui.tui.screens.step import StepScreen

        run = self.contest.run(self.lane)
        if run is None:
            self.say("Nothing of this lane is complete.")
            return
        if self.contest.photo is not None:
            self.contest.photo.playing = False
        self.app.push_screen(StepScreen(self.contest.bout.state(run), self.contest.bout.labels[self.lane]))

    def action_play(self) -> None:
        self.contest.photo.toggle()
        self.changed()

    def action_speed(self, steps: int) -> None:
        self.contest.photo.faster(steps)
        self.changed(f"speed {speed_words(self.contest.photo.speed)}" if self.contest.photo.over else "")

    def action_skip(self) -> None:
        self.contest.photo.skip()
        self.changed()

    def action_rewind(self) -> None:
        self.contest.photo.rewind()
        self.changed()

    def action_diff(self) -> None:
        pair, self.back = self.contest.next_difference(), 0
        if pair is not None:
            self.lane = pair.second
            self.changed(race_words.difference(self.contest, pair))
        else:
            result = self.contest.bout.result
            pairs, lanes = result.pairs, {run.lane for run in result.complete}
            all_same = bool(pairs) and all(found.at is None for found in pairs)
            self.changed("All lanes write the same text, token by token." if all_same else
                         "These were all pairs that differ." if pairs else
                         "No two lanes are complete." if len(lanes) < 2 else
                         "The texts were not compared: the race did not come to its end.")

    def action_sort(self) -> None:
        self.sort = (self.sort + 1) % len(SORTS)
        column = SORTS[self.sort]
        self.changed("in the order of the lanes" if column is None else f"sorted by {column.title}, the best first")

    def action_numbers(self) -> None:
        self.toggle_class("numbers")
        self.call_after_refresh(self.draw)

    def action_view(self) -> None:
        self.view = marks.VIEWS[(marks.VIEWS.index(self.view) + 1) % len(marks.VIEWS)]
        self.changed(f"tokens coloured by {self.view}")

    def action_export(self) -> None:
        from spec_tui.export.race_files import export

        try:
            folder = export(self.contest.bout)
            self.say(f"saved {folder.name}: numbers, and a trace of every run; in {folder.parent}")
        except OSError as error:
            self.say(f"could not save the race: {error.strerror or error}")
        except SpecError as error:
            self.say(f"could not save the race: {error.message}. {error.hint}")

    def action_copy(self) -> None:
        from spec_tui.present.shell_lines import compare_line

        bout, sitting = self.contest.bout, self.contest.sitting
        try:
            asked = bout.asked if bout is not None else self.contest.setup.race(sitting.settings, sitting.ready)
        except SpecError as error:
            self.say(f"{error.message}: {error.hint}")
            return
        self.app.copy_to_clipboard(compare_line(asked, sitting.load_request))
        self.say("copied the command line" + (": it races fairly, as it always does" if asked.live else ""))

    def action_lane(self, number: int) -> None:
        if number <= len(self.contest.setup.lanes):
            self.lane = number - 1
            self.changed(self.message)

    def action_focus_lane(self, step: int) -> None:
        self.lane = (self.lane + step) % max(1, len(self.contest.setup.lanes))
        self.changed(self.message)

    def action_scroll(self, pages: int) -> None:
        lanes = self.query_one(RaceLanes)
        step = max(1, lanes.size.height // 3)
        self.back = max(0, min(self.back + pages * step, lanes.lines - step))
        self.changed(self.message)

    def changed(self, message: str = "") -> None:
        """Something else is to be shown: draw it, with a sentence."""
        raise NotImplementedError

    def say(self, message: str) -> None:
        """A sentence above the keys."""
        raise NotImplementedError

    def draw(self) -> None:
        """Draw what may be drawn now."""
        raise NotImplementedError

    def draw_race(self) -> None:
        """Draw the lanes and their numbers."""
        raise NotImplementedError
