"""What a client asks of an engine, as data, and the lines of JSON that go both ways.

A command is a job of the engine. In its line ``"do"`` names it and ``"job"`` is its id; the events that answer it carry
the same id. A job is over with an event of its command's ``ends``, or with ``Failed``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Union

import msgspec

from engines.advice.advice_events import AdviceFinished
from engines.datastores.datastore_events import DatastoreList, Estimated, Probed
from engines.methods.llama_cpp import SPEC as LLAMA_CPP
from engines.model.load_options import LoadOptions, option
from engines.race.lanes import Race
from engines.race.race_events import RaceFinished
from engines.report import encoding
from engines.report.answer import Answer
from engines.report.events import Audited, Finished, PriceMeasured, Ready
from engines.request import Request
from engines.wire import Event, from_json, to_json


@dataclass(frozen=True, slots=True)
class LoadRequest(LoadOptions):
    """Models to load, or another program that has one: then ``model`` is what audits its answers. ``fetch``: ``model``
    is a known one, to be got first where it is not here."""

    backend: str = option(
        "", f"Run --model FILE.gguf in another program, which drafts in its own way: {LLAMA_CPP.host}.", metavar="NAME")
    server: str | None = option(
        None, "Use the model of a server instead of loading one: http://HOST:PORT. With --model, the model loaded here "
              "audits its answers.", metavar="URL")
    served_model: str | None = option(None, "The server's model, if it has several.", metavar="NAME")
    api_key_env: str | None = option(None, "Environment variable that holds the server's key.", metavar="NAME")
    fetch: bool = False

    @property
    def elsewhere(self) -> bool:
        """Whether another program has the model."""
        return self.server is not None or bool(self.backend)


class Load(msgspec.Struct, frozen=True, tag_field="do", tag="load"):
    """Load models: ``Loading``..., then ``Ready``."""

    ends: ClassVar = Ready
    request: LoadRequest


class Run(msgspec.Struct, frozen=True, tag_field="do", tag="run"):
    """Start a run: ``Started``, ``Prefilled``, ``Round``..., then ``Finished`` (of one that was stopped, too)."""

    ends: ClassVar = Finished
    request: Request


class Audit(msgspec.Struct, frozen=True, tag_field="do", tag="audit"):
    """Check an answer: ``Auditing``..., then ``Audited``."""

    ends: ClassVar = Audited
    answer: Answer


class MeasurePrice(msgspec.Struct, frozen=True, tag_field="do", tag="price"):
    """Measure t(n) of the served model from outside (``Capabilities.asks_price``): ``Pricing``..., then
    ``PriceMeasured``."""

    ends: ClassVar = PriceMeasured


class StartRace(msgspec.Struct, frozen=True, tag_field="do", tag="race"):
    """Start a race: the events of ``engines.race.race_events``. Those of its runs come when the last of them is over,
    unless it is live."""

    ends: ClassVar = RaceFinished
    race: Race


class StartAdvice(msgspec.Struct, frozen=True, tag_field="do", tag="advise"):
    """Look for the best engine and settings on these prompts (a ``Suite``, or the JSON data of one), within so many
    seconds: the events of ``engines.advice.advice_events``, and for each round those of its race."""

    ends: ClassVar = AdviceFinished
    suite: Any
    request: Request
    seconds: float


class ListDatastores(msgspec.Struct, frozen=True, tag_field="do", tag="stores"):
    """Which datastores fit?"""

    ends: ClassVar = DatastoreList


class EstimateDatastore(msgspec.Struct, frozen=True, tag_field="do", tag="estimate"):
    """What will this build take? ``Building``..., then ``Estimated``.

    ``spec`` is a ``BuildSpec``, or the JSON data of one: its module is heavy, and a screen does without it.
    """

    ends: ClassVar = Estimated
    spec: Any


class BuildDatastore(msgspec.Struct, frozen=True, tag_field="do", tag="build"):
    """Build this (``spec`` as in ``EstimateDatastore``); ``fresh`` drops an unfinished build. ``Building``..., then
    ``Built`` and ``DatastoreList``."""

    ends: ClassVar = DatastoreList
    spec: Any
    fresh: bool = False


class ProbeDatastore(msgspec.Struct, frozen=True, tag_field="do", tag="probe"):
    """What would be drafted after this text?"""

    ends: ClassVar = Probed
    name: str
    text: str
    prompt: str | None = None


class RemoveDatastore(msgspec.Struct, frozen=True, tag_field="do", tag="remove"):
    """Delete this datastore."""

    ends: ClassVar = DatastoreList
    name: str


class Cancel(msgspec.Struct, frozen=True, tag_field="do", tag="cancel"):
    """Stop the job whose id stands in the line: a run after the round under way, loading at its next report."""


class Close(msgspec.Struct, frozen=True, tag_field="do", tag="close"):
    """End the engine."""


DatastoreCommand = Union[ListDatastores, EstimateDatastore, BuildDatastore, ProbeDatastore, RemoveDatastore]
AT_ONCE = ListDatastores | ProbeDatastore | RemoveDatastore
"""What takes so little time that there is nothing to stop."""
Command = Union[Load, Run, Audit, MeasurePrice, StartRace, StartAdvice, DatastoreCommand, Cancel, Close]


def command_line(job: int, command: Command) -> bytes:
    """One line, with its end."""
    return _line(job, encoding.encode(command))


def read_command(line: bytes) -> tuple[int, Command]:
    """Id and command of a line. Raises ValueError where it has none."""
    job, data = _parts(line)
    return job, encoding.decode(Command, data)


def event_line(job: int, event: Event) -> bytes:
    """One line, with its end."""
    return _line(job, to_json(event))


def read_event(line: bytes) -> tuple[int, Event]:
    """Id and event of a line. Raises ValueError where it has none."""
    job, data = _parts(line)
    return job, from_json(data)


def _line(job: int, data: bytes) -> bytes:
    return b'{"job":%d,%s\n' % (job, data[1:])


def _parts(line: bytes) -> tuple[int, bytes]:
    head, _, rest = line.partition(b",")
    return int(head.removeprefix(b'{"job":')), b"{" + rest
