"""A decoder-only model of transformers with its KV buffer: what the loop verifies on and draft models draft with.

Which forward computes is a ``Forward``'s matter: the model's own module, for any family that keeps keys and values, or
one of our own. Where attention takes additive 4-D masks and explicit position ids, whole trees are verified; else
chains, under the model's own masks and positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

import numpy as np
import torch

from engines.core.sampling import noted
from engines.errors import UsageProblem
from engines.libraries import hf
from engines.libraries.hf import PreTrainedModel
from engines.model.favourites import note
from engines.model.features import Features
from engines.model.forward import Forward, GenericForward
from engines.model.masks import Mask, additive, moved, spans
from engines.model.native import native_code
from engines.model.native.native_linear import native_layers, weight_bytes
from engines.model.sublayers import Sublayers, UnsupportedStructure, find
from engines.model.tuning import settings_of

_NOTHING = np.zeros((0, 0), dtype=bool)
_CHAIN = np.tri(256, dtype=bool)  # what the rows of a chain see of each other
_LIMITS = ("max_position_embeddings", "max_seq_len", "seq_length")  # families' names for the positions they have
CHUNK, CHUNK_ELSEWHERE = 256, 1024  # rows of a prefill forward, on the CPU and on faster devices: bounds memory, and
# how long a cancel or a report of progress waits


class CausalModel:
    """A causal language model and the rows it has cached.

    Attributes:
        tokens: ids of the committed rows, in order; ``len(tokens) == length``.
        vocab_size: width of the logits.
        parameters: their number, tied ones counted once.
        native: whether its linear layers are native code.
        quantised: which linear layers are quantised, in words (``quantise``); "" for none.
        weights: how they are quantised, in two or three words; "" where they are not.
        fingerprint: of the weights (``loading.weights_fingerprint``); "" where it was not taken.
        context_limit: positions the model was made for.
        spans: kinds and sizes of its attention layers (``masks.spans``).
        masked: whether it takes masks and positions; else it makes its own, of a chain.
        one_by_one: whether each token has a forward of its own (``be_strict``).
        remarks: what a user should know about this model here; ``note``: of every run, "" if nothing.
        compute: the forward.
        features: hidden states of its rows, for drafters that ask for them.
    """

    note = ""
    quantised = weights = ""
    one_by_one = False

    def __init__(
        self, model: PreTrainedModel, name: str, parameters: int = 0, fingerprint: str = "",
        compute: Forward | None = None,
    ) -> None:
        self.model = model.eval()
        self.name, self.fingerprint, self.native = name, fingerprint, bool(native_layers(model))
        self.compute = compute or GenericForward(model)
        self.parameters = parameters or model.num_parameters()
        config = hf.text_config(model.config)
        self.vocab_size: int = config.vocab_size
        self.context_limit, self.remarks = usable_context(config, name)
        self.device, self.dtype = model.device, model.dtype
        self.spans = spans(config)
        self.masked = self.spans is not None
        self.cache = self.compute.buffer(config.num_hidden_layers)
        self._in_use = Lock()
        self._sublayers: Sublayers | UnsupportedStructure | None = None
        self.features = Features(self.compute, config.num_hidden_layers, lambda: self.sublayers, name)
        self._whole: int | None = None  # while some are left out: how many of the first rows all layers have
        self.tokens: list[int] = []
        self._pending: list[int] = []
        self._seen = _NOTHING  # bool [pending, pending]: row i attends to pending row j

    @property
    def backend(self) -> str:
        """Which forward runs, in words."""
        native = "native linear layers" if self.native and not self.compute.invariant else ""
        return ", ".join(filter(None, (self.compute.name, self.quantised, native, self.note and "strict")))

    @property
    def trees(self) -> bool:
        """Whether branching drafts can be verified in one forward; else chains only."""
        return self.masked and not self._singly

    @property
    def _singly(self) -> bool:
        """Whether tokens are fed one by one; drafts without some sublayers need not be."""
        return self.one_by_one and self._whole is None

    def be_strict(self) -> None:
        """Compute each token's logits and its row of the cache the same to the last bit, however it is fed, from now
        on. Kernels sum in an order that depends on shapes, so in half precision a token that is verified among others
        may get other bits, and another argmax at a near tie, than the same token alone. A forward that computes rows
        alike (``Forward.invariant``) runs as before; with any other each token has a forward of its own, those of the
        prompt too."""
        self.one_by_one = not self.compute.invariant
        self.note = "strict: native code computes each token in the same way with and without drafts, at no cost"
        if self.one_by_one:
            self.note = "strict: each token has a forward pass of its own, the prompt's too; drafts cannot be faster"

    @property
    def precision(self) -> str:
        """What an answer's tokens depend on beside the model: its dtype by name, and how its weights are quantised."""
        return ", ".join(filter(None, (str(self.dtype).removeprefix("torch."), self.weights)))

    @property
    def rounding(self) -> torch.dtype:
        """The coarsest dtype that a forward rounds to."""
        return torch.bfloat16 if self.rounds else self.dtype

    @property
    def rounds(self) -> bool:
        """Whether inputs of products are rounded to 8 bits: as coarse as bfloat16."""
        return any(layer.rounds for layer in native_layers(self.model))

    @property
    def computed_by(self) -> str:
        """What computes it: where that is the same, a token gets the same bits however it is fed; "" where bits depend
        on that."""
        return native_code.digest() if self.compute.invariant else ""

    @property
    def weight_bytes(self) -> int:
        """Bytes of its weights, as they are laid out."""
        return weight_bytes(self.model)

    @property
    def settings(self) -> dict[str, Any]:
        """Its configuration as plain data."""
        return settings_of(self.model)

    @property
    def length(self) -> int:
        """Committed KV rows."""
        return self.cache.length

    @property
    def pending(self) -> int:
        """KV rows of the tree under way."""
        return self.cache.pending

    @property
    def sublayers(self) -> Sublayers:
        """Its attention and MLP sublayers, looked for at first use. Raises UsageProblem: they are not understood."""
        if self._sublayers is None:
            try:
                self._sublayers = find(self.model)
            except UnsupportedStructure as reason:
                self._sublayers = reason
        if isinstance(self._sublayers, UnsupportedStructure):
            raise UsageProblem(
                f"{self.name} cannot be run without some of its layers: {self._sublayers}", "choose another engine"
            )
        return self._sublayers

    @contextmanager
    def skipping(self, attention: frozenset[int], mlp: frozenset[int]) -> Iterator[None]:
        """Forwards without these sublayers (layers from 0), to draft with. Whatever is fed meanwhile, pending or
        committed, is forgotten at the end, after an exception too: the rows before it are as they were.

        Raises:
            UsageProblem: the model's sublayers are not understood.
            ValueError: one of these cannot be left out (``Sublayers.attention``, ``Sublayers.mlp``).
        """
        if self._whole is not None:
            raise ValueError("sublayers are left out already")
        with self.compute.without(self.sublayers, attention, mlp):
            self._whole, self.features.paused = self.length, True
            try:
                yield
            finally:
                whole, self._whole, self.features.paused = self._whole, None, False
                self.truncate(whole)

    def extend(
        self, tokens: Sequence[int], cancelled: Callable[[], bool] = lambda: False,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> torch.Tensor | None:
        """Feed real tokens and commit them. Returns logits [vocabulary] of the last one, or None if cancelled on the
        way (rows fed so far stay). ``progress`` is told before each piece how many are fed, of how many in all; a text
        of one piece is not reported."""
        self.drop()
        self.cache.reserve(self.length + len(tokens))
        logits, size = None, 1 if self._singly else CHUNK if self.device.type == "cpu" else CHUNK_ELSEWHERE
        for start in range(0, len(tokens), size):
            if start and cancelled():
                return None
            if len(tokens) > size:
                progress(start, len(tokens))
            chunk = tokens[start : start + size]
            positions = range(self.length, self.length + len(chunk))
            logits = self._run(chunk, positions, self._text_mask(positions), last_only=True)
            if self.features.active:
                self.features.keep(None, self.length)
            self.cache.length += len(chunk)
            self.tokens += chunk
        return note(logits[-1], noted(logits)) if logits is not None else None

    def forward(self, tokens: Sequence[int], parents: Sequence[int]) -> torch.Tensor:
        """One forward over tree rows, kept pending.

        Args:
            tokens: ids, one a row.
            parents: for each row the index of its parent among all pending rows (earlier calls first), -1 for a row
                that follows the last committed token.

        Returns:
            Logits [len(tokens), vocabulary].

        Raises:
            ValueError: branches, on a model that takes chains only.
        """
        if self.features.active:
            self.features.begin()
        self.cache.reserve(self.length + len(self._pending) + len(tokens))
        if not self._singly:
            return self._verify(tokens, parents)
        return torch.cat([self._verify([token], [parent]) for token, parent in zip(tokens, parents)])

    def keep(self, rows: list[int]) -> None:
        """Commit these pending rows (ascending, a path from the root down) and drop the others."""
        self.tokens += [self._pending[r] for r in rows]
        if self.features.active:
            self.features.keep(rows, self.length)
        self.cache.keep(rows)
        self.drop()

    def drop(self) -> None:
        """Forget the pending rows."""
        self.cache.pending = 0
        if self.features.active:
            self.features.drop()
        self._pending = []
        self._seen = _NOTHING

    @contextmanager
    def alone(self, what: str) -> Iterator[None]:
        """Within, nothing else uses its cache, or is told of its forwards. Raises UsageProblem, naming ``what`` was to
        begin, where something does."""
        if not self._in_use.acquire(blocking=False):
            raise UsageProblem(
                f"{what} cannot begin while the same model is in use: both would write into one cache",
                "wait until that is over; runtime.stop() ends a run that waits to be read; for two at once, load two")
        try:
            yield
        finally:
            self._in_use.release()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Within, it reads another text into a cache of its own; what is cached here stays as it is. Nothing may be
        pending."""
        held = self.cache, self.tokens
        self.cache, self.tokens = self.compute.buffer(hf.text_config(self.model.config).num_hidden_layers), []
        try:
            yield
        finally:
            self.drop()
            self.cache, self.tokens = held

    def truncate(self, length: int) -> None:
        """Forget every committed row from ``length`` on, and the pending ones. Raises ValueError: there are not so many
        committed rows."""
        self.drop()
        self.cache.truncate(length)
        del self.tokens[length:]
        if self._whole is not None:
            self._whole = min(self._whole, length)
        self.features.truncate(length)

    def rewind(self, context: Sequence[int]) -> int:
        """Keep the longest cached prefix of ``context``, with at least a token left to feed. Returns its length."""
        shared = self.features.reusable(self.shared(context))
        self.truncate(shared)
        return shared

    def shared(self, context: Sequence[int]) -> int:
        """Length of the longest cached prefix of ``context`` that leaves a token to feed."""
        return shared_prefix(self.tokens, context, max(len(context) - 1, 0))

    def synchronize(self) -> None:
        """Wait for the device, so that a clock read after it counts all that was started."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _verify(self, tokens: Sequence[int], parents: Sequence[int]) -> torch.Tensor:
        """``forward`` in one pass, with room for the rows."""
        first = len(self._pending)
        self._seen = _grown(self._seen, parents)
        self._pending += tokens
        positions = self.length - 1 + self._seen.sum(1)  # a row sees itself and its ancestors
        logits = self._run(tokens, positions[first:].tolist(), self._mask(self._seen[first:], positions))
        self.cache.pending += len(tokens)
        return logits

    @torch.inference_mode()
    def _run(
        self, tokens: Sequence[int], positions: Sequence[int], mask: Mask, last_only: bool = False
    ) -> torch.Tensor:
        """Logits [rows, vocabulary] of one forward. One that is not ``masked`` makes masks and positions itself, from
        the number of cached rows."""
        logits = self.compute.run(tokens, positions if self.masked else None, mask, self.cache, last_only)
        if self.features.active:
            self.features.take(len(tokens), last_only)
        return logits

    def _text_mask(self, positions: range) -> Mask:
        """What plain text sees here, or None where the forward knows."""
        plain = self.compute.causal or len(positions) == 1 or positions.start == 0
        if self.compute.makes_masks or (plain and not self._windowed(positions.stop)):
            return None
        rows = len(positions)
        return self._additive(np.tri(rows, dtype=bool), np.arange(positions.start, positions.stop))

    def _mask(self, seen: np.ndarray, positions: np.ndarray) -> Mask:
        """What these rows see, or None where the forward knows."""
        chain = positions[-1] - self.length == len(positions) - 1  # so deep only if every row is its ancestor
        if not chain and not self.trees:
            raise ValueError(f"{self.name} takes chains only")
        if not self.masked:
            return None
        plain = chain and (self.compute.causal or len(seen) == 1)
        if plain and (self.compute.makes_masks or not self._windowed(int(positions[-1]) + 1)):
            return None
        return self._additive(seen, positions)

    def _windowed(self, length: int) -> bool:
        """Whether a window of some layer hides something of a text of this length."""
        return any(size is not None and length > size for size in self.spans.values())

    def _additive(self, seen: np.ndarray, positions: np.ndarray) -> Mask:
        mask = additive(seen, positions, self.length, self.spans, self.dtype)
        return mask if self.compute.host_masks else moved(mask, self.device)


def _grown(seen: np.ndarray, parents: Sequence[int]) -> np.ndarray:
    """What pending rows see, bool [rows, rows], with new rows after their ``parents`` (indices of rows, -1:
    none)."""
    first, count = len(seen), len(parents)
    alone = first == 0 or seen.base is _CHAIN
    if alone and first + count <= len(_CHAIN) and [*parents] == [*range(first - 1, first + count - 1)]:
        return _CHAIN[: first + count, : first + count]
    grown = np.zeros((first + count, first + count), dtype=bool)
    grown[:first, :first] = seen
    for row, parent in enumerate(parents, first):
        if parent >= 0:
            grown[row] = grown[parent]
        grown[row, row] = True
    return grown


def shared_prefix(a: Sequence[int], b: Sequence[int], limit: int) -> int:
    """Length of the common prefix, at most ``limit``; slices of lists compare at C speed, only the last one item by
    item."""
    limit = min(len(a), len(b), limit)
    for start in range(0, limit, CHUNK):
        end = min(start + CHUNK, limit)
        if a[start:end] != b[start:end]:  # also where one is a list and the other a tuple
            for i in range(start, end):
                if a[i] != b[i]:
                    return i
    return limit


def usable_context(config, name: str) -> tuple[int, tuple[str, ...]]:
    """Positions the model can be used with, and a remark where that is fewer than it was made for."""
    limit = next((n for attribute in _LIMITS if type(n := getattr(config, attribute, None)) is int and n > 0), 4096)
    switch = _longrope_switch(config)
    if switch is None or switch >= limit:
        return limit, ()
    return switch, (f"{name}: only the {switch} positions before its longrope switch are used, of {limit}",)


def _longrope_switch(config) -> int | None:
    """Where longrope changes its table: once a forward reaches past the original length, so rows verified together
    would be rotated otherwise than the same rows one by one."""
    rope = hf.rope(config)
    tables = [rope, *(table for table in rope.values() if isinstance(table, dict))]  # one, or one a kind of layer
    original = getattr(config, "original_max_position_embeddings", None)
    found = [t.get("original_max_position_embeddings") or original for t in tables if t.get("rope_type") == "longrope"]
    return min((n for n in found if n), default=None)
