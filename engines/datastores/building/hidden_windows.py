"""A dense datastore from a corpus: its tokens go through the model window by window, in batches.

A document that is longer than the model's context is read in windows that overlap, so that no key knows less than the
overlap of what came before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Literal, Protocol

import numpy as np

from engines.datastores.building.build_journal import BuildJournal, build_journal
from engines.datastores.building.corpus import Corpus, Encoder
from engines.datastores.building.dense_build import SAMPLE, DenseBuilder
from engines.datastores.building.progress import Progress, Reporter, no_progress
from engines.datastores.building.sparse_build import CorpusCounts, sparse_files, write_suffixes, write_tokens
from engines.datastores.search.reduce import Recipe, Reduction
from engines.datastores.search.sparse import token_dtype
from engines.datastores.storage.datastore import Store
from engines.datastores.storage.manifest import FORMAT, Manifest, ModelIdentity
from engines.errors import UsageProblem

_BATCH = 4096  # tokens that are read together
_OVERLAP = 4  # a window begins with one of so many parts of the context, of the window before


Before = Callable[[int], Sequence[int]]


class Reader(Protocol):
    """The model, as far as its hidden states are wanted.

    Attributes:
        mark: which model and layer.
        context: tokens of one text at most.
    """

    mark: ModelIdentity
    context: int

    def __call__(self, texts: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """For each text, int64 [n], the hidden states float32 [n, H] of its tokens."""


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens that are read together: from position ``begin`` to before ``end``; keys come from ``first`` on, up to
    before ``last``. ``before``: token ids that are read before them; the last one's state is that of ``begin - 1``."""

    begin: int
    end: int
    first: int
    last: int
    before: tuple[int, ...] = ()


def windows(
    begins: np.ndarray, positions: int, context: int, before: Before = lambda document: ()
) -> Iterator[Window]:
    """The windows of documents that begin at these positions, each followed by a separator; each token that has one
    after it is in exactly one window's range of keys, and so is what stands before a document.

    Raises:
        UsageProblem: what stands before a document leaves no room for it in the context.
    """
    for document, (begin, after) in enumerate(zip(begins.tolist(), [*begins[1:].tolist(), positions])):
        end, ahead = after - 1, tuple(before(document))
        room = context - len(ahead)
        if room < _OVERLAP:
            raise UsageProblem(
                f"document {document + 1} stands behind {len(ahead):,} tokens, and {context:,} can be read together",
                "use a model that reads more, or shorter prompts",
            )
        first, start = begin - bool(ahead), begin
        while first < end - 1:
            stop = min(start + room, end)
            last = min(stop, end - 1)
            yield Window(start, stop, first, last, ahead)
            first, start = last, stop - room // _OVERLAP


def write_hidden(
    place: BuildJournal, counts: CorpusCounts, vocab_size: int, reader: Reader, builder: DenseBuilder,
    progress: Progress = no_progress, before: Before = lambda document: (),
) -> None:
    """Stage: hidden states of the tokens on the disk, as far as they are not there yet."""
    report = Reporter("hidden states", "tokens", progress, builder.rows)
    keys = counts.tokens - counts.documents
    report.at(builder.rows, keys)
    if builder.complete:
        return
    tokens = np.memmap(place.folder / "tokens.bin", token_dtype(vocab_size), "r", shape=(counts.positions,))
    begins = np.fromfile(place.folder / "documents.bin", "<i4", counts.documents)
    done = builder.cursor or 0
    for batch in _batches(islice(windows(begins, counts.positions, reader.context, before), done, None)):
        read = reader([np.append(np.array(w.before, np.int64), tokens[w.begin : w.end]) for w in batch])
        for window, hidden in zip(batch, read, strict=True):
            ahead = len(window.before) - window.begin
            kept = hidden[window.first + ahead : window.last + ahead]
            builder.add(kept, np.arange(window.first, window.last) + 1)
        done += len(batch)
        builder.commit(done)
        report.at(builder.rows, keys)
    builder.commit(done, complete=True)


def _batches(found: Iterator[Window]) -> Iterator[list[Window]]:
    batch: list[Window] = []
    size = 0
    for window in found:
        size += len(window.before) + window.end - window.begin
        if batch and size > _BATCH:
            yield batch
            batch, size = [], len(window.before) + window.end - window.begin
        batch.append(window)
    if batch:
        yield batch


def build_dense(
    name: str, corpus: Corpus, tokenizer: Any, reader: Reader, *, kind: Literal["dense", "both"] = "dense",
    recipe: Recipe | None = None, reduction: Reduction | None = None, index: str = "auto", limit: int | None = None,
    sample: int = SAMPLE, seed: int = 0, before: Before = lambda document: (), progress: Progress = no_progress,
    fresh: bool = False, replace: bool = False, order: dict[str, Any] | None = None,
) -> Store:
    """Build a dense datastore, or one that is both; one that was interrupted is taken up.

    Args:
        tokenizer: of transformers.
        reader: the model.
        recipe, reduction, sample, seed: see ``DenseBuilder``.
        index: one of ``ann.BACKENDS``.
        limit: tokens at most, None for all.
        before: token ids that the model reads before a document, by its number: the prompt of an answer, the token
            that begins every text. They follow from the corpus and the model.
        progress: told of each step; what it raises interrupts the build and leaves this function.
        fresh, replace, order: see ``workspace.workspace``.

    Raises:
        UsageProblem, DatastoreProblem, RunFailed: see ``workspace.workspace`` and the stages.
    """
    encoder, recipe = Encoder(tokenizer), recipe or Recipe()
    if reader.context < _OVERLAP:
        raise UsageProblem(f"a context of {reader.context} tokens is too short", "use a model that reads more")
    identity = {
        "format": FORMAT, "kind": kind, "limit": limit, "sources": corpus.identity, "tokenizer": encoder.fingerprint,
        "model": {**asdict(reader.mark), "name": "", "revision": ""}, "context": reader.context, "index": index,
        "recipe": asdict(recipe), "reduction": reduction and reduction.checksum, "sample": sample, "seed": seed,
    }  # fmt: skip
    with build_journal(name, identity, fresh, replace, order) as place:
        counts = write_tokens(place, corpus, encoder, limit, progress)
        files = sparse_files(counts, encoder.vocab_size)
        if kind == "both":
            write_suffixes(place, counts, encoder.vocab_size, progress)
        else:
            del files["suffixes.bin"]
        builder = DenseBuilder(place, reader.mark.width, recipe, reduction, sample=sample, seed=seed)
        write_hidden(place, counts, encoder.vocab_size, reader, builder, progress, before)
        part = builder.finish(index, progress)
        parameters = {"limit": limit, "sources": corpus.identity, "dense": part.parameters}

        def manifest(listed: tuple) -> Manifest:
            return Manifest(
                name, kind, encoder.fingerprint, encoder.vocab_size, counts.documents, counts.tokens, place.created,
                listed, keys=part.keys, parameters=parameters, model=reader.mark,
            )

        return Store(place.finish(manifest, files | part.files, Reporter("checksums", "bytes", progress).at))

