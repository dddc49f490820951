"""The model as the dense part of a datastore needs it: texts in, last hidden states out.

What the language modelling head reads is what a query will be (``methods.drafter.Outcome.hidden``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from engines.datastores.building.corpus import Corpus
from engines.errors import RunFailed, UsageProblem, first_line
from engines.model.weight_layouts import as_loaded
from engines.runtime import Runtime

WINDOW = 2048  # tokens of a text that are read together, at most
_BATCH = 4096  # tokens of a forward at most, padding included; a longer text is one of its own
_PADDING = 0  # any token: no state depends on what comes later


class ModelReader:
    """A ``hidden.Reader``: reads texts with the target, several in a forward, without cache and without the head.
    Weights are used as they were loaded: a build that is taken up by another process gives the same keys.

    Args:
        runtime: whose target it is.
        window: tokens of a text at most, None for the model's context.

    Raises:
        UsageProblem: the model has no head to read for.
    """

    def __init__(self, runtime: Runtime, window: int | None = WINDOW) -> None:
        self._target, self.mark = runtime.target, runtime.mark
        limit = self._target.context_limit
        self.context = min(window or limit, limit)
        if self._target.model.get_output_embeddings() is None:
            raise UsageProblem(f"{self._target.name} does not show its last hidden state", "build with --kind sparse")

    def __call__(self, texts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """See ``hidden.Reader``. Raises RunFailed where the model breaks."""
        out: list[np.ndarray] = [np.zeros(0)] * len(texts)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]), reverse=True)
        while order:
            together = max(1, _BATCH // max(1, len(texts[order[0]])))
            some, order = order[:together], order[together:]
            for i, states in zip(some, self._states([texts[i] for i in some])):
                out[i] = states
        return out

    @torch.inference_mode()
    def _states(self, texts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Those of texts in one forward, padded at their ends; the longest comes first."""
        seen: list[torch.Tensor] = []

        def note(module: Any, inputs: tuple) -> None:
            seen.append(inputs[0])
            raise _Enough

        target, longest = self._target, len(texts[0])
        rows = np.full((len(texts), longest), _PADDING)
        for row, text in zip(rows, texts):
            row[: len(text)] = text
        hook = target.model.get_output_embeddings().register_forward_pre_hook(note)
        try:
            with as_loaded(target.model):
                target.model(input_ids=torch.from_numpy(rows).to(target.device), use_cache=False)
        except _Enough:
            pass
        except (RuntimeError, MemoryError, IndexError) as error:
            raise RunFailed(f"the model failed: {first_line(error)}", "use a smaller --window") from error
        finally:
            hook.remove()
        states = seen[0].reshape(len(texts), longest, -1).float().cpu().numpy()
        return [state[: len(text)] for state, text in zip(states, texts)]


class _Enough(Exception):
    """The head is reached: its logits are not wanted."""


def before(corpus: Corpus, tokenizer: Any) -> Callable[[int], Sequence[int]]:
    """What the model reads before a document: what the corpus says (prompts do), else the token that the tokenizer puts
    before every text, if it does."""
    if hasattr(corpus, "context"):
        return corpus.context
    begin = tokenizer("")["input_ids"]
    return lambda document: begin if begin == [tokenizer.bos_token_id] else ()
