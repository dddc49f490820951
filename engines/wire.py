"""What the engine process sends and what stands in a trace: all events as JSON, one a line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Union

from engines.advice.advice_events import AdviceEvent
from engines.datastores.datastore_events import DatastoreEvent
from engines.errors import UsageProblem
from engines.methods import specs
from engines.methods.options import Option
from engines.race.race_events import RaceEvent
from engines.report import encoding
from engines.report.encoding import to_json
from engines.report.events import RunEvent, Started
from engines.report.traces import Trace, parse_trace

__all__ = ["Event", "from_json", "read_trace", "to_json"]

Event = Union[RunEvent, DatastoreEvent, RaceEvent, AdviceEvent]
_CLASSES = encoding.union_classes(Event)


def from_json(line: bytes | str) -> Event:
    """The event of a line that ``to_json`` wrote; unknown fields are ignored. Raises ValueError: not JSON, an unknown
    event, or a field is missing or of another type."""
    return encoding.from_json(line, _CLASSES)


def read_trace(path: Path) -> Trace:
    """Read what is readable of a trace; what is not is named in ``Trace.problems``. Raises UsageProblem: there is no
    such file, it cannot be opened, or nothing in it is an event."""
    return parse_trace(path, _wrong_options)


def _wrong_options(started: Started) -> set[str]:
    """Names of the options that the method does not take with these values."""
    known = {option.name: option for spec in specs() if spec.id == started.engine for option in spec.options}
    return {name for name in known.keys() & started.options.keys() if not _takes(known[name], started.options[name])}


def _takes(option: Option, value: Any) -> bool:
    try:
        option.parse(value)
    except UsageProblem:
        return False
    return True
