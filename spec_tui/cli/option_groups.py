"""Options that several commands share. A group of them is a dataclass, declared once; ``command`` gives its fields to
typer as flags and hands the command the object that they make."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from typer import Argument, Option
from typer.models import ArgumentInfo, OptionInfo

from engines.errors import UsageProblem
from engines.folders import typed_file
from engines.methods.llama_cpp import SPEC as LLAMA_CPP
from engines.model.load_options import AUTO, DRAFTING, NONE, LoadOptions, flag
from engines.request import Request
from spec_tui.cli.prompts import read_prompt
from spec_tui.session.engine_commands import LoadRequest


# -- names that a shell offers; typer leaves out those that do not begin as what was typed ---------------------------
def complete_model() -> list[str]:
    """Short names, and hub ids in the cache."""
    from engines.hub import hub_cache, known_models

    return [*known_models.names(), *(name for name, _ in hub_cache.models())]


def complete_head() -> list[str]:
    from engines.heads.head_config import FAMILIES
    from engines.heads.local_heads import local_heads

    return [*(head.name for head in local_heads()), *FAMILIES, AUTO, NONE]


def complete_datastore() -> list[str]:
    from engines.datastores.storage import catalog

    return [entry.name for entry in catalog.listing() if not entry.unfinished]


def complete_engine() -> list[str]:
    from engines import methods

    return [spec.id for host in ("", LLAMA_CPP.host) for spec in methods.specs(host)]


def complete_theme() -> list[str]:
    from spec_tui.tui.app import themes

    return [*themes()]


def complete_trace() -> list[str]:
    from spec_tui.session.sample_traces import names

    return [*names()]


class Format(StrEnum):
    """How a command writes its result."""

    text = "text"
    json = "json"


OutputFormat = Annotated[Format, Option("--format", help="text for people, json for programs.")]
EngineSettings = Annotated[
    list[str] | None, Option("--set", metavar="KEY=VALUE", help="Set an option of the engine. Repeatable.")
]
Theme = Annotated[str | None, Option(metavar="NAME", help="Colour theme.")]
Presenter = Annotated[bool, Option("--presenter", help="Presenter mode: large, for a projector; implies --rejected.")]
Lecture = Annotated[int | None, Option(
    "--path", metavar="MINUTES", help="Go through selected pages of several lessons: a lecture of 15 or 45 minutes.")]
Rejected = Annotated[bool, Option("--rejected", help="Keep rejected draft tokens in the text, struck through.")]


def engine_settings(texts: list[str] | None) -> dict[str, str]:
    """Names and values from the KEY=VALUE of ``EngineSettings``. Raises UsageProblem."""
    given = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageProblem(f"--set {text} is not KEY=VALUE", "for example --set num_tokens=8")
        given[name.strip()] = value
    return given


class Without:
    """Beside a group, as in ``Annotated[ModelOptions, Without("draft_model")]``: fields that a command has no flags
    for. They keep their defaults."""

    def __init__(self, *names: str) -> None:
        self.names = names


@dataclass(frozen=True)
class Only:
    """Beside a flag, as in ``Annotated[int, Option(...), Only(exporting, "learn export")]``: a flag that would change
    nothing is refused, not ignored.

    Attributes:
        when: whether the flag means something, given the values of all flags by parameter.
        where: with what it does: goes after "it is for".
    """

    when: Callable[[Mapping[str, Any]], bool]
    where: str


@dataclass(frozen=True)
class Alone:
    """Beside a flag: with it, no other flag means something, except those of these parameters."""

    besides: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class ModelOrServerOptions(LoadRequest):
    """A model to load, or another program that has one: the flags of ``LoadRequest``, as that declares them."""

    offline: Annotated[bool, Option("--offline", help="Download nothing, as with HF_HUB_OFFLINE=1.")] = False

    @property
    def load(self) -> LoadRequest:
        """The request; ``offline`` is set for this process and those that it starts. Raises UsageProblem: another
        program, and options of a model that is loaded here."""
        for name in ("api_key_env", "served_model"):
            if getattr(self, name) is not None and self.server is None:
                raise UsageProblem(f"{flag(name)} needs a server", "give --server with it")
        if self.backend not in ("", LLAMA_CPP.host):
            raise UsageProblem(f"there is no backend {self.backend!r}", f"take --backend {LLAMA_CPP.host}, or none")
        if self.backend and self.server is not None:
            raise UsageProblem("--server and --backend are two programs", "give one of them")
        if self.server is not None or self.backend:
            here = self.model is not None or self.backend
            audited = ("quantize", "arithmetic", "revision", "threads") if here else ()
            kept = ("server", "api_key_env", "served_model", "offline", "model", *audited,
                    *(("backend", "draft_model") if self.backend else ()))
            own = type(self)(**{name: getattr(self, name) for name in kept})
            if own != self:
                raise UsageProblem("another program loads the model in its own way",
                                   "--model loads one here too, to audit its answers: with it --threads, --quantize, "
                                   "--arithmetic and --revision apply")
        if self.offline:
            os.environ["HF_HUB_OFFLINE"] = "1"
        return LoadRequest(**{of.name: getattr(self, of.name) for of in fields(LoadRequest)})


_OF_PROGRAMS = {of.name for of in fields(LoadRequest)} - {of.name for of in fields(LoadOptions)}
ModelOptions = Annotated[ModelOrServerOptions, Without(*_OF_PROGRAMS)]
"""The target and the draft model, and how they compute: for commands that load them here."""
TargetOptions = Annotated[ModelOptions, Without(*DRAFTING)]
"""The target alone, for commands that need no draft model."""


@dataclass(frozen=True, kw_only=True)
class PromptOptions:
    """What is asked."""

    prompt: Annotated[str | None, Argument(metavar="PROMPT", help="The prompt; - reads it from standard input.")] = None
    prompt_file: Annotated[str | None, Option(
        metavar="FILE|-", help="Read the prompt from a file; - is standard input."
    )] = None

    def read(self) -> str:
        """The prompt, from where it is. Raises UsageProblem."""
        return read_prompt(self.prompt, self.prompt_file)


@dataclass(frozen=True, kw_only=True)
class DatastoreOptions:
    """What is searched for drafts."""

    datastore: Annotated[list[str] | None, Option(
        "--datastore", metavar="NAME", autocompletion=complete_datastore,
        help="Datastore that engines with retrieval search. Repeatable. Default: those that ship and fit.",
    )] = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names, each once."""
        return tuple(dict.fromkeys(self.datastore or ()))


_AUDIT = "Then check every token against the target model alone; exit code 1 if one is wrong."


@dataclass(frozen=True, kw_only=True)
class GenerationOptions(DatastoreOptions, Request):
    """How answers are generated, whatever the engine: the flags of ``Request``, as that declares them."""

    conversation: tuple[tuple[str, str], ...] = ()
    system: Annotated[str | None, Option(metavar="TEXT", help="System prompt. Default: none.")] = None
    audit: Annotated[bool, Option("--audit", help=_AUDIT)] = False

    def request(self, prompt: str | None = None, engine: str = "", options: dict[str, Any] | None = None) -> Request:
        """A request with this prompt, if there is one, after the system prompt. Raises UsageProblem: a value is out of
        range; one without a prompt is not checked."""
        turns = (("system", self.system), ("user", prompt))
        request = Request(**{of.name: getattr(self, of.name) for of in fields(Request)} | {
            "conversation": tuple((role, text) for role, text in turns if text is not None), "engine": engine,
            "options": options or {}, "datastores": self.names})
        if prompt is not None:
            request.check()
        return request


def command(function: Callable[..., Any], call: Callable[..., Any] = partial) -> Callable[..., Any]:
    """The function for typer: each parameter that is a group of options becomes the flags of its fields.

    A command returns its exit code. typer only parses: what it gets back is the call, still to be made by
    ``spec_tui.cli.call``, because typer handles broken pipes and interrupts in its own way. With another ``call`` than
    ``partial``, that gets the function and its arguments.
    """
    hints = get_type_hints(function, include_extras=True)
    parameters, groups = [], {}
    for parameter in inspect.signature(function).parameters.values():
        name, hint = parameter.name, hints[parameter.name]
        group, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if is_dataclass(group):
            left_out = {name for note in notes for name in note.names}
            types = get_type_hints(group, include_extras=True)
            flags = {field: _typed(field, types[field.name]) for field in fields(group) if field.name not in left_out}
            groups[name] = group, [field for field, kind in flags.items() if get_origin(kind) is Annotated]
            parameters += [_flag(field.name, field.default, flags[field]) for field in groups[name][1]]
        else:
            parameters.append(_flag(name, parameter.default, hint))

    def parsed(**values: Any) -> Any:
        _refuse_unused(parameters, values)
        for name, (group, offered) in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in offered})
        return call(function, **values)

    parsed.__name__, parsed.__doc__ = function.__name__, function.__doc__
    parsed.__signature__, parsed.__annotations__ = inspect.Signature(parameters), {}
    return parsed


def _flag(name: str, default: Any, hint: Any) -> inspect.Parameter:
    for note in get_args(hint)[1:]:
        if isinstance(note, OptionInfo) and note.autocompletion is None:
            note.autocompletion = _COMPLETE.get(name)
        if isinstance(note, OptionInfo | ArgumentInfo) and _holds_path(get_args(hint)[0]):
            note.parser = typed_file  # pathlib takes an empty name as the current folder
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _holds_path(kind: Any) -> bool:
    return kind is Path or any(map(_holds_path, get_args(kind)))


def _typed(field: Field[Any], hint: Any) -> Any:
    """The type of a field with its flag, which stands beside the type or is what ``load_options.option`` declares."""
    said = dict(field.metadata)
    if not said:
        return hint
    choices = said.pop("choices", None)
    complete = (lambda: [*choices]) if choices else None
    written = (flag(field.name),) if field.default is False else ()  # of a switch that is on typer writes both
    return Annotated[hint, Option(*written, autocompletion=complete, **said)]


_COMPLETE = {"model": complete_model, "draft_model": complete_model, "head": complete_head, "engine": complete_engine,
             "theme": complete_theme}  # by what a flag is called


def _refuse_unused(parameters: list[inspect.Parameter], values: Mapping[str, Any]) -> None:
    """Raises UsageProblem for a flag with another value than its default that would change nothing."""
    given = {p.name: p for p in parameters if values[p.name] not in (None, []) and values[p.name] != p.default}
    for name, parameter in given.items():
        for note in get_args(parameter.annotation)[1:]:
            if isinstance(note, Only) and not note.when(values):
                raise UsageProblem(f"{_named(parameter)} would change nothing here", f"it is for {note.where}")
            if isinstance(note, Alone) and (others := given.keys() - {name} - note.besides):
                other = next(p for p in given.values() if p.name in others)
                raise UsageProblem(f"{_named(other)} would change nothing with {_named(parameter)}", "give one of them")


def _named(parameter: inspect.Parameter) -> str:
    """A parameter as it is typed."""
    option = next(note for note in get_args(parameter.annotation)[1:] if isinstance(note, OptionInfo | ArgumentInfo))
    if isinstance(option, ArgumentInfo):
        return str(option.metavar or parameter.name.upper())
    written = (option.default, *(option.param_decls or ()))  # typer takes the first name for a default
    return next((name for name in written if isinstance(name, str) and name.startswith("--")), flag(parameter.name))
