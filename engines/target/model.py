"""A decoder-only model of transformers with its KV buffer: what the loop verifies on and draft models draft with.

The generic back end: any family whose attention takes an additive 4-D mask and explicit position ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from transformers import PreTrainedModel

from engines.target.cache import KVBuffer

_NOTHING = torch.zeros(0, 0, dtype=torch.bool)
_CHUNK = 512  # rows of a prefill forward: bounds memory, and how long a cancel waits


class CausalModel:
    """A causal language model and the rows it has cached.

    Attributes:
        tokens: ids of the committed rows, in order; ``len(tokens) == length``.
        vocab_size: width of the logits.
        parameters: their number, tied ones counted once.
        backend: which forward runs, in words.
        context_limit: positions the model was made for.
        trees: whether branching drafts can be verified in one forward (else chains only).
        remarks: what a user should know about this model here.
    """

    def __init__(self, model: PreTrainedModel, name: str, parameters: int = 0, backend: str = "generic") -> None:
        self.model = model.eval()
        self.name, self.backend = name, backend
        self.parameters = parameters or model.num_parameters()
        config = model.config.get_text_config(decoder=True)
        self.vocab_size: int = config.vocab_size
        self.context_limit, self.remarks = _context(config, name)
        self.device, self.dtype = model.device, model.dtype
        self.windowed = _has_window(config)
        self.trees = not self.windowed
        self.cache = KVBuffer(config.num_hidden_layers)
        self.tokens: list[int] = []
        self._pending: list[int] = []
        self._depths: list[int] = []
        self._seen = _NOTHING  # bool [pending, pending]: row i attends to pending row j

    @property
    def length(self) -> int:
        """Committed KV rows."""
        return self.cache.length

    def extend(self, tokens: Sequence[int], cancelled: Callable[[], bool] = lambda: False) -> torch.Tensor | None:
        """Feed real tokens and commit them.

        Returns:
            Logits [vocabulary] of the last one, or None if cancelled on the way (rows fed so far stay).
        """
        self.drop()
        self.cache.reserve(self.length + len(tokens))
        logits = None
        for start in range(0, len(tokens), _CHUNK):
            if start and cancelled():
                return None
            chunk = list(tokens[start : start + _CHUNK])
            logits = self._run(chunk, range(self.length, self.length + len(chunk)), None, last_only=True)
            self.cache.length += len(chunk)
            self.tokens += chunk
        return logits[-1] if logits is not None else None

    def forward(self, tokens: Sequence[int], parents: Sequence[int]) -> torch.Tensor:
        """One forward over tree rows, kept pending.

        Args:
            tokens: ids, one a row.
            parents: for each row the index of its parent among all pending rows (earlier calls first), -1 for a row
                that follows the last committed token.

        Returns:
            Logits [len(tokens), vocabulary].
        """
        first, n = len(self._pending), len(tokens)
        self.cache.reserve(self.length + first + n)
        seen = torch.zeros(first + n, first + n, dtype=torch.bool)
        seen[:first, :first] = self._seen
        for row, parent in enumerate(parents, start=first):
            if parent >= 0:
                seen[row] = seen[parent]
            seen[row, row] = True
            self._depths.append(0 if parent < 0 else self._depths[parent] + 1)
        self._seen = seen
        self._pending += tokens
        positions = [self.length + d for d in self._depths[first:]]
        chain = first + n == 1 or list(parents) == list(range(first - 1, first + n - 1))
        logits = self._run(list(tokens), positions, self._mask(seen[first:], chain))
        self.cache.pending += n
        return logits

    def keep(self, rows: list[int]) -> None:
        """Commit these pending rows (ascending, a path from the root down) and drop the others."""
        self.tokens += [self._pending[r] for r in rows]
        self.cache.keep(rows)
        self.drop()

    def drop(self) -> None:
        """Forget the pending rows."""
        self.cache.pending = 0
        self._pending, self._depths = [], []
        self._seen = _NOTHING

    def truncate(self, length: int) -> None:
        """Forget every committed row from ``length`` on, and the pending ones."""
        self.drop()
        self.cache.truncate(length)
        del self.tokens[length:]

    def rewind(self, context: Sequence[int]) -> int:
        """Keep the longest cached prefix of ``context``, with at least a token left to feed. Returns its length."""
        shared = _shared_prefix(self.tokens, context, max(len(context) - 1, 0))
        self.truncate(shared)
        return shared

    def synchronize(self) -> None:
        """Wait for the device, so that a clock read after it is honest."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @torch.inference_mode()
    def _run(self, tokens: list[int], positions, mask: torch.Tensor | None, last_only: bool = False) -> torch.Tensor:
        ids = torch.tensor([tokens], device=self.device)
        where = torch.tensor([list(positions)], device=self.device)
        out = self.model(
            input_ids=ids, position_ids=where, attention_mask=mask, past_key_values=self.cache, use_cache=True,
            logits_to_keep=1 if last_only else 0,
        )
        return out.logits[0]

    def _mask(self, seen: torch.Tensor, chain: bool) -> torch.Tensor | None:
        """Additive mask [1, 1, rows, columns], or None where the model's own causal mask is the right one."""
        if chain and (len(seen) == 1 or self.windowed):
            return None
        rows, pending = seen.shape
        mask = torch.zeros(1, 1, rows, self.length + pending, dtype=self.dtype)
        mask[0, 0, :, self.length :].masked_fill_(~seen, torch.finfo(self.dtype).min)
        return mask.to(self.device)


def _shared_prefix(a: Sequence[int], b: Sequence[int], limit: int) -> int:
    """Length of the common prefix, at most ``limit``; slices compare at C speed, only the last one item by item."""
    limit = min(len(a), len(b), limit)
    start = 0
    while start < limit:
        end = min(start + _CHUNK, limit)
        if a[start:end] != b[start:end]:
            return next(i for i in range(start, end) if a[i] != b[i])
        start = end
    return limit


def _context(config, name: str) -> tuple[int, tuple[str, ...]]:
    """Positions the model can be used with, and a remark where that is fewer than it was made for."""
    limit = getattr(config, "max_position_embeddings", None) or 4096
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") != "longrope":
        return limit, ()
    # longrope changes its table when a forward reaches past the original length: rows verified together would then be
    # rotated otherwise than the same rows one by one
    short = rope.get("original_max_position_embeddings") or getattr(config, "original_max_position_embeddings", limit)
    return short, (f"{name}: only the {short} positions before its longrope switch are used, of {limit}",)


def _has_window(config) -> bool:
    """Whether some layer sees a part of the context only, by whatever name its family gives the window."""
    kinds = set(getattr(config, "layer_types", None) or ())
    if kinds:
        return kinds != {"full_attention"}
    windows = [v for k, v in vars(config).items() if "window" in k and type(v) is int and v > 0]
    return bool(windows) and getattr(config, "use_sliding_window", True)
