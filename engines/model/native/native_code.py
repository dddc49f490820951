"""The native code: its interface, from the package or compiled where that was not done before."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from engines import folders
from engines.machine import content_check, keep, kept, measured_file, processor_flags
from engines.model.favourites import COUNT, Favourites
from engines.model.native import loaded
from engines.model.native.compiling import Progress, best_level, compile_library, compiler, packaged, sources

if TYPE_CHECKING:
    import numpy as np

_AGAIN_DAYS = 3  # after them a compiler that failed is tried again
_ROOM = 20 << 20  # bytes on the disk, without which nothing is compiled
_ANY = ctypes.c_void_p
_COUNT = ctypes.c_int64


class _Filled(ctypes.Structure):
    """A struct that is filled by name. A pointer is given as the object that it points to, a tensor, an array or a
    struct, which must live as long; fields that are not given are 0."""

    _pointers: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._pointers = frozenset(name for name, kind in cls._fields_ if kind is _ANY)

    def __init__(self, **fields: Any) -> None:
        pointers = self._pointers
        super().__init__(**{name: _place(one) if name in pointers else one for name, one in fields.items()})


def _place(thing: Any) -> int | None:
    """Where a thing is in memory, unless it is a place itself."""
    if thing is None or isinstance(thing, int):
        return thing
    return thing.data_ptr() if isinstance(thing, torch.Tensor) else ctypes.addressof(thing)


class NativeWeight(_Filled):
    """``Weight`` of integer_products.h."""

    _fields_ = [("panels", _ANY), ("bias", _ANY), ("inputs", _COUNT), ("outputs", _COUNT), ("type", _COUNT),
                ("int8", _COUNT), ("next", _ANY)]


class NativeLayer(_Filled):
    """``Layer`` of forward.cpp."""

    _fields_ = [*((name, NativeWeight) for name in ("qkv", "output", "gate_up", "down")),
                *((name, _ANY) for name in ("norm", "mlp_norm", "head_norms", "after_norm", "after_mlp_norm")),
                *((name, _COUNT) for name in ("joint_norm", "rope", "mask_kind", "rope_table"))]


class NativeModel(_Filled):
    """``Model`` of forward.cpp."""

    _fields_ = [*((name, _ANY) for name in ("layers", "head", "embedding_weight", "embedding", "norm")),
                *((name, _COUNT) for name in (
                    "layer_count", "width", "mlp", "heads", "kv_heads", "dim", "rope_dim", "rope_tables", "gelu")),
                *((name, ctypes.c_double) for name in ("eps", "score_scale", "embedding_scale", "residual_scale",
                                                       "logit_scale", "score_cap", "logit_cap")),
                *((name, _ANY) for name in ("fc", "embedding_norm", "feature_norm")), ("normed_residual", _COUNT)]


class NativeRows(_Filled):
    """``Rows`` of forward.cpp."""

    _fields_ = [("count", _COUNT), ("first_column", _COUNT),
                *((name, _ANY) for name in ("tokens", "positions", "cos", "sin", "stream", "hidden", "logits")),
                ("first_hidden", _COUNT), ("first_logits", _COUNT), ("cache", _ANY), ("capacity", _COUNT),
                ("masks", _ANY), ("mask_kinds", _COUNT), ("skipped", _ANY), ("features", _ANY), ("watched", _ANY),
                ("summary", _ANY)]


def library(progress: Progress = lambda share: None) -> ctypes.CDLL:
    """The compiled code: of the package where it has some for this processor; else it is compiled here where that was
    not done before, or where what was kept is damaged; ``progress`` gets the share that is compiled. Raises OSError,
    RuntimeError, AttributeError: there is none here. A process tries it once."""
    if loaded.problem is not None:
        raise loaded.problem.with_traceback(None)
    if loaded.code is None:
        try:
            loaded.code = _opened(_from_package() or _compiled_here(progress))
        except (OSError, RuntimeError, AttributeError) as error:
            loaded.problem = error
            raise
    return loaded.code


def forward(model: NativeModel, tokens: Sequence[int], positions: Sequence[int], **rows: Any) -> None:
    """Compute rows of these tokens at these positions; ``rows`` are the other fields of ``NativeRows``."""
    count = len(tokens)
    ids, places = (_COUNT * count)(*tokens), (_COUNT * count)(*positions)
    call = NativeRows(count=count, tokens=ids, positions=places, **rows)
    library().native_forward(ctypes.byref(model), ctypes.byref(call), torch.get_num_threads())


@cache
def favourites_of(rows: int) -> type[Favourites]:
    """``Summary`` of summaries.h: the favourites of so many rows, for native code to fill in."""
    size = rows * COUNT
    numbers = [("ids", _COUNT * size), ("probs", ctypes.c_double * size), ("leads", ctypes.c_float * rows)]
    return type("NativeFavourites", (ctypes.Structure, Favourites), {"_fields_": numbers})


def summarise(rows: Sequence[np.ndarray], tokens: Sequence[int]) -> tuple[Favourites, Sequence[float]]:
    """The favourites of rows of logits [vocabulary] each, float32, and the probability of one token in each."""
    found = favourites_of(len(rows))()
    pointers = (_ANY * len(rows))(*[row.__array_interface__["data"][0] for row in rows])
    asked, probs = (_COUNT * len(rows))(*tokens), (ctypes.c_double * len(rows))()
    library().native_summaries(pointers, len(rows), len(rows[0]), asked, ctypes.byref(found), probs)
    return found, probs


def obtainable() -> bool:
    """Whether there is native code in the package, or a compiler."""
    return _from_package() is not None or compiler() is not None


def origin() -> str:
    """Where the native code comes from, in words."""
    return f"compiled with the package, {_level()}" if _from_package() else "compiled here"


def _level() -> str | None:
    return best_level(processor_flags())


def _from_package() -> Path | None:
    """The library that the package has for this processor."""
    level = _level()
    return packaged(level) if level and os.path.isfile(packaged(level)) else None


def _compiled_here(progress: Progress) -> Path:
    """The library that is, or was, compiled in the cache. Raises OSError, RuntimeError: why there is none."""
    try:
        return _in_cache(measured_file("native", [digest()]).with_suffix(".so"), progress)
    except OSError as error:
        if error.errno is None:  # in our words already
            raise
        raise OSError(f"{folders.cache_problem(error)}: {folders.OTHER_CACHE}") from None


def _in_cache(file: Path, progress: Progress) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    if hasattr(os, "ST_NOEXEC") and os.statvfs(file.parent).f_flag & os.ST_NOEXEC:
        raise OSError(f"no code may run from the cache folder {folders.cache()} (it is mounted with noexec): "
                      f"{folders.OTHER_CACHE}")
    if not _intact(file):
        if folders.free_bytes(file.parent) < _ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        command, refused = _compiler_here()
        progress(0.0)
        with folders.waited_lock(file.with_suffix(".lock"), lambda: progress(0.0)):
            if not _intact(file):
                try:
                    compile_library(command, file, progress=progress)
                except RuntimeError as error:  # not where it was ended, or the disk was full: that passes
                    keep(refused, str(error), _AGAIN_DAYS)
                    raise
                keep(file.with_suffix(".check"), content_check(file.read_bytes()))
    return file


def _intact(file: Path) -> bool:
    """Whether the library is there as it was written: to load another one may end the process."""
    with suppress(OSError):
        return kept(file.with_suffix(".check")) == content_check(folders.read_file(file))
    return False


@cache
def digest() -> str:
    """Of the library that the package has for this processor; without one, of what it is made from."""
    file = _from_package()
    files = [file] if file else sources()
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _opened(file: Path) -> ctypes.CDLL:
    code = ctypes.CDLL(str(file))
    code.native_product.argtypes = [_ANY, _COUNT, _ANY, _ANY, _COUNT]
    code.native_unpack.argtypes = [_ANY, _ANY, _COUNT]
    code.native_rows.argtypes = [_ANY, _COUNT, _ANY, _ANY, _COUNT]
    code.native_size.argtypes, code.native_size.restype = [_ANY], _COUNT
    code.native_repack.argtypes = [_ANY, _COUNT, _ANY, _ANY, _COUNT]
    code.native_forward.argtypes = [_ANY, _ANY, _COUNT]
    code.native_move.argtypes = [_ANY, *[_COUNT] * 4, _ANY, *[_COUNT] * 2]
    code.native_summaries.argtypes = [_ANY, _COUNT, _COUNT, *[_ANY] * 3]
    code.native_unpack.restype = code.native_rows.restype = None
    code.lookup_longest.argtypes, code.lookup_longest.restype = [_ANY, _ANY, _COUNT, _COUNT, _ANY], _COUNT
    code.lookup_rows.argtypes, code.lookup_rows.restype = [_ANY, *[_COUNT] * 5, _ANY, _ANY], None
    code.lookup_near.argtypes = [*[_ANY] * 4, *[_COUNT] * 6, *[_ANY] * 6]
    code.lookup_trie.argtypes = [_ANY, _COUNT, *[_ANY] * 6]
    for allocates in (code.native_product, code.native_repack, code.native_forward, code.native_move,
                      code.native_summaries, code.lookup_near, code.lookup_trie):
        allocates.restype, allocates.errcheck = _COUNT, _in_memory
    _lend_threads(code)
    return code


def _in_memory(found: int, *_: Any) -> int:
    """What a function of the library returns that allocates memory. Raises MemoryError: there is too little."""
    if found < 0:
        raise MemoryError("native code has too little memory")
    return found


def _lend_threads(code: ctypes.CDLL) -> None:
    """Threads are those of the OpenMP that torch uses (libgomp, or libomp, which has the same functions): with others
    beside them, those of one kind would wait, by looking, on cores that the other computes on. Without it there is
    one."""
    suffix = ".dylib" if sys.platform == "darwin" else ".so"
    with suppress(OSError, AttributeError):
        openmp = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / f"libtorch_cpu{suffix}"))
        code.native_threads(*(ctypes.cast(one, _ANY) for one in (openmp.GOMP_parallel, openmp.omp_get_num_threads)))


def _compiler_here() -> tuple[str, Path]:
    """The compiler, and where it is kept that it could not compile this code, which is not tried at each start. Raises
    RuntimeError: there is none, or it could not."""
    command = compiler()
    if command is None:
        raise RuntimeError("no C++ compiler was found")
    program = shutil.which(command.split()[0])
    refused = measured_file("native", [digest(), "refused", command, program and os.stat(program).st_mtime])
    if why := kept(refused):
        raise RuntimeError(str(why))
    return command, refused
