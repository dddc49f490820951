"""An EAGLE head at work beside its target: it keeps keys and values of its own, and steps draft chains and trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from engines.heads import native_head
from engines.heads.compatibility import check_compatible, lay_out_as, linear_of, reads_of, rows_for
from engines.heads.head_config import EAGLE3
from engines.heads.head_file import HeadFile
from engines.heads.network import HeadNetwork, Rotation
from engines.model.causal_model import CausalModel, shared_prefix
from engines.model.feature_request import LAST, FeatureRequest
from engines.model.kv_buffer import KVBuffer
from engines.model.native.native_forward import NativeBuffer
from engines.model.native.native_linear import weight_bytes

_CHUNK = 512  # columns of a prompt that are read together


class DraftHead:
    """A head that reads the features of one target: a ``methods.shared.predictor.Predictor``.

    Committed rows of its buffer are columns with true features of the target, those of drafted tokens are pending
    (``network`` says what a column is). They stay between runs, as far as the next text begins alike.

    Args:
        features: the target's features must be requested (``request``) while ``after`` is called.

    Attributes:
        name: as the user gave it.
        request: the hidden states of the target that it reads; ``reads``: the same, to be shown.
        tokens: the text that its columns have read: one more than there are columns.
        trees: it drafts trees, on any target.
        drafts: the target's tokens that its n logits are of, int64 [n]; None: all.
        quantised: which of its linear layers are, in words; "" for none.
        rounds: whether inputs of their products are rounded, as in the target.
        agreement: how often its first token was the target's on answers held out, 0..1; None: its file does not say.
        native: what computes a step in one native call; None: torch's operations do.

    Raises:
        UsageProblem: its sizes, or its vocabulary, are not this target's; the message says what differs.
    """

    trees = True

    def __init__(self, file: HeadFile, target: CausalModel) -> None:
        config = file.config
        check_compatible(file, target)
        self.name, self.config, self.file = file.name, config, file
        self.vocab_size, self.context_limit = target.vocab_size, target.context_limit
        self.device, self.dtype = target.device, target.dtype
        taps = config.layers if config.family == EAGLE3 else (LAST,)
        self.reads = reads_of(file, target)
        self.request = FeatureRequest(history=frozenset(taps))
        self._taps, self._features = taps, target.features
        self._network = HeadNetwork(config)
        self._network.load_state_dict(file.weights)
        self._network.requires_grad_(False).to(self.device, self.dtype)
        self.parameters = sum(p.numel() for p in self._network.parameters())
        self.drafts = file.ids.numpy() if file.ids is not None else None
        self._embed = target.model.get_input_embeddings()
        if file.embeddings is not None:
            self._embed = nn.Embedding.from_pretrained(file.embeddings.to(self.device, self.dtype))
        self._head = target.model.get_output_embeddings()
        own_head = config.family == EAGLE3 or file.ids is not None
        if own_head:
            rows = rows_for(file, target)
            self._head = linear_of(rows.to(self.device, self.dtype))
            self.parameters += rows.numel() if file.rows is not None else 0
        self._laid = nn.ModuleDict({"network": self._network, "head": self._head} if own_head else {
            "network": self._network})
        self.quantised, self.rounds = lay_out_as(target, self._laid), target.rounds
        self.backend = ", ".join(filter(None, ("head", self.quantised or ("native" if target.native else ""))))
        self._head = self._laid["head"] if own_head else self._head
        takes = target.native and native_head.takes(self._network, self._embed, self._head)
        self.native = native_head.NativeHead(self._network, self._embed, self._head) if takes else None
        self._rotation = Rotation(config.rope_theta, config.head_dim, torch.empty(0, device=self.device,
                                                                                 dtype=self.dtype))
        self.cache = NativeBuffer(1) if takes else KVBuffer(1)
        self.tokens: list[int] = []
        self._last: torch.Tensor | None = None  # output of the last column, [1, width]
        self._outputs: list[torch.Tensor] = []  # of drafted rows, a level each
        self._above: list[list[int]] = []  # for each drafted row its ancestors and itself

    @property
    def weight_bytes(self) -> int:
        """Bytes of its weights, as they are laid out."""
        return weight_bytes(self._laid)

    @property
    def agreement(self) -> float | None:
        found = self.file.card.get("agreement")
        first = found[0] if isinstance(found, list) and found else None
        return first if isinstance(first, float) and 0 <= first <= 1 else None

    @property
    def settings(self) -> dict[str, Any]:
        """What its time depends on, as plain data."""
        return asdict(self.config)

    @property
    def length(self) -> int:
        """Columns with true features."""
        return self.cache.length

    def room(self, context: Sequence[int]) -> int:
        """How many tokens it has positions for after this context."""
        return max(0, self.context_limit - len(context))

    @torch.inference_mode()
    def after(
        self, context: Sequence[int], cancelled: Callable[[], bool] = lambda: False
    ) -> torch.Tensor:
        """Logits [n] after the last token of the context, of whose other tokens the target must have read all.
        If cancelled on the way, those after what was read."""
        self.drop()
        start = min(self._rewound(context), len(context) - 2)
        self.cache.length = start
        for begin in range(start, len(context) - 1, _CHUNK):
            if begin > start and cancelled():
                break
            end = min(begin + _CHUNK, len(context) - 1)
            taps = [self._features.rows(tap, begin, end) for tap in self._taps]
            fused = self._network.fused(torch.cat(taps, -1).to(self.dtype))
            self._last, logits = self._rows(context[begin + 1 : end + 1], fused, range(begin, end), None, True)
            self.cache.length = end
        self.tokens = list(context[: self.cache.length + 1])
        return logits[0]

    @torch.inference_mode()
    def step(self, token: int) -> torch.Tensor:
        """Logits [n] after one more token of a chain."""
        return self.forward([token], [len(self._above) - 1])[0]

    @torch.inference_mode()
    def forward(self, tokens: Sequence[int], parents: Sequence[int]) -> torch.Tensor:
        """Logits [tokens, n] after nodes of a tree; ``parents`` are indices of nodes of earlier levels in the order
        given, -1 for children of the root. Parents among these tokens count as rows before them: their features are not
        known yet, so the last row's stands in; a measurement of the time may ask for that."""
        before, rows = len(self._above), len(tokens)
        known = torch.cat([self._feature(), *self._outputs])
        features = known[[min(parent, before - 1) + 1 for parent in parents]]
        for row, parent in enumerate(parents):
            self._above.append([*(self._above[parent] if parent >= 0 else ()), before + row])
        depths = [len(above) for above in self._above[before:]]
        positions = [self.length - 1 + depth for depth in depths]
        self.cache.reserve(self.length + before + rows)
        outputs, logits = self._rows(tokens, features, positions, self._mask(before), False)
        self._outputs.append(outputs)
        self.cache.pending += rows
        return logits

    level = forward

    def drop(self) -> None:
        """Forget what was drafted."""
        self.cache.pending = 0
        self._outputs, self._above = [], []

    def truncate(self, length: int) -> None:
        """Forget the columns from ``length`` on, and what was drafted."""
        self.drop()
        self.cache.truncate(min(length, self.length))
        del self.tokens[length + 1 if length else 0 :]

    synchronize = CausalModel.synchronize

    def _feature(self) -> torch.Tensor:
        """The feature of the root's children, [1, width]; zeros before anything was read."""
        if self._last is None:
            self._last = torch.zeros(1, self.config.width, device=self.device, dtype=self.dtype)
        return self._last

    def _rewound(self, context: Sequence[int]) -> int:
        """How many columns hold for this context."""
        return max(0, min(shared_prefix(self.tokens, context, len(context)) - 1, self.length))

    def _rows(
        self, tokens: Sequence[int], features: torch.Tensor, positions: Sequence[int], mask: np.ndarray | None,
        last_only: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What the next step reads [rows, width], and logits [rows, draft vocabulary], of tokens with their features
        [rows, width]; of the last row alone if ``last_only``. Keys and values are written after those that are there;
        without a mask rows see all before them and each other as text does."""
        self.cache.reserve(self.cache.offset + len(tokens))
        if self.native is not None:
            return self.native.run(tokens, features, positions, mask, self.cache, last_only)
        outputs = self._layer(tokens, features, positions, mask)
        outputs = outputs[-1:] if last_only else outputs
        return self._network.fed_back(outputs), self._head(self._network.final(outputs))

    def _layer(
        self, tokens: Sequence[int], features: torch.Tensor, positions: Sequence[int], seen: np.ndarray | None
    ) -> torch.Tensor:
        """The layer's outputs [rows, width] by torch's operations."""
        network, config, rows = self._network, self.config, len(tokens)
        ids = torch.tensor(list(tokens), device=self.device)
        read, residual = network.entry(self._embed(ids).to(self.dtype), features)
        queries, keys, values = network.heads(read, self._rotation.at(positions))
        store = self.cache.store(config.kv_heads, config.head_dim, keys)
        start, end = self.cache.offset, self.cache.offset + rows
        store[0, 0, :, start:end], store[1, 0, :, start:end] = keys, values
        mask = None if seen is None else torch.from_numpy(seen).to(self.device)
        if mask is None and rows > 1 and start:
            mask = torch.ones(rows, end, dtype=torch.bool, device=self.device).tril(start)
        attended = F.scaled_dot_product_attention(
            queries[None], store[0, :, :, :end], store[1, :, :, :end], attn_mask=mask,
            is_causal=mask is None and rows > 1, enable_gqa=config.heads != config.kv_heads,
        )[0]
        return network.leave(attended, residual)

    def _mask(self, before: int) -> np.ndarray | None:
        """bool [rows, columns]: what the rows drafted last see; None where one row sees all there is."""
        total, rows = len(self._above), len(self._above) - before
        if rows == 1 and len(self._above[-1]) == total:
            return None
        mask = np.zeros((rows, self.length + total), bool)
        mask[:, : self.length] = True
        for row, above in enumerate(self._above[before:]):
            mask[row, [self.length + node for node in above]] = True
        return mask
