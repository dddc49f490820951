"""Random heads for small targets, in memory and as files in the spellings that are in use."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def make_shape(target: Any, family: str = "EAGLE-3", **changes: Any):
    from engines.heads.shape import EAGLE3, HeadShape

    config = target.model.config
    given = {
        "family": family, "width": config.hidden_size, "target_width": config.hidden_size, "mlp": 48, "heads": 4,
        "kv_heads": 2, "head_dim": 8, "vocabulary": config.vocab_size, "draft_vocabulary": config.vocab_size,
        "layers": (1, 2, 3) if family == EAGLE3 else (),
    }
    return HeadShape(**given | changes)


def make_file(target: Any, family: str = "EAGLE-3", seed: int = 0, draft_tokens: int = 200, **changes: Any):
    """A head of random weights that drafts every token from the first on up to ``draft_tokens``, by the target's
    rows."""
    import torch

    from engines.heads.head_file import HeadFile
    from engines.heads.network import HeadNetwork
    from engines.heads.shape import EAGLE3

    generator = torch.Generator().manual_seed(seed)
    ids = torch.randperm(target.vocab_size, generator=generator)[:draft_tokens].sort().values
    if family == EAGLE3:
        changes.setdefault("draft_vocabulary", len(ids))
    shape = make_shape(target, family, **changes)
    weights = {
        name: torch.randn(tensor.shape, generator=generator) * 0.2 + (tensor.dim() == 1 and "norm" in name)
        for name, tensor in HeadNetwork(shape).state_dict().items()
    }
    ids = ids if shape.draft_vocabulary != shape.vocabulary else None
    return HeadFile(
        name="tiny-head", folder=Path("nowhere"), shape=shape, weights=weights, ids=ids, rows=None, embeddings=None,
        layers_said=shape.layers, made_for=target.fingerprint, card={},
    )


def make_head(target: Any, family: str = "EAGLE-3", **changes: Any):
    from engines.heads.draft_head import DraftHead

    return DraftHead(make_file(target, family, **changes), target)


def make_medusa_file(target: Any, seed: int = 0, heads: int = 4, blocks: int = 1, draft_tokens: int | None = None):
    """Medusa heads of random weights; with ``draft_tokens`` they draft so many tokens, by the target's rows, else all
    with rows of their own."""
    import torch

    from engines.heads.head_file import HeadFile
    from engines.heads.shape import MedusaShape

    generator = torch.Generator().manual_seed(seed)
    width, vocabulary = target.model.config.hidden_size, target.vocab_size
    ids = torch.randperm(vocabulary, generator=generator)[:draft_tokens].sort().values if draft_tokens else None
    shape = MedusaShape(heads=heads, blocks=blocks, width=width, vocabulary=vocabulary,
                        draft_vocabulary=draft_tokens or vocabulary)
    weights = {"weight": torch.randn(heads, blocks, width, width, generator=generator) * 0.2,
               "bias": torch.randn(heads, blocks, width, generator=generator) * 0.2}
    rows = None if draft_tokens else torch.randn(heads, vocabulary, width, generator=generator)
    return HeadFile(name="tiny-medusa", folder=Path("nowhere"), shape=shape, weights=weights, ids=ids, rows=rows,
                    made_for=target.fingerprint)


def make_medusa(target: Any, **changes: Any):
    from engines.heads.medusa_heads import MedusaHeads

    return MedusaHeads(make_medusa_file(target, **changes), target)
