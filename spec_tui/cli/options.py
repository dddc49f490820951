"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


def complete_model(incomplete: str) -> list[str]:
    """Hub ids in the cache that begin so, for the shell."""
    from engines.hub import hub_cache as cache

    return [name for name, _ in cache.models() if name.startswith(incomplete)]


def complete_datastore(incomplete: str) -> list[str]:
    """Names of datastores that begin so, for the shell."""
    from engines.datastores.storage import catalog as places

    return [entry.name for entry in places.listing() if entry.name.startswith(incomplete) and not entry.unfinished]


def complete_trace(incomplete: str) -> list[str]:
    """Names of shipped traces that begin so, for the shell."""
    from spec_tui.session.sample_traces import names

    return [name for name in names() if name.startswith(incomplete)]


Datastores = Annotated[
    list[str] | None,
    typer.Option(
        "--datastore", metavar="NAME", autocompletion=complete_datastore,
        help="Datastore that rest, dresd and the like search; repeatable. Default: those that ship.",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="DIR|HUB_ID", help="Target model. Default: the one that ships.", autocompletion=complete_model
    ),
]
DraftModel = Annotated[
    str | None,
    typer.Option(
        metavar="DIR|HUB_ID", help="Draft model. Default: the one that ships, if its tokens fit.",
        autocompletion=complete_model,
    ),
]
Revision = Annotated[
    str | None,
    typer.Option(metavar="REV", help="Branch, tag or commit of the target's hub id. Default: main."),
]
DraftRevision = Annotated[
    str | None,
    typer.Option(metavar="REV", help="The same for the draft model."),
]
AllowPickle = Annotated[
    bool,
    typer.Option("--allow-pickle", help="Read .bin weights where there are no safetensors."),
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option("--trust-remote-code", help="Run Python code that comes with a model. Read it first."),
]
Dtype = Annotated[
    str,
    typer.Option(metavar="D", help="float32, bfloat16, float16, or auto: float32 on CPU."),
]
Device = Annotated[str, typer.Option(metavar="D", help="cpu, cuda, mps, or auto.")]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Logits the same to the last bit with and without drafts; costs some speed."),
]
Threads = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="CPU threads of the models. Default: what a measurement at load finds best."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An option of the engine; repeatable."),
]


class Format(StrEnum):
    """How a command writes its result."""

    text = "text"
    json = "json"


OutputFormat = Annotated[Format, typer.Option("--format", help="text for people, json for programs.")]
