"""What is wrong with the ``MethodSpec`` of another package, found before anything depends on it."""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import chain

from engines.errors import UsageProblem
from engines.methods.field_types import mistyped
from engines.methods.origins import ATTRIBUTES
from engines.methods.spec import MethodSpec

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def fault(spec: MethodSpec, needs: Collection[str]) -> str:
    """The first field of a spec that cannot be used, and why; "" if there is none. ``needs``: the words that are known.
    Raises Exception: whatever the spec's own functions raise."""
    if wrong := mistyped(spec):
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
