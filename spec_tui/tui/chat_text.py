"""Sentences of the chat screen, made from its state."""

from __future__ import annotations

from engines.datastores.datastore_events import Built, DatastoreList
from engines.errors import SpecError
from engines.folders import model_label
from engines.hub.download_progress import in_bytes
from engines.hub.known_models import default_label, default_notice
from engines.laws import LAWS, spec_of
from engines.methods import baseline, find
from engines.report.events import Prefilling, Preparing
from engines.report.run_state import RunState
from engines.report.traces import UNKNOWN
from engines.report.wording import counted
from engines.request import Request
from spec_tui.present import audit_text as verdict
from spec_tui.present import token_styles as marks
from spec_tui.present.narration import why_ended
from spec_tui.present.on_screen import failure, on_screen
from spec_tui.present.playback import speed_words
from spec_tui.present.progress_text import preparing_share, preparing_words, short_progress
from spec_tui.present.speed_verdict import of_runs
from spec_tui.present.tables import in_number
from spec_tui.present.text import LOSSY, capital, cells, lossy, one_line
from spec_tui.session.chat_session import ChatSession, Turn
from spec_tui.session.client import NO_ANSWER
from spec_tui.session.datastore_jobs import Refused
from spec_tui.session.engine_commands import Audit, MeasurePrice, Run
from spec_tui.session.history import Entry
from spec_tui.session.jobs import Job
from spec_tui.session.replay_client import ReplayClient
from spec_tui.session.settings import changed, sampling_words
from spec_tui.tui.widgets.strip_panel import Row, Span, gauge, shortened
from spec_tui.tui.widgets.transcript import Transcript

_LEAST_BAR = 6  # columns of the bar of a loading
_MEASURES = ("F7 measures decoding without drafts and says whether drafting was faster; "
             "/race runs engines side by side and ranks them. ")
WELCOME = """Type a prompt, or press ctrl+o for examples.

The engine{engine} drafts several tokens; the model verifies them all in one forward pass and keeps those that it \
would have written itself. Colours show what became of each token: accepted, corrected by the model, or a bonus token \
after a draft that was accepted whole.

{measures}ctrl+e changes the engine,{audits} F1 has all keys.

esc leaves the prompt; then ← and → go from token to token, enter shows why a token is there, and v changes the \
colours."""


def welcome(session: ChatSession) -> str:
    """What stands in the text before the first question; with the model that was taken, where none was named, and the
    settings, where kept ones were."""
    able, asked = session.client.capabilities, session.load_request
    engine = find(session.settings.resolved(session.ready)) if able.ask else baseline()
    unknown = session.ready is None and asked.elsewhere  # what drafts there, and what can be done with it
    said = [WELCOME.format(
        engine="" if engine.baseline or unknown else f" ({engine.title})",
        measures=_MEASURES * (able.baseline and able.race and not unknown),
        audits=" F6 audits the answer," * (able.audit and not unknown))]
    if asked.model is None and asked.server is None and session.client.capabilities.ask:
        said.append(f"Here {default_notice()}; ctrl+l lists the available models.")
    if session.kept is not None:
        said.append(f"{'Note:' if session.kept.gone else 'Answers use'} {one_line(session.kept.words)}.")
    if session.head_left_out:
        said.append(f"Note: {one_line(session.head_left_out)}; “by itself” among the heads (ctrl+l) forgets it.")
    return "\n\n".join(said)


def model(session: ChatSession) -> str:
    """What is loaded."""
    ready = session.ready
    if ready is None:
        return one_line(session.load_request.server or session.load_request.model or default_label(), 40)
    parameters = [in_number(ready.parameters, "")] if ready.parameters else []  # a trace does not say
    words = [model_label(ready.model), *parameters, ready.dtype]
    where = [ready.device]  # of a server the address, which a narrow screen must not cut off
    return one_line(" · ".join(where + words if ready.served else words + where), 60)


def head(turn: Turn, names_model: bool = False) -> str:
    """The line above an answer: how it was asked for; with ``names_model``, of which model."""
    r = turn.request
    heat = [] if turn.run.started == UNKNOWN else [sampling_words(r)]
    parts = [*engine(r), one_line(r.law), *heat]
    if names_model and turn.run.started is not None:
        parts.insert(0, one_line(model_label(turn.run.started.model), 40))
    if r.temperature:
        parts.append(f"seed {r.seed}")
    if turn.run.started is not None and turn.run.started.datastores:
        parts.append(one_line("from " + ", ".join(turn.run.started.datastores)))
    return dotted(parts if _lossless(turn) else [LOSSY, *parts])


def engine(request: Request) -> list[str]:
    """The engine's title and the options that differ from their defaults; its id where a trace has one unknown here."""
    try:
        return [find(request.engine).title, *map(one_line, changed(request.engine, request.options))]
    except SpecError:
        return [one_line(request.engine)]


def _lossless(turn: Turn) -> bool:
    started, request = turn.run.started, turn.request
    law = spec_of(request.law, request.temperature)
    return not started.lossy if started is not None else find(request.engine).lossless_under(law)


def dotted(parts: list[str]) -> str:
    """The parts in a row that breaks between them, not within."""
    return " · ".join(part.replace(" ", "\u00a0") for part in parts)


def foot(turn: Turn) -> tuple[str, bool]:
    """The line below an answer, and whether it is bad news; "" while the run goes on."""
    run = turn.run
    if run.failed is not None:
        return f"{marks.FAILED} {run.failed.message}", True
    if run.finished is None:
        return "", False
    m = run.metrics
    parts = [counted(m.new_tokens, m.unit)]
    if m.tokens_per_second:
        parts.append(f"{m.tokens_per_second:.1f} {m.unit}s/s")
    if m.acceptance_rate is not None:
        parts.append(f"{m.acceptance_rate * 100:.0f}% accepted")
    if m.mean_generated_length:
        parts.append(f"M {m.mean_generated_length:.2f}")
    if run.prefilled and run.prefilled.reused:
        parts.append(f"KV reused {run.prefilled.reused} of {run.prefilled.prompt_tokens}")
    made, most = max(m.new_tokens, len(run.finished.tokens)), turn.request.max_new_tokens
    limit = counted(most, "token") if most else "the limit"
    cut = "the context is full" if made < most else f"cut at {limit}"
    ending = {"length": cut, "cancelled": "stopped with esc"}
    if words := why_ended(run.finished) if run.finished.ended_by else ending.get(run.finished.reason):
        parts.append(words)
    if not _lossless(turn):
        parts.append(lossy(m.bias))
    elif run.started is not None and run.started.lossless is None and run.audited is None:
        parts.append("not checked")
    return "· " + dotted(parts), False


def figures(run: RunState, baseline: RunState | None) -> list[str]:
    """What a presenter shows large: tokens/s, speed-up, M, accepted in percent; "-" for what is not known."""
    m, found = run.metrics, of_runs(run, baseline)
    accepted = None if m.acceptance_rate is None else m.acceptance_rate * 100
    values = ((m.tokens_per_second, 1), (found.ratio, 2), (m.mean_generated_length, 2), (accepted, 0))
    return ["-" if value is None else f"{value:.{digits}f}" for value, digits in values]


def top(session: ChatSession) -> tuple[Row, Row]:
    """The line above everything: what is loaded or played, and how the next answer is made or how fast it is played."""
    client, name = session.client, (" spec-tui ", "title")
    if client.capabilities.clock:
        return ([name, (f" replay of {one_line(client.title, 40)} ", "strong"), ("· " + model(session), "muted")],
                [(f"{speed_words(client.clock.speed)} ", "text")])
    return ([name, (" " + model(session), "muted")],
            marks.spans(one_line(session.settings.summary(session.ready)) + " ", "text"))


def _playback(client: ReplayClient) -> Row:
    """The status line of a recording: its clock, and how far it is."""
    seconds, length = client.progress
    if client.over:
        state, speed = [("   ", "muted"), ("at the end", "text")], ""
    else:
        playing = client.clock.playing
        state = [(" ▶ ", "good"), ("playing", "text")] if playing else [(" ‖ ", "warn"), ("paused", "text")]
        speed = f" {speed_words(client.clock.speed)}"
    reading = None if client.over else client.reading
    does = f" · {preparing_words(reading)}" if reading is not None else ""
    which = f" · run {client.number + 1} of {len(client.runs)}" if len(client.runs) > 1 else ""
    return [*state, (f"{speed}  ", "text"), *gauge(seconds / length if length else 1.0, 20),
            (f" {seconds:.2f} of {length:.2f} s{which}{does}", "muted")]


def status(session: ChatSession, message: str, width: int) -> Row:
    """The status line, in so many columns: a message, else what the engine is doing."""
    if session.client.capabilities.clock and session.phase == "ready" and not message:
        return _playback(session.client)
    if session.phase == "loading":
        return [*_loading(session, width), *_more(message)]
    job = session.jobs.at_work
    if session.stuck:
        return [(f" {marks.FAILED} ", "bad"), (NO_ANSWER.message, "text"), ("  ctrl+r restarts it", "muted")]
    if job is not None:
        return [*_at_work(session, job), *_more(message)]
    if message:
        return [("   ", "text"), *marks.spans(one_line(message), "text")]
    if session.phase == "dead":
        return [(f" {marks.FAILED} ", "bad"), ("the engine is not running", "text"), ("  ctrl+r restarts it", "muted")]
    if session.phase == "failed":
        return [(f" {marks.FAILED} ", "bad"), ("no model is loaded", "text"), (f"  {session.way_out}", "muted")]
    turns = sum(turn.kept for turn in session.turns)
    lost = "; it cannot be saved" if session.unsaved else ""
    words = "ready" if not turns else f"ready · {turns} turn{'s' if turns > 1 else ''} in this conversation{lost}"
    return [("   ", "muted"), (words, "muted")]


def stopping(session: ChatSession) -> str:
    """What esc has stopped, and when it ends; "" where the status line says so itself."""
    job = session.jobs.at_work
    if job is None:
        return ""
    if isinstance(job.progress, Prefilling):
        return "stopping after this part of the prompt"
    if isinstance(job.command, Audit):
        return "stopping the audit"
    return "" if session.datastore_jobs.work is job else "stopping after this round"


def _more(message: str) -> Row:
    return [(" · ", "muted"), *marks.spans(one_line(message), "text")] if message else []


def _at_work(session: ChatSession, job: Job) -> Row:
    """What the engine does, and how far it is."""
    said, share = job.progress, None
    if session.measuring is not None:
        mark, does = "warn", f"{job.doing}, not part of the conversation"
    elif isinstance(said, Preparing):
        share = preparing_share(said)
        how = [] if share is None else [("  ", "text"), *gauge(share, 6), (f" {share * 100:>4.0f}%", "muted")]
        return [(f" {marks.BUSY} ", "good"), (preparing_words(said), "text"), *how, ("  esc stops", "muted")]
    elif isinstance(job.command, Audit):
        which = "the answer" if job.about is session.last else f"answer {session.turns.index(job.about) + 1}"
        mark, does, share = "warn", f"auditing {which} against the target", said.done if said is not None else 0.0
    elif isinstance(job.command, MeasurePrice):
        mark, does, share = "warn", "measuring t(n)", said.done if said is not None else 0.0
    elif session.datastore_jobs.work is job:
        return _building(session, job)
    else:
        return [(f" {marks.BUSY} ", "good"), (job.doing, "text"),
                ("  esc stops and keeps the text" * isinstance(job.command, Run), "muted")]
    row = [(f" {marks.BUSY} ", mark), (does, "text")]
    if share is not None:
        row += [("  ", "text"), *gauge(share, 12), (f" {share * 100:>4.0f}%", "muted")]
    return [*row, ("  esc stops", "muted")]


def _building(session: ChatSession, job: Job) -> Row:
    does, _, name = job.doing.partition(" ")
    row: list[Span] = [
        (f" {marks.WAITING} ", "warn"), (f"{'stopping' if job.stopping else does} {one_line(name, 30)}", "text")]
    if step := session.datastore_jobs.step:
        row.append((f"  {one_line(short_progress(step), 40)}", "muted"))
    return [*row, ("  esc stops, d shows it", "muted")]


def stocked(ended: Built | Refused | DatastoreList | None, session: ChatSession) -> str:
    """How a build or a removal ended; "" for nothing that the chat need tell."""
    if isinstance(ended, Built):
        settings, ready = session.settings, session.ready
        taken = settings.retrieves(ready) and ended.name in settings.searched(ready)
        way = "the next answers search it" if taken else "d chooses it"
        return f"{ended.name} is built: {counted(ended.tokens, 'token')}, {in_bytes(ended.size)}; {way}"
    if isinstance(ended, Refused) and ended.do == "build":
        return failure(ended)
    return f"removed {ended.removed}" if isinstance(ended, DatastoreList) else ""


def _loading(session: ChatSession, width: int) -> Row:
    """How far the loading is. Where it is narrow the bar and the end of the stage give way, not the key of esc."""
    job = session.jobs.loading
    if job is not None and job.stopping:
        return [(f" {marks.WAITING} ", "warn"), ("stopping the loading", "text")]
    event, queued = job and job.progress, session.queued is not None
    stage = one_line(event.stage, 64) if event else "starting the engine"
    done = event.done if event else None
    percent = "" if done is None else f" {done * 100:>4.0f}%"
    mark, waits = f" {marks.WAITING} ", "your prompt waits: " * queued
    hint = "  esc takes back your prompt" if queued else "  esc stops"
    room = width - cells(mark + percent + hint)
    left = room - cells(waits + stage) - 2
    if left < _LEAST_BAR:
        waits, left = "", left + cells(waits)
    row: list[Span] = [(mark, "warn"), (waits, "muted"), (shortened(stage, room), "text")]
    if done is not None and left >= _LEAST_BAR:
        row += [("  ", "text"), *gauge(done, min(left, _LEAST_BAR if session.downloading else 20))]
    return [*row, (percent, "muted"), (hint, "muted")]


def problem(session: ChatSession) -> str:
    """The last failure: what went wrong, and the way out."""
    failed = session.problem
    message, hint = (one_line(on_screen(words)).rstrip(".") for words in (failed.message, failed.hint))
    text = f"{marks.FAILED} {capital(message)}.\n  "
    if hint:
        text += f"{capital(hint)}.\n  "
    ways = {"dead": "The conversation is kept.", "failed": f"{session.way_out}."}
    return text + ways.get(session.phase, "esc closes this.")


def same_text(session: ChatSession) -> str:
    """What the baseline that was measured says about the last answer."""
    turn = session.last
    if turn.request.text_depends_on_draft:
        law = LAWS[turn.request.law]
        kept = "keeps the distribution, not the text" if law.lossless else (
            f"is {LOSSY}: it keeps neither text nor distribution")
        return f"baseline measured; the {law.name} law {kept}"
    at = session.same_text[len(session.turns) - 1]
    if at is None and turn.run.finished.reason == "cancelled":
        made = len(turn.run.tokens)
        return f"✓ its {counted(made, 'token')} {'is' if made == 1 else 'are'} the same as without drafts"
    if at is None:
        return "✓ the same text as autoregressive decoding, token for token"
    strict = None
    if session.client.capabilities.ask:
        strict = session.load_request.strict or (session.ready is not None and not session.ready.strict_helps)
    return on_screen(verdict.parting(turn.run, at, strict))


def closing(session: ChatSession, number: int) -> tuple[str, tuple[str, str] | None]:
    """The line below a closed answer with what was measured and found since: the baseline, the audit's badge."""
    turn = session.turns[number]
    line, _ = foot(turn)
    if number in session.same_text:
        line += f" · {badge(session, number)}"
    if turn.run.audited is None:
        return line, None
    text, style = verdict.badge(turn.run.audited)
    return line, (dotted([text]), style)


def badge(session: ChatSession, number: int) -> str:
    """What the baseline says about an answer in two words, with the speed-up."""
    turn, at = session.turns[number], session.same_text[number]
    if turn.request.text_depends_on_draft:
        same = "texts not comparable"
    else:
        same = "same text ✓" if at is None else verdict.parting_badge(turn.run, at)
    return dotted([of_runs(turn.run, session.baseline(turn.run)).words, same])


def continuing(entry: Entry) -> str:
    """What is said of a former conversation that goes on."""
    said = f"continuing ‹{one_line(entry.title, 40)}›"
    if not entry.damaged:
        return said
    return f"{said}; {counted(entry.damaged, 'damaged run')}: what follows is saved as another conversation"


def legend(transcript: Transcript) -> Row:
    """What the colours mean, of those that are there."""
    row: list[Span] = [(" ", "text")]
    for name, text in marks.legend(transcript.seen, transcript.view, (block.run for block in transcript.blocks)):
        row += [(text, name), ("   ", "text")]
    return row


def where(transcript: Transcript, session: ChatSession) -> str:
    """Which part of the conversation is shown."""
    if transcript.cursor is not None:
        turn, index = transcript.cursor
        run = session.turns[turn].run
        number = run.tokens[index].round
        return f"token {index + 1} · " + (f"round {run.rounds[number].index}" if number >= 0 else "prefill")
    return "following" if transcript.following else "press End to follow"
