"""Frozen dataclasses to plain JSON data and back, checked against their type hints."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, Literal, Union


def plain(value: Any) -> Any:
    """JSON data of a dataclass and what is in it; non-finite numbers become None."""
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def build(cls: type, record: Any) -> Any:
    """The dataclass of plain data, unknown fields ignored. Raises ValueError where a field is missing or misshapen."""
    if not isinstance(record, dict):
        raise ValueError(f"{cls.__name__}: expected an object")
    hints = _hints(cls)
    known = {f.name for f in dataclasses.fields(cls)}
    try:
        return cls(**{name: _typed(hints[name], v) for name, v in record.items() if name in known})
    except TypeError as error:
        raise ValueError(f"{cls.__name__}: {error}") from None


def _typed(hint: Any, value: Any) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        return _typed(next(a for a in args if a is not type(None)), value)
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError("expected a list")
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(_typed(args[0], v) for v in value)
        if len(args) != len(value):
            raise ValueError("list of the wrong length")
        return tuple(_typed(a, v) for a, v in zip(args, value))
    if dataclasses.is_dataclass(hint):
        return build(hint, value)
    return _scalar(hint, origin, args, value)


def _scalar(hint: Any, origin: Any, args: tuple, value: Any) -> Any:
    if origin is Literal:
        if value not in args:
            raise ValueError(f"{value!r} is none of {args}")
        return value
    if hint is float:
        return _number(value)
    expected = {int: int, str: str, bool: bool}.get(hint, dict if origin is dict else object)
    if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
        raise ValueError(f"expected {getattr(expected, '__name__', expected)}, got {type(value).__name__}")
    return value


def _number(value: Any) -> float:
    if value is not None and type(value) not in (int, float):
        raise ValueError(f"expected a number, got {type(value).__name__}")
    try:
        return float("nan") if value is None else float(value)
    except OverflowError:
        raise ValueError("a number larger than any float") from None


_HINTS: dict[type, dict[str, Any]] = {}


def _hints(cls: type) -> dict[str, Any]:
    if cls not in _HINTS:
        _HINTS[cls] = typing.get_type_hints(cls)
    return _HINTS[cls]
