"""Before a model is trusted with drafts: do tree rows give the logits that feeding token by token gives?"""

from __future__ import annotations

import torch

from engines.target.model import CausalModel

_TREE = ([0, 1, 2, 3, 4, 5], [-1, 0, 0, 1, 2, 4])  # offsets of token ids; two branches of three under one root


def selftest(model: CausalModel) -> str | None:
    """Compare tree, chain and sequential logits on a few tokens; leaves the cache empty.

    Sets ``model.trees`` False where only branching fails.

    Returns:
        None if the model can be decoded with, else the reason in words.
    """
    if not _causal(model):
        return "its tokens see the tokens after them: it is an encoder, not a causal language model"
    step = max(1, model.vocab_size // 97)
    prompt = [(7 + i * step) % model.vocab_size for i in range(5)]
    offsets, parents = _TREE
    tokens = [(11 + 3 * i * step) % model.vocab_size for i in offsets]
    chain_error = _error(model, prompt, tokens[:4], [-1, 0, 1, 2])
    tree_error = _error(model, prompt, tokens, parents) if model.trees else None
    model.truncate(0)
    tolerance = _tolerance(model)
    if not chain_error <= tolerance:
        return f"its logits change by {chain_error:.2g} of their spread when several tokens are fed at once"
    if tree_error is not None and not tree_error <= tolerance:
        model.trees = False
    return None


@torch.inference_mode()
def _causal(model: CausalModel) -> bool:
    """Whether a row's logits stay what they are when other tokens follow."""
    ids = torch.tensor([[1, 2, 3, 4, 5, 6]], device=model.device) % model.vocab_size
    longer = model.model(input_ids=ids, use_cache=False).logits[0, :3].float()
    shorter = model.model(input_ids=ids[:, :3], use_cache=False).logits[0].float()
    return float((longer - shorter).abs().max()) <= _tolerance(model) * (float(shorter.std()) or 1.0)


def _tolerance(model: CausalModel) -> float:
    """The difference, relative to the spread of the logits, that rounding explains."""
    return 2e-3 if model.dtype == torch.float32 else 0.1


def _error(model: CausalModel, prompt: list[int], tokens: list[int], parents: list[int]) -> float:
    """Largest difference between the rows of one tree forward and their sequential runs, relative to the spread."""
    model.truncate(0)
    model.extend(prompt)
    together = model.forward(tokens, parents).float()
    worst = 0.0
    for row in range(len(tokens)):
        path = [row]
        while parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        model.truncate(len(prompt))
        for i in path:
            alone = model.extend([tokens[i]])
        worst = max(worst, float((together[row] - alone.float()).abs().max()))
    spread = float(together.std()) or 1.0
    return worst / spread
