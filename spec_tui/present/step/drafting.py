"""Where a round's draft came from, in words, engine by engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import prod

from engines.core.tree import depths
from engines.report.events import Layers, Origin, Round
from engines.report.run_state import RunState, best_path, origin_of
from spec_tui.present.step.wording import context_tail, counted, joined, listed, ms, noisy, p3, quoted, tokens
from spec_tui.present.text import one_line

_WHO = {
    "prompt": "copied from the prompt", "output": "copied from the answer so far", "draft": "from the draft model",
    "retrieval": "retrieved from a datastore", "target": "from the target",
}
Words = list[str]


def drafting(run: RunState, event: Round, deep: bool) -> Words:
    """Paragraphs on the draft of a round: what was looked up or asked, what it gave, what it cost."""
    engine = run.started.engine if run.started is not None else ""
    layers = run.prefilled.layers if run.prefilled is not None else None
    if not event.draft.tokens and engine != "autoregressive":
        return [f"Nothing is drafted in this round: {_why_not(run, event)}. The target's forward then has one row, "
                "and gives one token, as in autoregressive decoding."]
    if layers is not None and any(origin.source == "draft" for origin in event.draft.origins):
        words = _own_layers(run, event, layers, deep)
    else:
        words = _ENGINES.get(engine, _any)(run, event, deep)
    return words + (_budget(event) if deep else [])


def _why_not(run: RunState, event: Round) -> str:
    """Why nothing was drafted: there was no room, it was not expected to pay, or nothing was found."""
    started, note = run.started, event.note
    engine = started.engine if started is not None else ""
    made = event.position - run.prefilled.prompt_tokens if run.prefilled is not None else 0
    full = started is not None and 0 < started.max_new_tokens <= made + 1
    if full or (engine in _LOOKING and event.retrieval is None):
        return "the answer may have only one more token, and the target makes one anyway"
    kept, _, found = str(note.get("budget", "")).partition(" of ")
    if kept == "0":
        what = f"none of the {one_line(found, 12)} nodes that were found" if found else "no token of the draft model"
        return f"{what} is expected to pay (budget auto)"
    return _MISSES.get(engine, lambda run, event: "the drafter proposed nothing")(run, event)


def _pld_miss(run: RunState, event: Round) -> str:
    low, high = (run.started.options.get(name, "?") for name in ("min_ngram", "max_ngram"))
    return f"the end of the text, n = {high} down to {low}, stands nowhere earlier"


def _rest_miss(run: RunState, event: Round) -> str:
    low, high = (run.started.options.get(name, "?") for name in ("n_min", "n_max"))
    return f"no end of the text, n = {high} down to {low}, stands in {_stores(run)}"


def _hybrid_miss(run: RunState, event: Round) -> str:
    told = _scores(event)
    return "no source found anything" + (f" (scores: {told})" if told else "")


def _autoregressive(run: RunState, event: Round, deep: bool) -> Words:
    if event.draft.tokens:
        return _any(run, event, deep)
    words = ["Nothing is drafted: this is autoregressive decoding, one token a forward, the baseline that every other "
             "engine is compared with."]
    return words + ["It runs in the same loop with an empty draft tree, so that a comparison differs in the method "
                    "only."] * deep


def _pld(run: RunState, event: Round, deep: bool) -> Words:
    draft = event.draft
    first = draft.origins[0]
    words = [f"Prompt lookup asks no model. The last {tokens(first.match or 0)}, {_suffix(run, event, first.match)}, "
             f"stood before, in the {_place(first)}. What followed there is copied: {listed(draft.pieces)}, "
             f"{tokens(len(draft.tokens))} in {ms(event.draft_seconds)}."]
    if not deep:
        return words
    if len(draft.origins) > 1:
        words.append(f"{counted(len(draft.origins), 'distinct match')} were merged into one tree.")
    return [*words, "The n-gram is counted with all that agrees before it; of several matches with enough behind them "
            "to copy the longest whole one is taken, then the latest (Saxena's takes the oldest). A copied token has "
            "no probability of the drafter's."]


def _rest(run: RunState, event: Round, deep: bool) -> Words:
    found = event.retrieval
    if found is None:
        return _any(run, event, deep)
    words = [f"REST looks up the end of the text. Its last {tokens(found.match)}, {_suffix(run, event, found.match)}, "
             f"occur {_times(found.hits)} in {_stores(run)}. {counted(found.used, 'continuation')} were merged "
             f"into a trie; the likeliest first token is {_top(event)}."]
    if not deep:
        return words
    return [*words, f"A node's probability is the share of its parent's continuations that pass through it. The "
            f"lookup, binary searches in a suffix array, took {ms(found.seconds)}; no model was asked.",
            *_passage(event)]


def _dresd(run: RunState, event: Round, deep: bool) -> Words:
    found = event.retrieval
    if found is None:
        return _any(run, event, deep)
    words = [f"DReSD looks up a meaning: the target's last hidden state among those of {_stores(run)}. "
             f"{counted(found.hits, 'near state')} lead to the root; what followed the {found.used} nearest is merged "
             f"into a tree. The most similar has {found.scores[0] if found.scores else 0:.3f}; the likeliest first "
             f"token is {_top(event)}."]
    if not deep:
        return words
    near = ", ".join(f"{score:.3f}" for score in found.scores[:5])
    return [*words, f"Similarities after z-norm, PCA and scaling to length 1: {near}. A node's probability is the "
            f"share of its parent's drafts through it, the nearest counting most. The lookup took {ms(found.seconds)}.",
            *_passage(event)]


def _draft(run: RunState, event: Round, deep: bool) -> Words:
    draft, forwards = event.draft, event.note.get("draft forwards")
    path = best_path(draft)
    guesses = " ".join(f"{quoted(draft.pieces[n])} {p3(draft.probs[n] or 0.0)}" for n in path[:5])
    cost = f"{counted(forwards, 'forward')} of it" if isinstance(forwards, int) else "its forwards"
    belief = "belief in each, the noise included" if noisy(run) else "own probability q of each"
    if len(path) == len(draft.tokens):
        words = [f"The draft model, small and cheap, wrote {tokens(len(path))} ahead, with its {belief}: "
                 f"{guesses}{' …' if len(path) > 5 else ''}. {cost.capitalize()} took {ms(event.draft_seconds)}."]
    else:
        words = [f"The draft model grew a tree of {counted(len(draft.tokens), 'node')}, "
                 f"{counted(max(depths(draft.parents)), 'level')} deep; its favourite path: {guesses}"
                 f"{' …' if len(path) > 5 else ''}. {cost.capitalize()} took {ms(event.draft_seconds)}."]
    if not deep:
        return words
    own = prod(draft.probs[n] or 0.0 for n in path)
    words.append(f"By its own belief the whole favourite path is right with the product of these, {p3(own)}. "
                 + _how_chosen(run))
    if "best of" in event.note:
        words.append(f"The tree was expanded as EAGLE-2 does, the best {len(draft.tokens)} of {event.note['best of']} "
                     "candidates by path probability.")
    return words


def _how_chosen(run: RunState) -> str:
    started = run.started
    if started.temperature == 0:
        return "At temperature 0 it writes its likeliest tokens."
    if started.law == "exact":
        return ("It adds the same noise as the target will (coupled sampling): so where the models agree, they agree "
                "on the token too.")
    if started.law == "rejection" and (started.options.get("shape") != "tree" or started.options.get("draw") != "top"):
        return "Its tokens are drawn from q, so that the law can correct for how q differs from p."
    return "It writes its likeliest tokens, point masses to the law."


def _rasd(run: RunState, event: Round, deep: bool) -> Words:
    found, draft = event.retrieval, event.draft
    if found is None:
        return _any(run, event, deep)
    mine = sum(origin_of(draft, n).source == "draft" for n in range(len(draft.tokens)))
    cut, both = sum(count for _, count in found.pruned), sum(origin >= 0 for origin in draft.also)
    looked = f"matched the last {tokens(found.match)}" if found.match else "found nothing"
    words = [f"RASD joins two trees: {counted(mine, 'node')} of the draft model and {len(draft.tokens) - mine} that "
             f"only the lookup proposed; it {looked}. Both proposed {both}. Pruned: {counted(cut, 'node')} "
             "below first tokens that are not among the draft model's likeliest."]
    if not deep:
        return words
    gone = ", ".join(f"{quoted(piece)} ×{count}" for piece, count in found.pruned[:5])
    return [*words, f"{counted(found.hits, 'hit')}, {found.used} used, in {ms(found.seconds)}; drafting took "
            f"{ms(event.draft_seconds)} in all." + (f" Cut off: {gone}." if gone else ""), *_passage(event)]


def _hybrid(run: RunState, event: Round, deep: bool) -> Words:
    told = _scores(event)
    who = one_line(str(event.note.get("drafted by", "?")))
    words = [f"Every source drafts, and the one that promises most is verified, {_SOURCES.get(who, who)}: scores "
             f"{told}. It drafts {tokens(len(event.draft.tokens))}, the likeliest first {_top(event)}."]
    return words + ["A score is the sum of the probabilities of a draft's paths, the number of tokens expected to be "
                    "accepted; with budget=auto they count as far as they came true before."] * deep


def _scores(event: Round) -> str:
    """The score of each source of a hybrid; "" where there is none."""
    scores = {k.removeprefix("score of "): v for k, v in event.note.items() if k.startswith("score of ")}
    known = {one_line(k): v for k, v in scores.items() if isinstance(v, int | float)}
    return joined(f"{_SOURCES.get(k, k)} {v:.2f}" for k, v in known.items()) if known else ""


def _own_layers(run: RunState, event: Round, layers: Layers, deep: bool) -> Words:
    total = len(layers.attention)
    less = sum(rule != "" for rule in layers.attention), sum(rule != "" for rule in layers.mlp)
    forwards = event.note.get("draft forwards")
    cost = f"{counted(forwards, 'such forward')} took" if isinstance(forwards, int) else "It took"
    does = (f"it leaves out {less[0]} attention and {less[1]} MLP sublayers, which makes it faster and a little wrong"
            if any(less) else "none is left out, so a draft forward costs what one of the target costs")
    words = [f"The target drafts for itself: of its {counted(total, 'layer')} {does}. It wrote "
             f"{listed(event.draft.pieces)}. {cost} {ms(event.draft_seconds)}."]
    if not deep:
        return words
    by = Counter(rule for rule in (*layers.attention, *layers.mlp) if rule)
    if by:
        why = joined(f"{counted(count, 'sublayer')} by {_RULES.get(rule, rule)}" for rule, count in by.items())
        words.append(f"Left out: {why}.")
    if (bound := event.note.get("exit threshold")) is not None:
        words.append(f"It goes on while its own probability is at least γ = {one_line(str(bound), 12)}, which follows "
                     f"how much was accepted before; here it stopped by: "
                     f"{one_line(str(event.note.get('stopped', '?')), 40)}.")
    if layers.alpha is not None:
        known = [c for c in layers.attention_cosine if c is not None]
        words.append(f"C_l is the cosine of the residual stream before and after a sublayer, over {layers.positions} "
                     f"positions of the context: from {min(known, default=0):.3f} to {max(known, default=0):.3f} here; "
                     f"attention from α = {layers.alpha} on is left out"
                     + (f", but not in the last {counted(layers.n, 'layer')}." if layers.n else "."))
    return words


def _any(run: RunState, event: Round, deep: bool) -> Words:
    draft = event.draft
    by = Counter(origin_of(draft, node).source for node in range(len(draft.tokens)))
    told = joined(f"{count} {_WHO.get(source, source)}" for source, count in by.most_common())
    engine = one_line(run.started.engine, 40) if run.started is not None else ""
    words = [f"The engine {engine} drafted {tokens(len(draft.tokens))}: {told}. The likeliest path: "
             f"{listed(draft.pieces[n] for n in best_path(draft))}. It took {ms(event.draft_seconds)}."]
    notes = ", ".join(f"{one_line(str(k), 40)} {one_line(str(v), 24)}" for k, v in event.note.items() if v is not None)
    return words + [f"It remarks: {notes}."] * bool(deep and notes) + (_passage(event) if deep else [])


_ENGINES: dict[str, Callable[[RunState, Round, bool], Words]] = {
    "autoregressive": _autoregressive, "pld": _pld, "rest": _rest, "dresd": _dresd, "draft": _draft, "rasd": _rasd,
    "hybrid": _hybrid,
}
_MISSES: dict[str, Callable[[RunState, Round], str]] = {
    "pld": _pld_miss, "rest": _rest_miss, "hybrid": _hybrid_miss,
    "dresd": lambda run, event: f"none of the nearest hidden states in {_stores(run)} goes on with the root",
    "draft": lambda run, event: "the draft model has no room for this text, or cannot read it",
    "rasd": lambda run, event: "neither the draft model nor the lookup gave anything",
}
_LOOKING = {"rest", "dresd", "rasd", "hybrid"}  # each round with room for a draft has its lookup
_SOURCES = {"dynamic": "this conversation", "rest": "exact match", "dresd": "nearness of meaning", "none": "none"}
_RULES = {
    "cosine": "their cosine (changes too little)", "interval": "the interval (every m-th)",
    "both": "cosine and interval", "search": "a search, or as named",
}


def _suffix(run: RunState, event: Round, count: int | None) -> str:
    return f"‹{one_line(''.join(context_tail(run, event.position, min(count or 0, 12))), 48)}›"


def _place(origin: Origin) -> str:
    words = {"prompt": "prompt", "output": "answer so far"}.get(origin.source, one_line(origin.source))
    return words if origin.place is None else f"{words}, right before position {origin.place}"


def _stores(run: RunState) -> str:
    names = run.started.datastores if run.started is not None else ()
    return "the datastore " * (len(names) == 1) + joined(one_line(n, 40) for n in names) if names else "the datastores"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _top(event: Round) -> str:
    path = best_path(event.draft)
    if not path:
        return "none"
    prob = event.draft.probs[path[0]]
    return quoted(event.draft.pieces[path[0]]) + (f" ({p3(prob)})" if prob is not None else "")


def _passage(event: Round) -> Words:
    found = event.retrieval.passages if event.retrieval is not None else ()
    if not found:
        return []
    line = "" if found[0].line is None else f", line {found[0].line}"
    return [f"The first passage: {one_line(found[0].datastore, 40)}, {one_line(found[0].document, 60)}{line}."]


def _budget(event: Round) -> Words:
    kept, expected = event.note.get("budget"), event.note.get("expected")
    if kept is None or expected is None:
        return []
    return [f"The budget (auto) found {one_line(str(kept), 24)} worth verifying: with them the round is expected to "
            f"make {one_line(str(expected), 12)} tokens for its time."]
