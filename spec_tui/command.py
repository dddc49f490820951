"""Command lines that do what was done on a screen."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from spec_tui.session.client import LoadRequest

if TYPE_CHECKING:
    from engines.datastores.order import Order


def build_line(order: Order, load: LoadRequest) -> str:
    """``spec-tui datastore build`` with everything that differs from its defaults."""
    words = ["spec-tui", "datastore", "build", order.name]
    for source in order.sources:
        words += ["--from", source]
    words += _given(order, ("kind", "prompts", "answers", "temperature", "max_new_tokens", "system", "engine", "limit"))
    recipe = order.recipe
    words += _given(recipe, ("dims",)) + ["--no-z-norm"] * (not recipe.z_norm) + ["--no-unit-norm"] * (
        not recipe.unit_norm)  # fmt: skip
    return shlex.join([*words, *_given(order, ("index", "sample", "window")), *_models(load)])


def probe_line(name: str, text: str, prompt: str | None, load: LoadRequest) -> str:
    """``spec-tui datastore probe``; a text may begin with a dash."""
    asked = [] if prompt is None else [f"--prompt={prompt}"]
    models = _models(replace(load, draft_model=None, draft_revision=None))
    return shlex.join(["spec-tui", "datastore", "probe", "--datastore", name, *asked, *models, "--", text])


def chat_line(names: Iterable[str], load: LoadRequest) -> str:
    """``spec-tui`` with these datastores."""
    stores = [word for name in names for word in ("--datastore", name)]
    return shlex.join(["spec-tui", *stores, *_models(load)])


def _given(what: object, names: tuple[str, ...]) -> list[str]:
    """Options of the fields that differ from their defaults."""
    defaults = {f.name: f.default for f in fields(what)}
    given = [(name, getattr(what, name)) for name in names if getattr(what, name) != defaults[name]]
    return [word for name, value in given for word in (f"--{name.replace('_', '-')}", str(value))]


def _models(load: LoadRequest) -> list[str]:
    named = _given(load, ("model", "draft_model", "dtype", "device", "revision", "draft_revision"))
    return named + ["--allow-pickle"] * load.allow_pickle + ["--trust-remote-code"] * load.trust_remote_code
