"""A model as a folder of safetensors, which vLLM and transformers load: of a GGUF file its weights unpacked, its
tokenizer and chat template."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from engines.errors import ModelUnavailable, RunFailed, first_line
from engines.folders import check_new_folder, room_or, write_folder
from engines.hub.download import Progress
from engines.hub.model_source import ModelSource
from engines.model.loading import read_model
from engines.model.tensor_files import usual_errors
from engines.progress import Loading

_WRITTEN_ANEW = ("config.json", "generation_config.json")


def export_folder(source: ModelSource, folder: Path, dtype: str, progress: Progress) -> None:
    """Write a model to a new folder, as transformers saves it. Weights are rounded to
    ``dtype`` (torch's name); float32 loses nothing.

    Args:
        source: with its weights here.
        progress: told of the loading; what it raises leaves this function, and nothing of the folder stays.

    Raises:
        ModelUnavailable: it cannot be read, or has numbers that ``dtype`` has not.
        UsageProblem: the folder exists and is not empty, or cannot be made.
        RunFailed: it cannot be written.
    """
    check_new_folder(folder, "name a new folder with --output")
    model = read_model(source, getattr(torch, dtype), torch.device("cpu"), progress)
    if not all(bool(weight.isfinite().all()) for weight in model.parameters()):
        raise ModelUnavailable(f"{source.name} cannot be written so: it has numbers that {dtype} does not",
                               "choose another type")
    progress(Loading(f"writing {folder}", 0.6))
    try:
        with write_folder(folder) as place, usual_errors(folder):
            model.save_pretrained(place)
            for weights in place.glob("*.safetensors"):
                shutil.copymode(place / "config.json", weights)  # safetensors lets only their owner read them
            for name in source.choice.small:
                if name not in _WRITTEN_ANEW and not name.endswith(".index.json"):
                    (place / name).parent.mkdir(exist_ok=True)
                    shutil.copyfile(source.path(name), place / name)
    except OSError as error:
        raise RunFailed(f"{folder} cannot be written: {error.strerror or first_line(error)}",
                        room_or(error, "name another folder with --output")) from None
    except (RuntimeError, ValueError) as error:
        raise RunFailed(f"{folder} cannot be written: {first_line(error)}",
                        "name another folder with --output") from None
