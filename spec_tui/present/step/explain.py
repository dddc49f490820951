"""A phase in words, made from the round's own numbers, at two depths: for students, and for those who ask on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engines.core.tree import depths
from engines.report.events import Round
from engines.report.run_state import RunState
from spec_tui.present.step import references
from spec_tui.present.step.drafting import drafting
from spec_tui.present.step.judging import acceptance, own_token, verification
from spec_tui.present.step.phases import StepPosition, event_of, mask, title_of
from spec_tui.present.step.wording import counted, fed, ms, p3, prompt_length, quoted, rows_before, seconds_of, tokens


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
    makers = _PREFILL if event is None else _ROUND
    paragraphs = makers[place.phase](run, place.round, event, deep)
    return Explanation(title_of(run, place), tuple(p for p in paragraphs if p), _reference(run, place, event))


def _reference(run: RunState, place: StepPosition, event: Round | None) -> str:
    started = run.started
    engine = started.engine if started is not None else ""
    law = references.of_law(started.law, started.temperature) if started is not None else ""
    return {
        "context": references.CACHE if event is None else references.ROUND,
        "draft": references.of_engine(engine), "tree": references.TREES,
        "verify": references.LEVIATHAN, "accept": law, "correct": law, "keep": references.CACHE,
    }[place.phase]


# -- the prefill ----------------------------------------------------------------------------------
def _prompt(run: RunState, number: int, event: None, deep: bool) -> list[str]:
    made = run.prefilled
    if made is None:
        return ["The beginning of this run is missing."]
    words = [f"The prompt has {tokens(made.prompt_tokens)}."]
    if made.reused:
        words.append(f"{made.reused} of them stand in the KV cache from before; to be read: {fed(made)}.")
    started = run.started
    if deep and started is not None and started.continued:
        words.append(f"Its last {tokens(started.continued)} are an answer that was begun before.")
    return words


def _prefill(run: RunState, number: int, event: None, deep: bool) -> list[str]:
    made = run.prefilled
    if made is None:
        return []
    words = [f"The prefill reads {tokens(fed(made))} in {ms(made.seconds)}: all rows of the prompt together, so it is "
             "fast for its length. Its last row says what the answer begins with."]
    if deep:
        words.append(f"The time includes the first token and the drafter's own start; it is not part of the decoding "
                     f"time. A row of the cache holds keys and values of one token; {made.cache_length} are there now.")
    return words


def _first(run: RunState, number: int, event: None, deep: bool) -> list[str]:
    made, started = run.prefilled, run.started
    if made is None:
        return []
    if started is not None and started.continued:
        return [f"The token {quoted(made.first.piece)} is given: the run goes on from an answer that was begun. The "
                f"target gives it {p3(made.first.prob)}."]
    favourites = ", ".join(f"{quoted(c.piece)} {p3(c.prob)}" for c in made.first.top)
    return [f"The first token is {quoted(made.first.piece)}, to which the target gives {p3(made.first.prob)}. Nothing "
            "was drafted yet.", *([f"Its favourites: {favourites}."] if deep and favourites else [])]


def _filled(run: RunState, number: int, event: None, deep: bool) -> list[str]:
    made = run.prefilled
    if made is None:
        return []
    ended = run.finished is not None and len(run.tokens) == 1
    goes = "the answer ends with it" if ended else "it is the root of the first round"
    words = [f"The KV cache holds {counted(made.cache_length, 'row')}, one for every token of the prompt. The first "
             f"token {quoted(made.first.piece)} is not read yet: {goes}."]
    return words + ["Rows are never computed again while the text before them stays: a round feeds only what the "
                    "cache lacks."] * deep


# -- a round --------------------------------------------------------------------------------------
def _context(run: RunState, number: int, event: Round, deep: bool) -> list[str]:
    made = event.position - prompt_length(run)
    root = run.root_of(number - 1)
    last = quoted(root.piece) if root is not None else "its last token"
    words = [f"The text has {tokens(event.position)} so far: {prompt_length(run)} of the prompt, {made} of the answer. "
             f"The last one, {last}, is the root: chosen, but not yet read by the target."]
    if deep:
        before = run.until(number - 1).metrics
        m = f"; so far a forward made {before.mean_generated_length:.2f} tokens (M)" if number > 1 else ""
        words.append(f"The KV cache holds {counted(rows_before(run, number), 'row')}, those of all tokens but the root"
                     f"{m}. A round is a draft, one forward of the target, and a verdict.")
    return words


def _draft(run: RunState, number: int, event: Round, deep: bool) -> list[str]:
    return drafting(run, event, deep)


def _tree(run: RunState, number: int, event: Round, deep: bool) -> list[str]:
    parents, size = event.draft.parents, len(event.draft.tokens)
    deepest = max(depths(parents))
    shape = f"a chain of {size}" if deepest == size else (
        f"a tree of {size}, {counted(deepest, 'level')} deep, with {counted(_leaves(parents), 'path')}")
    words = [f"The drafted tokens are {shape}. The target reads them in one forward, each as if only its own path had "
             f"been written: a row sees the {counted(event.position - 1, 'token')} before the root, the root, its own "
             "ancestors and itself. That is the attention mask."]
    if deep:
        seen, pairs = sum(map(sum, mask(parents))), (size + 1) ** 2
        alike = ("For a chain it is the ordinary causal mask." if deepest == size else
                 "Nodes of one depth share a position, so the mask goes by paths and not by columns.")
        words.append(f"Among the {counted(size + 1, 'new row')} {seen} of {pairs} pairs are allowed. {alike} The "
                     f"position of a row is the length of the context plus its depth: from {event.position - 1}, the "
                     f"root's, to {event.position - 1 + deepest}.")
    return words


def _verify(run: RunState, number: int, event: Round, deep: bool) -> list[str]:
    return verification(run, event, deep)


def _accept(run: RunState, number: int, event: Round, deep: bool) -> list[str]:
    return acceptance(run, event, deep)


def _correct(run: RunState, number: int, event: Round, deep: bool) -> list[str]:
    return own_token(run, event, deep)


def _keep(run: RunState, number: int, event: Round, deep: bool) -> list[str]:
    rows, kept = 1 + len(event.draft.tokens), 1 + len(event.path)
    before, own = rows_before(run, number), event.emitted[-1] if event.emitted else None
    words = [f"The forward wrote {counted(rows, 'row')} behind the cache. Kept: {kept}, the root's and "
             f"{counted(kept - 1, 'accepted node')}; forgotten: {rows - kept}. The cache grows from {before} to "
             f"{event.cache_length} rows."]
    if own is not None and own.node < 0:
        ended = run.finished is not None and number == len(run.rounds)
        goes = "the answer ends with it" if ended else "it is the root of the next round"
        words.append(f"{quoted(own.piece)} was not read yet: {goes}.")
    if deep:
        took = seconds_of(event)
        words.append(f"The round took {ms(took)}: draft {ms(event.draft_seconds)}, verify {ms(event.verify_seconds)}, "
                     f"other {ms(event.other_seconds)}; it made {tokens(len(event.emitted))}, "
                     f"{ms(took / max(1, len(event.emitted)))} each.")
        totals = run.until(number).metrics
        rate = f", {totals.acceptance_rate:.0%} of what was drafted" if totals.acceptance_rate is not None else ""
        words.append(f"Since the prefill: {counted(totals.target_forwards, 'forward')}, {totals.accepted} accepted"
                     f"{rate}; M {totals.mean_generated_length or 0:.2f}.")
    return words


def _leaves(parents: tuple[int, ...]) -> int:
    return len(set(range(len(parents))) - set(parents))


_Maker = Callable[[RunState, int, Round, bool], list[str]]
_PREFILL: dict[str, Callable] = {"context": _prompt, "verify": _prefill, "correct": _first, "keep": _filled}
_ROUND: dict[str, _Maker] = {
    "context": _context, "draft": _draft, "tree": _tree, "verify": _verify, "accept": _accept, "correct": _correct,
    "keep": _keep,
}
