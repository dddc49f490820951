"""Reading heads from files, and writing them. Which family a file holds is told by its tensors: configurations say it
wrongly or not."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from engines.errors import ModelUnavailable, first_line
from engines.folders import write_folder, write_json
from engines.heads.eagle_layout import RUN_HERE, eagle_config, eagle_head, eagle_tensors
from engines.heads.head_config import MedusaConfig
from engines.heads.head_file import HeadFile
from engines.heads.local_heads import CONFIG, OWN, WEIGHTS, is_medusa
from engines.heads.medusa_layout import medusa_config, medusa_heads, medusa_tensors
from engines.hub.known_models import label
from engines.hub.untrusted_json import object_in, read_object
from engines.model import tensor_files

_SAFE = (WEIGHTS, "medusa_lm_head.safetensors")
_PICKLED = ("pytorch_model.bin", "medusa_lm_head.pt")
_DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


def read(name: str, folder: Path, layers: int, target_width: int, allow_pickle: bool = False) -> HeadFile:
    """Read a head for a target of so many layers, whose hidden states have ``target_width`` numbers. Raises
    ModelUnavailable: unreadable, pickled though that is not allowed, of a family that does not run here, tensors that
    are missing, of the wrong sizes or not numbers; the message says which."""
    try:
        config = read_object(folder / CONFIG)
    except FileNotFoundError:
        raise ModelUnavailable(f"the head {name} has no {CONFIG}", "get that file, too") from None
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"the head {name} cannot be read: {first_line(error)}", "check the folder") from None
    if "hydra_num_heads" in config:
        raise ModelUnavailable(f"{name} is a Hydra head", RUN_HERE)
    loaded = _load(name, folder, allow_pickle)
    tensors = {str(key): tensor for key, tensor in loaded.items() if isinstance(tensor, torch.Tensor)}
    try:
        if is_medusa(tensors):
            file = medusa_heads(name, folder, config, tensors, target_width)
        else:
            file = eagle_head(name, folder, config, tensors, layers, target_width)
        for tensor in file.tensors:
            if not tensor.numel():
                raise ValueError("one of its tensors is empty")
            if not tensor.is_floating_point() or tensor.element_size() < 2:
                raise ValueError(f"its weights are {str(tensor.dtype).removeprefix('torch.')}, which is not read here")
            if not tensor.isfinite().all():
                raise ValueError("some of its weights are not numbers")
    except (ValueError, TypeError, ArithmeticError, RuntimeError) as error:  # sizes that nobody foresaw, too
        raise ModelUnavailable(f"the head {name} cannot be used: {first_line(error)}",
                               "give a head that was trained for this model") from None
    own = object_in(config, OWN)
    made_for = own.get("target_fingerprint")
    return replace(file, made_for=made_for if isinstance(made_for, str) else "", card=object_in(own, "card"))


def write(file: HeadFile, target: str, dtype: str = "bfloat16") -> None:
    """Write a head to a new folder, whole or not at all, in the layout that vLLM reads. Rows of the language modelling
    head that are the target's are left out, which is said under ``OWN``; the target has its ``label``,
    without folders of this machine. Raises OSError; ValueError: the layout has no place for it."""
    target = label(target)
    medusa = isinstance(file.config, MedusaConfig)
    tensors = medusa_tensors(file) if medusa else eagle_tensors(file)
    config = medusa_config(file, target) if medusa else eagle_config(file.config, target)
    own = {"target_fingerprint": file.made_for, "card": dict(file.card)}
    own |= {} if file.rows is not None else {"lm_head": "target"}
    file.folder.parent.mkdir(parents=True, exist_ok=True)
    with write_folder(file.folder) as folder:
        tensor_files.save({
            name: tensor.to(_DTYPES[dtype]) if tensor.is_floating_point() else tensor
            for name, tensor in tensors.items()
        }, folder / WEIGHTS)
        write_json(folder / CONFIG, {**config, "dtype": dtype, OWN: own})


def _load(name: str, folder: Path, allow_pickle: bool) -> Mapping[str, Any]:
    safe, pickled = (next((f for f in files if os.path.isfile(folder / f)), None) for files in (_SAFE, _PICKLED))
    if safe is None and pickled is not None and not allow_pickle:
        raise ModelUnavailable(f"the head {name} has no weights in safetensors, only pickled ones",
                               f"--allow-pickle reads {pickled} without running what is pickled in it")
    try:
        if safe is not None:
            return tensor_files.load(folder / safe)
        if pickled is not None:
            return dict(torch.load(folder / pickled, map_location="cpu", weights_only=True))
    except (OSError, RuntimeError, ValueError, EOFError, KeyError) as error:
        raise ModelUnavailable(f"the weights of the head {name} cannot be read: {first_line(error)}",
                               "its download is incomplete, or it is damaged") from None
    except Exception as error:  # whatever unpickling raises
        raise ModelUnavailable(f"the pickled weights of the head {name} hold more than weights, or are damaged",
                               "they are not read; choose another") from error
    if any(os.path.exists(folder / f"{file}.index.json") for file in (WEIGHTS, *_PICKLED)):
        raise ModelUnavailable(f"the weights of the head {name} are in several files, which is not read here",
                               f"write them to one {WEIGHTS}")
    raise ModelUnavailable(f"the head {name} has no {WEIGHTS}", "its download is incomplete")


def names_needed(names: Iterable[str], allow_pickle: bool) -> tuple[str, ...]:
    """Of the files of a repository those that a head is read from."""
    names = set(names)
    weights = [name for name in (*_SAFE, *_PICKLED * allow_pickle) if name in names][:1]
    return tuple(name for name in (CONFIG, *weights) if name in names)
