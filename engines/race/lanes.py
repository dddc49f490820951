"""What a race is: lanes, prompts, repeats. Plain data, and how lanes are written."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from engines import methods
from engines.errors import UsageProblem
from engines.model.load_options import check_type
from engines.request import Request, need_request

STORES, MODEL = "datastore", "model"  # written like options of the engine, though they are the request's
_EXAMPLE = "for example autoregressive,pld,rest:c=16:n_max=8"
_MOST_REPEATS = 1000
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"


@dataclass(frozen=True, slots=True)
class Lane:
    """An engine as it takes part in a race.

    Attributes:
        engine: its id.
        options: values by name, in the options' types; those left out take their defaults.
        datastores: those that this lane searches; none takes the request's.
        draft_model: the model that this lane drafts with; "" takes the one that is loaded.
    """

    engine: str
    options: dict[str, Any] = field(default_factory=dict)
    datastores: tuple[str, ...] = ()
    draft_model: str = ""

    @property
    def label(self) -> str:
        """The lane as it is written on the command line: ``rest:c=16:datastore=notes``."""
        given = {n: str(v).lower() if isinstance(v, bool) else v for n, v in self.given().items()}
        return ":".join([self.engine, *(f"{name}={value}" for name, value in given.items())])

    @property
    def method(self) -> tuple[str, str]:
        """Its engine and draft model: lanes that share both differ in their settings only."""
        return self.engine, self.draft_model

    def given(self) -> dict[str, Any]:
        """What ``make_lane`` makes this lane of."""
        model = {MODEL: self.draft_model} if self.draft_model else {}
        return {**model, **self.options, **({STORES: ",".join(self.datastores)} if self.datastores else {})}

    def check(self) -> None:
        """Raises UsageProblem for an engine or an option that there is not."""
        methods.find(self.engine).parse(self.options)

    def of(self, request: Request) -> Request:
        """The request, asked of this lane: without past answers, which would hold those of earlier repeats."""
        return replace(
            request, engine=self.engine, options=dict(self.options), datastores=self.datastores or request.datastores,
            keeps=False, draft_model=self.draft_model or request.draft_model,
        )


@dataclass(frozen=True, slots=True)
class Race:
    """Lanes on the same prompts.

    Attributes:
        lanes: at least one; the same engine may run in several.
        request: what is common to all lanes; its engine and options are ignored.
        prompts: user's turns to put after ``request.conversation``, a prompt each; one of several turns (as in
            MT-Bench and Spec-Bench) is asked turn by turn, all lanes being shown the same earlier answers. None: the
            conversation is asked as it is.
        repeats: how often every lane runs on every prompt.
        live: send events while a lane runs. Whoever draws them then takes time from it, so that the numbers of a live
            race are not comparable.
        audit: check every answer, and not only those that differ from each other.
        warm_up: tokens of the run of each lane that comes first and is not counted; None: as many as a race takes; 0:
            there is none, where these lanes have just run.
    """

    lanes: tuple[Lane, ...]
    request: Request
    prompts: tuple[tuple[str, ...], ...] = ()
    repeats: int = 1
    live: bool = False
    audit: bool = False
    warm_up: int | None = field(default=None, metadata={"min": 0})

    def check(self) -> None:
        """Raises UsageProblem for what cannot be run, options and prompts included."""
        for of in fields(self):
            check_type(of, getattr(self, of.name))
        if not self.lanes:
            raise UsageProblem("there is no lane to run", f"name engines: {_EXAMPLE}")
        if not isinstance(self.lanes, tuple | list) or not all(isinstance(lane, Lane) for lane in self.lanes):
            raise UsageProblem("a race takes a tuple of lanes, not the words for them", "make each with parse_lane")
        need_request(self.request)
        if any(isinstance(turns, str) for turns in self.prompts):
            raise UsageProblem("a prompt of a race is a tuple of turns", 'for example prompts=(("your prompt",),)')
        if not 1 <= self.repeats <= _MOST_REPEATS:
            raise UsageProblem(f"repeats {self.repeats} is out of range", f"repeats takes 1 to {_MOST_REPEATS}")
        if self.warm_up is not None and self.warm_up < 0:
            raise UsageProblem(f"warm-up {self.warm_up} is out of range", "warm-up is at least 0 tokens")
        for lane in self.lanes:
            lane.check()
        if not self.prompts:
            self.request.check()
        for turns in self.prompts:
            for turn in turns or ("",):
                replace(self.request, conversation=(("user", turn),)).check()

    @property
    def runs(self) -> int:
        """How many there are, without warm-ups: of every lane, at every turn, in every repeat."""
        return len(self.lanes) * self.repeats * (sum(map(len, self.prompts)) or 1)

    @property
    def baseline(self) -> int:
        """The lane that speed-ups are measured against: the first of the baseline engine, else the first."""
        baseline = methods.baseline().id
        return next((i for i, lane in enumerate(self.lanes) if lane.engine == baseline), 0)

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each lane; those of lanes that are the same are numbered."""
        return labels(self.lanes)


def labels(lanes: Sequence[Lane]) -> tuple[str, ...]:
    """A name for each lane; those of lanes that are the same are numbered."""
    plain = [lane.label for lane in lanes]
    return tuple(f"{name} #{plain[: i + 1].count(name)}" if plain.count(name) > 1 else name
                 for i, name in enumerate(plain))


def order(lanes: int, turn: int, seed: int = 0) -> list[int]:
    """In which order the lanes run the ``turn``-th time (from 0).

    A shuffle by the seed; every second turn goes backwards through the one before it, so that a machine that gets
    slower or faster steadily favours no lane over two turns; each two turns begin one lane further on, so that every
    lane comes first, and after every other.
    """
    base = list(range(lanes))
    random.Random(seed).shuffle(base)
    start = turn // 2 % lanes
    turned = base[start:] + base[:start]
    return turned[::-1] if turn % 2 else turned


def parse_lanes(texts: Iterable[str]) -> tuple[Lane, ...]:
    """Lanes of ``ID:option=value,ID,...`` texts. Raises UsageProblem."""
    return tuple(parse_lane(part) for text in texts for part in text.split(","))


def parse_lane(text: str) -> Lane:
    """The lane of ``ID:option=value:option=value``. A colon begins an option only where a name and ``=`` follow, so
    values may hold colons, and commas; ``datastore=NAME,NAME`` says what this lane searches, ``model=NAME`` which model
    it drafts with. Raises UsageProblem: malformed, no such engine, an unknown option or one out of range."""
    engine, *settings = re.split(rf":(?=\s*{_NAME}\s*=)", text.strip())
    engine = engine.strip()
    if not engine:
        raise UsageProblem(f"lane {text!r} names no engine", _EXAMPLE)
    name, colon, rest = engine.partition(":")
    if colon or "=" in engine:
        raise UsageProblem(f"{(rest if colon else name).strip()!r} in lane {text!r} is not OPTION=VALUE", _EXAMPLE +
                           "; values with commas: --engine 'ID:option=value', one for each lane")
    given: dict[str, Any] = {}
    for setting in settings:
        option, _, value = setting.partition("=")
        if option.strip() in given:
            raise UsageProblem(f"option {option.strip()} is given twice in lane {text!r}", "give it once")
        given[option.strip()] = value.strip()
    return make_lane(engine, given)


def make_lane(engine: str, given: dict[str, Any]) -> Lane:
    """A lane of an engine with these settings, checked; ``datastore`` may be one. Raises UsageProblem."""
    named = str(given[STORES]).split(",") if STORES in given else []
    stores = tuple(dict.fromkeys(name.strip() for name in named))
    if not all(stores):
        raise UsageProblem(f"{STORES}= names no datastore", "see spec-tui datastore list")
    spec = methods.find(engine)
    taken = {STORES, MODEL} - {option.name for option in spec.options}  # what is no option of the engine itself
    model = str(given.get(MODEL, "")).strip() if MODEL in taken else ""
    if MODEL in given and MODEL in taken and not (model and methods.DRAFT_MODEL in spec.needs):
        able = ", ".join(each.id for each in methods.specs() if methods.DRAFT_MODEL in each.needs)
        raise UsageProblem(f"{MODEL}= names no draft model" if not model else f"{engine} drafts with no draft model",
                           f"{MODEL}= takes a folder, a hub id or a known name, for one of: {able}")
    options = {name: value for name, value in given.items() if name not in taken}
    spec.parse(options)  # all together may be refused where each alone is not
    known = {option.name: option for option in spec.options}
    return Lane(engine, {name: known[name].parse(value) for name, value in options.items()}, stores, model)
