"""What retrieval costs: building a sparse datastore, a lookup, the trie. Medians, in a process of its own.

The text is the standard library of this Python in tokens of the sample model, repeated to the size wanted with one
token in twenty replaced; queries are places in it, with 0 to 20 tokens in common with it.

    python tools/bench_datastores.py [--tokens 10000000] [--queries 2000] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
from benches.rows import microseconds

from engines.datastores.building.build_datastore import build_datastore
from engines.datastores.building.corpus import Document, Encoder
from engines.datastores.building.text_files import standard_library
from engines.datastores.search.sparse import SparseStore
from engines.datastores.search.trie import heaviest
from engines.folders import sample_model
from engines.methods.shared.conversation import Conversation


class Noisy:
    """The documents of a corpus again and again, one token in twenty replaced, as a corpus of so many tokens."""

    unit = "documents"

    def __init__(self, texts: list[np.ndarray], tokens: int, vocab_size: int) -> None:
        self._texts, self._tokens, self._vocab_size = texts, tokens, vocab_size
        self.identity, self.total = {"kind": "noisy", "tokens": tokens}, None

    def documents(self, resume=None):
        """See ``corpus.Corpus``."""
        rng, done, i = np.random.default_rng(0), 0, 0
        while done < self._tokens:
            text = self._texts[i % len(self._texts)].copy()
            swapped = rng.random(len(text)) < 0.05
            text[swapped] = rng.integers(0, self._vocab_size, swapped.sum())
            i, done = i + 1, done + len(text)
            yield Document(f"document {i}", tokens=text), i


def queries(tokens: np.ndarray, count: int, vocab_size: int) -> list[list[int]]:
    """Contexts of 64 tokens whose last 0 to 20 are in the store."""
    rng, found = np.random.default_rng(1), []
    for i in range(count):
        at, common = int(rng.integers(64, len(tokens))), i % 21
        context = np.minimum(tokens[at - 64 : at].astype(np.int64), vocab_size - 1)
        context[: 64 - common] = rng.integers(0, vocab_size, 64 - common)
        found.append(context.tolist())
    return found


def timed(call, over) -> tuple[float, float]:
    """Median and 95th percentile in microseconds."""
    times = microseconds(call, zip(over))
    return statistics.median(times), sorted(times)[int(0.95 * len(times))]


def measure(size: int, count: int) -> list[dict]:
    """Rows of the table."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(sample_model("target"))
    corpus, encoder, rows = standard_library(), Encoder(tokenizer), []
    documents = [d for d, _ in corpus.documents()]
    began = time.perf_counter()
    texts = [e.tokens for i in range(0, len(documents), 16) for e in encoder(documents[i : i + 16])]
    seconds, tokens = time.perf_counter() - began, sum(map(len, texts))
    rows.append({"what": f"standard library, {corpus.total / 1e6:.1f} MB, to {tokens:,} tokens", "s": seconds})
    began = time.perf_counter()
    store = SparseStore(build_datastore("bench", Noisy(texts, size, encoder.vocab_size), tokenizer, limit=size))
    rows.append({"what": f"build of {len(store):,} tokens, tokenised", "s": time.perf_counter() - began})
    rows[-1]["bytes a token"] = store.store.manifest.size / len(store)
    asked = queries(store.store.array("tokens"), count, encoder.vocab_size)
    for query in asked:
        store.longest(query)  # its pages are read
    found = [m for q in asked if (m := store.longest(q, n_min=1))]
    rows.append(row("lookup, longest suffix of 16 to 2", timed(store.longest, asked)))
    rows.append(row("lookup, all suffix lengths", timed(lambda q: list(store.falling(q)), asked)))
    many = sorted(found, key=lambda m: -m.count)[: len(found) // 10]
    big = [store.continuations(m) for m in many if m.count >= 5000]
    if big:  # a small store has none
        rows.append(row("continuations, 5,000 x 10", timed(store.continuations, [m for m in many if m.count >= 5000])))
        rows.append(row("trie, 64 nodes of 5,000 x 10", timed(lambda c: heaviest(c, 64), big)))
    rows.append(row("lookup, continuations and trie, as they come", timed(lambda q: whole(store, q), asked)))
    rows.append(row("place of a token", timed(store.documents.place, range(0, size, max(1, size // count)))))
    growing = Conversation()
    context = store.store.array("tokens")[:8192].tolist()
    rows.append(row("growing store, a token", timed(lambda t: growing.extend([t]), context)))
    rows.append(row("growing store of 8,192, lookup and trie", timed(lambda q: whole(growing, q), asked)))
    return rows


def whole(store, query: list[int]) -> None:
    """One round of retrieval."""
    match = store.longest(query)
    if match:
        heaviest(store.continuations(match), 64)


def row(what: str, times: tuple[float, float]) -> dict:
    return {"what": what, "median us": times[0], "95% us": times[1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=10_000_000)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SPEC_TUI_DATA_DIR"] = folder
        rows = measure(arguments.tokens, arguments.queries)
    if arguments.json:
        print(json.dumps(rows, indent=1))
    for entry in () if arguments.json else rows:
        print(f"{entry['what']:<60}", ", ".join(f"{k} {v:,.1f}" for k, v in entry.items() if k != "what"))


if __name__ == "__main__":
    main()
