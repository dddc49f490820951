"""What would be drafted after a text, and from where: one lookup in one datastore, for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from engines.datastores.events import DenseProbe, FoundPassage, Neighbour, ProbeNode, SparseProbe
from engines.datastores.search.continuations import END
from engines.datastores.search.trie import heaviest
from engines.errors import UsageProblem

if TYPE_CHECKING:
    from engines.datastores.search.dense import DenseStore
    from engines.datastores.search.sparse import SparseStore
    from engines.datastores.storage.documents import Documents
    from engines.runtime import Runtime

_BEFORE, _AFTER = 12, 12  # tokens of a passage

Piece = Callable[[int], str]


def probe_sparse(store: SparseStore, context: Sequence[int], piece: Piece, nodes: int = 24, length: int = 10,
                 n_max: int = 16, n_min: int = 2) -> SparseProbe:  # fmt: skip
    """Look up the longest suffix of ``context``. No match gives no nodes."""
    clock = perf_counter()
    match = store.longest(context, n_max, n_min)
    if match is None:
        return SparseProbe(0, "", 0, (), perf_counter() - clock)
    rows = store.continuations(match, length)
    trie = heaviest(rows, nodes)
    seconds = perf_counter() - clock
    found = tuple(
        ProbeNode(token, piece(token), parent, count, prob, _found(store.documents, int(rows.positions[row]), piece))
        for token, parent, count, prob, row in zip(trie.tokens, trie.parents, trie.counts, trie.probs, trie.rows)
    )
    return SparseProbe(match.length, _text(context[-match.length :], piece), match.count, found, seconds)


def probe_dense(store: DenseStore, hidden: np.ndarray, emitted: int | None, piece: Piece, drafts: int = 10,
                length: int = 10) -> DenseProbe:  # fmt: skip
    """Look up a hidden state float [H]; see ``DenseStore.query``."""
    clock = perf_counter()
    key = store.reduction.one(hidden)
    found = store.nearest(key, emitted, drafts, length)
    seconds = perf_counter() - clock
    keys = store.keys[found.keys].astype(np.float32)
    distances = np.linalg.norm(keys - key, axis=1) if len(found) else ()
    rows = ([t for t in row.tolist() if t != END] for row in found.tokens)
    neighbours = tuple(
        Neighbour(float(score), float(distance), int(count), tuple(row), _text(row, piece),
                  _found(store.documents, int(at), piece))
        for score, distance, count, row, at in zip(found.scores, distances, found.counts, rows, found.positions)
    )  # fmt: skip
    return DenseProbe(found.candidates, found.matching, neighbours, store.remark, seconds)


def _found(documents: Documents, position: int, piece: Piece) -> FoundPassage:
    place = documents.place(position)
    tokens, at = documents.passage(position, _BEFORE, _AFTER)
    return FoundPassage(place.source, place.line, _text(tokens[:at], piece), _text(tokens[at:], piece))


def _text(tokens: Sequence[int], piece: Piece) -> str:
    return "".join(piece(token) for token in tokens)


def context_of(tokenizer: Any, text: str, prompt: str | None, vocab_size: int) -> tuple[list[int], bool]:
    """Token ids of a text as a run would have it, and whether the last one stands for an emitted token.

    Args:
        prompt: what the text is the beginning of the answer to; None takes the text as it is.

    Raises:
        UsageProblem: there are no tokens; see ``engines.prompt.encode``.
    """
    from engines.prompt import encode
    from engines.request import Request

    if prompt is None:
        request = Request((("user", text),), raw=True)
        request.check()
        return encode(tokenizer, request, vocab_size)[0], True
    request = Request((("user", prompt),))
    request.check()
    answer = tokenizer(text, add_special_tokens=False)["input_ids"] if text else []
    return [*encode(tokenizer, request, vocab_size)[0], *answer], bool(answer)


def last_state(runtime: Runtime, context: Sequence[int], emitted: bool) -> np.ndarray:
    """The hidden state float32 [H] of the row that produced the last token, or of the last row where nothing was
    emitted yet. Of a text longer than the model's context its end is read.

    Raises:
        UsageProblem: a single token, which nothing produced.
    """
    from engines.datastores.building.hidden_states import ModelReader

    rows = list(context[:-1] if emitted else context)
    if not rows:
        raise UsageProblem("a text of one token has nothing before it", "give more of the text")
    reader = ModelReader(runtime, None)
    return reader([np.array(rows[-reader.context :])])[0][-1]
