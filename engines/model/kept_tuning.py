"""What ``tuning`` found, kept in a file: a model is measured once on this machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from engines.libraries.hf import PreTrainedModel
from engines.machine import OtherLoad, keep, kept, measured_file
from engines.model.tuning import is_given, layouts_of, own_threads, tune, use_threads
from engines.model.weight_layouts import LaidOut

_DAYS, _BUSY_DAYS = 30, 1  # that it is kept: measured on a quiet machine, and on another


def tune_once(
    model: PreTrainedModel, threads: int | None = None,
    row: Callable[[], Callable[[], object] | None] = lambda: None,
    progress: Callable[[float], None] = lambda done: None, once: bool = False, native: bool = False,
) -> str:
    """``tuning.tune``, or what it found for this model the last time: then nothing is measured. ``row`` makes its
    ``forward``, which is made only to be measured.

    How many threads are best is kept only of a machine with nothing else to do. Layouts are compared in turn, and what
    else runs slows them all: of a busy machine they are kept for a day. All is measured again some time later.
    """
    file, most, layouts = _kept_where(model, threads, once, native)
    if found := _read(file, most, layouts):
        use_threads(found[0])
        return found[1]
    other_load = OtherLoad()
    layout = tune(model, threads, row(), progress, once, native)
    quiet = other_load.quiet()
    if is_given(threads) or quiet:
        keep(file, {"threads": torch.get_num_threads(), "layout": layout}, _DAYS if quiet else _BUSY_DAYS)
    return layout


def kept_layout(
    model: PreTrainedModel, threads: int | None = None, once: bool = False, native: bool = False
) -> str:
    """The layout that ``tune_once`` will find for a model whose weights are not read yet; "" where it has to measure.

    Args:
        model: on the meta device, in its dtype.
        threads, once, native: as of ``tune_once``.
    """
    found = _read(*_kept_where(model, threads, once, native))
    return found[1] if found else ""


def _kept_where(
    model: PreTrainedModel, threads: int | None, once: bool, native: bool = False
) -> tuple[Path, int, list[str]]:
    """The file for a model, the most threads that it may name, and the layouts."""
    layouts, own = layouts_of(model, once, native), own_threads()
    changed = Counter(type(module).__name__ for module in model.modules() if isinstance(module, LaidOut))
    facts = [settings_of(model), str(model.dtype), changed, layouts, own, threads, is_given(threads)]
    return measured_file("tunings", facts), threads if threads and threads > 0 else own, layouts


def settings_of(model: PreTrainedModel) -> dict[str, Any]:
    """Its configuration, before the weights are read ("_name_or_path" is another then) and after."""
    found = model.config.to_dict().items()
    return {name: value for name, value in found if not name.startswith("_") and name != "dtype"}


def _read(file: Path, most: int, layouts: list[str]) -> tuple[int, str] | None:
    """Threads and layout, as far as they can be."""
    try:
        found = kept(file)
        threads, layout = int(found["threads"]), str(found["layout"])
    except (ValueError, TypeError, KeyError):
        return None
    return (threads, layout) if 1 <= threads <= most and layout in ("plain", *layouts) else None
