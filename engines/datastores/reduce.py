"""From hidden states to keys: z-norm, PCA, unit length (DReSD, sections 3.2 to 3.4 and 5.2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from engines.errors import RunFailed, UsageProblem

SAMPLE = 1_000_000  # hidden states that the statistics are taken from, as in the paper
_BLOCK = 8192  # rows in float64 at a time
_EPSILON = 1e-6  # of the mean variance, the paper's epsilon without a scale
_TINY = 1e-12
_HALF = np.float32(65504)  # largest float16


@dataclass(frozen=True)
class Recipe:
    """What is done to a hidden state (the build options of the paper's Table 2 and section 5.2).

    Attributes:
        dims: principal components kept, 0 for no PCA.
        z_norm: mean 0 and deviation 1 in every dimension first. PCA centres in any case.
        unit_norm: length 1 at the end, so that dot products are cosines.
    """

    dims: int = 64
    z_norm: bool = True
    unit_norm: bool = True

    def __post_init__(self) -> None:
        if self.dims < 0:
            raise UsageProblem(f"{self.dims} principal components can't be kept", "use 0 for no PCA, or 64")

    def width(self, hidden: int) -> int:
        """Dimensions of a key made from so many dimensions of a hidden state."""
        return min(self.dims, hidden) or hidden


class Reduction:
    """The fitted map from hidden states to keys, one matrix product: the z-norm is folded into it.

    Args:
        recipe: what is done.
        mean, deviation: float [H], of the sample; 0 and 1 where the recipe has no use for them.
        components: float [H, d], principal components as columns, or None for no PCA.
        explained: float [d], share of the variance each component explains (the paper's Fig. 5).
    """

    def __init__(
        self, recipe: Recipe, mean: np.ndarray, deviation: np.ndarray, components: np.ndarray | None = None,
        explained: np.ndarray | None = None,
    ) -> None:
        self.recipe = recipe
        self.mean, self.deviation = np.asarray(mean, np.float32), np.asarray(deviation, np.float32)
        self.components = None if components is None else np.asarray(components, np.float32)
        self.explained = np.zeros(0, np.float32) if explained is None else np.asarray(explained, np.float32)
        scale = 1 / self.deviation.astype(np.float64)
        if self.components is None:
            self._matrix, offset = None, -self.mean * scale
            self._scale = scale.astype(np.float32)
        else:
            folded = self.components * scale[:, None]
            self._matrix, offset = np.ascontiguousarray(folded, np.float32), -self.mean.astype(np.float64) @ folded
        self._offset = offset.astype(np.float32)

    @property
    def hidden(self) -> int:
        """Dimensions of a hidden state, H."""
        return len(self.mean)

    @property
    def width(self) -> int:
        """Dimensions of a key, d."""
        return len(self._offset)

    def __call__(self, hidden: np.ndarray) -> np.ndarray:
        """Keys float32 [n, d] of hidden states [n, H], or one [d] of one [H].

        Raises:
            RunFailed: the hidden states are not finite, or of another width than those this was fitted on.
        """
        if hidden.shape[-1] != self.hidden:
            raise RunFailed(
                f"hidden states have {hidden.shape[-1]} dimensions, these keys were made from {self.hidden}",
                "use the model the datastore was built with, or build it for this one",
            )
        hidden = hidden.astype(np.float32, copy=False)
        keys = hidden * self._scale if self._matrix is None else hidden @ self._matrix
        keys += self._offset
        if self.recipe.unit_norm:
            keys /= np.maximum(np.sqrt((keys * keys).sum(-1, keepdims=True)), _TINY)
        _demand_finite(keys)
        return keys

    def arrays(self) -> dict[str, np.ndarray]:
        """What a folder keeps of it, float32 by name."""
        found = {"mean": self.mean, "deviation": self.deviation}
        if self.components is not None:
            found |= {"components": self.components, "explained": self.explained}
        return found

    @classmethod
    def of(cls, recipe: Recipe, arrays: dict[str, np.ndarray]) -> Reduction:
        """The map that ``arrays`` kept."""
        return cls(
            recipe, arrays["mean"], arrays["deviation"], arrays.get("components"), arrays.get("explained")
        )


def fit(sample: np.ndarray, recipe: Recipe) -> Reduction:
    """Mean, deviation and principal components of a sample of hidden states.

    One pass: the covariance in float64, from which the z-norm's correlation follows. Components are ordered by
    variance, the largest entry of each is positive, so that the same sample gives the same keys.

    Args:
        sample: float [n, H], memory-mapped or not, n >= 1.

    Raises:
        RunFailed: an empty sample, or hidden states that are not finite.
    """
    count, width = sample.shape
    if not count:
        raise RunFailed("there are no hidden states to fit the datastore's keys on", "build it from more text")
    mean, covariance = moments(sample)
    variance = np.diagonal(covariance).copy()
    deviation = np.ones(width)
    if recipe.z_norm:
        deviation = np.sqrt(variance + _EPSILON * variance.mean())
        deviation[deviation == 0] = 1
    if not recipe.dims:
        return Reduction(recipe, mean if recipe.z_norm else np.zeros(width), deviation)
    covariance /= np.outer(deviation, deviation)
    variances, vectors = np.linalg.eigh(covariance)
    keep = recipe.width(width)
    variances, vectors = np.maximum(variances[::-1], 0), vectors[:, ::-1][:, :keep]
    largest = np.abs(vectors).argmax(0)
    vectors = vectors * np.where(vectors[largest, np.arange(keep)] < 0, -1, 1)
    return Reduction(recipe, mean, deviation, vectors, variances[:keep] / max(variances.sum(), _TINY))


def moments(sample: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean [H] and covariance [H, H] of the rows of a sample, float64, in one pass around its first rows' mean."""
    width = sample.shape[1]
    about = sample[:_BLOCK].astype(np.float64).mean(0)
    total, products = np.zeros(width), np.zeros((width, width))
    for start in range(0, len(sample), _BLOCK):
        rows = sample[start : start + _BLOCK].astype(np.float64) - about
        _demand_finite(rows)
        total += rows.sum(0)
        products += rows.T @ rows
    off = total / len(sample)
    return about + off, products / len(sample) - np.outer(off, off)


class Reservoir:
    """A uniform random sample of a stream of hidden states, of which only the sample is kept (Vitter's Algorithm R).

    The sample depends on the seed and the order of the rows, not on how they come in batches.
    """

    def __init__(self, width: int, limit: int = SAMPLE, seed: int = 0) -> None:
        self._rows = np.empty((0, width), np.float16)
        self._limit, self._random = limit, np.random.default_rng(seed)
        self.seen = 0

    def add(self, hidden: np.ndarray) -> None:
        """More rows of the stream, float [n, H]."""
        free = max(0, self._limit - self.seen)
        first, rest = hidden[:free], hidden[free:]
        if len(first):
            self._grow(self.seen + len(first))
            self._rows[self.seen : self.seen + len(first)] = to_half(first)
            self.seen += len(first)
        if len(rest):
            places = self._random.integers(0, np.arange(self.seen, self.seen + len(rest)) + 1)
            self.seen += len(rest)
            for row in np.flatnonzero(places < self._limit):
                self._rows[places[row]] = to_half(rest[row])

    @property
    def sample(self) -> np.ndarray:
        """float16 [min(seen, limit), H]."""
        return self._rows[: min(self.seen, self._limit)]

    def _grow(self, rows: int) -> None:
        if rows > len(self._rows):
            larger = np.empty((min(self._limit, max(rows, 2 * len(self._rows))), self._rows.shape[1]), np.float16)
            larger[: len(self._rows)] = self._rows
            self._rows = larger


def fit_stream(batches: Iterable[np.ndarray], recipe: Recipe, limit: int = SAMPLE, seed: int = 0) -> Reduction:
    """``fit`` on a random sample of a stream of hidden states, each float [n, H]."""
    reservoir: Reservoir | None = None
    for batch in batches:
        reservoir = reservoir or Reservoir(batch.shape[1], limit, seed)
        reservoir.add(batch)
    return fit(reservoir.sample if reservoir else np.empty((0, 1)), recipe)


def to_half(values: np.ndarray) -> np.ndarray:
    """float16, what is too large for it cut to its largest; not-a-number stays."""
    return np.clip(values, -_HALF, _HALF).astype(np.float16)


def _demand_finite(values: np.ndarray) -> None:
    if not np.isfinite(values.sum()):
        raise RunFailed("the model's hidden states are not finite", "load the model in float32 or bfloat16")
