"""A phase in words, made from the round's own numbers, at two depths: for students, and for those who ask on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engines.core.tree import depths
from engines.cost.curve import CostCurve
from engines.laws import LAWS, LawSpec, spec_of
from engines.laws.spec import after_root, rivals
from engines.methods import known, origin_kind
from engines.methods.shared.explain import drafting, undisclosed
from engines.report.events import UNDISCLOSED, Round
from engines.report.plain_text import LOSSY, one_line
from engines.report.run_state import RunState
from engines.report.wording import (
    chosen,
    counted,
    fed,
    ms,
    p3,
    prompt_length,
    quoted,
    rows_before,
    seconds_of,
    times_of,
    tokens,
)
from spec_tui.present.step.nodes import nodes_of, unrecorded
from spec_tui.present.step.phases import Phase, StepPosition, event_of, mask, title_of


@dataclass(frozen=True, slots=True)
class Explanation:
    """What happens in a phase: paragraphs, and where to read on ("" where there is nothing to name)."""

    title: str
    paragraphs: tuple[str, ...]
    reference: str = ""


def explain(run: RunState, place: StepPosition, deep: bool = False) -> Explanation:
    """The explanation of a phase of a run. It uses the numbers of this round and of those before it, and of a phase
    nothing that only a later one decides."""
    event = event_of(run, place.round)
    if event is None:
        paragraphs = _prefill(run, place.phase, deep)
    elif event.known == "text":
        paragraphs = _message(place.phase, event)
    else:
        paragraphs = _ROUND[place.phase](run, place.round, event, deep)
    return Explanation(title_of(run, place), tuple(filter(None, paragraphs)), _reference(run, place, event))


def _reference(run: RunState, place: StepPosition, event: Round | None) -> str:
    started = run.started
    law = LAWS[started.law].reference(started.temperature) if started is not None and started.law in LAWS else ""
    spec = known(started.engine) if started is not None else None
    cache = "docs/architecture.md, KV rows"
    return {
        "context": cache if event is None else "docs/glossary.md, round; Leviathan et al. 2023, section 2.1",
        "draft": (spec.reference or spec.source) if spec is not None else "",
        "tree": "REST (He et al. 2024), section 3.2; SpecInfer (Miao et al. 2024)",
        "verify": "Leviathan et al. 2023, section 2.3 and algorithm 1", "accept": law, "correct": law, "keep": cache,
    }[place.phase]


def _prefill(run: RunState, phase: Phase, deep: bool) -> list[str]:
    """The phases before the first round."""
    made, begun = run.prefilled, run.started.continued if run.started is not None else 0
    if made is None:
        return ["The beginning of this run is missing."] if phase == "context" else []
    first = quoted(made.first.piece)
    if made.first.token == UNDISCLOSED and phase in ("correct", "keep"):
        return [f"The first message of the server is {first}. How many tokens it has is not disclosed."]
    if phase == "context":
        words = ["The server does not say how many tokens the prompt has."]
        if made.prompt_tokens is not None:
            more = f", and the answer that goes on here has {begun}" if begun else ""
            words = [f"The prompt has {tokens(prompt_length(run))}{more}."]
        if made.reused:
            words.append(f"{made.reused} of them are in the KV cache already; to be read: {fed(made)}.")
        more = ""
    elif phase == "verify":
        read = "the prompt" if fed(made) is None else tokens(fed(made))
        words = [f"The prefill reads {read} in {ms(made.seconds)}: all rows of the prompt together, "
                 f"which is fast. Its last row predicts the {'next' if begun else 'first'} token of the answer."]
        more = ("The time includes the first token and the drafter's own start; it is not part of the decoding time. A "
                f"row of the cache holds keys and values of one token; {_cached(made.cache_length)} are there now.")
    elif phase == "correct" and begun:
        words, more = [f"The token {first} is fixed: the run continues an answer that was begun. The target gives "
                       f"it {p3(made.first.prob)}."], ""
    elif phase == "correct":
        likeliest = ", ".join(f"{quoted(c.piece)} {p3(c.prob)}" for c in made.first.top)
        words = [f"The first token is {first}, to which the target gives {p3(made.first.prob)}. Nothing was drafted "
                 "yet."]
        more = f"Its likeliest tokens: {likeliest}." if likeliest else ""
    else:
        ended = run.finished is not None and len(run.tokens) == 1
        goes = "the answer ends with it" if ended else "it is the root of the first round"
        words = [f"The KV cache holds {_cached(made.cache_length)}, one for every token that was read. The "
                 f"first token {first} is not read yet: {goes}."]
        more = ("Rows are never computed again while the text before them stays: a round feeds only what the cache "
                "lacks.")
    return [*words, more] if deep else words


def _law(run: RunState) -> LawSpec:
    started = run.started
    return spec_of(started.law if started is not None else "", started.temperature if started is not None else 0.0)


def _context(run: RunState, number: int, event: Round, deep: bool) -> list[str]:
    made = event.position - prompt_length(run)
    root = run.root_of(number - 1)
    last = f", {quoted(root.piece)}," if root is not None else ""
    words = [f"The text has {tokens(event.position)} so far: {prompt_length(run)} of the prompt, {made} of the answer. "
             f"The last one{last} is the root: chosen, but not yet read by the target."]
    if deep:
        before = run.until(number - 1).metrics.mean_generated_length if number > 1 else None
        m = f"; so far {before:.2f} tokens per verify step (M)" if before is not None else ""
        words.append(f"The KV cache holds {_cached(rows_before(run, number))}, one for each token except the root"
                     f"{m}. A round is a draft, one forward pass of the target, and the choice of what stays.")
    return words


def _message(phase: Phase, event: Round) -> list[str]:
    """A message of a server that does not say of which tokens it is, or what made it."""
    words = [undisclosed(event)]
    if phase in ("correct", "keep"):
        text = " ".join(quoted(emitted.piece) for emitted in event.emitted)
        words.append(f"This message has {text}; it came {ms(seconds_of(event))} after the one before.")
    return words


def _tree(run: RunState, number: int, event: Round, deep: bool) -> list[str]:
    parents, size = event.draft.parents, len(event.draft.tokens)
    deepest = max(depths(parents))
    shape = f"a chain of {size}" if deepest == size else (
        f"a tree of {size}, {counted(deepest, 'level')} deep, with {counted(size - len(set(parents) - {-1}), 'path')}")
    which = "drafted tokens" if event.known == "all" else "accepted tokens, the only drafted ones that are disclosed,"
    words = [f"The {which} are {shape}. The target reads them in one forward pass, each as if only its own path "
             f"had been written: a row sees the {counted(event.position - 1, 'token')} before the root, the root, its "
             "own ancestors and itself. That is the attention mask."]
    if deep and event.known == "all":
        seen, pairs = sum(map(sum, mask(parents))), (size + 1) ** 2
        alike = ("For a chain it is the ordinary causal mask." if deepest == size else
                 "Nodes of one depth share a position, so the mask goes by paths and not by columns.")
        words.append(f"Among the {counted(size + 1, 'new row')} {seen} of {pairs} pairs are allowed. {alike} The "
                     f"position of a row, counted from 0, is the length of the context plus its depth: from "
                     f"{event.position - 1}, the root's, to {event.position - 1 + deepest}.")
    return words


def _verify(run: RunState, number: int, event: Round, deep: bool) -> list[str]:
    """The forward pass: its rows, its time, what the target says at them; not yet what comes of it."""
    if event.drafted is None:
        words = ["One forward pass of the target scores the root and all drafted nodes together; how many these are is "
                 "not disclosed."]
    elif not event.drafted:
        words = [f"One forward pass of the target over one row, the root{_pass_time(event, ': ')}."]
    else:
        rows, nodes = 1 + event.drafted, counted(event.drafted, "drafted node")
        words = [f"One forward pass of the target scores the root and {nodes} together: {rows} rows"
                 f"{_pass_time(event, ' in ')}." + _price(run, rows)]
    started = run.started
    rule = "At every row the target predicts the next token." if started is None else _law(run).rule(started)
    words.append(rule + after_root(event))
    return words + (_rows(run, event) if deep else [])


def _pass_time(event: Round, before: str) -> str:
    """How long a forward pass took, where that is known apart from the drafting."""
    return "" if event.draft_seconds is None else f"{before}{ms(event.verify_seconds)}"


def _price(run: RunState, rows: int) -> str:
    started = run.started
    if started is None or not started.price:
        return ""
    curve = CostCurve(started.price)
    times = curve.at(rows) / curve.at(1)
    why = ("a pass spends most of its time reading weights, and reads them once for all rows" if times < 2 else
           "the weights are read once for all rows, but here the arithmetic of each row takes most of the time")
    return f" By the cost of a pass over n rows, t(n), that takes {times:.2f} times as long as one row: {why}."


def _rows(run: RunState, event: Round) -> list[str]:
    words, missing = [], unrecorded(event)
    size = event.drafted
    if size:
        shared = _law(run).shares_noise  # then a drafter's q is a belief that includes the noise
        known = [n for n in nodes_of(event) if n.p is not None and n.q is not None and not (
            shared and origin_kind(n.origins[0].source).drafter)]
        if known:
            apart = sum(abs(n.p - n.q) for n in known) / len(known)
            words.append(f"At {counted(len(known), 'node')} draft and target differ on average by {apart:.3f} in the "
                         "probability of the token.")
        where = f"The target's choice at {counted(missing, 'node')} of {size}"
        words.append(f"The target's choice is recorded at all {size + 1} rows." if not missing else
                     f"{where} is not disclosed." if UNDISCLOSED in event.draft.tokens else
                     f"{where} was not recorded, since the accepted path does not lead there; a run with all rows "
                     "recorded has it.")
    words.append(f"The first token made here is number {event.position + 1} of the context; counted from 0, a node at "
                 f"depth d stands at position {event.position - 1} + d.")
    return words


def _accept(run: RunState, number: int, event: Round, deep: bool) -> list[str]:
    """The walk down the tree."""
    kept, deepest = len(event.path), max(depths(event.draft.parents), default=0)
    head = f"{kept} of {counted(len(event.draft.tokens), 'drafted node')} accepted"
    head += f", {kept} of {counted(deepest, 'level')} deep." if deepest != len(event.draft.tokens) else "."
    if event.known != "all":
        head = f"{counted(kept, 'drafted node')} accepted; how many others there were is not disclosed."
    law = _law(run)
    words = [f"{head} {law.walk(event)}", *(law.more(event) if deep else ())]
    if (started := run.started) is not None and started.temperature == 0 and not spec_of(started.law).lossless:
        words.append(f"At temperature 0 the law {one_line(started.law, 20)} keeps the likeliest token only, as greedy "
                     f"decoding does; above it, it is {LOSSY}.")
    return words


def _correct(run: RunState, number: int, event: Round, deep: bool) -> list[str]:
    """The token that the target wrote by itself, after the path."""
    last = event.emitted[-1]
    what = f"{quoted(last.piece)}, to which it gives {p3(last.prob)}"
    words = []
    if last.kind == "bonus":
        words.append(f"The path was accepted to its end, and the row there predicts the next token: {what}. It is a "
                     "bonus: the same forward pass gave it, at no cost.")
    elif last.kind == "corrected":
        words.append(f"The draft said {rivals(event)} here; the target's own token is {what}. That token is kept: even "
                     "where the whole draft is rejected, a round gives a token. This one gives "
                     f"{tokens(len(event.emitted))}.")
    else:
        nothing = "Nothing was drafted: the" if event.known == "all" else "The"
        words.append(f"{nothing} target's token is {what}. The round gives {tokens(len(event.emitted))}.")
    words += _law(run).own_token(last)
    if deep and last.top:
        words.append(f"Its likeliest tokens here: {', '.join(chosen(c) for c in last.top)}.")
    if deep and last.gap is not None:
        noise = f"; the noise of the token is {last.noise:+.3f}" if last.noise is not None else ""
        words.append(f"It won by {last.gap:.3f} over the next best score{noise}.")
    return words


def _keep(run: RunState, number: int, event: Round, deep: bool) -> list[str]:
    rows, kept = 1 + len(event.draft.tokens), 1 + len(event.path)
    before, own = rows_before(run, number), event.emitted[-1] if event.emitted else None
    stays = f"Kept: {kept}, the root's and {counted(kept - 1, 'accepted node')}"
    words = [f"The forward pass wrote {counted(rows, 'row')} after the cache. {stays}; forgotten: {rows - kept}."
             if event.known == "all" else f"{stays}. How many rows the forward pass wrote is not disclosed."]
    if event.cache_length is not None:
        words[0] += f" The cache grows from {_cached(before)} to {_cached(event.cache_length)}."
    if own is not None and own.node < 0:
        ended = run.finished is not None and number == len(run.rounds)
        goes = "the answer ends with it" if ended else "it is the root of the next round"
        words.append(f"{quoted(own.piece)} was not read yet: {goes}.")
    if deep:
        took = seconds_of(event)
        parts = times_of(event)
        split = ": " + ", ".join(f"{name} {ms(seconds)}" for name, seconds in parts) if len(parts) > 1 else " in all"
        words.append(f"The round took {ms(took)}{split}; it gave {tokens(len(event.emitted))}, "
                     f"{ms(took / max(1, len(event.emitted)))} each.")
        totals = run.until(number).metrics
        rate = f", {totals.acceptance_rate:.0%} of what was drafted" if totals.acceptance_rate is not None else ""
        if totals.mean_generated_length is not None:
            words.append(f"Since the prefill: {counted(totals.target_forwards, 'forward pass')}, {totals.accepted} "
                         f"accepted{rate}; {totals.mean_generated_length:.2f} tokens per verify step (M).")
    return words


_ROUND: dict[Phase, Callable[[RunState, int, Round, bool], list[str]]] = {
    "context": _context, "draft": lambda run, number, event, deep: drafting(run, event, deep), "tree": _tree,
    "verify": _verify, "accept": _accept, "correct": _correct, "keep": _keep,
}


def _cached(count: int | None) -> str:
    """A number of rows of the cache."""
    return "some rows" if count is None else counted(count, "row")
