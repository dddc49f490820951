"""Building the dense part of a datastore: hidden states on the disk, then statistics, keys and their index.

The tokens go through the model window by window, in batches. A document that is longer than the model's context is read
in windows that overlap, so that every key knows at least the overlap of what came before it.

Hidden states are first written in float16, so that mean, deviation and PCA can be fitted on a random sample of all of
them; that takes 2 H bytes a token until the build is done. Where that is too much, fit a reduction on some random
documents (``reduction.fit``) and pass it in: then the keys are written directly. An interrupted build continues where
it was last committed and gives the same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Literal, Protocol

import numpy as np

from engines.datastores.building.build_journal import BuildJournal, build_journal
from engines.datastores.building.corpus import Corpus, Encoder
from engines.datastores.building.sparse_build import CorpusCounts, sparse_files, write_suffixes, write_tokens
from engines.datastores.search.ann import IndexDescription
from engines.datastores.search.indexing import FOLDER, build_index
from engines.datastores.search.reduction import BLOCK, Recipe, Reduction, blocks, fit, to_half
from engines.datastores.search.sparse import token_dtype
from engines.datastores.storage.datastore import Store
from engines.datastores.storage.manifest import FORMAT, Manifest, ModelIdentity
from engines.errors import RunFailed, UsageProblem
from engines.progress import Progress, ProgressReporter, no_progress

SAMPLE = 1_000_000  # hidden states that the statistics are taken from, as in the paper
_HELD_OUT = 500  # most keys that are left out, to measure recall with
_HELD_OUT_SHARE = 100  # at most one key of so many is left out
_BATCH = 4096  # tokens that are read together
_OVERLAP = 4  # a window repeats one of so many parts of the context, from the window before
_EVERY = 2.0  # seconds between commits
_STATE = "hidden states"


Before = Callable[[int], Sequence[int]]


class HiddenStateReader(Protocol):
    """Reads hidden states with a model.

    Attributes:
        identity: which model and layer.
        context: most tokens of one text.
    """

    identity: ModelIdentity
    context: int

    def __call__(self, texts: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """For each text, int64 [n], the hidden states float32 [n, H] of its tokens."""


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


def windows(
    begins: np.ndarray, positions: int, context: int, before: Before = lambda document: ()
) -> Iterator[Window]:
    """The windows of documents. Each token with another one after it is in exactly one window's range of keys, and so
    is the last token before a document.

    Args:
        begins: int64 [documents], the position at which each begins.
        positions: how many there are, with the separator after each document.
        context: most tokens of a window.
        before: token ids that the model reads before a document, by its number.

    Raises:
        UsageProblem: the tokens before a document leave too little of the context for the document.
    """
    for document, (begin, after) in enumerate(zip(begins.tolist(), [*begins[1:].tolist(), positions])):
        end, ahead = after - 1, tuple(before(document))
        room = context - len(ahead)
        if room < _OVERLAP:
            raise UsageProblem(
                f"document {document + 1} comes after {len(ahead):,} tokens, and {context:,} can be read together",
                "use a model that reads more, or shorter prompts",
            )
        first, start = begin - bool(ahead), begin
        while first < end - 1:
            stop = min(start + room, end)
            last = min(stop, end - 1)
            yield Window(start, stop, first, last, ahead)
            first, start = last, stop - room // _OVERLAP


@dataclass(frozen=True, slots=True)
class DenseEstimate:
    """Bytes of a dense part, and bytes on the disk while it is built."""

    size: int
    building: int


def estimate_dense(keys: int, hidden: int, recipe: Recipe, fitted: bool = False) -> DenseEstimate:
    """The space that a dense part takes: so many keys, from hidden states with so many dimensions. ``fitted``: the
    reduction is known before the build."""
    width = recipe.width(hidden)
    size = keys * (2 * width + 4 + width // 2 + 4) + 4 * hidden * (2 + (width if recipe.dims else 0))
    return DenseEstimate(size, size + keys * (2 * (width if fitted else hidden) + 4))


class DenseBuilder:
    """Takes hidden states in batches, then makes the dense part of them.

    Args:
        journal: of the build; its tokens are written already.
        hidden: dimensions of a hidden state, H.
        recipe: what is done to them.
        reduction: fitted beforehand; None fits one on a sample of the states.
        sample: most hidden states to fit on.
        seed: of the sample, and of the keys that are held out.

    Attributes:
        rows: hidden states added.
        cursor: argument of the last ``commit`` that reached the disk; None at the beginning.
        complete: all hidden states were added, only ``finish`` is left.

    Raises:
        UsageProblem: the reduction is of another recipe or width.
    """

    def __init__(
        self, journal: BuildJournal, hidden: int, recipe: Recipe, reduction: Reduction | None = None, *,
        sample: int = SAMPLE, seed: int = 0,
    ) -> None:
        if reduction is not None and (reduction.recipe, reduction.hidden) != (recipe, hidden):
            raise UsageProblem("the statistics are of another recipe or model", "fit them for this one")
        self._journal, self._hidden, self.recipe, self._reduction = journal, hidden, recipe, reduction
        self._sample, self._seed = sample, seed
        state = journal.state(_STATE) or {"rows": 0, "cursor": None, "complete": False}
        self.rows, self.cursor, self.complete = state["rows"], state["cursor"], state["complete"]
        self._width = hidden if reduction is None else reduction.width
        self._raw, self._where = journal.open_to_append("hidden.raw"), journal.open_to_append("positions.raw")
        self._committed = time.monotonic()

    def add(self, hidden: np.ndarray, positions: np.ndarray) -> None:
        """Add hidden states.

        Args:
            hidden: float [n, H], of tokens that are not the last of their document.
            positions: int [n], the position in the datastore of the token after each.

        Raises:
            RunFailed: the states are not finite.
        """
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
            self._journal.commit(_STATE, {"rows": self.rows, "cursor": cursor, "complete": complete})
            self.cursor, self.complete, self._committed = cursor, complete, time.monotonic()

    def finish(self, index: str = "auto", progress: Progress = no_progress) -> DensePart:
        """Statistics, keys and index of what was added, which is committed as complete first.

        Args:
            index: one of ``ann.BACKENDS``.
            progress: gets each step; what it raises interrupts the build and leaves this method.

        Raises:
            RunFailed: nothing was added.
            UsageProblem: no such index, or its library is not installed.
        """
        if not self.complete:
            self.commit(self.cursor, complete=True)
        if not self.rows:
            raise RunFailed("there are no hidden states to make keys of", "build the datastore from more text")
        raw = np.memmap(self._journal.folder / "hidden.raw", "<f2", "r", shape=(self.rows, self._width))
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
        files |= {f"{FOLDER}/{p.name}": None for p in sorted((self._journal.folder / FOLDER).iterdir())}
        parameters = asdict(self.recipe) | {"index": description.plain(), "sample": self._sample, "seed": self._seed}
        return DensePart(keys, files, parameters)

    def _statistics(self, raw: np.ndarray, progress: Progress) -> dict[str, np.ndarray]:
        """The reduction's arrays, from the disk if they are there."""
        shapes = self._journal.state("statistics")
        if shapes is None:
            fitted = self._reduction or fit(self._sampled(raw, progress), self.recipe)
            for name, array in fitted.arrays().items():
                self._journal.open_to_append(f"{name}.bin").write(array.astype("<f4").tobytes())
            shapes = {name: array.shape for name, array in fitted.arrays().items()}
            self._journal.commit("statistics", shapes)
        folder = self._journal.folder
        return {name: np.fromfile(folder / f"{name}.bin", "<f4").reshape(shape) for name, shape in shapes.items()}

    def _sampled(self, raw: np.ndarray, progress: Progress) -> Iterator[np.ndarray]:
        """A random sample of the hidden states, in blocks."""
        count, chosen, done = min(self.rows, self._sample), None, 0
        if count < self.rows:
            chosen = np.sort(np.random.default_rng(self._seed).choice(self.rows, count, replace=False))
        reporter = ProgressReporter("statistics", "keys", progress)
        for block in blocks(raw, chosen):
            reporter.report(done, count)
            yield block
            done += len(block)
        reporter.report(count, count)

    def _held_out(self) -> np.ndarray:
        """Rows that do not become keys, ascending."""
        count = min(_HELD_OUT, self.rows // _HELD_OUT_SHARE)
        return np.sort(np.random.default_rng([self._seed, 1]).choice(self.rows, count, replace=False))

    def _write_keys(self, raw: np.ndarray, reduction: Reduction, held: np.ndarray, progress: Progress) -> None:
        files = [self._journal.open_to_append(f"{name}.bin") for name in ("keys", "held_out", "key_positions")]
        where = np.memmap(self._journal.folder / "positions.raw", "<i4", "r", shape=(self.rows,))
        done = begun = self._journal.state("keys") or 0
        reporter = ProgressReporter("keys", "keys", progress, begun)
        for start in range(begun, self.rows, BLOCK):
            reporter.report(start, self.rows)
            part = slice(start, start + BLOCK)
            keys = raw[part] if self._reduction else to_half(reduction(raw[part]))
            out = np.zeros(len(keys), bool)
            out[held[(held >= start) & (held < start + BLOCK)] - start] = True
            for file, rows in zip(files, (keys[~out], keys[out], where[part][~out])):
                file.write(rows.tobytes())
            done = start + len(keys)
            if time.monotonic() - self._committed > _EVERY:
                self._journal.commit("keys", done)
                self._committed = time.monotonic()
        self._journal.commit("keys", done)
        reporter.report(self.rows, self.rows)

    def _index(self, keys: int, width: int, backend: str, progress: Progress) -> IndexDescription:
        reporter = ProgressReporter("index", "keys", progress)
        record = self._journal.state("index")
        if record is None:
            folder = self._journal.folder
            made = build_index(
                folder / "keys.bin", (keys, width), folder / FOLDER, backend, lambda: reporter.report(0, keys)
            )
            record = made.plain()
            self._journal.commit("index", record)
        reporter.report(keys, keys)
        return IndexDescription.of(record)


@dataclass(frozen=True, slots=True)
class DensePart:
    """What a build's manifest needs to know of its dense part.

    Attributes:
        keys: their number.
        files: path -> (dtype, shape), or None for a file that is no array, for ``BuildJournal.finish``.
        parameters: for the manifest's ``parameters["dense"]``.
    """

    keys: int
    files: dict[str, Any]
    parameters: dict[str, Any]


def write_hidden(
    journal: BuildJournal, counts: CorpusCounts, vocab_size: int, reader: HiddenStateReader, builder: DenseBuilder,
    progress: Progress = no_progress, before: Before = lambda document: (),
) -> None:
    """Stage: add the hidden states of all tokens that are not there yet."""
    reporter = ProgressReporter("hidden states", "tokens", progress, builder.rows)
    keys = counts.tokens - counts.documents
    reporter.report(builder.rows, keys)
    if builder.complete:
        return
    tokens = np.memmap(journal.folder / "tokens.bin", token_dtype(vocab_size), "r", shape=(counts.positions,))
    begins = np.fromfile(journal.folder / "documents.bin", "<i4", counts.documents)
    done = builder.cursor or 0
    for batch in _batches(islice(windows(begins, counts.positions, reader.context, before), done, None)):
        read = reader([np.append(np.array(w.before, np.int64), tokens[w.begin : w.end]) for w in batch])
        for window, hidden in zip(batch, read, strict=True):
            shift = len(window.before) - window.begin
            builder.add(hidden[window.first + shift : window.last + shift], np.arange(window.first, window.last) + 1)
        done += len(batch)
        builder.commit(done)
        reporter.report(builder.rows, keys)
    builder.commit(done, complete=True)


def _batches(all_windows: Iterator[Window]) -> Iterator[list[Window]]:
    batch: list[Window] = []
    size = 0
    for window in all_windows:
        size += len(window.before) + window.end - window.begin
        if batch and size > _BATCH:
            yield batch
            batch, size = [], len(window.before) + window.end - window.begin
        batch.append(window)
    if batch:
        yield batch


def build_dense(
    name: str, corpus: Corpus, tokenizer: Any, reader: HiddenStateReader, *, kind: Literal["dense", "both"] = "dense",
    recipe: Recipe | None = None, reduction: Reduction | None = None, index: str = "auto", limit: int | None = None,
    sample: int = SAMPLE, seed: int = 0, before: Before = lambda document: (), progress: Progress = no_progress,
    fresh: bool = False, replace: bool = False, spec: dict[str, Any] | None = None,
) -> Store:
    """Build a dense datastore, or one that is both; an interrupted build of the same continues.

    Args:
        tokenizer: of transformers.
        reader: the model.
        recipe, reduction, sample, seed: see ``DenseBuilder``.
        index: one of ``ann.BACKENDS``.
        limit: most tokens, None for all.
        before: token ids that the model reads before a document, by its number: the prompt of an answer, or the token
            that begins every text.
        progress: gets each step; what it raises interrupts the build and leaves this function.
        fresh, replace, spec: see ``build_journal.build_journal``.

    Raises:
        UsageProblem, DatastoreProblem, RunFailed: see ``build_journal.build_journal`` and the stages.
    """
    encoder, recipe = Encoder(tokenizer), recipe or Recipe()
    if reader.context < _OVERLAP:
        raise UsageProblem(f"a context of {reader.context} tokens is too short", "use a model that reads more")
    identity = {
        "format": FORMAT, "kind": kind, "limit": limit, "sources": corpus.identity, "tokenizer": encoder.fingerprint,
        "model": {**asdict(reader.identity), "name": "", "revision": ""}, "context": reader.context, "index": index,
        "recipe": asdict(recipe), "reduction": reduction and reduction.checksum, "sample": sample, "seed": seed,
    }  # fmt: skip
    with build_journal(name, identity, fresh, replace, spec) as journal:
        counts = write_tokens(journal, corpus, encoder, limit, progress)
        files = sparse_files(counts, encoder.vocab_size)
        if kind == "both":
            write_suffixes(journal, counts, encoder.vocab_size, progress)
        else:
            del files["suffixes.bin"]
        builder = DenseBuilder(journal, reader.identity.width, recipe, reduction, sample=sample, seed=seed)
        write_hidden(journal, counts, encoder.vocab_size, reader, builder, progress, before)
        part = builder.finish(index, progress)
        parameters = {"limit": limit, "sources": corpus.identity, "dense": part.parameters}
        manifest = Manifest(
            name=name, kind=kind, tokenizer=encoder.fingerprint, vocab_size=encoder.vocab_size,
            documents=counts.documents, tokens=counts.tokens, created=journal.created, files=(),
            keys=part.keys, parameters=parameters, model=reader.identity,
        )
        reporter = ProgressReporter("checksums", "bytes", progress)
        return Store(journal.finish(manifest, files | part.files, reporter.report))
