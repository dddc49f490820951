"""Training a head for a target on the target's own answers: whatever the family, steps of a draft over whole texts with
the target's distribution as their goal.

The rows of the language modelling head are the target's own and stay as they are; the checkpoint that is kept is the
one with the longest simulated acceptance on texts held out.
"""

from __future__ import annotations

import hashlib
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from engines.errors import UsageProblem, first_line
from engines.folders import write_json
from engines.heads.hidden_state_cache import TappedText
from engines.hub.untrusted_json import object_in, read_object
from engines.model import tensor_files

_DECAY = 0.8  # of the loss, a step
_WARM_UP = 20  # updates
_CLIP = 1.0
HELD_OUT = 16  # one text of so many is not trained on
_ANEW = "the training begins anew, with the same answers"
_JUDGED = 24  # of those at most so many, the greedy ones first, say which checkpoint is the best
BYTES_KEPT = 28  # of a parameter: weight and two moments, twice while they are written anew, and the best weight


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadRecipe:
    """Attributes:
    minutes: of training; a training that goes on counts those before.
    steps: unrolled.
    batch_tokens: in an update, padding included.
    single: the share of the time, from the beginning, in which only the first step is trained: most of what there is
        to learn, for a third of the time.
    rate: of AdamW; ``flat``: the share of the time after which it falls to zero.
    judge_seconds: between two looks at the texts held out.
    """

    minutes: float = 60.0
    steps: int = 4
    batch_tokens: int = 1536
    single: float = 0.3
    rate: float = 2e-3
    flat: float = 0.4
    judge_seconds: float = 240.0
    seed: int = 0


@dataclass(slots=True)
class TrainingProgress:
    """Attributes:
    minutes: trained so far, of ``of``.
    tokens: trained on, with repetitions; ``updates``: of the weights.
    losses: of each unrolled step, averaged over the last updates.
    accepted: tokens of a round that the last look at the texts held out lets expect; None before the first look.
    best: the largest of these so far; ``agreement``: with the target's choice at each step, in that look.
    """

    minutes: float = 0.0
    of: float = 0.0
    tokens: int = 0
    updates: int = 0
    losses: list[float] = field(default_factory=list)
    accepted: float | None = None
    best: float | None = None
    agreement: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TargetParts:
    """What a head shares with its target, in float32: embeddings and head [vocabulary, width], and the weight [width]
    of the final norm."""

    embeddings: torch.Tensor
    rows: torch.Tensor
    norm: torch.Tensor


def frequent(texts: Sequence[TappedText], count: int, vocabulary: int) -> torch.Tensor:
    """The ``count`` most frequent tokens of the answers, ascending: int64 [at most count]."""
    seen = torch.zeros(vocabulary, dtype=torch.long)
    for text in texts:
        seen += torch.bincount(text.tokens[text.start :], minlength=vocabulary)
    return seen.topk(min(count, vocabulary)).indices.sort().values


def split(texts: Sequence[TappedText]) -> tuple[list[TappedText], list[TappedText]]:
    """Texts to train on, and texts held out."""
    held = [text for i, text in enumerate(texts) if i % HELD_OUT == HELD_OUT - 1]
    return [text for i, text in enumerate(texts) if i % HELD_OUT != HELD_OUT - 1], held


def check_enough(texts: int) -> None:
    """Raises UsageProblem: so few that none would be held out."""
    if texts < HELD_OUT:
        raise UsageProblem(f"{texts} answers are too few to train on", f"give at least {HELD_OUT}")


class Student(nn.Module):
    """A network under training; all that its training goes on from is in its state. ``network``: with the weights of a
    drafter."""

    network: nn.Module

    @abstractmethod
    def begin(self, texts: Sequence[TappedText], parts: TargetParts) -> None:
        """Set the weights to begin with."""

    @abstractmethod
    def states(self, batch: Batch, steps: int) -> Iterator[torch.Tensor]:
        """For each step what the language modelling head reads, [positions of the batch, width]."""

    @torch.no_grad()
    def weights(self) -> dict[str, torch.Tensor]:
        """The network's weights as a drafter reads them."""
        return {name: tensor.detach().clone() for name, tensor in self.network.state_dict().items()}


class HeadTrainer:
    """A head under training.

    Args:
        texts: all of them; some are held out.
        ids: the target's tokens that the head can draft, ascending.
        folder: where checkpoints are written and looked for.

    Raises UsageProblem: too few texts; the folder holds a training that was begun with other options, or is damaged.
    """

    def __init__(
        self, student: Student, parts: TargetParts, texts: Sequence[TappedText], ids: torch.Tensor, recipe: HeadRecipe,
        folder: Path,
    ) -> None:
        torch.manual_seed(recipe.seed)
        self.student, self.recipe, self.folder, self.ids = student, recipe, folder, ids
        self.texts, held = split(texts)
        check_enough(len(texts))
        self.held_out = sorted(held, key=lambda text: not text.greedy)[:_JUDGED]
        self.rows = parts.rows[ids]
        self.products = quickest_dtype()
        self._rows = self.rows.to(self.products)  # as products of the training take them
        self.known = torch.zeros(len(parts.rows))
        self.known[ids] = 1.0
        decides = {name: value for name, value in asdict(recipe).items() if name not in ("minutes", "judge_seconds")}
        self._options = {"recipe": decides, "ids": hashlib.sha256(ids.numpy().tobytes()).hexdigest()}
        self.progress = TrainingProgress(of=recipe.minutes)
        student.begin(self.texts, parts)
        self._weights = list(student.parameters())
        self._optimiser = torch.optim.AdamW(self._weights, lr=recipe.rate, betas=(0.9, 0.95), weight_decay=0)
        self._resume()

    def train(self, tell: Callable[[TrainingProgress], None]) -> None:
        """Train to the end of the recipe. A checkpoint is written at the end, and where ``tell`` or ctrl+c raises."""
        progress, judged, batches, last = self.progress, time.monotonic(), self._batches(), time.monotonic()
        try:
            while progress.minutes < self.recipe.minutes:
                self._rates(progress)
                losses = self._update(next(batches))
                now = time.monotonic()
                progress.minutes += (now - last) / 60
                progress.updates += 1
                known = [*progress.losses, *losses[len(progress.losses) :]][: len(losses)]
                progress.losses = [0.95 * before + 0.05 * loss for before, loss in zip(known, losses)]
                if now - judged > self.recipe.judge_seconds:
                    self.judge()
                    self.save()
                    judged = time.monotonic()
                last = now = time.monotonic() if judged > now else now
                tell(progress)
        finally:  # ctrl+c too
            self.save()

    def judge(self) -> None:
        """Look at the texts held out; keep these weights if none before were better."""
        progress = self.progress
        shares = agreement(
            self.student, self.held_out, lambda states, step: states @ self.rows.T, self.ids, self.recipe.steps
        )
        progress.accepted = simulated(shares)
        if progress.best is None or progress.accepted > progress.best:
            progress.best, progress.agreement = progress.accepted, shares
            tensor_files.save(self.student.weights(), self.folder / "best.safetensors")

    def best(self) -> dict[str, torch.Tensor]:
        """The weights of the best checkpoint so far. Raises UsageProblem: they are damaged."""
        file = self.folder / "best.safetensors"
        return self._kept(file, tensor_files.load) if os.path.exists(file) else self.student.weights()

    def save(self) -> None:
        """Write all that the training goes on from. Raises OSError."""
        state = dict(self.student.state_dict())
        for index, held in self._optimiser.state_dict()["state"].items():
            state |= {f"optimiser.{index}.{name}": tensor for name, tensor in held.items()}
        tensor_files.save({name: tensor.clone() for name, tensor in state.items()}, self._state)
        write_json(self.folder / "progress.json", {"options": self._options, "progress": asdict(self.progress)})

    @property
    def _state(self) -> Path:
        return self.folder / "state.safetensors"

    def _kept(self, file: Path, read: Callable[[Path], Any]) -> Any:
        """What is read from a file of this training. Raises UsageProblem: it is damaged."""
        try:
            return read(file)
        except (OSError, ValueError) as error:
            files = " and ".join(sorted({file.name, self._state.name}))
            raise UsageProblem(f"{file} cannot be read: {first_line(error)}", f"remove {files} in {self.folder}: "
                               f"{_ANEW}") from None

    def _resume(self) -> None:
        if not os.path.exists(self._state):
            return
        state = self._kept(self._state, tensor_files.load)
        options, progress = self._kept(self.folder / "progress.json", _read_progress)
        other = UsageProblem(f"{self.folder} holds an unfinished training that was begun with other options",
                             f"repeat the command it was begun with, or remove {self._state}: {_ANEW}")
        if options != self._options:
            raise other
        try:
            self.student.load_state_dict({n: t for n, t in state.items() if not n.startswith("optimiser.")})
        except RuntimeError:  # a head of another size
            raise other from None
        whole = self._optimiser.state_dict()
        for name, tensor in state.items():
            if name.startswith("optimiser."):
                index, key = name.split(".")[1:]
                whole["state"].setdefault(int(index), {})[key] = tensor
        self._optimiser.load_state_dict(whole)
        self.progress = replace(progress, of=self.recipe.minutes)

    def _batches(self) -> Iterator[Batch]:
        """Texts of like length together, in a new order in each pass."""
        rng = np.random.default_rng((self.recipe.seed, self.progress.updates))
        while True:
            noise = rng.uniform(0, 24, len(self.texts))
            order = np.argsort([len(text) + n for text, n in zip(self.texts, noise)])
            groups, group = [], []
            for i in order:
                if group and (len(group) + 1) * len(self.texts[i]) > self.recipe.batch_tokens:
                    groups.append(group)
                    group = []
                group.append(self.texts[i])
            groups.append(group)
            for number in rng.permutation(len(groups)):
                yield Batch(groups[number], self.recipe.steps)

    def _update(self, batch: Batch) -> list[float]:
        with torch.autocast("cpu", self.products, self.products != torch.float32):
            losses = self._losses(batch)
        torch.stack([_DECAY**step * loss for step, loss in enumerate(losses)]).sum().backward()
        torch.nn.utils.clip_grad_norm_(self._weights, _CLIP)
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        self.progress.tokens += batch.tokens
        return [loss.item() for loss in losses]

    def _losses(self, batch: Batch) -> list[torch.Tensor]:
        """Of each unrolled step."""
        steps = 1 if self.progress.minutes < self.recipe.single * self.recipe.minutes else self.recipe.steps
        teacher = (batch.final @ self._rows.T).float().softmax(-1)
        weights = self.known[batch.following]
        weights /= weights.sum().clamp_min(1)
        return [TeachingLoss.apply(states, self._rows, teacher, weights)
                for states in self.student.states(batch, steps)]

    def _rates(self, progress: TrainingProgress) -> None:
        done = progress.minutes / self.recipe.minutes
        scale = min(1.0, (progress.updates + 1) / _WARM_UP) * min(1.0, (1 - done) / (1 - self.recipe.flat))
        for group in self._optimiser.param_groups:
            group["lr"] = self.recipe.rate * max(scale, 0.0)


class Batch:
    """Texts, and the positions of their answers that steps predict the next token of: step i does so from column
    position - 1 - i.

    Attributes:
        texts: as given; ``ids``: [texts, columns + steps] their tokens, padded at their ends.
        rows, positions: [n] text and position.
        final: [n, width] the target's states there; ``following``: [n] the token after each.
        tokens: of all texts, without padding.
    """

    def __init__(self, texts: Sequence[TappedText], steps: int) -> None:
        self.texts = texts
        self.ids = F.pad(pad_sequence([text.tokens for text in texts], batch_first=True), (0, steps))
        # a column needs a position before each of its steps
        self._begins = [max(text.start - 1, steps) for text in texts]
        self._counts = [max(0, len(text) - 1 - begin) for text, begin in zip(texts, self._begins)]
        self.rows = torch.repeat_interleave(torch.arange(len(texts)), torch.tensor(self._counts))
        self.positions = torch.cat([torch.arange(b, b + n) for b, n in zip(self._begins, self._counts)])
        self.final = self.final_before(0)
        self.following = self.ids[self.rows, self.positions + 1]
        self.tokens = sum(map(len, texts))

    def final_before(self, back: int) -> torch.Tensor:
        """The target's states [n, width] so many columns before the positions."""
        parts = zip(self.texts, self._begins, self._counts)
        return torch.cat([text.final[b - back : b - back + n].float() for text, b, n in parts])


@torch.inference_mode()
def agreement(
    student: Student, texts: Sequence[TappedText], head: Callable[[torch.Tensor, int], torch.Tensor],
    ids: torch.Tensor | None, steps: int,
) -> list[float]:
    """How often each step's likeliest token is the next one of the texts, true tokens read before it. ``head``: logits
    of states of a step; ``ids``: the target's tokens that they are of, None: all."""
    right, count = [0] * steps, 0
    for text in texts:
        batch = Batch([text], steps + 1)
        for step, states in enumerate(student.states(batch, steps)):
            found = head(states, step).argmax(-1)
            right[step] += int(((found if ids is None else ids[found]) == batch.following).sum())
        count += len(batch.positions)
    return [hits / max(1, count) for hits in right]


def simulated(agreement: Sequence[float]) -> float:
    """Tokens of a round with a chain as long as there are steps: 1, and the product of agreements up to each step."""
    accepted, reach = 1.0, 1.0
    for share in agreement:
        reach *= share
        accepted += reach
    return accepted


def _read_progress(file: Path) -> tuple[dict[str, Any], TrainingProgress]:
    """The options that a training was begun with, and how far it is. Raises OSError, ValueError."""
    found = read_object(file)
    options, progress = object_in(found, "options"), object_in(found, "progress")
    if progress.keys() != asdict(TrainingProgress()).keys():
        raise ValueError("it does not say how far the training is")
    return options, msgspec.convert(progress, TrainingProgress)


class TeachingLoss(torch.autograd.Function):
    """Weighted cross-entropy with the target's distribution through a frozen head, a block of rows at a time: the
    logits of a step are never all in memory, and their gradient is made as they go by."""

    @staticmethod
    def forward(
        ctx, states: torch.Tensor, rows: torch.Tensor, teacher: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        """The sum over positions [n] of ``weights`` times the cross-entropy of ``states`` [n, width] times the rows
        [draft vocabulary, width] with ``teacher`` [n, draft vocabulary], float32 all but the rows, in whose dtype
        products are made."""
        loss, gradients = weights.new_zeros(()), []
        for part, wanted, weight in zip(states.split(512), teacher.split(512), weights.split(512)):
            logits = F.linear(part.to(rows.dtype), rows).float()
            normaliser = logits.logsumexp(-1)
            loss += (weight * (normaliser - (logits * wanted).sum(-1))).sum()
            logits.sub_(normaliser[:, None]).exp_().sub_(wanted).mul_(weight[:, None])
            gradients.append((logits.to(rows.dtype) @ rows).to(states.dtype))
        ctx.save_for_backward(torch.cat(gradients))
        return loss

    @staticmethod
    def backward(ctx, above: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        """The gradient for the states alone."""
        (gradient,) = ctx.saved_tensors
        return above * gradient, None, None, None


def quickest_dtype() -> torch.dtype:
    """bfloat16 for the products of a training where this processor multiplies in it at least twice as fast as in
    float32, which is measured in some milliseconds; else float32."""
    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        a, b, times = torch.ones(256, 1024, dtype=dtype), torch.ones(1024, 1024, dtype=dtype), []
        for _ in range(4):
            begin = time.perf_counter()
            a @ b
            times.append(time.perf_counter() - begin)
        seconds[dtype] = min(times)
    return torch.bfloat16 if 2 * seconds[torch.bfloat16] < seconds[torch.float32] else torch.float32
