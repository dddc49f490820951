"""The panels of the step screen; each draws what a ``StepPlayer`` is at."""

from __future__ import annotations

from textwrap import wrap

from textual.events import Click
from textual.message import Message

from engines.report.wording import counted
from spec_tui.present.step.explain import explain
from spec_tui.present.step.phases import StepPosition, event_of, phases_of, title_of
from spec_tui.present.step.player import MOST, StepPlayer, score
from spec_tui.present.token_styles import spans
from spec_tui.tui.widgets import step_rows
from spec_tui.tui.widgets.strip_panel import Row, Span, StripPanel, clip, fit, size, title_row
from spec_tui.tui.widgets.strip_plot import columns
from spec_tui.tui.widgets.tree_panel import tree_rows

BLANK: Row = [("", "text")]
_TEXT_ROWS = ((26, 12), (16, 5), (0, 2))  # from so many rows on, rows of the text above what happens


class StepPanel(StripPanel):
    """A panel that follows a player; ``airy`` is set in presenter mode."""

    player: StepPlayer | None = None
    airy = False

    def follow(self, player: StepPlayer) -> None:
        """Draw this player's place."""
        self.player = player
        self.update_rows()

    def rows(self, width: int, height: int) -> list[Row]:
        if self.player is None:
            return []
        return [clip(row, width) for row in self.draw(self.player, width, height)]

    def draw(self, player: StepPlayer, width: int, height: int) -> list[Row]:
        """The rows."""
        raise NotImplementedError

    @property
    def titled_focus(self) -> bool:
        return False


class PhaseBar(StepPanel):
    """The phases of this round, the present one marked."""

    def draw(self, player: StepPlayer, width: int, height: int) -> list[Row]:
        row = self._bar(player, named=True)
        return [row if size(row) <= width else self._bar(player, named=False)]

    @staticmethod
    def _bar(player: StepPlayer, named: bool) -> Row:
        row: list[Span] = [(" ", "text")]
        for number, phase in enumerate(phases := phases_of(player.run, player.place.round), 1):
            here, place = phase == player.place.phase, StepPosition(player.place.round, phase)
            hidden = player.hides and phases.index(player.place.phase) < number - 1
            name = phase.capitalize() if hidden else title_of(player.run, place)
            label = f"{number} {name}" if named or here else str(number)
            row.append((f" {label} ", "title-here" if here else "muted"))
            row.append(("›" if number < len(phases) else " ", "rule"))
        return row


class Doing(StepPanel):
    """The text so far, and what the machine does with it in this phase."""

    def draw(self, player: StepPlayer, width: int, height: int) -> list[Row]:
        run, place = player.run, player.place
        high = height >= 16
        head = [] if self.airy else [title_row(width, "what the machine is doing", self._state(player))]
        lines = next(lines for rows, lines in _TEXT_ROWS if height >= rows)
        text = step_rows.text(run, place, width, lines)
        gap = [BLANK] if high else []
        room = height - len(head) - len(text) - len(gap)
        return [*head, *text, *gap, *step_rows.body(run, place, width, max(1, room))]

    @staticmethod
    def _state(player: StepPlayer) -> str:
        event = event_of(player.run, player.place.round)
        if event is None:
            return "prefill"
        rows = 1 + len(event.draft.tokens)
        return f"{rows} row{'s' if rows > 1 else ''}"


class Explaining(StepPanel):
    """Why, in words; the question where a guess is asked for. ``offset`` rows are scrolled away."""

    scrolled = 0

    def draw(self, player: StepPlayer, width: int, height: int) -> list[Row]:
        told = explain(player.run, player.place, player.deep)
        level = "deeper" if player.deep else "student"
        head = [title_row(width, f"explanation: {told.title.lower()}", level)]
        if self.airy:
            head = [[(told.title, "title")], BLANK]
        question = self._question(player, width)
        lines: list[Row] = []
        for paragraph in told.paragraphs:
            gap = [BLANK] if lines and (height >= 14 or self.airy) else []
            lines += [*gap, *[spans(line, "text") for line in wrap(paragraph, max(20, width - 1))]]
        foot = [[(line, "muted")] for line in wrap(f"→ {told.reference}", max(20, width - 1))] if told.reference else []
        lines += [*([BLANK] if height >= 14 else []), *foot]
        room = max(1, height - len(head) - len(question))
        self.scrolled = max(0, min(self.scrolled, len(lines) - room))
        shown = lines[self.scrolled : self.scrolled + room]
        if len(lines) - self.scrolled > room:
            shown[-1] = [("… page down for the rest", "muted")]
        return [*head, *question, *shown]

    @staticmethod
    def _question(player: StepPlayer, width: int) -> list[Row]:
        guess = player.guessed(player.place.round)
        if player.asks:
            most = player.most()
            more = " or more" if most == MOST else ""
            words = f"? Predict: how many will be accepted? press 0 to {most}{more}"
            return [[(line, "warn")] for line in wrap(words, max(20, width - 1))]
        if guess is None or player.hides:
            return []
        right = guess.said == guess.came
        return [[("✓ " if right else "✗ ", "good" if right else "bad"),
                 (f"you said {guess.said}, {guess.came} {'was' if guess.came == 1 else 'were'} accepted", "strong")]]


class StepTree(StepPanel):
    """The draft tree of the round; what became of it is drawn when it is decided."""

    def draw(self, player: StepPlayer, width: int, height: int) -> list[Row]:
        event = event_of(player.run, player.place.round)
        if event is None:
            return [title_row(width, "draft tree", "prefill"), [("nothing is drafted before the first token", "muted")]]
        judged = player.place.phase in ("accept", "correct", "keep")
        head = title_row(width, "draft tree", f"{len(event.draft.tokens)} drafted" + (
            f", {len(event.path)} accepted" if judged else ""))
        return [head, *tree_rows(event, player.run, player.place.round - 1, width, max(1, height - 1), judged)]


class SoFar(StepPanel):
    """The numbers of the run up to this round, and how the guesses came true."""

    def draw(self, player: StepPlayer, width: int, height: int) -> list[Row]:
        number = player.place.round
        m = player.run.until(number if player.place.phase == "keep" else number - 1).metrics
        rows: list[Row] = [title_row(width, "so far", f"after {counted(m.target_forwards, 'round')}")]
        rows.append([(fit("tokens", 12), "muted"), (f"{m.new_tokens}", "text")])
        accepted = "—" if m.acceptance_rate is None else f"{m.accepted} of {m.drafted}, {m.acceptance_rate:.0%}"
        rows.append([(fit("accepted", 12), "muted"), (accepted, "text")])
        made = "—" if m.mean_generated_length is None else f"{m.mean_generated_length:.2f} tokens a forward"
        rows.append([(fit("M", 12), "muted"), (made, "text")])
        rate = "—" if m.tokens_per_second is None else f"{m.tokens_per_second:.1f}"
        rows.append([(fit("tokens/s", 12), "muted"), (rate, "text")])
        return [*rows, *(calibration(player, width) if height >= 8 else [])]


def calibration(player: StepPlayer, width: int) -> list[Row]:
    """How the guesses came true: for each number said what came on average."""
    found = score(player.guesses)
    if not found.count:
        return [[(fit("guesses", 12), "muted"), ("p asks for them", "muted")]] if not player.guessing else []
    rows: list[Row] = [[(fit("guesses", 12), "muted"), (f"{found.exact} of {found.count} right", "strong"),
                        (f", {found.off:.1f} off on average", "text")],
                       [(fit("", 12), "text"), (f"always the same number: {found.constant:.0%} at best", "muted")]]
    for said, (count, came) in found.table.items():
        rows.append([(fit(f"said {said}", 12), "muted"), (f"×{count}", "muted"), (f"  came {came:.1f} ", "text"),
                     ("▪" * round(came), "bar")])
    return rows


class Timeline(StepPanel):
    """The rounds as columns, as high as the tokens that each gained; a click goes there."""

    class Picked(Message):
        """A round was clicked."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def draw(self, player: StepPlayer, width: int, height: int) -> list[Row]:
        rounds, here = player.run.rounds, player.place.round
        bars = max(1, height - 3)
        first = self.first(player, width)
        last = min(len(rounds), first + width - 1)
        known = here - player.hides  # of a round that is guessed nothing is told
        gained = [len(rounds[n - 1].emitted) if n <= known or not player.guessing else 0
                  for n in range(first, last + 1)]
        top = max([1, *gained]) if player.guessing else max((len(event.emitted) for event in rounds), default=1)
        head = title_row(width, "rounds: height is tokens gained", f"at most {top}")
        rows: list[Row] = [] if self.airy else [head]
        for line in columns(gained, top, bars + self.airy):
            now = here - first
            rows.append([(line[:now], "bar"), (line[now : now + 1], "accent"), (line[now + 1 :], "muted")]
                        if now >= 0 else [(line, "muted")])
        marks = "".join("▲" if n == here else "◆" if n in player.bookmarks else " " for n in range(first, last + 1))
        rows.append([(marks, "accent")])
        rows.append(self._foot(player, width))
        return rows

    def first(self, player: StepPlayer, width: int) -> int:
        """The round in the first column: all fit, or the present one stands in the middle."""
        count = len(player.run.rounds)
        if count <= width:
            return 1
        return max(1, min(player.place.round - width // 2, count - width + 1))

    @staticmethod
    def _foot(player: StepPlayer, width: int) -> Row:
        event = event_of(player.run, player.place.round)
        if event is None:
            words = "prefill"
        elif player.hides:
            words = f"round {player.place.round}: drafted {len(event.draft.tokens)}"
        else:
            words = (f"round {player.place.round}: drafted {len(event.draft.tokens)}, accepted {len(event.path)}, "
                     f"gained {len(event.emitted)}")
        marks = ", ".join(str(n) for n in player.bookmarks)
        return [(words, "text"), (f"   bookmarks ◆ {marks}" if marks else "   b sets a bookmark", "muted")]

    def on_click(self, event: Click) -> None:
        if self.player is not None:
            number = self.first(self.player, self.size.width) + event.x
            if 1 <= number <= self.player.rounds:
                self.post_message(self.Picked(number))
