"""Models on this machine, inspected without loading them: the ones that ship and the ones in the hub's cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engines.errors import first_line
from engines.folders import sample_model
from engines.hub import hub_cache as cache
from engines.hub.safetensors_headers import stored
from engines.hub.untrusted_json import read_object, words_in

_NOT_CAUSAL = "not a causal language model"


def look_at(folder: Path) -> dict[str, Any]:
    """``{"path", "problem", "type", "parameters", "dtype"}``; problem is None for a usable causal model."""
    found = {"path": str(folder), "problem": None, "type": None, "parameters": 0, "dtype": None}
    try:
        config = read_object(folder / "config.json")
        found["type"] = config["model_type"] if isinstance(config.get("model_type"), str) else None
        found["problem"] = _lacking(folder, config)
        for file in sorted(folder.glob("*.safetensors")):
            counts = stored(file)
            found["parameters"] += sum(counts.values())
            found["dtype"] = found["dtype"] or next(iter(counts), None)
    except OSError as error:
        found["problem"] = f"{Path(error.filename or folder).name}: {error.strerror}"
    except ValueError as error:
        found["problem"] = first_line(error)
    return found


def _lacking(folder: Path, config: dict[str, Any]) -> str | None:
    """What keeps the folder from being a usable model, as far as file names and configuration tell."""
    if not any("CausalLM" in name or "LMHead" in name for name in words_in(config, "architectures")):
        return _NOT_CAUSAL
    if not any(folder.glob("*.safetensors")):
        return "no weights in safetensors" if any(folder.glob("*.bin")) else "no weights here, not downloaded"
    if not any((folder / name).exists() for name in ("tokenizer.json", "tokenizer_config.json")):
        return "no tokenizer"
    return None


def cached() -> list[dict[str, Any]]:
    """The causal language models in the hub's cache, as ``look_at`` with their ids. Never asks the network."""
    models = [{"id": name, **look_at(folder)} for name, folder in cache.models()]
    return [model for model in models if model["problem"] != _NOT_CAUSAL]


def shipped() -> Iterator[dict[str, Any]]:
    """The models that come with the program, as ``look_at`` with their roles."""
    for role in ("target", "draft"):
        folder = sample_model(role)
        found = {"path": None, "problem": "missing"} if folder is None else look_at(folder)
        yield {"role": role, **found}
