"""What is pasted into another program: with the files that are here."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

from engines.errors import SpecError
from engines.folders import typed_path
from engines.methods.counterparts import ModelFiles


def stem(name: str) -> str:
    """A model's name as the beginning of a file's or folder's."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", Path(name).name.removesuffix(".gguf")).strip(".-") or "model"


@cache
def model_files(name: str) -> ModelFiles:
    """A model of this machine, by the name that it was loaded with. Never asks the network."""
    from engines.hub import hub_cache
    from engines.hub.known_models import resolve
    from engines.hub.model_source import locate

    beside = str(Path.cwd() / stem(name))
    try:
        here = os.path.exists(typed_path(resolve(name))) or hub_cache.snapshot(name.partition(":")[0]) is not None
        source = locate(name) if here else None
    except (SpecError, ValueError):
        source = None
    if source is None:  # moved since it was loaded, or another machine's
        return ModelFiles(name, folder=name, beside=beside)
    if source.gguf is not None:
        return ModelFiles(name, gguf=str(source.gguf.path.absolute()), beside=beside)
    of_hub = source.folder.parent.name == "snapshots"
    return ModelFiles(name, folder=name if of_hub else str(source.folder.absolute()), beside=beside)


def same_tokens(draft: ModelFiles, target: ModelFiles) -> bool:
    """Whether the tokens of both are the same, as far as their files tell."""
    from engines.hub.local_models import fit

    places = [Path(model.gguf or model.folder or "") for model in (draft, target)]
    return fit(*places).same is not False if all(os.path.exists(place) for place in places) else True
