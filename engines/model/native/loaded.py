"""The native code, where a model has loaded it: code that also works without native code looks here, so that it need
not import torch."""

from __future__ import annotations

import ctypes

code: ctypes.CDLL | None = None
problem: Exception | None = None  # why there is none, which this process does not try again
