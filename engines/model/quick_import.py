"""Importing transformers without the compiler of torch, in half of the time.

Its modules import torch's compiler and distributed tensors for decorators and type checks of what an engine process
never does. While they are imported, stand-ins are in the place of both. Afterwards the real ones can be imported: only
what transformers decorated in between (paged and distributed attention) is unknown to the compiler. That is for a
process of our own; a program that loads engines as a library may compile and distribute what it likes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from engines.libraries.uncollected import uncollected

_COMPILER = "torch._dynamo"


def import_quickly() -> None:
    """Import torch and the parts of transformers that engines use, if nobody did before."""
    if "transformers" in sys.modules or _COMPILER in sys.modules:
        return
    with uncollected():
        import torch

        with _stand_ins(torch):
            from engines.libraries import hf

            hf.make_tiny_model()  # each model that is made before its weights are read asks for the compiler once


@contextmanager
def _stand_ins(torch: ModuleType) -> Iterator[None]:
    compiler = _Undecorated(_COMPILER)
    compiler.__path__ = [str(Path(torch.__file__).parent / "_dynamo")]  # parts of it are imported by themselves
    distributed = torch.distributed.is_available
    sys.modules[_COMPILER] = torch._dynamo = compiler
    torch.distributed.is_available = lambda: False
    try:
        yield
    except Exception:  # other versions: the modules that failed are not kept, and are imported as usual
        pass
    finally:
        torch.distributed.is_available = distributed
        del sys.modules[_COMPILER], torch._dynamo


class _Undecorated(ModuleType):
    """A module whose every name is a decorator that changes nothing."""

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda function=None, *_args, **_kwargs: function or (lambda function: function)
