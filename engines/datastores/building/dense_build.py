"""Building the dense part of a datastore: hidden states on the disk, then statistics, keys and their index.

The stages work in the ``workspace.Workspace`` of the tokens. Hidden states are written in float16 as they come, so that
mean, deviation and PCA can be fitted on a random sample of all of them; that takes 2 H bytes a token until the build is
done. Where that is too much, fit a reduction on some random documents first (``reduce.fit``) and hand it in: then
what is written is the keys. An interrupted build is taken up where it was last committed and gives the same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from engines.datastores.building.build_journal import BuildJournal
from engines.datastores.building.progress import Progress, Reporter, no_progress
from engines.datastores.search.ann import IndexDescription
from engines.datastores.search.indexing import FOLDER, build_index
from engines.datastores.search.reduce import BLOCK, Recipe, Reduction, blocks, fit, to_half
from engines.errors import RunFailed, UsageProblem

SAMPLE = 1_000_000  # hidden states that the statistics are taken from, as in the paper
_HELD_OUT = 500  # keys that are left out to measure recall with, at most, and
_SHARE = 100  # at most one of so many
_EVERY = 2.0  # seconds between commits
_STATE = "hidden states"


@dataclass(frozen=True, slots=True)
class DenseEstimate:
    """Bytes of a dense part: of the datastore, and on the disk while it is built."""

    size: int
    building: int


def estimate(keys: int, hidden: int, recipe: Recipe, fitted: bool = False) -> DenseEstimate:
    """What the dense part of so many keys, of hidden states of so many dimensions, takes."""
    width = recipe.width(hidden)
    size = keys * (2 * width + 4 + width // 2 + 4) + 4 * hidden * (2 + (width if recipe.dims else 0))
    return DenseEstimate(size, size + keys * (2 * (width if fitted else hidden) + 4))


class DenseBuilder:
    """Takes hidden states in batches, then makes the dense part of them.

    Args:
        place: of the build; its tokens are written already.
        hidden: dimensions of a hidden state, H.
        recipe: what is done to them.
        reduction: fitted beforehand; None fits one on a sample of what comes.
        sample: hidden states to fit on, at most.
        seed: of the sample, and of the keys that are held out.

    Attributes:
        cursor: what the last ``commit`` on the disk was given: go on after it. None at the beginning.
        complete: all hidden states are there: only ``finish`` is left.

    Raises:
        UsageProblem: a reduction of another recipe.
    """

    def __init__(
        self, place: BuildJournal, hidden: int, recipe: Recipe, reduction: Reduction | None = None, *,
        sample: int = SAMPLE, seed: int = 0,
    ) -> None:
        if reduction is not None and (reduction.recipe, reduction.hidden) != (recipe, hidden):
            raise UsageProblem("the statistics are of another recipe or model", "fit them for this one")
        self._place, self._hidden, self.recipe, self._reduction = place, hidden, recipe, reduction
        self._sample, self._seed = sample, seed
        state = place.state(_STATE) or {"rows": 0, "cursor": None, "complete": False}
        self.rows, self.cursor, self.complete = state["rows"], state["cursor"], state["complete"]
        self._width = hidden if reduction is None else reduction.width
        self._raw, self._where = place.appending("hidden.raw"), place.appending("positions.raw")
        self._committed = time.monotonic()

    def add(self, hidden: np.ndarray, positions: np.ndarray) -> None:
        """Hidden states float [n, H] of tokens, and the position in the datastore of the token after each: that a
        document's last token has none is for the caller to heed. Raises RunFailed: they are not finite."""
        if hidden.shape != (len(positions), self._hidden):
            raise ValueError(f"hidden states {hidden.shape} for {len(positions)} positions")
        if not np.isfinite(hidden).all():
            raise RunFailed("the model's hidden states are not finite", "load the model in float32 or bfloat16")
        rows = hidden if self._reduction is None else self._reduction(hidden)
        self._raw.write(to_half(rows).tobytes())
        self._where.write(np.asarray(positions).astype("<i4").tobytes())
        self.rows += len(hidden)

    def commit(self, cursor: Any, complete: bool = False) -> None:
        """All up to ``cursor`` (JSON) has been added; every few seconds this brings it to the disk."""
        if complete or time.monotonic() - self._committed > _EVERY:
            self._place.commit(_STATE, {"rows": self.rows, "cursor": cursor, "complete": complete})
            self.cursor, self.complete, self._committed = cursor, complete, time.monotonic()

    def finish(self, index: str = "auto", progress: Progress = no_progress) -> DensePart:
        """Statistics, keys and index of what was added, which is committed as complete first.

        Args:
            index: one of ``ann.BACKENDS``.
            progress: told of each step; what it raises interrupts the build and leaves this method.

        Raises:
            RunFailed: nothing was added.
            UsageProblem: no such index, or its library is not installed.
        """
        if not self.complete:
            self.commit(self.cursor, complete=True)
        if not self.rows:
            raise RunFailed("there are no hidden states to make keys of", "build the datastore from more text")
        raw = np.memmap(self._place.folder / "hidden.raw", "<f2", "r", shape=(self.rows, self._width))
        arrays = self._statistics(raw, progress)
        reduction = Reduction.of(self.recipe, arrays)
        held = self._held_out()
        self._write_keys(raw, reduction, held, progress)
        keys = self.rows - len(held)
        description = self._index(keys, reduction.width, index, progress)
        shapes = {"keys": (keys, reduction.width), "held_out": (len(held), reduction.width)}
        files: dict[str, Any] = {f"{name}.bin": ("<f2", shape) for name, shape in shapes.items()}
        files["key_positions.bin"] = ("<i4", (keys,))
        files |= {f"{name}.bin": ("<f4", array.shape) for name, array in arrays.items()}
        files |= {f"{FOLDER}/{p.name}": None for p in sorted((self._place.folder / FOLDER).iterdir())}
        parameters = asdict(self.recipe) | {"index": description.plain(), "sample": self._sample, "seed": self._seed}
        return DensePart(keys, files, parameters)

    def _statistics(self, raw: np.ndarray, progress: Progress) -> dict[str, np.ndarray]:
        """The reduction's arrays, from the disk if they are there."""
        shapes = self._place.state("statistics")
        if shapes is None:
            fitted = self._reduction or fit(self._sampled(raw, progress), self.recipe)
            for name, array in fitted.arrays().items():
                self._place.appending(f"{name}.bin").write(array.astype("<f4").tobytes())
            shapes = {name: array.shape for name, array in fitted.arrays().items()}
            self._place.commit("statistics", shapes)
        folder = self._place.folder
        return {name: np.fromfile(folder / f"{name}.bin", "<f4").reshape(shape) for name, shape in shapes.items()}

    def _sampled(self, raw: np.ndarray, progress: Progress) -> Iterator[np.ndarray]:
        """A random sample of the hidden states, in blocks."""
        count, chosen, done = min(self.rows, self._sample), None, 0
        if count < self.rows:
            chosen = np.sort(np.random.default_rng(self._seed).choice(self.rows, count, replace=False))
        report = Reporter("statistics", "keys", progress)
        for block in blocks(raw, chosen):
            report.at(done, count)
            yield block
            done += len(block)
        report.at(count, count)

    def _held_out(self) -> np.ndarray:
        """Rows that do not become keys, ascending."""
        count = min(_HELD_OUT, self.rows // _SHARE)
        return np.sort(np.random.default_rng([self._seed, 1]).choice(self.rows, count, replace=False))

    def _write_keys(self, raw: np.ndarray, reduction: Reduction, held: np.ndarray, progress: Progress) -> None:
        files = [self._place.appending(f"{name}.bin") for name in ("keys", "held_out", "key_positions")]
        where = np.memmap(self._place.folder / "positions.raw", "<i4", "r", shape=(self.rows,))
        done = begun = self._place.state("keys") or 0
        report = Reporter("keys", "keys", progress, begun)
        for start in range(begun, self.rows, BLOCK):
            report.at(start, self.rows)
            part = slice(start, start + BLOCK)
            keys = raw[part] if self._reduction else to_half(reduction(raw[part]))
            out = np.zeros(len(keys), bool)
            out[held[(held >= start) & (held < start + BLOCK)] - start] = True
            for file, rows in zip(files, (keys[~out], keys[out], where[part][~out])):
                file.write(rows.tobytes())
            done = start + len(keys)
            if time.monotonic() - self._committed > _EVERY:
                self._place.commit("keys", done)
                self._committed = time.monotonic()
        self._place.commit("keys", done)
        report.at(self.rows, self.rows)

    def _index(self, keys: int, width: int, backend: str, progress: Progress) -> IndexDescription:
        report = Reporter("index", "keys", progress)
        record = self._place.state("index")
        if record is None:
            folder = self._place.folder
            made = build_index(
                folder / "keys.bin", (keys, width), folder / FOLDER, backend, lambda: report.at(0, keys)
            )
            record = made.plain()
            self._place.commit("index", record)
        report.at(keys, keys)
        return IndexDescription.of(record)


@dataclass(frozen=True, slots=True)
class DensePart:
    """What a build's manifest needs to know of its dense part.

    Attributes:
        keys: how many.
        files: path -> (dtype, shape), or None where it is no array, for ``BuildJournal.finish``.
        parameters: for the manifest's ``parameters["dense"]``.
    """

    keys: int
    files: dict[str, Any]
    parameters: dict[str, Any]
