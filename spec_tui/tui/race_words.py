"""What the race screen says, made from its contest."""

from __future__ import annotations

from textwrap import wrap

from engines import methods
from engines.hub.download_progress import in_bytes
from engines.laws import LAWS
from engines.race.events import Compared
from engines.race.lanes import Lane
from engines.race.result import LaneFigures
from engines.report.events import Failed
from engines.report.run_state import RunState
from engines.user_folders import model_label
from spec_tui.present.race_text import (
    MEMORY,
    NOT_COMPARABLE,
    disturbance_sentence,
    interval_meaning,
    pair_badge,
    pair_sentence,
    pairs_summary,
    remarks,
)
from spec_tui.present.text import one_line, visible
from spec_tui.present.token_styles import spans
from spec_tui.session.recorded_race import RecordedRace
from spec_tui.tui import chat_words as words
from spec_tui.tui.race_controller import Moment, RaceController
from spec_tui.tui.race_setup import missing
from spec_tui.tui.replay_app import speed_words
from spec_tui.tui.settings import changed
from spec_tui.tui.widgets.race_lanes import LaneView
from spec_tui.tui.widgets.race_table import Scores
from spec_tui.tui.widgets.strip_panel import Row, bar

_PLACES = ("", "1st", "2nd", "3rd", "4th", "5th", "6th")
_BAR = 12
_WIDE = 116  # columns for what runs and how in one line
_SAID = 3  # lines of a sentence at most


def lane_views(contest: RaceController) -> tuple[LaneView, ...]:
    """The lanes at the moment that is shown."""
    bout = contest.bout
    lanes = bout.asked.lanes if bout is not None else contest.setup.lanes
    labels = bout.labels if bout is not None else contest.setup.labels
    return tuple(_view(contest, n, lane, label) for n, (lane, label) in enumerate(zip(lanes, labels)))


def _view(contest: RaceController, number: int, lane: Lane, label: str) -> LaneView:
    bout, moment = contest.bout, contest.moment(number)
    law = bout.asked.request.law if bout is not None else contest.sitting.settings.law
    lossy = not (LAWS[law].lossless and methods.find(lane.engine).lossless)
    if moment is None:
        return LaneView(label, _about(contest, lane, number), lossy=lossy)
    started = moment.whole.started
    lossy = lossy or (started is not None and not started.lossless)
    over = contest.photo is not None and contest.photo.over
    numbers = _medians(bout.figures()[number], number == bout.asked.baseline) if over else _so_far(moment)
    failed = bout.standing(number) == "failed"
    pair = contest.differing
    marked = pair.at if pair is not None and number in (pair.first, pair.second) else None
    known = contest.photo is not None or moment.whole.finished is not None
    total = len(moment.whole.tokens) if known else None
    state = "failed" if failed else _PLACES[moment.place or 0]
    if contest.running and bout.standing(number) == "running":
        state = "●"
    return LaneView(label, (), moment.now, total, moment.seconds, numbers, _badge(contest, number), state, lossy,
                    marked)


def _about(contest: RaceController, lane: Lane, number: int) -> tuple[str, ...]:
    """What a lane is, or why there is nothing of it."""
    bout, spec = contest.bout, methods.find(lane.engine)
    if bout is not None and bout.standing(number) == "failed":
        failed = [run.failed for run in bout.result.runs.values() if run.lane == number and run.failed]
        return tuple(f"✗ {one_line(_told(f))}" for f in failed[:1]) or ("✗ it failed",)
    if bout is not None and not bout.running and bout.result.complete:
        return ("nothing of it is complete",)
    reason = missing(lane, contest.sitting.ready)
    parts = [spec.title, *([" · ".join(changed(lane.engine, spec.parse(lane.options)))]), spec.summary]
    if lane.datastores:
        parts.append("from " + ", ".join(lane.datastores))
    return tuple(filter(None, [f"✗ {reason}" if reason else "", *parts]))


def _so_far(moment: Moment) -> tuple[str, ...]:
    """The numbers of a run up to a moment, by its own clock."""
    m, run = moment.now.metrics, moment.now
    ttft = run.prefilled.seconds if run.prefilled is not None else None
    return _numbers(m.tokens_per_second, None, m.acceptance_rate, m.mean_generated_length, ttft, None)


def _medians(f: LaneFigures, baseline: bool) -> tuple[str, ...]:
    """A lane's numbers over all its runs."""
    up = 1.0 if baseline and f.rate else f.speed_up.median if f.speed_up else None
    m = f.metrics
    return _numbers(f.rate.median if f.rate else None, up, m.acceptance_rate, m.mean_generated_length, f.ttft, f.memory)


def _numbers(rate: float | None, up: float | None, accepted: float | None, length: float | None, ttft: float | None,
             memory: int | None) -> tuple[str, ...]:
    return (
        "" if rate is None else f"{rate:.1f} tokens/s", "" if up is None else f"×{up:.2f}",
        "" if accepted is None else f"{accepted:.0%} accepted", "" if length is None else f"M {length:.2f}",
        "" if ttft is None else f"TTFT {ttft * 1e3:.0f} ms", "" if memory is None else in_bytes(memory),
    )


def _badge(contest: RaceController, number: int) -> tuple[str, str] | None:
    bout = contest.bout
    if number == bout.asked.baseline:
        return "baseline", "muted"
    pair = bout.result.pair(bout.asked.baseline, number)
    return pair_badge(pair) if pair is not None else None


def scores(contest: RaceController, sort: int) -> Scores:
    """The table, once there is something complete."""
    bout = contest.bout
    if bout is None or not bout.result.complete:
        return Scores()
    return Scores(bout.labels, tuple(bout.figures()), bout.asked.baseline, tuple(bout.result.pairs), notes(contest),
                  sort)


def notes(contest: RaceController) -> tuple[str, ...]:
    """What the numbers do not say themselves."""
    bout = contest.bout
    if isinstance(bout, RecordedRace):
        return bout.notes()
    result, figures = bout.result, bout.figures()
    said = [NOT_COMPARABLE] if bout.asked.live else []
    said += remarks(result, bout.labels)
    said += [one_line(_told(run.failed)) for run in result.runs.values()
             if run.failed is not None]
    if result.finished is not None and result.finished.reason == "cancelled":
        most = len(bout.asked.lanes) * bout.asked.repeats
        said.append(f"stopped: {len(result.complete)} of {most} runs are complete, and count")
    said.append(interval_meaning(f.rate for f in figures))
    said.append(disturbance_sentence(result.disturbance()))
    return (*filter(None, said), *pairs_summary(result.pairs, bout.labels), f"memory: {MEMORY}")


def plot_state(contest: RaceController) -> str:
    """What the plot shows."""
    if contest.bout is None or contest.bout.running:
        return ""
    if isinstance(contest.bout, RecordedRace):
        return "as recorded"
    return "the runs that differ" if contest.differing else "each lane's middle run"


def difference(contest: RaceController, pair: Compared) -> str:
    """Which tokens differ first, and what that means."""
    tokens = f"{_token(contest, pair, True)} and {_token(contest, pair, False)}"
    return f"{tokens}: {pair_sentence(pair, contest.bout.labels)}"


def _token(contest: RaceController, pair: Compared, first: bool) -> str:
    lane, repeat = (pair.first, pair.first_repeat) if first else (pair.second, pair.second_repeat)
    run = contest.bout.run(lane, repeat)
    tokens = contest.bout.state(run).tokens if run is not None else RunState().tokens
    return f"“{visible(tokens[pair.at].piece)}”" if pair.at < len(tokens) else "the end"


def top(contest: RaceController) -> tuple[Row, Row]:
    """The first line: what it is, and how it is asked."""
    if isinstance(contest.bout, RecordedRace):
        return _recorded_top(contest.bout)
    setup, settings = contest.setup, contest.sitting.settings
    mode = "LIVE, not comparable" if setup.live else "fair"
    sampling = [settings.heat(), *([f"seed {settings.seed}"] if settings.temperature else [])]
    parts = [mode, f"{setup.repeats} repeat{'s' * (setup.repeats > 1)}", *sampling, f"max {settings.max_new_tokens}"]
    lossless = LAWS[settings.law].lossless
    right = [("" if lossless else f" {LAWS[settings.law].label} ", "lossy"),
             (f"{'' if settings.law == 'exact' or not lossless else settings.law + ' · '}{' · '.join(parts)} ", "text")]
    return ([(" spec-tui ", "title"), (" race ", "strong"), (words.model(contest.sitting), "muted")],
            [span for span in right if span[0]])


def _recorded_top(bout: RecordedRace) -> tuple[Row, Row]:
    models = {f"{model_label(s.model)} · {s.dtype} · {s.device}" for s in bout.starts}
    of = one_line(models.pop(), 60) if len(models) == 1 else "of different models or machines"
    runs = f"{len(bout.labels)} run{'s' * (len(bout.labels) > 1)} "
    known = ("RECORDED, perhaps in different sittings · ", "text")
    right = [known if bout.alike else ("RECORDED, not comparable · ", "lossy"), (runs, "text")]
    return [(" spec-tui ", "title"), (" race ", "strong"), (of, "muted")], right


def status(contest: RaceController, message: str, width: int) -> list[Row]:
    """The lines above the keys: what runs, what plays, what was said; sentences as long as they need."""
    sitting, problem = contest.sitting, contest.bout.problem if contest.bout is not None else None
    if contest.running:
        return _running(contest, width)
    if message:
        return _sentence("   ", "text", message, width)
    if problem is not None:
        return _sentence(" ✗ ", "bad", _told(problem), width)
    if sitting.phase in ("dead", "failed"):
        return _sentence(" ✗ ", "bad", "no engine: esc goes back to the chat, ctrl+r there tries again", width)
    return [words.status(sitting, "") if sitting.phase != "ready" or sitting.busy else _resting(contest)]


def _sentence(mark: str, style: str, text: str, width: int) -> list[Row]:
    lines = wrap(one_line(text), max(20, width - 4))[:_SAID] or [""]
    return [[(mark if not n else "   ", style), *spans(line, "text")] for n, line in enumerate(lines)]


def _told(failed: Failed) -> str:
    """A failure as two sentences."""
    return " ".join(f"{part[:1].upper()}{part[1:].rstrip('.')}." for part in (failed.message, failed.hint) if part)


def _resting(contest: RaceController) -> Row:
    if contest.photo is not None:
        return _clock(contest)
    if contest.bout is not None:
        return [(" ■ ", "muted"), ("stopped before anything was complete", "text"), ("  enter starts again", "muted")]
    return [(" ○ ", "muted"), ("enter starts", "text"),
            ("  i prompt · a adds a lane · - takes it away · t repeats · f live", "muted")]


def _running(contest: RaceController, width: int) -> list[Row]:
    """What runs; in a narrow window how it runs is a line of its own."""
    bout = contest.bout
    if bout.stopping:
        return [[(" ◌ ", "warn"), ("stopping after this round; what is complete stays", "text")]]
    if bout.auditing is not None:
        return [[(" ● ", "warn"), ("auditing texts that differ  ", "text"), *_bar(bout.auditing)]]
    at = bout.at
    if at is None:
        return [[(" ◌ ", "warn"), ("starting", "text")]]
    what = "warm-up" if at.warm_up else f"repeat {at.repeat + 1} of {bout.asked.repeats}"
    how = "live: not comparable" if bout.asked.live else "nothing is drawn while it runs"
    row = [(" ● ", "good"), (f"lane {at.lane + 1} of {len(bout.labels)}, {what}: ", "text"),
           (one_line(bout.labels[at.lane], 30), f"lane-{at.lane + 1}"), ("  ", "text"),
           *_bar((at.step - 1) / at.steps)]
    more = (f"  {how} · esc stops", "muted")
    return [[*row, more]] if width >= _WIDE else [row, [(" ", "text"), more]]


def _clock(contest: RaceController) -> Row:
    photo = contest.photo
    state = (" ■ ", "muted") if photo.over else (" ▶ ", "good") if photo.playing else (" ‖ ", "warn")
    again = "space again" if isinstance(contest.bout, RecordedRace) else "space again · R new race"
    keys = again if photo.over else "space · < > speed · end"
    share = photo.now / photo.length if photo.length else 1.0
    return [state, (f"photo finish {speed_words(photo.speed)}  ", "text"), *_bar(share),
            (f" {photo.now:.3f} of {photo.length:.3f} s  {keys}", "muted")]


def _bar(share: float) -> Row:
    filled = bar(share, _BAR)
    return [(filled, "bar"), ("·" * (_BAR - len(filled)), "track")]
