"""What the next answer will be asked with: engine, its options, sampling. Frozen; every change makes a checked copy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from engines import laws, methods
from engines.errors import UsageProblem
from engines.heads.head_config import HEADS
from engines.laws import LAWS
from engines.methods.options import Option
from engines.report.events import Ready, Started
from engines.request import Request

Turns = tuple[tuple[str, str], ...]

# Sampling in the shape of engine options, so that one form and one parser serve both. Ranges as in Request.check.
SAMPLING = (
    Option("temperature", 0.0, "0 takes the likeliest token each time; higher is more varied.", 0, 100),
    Option("top_p", 1.0, "Keep the likeliest tokens that together have this probability; above 0.", 0, 1),
    Option("top_k", 0, "Keep this many of the likeliest tokens; 0 keeps all.", 0),
    Option("min_p", 0.0, "Keep tokens with at least this share of the highest probability; 0 keeps all.", 0, 1),
    Option("repetition_penalty", 1.0, "Above 1, tokens that already occurred become less likely; 1 is off.", 0.01, 100),
    Option("no_repeat_ngram_size", 0, "No sequence of this many tokens (2 or more) occurs twice; 0 is off.", 0),
    Option("seed", 0, "Same prompt, sampling and seed: same text, whatever the engine.", 0, 2**63 - 1),
    Option("law", laws.DEFAULT,
           f"How drafts are accepted; {' and '.join(law.name for law in LAWS.values() if not law.lossless)} are LOSSY. "
           + " ".join(f"{law.name}: {law.brief}." for law in LAWS.values() if law.brief),
           choices=tuple(LAWS), lossy=tuple(name for name, law in LAWS.items() if not law.lossless)),
    Option("max_new_tokens", 256, "Maximum length of an answer, in tokens.", 1),
)
FIT_LATER = "those that fit are known once the model is loaded"
"""What is said of datastores before that."""


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """Engine ("" = the default for the available models), options given by engine, sampling, system prompt, names of
    datastores (none = the default ones); the name of the loaded model, which presets go by."""

    engine: str = ""
    given: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: MappingProxyType({}))
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    seed: int = 0
    law: str = laws.DEFAULT
    max_new_tokens: int = 256
    system: str = ""
    datastores: tuple[str, ...] = ()
    model: str = ""

    @classmethod
    def from_request(cls, request: Request | None) -> ChatSettings:
        """The settings a request asks for; the defaults for None."""
        if request is None:
            return cls()
        system = next((text for role, text in request.conversation if role == "system"), "")
        given = {request.engine: dict(request.options)} if request.options else {}
        names = [option.name for option in SAMPLING]
        sampling = {name: getattr(request, name) for name in names}
        return cls(request.engine, given, system=system, datastores=request.datastores, **sampling)

    def resolved(self, ready: Ready | None) -> str:
        """The engine that will run: the chosen one, or the best the loaded models allow."""
        if self.engine:
            return self.engine
        if ready is None:
            return methods.default(methods.available(True, {})).id
        return methods.default(methods.available(ready.draft_model, ready.heads), ready.host).id

    def options(self, engine: str) -> dict[str, Any]:
        """All options of an engine with their values."""
        return methods.find(engine).parse(dict(self.given.get(engine, {})), self.model)

    def chosen(self, ready: Ready | None) -> tuple[str, dict[str, Any]]:
        """The engine that will run, and its options."""
        engine = self.resolved(ready)
        return engine, self.options(engine)

    def with_engine(self, engine: str, ready: Ready | None = None) -> ChatSettings:
        """Another engine. Raises UsageProblem if there is none of that name, or its needs are not met."""
        spec = methods.find(engine)
        if reason := unavailable(spec, ready):
            raise UsageProblem(f"{spec.title} is not available", reason)
        return replace(self, engine=engine)

    def with_option(self, engine: str, name: str, value: Any) -> ChatSettings:
        """One option of an engine; one at its default is as not given, so that it follows another budget or preset.
        Raises UsageProblem that states the range."""
        given, spec = {**self.given.get(engine, {}), name: value}, methods.find(engine)
        parsed = spec.parse(given, self.model)
        defaults = spec.defaults(parsed)
        return replace(self, given={**self.given, engine: {n: parsed[n] for n in given if parsed[n] != defaults[n]}})

    def with_sampling(self, name: str, value: Any) -> ChatSettings:
        """One value of ``SAMPLING``. Raises UsageProblem that states the range."""
        option = next(o for o in SAMPLING if o.name == name)
        new = replace(self, **{name: option.parse(value)})
        new.request((("user", "x"),), None).check()
        return new

    def with_datastores(self, names: Iterable[str], ready: Ready | None = None) -> ChatSettings:
        """Other datastores; none takes the default ones. Raises as ``check_datastores``."""
        names = tuple(dict.fromkeys(names))
        check_datastores(names, ready)
        return replace(self, datastores=names)

    def searched(self, ready: Ready | None) -> tuple[str, ...]:
        """The datastores that are searched: those chosen, else the default ones (shipped ones that fit the model, or if
        there are none, all that fit)."""
        infos = ready.datastores if ready is not None else ()
        return self.datastores or tuple(info.name for info in infos if info.default)

    def request(self, conversation: Turns, ready: Ready | None) -> Request:
        """A run with these settings; the system prompt goes first."""
        engine = self.resolved(ready)
        system: Turns = (("system", self.system),) if self.system.strip() else ()
        own = ("engine", "given", "system", "model")
        sampling = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in own}
        return Request((*system, *conversation), engine=engine, options=self.options(engine), **sampling)

    def summary(self, ready: Ready | None) -> str:
        """One line: engine, what differs from its defaults, sampling; a lossy law first, so that no cut hides it."""
        engine = self.resolved(ready)
        parts = [methods.find(engine).title, *changed(engine, self.options(engine)), sampling_words(self)]
        parts.insert(-1 if LAWS[self.law].lossless else 0, LAWS[self.law].label)
        if self.temperature:
            parts.append(f"seed {self.seed}")
        parts.append(f"max {self.max_new_tokens}")
        if self.system.strip():
            parts.append("system prompt")
        if self.datastores and self.retrieves(ready):
            parts.append("from " + ", ".join(self.datastores))
        return " · ".join(parts)

    def retrieves(self, ready: Ready | None) -> bool:
        """Whether the next answer searches datastores."""
        engine = self.resolved(ready)
        return methods.find(engine).retrieves(self.options(engine))


def stores(ready: Ready | None) -> dict[str, str]:
    """The datastores that fit the loaded model: name, and what can be searched in it ("sparse and dense")."""
    return {info.name: info.words for info in (ready.datastores if ready else ())}


def check_datastores(names: Iterable[str], ready: Ready | None = None) -> None:
    """Raises UsageProblem, with those available, where there is no datastore of a name; DatastoreProblem where one is
    damaged, or of another tokenizer than the loaded model's."""
    unknown = [name for name in names if name not in stores(ready)]
    if unknown:  # those built since the model was loaded, too; only then is the disk asked
        from engines.datastores.building.build_spec import STANDARD_LIBRARY
        from engines.datastores.storage import catalog as places

        for name in unknown:
            if name != STANDARD_LIBRARY:
                places.open_store(name, (ready and ready.tokenizer) or None)


def sampling_words(asked: ChatSettings | Request | Started) -> str:
    """"greedy", or temperature with the filters that are on; then how repetitions are penalised."""
    words = [f"T {asked.temperature:g}" if asked.temperature else "greedy"]
    if asked.temperature:
        words += [f"top-p {asked.top_p:g}"] if asked.top_p < 1 else []
        words += [f"top-k {asked.top_k}"] if asked.top_k else []
        words += [f"min-p {asked.min_p:g}"] if asked.min_p else []
    words += [f"repetition penalty {asked.repetition_penalty:g}"] if asked.repetition_penalty != 1 else []
    return " ".join(words + ([f"no {asked.no_repeat_ngram_size}-gram twice"] if asked.no_repeat_ngram_size else []))


def changed(engine: str, options: Mapping[str, Any]) -> list[str]:
    """The options that differ from their defaults (those of the budget chosen), as "name value"."""
    defaults = methods.find(engine).defaults(dict(options))
    return [f"{n} {written(v)}" for n, v in options.items() if n in defaults and v != defaults[n]]


def written(value: Any) -> str:
    """An option's value as it stands in a form."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def unavailable(
    spec: methods.MethodSpec, ready: Ready | None, options: Mapping[str, Any] | None = None, names: Sequence[str] = (),
    draft_model: str = "",
) -> str:
    """Why an engine cannot run with the loaded models, these options (None: with any) and the datastores of these names
    (none: the default ones), and what to do; "" if it can, or if nothing is loaded yet. ``draft_model`` is one that is
    loaded for it, if it is named."""
    if ready is None:
        return ""
    if ready.host != spec.host and not spec.host:
        return "the model runs in another program with its own drafting: load it here to choose an engine"
    if ready.host != spec.host:
        return f"the model does not run in {spec.title}: make it a lane of a race, or start with {spec.flag}"
    there = methods.available(draft_model or ready.draft_model, ready.heads)
    needs = spec.least(there) if options is None else spec.needed(options, there)
    if absent := next((need for need in needs if need in _LOADED and need not in there), None):
        return _absent(spec, absent, ready, there)
    for need, kind in (("datastore", "sparse"), ("dense datastore", "dense")):
        if need in needs and (reason := _no_datastore(kind, ready, names if options is not None else None)):
            return reason + (", or set {}={}".format(*spec.storeless) if spec.storeless else "")
    return ""


_LOADED = {
    "draft model": "no draft model is loaded: give one with --draft-model",
    **{kind: f"no {kind} for this model: give --head, or train one with spec-tui head train" for kind in HEADS},
}
"""What is said where it is missing."""


def _absent(spec: methods.MethodSpec, need: str, ready: Ready, there: Collection[str]) -> str:
    """Why an engine has no draft model or draft head, and what else it could draft with."""
    reason = ready.no_draft_model * (need == "draft model") or _LOADED[need]
    if spec.drafts_with is None:
        return reason
    name, by_value = spec.drafts_with
    others = {value: other for value, other in by_value.items() if other != need}
    if loaded := [value for value, other in others.items() if other in there]:
        return f"{reason}, or set {name}={loaded[0]}"
    return "; ".join([reason, *(_LOADED[other] for other in others.values())])


def _no_datastore(kind: str, ready: Ready, names: Sequence[str] | None) -> str:
    """Why there is no datastore of a kind to search among those of these names (none: those that are built; None: any
    available); "" where there is one, or where one of the names is not known here."""
    known = {info.name: getattr(info, kind) for info in ready.datastores}
    offered = [info.name for info in ready.datastores if not info.built and known[info.name]]
    if names and all(known.get(name, True) for name in names):
        return ""
    if not names and any(there and (names is None or name not in offered) for name, there in known.items()):
        return ""
    choose = f"choose {' or '.join(offered)} as its datastore (built when it is first searched), or " if offered else ""
    return (f"no {kind} datastore fits the model: {choose}build one ("
            f"spec-tui datastore build --kind {kind})")  # fmt: skip
