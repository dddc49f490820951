"""Linear layers whose weights lie in memory as the CPU reads them fastest at the few rows that decoding has.

``F.linear`` at one row walks the weight [out, in] along its output, on one thread, at a third of the memory bandwidth.
Transposed: the weight as [in, out], an ordinary matrix product; faster on every thread count and row count measured.
Packed: oneDNN's own layout, faster still on several threads; the two operators are private to torch, so they are
probed, and what is missing is not offered. Either changes float32 logits by rounding only (about 2e-6).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn import functional as F

_ROWS_HINT = 1  # rows the packed layout is chosen for


class TransposedLinear(nn.Module):
    """An ``nn.Linear`` with its weight stored as [in, out]."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features, self.bias = linear.in_features, linear.out_features, linear.bias
        self.transposed = linear.weight.detach().t().contiguous()

    @property
    def weight(self) -> torch.Tensor:
        """The weight as [out, in]: some families use it without calling the layer."""
        return self.transposed.t()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = x @ self.transposed
        return out if self.bias is None else out + self.bias


class PackedLinear(nn.Module):
    """An ``nn.Linear`` with its weight in oneDNN's layout."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features, self.bias = linear.in_features, linear.out_features, linear.bias
        self.packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach().contiguous(), _ROWS_HINT)

    @property
    def weight(self) -> torch.Tensor:
        """The weight as [out, in], unpacked anew each time."""
        return self.packed.to_dense()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")


LAYOUTS: dict[str, type[nn.Module]] = {"transposed": TransposedLinear, "packed": PackedLinear}


def available(layout: str, dtype: torch.dtype = torch.float32) -> bool:
    """Whether this torch has what the layout needs and it computes what ``F.linear`` computes."""
    try:
        with torch.inference_mode():
            linear, x = nn.Linear(64, 96, dtype=dtype), torch.randn(1, 3, 64, dtype=dtype)
            return torch.allclose(LAYOUTS[layout](linear)(x).float(), linear(x).float(), atol=1e-5, rtol=2e-2)
    except (AttributeError, RuntimeError):
        return False


@torch.inference_mode()
def lay_out(model: nn.Module, layout: str) -> int:
    """Replace the model's plain linear layers in place. Returns how many were replaced.

    A weight that is also used elsewhere (tied embeddings) keeps its plain copy there.
    """
    count = 0
    for name, child in model.named_children():
        if type(child) is nn.Linear and child.weight.device.type == "cpu":
            setattr(model, name, LAYOUTS[layout](child))
            count += 1
        else:
            count += lay_out(child, layout)
    return count


@contextmanager
def as_loaded(model: nn.Module) -> Iterator[None]:
    """Inside, linear layers compute what they did before ``lay_out``, to the last bit, at the price of a copy of their
    weights a forward: for what has to come out the same whichever layout was the fastest when the model was loaded."""
    laid = [layer for layer in model.modules() if isinstance(layer, tuple(LAYOUTS.values()))]
    for layer in laid:
        layer.forward = lambda x, layer=layer: F.linear(x, layer.weight.contiguous(), layer.bias)
    try:
        yield
    finally:
        for layer in laid:
            del layer.forward
