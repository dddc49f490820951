"""What dense retrieval costs and how well its indexes find: query time and recall by number of keys and back end.

The keys are hidden states of the sample model over the standard library of this Python: files in random order, in
windows of 512 tokens, nothing repeated and nothing added. The queries are hidden states from files that are in no
store of the size measured, each with the token that follows there as the one just emitted. Reading a million tokens
takes minutes; the hidden states stay in --cache. Indexes are asked in turn, three times over; medians.

    python tools/bench_dense.py [--keys 10000 100000 1000000] [--queries 1000] [--cache FOLDER] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
from benches.rows import microseconds

from engines.datastores.building.build_datastore import build_datastore
from engines.datastores.building.corpus import Document, Encoder
from engines.datastores.search.ann import BACKENDS, ExactIndex, Index, installed
from engines.datastores.search.dense import DenseStore, mean_reciprocal_rank, recall
from engines.datastores.search.indexing import build_index, open_index
from engines.datastores.storage.manifest import File, ModelIdentity
from engines.folders import checksum

WINDOW = 512  # tokens that the model reads together
BATCH = 8  # windows of a forward
SPARE = 60_000  # tokens beyond the largest store, for queries


def read(folder: Path, rows: int) -> None:
    """Hidden states float16 [rows, H], token ids and the number of the file of each row, into the folder."""
    if (folder / "files.npy").exists() and len(np.load(folder / "files.npy", mmap_mode="r")) >= rows:
        return
    from engines import load
    from engines.datastores.building.hidden_states import HiddenStates
    from engines.datastores.building.text_files import standard_library

    runtime, corpus = load("sample"), standard_library()
    reader, encoder = HiddenStates(runtime.target, runtime.identity, WINDOW), Encoder(runtime.tokenizer)
    order = np.random.default_rng(0).permutation(len(corpus.files))
    states, tokens, files, done, batch = None, np.zeros(rows, np.int32), np.zeros(rows, np.int32), 0, []
    for at, number in enumerate(order):
        ids = encoder([next(corpus.documents(int(number)))[0]])[0].tokens
        batch += [(at, ids[i : i + WINDOW]) for i in range(0, len(ids), WINDOW)]
        while len(batch) >= BATCH and done < rows:
            some, batch = batch[:BATCH], batch[BATCH:]
            for (file, text), found in zip(some, reader([text for _, text in some])):
                if states is None:
                    shape = (rows, found.shape[1])
                    states = np.lib.format.open_memmap(folder / "hidden.npy", "w+", np.float16, shape)
                part = slice(done, min(done + len(text), rows))
                kept = part.stop - part.start
                states[part], tokens[part], files[part] = found[:kept], text[:kept], file
                done += kept
        print(f"\r{done:,} of {rows:,} tokens read", end="", file=sys.stderr, flush=True)
        if done == rows:
            break
    else:
        raise SystemExit(f"the standard library has fewer than {rows:,} tokens: ask for fewer --keys")
    print(file=sys.stderr)
    np.save(folder / "ids.npy", tokens)
    np.save(folder / "files.npy", files)


class Read:
    """What ``read`` left, as corpus and tokenizer of a build: windows are its documents."""

    unit, total = "windows", None

    def __init__(self, folder: Path, keys: int) -> None:
        self.states = np.load(folder / "hidden.npy", mmap_mode="r")
        self.ids, self.files = np.load(folder / "ids.npy"), np.load(folder / "files.npy")
        self.identity = {"keys": keys}
        begins = np.flatnonzero(np.diff(self.files, prepend=-1)).tolist()
        ends = [*begins[1:], len(self.ids)]
        parts = [(i, min(i + WINDOW, e)) for b, e in zip(begins, ends) for i in range(b, e, WINDOW)]
        self.windows = [(b, e) for b, e in parts if e - b > 1]
        kept = np.cumsum([e - b - 1 for b, e in self.windows])
        self.used = self.windows[: int(np.searchsorted(kept, keys)) + 1]

    def documents(self, resume=None) -> Iterable[tuple[Document, int]]:
        """See ``corpus.Corpus``."""
        for i, (begin, end) in enumerate(self.used):
            yield Document(f"window {i}", tokens=self.ids[begin:end]), i + 1

    def get_vocab(self) -> dict[str, int]:
        """A tokenizer's."""
        return {str(i): i for i in range(int(self.ids.max()) + 1)}

    def queries(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Hidden states float32 [count, H] of files that no key is from, and the token after each."""
        after = self.files[self.used[-1][1] - 1]
        rows = np.concatenate([np.arange(b, e - 1) for b, e in self.windows if self.files[b] > after])
        rows = np.random.default_rng(1).choice(rows[:SPARE], count, replace=False)
        return self.states[rows].astype(np.float32), self.ids[rows + 1]


class KeptStates:
    """The hidden states of a corpus' windows, as the model of a build (``hidden_states.HiddenStates``)."""

    context, batch = 1 << 20, 8 * WINDOW

    def __init__(self, text: Read) -> None:
        self.identity = ModelIdentity("sample", "0" * 64, text.states.shape[1])
        self._states = (text.states[begin:end].astype(np.float32) for begin, end in text.used)

    def __call__(self, texts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Those of the next windows: they are asked for in order."""
        return list(islice(self._states, len(texts)))


def indexes(store: DenseStore, folder: Path) -> Iterable[tuple[str, Index, dict]]:
    """Each back end that is installed: its name, the index, and what making it took."""
    for backend in BACKENDS[1:]:
        if not installed(backend):
            print(f"{backend} is not installed: left out", file=sys.stderr)
            continue
        root = folder / backend
        began = time.perf_counter()
        made = build_index(store.store.folder / "keys.bin", store.keys.shape, root / "index", backend)
        built = time.perf_counter() - began
        files = [File(f"index/{p.name}", p.stat().st_size, checksum(p)) for p in (root / "index").iterdir()]
        began = time.perf_counter()
        index, remark = open_index(store.keys, root, made, files)
        opened = time.perf_counter() - began
        if remark or made.remark:
            raise SystemExit(remark or made.remark)
        size = sum(f.size for f in files) / 1e6
        yield backend, index, {"build s": built, "MB": size, "open ms": 1e3 * opened, **made.settings}


def measure(cache: Path, folder: Path, keys: int, count: int) -> list[dict]:
    """Rows of the table for one size."""
    text = Read(cache, keys)
    began = time.perf_counter()
    store = DenseStore(build_datastore("bench", text, text, KeptStates(text), index="exact", replace=True))
    rows = [{"what": f"{len(store):,} keys: all but reading and index", "s": time.perf_counter() - began}]
    hidden, emitted = text.queries(count)
    queries = store.reduction(hidden)
    rows[0]["us a reduction"] = statistics.median(microseconds(store.reduction.one, [(h,) for h in hidden]))
    made = list(indexes(store, folder))
    searches, whole = {b: [] for b, _, _ in made}, {b: [] for b, _, _ in made}
    for _ in range(3):
        for backend, index, _ in made:
            store.index = index
            some = slice(0, count if not isinstance(index, ExactIndex) else max(20, min(count, 10**7 // keys)))
            searches[backend] += microseconds(index.search, [(q, 10) for q in queries[some]])
            whole[backend] += microseconds(store.query, zip(hidden[some], emitted[some].tolist()))
    for backend, index, facts in made:
        store.index = index
        found = [store.query(h, int(t)) for h, t in zip(hidden[:200], emitted)]
        rows.append({
            "what": f"{len(store):,} keys, {backend}", "us search": statistics.median(searches[backend]),
            "90%": sorted(searches[backend])[int(0.9 * len(searches[backend]))],
            "us query": statistics.median(whole[backend]), "recall@10": recall(store, 10, queries).value,
            "held out": recall(store).value, "MRR": mean_reciprocal_rank(store, 200 if backend == "exact" else 1000),
            "found": np.mean([len(f) > 0 for f in found]),
            "widened": np.mean([f.candidates > index.wide for f in found]),
        } | facts)  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--cache", type=Path, help="folder that keeps the hidden states (default: none)")
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    arguments = parser.parse_args()
    rows: list[dict] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SPEC_TUI_DATA_DIR"] = folder
        cache = arguments.cache or Path(folder) / "cache"
        cache.mkdir(parents=True, exist_ok=True)
        read(cache, int(1.01 * max(arguments.keys)) + SPARE)
        for keys in arguments.keys:
            found = measure(cache, Path(folder) / f"{keys}", keys, arguments.queries)
            rows += found
            for row in () if arguments.json else found:
                facts = [f"{k} {v:,.3g}" if v < 100 else f"{k} {v:,.0f}" for k, v in row.items() if k != "what"]
                print(f"{row['what']:<32}", ", ".join(facts), flush=True)
    if arguments.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
