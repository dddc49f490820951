"""What steps a draft forward: a draft model, the target without some of its sublayers, a learned head. And the chains
that it writes token by token, as the law suggests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from engines.core.tree import DraftTree
from engines.methods.notes import Note
from engines.methods.shared.stop_rules import NONE, sureness
from engines.report.events import Origin

if TYPE_CHECKING:
    import numpy as np
    import torch

    from engines.core.lossless_laws import Law
    from engines.model.causal_model import CausalModel
    from engines.vocabularies import Translation


def token_of(drafts: np.ndarray | None, index: int) -> int:
    """The token of one of a predictor's logits, by its ``drafts``."""
    return index if drafts is None else int(drafts[index])


def over_vocabulary(values: np.ndarray, drafts: np.ndarray | None, size: int) -> np.ndarray:
    """Values [n] of the tokens ``drafts`` as those of a vocabulary [size], of the same dtype: 0 for the others."""
    import numpy as np

    if len(values) == size and drafts is None:
        return values
    whole = np.zeros(size, values.dtype)
    whole[slice(len(values)) if drafts is None else drafts] = values
    return whole


class Predictor(Protocol):
    """Gives logits [..., n] after drafted tokens. Chains and trees grow on it.

    Attributes:
        vocab_size: of the target.
        drafts: the target's tokens that the logits are of, int64 [n]; None: the first n.
    """

    vocab_size: int
    drafts: np.ndarray | None

    def room(self, context: Sequence[int]) -> int:
        """How many tokens it has positions for after this context; 0 where it cannot read it."""

    def after(self, context: Sequence[int]) -> torch.Tensor:
        """Logits [n] after the last token of the context. What it read before of it is not read again."""

    def step(self, token: int) -> torch.Tensor:
        """Logits [n] after one more token of a chain."""

    def level(self, tokens: Sequence[int], parents: Sequence[int]) -> torch.Tensor:
        """Logits [tokens, n] after nodes of a tree, whose ``parents`` are indices of nodes of earlier levels
        in the order given, -1 for children of the root."""

    def drop(self) -> None:
        """Forget the nodes of a tree."""


class ModelPredictor:
    """A causal model with a KV buffer of its own, or the target itself: a ``Predictor``. ``vocab_size``: of the target.
    Models of one vocabulary may pad their embeddings differently, and at a high temperature the target can emit padding
    that the draft model has no embedding for."""

    drafts: np.ndarray | None = None

    def __init__(self, model: CausalModel, vocab_size: int) -> None:
        self.model, self.vocab_size = model, vocab_size
        self._checked, self._unreadable = 0, False

    def restart(self) -> None:
        """Another context comes."""
        self._checked, self._unreadable = 0, False

    def room(self, context: Sequence[int]) -> int:
        if self.model.vocab_size < self.vocab_size and not self._unreadable:
            self._unreadable = max(context[self._checked :], default=0) >= self.model.vocab_size
            self._checked = len(context)
        return 0 if self._unreadable else max(0, self.model.context_limit - len(context))

    def read(self, context: Sequence[int], cancelled: Callable[[], bool], progress: Callable[[int, int], None]) -> None:
        """Prefill a context but its last token; ``progress`` is told (tokens done, and all)."""
        self.model.extend(context[self.model.rewind(context) : -1], cancelled, progress)

    def unread(self, context: Sequence[int]) -> int:
        """About how many tokens of a context it has not read."""
        return max(1, len(context) - len(self.model.tokens))

    def after(self, context: Sequence[int]) -> torch.Tensor:
        return self._fit(self.model.extend(context[self.model.rewind(context) :]))

    def step(self, token: int) -> torch.Tensor:
        return self._fit(self.model.extend([token]))

    def level(self, tokens: Sequence[int], parents: Sequence[int]) -> torch.Tensor:
        return self._fit(self.model.forward(tokens, parents))

    def drop(self) -> None:
        self.model.drop()

    def _fit(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits of tokens that the target has."""
        return logits if logits.shape[-1] <= self.vocab_size else logits[..., : self.vocab_size]


class TranslatingPredictor(ModelPredictor):
    """A draft model with another vocabulary: it reads the text in its own tokens, and its logits are those of the
    tokens that both have. So what is drawn is drawn from its distribution restricted to these tokens (TLI, Timor et al.
    2025), which the rejection law is told: lossless like any other. ``translation``: of the target's tokens."""

    def __init__(self, model: CausalModel, vocab_size: int, translation: Translation) -> None:
        super().__init__(model, vocab_size)
        self.translation = translation
        import torch

        pairs = [pair for pair in translation.shared.items() if pair[0] < vocab_size and pair[1] < model.vocab_size]
        pairs = torch.tensor(sorted(pairs), dtype=torch.long, device=model.device).reshape(-1, 2)
        self.drafts, self._theirs = pairs[:, 0].cpu().numpy(), pairs[:, 1]
        self._tokens: list[int] = []

    def restart(self) -> None:
        super().restart()
        self._tokens = []

    def room(self, context: Sequence[int]) -> int:
        read = self._translated(context)
        return max(0, self.model.context_limit - len(read)) if read and len(self.drafts) else 0

    def read(self, context: Sequence[int], cancelled: Callable[[], bool], progress: Callable[[int, int], None]) -> None:
        super().read(self._translated(context), cancelled, progress)

    def unread(self, context: Sequence[int]) -> int:
        return super().unread(self._translated(context))

    def after(self, context: Sequence[int]) -> torch.Tensor:
        return super().after(self._translated(context))

    def step(self, token: int) -> torch.Tensor:
        return super().step(self.translation.shared[token])

    def level(self, tokens: Sequence[int], parents: Sequence[int]) -> torch.Tensor:
        return super().level([self.translation.shared[token] for token in tokens], parents)

    def _translated(self, context: Sequence[int]) -> list[int]:
        """The context in the draft model's tokens; a context only grows until ``restart``."""
        for token in context[self._checked :]:
            self._tokens += [piece for piece in self.translation.read(token) if piece < self.model.vocab_size]
        self._checked = len(context)
        return self._tokens

    def _fit(self, logits: torch.Tensor) -> torch.Tensor:
        return logits.index_select(-1, self._theirs)


class Chain:
    """A chain under way. Whoever grows it decides when it is long enough, but never drops a token once it was
    suggested: leaving out what was drawn would bias the rejection law.

    Attributes:
        tokens, probs: so far, and the drafter's belief in each.
        sureness: how sure the drafter is after the last one, by ``stop``, a rule of ``stop_rules``; 1 without a rule.
    """

    def __init__(self, predictor: Predictor, law: Law, context: Sequence[int], stop: str = NONE) -> None:
        self._predictor, self._law, self._context, self._stop = predictor, law, context, stop
        self.sureness = 1.0
        self.tokens: list[int] = []
        self.probs: list[float] = []
        self._dists: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self.tokens)

    def grow(self) -> tuple[int, float]:
        """Another token: one forward of the predictor. Returns it and the drafter's belief in it."""
        logits = self._predictor.step(self.tokens[-1]) if self.tokens else self._predictor.after(self._context)
        drafts = self._predictor.drafts
        token, prob, dist = self._law.suggest(logits, len(self._context) + len(self), drafts)
        token = token_of(drafts, token)
        if dist is not None:
            self._dists[len(self) - 1] = over_vocabulary(dist, drafts, self._predictor.vocab_size)
        self.tokens.append(token)
        self.probs.append(prob)
        if self._stop != NONE:
            self.sureness = sureness(self._stop, self._law.sampling, logits, self.probs)
        return token, prob

    def tree(self, origin: Origin, note: Note) -> DraftTree:
        """It as a draft."""
        return DraftTree.chain(self.tokens, origin, self.probs, dists=self._dists or None, note=note)
