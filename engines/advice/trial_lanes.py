"""The settings that an adviser tries: those that each method declares of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from engines import methods
from engines.methods.spec import MethodSpec
from engines.race.lanes import MODEL, Lane, make_lane

Unavailable = Callable[[MethodSpec, Mapping[str, Any], str], str]
"""Why a method cannot run here with these values of all its options, and with a draft model of this name ("": the one
that is loaded); "" where it can."""


def candidates(
    unavailable: Unavailable, model: str = "", draft_models: Sequence[str] = ()
) -> tuple[tuple[Lane, ...], dict[str, str]]:
    """Every method but the baseline with its defaults, its variants and its trials, and why methods are left out.

    Args:
        model: the target's name, for options whose defaults depend on it.
        draft_models: others to try besides the one that is loaded, by name.

    Returns:
        The lanes, each setting once, and by the id of a method the reason why none of its settings can run.
    """
    lanes: list[Lane] = []
    missing: dict[str, str] = {}
    for spec in methods.specs():
        if spec.baseline:
            continue
        parsed: list[tuple[str, dict[str, Any]]] = []
        others = draft_models if methods.DRAFT_MODEL in spec.needs else ()
        for draft, given in product(("", *others), ({}, *spec.variants, *spec.trials)):
            options = spec.parse(given, model)
            if reason := unavailable(spec, options, draft):
                missing.setdefault(spec.id, reason)
            elif (draft, options) not in parsed:
                parsed.append((draft, options))
                lanes.append(make_lane(spec.id, {MODEL: draft, **given} if draft else dict(given)))
        if parsed:
            missing.pop(spec.id, None)
    return tuple(lanes), missing
