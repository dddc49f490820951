"""How the native code is compiled: for this machine where it runs, or for a package (``hatch_build.py``), which has it
once for each of some levels of processors. Imports the standard library only."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

Progress = Callable[[float], None]

HERE = Path(__file__).parent
# In the order in which they are ready. integer_products.cpp unrolls its loops itself, by pragmas.
SOURCES = {"lookups.cpp": "-O2", "integer_products.cpp": "-O2", "forward.cpp": "-O3"}
FLAGS = ("-std=c++17", "-ffp-contract=fast", "-fvisibility=hidden", "-w", "-fPIC")
FOR_THIS = ("-march=native",)
LEVELS = {
    "AVX-512 VNNI": ("avx512f", "avx512bw", "avx512vl", "avx512dq", "fma", "f16c", "avx512_vnni"),
    "AVX-512": ("avx512f", "avx512bw", "avx512vl", "avx512dq", "fma", "f16c"),
    "AVX-VNNI": ("avx2", "fma", "f16c", "avx_vnni"),
    "AVX2": ("avx2", "fma", "f16c"),
}
"""What a processor needs for each, as Linux names it; the better ones first."""
_CHECK = "check CXX, which names it"
_LACKS = ("ENOSPC", "EDQUOT", "EFBIG", "EIO", "ENOMEM", "EMFILE", "ENFILE", "EAGAIN", "EROFS", "EACCES")
# What a compiler says that was ended (its driver, whose passes are processes, returns as if it had failed) or lacked
# something: it may work the next time.
_PASSING = ("terminated", "Killed", "due to signal", "memory exhausted", "out of memory", "bad_alloc",
            *(os.strerror(getattr(errno, name)) for name in _LACKS if hasattr(errno, name)))
_COMPILERS = ("g++", "c++", "clang++")


def best_level(flags: Collection[str]) -> str | None:
    """The level of a processor with these flags; None: no package has code for it."""
    return next((level for level, needed in LEVELS.items() if set(needed) <= set(flags)), None)


def packaged(level: str) -> Path:
    """Where a package has the library of a level, whether it is there or not."""
    return HERE / "compiled" / f"{level.lower().replace(' ', '-')}.so"


def for_level(level: str) -> list[str]:
    """The compiler's flags for a level."""
    return [f"-m{flag.replace('_', '')}" for flag in LEVELS[level]]


def sources() -> list[Path]:
    """The native code and this file: whatever changes the library."""
    return sorted(file for file in HERE.iterdir() if file.suffix in (".cpp", ".h") or file == Path(__file__))


def compiler() -> str | None:
    """The machine's C++ compiler: the command that is in CXX, else the first of the usual ones that is there."""
    return os.environ.get("CXX", "").strip() or next(filter(None, map(shutil.which, _COMPILERS)), None)


def compile_library(
    command: str, file: Path, flags: Sequence[str] = FOR_THIS, progress: Progress = lambda share: None
) -> None:
    """Make the library; ``progress`` gets the share of it that is done. Raises RuntimeError: the compiler can't compile
    this; OSError, without a number: it was ended, lacked something, or cannot be started; with one: the disk
    refuses."""
    with TemporaryDirectory(dir=file.parent) as folder:
        half, parts = Path(folder, file.name), [str(Path(folder, f"{source}.o")) for source in SOURCES]
        _run(*([*command.split(), *FLAGS, *flags, how, "-c", str(HERE / source), "-o", part]
               for (source, how), part in zip(SOURCES.items(), parts)), progress=progress)
        _run([*command.split(), "-shared", *parts, "-o", str(half)])
        if not os.path.exists(half):
            raise OSError(f"the C++ compiler {command} makes no library: {_CHECK}")
        with open(half, "rb+") as stream:
            os.fsync(stream.fileno())
        half.replace(file)


def _run(*commands: list[str], progress: Progress = lambda share: None) -> None:
    """Run several compiler commands at the same time. Raises RuntimeError: one failed; OSError: one was ended, lacked
    something, or cannot be started."""
    progress(0.0)
    running, said = [], []
    try:
        for command in commands:
            running.append(_started(command))
        for process in running:
            said.append(process.communicate()[1])
            progress(len(said) / len(running))
    finally:  # progress may leave
        for process in running:
            if process.poll() is None:
                with suppress(ProcessLookupError, PermissionError):  # it has just ended
                    os.killpg(process.pid, signal.SIGTERM)  # its passes too; a driver removes what it wrote meanwhile
                process.wait()
    for process, errors in zip(running, said):
        if process.returncode:
            passes = [line for line in errors.splitlines() if any(words in line for words in _PASSING)]
            lines = passes or [line for line in errors.splitlines() if "error" in line]
            kind = OSError if passes or process.returncode < 0 else RuntimeError
            raise kind(f"the C++ compiler failed: {lines[0] if lines else process.returncode}")


def _started(command: list[str]) -> subprocess.Popen:
    """Start a compiler in a process group of its own; its messages are in English. Raises OSError."""
    try:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                text=True, errors="replace", env={**os.environ, "LC_ALL": "C"},
                                start_new_session=True)
    except OSError as error:
        advice = f": {_CHECK}" if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ENOEXEC) else ""
        raise OSError(f"the C++ compiler {command[0]} cannot be started ({error.strerror}){advice}") from None
