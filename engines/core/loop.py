"""The loop of every method: draft a tree, verify it in one forward of the target, accept a path, keep its KV rows."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from time import perf_counter

from engines.core.lossless_laws import Law, Verdict
from engines.core.outcome import DraftLimits, Outcome, Stop
from engines.core.sampling import to_numpy
from engines.core.tree import DraftTree
from engines.errors import drafting

MAX_NODES = 512  # the most that a round verifies, whatever a drafter proposes


def decode(
    target, drafter, law: Law, prompt: Sequence[int], stop: Stop, begun: int = 0,
    cancelled: Callable[[], bool] = lambda: False, progress: Callable[[int, int], None] = lambda done, total: None,
) -> Generator[Outcome]:
    """Decode one answer: the prefill's outcome, then one a round. Ends early, without a ``reason``, if cancelled.

    Args:
        target: an ``engines.model.causal_model.CausalModel``; its cached rows of a prefix of ``prompt`` are reused.
        drafter: an ``engines.methods.drafter.Drafter``.
        prompt: token ids, at least one. The last ``begun`` of them are an answer that was begun before: its last token
            is given as the first one here, and not chosen again.
        stop: must leave the whole answer inside the target's context.
        cancelled, progress: asked between rounds, asked and told (tokens done, and all) between pieces of a prefill.

    Raises:
        RunFailed: the drafter failed or broke the draft tree's invariants, or the model gave nan or infinity.
    """
    clock, context, tree = perf_counter(), list(prompt), DraftTree()
    given = context.pop() if begun else None
    start = len(context)

    def commit(tree: DraftTree, verdict: Verdict, logits) -> Outcome:
        """Cut the verdict where the answer ends, and append its tokens to the context."""
        position = len(context)
        verdict.tokens, reason = stop.cut(verdict.tokens, position - start)
        del verdict.path[len(verdict.tokens) :]
        context.extend(verdict.tokens)
        return Outcome(
            context=context, prompt_length=start - max(0, begun - 1), position=position, tree=tree, verdict=verdict,
            logits=logits, reason=reason,
        )

    reused = target.rewind(context)
    logits = target.extend(context[reused:], cancelled, progress)
    if logits is None:
        return
    if given is None:
        verdict = law.judge(tree, logits[None], start)
    else:
        verdict = Verdict(tokens=[given], rows=[law.sampling.row(to_numpy(logits))])
    outcome = commit(tree, verdict, logits[None])
    outcome.reused = reused
    with drafting():
        drafter.start(outcome)
    outcome.other_seconds = perf_counter() - clock
    yield outcome
    while outcome.reason is None and not cancelled():
        clock = perf_counter()
        tree = _draft(target, drafter, context, stop, stop.max_new_tokens - (len(context) - start) - 1)
        drafted = perf_counter()
        logits = target.forward([context[-1], *tree.tokens], [-1, *(parent + 1 for parent in tree.parents)])
        target.synchronize()
        verified = perf_counter()
        outcome = commit(tree, law.judge(tree, logits, len(context)), logits)
        target.keep([0, *(node + 1 for node in outcome.verdict.path)])
        outcome.draft_seconds, outcome.verify_seconds = drafted - clock, verified - drafted
        with drafting():
            drafter.learn(outcome)
        outcome.other_seconds = perf_counter() - verified
        yield outcome


def _draft(target, drafter, context: Sequence[int], stop: Stop, depth: int) -> DraftTree:
    """The drafter's tree, cut to the ``depth`` that the answer has room for and to what the target can verify."""
    with drafting():
        tree = drafter.draft(context, DraftLimits(depth, MAX_NODES)) if depth > 0 else DraftTree()
        tree.check(target.vocab_size)
        tree = tree.ending_at(stop.end_tokens).capped(depth, MAX_NODES)
    return tree if target.trees else tree.first_path()
