"""The native code: its interface, compiled where that was not done before."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from filelock import FileLock

from engines import folders
from engines.machine import content_check, keep, kept, measured_file

_HERE = Path(__file__).parent
_COMPILERS = ("g++", "c++", "clang++")
_FLAGS = ("-std=c++17", "-march=native", "-ffp-contract=fast", "-w", "-fPIC")
# Loops over rows of the second are unrolled where they are written.
_SOURCES = {"forward.cpp": "-O3", "whole.cpp": "-O2"}
_AGAIN_DAYS = 3  # after them a compiler that failed is tried again
_ANY = ctypes.c_void_p
_COUNT = ctypes.c_int64


class NativeWeight(ctypes.Structure):
    """``Weight`` of whole.h."""

    _fields_ = [("blocks", _ANY), ("bias", _ANY), ("inputs", _COUNT), ("outputs", _COUNT), ("stored", _COUNT),
                ("rounds", _COUNT), ("next", _ANY)]


class NativeLayer(ctypes.Structure):
    """``Layer`` of forward.cpp."""

    _fields_ = [*((name, NativeWeight) for name in ("qkv", "output", "gate_up", "down")),
                *((name, _ANY) for name in ("norm", "mlp_norm", "head_norms", "after_norm", "after_mlp_norm")),
                *((name, _COUNT) for name in ("joint", "rotated", "kind", "table"))]


class NativeModel(ctypes.Structure):
    """``Model`` of forward.cpp."""

    _fields_ = [*((name, _ANY) for name in ("layers", "head", "table", "embedding", "norm")),
                *((name, _COUNT) for name in (
                    "count", "width", "mlp", "heads", "kv_heads", "dim", "turned", "tables", "gelu")),
                *((name, ctypes.c_double) for name in ("eps", "score_scale", "embedding_scale", "residual_scale",
                                                       "logit_scale", "score_cap", "logit_cap")),
                *((name, _ANY) for name in ("entry", "embedding_norm", "feature_norm")), ("normed_residual", _COUNT)]


class NativeRows(ctypes.Structure):
    """``Rows`` of forward.cpp."""

    _fields_ = [("count", _COUNT), ("first", _COUNT),
                *((name, _ANY) for name in ("tokens", "positions", "cos", "sin", "stream", "last", "logits")),
                ("first_last", _COUNT), ("first_logits", _COUNT), ("cache", _ANY), ("capacity", _COUNT),
                ("masks", _ANY), ("kinds", _COUNT), ("skipped", _ANY), ("features", _ANY), ("watched", _ANY)]


def compiler() -> str | None:
    """The machine's C++ compiler: the command that is in CXX, else the first of the usual ones that is there."""
    return os.environ.get("CXX") or next(filter(None, map(shutil.which, _COMPILERS)), None)


_loaded: list[ctypes.CDLL] = []


def check(failed: int) -> None:
    """Raises RuntimeError: native code returned that it failed."""
    if failed:
        raise RuntimeError("torch could not start its threads")


def library(progress: Callable[[], None] = lambda: None) -> ctypes.CDLL:
    """The compiled code. It is compiled where that was not done before, or where what was kept is damaged; then
    ``progress`` is called first. Raises OSError, RuntimeError, AttributeError: there is none here."""
    if not _loaded:
        file = measured_file("native", [digest()]).with_suffix(".so")
        file.parent.mkdir(parents=True, exist_ok=True)
        if hasattr(os, "ST_NOEXEC") and os.statvfs(file.parent).f_flag & os.ST_NOEXEC:
            raise OSError(f"no code may run from the cache folder {folders.cache()} (it is mounted with noexec): "
                          "SPEC_TUI_CACHE_DIR names another one")
        if not _intact(file):
            command, refused = _compiler_here()
            progress()
            with FileLock(file.with_suffix(".lock")):  # another process may be compiling it
                if not _intact(file):
                    try:
                        _compile(command, file)
                    except RuntimeError as error:
                        keep(refused, str(error), _AGAIN_DAYS)
                        raise
                    keep(file.with_suffix(".check"), content_check(file.read_bytes()))
        _loaded.append(_opened(file))
    return _loaded[0]


def _intact(file: Path) -> bool:
    """Whether the library is there as it was written: to load another one may end the process."""
    with suppress(OSError):
        return kept(file.with_suffix(".check")) == content_check(file.read_bytes())
    return False


@cache
def digest() -> str:
    """Of the native code, and of how it is compiled."""
    files = sorted(file for file in _HERE.iterdir() if file.suffix in (".cpp", ".h"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files) + repr((_FLAGS, _SOURCES)).encode()).hexdigest()


def _opened(file: Path) -> ctypes.CDLL:
    code = ctypes.CDLL(str(file))
    code.native_product.argtypes = [_ANY, _COUNT, _ANY, _ANY, _COUNT]
    code.native_unpack.argtypes = [_ANY, _ANY, _COUNT]
    code.native_rows.argtypes = [_ANY, _COUNT, _ANY, _ANY, _COUNT]
    code.native_size.argtypes, code.native_size.restype = [_ANY], _COUNT
    code.native_reorder.argtypes = [_ANY, _COUNT, _ANY, _ANY, _COUNT]
    code.native_forward.argtypes = [_ANY, _ANY, _COUNT]
    return code


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


def _compile(command: str, file: Path) -> None:
    torch_folder = Path(torch.__file__).parent
    late = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    with TemporaryDirectory(dir=file.parent) as folder:
        half, parts = Path(folder, file.name), [str(Path(folder, f"{source}.o")) for source in _SOURCES]
        _run(*([*command.split(), *_FLAGS, how, f"-I{torch_folder / 'include'}", "-c", str(_HERE / source), "-o", part]
               for (source, how), part in zip(_SOURCES.items(), parts)))
        _run([*command.split(), "-shared", *late, *parts, f"-L{torch_folder / 'lib'}", "-ltorch_cpu", "-o", str(half)])
        with open(half, "rb+") as stream:
            os.fsync(stream.fileno())
        half.replace(file)


def _run(*commands: list[str]) -> None:
    """Run commands of the compiler's at the same time. Raises RuntimeError: one failed; OSError: one was ended."""
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                text=True, errors="replace") for command in commands]
    said = [process.communicate()[1] for process in running]
    for process, errors in zip(running, said):
        if process.returncode:
            lines = [line for line in errors.splitlines() if "error" in line]
            kind = RuntimeError if process.returncode > 0 else OSError  # the second: it was ended, and may work again
            raise kind(f"the C++ compiler failed: {lines[0] if lines else process.returncode}")
