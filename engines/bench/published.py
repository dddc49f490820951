"""What papers report of the methods that are here: on other models, other data and other machines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from engines import methods

FILE = Path(__file__).with_name("published.toml")

Share = Literal["MAR", "MRR", "cosine min", "cosine max", "cosine mean", "cosine median"]
"""Measures of 0..1. MAR: accepted / depth of the draft, a mean over prompts. MRR: mean reciprocal rank of a stored key.
cosine: of the residual stream before and after a sublayer."""

Measure = Literal[
    Share, "speed-up", "tokens/s", "ms/token", "tau", "M", "calls", "lookup ms", "store MB", "store tokens",
    "sublayer ms",
]
"""speed-up: over autoregressive decoding, wall clock. tau: accepted / target forwards. M: tokens / target forwards.
calls: target forwards of an answer, a mean over prompts. store MB: 10^6 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A published number.

    Attributes:
        engine: ours with this method.
        options: of the engine, beside ``budget=paper``, where the paper's are not those of ``budget=paper``.
        variant: what options do not say: the drafter, the datastore; "" where there is nothing to say.
        value: shares as 0..1.
        model, data: on which it was measured, "not named" where the paper does not say; ``hardware``: "" where the
            number does not depend on it.
        temperature: 0 is greedy decoding; None where the paper does not say. ``top_p``: of nucleus sampling.
        source: paper and table.
    """

    engine: str
    measure: Measure
    value: float
    model: str
    data: str
    hardware: str
    source: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    variant: str = ""
    temperature: float | None = None
    top_p: float = 1.0

    @property
    def where(self) -> str:
        """Paper, table and hardware."""
        return f"{self.source}: {self.hardware}" if self.hardware else self.source

    @property
    def lane_options(self) -> dict[str, Any]:
        """What a lane is given to decode as published."""
        budget = {"budget": "paper"} if any(o.name == "budget" for o in methods.find(self.engine).options) else {}
        return {**budget, **self.options}

    def is_of(self, engine: str, options: Mapping[str, Any], model: str = "") -> bool:
        """Whether a lane with these options, on a model of this name, decodes as published. Raises UsageProblem for
        an option that there is not."""
        if engine != self.engine:
            return False
        spec = methods.find(engine)
        return spec.parse(options, model) == spec.parse(self.lane_options)


@cache
def figures() -> tuple[Figure, ...]:
    """All that is known, in the order of the file. Raises ValueError where the file is not as its head says."""
    import msgspec

    tables = msgspec.toml.decode(FILE.read_bytes(), type=dict[Literal["table"], list[dict[str, Any]]])["table"]
    return tuple(figure for table in tables for figure in _of_table(table))


def _of_table(table: Mapping[str, Any]) -> Iterator[Figure]:
    """The numbers of a table, a row's fields before the table's."""
    import msgspec

    known = {f.name for f in fields(Figure)} - {"measure", "value"}
    shared = {name: value for name, value in table.items() if name != "rows"}
    for row in table["rows"]:
        given = shared | row
        values = given.pop("values")
        if odd := given.keys() - known:
            raise ValueError(f"published.toml has unknown fields: {', '.join(sorted(odd))}")
        for measure, value in values.items():
            figure = msgspec.convert({**given, "measure": measure, "value": value}, Figure)
            methods.find(figure.engine).parse(figure.options)
            if not 0 < figure.value <= (1 if measure in get_args(Share) else float("inf")):
                raise ValueError(f"published.toml, {figure.source}: {measure} of {value} can't be")
            yield figure


CAPTION = (
    "other models, other data and other machines: GPUs, on which many rows are verified for little more than the price"
    " of one. They say what a method can do, not what it should do here"
)


def of(engines: Iterable[str]) -> list[Figure]:
    """The figures of these engines, in the order of the engines."""
    order = {engine: place for place, engine in reversed(list(enumerate(engines)))}
    return sorted((f for f in figures() if f.engine in order), key=lambda f: order[f.engine])


def sources(chosen: Iterable[Figure]) -> list[str]:
    """Where these figures are from, each once, with the hardware."""
    return list(dict.fromkeys(figure.where for figure in chosen))
