"""That a model has passed the ``selftest``, kept in a file: the same weights, computed by the same code on this
machine, are tested once."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import torch

from engines.libraries import hf, versions
from engines.machine import keep, kept, measured_file
from engines.model.causal_model import CausalModel
from engines.model.selftest import selftest
from engines.model.tuning import settings_of

_PASSED = "passed"


def test_once(model: CausalModel) -> str | None:
    """``selftest``, or None where this model has passed all of it before.

    Kept are models of transformers' own classes on the CPU: code that came with a model may change while its weights
    do not, and on a GPU the test also records its first graphs.
    """
    if model.device.type != "cpu" or not type(model.model).__module__.startswith("transformers."):
        return selftest(model)
    file = _file(model)
    if kept(file) == _PASSED:
        return None
    reason = selftest(model)
    if reason is None and model.trees:
        keep(file, _PASSED)
    return reason


def _file(model: CausalModel) -> Path:
    config = model.model.config
    return measured_file("selftests", [
        type(model.model).__name__, settings_of(model.model), model.fingerprint, model.parameters,
        str(model.dtype), model.quantised, model.rounds, model.backend, hf.attention_name(config),
        torch.get_num_threads(), versions.installed("transformers"), code_digest(),
    ])


@cache
def code_digest() -> str:
    """Of the code that computes models; which norms and scales a family has is told by ``hf``."""
    files = sorted(file for file in Path(__file__).parent.rglob("*") if file.suffix in (".py", ".cpp", ".h"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in [*files, Path(hf.__file__)])).hexdigest()
