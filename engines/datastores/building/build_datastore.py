"""Building a datastore, sparse, dense or both, stage by stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engines.datastores.building.build_journal import build_journal
from engines.datastores.building.corpus import Corpus, Encoder
from engines.datastores.building.dense_build import SAMPLE, Before, DensePart
from engines.datastores.building.sparse_build import sparse_files, write_suffixes, write_tokens
from engines.datastores.search.reduction import Recipe
from engines.datastores.storage.datastore import Store
from engines.datastores.storage.manifest import FORMAT, Manifest
from engines.progress import Progress, ProgressReporter, no_progress

if TYPE_CHECKING:
    from engines.datastores.building.hidden_states import HiddenStates


def build_datastore(
    name: str, corpus: Corpus, tokenizer: Any, reader: HiddenStates | None = None, *, kind: str = "",
    recipe: Recipe | None = None, index: str = "auto", limit: int | None = None, document_limit: int | None = None,
    sample: int = SAMPLE, before: Before = lambda document: (), progress: Progress = no_progress,
    fresh: bool = False, replace: bool = False, spec: dict[str, Any] | None = None,
) -> Store:
    """Build a datastore; an interrupted build of the same continues.

    Args:
        tokenizer: of transformers.
        reader: reads hidden states with the model; None for a sparse datastore.
        kind: sparse, dense or both; by itself dense where there is a reader, else sparse.
        recipe, index, sample, before: of the dense part; see ``DensePart``.
        limit: most tokens, None for all; ``document_limit``: of each document, its first ones.
        progress: gets each step; what it raises interrupts the build and leaves this function.
        fresh, replace, spec: see ``build_journal.build_journal``.

    Raises:
        UsageProblem, DatastoreProblem, RunFailed: see ``build_journal.build_journal`` and the stages.
    """
    encoder, kind = Encoder(tokenizer), kind or ("sparse" if reader is None else "dense")
    dense = None if reader is None else DensePart(reader, recipe or Recipe(), index, sample, before)
    shared = {"limit": limit} | ({} if document_limit is None else {"document_limit": document_limit})
    shared["sources"] = corpus.identity
    identity = {"format": FORMAT, "kind": kind, **shared, "tokenizer": encoder.fingerprint}
    with build_journal(name, identity | (dense.identity() if dense else {}), fresh, replace, spec) as journal:
        if lost := journal.damaged:
            ProgressReporter("starting over, the unfinished build was damaged", "files", progress).report(lost, lost)
        counts = write_tokens(journal, corpus, encoder, limit, progress, document_limit)
        files: dict[str, Any] = sparse_files(counts, encoder.vocab_size)
        if kind == "dense":
            del files["suffixes.bin"]
        else:
            write_suffixes(journal, counts, encoder.vocab_size, progress)
        part: dict[str, Any] = {}
        if dense is not None:
            more, keys, made = dense.write(journal, counts, encoder.vocab_size, progress)
            files, shared, part = files | more, shared | {"dense": made}, {"keys": keys, "model": reader.identity}
        manifest = Manifest(
            name=name, kind=kind, tokenizer=encoder.fingerprint, vocab_size=encoder.vocab_size,
            documents=counts.documents, tokens=counts.tokens, created=journal.created, files=(), parameters=shared,
            **part,
        )
        return Store(journal.finish(manifest, files, ProgressReporter("checksums", "bytes", progress).report))
