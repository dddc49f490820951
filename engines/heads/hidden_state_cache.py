"""What a head is trained on: for texts that the target wrote, its hidden states at every token, kept in shards on disk.

A shard is a safetensors file of some texts: ``lengths`` int64 [texts, 3] (tokens, where the answer begins, whether it
was greedy), ``tokens`` int32 [n], ``taps`` float16 [n, taps * width] and ``final`` float16 [n, width] (after the final
norm: what the target's distribution is computed from).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from engines.errors import UsageProblem, first_line
from engines.folders import write_json
from engines.hub.untrusted_json import read_object
from engines.model import tensor_files
from engines.model.feature_request import LAST, FeatureRequest

if TYPE_CHECKING:
    from engines.model.causal_model import CausalModel

_NOTE = "taps.json"  # what a folder was begun with
_SHARD = 64  # texts in a file
_LARGEST = 65504.0  # of float16; single channels of a residual stream reach tens of thousands
_BYTES = 2  # of a number that is kept


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt with the target's own answer.

    Attributes:
        tokens: of both, in the chat template; ``start``: where the answer begins.
        greedy: the answer is the likeliest one, not a sampled one.
    """

    tokens: tuple[int, ...]
    start: int
    greedy: bool


@dataclass(slots=True)
class TappedText:
    """A text and the target's states on it, float16: ``taps`` [tokens, taps * width], ``final`` [tokens, width]."""

    tokens: torch.Tensor
    start: int
    greedy: bool
    taps: torch.Tensor
    final: torch.Tensor

    def __len__(self) -> int:
        return len(self.tokens)


def size_on_disk(tokens: int, taps: int, width: int) -> int:
    """Bytes that so many tokens take."""
    return tokens * _BYTES * width * (taps + 1)


def check_not_begun(folder: Path) -> None:
    """Raises UsageProblem where a folder holds hidden states. Asked while prompts are still to be answered: the states
    must be of other texts then."""
    if os.path.exists(folder / _NOTE):
        raise _of_others(folder)


def _of_others(folder: Path) -> UsageProblem:
    return UsageProblem(f"{folder} holds an unfinished training on other answers, other layers or another target",
                        "repeat the command it was begun with, or remove that folder: answers that were made are kept")


class HiddenStateCache:
    """Shards in a folder, for one target, one choice of layers and one list of texts. Raises OSError: it cannot be
    written; UsageProblem: the folder holds the states of other texts, layers or another target."""

    def __init__(self, folder: Path, target: CausalModel, layers: Sequence[int], texts: Sequence[Text]) -> None:
        self._folder, self._target, self._layers, self._texts = folder, target, tuple(layers), list(texts)
        digest = hashlib.sha256()
        for text in texts:
            digest.update(np.array([text.start, *text.tokens], np.int32).tobytes())
        identity = {"target": target.fingerprint, "layers": list(layers), "texts": digest.hexdigest()}
        note = folder / _NOTE
        if not os.path.exists(note):
            write_json(note, identity)
            return
        try:
            kept = read_object(note)
        except (OSError, ValueError) as error:
            raise UsageProblem(f"{folder} cannot be used: {error}", "choose another --work folder") from None
        if kept != identity:
            raise _of_others(folder)

    def __len__(self) -> int:
        """How many shards there will be."""
        return -(-len(self._texts) // _SHARD)

    def fill(self, progress: Callable[[int, int], None]) -> None:
        """Read the texts that no shard holds yet; ``progress`` is told how many of all are read. After an interruption
        the next call goes on with the shard that was begun. Raises UsageProblem while the target is in use."""
        with self._target.alone("the reading of answers"):
            for number in range(len(self)):
                if not os.path.exists(self._shard(number)):
                    self._write(number, self._texts[number * _SHARD : (number + 1) * _SHARD], progress)
                progress(min((number + 1) * _SHARD, len(self._texts)), len(self._texts))

    def read(self) -> list[TappedText]:
        """The texts of the shards that are there. Raises UsageProblem: one is damaged."""
        found: list[TappedText] = []
        for number in range(len(self)):
            if os.path.exists(self._shard(number)):
                found += _texts_of(self._shard(number))
        return found

    def _shard(self, number: int) -> Path:
        return self._folder / f"taps-{number:05}.safetensors"

    def _write(self, number: int, texts: Sequence[Text], progress: Callable[[int, int], None]) -> None:
        columns: dict[str, list[torch.Tensor]] = {"taps": [], "final": []}
        wanted = FeatureRequest(history=frozenset((*self._layers, LAST)))
        with self._target.features.requested(wanted), torch.inference_mode():
            for done, text in enumerate(texts):
                for name, states in zip(columns, states_of(self._target, text.tokens, self._layers)):
                    columns[name].append(states.clone())
                progress(number * _SHARD + done + 1, len(self._texts))
        tensor_files.save({
            "lengths": torch.tensor([(len(t.tokens), t.start, t.greedy) for t in texts], dtype=torch.int64),
            "tokens": torch.tensor([token for t in texts for token in t.tokens], dtype=torch.int32),
            **{name: torch.cat(found) for name, found in columns.items()},
        }, self._shard(number))


def states_of(target: CausalModel, tokens: Sequence[int], layers: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Taps [tokens, taps * width] and final states [tokens, width] in float16 of a text that the target reads. Its
    features must be requested."""
    target.truncate(0)
    target.extend(list(tokens))
    final = target.features.rows(LAST, 0, len(tokens))
    taps = torch.cat([final[:, :0], *(target.features.rows(layer, 0, len(tokens)) for layer in layers)], 1)
    return _half(taps), _half(final)


def _half(states: torch.Tensor) -> torch.Tensor:
    return states.float().clamp(-_LARGEST, _LARGEST).half().cpu()


def _texts_of(file: Path) -> Iterator[TappedText]:
    try:
        held = tensor_files.load(file)
        sizes, starts, greedy = (column.tolist() for column in held["lengths"].unbind(1))
        parts = [held[name].split(sizes) for name in ("tokens", "taps", "final")]
    except (OSError, ValueError, TypeError, LookupError, RuntimeError) as error:
        raise UsageProblem(f"{file} is damaged: {first_line(error)}", "remove it; it will be made again") from None
    for start, chosen, tokens, taps, final in zip(starts, greedy, *parts):
        yield TappedText(tokens.long(), start, bool(chosen), taps, final)
