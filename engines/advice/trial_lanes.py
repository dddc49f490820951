"""The settings that an adviser tries: those that each method declares of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engines import methods
from engines.methods.spec import MethodSpec
from engines.race.lanes import Lane, make_lane

Unavailable = Callable[[MethodSpec, Mapping[str, Any]], str]
"""Why a method cannot run here with these values of all its options; "" where it can."""


def candidates(unavailable: Unavailable, model: str = "") -> tuple[tuple[Lane, ...], dict[str, str]]:
    """Every method but the baseline with its defaults, its variants and its trials, and why methods are left out.

    Args:
        model: the target's name, for options whose defaults depend on it.

    Returns:
        The lanes, each setting once, and by the id of a method the reason why none of its settings can run.
    """
    lanes: list[Lane] = []
    missing: dict[str, str] = {}
    for spec in methods.specs():
        if spec.baseline:
            continue
        parsed: list[dict[str, Any]] = []
        for given in ({}, *spec.variants, *spec.trials):
            options = spec.parse(given, model)
            if reason := unavailable(spec, options):
                missing.setdefault(spec.id, reason)
            elif options not in parsed:
                parsed.append(options)
                lanes.append(make_lane(spec.id, dict(given)))
        if parsed:
            missing.pop(spec.id, None)
    return tuple(lanes), missing
