"""Dataclasses to JSON and back, checked against their type hints (msgspec).

Numbers that are not finite are null in JSON. Where a number must be, null comes back as nan.
"""

from __future__ import annotations

import json
import math
import typing
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import msgspec
from msgspec.inspect import DataclassType, FloatType, NoneType, TupleType, UnionType, VarTupleType, type_info

_ENCODER = msgspec.json.Encoder()


class _Tag(msgspec.Struct):
    event: str


_TAG_DECODER = msgspec.json.Decoder(_Tag)
_decoder = cache(msgspec.json.Decoder)


def _nesting_refused(reader: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, for which data that is nested too deeply is a ValueError."""
    @wraps(reader)
    def read(*given: Any) -> Any:
        try:
            return reader(*given)
        except RecursionError:
            raise ValueError("nested too deeply") from None
    return read


def encode(value: Any) -> bytes:
    """A dataclass or struct as one line of JSON in UTF-8, without the line end."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:  # lone surrogates, which UTF-8 cannot hold, become JSON escapes
        data = _without_nan(msgspec.to_builtins(value))
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


@_nesting_refused
def decode(cls: Any, line: bytes | str) -> Any:
    """The value of a line of JSON; unknown fields are ignored.

    Raises:
        UnicodeDecodeError: not UTF-8.
        ValueError: not JSON, nested too deeply, or a field is missing or of another type.
    """
    try:
        return _decoder(cls).decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return build(cls, _unusual_json(line))


def plain(value: Any) -> Any:
    """A value, with all dataclasses in it, as plain JSON data: objects, lists, numbers, texts."""
    return json.loads(encode(value))


@_nesting_refused
def build(cls: type, data: Any) -> Any:
    """The dataclass of plain JSON data; unknown fields are ignored. Raises ValueError: it is nested too
    deeply, or a field is missing or of another type."""
    try:
        return msgspec.convert(data, cls)
    except msgspec.ValidationError:
        return msgspec.convert(_with_nan(data, type_info(cls)), cls)


def to_json(event: Any) -> bytes:
    """A dataclass as one line of JSON in UTF-8, without the line end; ``"event"`` names its class."""
    fields = encode(event)[1:]
    return b'{"event":"%s"%s%s' % (type(event).__name__.encode(), b"," * (fields != b"}"), fields)


@_nesting_refused
def from_json(line: bytes | str, classes: dict[str, type]) -> Any:
    """The event of a line that ``to_json`` wrote, if it is one of these classes (by name). Unknown fields are ignored,
    so that traces of a newer version stay readable.

    Raises:
        UnicodeDecodeError: not UTF-8.
        ValueError: not JSON, nested too deeply, an unknown event, or a field is missing or of another type.
    """
    try:
        return _decoder(classes[_TAG_DECODER.decode(line).event]).decode(line)
    except (KeyError, msgspec.DecodeError, UnicodeDecodeError):
        record = _unusual_json(line)
    name = record.get("event") if isinstance(record, dict) else None
    if not isinstance(name, str) or name not in classes:
        raise ValueError("not an event")
    return build(classes[name], record)


def union_classes(union: Any) -> dict[str, type]:
    """The classes of a union, by name."""
    return {cls.__name__: cls for cls in typing.get_args(union)}


def _unusual_json(line: bytes | str) -> Any:
    """What msgspec does not read: lone surrogates, and numbers that are not finite. Raises UnicodeDecodeError,
    ValueError where it is not JSON, and RecursionError."""
    try:
        return json.loads(line if isinstance(line, str) else line.decode())
    except json.JSONDecodeError:
        raise ValueError("not JSON") from None


def _without_nan(data: Any) -> Any:
    """The same data with None for numbers that are not finite."""
    if isinstance(data, dict):
        return {key: _without_nan(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_without_nan(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def _with_nan(data: Any, kind: Any) -> Any:
    """The same data with nan for None where a type (of ``msgspec.inspect``) wants a number."""
    if data is None:
        return math.nan if isinstance(kind, FloatType) else None
    if isinstance(kind, UnionType):
        kind = next(choice for choice in kind.types if not isinstance(choice, NoneType))
    if isinstance(kind, DataclassType) and isinstance(data, dict):
        kinds = {field.encode_name: field.type for field in kind.fields}
        return {key: _with_nan(value, kinds.get(key)) for key, value in data.items()}
    if isinstance(kind, VarTupleType) and isinstance(data, list):
        return [_with_nan(value, kind.item_type) for value in data]
    if isinstance(kind, TupleType) and isinstance(data, list):
        return [_with_nan(value, item) for value, item in zip(data, kind.item_types)] + data[len(kind.item_types):]
    return data
