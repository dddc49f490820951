"""Files of tensors in safetensors. Its library has an error of its own for a full disk and for a damaged file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from engines.errors import first_line
from engines.folders import written_beside

_NUMBER = re.compile(r"\(os error (\d+)\)")


def save(tensors: Mapping[str, torch.Tensor], file: Path) -> None:
    """Write tensors to a file, whole or not at all, its folder too. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with written_beside(file) as beside, usual_errors(file):
        beside.touch()
        mode = beside.stat().st_mode  # safetensors makes files that only their owner may read
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, beside)
        beside.chmod(mode)


def load(file: Path) -> dict[str, torch.Tensor]:
    """The tensors in a file. Raises OSError; ValueError: it is damaged."""
    with usual_errors(file):
        return load_file(file)


@contextmanager
def usual_errors(file: Path) -> Iterator[None]:
    """Raises within OSError, with its number, for an error of the system, and ValueError for another one of
    safetensors."""
    try:
        yield
    except SafetensorError as error:
        if number := _NUMBER.search(str(error)):
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(file)) from None
        raise ValueError(first_line(error)) from None
