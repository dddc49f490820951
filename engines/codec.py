"""Frozen dataclasses to plain JSON data and back, checked against their type hints.

Both ways are walked for every round of a run, the way out by the process that decodes, the way back by the one that
draws. So fields and hints are read once a class, and what is left to do is left to C.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable
from functools import cache
from operator import attrgetter
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


def text(value: Any, **more: Any) -> str:
    """One line of JSON: what ``plain`` says of a dataclass, with ``more`` before it."""
    try:
        return _ENCODE({**more, **_record(value)})
    except ValueError:  # a number that is not finite
        return _ENCODE({**more, **plain(value)})


def _record(value: Any) -> dict[str, Any]:
    """The fields of a dataclass; what is in them is left as it is."""
    names, get = _fields(type(value))
    return dict(zip(names, get(value)))


@cache
def _fields(cls: type) -> tuple[tuple[str, ...], Callable[[Any], tuple]]:
    if not dataclasses.is_dataclass(cls):
        raise TypeError(f"{cls.__name__} is not JSON data")
    names = tuple(f.name for f in dataclasses.fields(cls))
    if len(names) > 1:
        return names, attrgetter(*names)
    return names, lambda value: tuple(getattr(value, name) for name in names)


_ENCODE = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"), default=_record
).encode


def build(cls: type, record: Any) -> Any:
    """The dataclass of plain data, unknown fields ignored. Raises ValueError where a field is missing or misshapen."""
    return _reader(cls)(record)


Reader = Callable[[Any], Any]


@cache
def _reader(hint: Any) -> Reader:
    """What makes a value of this type hint of plain data, or raises ValueError."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        some = _reader(next(a for a in args if a is not type(None)))
        return (lambda value: None if value is None else some(value)) if type(None) in args else some
    if origin is tuple:
        return _many(args[0]) if len(args) == 2 and args[1] is Ellipsis else _row(args)
    if dataclasses.is_dataclass(hint):
        return _fields_of(hint)
    if origin is Literal:
        return _one_of(args)
    return _number if hint is float else _instance({int: int, str: str, bool: bool}.get(hint, origin or object))


def _fields_of(cls: type) -> Reader:
    hints = typing.get_type_hints(cls)
    readers = {f.name: _reader(hints[f.name]) for f in dataclasses.fields(cls)}

    def read(record: Any) -> Any:
        if not isinstance(record, dict):
            raise ValueError(f"{cls.__name__}: expected an object")
        try:
            return cls(**{name: readers[name](value) for name, value in record.items() if name in readers})
        except TypeError as error:
            raise ValueError(f"{cls.__name__}: {error}") from None

    return read


def _many(hint: Any) -> Reader:
    read = _reader(hint)
    args = typing.get_args(hint)
    as_they_are = {hint, *args} & {int, str, float, bool}
    if as_they_are and args:
        as_they_are = as_they_are | {type(None)} if type(None) in args else set()

    def read_all(value: Any) -> tuple:
        if not isinstance(value, list):
            raise ValueError("expected a list")
        return tuple(value) if as_they_are.issuperset(map(type, value)) else tuple(map(read, value))

    return read_all


def _row(hints: tuple) -> Reader:
    readers = tuple(map(_reader, hints))

    def read(value: Any) -> tuple:
        if not isinstance(value, list):
            raise ValueError("expected a list")
        if len(value) != len(readers):
            raise ValueError("list of the wrong length")
        return tuple(reader(v) for reader, v in zip(readers, value))

    return read


def _one_of(values: tuple) -> Reader:
    def read(value: Any) -> Any:
        if value not in values:
            raise ValueError(f"{value!r} is none of {values}")
        return value

    return read


def _instance(cls: type) -> Reader:
    cls = dict if cls is dict else cls if cls in (int, str, bool) else object

    def read(value: Any) -> Any:
        if type(value) is not cls and (not isinstance(value, cls) or (cls is int and isinstance(value, bool))):
            raise ValueError(f"expected {cls.__name__}, got {type(value).__name__}")
        return value

    return read


def _number(value: Any) -> float:
    if type(value) is float:
        return value
    if value is not None and type(value) is not int:
        raise ValueError(f"expected a number, got {type(value).__name__}")
    try:
        return float("nan") if value is None else float(value)
    except OverflowError:
        raise ValueError("a number larger than any float") from None
