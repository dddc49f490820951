"""The price of verification in full: t(n), what each size of draft is expected to bring, what drafting takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from statistics import fmean

from engines.cost.curve import CostCurve
from engines.cost.speedup_model import SpeedupModel
from engines.laws import spec_of
from engines.methods import drafts_nothing
from engines.report.events import Round
from engines.report.run_state import RunState
from spec_tui.present.price_text import BUSY, SpeedEstimate, conclusion, off, percent, why
from spec_tui.present.served_price import ServedPrice
from spec_tui.present.speed_verdict import of_runs
from spec_tui.present.text import one_line
from spec_tui.present.token_facts import budget_words
from spec_tui.present.token_styles import spans
from spec_tui.tui.widgets.strip_panel import BLANK, Row, Span, StripPanel, clip, fit, rows_of
from spec_tui.tui.widgets.strip_plot import columns, nice_top

ROWS = 64  # the end of the axis
HERE, BEST, PAPER = "◆", "★", "P"
LABEL = 7  # columns before a plot
_PLOT = 4  # rows that a plot needs
_TICKS = (1, 8, 16, 32, 48, 64)
_FAR = 2.0  # times the curve's end: a slower forward is an accident and does not flatten the curve

Marks = Mapping[int, Span]
"""Column of a line: the glyph that stands there, and its style."""
BESIDE = 150  # columns from which the two plots stand side by side
NAME, CELL = 22, 7  # columns of the table
_KEY: Row = [(BEST, "good"), (" best  ", "muted"), (PAPER, "accent"), (" as published", "muted")]
_FRESH = "spec-tui price --fresh measures it again"
_SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 256)


class PricePanel(StripPanel, can_focus=True):
    """Draws one run's price; ``assumed`` is the acceptance of the what-if, None for the one that was measured."""

    word_here = "t(n)"

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self._run, self._index = RunState(), -1
        self._outlook: SpeedEstimate | None = None
        self._curve: CostCurve | None = None
        self._baseline: RunState | None = None
        self._served: ServedPrice | None = None
        self._top = 0.0
        self.assumed: float | None = None

    def show_price(
        self, run: RunState, index: int, curve: CostCurve | None, found: SpeedEstimate | None,
        baseline: RunState | None = None, served: ServedPrice | None = None,
    ) -> None:
        """Show this run and round (-1: the last), t(n), the outlook for its engine or the next one, and how fast it was
        against its baseline; of a model in another program, what is known from outside."""
        if run.started is not self._run.started:
            self._top = 0.0
        self._run, self._index, self._curve, self._outlook = run, index, curve, found
        self._baseline, self._served = baseline, served
        self.update_rows()

    def rows(self, width: int, height: int) -> list[Row]:
        found = self._outlook
        speed = of_runs(self._run, self._baseline)
        head: list[Row] = [clip([*self._lossy(), (f"{speed.mark} {speed.words}   ", speed.style),
                                 *why(self._run, self._baseline, found, measures=self._served is None),
                                 ("   " + found.engine if found else "", "muted")], width)]
        if self._served is not None:
            return [*head, *self._from_outside(self._served, width, height - len(head))]
        if found is None or self._curve is None:
            head += _wrapped(self._why_nothing(), width, 2)
            return [*head, *(self._cost(width, max(1, min(44, height - len(head) - 3))) if self._curve else [])]
        head += _wrapped(conclusion(found, self.assumed), width, 2 if width < BESIDE else 1)
        forecast = found.forecast if self.assumed is None else found.forecast.assuming(self.assumed)
        table, foot = self._table(found, forecast, width), self._costs(found, width, height >= 30)
        gap = [BLANK] if height >= 30 else []
        free = height - len(head) - len(table) - len(foot) - 3 * len(gap)
        plots = self._plots(found, forecast, width, free, gap) if free >= _PLOT else []  # the table comes first
        return [*head, *gap, *plots, *table, *gap, *foot][:height]

    def _from_outside(self, served: ServedPrice, width: int, height: int) -> list[Row]:
        """Of a model in another program: t(n) where it was measured, and the times of the rounds that were seen."""
        head = _wrapped(served.of_curve(self._curve is not None), width, 3)
        table: list[Row] = [*_wrapped(served.of_rounds, width, 1 if width >= 80 else 2)]
        if served.seen and not served.messages:
            most = sorted(served.seen, key=lambda found: -found.count)[: (width - NAME) // CELL]
            shown = [found for found in served.seen if found in most]
            lines = (("tokens verified", "strong", ["?" if found.rows is None else f"{found.rows}" for found in shown]),
                     ("ms per round, median", "text", [f"{found.seconds * 1000:.1f}" for found in shown]),
                     ("  of rounds", "muted", [f"{found.count}" for found in shown]))
            table += [[(fit(name, NAME), "muted"), *[(f"{text:>{CELL}}", style) for text in texts]]
                      for name, style, texts in lines]
        room = height - len(head) - len(table) - 5
        plot = self._cost(width, min(44, room)) if self._curve is not None and room >= 1 else []
        return [*head, *plot, *[BLANK] * (1 if room >= 1 else 0), *table][:height]

    def _lossy(self) -> Row:
        """The law, marked, of a run that is not lossless: it stands before what such a run gains."""
        started = self._run.started
        if started is None or not started.lossy:
            return []
        return [*spans(one_line(spec_of(started.law).label), "text"), ("  ", "text")]

    def _why_nothing(self) -> str:
        started = self._run.started
        if self._curve is not None and started is not None and drafts_nothing(started.engine):
            return "Autoregressive decoding drafts nothing: it is the baseline of all other engines."
        if self._curve is not None:
            return "How long drafting with a part of the target takes is not known yet: the first answer measures it."
        return "The cost of a pass, t(n), is measured when a model is loaded; for this one it is not known."

    @property
    def titled_focus(self) -> bool:
        return False  # nothing else here could have it

    # -- plots --------------------------------------------------------------------------------------
    def _plots(self, found: SpeedEstimate, f: SpeedupModel, width: int, free: int, gap: list[Row]) -> list[Row]:
        """Both plots where they fit, else t(n) alone."""
        if width >= BESIDE:
            half = (width - 4) // 2
            height = max(2, min(44, free - 3 - len(gap)))
            pairs = zip(self._cost(half, height, f), self._speed(found, f, half, height))
            return [*[_beside(left, right, half) for left, right in pairs], *gap]
        spare = free - 6 - 2 * len(gap)
        if spare < 5:
            return [*self._cost(width, max(1, free - 3 - len(gap)), f), *gap]
        low = spare // 2
        return [*self._cost(width, spare - low, f), *gap, *self._speed(found, f, width, low), *gap]

    def _cost(self, width: int, height: int, f: SpeedupModel | None = None) -> list[Row]:
        """t(n) as measured, the round shown, and below the axis what is best and what is published."""
        event = self._run.rounds[self._index] if self._run.rounds else None
        self._top = max(self._top, cost_top(self._curve, (event.verify_seconds or 0.0) if event else 0.0))
        asked = ("measured when asked", "muted")
        words, style = asked if self._served is not None else of_curve(self._run.metrics.verify_scale)
        title: list[Span] = [("cost of a pass, t(n), ms", "title"), ("   ", "text"), *this_round(event),
                             ("   ", "text"), (words, style)]
        room, found, marks = width - LABEL, self._outlook, {}
        if found is not None and found.paper is not None:
            marks[column_of(1 + found.published.rows * found.paper, room)] = (PAPER, "accent")
        if f is not None and f.chances:
            marks[column_of(1 + f.rows * f.best, room)] = (BEST, "good")
        plot = cost_plot(self._curve, self._top, width, height, event)
        return [clip(title, width), *plot, mark_row(width, marks, _KEY)]

    def _speed(self, found: SpeedEstimate, f: SpeedupModel, width: int, height: int) -> list[Row]:
        if not f.chances:
            title = [("break-even acceptance, %", "title"), (f" by {found.unit}s drafted", "text"),
                     ("   not measured yet: → assumes an acceptance", "muted")]
            return [clip(title, width), *needed_plot(found, f, width, height)]
        which = ("acceptance as measured", "muted") if self.assumed is None else (
            f"with {percent(self.assumed)} acceptance", "warn")
        title = [("forecast speed-up", "title"), (f" by {found.unit}s drafted   ", "text"), which]
        return [clip(title, width), *speed_plot(found, f, width, height)]

    # -- numbers ------------------------------------------------------------------------------------
    def _table(self, found: SpeedEstimate, f: SpeedupModel, width: int) -> list[Row]:
        """By size of the draft: what was seen, what a round takes, needs and is expected to make."""
        m, known = self._run.metrics, bool(f.chances)
        tried = m.depth_tried if found.forecast.chances else ()
        sizes = _sizes(f.most, (width - NAME) // CELL, {f.best if known else 1, found.paper or 1})
        judged = [tried[n - 1] if n <= len(tried) else 0 for n in sizes]
        kept = [m.depth_accepted[n - 1] if n <= len(m.depth_accepted) else 0 for n in sizes]
        lines: list[tuple[str, str, list[str]]] = [
            ("acceptance", "text", [percent(k / j) if j else "—" for k, j in zip(kept, judged)]),
            ("  of tokens judged", "muted", [str(j) if j else "—" for j in judged]),
            ("ms per round", "text", [f"{f.seconds(n) * 1000:.1f}" for n in sizes]),
            ("break-even tokens", "text", [f"{f.needs(n):.2f}" for n in sizes]),
            ("break-even acceptance", "text", [_needed(f.acceptance_needed(n)) for n in sizes]),
            ("forecast tokens", "text", [f"{f.expected(n):.2f}" if known else "—" for n in sizes]),
            ("forecast speed-up", "strong", [f"{f.speed_up(n):.2f}x" if known else "—" for n in sizes]),
        ]
        head: list[Span] = [(fit(f"{found.unit}s drafted", NAME), "title")]
        for n in sizes:
            mark, style = (BEST, "good") if known and n == f.best else (PAPER if n == found.paper else "", "accent")
            head += [(f"{mark:>{CELL - len(str(n))}}", style), (str(n), "strong")]
        return [head, *[[(fit(name, NAME), "muted"), *[(f"{text:>{CELL}}", style) for text in texts]]
                        for name, style, texts in lines]]

    def _costs(self, found: SpeedEstimate, width: int, tall: bool) -> list[Row]:
        """What drafting takes, and what the budget did."""
        rounds, started = len(self._run.rounds), self._run.started
        budget = str(started.options.get("budget", "")) if started is not None else ""
        other = "no run yet" if started is None else "none: the exit threshold ends a draft"
        words = [{"auto": "auto", "paper": "as published or set"}.get(budget, other)]
        if judged := [event for event in self._run.rounds if event.budget is not None]:
            some = f"{len(judged)} of {rounds} rounds: " if len(judged) < rounds else ""  # others had nothing to size
            words.append(f"{some}expected {fmean(event.budget.expected for event in judged):.2f} tokens per round, got "
                         f"{fmean(len(event.emitted) for event in judged):.2f}")
        if this := ", ".join(filter(None, budget_words(self._run.rounds[self._index].budget))) if rounds else "":
            words.append(f"{HERE} {this}")
        rows = [("draft   ", self._drafting(found)), ("budget  ", " · ".join(words))]
        if tall:
            points = " · ".join(f"{n}: {seconds * 1000:.1f}" for n, seconds in self._curve.points)
            rows.insert(0, ("t(n)    ", f"{points} ms, measured at load"))
        if (scale := self._run.metrics.verify_scale) and off(scale):
            rows.append(("t(n)    ", f"this run took {scale:.2f}x that: {_FRESH}"))
        elif self._curve.busy:
            rows.append(("t(n)    ", f"{_FRESH}: {BUSY}"))
        return [clip([(name, "text"), (text, "muted")], width) for name, text in rows]

    def _drafting(self, found: SpeedEstimate) -> str:
        rounds = len(self._run.rounds)
        took, forwards = self._run.metrics.draft_seconds, self._run.metrics.draft_forwards
        each = "not measured yet" if not rounds or took is None else f"{took / rounds * 1000:.2f} ms per round"
        if found.dear is None:
            return f"looked up, without a model; {each}"
        dear = f"({percent(found.dear)} of the target's)"
        if not forwards:
            return f"a pass of the draft model takes {found.forward * 1000:.2f} ms {dear}"
        return f"{forwards / rounds:.1f} passes of {found.forward * 1000:.2f} ms {dear}, {each}"


def _needed(chance: float | None) -> str:
    return "never" if chance is None else percent(chance)


def _sizes(most: int, count: int, always: set[int]) -> list[int]:
    """Sizes for a table with room for so many, ascending; some of them always."""
    wanted = [n for n in (*sorted(always), most, *_SIZES) if 1 <= n <= most]
    return sorted(list(dict.fromkeys(wanted))[: max(1, count)])


def _wrapped(text: str, width: int, count: int) -> list[Row]:
    """A sentence on so many rows, always."""
    rows = rows_of(text, max(20, width - 1))[:count]
    return [*rows, *[BLANK] * (count - len(rows))]


def _beside(left: Row, right: Row, half: int) -> Row:
    used = sum(len(text) for text, _ in left)
    return [*left, (" " * (half + 4 - used), "text"), *right]


def of_curve(scale: float | None) -> Span:
    """How a run's verification compares with t(n)."""
    if scale is None:
        return "measured at load", "muted"
    return f"this run: {scale:.2f} times t(n)", "warn" if off(scale) else "muted"


def this_round(event: Round | None) -> list[Span]:
    """The round shown, as it stands in the plot; columns that don't move."""
    if event is None or event.verify_seconds is None:
        return []
    rows = 1 + len(event.draft.tokens)
    return [(HERE, "accent"), (f"{rows:>3} row{'s' if rows > 1 else ' '}", "text"),
            (f"{event.verify_seconds * 1000:>8.1f} ms", "strong")]


def cost_top(curve: CostCurve, seconds: float = 0.0) -> float:
    """Where the axis of a plot of t(n) ends, in ms: above the curve, and the forward if it is no accident."""
    end = curve.at(ROWS) * 1000
    return nice_top(max(end, min(seconds * 1000, _FAR * end)))


def cost_plot(
    curve: CostCurve, top: float, width: int, height: int, event: Round | None = None
) -> list[Row]:
    """t(n) in ms over 1..64 rows, both axes linear, from zero; the forward of a round on it. An axis more than
    ``height`` rows."""
    room = width - LABEL
    at, marks = -1, {}
    if event is not None and event.verify_seconds is not None:
        took = event.verify_seconds * 1000
        at = height - 1 - min(int(took / top * height), height - 1)
        marks = {column_of(1 + len(event.draft.tokens), room): (HERE if took <= top else "▲", "accent")}
    out: list[Row] = []
    for y, line in enumerate(_curve(curve, top, room, height)):
        label = f"{top:>5g} ┤" if y == 0 else "      │"
        out.append([(label, "muted"), *overlay(line, "bar", marks if y == at else {})])
    return [*out, [("    0 ┼", "muted"), (_axis(room), "muted")]]


@lru_cache(maxsize=8)
def _curve(curve: CostCurve, top: float, width: int, height: int) -> tuple[str, ...]:
    per = (ROWS - 1) / max(1, width - 1)
    return tuple(columns([curve.at(1 + x * per) * 1000 for x in range(width)], top, height))


@lru_cache(maxsize=8)
def _axis(width: int) -> str:
    line = ["─"] * width
    for tick in _TICKS:
        start = min(max(0, column_of(tick, width) - len(str(tick)) // 2), width - len(str(tick)))
        if tick in (1, ROWS) or all(c == "─" for c in line[max(0, start - 2) : start + 4]):
            line[start : start + len(str(tick))] = str(tick)
    return "".join(line)


def column_of(rows: float, width: int) -> int:
    """The column of so many rows on an axis of this width."""
    return round((min(rows, ROWS) - 1) / (ROWS - 1) * (width - 1))


def overlay(line: str, style: str, marks: Marks) -> list[Span]:
    """A line in this style with glyphs in others on it."""
    out: list[Span] = []
    begin = 0
    for column in sorted(marks):
        out += [(line[begin:column], style), marks[column]]
        begin = column + 1
    return [*out, (line[begin:], style)]


def mark_row(width: int, marks: Marks, key: Row = ()) -> Row:
    """The row below an axis: glyphs at their columns, and at the end what they mean, where that is free."""
    room, size = width - LABEL, sum(len(text) for text, _ in key)
    if not marks or max(marks) > room - size - 3:
        key, size = (), 0
    return [(" " * LABEL, "text"), *overlay(" " * (room - size), "text", marks), *key]


def speed_plot(found: SpeedEstimate, forecast: SpeedupModel, width: int, height: int) -> list[Row]:
    """Expected tokens a second, as a multiple of drafting nothing, by the size of the draft; what is faster stands out.
    Two rows more than ``height``: the axis, and below it what is best and what is published."""
    speeds = [forecast.speed_up(depth) for depth in range(forecast.most + 1)]
    bars, top = [(speed, "good" if speed > 1 + 1e-9 else "bar") for speed in speeds], nice_top(max(speeds))
    return _size_plot(bars, top, width, height, 1.0, {found.paper: (PAPER, "accent"), forecast.best: (BEST, "good")})


def needed_plot(found: SpeedEstimate, forecast: SpeedupModel, width: int, height: int) -> list[Row]:
    """The acceptance in percent from which drafts of a size are faster, in the same frame; what never is stands out."""
    needed = [forecast.acceptance_needed(depth) for depth in range(forecast.most + 1)]
    bars = [(100.0, "bad") if share is None else (share * 100, "bar") for share in needed]
    return _size_plot(bars, 100.0, width, height, None, {found.paper: (PAPER, "accent")})


def _size_plot(
    bars: Sequence[tuple[float, str]], top: float, width: int, height: int, level: float | None,
    below: Mapping[int | None, Span],
) -> list[Row]:
    """Bars (value, style) over the sizes of a draft from 0, with a line at a level; what stands below which size."""
    room = width - LABEL
    step = max(1, min(8, room // len(bars)))
    bars = bars[: room // step]
    line = height - 1 - int(level / top * height) if level else -1
    out: list[Row] = []
    for y, cells in enumerate(columns([value for value, _ in bars], top, height)):
        label = f"{top:>5g} ┤" if y == 0 else f"{level:>5g} ┤" if y == line else "      │"
        blank = "┄" if y == line else " "
        row: list[Span] = [(label, "muted")]
        for cell, (_, style) in zip(cells, bars):
            body = max(1, step - 1)
            row += [(blank * body, "muted") if cell == " " else (cell * body, style), (blank * (step - body), "muted")]
        out.append([*row, (blank * (room - step * len(bars)), "muted")])
    marks = {best_column(size, step): mark for size, mark in below.items() if size is not None and size < len(bars)}
    return [*out, [("    0 ┼", "muted"), (_size_axis(len(bars), step, room), "muted")], mark_row(width, marks)]


def best_column(depth: int, step: int) -> int:
    """The middle of a size's bar."""
    return depth * step + max(0, step - 2) // 2


def _size_axis(count: int, step: int, width: int) -> str:
    """The axis of a plot over sizes: as many of them as can be read."""
    line = ["─"] * width
    every = next(n for n in (1, 2, 4, 5, 8, 10, 16, 32, 64, 128, 256) if n * step >= 4 or n * step >= count)
    for depth in range(0, count, every):
        start = best_column(depth, step)
        line[start : start + len(str(depth))] = str(depth)
    return fit("".join(line), width)
