"""Options that several commands share. A group of them is a dataclass, declared once; ``command`` gives its fields to
typer as flags and hands the command the object that they make."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from typer import Argument, Option
from typer.models import ArgumentInfo, OptionInfo

from engines.errors import UsageProblem
from engines.laws import LAWS
from engines.methods.llama_cpp import SPEC as LLAMA_CPP
from engines.model import quantize_choices
from engines.request import Request
from spec_tui.cli.prompts import read_prompt
from spec_tui.session.engine_commands import LoadRequest


def complete_model(incomplete: str) -> list[str]:
    """Short names, and hub ids in the cache, that begin so, for the shell."""
    from engines.hub import hub_cache, known_models

    found = [*known_models.names(), *(name for name, _ in hub_cache.models())]
    return [name for name in found if name.startswith(incomplete)]


def complete_head(incomplete: str) -> list[str]:
    """Names of heads at hand that begin so, for the shell."""
    from engines.heads.head_config import FAMILIES
    from engines.heads.local_heads import AUTO, NONE, local_heads

    names = (*(head.name for head in local_heads()), *FAMILIES, AUTO, NONE)
    return [name for name in names if name.startswith(incomplete)]


def complete_datastore(incomplete: str) -> list[str]:
    """Names of datastores that begin so, for the shell."""
    from engines.datastores.storage import catalog

    return [entry.name for entry in catalog.listing() if entry.name.startswith(incomplete) and not entry.unfinished]


def complete_arithmetic(incomplete: str) -> list[str]:
    """Choices of ``--arithmetic`` that begin so, for the shell."""
    return [choice for choice in quantize_choices.ARITHMETICS if choice.startswith(incomplete)]


def complete_quantisation(incomplete: str) -> list[str]:
    """Choices of ``--quantize`` that begin so, for the shell."""
    return [choice for choice in quantize_choices.CHOICES if choice.startswith(incomplete)]


def complete_trace(incomplete: str) -> list[str]:
    """Names of shipped traces that begin so, for the shell."""
    from spec_tui.session.sample_traces import names

    return [name for name in names() if name.startswith(incomplete)]


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
class ModelOptions:
    """The target and the draft model, and how they compute."""

    model: Annotated[str | None, Option(
        metavar="DIR|HUB_ID", autocompletion=complete_model,
        help="Target model: a folder, a GGUF file, a hub id or a known name. Default: the one that ships.",
    )] = None
    draft_model: Annotated[str | None, Option(
        metavar="DIR|HUB_ID", autocompletion=complete_model,
        help="Draft model, of any vocabulary. Default: the one that ships, if it has the target's.",
    )] = None
    head: Annotated[str | None, Option(
        metavar="DIR|HUB_ID", autocompletion=complete_head,
        help="Draft head, kept for the target; or eagle, eagle-3 or medusa: one of that family at hand; or none; or "
             "auto, the default where none is kept: of each kind one at hand that was trained for it.",
    )] = None
    revision: Annotated[str | None, Option(
        metavar="REV", help="Branch, tag or commit of the target on the hub. Default: main."
    )] = None
    draft_revision: Annotated[str | None, Option(metavar="REV", help="The same for the draft model.")] = None
    dtype: Annotated[str, Option(
        metavar="D", help="float32, bfloat16, float16, or auto: float32 on a CPU. In native code that of the weights: "
                          "sums are float32.",
    )] = "auto"
    device: Annotated[str, Option(metavar="D", help="cpu, cuda, mps, or auto.")] = "auto"
    strict: Annotated[bool, Option(
        "--strict", help="Compute each token in the same way with and without drafts, to the last bit, so that ties "
                         "cannot differ. Without native code, and on GPUs, drafts cannot be faster then."
    )] = False
    quantize: Annotated[str, Option(metavar="Q", autocompletion=complete_quantisation, help=(
        "Weights of linear layers in native code: auto (as a GGUF file stores them; a large draft model in 3 bits), "
        "stored, int8 or int4 (any model), none (unpacked to the dtype)."
    ))] = quantize_choices.AUTO
    draft_quantize: Annotated[str, Option(
        metavar="Q", autocompletion=complete_quantisation, help="The same for the draft model; the text is the same."
    )] = quantize_choices.AUTO
    native: Annotated[bool, Option(
        "--native/--no-native", help="Run models on the CPU as native code, which comes compiled or which a C++ "
                                     "compiler makes here once, in seconds."
    )] = True
    arithmetic: Annotated[str, Option(metavar="A", autocompletion=complete_arithmetic, help=(
        "How native code multiplies weights that are whole numbers: float32, int8 (inputs rounded to 8 bits, as "
        "llama.cpp does it: faster, most of all for several tokens), or auto: int8 for what a GGUF file stores so."
    ))] = quantize_choices.AUTO
    threads: Annotated[int | None, Option(
        metavar="N", min=1, help="CPU threads of the models. Default: the fastest number, measured at loading."
    )] = None
    allow_pickle: Annotated[bool, Option(
        "--allow-pickle", help="Read .bin weights (pickles) where there are no safetensors."
    )] = False
    trust_remote_code: Annotated[bool, Option(
        "--trust-remote-code", help="Run the Python code that comes with a model. Read it first."
    )] = False
    offline: Annotated[bool, Option("--offline", help="Download nothing, as with HF_HUB_OFFLINE=1.")] = False

    @property
    def load(self) -> LoadRequest:
        """The request to load these models, or to ask a server for one; ``offline`` is set for this process and those
        that it starts."""
        given = asdict(self)
        if given.pop("offline"):
            os.environ["HF_HUB_OFFLINE"] = "1"
        return LoadRequest(**given)


@dataclass(frozen=True, kw_only=True)
class ModelOrServerOptions(ModelOptions):
    """A model to load, or another program that has one."""

    backend: Annotated[str, Option(
        metavar="NAME", help=f"Run --model FILE.gguf in another program, which drafts in its own way: {LLAMA_CPP.host}."
    )] = ""
    server: Annotated[str | None, Option(
        metavar="URL", help="Ask the model that a server has, instead of loading one: http://HOST:PORT. With --model, "
                            "that audits its answers."
    )] = None
    served_model: Annotated[str | None, Option(
        metavar="NAME", help="Which of the server's models, where it has several."
    )] = None
    api_key_env: Annotated[str | None, Option(
        metavar="NAME", help="Environment variable that holds the server's key."
    )] = None

    @property
    def load(self) -> LoadRequest:
        """The request. Raises UsageProblem: another program, and options of a model that is loaded here."""
        for flag, value in (("--api-key-env", self.api_key_env), ("--served-model", self.served_model)):
            if value is not None and self.server is None:
                raise UsageProblem(f"{flag} needs a server", "give --server with it")
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
        return super().load


TargetOptions = Annotated[ModelOptions, Without("draft_model", "draft_revision", "draft_quantize", "head")]
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


_LAW = "Verification law: how drafted tokens are accepted. Those that change the text, LOSSY: " + ", ".join(
    name for name, law in LAWS.items() if not law.lossless) + "."
_DEFAULT = Request(conversation=())
_AUDIT = "Then check every token against the target model alone; exit code 1 if one is wrong."


@dataclass(frozen=True, kw_only=True)
class GenerationOptions(DatastoreOptions):
    """How answers are generated, whatever the engine."""

    max_new_tokens: Annotated[int, Option(
        metavar="N", help="Maximum length of the answer, in tokens."
    )] = _DEFAULT.max_new_tokens
    temperature: Annotated[float, Option(metavar="T", help="Sampling temperature; 0 is greedy.")] = _DEFAULT.temperature
    top_p: Annotated[float, Option(
        metavar="P", help="Sample from the most probable tokens that together have this probability."
    )] = _DEFAULT.top_p
    top_k: Annotated[int, Option(
        metavar="K", help="Sample from the K most probable tokens; 0: from all."
    )] = _DEFAULT.top_k
    min_p: Annotated[float, Option(
        metavar="P", help="Sample from tokens with at least this share of the highest probability.")
    ] = _DEFAULT.min_p
    repetition_penalty: Annotated[float, Option(
        metavar="R", help="Above 1, tokens that already occurred become less probable, as in transformers.")
    ] = _DEFAULT.repetition_penalty
    no_repeat_ngram_size: Annotated[int, Option(
        metavar="N", help="No sequence of N tokens (2 or more) occurs twice, as in transformers; 0: off.")
    ] = _DEFAULT.no_repeat_ngram_size
    seed: Annotated[int, Option(
        metavar="S", help="Seed of the random numbers; the same seed gives the same text."
    )] = _DEFAULT.seed
    law: Annotated[str, Option(metavar="|".join(LAWS), help=_LAW)] = _DEFAULT.law
    system: Annotated[str | None, Option(metavar="TEXT", help="System prompt. Default: none.")] = None
    raw: Annotated[bool, Option("--raw", help="Feed the prompt as it is, without the chat template.")] = False
    audit: Annotated[bool, Option("--audit", help=_AUDIT)] = False

    def request(self, prompt: str | None = None, engine: str = "", options: dict[str, Any] | None = None) -> Request:
        """A request with this prompt, if there is one, after the system prompt.

        Raises:
            UsageProblem: a value is out of range; one without a prompt is not checked.
        """
        turns = (("system", self.system), ("user", prompt))
        request = Request(
            conversation=tuple((role, text) for role, text in turns if text is not None),
            engine=engine,
            options=options or {},
            datastores=self.names,
            **{f.name: getattr(self, f.name) for f in fields(Request) if hasattr(self, f.name)},
        )
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
            groups[name] = group, [field for field in fields(group) if field.name not in left_out]
            types = get_type_hints(group, include_extras=True)
            parameters += [_flag(field.name, field.default, types[field.name]) for field in groups[name][1]]
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
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


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
    return next((name for name in written if isinstance(name, str) and name.startswith("--")),
                f"--{parameter.name.replace('_', '-')}")
