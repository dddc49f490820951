"""Random heads for small targets, in memory and as files in the spellings that are in use."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def make_config(target: Any, family: str = "EAGLE-3", **changes: Any):
    from engines.heads.head_config import EAGLE3, HeadConfig

    config = target.model.config
    given = {
        "family": family, "width": config.hidden_size, "target_width": config.hidden_size, "mlp": 48, "heads": 4,
        "kv_heads": 2, "head_dim": 8, "vocabulary": config.vocab_size, "draft_vocabulary": config.vocab_size,
        "layers": (1, 2, 3) if family == EAGLE3 else (),
    }
    return HeadConfig(**given | changes)


def make_file(target: Any, family: str = "EAGLE-3", seed: int = 0, draft_tokens: int = 200, **changes: Any):
    """A head of random weights that drafts every token from the first on up to ``draft_tokens``, by the target's
    rows."""
    import torch

    from engines.heads.head_config import EAGLE3
    from engines.heads.head_file import HeadFile
    from engines.heads.network import HeadNetwork

    generator = torch.Generator().manual_seed(seed)
    ids = torch.randperm(target.vocab_size, generator=generator)[:draft_tokens].sort().values
    if family == EAGLE3:
        changes.setdefault("draft_vocabulary", len(ids))
    config = make_config(target, family, **changes)
    weights = {
        name: torch.randn(tensor.shape, generator=generator) * 0.2 + (tensor.dim() == 1 and "norm" in name)
        for name, tensor in HeadNetwork(config).state_dict().items()
    }
    ids = ids if config.draft_vocabulary != config.vocabulary else None
    return HeadFile(
        name="tiny-head", folder=Path("nowhere"), config=config, weights=weights, ids=ids, rows=None, embeddings=None,
        layers_said=config.layers, made_for=target.fingerprint, card={},
    )


def make_head(target: Any, family: str = "EAGLE-3", **changes: Any):
    from engines.heads.draft_head import DraftHead

    return DraftHead(make_file(target, family, **changes), target)


def make_medusa_file(target: Any, seed: int = 0, heads: int = 4, blocks: int = 1, draft_tokens: int | None = None):
    """Medusa heads of random weights; with ``draft_tokens`` they draft so many tokens, by the target's rows, else all
    with rows of their own."""
    import torch

    from engines.heads.head_config import MedusaConfig
    from engines.heads.head_file import HeadFile

    generator = torch.Generator().manual_seed(seed)
    width, vocabulary = target.model.config.hidden_size, target.vocab_size
    ids = torch.randperm(vocabulary, generator=generator)[:draft_tokens].sort().values if draft_tokens else None
    config = MedusaConfig(heads=heads, blocks=blocks, width=width, vocabulary=vocabulary,
                        draft_vocabulary=draft_tokens or vocabulary)
    weights = {"weight": torch.randn(heads, blocks, width, width, generator=generator) * 0.2,
               "bias": torch.randn(heads, blocks, width, generator=generator) * 0.2}
    rows = None if draft_tokens else torch.randn(heads, vocabulary, width, generator=generator)
    return HeadFile(name="tiny-medusa", folder=Path("nowhere"), config=config, weights=weights, ids=ids, rows=rows,
                    made_for=target.fingerprint)


def make_medusa(target: Any, **changes: Any):
    from engines.heads.medusa_heads import MedusaHeads

    return MedusaHeads(make_medusa_file(target, **changes), target)
