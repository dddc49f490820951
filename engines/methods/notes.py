"""What methods remark on a round: typed, in each method's room; plain JSON on the wire (``Round.note``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Self, get_type_hints


def labelled(label: str) -> Any:
    """A field of a note that is None where it is not known, with its words on a screen; "" where no screen lists it."""
    return field(default=None, metadata={"label": label})


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Remarks of a drafter on its draft; a method adds fields of its own. ``draft_forwards``: forward passes of the
    draft model, or of the part of the target that drafts."""

    draft_forwards: int | None = labelled("draft forward passes")

    def plain(self) -> dict[str, Any]:
        """What is known, as JSON data."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in found.items() if value is not None}

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        """The note of plain data, which may come from a file: a field of another type is not known."""
        import msgspec

        found = {}
        for name, hint in _hints(cls).items():
            if name in data:
                try:
                    found[name] = msgspec.convert(data[name], hint)
                except msgspec.ValidationError:
                    continue
        return cls(**found)

    def labels(self) -> list[tuple[str, Any]]:
        """Words and values of what is known, as a screen lists them."""
        known = ((f.metadata.get("label", ""), getattr(self, f.name)) for f in fields(self))
        return [(label, value) for label, value in known if label and value is not None]


@cache
def _hints(note: type[Note]) -> dict[str, Any]:
    return get_type_hints(note)
