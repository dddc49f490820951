"""What the files of a head hold, and reading the parts of them: every family's layout is read with these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from engines.heads.head_config import HeadConfig, MedusaConfig
from engines.hub.untrusted_json import is_count


@dataclass(slots=True)
class HeadFile:
    """A head as its files have it.

    Attributes:
        name: as the user gave it; ``folder``: where it lies.
        config: what it is, for a target of which nothing is known yet but what the file says.
        weights: of ``HeadNetwork`` or ``MedusaNetwork``, by its names.
        ids: int64 [draft vocabulary], the target's token of each token that the head drafts; None where they are all.
        rows: [draft vocabulary, width] its language modelling head, of Medusa heads with one each [heads, draft
            vocabulary, width]; None where the target's is used.
        embeddings: [vocabulary, width]; None where the target's are used.
        layers_said: layers as the file names them, before they are counted as here; empty where it names none.
        made_for: fingerprint of the target that it was trained for; "" where the file does not say.
        card: what its training noted, for people.
    """

    name: str
    folder: Path
    config: HeadConfig | MedusaConfig
    weights: dict[str, torch.Tensor]
    ids: torch.Tensor | None
    rows: torch.Tensor | None
    embeddings: torch.Tensor | None = None
    layers_said: tuple[int, ...] = ()
    made_for: str = ""
    card: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The weights that the file holds, embeddings included."""
        return [*self.weights.values(), *(t for t in (self.rows, self.embeddings) if t is not None)]


def named(tensors: Mapping[str, torch.Tensor], name: str) -> torch.Tensor:
    """A tensor that must be there. Raises ValueError."""
    if name not in tensors:
        raise ValueError(f"it lacks {name}")
    return tensors[name]


def number(config: Mapping[str, Any], key: str, default: float) -> float:
    """A positive number of a configuration. Raises ValueError."""
    value = config.get(key)
    if value is None:
        return default
    if type(value) not in (int, float) or not 0 < value < 1e12:
        raise ValueError(f"{key} is out of range")
    return float(value)


def count(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """A count of a configuration. Raises ValueError."""
    value = config.get(key)
    if value is None and default is not None:
        return default
    if not is_count(value) or not value:
        raise ValueError(f"its config has no {key}")
    return value


def rows_of(tensors: Mapping[str, torch.Tensor], name: str) -> int:
    """The length of a tensor that must be there. Raises ValueError."""
    tensor = named(tensors, name)
    if not tensor.dim():
        raise ValueError(f"{name} is a single number")
    return tensor.shape[0]


def size_of(tensor: torch.Tensor) -> str:
    """Its sizes in words."""
    return " x ".join(map(str, tensor.shape)) or "a single number"
