"""What the race screen says, made from its controller."""

from __future__ import annotations

from engines import methods
from engines.folders import model_label
from engines.hub.download_progress import in_bytes, in_time
from engines.laws import DEFAULT, LAWS, spec_of
from engines.race.lanes import Lane
from engines.race.race_events import Compared
from engines.report.metrics import Metrics
from engines.report.wording import counted
from spec_tui.present import token_styles as marks
from spec_tui.present.on_screen import on_screen
from spec_tui.present.playback import speed_words
from spec_tui.present.progress_text import preparing_words
from spec_tui.present.race_text import failure_sentences, pair_badge, pair_sentence, speed_up, verdict
from spec_tui.present.rows import rows_beside
from spec_tui.present.text import one_line, visible
from spec_tui.session.race_state import RaceState, timeline
from spec_tui.session.settings import ChatSettings, changed, sampling_words
from spec_tui.tui import chat_text as words
from spec_tui.tui.race_controller import RaceController, missing
from spec_tui.tui.widgets.race_lanes import LaneView
from spec_tui.tui.widgets.strip_panel import Row, gauge

_PLACES = ("", "1st", "2nd", "3rd", "4th", "5th", "6th")
_BAR = 12
_WIDE = 116  # columns for what runs and how in one line
_SAID = 3  # lines of a sentence at most


def lane_views(controller: RaceController) -> tuple[LaneView, ...]:
    """The lanes at the moment that is shown."""
    race = controller.race
    lanes = race.asked.lanes if race is not None else controller.setup.lanes
    labels = race.labels if race is not None else controller.setup.labels
    return tuple(_view(controller, n, lane, label) for n, (lane, label) in enumerate(zip(lanes, labels)))


def _view(controller: RaceController, number: int, lane: Lane, label: str) -> LaneView:
    race, replay, run = controller.race, controller.replay, controller.shown(number)
    asked = race.asked.request if race is not None else controller.settings
    spec = methods.find(lane.engine)
    lossy = spec.lossless is not None and not spec.lossless_under(spec_of(asked.law, asked.temperature))
    if run is None:
        return LaneView(label, _about(controller, lane, number), lossy=lossy)
    speed = ""
    if replay is not None and replay.clock.over:
        f = race.figures()[number]
        judged = ""
        if number != race.asked.baseline:
            judged, speed = verdict(f, race.asked.baseline).words, speed_up(f, race.asked.baseline)
        numbers = _numbers(f.metrics, f.ttft, f.rate.median if f.rate else None, judged, f.memory)
    else:
        ttft = run.prefilled.seconds if run.prefilled is not None else None
        numbers = _numbers(run.metrics, ttft, run.metrics.tokens_per_second)
    whole = replay.runs[number] if replay is not None else run
    points = replay.points(number) if replay is not None else timeline(run)
    seconds = points[-1][0] if points else 0.0
    if replay is not None and not replay.arrived(number):
        seconds = replay.clock.position
    pair = controller.differing
    return LaneView(
        label=label, run=run, seconds=seconds, numbers=numbers, speed=speed, badge=_badge(controller, number),
        total=len(whole.tokens) if replay is not None or whole.finished is not None else None,
        state={"failed": "failed", "running": marks.BUSY if controller.running else ""}.get(
            race.progress(number), _rank(race.rank(number)) if replay is not None and replay.arrived(number) else ""),
        lossy=lossy or (whole.started is not None and whole.started.lossy),
        at=pair.at if pair is not None and number in (pair.first, pair.second) else None,
    )


def _about(controller: RaceController, lane: Lane, number: int) -> tuple[str, ...]:
    """What a lane is, or why there is nothing of it."""
    race, spec = controller.race, methods.find(lane.engine)
    if race is not None and race.progress(number) == "failed":
        failed = [run.failed for run in race.result.runs.values() if run.lane == number and run.failed]
        return tuple(f"{marks.FAILED} {one_line(failure_sentences(f))}" for f in failed[:1])
    if race is not None and not race.running and race.result.complete:
        return ("no complete run of this lane",)
    reason = missing(lane, controller.session.ready, controller.settings)
    parts = [spec.title, *([" · ".join(changed(lane.engine, spec.parse(lane.options)))]), spec.summary]
    if lane.draft_model:
        parts.append(f"drafts with {one_line(lane.draft_model)}")
    if lane.datastores:
        parts.append("from " + ", ".join(lane.datastores))
    return tuple(filter(None, [f"{marks.FAILED} {reason}" if reason else "", *parts]))


def _numbers(m: Metrics, ttft: float | None, rate: float | None, speed: str = "", memory: int | None = None,
             ) -> tuple[str, ...]:
    """A lane's numbers in a few words each, "" for what is not known."""
    return (
        "" if rate is None else f"{rate:.1f} tokens/s", speed,
        "" if m.acceptance_rate is None else f"{m.acceptance_rate:.0%} accepted",
        "" if m.mean_generated_length is None else f"{m.mean_generated_length:.2f} tokens/step",
        "" if ttft is None else f"1st token {ttft * 1e3:.0f} ms", "" if memory is None else in_bytes(memory),
    )


def _rank(rank: tuple[int, bool] | None) -> str:
    """1st; tied 2nd."""
    return f"{'tied ' if rank[1] else ''}{_PLACES[rank[0]]}" if rank else ""


def _badge(controller: RaceController, number: int) -> tuple[str, str] | None:
    race = controller.race
    if number == race.asked.baseline:
        return "baseline", "muted"
    pair = race.result.pair(race.asked.baseline, number)
    return pair_badge(pair) if pair is not None else None


def plot_state(controller: RaceController) -> str:
    if controller.race is None or controller.race.running:
        return ""
    if not controller.can_race:
        return "as recorded"
    return "the runs that differ" if controller.differing else "the median run of each lane"


def difference(controller: RaceController, pair: Compared) -> str:
    """Which tokens differ first, and what that means."""
    differing = []
    for lane, repeat in ((pair.first, pair.first_repeat), (pair.second, pair.second_repeat)):
        run = controller.race.run(lane, repeat)
        tokens = run.state.tokens if run is not None else ()
        differing.append(f"“{visible(tokens[pair.at].piece)}”" if pair.at < len(tokens) else "the end")
    return f"{' and '.join(differing)}: {on_screen(pair_sentence(pair, controller.race.labels))}"


def no_difference(race: RaceState) -> str:
    """What there is to say where no further pair differs."""
    pairs, lanes = race.result.pairs, {run.lane for run in race.result.complete}
    differ = any(pair.at is not None for pair in pairs)
    if race.uncompared:
        said = ("No more pairs differ; other" if differ else
                "Lanes with the same request have the same text; other" if pairs else "The")
        return f"{said} texts were not compared: {race.uncompared}."
    if pairs:
        return "No more pairs differ." if differ else "All lanes write the same text, token for token."
    if len(lanes) < 2:
        return "Fewer than two lanes are complete."
    return "The texts were not compared: the race did not finish."


def top(controller: RaceController) -> tuple[Row, Row]:
    """The first line: what it is, and how it is asked; how it was asked where a result is shown."""
    race = controller.race
    if race is not None and race.origin and not controller.can_race:
        return _recorded_top(race)
    asked, settings = controller.setup, controller.settings
    most = asked.new_tokens(settings)
    if race is not None:
        asked, settings = race.asked, ChatSettings.from_request(race.asked.request)
        most = settings.max_new_tokens
    mode = "LIVE, not comparable" if asked.live else "fair"
    sampling = [sampling_words(settings), *([f"seed {settings.seed}"] if settings.temperature else [])]
    parts = [mode, counted(asked.repeats, "repeat"), *sampling, f"max {most}"]
    lossless = spec_of(settings.law, settings.temperature).lossless
    kept = race is not None and race.origin
    right = [("" if lossless else f" {LAWS[settings.law].label} ", "lossy"),
             (f"HISTORY, {race.origin[0]} · " if kept else "", "text"),
             (f"{'' if settings.law == DEFAULT or not lossless else settings.law + ' · '}{' · '.join(parts)} ", "text")]
    of = _computed(race) if kept else words.model(controller.session)
    return [(" spec-tui ", "title"), (" race ", "strong"), (of, "muted")], [span for span in right if span[0]]


def _recorded_top(race: RaceState) -> tuple[Row, Row]:
    runs = f"{counted(len(race.result.runs), 'run')} "
    right = [("RECORDED, perhaps at different times · ", "text") if race.comparable else
             ("RECORDED, not comparable · ", "lossy"), (runs, "text")]
    return [(" spec-tui ", "title"), (" race ", "strong"), (_computed(race), "muted")], right


def _computed(race: RaceState) -> str:
    """By which model, in which dtype, on what the runs of a recorded race were computed."""
    starts = [run.state.started for run in race.result.runs.values() if run.state.started is not None]
    models = {f"{model_label(s.model)} · {s.dtype} · {s.device}" for s in starts}
    return one_line(models.pop(), 60) if len(models) == 1 else "of different models or machines"


def status(controller: RaceController, message: str, width: int) -> list[Row]:
    """The lines above the keys: what runs, what plays, the last message; sentences as long as they need."""
    session, problem = controller.session, controller.race.problem if controller.race is not None else None
    said = _sentence("   ", "text", message, width) if message else []
    if controller.running:
        return _running(controller, width) + said
    if said:
        return said
    if problem is not None and session.phase != "loading":
        return _sentence(f" {marks.FAILED} ", "bad", failure_sentences(problem) + _lost(controller.race), width)
    if session.phase in ("dead", "failed"):
        return _sentence(f" {marks.FAILED} ", "bad", f"no engine: {session.way_out}", width)
    at_work = controller.can_race and (session.phase != "ready" or session.busy)
    return [words.status(session, "", width) if at_work else _resting(controller)]


def _lost(race: RaceState) -> str:
    """That the runs of a race that broke off went with the engine; "" where none did."""
    ran = any(run.measured is not None and not run.failed for run in race.result.runs.values())
    return "" if race.result.complete or not ran else " No run is kept: a fair race saves its runs only at its end."


def _sentence(mark: str, style: str, text: str, width: int) -> list[Row]:
    return rows_beside(mark, style, one_line(text), width)[:_SAID]


def _resting(controller: RaceController) -> Row:
    if controller.replay is not None:
        return _clock(controller)
    if controller.race is not None:
        return [("   ", "muted"), ("stopped before any run was complete", "text"), ("  enter starts again", "muted")]
    seconds = controller.seconds
    takes = f", about {in_time(seconds)}" if seconds is not None and seconds >= 5 else ""
    return [("   ", "muted"), (f"enter starts{takes}", "text"),
            ("  i prompt · + adds a lane · - removes it · * repeats · f live", "muted")]


def _running(controller: RaceController, width: int) -> list[Row]:
    """What runs; in a narrow window how it runs is a line of its own."""
    race = controller.race
    if controller.session.stuck:
        return [words.status(controller.session, "", width)]
    if controller.job.stopping:
        return [[(f" {marks.WAITING} ", "warn"), ("stopping after this round; complete runs are kept", "text")]]
    if race.auditing is not None:
        return [[(f" {marks.BUSY} ", "warn"), ("auditing texts that differ  ", "text"), *gauge(race.auditing, _BAR)]]
    at = race.at
    if at is None:
        return [[(f" {marks.WAITING} ", "warn"), ("starting", "text")]]
    what = "warm-up" if at.warm_up else f"repeat {at.repeat + 1} of {race.asked.repeats}"
    how = "live: not comparable" if race.asked.live else "nothing is drawn while it runs"
    how = preparing_words(race.preparing) if race.preparing is not None else how + controller.left
    row = [(f" {marks.BUSY} ", "good"), (f"lane {at.lane + 1} of {len(race.labels)}, {what}: ", "text"),
           (one_line(race.labels[at.lane], 30), f"lane-{at.lane + 1}"), ("  ", "text"),
           *gauge((at.step - 1) / at.steps, _BAR)]
    more = (f"  {how} · esc stops", "muted")
    return [[*row, more]] if width >= _WIDE else [row, [(" ", "text"), more]]


def _clock(controller: RaceController) -> Row:
    replay = controller.replay
    playing = (f" {marks.BUSY} ", "good") if replay.clock.playing else (" ‖ ", "warn")
    state = ("   ", "muted") if replay.clock.over else playing
    again = "space again · R new race" if controller.can_race else "space again"
    keys = again if replay.clock.over else "space · < > speed · end"
    return [state, (f"photo finish {speed_words(replay.clock.speed)}  ", "text"), *gauge(replay.clock.share, _BAR),
            (f" {replay.clock.position:.3f} of {replay.clock.end:.3f} s  {keys}", "muted")]
