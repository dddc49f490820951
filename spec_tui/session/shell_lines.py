"""Command lines that do what was done on a screen."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from engines.model.load_options import flag
from spec_tui.session.engine_commands import LoadRequest

if TYPE_CHECKING:
    from engines.datastores.building.build_spec import BuildSpec
    from engines.race.lanes import Lane, Race
    from engines.request import Request
from engines.report.events import SAMPLING_FIELDS


def build_line(order: BuildSpec, load: LoadRequest) -> str:
    """``spec-tui datastore build`` with everything that differs from its defaults."""
    words = ["spec-tui", "datastore", "build", order.name]
    for source in order.sources:
        words += ["--from", source]
    words += ["--columns", ",".join(order.columns)] * bool(order.columns)
    words += _given(order, ("kind", "prompts", "answers", "temperature", "top_p", "max_new_tokens", "system", "engine",
                            "limit", "document_limit"))
    words += ["--with-prompts"] * order.with_prompts
    recipe = order.recipe
    words += _given(recipe, ("dims",)) + ["--no-z-norm"] * (not recipe.z_norm) + ["--no-unit-norm"] * (
        not recipe.unit_norm)  # fmt: skip
    return shlex.join([*words, *_given(order, ("index", "sample", "window")), *_models(load)])


def probe_line(name: str, text: str, prompt: str | None, load: LoadRequest) -> str:
    """``spec-tui datastore probe``; a text may begin with a dash."""
    asked = [] if prompt is None else [f"--prompt={prompt}"]
    models = _models(load.of_target())
    return shlex.join(["spec-tui", "datastore", "probe", "--datastore", name, *asked, *models, "--", text])


def chat_line(names: Iterable[str], load: LoadRequest, engine: Iterable[str] = ()) -> str:
    """``spec-tui`` with these datastores, and with the options of an engine."""
    return shlex.join(["spec-tui", *engine, *_stores(names), *_models(load)])


def engine_line(lane: Lane, request: Request, load: LoadRequest) -> str:
    """``spec-tui`` with the engine, the options and the datastores of a lane."""
    words = ["--engine", lane.engine]
    for name, value in lane.options.items():
        words += ["--set", f"{name}={str(value).lower() if isinstance(value, bool) else value}"]
    if lane.draft_model:
        load = replace(load, draft_model=lane.draft_model, draft_revision=None)
    return chat_line(lane.datastores or request.datastores, load, words)


def compare_line(race: Race, load: LoadRequest) -> str:
    """``spec-tui compare`` that holds this race of one prompt; a prompt may begin with a dash."""
    request = race.request
    turns = [*request.conversation, *(("user", turn) for turns in race.prompts for turn in turns)]
    words = [word for lane in race.lanes for word in ("--engine", lane.label)]
    words += ["--repeats", str(race.repeats)]
    words += _given(request, ("law", *SAMPLING_FIELDS, "seed", "max_new_tokens"))
    words += [f"--system={text}" for role, text in turns if role == "system"] + ["--raw"] * request.raw
    words += _stores(request.datastores)
    prompt = next((text for role, text in reversed(turns) if role == "user"), "")
    return shlex.join(["spec-tui", "compare", *words, *_models(load), "--", prompt])


def _given(what: object, names: tuple[str, ...]) -> list[str]:
    """Options of the fields that differ from their defaults."""
    defaults = {f.name: f.default for f in fields(what)}
    given = [(name, getattr(what, name)) for name in names if getattr(what, name) != defaults[name]]
    words = []
    for name, value in given:
        words += [flag(name), str(value)] if not isinstance(value, bool) else [flag(name if value else f"no_{name}")]
    return words


def _stores(names: Iterable[str]) -> list[str]:
    return [word for name in names for word in ("--datastore", name)]


def _models(load: LoadRequest) -> list[str]:
    return _given(load, tuple(of.name for of in fields(load) if of.metadata))
