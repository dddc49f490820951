"""Where the time goes: tokens a second over the run, acceptance by depth, draft against verification."""

from __future__ import annotations

from spec_tui.session.state import RunState, rate_now, rates
from spec_tui.text import LOSSY, lossy
from spec_tui.tui.marks import SOURCES, spans
from spec_tui.tui.sitting import Baseline
from spec_tui.tui.widgets.strip_panel import Row, Span, StripPanel, bar, fit, title_row
from spec_tui.tui.widgets.strip_plot import columns, nice_top, spark

DEPTHS = 5  # depths shown where there is little room


class SpeedPanel(StripPanel, can_focus=True):
    """The numbers of one run, from the engine's own clock; drawing is not in them."""

    HELP = "Speed of the run by the engine's clock. b measures the autoregressive rate to compare with."

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self._run = RunState()
        self._baseline: Baseline | None = None
        self._limit = 0
        self._title = ""
        self._top = 0.0
        self._of: object = None

    def show_run(self, run: RunState, baseline: Baseline | None, limit: int | None, title: str = "") -> None:
        """Show this run, against that baseline; ``limit`` is the model's context length."""
        self._run, self._baseline, self._limit, self._title = run, baseline, limit or 0, title
        self.update_rows()

    def rows(self, width: int, height: int) -> list[Row]:
        gap = 1 if height >= 24 else 0
        parts = [self._headline(width), self._split(width), self._totals(width)]
        spare = height - 1 - sum(len(part) + gap for part in parts) + gap

        def take(part: list[Row]) -> list[Row]:
            nonlocal spare
            spare -= len(part) + gap
            return part

        tall = spare >= 36
        need = 1 + gap if spare < DEPTHS + 5 + 2 * gap else DEPTHS + 1 + gap  # of the depths, which come first
        plot = take(self._plot(width, max(2, min(8, spare - need - gap - 1)))) if spare >= need + gap + 3 else []
        deep = min(spare - gap, 2 * DEPTHS + 1 if tall else DEPTHS + 1)
        depth = take(self._depths(width, deep)) if spare > gap else []
        who = take(self._sources(width)) if spare >= len(SOURCES) + 2 else []
        gains = take(self._gains(width, min(6, spare - 3))) if spare >= 6 else []
        title = self._title or ("this run" if self._run.started else "")
        out: list[Row] = [title_row(width, "speed", title)]
        for part in (parts[0], plot, gains, depth, parts[1], who, parts[2]):
            if part:
                out += [*part, *[[("", "text")]] * gap]
        return out[: len(out) - gap]

    def _headline(self, width: int) -> list[Row]:
        rate = self._run.metrics.tokens_per_second
        row: list[Span] = [(f"{number(rate, 7, 1)}", "strong"), (" tokens/s   ", "text")]
        return [row + speed_up(self._run, self._baseline), *self._lossy()]

    def _lossy(self) -> list[Row]:
        """The bias of a run that is not lossless."""
        if self._run.started is None or self._run.started.lossless:
            return []
        return [[*spans(lossy(self._run.metrics.bias), "strong"), ("   lossless is 0", "muted")]]

    def _plot(self, width: int, height: int) -> list[Row]:
        series = rates(self._run, max(8, width - 8))
        if self._of is not self._run.started:
            self._of, self._top = self._run.started, 0.0
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
            filled = bar(share or 0.0, length)
            out.append([
                (f"  {d + 1:>2} ", "muted"), (filled, "bar"), ("·" * (length - len(filled)), "track"),
                (f" {percent(share)}", "text"), (f" {kept:>4}/{tried:<4}", "muted"),
            ])
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
            filled = bar(share, length)
            out.append([
                (f"  {name:<7}", "muted"), (filled, "bar"), ("·" * (length - len(filled)), "track"),
                (f" {number(mean, 7, 2)} ms", "text"), (f" {percent(share if total else None)}", "muted"),
            ])
        return out

    def _sources(self, width: int) -> list[Row]:
        counts = self._run.metrics.sources
        total = sum(counts.values())
        out: list[Row] = [[("who proposed the text", "text")]]
        length = max(6, width - 24)
        for source, words in SOURCES.items():
            if count := counts.get(source, 0):
                filled = bar(count / total, length)
                name = "retrieval" if source == "retrieval" else source
                out.append([
                    ("  ", "text"), (words, f"by-{name}"), (" " * (15 - len(words)), "text"), (filled, "bar"),
                    ("·" * (length - len(filled)), "track"), (f" {percent(count / total)}", "text"),
                ])
        return out + [[("", "text")]] * (len(SOURCES) + 1 - len(out))

    def _gains(self, width: int, height: int) -> list[Row]:
        """Tokens gained by each of the last rounds, one column a round."""
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


def speed_up(run: RunState, baseline: Baseline | None) -> list[Span]:
    """The ratio to the autoregressive rate of this sitting, or that there is none."""
    rate = run.metrics.tokens_per_second
    if run.started is not None and run.started.engine == "autoregressive":
        return [("this is the baseline", "muted")]
    if baseline is None:
        return [("speed-up not measured  ", "muted"), ("b", "strong")]
    ratio = f"×{rate / baseline.rate:5.2f}" if rate else "×  —  "
    return [(ratio, "good"), (f" of {baseline.rate:.1f} autoregressive", "muted")]


def number(value: float | None, width: int, digits: int) -> str:
    """A number of fixed width; a dash where there is none."""
    return ("—" if value is None else f"{value:.{digits}f}").rjust(width)


def percent(share: float | None) -> str:
    """A share in five columns."""
    return "   — " if share is None else f"{share * 100:>3.0f} %"


def telemetry(run: RunState, baseline: Baseline | None, limit: int | None, width: int) -> list[Row]:
    """The two lines that stand for the panels where there is no room for them."""
    m = run.metrics
    last = run.rounds[-1] if run.rounds else None
    speed = [(f" {number(m.tokens_per_second, 6, 1)}", "strong"), (" t/s ", "muted")]
    ratio: list[Span] = [("×" + number((m.tokens_per_second or 0) / baseline.rate, 4, 2), "good")] if baseline else [
        ("×  — ", "muted")]
    line = spark(rates(run, 16)) or " " * 16
    first: Row = [*speed, *ratio, (f" {line} ", "bar"), ("│ accepted ", "muted"), (percent(m.acceptance_rate), "text"),
                  ("  M ", "muted"), (number(m.mean_generated_length, 5, 2), "text"), ("  KV ", "muted"),
                  (f"{run.cache_length}" + (f"/{limit}" if limit else ""), "text")]
    rounds = m.target_forwards or 1
    drafted, kept = (len(last.draft.tokens), len(last.path)) if last else (0, 0)
    second: Row = [
        *_round_or_bias(run), (f"  drafted {drafted:>3}  kept {kept:>2}  │ ", "muted"),
        (f"draft{m.draft_seconds / rounds * 1000:>6.1f}  verify{m.verify_seconds / rounds * 1000:>6.1f}"
         f"  other{m.other_seconds / rounds * 1000:>5.1f} ms", "muted"),
    ]
    return [first, second]


def _round_or_bias(run: RunState) -> list[Span]:
    """The round's number; of a lossy run the bias stands in its place, so that no view is without the mark."""
    m = run.metrics
    if run.started is None or run.started.lossless:
        return [(f" round {m.target_forwards:>4}", "text")]
    return [(" ", "text"), *spans(LOSSY, "text"), (f"{number(m.bias, 6, 3)}", "text")]
