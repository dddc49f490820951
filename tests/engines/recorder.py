"""What a CUDA graph does, on the CPU: operations are recorded with the very tensors they ran on, and run again on them.

Nothing of Python runs at a replay, so whatever a program reads from the host while it is recorded stays as it was. What
could not be recorded on a GPU fails here too: reading a number back, and making a tensor of numbers of the host.
"""

from __future__ import annotations

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_FORBIDDEN = ("_local_scalar_dense", "lift_fresh", "nonzero", "is_nonzero", "equal")


class _Recording(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in _FORBIDDEN:
            raise RuntimeError(f"operation not permitted when stream is capturing: {func}")
        out = func(*args, **(kwargs or {}))
        self.steps.append((func, args, kwargs or {}, out))
        return out


class Recorder:
    """A ``Capture``. ``recorded`` counts programs, ``replayed`` how often they ran."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0

    def __call__(self, program):
        program()  # a warm-up, whose writes must do no harm
        recording = _Recording()
        with recording:
            program()
        self.recorded += 1

        def replay():
            self.replayed += 1
            with torch.inference_mode():
                for func, args, kwargs, out in recording.steps:
                    again = func(*args, **kwargs)
                    for old, new in zip(tree_leaves(out), tree_leaves(again)):
                        if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                            old.copy_(new)

        return replay


class Addresses(TorchDispatchMode):
    """A ``Capture`` that keeps no tensor alive, as a graph does not. ``freed`` counts those that a replay would still
    read."""

    def __init__(self) -> None:
        super().__init__()
        self._read: dict[int, StorageWeakRef] = {}
        self._made: dict[int, StorageWeakRef] = {}

    def __call__(self, program):
        with self:
            program()
        return lambda: None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for found, known, tensors in ((self._read, self._made, (args, kwargs)), (self._made, self._read, out)):
            for tensor in tree_leaves(tensors):
                if isinstance(tensor, torch.Tensor):
                    storage = StorageWeakRef(tensor.untyped_storage())
                    if storage.cdata not in known:
                        found[storage.cdata] = storage
        return out

    @property
    def freed(self) -> int:
        return sum(storage.expired() for storage in self._read.values())
