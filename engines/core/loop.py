"""The one loop: draft, one forward of the target over the tree, the law's verdict, keep the accepted rows."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from time import perf_counter

import torch

from engines.core.sampling import to_numpy
from engines.core.stop import Stop
from engines.core.tree import DraftTree
from engines.detokenizer import Detokenizer
from engines.errors import RunFailed
from engines.laws import Law, Verdict
from engines.methods.drafter import Drafter, DraftLimits, Outcome
from engines.model.causal_model import CausalModel
from engines.report.events import Choice, Draft, Emitted, Finished, Kind, Prefilled, Reason, Round
from engines.report.row_diagnostics import every_row

MAX_NODES = 512  # the most a round verifies, whatever a drafter proposes
_NO_DRAFT = Draft()


def decode(
    target: CausalModel, drafter: Drafter, law: Law, prompt: Sequence[int], stop: Stop, words: Detokenizer,
    cancelled: Callable[[], bool] = lambda: False, begun: int = 0, detail: bool = False,
) -> Generator[Prefilled | Round | Finished]:
    """One answer, as events.

    Args:
        target: its cached rows are reused where they are a prefix of ``prompt``.
        prompt: token ids, at least one.
        stop: must leave the whole answer inside the target's context.
        cancelled: asked between rounds and prefill chunks.
        begun: how many tokens at the end of ``prompt`` are an answer begun before; the last of them is given, as the
            first token, and not chosen anew.
        detail: rounds say what the target has at every row.

    Raises:
        RunFailed: a drafter broke the draft tree's invariants, or the model gave nan or infinity.
    """
    if drafter.wants_hidden and not target.show_hidden(True):
        raise RunFailed(f"{target.name} does not show its last hidden state", "choose another engine")
    try:
        if drafter.wants_cosines:
            target.measure_cosines(True)
        run = _Run(target, drafter, law, list(prompt), stop, words, begun, detail)
        first = run.prefill(cancelled)
        if first is None:
            yield run.finish("cancelled")
            return
        yield first
        while run.reason is None and not cancelled():
            yield run.round()
        yield run.finish(run.reason or "cancelled")
    finally:
        if drafter.wants_hidden:
            target.show_hidden(False)
        if drafter.wants_cosines:
            target.measure_cosines(False)


class _Run:
    """The state of one answer."""

    def __init__(
        self, target: CausalModel, drafter: Drafter, law: Law, prompt: list[int], stop: Stop, words: Detokenizer,
        begun: int, detail: bool,
    ) -> None:
        self.target, self.drafter, self.law, self.stop, self.words = target, drafter, law, stop, words
        self.given = prompt.pop() if begun else None
        self.context, self.prompt_length = prompt, len(prompt) - max(0, begun - 1)
        self.start, self.detail = len(prompt), detail
        self.rounds = 0
        self.reason: Reason | None = None
        self.stream = words.stream()
        for token in prompt[self.prompt_length :]:
            self.stream.step(token)
        self.text: list[str] = []

    @property
    def answered(self) -> int:
        return len(self.context) - self.start

    def prefill(self, cancelled: Callable[[], bool]) -> Prefilled | None:
        """Feed what the cache lacks of the prompt and take the first token; None if cancelled on the way."""
        clock = perf_counter()
        reused = self.target.rewind(self.context)
        logits = self.target.extend(self.context[reused:], cancelled)
        if logits is None:
            return None
        verdict = self._first(logits)
        emitted = self._commit(DraftTree(), verdict)
        outcome = Outcome(
            self.context, self.prompt_length, DraftTree(), (), (emitted[0].token,), logits[None], hidden=self._hidden()
        )
        self.drafter.start(outcome)
        seconds = perf_counter() - clock
        return Prefilled(self.start, reused, seconds, emitted[0], self.target.length, self.drafter.layers)

    def _first(self, logits: torch.Tensor) -> Verdict:
        """The verdict on the prefill's logits [vocabulary]: the law's choice, or the token that is given."""
        if self.given is None:
            return self.law.judge(DraftTree(), logits[None], len(self.context))
        verdict = Verdict()
        verdict.saw(self.law.sampling.row(to_numpy(logits)), self.given)
        return verdict.looked()

    def round(self) -> Round:
        """Draft, verify, commit."""
        clock = perf_counter()
        tree = self._draft()
        drafted = perf_counter()
        position = len(self.context)
        logits = self.target.forward(
            [self.context[-1], *tree.tokens], [-1, *(parent + 1 for parent in tree.parents)]
        )
        self.target.synchronize()
        verified = perf_counter()
        hidden = self._hidden()
        verdict = self.law.judge(tree, logits, position)
        emitted = self._commit(tree, verdict)
        path = tuple(verdict.path)
        self.target.keep([0, *(node + 1 for node in path)])
        tokens = tuple(verdict.tokens)
        seconds = drafted - clock, verified - drafted
        self.drafter.learn(Outcome(self.context, self.prompt_length, tree, path, tokens, logits, *seconds, hidden))
        self.rounds += 1
        shown = self._shown(tree)
        other = perf_counter() - verified
        every = every_row(self.law, tree, logits, position, self.words) if self.detail else ()
        return Round(
            self.rounds, position, shown, path, emitted, *seconds, other, self.target.length, tree.note, verdict.bias,
            tree.retrieval, every,
        )

    def _hidden(self) -> torch.Tensor | None:
        return self.target.hidden if self.drafter.wants_hidden else None

    def _draft(self) -> DraftTree:
        """The drafter's tree, cut to what there is room for and to what the target can verify."""
        room = DraftLimits(self.stop.max_new_tokens - self.answered - 1, MAX_NODES)
        tree = self.drafter.propose(self.context, room) if room.depth > 0 else DraftTree()
        try:
            tree.check(self.target.vocab_size)
            tree = tree.ending_at(self.stop.end_tokens).capped(room.depth, room.nodes)
        except ValueError as error:
            raise RunFailed(f"engine {type(self.drafter).__name__} made an invalid draft: {error}") from None
        return tree if self.target.trees else tree.first_path()

    def _commit(self, tree: DraftTree, verdict: Verdict) -> tuple[Emitted, ...]:
        """Cut the verdict where the answer ends, extend the context, and say what was emitted and why."""
        tokens, self.reason = self.stop.cut(verdict.tokens, self.answered)
        mismatch = self._mismatch(tree, verdict)
        drafted = len(verdict.path)
        del verdict.path[len(tokens) :]
        verdict.tokens = tokens
        self.context += tokens
        emitted, piece = [], self.words.piece
        for i, (token, look) in enumerate(zip(tokens, verdict.looks)):
            kind: Kind = "accepted" if i < drafted else mismatch
            text = self.stream.step(token)
            self.text.append(text)
            emitted.append(
                Emitted(
                    token, text, piece(token), kind, verdict.path[i] if i < drafted else -1, look.prob,
                    verdict.gaps[i] if verdict.gaps else None, verdict.noise[i] if verdict.noise else None,
                    tuple([Choice(t, piece(t), p) for t, p in look.tops if p > 0]),
                    verdict.trials[i] if verdict.trials else (),
                )
            )
        return tuple(emitted)

    @staticmethod
    def _mismatch(tree: DraftTree, verdict: Verdict) -> Kind:
        """The kind of the target's own token at the end of the path."""
        if not len(tree):
            return "target"
        leaf = verdict.path[-1] if verdict.path else -1
        return "corrected" if leaf in tree.parents else "bonus"

    def _shown(self, tree: DraftTree) -> Draft:
        if not tree.tokens and not tree.origins:
            return _NO_DRAFT
        return Draft(
            tuple(tree.tokens), tuple(tree.parents), tuple(map(self.words.piece, tree.tokens)),
            tuple(tree.probs), tuple(tree.origin), tuple(tree.origins), tuple(tree.also),
        )

    def finish(self, reason: Reason) -> Finished:
        """The end. What the stream holds back (an unfinished character) stays out, as in plain decoding."""
        return Finished(reason, tuple(self.context[self.start :]), "".join(self.text))
