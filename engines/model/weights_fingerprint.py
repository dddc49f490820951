"""What tells a model from another: a fingerprint of its weights, read before they are laid out anew."""

from __future__ import annotations

import hashlib

import torch
from transformers import PreTrainedModel

_SAMPLES = 8  # numbers of each tensor


@torch.no_grad()
def fingerprint(model: PreTrainedModel) -> str:
    """32 hexadecimal digits over names, shapes and some numbers of all weights; the same in every dtype it is loaded
    in, since the numbers are rounded to bfloat16."""
    digest = hashlib.sha256(model.config.model_type.encode())
    for name, weight in sorted(model.named_parameters()):
        digest.update(f"{name} {tuple(weight.shape)}".encode())
        if weight.numel():
            flat = weight.reshape(-1)
            where = torch.linspace(0, flat.numel() - 1, _SAMPLES, dtype=torch.float64).long().to(flat.device)
            rounded = flat[where].float().to(torch.bfloat16).view(torch.int16)
            digest.update(rounded.cpu().numpy().tobytes())
    return digest.hexdigest()[:32]
