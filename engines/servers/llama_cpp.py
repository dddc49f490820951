"""llama.cpp's server: a chat, its own speculation round by round, and what it tells of itself.

The prompt goes there as token ids, rendered by the server's template and cut by its tokenizer, so that what is shown
is what the model reads. The server sends one message a token; its counters of drafted and accepted tokens change once
a verification step, which gives the rounds back (tools/server of llama.cpp; fields ``timings``). Which tokens were
drafted and rejected it does not say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlencode

from engines.errors import ModelUnavailable, StartCancelled, UsageProblem
from engines.methods.spec import MethodSpec
from engines.report.events import (
    UNDISCLOSED,
    Emitted,
    Finished,
    Kind,
    Prefilled,
    Preparing,
    PriceMeasured,
    Ready,
    Round,
    RunEvent,
    ServerTotals,
)
from engines.request import Request
from engines.servers.answers import Completion, ListedModel, ModelMeta, Models, Pieces, Props, Rendered, Timings
from engines.servers.connection import Cancelled, Connection
from engines.servers.remote_cost import TEXT, measure_remote_cost
from engines.servers.served_model import CAPABILITIES, STEP, Prompt, ServedModel, chain, label, number, raw_text, turns

_UNKNOWN = "undisclosed"
_REASONS = {"eos": "stop", "word": "stop", "limit": "length"}


@dataclass(slots=True)
class _Step:
    """A verification step as it comes in, or several that are not told ``apart``: what was drafted and accepted, the
    time, and its tokens."""

    drafted: int
    accepted: int
    seconds: float
    apart: bool
    tokens: list[tuple[int, str]] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        return self.apart and len(self.tokens) > self.accepted


class LlamaCppModel(ServedModel):
    """A model on llama.cpp's server. ``model``: which, where the server has several. Raises ModelUnavailable: nobody
    answers, or another program does; no such model, or several and none is named."""

    size_setting = "--spec-draft-n-max, or --spec-ngram-...-size-m"

    def __init__(
        self, connection: Connection, spec: MethodSpec, options: Mapping[str, Any] | None = None,
        model: str | None = None,
    ) -> None:
        super().__init__(connection, spec, options)
        self._named = {"model": model} if model else {}
        self._identified: Ready | None = None
        self._identify()

    def _identify(self, cancelled: Cancelled = lambda: False) -> None:
        """Ask which model is served: a server that was started again may have another one."""
        facts = self.connection.get("/props", Props, cancelled)
        rows = self.connection.get("/v1/models", Models, cancelled).data or [ListedModel()]
        if self._named or facts.role == "router":
            rows = [self._meant(rows, self._named.get("model"))]
        if facts.role == "router":
            self._named = {"model": rows[0].id}
            facts = self.connection.get(f"/props?{urlencode(self._named)}", Props, cancelled)
        if facts.default_generation_settings is None:
            raise ModelUnavailable(f"{self.connection.address} is not a llama.cpp server", "check the address")
        meta = rows[0].meta or ModelMeta()
        name = facts.model_alias or facts.model_path or rows[0].id or "model"
        found = self._introduced(Ready(
            model=PurePosixPath(name).name, dtype=facts.model_ftype or "not disclosed",
            device=self.connection.address, parameters=meta.n_params, vocab_size=meta.n_vocab,
            context_limit=facts.default_generation_settings.n_ctx, chat_template=bool(facts.chat_template),
            threads=None, backend=f"llama.cpp {facts.build_info or ''}".strip(),
            capabilities=replace(CAPABILITIES, asks_price=True), host=self.spec.host,
        ))
        if found != self._identified:
            self._identified = self.ready = found
            self._auditor = None
            self._parts: dict[tuple[str, int], list[int]] = {}  # ids before a token's that its text's character takes

    def run(
        self, request: Request, cancelled: Callable[[], bool] = lambda: False,
        progress: Callable[[Preparing], None] = lambda event: None, prompt: Prompt | None = None,
    ) -> Iterator[RunEvent]:
        self._refuse(request)
        if prompt is None:
            self._identify(cancelled)
            prompt = self._prompt(request, cancelled)
        self._room(len(prompt[0]))
        yield self._started(request, prompt)
        yield from self._answer(request, prompt[0], cancelled)

    def measure_price(
        self, cancelled: Callable[[], bool] = lambda: False, progress: Callable[[float], None] = lambda done: None
    ) -> PriceMeasured | None:
        try:
            tokens = [token for token, _ in self._tokens(TEXT, cancelled)]
            limit = (self.ready.context_limit or len(tokens)) - 1
            found = measure_remote_cost(partial(self._read, cancelled), tokens, limit, cancelled, progress)
        except StartCancelled:
            return None
        self.ready = replace(self.ready, price=found.price)
        return found

    def _read(self, cancelled: Cancelled, prompt: Sequence[int]) -> tuple[int | None, float]:
        """How many tokens of a prompt the server read anew, and the seconds it took for them."""
        body = self._named | {"prompt": list(prompt), "n_predict": 1, "cache_prompt": True, "temperature": 0,
                             "samplers": ["temperature"]}
        timings = self.connection.post("/completion", body, Completion, cancelled).timings or Timings()
        return timings.prompt_n, number(timings.prompt_ms) / 1000

    def _prompt(self, request: Request, cancelled: Cancelled) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Token ids of the prompt and their labels, as the server's template and tokenizer make them."""
        text = raw_text(request)
        if not request.raw and self.ready.chat_template:
            body = self._named | {"messages": turns(request)}
            text = self.connection.post("/apply-template", body, Rendered, cancelled).prompt
        found = self._tokens(text, cancelled)
        if not found:
            raise UsageProblem("the prompt has no tokens", "type a prompt")
        return tuple(token for token, _ in found), tuple(piece for _, piece in found)

    def _tokens(self, text: str, cancelled: Cancelled) -> list[tuple[int, str]]:
        body = self._named | {"content": text, "add_special": True, "parse_special": True, "with_pieces": True}
        rows = self.connection.post("/tokenize", body, Pieces, cancelled).tokens
        return [(row.id, self._label(row.piece)) for row in rows]

    def _body(self, request: Request, prompt: tuple[int, ...]) -> dict[str, Any]:
        kept, self._anew = not self._anew, False
        penalty = {"repeat_penalty": request.repetition_penalty, "repeat_last_n": len(prompt) + request.max_new_tokens}
        return self._named | (penalty if request.repetition_penalty != 1 else {}) | {
            "prompt": list(prompt), "n_predict": request.max_new_tokens, "stream": True, "return_tokens": True,
            "timings_per_token": True, "cache_prompt": kept,
            "seed": request.seed % (2**32 - 1),  # the last, 2**32 - 1, means another seed each time
            "temperature": request.temperature, "top_k": request.top_k, "top_p": request.top_p, "min_p": request.min_p,
            "samplers": ["penalties", "temperature", "top_k", "top_p", "min_p"],
        }

    def _answer(self, request: Request, prompt: tuple[int, ...], cancelled: Callable[[], bool]) -> Iterator[RunEvent]:
        """The rest of a run, from the server's messages."""
        rounds, written, reason, left = _Rounds(len(prompt)), [], "", request.max_new_tokens
        for message in self._messages(
                "/completion", self._body(request, prompt), Completion, left, cancelled, self.gather):
            tokens = [*self._held_back(message, request.max_new_tokens - left, cancelled), *message.ids]
            texts = [*[""] * (len(tokens) - 1), message.text]
            left, tokens = left - len(tokens), tokens[:left]
            if message.stop:
                reason = _REASONS.get(message.stop_type or "", "stop")
            if left < 0:  # it goes on after as many as were asked for
                reason = "length"
            for event in rounds.add(zip(tokens, texts), message.timings or Timings(), bool(reason)):
                emitted = (event.first,) if isinstance(event, Prefilled) else event.emitted
                written += [(token.token, token.text) for token in emitted]
                yield event
            if left < 0:
                break
        if not reason and not cancelled():
            raise self._broken_off()
        tokens = tuple(token for token, _ in written)
        text = "".join(text for _, text in written)
        yield Finished(reason or "cancelled", tokens, text, rounds.totals)

    def _held_back(self, message: Completion, known: int, cancelled: Callable[[], bool]) -> list[int]:
        """Ids of the tokens before this message's that are parts of its character: the server sends only the one that
        completes it. ``known`` tokens were sent before. A text is asked for once: a step with a draft counts to its
        end, so that any token of it may seem to lack some. A mark in the place of bytes tells no ids."""
        lacking = (message.tokens_predicted or 0) - known - len(message.ids)
        if lacking < 1 or len(message.ids) != 1 or message.text.isascii() or "\ufffd" in message.text:
            return []
        asked = message.text, message.ids[0]
        if asked not in self._parts:
            body = self._named | {"content": message.text, "add_special": False, "with_pieces": True}
            try:
                *parts, last = self.connection.post("/tokenize", body, Pieces, cancelled).tokens or [None]
            except (ModelUnavailable, StartCancelled):  # the rest of the answer says so
                return []
            whole = last is not None and last.id == asked[1] and all(isinstance(part.piece, list) for part in parts)
            self._parts[asked] = [part.id for part in parts] if whole else []
        return self._parts[asked] if len(self._parts[asked]) <= lacking else []


class _Rounds:
    """Rounds from messages, one a token. A step's counters change before its tokens are sent; a step without a draft
    changes none, and has one token. A message with tokens that were held back may be of several steps: where they
    drafted, which of them drafted and accepted what is not told, and they are one round of which the text is known."""

    def __init__(self, prompt: int) -> None:
        self._prompt, self._position, self._index = prompt, prompt, 0
        self._counted, self._milliseconds = (0, 0), 0.0
        self._step: _Step | None = None
        self._drafted = self._accepted = self._steps = 0
        self._apart = True  # each step is a round

    @property
    def totals(self) -> ServerTotals | None:
        """What the counters say of all rounds, where some round does not say it."""
        if self._apart:
            return None
        return ServerTotals(drafted=self._drafted, accepted=self._accepted, steps=max(self._steps, self._index))

    def add(self, tokens: Iterable[tuple[int, str]], timings: Timings, ended: bool) -> Iterator[Prefilled | Round]:
        """What is complete with this message."""
        counted, rest = (timings.draft_n or 0, timings.draft_n_accepted or 0), [*tokens]
        held = len(rest) > 1
        if rest and self._position == self._prompt:
            yield self._prefilled(*rest.pop(0), timings)
        if self._step is not None and rest and self._ends_before(counted, timings, held):
            yield self._round()
        while rest:
            if self._step is None:
                self._step = self._begin(counted, timings, len(rest))
            room = 1 if self._step.apart else len(rest)
            self._step.tokens += rest[:room]
            del rest[:room]
            if self._step.whole:
                yield self._round()
        if ended and self._step is not None:
            yield self._round()

    def _ends_before(self, counted: tuple[int, int], timings: Timings, held: bool) -> bool:
        """Whether a message's first token is of another step than the one that is not whole yet. Tokens that were
        ``held`` back first complete a step that lacks some: the counters are already those of a later one."""
        if self._step.apart:
            return counted != self._counted and not held
        return held or counted != self._counted or number(timings.predicted_ms) != self._milliseconds

    def _prefilled(self, token: int, text: str, timings: Timings) -> Prefilled:
        self._position += 1
        return Prefilled(
            self._prompt, min(timings.cache_n or 0, self._prompt),
            number(timings.prompt_ms) / 1000, _emitted(token, text, "target"), None,
        )

    def _begin(self, counted: tuple[int, int], timings: Timings, tokens: int) -> _Step:
        """The step of the first of so many tokens, or all their steps; those without a draft share the time."""
        drafted = min(max(counted[0] - self._counted[0], 0), STEP)
        accepted = min(max(counted[1] - self._counted[1], 0), drafted)
        apart = tokens == 1 or not drafted
        now = max(number(timings.predicted_ms), self._milliseconds)
        share = (now - self._milliseconds) / (tokens if apart else 1)
        self._counted, self._milliseconds = counted, self._milliseconds + share if apart and tokens > 1 else now
        return _Step(drafted, accepted, share / 1000, apart)

    def _round(self) -> Round:
        step, self._step = self._step, None
        kept = min(step.accepted, len(step.tokens))
        self._drafted, self._accepted = self._drafted + step.drafted, self._accepted + kept
        self._steps += 1 if step.apart else len(step.tokens) - kept
        self._apart &= step.apart
        if not step.apart:
            step.drafted = kept = 0
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
        return Round(self._index, position, draft, tuple(range(kept)), emitted, None, step.seconds, None, None,
                     known="all" if step.apart else "text")


def _emitted(token: int, text: str, kind: Kind, node: int = -1) -> Emitted:
    return Emitted(token, text, label(text), kind, node)
