"""The target's last hidden states of texts: what a dense datastore makes its keys of, and what its queries are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from engines.datastores.building.corpus import Corpus
from engines.datastores.storage.manifest import ModelIdentity
from engines.errors import RunFailed, UsageProblem, first_line

if TYPE_CHECKING:
    from engines.model.causal_model import CausalModel

WINDOW = 2048  # most tokens of a text that are read together
_PADDING = 0  # any token: no state depends on later tokens


class HiddenStates:
    """Reads texts with the target, several in a forward, without KV cache and without the language modelling head.
    Weights are used as they were loaded, so that a build that continues in another process gives the same keys.

    Args:
        identity: of the target, for the manifest.
        window: most tokens of a text, None for the model's context.

    Attributes:
        batch: most tokens of a forward, padding included; a longer text is a batch of its own.

    Raises:
        UsageProblem: the model has no head, whose input the last hidden state is.
    """

    batch = 4096

    def __init__(self, target: CausalModel, identity: ModelIdentity, window: int | None = WINDOW) -> None:
        self._target, self.identity = target, identity
        self.context = min(window or target.context_limit, target.context_limit)
        if target.model.get_output_embeddings() is None:
            raise UsageProblem(f"{target.name} does not show its last hidden state", "build with --kind sparse")

    def __call__(self, texts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Float32 [n, H] for each text int64 [n]. Raises RunFailed if the model breaks, UsageProblem while it is in
        use."""
        out: list[np.ndarray] = [np.zeros(0)] * len(texts)
        remaining = sorted(range(len(texts)), key=lambda i: len(texts[i]), reverse=True)
        with self._target.alone("the reading of texts"):
            while remaining:
                count = max(1, self.batch // max(1, len(texts[remaining[0]])))
                batch, remaining = remaining[:count], remaining[count:]
                for i, states in zip(batch, self._states([texts[i] for i in batch])):
                    out[i] = states
        return out

    @torch.inference_mode()
    def _states(self, texts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Those of texts in one forward, padded at their ends; the longest text comes first."""
        captured: list[torch.Tensor] = []

        def capture(module: Any, inputs: tuple) -> None:
            captured.append(inputs[0])
            raise _HeadReached

        target, longest = self._target, len(texts[0])
        rows = np.full((len(texts), longest), _PADDING)
        for row, text in zip(rows, texts):
            row[: len(text)] = text
        hook = target.model.get_output_embeddings().register_forward_pre_hook(capture)
        try:
            target.model(input_ids=torch.from_numpy(rows).to(target.device), use_cache=False)
        except _HeadReached:
            pass
        except (RuntimeError, MemoryError, IndexError) as error:
            raise RunFailed(f"the model failed: {first_line(error)}", "use a smaller --window") from error
        finally:
            hook.remove()
        states = captured[0].reshape(len(texts), longest, -1).float().cpu().numpy()
        return [state[: len(text)] for state, text in zip(states, texts)]


class _HeadReached(Exception):
    """Ends a forward before the head, whose logits are not needed."""


def tokens_before(corpus: Corpus, tokenizer: Any) -> Callable[[int], Sequence[int]]:
    """What the model reads before a document, by its number: the prompt if the corpus has them (``context``), else the
    token that the tokenizer puts before every text, if there is one."""
    if hasattr(corpus, "context"):
        return corpus.context
    begin = tokenizer("")["input_ids"]
    return lambda document: begin if begin == [tokenizer.bos_token_id] else ()
