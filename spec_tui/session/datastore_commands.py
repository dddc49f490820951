"""Commands about datastores, as they go to the engine, and how the engine executes them.

Their failures are ``Refused``, never ``Failed``, so that they cannot be taken for those of a run.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from engines import codec
from engines.datastores.events import Building, Refused, StockEvent
from engines.errors import SpecError, UsageProblem

if TYPE_CHECKING:
    from engines.datastores.building.build_spec import BuildSpec
    from engines.datastores.building.datastore_service import DatastoreService
    from engines.datastores.building.progress import BuildProgress

LOOK: dict[str, Any] = {"do": "stores"}
"""Which datastores fit? ``Stocked``."""
AT_ONCE = ("stores", "probe", "remove")  # nothing to stop
COMMANDS = (*AT_ONCE, "estimate", "build")
_EVERY = 0.1  # seconds between two steps of a stage that are told


def estimate_command(order: BuildSpec) -> dict[str, Any]:
    """What will this take? ``Building``..., then ``Estimated`` or ``Refused``."""
    return {"do": "estimate", "order": codec.plain(order)}


def build_command(order: BuildSpec, fresh: bool = False) -> dict[str, Any]:
    """Build this; ``fresh`` drops an unfinished build. ``Building``..., ``Built`` and ``Stocked``, or ``Refused``."""
    return {"do": "build", "order": codec.plain(order), "fresh": fresh}


def probe_command(name: str, text: str, prompt: str | None = None) -> dict[str, Any]:
    """What would be drafted after this text? ``Probed`` or ``Refused``."""
    return {"do": "probe", "name": name, "text": text, "prompt": prompt}


def remove_command(name: str) -> dict[str, Any]:
    """Delete this. ``Stocked`` or ``Refused``."""
    return {"do": "remove", "name": name}


class _Stopped(BaseException):
    """Leaves a build by way of its progress; not an Exception, so that nothing on its way mistakes it for its own."""


def execute(
    record: dict[str, Any], workshop: Callable[[], DatastoreService], emit: Callable[[StockEvent], None],
    stopped: Callable[[], bool],
) -> None:
    """Do what a command says; every end of it is an event."""
    do, name = record["do"], str(record.get("name") or (record.get("order") or {}).get("name", ""))
    try:
        _execute(record, workshop(), name, emit, stopped)
    except SpecError as error:
        emit(Refused(do, name, error.message, error.hint, error.kind))
    except _Stopped:
        what, hint = (name, "what is done stays, and can be gone on with") if do == "build" else ("the estimate", "")
        emit(Refused(do, name, f"{what} was stopped", hint, "cancelled"))


def _execute(
    record: dict[str, Any], workshop: DatastoreService, name: str, emit: Callable[[StockEvent], None],
    stopped: Callable[[], bool],
) -> None:
    do = record["do"]
    if do == "stores":
        emit(workshop.stocked())
    elif do == "probe":
        emit(workshop.probe(name, record["text"], record["prompt"]))
    elif do == "remove":
        emit(workshop.remove(name))
    else:
        order, told = _order(record["order"]), _Teller(name, emit, stopped)
        if do == "estimate":
            emit(workshop.estimate(order, told))
        else:
            emit(workshop.build(order, told, record["fresh"]))
            emit(workshop.stocked())


def _order(record: dict[str, Any]) -> BuildSpec:
    from engines.datastores.building.build_spec import BuildSpec

    try:
        return codec.build(BuildSpec, record)
    except ValueError as error:
        raise UsageProblem(f"this is no order of a datastore: {error}", "fill in the form again") from None


class _Teller:
    """Tells some of the steps, and leaves the build once it is stopped."""

    def __init__(self, name: str, emit: Callable[[StockEvent], None], stopped: Callable[[], bool]) -> None:
        self._name, self._emit, self._stopped = name, emit, stopped
        self._stage, self._at = "", 0.0

    def __call__(self, step: BuildProgress) -> None:
        if self._stopped():
            raise _Stopped
        if step.stage != self._stage or monotonic() - self._at >= _EVERY or step.done == step.total:
            self._stage, self._at = step.stage, monotonic()
            self._emit(Building(self._name, step.stage, step.done, step.total, step.unit, step.rate, step.left))
