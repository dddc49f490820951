"""The price of verification in full: t(n), what each size of draft is expected to bring, what drafting takes."""

from __future__ import annotations

from textwrap import wrap

from engines.cost.curve import CostCurve
from engines.cost.speedup_model import SpeedupModel
from engines.laws import spec_of
from engines.methods import drafts_nothing
from engines.report.run_state import RunState
from spec_tui.present.text import one_line
from spec_tui.present.token_facts import budget_words
from spec_tui.present.token_styles import spans
from spec_tui.tui.price_words import DraftCosts, SpeedEstimate, conclusion, off, seen, share
from spec_tui.tui.widgets import price_rows
from spec_tui.tui.widgets.price_rows import BEST, HERE, PAPER
from spec_tui.tui.widgets.strip_panel import Row, Span, StripPanel, clip, fit, size

BESIDE = 150  # columns from which the two plots stand side by side
NAME, CELL = 18, 7  # columns of the table
_KEY: Row = [(BEST, "good"), (" best  ", "muted"), (PAPER, "accent"), (" as published", "muted")]
_FRESH = "spec-tui price --fresh measures it anew"
BLANK: Row = [("", "text")]
_SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 256)


class PricePanel(StripPanel, can_focus=True):
    """Draws one run's price; ``assumed`` is the acceptance of the what-if, None for the one that was measured."""

    HELP = "What verification costs and whether drafting pays. Left and right assume another acceptance."

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self._run, self._index = RunState(), -1
        self._outlook: SpeedEstimate | None = None
        self._curve: CostCurve | None = None
        self._seen = DraftCosts()
        self._measured: float | None = None
        self._top = 0.0
        self.assumed: float | None = None

    def show_price(
        self, run: RunState, index: int, curve: CostCurve | None, found: SpeedEstimate | None, measured: float | None =
            None
    ) -> None:
        """Show this run and round (-1: the last), t(n), the outlook for its engine or the next one, and how many times
        as fast as the baseline it was measured to be."""
        if run.started is not self._run.started:
            self._top = 0.0
        self._run, self._index, self._curve, self._outlook = run, index, curve, found
        self._seen, self._measured = seen(run.rounds), measured
        self.update_rows()

    def rows(self, width: int, height: int) -> list[Row]:
        found = self._outlook
        law = self._lossy()
        pays = price_rows.break_even(self._run, found, width - size(law), self._measured)
        head: list[Row] = [clip([*law, *pays, ("   " + found.engine if found else "", "muted")], width)]
        if found is None or self._curve is None:
            head += _wrapped(self._why_nothing(), width, 2)
            return [*head, *(self._cost(width, max(1, min(44, height - len(head) - 3))) if self._curve else [])]
        head += _wrapped(conclusion(found, self.assumed), width, 2 if width < BESIDE else 1)
        forecast = found.forecast if self.assumed is None else found.forecast.assuming(self.assumed)
        table, foot = self._table(found, forecast, width), self._costs(found, width, height >= 30)
        gap = [BLANK] if height >= 30 else []
        free = height - len(head) - len(table) - len(foot) - 3 * len(gap)
        return [*head, *gap, *self._plots(found, forecast, width, free, gap), *table, *gap, *foot][:height]

    def _lossy(self) -> Row:
        """The law, marked, of a run that is not lossless: it stands before what such a run gains."""
        started = self._run.started
        if started is None or started.lossless:
            return []
        return [*spans(one_line(spec_of(started.law).label), "text"), ("  ", "text")]

    def _why_nothing(self) -> str:
        started = self._run.started
        if self._curve is not None and started is not None and drafts_nothing(started.engine):
            return "Nothing is drafted here: autoregressive decoding is what the other engines are compared with."
        if self._curve is not None:
            return "What drafting with a part of the target takes is not known yet: the first answer measures it."
        return "t(n) is measured when a model is loaded; of this one it is not known."

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
        self._top = max(self._top, price_rows.cost_top(self._curve, event.verify_seconds if event else 0.0))
        words, style = price_rows.of_curve(self._run.metrics.verify_scale)
        title: list[Span] = [("t(n), ms to verify n rows", "title"), ("   ", "text"), *price_rows.this_round(event),
                             ("   ", "text"), (words, style)]
        room, found, marks = width - price_rows.LABEL, self._outlook, {}
        if found is not None and found.paper is not None:
            marks[price_rows.column_of(1 + found.published.rows * found.paper, room)] = (PAPER, "accent")
        if f is not None and f.chances:
            marks[price_rows.column_of(1 + f.rows * f.best, room)] = (BEST, "good")
        plot = price_rows.cost_plot(self._curve, self._top, width, height, event)
        return [clip(title, width), *plot, price_rows.mark_row(width, marks, _KEY)]

    def _speed(self, found: SpeedEstimate, f: SpeedupModel, width: int, height: int) -> list[Row]:
        if not f.chances:
            title = [("acceptance needed to pay, %", "title"), (f" over {found.unit}s drafted", "text"),
                     ("   none is measured yet: → assumes one", "muted")]
            return [clip(title, width), *price_rows.needed_plot(found, f, width, height)]
        which = ("acceptance as measured", "muted") if self.assumed is None else (
            f"with {share(self.assumed)} acceptance", "warn")
        title = [("expected speed", "title"), (f" over {found.unit}s drafted   ", "text"), which]
        return [clip(title, width), *price_rows.speed_plot(found, f, width, height)]

    # -- numbers ------------------------------------------------------------------------------------
    def _table(self, found: SpeedEstimate, f: SpeedupModel, width: int) -> list[Row]:
        """By size of the draft: what was seen, what a round takes, needs and is expected to make."""
        m, known = self._run.metrics, bool(f.chances)
        tried = m.depth_tried if found.forecast.chances else ()
        sizes = _sizes(f.most, (width - NAME) // CELL, {f.best if known else 1, found.paper or 1})
        judged = [tried[n - 1] if n <= len(tried) else 0 for n in sizes]
        kept = [m.depth_accepted[n - 1] if n <= len(m.depth_accepted) else 0 for n in sizes]
        lines: list[tuple[str, str, list[str]]] = [
            ("accepted there", "text", [share(k / j) if j else "—" for k, j in zip(kept, judged)]),
            ("  of judged", "muted", [str(j) if j else "—" for j in judged]),
            ("ms a round", "text", [f"{f.seconds(n) * 1000:.1f}" for n in sizes]),
            ("needs tokens", "text", [f"{f.needs(n):.2f}" for n in sizes]),
            ("needs acceptance", "text", [_needed(f.acceptance_needed(n)) for n in sizes]),
            ("expected tokens", "text", [f"{f.expected(n):.2f}" if known else "—" for n in sizes]),
            ("expected speed", "strong", [f"×{f.speed_up(n):.2f}" if known else "—" for n in sizes]),
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
        if total := self._seen.judged:
            words.append(f"expected {self._seen.expected / total:.2f} a round, made {self._seen.made / total:.2f}")
        if this := ", ".join(filter(None, budget_words(self._run.rounds[self._index].budget))) if rounds else "":
            words.append(f"{HERE} {this}")
        rows = [("draft   ", self._drafting(found)), ("budget  ", " · ".join(words))]
        if tall:
            points = " · ".join(f"{n}: {seconds * 1000:.1f}" for n, seconds in self._curve.points)
            rows.insert(0, ("t(n)    ", f"{points} ms, measured at load"))
        if (scale := self._run.metrics.verify_scale) and off(scale):
            rows.append(("t(n)    ", f"this run took ×{scale:.2f}: {_FRESH}"))
        return [clip([(name, "text"), (text, "muted")], width) for name, text in rows]

    def _drafting(self, found: SpeedEstimate) -> str:
        rounds = len(self._run.rounds)
        each = self._run.metrics.draft_seconds / rounds * 1000 if rounds else 0.0
        if found.dear is None:
            return "looked up, no model; " + (f"{each:.2f} ms a round" if rounds else "not measured yet")
        dear = f"({share(found.dear)} of the target's)"
        if not self._seen.forwards:
            return f"a forward of the draft model takes {found.forward * 1000:.2f} ms {dear}"
        forwards = f"{self._seen.forwards / rounds:.1f} forwards of {found.forward * 1000:.2f} ms"
        return f"{forwards} {dear}, {each:.2f} ms a round"


def _needed(chance: float | None) -> str:
    return "never" if chance is None else share(chance)


def _sizes(most: int, count: int, always: set[int]) -> list[int]:
    """Sizes for a table with room for so many, ascending; some of them always."""
    wanted = [n for n in (*sorted(always), most, *_SIZES) if 1 <= n <= most]
    return sorted(list(dict.fromkeys(wanted))[: max(1, count)])


def _wrapped(text: str, width: int, count: int) -> list[Row]:
    """A sentence on so many rows, always."""
    lines = wrap(text, max(20, width - 1))[:count]
    return [*[[(line, "text")] for line in lines], *[BLANK] * (count - len(lines))]


def _beside(left: Row, right: Row, half: int) -> Row:
    used = sum(len(text) for text, _ in left)
    return [*left, (" " * (half + 4 - used), "text"), *right]
