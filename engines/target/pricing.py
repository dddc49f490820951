"""t(n) of a model on this machine: measured at load in a fraction of a second, kept in a file for the next time.

The file keeps a run under the rejection law repeatable: its text depends on what is drafted, and that on the price.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from pathlib import Path
from time import perf_counter

import torch

from engines.cost import CostCurve
from engines.target.model import CausalModel

ROWS = (1, 16, 4, 64, 2, 8, 32)  # the order in which a slow model gets to them
_AT_LEAST = 3  # of them, however slow the model
_SECONDS = 0.3
_REPEATS = 7
_CONTEXT = 192  # rows in the cache meanwhile


def price(model: CausalModel, fresh: bool = False) -> CostCurve:
    """t(n) of a model whose cache is empty: from the file, or measured and put there.

    Args:
        fresh: measure in any case.
    """
    key = _key(model)
    known = {} if fresh else _read()
    try:
        return CostCurve.fit((int(rows), float(seconds)) for rows, seconds in known[key])
    except (KeyError, TypeError, ValueError):
        curve = measure(model)
    _write(key, curve)
    return curve


def measure(model: CausalModel, seconds: float = _SECONDS) -> CostCurve:
    """Time forwards over chains of 1 to 64 rows, interleaved, for about this long; leaves the cache empty.

    The best time of each size counts: what the machine can do, whatever else it is doing. The context is rows of
    zeros, which cost what any rows cost. A slow model gets one forward of each of a few sizes.
    """
    limit = max(1, model.context_limit - 1)
    sizes = [rows for rows in ROWS if rows <= limit]
    model.truncate(0)
    model.forward([0], [-1])  # allocates, and warms up
    model.drop()
    model.cache.reserve(_CONTEXT + max(sizes))
    model.cache.length = max(0, min(_CONTEXT, limit - max(sizes)))
    samples: dict[int, list[float]] = {}
    clock = perf_counter()
    try:
        for repeat in range(_REPEATS):
            for rows in sizes:
                enough = repeat > 0 or len(samples) >= min(_AT_LEAST, len(sizes))
                if enough and perf_counter() - clock > seconds:
                    break
                samples.setdefault(rows, []).append(_time(model, rows))
    finally:
        model.truncate(0)
    return CostCurve.fit((rows, min(times)) for rows, times in samples.items())


def _time(model: CausalModel, rows: int) -> float:
    model.synchronize()
    clock = perf_counter()
    model.forward([0] * rows, list(range(-1, rows - 1)))
    model.synchronize()
    seconds = perf_counter() - clock
    model.drop()
    return seconds


def _key(model: CausalModel) -> str:
    """What t(n) depends on: the model's shape, its dtype and back end, the machine."""
    config = {k: v for k, v in model.model.config.to_dict().items() if not k.startswith("_") and "token_id" not in k}
    device = torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else _processor()
    facts = [
        config, model.parameters, str(model.dtype), model.device.type, device, os.cpu_count(),
        torch.get_num_threads(), model.backend, torch.__version__, platform.node(),
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _file() -> Path:
    from platformdirs import user_cache_path

    folder = os.environ.get("SPEC_TUI_CACHE_DIR")
    return (Path(folder) if folder else user_cache_path("spec-tui")) / "costs.json"


def _read() -> dict:
    try:
        known = json.loads(_file().read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _write(key: str, curve: CostCurve) -> None:
    """Add a curve to the file, whole or not at all; where it cannot be written the next load measures again."""
    file, known = _file(), _read()
    known[key] = curve.points
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(known, stream)
        os.replace(name, file)
    except OSError:
        pass
