"""Hidden states that a model shows while somebody asks for them, row by row beside its KV buffer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from engines.errors import UsageProblem
from engines.model.feature_request import COSINES, LAST, LEAST_RECENT, FeatureRequest, Tap
from engines.model.forward import Forward
from engines.model.sublayers import Sublayers, UnsupportedStructure

_STEP = 256  # rows; buffers grow in multiples of it
_WAITING = 1 << 22  # numbers that may wait to be compared together: many small operations cost more than a large one


class Features:
    """The hidden states of a model's rows, and the ``Observer`` that its forwards tell them to. What they show must
    stay as it is until ``take``.

    Args:
        compute: the model's forward.
        layers: how many layers the model has.
        sublayers: gives the model's sublayers; raises UsageProblem where they are not understood.
        name: the model's name, for messages.

    Attributes:
        wanted: what is asked for now.
        active: whether anything is.
        paused: meanwhile forwards show nothing, and rows that are kept do not count: they are drafts.
        layers, last, sublayers, every_row: as in ``Observer``.
    """

    def __init__(self, compute: Forward, layers: int, sublayers: Callable[[], Sublayers], name: str) -> None:
        self._compute, self._count, self._find_sublayers, self._name = compute, layers, sublayers, name
        self.wanted, self.active, self.paused = FeatureRequest(), False, False
        self.layers: frozenset[int] = frozenset()
        self.last, self.every_row = False, False
        self.sublayers: Sublayers | None = None
        self._buffers: dict[Tap, _RowBuffer] = {}
        self._shown: dict[Tap, torch.Tensor] = {}  # by the forward under way
        self._streams: list[tuple[torch.Tensor, torch.Tensor]] = []  # before and after sublayers, to be compared
        self._cosines: list[torch.Tensor] = []  # float32 [sublayers, rows]
        self._latest: dict[Tap, list[torch.Tensor]] = {}
        self._pending = 0  # rows of the model that are pending since something is asked for

    @contextmanager
    def requested(self, wanted: FeatureRequest) -> Iterator[None]:
        """Inside, forwards show what is wanted.

        Raises:
            UsageProblem: this model cannot show it, or has no such layer.
        """
        try:
            self.request(wanted)
            yield
        finally:
            self.request(FeatureRequest())

    def request(self, wanted: FeatureRequest) -> None:
        """Show this from now on, and nothing else. What was kept of earlier requests stays with its rows.

        Raises:
            UsageProblem: this model cannot show it, or has no such layer.
        """
        self._latest = {}
        if wanted == self.wanted:
            return
        layers = frozenset(tap for tap in wanted.taps if isinstance(tap, int))
        if layers and not 1 <= min(layers) <= max(layers) <= self._count:
            raise UsageProblem(f"{self._name} has layers 1 to {self._count}, not {sorted(layers)}",
                               "choose another engine")
        self.sublayers = self._find_sublayers() if COSINES in wanted.taps else None
        self.layers, self.last, self.every_row = layers, LAST in wanted.taps, LAST in wanted.kept
        self.wanted, self.active = FeatureRequest(), False
        try:
            self._compute.observe(self if wanted.taps else None)
        except UnsupportedStructure as reason:
            raise UsageProblem(f"{self._name} does not show its hidden states: {reason}",
                               "choose another engine") from None
        self.wanted, self.active = wanted, bool(wanted.taps)
        self.drop()

    def latest(self, tap: Tap) -> torch.Tensor:
        """States [rows, width] of the last forward's rows, or of a prefill's last row. Raises ValueError: they are not
        asked for, or nothing was fed since."""
        found = self._latest.get(tap)
        if not found:
            raise ValueError(f"no forward has shown {tap!r}")
        return found[0] if len(found) == 1 else torch.cat(found)

    def rows(self, tap: Tap, start: int = 0, stop: int | None = None) -> torch.Tensor:
        """States [stop - start, width] of rows of the context, and of the pending rows after them; a view, valid until
        something else is fed or kept. ``start``, ``stop``: positions of committed rows; from the model's length on,
        pending rows in the order in which they were fed. None stands for all. Raises ValueError: not all of these rows
        have such states."""
        buffer = self._buffers.get(tap)
        end = buffer.end + buffer.pending if buffer is not None else 0
        stop = end if stop is None else stop
        if buffer is None or buffer.store is None or not buffer.first <= start <= stop <= end:
            raise ValueError(f"rows {start} to {stop} have no {tap!r}")
        return buffer.store[start - buffer.first : stop - buffer.first]

    def mean_cosines(self, rows: int) -> tuple[list[float], list[float], int]:
        """Cosines of attention and of MLP sublayers, one a layer, averaged over those of the model's committed ``rows``
        from which on all were measured; and how many they are. Raises ValueError: the last was not measured, or there
        are no rows."""
        buffer = self._buffers.get(COSINES)
        if buffer is None or buffer.end != rows or not buffer.length:
            raise ValueError("these rows were not measured")
        mean = self.rows(COSINES, buffer.first, rows).double().mean(0).tolist()
        return mean[0::2], mean[1::2], buffer.length

    def reusable(self, cached: int, wanted: FeatureRequest | None = None) -> int:
        """How many of the first ``cached`` rows need not be read again: they have all that is wanted (None: what is
        asked for now) of them."""
        wanted = self.wanted if wanted is None else wanted
        history = (self._buffer(tap) for tap in wanted.history)
        whole = min((0 if buffer.first else buffer.end for buffer in history), default=cached)
        return min(cached, whole, *(self._buffer(tap).reusable(cached) for tap in wanted.recent))

    def see_layer(self, layer: int, stream: torch.Tensor) -> None:
        if layer in self.layers:
            self._shown[layer] = stream

    def see_sublayer(self, before: torch.Tensor, after: torch.Tensor) -> None:
        if self.sublayers is not None:
            self._streams.append((before, after))
            if len(self._streams) * before.numel() >= _WAITING:
                self._compare()

    def see_last(self, states: torch.Tensor) -> None:
        if self.last:
            self._shown[LAST] = states

    def begin(self) -> None:
        """A forward begins: what the last one showed is forgotten."""
        if not self.paused:
            self._latest = {}

    def take(self, rows: int, last_only: bool = False) -> None:
        """A forward is over; its first ``rows`` rows are pending, others were padding. ``last_only``: only the last of
        them gave logits (a prefill)."""
        if self.paused:
            return
        if self.sublayers is not None:
            self._compare()
            self._shown[COSINES] = torch.cat(self._cosines).view(2 * self._count, -1).T
            self._cosines = []
        for tap, states in self._shown.items():
            states = states[:rows]
            if tap in self.wanted.kept:
                self._buffer(tap).append(states)
            if last_only:
                self._latest[tap] = [states[-1:]]
            else:
                self._latest.setdefault(tap, []).append(states)
        self._shown = {}
        self._pending += rows

    def keep(self, rows: Sequence[int] | None, start: int) -> None:
        """Commit these pending rows (ascending; None: all) and drop the others. ``start``: rows that the model had
        committed before."""
        if not self.paused:
            for tap in self.wanted.kept:
                buffer = self._buffer(tap)
                if buffer.end != start and tap in self.wanted.recent:
                    buffer.restart(start)
                if buffer.end == start and buffer.pending == self._pending:  # else rows before these lack it
                    buffer.keep(rows)
        self.drop()

    def drop(self) -> None:
        """Forget the pending rows."""
        self._pending, self._shown, self._streams, self._cosines = 0, {}, [], []
        for buffer in self._buffers.values():
            buffer.pending = 0

    def truncate(self, length: int) -> None:
        """Forget the rows from ``length`` on, and the pending ones."""
        self.drop()
        if not length:
            self._buffers = {}  # frees their memory
        for buffer in self._buffers.values():
            buffer.length = max(0, min(buffer.end, length) - buffer.first)

    def _compare(self) -> None:
        if self._streams:
            before, after = (torch.stack(streams).float() for streams in zip(*self._streams))
            self._cosines.append(torch.cosine_similarity(before, after, dim=-1))
            self._streams = []

    def _buffer(self, tap: Tap) -> _RowBuffer:
        return self._buffers.setdefault(tap, _RowBuffer())


class _RowBuffer:
    """States of rows, ``length`` committed ones, then ``pending`` ones.

    Attributes:
        first: position of the first committed row.
        store: [capacity, width]; None before the first row.
    """

    def __init__(self) -> None:
        self.first = self.length = self.pending = 0
        self.store: torch.Tensor | None = None

    @property
    def end(self) -> int:
        """Position after the last committed row."""
        return self.first + self.length

    def reusable(self, cached: int) -> int:
        """How many of the first ``cached`` rows can stay, if the last ``LEAST_RECENT`` of the context are to be here
        and only rows that follow the last one can be added."""
        end = min(self.end, cached)
        enough = self.first == 0 or end - self.first >= LEAST_RECENT
        return max(end if enough else 0, cached - LEAST_RECENT)

    def restart(self, first: int) -> None:
        """Forget the committed rows; the pending ones are at position ``first`` and after."""
        if self.store is not None:
            self.store = self.store[self.length :]
        self.first, self.length = first, 0

    def append(self, states: torch.Tensor) -> None:
        """Add pending rows [rows, width]; the buffer grows geometrically."""
        start = self.length + self.pending
        end, old = start + len(states), self.store
        if old is None or end > len(old):
            capacity = -(-max(end, start * 3 // 2) // _STEP) * _STEP
            self.store = states.new_empty(capacity, states.shape[1])
            if old is not None:
                self.store[:start] = old[:start]
        self.store[start:end] = states
        self.pending += len(states)

    def keep(self, rows: Sequence[int] | None) -> None:
        """Commit these pending rows (ascending; None: all)."""
        count = self.pending if rows is None else len(rows)
        if rows and rows[-1] >= count:  # else they are in place
            with torch.inference_mode():
                where = torch.tensor(rows, device=self.store.device) + self.length
                self.store[self.length : self.length + count] = self.store[where]
        self.length += count
        self.pending = 0
