"""Models in memory and runs on them: the library's working object, and what the engine process serves."""

from __future__ import annotations

import gc
import os
import platform
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from weakref import WeakSet

import torch

from engines import methods
from engines.audit.check import audit
from engines.core.outcome import Stop
from engines.core.sampling import Sampling
from engines.cost.budget import Acceptance, Budget
from engines.cost.curve import CostCurve
from engines.cost.pricing import fixed_price, price, reading
from engines.datastores.building.build_spec import STANDARD_LIBRARY, open_standard_library
from engines.datastores.search.open_datastores import OpenDatastores
from engines.datastores.service import DatastoreService
from engines.datastores.storage.manifest import ModelIdentity, tokenizer_fingerprint
from engines.errors import (
    ModelUnavailable,
    RunFailed,
    SpecError,
    StartCancelled,
    UsageProblem,
    drafting,
    first_line,
)
from engines.heads.find_heads import heads_for
from engines.hub import gguf_file
from engines.hub.known_models import resolve
from engines.laws import make_law, spec_of
from engines.libraries.hf import Tokenizer, text_config
from engines.methods.drafter import Resources
from engines.methods.shared.datastore_probe import probe
from engines.model.causal_model import CausalModel
from engines.model.feature_request import LEAST_RECENT, FeatureRequest
from engines.model.load_options import LoadOptions
from engines.model.loading import LoadedDraft, load_draft, load_models, native_here, no_draft_fits
from engines.model.penalties import Penalties
from engines.model.thread_governor import ThreadGovernor
from engines.progress import Progress, SomeProgress, unless
from engines.report.answer import Answer
from engines.report.events import (
    SAMPLING_FIELDS,
    Audited,
    Finished,
    LoadedHead,
    Loading,
    Prefilling,
    Preparing,
    Ready,
    Round,
    RunEvent,
    Started,
)
from engines.report.recorder import record
from engines.request import Request, need_request
from engines.tokenization import Detokenizer, encode, end_tokens
from engines.vocabularies import Translation

if TYPE_CHECKING:
    from engines.heads.find_heads import Head

_OF_A_MODEL = RuntimeError, MemoryError, IndexError  # what a forward raises, which may leave its cache half written
_REMEMBERED = 64  # engines with options whose acceptance is kept
_AGREES, _CHEAPER = 0.5, 0.6  # of a head that comes before a draft model: its agreement, and its share of the price


class Prices(NamedTuple):
    """t(n) of what is loaded; None for what is not. ``heads`` by kind."""

    target: CostCurve
    draft: CostCurve | None = None
    heads: Mapping[str, CostCurve] = MappingProxyType({})


class NamedDraft(NamedTuple):
    """A draft model, the translation of the target's tokens to its own (None where they are the same), t(n) of it, also
    as it stays fixed, and what is to be known of it."""

    model: CausalModel | None
    translation: Translation | None
    price: CostCurve | None
    fixed_price: CostCurve | None
    remarks: tuple[str, ...] = ()


def _counted(model: CausalModel) -> int:
    """Its parameters as people count them: a table that its file holds a second time counts once."""
    try:
        file = gguf_file.at(resolve(model.name))
    except ModelUnavailable:  # the name of another that is known
        file = None
    return model.parameters - (gguf_file.read(file).repeated if file is not None else 0)


def _measured(
    model: CausalModel, fresh: bool = False, beside: tuple[CausalModel, CostCurve] | None = None
) -> tuple[CostCurve, CostCurve]:
    """t(n) of a model, and as it stays fixed; ``beside`` as of ``price``. Raises ModelUnavailable where it fails."""
    try:
        measured = price(model, fresh, beside)
        return measured, fixed_price(model, measured, fresh)
    except (RuntimeError, MemoryError) as error:
        raise ModelUnavailable(f"{model.name} fails when several tokens are verified: {first_line(error)}",
                               "choose a smaller model or --dtype bfloat16") from error


def measure_prices(
    target: CausalModel, draft: CausalModel | None, heads: Mapping[str, Head], fresh: bool = False,
    progress: Callable[[Loading], None] = lambda _: None,
) -> tuple[Prices, Prices]:
    """t(n) of all that is loaded, and the same for runs whose text depends on what is drafted: as it was kept, or
    measured now; always if ``fresh``. Raises ModelUnavailable: one fails."""
    models = {"verification": target, "the draft model": draft, **heads}
    there = {name: model for name, model in models.items() if model is not None}
    found: dict[str, tuple[CostCurve, CostCurve]] = {}
    for number, (name, model) in enumerate(there.items()):
        progress(Loading(f"measuring the cost of {name}", 0.8 + 0.2 * number / len(there)))
        beside = None if model is target else (target, found["verification"][0])
        found[name] = _measured(model, fresh, beside)
    now, fixed = (
        Prices(curves.pop("verification"), curves.pop("the draft model", None), curves)
        for curves in ({name: pair[i] for name, pair in found.items()} for i in (0, 1))
    )
    return now, fixed


class _Caller:
    """Notes what the caller's own functions raised: that is not the model's failure."""

    raised: BaseException | None = None

    def calls(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function of the caller's, watched."""
        def watched(*given: Any) -> Any:
            try:
                return function(*given)
            except BaseException as error:
                self.raised = error
                raise

        return watched


class Runtime:
    """A target model, its tokenizer, a draft model and draft heads where there are some that fit.

    Attributes:
        heads: by kind (``engines.heads.head_config``).
        ready: what was loaded, as an event.
        prices: t(n) of each.
        fixed_prices: the same for runs whose text depends on what is drafted (``pricing.fixed_price``).
        translation: of the target's tokens to the draft model's; None where they are the same.
    """

    _process: ClassVar[int | None] = None  # that loaded the first model

    def __init__(
        self, target: CausalModel, tokenizer: Tokenizer, prices: Prices, fixed_prices: Prices | None = None, *,
        draft: CausalModel | None = None, heads: Mapping[str, Head] = MappingProxyType({}),
        translation: Translation | None = None, warnings: tuple[str, ...] = (), said: tuple[str, ...] = (),
        load_draft: Callable[..., tuple[LoadedDraft, tuple[str, ...]]] | None = None,
    ) -> None:
        """``said``: warnings that stay with another draft model; ``fixed_prices`` are ``prices`` where none are
        given."""
        Runtime._process = Runtime._process or os.getpid()
        self.target, self.tokenizer, self.draft, self.heads = target, tokenizer, draft, heads
        self.prices, self.fixed_prices = prices, fixed_prices or prices
        self.translation, self._load_draft, self._said = translation, load_draft, said
        warnings += said
        self._named: dict[str, NamedDraft] = {}
        self.words = Detokenizer(tokenizer)
        self._runs: WeakSet[Generator[RunEvent]] = WeakSet()
        self._acceptance: dict[str, Acceptance] = {}
        self._memory: dict[Any, Any] = {}
        width = text_config(target.model.config).hidden_size
        self.identity = ModelIdentity(Path(target.name).name, target.fingerprint, width)
        offered = {STANDARD_LIBRARY: partial(open_standard_library, tokenizer)}
        self.open_datastores = OpenDatastores(tokenizer_fingerprint(tokenizer), self.identity, offered)
        self.datastore_service = DatastoreService(self, partial(probe, self))
        ends = end_tokens(tokenizer, target.model.generation_config, target.model.config)
        self.end_tokens = frozenset(token for token in ends if 0 <= token < target.vocab_size)
        if wrong := sorted(ends - self.end_tokens):
            warnings += (f"{target.name}: end token {wrong[0]} is beyond its vocabulary, so it ends no answer",)
        for model, words in ((target, "drafts are cut to their first path"), (draft, "it drafts chains")):
            if model is not None:
                warnings += model.remarks
                warnings += () if model.trees else (f"{model.name} cannot branch: {words}",)
        self.ready = Ready(
            model=target.name, dtype=target.precision, device=str(target.device), parameters=_counted(target),
            vocab_size=target.vocab_size, context_limit=target.context_limit,
            chat_template=bool(tokenizer.chat_template), draft_model=draft.name if draft else None,
            draft_parameters=_counted(draft) if draft else None, seconds=0.0, backend=target.backend,
            threads=torch.get_num_threads(), warnings=warnings,
            datastores=self.open_datastores.searchable(), **self._points(),
            no_draft_model="" if draft else no_draft_fits(target.name),
            invariant=target.compute.invariant or target.one_by_one, tokenizer=self.open_datastores.tokenizer,
        )

    @classmethod
    def measured(
        cls, target: CausalModel, tokenizer: Tokenizer, draft: CausalModel | None = None,
        heads: Mapping[str, Head] = MappingProxyType({}), progress: Callable[[Loading], None] = lambda _: None,
        **more: Any,
    ) -> Runtime:
        """A runtime of models in memory, with their prices; ``more`` as the class takes it. Raises ModelUnavailable: a
        model fails."""
        prices = measure_prices(target, draft, heads, progress=progress)
        return cls(target, tokenizer, *prices, draft=draft, heads=heads, **more)

    @classmethod
    def load(cls, options: LoadOptions, progress: Callable[[Loading], None] = lambda _: None) -> Runtime:
        """Load models. What is on the hub only is downloaded; ``progress`` may raise a BaseException to leave.

        Raises:
            ModelUnavailable: a model is missing or unusable.
            UsageProblem: as ``LoadOptions.check``; an unknown dtype or device; a draft model that shares no token with
                the target; a process that was forked after a model was loaded.
        """
        _check_process()
        clock = perf_counter()
        target, tokenizer, draft, warnings = load_models(options, progress)
        found, said = heads_for(options.head, target, options.allow_pickle, progress)
        runtime = cls.measured(
            target, tokenizer, draft.model if draft else None, found, progress, warnings=warnings,
            said=native_here(options.native, target.device)[1] + said,
            translation=draft.translation if draft else None,
            load_draft=partial(load_draft, target=target.name, tokenizer=tokenizer, options=options),
        )
        runtime.ready = replace(runtime.ready, seconds=perf_counter() - clock)
        progress(Loading("ready", 1.0))
        return runtime

    def with_draft_model(self, name: str, progress: Callable[[Loading], None] = lambda _: None) -> Runtime:
        """The same target and heads with another draft model, a folder or a hub id; the target is not read again. This
        runtime is of no use from then on: its own draft model is gone before the other one is read, but not where that
        one is missing.

        Raises:
            ModelUnavailable: it is missing or unusable.
            UsageProblem: it is not named by a string or shares no token with the target, a run is going on, or this
                runtime was not made by ``load``.
        """
        if not isinstance(name, str):
            raise UsageProblem(f"a draft model cannot be {name!r}", "give a folder or a hub id")
        if self._load_draft is None:
            raise UsageProblem(f"no draft model {name} can be loaded here", "load the models anew")
        clock = perf_counter()

        def make_room() -> None:
            self.draft = None
            self._named.clear()
            gc.collect()

        with self._alone("loading a draft model"):
            (model, translation), said = self._load_draft(
                name, make_room=make_room, progress=_of_draft(progress))
            self.target.truncate(0)
        found = Runtime.measured(
            self.target, self.tokenizer, model, self.heads, progress, warnings=said, said=self._said,
            translation=translation, load_draft=self._load_draft)
        found.ready = replace(found.ready, seconds=perf_counter() - clock)
        return found

    @property
    def default_engine(self) -> str:
        """The engine taken when none is named."""
        return methods.default(methods.available(self.draft, self.ready.heads)).id

    def prompt(self, request: Request) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Token ids of a request's prompt, as a run would feed it, and their labels. Raises UsageProblem."""
        need_request(request)
        request.check()
        ids, _ = encode(self.tokenizer, request, self.target.vocab_size)
        return tuple(ids), tuple(self.words.piece(token) for token in ids)

    def prompt_length(self, request: Request) -> int:
        """Tokens of a request's prompt, as a run would feed it. Raises UsageProblem."""
        return len(self.prompt(request)[0])

    def run(
        self, request: Request, cancelled: Callable[[], bool] = lambda: False,
        progress: Callable[[Preparing], None] = lambda event: None,
    ) -> Iterator[RunEvent]:
        """One run as events: Started, Prefilled, Round..., Finished. Before them, ``progress`` is told of a draft model
        that is loaded and a datastore that is built, and between them of a prompt that is read in several pieces.

        The models' caches serve one run at a time, from its first event until its last, or until it is closed;
        ``stop`` closes a run that was left unfinished.

        Raises:
            UsageProblem: before Started, for a request that cannot be run, or while another run is going on.
            ModelUnavailable, DatastoreProblem: before Started, of a draft model or a datastore that the request names.
            StartCancelled: before Started, where a draft model was being loaded or a datastore built.
            RunFailed: later, where the model or the drafter broke.
        """
        run = self._run(request, cancelled, progress)
        self._runs.add(run)
        return run

    def stop(self) -> None:
        """Close the run that waits to be read on, if there is one: in a notebook, the traceback of a cell that failed
        may keep it. One that computes in another thread goes on."""
        for run in [*self._runs]:
            if run.gi_suspended:
                with suppress(ValueError):  # another thread reads it on
                    run.close()

    def _run(
        self, request: Request, cancelled: Callable[[], bool], progress: Callable[[Preparing], None]
    ) -> Generator[RunEvent]:
        """What ``run`` returns. The models are free when the last event is told."""
        caller = _Caller()
        with self._alone("a run"), closing(
            self._events(request, caller.calls(cancelled), caller.calls(progress), caller)
        ) as events:
            for event in events:
                if isinstance(event, Finished):
                    break
                yield event
        yield event

    @contextmanager
    def _alone(self, what: str) -> Iterator[None]:
        """Within, nothing else uses the models. Raises UsageProblem where something does, or none can here."""
        _check_process()
        with self.target.alone(what):
            yield

    def _events(
        self, request: Request, cancelled: Callable[[], bool], progress: Callable[[Preparing], None], caller: _Caller
    ) -> Generator[RunEvent]:
        need_request(request)
        request.check()
        spec = methods.find(request.engine or self.default_engine)
        if spec.host:
            raise UsageProblem(f"{spec.title} decodes models that it holds itself", "take it as a lane of a race")
        options = _parsed(spec, request.options, self.target.name, request.draft_model)
        sampling = Sampling(request.temperature, request.top_p, request.top_k, request.min_p)
        penalties = Penalties(request.repetition_penalty, request.no_repeat_ngram_size)
        what = f"the loading of draft model {request.draft_model}"
        other = self._draft_named(request.draft_model, unless(cancelled, progress, what))
        target, draft = penalties.of(self.target), other.model and penalties.of(other.model)
        begun = len(request.continued)
        law = make_law(request.law, sampling, request.seed, self.target.vocab_size, begun)
        budget, prices = self._budget(request, f"{spec.id} {options} {request.draft_model}")
        draft_price = other.fixed_price if request.text_depends_on_draft else other.price
        self.open_datastores.refresh()
        self.open_datastores.progress = _building(cancelled, progress)
        with drafting():
            drafter_class = spec.load_drafter()
        resources = Resources(
            law=law, vocab_size=self.target.vocab_size, target=target, draft_model=draft,
            draft_price=draft_price, translation=other.translation, heads=self.heads,
            head_prices=prices.heads, available=methods.available(draft, self.ready.heads), end_tokens=self.end_tokens,
            branches=self.target.trees, budget=budget,
            open_datastores=self.open_datastores, datastores=request.datastores, words=self.words, cancelled=cancelled,
            progress=_prefilling(progress, draft=True),
            memory={} if request.text_depends_on_draft else self._memory,
            keeps=request.keeps and not request.text_depends_on_draft, detail=request.detail,
        )
        with drafting():
            drafter = drafter_class(resources, **options)
            remark = drafter.remark()
        if law.wants_chains and not (spec.baseline or drafter.draws_chains):
            raise UsageProblem(
                f"the {law.name} law judges chains that were drawn at random; {spec.id} with these options drafts none",
                "take an engine that draws a chain, shape=chain where it has that option, or another law")
        prompt, warnings = encode(self.tokenizer, request, self.target.vocab_size)
        remarks = tuple(filter(None, (remark, self._read_again(spec, drafter.features, prompt))))
        start = len(prompt) - bool(begun)
        limit, clipped = self._room(start, request)
        notes = warnings + clipped + remarks + other.remarks + ((self.target.note,) if self.target.note else ())
        yield self._started(request, spec, options, prompt[:start], notes, drafter, other)
        stop = Stop(self.end_tokens, limit)
        try:
            with self.target.features.requested(drafter.features), closing(record(
                target, drafter, law, prompt, stop, self.words, cancelled, begun, request.detail,
                _prefilling(progress),
            )) as events:
                yield from self._paced(events)
        except SpecError as error:
            if isinstance(error.__cause__, _OF_A_MODEL):  # of one that drafts
                self._forget()
            raise
        except _OF_A_MODEL as error:
            self._forget()
            if error is caller.raised:
                raise
            raise RunFailed(f"the model failed: {first_line(error)}", "try a shorter text") from error

    def _read_again(self, spec: methods.MethodSpec, wanted: FeatureRequest, prompt: Sequence[int]) -> str:
        """Why tokens that are cached are read again, "" where none are."""
        cached = self.target.shared(prompt)
        known = self.target.features.reusable(cached, wanted)
        if cached - known <= LEAST_RECENT:  # too few to wait for
            return ""
        return (f"{cached - known:,} tokens that are in the KV cache are read again: {spec.title} needs hidden states "
                "of them, which are kept only while an engine asks for them")

    def _paced(self, events: Iterator[RunEvent]) -> Iterator[RunEvent]:
        """The same events; the number of threads follows what else uses the machine meanwhile. Rounds that ran on
        fewer than ``ready`` says note it. A strict model keeps its threads where others may give other bits."""
        if self.target.device.type == "cpu" and torch.get_num_threads() != self.ready.threads:
            torch.set_num_threads(self.ready.threads)  # another runtime has been loaded since
        fixed = self.target.device.type != "cpu" or self.target.one_by_one
        threads = 1 if fixed else self.ready.threads
        governor = ThreadGovernor(self.prices.target.at, threads)
        try:
            for event in events:
                if isinstance(event, Round):
                    used = governor.threads
                    governor.record(1 + len(event.draft.tokens), event.verify_seconds)
                    event = event if used == threads else replace(event, threads=used)
                yield event
        finally:
            governor.restore()

    def audit(
        self, answer: Answer, cancelled: Callable[[], bool] = lambda: False,
        progress: Callable[[float], None] = lambda done: None,
    ) -> Audited | None:
        """Check every token of an answer that this model wrote against the plain model (``engines.audit.check``); the
        KV caches stay as they are. None if cancelled.

        Raises:
            UsageProblem: an answer that cannot be this model's, or a run that is going on.
            RunFailed: the model broke.
        """
        caller = _Caller()
        try:
            with self._alone("an audit"):
                if not isinstance(answer, Answer):
                    raise UsageProblem(f"a {type(answer).__name__} is not an answer", "give Answer.from_events(events)")
                return audit(
                    self.target, answer, self.words.piece, caller.calls(cancelled), caller.calls(progress))
        except SpecError:
            raise
        except Exception as error:  # whatever a model's own code raises where decoding does not call it so
            if error is caller.raised:
                raise
            hint = "try a shorter answer; if that fails too, this model cannot be audited here"
            raise RunFailed(f"the audit failed: {first_line(error)}", hint) from error

    def measure_price(self) -> None:
        """Measure t(n) anew, whatever was kept; ``ready`` says it. Runs above temperature 0 may draft, and so
        write, otherwise from then on. Raises UsageProblem while a run is going on, ModelUnavailable: a model fails."""
        with self._alone("a measurement"):
            self._forget()
            self.prices, self.fixed_prices = measure_prices(self.target, self.draft, self.heads, fresh=True)
            for name, draft in self._named.items():
                price, fixed = _measured(draft.model, True, (self.target, self.prices.target))
                self._named[name] = draft._replace(price=price, fixed_price=fixed)
        self.ready = replace(self.ready, **self._points())

    def measure_reading(self) -> tuple[float, int]:
        """Seconds that a pass of the target takes longer for a token of context, and the tokens of context that t(n)
        is measured with (``pricing.reading``). Raises UsageProblem while a run is going on."""
        with self._alone("a measurement"):
            self._forget()
            return reading(self.target)

    def _before_draft(self, kind: str, head: Head) -> bool:
        """Whether a head comes before the draft model, where a method drafts with either: its file says that it agrees
        with the target, and its steps take clearly less."""
        draft, known = self.fixed_prices.draft, head.agreement
        agrees = draft is not None and known is not None and known >= _AGREES
        return agrees and self.fixed_prices.heads[kind].at(1) <= _CHEAPER * draft.at(1)

    def _points(self) -> dict[str, Any]:
        """The prices as in ``Ready``."""
        prices = self.prices
        heads = {kind: LoadedHead(head.name, prices.heads[kind].points, self._before_draft(kind, head),
                                  head.config.family)
                 for kind, head in self.heads.items()}
        return {"price": prices.target.points, "price_busy": prices.target.busy,
                "draft_price": prices.draft.points if prices.draft else (), "heads": heads}

    def forget_acceptance(self) -> None:
        """Begin anew with what is known of drafts (to measure without what earlier runs taught)."""
        self._acceptance.clear()
        self._memory.clear()

    def forget(self) -> None:
        """Empty the KV caches (to measure a cold start). Raises UsageProblem while a run is going on."""
        with self._alone("emptying the caches"):
            self._forget()

    def _forget(self) -> None:
        named = (named.model for named in self._named.values())
        for model in (self.target, self.draft, *self.heads.values(), *named):
            if model is not None:
                model.truncate(0)

    def _draft_named(self, name: str, progress: Callable[[Loading], None] = lambda _: None) -> NamedDraft:
        """The draft model of this name, loaded when it is first asked for; "" is the one of this runtime, if any.
        Raises ModelUnavailable, UsageProblem: as ``load`` of a draft model; and what ``progress`` raises."""
        if not name:
            return NamedDraft(self.draft, self.translation, self.prices.draft, self.fixed_prices.draft)
        if name not in self._named:
            if self._load_draft is None:
                raise UsageProblem(f"no draft model {name} can be loaded here", "start with --draft-model")
            (model, translation), said = self._load_draft(name, progress=_of_draft(progress))
            prices = _measured(model, beside=(self.target, self.prices.target))
            self._named[name] = NamedDraft(model, translation, *prices, said + model.remarks)
        return self._named[name]

    def memory(self, engine: str, options: Mapping[str, Any], rows: int, draft_model: str = "") -> int:
        """Bytes of the weights of the models that an engine runs, as laid out, and of ``rows`` KV rows of each:
        computed from shapes and dtype, since engines share this process. What lies in a datastore is not in it.

        Raises:
            UsageProblem: options that the engine has not; a draft model that was not asked for before, as ``load`` of
                one, or while a run is going on.
            ModelUnavailable: as ``load`` of that draft model.
        """
        if draft_model not in ("", *self._named):
            with self._alone("loading a draft model"):
                self._draft_named(draft_model)
        draft = self._draft_named(draft_model).model
        spec = methods.find(engine)
        there = methods.available(draft, self.ready.heads)
        used = spec.used(_parsed(spec, options, self.target.name, draft_model), there)
        drafting = {methods.DRAFT_MODEL: draft, **self.heads}
        models = [self.target, *(drafting[need] for need in used)]
        return sum(m.weight_bytes + rows * m.cache.row_bytes for m in models)

    def _budget(self, request: Request, engine: str) -> tuple[Budget, Prices]:
        """What decides on the sizes of drafts, and the prices of what drafts.

        What was seen of an engine's drafts (with these options) serves its later runs too, where the text cannot
        depend on it; above temperature 0 every run begins with the prior and the curve that stays, so that
        its seed repeats it.
        """
        if request.text_depends_on_draft:
            return Budget(self.fixed_prices.target), self.fixed_prices
        known = self._acceptance[engine] = self._acceptance.pop(engine, None) or Acceptance()
        if len(self._acceptance) > _REMEMBERED:
            del self._acceptance[next(iter(self._acceptance))]
        return Budget(self.prices.target, known, timed=True), self.prices

    def _room(self, prompt: int, request: Request) -> tuple[int, tuple[str, ...]]:
        """How many tokens the answer may have inside the context. Raises UsageProblem where there is none, and says
        whether a new conversation would help."""
        limit, wanted = self.target.context_limit, request.max_new_tokens
        if prompt >= limit:
            system = tuple(turn for turn in request.conversation[:-1] if turn[0] == "system")
            alone, bare = (self._prompt_size(request, (*before, request.conversation[-1])) for before in (system, ()))
            if alone < limit:
                raise UsageProblem(
                    f"the conversation with this prompt has {prompt:,} tokens, the model's context holds {limit:,}",
                    f"start a new conversation (in the application: /new): the prompt alone has {alone:,} tokens",
                )
            if bare < limit and system:
                raise UsageProblem(
                    f"the prompt with the system prompt has {alone:,} tokens, the model's context holds {limit:,}",
                    f"shorten the system prompt (in the application: /system): the prompt alone has {bare:,} tokens",
                )
            raise UsageProblem(f"the prompt has {bare:,} tokens, the model's context holds {limit:,}",
                               f"shorten it to at most {limit - 1:,} tokens, or take a model with a longer context")
        room = min(wanted, limit - prompt)
        if room == wanted:
            return room, ()
        return room, (f"the context of {limit:,} leaves room for {room:,} of {wanted:,} new tokens",)

    def _prompt_size(self, request: Request, conversation: tuple[tuple[str, str], ...]) -> int:
        """The tokens of this conversation in place of the request's."""
        asked = replace(request, conversation=conversation, continued=())
        return len(encode(self.tokenizer, asked, self.target.vocab_size)[0])

    def _started(self, request, spec, options, prompt, warnings, drafter, draft: NamedDraft) -> Started:
        *turns, (role, content) = request.conversation
        turns.append(("raw" if request.raw or not self.tokenizer.chat_template else role, content))
        ready = self.ready
        used = spec.used(options, methods.available(draft.model, self.ready.heads))
        kind = next((need for need in used if need in self.heads), None)
        return Started(
            engine=spec.id, options=options, law=request.law, seed=request.seed,
            **{name: getattr(request, name) for name in SAMPLING_FIELDS},
            max_new_tokens=request.max_new_tokens, model=ready.model,
            dtype=ready.dtype, device=ready.device, prompt=tuple(prompt),
            prompt_pieces=tuple(self.words.piece(t) for t in prompt), conversation=tuple(turns),
            draft_model=draft.model.name if draft.model else None, versions=_versions(),
            lossless=spec.lossless_under(spec_of(request.law, request.temperature)),
            machine=_machine(), warnings=warnings, price=ready.price,
            draft_price=draft.price.points if draft.price else (),
            head=ready.heads[kind].name if kind else None, head_price=ready.heads[kind].price if kind else (),
            datastores=tuple(dict.fromkeys(name for name, _ in drafter.searched)),
            datastore_bytes=sum(drafter.searched.values()) or None,
            continued=max(0, len(request.continued) - 1), computed_by=self.target.computed_by,
        )


def _check_process() -> None:
    """Raises UsageProblem in a process that was forked after a model was loaded."""
    if Runtime._process not in (None, os.getpid()):
        raise UsageProblem(
            "this process was forked after a model was loaded, and the threads that compute do not survive that",
            'start it with multiprocessing.get_context("spawn")')


def _of_draft(progress: Callable[[Loading], None]) -> Callable[[Loading], None]:
    """Tells of the loading of a draft model."""
    return lambda step: progress(Loading(f"draft model: {step.stage}", step.done, step.bytes))


def _building(cancelled: Callable[[], bool], progress: Callable[[Loading], None]) -> Progress:
    """Tells of a datastore that is built before a run, and leaves the build where that is cancelled."""
    def check() -> None:
        if cancelled():
            raise StartCancelled("the build of the datastore")

    return SomeProgress(lambda step: progress(Loading(
        f"building the datastore: {step.stage}", step.done / step.total if step.total else None)), check)


def _prefilling(progress: Callable[[Preparing], None], draft: bool = False) -> Callable[[int, int], None]:
    """Tells of a prefill, with the time that is left at its rate so far."""
    began = 0.0

    def report(done: int, total: int) -> None:
        nonlocal began
        began = began or perf_counter()
        left = (perf_counter() - began) / done * (total - done) if done else None
        progress(Prefilling(done, total, left, draft))

    return report


def _parsed(spec: methods.MethodSpec, given: Mapping[str, Any], model: str, draft_model: str) -> dict[str, Any]:
    """All options of a run, for which a draft model may be named. Raises UsageProblem."""
    options = spec.parse(given, model)
    return spec.with_named_model(options, methods.DRAFT_MODEL) if draft_model else options


@cache
def _versions() -> dict[str, str]:
    return {"spec-tui": version("spec-tui"), "python": platform.python_version()} | {
        name: version(name) for name in ("torch", "transformers")
    }


def _machine() -> dict[str, object]:
    return {
        "system": platform.system(), "processor": platform.machine(), "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
