"""What an adviser has to report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from engines import methods
from engines.advice.findings import BASELINE, Findings, RoundCosts, Screening, reach
from engines.advice.what_if import modelled, stops_after
from engines.cost.concurrent import LIMIT
from engines.cost.curve import CostCurve
from engines.cost.other_machine import OtherMachine
from engines.cost.speedup_model import SpeedupModel
from engines.folders import model_label
from engines.laws import spec_of
from engines.methods.counterparts import Counterpart, DraftSetup
from engines.race.lanes import Lane
from engines.report import encoding
from engines.report.events import SAMPLING_FIELDS, Ready
from engines.report.wording import counted
from spec_tui.export.paste_files import model_files, same_tokens
from spec_tui.export.race_report import depth_rows
from spec_tui.export.report import Report, TextBlock
from spec_tui.present.advice_text import (
    chosen,
    decoding,
    elsewhere,
    judge,
    last_measured,
    ranked,
    sentences,
    ties,
    verdict_of,
)
from spec_tui.present.race_text import disturbance_sentence, pairs_summary
from spec_tui.present.tables import Rows, length, milliseconds, or_dash, share
from spec_tui.present.text import one_line
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.session.shell_lines import engine_line

SCHEMA = "spec-tui advice 1"
TITLE = "Which engine for"
_SIZES = (0, 1, 2, 3, 4, 6, 8, 12, 16)  # depths of drafts in the curve
_KIND = 16  # columns for the name of a kind
_SERVERS = ("settings for other programs are a beginning, not a measurement: those verify chains, in batches, with "
            "other kernels and maybe on another machine")
_CURVE = ("tokens/s by draft depth: a forecast from the acceptance by depth and t(n), if every draft had this depth; a "
          "method that drafts only where it expects high acceptance is faster")
_LOST = "not carried over: "
_NOISE = ("±: 95%, on these prompts, from the spread of run times around t(n); differences between prompts are not "
          "included if all settings write the same text")


@dataclass(frozen=True)
class Advice:
    """What an adviser found, and on what.

    Attributes:
        ready: the models; ``load``: how they were asked for.
        left_out: by method, why it could not run.
        notes: what is to be said of the prompts.
        machine: another one, for which the speeds are modelled; None for none.
    """

    found: Findings
    ready: Ready
    load: LoadRequest
    left_out: Mapping[str, str]
    notes: tuple[str, ...] = ()
    machine: OtherMachine | None = None

    @property
    def screening(self) -> Screening | None:
        return last_measured(self.found)

    @property
    def bugs(self) -> bool:
        """Whether an audit found a BUG in any text."""
        return any(screening.result.bugs for screening in self.found.rounds)


def report(done: Advice) -> Report:
    """All there is to say, the verdict first."""
    return Report(title=f"{TITLE} {model_label(done.ready.model)}", verdict=sentences(done.found),
                  pastes=pastes(done), tables=tables(done), notes=notes(done), data=lambda: as_object(done),
                  labels=done.screening.asked.labels if done.screening else ())


def advised(done: Advice) -> Lane | None:
    """The setting that is advised; None without a verdict."""
    lane = chosen(done.screening) if done.screening is not None else None
    return None if lane is None else done.screening.lanes[lane]


def pastes(done: Advice) -> list[TextBlock]:
    """By program what to paste for the lane that is advised, and what does not carry over; nothing without a
    verdict."""
    screening = done.screening
    lane = chosen(screening) if screening is not None else None
    if lane is None:
        return []
    asked = screening.asked.request
    law = spec_of(asked.law, asked.temperature)
    lossy = [] if law.lossless else [f"the law {law.name}"]
    typed = f"as measured after /temp {asked.temperature:g} and /law {asked.law}" if asked.temperature else ""
    return [TextBlock("spec-tui", engine_line(screening.lanes[lane], done.found.request, done.load), typed),
            *(TextBlock(found.program, found.paste, lost and f"{_LOST}{lost}")
              for found in counterparts(done, lane) for lost in ["; ".join(filter(None, [found.lost, *lossy]))])]


def counterparts(done: Advice, lane: int) -> tuple[Counterpart, ...]:
    """How other programs draft as this lane does."""
    screening, ready = done.screening, done.ready
    setting = screening.lanes[lane]
    spec = methods.find(setting.engine)
    if spec.counterparts is None:
        return ()
    used = (*spec.needs, *chain.from_iterable(spec.helped_by.values()))
    head = next((ready.heads[need] for need in used if need in ready.heads), None)
    draft = setting.draft_model or ready.draft_model
    target, draft = model_files(ready.model), draft and model_files(draft)
    setup = DraftSetup(reach(screening.metrics(lane)), target, draft, draft is None or same_tokens(draft, target),
                       head and head.name, head.family if head else "")
    return tuple(spec.counterparts(spec.parse(setting.options, ready.model), setup))


# -- tables ---------------------------------------------------------------------------------------------------
def tables(done: Advice) -> list[Rows]:
    """Of the round that the verdict is made of: speed, kinds and lengths of prompts, temperature, depth, sizes,
    where time goes; then what was dropped."""
    screening = done.screening
    if screening is None:
        return []
    by_lane = [(screening.asked.labels[lane], screening.metrics(lane)) for lane in _order(screening)]
    found = [_speed(screening), _kinds(screening), _lengths(screening), _temperatures(done.found, screening),
             depth_rows(by_lane), _sizes(done, screening), _times(screening),
             _modelled(done, screening), _dropped(done.found, screening)]
    return [rows for rows in found if len(rows) > 1]


def _order(screening: Screening) -> list[int]:
    return [BASELINE, *ranked(screening)]


def _speed(screening: Screening) -> Rows:
    rows = [["setting", "tokens/s", f"x {methods.baseline().id}", "±", "tokens/step", "accepted", "1st token"]]
    for lane in _order(screening):
        m, found = screening.metrics(lane), verdict_of(screening, lane)
        rate = or_dash(m.tokens_per_second, "{:.1f}".format)
        over = "baseline" if lane == BASELINE else found.brief
        noise = length(None if lane == BASELINE else found.noise)
        rows.append([screening.asked.labels[lane], rate, over, noise, length(m.mean_generated_length),
                     share(m.acceptance_rate), milliseconds(screening.ttft(lane))])
    return rows


def _kinds(screening: Screening) -> Rows:
    kinds = screening.kinds()
    if len(kinds) < 2:
        return []
    rows = [["x by kind of prompt", *(one_line(kind, _KIND) for kind in kinds)]]
    return rows + [[screening.asked.labels[lane], *(judge(screening.ratio(lane, kind=kind)).brief for kind in kinds)]
                   for lane in ranked(screening)]


def _lengths(screening: Screening) -> Rows:
    """Speed-up and acceptance by the length of what was read before the answer; nothing where all are alike."""
    lengths = screening.by_length()
    if len(lengths) < 2:
        return []

    rows = [["x and accepted by prompt tokens", *lengths]]
    return rows + [[screening.asked.labels[lane], *(_cell(screening, lane, prompts) for prompts in lengths.values())]
                   for lane in ranked(screening)]


def _cell(screening: Screening, lane: int, prompts: frozenset[int] | None = None) -> str:
    """Speed-up and acceptance of a lane on these prompts, or on all."""
    accepted = share(screening.metrics(lane, prompts).acceptance_rate)
    return f"{judge(screening.ratio(lane, prompts=prompts)).brief}, {accepted}"


def _temperatures(found: Findings, screening: Screening) -> Rows:
    """The same by temperature: that of the verdict, and another one; nothing where no other was tried."""
    other = next((each for each in found.rounds if elsewhere(found, each) and ranked(each)), None)
    if other is None:
        return []
    places = {lane.label: number for number, lane in enumerate(other.lanes) if number in ranked(other)}
    header = [f"{each.asked.request.temperature:g}" for each in (screening, other)]
    rows = [["x and accepted by temperature", header[0], f"{header[1]} ({counted(other.prompts(), 'prompt')})"]]
    return rows + [[label, _cell(screening, lane), _cell(other, places[label])] for lane in ranked(screening)
                   if (label := screening.lanes[lane].label) in places]


def _sizes(done: Advice, screening: Screening) -> Rows:
    """The curve of tokens a second over the depth of a draft, as deep as was tried, with its best point."""
    rows = [["tokens/s by draft depth", *map(str, _SIZES), "best"]]
    for lane in ranked(screening):
        m, alone = screening.metrics(lane), RoundCosts.of(screening.metrics(BASELINE))
        if not m.drafted or alone is None or not done.ready.price:
            continue
        known = SpeedupModel(CostCurve(done.ready.price), most=len(m.depth_tried), alone=alone.seconds)
        if (model := m.forecast(known)) is not None:
            rates = [f"{model.expected(size) / model.seconds(size):.1f}" for size in _SIZES if size <= model.most]
            rows.append([screening.asked.labels[lane], *rates, *[""] * (len(_SIZES) - len(rates)), str(model.best)])
    return rows


def _times(screening: Screening) -> Rows:
    """Where the time of a round goes, and what a round makes."""
    alone = RoundCosts.of(screening.metrics(BASELINE))
    rows = [["a round, ms", "verifying", "drafting", "outside", "all", "tokens", "break-even"]]
    for lane in _order(screening):
        costs = RoundCosts.of(screening.metrics(lane))
        if costs is not None and alone is not None:
            times = (costs.verify, costs.draft, costs.other, costs.seconds)
            rows.append([screening.asked.labels[lane], *(f"{seconds * 1e3:.1f}" for seconds in times),
                         f"{costs.tokens:.2f}", f"{costs.tokens_for(alone.rate):.2f}"])
    return rows


def _modelled(done: Advice, screening: Screening) -> Rows:
    """Speeds on the other machine, the fastest first."""
    found = modelled(screening, done.machine, done.ready) if done.machine is not None else {}
    last = stops_after(screening, done.machine, done.ready) if found else {}
    rows = [["MODELLED, not measured", f"x {methods.baseline().id}", "drafting", "pays up to", "here"]]
    for lane in sorted((lane for lane in found if lane != BASELINE), key=lambda lane: -found[lane].speed_up):
        rows.append([screening.asked.labels[lane], f"{found[lane].speed_up:.2f}x", share(found[lane].drafting),
                     f"{LIMIT}+ requests" if last[lane] is None else counted(last[lane], "request"),
                     verdict_of(screening, lane).brief])
    return rows


def _dropped(found: Findings, last: Screening) -> Rows:
    """What went out before the round of the verdict, the fastest first."""
    stayed = {lane.label for lane in last.lanes}
    rows = [["dropped", "in stage", "prompts", "x by t(n)", "tokens/step"]]
    for number, screening in reversed(list(enumerate(found.rounds, 1))):
        for lane in ranked(screening) if screening is not last else ():
            if (label := screening.lanes[lane].label) not in stayed:
                stayed.add(label)
                rows.append([label, str(number), str(screening.prompts()), f"{screening.score(lane):.2f}x",
                             length(screening.metrics(lane).mean_generated_length)])
    return rows


# -- what the numbers do not say ---------------------------------------------------------------------------------
def notes(done: Advice) -> list[str]:
    """Sentences below the tables."""
    found, screening = done.found, done.screening
    said = list(done.notes)
    if screening is not None:
        said += [_setting(found, screening), *pairs_summary(screening.result.pairs, screening.asked.labels), _NOISE]
        said += [_CURVE] * (len(_sizes(done, screening)) > 1)
        said += [_SERVERS] * (len(pastes(done)) > 1)
        said.append(disturbance_sentence(screening.result.disturbance()))
    said += _of_the_model(done)
    said += _held_out(found)
    failed = {s.asked.labels[lane]: why.message for s in found.rounds for lane, why in s.failed.items()}
    said += [f"{label} failed and was left out: {why}" for label, why in failed.items()]
    by_reason: dict[str, list[str]] = {}
    for engine, why in done.left_out.items():
        by_reason.setdefault(why, []).append(engine)
    said += [f"not tried: {', '.join(engines)}: {why}" for why, engines in by_reason.items()]
    return [sentence for sentence in said if sentence]


def _of_the_model(done: Advice) -> list[str]:
    if done.machine is None:
        return []
    words = one_line(done.machine.words)
    if done.screening is None or not modelled(done.screening, done.machine, done.ready):
        return [f"nothing is modelled for {words}: the number of parameters or a time of this machine is not known"]
    return [f"modelled for {words}: tokens and acceptance as measured here, with the sizes of drafts that pay here; "
            "target and draft passes by t(n) there, lookups and everything else as measured here, without reading the "
            "KV cache"
            + (f"; {done.machine.requests} requests at once, so that a pass has that many times the rows, and "
                     "lookups are made for each" if done.machine.requests > 1 else "")]


def _setting(found: Findings, screening: Screening) -> str:
    asked, wanted = screening.asked.request, found.request.max_new_tokens
    cut = f" ({wanted} were asked for, but the time is short)" if asked.max_new_tokens < wanted else ""
    answers, prompts = counted(len(screening.counted()), "answer"), counted(screening.prompts(), "prompt")
    most, how = counted(asked.max_new_tokens, "token"), decoding(asked.temperature, asked.law)
    return (f"{answers} of each setting to {prompts}, of at most {most}{cut}, {how}; in turns, each with empty caches "
            "and nothing learned; the prefill is not counted")


def _held_out(found: Findings) -> list[str]:
    said = []
    if found.held_out:
        said.append(f"{counted(len(found.held_out), 'prompt')} held out: the answers lie in a datastore that is "
                    "searched")
    if found.copied:
        said.append(f"the answers to {counted(found.copied, 'prompt')} lie in a datastore that is searched: "
                    "retrieval looks better here than it is")
    return said


# -- JSON --------------------------------------------------------------------------------------------------------
def as_object(done: Advice) -> dict[str, Any]:
    """Everything, as plain JSON data."""
    found, screening, request = done.found, done.screening, done.found.request
    setting = advised(done)
    return {
        "schema": SCHEMA,
        "finished": found.finished,
        "model": model_label(done.ready.model),
        "draft_model": done.ready.draft_model and model_label(done.ready.draft_model),
        "asked": {name: getattr(request, name) for name in ("max_new_tokens", *SAMPLING_FIELDS, "seed", "law")}
        | {"seconds": found.seconds, "prompts": len(found.suite.places), "name": found.suite.name},
        "verdict": sentences(found),
        "advised": None if setting is None else {
            "engine": setting.engine, "options": setting.options,
            **({"draft_model": setting.draft_model} if setting.draft_model else {})},
        "ties": [screening.lanes[lane].label for lane in ties(screening)] if screening is not None else [],
        "paste": [{"program": block.name, "text": block.text, "lost": block.note.removeprefix(_LOST)}
                  for block in pastes(done)],
        "rounds": [_round(number, each) for number, each in enumerate(found.rounds, 1)],
        "held_out": [one_line(case.id) for case in found.held_out],
        "left_out": dict(done.left_out),
        "notes": notes(done),
        "modelled": _modelled_object(done),
    }


def _modelled_object(done: Advice) -> dict[str, Any] | None:
    if done.machine is None or done.screening is None:
        return None
    found = modelled(done.screening, done.machine, done.ready)
    last = stops_after(done.screening, done.machine, done.ready)
    lanes = {done.screening.asked.labels[lane]: encoding.plain(each) | (
        {"stops_after_requests": last[lane]} if lane in last else {}) for lane, each in found.items()}
    return {"machine": done.machine.words, "lanes": lanes}


def _round(number: int, screening: Screening) -> dict[str, Any]:
    return {
        "round": number, "final": screening.final, "over": screening.over, "prompts": screening.prompts(),
        "temperature": screening.asked.request.temperature,
        "answers": len(screening.counted()), "max_new_tokens": screening.asked.request.max_new_tokens,
        "lanes": [_lane(screening, lane) for lane in range(len(screening.lanes))],
        "pairs": [encoding.plain(pair) for pair in screening.result.pairs],
    }


def _lane(screening: Screening, lane: int) -> dict[str, Any]:
    m, setting = screening.metrics(lane), screening.lanes[lane]
    base = lane == BASELINE
    return {
        "lane": setting.label, "engine": setting.engine, "options": setting.options,
        "speed_up": None if base else encoding.plain(screening.ratio(lane)),
        "by_kind": {kind: encoding.plain(screening.ratio(lane, kind=kind)) for kind in screening.kinds() if not base},
        "depth_tried": list(m.depth_tried), "depth_accepted": list(m.depth_accepted), "stats": m.stats(),
        "failed": screening.failed[lane].message if lane in screening.failed else None,
    }
