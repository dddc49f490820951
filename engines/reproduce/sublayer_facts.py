"""What a model's attention and MLP sublayers do to the residual stream, and how long they take (ADMG, Table 1)."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from engines.model.feature_request import COSINES, FeatureRequest
from engines.request import Request

if TYPE_CHECKING:
    from engines.model.causal_model import CausalModel
    from engines.runtime import Runtime

PARTS = ("attention", "MLP")
_TIMES = 3  # passes over a prompt, of which the fastest counts


@dataclass(frozen=True, slots=True)
class SublayerFacts:
    """Both by part of the model.

    Attributes:
        cosines: C_l of each layer: the cosine of the residual stream before and after the sublayer, averaged over the
            positions of a prompt, then over the prompts.
        seconds: of a sublayer for the whole of a prompt, its norm included; the mean over layers and prompts.
    """

    cosines: Mapping[str, tuple[float, ...]]
    seconds: Mapping[str, float]


def measure_sublayers(runtime: Runtime, prompts: Sequence[str], base: Request) -> SublayerFacts:
    """Read each prompt with the whole model.

    Raises:
        UsageProblem: the model does not show its hidden states, cannot be asked a prompt, or is in use.
        RunFailed: it broke.
    """
    cosines: dict[str, list[Sequence[float]]] = {part: [] for part in PARTS}
    seconds: dict[str, list[float]] = {part: [] for part in PARTS}
    for text in prompts:
        request = Request((*base.conversation, ("user", text)), max_new_tokens=1)
        ids, _ = runtime.prompt(request)
        with runtime.target.alone("a measurement"):
            for part, found in zip(PARTS, _cosines(runtime.target, ids)):
                cosines[part].append(found)
            for part, found in _seconds(runtime.target, ids).items():
                seconds[part].append(found)
    return SublayerFacts({part: tuple(map(statistics.mean, zip(*found))) for part, found in cosines.items()},
                         {part: statistics.mean(found) for part, found in seconds.items()})


def _cosines(target: CausalModel, ids: Sequence[int]) -> tuple[list[float], list[float]]:
    """Attention and MLP, by layer."""
    target.truncate(0)
    with target.features.requested(FeatureRequest(recent=frozenset({COSINES}))):
        target.extend(list(ids))
        attention, mlp, _ = target.features.mean_cosines(target.length)
    target.truncate(0)
    return attention, mlp


def _seconds(target: CausalModel, ids: Sequence[int]) -> dict[str, float]:
    """Mean seconds of a sublayer, by part: of the fastest of several passes over the prompt."""
    import torch

    tokens = torch.tensor([list(ids)], device=target.device)
    best: dict[str, float] = {}
    for _ in range(_TIMES):
        with _timed(target) as spent, torch.inference_mode():
            target.model(input_ids=tokens, use_cache=False)
        for part, total in spent.items():
            best[part] = min(best.get(part, total), total)
    return {part: total / len(target.sublayers) for part, total in best.items()}


@contextmanager
def _timed(target: CausalModel) -> Iterator[dict[str, float]]:
    """Inside, the seconds that all sublayers of a kind take in a forward, with their norms; on a GPU without what was
    begun before them."""
    spent, began, hooks = dict.fromkeys(PARTS, 0.0), [0.0], []

    def begin(*_: Any) -> None:
        target.synchronize()
        began[0] = perf_counter()

    def end(part: str) -> Any:
        def add(*_: Any) -> None:
            target.synchronize()
            spent[part] += perf_counter() - began[0]

        return add

    for layer in target.sublayers.layers:
        for part, sublayer in zip(PARTS, layer.parts.values()):
            for module in sublayer.modules:
                hooks += [module.register_forward_pre_hook(begin), module.register_forward_hook(end(part))]
    try:
        yield spent
    finally:
        for hook in hooks:
            hook.remove()
