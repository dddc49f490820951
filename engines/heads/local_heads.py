"""Which heads are available, by their files: those that were trained here, and those that ship. Needs no torch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engines.errors import first_line
from engines.folders import data, listed, sample_heads, typed_path
from engines.heads.head_config import EAGLE, EAGLE3, EAGLE_HEAD, MEDUSA, MEDUSA_HEADS
from engines.hub import gguf_config, gguf_file
from engines.hub.safetensors_headers import stored, tensor_names
from engines.hub.untrusted_json import is_count, object_in, read_object

CONFIG, WEIGHTS = "config.json", "model.safetensors"
OWN = "spec_tui"
"""Key of a configuration under which there is what other programs have no words for."""

MEDUSA_BLOCK = re.compile(r"(?:medusa_head\.)?(\d+)\.(\d+)\.linear\.(weight|bias)"
                          r"|(?:medusa_heads\.)?blocks\.(\d+)\.layers\.(\d+)\.(weight|bias)")
"""Name of a tensor that only Medusa heads have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalHead:
    """A head in a folder of ours.

    Attributes:
        name: of its folder.
        family, kind: of ``config``; None where it is damaged.
        ships: it comes with the program.
        target_fingerprint, target: the model that it was trained for, by its weights and by name.
        width, vocabulary: sizes of that model's hidden states and vocabulary; None where its file does not say.
        stored: numbers in its file, by dtype.
        expected: tokens a round that its training expected on answers held out; 0 where its file does not say.
        fault: why its files cannot be read, in words; "" where they can. Then nothing is known but name and folder.
    """

    name: str
    family: str | None = None
    folder: Path
    ships: bool
    target_fingerprint: str = ""
    target: str = ""
    width: int | None = None
    vocabulary: int | None = None
    stored: Mapping[str, int] = field(default_factory=dict)
    expected: float = 0.0
    fault: str = ""

    @property
    def kind(self) -> str | None:
        return MEDUSA_HEADS if self.family == MEDUSA else EAGLE_HEAD if self.family else None

    @property
    def title(self) -> str:
        """What it is, in words."""
        return MEDUSA_HEADS if self.family == MEDUSA else f"{self.family} head" if self.family else "head"

    def differs(self, target: Path) -> str:
        """What keeps it from drafting for the model of a folder or file, as far as files tell, else ""."""
        width, vocabulary = _sizes(target)
        for mine, its, what in ((self.width, width, "hidden states of {:,} numbers"),
                                (self.vocabulary, vocabulary, "a vocabulary of {:,} tokens")):
            if mine is not None and its is not None and mine != its:
                return f"it is for {what.format(mine)}, the target has {what.format(its)}"
        return ""


def trained_heads() -> Path:
    """Folder of the heads that were trained here, whether it exists or not."""
    return data() / "heads"


def local_heads() -> list[LocalHead]:
    """The heads that were trained here, then those that ship, by name; damaged ones too, each with its fault."""
    homes = ((trained_heads(), False), (sample_heads(), True))
    return [look_at(folder, ships) for home, ships in homes if home is not None for folder in listed(home)
            if os.path.isdir(folder) and not folder.name.startswith(".")]  # in which heads are trained


def look_at(folder: Path, ships: bool = False) -> LocalHead:
    """The head of a folder, as far as its files tell without being loaded."""
    try:
        config, counts, family = read_object(folder / CONFIG), stored(folder / WEIGHTS), family_of_head(folder)
    except (OSError, ValueError) as error:
        lacking = next((name for name in (CONFIG, WEIGHTS) if not os.path.exists(folder / name)), "")
        return LocalHead(name=folder.name, folder=folder, ships=ships,
                         fault=f"it has no {lacking}" if lacking else first_line(error))
    inner = object_in(config, "transformer_layer_config") or config
    verifier = object_in(object_in(config, "speculators_config"), "verifier")
    target = verifier.get("name_or_path") or config.get("base_model_name_or_path", "")
    expected = object_in(object_in(config, OWN), "card").get("expected_tokens_a_round")
    known = isinstance(expected, int | float) and 0 <= expected < 1e6
    return LocalHead(
        name=folder.name, family=family, folder=folder, ships=ships, target=str(target), stored=counts,
        target_fingerprint=str(object_in(config, OWN).get("target_fingerprint", "")),
        width=_count(config, "target_hidden_size") or _count(inner, "hidden_size"),
        vocabulary=_count(inner, "vocab_size"),
        expected=float(expected) if known else 0.0,
    )


def place_of(name: str) -> Path | None:
    """Where the head of this name lies: an available one, or a folder; None where it may only be on the hub."""
    ours = next((head.folder for head in local_heads() if head.name == name), None)
    return ours or (path if os.path.isdir(path := typed_path(name)) else None)


def may_be_on_hub(name: str) -> bool:
    """Whether a name that is no place here has the form of a hub id."""
    return not (typed_path(name).is_absolute() or name.startswith((".", "~")) or name.count("/") != 1)


def family_of_head(folder: Path) -> str:
    """The family of a head in safetensors, by the names of its tensors alone. Raises OSError, ValueError."""
    tensors = tuple(tensor_names(folder / WEIGHTS))
    if is_medusa(tensors):
        return MEDUSA
    return EAGLE3 if any(name.endswith("hidden_norm.weight") for name in tensors) else EAGLE


def is_medusa(tensors: Iterable[str]) -> bool:
    """Whether the tensors of these names are those of Medusa heads."""
    return any(MEDUSA_BLOCK.fullmatch(name) for name in tensors)


def _sizes(target: Path) -> tuple[int | None, int | None]:
    """Numbers of a hidden state, and tokens, of the model of a folder or GGUF file; None where it does not say."""
    try:
        alone = os.path.isfile(target)
        config = gguf_config.config_of(gguf_file.read(target)) if alone else read_object(target / CONFIG)
    except (OSError, ValueError):
        return None, None
    inner = object_in(config, "text_config") or config
    return _count(inner, "hidden_size"), _count(inner, "vocab_size")


def _count(config: Mapping[str, Any], key: str) -> int | None:
    value = config.get(key)
    return value if is_count(value) and value else None
