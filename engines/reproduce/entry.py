"""An entry: a table or a figure of a paper as it can be run here. Plain data in a TOML file, which a user may write."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from engines import methods
from engines.bench.published import Figure
from engines.errors import UsageProblem
from engines.folders import open_input, typed_file
from engines.race.lanes import Lane, Race, parse_lane
from engines.report.wording import listed
from engines.reproduce.measures import MEASURES, Measure
from engines.reproduce.sublayer_facts import PARTS
from engines.request import Request

FOLDER = Path(__file__).with_name("entries")
SUFFIX = ".toml"
_LARGEST = 1 << 20  # bytes of an entry
_FIGURE_FIELDS = {field.name for field in dataclasses.fields(Figure)}
_HINT = "docs/papers.md says how an entry is written"


class _Plain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of an entry's file; a field that it does not know is an error."""


class Asked(_Plain):
    """What is asked.

    Attributes:
        tasks: of the benchmark's own suite and of the questions for entries; none takes all.
        most: questions of each task at most.
        file: a file of prompts instead, beside the entry's.
    """

    tasks: tuple[str, ...] = ()
    most: Annotated[int, Meta(ge=1, le=10_000)] = 6
    file: str = ""


class Setting(_Plain):
    """One way to ask.

    Attributes:
        name: heads its table.
        temperature, top_p, law: as those of a request.
        tasks: whose questions are asked; none takes those of the entry.
        data: of the published figures, those that were measured on these data; none takes all.
    """

    name: str
    temperature: float = 0.0
    top_p: float = 1.0
    law: str = Request(()).law
    tasks: tuple[str, ...] = ()
    data: tuple[str, ...] = ()


class StoreNeed(_Plain):
    """A datastore that rows search, built where it is not there yet.

    Attributes:
        name: by which rows name it.
        source: "answers" of the model itself to prompts that measure nothing (in distribution), or "python": the
            standard library of this Python (out of distribution).
        kind: sparse, dense or both.
        tokens: most tokens, None for all. Rows search parts of one by their option ``fraction``.
        document_limit: most tokens of each document, the first ones; None for all.
        dims, z_norm, unit_norm: of a dense part (``datastores.search.reduction.Recipe``).
        answers, temperature, top_p, max_new_tokens: of answers. Where a datastore of the model's greedy answers ships,
            greedy ones are taken from it, whatever their length there; only ``document_limit`` shortens them.
    """

    name: str
    source: str = "answers"
    kind: str = "sparse"
    tokens: Annotated[int, Meta(ge=200, le=1 << 31)] | None = None
    document_limit: Annotated[int, Meta(ge=16, le=1 << 31)] | None = None
    dims: Annotated[int, Meta(ge=0, le=1 << 16)] = 64
    z_norm: bool = True
    unit_norm: bool = True
    answers: Annotated[int, Meta(ge=1, le=100)] = 1
    temperature: Annotated[float, Meta(ge=0, le=100)] = 0.0
    top_p: Annotated[float, Meta(ge=0.01, le=1)] = 1.0
    max_new_tokens: Annotated[int, Meta(ge=1, le=4096)] = 128


class RowOf(_Plain):
    """A row of the table.

    Attributes:
        name: as the paper has it.
        lane: as the command line has it; "" for a row that nothing is decoded for.
        stores: names of datastores that the lane searches, and that measures of stores are of.
        part: which part of the model a measure of the model is of.
        published: what the published figures of this row have in their fields (``engines.bench.published.Figure``);
            the engine of the lane goes without saying. Without any, the lane has to decode as published.
        ours: it is no row of the paper's, and stands beside none of its figures.
        head: the family of the head that the paper's row drafts with; a head of another family that runs here is added
            to the name.
    """

    name: str
    lane: str = ""
    stores: tuple[str, ...] = ()
    part: str = ""
    published: dict[str, Any] = msgspec.field(default_factory=dict)
    ours: bool = False
    head: str = ""


class Claim(_Plain):
    """What the paper concludes, as something that can be checked.

    Attributes:
        says: a sentence.
        measure: the column that it is about.
        rising: names of rows: each has more than the one before it.
        above: each of them has more than this; None for no such bound.
        setting: name of the setting; "" for each of them.
    """

    says: str
    measure: str
    rising: tuple[str, ...]
    above: float | None = None
    setting: str = ""


class QuickForm(_Plain):
    """What ``--quick`` makes smaller: the questions of each task, the tokens of an answer and of a datastore; and how
    many settings are run, the first ones."""

    most: Annotated[int, Meta(ge=1, le=10_000)] = 1
    max_new_tokens: Annotated[int, Meta(ge=2, le=4096)] = 32
    store_tokens: Annotated[int, Meta(ge=200, le=1 << 31)] = 6000
    settings: Annotated[int, Meta(ge=1, le=64)] = 8


class PaperEntry(_Plain):
    """A table of a paper.

    Attributes:
        title: what it shows, in a few words.
        paper, tables: as the published figures have it in ``source``: "PAPER, TABLE".
        shows: what it shows, in sentences.
        differs: what is not as in the paper here, a sentence each; that models and machines differ is always said.
        cannot: why it cannot be run here; then there is nothing but ``theirs`` to show.
        prompts, settings, max_new_tokens, repeats: what is asked, how answers are sampled, how often.
        measures: the columns (``measures.MEASURES``).
        model: the known model that it runs on where none is named and this one is here; "" takes the default.
        stores, rows, claims, quick: see there.
    """

    title: str
    paper: str
    tables: tuple[str, ...]
    shows: str
    differs: tuple[str, ...] = ()
    cannot: str = ""
    prompts: Asked = Asked()
    settings: Annotated[tuple[Setting, ...], Meta(max_length=8)] = (Setting(name="greedy"),)
    max_new_tokens: Annotated[int, Meta(ge=2, le=4096)] = 128
    repeats: Annotated[int, Meta(ge=1, le=100)] = 3
    measures: tuple[str, ...] = ()
    model: str = ""
    stores: Annotated[tuple[StoreNeed, ...], Meta(max_length=16)] = ()
    rows: Annotated[tuple[RowOf, ...], Meta(max_length=64)] = ()
    claims: tuple[Claim, ...] = ()
    quick: QuickForm = QuickForm()

    @property
    def sources(self) -> tuple[str, ...]:
        """Its tables as published figures name them."""
        return tuple(f"{self.paper}, {table}" for table in self.tables)

    def asked_in(self, setting: Setting) -> Asked:
        """What is asked in a setting."""
        return msgspec.structs.replace(self.prompts, tasks=setting.tasks) if setting.tasks else self.prompts

    @property
    def columns(self) -> tuple[Measure, ...]:
        return tuple(MEASURES[name] for name in self.measures)

    def with_sizes(self, repeats: int | None, most: int | None, max_new_tokens: int | None) -> PaperEntry:
        """The same with other sizes; None keeps the entry's."""
        asked = msgspec.structs.replace(self.prompts, most=most) if most is not None else self.prompts
        return msgspec.structs.replace(
            self, prompts=asked, repeats=self.repeats if repeats is None else repeats,
            max_new_tokens=self.max_new_tokens if max_new_tokens is None else max_new_tokens,
        )

    @property
    def head(self) -> str:
        """The family of the paper's head; "" where none drafts."""
        return next((row.head for row in self.rows if row.head), "")

    def drafted_by(self, family: str) -> PaperEntry:
        """The same where a head of this family drafts: rows for which the paper takes another one say so."""
        names = {row.name: f"{row.name}, {family} head" for row in self.rows if row.head and row.head != family}
        replace = msgspec.structs.replace
        return replace(
            self, rows=tuple(replace(row, name=names.get(row.name, row.name)) for row in self.rows),
            claims=tuple(replace(claim, rising=tuple(names.get(name, name) for name in claim.rising))
                         for claim in self.claims),
        )

    def made_quick(self) -> PaperEntry:
        """The same, asked once, of fewer questions, for shorter answers. Datastores are cut where they are built."""
        quick = self.quick
        return msgspec.structs.replace(
            self, repeats=1, settings=self.settings[: quick.settings],
            max_new_tokens=min(self.max_new_tokens, quick.max_new_tokens),
            prompts=msgspec.structs.replace(self.prompts, most=min(self.prompts.most, quick.most)),
        )


@cache
def shipped() -> Mapping[str, PaperEntry]:
    """The entries that ship, by name, in the order of papers and tables."""
    found = {file.stem: parse(file.read_bytes(), file.name) for file in FOLDER.glob(f"*{SUFFIX}")}
    return MappingProxyType(dict(sorted(found.items(), key=lambda item: _place(*item))))


def _place(name: str, entry: PaperEntry) -> tuple[Any, ...]:
    numbers = [int(number) for number in re.findall(r"\d+", entry.tables[0])]
    return entry.paper, not entry.tables[0].startswith("Table"), numbers, name


def find(name: str) -> tuple[str, PaperEntry]:
    """A shipped entry's name, or a file's. Returns the name to show and the entry. Raises UsageProblem."""
    if name in shipped():
        return name, shipped()[name]
    if not name.endswith(SUFFIX):
        near = [known for known in shipped() if known.startswith(name.split("-")[0])]
        raise UsageProblem(f"there is no entry {name[:80]!r}",
                           f"{f'perhaps {listed(near)}; ' if near else ''}spec-tui reproduce --list names all; one of "
                           f"yours is a file that ends in {SUFFIX}")
    path = typed_file(name)
    try:
        with open_input(path) as stream:
            data = stream.read(_LARGEST + 1)
    except OSError as error:
        raise UsageProblem(f"{path} cannot be read: {error.strerror}", "check the path") from None
    entry = parse(data, path.name)
    if entry.prompts.file:
        beside = str(path.parent / entry.prompts.file)
        entry = msgspec.structs.replace(entry, prompts=msgspec.structs.replace(entry.prompts, file=beside))
    return path.stem, entry


def parse(data: bytes, where: str) -> PaperEntry:
    """The entry of a file's content. Raises UsageProblem, with what is wrong in it."""
    if len(data) > _LARGEST:
        raise UsageProblem(f"{where} is larger than {_LARGEST >> 20} MB", _HINT)
    try:
        entry = msgspec.toml.decode(data, type=PaperEntry)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, or a huge number
        raise UsageProblem(f"{where} is not an entry: {error}", _HINT) from None
    for problem in _problems(entry):
        raise UsageProblem(f"{where}: {problem}", _HINT)
    return msgspec.structs.replace(entry, shows=_flowing(entry.shows), cannot=_flowing(entry.cannot))


def _flowing(text: str) -> str:
    """Without the line ends of the file."""
    return " ".join(text.split())


def _problems(entry: PaperEntry) -> Iterator[str]:
    """What is wrong with an entry beyond its shape."""
    if odd := next((text for text in _texts(msgspec.to_builtins(entry)) if not _readable(text)), None):
        yield f"a text in it has unprintable characters: {odd[:40]!r}"
    if not entry.tables or not all((entry.title.strip(), entry.paper.strip(), entry.shows.strip())):
        yield "title, paper, tables and shows have to say something"
    if entry.cannot:
        if entry.rows or entry.measures:
            yield "an entry that cannot be run has no rows and no measures"
        return
    if unknown := [name for name in entry.measures if name not in MEASURES]:
        yield f"there is no measure {unknown[0]!r}; there are {', '.join(MEASURES)}"
    if not entry.rows or not entry.measures or not entry.settings:
        yield "it needs rows, measures and settings, or cannot = \"the reason\""
    for name in ("rows", "settings", "stores"):
        names = [part.name for part in getattr(entry, name)]
        twice = next((one for one in names if names.count(one) > 1 or not one.strip()), None)
        if twice is not None:
            yield f"the name {twice!r} is empty or used twice in {name}"
    yield from _wrong_rows(entry)
    yield from _wrong_needs(entry)
    yield from _wrong_claims(entry)


def _texts(value: Any) -> Iterator[str]:
    """All texts in plain data."""
    if isinstance(value, str):
        yield value
    for part in [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(part)


def _readable(text: str) -> bool:
    """Whether it may be drawn as it is."""
    return all(line.isprintable() for line in text.split("\n"))


def _wrong_rows(entry: PaperEntry) -> Iterator[str]:
    known = {store.name for store in entry.stores}
    baseline = False
    for row in entry.rows:
        if missing := set(row.stores) - known:
            yield f"row {row.name!r} searches {missing.pop()!r}, which is not one of its stores"
        if row.part not in ("", *PARTS):
            yield f"row {row.name!r}: a part of the model is {' or '.join(PARTS)}, not {row.part!r}"
        if odd := set(row.published) - _FIGURE_FIELDS:
            yield f"row {row.name!r}: published figures have no field {odd.pop()!r}"
        if not row.lane:
            continue
        try:
            lane = lane_of(row, {name: (name,) for name in known})
            lane.check()
            baseline = baseline or methods.find(lane.engine).baseline
            for setting in entry.settings:
                Race((lane,), request_of(entry, setting), (("x",),)).check()
        except UsageProblem as error:
            yield f"row {row.name!r}: {error.message} ({error.hint})"
    if not baseline and any(measure.over_baseline for measure in entry.columns):
        yield "a speed-up is over the baseline's lane, and there is no such row"


def _wrong_needs(entry: PaperEntry) -> Iterator[str]:
    for store in entry.stores:
        if store.source not in ("answers", "python"):
            yield f"store {store.name!r}: source is answers or python, not {store.source!r}"
        if store.kind not in ("sparse", "dense", "both"):
            yield f"store {store.name!r}: kind is sparse, dense or both, not {store.kind!r}"
        if store.answers > 1 and not store.temperature:
            yield f"store {store.name!r}: greedy answers to a prompt are all the same: give a temperature"


def _wrong_claims(entry: PaperEntry) -> Iterator[str]:
    rows, settings = {row.name for row in entry.rows}, {setting.name for setting in entry.settings}
    for claim in entry.claims:
        if claim.measure not in entry.measures:
            yield f"a claim is about {claim.measure!r}, which is not one of its measures"
        if len(claim.rising) < 2 - (claim.above is not None) or set(claim.rising) - rows:
            yield f"a claim names two rows of its entry or more, or one with a bound: {claim.says!r}"
        if claim.setting and claim.setting not in settings:
            yield f"a claim is about the setting {claim.setting!r}, which does not exist"


def lane_of(row: RowOf, stores: Mapping[str, tuple[str, ...]]) -> Lane:
    """The lane of a row, with the names of the datastores that were built. Raises UsageProblem."""
    lane = parse_lane(row.lane)
    found = tuple(built for name in row.stores for built in stores[name])
    return dataclasses.replace(lane, datastores=found or lane.datastores)


def plain_lanes(entry: PaperEntry) -> tuple[Lane, ...]:
    """The lanes of its rows as they are without datastores of their own, each once."""
    found: dict[str, Lane] = {}
    for row in entry.rows:
        if row.lane:
            lane = parse_lane(row.lane)
            found.setdefault(lane.label, lane)
    return tuple(found.values())


def request_of(entry: PaperEntry, setting: Setting) -> Request:
    """What all lanes are asked in a setting."""
    return Request(
        (), max_new_tokens=entry.max_new_tokens, temperature=setting.temperature, top_p=setting.top_p, law=setting.law
    )
