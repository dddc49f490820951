"""What a client asks of an engine, as data: a command is one line of JSON, in which ``"do"`` names it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Union

import msgspec

from engines.model.load_options import LoadOptions
from engines.race.lanes import Race
from engines.report import encoding
from engines.report.answer import Answer
from engines.request import Request


@dataclass(frozen=True, slots=True)
class LoadRequest(LoadOptions):
    """Models to load, by the names that ``engines.hub.model_source.locate`` takes; None takes the default. dtype and
    device "auto" or a name. ``server`` is the address of one that holds the model, ``api_key_env`` the environment
    variable with its key, ``served_model`` which of its models; ``backend`` the program that is to run a file here, ""
    for this one. Of a model in another program ``model`` is what audits its answers. ``fetch``: ``model``
    is a known one, to be got first where it is not here."""

    server: str | None = None
    api_key_env: str | None = None
    backend: str = ""
    served_model: str | None = None
    fetch: bool = False


class Load(msgspec.Struct, frozen=True, tag_field="do", tag="load"):
    """Load models."""

    request: LoadRequest


class Run(msgspec.Struct, frozen=True, tag_field="do", tag="run"):
    """Start a run."""

    request: Request


class Audit(msgspec.Struct, frozen=True, tag_field="do", tag="audit"):
    """Check an answer."""

    answer: Answer


class MeasurePrice(msgspec.Struct, frozen=True, tag_field="do", tag="price"):
    """Measure t(n) of the served model from outside (``Capabilities.asks_price``)."""


class StartRace(msgspec.Struct, frozen=True, tag_field="do", tag="race"):
    """Start a race."""

    race: Race


class StartAdvice(msgspec.Struct, frozen=True, tag_field="do", tag="advise"):
    """Look for the best engine and settings on these prompts (a ``Suite``, or the JSON data of one), within so many
    seconds."""

    suite: Any
    request: Request
    seconds: float


class ListDatastores(msgspec.Struct, frozen=True, tag_field="do", tag="stores"):
    """Which datastores fit? ``DatastoreList`` answers."""


class EstimateDatastore(msgspec.Struct, frozen=True, tag_field="do", tag="estimate"):
    """What will this build take? ``Building``..., then ``Estimated`` or ``Refused``.

    ``spec`` is a ``BuildSpec``, or the JSON data of one: its module is heavy, and a screen does without it.
    """

    spec: Any


class BuildDatastore(msgspec.Struct, frozen=True, tag_field="do", tag="build"):
    """Build this (``spec`` as in ``EstimateDatastore``); ``fresh`` drops an unfinished build. ``Building``..., then
    ``Built`` and ``DatastoreList``, or ``Refused``."""

    spec: Any
    fresh: bool = False


class ProbeDatastore(msgspec.Struct, frozen=True, tag_field="do", tag="probe"):
    """What would be drafted after this text? ``Probed`` or ``Refused``."""

    name: str
    text: str
    prompt: str | None = None


class RemoveDatastore(msgspec.Struct, frozen=True, tag_field="do", tag="remove"):
    """Delete this datastore. ``DatastoreList`` or ``Refused``."""

    name: str


class Cancel(msgspec.Struct, frozen=True, tag_field="do", tag="cancel"):
    """Stop the run, race, evaluation, audit or build under way; without any, the loading."""


class Close(msgspec.Struct, frozen=True, tag_field="do", tag="close"):
    """End the engine."""


DatastoreCommand = Union[ListDatastores, EstimateDatastore, BuildDatastore, ProbeDatastore, RemoveDatastore]
Command = Union[Load, Run, Audit, MeasurePrice, StartRace, StartAdvice, DatastoreCommand, Cancel, Close]


def command_line(command: Command) -> bytes:
    """One line, with its end."""
    return encoding.encode(command) + b"\n"


def read_command(line: bytes) -> Command:
    """The command of a line. Raises ValueError where it is none."""
    return encoding.decode(Command, line)
