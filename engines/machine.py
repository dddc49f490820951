"""The processor and the memory of this machine."""

from __future__ import annotations

import platform
from pathlib import Path


def processor() -> str:
    """Name of the processor, which only Linux tells in full; "" where the system does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


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
