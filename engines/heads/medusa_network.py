"""What Medusa heads compute (Cai et al. 2024): residual blocks on the target's last hidden state, each head its own.

Head i reads the state f of row t after the final norm, from whose logits the root, token t + 1, was chosen, and
predicts token t + 2 + i: U (h + SiLU(W h + b)), with h = f for one block. None of them knows what the others say.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from engines.heads.head_config import MedusaConfig


class MedusaNetwork(nn.Module):
    """The residual blocks of all heads: ``weight`` [heads, blocks, width, width], ``bias`` [heads, blocks, width]. New
    ones leave every state as it is."""

    def __init__(self, config: MedusaConfig) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.zeros(config.heads, config.blocks, config.width, config.width))
        self.bias = nn.Parameter(torch.zeros(config.heads, config.blocks, config.width))

    def one(self, head: int, states: torch.Tensor) -> torch.Tensor:
        """What the language modelling head reads of one head, of states [..., width]."""
        for weight, bias in zip(self.weight[head], self.bias[head]):
            states = states + F.silu(F.linear(states, weight, bias))
        return states

    def first(self, heads: int, state: torch.Tensor) -> torch.Tensor:
        """The same of the first heads, [heads, width], of one state [width]."""
        states = state.expand(heads, 1, -1)
        for block in range(self.config.blocks):
            weight, bias = self.weight[:heads, block].transpose(1, 2), self.bias[:heads, block, None]
            states = states + F.silu(torch.baddbmm(bias, states, weight))
        return states[:, 0]
