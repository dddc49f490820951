"""From hidden states to keys: z-norm, PCA, unit length (DReSD, sections 3.2 to 3.4 and 5.2)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from engines.datastores.search.ann import product
from engines.errors import DatastoreProblem, RunFailed, UsageProblem

BLOCK = 4096  # rows that are processed together
_EPSILON = 1e-10  # of the mean variance: the paper's epsilon, whatever the scale
_TINY = 1e-12
_HALF = np.float32(65504)  # largest float16


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a hidden state becomes a key (the build options of the paper's Table 2 and section 5.2).

    Attributes:
        dims: principal components kept, 0 for no PCA.
        z_norm: mean 0 and deviation 1 in every dimension first. PCA centres in any case.
        unit_norm: length 1 at the end, so that dot products are cosines.

    Raises:
        UsageProblem: fewer than 0 dimensions.
    """

    dims: int = 64
    z_norm: bool = True
    unit_norm: bool = True

    def __post_init__(self) -> None:
        if self.dims < 0:
            raise UsageProblem(f"{self.dims} principal components can't be kept", "keep 64, or use 0 for no PCA")

    def width(self, hidden: int) -> int:
        """Dimensions of a key that is made of so many dimensions of a hidden state."""
        return min(self.dims, hidden) or hidden


class Reduction:
    """The map from hidden states to keys. The deviation is folded into the matrix of the PCA.

    Args:
        recipe: what is done.
        mean, deviation: [H], of the sample; 0 and 1 where the recipe has no use for them.
        components: [H, d], principal components as columns, None for no PCA.
        explained: [d], share of the variance that each of them explains (the paper's Fig. 5).
    """

    def __init__(
        self, recipe: Recipe, mean: np.ndarray, deviation: np.ndarray, components: np.ndarray | None = None,
        explained: np.ndarray | None = None,
    ) -> None:
        self.recipe = recipe
        self._arrays = {"mean": mean, "deviation": deviation}
        if components is not None:
            self._arrays |= {"components": components, "explained": explained}
        self._arrays = {name: np.asarray(array, np.float32) for name, array in self._arrays.items()}
        scale = 1 / self._arrays["deviation"].astype(np.float64)
        folded = scale if components is None else self._arrays["components"] * scale[:, None]
        self._mean, self._folded = self._arrays["mean"], np.ascontiguousarray(folded.T, np.float32)  # [d, H] or [H]
        self.hidden, self.width = len(self._mean), len(self._folded)

    def arrays(self) -> dict[str, np.ndarray]:
        """All that it is made of, float32 by name; ``of`` takes it back."""
        return dict(self._arrays)

    @classmethod
    def of(cls, recipe: Recipe, arrays: Mapping[str, np.ndarray]) -> Reduction:
        """From ``arrays``."""
        return cls(recipe, *(arrays.get(name) for name in ("mean", "deviation", "components", "explained")))

    def __call__(self, hidden: np.ndarray) -> np.ndarray:
        """Keys float32 [n, d] of hidden states [n, H]. Raises RunFailed: not finite, or of another width;
        DatastoreProblem: the PCA is damaged."""
        centred = self._centred(hidden)
        keys = centred @ self._folded.T if self._folded.ndim == 2 else centred * self._folded
        if self.recipe.unit_norm:
            keys /= np.maximum(np.sqrt(np.einsum("nd,nd->n", keys, keys)), _TINY)[:, None]
        if not np.isfinite(keys).all():
            raise not_finite(hidden)
        return keys

    def one(self, hidden: np.ndarray) -> np.ndarray:
        """The key float32 [d] of one hidden state [H], quickly. Raises as ``__call__``."""
        centred = self._centred(hidden)
        key = product(self._folded, centred) if self._folded.ndim == 2 else centred * self._folded
        size = math.sqrt(key @ key)
        if not math.isfinite(size):
            raise not_finite(hidden)
        return key / np.float32(max(size, _TINY)) if self.recipe.unit_norm else key

    def _centred(self, hidden: np.ndarray) -> np.ndarray:
        """Around zero before any product: means can be large beside what varies."""
        if hidden.shape[-1] != self.hidden:
            raise RunFailed(f"hidden states of {hidden.shape[-1]} dimensions, for keys that were made of {self.hidden}",
                            "use the model that the datastore was built with, or build it for this one")
        return hidden.astype(np.float32, copy=False) - self._mean


def fit(sample: Iterable[np.ndarray], recipe: Recipe) -> Reduction:
    """Mean, deviation and principal components of a sample of hidden states, read once.

    Covariance and eigenvectors are in float64; the correlations that PCA after a z-norm needs follow from it. The
    largest entry of each component is positive, so that the same sample gives the same keys.

    Args:
        sample: blocks [n, H] of any lengths, at least one row together. It has to be random: the first documents of
            a corpus are not what the others are.

    Raises:
        RunFailed: an empty sample, or hidden states that are not finite.
    """
    mean, covariance = moments(sample)
    width = len(mean)
    variance = np.diagonal(covariance)
    deviation = np.ones(width)
    if recipe.z_norm:
        deviation = np.sqrt(variance + _EPSILON * variance.mean())
        deviation[deviation == 0] = 1
    if not recipe.dims:
        return Reduction(recipe, mean if recipe.z_norm else np.zeros(width), deviation)
    variances, vectors = np.linalg.eigh(covariance / np.outer(deviation, deviation))
    keep = recipe.width(width)
    variances, vectors = np.maximum(variances[::-1], 0), vectors[:, ::-1][:, :keep]
    largest = np.abs(vectors).argmax(0)
    vectors = vectors * np.where(vectors[largest, np.arange(keep)] < 0, -1, 1)
    return Reduction(recipe, mean, deviation, vectors, variances[:keep] / max(variances.sum(), _TINY))


def moments(sample: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean [H] and covariance [H, H] of blocks of rows, float64, in one pass. Sums are about the mean of the first
    rows: about zero, large means would leave nothing of small variances. Raises as ``fit``."""
    count, about, total, products = 0, None, None, None
    for rows in sample:
        if not len(rows):
            continue
        rows = rows.astype(np.float64)
        if about is None:
            about, width = rows.mean(0), rows.shape[1]
            total, products = np.zeros(width), np.zeros((width, width))
        rows -= about
        count += len(rows)
        total += rows.sum(0)
        products += rows.T @ rows
    if about is None:
        raise RunFailed("there are no hidden states to make keys of", "build the datastore from more text")
    if not (np.isfinite(total).all() and np.isfinite(products).all()):
        raise not_finite()
    off = total / count
    return about + off, products / count - np.outer(off, off)


def blocks(rows: np.ndarray, chosen: np.ndarray | None = None) -> Iterator[np.ndarray]:
    """The rows of an array, or some of them by number, in blocks."""
    for start in range(0, len(rows) if chosen is None else len(chosen), BLOCK):
        part = slice(start, start + BLOCK)
        yield rows[part] if chosen is None else rows[chosen[part]]


def to_half(values: np.ndarray) -> np.ndarray:
    """The values as float16, clipped to its range."""
    return np.clip(values, -_HALF, _HALF).astype(np.float16)


def not_finite(hidden: np.ndarray | None = None) -> RunFailed | DatastoreProblem:
    """The error for keys that are infinite or not a number: whose hidden states are finite, is not to blame."""
    if hidden is not None and np.isfinite(hidden).all():
        return DatastoreProblem("the datastore's PCA makes keys that are not finite: it is damaged",
                                "spec-tui datastore verify finds what is; build it again")
    return RunFailed("the model's hidden states are not finite", "load the model in float32 or bfloat16")
