"""What a sparse datastore will take, before it is built: measured on a few of its documents."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import numpy as np

from engines.datastores.building.corpus import Document, Encoder
from engines.datastores.building.text_files import Files
from engines.datastores.search.continuations import spread
from engines.datastores.search.sparse import token_dtype

_DOCUMENTS, _CHARACTERS = 12, 1 << 15  # looked at, of each
_SUFFIX_SECONDS = 3e-7  # a token: the suffix array and the checksums
_SUFFIX_MEMORY = 30  # bytes a token


@dataclass(frozen=True, slots=True)
class SparseEstimate:
    """Tokens, bytes on the disk, seconds, bytes of memory at most; none of them exact."""

    tokens: int
    size: int
    seconds: float
    memory: int


def estimate(corpus: Files, encoder: Encoder, limit: int | None = None) -> SparseEstimate:
    """What ``build.build_sparse`` of these files will take. A fraction of a second."""
    chosen = [next(corpus.documents(int(i)))[0] for i in spread(len(corpus.files), _DOCUMENTS)]
    texts = [Document(d.source, d.text[:_CHARACTERS], line=1) for d in chosen]
    began = perf_counter()
    encoded = encoder(texts)
    seconds = perf_counter() - began
    read = max(1, sum(len(d.text.encode()) for d in texts))
    found, lines = sum(len(e.tokens) for e in encoded), sum(len(e.lines) for e in encoded)
    share = min(1.0, limit * read / max(1, found * corpus.total)) if limit is not None else 1.0
    scale = share * corpus.total / read
    tokens = round(found * scale)
    width = np.dtype(token_dtype(encoder.vocab_size)).itemsize
    return SparseEstimate(
        tokens, round(tokens * (width + 4) + lines * scale * 4), seconds * scale + tokens * _SUFFIX_SECONDS,
        tokens * _SUFFIX_MEMORY,
    )
