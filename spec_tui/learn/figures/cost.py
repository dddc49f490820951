"""Figures of what passes and drafts cost, and of what they bring."""

from __future__ import annotations

from statistics import fmean

from engines.cost.curve import CostCurve
from engines.cost.overlap import forecasts
from engines.cost.speedup_model import SpeedupModel
from engines.report.events import Round, Started
from engines.report.guess_ranks import guess_ranks
from engines.report.run_state import RunState
from engines.report.wording import counted, ms, seconds_of
from spec_tui.learn.figures.base import LessonFigure, Runs, told
from spec_tui.learn.lesson_facts import FLAT
from spec_tui.present.rows import Row, bar
from spec_tui.present.text import in_column, one_line
from spec_tui.present.token_styles import HERE


class CostFigure(LessonFigure):
    """t(n): a part that all rows share, and a part for each row."""

    title = "t(n): the time of a forward pass over n rows"
    moves = "n"

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        self.curve = CostCurve(run.started.price)
        self.sizes = [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= max(16, self.curve.points[-1][0])]
        self.count, self.at = len(self.sizes), 3

    def rows(self, width: int, height: int) -> list[Row]:
        one, top = self.curve.at(1), self.curve.at(self.sizes[-1])
        measured = {n for n, _ in self.curve.points}
        room = max(8, width - 44)
        out: list[Row] = []
        for number, n in enumerate(self.sizes):
            seconds = self.curve.at(n)
            here, bent = number == self.at, seconds > FLAT * one
            out.append([(f"{HERE if here else ' '}{counted(n, 'row'):>8} ", "strong" if here else "text"),
                        (f"{bar(seconds / top, room):<{room}}", "accent" if bent else "bar"),
                        (f" {'' if n in measured else '~ '}{ms(seconds)}".rjust(12), "strong" if here else "muted"),
                        (f" {seconds / one:>5.2f} × t(1)", "strong" if here else "muted")])
        n = self.sizes[self.at]
        times = self.curve.at(n) / one
        between = " ~ is interpolated." if set(self.sizes) - measured else ""
        return [*out, *told(width, f"t({n}) = {times:.2f} × t(1).",
                            f"{counted(n, 'single pass')}: {n} × t(1).{between}")]


class BreakEvenFigure(LessonFigure):
    """What drafts of each length bring at an acceptance that the reader moves, and where they break even."""

    title = "expected speed-up by the length of the draft; the line is 1x"
    moves = "the chance that a drafted token is accepted, once those before it were"
    direction = 1

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        draft = CostCurve(run.started.draft_price).at(1) if run.started.draft_price else 0.0
        self.model = SpeedupModel(CostCurve(run.started.price), first=draft, each=draft)
        self.recorded = run.metrics.chance_accepted
        chance = 0.5 if self.recorded is None else self.recorded
        self._chances = sorted({*(n / 20 for n in range(21)), chance})
        self.count, self.at = len(self._chances), self._chances.index(chance)

    @property
    def chance(self) -> float:
        """The one that is assumed."""
        return self._chances[self.at]

    def rows(self, width: int, height: int) -> list[Row]:
        model, room = self.model.assuming(self.chance), max(12, width - 42)
        lengths = (1, 2, 3, 4, 6, 8, 12)[: max(2, height - 3)]
        top = max(2.0, *(model.speed_up(k) for k in lengths))
        line = round(room / top)
        out: list[Row] = [[(f"{'length':>6}{'gives':>8}{'needs':>8}  ", "title"),
                           (f"{'speed-up':<{line}}│ 1.00x", "title")]]
        for k in lengths:
            gain = model.speed_up(k)
            drawn = f"{bar(gain / top, room):<{room}}"
            out.append([(f"{k:>6}{model.expected(k):>8.2f}{model.needs(k):>8.2f}  ", "text"),
                        (drawn[:line], "bar"), ("│", "accent"), (drawn[line + 1 :], "good" if gain > 1 else "bar"),
                        (f" {gain:.2f}x", "good" if gain > 1 else "bad")])
        least = model.pays_from
        words = ("No length pays at any chance." if least is None else
                 f"At a chance above {least:.2f} drafts of some length pay.")
        words += " gives and needs are tokens per round; needs is break-even."
        chance = f"chance = {self.chance:.2f}{', as in this run' * (self.chance == self.recorded)}."
        return [*out, *told(width, chance, words)]


class BatchFigure(LessonFigure):
    """What the rounds of a run would cost where several such answers are written at the same time: a pass has the rows
    of all of them."""

    title = "the rounds of this run, for b answers at the same time"
    moves = "b, the answers that share a pass"
    _BATCHES = (1, 2, 4, 8, 16, 32)
    count = len(_BATCHES)

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        self.curve, self.draft = CostCurve(run.started.price), CostCurve(run.started.draft_price)
        self.gained = run.metrics.mean_generated_length

    def seconds(self, answers: int) -> float:
        """The time of a round on average: its draft, and a pass over b(n+1) rows."""
        m = self.run.metrics
        verifying = m.priced_by(self.curve.of_requests(answers))
        return (m.draft_forwards * self.draft.at(answers) + verifying) / len(self.run.rounds)

    def needs(self, answers: int) -> float:
        """Break-even: the tokens that each answer has to gain in a round."""
        return self.seconds(answers) / self.curve.at(answers)

    def rows(self, width: int, height: int) -> list[Row]:
        each = 1 + fmean(len(event.draft.tokens) for event in self.run.rounds)
        most = 1 + max(len(event.draft.tokens) for event in self.run.rounds)
        end, room = self.curve.points[-1][0], max(4, width - 60)
        line = round(room * self.gained / self.needs(self._BATCHES[-1]))
        heads = f"{'b':>5}{'rows b(n+1)':>13}{'plain t(b)':>12}{'a round':>12}{'break-even':>12}  "
        out: list[Row] = [[(heads, "title"), (f"{'M':>{line}}│", "title")]]
        for number, b in enumerate(self._BATCHES):
            needed, here = self.needs(b), number == self.at
            plain, took = ("~ " * (rows > end) + ms(seconds) for rows, seconds in
                           ((b, self.curve.at(b)), (b * most, self.seconds(b))))
            drawn = f"{bar(needed / self.needs(self._BATCHES[-1]), room):<{room}}"
            out.append([(f"{HERE if here else ' '}{b:>4}{b * each:>13.1f}{plain:>12}{took:>12}"
                         f"{needed:>12.2f}  ", "strong" if here else "text"),
                        (drawn[:line], "bar"), ("│", "accent"), (drawn[line + 1 :], "bad")])
        b = self._BATCHES[self.at]
        verdict = "pays" if self.needs(b) < self.gained else "does not pay"
        return [*out, *told(width, f"b = {b}: drafting {verdict}: a round gained M = {self.gained:.2f}.",
                            f"~ is beyond {end} measured rows.")]

    def still(self, width: int, height: int) -> list[Row]:
        drafted = fmean(len(event.draft.tokens) for event in self.run.rounds)
        paying = [b for b in self._BATCHES if self.needs(b) < self.gained]
        limit = f"Of these b drafting pays up to {max(paying)}." if paying else "Drafting pays for none of these b."
        return [*self.rows(width, height),
                *told(width, limit, f"The bar is break-even, the line M; n is {drafted:.1f} on average.")]


class OverlapFigure(LessonFigure):
    """What a run would gain if its draft model drafted the next round while the target verifies."""

    title = "a forecast: drafting while the target verifies, each on a machine of its own"
    moves = "F, the contexts that are prepared"

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        price, step = CostCurve(run.started.price), CostCurve(run.started.draft_price).at(1)
        self.found = forecasts(guess_ranks(run.rounds), price, step)
        self.count = len(self.found)

    def rows(self, width: int, height: int) -> list[Row]:
        room, top = max(4, width - 66), max(2.0, *(one.speed_up for one in self.found))
        heads = f"{'F':>5}{'best length':>13}{'next was ready':>16}{'x taking turns':>16}{'x no drafts':>13}"
        out: list[Row] = [[(heads, "title")]]
        for number, one in enumerate(self.found):
            here = number == self.at
            out.append([(f"{HERE if here else ' '}{one.prepared:>4}{one.length:>13}{one.hits / one.rounds:>16.0%}"
                         f"{one.gain:>15.2f}x{one.speed_up:>12.2f}x  ", "strong" if here else "text"),
                        (bar(one.speed_up / top, room), "good" if one.speed_up > 1 else "bad")])
        one = self.found[self.at]
        ready = f"F = {one.prepared}: after {one.hits} of {one.rounds} rounds the next draft was ready."
        return [*out, *told(width, ready)]


def _label(started: Started) -> str:
    return f"{started.engine} tree" if started.options.get("shape") == "tree" else started.engine


class RaceFigure(LessonFigure):
    """Recorded runs on one clock."""

    moves = "the time"
    of_run = False
    draws = "to the end"
    verb = "End"

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        self.title = f"recorded runs of {one_line(run.started.model, 30)} on one clock"
        asked = run.started.conversation, run.started.model
        self.lanes = [other for other in runs.values() if (other.started.conversation, other.started.model) == asked]
        whole = [sum(map(seconds_of, lane.rounds)) for lane in self.lanes]
        self.longest, self.shortest = max(whole), min(whole)
        self.time = 0.0

    def move(self, step: int) -> None:
        self.time = max(0.0, min(self.longest, self.time + step * self.longest / 10))

    def draw(self) -> None:
        self.time = self.longest

    def still(self, width: int, height: int) -> list[Row]:
        self.time = self.shortest  # at the end all bars are full
        return self.rows(width, height)

    def rows(self, width: int, height: int) -> list[Row]:
        room = max(8, width - 60)
        most = max(len(lane.tokens) for lane in self.lanes)
        out: list[Row] = [[(f"{'':<16}{'tokens a round':>15}{'ms a round':>12}{'tokens/s':>10}  ", "title"),
                           (f"tokens after {self.time:.2f} s", "title")]]
        for lane in self.lanes:
            spent, tokens = 0.0, 1
            for event in lane.rounds:
                spent += seconds_of(event)
                if spent > self.time:
                    break
                tokens += len(event.emitted)
            m, whole = lane.metrics, sum(map(seconds_of, lane.rounds))
            out.append([(in_column(_label(lane.started), 16), "text"),
                        (f"{m.mean_generated_length or 0:>15.2f}{1000 * whole / len(lane.rounds):>12.1f}", "text"),
                        (f"{(len(lane.tokens) - 1) / whole:>10.1f}  ", "strong"),
                        (f"{bar(tokens / most, room):<{room}}", "bar"), (f" {tokens}", "text")])
        words = ("The bar shows one moment and includes the first token; earlier rounds may have been faster or slower "
                 "than later ones.")
        whole_run = "tokens/s covers the whole run without its first token."
        notes = told(width, whole_run, words)
        return [*out, *(notes if len(out) + len(notes) <= height else told(width, whole_run))]
