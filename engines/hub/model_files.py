"""Which files of a model are needed: configuration, tokenizer, one kind of weights; what a folder lacks of them; and
what its configuration says."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from engines.errors import ModelUnavailable
from engines.hub.untrusted_json import object_in, read_object

_SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_SETTINGS = ("config.json", "generation_config.json", "chat_template.*", "additional_chat_templates/*")
_TOKENIZER = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt",
    "*.model", "*.tiktoken", "tekken.json",
)
_MOST = 10_000  # the deepest models have some hundred layers, the widest some hundred heads and experts
_COUNTED = re.compile(r"(layers?|heads?|experts?|blocks|labels|depth)$")


@dataclass(frozen=True, slots=True)
class TrustPolicy:
    """What the user allows beyond safetensors and the code of transformers.

    Attributes:
        allow_pickle: weights in .bin files are read, by torch's weights-only unpickler, where there are no others.
        trust_remote_code: Python files that come with the model are run.
    """

    allow_pickle: bool = False
    trust_remote_code: bool = False


@dataclass(frozen=True, slots=True)
class FileChoice:
    """The files of a model that are needed, and no others. ``small``: all but weights. ``pickled``: the weights are in
    .bin files."""

    small: tuple[str, ...]
    weights: tuple[str, ...]
    pickled: bool


def choose(name: str, names: Collection[str], terms: TrustPolicy) -> FileChoice:
    """Choose among the file names of a model: what transformers would read of it, and nothing for other programs.

    Raises:
        ModelUnavailable: no configuration, or no weights that may be read; says which flag would allow them.
    """
    if "config.json" not in names:
        raise ModelUnavailable(f"{name} has no config.json", "choose a model saved by transformers")
    index, weights, pickled = _weights(names, terms.allow_pickle)
    if not weights:
        raise _unreadable(name, names)
    patterns = (*_SETTINGS, *_TOKENIZER, *(("*.py",) if terms.trust_remote_code else ()))
    small = [n for n in names if _matches(n, patterns)] + ([index] if index else [])
    return FileChoice(tuple(sorted(small)), weights, pickled)


def _weights(names: Collection[str], allow_pickle: bool) -> tuple[str | None, tuple[str, ...], bool]:
    """Index file (None for a single file), weight files, whether they are pickled; in transformers' own order."""
    for single, index in (_SAFETENSORS, _PICKLED) if allow_pickle else (_SAFETENSORS,):
        pickled = single == _PICKLED[0]
        if single in names:
            return None, (single,), pickled
        if index in names:
            stem, ending = single.rsplit(".", 1)
            of_index = [n for n in names if re.fullmatch(rf"{stem}-\d+-of-\d+\.{ending}", n)]
            # a shard may have any name; the index, which says so, is not here yet
            return index, tuple(sorted(of_index or (n for n in names if _matches(n, (f"*.{ending}",))))), pickled
    return None, (), False


def _unreadable(name: str, names: Collection[str]) -> ModelUnavailable:
    endings = {n.rpartition(".")[2] for n in names}
    if endings & {"bin", "pt", "pth"}:
        _, readable, _ = _weights(names, allow_pickle=True)
        hint = "choose one that is converted"
        if readable:
            hint = f"--allow-pickle reads {readable[0]} without running what is pickled in it; or {hint}"
        return ModelUnavailable(f"{name} has no weights in safetensors, only pickled ones", hint)
    other = next((what for what in ("gguf", "onnx", "h5", "msgpack") if what in endings), None)
    if other:
        return ModelUnavailable(
            f"{name} has its weights in {other}, not in safetensors", "choose the model they were made from"
        )
    return ModelUnavailable(f"{name} has no weights in safetensors", "it is not a model, or its download is incomplete")


def missing(folder: Path, name: str, terms: TrustPolicy) -> list[str]:
    """What a folder lacks of a model; empty where it is complete.

    Raises:
        ModelUnavailable: as ``choose``.
        OSError, ValueError: the index cannot be read.
    """
    names = names_in(folder)
    choice = choose(name, names, terms)
    lacking = [n for n in shards(folder, choice) if n not in names]
    if not any(_matches(n, _TOKENIZER) for n in names):
        lacking.append("a tokenizer")
    if terms.trust_remote_code:
        lacking += [f for f in _code(folder) if f not in names]
    return lacking


def shards(folder: Path, choice: FileChoice) -> tuple[str, ...]:
    """The weight files: those that the index names where there is one. Raises OSError and ValueError."""
    index = next((n for n in choice.small if n.endswith(".index.json")), None)
    if index is None:
        return choice.weights
    names = object_in(read_object(folder / index), "weight_map").values()
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{index} is damaged: it names no weights")
    return tuple(sorted(set(names)))


def names_in(folder: Path) -> set[str]:
    """Names of the files of a model folder, as on the hub: subfolders with a slash. Dead links are no files."""
    found = {p.name for p in folder.iterdir() if p.is_file()}
    return found | {f"{p.parent.name}/{p.name}" for p in folder.glob("additional_chat_templates/*") if p.is_file()}


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration as it stands in config.json, before transformers builds anything of the sizes in it.

    Raises:
        OSError: unreadable.
        ValueError: no JSON object, or it counts more layers, heads, experts or labels than any model has: to build, or
            to list, so many would take for ever.
    """
    found = read_object(folder / "config.json")
    waiting: list[Any] = [found]
    while waiting:
        part = waiting.pop()
        for key, value in part.items() if isinstance(part, dict) else ():
            if type(value) is int and value > _MOST and _COUNTED.search(key):
                raise ValueError(f"config.json is damaged: no model has as many {key}")
        waiting += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return found


def auto_map(folder: Path) -> dict[str, str]:
    """Classes that the model brings itself, as ``{"AutoConfig": "module.Class"}``; empty where it brings none."""
    found: dict[str, str] = {}
    for file in ("config.json", "tokenizer_config.json"):
        with suppress(OSError, ValueError):
            for key, value in object_in(read_object(folder / file), "auto_map").items():
                first = next((v for v in value if v), "") if isinstance(value, list) else value
                found[key] = first if isinstance(first, str) else ""
    return found


def _code(folder: Path) -> list[str]:
    """Python files of the model's own that its classes are in."""
    return sorted({f"{value.rpartition('.')[0]}.py" for value in auto_map(folder).values() if "--" not in value})


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a name fits one of the patterns; a star does not reach over a slash."""
    return any(fnmatchcase(name, p) and name.count("/") == p.count("/") for p in patterns)
