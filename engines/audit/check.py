"""An answer is derived again by the plain model, and every token compared (``engines.audit``).

Where the answer has another token, either the two scores are equal within rounding (a tie: kernels sum several rows in
another order than one), or something is wrong (a BUG). Half precision has ties by the dozen, and so have products of
8-bit inputs; they stay inside the noise that is measured, or for 8-bit inputs inside the largest that may be, and large
faults do not. Where a forward computes a row alike to the last bit however it is fed, it also reads the answer again,
without drafts: then no fault is too small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch

from engines.audit.reference_forward import AuditProgress, AuditStopped, in_one_pass, read_again, work
from engines.audit.tie_distance import ScoredRow
from engines.core.sampling import Sampling, softmax, to_numpy
from engines.errors import UsageProblem, finite
from engines.folders import model_label, same_model
from engines.laws import spec_of
from engines.libraries.hf import growing_cache
from engines.model.causal_model import CausalModel
from engines.model.penalties import Penalties
from engines.randomness import GumbelNoise
from engines.report.answer import Answer
from engines.report.events import Audited, Choice, Finding

SAFETY = 3.0  # the answer was decoded in shapes that were not measured, and the largest of few values is no bound
ULPS = 2  # units of the last place, the least tolerance: two scores, each half a unit off in each of two readings
_CONTENDERS = 8  # best scores of a row whose differences are the noise
_AT_ONCE = 64  # rows that are read together without drafts
_MEASURED = 64  # rows that noise is measured on, at least: rows of the prompt complete a short answer
_SAME_PROB = 1e-5  # probabilities come from float32 sums
_GUMBEL = 25.0  # more than the noise of any token


def audit(
    target: CausalModel, answer: Answer, label: Callable[[int], str] = str,
    cancelled: Callable[[], bool] = lambda: False, progress: Callable[[float], None] = lambda done: None,
) -> Audited | None:
    """Check an answer; the target's own cache stays as it is.

    Args:
        target: the model that wrote it.
        label: text of a token, for ``Audited.choices``.
        cancelled: asked at every layer of the model and at every position.
        progress: told the share that is done, now and then.

    Returns:
        The finding, or None if cancelled.

    Raises:
        UsageProblem: an empty answer, one that is longer than the context, or one of another model.
        RunFailed: the model gives no numbers.
    """
    _check(target, answer)
    clock = perf_counter()
    read = answer.prompt + answer.tokens[:-1]  # the last token is chosen, not read
    more = min(len(answer.prompt) - 1, max(0, _MEASURED - len(answer.tokens)))
    rows = len(answer.tokens) + more
    judge = _Judge(answer, target.vocab_size)
    alike = answer.lossless is not False and bool(answer.computed_by) and answer.computed_by == target.computed_by
    total = work(target, len(read), rows) + rows + len(read) * alike
    work_done, cache = AuditProgress(total, cancelled, progress), growing_cache()
    try:
        exact = _exactly(target, answer, work_done) if alike else None
        for table in in_one_pass(target, read, rows, cache, work_done):
            for row in _penalised(answer, read, rows, len(judge.rows), table):
                judge.add(len(judge.rows) - more, row)
                work_done.add(1)  # a row of a large vocabulary takes as long as reading a token
        noise = max(judge.change(seen, row) for first, table in read_again(target, read, rows, cache, work_done)
                    for seen, row in zip(judge.rows[first:], _penalised(answer, read, rows, first, table)))
    except AuditStopped:
        return None
    floor, ceiling = _bounds(judge, target.rounding)
    # 8 bits turn another order of sums into whole steps, of which the same code may show none when it reads again
    tolerance = ceiling if target.rounds else min(max(SAFETY * noise, floor), ceiling)
    seen = judge.rows[-len(answer.tokens) :]
    wrong = [s.gap > tolerance or (exact is not None and exact[i]) for i, s in enumerate(seen)]
    verdict, at = _finding(answer, judge.chooses, seen, wrong)
    differing = [s for s in seen if s.differs]
    return Audited(
        verdict=verdict, at=at, gap=None if at is None else seen[at].gap, tolerance=tolerance, noise=noise,
        checked=len(seen), ties=sum(s.gap <= tolerance for s in differing), differences=len(differing),
        choices=tuple(Choice(s.choice, label(s.choice), s.prob) for s in seen), gaps=tuple(s.gap for s in seen),
        leads=tuple(s.lead for s in seen), seconds=perf_counter() - clock,
        exact=None if exact is None else not any(exact),
        draws=not judge.chooses,
    )


def _exactly(target: CausalModel, answer: Answer, progress: AuditProgress) -> list[bool]:
    """For each token: whether the forward that wrote it, reading the answer without drafts, chooses another one there,
    or gives it another probability than the one recorded. Raises AuditStopped."""
    judge, prompt = _Judge(answer, target.vocab_size), list(answer.prompt)
    read, rows = prompt + list(answer.tokens[:-1]), len(answer.tokens)
    with target.aside():
        target.extend(prompt[:-1], progress=lambda done, of: progress.add(0))
        for start in range(0, rows, _AT_ONCE):
            tokens = read[len(prompt) - 1 :][start : start + _AT_ONCE]
            table = target.forward(tokens, range(-1, len(tokens) - 1))
            for row in _penalised(answer, read, rows, start, to_numpy(table)):
                judge.add(len(judge.rows), row)
            target.keep([*range(len(tokens))])
            progress.add(len(tokens))
    progress.add(len(prompt) - 1)
    return [seen.differs or seen.gap > 0 for seen in judge.rows]


def _penalised(answer: Answer, read: Sequence[int], rows: int, first: int, table: np.ndarray) -> Iterator[np.ndarray]:
    """The rows [vocabulary] of a table one by one, repetitions in the text before each penalised as in the run;
    ``first`` is the place of its first one among the ``rows``."""
    penalties = Penalties(answer.repetition_penalty, answer.no_repeat_ngram_size)
    for end, row in enumerate(table, len(read) - rows + first + 1):
        yield penalties.apply(torch.from_numpy(row)[None], [read[:end]])[0].numpy() if penalties.on else row


def _check(target: CausalModel, answer: Answer) -> None:
    if not answer.tokens or not answer.prompt:
        raise UsageProblem("the answer is empty, so there is nothing to audit", "ask for at least one token")
    if not same_model(answer.model, target.name) or answer.dtype != target.precision:
        raise UsageProblem(f"the answer was written by {model_label(answer.model)} in {answer.dtype}",
                           f"load that model; this one is {model_label(target.name)} in {target.precision}")
    length = len(answer.prompt) + len(answer.tokens)
    if length > target.context_limit:
        raise UsageProblem(f"prompt and answer have {length} tokens", f"the context holds {target.context_limit}")
    tokens = (*answer.prompt, *answer.tokens)
    if not all(isinstance(token, int | np.integer) and 0 <= token < target.vocab_size for token in tokens):
        raise UsageProblem("the answer has tokens that are not of this vocabulary", "load the model that wrote it")


@dataclass(slots=True)
class _JudgedRow:
    """A row of the first reading.

    Attributes:
        choice, prob: the law's token there and its probability.
        lead: how far its score is above the second best, None where scores are not compared.
        gap: how far scores must move to make the answer's token the choice.
        differs: whether the answer has another token.
        contenders, logits: ids of tokens whose scores are compared again, and their logits over the temperature.
    """

    choice: int = 0
    prob: float = 0.0
    lead: float | None = None
    gap: float = 0.0
    differs: bool = False
    contenders: np.ndarray | None = None
    logits: np.ndarray | None = None


class _Judge:
    """Makes the law's choice at each row; scores are float32, as the law's are."""

    def __init__(self, answer: Answer, vocab_size: int) -> None:
        self.answer = answer
        self.sampling = Sampling(answer.temperature, answer.top_p, answer.top_k, answer.min_p)
        # else random draws decide, those of drafts too
        self.chooses = self.sampling.greedy or spec_of(answer.law).shares_noise
        self.heat = answer.temperature or 1.0
        self._noise = GumbelNoise(answer.seed, vocab_size) if self.chooses and not self.sampling.greedy else None
        self.added = _GUMBEL if self._noise else 0.0
        self.rows: list[_JudgedRow] = []
        self.largest = 0.0  # size of the logits compared, divided by the temperature

    def add(self, position: int, logits: np.ndarray) -> None:
        """Judge the row of float32 logits [vocabulary] that decides a position (negative: in the prompt). Raises
        RunFailed: the logits are not numbers."""
        finite(float(logits.max()))
        seen = _JudgedRow()
        noise = self._noise.at(len(self.answer.prompt) + position) if self._noise else None
        heated = logits / np.float32(self.heat)
        ids = _best(heated if noise is None else heated + noise, _CONTENDERS)
        if position >= 0:
            token = self.answer.tokens[position]
            self._decide(seen, position, token, logits, heated, noise)
            ids = np.union1d(ids, [token, seen.choice])
        seen.contenders, seen.logits = ids, heated[ids]
        self.largest = max(self.largest, float(np.abs(seen.logits[np.isfinite(seen.logits)]).max()))
        self.rows.append(seen)

    def change(self, row: _JudgedRow, logits: np.ndarray) -> float:
        """The largest change of a difference between two contenders in another reading, logits [vocabulary]."""
        allowed = np.isfinite(row.logits)  # what would repeat an n-gram is out, whatever it moved
        moved = logits[row.contenders[allowed]] / np.float32(self.heat) - row.logits[allowed]
        return float(moved.max() - moved.min())

    def _decide(
        self, seen: _JudgedRow, position: int, token: int, logits: np.ndarray, heated: np.ndarray,
        noise: np.ndarray | None,
    ) -> None:
        """Fill in what the law makes of a row of logits [vocabulary], with the answer's token."""
        row = self.sampling.row(logits)
        if self.chooses:
            scores = row if noise is None else row + noise
            seen.choice, second = (int(t) for t in _best(scores, 2)[[0, -1]])
            lead = float(scores[seen.choice] - scores[second])
            seen.lead = lead if np.isfinite(lead) else None
        else:
            seen.choice = int(row.argmax())
        probs = softmax(row)
        seen.prob = float(probs[seen.choice])
        seen.differs = token != seen.choice if self.chooses else not np.isfinite(row[token])
        recorded = self.answer.probs[position] if not self.chooses and self.answer.probs else None
        misrated = recorded is not None and abs(probs[token] - recorded) > _SAME_PROB
        if not (seen.differs or misrated):
            return
        nearness = ScoredRow(heated, np.isfinite(row), self.sampling)
        seen.gap = nearness.to_choose(token, noise) if self.chooses else nearness.to_keep(token)
        if misrated:
            seen.gap = max(seen.gap, nearness.to_rate(token, recorded))


def _best(scores: np.ndarray, count: int) -> np.ndarray:
    """The ids of the largest scores, largest first, the lowest id first among equals of the very largest."""
    count = min(count, len(scores))
    ids = np.argpartition(scores, -count)[-count:]
    ids = ids[np.argsort(-scores[ids], kind="stable")]
    first = scores.argmax()
    return np.concatenate([[first], ids[ids != first]])[:count]


def _bounds(judge: _Judge, rounding: torch.dtype) -> tuple[float, float]:
    """The least and the largest tolerance. Least: units of the last place, of the logits in the coarsest dtype that a
    forward rounds to and of logits + Gumbel noise in float32. Largest: what costs more than half of that dtype's digits
    is no rounding, whatever the second reading says."""
    in_float32 = _ulp(judge.largest + judge.added, torch.float32)
    floor = ULPS * (_ulp(judge.largest * judge.heat, rounding) / judge.heat + in_float32)
    return floor, judge.largest * torch.finfo(rounding).eps ** 0.5


def _ulp(value: float, dtype: torch.dtype) -> float:
    """The distance of neighbouring numbers of this size."""
    return torch.finfo(dtype).eps * 2.0 ** math.floor(math.log2(max(value, torch.finfo(dtype).tiny)))


def _finding(
    answer: Answer, chooses: bool, seen: list[_JudgedRow], wrong: Sequence[bool]
) -> tuple[Finding, int | None]:
    """The verdict, and the token of the answer that it is about; ``wrong``: what rounding does not explain."""
    first_bug = next((i for i, found in enumerate(wrong) if found), None)
    first_differing = next((i for i, s in enumerate(seen) if s.differs), None)
    if answer.lossless is False:
        return "lossy", first_differing
    if first_bug is not None:
        return "BUG" if answer.lossless else "differs", first_bug
    if first_differing is not None and chooses:
        return "tie", first_differing
    return "identical" if chooses else "consistent", None
