"""Medusa heads at work beside their target: one pass gives the logits of each of the next places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, ClassVar

import torch
from torch import nn

from engines.heads.compatibility import check_compatible, lay_out_as, linear_of, reads_of, rows_for
from engines.heads.head_file import HeadFile
from engines.heads.medusa_network import MedusaNetwork
from engines.model.causal_model import CausalModel
from engines.model.feature_request import LAST, FeatureRequest
from engines.model.kv_buffer import KVBuffer
from engines.model.native.native_linear import weight_bytes


class MedusaHeads:
    """The heads of a file, for one target. They keep nothing of a text: ``cache`` stays empty.

    Attributes:
        name: as the user gave it.
        request: the hidden states of the target that they read; ``reads``: the same, to be shown.
        agreement: as of ``DraftHead``; not known of these.
        drafts: the target's tokens that their n logits are of, int64 [n]; None: all.
        quantised: which of their linear layers are, in words; "" for none.
        rounds: whether inputs of their products are rounded, as in the target.
        context_limit: one more than there are heads: how many rows a measurement of the time may ask for.

    Raises:
        UsageProblem: their sizes, or their vocabulary, are not this target's; the message says what differs.
    """

    request: ClassVar[FeatureRequest] = FeatureRequest(latest=frozenset({LAST}))
    agreement: ClassVar[float | None] = None

    def __init__(self, file: HeadFile, target: CausalModel) -> None:
        check_compatible(file, target)
        self.name, self.config, self.file = file.name, file.config, file
        self.vocab_size, self.device, self.dtype = target.vocab_size, target.device, target.dtype
        self.context_limit = file.config.heads + 1
        self.reads = reads_of(file, target)
        self._network = MedusaNetwork(file.config)
        self._network.load_state_dict(file.weights)
        self._network.requires_grad_(False).to(self.device, self.dtype)
        self.drafts = file.ids.numpy() if file.ids is not None else None
        self.parameters = sum(p.numel() for p in self._network.parameters())
        self.parameters += file.rows.numel() if file.rows is not None else 0
        self._rows = target.model.get_output_embeddings()
        own = nn.ModuleList()
        if file.rows is not None or file.ids is not None:
            rows = rows_for(file, target).to(self.device, self.dtype)
            own.extend(linear_of(each) for each in (rows if rows.dim() == 3 else [rows]))
        self._own, self.quantised, self.rounds = own, lay_out_as(target, own), target.rounds
        self.backend = ", ".join(filter(None, ("heads", self.quantised or ("native" if target.native else ""))))
        self.cache = KVBuffer(0)

    @property
    def weight_bytes(self) -> int:
        """Bytes of their weights, as they are laid out; those that are the target's left out."""
        return weight_bytes(self._own) + weight_bytes(self._network)

    @property
    def settings(self) -> dict[str, Any]:
        """What their time depends on, as plain data."""
        return {"family": self.config.family, "language modelling heads": len(self._own)} | asdict(self.config)

    @torch.inference_mode()
    def logits(self, state: torch.Tensor, heads: int) -> torch.Tensor:
        """Logits [heads, n] of the first heads, of the tokens ``drafts``. ``state``: [width] the target's state after
        the final norm, of the row from whose logits the root was chosen."""
        states = self._network.first(heads, state.to(self.dtype))
        if len(self._own) > 1:
            found = torch.stack([own(state) for own, state in zip(self._own, states)])
        else:
            found = (self._own[0] if len(self._own) else self._rows)(states)
        return found

    def forward(self, tokens: Sequence[int], parents: Sequence[int]) -> torch.Tensor:
        """As many heads as there are tokens, for a measurement of the time."""
        return self.logits(torch.zeros(self.config.width, device=self.device), len(tokens))

    def drop(self) -> None:
        """Nothing is kept of a draft."""

    def truncate(self, length: int) -> None:
        """Nothing is kept of a text."""
        self.cache.length = 0

    synchronize = CausalModel.synchronize
