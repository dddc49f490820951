"""Where the time goes: tokens a second over the run, what a round needs to pay and makes, the price of verification,
acceptance by depth, draft against verification."""

from __future__ import annotations

from collections.abc import Callable

from engines.cost.curve import CostCurve
from engines.methods import drafts_nothing
from engines.report.run_state import RunState, rate_now, rates
from spec_tui.present.text import LOSSY, lossy
from spec_tui.present.token_styles import SOURCES, proposer, spans
from spec_tui.session.chat_session import Baseline
from spec_tui.tui.price_words import SpeedEstimate, break_even, style_of
from spec_tui.tui.widgets.price_panel import cost_plot, cost_top, of_curve, this_round
from spec_tui.tui.widgets.strip_panel import Row, Span, StripPanel, clip, fit, gauge, title_row
from spec_tui.tui.widgets.strip_plot import columns, nice_top, spark

DEPTHS = 5  # depths shown where there is little room
# What there is beside the numbers, and in how many rows: the later ones give way first.
STEPS = (
    ("depths", 1), ("price", 5), ("plot", 1), ("depths", DEPTHS + 1), ("plot", 4), ("price", 7), ("plot", 6),
    ("who", len(SOURCES) + 1), ("gains", 5), ("plot", 9), ("price", 10), ("depths", 2 * DEPTHS + 1), ("gains", 8),
)


class SpeedPanel(StripPanel, can_focus=True):
    """The numbers of one run, from the engine's own clock; drawing is not in them."""

    measures = True  # whether b measures a baseline here
    HELP = "Speed of the run by the engine's clock. b measures the autoregressive rate to compare with."

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self._run = RunState()
        self._baseline: Baseline | None = None
        self._limit = 0
        self._title = ""
        self._index = -1
        self._curve: CostCurve | None = None
        self._outlook: SpeedEstimate | None = None
        self._top = self._price_top = 0.0
        self._of: object = None

    def show_run(
        self, run: RunState, baseline: Baseline | None, limit: int | None, title: str = "", *, index: int = -1,
        curve: CostCurve | None = None, outlook: SpeedEstimate | None = None,
    ) -> None:
        """Show this run and round (-1: the last), against that baseline; ``limit`` is the model's context length,
        ``curve`` t(n), ``outlook`` what its engine's drafts may bring."""
        self._run, self._baseline, self._limit, self._title = run, baseline, limit or 0, title
        self._index, self._curve, self._outlook = index, curve, outlook
        if self._of is not run.started:
            self._of, self._top, self._price_top = run.started, 0.0, 0.0
        self.update_rows()

    def rows(self, width: int, height: int) -> list[Row]:
        gap = 1 if height >= 32 else 0
        head, split, totals = self._headline(width), self._split(width), self._totals(width)
        size = _share_out(height - 1 - sum(len(part) + gap for part in (head, split, totals)) + gap, gap)
        draw: dict[str, Callable[[int, int], list[Row]]] = {
            "plot": self._plot, "price": self._price, "gains": self._gains, "depths": self._depths,
            "who": self._sources,
        }
        part = {name: draw[name](width, count) for name, count in size.items()}
        title = self._title or ("this run" if self._run.started else "")
        out: list[Row] = [title_row(width, "speed", title)]
        for rows in (head, part.get("plot"), part.get("price"), part.get("gains"), part.get("depths"), split,
                     part.get("who"), totals):
            if rows:
                out += [*rows, *[[("", "text")]] * gap]
        return out[: len(out) - gap]

    def _headline(self, width: int) -> list[Row]:
        rate = self._run.metrics.tokens_per_second
        row: list[Span] = [(f"{number(rate, 7, 1)}", "strong"), (" tokens/s   ", "text")]
        measured = self._baseline.ratio(self._run) if self._baseline else None
        pays = break_even(self._run, self._outlook, width, measured)
        return [row + speed_up(self._run, self._baseline, self.measures), clip(pays, width), *self._lossy()]

    def _lossy(self) -> list[Row]:
        """The bias of a run that is not lossless."""
        if self._run.started is None or self._run.started.lossless:
            return []
        return [[*spans(lossy(self._run.metrics.bias), "strong"), ("   lossless is 0", "muted")]]

    def _plot(self, width: int, room: int) -> list[Row]:
        series = rates(self._run, max(8, width - 8))
        if room == 1:
            return [[("  rate ", "muted"), (fit(spark(series), width - 8), "bar")]]
        height = room - 1
        base = self._baseline.rate if self._baseline else 0.0
        self._top = max(self._top, nice_top(max([*series, base, 1.0])))
        lines = columns(series, self._top, height) if series else [""] * height
        out: list[Row] = []
        level = height - 1 - int(base / self._top * height) if base else -1
        for y, line in enumerate(lines):
            label = f"{self._top:>5g} ┤" if y == 0 else "      │"
            mark = "┄" if y == level else " "  # where the baseline is
            filled = fit(line, width - 8)
            rest = len(filled) - len(filled.rstrip())
            out.append([(label, "muted"), (filled[: len(filled) - rest], "bar"), (mark * rest, "muted")])
        seconds = f" {self._run.clock[-1]:.1f} s" if self._run.clock else ""
        out.append([("    0 ┼", "muted"), ("─" * max(0, width - 8 - len(seconds)), "rule"), (seconds, "muted")])
        return out

    def _price(self, width: int, room: int) -> list[Row]:
        """t(n) with the forward of the round shown on it."""
        run, curve = self._run, self._curve
        if curve is None:
            return [[("t(n)  ", "text"), ("not measured yet", "muted")], *[[("", "text")]] * (room - 1)]
        event = run.rounds[self._index] if run.rounds else None
        self._price_top = max(self._price_top, cost_top(curve, event.verify_seconds if event else 0.0))
        title: Row = [("t(n), ms ", "text"), *this_round(event), (" ", "text"),
                      of_curve(run.metrics.verify_scale)]
        return [clip(title, width), *cost_plot(curve, self._price_top, width - 1, room - 2, event)]

    def _depths(self, width: int, room: int) -> list[Row]:
        if room < DEPTHS:
            return [self._depths_in_a_row(width)]
        m = self._run.metrics
        shown = min(len(m.depth_tried), max(1, room - 1))
        out: list[Row] = [[("accepted by depth", "text"), ("   kept of tried", "muted")]]
        length = max(6, width - 24)
        for d in range(shown):
            tried, kept = m.depth_tried[d], m.depth_accepted[d] if d < len(m.depth_accepted) else 0
            share = kept / tried if tried else None
            out.append([(f"  {d + 1:>2} ", "muted"), *gauge(share or 0.0, length), (f" {percent(share)}", "text"),
                        (f" {kept:>4}/{tried:<4}", "muted")])
        if not shown:
            out.append([("   nothing drafted", "muted")])
        elif shown < len(m.depth_tried):
            out[-1] = [(f"   … {len(m.depth_tried) - shown + 1} deeper", "muted")]
        return out + [[("", "text")]] * (room - len(out))  # the parts below never move

    def _depths_in_a_row(self, width: int) -> Row:
        m = self._run.metrics
        pairs = zip(m.depth_tried, [*m.depth_accepted, *[0] * len(m.depth_tried)])
        words = "".join(f"{100 * kept / tried:>4.0f}" if tried else "   —" for tried, kept in pairs)
        return [("kept by depth, %", "text"), (fit(words or "  nothing drafted", width - 16), "muted")]

    def _split(self, width: int) -> list[Row]:
        m = self._run.metrics
        total, rounds = m.decode_seconds, m.target_forwards
        per_round = total / rounds * 1000 if rounds else None
        out: list[Row] = [[("time a round", "text"), (f" {number(per_round, 9, 2)} ms", "muted")]]
        length = max(6, width - 27)
        for name, seconds in (("draft", m.draft_seconds), ("verify", m.verify_seconds), ("other", m.other_seconds)):
            share = seconds / total if total else 0.0
            mean = seconds / rounds * 1000 if rounds else None
            out.append([(f"  {name:<7}", "muted"), *gauge(share, length), (f" {number(mean, 7, 2)} ms", "text"),
                        (f" {percent(share if total else None)}", "muted")])
        return out

    def _sources(self, width: int, room: int) -> list[Row]:
        counts = self._run.metrics.sources
        total = sum(counts.values())
        out: list[Row] = [[("who proposed the text", "text")]]
        length = max(6, width - 24)
        for source in SOURCES:
            if count := counts.get(source, 0):
                words = proposer(source, self._run)
                out.append([("  ", "text"), (words, f"by-{source}"), (" " * (15 - len(words)), "text"),
                            *gauge(count / total, length), (f" {percent(count / total)}", "text")])
        return out + [[("", "text")]] * (room - len(out))

    def _gains(self, width: int, room: int) -> list[Row]:
        """Tokens gained by each of the last rounds, one column a round."""
        height = room - 2
        last = [len(r.emitted) for r in self._run.rounds[-(width - 8) :]]
        top = max([*last, 4])
        lines = columns(last, top, height)
        out: list[Row] = [[("tokens gained by round", "text"), (f"   the last {width - 8}", "muted")]]
        for y, line in enumerate(lines):
            label = f"{top:>5} ┤" if y == 0 else "      │"
            out.append([(label, "muted"), (fit(line, width - 8), "accepted")])
        return [*out, [("    0 ┼", "muted"), ("─" * (width - 8), "rule")]]

    def _totals(self, width: int) -> list[Row]:
        m, run = self._run.metrics, self._run
        limit = f"/{self._limit}" if self._limit else ""
        reused = run.prefilled.reused if run.prefilled else 0
        prefill = number(m.prefill_seconds * 1000, 5, 0) if run.prefilled else number(None, 5, 0)
        return [
            [("a forward M", "muted"), (number(m.mean_generated_length, 6, 2), "strong"), ("  kept: nodes", "muted"),
             (percent(m.acceptance_rate), "strong"), ("  path", "muted"), (percent(m.path_acceptance), "strong")],
            [("tokens ", "muted"), (f"{m.new_tokens:>5}", "text"), ("   KV ", "muted"),
             (f"{run.cache_length:>5}{limit}", "text"), ("   reused ", "muted"), (f"{reused:>4}", "text")],
            [("prefill", "muted"), (f"{prefill} ms", "text"), ("   now ", "muted"),
             (f"{number(rate_now(run), 7, 1)} tokens/s", "text")],
        ]


def _share_out(spare: int, gap: int) -> dict[str, int]:
    """Rows for each part, by the order of ``STEPS``; a part takes ``gap`` rows more."""
    size: dict[str, int] = {}
    for name, count in STEPS:
        more = count - size[name] if name in size else count + gap
        if more <= spare:
            size[name], spare = count, spare - more
    return size


def speed_up(run: RunState, baseline: Baseline | None, measures: bool = True) -> list[Span]:
    """The ratio to the autoregressive rate of this sitting, or that there is none, and the key that ``measures``."""
    if run.started is not None and drafts_nothing(run.started.engine):
        return [("this is the baseline", "muted")]
    if baseline is None:
        return [("speed-up not measured  ", "muted"), *([("b", "strong")] if measures else [])]
    return [_ratio(baseline.ratio(run), 5), (f" of {baseline.rate:.1f} autoregressive", "muted")]


def _ratio(ratio: float | None, width: int) -> Span:
    """Times as fast as the baseline; below 1 it is bad news."""
    return "×" + number(ratio, width, 2), "muted" if ratio is None else style_of(ratio)


def number(value: float | None, width: int, digits: int) -> str:
    """A number of fixed width; a dash where there is none."""
    return ("—" if value is None else f"{value:.{digits}f}").rjust(width)


def percent(share: float | None) -> str:
    """A share in five columns."""
    return "   — " if share is None else f"{share * 100:>3.0f} %"


def telemetry(
    run: RunState, baseline: Baseline | None, limit: int | None, width: int, outlook: SpeedEstimate | None = None
) -> list[Row]:
    """The two lines that stand for the panels where there is no room for them."""
    m = run.metrics
    last = run.rounds[-1] if run.rounds else None
    speed = [(f" {number(m.tokens_per_second, 6, 1)}", "strong"), (" t/s ", "muted")]
    measured = baseline.ratio(run) if baseline else None
    ratio = [_ratio(measured, 4)] if baseline else [("×  — ", "muted")]
    line = spark(rates(run, 16)) or " " * 16
    first: Row = [*speed, *ratio, (f" {line} ", "bar"), ("│ accepted ", "muted"), (percent(m.acceptance_rate), "text"),
                  ("  M ", "muted"), (number(m.mean_generated_length, 5, 2), "text"), ("  KV ", "muted"),
                  (f"{run.cache_length}" + (f"/{limit}" if limit else ""), "text")]
    drafted, kept = (len(last.draft.tokens), len(last.path)) if last else (0, 0)
    second = [*_round_or_bias(run)]
    if width >= 78:
        second.append((f"  drafted {drafted:>3}  kept {kept:>2}", "muted"))
    second += [(" │ ", "muted"), *break_even(run, outlook, 0, measured)]
    return [first, second]


def _round_or_bias(run: RunState) -> list[Span]:
    """The round's number; of a lossy run the bias stands in its place, so that no view is without the mark."""
    m = run.metrics
    if run.started is None or run.started.lossless:
        return [(f" round {m.target_forwards:>4}", "text")]
    return [(" ", "text"), *spans(LOSSY, "text"), (f"{number(m.bias, 6, 3)}", "text")]
