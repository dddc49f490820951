"""What servers answer, as far as it is read: every field is checked as it is decoded. What a server leaves out, or has
as ``null``, is unknown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct, ValidationError, convert

Count = Annotated[int, Meta(ge=0, lt=1 << 60)]
"""A number of things, or a token's id."""
_MANY = Meta(max_length=1 << 20)
Counts = Annotated[list[Count], _MANY]
Answered = TypeVar("Answered")


class Error(Struct):
    """What any server may say instead; ``object``: "error" where it is all of the message; ``detail``: of FastAPI."""

    error: Any = None
    object: Any = None
    message: Any = None
    detail: Any = None


class Message(Error):
    """A message of an answer, or a whole one. ``done``: it says that the answer is over, and no more."""

    done: bool = False

    @property
    def ids(self) -> list[int]:
        """Of the tokens that it brings, where they are told."""
        return []

    @property
    def text(self) -> str:
        """That it brings."""
        return ""

    @property
    def ends(self) -> bool:
        """Whether nothing follows, but what the server says of the whole answer."""
        return False

    @property
    def failure(self) -> Any:
        """What it says went wrong; None where nothing did."""
        if self.object == "error":
            return self.error or self.message or self.detail or ""
        answers = self.text or self.ids or self.ends
        return self.error or (not answers and self.detail) or None

    def rewrite(self, change: Callable[[str], str]) -> None:
        """Change all its texts."""


def reason(said: Any, depth: int = 4) -> str:
    """Why a server refuses something or failed, by the JSON that it says; "" where none is found."""
    if isinstance(said, dict) and depth:
        where = ".".join(map(str, said["loc"])) if isinstance(said.get("loc"), list) else ""  # FastAPI's
        found = (reason(said.get(name), depth - 1) for name in ("error", "message", "msg", "detail"))
        why = next(filter(None, found), "")
        return f"{where}: {why}" if where and why else why
    if isinstance(said, list) and depth:
        return "; ".join(filter(None, (reason(each, depth - 1) for each in said[:8])))
    return said if isinstance(said, str) else ""


Sent = TypeVar("Sent", bound=Message)


def told(value: Any) -> int | None:
    """A number of things that an answer can do without; None where none can be read."""
    try:
        return convert(value, Count, strict=False)  # from 10.0 and "10", too
    except ValidationError:
        return None


class Version(Struct):
    version: str = ""


# -- llama.cpp ------------------------------------------------------------------------------------------


class GenerationSettings(Struct):
    n_ctx: Count | None = None


class LlamaCppMark(Struct):
    """By which its ``/props`` are known."""

    default_generation_settings: Any = None


class Props(Struct):
    """``role``: "router" of a server that loads several models as they are asked for."""

    role: str | None = None
    default_generation_settings: GenerationSettings | None = None
    model_alias: str | None = None
    model_path: str | None = None
    model_ftype: str | None = None
    chat_template: str | None = None
    build_info: str | None = None


class Rendered(Struct):
    prompt: str = ""


class Piece(Struct):
    """``piece``: text, or bytes where they are none."""

    id: Count
    piece: str | Annotated[list[int], _MANY] | None = None


class Pieces(Struct):
    tokens: Annotated[list[Piece], _MANY]


class Timings(Struct):
    """Milliseconds, and numbers of tokens."""

    prompt_n: Count | None = None
    prompt_ms: float | None = None
    cache_n: Count | None = None
    predicted_ms: float | None = None
    draft_n: Count | None = None
    draft_n_accepted: Count | None = None


class Completion(Message):
    """``tokens_predicted``: of the answer so far; in a step with a draft, to its end."""

    content: str | None = None
    tokens: Counts | None = None
    tokens_predicted: Count | None = None
    stop: bool | None = None
    stop_type: str | None = None
    timings: Timings | None = None

    @property
    def ids(self) -> list[int]:
        return self.tokens or []

    @property
    def text(self) -> str:
        return self.content or ""

    @property
    def ends(self) -> bool:
        return bool(self.stop)

    def rewrite(self, change: Callable[[str], str]) -> None:
        self.content = change(self.text)


# -- OpenAI-compatible servers --------------------------------------------------------------------------------------


class ModelMeta(Struct):
    n_params: Count | None = None
    n_vocab: Count | None = None


class ListedModel(Struct):
    """``meta``: of llama.cpp; ``parent`` and ``max_model_len``: of vLLM."""

    id: str = ""
    owned_by: str | None = None
    parent: str | None = None
    max_model_len: Any = None
    meta: ModelMeta | None = None

    def __post_init__(self) -> None:
        self.max_model_len = told(self.max_model_len)


class Models(Struct):
    data: Annotated[list[ListedModel], _MANY] | None = None


class Tokens(Struct):
    tokens: Counts | None = None
    token_strs: Annotated[list[str | None], _MANY] | None = None


class Delta(Struct):
    """``reasoning_content``, or ``reasoning`` by newer servers: what the model thinks before it answers. ``refusal``:
    what it answers instead. ``content``: text, or a list with parts of it."""

    content: str | list[Any] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class LogProbs(Struct):
    tokens: Annotated[list[str], _MANY] | None = None
    token_logprobs: Annotated[list[float | None], _MANY] | None = None


class ChunkChoice(Struct):
    finish_reason: str | None = None
    text: str | None = None
    delta: Delta | None = None
    token_ids: Counts | None = None
    logprobs: LogProbs | None = None


class Usage(Struct):
    prompt_tokens: Any = None
    completion_tokens: Any = None

    def __post_init__(self) -> None:
        self.prompt_tokens, self.completion_tokens = told(self.prompt_tokens), told(self.completion_tokens)


class SpeculativeDecoding(Struct):
    num_spec_steps: Count | None = None
    num_draft_tokens: Count | None = None
    num_accepted_draft_tokens: Count | None = None
    per_step_drafted: Counts | None = None
    per_step_accepted: Counts | None = None


class ChunkMetrics(Struct):
    speculative_decoding: SpeculativeDecoding | None = None


class SpecTokensDetails(Struct):
    """SGLang's, of an answer. ``spec_correct_drafts_histogram``: steps by how many drafted tokens they kept, from 0."""

    spec_verify_ct: Count | None = None
    spec_num_proposed_drafts: Count | None = None
    spec_num_correct_drafts: Count | None = None
    spec_correct_drafts_histogram: Counts | None = None


class SglExt(Struct):
    spec_tokens_details: SpecTokensDetails | None = None


class Chunk(Message):
    """``metrics``: of vLLM; ``sglext``: of SGLang."""

    choices: Annotated[list[ChunkChoice | None], _MANY] | None = None
    usage: Usage | None = None
    metrics: ChunkMetrics | None = None
    sglext: SglExt | None = None

    @property
    def choice(self) -> ChunkChoice:
        """Of one answer there is one."""
        return (self.choices or [None])[0] or ChunkChoice()

    @property
    def ids(self) -> list[int]:
        return self.choice.token_ids or []

    @property
    def text(self) -> str:
        choice, delta = self.choice, self.choice.delta or Delta()
        parts = delta.content if isinstance(delta.content, list) else [{"text": delta.content}]
        texts = (part.get("text") for part in parts if isinstance(part, dict))
        return choice.text or "".join(text for text in texts if isinstance(text, str)) or delta.refusal or ""

    @property
    def ends(self) -> bool:
        return bool(self.choice.finish_reason) or self.done

    @property
    def thought(self) -> str:
        """What it brings of the model's thinking, where the server tells that from the answer."""
        delta = self.choice.delta or Delta()
        return delta.reasoning_content or delta.reasoning or ""

    def rewrite(self, change: Callable[[str], str]) -> None:
        choice = self.choice
        choice.text = change(self.text)
        if choice.delta is not None:
            choice.delta.reasoning_content = change(self.thought)
        if choice.logprobs is not None and choice.logprobs.tokens is not None:
            choice.logprobs.tokens = [change(piece) for piece in choice.logprobs.tokens]
