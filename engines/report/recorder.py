"""A run of the loop told as events: who proposed each token, what the target had there, the text as it grows."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from time import perf_counter

from engines.core.loop import decode
from engines.core.lossless_laws import Law, Verdict
from engines.core.outcome import Outcome, Stop
from engines.core.tree import DraftTree
from engines.report.events import Choice, Draft, Emitted, Finished, Kind, Prefilled, Round
from engines.report.row_summary import every_row, summarise

TOP = 3  # of the target's likeliest tokens at a position, how many are kept for display
_NO_DRAFT = Draft()


def record(
    target, drafter, law: Law, prompt: Sequence[int], stop: Stop, detokenizer,
    cancelled: Callable[[], bool] = lambda: False, begun: int = 0, detail: bool = False,
) -> Generator[Prefilled | Round | Finished]:
    """One answer, as events: ``Prefilled``, ``Round``..., ``Finished``.

    Args:
        target, drafter, law, prompt, stop, begun, cancelled: as of ``engines.core.loop.decode``.
        detokenizer: an ``engines.tokenization.Detokenizer``.
        detail: rounds say what the target has at every row (``Round.verified``).

    Raises:
        RunFailed: as of ``decode``.
    """
    told = _Recorder(target, drafter, law, detokenizer, detail)
    start = len(prompt) - bool(begun)
    for token in prompt[start - max(0, begun - 1) : start]:
        told.stream.step(token)
    outcome = None
    for outcome in decode(target, drafter, law, prompt, stop, begun, cancelled):
        yield told.round(outcome) if told.rounds >= 0 else told.prefilled(outcome)
    tokens = tuple(outcome.context[start:]) if outcome is not None else ()
    reason = outcome.reason if outcome is not None else None
    # what the stream holds back (an unfinished character) stays out, as in plain decoding
    yield Finished(reason or "cancelled", tokens, "".join(told.text))


class _Recorder:
    """Makes events of outcomes. Its own time counts as the loop's."""

    def __init__(self, target, drafter, law: Law, detokenizer, detail: bool) -> None:
        self.target, self.drafter, self.law, self.detail = target, drafter, law, detail
        self.piece, self.stream = detokenizer.piece, detokenizer.stream()
        self.detokenizer = detokenizer
        self.text: list[str] = []
        self.rounds = -1  # before the prefill

    def prefilled(self, outcome: Outcome) -> Prefilled:
        clock = perf_counter()
        (first,) = self._emitted(outcome)
        self.rounds = 0
        return Prefilled(
            prompt_tokens=outcome.position, reused=outcome.reused, first=first, cache_length=self.target.length,
            seconds=outcome.other_seconds + perf_counter() - clock, layers=self.drafter.layers,
        )

    def round(self, outcome: Outcome) -> Round:
        clock, tree, verdict = perf_counter(), outcome.tree, outcome.verdict
        self.rounds += 1
        emitted, draft = self._emitted(outcome), self._draft(tree)
        other = outcome.other_seconds + perf_counter() - clock
        verified = ()
        if self.detail:
            verified = every_row(self.law, tree, outcome.logits, outcome.position, self.piece)
        return Round(
            index=self.rounds, position=outcome.position, draft=draft, path=tuple(verdict.path), emitted=emitted,
            draft_seconds=outcome.draft_seconds, verify_seconds=outcome.verify_seconds, other_seconds=other,
            cache_length=self.target.length, note=tree.note.plain() if tree.note is not None else {},
            budget=tree.budget, bias=verdict.bias, retrieval=tree.retrieval, verified=verified,
        )

    def _emitted(self, outcome: Outcome) -> tuple[Emitted, ...]:
        """The tokens added, in order, and why each was chosen."""
        verdict, piece = outcome.verdict, self.piece
        count, own = len(verdict.path), _own_kind(outcome.tree, verdict)
        emitted = []
        for i, (token, row) in enumerate(zip(verdict.tokens, summarise(verdict.rows, verdict.tokens, TOP))):
            text = self.stream.step(token)
            self.text.append(text)
            gap = verdict.gaps[i] if verdict.gaps else row.lead if self.law.compares else None
            emitted.append(Emitted(
                token=token, text=text, piece=piece(token), kind="accepted" if i < count else own,
                node=verdict.path[i] if i < count else -1, prob=row.prob, gap=gap,
                noise=verdict.noise[i] if verdict.noise else None,
                top=tuple([Choice(t, piece(t), p) for t, p in row.top if p > 0]),
                trials=verdict.trials[i] if verdict.trials else (),
            ))
        return tuple(emitted)

    def _draft(self, tree: DraftTree) -> Draft:
        """The draft tree as it is shown."""
        if not tree.tokens and not tree.origins:
            return _NO_DRAFT
        return Draft(
            tokens=tuple(tree.tokens), parents=tuple(tree.parents), pieces=tuple(map(self.piece, tree.tokens)),
            probs=tuple(tree.probs), origin=tuple(tree.origin), origins=tuple(tree.origins), also=tuple(tree.also),
        )


def _own_kind(tree: DraftTree, verdict: Verdict) -> Kind:
    """The kind of the target's own token at the end of the path."""
    if not len(tree):
        return "target"
    leaf = verdict.path[-1] if verdict.path else -1
    return "corrected" if leaf in tree.parents else "bonus"
