"""What Step says of a round's draft, whatever method made it, and words that the explanations of methods share."""

from __future__ import annotations

from collections import Counter

from engines.methods import MethodSpec, known, note_of, origin_kind, who_proposes
from engines.report.events import Draft, Origin, Round
from engines.report.plain_text import one_line
from engines.report.run_state import RunState, best_path, origin_of
from engines.report.wording import context_tail, joined, listed, ms, p3, quoted, tokens

Words = list[str]


def drafting(run: RunState, event: Round, deep: bool) -> Words:
    """Paragraphs on the draft of a round: what was looked up or asked, what it gave, what it cost."""
    if event.known != "all":
        return [undisclosed(event)]
    spec = known(run.started.engine) if run.started is not None else None
    if not event.draft.tokens and not (spec is not None and spec.baseline):
        return [f"Nothing is drafted in this round: {_why_not(run, event, spec)}. The forward pass then has one row, "
                "and gives one token, as in autoregressive decoding."]
    told = ((spec.explain if spec is not None else None) or draft)(run, event, deep)
    return told + (_budget(event) if deep else [])


def undisclosed(event: Round) -> str:
    """What a server does not say of a round."""
    if event.known == "text":
        return "The server sends text as it comes, and does not say what it drafted, or which tokens are of one step."
    return ("The server says which tokens of its draft were accepted; how many others there were it says at the end, "
            "if at all.")


def draft(run: RunState, event: Round, deep: bool) -> Words:
    """What can be said of any draft."""
    tree = event.draft
    by = Counter(origin_of(tree, node).source for node in range(len(tree.tokens)))
    told = joined(f"{count} from the {who_proposes(source, run)}" for source, count in by.most_common())
    engine = one_line(run.started.engine, 40) if run.started is not None else ""
    words = [f"The engine {engine} drafted {tokens(len(tree.tokens))}: {told}. The likeliest path: "
             f"{listed(tree.pieces[n] for n in best_path(tree))}. It took {ms(event.draft_seconds)}."]
    notes = ", ".join(f"{one_line(str(k), 40)} {one_line(str(v), 24)}" for k, v in event.note.items() if v is not None)
    return words + [f"Its notes: {notes}."] * bool(deep and notes) + (passage(event) if deep else [])


def _why_not(run: RunState, event: Round, spec: MethodSpec | None) -> str:
    """Why nothing was drafted: there was no room, it was not expected to save time, or nothing was found."""
    started, chosen = run.started, event.budget
    before = run.prefilled.prompt_tokens if run.prefilled is not None else None
    made = event.position - before if before is not None else 0
    if started is not None and 0 < started.max_new_tokens <= made + 1:
        return "the answer may have only one more token, and the target makes one anyway"
    if chosen is not None and chosen.rests:
        return "searching and drafting took more time lately than they saved, so drafting is paused (budget auto)"
    if chosen is not None and chosen.kept == 0:
        what = "no drafted token" if chosen.proposed is None else (
            f"none of the {chosen.proposed} nodes that were found")
        return f"{what} is expected to save time (budget auto)"
    if event.retrieval is None and spec is not None and spec.retrieves(started.options):
        return "there was no room for a draft"
    return spec.why_empty(run, event) if spec is not None and spec.why_empty else "the drafter proposed nothing"


def _budget(event: Round) -> Words:
    chosen = event.budget
    if chosen is None or chosen.rests:
        return []
    kept = str(chosen.kept) if chosen.proposed is None else f"{chosen.kept} of {chosen.proposed}"
    return [f"The budget (auto) verifies {kept}: with them the round is expected to make "
            f"{chosen.expected:g} tokens, the most for the time it takes."]


def suffix(run: RunState, event: Round, count: int | None) -> str:
    """The last tokens of the text before a round, quoted."""
    return f"‹{one_line(''.join(context_tail(run, event.position, min(count or 0, 12))), 48)}›"


def place(origin: Origin) -> str:
    """Where something was copied from."""
    words = origin_kind(origin.source).label
    words += f", {one_line(origin.document, 60)}" if origin.document else ""
    return words if origin.place is None else f"{words}, right before token {origin.place + 1}"


def stores(run: RunState) -> str:
    names = run.started.datastores if run.started is not None else ()
    return "the datastore " * (len(names) == 1) + joined(one_line(n, 40) for n in names) if names else "the datastores"


def top(event: Round) -> str:
    """The likeliest first token of a draft."""
    path = best_path(event.draft)
    if not path:
        return "none"
    prob = event.draft.probs[path[0]]
    return quoted(event.draft.pieces[path[0]]) + (f" ({p3(prob)})" if prob is not None else "")


def likeliest(tree: Draft) -> str:
    """The beginning of the likeliest path of a draft, with the drafter's probabilities."""
    path = best_path(tree)
    return " ".join(f"{quoted(tree.pieces[n])} {p3(tree.probs[n] or 0.0)}" for n in path[:5]) + " …" * (len(path) > 5)


def expanded(run: RunState, event: Round) -> Words:
    """How the tree of a predictor was expanded, where its note tells."""
    candidates = getattr(note_of(run.started, event), "candidates", None)
    return [] if candidates is None else [
        f"The tree was expanded as EAGLE-2 does, the best {len(event.draft.tokens)} of {candidates} candidates by path "
        "probability."]


def passage(event: Round) -> Words:
    """Where the most important passage is."""
    found = event.retrieval.passages if event.retrieval is not None else ()
    if not found:
        return []
    line = "" if found[0].line is None else f", line {found[0].line}"
    return [f"The first passage: {one_line(found[0].datastore, 40)}, {one_line(found[0].document, 60)}{line}."]


def option_range(run: RunState, low: str, high: str) -> str:
    """``n = 3 down to 1``, by the names of two options."""
    low, high = (run.started.options.get(name, "?") for name in (low, high))
    return f"n = {high} down to {low}"
