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
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate
from time import perf_counter
from typing import Any

from engines.errors import RunFailed, SpecError, UsageProblem
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
from engines.servers.connection import Cancelled, Connection, RefusedRequest
from engines.servers.served_model import CAPABILITIES, LETTERS, STEP, Prompt, ServedModel, chain, label, raw_text, turns

_OWNERS = {"vllm": "vLLM", "sglang": "SGLang", "library": "Ollama", "organization_owner": "LM Studio"}
"""By who owns a model in the server's list: which program it is."""
_DRAFTS = "vllm:spec_decode_num_drafts_total"
_DRAFTED = "vllm:spec_decode_num_draft_tokens_total"
_ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
_FLAG = "--per-request-spec-decode-metrics detailed"
_DEPTHS = 1 << 10  # of a draft, at most
_COUNTED = 1 << 60  # no counter goes so far
_THINKS, _ANSWERS = "<think>\n", "\n</think>\n\n"  # as models themselves mark what they think before they answer
_ENDS = {"", "stop", "length", "eos_token", "stop_sequence", "end_turn"}  # by the model, or at the limit
_BROKEN = {"abort", "error"}  # of vLLM and SGLang: the answer is not whole
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
        ended_by: why it ended, in the server's word.
        thinks: what arrived last is the model's thinking.
        usage, drafts, details: what the server says of the whole answer, the last that it said.
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
    ended_by: str = ""
    thinks: bool = False
    usage: answers.Usage = field(default_factory=answers.Usage)
    drafts: answers.SpeculativeDecoding | None = None
    details: answers.SpecTokensDetails | None = None

    def note(self, message: answers.Chunk) -> None:
        """Keep what a message says of the whole answer."""
        if message.usage is not None:
            self.usage = message.usage
        if message.metrics is not None:
            self.drafts = message.metrics.speculative_decoding or self.drafts
        if message.sglext is not None:
            self.details = message.sglext.spec_tokens_details or self.details

    def text(self, message: answers.Chunk) -> str:
        """The text of a message, what the model thinks between marks."""
        begin = _THINKS if message.thought and not self.thinks else ""
        self.thinks |= bool(message.thought)
        end = _ANSWERS if message.text and self.thinks else ""
        self.thinks &= not end
        return f"{begin}{message.thought}{end}{message.text}"


class OpenAICompatibleModel(ServedModel):
    """A model on an OpenAI-compatible server. ``model``: which, where the server has several. Raises ModelUnavailable:
    nobody answers, or another program does; no such model, or several and none is named."""

    arrival = True
    owner: str | None
    """Of the model, by the server's list."""

    def __init__(
        self, connection: Connection, spec: MethodSpec, options: Mapping[str, Any] | None = None,
        model: str | None = None,
    ) -> None:
        super().__init__(connection, spec, options)
        found = self._chosen(model)
        self._name, self.owner = found.id, found.owned_by
        program = _OWNERS.get(found.owned_by or "", "OpenAI-compatible")
        self._counts = self._speculative = None
        self._counted_by_answer = False
        self._exact = self.token_ids = program == "vLLM" and self._tokenizes()
        self._tells = program == "SGLang"
        if self._exact:
            self.size_setting = "num_speculative_tokens in --speculative-config"
            with suppress(RefusedRequest):
                version = connection.find("/version", answers.Version) or answers.Version()
                program = f"{program} {version.version}".rstrip()
            self._counts = self._metrics()
            self._speculative = self._counts is None or _DRAFTED in self._counts
        told: tuple[str, ...] = ()
        if self._speculative:
            told = (f"vLLM counts rejected drafts by answer if it was started with {_FLAG}",)
        elif program == "vLLM" and not self._exact:
            told = ("this vLLM's /tokenize cannot be reached: it is asked as a server of text",)
        self.ready = self._introduced(Ready(
            model=self._name, dtype="not disclosed", device=connection.address, parameters=None, vocab_size=None,
            context_limit=found.max_model_len, chat_template=True, threads=None, backend=program,
            capabilities=CAPABILITIES, host=spec.host, warnings=told,
        ))

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
            raise RefusedRequest(f"{self.connection.address} names no model", "load one there, or check the address")
        return self._meant(rows, model)

    def _tokenizes(self) -> bool:
        """Whether it makes tokens of a text: a proxy may know OpenAI's paths only."""
        try:
            self.connection.post("/tokenize", {"model": self._name, "prompt": "a"}, answers.Tokens)
        except RefusedRequest:
            return False
        return True

    def _metrics(self) -> dict[str, int] | None:
        """vLLM's counters of drafts over all answers; None where they are not shown, or cannot be."""
        try:
            text = self.connection.text("/metrics")
        except SpecError:
            return None
        number = r"\d{1,15}(?:\.\d{1,17})?(?:e\+?0?\d{1,2})?"  # 12.0, from a million 1.234567e+06 and 1.2e+010
        rows = re.findall(rf"^(vllm:spec_decode_num_\w+_total)\{{[^\n]*?\}} ({number})$", text, re.MULTILINE)
        found: dict[str, int] = {}
        for name, value in rows:
            found[name] = found.get(name, 0) + int(float(value))
        return found if all(value < _COUNTED for value in found.values()) else None

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
        return tuple(found.tokens), tuple(self._label((piece or "").translate(_SPELLED)) for piece in pieces)

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
        messages = [turn | {"content": _answered(turn["content"])} if turn["role"] == "assistant" else turn
                    for turn in turns(request)]
        return "/v1/chat/completions", common | {"messages": messages}

    def _common(self, request: Request) -> dict[str, Any]:
        return {
            "model": self._name, "stream": True, "stream_options": {"include_usage": True},
            "seed": request.seed % 2**31, "temperature": request.temperature,
            **({"top_p": request.top_p} if request.top_p < 1 else {}),  # TGI refuses 1.0
            **({"return_spec_tokens_details": True} if self._tells else {}),
        }

    def _answer(
        self, path: str, body: dict[str, Any], prompt: int | None, request: Request, cancelled: Cancelled
    ) -> Iterator[RunEvent]:
        """The rest of a run, from the server's messages."""
        room = request.max_new_tokens * (1 if self._exact else LETTERS)
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
            # without drafts a step has one token, however many come together
            parts = [emitted] if so_far.drafted else [[token] for token in emitted]
            each = (now - so_far.at) / max(1, len(parts))
            for part in filter(None, parts):
                yield self._round(part, so_far, each)
                so_far.at = now
            if so_far.left < 0:  # it goes on after as many as were asked for
                so_far.reason = "length"
                break
        ended_by = self.connection.said(so_far.ended_by) if so_far.ended_by not in _ENDS else ""
        if so_far.first and not cancelled() and so_far.reason:
            why = f": {ended_by}" if ended_by else ""
            raise RunFailed(f"the server answered with nothing{why}", "ask again, or differently")
        if not so_far.reason and not cancelled():
            raise self._broken_off()
        if so_far.ended_by in _BROKEN and not cancelled():
            raise RunFailed(f"{self.connection.address} ended the answer: {ended_by}", "ask again; its log says more")
        totals = self._totals(so_far, request.max_new_tokens)
        text = "".join(so_far.texts)
        yield Finished(so_far.reason or "cancelled", tuple(so_far.tokens), text, None if totals == _NOTHING else totals,
                       ended_by)

    def _emitted(self, message: answers.Chunk, so_far: _Written, greedy: bool) -> list[Emitted]:
        """The tokens of a message, noted; or its text as one."""
        choice = message.choice
        so_far.note(message)
        if choice.finish_reason:
            so_far.ended_by = choice.finish_reason
            so_far.reason = "length" if choice.finish_reason == "length" else "stop"
        elif message.done:  # of a server that gives no reason
            so_far.reason = so_far.reason or "stop"
        text, ids = so_far.text(message), message.ids if self._exact else []
        if not self._exact:
            so_far.left, text = so_far.left - len(text), text[: so_far.left]
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
        room = so_far.left if self._exact else 1
        so_far.left -= len(ids) if self._exact else 0
        so_far.tokens += ids[:room]
        so_far.texts += texts[:room]
        return [Emitted(token, text, label(piece), "target", prob=_probability(logprob))
                for token, text, piece, logprob in [*zip(ids, texts, pieces or texts, probs)][:max(0, room)]]

    def _round(self, tokens: list[Emitted], so_far: _Written, seconds: float) -> Round:
        position, so_far.position = so_far.position, so_far.position + len(tokens)
        kept = tokens[:-1] if self._exact else []
        so_far.accepted.append(len(kept))
        emitted = [replace(token, kind="accepted", node=n) for n, token in enumerate(kept)] + tokens[len(kept):]
        draft = chain([token.token for token in kept], [token.piece for token in kept])
        return Round(
            index=len(so_far.accepted), position=position, draft=draft, path=tuple(range(len(kept))),
            emitted=tuple(emitted), draft_seconds=None, verify_seconds=seconds, other_seconds=None, cache_length=None,
            known="text" if not self._exact else "accepted" if so_far.drafted else "all",
        )

    def _totals(self, so_far: _Written, asked: int) -> ServerTotals:
        """What the server says of a whole answer, as far as it can be of this one. Tokens that came with their ids are
        counted here."""
        most = len(so_far.tokens) if self._exact else asked
        least = -(-sum(map(len, so_far.texts)) // LETTERS)
        prompt, made = so_far.usage.prompt_tokens, so_far.usage.completion_tokens
        told = not self._exact and made is not None and least <= made <= asked
        found = ServerTotals(made if told else None, prompt_tokens=None if self._exact else prompt)
        if self._tells and so_far.details is not None:
            found = _possible(_told_by_sglang(so_far.details, found), found, most)
        if self._exact and so_far.drafts is not None:
            found = _possible(_told_by_vllm(so_far.drafts, found, so_far.accepted, most), found, most)
        if self._exact and self._speculative and so_far.reason and found.drafted is None:
            return _possible(self._from_metrics(found, so_far), found, most)
        self._counted_by_answer |= found.drafted is not None
        return found

    def _from_metrics(self, totals: ServerTotals, so_far: _Written) -> ServerTotals:
        """How much was drafted by the server's counters, where they say that nobody else was answered meanwhile. Others
        only add to them: where they count fewer accepted tokens than the messages seem to have, the messages are of
        several steps."""
        before, self._counts = self._counts, self._metrics()
        if before is None or self._counts is None:
            return totals
        drafts, drafted, accepted = (
            self._counts.get(name, 0) - before.get(name, 0) for name in (_DRAFTS, _DRAFTED, _ACCEPTED))
        if 0 <= accepted < sum(so_far.accepted):
            return replace(totals, joined=True)
        alone = accepted == sum(so_far.accepted) and drafted >= accepted
        return replace(totals, drafts=drafts, drafted=drafted, accepted=accepted) if alone else totals


_NOTHING = ServerTotals()


def _answered(text: str) -> str:
    """An answer as later requests have it: without what the model thought before it, which ``_Written.text`` marked."""
    return text.partition(_ANSWERS)[2] if text.startswith(_THINKS) else text


def _possible(told: ServerTotals, without: ServerTotals, most: int) -> ServerTotals:
    """What is told of the drafts of an answer with at most so many steps, each of which has a token; ``without`` it
    where some of it cannot be."""
    steps = (told.drafts or 0, told.steps or 0, *told.depth_tried[:1], len(told.drafted_by_round))
    tokens = (told.drafted or 0) <= most * STEP and max(told.drafted_by_round, default=0) <= STEP
    return told if tokens and min(steps) >= 0 and max(steps) <= most else without


def _told_by_vllm(
    drafts: answers.SpeculativeDecoding, known: ServerTotals, accepted_by_round: list[int], most: int
) -> ServerTotals:
    """What vLLM says of an answer. Steps without a draft are not in its lists, which therefore tell of each round only
    where every round had one; lists of more than ``most`` steps tell nothing."""
    drafted, accepted = drafts.num_draft_tokens, drafts.num_accepted_draft_tokens
    sizes, gains = drafts.per_step_drafted or [], drafts.per_step_accepted or []
    if drafted is None or accepted is None or len(sizes) > most or len(gains) > most:
        return known
    kept = _at_least([min(got, size) for size, got in zip(sizes, gains)])
    tried = _at_least([min(got + 1, size) for size, got in zip(sizes, gains)])
    return replace(
        known, drafts=drafts.num_spec_steps, drafted=drafted, accepted=min(accepted, drafted),
        depth_tried=tuple(tried), depth_accepted=tuple([*kept, *[0] * (len(tried) - len(kept))]),
        drafted_by_round=tuple(sizes) if _of_all(gains, accepted_by_round) and len(sizes) == len(gains) else (),
    )


def _at_least(lengths: list[int]) -> list[int]:
    """How many of these are longer than 0, 1, 2 ... up to the longest."""
    found = [0] * min(max(lengths, default=0), _DEPTHS)
    for length in lengths:
        if length:
            found[min(length, _DEPTHS) - 1] += 1
    return list(accumulate(reversed(found)))[::-1]


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
