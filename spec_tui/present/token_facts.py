"""What is known of a token, in words: who proposed it, what became of it, how likely it was to whom."""

from __future__ import annotations

from collections.abc import Iterator

from engines.core.tree import children
from engines.laws import spec_of, trying
from engines.methods import origin_kind, who_proposes
from engines.report.events import UNDISCLOSED, BudgetChoice, Layers, Origin, Round
from engines.report.run_state import RunState, TokenState
from engines.report.wording import counted, p3
from spec_tui.present.rejected import interleaved
from spec_tui.present.step.nodes import origins_of
from spec_tui.present.tables import count_or_dash
from spec_tui.present.text import LOSSY, one_line, visible

_MESSAGE = "The server sent this text as one message: of which tokens it is, and what was drafted, is not disclosed."


def fate(run: RunState, token: TokenState, event: Round | None) -> str:
    """One sentence on what happened."""
    if event is None:
        return _MESSAGE if token.emitted.token == UNDISCLOSED else (
            "The first token comes from the prefill: the target had read the prompt, and nothing was drafted yet.")
    who = who_proposes(token.source, run)
    if token.emitted.trials:
        return trying(run.started.law if run.started is not None else "").fate(token, who)
    if token.kind == "accepted":
        started = run.started
        return spec_of(*(started.law, started.temperature) if started is not None else ("",)).kept(who)
    if token.kind == "corrected":
        wrong = rivals(event)
        said = " or ".join(visible(p) for p in wrong[:3])
        return f"The draft was {said}; the target chose another token, which is kept." if said else (
            "The target chose another token than the draft, and that one is kept.")
    if token.kind == "bonus":
        return "The whole path was accepted, so the same forward pass gave one more token, the target's own."
    if token.emitted.token == UNDISCLOSED:
        return _MESSAGE
    if event.known != "all":
        return "The target chose this token; what was drafted in its place is not disclosed."
    return "Nothing was drafted in this round: the target wrote this token alone."


def unit_of(event: Round) -> str:
    """What a round wrote: a message, where the server does not tell its tokens."""
    return "message" if any(emitted.token == UNDISCLOSED for emitted in event.emitted) else "token"


def rivals(event: Round) -> list[str]:
    """What is known to be drafted at the place where the target wrote its own token, likeliest first."""
    draft = event.draft
    nodes = children(draft.parents).get(event.path[-1] if event.path else -1, [])
    return [draft.pieces[n] for n in sorted(nodes, key=lambda n: -(draft.probs[n] or 0.0))
            if draft.tokens[n] != UNDISCLOSED]


def facts(run: RunState, token: TokenState, event: Round | None) -> Iterator[tuple[str, str]]:
    """Name and value of what is known."""
    e = token.emitted
    if event is not None and e.node >= 0:
        layers = run.prefilled.layers if run.prefilled else None
        yield "proposed by", "; and ".join(
            _part(layers) if layers and origin_kind(origin.source).drafter else _origin(run, origin)
            for origin in origins_of(event, e.node))
        q, served = event.draft.probs[e.node], event.draft_seconds is None  # a server tells neither
        unknown = p3(None) if served else "no probability (copied, not predicted)"
        yield "draft says", f"{q:.3f}" if q is not None else unknown
    else:
        yield "proposed by", "the target itself"
    yield "target says", p3(e.prob)
    if e.gap is not None:
        yield "won by", f"{e.gap:.3f} over the next best score" + (
            f", noise {e.noise:+.3f} included" if e.noise is not None else " (logits)")
    if event is not None:
        drafted, kept = (count_or_dash(count) for count in (run.drafted_in(token.round), event.accepted))
        gained = counted(len(event.emitted), unit_of(event))
        yield "its round", f"{drafted} drafted, {kept} kept, {gained} gained"
        kept, expected = budget_words(event.budget)
        if kept or expected:
            tokens = f"{expected} tokens" if expected and not event.budget.rests else expected
            sent = f"verifies {kept}" if kept else ""
            yield "its budget", ", ".join(filter(None, (sent, tokens)))
        if event.bias is not None:
            law = f", law {one_line(run.started.law, 20)}" if run.started is not None else ""
            yield "bias", f"{event.bias:.3f} in this round: {LOSSY}{law}"


def _part(layers: Layers) -> str:
    attention, mlp = (sum(map(bool, rules)) for rules in (layers.attention, layers.mlp))
    return f"the target without {attention} attention and {mlp} MLP sublayers of its {len(layers.attention)} layers"


def _origin(run: RunState, origin: Origin) -> str:
    words = who_proposes(origin.source, run)
    if origin.datastore:
        words += f" {one_line(origin.datastore, 40)}"
    if origin.document:
        words += f", document {one_line(origin.document, 60)}"
    if origin.line is not None:
        words += f", line {origin.line}"
    elif origin.place is not None:
        words += f", from token {origin.place + 1}"
    if origin.match is not None:
        words += f", after a match of {counted(origin.match, 'token')}"
    return words


def budget_words(chosen: BudgetChoice | None) -> tuple[str, str]:
    """What the budget chose of a round's draft, and the tokens it expected; "" for either where it does not say."""
    if chosen is None:
        return "", ""
    if chosen.rests:
        return "", "paused: drafting did not pay"
    kept = f"{chosen.kept} of {chosen.proposed}" if chosen.proposed is not None else ""
    return kept, f"expected {chosen.expected:.2f}"


def marked_text(run: RunState) -> str:
    """The answer in CriticMarkup: ``{~~rejected~>chosen~~}`` for a correction, ``{--rejected--}`` where another branch
    than the drafter's first was accepted, ``{++x++}`` for a bonus."""
    out = []
    for index, labels in interleaved(run):
        token, gone = run.tokens[index], "".join(labels)
        if token.kind == "corrected":
            out.append("{~~" + gone + "~>" + token.text + "~~}")
        elif gone:
            out.append("{--" + gone + "--}" + token.text)
        elif token.kind == "bonus" and token.text:
            out.append("{++" + token.text + "++}")
        else:
            out.append(token.text)
    return "".join(out)
