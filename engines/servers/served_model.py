"""What all models have in common that another program computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engines.errors import ModelUnavailable, RunFailed, UsageProblem
from engines.laws import DEFAULT, LAWS
from engines.methods.origins import SERVER
from engines.methods.spec import MethodSpec
from engines.report.answer import Answer
from engines.report.events import (
    SAMPLING_FIELDS,
    Audited,
    Capabilities,
    Draft,
    Origin,
    Preparing,
    PriceMeasured,
    Ready,
    RunEvent,
    Started,
)
from engines.report.wording import counted
from engines.request import Request, need_request

if TYPE_CHECKING:
    from engines.servers.answers import ListedModel, Sent
    from engines.servers.connection import Connection

CAPABILITIES = Capabilities(
    baseline=False, branch=False, detail=False, audit=False, race=False, datastores=False, drafts=False,
)
LETTERS = 1 << 7
"""Of a token, at most."""
STEP = 1 << 12
"""Tokens that a step may be said to have drafted."""
_OTHERS = 1 << 14  # messages of an answer that may bring nothing
_HELD = 1 << 3  # tokens that a message may bring the text of, beside its own: a server waits for whole characters
_NAMED = 200  # letters of what a server says of itself
_DRAWN = next(law.name for law in LAWS.values() if law.lossless and law.varies(1.0))
_OWN_DRAWS = "the server draws its own random numbers: the text is not that of another engine with this seed"
Prompt = tuple[tuple[int, ...], tuple[str, ...]]
"""Token ids of a prompt, and their labels."""


class ServedModel:
    """A model that another program computes, asked as ``engines.runtime.Runtime`` is.

    Args:
        connection: to the program.
        spec: the method that stands for what it does.
        options: with which.

    Attributes:
        ready: what it says of its model.
        token_ids: whether it takes and tells token ids; else its texts are compared with nobody's token by token.
        gather: seconds that messages may gather before they are read, where their times are the server's own: so that
            reading them takes less of the processors that it computes on.
        ways: options with each of which it drafts in another way; of a server that runs already, none but its own.
        round_trip: seconds that an empty request takes there and back; None where that was not measured.
        arrival: whether the times of its runs are those at which messages arrive, and not the server's own.
        size_setting: what says at its start how many tokens are drafted; "" where that is not known.
    """

    ready: Ready
    token_ids = True
    gather = 0.0
    ways: tuple[Mapping[str, Any], ...] = ({},)
    round_trip: float | None = None
    arrival = False
    size_setting = ""

    def __init__(self, connection: Connection, spec: MethodSpec, options: Mapping[str, Any] | None = None) -> None:
        self.connection, self.spec, self.options = connection, spec, dict(options or {})
        self._anew = False
        self._auditor: Callable[[], Any] | None = None

    def audit_with(self, auditor: Callable[[], Any]) -> None:
        """Let answers be checked by a ``Runtime`` that has the same weights here; it is loaded for the first."""
        self._auditor = auditor
        self.ready = replace(self.ready, capabilities=replace(self.ready.capabilities, audit=True))

    def run(
        self, request: Request, cancelled: Callable[[], bool] = lambda: False,
        progress: Callable[[Preparing], None] = lambda event: None, prompt: Prompt | None = None,
    ) -> Iterator[RunEvent]:
        """One run as events: Started, Prefilled, Round..., Finished. A server tells no progress of a prompt. With a
        ``prompt`` its tokens are sent, else the conversation becomes tokens there.

        Raises:
            UsageProblem: before Started, for a request that the server cannot run.
            RunFailed: later, where the server or the connection broke.
        """
        raise NotImplementedError

    def audit(
        self, answer: Answer, cancelled: Callable[[], bool] = lambda: False,
        progress: Callable[[float], None] = lambda done: None,
    ) -> Audited | None:
        """Check an answer against the same weights, computed here. Raises UsageProblem where there are none: a server
        computes no logits of a given text."""
        if self._auditor is None:
            raise UsageProblem("a server cannot audit its own answers",
                               "name its weights here too: --model FILE.gguf or DIR")
        auditor = self._auditor()
        return auditor.audit(answer.by(auditor.ready), cancelled, progress)

    def measure_price(
        self, cancelled: Callable[[], bool] = lambda: False, progress: Callable[[float], None] = lambda done: None
    ) -> PriceMeasured | None:
        """Measure t(n) from outside, which takes some short requests, and keep it in ``ready``; None where it was
        cancelled. ``progress`` is told the share done. Raises UsageProblem where the server reports no times of its
        own, RunFailed where it does not do what is asked."""
        raise UsageProblem(
            f"what a pass over n tokens costs cannot be measured from outside: {self.ready.backend} reports no times "
            "of its own", "ask something: if its rounds are known, you see their times"
        )

    def forget(self) -> None:
        """The next prompt is read anew, whatever the server kept of earlier ones."""
        self._anew = True

    def forget_acceptance(self) -> None:
        """Nothing is learnt here, and what a server keeps is not ours to end."""

    def close(self) -> None:
        """Nothing was started."""

    def memory(self, engine: str, options: Mapping[str, Any], rows: int, draft_model: str = "") -> int | None:
        """Nothing is known of the memory that another program takes."""
        return None

    @property
    def datastore_service(self) -> Any:
        """Raises UsageProblem: the server searches none of ours."""
        raise UsageProblem("a server searches no datastores", "load a model here to build and search them")

    def _refuse(self, request: Request) -> None:
        """Raises UsageProblem for what no server does."""
        need_request(request)
        request.check()
        if request.no_repeat_ngram_size:
            raise UsageProblem("a server has no --no-repeat-ngram-size", "use --repetition-penalty")
        if request.continued:
            raise UsageProblem("an answer of a server cannot be continued at a token", "ask again")

    def _room(self, prompt: int) -> None:
        """Raises UsageProblem where a prompt of so many tokens leaves none for an answer."""
        if self.ready.context_limit and prompt >= self.ready.context_limit:
            raise UsageProblem(f"the prompt has {prompt} tokens, the server's context holds {self.ready.context_limit}",
                               "shorten it, start a new conversation, or start the server with a larger context")

    def _messages(
        self, path: str, body: dict[str, Any], kind: type[Sent], most: int, cancelled: Callable[[], bool],
        gather: float = 0.0,
    ) -> Iterator[Sent]:
        """What the server sends of an answer of at most so many tokens, without the key. Raises RunFailed where it says
        that it failed, sends many messages without any, or more text than tokens can have."""
        address = self.connection.address
        for n, message in enumerate(self.connection.stream(path, body, kind, cancelled, gather)):
            if message.failure is not None:
                raise RunFailed(f"the server failed: {self.connection.said(message.failure)}",
                                "ask again; its log says more")
            if n > 2 * most + _OTHERS:
                raise RunFailed(f"{address} does not end its answer", "ask again")
            letters, tokens = len(message.text), len(message.ids)
            if self.token_ids and letters > LETTERS * (tokens + _HELD):
                raise RunFailed(f"{address} sends {letters:,} letters as {counted(tokens, 'token')}", "ask again")
            message.rewrite(self.connection.hidden_in_answer)
            yield message

    def _meant(self, rows: Sequence[ListedModel], model: str | None) -> ListedModel:
        """Of a server's models the one of this name, or without a name the only one. Raises ModelUnavailable."""
        meant = [row for row in rows if row.id == model] if model else [row for row in rows if row.parent is None]
        if len(meant) == 1:
            return meant[0]
        names = ", ".join(row.id for row in rows[:8])
        what = f"has no model {model}" if model else "has several models"
        found = self.connection.hidden(f"{what}: {names}")[:300]
        raise ModelUnavailable(f"{self.connection.address} {found}", "name one: --served-model NAME")

    def _introduced(self, ready: Ready) -> Ready:
        """What a server says of itself, as it may be shown and kept: without the key, and not endless."""
        named = {name: self.connection.hidden(getattr(ready, name))[:_NAMED] for name in ("model", "dtype", "backend")}
        return replace(ready, **named)

    def _label(self, piece: str | list[int] | None) -> str:
        """The label of a token of the prompt."""
        return self.connection.hidden_in_answer(label(piece))

    def _broken_off(self) -> RunFailed:
        return RunFailed(f"{self.connection.address} broke off in the middle of the answer", "ask again")

    def _started(self, request: Request, prompt: Prompt) -> Started:
        hot, ready = request.temperature > 0, self.ready
        turns = (("raw", request.conversation[-1][1]),) if request.raw else request.conversation
        return Started(
            engine=self.spec.id, options=self.options, law=_DRAWN if hot else DEFAULT, seed=request.seed,
            **{name: getattr(request, name) for name in SAMPLING_FIELDS},
            max_new_tokens=request.max_new_tokens, model=ready.model, dtype=ready.dtype, device=ready.device,
            prompt=prompt[0], prompt_pieces=prompt[1], conversation=turns, draft_model=ready.draft_model,
            lossless=None, round_trip=self.round_trip, arrival=self.arrival,
            versions={"server": ready.backend}, warnings=(_OWN_DRAWS,) if hot else (),
        )


def turns(request: Request) -> list[dict[str, str]]:
    """The conversation as servers take it."""
    return [{"role": role, "content": content} for role, content in request.conversation]


def raw_text(request: Request) -> str:
    """The conversation without a template."""
    return "\n".join(content for _, content in request.conversation)


def chain(tokens: Sequence[int], pieces: Sequence[str]) -> Draft:
    """A draft of a server: one path, without probabilities."""
    count = len(tokens)
    return Draft(tuple(tokens), tuple(range(-1, count - 1)), tuple(pieces), (None,) * count, (0,) * count,
                 (Origin(SERVER.name),) if count else ())


def number(value: float | None) -> float:
    """A measured number, 0 where it is none."""
    return value if value is not None and 0 <= value < 1e12 else 0.0


def label(piece: str | list[int] | None) -> str:
    """A token's own label: servers send bytes where they are no text, and nothing for a token without text. It is not
    longer than a token is."""
    if isinstance(piece, list):
        return "".join(f"<0x{byte & 255:02X}>" for byte in piece[:LETTERS])
    return (piece or "<?>")[:LETTERS]
