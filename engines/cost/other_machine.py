"""t(n) of a model on a machine that is not here: by its memory's and its processor's speed, or from a table.

Source: the roofline model (Williams et al. 2009): a pass over n tokens reads every weight once and computes two
operations per weight and token; the slower of the two decides. The cache of keys and values is left out: on long
contexts every pass takes longer, with drafts and without.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from engines.cost.curve import CostCurve
from engines.errors import UsageProblem

_ROWS = tuple(range(1, 17)) + tuple(range(18, 65, 2)) + (96, 128, 192, 256, 384, 512)
_NUMBER = re.compile(r"([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z/]*)")
_UNITS = {
    "memory": {"": 1e9, "gb/s": 1e9, "tb/s": 1e12, "mb/s": 1e6}, "flops": {"": 1e12, "tflops": 1e12, "gflops": 1e9,
    "pflops": 1e15}, "weights": {"": 1.0, "bytes": 1.0}, "overhead": {"": 1e-3, "ms": 1e-3, "us": 1e-6, "s": 1.0},
    "batch": {"": 1.0, "requests": 1.0},
}
_MOST_REQUESTS = 4096
_FORM = ("memory=1000GB/s,flops=100TFLOPS[,weights=2][,overhead=0.1ms][,batch=8], batch=8 alone for this machine with "
         "eight requests at once, or a file: lines of rows,seconds, or what spec-tui price --format json printed there")


@dataclass(frozen=True, slots=True)
class OtherMachine:
    """A machine to model.

    Attributes:
        memory: bytes a second; ``flops`` operations a second; both None where there is a ``table``.
        weights: bytes of a weight.
        overhead: seconds of a pass that nothing shortens.
        table, draft_table: t(n) of the target and of the draft model, as they were given.
        requests: that are decoded at once, in one batch.
        words: as it was asked for.
    """

    words: str
    memory: float | None = None
    flops: float | None = None
    weights: float = 2.0
    overhead: float = 0.0
    table: CostCurve | None = None
    draft_table: CostCurve | None = None
    requests: int = 1

    @property
    def here(self) -> bool:
        """Whether it is this machine, with more requests at once."""
        return self.memory is None and self.table is None

    def pass_cost(self, parameters: int | None) -> CostCurve | None:
        """t(n) of a model of so many parameters; None where that is not known, or only the target's table is."""
        if self.memory is None or self.flops is None or not parameters:
            return None
        reading, computing = parameters * self.weights / self.memory, 2 * parameters / self.flops
        return CostCurve(tuple((rows, max(reading, computing * rows) + self.overhead) for rows in _ROWS))


def parse(text: str, read: Callable[[str], str]) -> OtherMachine:
    """The machine of ``--what-if``: its numbers, or the name of a file with t(n), which ``read`` gives. Raises
    UsageProblem: neither; the message says what is wrong."""
    if not re.match(r"\s*(memory|flops|weights|overhead|batch)\s*=", text):
        target, draft = tables(read(text), text)
        return OtherMachine(text, table=target, draft_table=draft)
    found: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = (word.strip() for word in part.partition("="))
        number = _NUMBER.fullmatch(value)
        unit = number and _UNITS.get(name, {}).get(number[2].lower())
        if not equals or not unit or name in found:
            raise UsageProblem(f"--what-if: {part.strip()!r} is not understood", f"write {_FORM}")
        found[name] = float(number[1]) * unit
        if math.isinf(found[name]):
            raise UsageProblem(f"--what-if: {part.strip()} is out of range", f"write {_FORM}")
    requests = found.pop("batch", 1.0)
    if requests != int(requests) or not 1 <= requests <= _MOST_REQUESTS:
        raise UsageProblem(f"--what-if: batch={requests:g} is out of range", f"1 to {_MOST_REQUESTS} requests")
    if found and not (found.get("memory") and found.get("flops") and found.get("weights", 1)):
        raise UsageProblem("--what-if needs memory= and flops=, both above 0", f"write {_FORM}")
    return replace(OtherMachine(text), **found, requests=int(requests))


def tables(text: str, name: str) -> tuple[CostCurve, CostCurve | None]:
    """t(n) of the target, and where it is there of the draft model: of lines with rows and seconds, of a JSON list of
    such pairs, or of what ``spec-tui price --format json`` prints. Raises UsageProblem."""
    try:
        if not text.lstrip().startswith(("[", "{")):
            lines = [line.replace(",", " ").split() for line in text.splitlines()]
            return _curve([line for line in lines if line and not line[0].startswith("#")]), None
        found = json.loads(text)
        pairs, draft = (found["price"], found.get("draft_price")) if isinstance(found, dict) else (found, None)
        return _curve(pairs), _curve(draft) if draft else None
    except (ValueError, TypeError, OverflowError, KeyError, RecursionError):
        raise UsageProblem(f"{name} holds no t(n)", f"--what-if takes {_FORM}") from None


def _curve(pairs) -> CostCurve:
    return CostCurve.fit([(int(rows), float(seconds)) for rows, seconds in pairs])
