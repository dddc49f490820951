"""How a round's draft was judged, in words, law by law: verification, acceptance, the target's own token."""

from __future__ import annotations

from collections.abc import Callable

from engines.core.tree import children, depths
from engines.cost.curve import CostCurve
from engines.report.events import Emitted, Round, Trial
from engines.report.run_state import RunState
from spec_tui.present.step.nodes import TreeNode, nodes_of, unrecorded
from spec_tui.present.step.wording import chosen, counted, listed, ms, noisy, p3, quoted, tokens
from spec_tui.present.text import LOSSY, one_line

Words = list[str]
_SHOWN = 3  # trials told one by one


def verification(run: RunState, event: Round, deep: bool) -> Words:
    """The forward: its rows, its time, what the target says at them; not yet what comes of it."""
    rows = 1 + len(event.draft.tokens)
    if rows == 1:
        words = [f"One forward of the target over one row, the root: {ms(event.verify_seconds)}."]
    else:
        words = [f"One forward of the target scores the root and {counted(rows - 1, 'drafted node')} together: {rows} "
                 f"rows in {ms(event.verify_seconds)}." + _price(run, rows)]
    words.append(_rule(run) + _at_root(run, event))
    if deep:
        words += _depth(run, event)
    return words


def acceptance(run: RunState, event: Round, deep: bool) -> Words:
    """The walk down the tree."""
    kept, deepest = len(event.path), max(depths(event.draft.parents), default=0)
    head = f"{kept} of {counted(len(event.draft.tokens), 'drafted node')} accepted"
    head += f", {kept} of {counted(deepest, 'level')} deep." if deepest != len(event.draft.tokens) else "."
    law = _law(run) if run.started is None or run.started.temperature > 0 else "greedy"
    words = [f"{head} " + _WALKS.get(law, _by_choice)(run, event)]
    if deep:
        words += _DEEPER.get(law, _gaps)(run, event)
    return words + _lossy_above(run)


def own_token(run: RunState, event: Round, deep: bool) -> Words:
    """The token that the target wrote by itself, after the path."""
    last = event.emitted[-1]
    what = f"{quoted(last.piece)}, to which it gives {p3(last.prob)}"
    words = []
    if last.kind == "bonus":
        words.append(f"The path was accepted to its end, and the row there says what follows: {what}. It is a bonus: "
                     "the same forward gave it, at no cost.")
    elif last.kind == "corrected":
        words.append(f"The draft said {_rivals(event)} here; the target's own token is {what}. It stands: so even a "
                     f"draft that is all wrong costs no token, and this round makes {tokens(len(event.emitted))}.")
    else:
        words.append(f"Nothing was drafted: the target's token is {what}. The round makes one token.")
    words += _drawn_how(run, last)
    if deep and last.top:
        words.append(f"Its favourites here: {', '.join(chosen(c) for c in last.top)}.")
    if deep and last.gap is not None:
        noise = f"; the noise of the token is {last.noise:+.3f}" if last.noise is not None else ""
        words.append(f"It won by {last.gap:.3f} over the next best score{noise}.")
    return words


# -- verification ---------------------------------------------------------------------------------
def _price(run: RunState, rows: int) -> str:
    started = run.started
    if started is None or not started.price:
        return ""
    curve = CostCurve(started.price)
    return (f" By t(n), measured at load, that costs ×{curve.at(rows) / curve.at(1):.2f} of one row: a forward mostly "
            "reads weights, and reads them once for all rows.")


def _rule(run: RunState) -> str:
    started = run.started
    if started is None:
        return "At every row the target says what it has there."
    if _law(run) in ("rejection", "redraw") and started.temperature > 0:
        return "At every row it gives its distribution p; which drafts stay, dice decide."
    if _law(run) == "typical" and started.temperature > 0:
        return "At every row it gives its distribution p, and with it a threshold for drafts."
    if started.temperature > 0:
        return (f"At every row the target has one token: the best of its scores and noise that seed {started.seed} and "
                "the position fix.")
    return "At every row the target has one token, its likeliest."


def _at_root(run: RunState, event: Round) -> str:
    if not event.emitted:
        return ""
    first = event.emitted[0]
    if first.trials:
        return f" After the root its likeliest is {chosen(first.top[0])}." if first.top else ""
    return f" After the root it has {quoted(first.piece)} ({p3(first.prob)})."


def _depth(run: RunState, event: Round) -> Words:
    words, missing = [], unrecorded(event)
    size = len(event.draft.tokens)
    if size:
        known = [n for n in nodes_of(event) if n.p is not None and n.q is not None and not _shared_noise(run, n)]
        if known:
            apart = sum(abs(n.p - n.q) for n in known) / len(known)
            words.append(f"Over {counted(len(known), 'node')} with both, draft and target differ by {apart:.3f} in the "
                         "probability of the token.")
        words.append(f"What the target has is recorded at all {size + 1} rows." if not missing else
                     f"What the target has at {counted(missing, 'node')} of {size} was not recorded, since the walk "
                     "did not come there; a run with all rows recorded has it.")
    words.append(f"The first token made here is number {event.position} of the context; a node at depth d stands at "
                 f"position {event.position - 1} + d.")
    return words


def _shared_noise(run: RunState, node: TreeNode) -> bool:
    """Whether a node's q is a belief after the noise, and so not to be held against p."""
    return noisy(run) and node.origins[0].source == "draft"


# -- acceptance -----------------------------------------------------------------------------------
def _by_choice(run: RunState, event: Round) -> str:
    path = listed(event.draft.pieces[n] for n in event.path)
    walk = f"From the root on, the target's own token was among those drafted: {path}. " if event.path else ""
    if not event.emitted or event.emitted[-1].node >= 0:
        return walk + "There the answer ends."
    last = event.emitted[-1]
    if last.kind == "bonus":
        return walk + "The path ends there: nothing was drafted below it."
    where = "Then" if event.path else "Right after the root"
    return walk + f"{where} the target has {quoted(last.piece)}, and drafted was {_rivals(event)}: the walk ends."


def _by_dice(run: RunState, event: Round) -> str:
    told = [_throw(trial, event) for emitted in event.emitted for trial in emitted.trials]
    more = f" … and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    rule = "A draft is accepted while its dice are below p/q"
    if point_masses(event):
        rule += ("; these were chosen and not drawn, so to the law each is a point mass, q = 1, whatever the drafter "
                 "gave it")
    return f"{rule}. {'; '.join(told[:_SHOWN])}{more}."


def point_masses(event: Round) -> bool:
    """Whether the dice of this round were thrown against drafts that nobody drew: q is then 1, and not what the drafter
    gave them."""
    trials = [trial for emitted in event.emitted for trial in emitted.trials]
    return all(t.draft_prob == 1.0 for t in trials) and any(event.draft.probs[t.node] != 1.0 for t in trials)


def _by_threshold(run: RunState, event: Round) -> str:
    told = [f"{quoted(event.draft.pieces[t.node])} has p {p3(t.target_prob)}, threshold {p3(t.dice)}: "
            f"{'kept' if t.accepted else 'refused'}" for e in event.emitted for t in e.trials]
    return (f"{LOSSY}: a draft is kept where the target finds it likely enough, without dice; the "
            f"longest path wins. {'; '.join(told[:_SHOWN])}. " + _bias(event))


def _by_redraw(run: RunState, event: Round) -> str:
    told = [f"{quoted(event.draft.pieces[t.node])} has p {p3(t.target_prob)}, dice {p3(t.dice)}: "
            f"{'drawn' if t.accepted else 'missed'}" for e in event.emitted for t in e.trials]
    return (f"{LOSSY}: every path of the tree draws its own tokens, and the longest match wins. "
            f"{'; '.join(told[:_SHOWN])}. " + _bias(event))


def _throw(trial: Trial, event: Round) -> str:
    p, q = trial.target_prob, trial.draft_prob
    ratio = p / q if q > 0 else 0.0
    sign = f"{p3(trial.dice)} < {p3(ratio)}" if trial.accepted else f"{p3(trial.dice)} ≥ {p3(ratio)}"
    return (f"{quoted(event.draft.pieces[trial.node])}: dice {sign} = {p3(p)}/{p3(q)}, "
            f"{'accepted' if trial.accepted else 'rejected'}")


def _bias(event: Round) -> str:
    return "" if event.bias is None else f"The bias of this round's first token is {p3(event.bias)}."


def _gaps(run: RunState, event: Round) -> Words:
    gaps = [(e.gap, e.piece) for e in event.emitted if e.gap is not None]
    if not gaps:
        return []
    gap, piece = min(gaps)
    return [f"The closest call was at {quoted(piece)}, {gap:.3f} ahead of the next best score. The draft decides how "
            "many tokens a round makes, never which: the text is the one that the target writes alone."]


def _residuals(run: RunState, event: Round) -> Words:
    trials = [trial for emitted in event.emitted for trial in emitted.trials]
    return [f"{counted(len(trials), 'throw')} in this round. After a rejection p becomes norm(max(0, p − q)), and a "
            "sibling is tried against that: so the distribution of the text stays the target's, but the text itself "
            "depends on dice and draft."]


def _lossily(run: RunState, event: Round) -> Words:
    return ["Neither the text nor its distribution is the target's. The bias is the total variation distance between "
            "what this law makes of the token, given the draft, and the target's distribution; it is computed exactly."]


def _lossy_above(run: RunState) -> Words:
    """Of a lossy law at temperature 0: what it comes to there."""
    if run.started is None or run.started.lossless or run.started.temperature > 0:
        return []
    return [f"At temperature 0 the law {_law(run)} keeps the likeliest token only, as greedy decoding does; above it, "
            f"it is {LOSSY}."]


# -- the target's own token -----------------------------------------------------------------------
def _rivals(event: Round) -> str:
    below = children(event.draft.parents).get(event.path[-1] if event.path else -1, [])
    return listed((event.draft.pieces[n] for n in below), 3) if below else "nothing"


def _drawn_how(run: RunState, last: Emitted) -> Words:
    if run.started is None or run.started.temperature == 0:
        return []
    law = _law(run)
    if law == "exact":
        return ["It is fixed by prompt, seed and position: any engine would have come to it."]
    if law == "rejection":
        left = "what was left of p after the rejections" if last.trials else "p"
        return [f"It was drawn from {left}."]
    if law == "redraw" and last.trials:
        return [f"What the paths drew here was thrown away, and this token drawn anew from p. {LOSSY}."]
    return ["It was drawn from p."]


def _law(run: RunState) -> str:
    return one_line(run.started.law, 20) if run.started is not None else ""


_WALKS: dict[str, Callable[[RunState, Round], str]] = {
    "rejection": _by_dice, "typical": _by_threshold, "redraw": _by_redraw,
}
_DEEPER: dict[str, Callable[[RunState, Round], Words]] = {
    "rejection": _residuals, "typical": _lossily, "redraw": _lossily,
}
