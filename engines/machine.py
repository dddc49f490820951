"""The processor and the memory of this machine, and calls that may not take more of them than they should."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import monotonic, time
from typing import Any

from engines import folders
from engines.errors import first_line

if sys.platform == "linux":
    import resource

_DAY, _LONGEST = 86_400, 90  # seconds; days that anything with an end is kept
_NOT_BUSY = ("idle", "iowait", "guest", "guest_nice")  # guests' time is in user and nice already
_SECONDS, _MEMORY, _LARGEST = 10.0, 1 << 30, 64 << 20  # of a limited call: time, more memory, size of its result


def processor() -> str:
    """Name of the processor, which only Linux tells in full; "" where the system does not say."""
    return _of_processor("model name") if _cpuinfo() else platform.processor() or platform.machine()


def processor_flags() -> frozenset[str]:
    """What the processor can do, such as "avx2", as Linux names it; elsewhere nothing."""
    return frozenset(_of_processor("flags").split())


def _of_processor(fact: str) -> str:
    """A fact about the first processor; "" where Linux does not say it."""
    return next((line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith(fact)), "")


@cache
def _cpuinfo() -> tuple[str, ...]:
    try:
        return tuple(Path("/proc/cpuinfo").read_text("utf-8").splitlines())
    except OSError:
        return ()


def processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def measured_file(kind: str, facts: list[Any]) -> Path:
    """Where what was measured on this machine is kept, in the user's cache, whether the file exists or not. Imports
    torch.

    Args:
        kind: name of the folder.
        facts: what it depends on beside this machine and this version of torch, as plain data.
    """
    import torch

    # one processor can do less in some virtual machines than in others
    here = [processor(), sorted(processor_flags()), os.cpu_count(), platform.node()]
    facts = [*here, torch.__version__, *facts]
    key = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:16]
    return folders.cache() / kind / f"{key}.json"


def keep(file: Path, value: Any, days: float | None = None) -> None:
    """Keep plain data in a file of the cache, whole, with a check of its content; where it cannot be written, nothing
    is kept. ``days``: after them it is no longer taken, so that a measurement is tried again; None keeps it for
    good."""
    until = None if days is None else round(time() + days * _DAY)
    with suppress(OSError):
        folders.write_json(file, {"value": value, "until": until, "check": content_check(_spelled(value, until))})


def kept(file: Path) -> Any:
    """What ``keep`` kept; None where there is nothing, it is damaged at any byte, or its time is over (also by a clock
    that was wrong)."""
    try:
        found = json.loads(folders.read_file(file))
        value, until = found["value"], found["until"]
        if found["check"] != content_check(_spelled(value, until)):
            return None
        return value if until is None or 0 <= until - time() <= _LONGEST * _DAY else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _spelled(*parts: Any) -> bytes:
    return json.dumps(parts, sort_keys=True).encode()


def content_check(content: bytes) -> str:
    """Hexadecimal digits that tell whether a file of the cache is as it was written."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


QUIET = 0.25
"""Cores that anything else may use while something is measured that is kept."""


class OtherLoad:
    """What else uses the processor, from here on."""

    def __init__(self) -> None:
        self._clock, self._before = monotonic(), self._seconds()

    def quiet(self) -> bool:
        """Whether the machine is known to have had next to nothing else to do."""
        used = self.cores()
        return used is not None and used < QUIET

    def cores(self) -> float | None:
        """How many cores' time everything but this process has used, on average; None where the system does not say."""
        if self._before is None or (now := self._seconds()) is None:
            return None
        return (now - self._before) / max(monotonic() - self._clock, 1e-9)

    @staticmethod
    def _seconds() -> float | None:
        own = os.times()
        return None if (busy := busy_seconds()) is None else busy - own.user - own.system


def busy_seconds() -> float | None:
    """Time that all cores were at work, time stolen by a hypervisor included; None where the system does not say."""
    import psutil

    try:
        times = psutil.cpu_times()._asdict()
    except (psutil.Error, OSError, NotImplementedError):
        return None
    return sum(seconds for state, seconds in times.items() if state not in _NOT_BUSY)


def ram() -> tuple[int | None, int | None]:
    """Bytes of main memory, and how many of them programs could still take; None where the system does not say."""
    import psutil

    try:
        memory = psutil.virtual_memory()
    except (psutil.Error, OSError, NotImplementedError):
        return None, None
    return memory.total, memory.available


def gpus() -> list[tuple[str, str, int, int]]:
    """Device, name, bytes of memory and free ones of each GPU that torch can use. Imports torch."""
    import torch

    if not torch.cuda.is_available():
        return []
    found = []
    for i in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(i)
        found.append((f"cuda:{i}", torch.cuda.get_device_name(i), total, free))
    return found


class CallFailed(Exception):
    """A limited call raised something, or went beyond a limit; the message says what."""


def limited(call: Callable[[], Any], seconds: float = _SECONDS, memory: int = _MEMORY) -> Any:
    """What a function returns that runs code of somebody else: in a forked child of this process, which is killed where
    it takes more than ``seconds`` or ``memory`` bytes more than this process has. Elsewhere than on Linux, where a
    process of many threads had better not fork, the function runs here and nothing limits it.

    Args:
        call: computes a value that JSON has, and changes nothing.

    Raises:
        CallFailed: the function raised an exception or went beyond a limit.
        KeyboardInterrupt: as everywhere; the child is killed.
    """
    if sys.platform != "linux":
        try:
            return call()
        except Exception as error:
            raise CallFailed(first_line(error)) from None
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _answer(call, writing, seconds, memory)
    os.close(writing)
    try:
        answer = _read(reading, monotonic() + seconds)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if answer is None:
        raise CallFailed(f"it takes more than {seconds:g} s")
    try:
        value, problem = json.loads(answer)
    except ValueError:  # killed on the way
        raise CallFailed(f"it takes more than {memory >> 20} MiB of memory, or breaks down") from None
    if problem is not None:
        raise CallFailed(problem)
    return value


def _answer(call: Callable[[], Any], writing: int, seconds: float, memory: int) -> None:
    """The life of the child: write [value, problem] and end, whatever happens."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, 2 * seconds)  # if nobody is left to kill it
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            found = [call(), None]
        except MemoryError:
            found = [None, f"it takes more than {memory >> 20} MiB of memory"]
        except Exception as error:
            found = [None, first_line(error)]
        rest = memoryview(json.dumps(found).encode())
        while rest and len(rest) <= _LARGEST:
            rest = rest[os.write(writing, rest) :]
    finally:
        os._exit(0)


def _read(reading: int, deadline: float) -> bytes | None:
    """All that comes until the other end is closed; None if that takes too long."""
    found = bytearray()
    while select.select([reading], [], [], max(0.0, deadline - monotonic()))[0]:
        block = os.read(reading, 1 << 16)
        if not block:
            return bytes(found)
        found += block
    return None
