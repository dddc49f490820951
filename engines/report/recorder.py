"""A run of the loop told as events: who proposed each token, what the target had there, the text as it grows."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch

from engines.core.loop import decode
from engines.core.lossless_laws import Law, Verdict
from engines.core.outcome import Outcome, Stop
from engines.core.sampling import noted, softmax, to_numpy
from engines.core.tree import DraftTree, depths
from engines.model.favourites import COUNT
from engines.model.native import loaded, native_code
from engines.report.events import Choice, Draft, Emitted, Finished, Kind, Prefilled, Round, Verified

_NO_DRAFT = Draft()


def record(
    target, drafter, law: Law, prompt: Sequence[int], stop: Stop, detokenizer,
    cancelled: Callable[[], bool] = lambda: False, begun: int = 0, detail: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Generator[Prefilled | Round | Finished]:
    """One answer, as events: ``Prefilled``, ``Round``..., ``Finished``.

    Args:
        target, drafter, law, prompt, stop, begun, cancelled, progress: as of ``engines.core.loop.decode``.
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
    for outcome in decode(target, drafter, law, prompt, stop, begun, cancelled, progress):
        yield told.round(outcome) if told.rounds >= 0 else told.prefilled(outcome, given=begun > 0)
    tokens = tuple(outcome.context[start:]) if outcome is not None else ()
    reason = outcome.reason if outcome is not None else None
    # what the stream holds back (an unfinished character) stays out, as in plain decoding
    yield Finished(reason or "cancelled", tokens, "".join(told.text))


class _Recorder:
    """Makes events of outcomes. Its own time counts as the loop's."""

    def __init__(self, target, drafter, law: Law, detokenizer, detail: bool) -> None:
        self.target, self.drafter, self.law, self.detail = target, drafter, law, detail
        self.piece, self.stream = detokenizer.piece, detokenizer.stream()
        self.text: list[str] = []
        self.rounds = -1  # before the prefill

    def prefilled(self, outcome: Outcome, given: bool) -> Prefilled:
        """``given``: the first token was written before, and is not chosen again."""
        clock = perf_counter()
        (first,) = self._emitted(outcome, compares=self.law.compares and not given)
        self.rounds = 0
        return Prefilled(
            prompt_tokens=outcome.position, reused=outcome.reused, first=first, cache_length=self.target.length,
            seconds=outcome.other_seconds + perf_counter() - clock, layers=self.drafter.layers,
            reads=self.drafter.reads,
        )

    def round(self, outcome: Outcome) -> Round:
        clock, tree, verdict = perf_counter(), outcome.tree, outcome.verdict
        self.rounds += 1
        emitted, draft = self._emitted(outcome, self.law.compares), self._draft(tree)
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

    def _emitted(self, outcome: Outcome, compares: bool) -> tuple[Emitted, ...]:
        """The tokens added, in order, and why each was chosen."""
        verdict, piece = outcome.verdict, self.piece
        count, own = len(verdict.path), _own_kind(outcome.tree, verdict)
        emitted = []
        for i, (token, row) in enumerate(zip(verdict.tokens, summaries(outcome))):
            text = self.stream.step(token)
            self.text.append(text)
            gap = verdict.gaps[i] if verdict.gaps else row.lead if compares else None
            gap = None if gap == math.inf else gap
            emitted.append(Emitted(
                token=token, text=text, piece=piece(token), kind="accepted" if i < count else own,
                node=verdict.path[i] if i < count else -1, prob=row.prob, gap=gap,
                noise=verdict.noise[i] if verdict.noise else None,
                top=tuple([Choice(t, piece(t), p) for t, p in row.top if p > 0]),
                trials=verdict.trials[i] if verdict.trials and not self.law.sampling.greedy else (),
            ))
        return tuple(emitted)

    def _draft(self, tree: DraftTree) -> Draft:
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


@dataclass(slots=True)
class RowSummary:
    """What a row of logits says.

    Attributes:
        prob: the probability of the token that was asked for.
        top: ids and probabilities of the likeliest tokens, the best first, the lower id first among equals; none that
            is filtered out.
        lead: the difference of the two largest logits, in float32; 0 where there is one only.
    """

    prob: float
    top: list[tuple[int, float]]
    lead: float


def summaries(outcome: Outcome) -> list[RowSummary]:
    """Of the rows that the tokens of an outcome were chosen from."""
    verdict, found = outcome.verdict, noted(outcome.logits)
    if verdict.rows or found is None:
        return summarise(verdict.rows, verdict.tokens)
    rows = [0, *(node + 1 for node in verdict.path)][: len(verdict.tokens)]
    return [RowSummary(found.best(row)[1], found.top(row), found.leads[row]) for row in rows]


def summarise(rows: Sequence[np.ndarray], tokens: Sequence[int]) -> list[RowSummary]:
    """The summaries of rows, made together.

    Args:
        rows: float32 [vocabulary] each, after temperature and filters, writable; in the end they are as they were.
        tokens: one a row, whose probability is asked for; further rows are left out.
    """
    rows = rows[: len(tokens)]
    if loaded.code is not None:
        seen, probs = native_code.summarise([np.ascontiguousarray(row) for row in rows], tokens)
        return [RowSummary(prob, seen.top(i), seen.leads[i]) for i, prob in enumerate(probs)]
    # most of the time goes to code that the forward pass has driven out of the caches: one operation for all rows
    shares = torch.softmax(torch.from_numpy(np.stack(rows)), -1).numpy()
    found = []
    for row, token, chances in zip(rows, tokens, shares):
        top = _largest(row, COUNT)
        lead = float(top[0][1] - top[1][1]) if len(top) > 1 else math.inf if len(row) > 1 else 0.0
        found.append(RowSummary(chances.item(token), [(t, chances.item(t)) for t, _ in top], lead))
    return found


def _largest(row: np.ndarray, k: int) -> list[tuple[int, np.float32]]:
    """The ids and values of the ``k`` largest entries above minus infinity, largest first, the lower id first among
    equals. The row is written to on the way, and restored."""
    found: list[tuple[int, np.float32]] = []
    for _ in range(min(k, len(row))):
        token = int(row.argmax())
        value = row[token]
        if value == -math.inf:  # all the others are filtered out
            break
        found.append((token, value))
        row[token] = -math.inf
    for token, value in found:
        row[token] = value
    return found


def every_row(
    law: Law, tree: DraftTree, logits: torch.Tensor, position: int, piece: Callable[[int], str]
) -> tuple[Verified, ...]:
    """What the target has at every verified row, the ones that the walk never visits included.

    It costs a softmax a row, so it is made on request only (``Request.detail``).

    Args:
        logits: [1 + nodes, vocabulary], row 0 the root's.
        position: of the token after the root.
        piece: a token's label.
    """
    table, out, rows = to_numpy(logits), [], []
    for index, depth in enumerate([0, *depths(tree.parents)]):
        row, noise = law.sampling.row(table[index]), law.noise(position + depth)
        rows.append(softmax(row))
        token = int((row if noise is None else row + noise).argmax())
        choice = Choice(token, piece(token), float(rows[-1][token]))
        drafted = float(rows[tree.parents[index - 1] + 1][tree.tokens[index - 1]]) if index else None
        out.append(Verified(choice, None if noise is None else float(noise[token]), drafted))
    return tuple(out)
