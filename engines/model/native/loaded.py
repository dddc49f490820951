"""The native code, where a model has loaded it: what can do without looks here, and imports no torch for it."""

from __future__ import annotations

import ctypes

code: ctypes.CDLL | None = None
problem: Exception | None = None  # why there is none, which this process does not try again
