"""What is pasted into another program: with the files that are here, and the flags that its installed version takes."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

from engines.errors import SpecError
from engines.folders import typed_path
from engines.methods.counterparts import Counterpart, ModelFiles

_PATIENCE = 30.0  # seconds
_HELP = {"llama.cpp": ("llama-server", "--help"), "vLLM": ("vllm", "serve", "--help=all")}
_EARLIER = {  # llama.cpp's flags, as they were called in 2025
    "--spec-draft-model": "--model-draft", "--spec-draft-n-max": "--draft-max", "--spec-draft-p-min": "--draft-p-min",
}
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


@cache
def model_files(name: str) -> ModelFiles:
    """A model of this machine, by the name that it was loaded with. Never asks the network."""
    from engines.hub import hub_cache
    from engines.hub.known_models import resolve
    from engines.hub.model_source import locate

    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(name).name.removesuffix(".gguf")) or "model"
    beside = str(Path.cwd() / stem)
    try:
        here = typed_path(resolve(name)).exists() or hub_cache.snapshot(name.partition(":")[0]) is not None
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
    return fit(*places).same is not False if all(place.exists() for place in places) else True


def as_installed(found: Counterpart) -> Counterpart:
    """The same with the flags of the version that is installed; those that it has not are left out, which is said. It
    stays as it is where the program is not here, or does not tell."""
    known = _flags(found.program)
    if not known:
        return found
    *before, line = found.paste.split("\n")
    line = _FLAG.sub(lambda flag: flag[0] if flag[0] in known or _EARLIER.get(flag[0]) not in known
                     else _EARLIER[flag[0]], line)
    lost = [found.lost] if found.lost else []
    for flag in _FLAG.findall(line):
        if flag not in known:
            line = re.sub(rf" {flag} (?:'[^']*'|\S+)", "", line)
            lost.append(f"{flag}, which the {found.program} that is installed does not have")
    return replace(found, paste="\n".join([*before, line]), lost="; ".join(lost))


@cache
def _flags(program: str) -> frozenset[str]:
    """The flags of a program that is installed; none where it is not, or does not tell."""
    command = _HELP.get(program, ("",))
    if (path := shutil.which(command[0])) is None:
        return frozenset()
    try:
        done = subprocess.run([path, *command[1:]], capture_output=True, text=True, errors="replace", timeout=_PATIENCE,
                              stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return frozenset()
    return frozenset(_FLAG.findall(done.stdout))
