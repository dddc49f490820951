"""Building the dense part of a datastore: hidden states on the disk, then statistics, keys and their index.

The tokens go through the model window by window, in batches. A document that is longer than the model's context is read
in windows that overlap, so that every key knows at least the overlap of what came before it.

Hidden states are first written in float16, so that mean, deviation and PCA can be fitted on a random sample of all of
them; that takes 2 H bytes a token until the build is done. An interrupted build continues where it was last committed
and gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from engines.datastores.building.build_journal import BuildJournal
from engines.datastores.building.sparse_build import CorpusCounts
from engines.datastores.search.ann import IndexDescription
from engines.datastores.search.indexing import FOLDER, build_index
from engines.datastores.search.reduction import BLOCK, Recipe, Reduction, blocks, fit, not_finite, to_half
from engines.datastores.search.sparse import token_dtype
from engines.errors import RunFailed, UsageProblem
from engines.progress import Progress, ProgressReporter
from engines.report import encoding

if TYPE_CHECKING:
    from engines.datastores.building.hidden_states import HiddenStates

SAMPLE = 1_000_000  # hidden states that the statistics are taken from, as in the paper
_SEED = 0  # of the sample, and of the keys that are held out
_HELD_OUT = 500  # most keys that are left out, to measure recall with
_HELD_OUT_SHARE = 100  # at most one key of so many is left out
_OVERLAP = 4  # a window repeats one of so many parts of the context, from the window before

Before = Callable[[int], Sequence[int]]
"""Token ids that the model reads before a document, by its number: the prompt of an answer, or the token that begins
every text."""


@dataclass(frozen=True, slots=True)
class DensePart:
    """How a dense part is made.

    Attributes:
        reader: reads hidden states with the model.
        recipe: what is done to them.
        index: one of ``ann.BACKENDS``.
        sample: most hidden states to fit mean, deviation and PCA on.
        before: see ``Before``.
    """

    reader: HiddenStates
    recipe: Recipe
    index: str
    sample: int
    before: Before

    def identity(self) -> dict[str, Any]:
        """What the bytes of the part depend on, as ``build_journal.build_journal`` wants it. Raises UsageProblem: the
        model reads too few tokens together, or its hidden states have too few dimensions."""
        reader = self.reader
        if reader.context < _OVERLAP:
            raise UsageProblem(f"a context of {reader.context} tokens is too short", "use a model with more context")
        dims, width = self.recipe.dims, reader.identity.width
        if dims > max(width, Recipe().dims):  # of a narrower model the default keeps all there are
            raise UsageProblem(f"{dims} principal components cannot be kept of {width} dimensions",
                               f"--dims is at most {width} with this model, and 0 for no PCA")
        return {
            "model": {**asdict(reader.identity), "name": ""}, "context": reader.context,
            "index": self.index, "recipe": asdict(self.recipe), "reduction": None, "sample": self.sample,
            "seed": _SEED,
        }

    def write(
        self, journal: BuildJournal, counts: CorpusCounts, vocab_size: int, progress: Progress
    ) -> tuple[dict[str, Any], int, dict[str, Any]]:
        """All stages of the part. Returns its files for ``BuildJournal.finish``, the number of its keys, and its
        parameters for the manifest."""
        rows = write_hidden(journal, counts, vocab_size, self.reader, progress, self.before)
        hidden = np.memmap(journal.folder / "hidden.raw", "<f2", "r", shape=(rows, self.reader.identity.width))
        reduction = write_statistics(journal, hidden, self.recipe, self.sample, progress)
        held = _held_out(rows)
        write_keys(journal, hidden, reduction, held, progress)
        keys = (rows - len(held), reduction.width)
        description = write_index(journal, keys, self.index, progress)
        files = {"keys.bin": ("<f2", keys), "held_out.bin": ("<f2", (len(held), reduction.width)),
                 "key_positions.bin": ("<i4", keys[:1])}
        files |= {f"{name}.bin": ("<f4", array.shape) for name, array in reduction.arrays().items()}
        files |= {f"{FOLDER}/{p.name}": None for p in sorted((journal.folder / FOLDER).iterdir())}
        made = {"index": encoding.plain(description), "sample": self.sample, "seed": _SEED}
        return files, keys[0], asdict(self.recipe) | made


def estimate_dense(keys: int, hidden: int, recipe: Recipe) -> tuple[int, int]:
    """Bytes of a dense part with so many keys, made from hidden states with so many dimensions, and bytes on the disk
    while it is built."""
    width = recipe.width(hidden)
    size = keys * (2 * width + 4 + width // 2 + 4) + 4 * hidden * (2 + (width if recipe.dims else 0))
    return size, size + keys * (2 * hidden + 4)


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens that are read together.

    Attributes:
        begin, end: the positions of the tokens, ``end`` excluded.
        first, last: the positions whose states become keys, ``last`` excluded.
        before: token ids that are read before them; the state of the last one counts as that of ``begin - 1``.
    """

    begin: int
    end: int
    first: int
    last: int
    before: tuple[int, ...] = ()


def windows(begins: np.ndarray, positions: int, context: int, before: Before = lambda document: ()) -> Iterator[Window]:
    """The windows of documents. Each token with another one after it is in exactly one window's range of keys, and so
    is the last token before a document.

    Args:
        begins: int64 [documents], the position at which each begins.
        positions: how many there are, with the separator after each document.
        context: most tokens of a window.
        before: see ``Before``.

    Raises:
        UsageProblem: the tokens before a document leave too little of the context for the document.
    """
    for document, (begin, after) in enumerate(zip(begins.tolist(), [*begins[1:].tolist(), positions])):
        end, ahead = after - 1, tuple(before(document))
        room = room_after(len(ahead), context, f"document {document + 1}")
        first, start = begin - bool(ahead), begin
        while first < end - 1:
            stop = min(start + room, end)
            last = min(stop, end - 1)
            yield Window(start, stop, first, last, ahead)
            first, start = last, stop - room // _OVERLAP


def room_after(ahead: int, context: int, which: str) -> int:
    """Most tokens of a document, ``which`` in words, that are read together after those before it. Raises UsageProblem:
    they leave too little of the context for it."""
    if context - ahead < _OVERLAP:
        raise UsageProblem(f"{which} needs {ahead:,} tokens before it; the model reads {context:,} at once",
                           "give a larger --window, a model with a longer context, or shorter prompts")
    return context - ahead


def write_hidden(
    journal: BuildJournal, counts: CorpusCounts, vocab_size: int, reader: HiddenStates, progress: Progress,
    before: Before,
) -> int:
    """Stage: hidden states float16 [n, H] and the position of the token after each. Returns how many there are. Raises
    RunFailed: there are none, or they are not finite."""
    state = journal.state("hidden states") or {"rows": 0, "cursor": None, "complete": False}
    rows, done = state["rows"], state["cursor"] or 0
    keys = counts.tokens - (0 if before(0) else counts.documents)  # no key leads to a first token without one before it
    raw, where = journal.open_to_append("hidden.raw"), journal.open_to_append("positions.raw")
    reporter = ProgressReporter("hidden states", "tokens", progress, rows)
    reporter.report(rows, keys)
    if not state["complete"]:
        tokens = np.memmap(journal.folder / "tokens.bin", token_dtype(vocab_size), "r", shape=(counts.positions,))
        begins = np.fromfile(journal.folder / "documents.bin", "<i4", counts.documents)
        all_windows = windows(begins, counts.positions, reader.context, before)
        for batch in _batches(islice(all_windows, done, None), reader.batch):
            read = reader([np.append(np.array(w.before, np.int64), tokens[w.begin : w.end]) for w in batch])
            for window, hidden in zip(batch, read, strict=True):
                shift = len(window.before) - window.begin
                hidden = hidden[window.first + shift : window.last + shift]
                if not np.isfinite(hidden).all():
                    raise not_finite()
                raw.write(to_half(hidden).tobytes())
                where.write(np.arange(window.first + 1, window.last + 1).astype("<i4").tobytes())
                rows += len(hidden)
            done += len(batch)
            if journal.due:
                journal.commit("hidden states", {"rows": rows, "cursor": done, "complete": False})
            reporter.report(rows, keys)
        journal.commit("hidden states", {"rows": rows, "cursor": done, "complete": True})
    if not rows:
        raise RunFailed("there are no hidden states to make keys of", "build the datastore from more text")
    return rows


def _batches(all_windows: Iterator[Window], most: int) -> Iterator[list[Window]]:
    """Windows with ``most`` tokens together, or one that has more."""
    batch: list[Window] = []
    size = 0
    for window in all_windows:
        size += len(window.before) + window.end - window.begin
        if batch and size > most:
            yield batch
            batch, size = [], len(window.before) + window.end - window.begin
        batch.append(window)
    if batch:
        yield batch


def write_statistics(
    journal: BuildJournal, hidden: np.ndarray, recipe: Recipe, sample: int, progress: Progress
) -> Reduction:
    """Stage: the map from hidden states [n, H] to keys, fitted on a random sample of them; from the disk if it is
    there."""
    shapes = journal.state("statistics")
    if shapes is not None:
        folder = journal.folder
        return Reduction.of(
            recipe, {name: np.fromfile(folder / f"{name}.bin", "<f4").reshape(shape) for name, shape in shapes.items()}
        )
    chosen, reporter = None, ProgressReporter("statistics", "keys", progress)
    count = min(len(hidden), sample)
    if count < len(hidden):
        chosen = np.sort(np.random.default_rng(_SEED).choice(len(hidden), count, replace=False))

    def sampled() -> Iterator[np.ndarray]:
        done = 0
        for block in blocks(hidden, chosen):
            reporter.report(done, count)
            yield block
            done += len(block)
        reporter.report(count, count)

    reduction = fit(sampled(), recipe)
    for name, array in reduction.arrays().items():
        journal.open_to_append(f"{name}.bin").write(array.astype("<f4").tobytes())
    journal.commit("statistics", {name: array.shape for name, array in reduction.arrays().items()})
    return reduction


def _held_out(rows: int) -> np.ndarray:
    """Rows that do not become keys, ascending."""
    count = min(_HELD_OUT, rows // _HELD_OUT_SHARE)
    return np.sort(np.random.default_rng([_SEED, 1]).choice(rows, count, replace=False))


def write_keys(
    journal: BuildJournal, hidden: np.ndarray, reduction: Reduction, held: np.ndarray, progress: Progress
) -> None:
    """Stage: the keys float16 [n - m, d] of hidden states [n, H], those of the rows ``held`` [m] apart."""
    files = [journal.open_to_append(f"{name}.bin") for name in ("keys", "held_out", "key_positions")]
    where = np.memmap(journal.folder / "positions.raw", "<i4", "r", shape=(len(hidden),))
    done = journal.state("keys") or 0
    reporter = ProgressReporter("keys", "keys", progress, done)
    for start in range(done, len(hidden), BLOCK):
        reporter.report(start, len(hidden))
        part = slice(start, start + BLOCK)
        keys = to_half(reduction(hidden[part]))
        out = np.zeros(len(keys), bool)
        out[held[(held >= start) & (held < start + BLOCK)] - start] = True
        for file, rows in zip(files, (keys[~out], keys[out], where[part][~out])):
            file.write(rows.tobytes())
        done = start + len(keys)
        if journal.due:
            journal.commit("keys", done)
    journal.commit("keys", done)
    reporter.report(len(hidden), len(hidden))


def write_index(journal: BuildJournal, shape: tuple[int, int], backend: str, progress: Progress) -> IndexDescription:
    """Stage: the index of the keys, an array of this shape. Raises UsageProblem: its library is not installed."""
    reporter, folder = ProgressReporter("index", "keys", progress), journal.folder
    if journal.state("index") is None:
        made = build_index(folder / "keys.bin", shape, folder / FOLDER, backend, lambda: reporter.report(0, shape[0]))
        journal.commit("index", encoding.plain(made))
    reporter.report(shape[0], shape[0])
    return encoding.build(IndexDescription, journal.state("index"))
