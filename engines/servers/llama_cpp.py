"""llama.cpp's server: a chat, its own speculation round by round, and what it tells of itself.

The prompt goes there as token ids, rendered by the server's template and cut by its tokenizer, so that what is shown
is what the model reads. The server sends one message a token; its counters of drafted and accepted tokens change once
a verification step, which gives the rounds back (tools/server of llama.cpp; fields ``timings``). Which tokens were
drafted and rejected it does not say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from engines.errors import ModelUnavailable, RunFailed, UsageProblem
from engines.laws import DEFAULT, LAWS
from engines.methods import specs
from engines.report.answer import Answer
from engines.report.events import (
    UNDISCLOSED,
    Audited,
    Capabilities,
    Draft,
    Emitted,
    Finished,
    Kind,
    Origin,
    Prefilled,
    Prefilling,
    Ready,
    Round,
    RunEvent,
    Started,
)
from engines.request import Request
from engines.servers.connection import Connection

CAPABILITIES = Capabilities(
    baseline=False, branch=False, detail=False, audit=False, race=False, datastores=False, drafts=False,
    probabilities=False,
)
_UNKNOWN = "undisclosed"
_DRAWN = next(law.name for law in LAWS.values() if law.lossless and law.varies(1.0))
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


class LlamaCppModel:
    """A model on llama.cpp's server, asked as ``engines.runtime.Runtime`` is.

    Attributes:
        ready: what the server says of its model.

    Raises:
        ModelUnavailable: nobody answers, or another program does.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        facts, models = _mapping(connection.get("/props")), _mapping(connection.get("/v1/models"))
        if "default_generation_settings" not in facts:
            raise ModelUnavailable(
                f"{connection.address} is no server of llama.cpp", "only llama.cpp's server is understood so far"
            )
        listed = models.get("data")
        meta = _mapping(_mapping(listed[0] if isinstance(listed, list) and listed else {}).get("meta"))
        settings = _mapping(facts["default_generation_settings"])
        name = str(facts.get("model_alias") or facts.get("model_path") or "model")
        self._template = bool(facts.get("chat_template"))
        self.ready = Ready(
            model=PurePosixPath(name).name, dtype=str(facts.get("model_ftype") or "not disclosed"),
            device=connection.address, parameters=_count(meta.get("n_params")), vocab_size=_count(meta.get("n_vocab")),
            context_limit=_count(settings.get("n_ctx")), chat_template=self._template,
            backend=f"llama.cpp {facts.get('build_info') or ''}".strip(), capabilities=CAPABILITIES, served=True,
        )

    def run(
        self, request: Request, cancelled: Callable[[], bool] = lambda: False,
        progress: Callable[[Prefilling], None] = lambda event: None,
    ) -> Iterator[RunEvent]:
        """One run as events: Started, Prefilled, Round..., Finished. A server tells no progress of a prompt.

        Raises:
            UsageProblem: before Started, for a request that the server cannot run.
            RunFailed: later, where the server or the connection broke.
        """
        request.check()
        self._refuse(request)
        prompt, pieces = self._prompt(request)
        if self.ready.context_limit and len(prompt) >= self.ready.context_limit:
            raise UsageProblem(
                f"the prompt has {len(prompt)} tokens, the server's context holds {self.ready.context_limit}",
                "shorten it, start a new conversation, or start the server with a larger context (-c)",
            )
        yield self._started(request, prompt, pieces)
        yield from self._answer(request, prompt, cancelled)

    def audit(
        self, answer: Answer, cancelled: Callable[[], bool] = lambda: False,
        progress: Callable[[float], None] = lambda done: None,
    ) -> Audited | None:
        """Raises UsageProblem: a server computes no logits of a given text."""
        raise UsageProblem(
            "an answer of a server cannot be audited by it", "load the model here, and ask it with the same settings"
        )

    def forget(self) -> None:
        """Nothing is kept here."""

    def forget_acceptance(self) -> None:
        """Nothing is learnt here."""

    def memory(self, engine: str, options: Mapping[str, Any], rows: int) -> int:
        """Bytes that a run takes in this process: none."""
        return 0

    @property
    def datastore_service(self) -> Any:
        """Raises UsageProblem: the server searches none of ours."""
        raise UsageProblem("a server searches no datastores", "load a model here to build and search them")

    def _refuse(self, request: Request) -> None:
        if request.no_repeat_ngram_size:
            raise UsageProblem("llama.cpp has no --no-repeat-ngram-size", "use --repetition-penalty")
        if request.continued:
            raise UsageProblem("an answer of a server cannot be continued at a token", "ask again")

    def _prompt(self, request: Request) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Token ids of the prompt and their labels, as the server's template and tokenizer make them."""
        text = "\n".join(content for _, content in request.conversation)
        if not request.raw and self._template:
            messages = [{"role": role, "content": content} for role, content in request.conversation]
            text = str(_mapping(self._connection.post("/apply-template", {"messages": messages})).get("prompt", ""))
        found = self._tokens(text)
        if not found:
            raise UsageProblem("the prompt has no tokens", "type a prompt")
        return tuple(token for token, _ in found), tuple(piece for _, piece in found)

    def _tokens(self, text: str) -> list[tuple[int, str]]:
        body = {"content": text, "add_special": True, "parse_special": True, "with_pieces": True}
        rows = _mapping(self._connection.post("/tokenize", body)).get("tokens")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ModelUnavailable(f"{self._connection.address} does not say what the prompt's tokens are", "update it")
        return [(_count(row.get("id")) or 0, _label(row.get("piece"))) for row in rows]

    def _started(self, request: Request, prompt: tuple[int, ...], pieces: tuple[str, ...]) -> Started:
        hot = request.temperature > 0
        warnings = ("the server draws its own random numbers: the text is not that of another engine with this seed",)
        return Started(
            engine=specs(served=True)[0].id, options={}, law=_DRAWN if hot else DEFAULT,
            temperature=request.temperature, top_p=request.top_p, top_k=request.top_k, min_p=request.min_p,
            seed=request.seed,
            repetition_penalty=request.repetition_penalty, max_new_tokens=request.max_new_tokens,
            model=self.ready.model, dtype=self.ready.dtype, device=self.ready.device, prompt=prompt,
            prompt_pieces=pieces, conversation=(("raw", request.conversation[-1][1]),) if request.raw
            else request.conversation, versions={"server": self.ready.backend}, warnings=warnings if hot else (),
        )

    def _body(self, request: Request, prompt: tuple[int, ...]) -> dict[str, Any]:
        penalty = {"repeat_penalty": request.repetition_penalty, "repeat_last_n": len(prompt) + request.max_new_tokens}
        return (penalty if request.repetition_penalty != 1 else {}) | {
            "prompt": list(prompt), "n_predict": request.max_new_tokens, "stream": True, "return_tokens": True,
            "timings_per_token": True, "cache_prompt": True, "seed": request.seed % 2**32,
            "temperature": request.temperature, "top_k": request.top_k, "top_p": request.top_p, "min_p": request.min_p,
            "samplers": ["penalties", "temperature", "top_k", "top_p", "min_p"],
        }

    def _answer(self, request: Request, prompt: tuple[int, ...], cancelled: Callable[[], bool]) -> Iterator[RunEvent]:
        """The rest of a run, from the server's messages."""
        rounds, written, reason = _Rounds(len(prompt)), [], ""
        for message in self._connection.stream("/completion", self._body(request, prompt), cancelled):
            message = _mapping(message)
            if "error" in message:
                raise RunFailed(f"the server failed: {_said(message['error'])}", "ask again; its log says more")
            tokens = [token for token in message.get("tokens") or () if _count(token) is not None]
            texts = [str(message.get("content") or ""), *[""] * (len(tokens) - 1)]
            ended = message.get("stop") is True
            if ended:
                reason = _REASONS.get(str(message.get("stop_type")), "stop")
            for event in rounds.add(zip(tokens, texts), _mapping(message.get("timings")), ended):
                emitted = (event.first,) if isinstance(event, Prefilled) else event.emitted
                written += [(token.token, token.text) for token in emitted]
                yield event
        if not reason and not cancelled():
            raise RunFailed(f"{self._connection.address} broke off in the middle of the answer", "ask again")
        tokens = tuple(token for token, _ in written)
        yield Finished(reason or "cancelled", tokens, "".join(text for _, text in written))


class _Rounds:
    """Rounds from messages, one a token. A step's counters change before its tokens are sent; a step without a draft
    changes none, and has one token."""

    def __init__(self, prompt: int) -> None:
        self._prompt, self._position, self._index = prompt, prompt, 0
        self._counted, self._milliseconds = (0, 0), 0.0
        self._step: _Step | None = None

    def add(self, tokens, timings: dict[str, Any], ended: bool) -> Iterator[Prefilled | Round]:
        """What is complete with this message."""
        counted = (_count(timings.get("draft_n")) or 0, _count(timings.get("draft_n_accepted")) or 0)
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
        self._milliseconds = _number(timings.get("predicted_ms"))
        return Prefilled(
            self._prompt, min(_count(timings.get("cache_n")) or 0, self._prompt),
            _number(timings.get("prompt_ms")) / 1000, _emitted(token, text, "target"), None,
        )

    def _begin(self, counted: tuple[int, int], timings: dict[str, Any]) -> _Step:
        drafted = min(max(counted[0] - self._counted[0], 0), _MOST)
        accepted = min(max(counted[1] - self._counted[1], 0), drafted)
        now = _number(timings.get("predicted_ms"))
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
        labels = [_label(text) for _, text in step.tokens[:kept]]
        hidden = step.drafted - kept
        draft = Draft(
            (*known, *[UNDISCLOSED] * hidden), tuple(range(-1, step.drafted - 1)), (*labels, *[_UNKNOWN] * hidden),
            (None,) * step.drafted, (0,) * step.drafted, (Origin("server"),) if step.drafted else (),
        )
        self._index += 1
        position, self._position = self._position, self._position + len(emitted)
        return Round(self._index, position, draft, tuple(range(kept)), emitted, None, step.seconds, None, None)


def _emitted(token: int, text: str, kind: Kind, node: int = -1) -> Emitted:
    return Emitted(token, text, _label(text), kind, node)


def _label(piece: Any) -> str:
    """A token's own label: the server sends bytes where they are no text, and nothing for a token without text."""
    if isinstance(piece, list):
        return "".join(f"<0x{byte & 255:02X}>" for byte in piece if isinstance(byte, int))
    return str(piece or "") or "<?>"


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 60 else None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e12 else 0.0


def _said(error: Any) -> str:
    text = error.get("message", "") if isinstance(error, dict) else error
    return " ".join(str(text).split())[:200] or "no reason is given"
