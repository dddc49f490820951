"""llama.cpp's server: a chat, its own speculation round by round, and what it tells of itself.

The prompt goes there as token ids, rendered by the server's template and cut by its tokenizer, so that what is shown
is what the model reads. The server sends one message a token; its counters of drafted and accepted tokens change once
a verification step, which gives the rounds back (tools/server of llama.cpp; fields ``timings``). Which tokens were
drafted and rejected it does not say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from engines.errors import ModelUnavailable, UsageProblem
from engines.methods.spec import MethodSpec
from engines.report.events import (
    UNDISCLOSED,
    Emitted,
    Finished,
    Kind,
    Prefilled,
    Prefilling,
    PriceMeasured,
    Ready,
    Round,
    RunEvent,
)
from engines.request import Request
from engines.servers.connection import Connection
from engines.servers.price_from_outside import TEXT, price_from_outside
from engines.servers.served_model import (
    CAPABILITIES,
    Prompt,
    ServedModel,
    chain,
    count,
    label,
    mapping,
    number,
    raw_text,
    turns,
)

_UNKNOWN = "undisclosed"
_REASONS = {"eos": "stop", "word": "stop", "limit": "length"}
_MOST = 1 << 12  # tokens that a step may be said to have drafted


@dataclass(slots=True)
class _Step:
    """A verification step as it comes in: counters before and after it, and its tokens."""

    drafted: int
    accepted: int
    seconds: float
    tokens: list[tuple[int, str]] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        return len(self.tokens) > self.accepted


class LlamaCppModel(ServedModel):
    """A model on llama.cpp's server.

    Raises:
        ModelUnavailable: nobody answers, or another program does.
    """

    size_setting = "--spec-draft-n-max, or --spec-ngram-...-size-m"

    def __init__(self, connection: Connection, spec: MethodSpec, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(connection, spec, options)
        facts, models = mapping(connection.get("/props")), mapping(connection.get("/v1/models"))
        if not is_llama_cpp(facts):
            raise ModelUnavailable(f"{connection.address} is no server of llama.cpp", "check the address")
        listed = models.get("data")
        meta = mapping(mapping(listed[0] if isinstance(listed, list) and listed else {}).get("meta"))
        settings = mapping(facts["default_generation_settings"])
        name = str(facts.get("model_alias") or facts.get("model_path") or "model")
        self._template = bool(facts.get("chat_template"))
        self.ready = Ready(
            model=PurePosixPath(name).name, dtype=str(facts.get("model_ftype") or "not disclosed"),
            device=connection.address, parameters=count(meta.get("n_params")), vocab_size=count(meta.get("n_vocab")),
            context_limit=count(settings.get("n_ctx")), chat_template=self._template, threads=None,
            backend=f"llama.cpp {facts.get('build_info') or ''}".strip(),
            capabilities=replace(CAPABILITIES, asks_price=True), host=spec.host,
        )

    def run(
        self, request: Request, cancelled: Callable[[], bool] = lambda: False,
        progress: Callable[[Prefilling], None] = lambda event: None, prompt: Prompt | None = None,
    ) -> Iterator[RunEvent]:
        self._refuse(request)
        prompt = prompt or self._prompt(request)
        self._room(len(prompt[0]))
        yield self._started(request, prompt)
        yield from self._answer(request, prompt[0], cancelled)

    def measure_price(
        self, cancelled: Callable[[], bool] = lambda: False, progress: Callable[[float], None] = lambda done: None
    ) -> PriceMeasured | None:
        tokens = [token for token, _ in self._tokens(TEXT)]
        limit = (self.ready.context_limit or len(tokens)) - 1
        found = price_from_outside(self._read, tokens, limit, cancelled, progress)
        if found is not None:
            self.ready = replace(self.ready, price=found.price)
        return found

    def _read(self, prompt: Sequence[int]) -> tuple[int | None, float]:
        """How many tokens of a prompt the server read anew, and the seconds it took for them."""
        said = self.connection.post("/completion", {
            "prompt": list(prompt), "n_predict": 1, "cache_prompt": True, "temperature": 0, "samplers": ["temperature"],
        })
        timings = mapping(mapping(said).get("timings"))
        return count(timings.get("prompt_n")), number(timings.get("prompt_ms")) / 1000

    def _prompt(self, request: Request) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Token ids of the prompt and their labels, as the server's template and tokenizer make them."""
        text = raw_text(request)
        if not request.raw and self._template:
            rendered = self.connection.post("/apply-template", {"messages": turns(request)})
            text = str(mapping(rendered).get("prompt", ""))
        found = self._tokens(text)
        if not found:
            raise UsageProblem("the prompt has no tokens", "type a prompt")
        return tuple(token for token, _ in found), tuple(piece for _, piece in found)

    def _tokens(self, text: str) -> list[tuple[int, str]]:
        body = {"content": text, "add_special": True, "parse_special": True, "with_pieces": True}
        rows = mapping(self.connection.post("/tokenize", body)).get("tokens")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ModelUnavailable(f"{self.connection.address} does not say what the prompt's tokens are", "update it")
        return [(count(row.get("id")) or 0, label(row.get("piece"))) for row in rows]

    def _body(self, request: Request, prompt: tuple[int, ...]) -> dict[str, Any]:
        kept, self._anew = not self._anew, False
        penalty = {"repeat_penalty": request.repetition_penalty, "repeat_last_n": len(prompt) + request.max_new_tokens}
        return (penalty if request.repetition_penalty != 1 else {}) | {
            "prompt": list(prompt), "n_predict": request.max_new_tokens, "stream": True, "return_tokens": True,
            "timings_per_token": True, "cache_prompt": kept, "seed": request.seed % 2**32,
            "temperature": request.temperature, "top_k": request.top_k, "top_p": request.top_p, "min_p": request.min_p,
            "samplers": ["penalties", "temperature", "top_k", "top_p", "min_p"],
        }

    def _answer(self, request: Request, prompt: tuple[int, ...], cancelled: Callable[[], bool]) -> Iterator[RunEvent]:
        """The rest of a run, from the server's messages."""
        rounds, written, reason = _Rounds(len(prompt)), [], ""
        for message in self._messages("/completion", self._body(request, prompt), cancelled, self.gather):
            tokens = [token for token in message.get("tokens") or () if count(token) is not None]
            texts = [str(message.get("content") or ""), *[""] * (len(tokens) - 1)]
            ended = message.get("stop") is True
            if ended:
                reason = _REASONS.get(str(message.get("stop_type")), "stop")
            for event in rounds.add(zip(tokens, texts), mapping(message.get("timings")), ended):
                emitted = (event.first,) if isinstance(event, Prefilled) else event.emitted
                written += [(token.token, token.text) for token in emitted]
                yield event
        if not reason and not cancelled():
            raise self._broken_off()
        tokens = tuple(token for token, _ in written)
        yield Finished(reason or "cancelled", tokens, "".join(text for _, text in written))


def is_llama_cpp(facts: Any) -> bool:
    """Whether what ``/props`` answers is of llama.cpp."""
    return "default_generation_settings" in mapping(facts)


class _Rounds:
    """Rounds from messages, one a token. A step's counters change before its tokens are sent; a step without a draft
    changes none, and has one token."""

    def __init__(self, prompt: int) -> None:
        self._prompt, self._position, self._index = prompt, prompt, 0
        self._counted, self._milliseconds = (0, 0), 0.0
        self._step: _Step | None = None

    def add(self, tokens, timings: dict[str, Any], ended: bool) -> Iterator[Prefilled | Round]:
        """What is complete with this message."""
        counted = (count(timings.get("draft_n")) or 0, count(timings.get("draft_n_accepted")) or 0)
        for token, text in tokens:
            if self._position == self._prompt:
                yield self._prefilled(token, text, timings)
                continue
            if self._step is not None and (counted != self._counted or self._step.whole):
                yield self._round()
            if self._step is None:
                self._step = self._begin(counted, timings)
            self._step.tokens.append((token, text))
            if self._step.whole:
                yield self._round()
        if ended and self._step is not None:
            yield self._round()

    def _prefilled(self, token: int, text: str, timings: dict[str, Any]) -> Prefilled:
        self._position += 1
        self._milliseconds = number(timings.get("predicted_ms"))
        return Prefilled(
            self._prompt, min(count(timings.get("cache_n")) or 0, self._prompt),
            number(timings.get("prompt_ms")) / 1000, _emitted(token, text, "target"), None,
        )

    def _begin(self, counted: tuple[int, int], timings: dict[str, Any]) -> _Step:
        drafted = min(max(counted[0] - self._counted[0], 0), _MOST)
        accepted = min(max(counted[1] - self._counted[1], 0), drafted)
        now = number(timings.get("predicted_ms"))
        seconds = max(now - self._milliseconds, 0.0) / 1000
        self._counted, self._milliseconds = counted, max(now, self._milliseconds)
        return _Step(drafted, accepted, seconds)

    def _round(self) -> Round:
        step, self._step = self._step, None
        kept = min(step.accepted, len(step.tokens))
        after: Kind = "target" if not step.drafted else "bonus" if step.accepted == step.drafted else "corrected"
        emitted = tuple(
            _emitted(token, text, "accepted" if n < kept else after, n if n < kept else -1)
            for n, (token, text) in enumerate(step.tokens)
        )
        known = [token for token, _ in step.tokens[:kept]]
        labels = [label(text) for _, text in step.tokens[:kept]]
        hidden = step.drafted - kept
        draft = chain([*known, *[UNDISCLOSED] * hidden], [*labels, *[_UNKNOWN] * hidden])
        self._index += 1
        position, self._position = self._position, self._position + len(emitted)
        return Round(self._index, position, draft, tuple(range(kept)), emitted, None, step.seconds, None, None)


def _emitted(token: int, text: str, kind: Kind, node: int = -1) -> Emitted:
    return Emitted(token, text, label(text), kind, node)
