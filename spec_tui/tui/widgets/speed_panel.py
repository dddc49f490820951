"""How fast a run is, against what and why; in detail where its time goes."""

from __future__ import annotations

from collections.abc import Sequence

from engines.methods import origin_kind, origins, who_proposes
from engines.report.events import Round
from engines.report.run_state import RunState, rate_now, rates
from engines.report.wording import times_of
from spec_tui.present.price_text import SpeedEstimate, why
from spec_tui.present.speed_caveats import Caveat
from spec_tui.present.speed_verdict import Speed, SpeedVerdict, of_runs
from spec_tui.present.tables import count_or_dash, milliseconds
from spec_tui.present.text import LOSSY, lossy
from spec_tui.present.token_styles import spans
from spec_tui.tui.widgets.strip_panel import BLANK, Row, Span, StripPanel, clip, fit, gauge, rows_of, size, title_row
from spec_tui.tui.widgets.strip_plot import columns, nice_top, spark

DEPTHS = 5  # depths shown where there is little room
# What there is beside the numbers, and in how many rows: the later ones give way first.
STEPS = (
    ("depths", 1), ("plot", 1), ("depths", DEPTHS + 1), ("plot", 6), ("who", 9), ("gains", 5),
    ("plot", 9), ("depths", 2 * DEPTHS + 1), ("gains", 8),
)

_NO_DEPTHS = {True: "nothing drafted", False: "not disclosed"}  # by whether it is known how much was


class SpeedPanel(StripPanel, can_focus=True):
    """How fast a run is, against what, and why, by the engine's own clock; drawing is not in these numbers.

    With ``detailed`` also where the time goes: acceptance by depth, draft against verification, who proposed the text.
    """

    measures = True  # whether F7 measures a baseline here
    word_here = "speed-up"

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self._run = RunState()
        self._baseline: RunState | None = None
        self._limit = 0
        self._title = ""
        self._outlook: SpeedEstimate | None = None
        self._caveats: Sequence[Caveat] = ()
        self._top = 0.0

    def show_run(self, run: RunState, baseline: RunState | None, limit: int | None, title: str = "",
                 outlook: SpeedEstimate | None = None, caveats: Sequence[Caveat] = ()) -> None:
        """Show this run against that baseline; ``limit`` is the model's context length, ``outlook`` what its engine's
        drafts may bring, ``caveats`` why its speed says little."""
        if self._run.started is not run.started:
            self._top = 0.0
        self._run, self._baseline, self._limit, self._title = run, baseline, limit or 0, title
        self._outlook, self._caveats = outlook, caveats
        self.update_rows()

    def rows(self, width: int, height: int) -> list[Row]:
        head = [title_row(width, "speed", self._title or ("this run" if self._run.started else "")),
                *(clip(row, width) for row in self._headline(width)),
                *(row for caveat in self._caveats
                  for row in rows_of(f"! {caveat.words}", max(20, width - 1), "warn"))]
        if not self.detailed:
            return [*head, *(self._plot(width, min(height - len(head), 10)) if height > len(head) else ())]
        gap = [BLANK] if height >= 32 else []
        split, totals = self._split(width), self._totals(width)
        spare = height - 1 - sum(len(part) + len(gap) for part in (head[1:], split, totals)) + len(gap)
        size = _share_out(spare, len(gap))
        draw = {"plot": self._plot, "gains": self._gains, "depths": self._depths, "who": self._sources}
        part = {name: draw[name](width, count) for name, count in size.items()}
        for rows in (part.get("plot"), part.get("gains"), part.get("depths"), split, part.get("who"), totals):
            head += [*gap, *rows] if rows else []
        return head

    def _headline(self, width: int) -> list[Row]:
        run, found = self._run, of_runs(self._run, self._baseline)
        m = run.metrics
        rate: Row = [(f"{number(m.tokens_per_second, 7, 1)}", "strong"), (f" {m.unit}s/s   ", "text")]
        verdict: Row = [(f"{found.mark} {found.words}", found.style)]
        return [*([[*rate, *verdict]] if size([*rate, *verdict]) <= width else [rate, verdict]),
                against(found, self._baseline, self.measures),
                why(run, self._baseline, self._outlook, measures=self.measures), *self._lossy()]

    def _lossy(self) -> list[Row]:
        """The bias of a run that is not lossless."""
        if self._run.started is None or not self._run.started.lossy:
            return []
        return [[*spans(lossy(self._run.metrics.bias), "strong"), ("   lossless is 0", "muted")]]

    def _plot(self, width: int, room: int) -> list[Row]:
        series = rates(self._run, max(8, width - 8))
        if room == 1:
            return [[("  rate ", "muted"), (fit(spark(series), width - 8), "bar")]]
        height = room - 1
        base = self._baseline.metrics.tokens_per_second if self._baseline else 0.0
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
        out: list[Row] = [[("accepted by depth", "text"), ("   accepted of judged", "muted")]]
        length = max(6, width - 24)
        for d in range(shown):
            tried, kept = m.depth_tried[d], m.depth_accepted[d] if d < len(m.depth_accepted) else 0
            share = kept / tried if tried else None
            out.append([(f"  {d + 1:>2} ", "muted"), *gauge(share or 0.0, length), (f" {percent(share)}", "text"),
                        (f" {kept:>4}/{tried:<4}", "muted")])
        if not shown:
            out.append([(f"   {_NO_DEPTHS[m.drafted is not None]}", "muted")])
        elif shown < len(m.depth_tried):
            out[-1] = [(f"   … {len(m.depth_tried) - shown + 1} deeper", "muted")]
        return out + [BLANK] * (room - len(out))  # the parts below never move

    def _depths_in_a_row(self, width: int) -> Row:
        m = self._run.metrics
        pairs = zip(m.depth_tried, [*m.depth_accepted, *[0] * len(m.depth_tried)])
        words = [f"{100 * kept / tried:>4.0f}" if tried else "   —" for tried, kept in pairs]
        if len(words) > (room := (width - 20) // 4):
            words[room - 1 :] = ["   …"]
        said = "".join(words) or f"  {_NO_DEPTHS[m.drafted is not None]}"
        return [("accepted by depth, %", "text"), (fit(said, width - 20), "muted")]

    def _split(self, width: int) -> list[Row]:
        m = self._run.metrics
        total, rounds = m.decode_seconds, m.target_forwards
        per_round = total / rounds * 1000 if rounds else None
        out: list[Row] = [[("time per round", "text"), (f" {number(per_round, 7, 2)} ms", "muted"),
                           *self._connection()]]
        length = max(6, width - 27)
        for name, seconds in times_of(m):
            share = (seconds or 0.0) / total if total else 0.0
            mean = seconds / rounds * 1000 if rounds and seconds is not None else None
            out.append([(f"  {name:<7}", "muted"), *gauge(share, length), (f" {number(mean, 7, 2)} ms", "text"),
                        (f" {percent(share if total and seconds is not None else None)}", "muted")])
        return out + [BLANK] * (4 - len(out))  # the parts below never move

    def _connection(self) -> Row:
        """Of a server's answer, how long an empty request takes, and whether the times have it in them."""
        started = self._run.started
        if started is None or started.round_trip is None:
            return []
        where = "included" if started.arrival else "excluded"
        return [(f"   connection {milliseconds(started.round_trip, 1)} {where}", "muted")]

    def _sources(self, width: int, room: int) -> list[Row]:
        counts = self._run.metrics.sources
        total = sum(counts.values())
        out: list[Row] = [[("who proposed the text", "text")]]
        length = max(6, width - 24)
        for source in sorted(counts, key=[*origins(), *counts].index)[: room - 1]:
            if count := counts[source]:
                words, style = who_proposes(source, self._run), f"by-{origin_kind(source).name}"
                out.append([("  ", "text"), (words, style), (" " * (15 - len(words)), "text"),
                            *gauge(count / total, length), (f" {percent(count / total)}", "text")])
        return out + [BLANK] * (room - len(out))

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
        reused = "—" if reused is None else reused
        prefill = number(m.prefill_seconds * 1000, 5, 0) if run.prefilled else number(None, 5, 0)
        return [
            [("tokens/step M", "muted"), (number(m.mean_generated_length, 5, 2), "strong"), (" accepted", "muted"),
             (percent(m.acceptance_rate), "strong"), ("  path", "muted"), (percent(m.path_acceptance), "strong")],
            [(f"{m.unit}s ", "muted"), (f"{m.new_tokens:>{10 - len(m.unit)}}", "text"), ("   KV ", "muted"),
             (f"{_length(run):>5}{limit}", "text"), ("   reused ", "muted"), (f"{reused:>4}", "text")],
            [("prefill", "muted"), (f"{prefill} ms", "text"), ("   now ", "muted"),
             (f"{number(rate_now(run), 7, 1)} {m.unit}s/s", "text")],
        ]


def _share_out(spare: int, gap: int) -> dict[str, int]:
    """Rows for each part, by the order of ``STEPS``; a part takes ``gap`` rows more."""
    size: dict[str, int] = {}
    for name, count in STEPS:
        more = count - size[name] if name in size else count + gap
        if more <= spare:
            size[name], spare = count, spare - more
    return size


def against(found: SpeedVerdict, baseline: RunState | None, measures: bool = True) -> Row:
    """What a run is compared with, or why there is no verdict and the key that ``measures``, in the prompt box too."""
    key: list[Span] = [("F7", "strong"), (" measures the baseline" + " again" * bool(baseline), "muted")]
    if found.speed in (Speed.UNMEASURED, Speed.IMPOSSIBLE) and measures:
        return key if baseline is None else [*key, (f": {found.reason}", "muted")]
    if baseline is None or found.speed is Speed.BASELINE:
        return [(found.reason, "muted")]
    return [(f"{baseline.metrics.tokens_per_second:7.1f}", "text"),
            (" tokens/s   autoregressive, the same prompt", "muted")]


def number(value: float | None, width: int, digits: int) -> str:
    """A number of fixed width; a dash where there is none."""
    return ("—" if value is None else f"{value:.{digits}f}").rjust(width)


def percent(share: float | None) -> str:
    """A share in five columns."""
    return "   — " if share is None else f"{share * 100:>4.0f}%"


def telemetry(
    run: RunState, baseline: RunState | None, limit: int | None, width: int, outlook: SpeedEstimate | None = None,
    index: int = -1,
) -> list[Row]:
    """The two lines that stand for the panels where there is no room for them, with this round's draft."""
    m, found = run.metrics, of_runs(run, baseline)
    last = run.rounds[index] if run.rounds else None
    first: Row = [(f" {number(m.tokens_per_second, 6, 1)}", "strong"), (f" {m.unit}s/s  ", "muted"),
                  (f"{found.mark} {found.words}", found.style),
                  (" │ ", "muted"), *why(run, baseline, outlook, brief=True)]
    drafted, kept = (count_or_dash(count) for count in ((last.drafted, last.accepted) if last else (0, 0)))
    second: Row = [*_round_or_bias(run, last), (f"  accepted {kept:>2} of {drafted:>3} │ overall ", "muted"),
                   (percent(m.acceptance_rate), "text"), ("  KV ", "muted"),
                   (_length(run) + (f"/{limit}" if limit else ""), "text"),
                   (f" {spark(rates(run, 16))} ", "bar")]
    return [clip(first, width), clip(second, width)]


def _round_or_bias(run: RunState, shown: Round | None) -> list[Span]:
    """The round's number; of a lossy run the bias stands in its place, so that no view is without the mark."""
    m = run.metrics
    if run.started is None or not run.started.lossy:
        return [(f" round {shown.index if shown else 0:>4}", "text")]
    return [(" ", "text"), *spans(LOSSY, "text"), (f"{number(m.bias, 6, 3)}", "text")]


def _length(run: RunState) -> str:
    """KV rows in the cache, a dash where that is not known."""
    return "—" if run.cache_length is None else str(run.cache_length)
