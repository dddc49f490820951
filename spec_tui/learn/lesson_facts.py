"""What lessons may say of a run and of a round, by name, and the rounds that pages point at: by what is in them, so
that a page finds its round in a run recorded anew. Everything is computed from the events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import takewhile
from math import prod
from statistics import median

from engines.core.tree import children
from engines.cost.curve import CostCurve
from engines.laws.spec import rivals
from engines.randomness import bound
from engines.report.events import Round, Trial
from engines.report.run_state import RunState, best_path, origin_of
from engines.report.wording import context_tail, listed, quoted, seconds_of
from spec_tui.present.narration import question
from spec_tui.present.step.phases import event_of
from spec_tui.present.text import one_line

Fact = str | int | float
"""Texts are cleaned for the terminal. Times are seconds, shares 0..1."""
FLAT = 2.0
"""Up to so many times t(1) a forward pass counts as about as long as one over a single row."""


class Missing(ValueError):
    """A page wants something that this run does not have."""


def of_run(run: RunState) -> dict[str, Fact]:
    """What is known of a whole run; what it does not have is left out."""
    m, started = run.metrics, run.started
    facts: dict[str, Fact | None] = {
        "tokens": m.new_tokens, "new": m.new_tokens - m.answers, "forwards": m.target_forwards, "drafted": m.drafted,
        "accepted": m.accepted, "wasted": m.drafted - m.accepted, "rate": m.acceptance_rate,
        "m": m.mean_generated_length, "speed": m.tokens_per_second,
    }
    if started is not None:
        facts |= {"asked": one_line(question(started), 120), "temperature": f"{started.temperature:g}"}
        facts |= _prices(run)
        facts |= {f"option_{name}": value for name, value in (started.options or {}).items()
                  if isinstance(value, int | float)}
    if run.audited is not None:
        facts["verdict"] = run.audited.verdict
    facts |= _rounds(run) | _layers(run)
    return {name: value for name, value in facts.items() if value is not None}


def _prices(run: RunState) -> dict[str, Fact | None]:
    """t(n) as multiples of t(1), t(1) itself, and t(1) of the draft model."""
    if not run.started.price:
        return {}
    curve = CostCurve(run.started.price)
    facts: dict[str, Fact | None] = {f"cost_{n}": curve.at(n) / curve.at(1) for n in (8, 16)}
    facts["alone"] = curve.at(1)
    facts["flat"] = max(n for n, seconds in curve.points if seconds <= FLAT * curve.at(1))
    facts["widest"] = curve.points[-1][0]
    facts["widest_cost"] = curve.points[-1][1] / curve.at(1)
    if run.started.draft_price:
        facts["draft_cost"] = CostCurve(run.started.draft_price).at(1) / curve.at(1)
    return facts


def _rounds(run: RunState) -> dict[str, Fact | None]:
    """Sums over the rounds."""
    drafting = [event for event in run.rounds if event.draft.tokens]
    idle = [event for event in run.rounds if not event.draft.tokens]
    off = [len(event.path) - on_favourite(event) for event in drafting]
    one = median(map(seconds_of, idle)) if idle else None
    passes, rounds = sum(event.draft_forwards or 0 for event in run.rounds), len(run.rounds)
    each = _median([event.draft_seconds and event.draft_seconds / event.draft_forwards
                    for event in run.rounds if event.draft_forwards])
    verified = _median([event.verify_seconds for event in run.rounds])
    return {
        "draft_pass": each, "verify_pass": verified,
        "busy": (each or 0.0) * passes + verified * rounds if verified is not None else None,
        "a_round": sum(map(seconds_of, run.rounds)) / rounds if rounds else None,
        "drafting": len(drafting), "idle": len(idle), "one": one,
        "off_rounds": sum(gain > 0 for gain in off), "off_tokens": sum(gain for gain in off if gain > 0),
        "failed": sum(not event.path for event in drafting),
        "by_retrieval": sum(token.source == "retrieval" for token in run.tokens),
    }


def _median(seconds: list[float | None]) -> float | None:
    """The median; None where some are not known, and of none."""
    return None if None in seconds or not seconds else median(seconds)


def _layers(run: RunState) -> dict[str, Fact | None]:
    """Of a target that drafts for itself: what it leaves out, and how many draft passes it made."""
    layers = run.prefilled.layers if run.prefilled is not None else None
    if layers is None:
        return {}
    rules = [*layers.attention, *layers.mlp]
    left, known = sum(rule != "" for rule in rules), [c for c in layers.attention_cosine if c is not None]
    forwards = sum(event.draft_forwards or 0 for event in run.rounds)
    share = 1 - left / len(rules)
    return {
        "sublayers": len(rules), "left_out": left, "share": share, "draft_forwards": forwards,
        "alpha": f"{layers.alpha:g}" if layers.alpha is not None else None,
        "lowest": min(known, default=None), "highest": max(known, default=None), "layers": len(layers.attention),
        "mlp_out": sum(rule != "" for rule in layers.mlp),
    }


def of_round(run: RunState, number: int) -> dict[str, Fact]:
    """What is known of a round; of the prefill nothing."""
    event = event_of(run, number)
    if event is None:
        return {}
    draft, path = event.draft, best_path(event.draft)
    root, last = run.root_of(number - 1), event.emitted[-1] if event.emitted else None
    gamma = event.note.get("exit_threshold")
    facts: dict[str, Fact | None] = {
        "rows": 1 + len(draft.tokens), "drafted": len(draft.tokens), "accepted": len(event.path),
        "gained": len(event.emitted), "wrong": len(draft.tokens) - len(event.path),
        "root": quoted(root.piece) if root is not None else None, "verify": event.verify_seconds,
        "drafting": event.draft_seconds, "took": seconds_of(event),
        "paths": len(set(range(len(draft.parents))) - set(draft.parents)),
        "draft": listed(draft.pieces[node] for node in path) if path else None,
        "path": listed(draft.pieces[node] for node in event.path) if event.path else None,
        "favourite": on_favourite(event), "forwards": event.draft_forwards,
        "gamma": gamma if isinstance(gamma, int | float) else None,
    }
    if path:
        facts |= {"first": quoted(draft.pieces[path[0]]), "first_q": draft.probs[path[0]]}
    if last is not None and last.node < 0:
        facts |= {"own": quoted(last.piece), "rival": rivals(event)}
    facts |= _sought(run, event) | _trials(event)
    return {name: value for name, value in facts.items() if value is not None}


def _match(event: Round) -> int | None:
    """Tokens of the end of the text that were found again; None where words are not what is looked for."""
    if event.retrieval is not None:
        return event.retrieval.match
    return max((origin.match for origin in event.draft.origins if origin.match), default=None)


def _either(pieces: list[str], most: int = 3) -> str:
    """Labels of which one is meant, the last ones counted."""
    *first, last = [*map(quoted, pieces[:most]), *[f"{len(pieces) - most} others"] * (len(pieces) > most)]
    return " or ".join(filter(None, (", ".join(first), last)))


def _sought(run: RunState, event: Round) -> dict[str, Fact | None]:
    """What was looked up, and what it gave."""
    draft, found, match = event.draft, event.retrieval, _match(event)
    facts: dict[str, Fact | None] = {"match": match}
    if match:
        facts["suffix"] = quoted(one_line("".join(context_tail(run, event.position, min(match, 12))), 48))
    if found is None:
        return facts
    facts |= {"hits": found.hits, "used": found.used, "lookup": found.seconds,
              "pruned": sum(count for _, count in found.pruned),
              "cut": _either([piece for piece, _ in found.pruned]) if found.pruned else None,
              "both": draft.fused,
              "mine": sum(origin_of(draft, node).source == "draft" for node in range(len(draft.tokens)))}
    facts["theirs"] = len(draft.tokens) - facts["mine"]
    return facts


def _trials(event: Round) -> dict[str, Fact | None]:
    """The place with the most trials, and the trial that was closest to going the other way."""
    facts: dict[str, Fact | None] = {}
    if trials := most_thrown(event):
        first, last = trials[0], trials[-1]
        facts |= {"throws": len(trials), "thrown": quoted(event.draft.pieces[first.node]),
                  "thrown_p": first.target_prob, "thrown_draw": first.draw,
                  "then": quoted(event.draft.pieces[last.node]), "then_p": last.target_prob, "then_draw": last.draw}
        if all(trial.draft_prob == 1 for trial in trials):  # each rejection took its token out of p
            facts["then_first"] = last.target_prob * prod(1 - trial.target_prob for trial in trials[:-1])
    if (near := closest(event)) is not None:
        facts |= {"close": quoted(event.draft.pieces[near.node]), "close_p": near.target_prob,
                  "close_q": near.draft_prob, "close_bound": ratio(near), "close_draw": near.draw,
                  "close_kept": int(near.accepted)}
    return facts


# -- which round -----------------------------------------------------------------------------------
Score = Callable[[RunState, Round], float | None]
"""How well a round fits, the more the better; None where it does not."""


def pick(run: RunState, name: str) -> int | None:
    """The number of the round that fits a name best, the first of equals; 0 is the prefill. None where none fits.
    Raises KeyError: there is no such name."""
    if name == "prefill":
        return 0 if run.prefilled is not None else None
    score = PICKS[name]
    found = [(value, -event.index) for event in run.rounds if (value := score(run, event)) is not None]
    return -max(found)[1] if found else None


def on_favourite(event: Round) -> int:
    """How many tokens would have been accepted if only the drafter's favourite path had been drafted."""
    return len([*takewhile(lambda pair: pair[0] == pair[1], zip(best_path(event.draft), event.path))])


def ratio(trial: Trial) -> float:
    """What the random draw must be below: p/q, at most 1."""
    return min(1.0, trial.target_prob / trial.draft_prob) if trial.draft_prob > 0 else 0.0


def most_thrown(event: Round) -> tuple[Trial, ...]:
    """The trials of the token for which a round needed most of them."""
    return max((emitted.trials for emitted in event.emitted), key=len, default=())


def closest(event: Round) -> Trial | None:
    """The trial whose draw was nearest to its bound, of those that could have gone either way."""
    open_ = [trial for one in event.emitted for trial in one.trials if 0.1 <= ratio(trial) <= 0.95]
    return min(open_, key=lambda trial: abs(ratio(trial) - trial.draw), default=None)


def _judged(event: Round) -> bool:
    return bool(event.draft.tokens) and any(emitted.node < 0 for emitted in event.emitted)


def _several(run: RunState, event: Round) -> float | None:
    trials = most_thrown(event)
    return len(trials) if len(trials) > 1 and trials[-1].accepted else None


def _close(run: RunState, event: Round) -> float | None:
    found = closest(event)
    if found is None or event is event_of(run, pick(run, "several draws") or 0):
        return None
    return -abs(ratio(found) - found.draw)


def kept_chances(event: Round) -> list[tuple[float, float]]:
    """For each node of a drawn chain, whose probabilities are known, the chance that the chain stays as far: token by
    token, and as a block (``laws.block_verification``). Empty for any other draft."""
    draft, out, alone, weight = event.draft, [], 1.0, 1.0
    if list(draft.parents) != [*range(-1, len(draft.parents) - 1)] or len(event.verified) <= len(draft.parents):
        return []
    for node, q in enumerate(draft.probs):
        p = event.verified[node + 1].drafted
        if p is None or not q:
            return []
        alone, weight = alone * bound(p, q), bound(weight * p, q)
        out.append((alone, weight))
    return out


def _made_up(run: RunState, event: Round) -> float | None:
    gain = sum(weight - alone for alone, weight in kept_chances(event))
    return gain if gain > 0 else None


def _off(run: RunState, event: Round) -> float | None:
    gain = len(event.path) - on_favourite(event)
    return gain if gain > 0 and _judged(event) else None


def _fused(event: Round) -> int:
    """How many nodes both drafters proposed, or only the lookup: the smaller of the two."""
    draft, both = event.draft, event.draft.fused
    return min(both, sum(origin_of(draft, node).source != "draft" for node in range(len(draft.tokens))))


def _choice(event: Round) -> float | None:
    """How many first tokens the draft had, where both models' probabilities are known; of as many, how much of both
    distributions they are."""
    below = {event.draft.tokens[node]: node for node in children(event.draft.parents).get(-1, ())}
    if len(below) < 2 or not event.verified:
        return None
    shares = [(event.verified[node + 1].drafted, event.draft.probs[node]) for node in below.values()]
    if any(None in pair for pair in shares):
        return None
    return len(below) + 0.99 * min(map(sum, zip(*shares)))


def followers(run: RunState, event: Round, count: int) -> list[tuple[str, int]]:
    """Labels of what followed the last ``count`` tokens before a round wherever they had occurred before, and how
    often, the most frequent first; [] where they had not, or the text is not known."""
    if run.started is None or not run.started.prompt:
        return []
    written = run.tokens[: event.position - len(run.started.prompt)]
    tokens = (*run.started.prompt, *(token.emitted.token for token in written))
    pieces = (*run.started.prompt_pieces, *(token.piece for token in written))
    end = tokens[-count:]
    return Counter(pieces[at] for at in range(count, len(tokens)) if tokens[at - count : at] == end).most_common()


def _open(run: RunState, event: Round) -> float | None:
    """How many tokens followed the last one, where one followed the last two."""
    return len(followers(run, event, 1)) if len(followers(run, event, 2)) == 1 else None


PICKS: dict[str, Score] = {
    "first": lambda run, event: -event.index,
    "last": lambda run, event: event.index,
    "middle": lambda run, event: -abs(event.index - (len(run.rounds) + 1) // 2),
    "first drafted": lambda run, event: -event.index if _judged(event) else None,
    "most drafted": lambda run, event: len(event.draft.tokens) if _judged(event) else None,
    "most accepted": lambda run, event: len(event.path) if event.path and _judged(event) else None,
    "nothing drafted": lambda run, event: None if event.draft.tokens else 1,
    "corrected": lambda run, event: 1 if event.path and event.emitted[-1].kind == "corrected" else None,
    "last corrected": lambda run, event: event.index if event.path and event.emitted[-1].kind == "corrected" else None,
    "all wrong": lambda run, event: len(event.draft.tokens) if _judged(event) and not event.path else None,
    "off the favourite": _off,
    "longest match": lambda run, event: event.retrieval.match if event.retrieval and event.draft.tokens else None,
    "pruned": lambda run, event: sum(n for _, n in event.retrieval.pruned) or None if event.retrieval else None,
    "dropped": lambda run, event: min(len(event.retrieval.dropped), len(event.retrieval.passages)) or None
    if event.retrieval else None,
    "fused": lambda run, event: _fused(event) or None,
    "most choice": lambda run, event: _choice(event),
    "several draws": _several,
    "close draw": _close,
    "made up for": _made_up,
    "two tokens say more": _open,
}
