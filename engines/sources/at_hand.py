"""Models at hand, looked at without loading them: the configuration, and the headers of the weight files."""

from __future__ import annotations

import json
import os
from math import prod
from pathlib import Path
from typing import Any

_LARGEST_HEADER = 100 << 20
_NOT_CAUSAL = "not a causal language model"


def look_at(folder: Path) -> dict[str, Any]:
    """``{"path", "problem", "type", "parameters", "dtype"}``; problem is None for a usable causal model."""
    found = {"path": str(folder), "problem": None, "type": None, "parameters": 0, "dtype": None}
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        found["type"] = config.get("model_type")
        found["problem"] = _lacking(folder, config)
        for file in sorted(folder.glob("*.safetensors")):
            _add_weights(found, file)
    except OSError as error:
        found["problem"] = f"{Path(error.filename or folder).name}: {error.strerror}"
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        found["problem"] = f"damaged: {error}"
    return found


def _lacking(folder: Path, config: dict[str, Any]) -> str | None:
    """What keeps the folder from being a usable model, as far as file names and configuration tell."""
    if not any("CausalLM" in name or "LMHead" in name for name in config.get("architectures") or ()):
        return _NOT_CAUSAL
    if not any(folder.glob("*.safetensors")):
        return "no weights in safetensors"
    if not any((folder / name).exists() for name in ("tokenizer.json", "tokenizer_config.json")):
        return "no tokenizer"
    return None


def _add_weights(found: dict[str, Any], file: Path) -> None:
    """Count a weight file's parameters. Raises ValueError where header and size do not agree."""
    with open(file, "rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 2 <= length <= _LARGEST_HEADER:
            raise ValueError(f"{file.name} is not a safetensors file")
        header = json.loads(stream.read(length))
    tensors = [tensor for name, tensor in header.items() if name != "__metadata__"]
    end = max((tensor["data_offsets"][1] for tensor in tensors), default=0)
    if file.stat().st_size != 8 + length + end:
        raise ValueError(f"{file.name} is cut off")
    for tensor in tensors:
        found["parameters"] += prod(tensor["shape"])
        found["dtype"] = found["dtype"] or tensor["dtype"]


def cached() -> tuple[Path, list[dict[str, Any]]]:
    """The hub's cache folder and the causal language models in it. Looks at files, never at the network."""
    root = _cache_folder()
    models = []
    for folder in sorted(root.glob("models--*")):
        snapshot = _snapshot(folder)
        found = look_at(snapshot) if snapshot is not None else None
        if found is not None and found["problem"] != _NOT_CAUSAL:
            models.append({"id": folder.name.removeprefix("models--").replace("--", "/"), **found})
    return root, models


def _cache_folder() -> Path:
    home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub").expanduser()


def _snapshot(folder: Path) -> Path | None:
    """The snapshot that ``main`` names, else any."""
    try:
        named = folder / "snapshots" / (folder / "refs" / "main").read_text().strip()
        if named.is_dir():
            return named
    except (OSError, ValueError):
        pass
    return next(iter(sorted(folder.glob("snapshots/*"))), None)
