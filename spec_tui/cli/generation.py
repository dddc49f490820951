"""The flags of every command that generates: declared once, read as one object."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any, get_type_hints

from typer import Argument, Option

from engines.request import LAWS, Request
from spec_tui.cli.options import (
    AllowPickle,
    Datastores,
    Device,
    DraftModel,
    DraftRevision,
    Dtype,
    Model,
    Revision,
    Strict,
    Threads,
    TrustRemoteCode,
)
from spec_tui.cli.prompt import read_prompt
from spec_tui.session.client import LoadRequest

_LAW = "Who decides what is accepted. To see what bias looks like, LOSSY: " + ", ".join(
    name for name, law in LAWS.items() if not law.lossless) + "."
_AUDIT = "Check every token against the plain model afterwards; exit code 1 on a BUG."
_PROMPT = ("prompt", "prompt_file")  # fields that stand before a command's own flags


@dataclass(frozen=True)
class Generation:
    """What is asked, how, and of which models; everything but the engine."""

    prompt: Annotated[str | None, Argument(metavar="PROMPT", help="What to ask. - reads stdin.")] = None
    prompt_file: Annotated[str | None, Option(metavar="FILE|-", help="Read the prompt from a file.")] = None
    model: Model = None
    draft_model: DraftModel = None
    revision: Revision = None
    draft_revision: DraftRevision = None
    max_new_tokens: Annotated[int, Option(metavar="N", help="Longest answer, in tokens.")] = 256
    temperature: Annotated[float, Option(metavar="T", help="0 is greedy.")] = 0.0
    top_p: Annotated[float, Option(metavar="P", help="Sample from the likeliest tokens of this mass.")] = 1.0
    top_k: Annotated[int, Option(metavar="K", help="Sample from the K likeliest tokens; 0: from all.")] = 0
    seed: Annotated[int, Option(metavar="S", help="Same seed, same text.")] = 0
    law: Annotated[str, Option(metavar="|".join(LAWS), help=_LAW)] = "exact"
    dtype: Dtype = "auto"
    device: Device = "auto"
    strict: Strict = False
    threads: Threads = None
    datastore: Datastores = None
    allow_pickle: AllowPickle = False
    trust_remote_code: TrustRemoteCode = False
    system: Annotated[str | None, Option(metavar="TEXT", help="System prompt. Default: none.")] = None
    raw: Annotated[bool, Option("--raw", help="Feed the prompt without the chat template.")] = False
    audit: Annotated[bool, Option("--audit", help=_AUDIT)] = False

    @property
    def load(self) -> LoadRequest:
        """The models."""
        return LoadRequest(
            self.model, self.draft_model, self.dtype, self.device, self.revision, self.draft_revision,
            self.allow_pickle, self.trust_remote_code, self.strict, self.threads,
        )

    def ask(self, engine: str = "", options: dict[str, Any] | None = None) -> Request:
        """The request, its prompt read from where it is. Raises UsageProblem."""
        text = read_prompt(self.prompt, self.prompt_file)
        request = self.request((("user", text),), engine, options)
        request.check()
        return request

    def request(
        self, turns: tuple[tuple[str, str], ...], engine: str = "", options: dict[str, Any] | None = None
    ) -> Request:
        """A request of these turns behind the system prompt; not checked."""
        system = (("system", self.system),) if self.system is not None else ()
        return Request(
            (*system, *turns), engine, options or {}, self.law, self.temperature, self.top_p, self.top_k, self.seed,
            self.max_new_tokens, self.raw, tuple(dict.fromkeys(self.datastore or ())),
        )


def generates(command: Callable[..., Callable[[], int]]) -> Callable[..., Callable[[], int]]:
    """The command for typer: its first parameter, a ``Generation``, becomes the flags that make one; its own flags
    come behind the prompt."""
    return _flagged(command, tuple(f.name for f in fields(Generation)))


def measures(command: Callable[..., Callable[[], int]]) -> Callable[..., Callable[[], int]]:
    """The same for a command that has prompts of its own."""
    return _flagged(command, tuple(f.name for f in fields(Generation) if f.name not in _PROMPT))


def _flagged(command: Callable[..., Callable[[], int]], names: tuple[str, ...]) -> Callable[..., Callable[[], int]]:
    hints = get_type_hints(Generation, include_extras=True)
    shared = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])
        for f in fields(Generation) if f.name in names
    ]
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    ]
    before = sum(name in _PROMPT for name in names)

    def called(**flags: Any) -> Callable[[], int]:
        generation = Generation(**{name: flags.pop(name) for name in names})
        return command(generation, **flags)

    called.__name__, called.__doc__ = command.__name__, command.__doc__
    called.__signature__ = inspect.Signature([*shared[:before], *own, *shared[before:]])
    called.__annotations__ = {}
    return called
