"""What the engine process says about datastores: which fit, how a build goes, what a lookup finds. Plain data, part of
``events.Event``; all text in it is untrusted."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Stocked:
    """The datastores at hand that fit the model now, as in ``Ready.datastores``. ``removed`` names the one that was
    just deleted, "" for none."""

    datastores: tuple[str, ...]
    removed: str = ""


@dataclass(frozen=True, slots=True)
class Building:
    """How far an estimate or a build has come; the other fields are those of ``datastores.pace.Step``."""

    name: str
    stage: str
    done: int
    total: int | None
    unit: str
    rate: float | None = None
    left: float | None = None


@dataclass(frozen=True, slots=True)
class Estimated:
    """What a build will take, None where that is not known (``datastores.order.Outlook``).

    Attributes:
        name: of the datastore.
        tokens, size, building, seconds, most: as in ``Outlook``.
        free: bytes that the disk has left.
        skipped: how many files are left out, by reason.
    """

    name: str
    tokens: int | None
    size: int | None
    building: int | None
    seconds: float | None
    most: bool
    free: int
    skipped: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Built:
    """A datastore is complete: what it holds, bytes, and the seconds that this part of its building took."""

    name: str
    kind: str
    tokens: int
    documents: int
    keys: int
    size: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Refused:
    """What was asked about a datastore could not be done. ``do``: estimate, build, probe or remove; ``kind`` as in
    ``Failed``, "cancelled" where somebody stopped it."""

    do: str
    name: str
    message: str
    hint: str = ""
    kind: str = "failed"


@dataclass(frozen=True, slots=True)
class FoundPassage:
    """Where something stands.

    Attributes:
        source: file, prompt, or what else the document came from.
        line: of the source, None where it has no lines.
        before, after: the text around.
    """

    source: str
    line: int | None
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class ProbeNode:
    """A node of the trie, depth first: token and text, index of its parent (-1: the root), how many continuations go
    through it, its share of its parent's, and one of the places."""

    token: int
    text: str
    parent: int
    count: int
    prob: float
    found: FoundPassage


@dataclass(frozen=True, slots=True)
class SparseProbe:
    """What ``rest`` would draft: the matched suffix, tokens and text; its occurrences; the heaviest nodes; seconds of
    the lookup."""

    matched: int
    suffix: str
    occurrences: int
    nodes: tuple[ProbeNode, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Neighbour:
    """One continuation: dot product of the keys, distance between them (where they have unit length, 0 to 2), how many
    neighbours go on so, tokens and text, and the place."""

    score: float
    distance: float
    count: int
    tokens: tuple[int, ...]
    text: str
    found: FoundPassage


@dataclass(frozen=True, slots=True)
class DenseProbe:
    """What ``dresd`` would draft: neighbours looked at, how many begin with the last token, the nearest of those;
    seconds of the lookup. ``remark``: why not the index that was built answered; "" if it did."""

    candidates: int
    matching: int
    neighbours: tuple[Neighbour, ...]
    remark: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Probed:
    """What a datastore has to say after a text, or after it as the beginning of the answer to ``prompt``; None for a
    part that it has not. ``tokens`` counts what was read."""

    name: str
    text: str
    prompt: str | None
    tokens: int
    sparse: SparseProbe | None = None
    dense: DenseProbe | None = None


StockEvent = Stocked | Building | Estimated | Built | Refused | Probed
