"""What the engine process reports about datastores: which fit, how a build goes, what a probe drafts.

Plain data, part of the union of all events. All text in it is untrusted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engines.progress import BuildProgress
from engines.report.events import DatastoreInfo, Draft, Retrieval


@dataclass(frozen=True, slots=True)
class DatastoreList:
    """The datastores that fit the model now, as in ``Ready.datastores``. ``removed`` names the one that was just
    deleted, "" for none."""

    datastores: tuple[DatastoreInfo, ...]
    removed: str = ""


@dataclass(frozen=True, slots=True)
class Building:
    """How far an estimate or a build of the datastore ``name`` has come."""

    name: str
    step: BuildProgress


@dataclass(frozen=True, slots=True)
class BuildEstimate:
    """What a build will take; None for what is not known.

    Attributes:
        tokens: of the datastore.
        size: bytes of the datastore.
        building: bytes on the disk while it is built.
        seconds: in all.
        upper_bound: the other numbers are the most that it can be.
    """

    tokens: int | None
    size: int | None = None
    building: int | None = None
    seconds: float | None = None
    upper_bound: bool = False


@dataclass(frozen=True, slots=True)
class Estimated:
    """The estimate of the build of ``name``; ``free`` bytes are left on the disk, and ``skipped`` counts the files or
    rows that are left out, by reason."""

    name: str
    estimate: BuildEstimate
    free: int
    skipped: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Built:
    """A datastore is complete. ``size`` in bytes; ``seconds`` of this part of its building."""

    name: str
    kind: str
    tokens: int
    documents: int
    keys: int
    size: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ProbeDraft:
    """What a method would draft from one datastore.

    Attributes:
        method, title: of the method: its id and its title.
        remark: why the index that was built could not be searched; "" if it was.
    """

    method: str
    title: str
    draft: Draft
    retrieval: Retrieval
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Probed:
    """What would be drafted from the datastore ``name`` after a text, or after it as the beginning of the answer to
    ``prompt``.

    Attributes:
        tokens: how many tokens the text, or the prompt with the text, has.
        pieces: labels of the last tokens that the drafts follow, the root last.
        drafts: one for each part of the datastore that fits the model.
    """

    name: str
    text: str
    prompt: str | None
    tokens: int
    pieces: tuple[str, ...] = ()
    drafts: tuple[ProbeDraft, ...] = ()


DatastoreEvent = DatastoreList | Building | Estimated | Built | Probed
