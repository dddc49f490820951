"""Runs of ``transformers.generate``, as events."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter
from typing import Any

import torch

from engines.bench.hf_generate import GenerateLane
from engines.errors import RunFailed, UsageProblem, first_line
from engines.hub.model_source import locate
from engines.libraries.hf import BaseStreamer, GenerationConfig, PreTrainedModel
from engines.methods.spec import GenerateCall
from engines.model.load_options import LoadOptions
from engines.model.loading import read_model, resolve_device
from engines.race.token_times import TokenTimes
from engines.report.events import Draft, Emitted, Finished, Prefilled, Ready, Round, RunEvent, Started
from engines.request import Request
from engines.runtime import Runtime
from engines.tokenization import encode


def load(
    ready: Ready, dtype: torch.dtype, draft: bool, options: LoadOptions = LoadOptions()
) -> tuple[PreTrainedModel, PreTrainedModel | None]:
    """The models of ``ready`` once more, as transformers loads them: ours may be laid out anew in memory, or quantised.
    The draft model only where it is wanted. Of the options revisions and trust count. Raises ModelUnavailable."""
    device, names = resolve_device(ready.device), [(ready.model, options.revision)]
    if draft and ready.draft_model:
        names.append((ready.draft_model, options.draft_revision))
    models = [read_model(locate(name, at, options.terms), dtype, device).eval() for name, at in names]
    return models[0], models[1] if len(models) > 1 else None


@dataclass(slots=True)
class Generator:
    """Plain models, and generate on them.

    Attributes:
        target, draft: as transformers loaded them.
        runtime: ours: its tokenizer, its end tokens, its context.
        token_times: of the last run.
    """

    target: PreTrainedModel
    draft: PreTrainedModel | None
    runtime: Runtime
    token_times: TokenTimes | None = None

    def __post_init__(self) -> None:
        known = self.target.generation_config
        self.target.generation_config = GenerationConfig(  # penalties and sampling of the model's own stay out
            pad_token_id=known.pad_token_id, bos_token_id=known.bos_token_id,
            eos_token_id=sorted(self.runtime.end_tokens) or None,
        )

    def run(self, request: Request, cancelled: Callable[[], bool] = lambda: False) -> Iterator[RunEvent]:
        """A cold run of the call that the request names as its engine, as events, all of which come when it is over. A
        round is what generate delivered at once; what came with the first token is a round that took no time. Raises
        RunFailed: generate broke."""
        clock = perf_counter()
        runtime, lane = self.runtime, GenerateLane(request.engine)
        if lane.call.assisted and runtime.translation is not None:
            raise UsageProblem("generate takes no assistant with another vocabulary here",
                               "leave generate out: --no-peers")
        prompt, _ = encode(runtime.tokenizer, request, runtime.target.vocab_size)
        stamps = Stamps(cancelled)
        limit = max(1, min(request.max_new_tokens, runtime.target.context_limit - len(prompt)))
        try:
            self._generate(prompt, limit, lane.call, stamps, penalties_of(request))
        except GenerationStopped:
            yield Finished("cancelled", (), "")
            return
        except Exception as error:  # whatever a model's own code and transformers raise
            raise RunFailed(f"generate failed: {first_line(error)}", "leave generate out: --no-peers") from error
        times = [at - clock for at in stamps.times]
        tokens = [token for tokens in stamps.tokens for token in tokens]
        first = len(stamps.tokens[0])
        self.token_times = TokenTimes(
            first=first, first_seconds=times[0], later=len(tokens) - first, later_seconds=times[-1] - times[0],
            rounds=len(times) - 1,
        )
        yield self._started(request, prompt)
        yield from self._events(len(prompt), stamps.tokens, times)
        reason = "stop" if tokens[-1] in runtime.end_tokens else "length"
        yield Finished(reason, tuple(tokens), runtime.tokenizer.decode(tokens, skip_special_tokens=True))

    def memory(self, engine: str, rows: int) -> int:
        """Bytes of the weights that a call runs, as they lie in memory, and of ``rows`` KV rows: of the same shapes
        as ours."""
        pairs = [(self.target, self.runtime.target), (self.draft, self.runtime.draft)]
        used = pairs if GenerateLane(engine).call.assisted else pairs[:1]
        return sum(
            sum(p.numel() * p.element_size() for p in plain.parameters()) + rows * ours.cache.row_bytes
            for plain, ours in used
        )

    def _generate(
        self, prompt: list[int], limit: int, call: GenerateCall, stamps: Stamps, penalties: dict[str, float]
    ) -> None:
        how: dict[str, Any] = {**call.arguments, **penalties}
        if call.assisted:
            learned = self.draft.generation_config  # where scikit-learn is installed, generate moves a threshold in it
            self.draft.generation_config = copy.deepcopy(learned)
            how["assistant_model"] = self.draft
        inputs = torch.tensor([list(prompt)], device=self.target.device)
        try:
            with torch.inference_mode():
                self.target.generate(
                    inputs, attention_mask=torch.ones_like(inputs), do_sample=False, max_new_tokens=limit,
                    streamer=stamps, **how,
                )
        finally:
            if call.assisted:
                self.draft.generation_config = learned

    def _started(self, request: Request, prompt: Iterable[int]) -> Started:
        ready = self.runtime.ready
        return Started(
            engine=request.engine, options={}, law=Request(()).law, temperature=0.0, top_p=1.0, top_k=0,
            **penalties_of(request), seed=request.seed, max_new_tokens=request.max_new_tokens, model=ready.model,
            dtype=str(self.target.dtype).removeprefix("torch."), device=ready.device, prompt=tuple(prompt),
            conversation=request.conversation, draft_model=ready.draft_model,
        )

    def _events(self, length: int, delivered: list[list[int]], times: list[float]) -> Iterator[RunEvent]:
        """Prefill and rounds; neither fates nor probabilities are known."""
        (first, *more), *rounds = [[self._emitted(token) for token in tokens] for tokens in delivered]
        yield Prefilled(length, 0, times[0], first, length)
        took = [later - earlier for earlier, later in pairwise(times)]
        if more:
            rounds, took = [more, *rounds], [0.0, *took]
        at = length + 1
        for index, (made, seconds) in enumerate(zip(rounds, took), 1):
            yield Round(
                index=index, position=at, draft=Draft(), path=(), emitted=tuple(made), draft_seconds=None,
                verify_seconds=seconds, other_seconds=None, cache_length=at,
            )
            at += len(made)

    def _emitted(self, token: int) -> Emitted:
        piece = self.runtime.words.piece(token)
        return Emitted(token, piece, piece, "target")


class GenerationStopped(Exception):
    """The run is not wanted any more."""


class Stamps(BaseStreamer):
    """When generate delivered which tokens. The first delivery is the prompt."""

    def __init__(self, cancelled: Callable[[], bool] = lambda: False) -> None:
        self._prompt, self._cancelled = True, cancelled
        self.tokens: list[list[int]] = []
        self.times: list[float] = []

    def put(self, value: torch.Tensor) -> None:
        found = value.flatten().tolist()
        if self._prompt:
            self._prompt = False
            return
        self.times.append(perf_counter())
        self.tokens.append(found)
        if self._cancelled():
            raise GenerationStopped

    def end(self) -> None:
        """Nothing is buffered."""


def penalties_of(request: Request) -> dict[str, float]:
    """The penalties on repetitions, by the names that ``generate`` and ``Started`` share."""
    return {name: getattr(request, name) for name in ("repetition_penalty", "no_repeat_ngram_size")}
