"""What is wrong with the ``MethodSpec`` of another package, found before anything depends on it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from itertools import chain
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from engines.errors import UsageProblem
from engines.methods.origins import ATTRIBUTES
from engines.methods.spec import MethodSpec

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def fault(spec: MethodSpec, needs: Collection[str]) -> str:
    """The first field of a spec that cannot be used, and why; "" if there is none. ``needs``: the words that are known.
    Raises Exception: whatever the spec's own functions raise."""
    if wrong := _mistyped(spec):
        return wrong
    if not _ID.fullmatch(spec.id):
        return f"its id {spec.id!r} is not of letters, digits, ., _ and -"
    names = [option.name for option in spec.options]
    if len(set(names)) < len(names):
        return "two of its options have the same name"
    words = chain(spec.needs, *spec.helped_by.values(), spec.drafts_with[1].values() if spec.drafts_with else ())
    if unknown := [word for word in words if word not in needs]:
        return f"it needs {unknown[0]!r}, which is none of {', '.join(sorted(needs))}"
    for kind in spec.origins:
        if not ATTRIBUTES.issuperset(kind.attributes.split()):
            return f"origins: the attributes {kind.attributes!r} are not of {', '.join(sorted(ATTRIBUTES))}"
    try:
        for given in ({}, *[{"budget": "paper"}] * ("budget" in names), *spec.variants, *spec.trials):
            spec.used(spec.parse(given), ())
    except UsageProblem as problem:
        return f"{problem.message}: {problem.hint}"
    return ""


def _mistyped(record: Any, where: str = "") -> str:
    """The first field of a dataclass, or of one in it, that is of another type than it says; "" if there is none."""
    hints = get_type_hints(type(record))
    for field in fields(record):
        value = getattr(record, field.name)
        if not _fits(value, hints[field.name]):
            return f"{where}{field.name} is not of the type {field.type}"
        for part in value if isinstance(value, tuple) else (value,):
            if is_dataclass(part) and not isinstance(part, type) and (wrong := _mistyped(part, f"{field.name}: ")):
                return wrong
    return ""


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type, and so is what it holds; of a dataclass the fields are not looked at."""
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if kind is Literal:
        return value in inner
    if kind is Any or kind is Callable:
        return kind is Any or callable(value)
    if kind is type:
        return isinstance(value, type) and issubclass(value, inner)
    if kind is tuple and isinstance(value, tuple):
        wanted = inner[:1] * len(value) if inner[-1] is ... else inner
        return len(value) == len(wanted) and all(map(_fits, value, wanted))
    if kind is Mapping and isinstance(value, Mapping):
        return all(_fits(key, inner[0]) and _fits(held, inner[1]) for key, held in value.items())
    return isinstance(value, int | float if kind is float else kind)
