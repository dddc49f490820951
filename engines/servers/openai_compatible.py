"""OpenAI-compatible servers: vLLM, SGLang, Ollama, LM Studio and others.

Of vLLM a message is one verification step, whose tokens are the accepted ones and one more (measured with vLLM 0.32,
``return_token_ids``); how many drafted tokens were rejected it says at the end of an answer, where it was started with
``--per-request-spec-decode-metrics``, and in ``/metrics`` of all answers together. Of any other server a message is
some text; SGLang says at the end of an answer how many steps it took, and how many tokens were drafted and accepted
(``return_spec_tokens_details``, sglang#33518). Times are those at which messages arrive, so the network's is in them.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from time import perf_counter
from typing import Any

from engines.errors import ModelUnavailable, RunFailed, SpecError, UsageProblem
from engines.methods.spec import MethodSpec
from engines.report.events import (
    UNDISCLOSED,
    Emitted,
    Finished,
    Prefilled,
    Preparing,
    Ready,
    Round,
    RunEvent,
    ServerTotals,
)
from engines.request import Request
from engines.servers import answers
from engines.servers.connection import Cancelled, Connection
from engines.servers.served_model import CAPABILITIES, Prompt, ServedModel, chain, label, raw_text, turns

_OWNERS = {"vllm": "vLLM", "sglang": "SGLang", "library": "Ollama", "organization_owner": "LM Studio"}
"""By who owns a model in the server's list: which program it is."""
_DRAFTS = "vllm:spec_decode_num_drafts_total"
_DRAFTED = "vllm:spec_decode_num_draft_tokens_total"
_ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
_FLAG = "--per-request-spec-decode-metrics detailed"
_LETTERS = 1 << 7  # of a token, at most
_DEPTHS = 1 << 10  # of a draft, at most
_SPELLED = str.maketrans({"Ġ": " ", "Ċ": "\n", "ĉ": "\t", "▁": " "})  # in vocabularies


@dataclass(slots=True)
class _Written:
    """What has arrived of an answer.

    Attributes:
        position: of the next token in the context.
        accepted: of each round, how many tokens of its draft.
        at: when the last message came.
        drafted: whether a step may have had a draft.
        left: how many tokens more were asked for, or letters where tokens are not told; below 0 the server sent more.
    """

    position: int
    at: float
    drafted: bool
    left: int
    first: bool = True
    accepted: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    reason: str = ""
    totals: ServerTotals = field(default_factory=ServerTotals)


class OpenAICompatibleModel(ServedModel):
    """A model on an OpenAI-compatible server. ``model``: which, where the server has several. Raises ModelUnavailable:
    nobody answers, or another program does; no such model, or several and none is named."""

    arrival = True

    def __init__(
        self, connection: Connection, spec: MethodSpec, options: Mapping[str, Any] | None = None,
        model: str | None = None,
    ) -> None:
        super().__init__(connection, spec, options)
        found = self._chosen(model)
        self._name = found.id
        program = _OWNERS.get(found.owned_by or "", "OpenAI-compatible")
        self._counts = self._speculative = None
        self._counted_by_answer = False
        self._exact = self.token_ids = program == "vLLM"
        self._tells = program == "SGLang"
        if self._exact:
            self.size_setting = "num_speculative_tokens in --speculative-config"
            program += f" {connection.get('/version', answers.Version).version}".rstrip()
            self._counts = self._metrics()
            self._speculative = self._counts is None or _DRAFTED in self._counts
        told = (f"vLLM counts rejected drafts by answer if it was started with {_FLAG}",)
        self.ready = Ready(
            model=self._name, dtype="not disclosed", device=connection.address, parameters=None, vocab_size=None,
            context_limit=found.max_model_len, chat_template=True, threads=None, backend=program,
            capabilities=CAPABILITIES, host=spec.host, warnings=told if self._speculative else (),
        )

    def run(
        self, request: Request, cancelled: Callable[[], bool] = lambda: False,
        progress: Callable[[Preparing], None] = lambda event: None, prompt: Prompt | None = None,
    ) -> Iterator[RunEvent]:
        self._refuse(request)
        if self._exact:
            prompt = prompt or self._prompt(request, cancelled)
            self._room(len(prompt[0]))
            path, body = "/v1/completions", self._vllm_body(request, prompt[0])
        else:
            self._refuse_extras(request)
            path, body = self._body(request)
        yield self._started(request, prompt or ((), ()))
        yield from self._answer(path, body, len(prompt[0]) if prompt else None, request, cancelled)

    def _chosen(self, model: str | None) -> answers.ListedModel:
        """Of the server's models the one that is asked for. Raises ModelUnavailable."""
        rows = [row for row in self.connection.get("/v1/models", answers.Models).data or () if row.id]
        if not rows:
            raise ModelUnavailable(f"{self.connection.address} names no model", "load one there, or check the address")
        meant = [row for row in rows if row.id == model] if model else [row for row in rows if row.parent is None]
        if len(meant) == 1:
            return meant[0]
        names = ", ".join(row.id for row in rows[:8])
        what = f"has no model {model}" if model else "has several models"
        raise ModelUnavailable(f"{self.connection.address} {what}: {names}"[:400], "name one: --served-model NAME")

    def _metrics(self) -> dict[str, int] | None:
        """vLLM's counters of drafts over all answers; None where they are not shown."""
        try:
            text = self.connection.text("/metrics")
        except SpecError:
            return None
        number = r"\d{1,15}(?:\.\d{1,3})?(?:e\+?\d{1,2})?"
        rows = re.findall(rf"^(vllm:spec_decode_num_\w+_total)\{{[^\n]*?\}} ({number})$", text, re.MULTILINE)
        found: dict[str, int] = {}
        for name, value in rows:
            found[name] = found.get(name, 0) + int(float(value))
        return found

    def _refuse_extras(self, request: Request) -> None:
        if request.top_k or request.min_p or request.repetition_penalty != 1:
            raise UsageProblem("this server takes temperature and top-p only", "leave the other filters as they are")

    def _prompt(self, request: Request, cancelled: Cancelled) -> Prompt:
        """Token ids of the prompt and their labels, as vLLM's template and tokenizer make them."""
        body: dict[str, Any] = {"model": self._name, "return_token_strs": True}
        if request.raw:
            body["prompt"] = raw_text(request)
        else:
            body |= {"messages": turns(request), "add_generation_prompt": True}
        found = self.connection.post("/tokenize", body, answers.Tokens, cancelled)
        if not found.tokens:
            raise UsageProblem("the server makes no tokens of this prompt", "type another prompt")
        pieces = found.token_strs or []
        pieces = pieces if len(pieces) == len(found.tokens) else [""] * len(found.tokens)
        return tuple(found.tokens), tuple(label((piece or "").translate(_SPELLED)) for piece in pieces)

    def _vllm_body(self, request: Request, prompt: tuple[int, ...]) -> dict[str, Any]:
        room = (self.ready.context_limit or 1 << 30) - len(prompt)
        anew, self._anew = self._anew, False
        return self._common(request) | {
            "prompt": list(prompt), "max_tokens": min(request.max_new_tokens, room), "return_token_ids": True,
            "top_k": request.top_k or -1, "min_p": request.min_p, "repetition_penalty": request.repetition_penalty,
            "logprobs": 0, **({"cache_salt": secrets.token_hex(8)} if anew else {}),
        }

    def _body(self, request: Request) -> tuple[str, dict[str, Any]]:
        common = self._common(request) | {"max_tokens": request.max_new_tokens}
        if request.raw:
            return "/v1/completions", common | {"prompt": raw_text(request)}
        return "/v1/chat/completions", common | {"messages": turns(request)}

    def _common(self, request: Request) -> dict[str, Any]:
        return {
            "model": self._name, "stream": True, "stream_options": {"include_usage": True},
            "seed": request.seed % 2**31, "temperature": request.temperature, "top_p": request.top_p,
            **({"return_spec_tokens_details": True} if self._tells else {}),
        }

    def _answer(
        self, path: str, body: dict[str, Any], prompt: int | None, request: Request, cancelled: Cancelled
    ) -> Iterator[RunEvent]:
        """The rest of a run, from the server's messages."""
        room = request.max_new_tokens * (1 if self._exact else _LETTERS)
        so_far = _Written(prompt or 0, perf_counter(), self._speculative is not False, room)
        if self._exact and self._speculative and not self._counted_by_answer:
            self._counts = self._metrics()  # others may have been answered since
            so_far.at = perf_counter()
        for message in self._messages(path, body, answers.Chunk, request.max_new_tokens, cancelled):
            emitted = self._emitted(message, so_far, request.temperature == 0)
            now = perf_counter()
            if emitted and so_far.first:
                so_far.first, so_far.position = False, so_far.position + 1
                yield Prefilled(prompt, None, now - so_far.at, replace(emitted[0], kind="target", node=-1), None)
                so_far.at, emitted = now, emitted[1:]
            if emitted:
                yield self._round(emitted, so_far, now)
            if so_far.left < 0:  # it goes on after as many as were asked for
                so_far.reason = "length"
                break
        if so_far.first and not cancelled() and so_far.reason:
            raise RunFailed("the server answered with nothing", "ask again, or differently")
        if not so_far.reason and not cancelled():
            raise self._broken_off()
        told = self._exact or self._tells
        totals = so_far.totals if told else replace(so_far.totals, drafted=None, accepted=None)
        if self._exact and self._speculative and so_far.reason and totals.drafted is None:
            totals = self._from_metrics(totals, so_far)
        elif totals.drafted is not None:
            self._counted_by_answer = True
        text = "".join(so_far.texts)
        yield Finished(so_far.reason or "cancelled", tuple(so_far.tokens), text, None if totals == _NOTHING else totals)

    def _emitted(self, message: answers.Chunk, so_far: _Written, greedy: bool) -> list[Emitted]:
        """The tokens of a message, noted; or its text as one."""
        choice = message.choices[0] if message.choices else answers.ChunkChoice()
        so_far.totals = _totals(message, so_far.totals, so_far.accepted)
        if choice.finish_reason:
            so_far.reason = "length" if choice.finish_reason == "length" else "stop"
        text = choice.text or (choice.delta or answers.Delta()).content or ""
        ids = choice.token_ids or [] if self._exact else []
        if not ids and not text:
            return []
        if self._exact and not ids:
            raise RunFailed("the server sent text without token ids", "ask a newer vLLM")
        ids = ids or [UNDISCLOSED]
        logged = choice.logprobs or answers.LogProbs()
        pieces, probs = logged.tokens, logged.token_logprobs
        pieces = pieces if pieces is not None and len(pieces) == len(ids) else None
        probs = probs if greedy and probs is not None and len(probs) == len(ids) else [None] * len(ids)
        texts = pieces if pieces and "".join(pieces) == text else [*[""] * (len(ids) - 1), text]
        room, so_far.left = so_far.left, so_far.left - (len(ids) if self._exact else len(text))
        so_far.tokens += ids[:room]
        so_far.texts += texts[:room]
        return [Emitted(token, text, label(piece), "target", prob=_probability(logprob))
                for token, text, piece, logprob in [*zip(ids, texts, pieces or texts, probs)][:max(0, room)]]

    def _round(self, tokens: list[Emitted], so_far: _Written, now: float) -> Round:
        position, so_far.position = so_far.position, so_far.position + len(tokens)
        seconds, so_far.at = now - so_far.at, now
        kept = tokens[:-1] if self._exact else []
        so_far.accepted.append(len(kept))
        emitted = [replace(token, kind="accepted", node=n) for n, token in enumerate(kept)] + tokens[len(kept):]
        draft = chain([token.token for token in kept], [token.piece for token in kept])
        return Round(
            index=len(so_far.accepted), position=position, draft=draft, path=tuple(range(len(kept))),
            emitted=tuple(emitted), draft_seconds=None, verify_seconds=seconds, other_seconds=None, cache_length=None,
            known="text" if not self._exact else "accepted" if so_far.drafted else "all",
        )

    def _from_metrics(self, totals: ServerTotals, so_far: _Written) -> ServerTotals:
        """How much was drafted by the server's counters, where they say that nobody else was answered meanwhile."""
        before, self._counts = self._counts, self._metrics()
        if before is None or self._counts is None:
            return totals
        drafts, drafted, accepted = (
            self._counts.get(name, 0) - before.get(name, 0) for name in (_DRAFTS, _DRAFTED, _ACCEPTED))
        alone = accepted == sum(so_far.accepted) and drafted >= accepted >= 0
        return replace(totals, drafts=drafts, drafted=drafted, accepted=accepted) if alone else totals


_NOTHING = ServerTotals()


def _totals(message: answers.Chunk, known: ServerTotals, accepted_by_round: list[int]) -> ServerTotals:
    """What a message says of the whole answer, beside what is known. Steps without a draft are not in its lists, which
    therefore tell of each round only where every round had one."""
    written = (message.usage or answers.Usage()).completion_tokens
    drafts = (message.metrics or answers.ChunkMetrics()).speculative_decoding or answers.SpeculativeDecoding()
    if written is not None:
        known = replace(known, tokens=written)
    if (details := (message.sglext or answers.SglExt()).spec_tokens_details) is not None:
        return _told_by_sglang(details, known)
    drafted, accepted = drafts.num_draft_tokens, drafts.num_accepted_draft_tokens
    if drafted is None or accepted is None:
        return known
    sizes, gains = drafts.per_step_drafted or [], drafts.per_step_accepted or []
    tried, kept = [0] * _DEPTHS, [0] * _DEPTHS
    for most, got in zip(sizes, gains):
        for depth in range(min(got + 1, most, _DEPTHS)):
            tried[depth] += 1
            kept[depth] += depth < got
    deepest = next((d for d in reversed(range(_DEPTHS)) if tried[d]), -1) + 1
    return replace(
        known, drafts=drafts.num_spec_steps, drafted=drafted, accepted=min(accepted, drafted),
        depth_tried=tuple(tried[:deepest]), depth_accepted=tuple(kept[:deepest]),
        drafted_by_round=tuple(sizes) if _of_all(gains, accepted_by_round) and len(sizes) == len(gains) else (),
    )


def _told_by_sglang(details: answers.SpecTokensDetails, known: ServerTotals) -> ServerTotals:
    """What SGLang says of an answer, each of whose steps verified a draft."""
    drafted, accepted, steps = (
        details.spec_num_proposed_drafts, details.spec_num_correct_drafts, details.spec_verify_ct)
    if drafted is None or accepted is None or not steps:
        return known
    kept = list(accumulate(reversed((details.spec_correct_drafts_histogram or [])[: _DEPTHS + 1])))[::-1]
    return replace(known, drafted=drafted, accepted=min(accepted, drafted), drafts=steps, steps=steps,
                   depth_tried=tuple(kept[:-1]), depth_accepted=tuple(kept[1:]))


def _of_all(gains: list[int], accepted_by_round: list[int]) -> bool:
    """Whether the steps with a draft are all rounds, one by one; the last may have been cut."""
    return gains[:-1] == accepted_by_round[:-1] and gains[-1:] >= accepted_by_round[-1:]


def _probability(logprob: float | None) -> float | None:
    return math.exp(max(-700.0, min(0.0, logprob))) if logprob is not None else None
