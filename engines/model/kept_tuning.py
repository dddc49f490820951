"""What ``tuning`` found, kept in a file: a model is measured once on this machine."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch
from transformers import PreTrainedModel

from engines import folders
from engines.machine import OtherLoad, measured_file
from engines.model.tuning import is_given, layouts_of, own_threads, tune, use_threads

_QUIET = 0.25  # cores that anything else may use while the number of threads is chosen for good


def tune_once(
    model: PreTrainedModel, threads: int | None = None, forward: Callable[[], object] | None = None,
    progress: Callable[[float], None] = lambda done: None,
) -> str:
    """``tuning.tune``, or what it found for this model the last time: then nothing is measured.

    How many threads are best is kept only of a machine with nothing else to do. Layouts are compared in turn, and what
    else runs slows them all.
    """
    layouts, own = layouts_of(model), own_threads()
    layers = Counter(type(module).__name__ for module in model.modules())  # quantised ones have names of their own
    given = is_given(threads)
    file = measured_file("tunings", [model.config.to_dict(), str(model.dtype), layers, layouts, own, threads, given])
    if kept := _read(file, threads if threads and threads > 0 else own, layouts):
        use_threads(kept[0])
        return kept[1]
    other_load = OtherLoad()
    layout = tune(model, threads, forward, progress)
    busy = other_load.cores()
    if given or (busy is not None and busy < _QUIET):
        with suppress(OSError):  # where it cannot be written, the next load measures again
            folders.write_json(file, {"threads": torch.get_num_threads(), "layout": layout})
    return layout


def _read(file: Path, most: int, layouts: list[str]) -> tuple[int, str] | None:
    """Threads and layout, as far as they can be."""
    try:
        found = json.loads(file.read_text("utf-8"))
        threads, layout = int(found["threads"]), str(found["layout"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return (threads, layout) if 1 <= threads <= most and layout in ("plain", *layouts) else None
