"""An adviser's verdict in plain words: what to use, what it gains, where it does not, and what would change that."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from engines import methods
from engines.advice.findings import BASELINE, Findings, RoundCosts, Screening
from engines.advice.halving import FINALISTS, EvaluationPlan, Stage
from engines.advice.paired_ratio import PairedRatio
from engines.laws import spec_of
from engines.race.interval import LEAST_NOISE
from engines.report.plain_text import LOSSY
from engines.report.wording import counted, joined
from engines.request import Request
from spec_tui.present.speed_verdict import VAGUE, Speed, SpeedVerdict, judged

_NO_VERDICT = (Speed.UNMEASURED, Speed.IMPOSSIBLE)
_WORTH = 0.05  # of a round's time: less is not worth a word
_LONG = 60.0  # minutes: what would take longer to tell is as good as a tie


def judge(ratio: PairedRatio | None, tokens_per_step: float | None = None) -> SpeedVerdict:
    """The judgement on a speed-up over the same prompts."""
    if ratio is None:
        return judged(None, None)
    noise = None if ratio.noise is None else max(ratio.noise, LEAST_NOISE * ratio.ratio)
    return judged(ratio.ratio, noise, tokens_per_step)


def verdict_of(screening: Screening, lane: int) -> SpeedVerdict:
    """The judgement on a lane of a round beside the baseline."""
    return judge(screening.ratio(lane), screening.metrics(lane).mean_generated_length)


def decoding(temperature: float, law: str) -> str:
    """How answers are decoded: "greedy", or the temperature and the law, marked where it is lossy."""
    return f"temperature {temperature:g}, law {spec_of(law, temperature).label}" if temperature else "greedy"


def ranked(screening: Screening) -> list[int]:
    """The lanes of a round that were measured beside the baseline, the fastest first: by their score, which the clock
    disturbs less than the measured ratio, and which is no part of that."""
    scores = {lane: screening.score(lane) for lane in range(1, len(screening.lanes)) if lane not in screening.failed}
    return sorted((lane for lane, score in scores.items() if score), key=lambda lane: -scores[lane])


def last_measured(findings: Findings) -> Screening | None:
    """The round that a verdict is made of: the last one in which something was measured as it was asked."""
    return next((each for each in reversed(findings.rounds) if ranked(each) and not elsewhere(findings, each)), None)


def elsewhere(findings: Findings, screening: Screening) -> bool:
    """Whether a round was at another temperature than asked."""
    return screening.asked.request.temperature != findings.request.temperature


def chosen(screening: Screening) -> int | None:
    """The lane to use: the fastest where it is faster than the baseline, else the baseline; None without a verdict."""
    first = ranked(screening)[0]
    found = verdict_of(screening, first)
    if found.speed in _NO_VERDICT:
        return None
    likely = outstanding(screening, first, found)
    return first if found.speed is Speed.FASTER or (likely is not None and likely.ratio > 1) else BASELINE


@dataclass(frozen=True, slots=True)
class Outstanding:
    """What is likely where the clock does not tell yet: a speed-up by tokens, t(n) and the times of drafting, which
    are nearly free of noise; and the minutes that would settle it, or None where these prompts are too few for it."""

    ratio: float
    minutes: int | None


def outstanding(screening: Screening, lane: int, found: SpeedVerdict) -> Outstanding | None:
    """Of a lane that cannot be told from the baseline because too little was measured; None for a tie that more time
    would hardly change, and for any other verdict."""
    ratio = screening.score(lane)
    if found.speed is not Speed.SAME or not found.vague or ratio is None:
        return None
    gain = abs(ratio - 1)
    if gain <= LEAST_NOISE:
        return None
    spent = sum(m.prefill_seconds + m.decode_seconds for m in map(screening.metrics, range(len(screening.lanes))))
    times = max(1.0, (found.noise / gain) ** 2)
    minutes = 2 * spent / 60 * (times - 1)  # half of the time is the final's
    if minutes > _LONG:
        return None
    return Outstanding(ratio, max(1, ceil(minutes)) if screening.room_for(times) else None)


def ties(screening: Screening) -> list[int]:
    """The lanes that cannot be told from the fastest."""
    first, *others = ranked(screening)
    return [lane for lane in others if judge(screening.ratio(lane, first)).speed in (Speed.SAME, Speed.FASTER)]


def sentences(findings: Findings) -> list[str]:
    """The whole verdict, the advice first."""
    screening = last_measured(findings)
    if screening is None and not all(each.over for each in findings.rounds):
        return ["Unfinished: it was interrupted before one prompt was answered with every setting. Run it again."]
    if screening is None:
        return ["Nothing was measured: not one prompt was answered with every setting. Give it more time."]
    first = ranked(screening)[0]
    found = verdict_of(screening, first)
    said = [*_unfinished(findings, screening), _advice(screening, first, found), *_lossy(screening.asked.request)]
    if found.speed in _NO_VERDICT:
        return said
    if found.speed is Speed.FASTER:
        said += _tied(screening)
    return [*said, *_prompts(screening, first, found), *_kinds(screening, first), *_next_best(screening, first, found)]


def _unfinished(findings: Findings, screening: Screening) -> list[str]:
    if findings.finished:
        return []
    number = findings.rounds.index(screening) + 1
    answers = counted(len(screening.counted()), "answer")
    return [f"Unfinished: this is what stage {number} of {len(findings.stages)} says, after {answers} of each setting."]


def _lossy(request: Request) -> list[str]:
    law = spec_of(request.law, request.temperature)
    return [] if law.lossless else [f"The law {law.name} is {LOSSY}: the texts, and how probable they are, are not "
                                    f"those of {methods.baseline().title.lower()} decoding."]


def _advice(screening: Screening, first: int, found: SpeedVerdict) -> str:
    label, base = screening.asked.labels[first], methods.baseline().title.lower()
    prompts = counted(screening.prompts(), "prompt")
    if found.speed is Speed.FASTER:
        return f"Use {label}: {found.words} than {base} decoding, on {prompts}."
    if found.speed is Speed.UNMEASURED:
        return (f"There was too little time for a verdict: by the tokens and time of its rounds, {label} reaches "
                f"{screening.score(first):.2f}x the speed of {base} decoding on {prompts}, too few to tell it from "
                "noise. Give it more time.")
    if found.speed is Speed.IMPOSSIBLE:
        return f"No verdict: the speed of the machine changed meanwhile ({label}: {found.reason}). Run it again."
    if (likely := outstanding(screening, first, found)) is not None:
        said = "Probably faster" if likely.ratio > 1 else "Probably slower"
        more = f"About {counted(likely.minutes, 'more minute')}" if likely.minutes else "More prompts"
        return (f"{said}: {label} at {likely.ratio:.1f}x the speed of {base} decoding, computed from its rounds on "
                f"{prompts}; measured {found.ratio:.2f}x ±{found.noise:.2f}. {more} would settle it.")
    if found.speed is Speed.SAME:
        what = "A tie"
        if found.vague:
            more = "time" if screening.room_for((found.noise / VAGUE) ** 2) else "prompts"
            what = f"Not settled, more {more} would tell"
        return (f"{what}: the fastest, {label}, cannot be distinguished from {base} decoding on {prompts} "
                f"({found.ratio:.2f}x ±{found.noise:.2f}).")
    return (f"Use no drafts ({methods.baseline().id}): all other settings are slower here on {prompts}. The fastest of "
            f"them is {label}: {found.ratio:.2f}x (±{found.noise:.2f}).")


def _tied(screening: Screening) -> list[str]:
    first, labels = ranked(screening)[0], screening.asked.labels
    tied = [f"{labels[lane]} ({judge(screening.ratio(lane, first)).brief} its speed)" for lane in ties(screening)]
    return [f"A tie: {joined(tied)} cannot be distinguished from it."] if tied else []


def _prompts(screening: Screening, first: int, found: SpeedVerdict) -> list[str]:
    """How much the prompts differ, where they differ by more than the noise."""
    ratio = screening.ratio(first)
    if ratio.spread is None or ratio.spread <= found.noise:
        return []
    return [f"Prompts differ: {ratio.each[0]:.2f}x to {ratio.each[-1]:.2f}x, faster on {ratio.ahead} of "
            f"{ratio.samples}; on other prompts like these the speed-up is known to ±{ratio.spread:.2f}."]


def _kinds(screening: Screening, first: int) -> list[str]:
    kinds = {kind: judge(screening.ratio(first, kind=kind)) for kind in screening.kinds()}
    if sum(found.noise is not None for found in kinds.values()) < 2:
        return []
    gains, losses, vague = [], [], []
    asked = [(kind, found) for kind, found in kinds.items() if found.ratio is not None]
    for kind, found in sorted(asked, key=lambda item: -item[1].ratio):
        among = vague if found.vague or found.noise is None else gains if found.speed is Speed.FASTER else losses
        among.append(f"{kind} ({found.brief})")
    said = [f"gains on {joined(gains)}"] * bool(gains) + [f"does not gain on {joined(losses)}"] * bool(losses)
    said += [f"cannot be distinguished from the baseline, with so few answers, on {joined(vague)}"] * bool(vague)
    return [f"By kind of prompt: {screening.asked.labels[first]} {'; '.join(said)}."]


def _next_best(screening: Screening, first: int, found: SpeedVerdict) -> list[str]:
    """What would have to change for the next best to win: computed from this round's times, not measured."""
    lanes, labels = ranked(screening), screening.asked.labels
    if found.speed is Speed.FASTER:
        winner, told = first, [first, *ties(screening)]
        other = next((n for n in lanes if n not in told and screening.lanes[n].method != screening.lanes[first].method),
                     next((n for n in lanes if n not in told), None))
    else:
        winner, other = BASELINE, first if (screening.score(first) or 0.0) <= 1 else None
    if other is None:
        return []
    mine, best, alone = (RoundCosts.of(screening.metrics(lane)) for lane in (other, winner, BASELINE))
    if mine is None or best is None or alone is None:
        return []
    name, rival = labels[other], labels[winner]
    said = []
    if found.speed is not Speed.SAME:
        who = f"{name}, the next best ({verdict_of(screening, other).brief})," if winner else name
        said.append(f"{who} makes {mine.tokens:.2f} tokens a round; to be as fast as {rival} it would have to make "
                    f"{mine.tokens_for(best.rate):.2f}.")
    free, theirs = (costs.free_rows(alone) / alone.rate for costs in (mine, best))
    if abs(free / theirs - 1) > LEAST_NOISE:
        wins = f"{name} would win" if free > theirs else f"{rival} would still win"
        said.append(f"If verifying a draft took no longer than a pass over one token, {wins}: {name} at {free:.2f}x, "
                    f"{rival} at {theirs:.2f}x.")
    if mine.draft > _WORTH * mine.seconds:
        said.append(f"If its drafting took no time, {name} would be at {mine.free_drafts() / alone.rate:.2f}x.")
    return [" ".join(said)] if said else []


def planned(found: EvaluationPlan) -> str:
    """What an evaluation will do, in which order, before it begins."""
    base, stages = methods.baseline().id, found.plan.stages
    first = {Stage.METHODS: "with their defaults", Stage.SETTINGS: "with all their settings",
             Stage.FINAL: "by answers that are long enough to judge"}
    said = [f"First {base} and the methods that are likeliest to gain answer the same prompts, {first[stages[0]]}: "
            f"{'; '.join(_forecasts(found))}."]
    said += ["Then the faster half of them with all their settings."] * (Stage.SETTINGS in stages[1:])
    said += [f"Then the {FINALISTS} fastest with longer answers, which take half of the time and alone decide the "
             f"verdict."] * (len(stages) > 1)
    left = [engine for engine, draft in found.likeliest if (engine, draft) not in found.plan.methods]
    said += [f"There is no time for {joined(left)}: give more minutes to try them."] * bool(left)
    said += ["A forecast follows from t(n), the cost of drafting and the usual acceptance; the clock checks it."
             ] * bool(found.forecasts)
    return " ".join(said)


def _forecasts(found: EvaluationPlan) -> list[str]:
    """The methods that take part, the likeliest first; those with the same forecast together."""
    groups: dict[str, list[str]] = {}
    for engine, draft in found.plan.methods:
        ratio = found.forecasts.get((engine, draft))
        words = "nothing is known before they run" if ratio is None else f"forecast {ratio:.1f}x"
        groups.setdefault(words, []).append(f"{engine} with {draft}" if draft else engine)
    return [f"{joined(names)} ({words})" for words, names in groups.items()]
