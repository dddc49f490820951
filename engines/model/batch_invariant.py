"""Batch-invariant mode: a token's logits and its row of the cache are the same to the last bit, however it was fed.

Kernels sum in an order that depends on shapes, so in half precision a token verified among others may get other bits,
and another argmax at a near tie, than the same token alone. Here every forward has the same number of rows, those of
the prompt too, and each row sees a number of columns that depends on its position only; in each column lies the
position of its number, on every branch of a tree. So a row is computed by the same kernels over the same numbers in the
same places, whatever is drafted. What is left to the kernels is that a row does not depend on its place among the
others and on what these are: ``enable`` tries that, and where it does not hold feeds one row at a time.

A forward that computes rows alike by itself (``Forward.invariant``: native code) runs as it does without, once
``enable`` has tried that it does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from time import perf_counter

import numpy as np
import torch

from engines.model.causal_model import CausalModel
from engines.model.lean_forward import Exchange, LeanForward
from engines.model.masks import by_position
from engines.model.selftest import selftest

ROWS, ROWS_ELSEWHERE = 8, 16  # of every forward: on the CPU, where rows soon cost; on devices where they hardly do
_COLUMNS = 256  # rows see a multiple of it: the step in which the buffer grows
_TIMES = 8


class BatchInvariantModel(CausalModel):
    """A ``CausalModel`` that computes each row alike. Drafts of self-speculation (``skipping``) need not be, and are
    not.

    Attributes:
        rows: of each forward; 0 where it is fed like any ``CausalModel``: before ``enable``, and where it computes rows
            alike by itself.
        note: what the mode does and costs, for people.
    """

    rows = 0
    note = ""

    @property
    def backend(self) -> str:
        rows = f" ({self.rows} row{'s' if self.rows > 1 else ''})" if self.rows else ""
        return super().backend + (f", strict{rows}" if self.note else "")

    @property
    def keeps_threads(self) -> bool:
        return self.rows > 0

    def enable(self) -> None:
        """Compute every row alike from now on, with as many rows a forward as are stable here. The cache is emptied."""
        self._masked = self.trees
        if self.compute.invariant and self._stable():
            self.note = "strict: native code computes each token alike however it is fed, at no cost"
            return
        self.rows = ROWS if self.device.type == "cpu" else ROWS_ELSEWHERE
        self.trees = self._masked and isinstance(self.compute, LeanForward)
        if not (self._masked and not self._routed and self._stable()):
            self.rows, self.trees = 1, False
        share = self._share()
        if self.rows > 1:
            what = f"every forward has {self.rows} rows, so a token's logits do not depend on how it was fed"
        else:
            what = "one row per forward pass, no larger one gives the same bits here; drafts cannot be faster"
        self.note = f"strict: {what}; one token costs {share:.2f}x" + ("" if self.trees else "; drafts are chains")

    @contextmanager
    def skipping(self, attention: frozenset[int], mlp: frozenset[int]) -> Iterator[None]:
        with super().skipping(attention, mlp):
            trees, self.trees = self.trees, self._masked if self.rows else self.trees
            try:
                yield
            finally:
                self.trees = trees

    @property
    def _routed(self) -> bool:
        """Whether experts share rows among them: how many each gets depends on all rows."""
        return any("expert" in name and value for name, value in self.model.config.to_dict().items())

    @property
    def _free(self) -> bool:
        """Whether rows are fed as they come."""
        return not self.rows or self._whole is not None

    def _read(self, tokens: Sequence[int], positions: range) -> torch.Tensor:
        if self._free:
            return super()._read(tokens, positions)
        return self._fed(tokens, np.arange(positions.start, positions.stop), last_only=True)

    def _verify(self, tokens: Sequence[int], positions: np.ndarray) -> torch.Tensor:
        return super()._verify(tokens, positions) if self._free else self._fed(tokens, positions)

    @torch.inference_mode()
    def _fed(self, tokens: Sequence[int], positions: np.ndarray, last_only: bool = False) -> torch.Tensor:
        """Logits [rows, vocabulary] of rows in as many forwards as they take.

        Args:
            positions: of all pending rows, these the last of them.
            last_only: the last row's are enough.
        """
        first, length, pending = len(positions) - len(tokens), self.cache.length, self.cache.pending
        pieces = list(self._pieces(positions, first))
        self.cache.reserve(length + len(positions) + self.rows)
        logits = []
        try:
            for a, b in pieces:
                last = b == len(positions)
                out = self._piece(tokens[a - first : b - first], positions[:b], not last_only or last)
                if self.features.active:
                    self.features.take(b - a, last_only)
                if not last_only or last:
                    kept = slice(b - a - 1, b - a) if last_only else slice(0, b - a)
                    logits.append(out[kept])
        finally:
            self.cache.length, self.cache.pending, self.cache.width = length, pending, None
        return logits[0] if len(logits) == 1 else torch.cat(logits)

    def _pieces(self, positions: np.ndarray, first: int) -> Iterator[tuple[int, int]]:
        """The rows of each forward, [from, to): no more than ``rows``, and all see as many columns."""
        for _, group in groupby(range(first, len(positions)), lambda row: positions[row] // _COLUMNS):
            rows = list(group)
            for a in range(rows[0], rows[-1] + 1, self.rows):
                yield a, min(a + self.rows, rows[-1] + 1)

    def _piece(self, tokens: Sequence[int], positions: np.ndarray, wanted: bool) -> torch.Tensor | None:
        """Logits [rows, vocabulary] of one forward over the last pending rows and copies of the first of them."""
        a, cache = len(positions) - len(tokens), self.cache
        if self.rows == 1:
            cache.length, cache.pending = int(positions[-1]), 0
            one = range(cache.length, cache.length + 1)
            return self.compute.run(tokens, one if self._masked else None, self._text_mask(one), cache, True)
        cache.pending, width = a, (int(positions[-1]) // _COLUMNS + 1) * _COLUMNS
        more = self.rows - len(tokens)
        tokens = [*tokens, *[tokens[0]] * more]
        where = [*positions[a:].tolist(), *[int(positions[a])] * more]
        mask = by_position(where, width, self.spans, self.dtype, self.device)
        if not isinstance(self.compute, LeanForward):
            cache.width = width
            return self.compute.run(tokens, where, mask, cache, False)
        ids = torch.tensor(tokens, device=self.device)
        exchange = self._exchange(positions, len(positions) - a, mask, width)
        x = self.compute.layers_over(ids, *self.compute.rotations(where), exchange)
        if wanted:
            return self.compute.logits(x)
        if self.features.every_row:
            self.compute.final(x)
        return None

    def _exchange(self, positions: np.ndarray, rows: int, mask, width: int) -> Exchange:
        """For the last rows: keys and values go to their places; for the time of attention those of a branch lie in the
        columns of their positions, one branch after the other."""
        compute, cache, start, end = self.compute, self.cache, self.length, self.length + len(positions)
        attend, heads = compute.attention(self.rows, cache.offset, mask), compute.heads
        written, _, _ = cache.places(compute.kv_heads, compute.head_dim, rows, compute.like)
        store = cache.store(compute.kv_heads, compute.head_dim, compute.like)
        seen, branches = store[..., :width, :].unbind(0), self._branches(positions, rows)

        def exchange(i, states, kind):
            written[i].copy_(states[:, :rows, heads:])
            queries, keys, values = states[:, :, :heads], seen[2 * i], seen[2 * i + 1]
            if branches is None:
                return attend(queries, keys, values, kind)
            pair, out = store[2 * i : 2 * i + 2, ..., start:end, :], None
            rest = pair.clone()
            for path, members in branches:
                pair[..., : len(path), :] = rest[..., path, :]
                own = attend(queries, keys, values, kind)
                out = own if out is None else out
                out[members] = own[members]
            pair.copy_(rest)
            return out

        return exchange

    def _branches(self, positions: np.ndarray, rows: int) -> list[tuple[list[int], list[int]]] | None:
        """Paths of pending rows that the last rows lie on, and which of these lie on each; None where all lie on one
        and it is in place."""
        if (positions - self.length == np.arange(len(positions)))[-rows:].all():
            return None
        first, found, left = len(positions) - rows, [], set(range(len(positions) - rows, len(positions)))
        while left:
            path = np.flatnonzero(self._seen[max(left), : len(positions)]).tolist()
            members = left.intersection(path)
            found.append((path, [row - first for row in sorted(members)]))
            left -= members
        return found

    def _stable(self) -> bool:
        """Whether rows are the same to the last bit however they are fed, tried on a few tokens; and still right."""
        try:
            return selftest(self) is None and self._same_bits()
        except (RuntimeError, ValueError, IndexError, NotImplementedError):  # kernels differ in what they refuse
            return False
        finally:
            self.truncate(0)

    def _same_bits(self) -> bool:
        rows = self.rows or ROWS
        tokens = [(11 + 29 * i) % self.vocab_size for i in range(3 * rows + 5)]
        single = self._trial(tokens, [1] * len(tokens))
        trials = [[len(tokens)], [3, rows - 1, *[rows] * 9], [2, 1, *[5] * 9], [rows * 2, 1, 9, 9]]
        for sizes in trials:
            if not all(torch.equal(a, b) for a, b in zip(single, self._trial(tokens, sizes))):
                return False
        return not self.trees or torch.equal(single[0], self._tree_trial(tokens))

    def _trial(self, tokens: list[int], sizes: Sequence[int]) -> list[torch.Tensor]:
        """Logits [tokens, vocabulary] of all tokens, fed so many at a time, and the keys and values that they leave in
        the cache, [1, heads, tokens, dim] each."""
        self.truncate(0)
        logits, at = [], 0
        for size in sizes:
            chunk = tokens[at : at + size]
            if chunk:
                logits.append(self.forward(chunk, list(range(-1, len(chunk) - 1))))
                self.keep(list(range(len(chunk))))
            at += len(chunk)
        rows = [half[..., :at, :].clone() for layer in self.cache.layers for half in (layer.keys, layer.values)]
        return [torch.cat(logits), *rows]

    def _tree_trial(self, tokens: list[int]) -> torch.Tensor:
        """The same logits [tokens, vocabulary] of rows that lie among rows of other branches."""
        self.truncate(0)
        fed, parents, own = [], [], []
        for i, token in enumerate(tokens):
            above = own[-1] if own else -1
            others = [tokens[-1 - i]] * (i % 3)
            fed += [*others, token]
            parents += [above] * (len(others) + 1)
            own.append(len(fed) - 1)
        return self.forward(fed, parents)[own]

    def _share(self) -> float:
        """What a forward of one token after some context takes, as a share of one outside this mode: the best of a few,
        in turn. The context is rows of zeros."""
        how, best = (self.rows, self.trees), {}
        self.truncate(0)
        self.forward([0], [-1])
        self.drop()
        self.cache.reserve(_COLUMNS)
        self.cache.length = max(0, min(_COLUMNS * 3 // 4, self.context_limit - 2))
        for rows, trees in (how, (0, self._masked)) * _TIMES:
            self.rows, self.trees = rows, trees
            self.synchronize()
            clock = perf_counter()
            self.forward([0], [-1])
            self.synchronize()
            best[rows] = min(best.get(rows, 1e9), perf_counter() - clock)
            self.drop()
        self.rows, self.trees = how
        self.truncate(0)
        return best[self.rows] / best[0]
