"""A process that can open nothing of its machine but what it is told: Landlock, of the Linux kernel. What it starts is
confined alike. Where there is no Landlock, the program's own checks are all there is (``HostAccess``).

The numbers are those of linux/landlock.h; https://docs.kernel.org/userspace-api/landlock.html
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # system calls, the same on every processor that Python runs torch on
_VERSION = 1  # flag of _CREATE: only say which
_PATH, _PORT = 1, 2  # kinds of rules
_NO_NEW_PRIVILEGES = 38  # of prctl
_OWN_CAPABILITIES = struct.pack("=Ii", 0x20080522, 0)  # of capset: the version of the structure, this thread
_NONE = bytes(24)  # those of root may look into other processes

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_LIST, _READ = _READ_DIR, _EXECUTE | _READ_FILE | _READ_DIR
_CONNECT, _ANY_TCP = 1 << 1, 0b11
_SCOPES = 0b11  # abstract sockets, and signals to processes outside


def version() -> int:
    """Landlock's version on this machine; 0 where there is none."""
    if sys.platform != "linux":
        return 0
    return max(0, ctypes.CDLL(None, use_errno=True).syscall(_CREATE, None, ctypes.c_size_t(0), _VERSION))


def confine(read: Iterable[str], listed: Iterable[str], write: Iterable[str], port: int | None) -> bool:
    """Confine this thread and what it starts, for good. Call it before there are other threads.

    Args:
        read: files and folders whose contents may be read and run; those that are missing are left out.
        listed: folders whose names may be listed, and no more.
        write: folders and devices for anything.
        port: that may be connected to by TCP, on any machine; None for none.

    Returns:
        whether it is confined. Version 4 is the first that knows of the network; older ones leave it open.

    Raises:
        OSError: the kernel has Landlock, and refused.
    """
    known = version()
    if not known:
        return False
    every = (1 << {1: 13, 2: 14}.get(known, 15)) - 1
    parts = [every, _ANY_TCP if known >= 4 else 0, _SCOPES if known >= 6 else 0][: 1 + (known >= 4) + (known >= 6)]
    rules = _call(_CREATE, struct.pack(f"={len(parts)}Q", *parts), len(parts) * 8, 0)
    try:
        for places, allowed in ((read, _READ), (listed, _LIST), (write, every)):
            for place in places:
                _allow(rules, place, allowed & every)
        if port is not None and known >= 4:
            _call(_ADD, rules, _PORT, struct.pack("=QQ", _CONNECT, port), 0)
        library = ctypes.CDLL(None, use_errno=True)
        if library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or library.capset(_OWN_CAPABILITIES, _NONE):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        _call(_RESTRICT, rules, 0)
    finally:
        os.close(rules)
    return True


def _allow(rules: int, place: str, allowed: int) -> None:
    try:
        handle = os.open(place, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # missing; what cannot be opened cannot be allowed
        return
    try:
        access = allowed if os.path.isdir(place) else allowed & _OF_FILES
        if access:
            _call(_ADD, rules, _PATH, struct.pack("=Qi", access, handle), 0)
    finally:
        os.close(handle)


def _call(number: int, *arguments: int | bytes) -> int:
    """A system call. Raises OSError."""
    given = [ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_long(a) for a in arguments]
    result = ctypes.CDLL(None, use_errno=True).syscall(number, *given)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
