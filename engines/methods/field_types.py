"""Whether values that another package gives are of the types that are declared for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def mistyped(record: Any, where: str = "") -> str:
    """The first field of a dataclass, or of one in it, that is of another type than it says; "" if there is none."""
    hints = get_type_hints(type(record))
    for field in fields(record):
        value = getattr(record, field.name)
        for part in value if isinstance(value, tuple) else (value,):
            if _is_record(part) and (wrong := mistyped(part, f"{field.name}: ")):
                return wrong
        if not fits(value, hints[field.name]):
            return f"{where}{field.name} is not of the type {field.type}"
    return ""


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type, and so is all that it holds."""
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return any(fits(value, one) for one in inner)
    if kind is Literal:
        return value in inner
    if kind is Any or kind is Callable:
        return kind is Any or callable(value)
    if kind is type:
        return isinstance(value, type) and issubclass(value, inner)
    if kind is tuple and isinstance(value, tuple):
        wanted = inner[:1] * len(value) if inner[-1] is ... else inner
        return len(value) == len(wanted) and all(map(fits, value, wanted))
    if kind is Mapping and isinstance(value, Mapping):
        return all(fits(key, inner[0]) and fits(held, inner[1]) for key, held in value.items())
    if kind is frozenset and isinstance(value, frozenset):
        return all(fits(held, inner[0]) for held in value)
    return isinstance(value, int | float if kind is float else kind) and not (_is_record(value) and mistyped(value))


def _is_record(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, type)
