"""Matrix times vector on one thread.

BLAS takes several threads for a large product, which gains microseconds, and costs tens of milliseconds whenever
another program has one of the cores: a query would wait for the slowest.
"""

from __future__ import annotations

import numpy as np

_ALONE = 1 << 18  # elements; OpenBLAS takes more threads from 460,800 on


def product(rows: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Dot products float32 [n] of rows float32 [n, d] with a vector float32 [d], part by part."""
    part = max(1, _ALONE // max(1, len(vector)))
    if len(rows) <= part:
        return rows @ vector
    out = np.empty(len(rows), np.float32)
    for start in range(0, len(rows), part):
        np.dot(rows[start : start + part], vector, out=out[start : start + part])
    return out
