"""Linear layers whose weights lie in memory as the CPU reads them fastest at the few rows that decoding has.

``F.linear`` at one row walks the weight [out, in] along its output, on one thread, at a third of the memory bandwidth.
Transposed: the weight as [in, out], an ordinary matrix product; the fastest at one row. Several threads share a row by
parts of the input, since the product itself would run on one of them.
Packed: oneDNN's own layout for several rows; the fastest from two rows on, 8 rows take half as long. The two operators
are private to torch, so they are probed, and what is missing is not offered.
Both: transposed for one row and packed for more, where there is memory for the weights to lie there twice.
Each changes float32 logits by rounding only (about 2e-6).

Layers that read the same input become one (``fuse``): queries, keys and values; gate and up. The model's own modules
keep their names and become slices of the fused layer, so that the module of transformers (audits, other forwards,
everything that is checked against it) computes what it did, from the same weights in the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn import functional as F

from engines.libraries import hf
from engines.libraries.hf import PreTrainedModel

_ROUNDING = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}  # of the largest output
_ROWS_HINT = 8  # rows the packed layout is chosen for: one made for 1 row is no faster there, and half as fast from 4
QKV, GATE_UP = "qkv_proj", "gate_up_proj"
_GROUPS = {"self_attn": (QKV, ("q_proj", "k_proj", "v_proj")), "mlp": (GATE_UP, ("gate_proj", "up_proj"))}


class LaidOut(nn.Module):
    """An ``nn.Linear`` whose weight lies in memory in another way. ``forward`` takes x [..., in] and gives
    [..., out]; ``weight`` is the weight as [out, in].

    Attributes:
        quantised: whether the weight itself is another than the one that was loaded.
        rounds: whether what it reads is rounded to 8 bits first.
        parts: names of the attributes that hold the weight, tensors.
    """

    weight: torch.Tensor
    quantised = rounds = False
    parts: tuple[str, ...]

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features, self.bias = linear.in_features, linear.out_features, linear.bias

    @property
    def held(self) -> tuple[torch.Tensor, ...]:
        """The tensors that hold the weight."""
        return tuple(getattr(self, name) for name in self.parts)

    def rows(self, x: torch.Tensor) -> torch.Tensor:
        """``forward`` of x [rows, in], contiguous: [rows, out]."""
        return self.forward(x)

    def part(self, x: torch.Tensor, start: int, end: int) -> torch.Tensor:
        """Outputs ``start`` to ``end`` of x [..., in]: [..., end - start]; all are computed."""
        return self(x)[..., start:end]

    def add(self, stream: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """``stream`` [rows, out] with the outputs of ``x`` [rows, in] added."""
        return self.forward(x).add_(stream)


class TransposedLinear(LaidOut):
    """An ``nn.Linear`` with its weight stored as [in, out]."""

    parts = ("transposed",)

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        self.transposed = linear.weight.detach().t().contiguous()
        self.itemsize = linear.weight.dtype.itemsize

    @property
    def weight(self) -> torch.Tensor:
        """The weight as [out, in]: some families use it without calling the layer."""
        return self.transposed.t()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self._product(x)
        return out if self.bias is None else out + self.bias

    def _product(self, x: torch.Tensor) -> torch.Tensor:
        """x [..., in] times the weight: [..., out]."""
        threads = torch.get_num_threads()
        if x.numel() > self.in_features or threads == 1 or self.in_features % threads:
            return x @ self.transposed
        parts = self.transposed.view(threads, -1, self.out_features)
        return torch.bmm(x.reshape(threads, 1, -1), parts).sum(0).view(*x.shape[:-1], self.out_features)

    def part(self, x: torch.Tensor, start: int, end: int) -> torch.Tensor:
        """Outputs ``start`` to ``end`` of x [..., in]: [..., end - start]."""
        out = x @ self.transposed[:, start:end]
        return out if self.bias is None else out + self.bias[start:end]

    def add(self, stream: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """``stream`` [rows, out] with the outputs of ``x`` [rows, in] added: in float32 in one operation, in half
        precision rounded before, as by a module."""
        if self.itemsize < 4 or self.bias is not None or (x.shape[0] == 1 and torch.get_num_threads() > 1):
            return TransposedLinear.forward(self, x).add_(stream)
        return torch.addmm(stream, x, self.transposed)


class PackedLinear(LaidOut):
    """An ``nn.Linear`` with its weight in oneDNN's layout."""

    parts = ("packed",)

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        self.packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach().contiguous(), _ROWS_HINT)

    @property
    def weight(self) -> torch.Tensor:
        """The weight as [out, in], unpacked anew each time."""
        return self.packed.to_dense()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise.default(x, self.packed, self.bias, "none", [], "")


class BothLinear(TransposedLinear):
    """An ``nn.Linear`` with its weight in both layouts."""


    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        self.packed = PackedLinear(linear)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) if x.numel() == self.in_features else self.packed.forward(x)

    def add(self, stream: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """``stream`` [rows, out] with the outputs of ``x`` [rows, in] added."""
        return super().add(stream, x) if x.shape[0] == 1 else self.packed.add(stream, x)


class LinearSlice(nn.Module):
    """Some outputs of a larger linear layer, in the place of the layer they were (``fuse``)."""

    def __init__(self, owner: nn.Module, name: str, start: int, end: int) -> None:
        super().__init__()
        self._whole = (owner, name)  # a tuple, so that it is not a module of this one
        self.start, self.end = start, end
        self.in_features, self.out_features = self.whole.in_features, end - start

    @property
    def whole(self) -> nn.Module:
        """The larger layer, as it is laid out now."""
        owner, name = self._whole
        return getattr(owner, name)

    @property
    def weight(self) -> torch.Tensor:
        """The weight as [out, in]."""
        return self.whole.weight[self.start : self.end]

    @property
    def bias(self) -> torch.Tensor | None:
        """The bias [out], None without."""
        bias = self.whole.bias
        return None if bias is None else bias[self.start : self.end]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        whole = self.whole
        return F.linear(x, self.weight, self.bias) if type(whole) is nn.Linear else whole.part(x, self.start, self.end)


def plain_call(linear: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    """A linear layer in any layout as a function of x [rows, in], without what calling a module costs."""
    if type(linear) is nn.Linear:
        weight, bias = linear.weight.detach(), None if linear.bias is None else linear.bias.detach()
        return lambda x: F.linear(x, weight, bias)
    return linear.rows if isinstance(linear, LaidOut) else linear.forward


def plain_embedding(embedding: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    """The same of an embedding, as a function of ids [rows]."""
    if (factor := hf.embedding_scale(embedding)) is not None:
        weight = embedding.weight.detach()
        return scaled(lambda ids: F.embedding(ids, weight), factor)
    return getattr(embedding, "rows", embedding.forward)


def scaled(call: Callable[[torch.Tensor], torch.Tensor], factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """What a function gives, times a factor."""
    return call if factor == 1 else lambda x: call(x) * factor


def adding(linear: nn.Module) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """The same as a function of (stream, x): the sum of ``stream`` [rows, out] and what the layer makes of x
    [rows, in]."""
    if isinstance(linear, LaidOut):
        return linear.add
    call = plain_call(linear)
    return lambda stream, x: stream + call(x)


LAYOUTS: dict[str, type[LaidOut]] = {"transposed": TransposedLinear, "packed": PackedLinear, "both": BothLinear}
NAMES = {"transposed": "transposed", "packed": "packed", "both": "transposed and packed"}


def available(layout: str, dtype: torch.dtype = torch.float32) -> bool:
    """Whether this torch has what the layout needs and it computes what ``F.linear`` computes."""
    try:
        with torch.inference_mode():
            linear, x = nn.Linear(64, 96, dtype=dtype), torch.randn(1, 3, 64, dtype=dtype)
            expected, found = linear(x), LAYOUTS[layout](linear)(x)
            return bool((found - expected).abs().max() <= _ROUNDING[dtype] * expected.abs().max())
    except (AttributeError, KeyError, RuntimeError):
        return False


@torch.inference_mode()
def lay_out(model: nn.Module, layout: str) -> int:
    """Replace the model's plain linear layers in place. Returns how many were replaced.

    A weight that is transposed and also an embedding's lies in memory once; another that is also used elsewhere keeps
    its plain copy there.
    """
    count = 0
    embeddings = {id(module.weight): module for module in model.modules() if isinstance(module, nn.Embedding)}
    for owner in [module for module in model.modules() if not isinstance(module, LaidOut)]:
        for name, child in owner.named_children():
            if type(child) is nn.Linear and child.weight.device.type == "cpu":
                laid = LAYOUTS[layout](child)
                setattr(owner, name, laid)
                count += 1
                if isinstance(laid, TransposedLinear) and (embedding := embeddings.get(id(child.weight))) is not None:
                    embedding.weight = nn.Parameter(laid.weight, requires_grad=False)
    return count


def weight_bytes(model: nn.Module) -> int:
    """Bytes of all weights of a model, as they are laid out; what several modules share counts once."""
    held = [tensor for module in model.modules() if isinstance(module, LaidOut) for tensor in module.held]
    found = [tensor for tensor in held if tensor.layout == torch._mkldnn]
    plain = {tensor.data_ptr(): tensor for tensor in (*model.parameters(), *held) if tensor.layout != torch._mkldnn}
    return sum(tensor.numel() * tensor.dtype.itemsize for tensor in (*found, *plain.values()))


@contextmanager
def as_loaded(model: nn.Module) -> Iterator[None]:
    """Inside, linear layers compute what they did before ``lay_out``, to the last bit, at the price of a copy of their
    weights a forward: for what has to come out the same whichever layout was the fastest when the model was loaded.
    Quantised layers compute the same anyway."""
    laid = [layer for layer in model.modules() if isinstance(layer, (LaidOut, LinearSlice))]
    laid = [layer for layer in laid if not getattr(getattr(layer, "whole", layer), "quantised", False)]
    for layer in laid:
        layer.forward = lambda x, layer=layer: F.linear(x, layer.weight.contiguous(), layer.bias)
    try:
        yield
    finally:
        for layer in laid:
            del layer.forward


def unread(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """What stands for a weight that is not read, since its layer will be replaced by one that needs it otherwise."""
    return torch.zeros((), dtype=dtype).expand(shape)


def is_unread(weight: torch.Tensor) -> bool:
    """Whether it is what ``unread`` gives."""
    return weight.dim() == 2 and weight.stride() == (0, 0) and weight.numel() > 1


def room(
    shapes: Mapping[str, tuple[int, ...]], model: nn.Module, dtype: torch.dtype, transposed: bool = False
) -> dict[str, torch.Tensor]:
    """Memory for the weights of ``model`` (which may lie on the meta device) of these names and shapes, not written to.

    Those that ``fuse`` joins lie one after the other, and with ``transposed`` those of linear layers, and an embedding
    that is also the head, lie as the transposed layout has them: then neither copies anything.
    """
    linear = {id(module.weight) for module in model.modules() if type(module) is nn.Linear}
    linear = {name for name, weight in model.named_parameters(remove_duplicate=False) if id(weight) in linear}
    found: dict[str, torch.Tensor] = {}
    for name, shape in shapes.items():
        if name in found:
            continue
        if name not in linear or len(shape) != 2:
            found[name] = torch.empty(shape, dtype=dtype)
            continue
        parts = [part for part in joined_with(name) if shapes.get(part, ())[1:] == shape[1:]]
        sizes = [shapes[part][0] for part in parts]
        size = (sum(sizes), shape[1])
        whole = torch.empty(size[::-1], dtype=dtype).t() if transposed else torch.empty(size, dtype=dtype)
        found |= zip(parts, whole.split(sizes))
    return found


def joined_with(name: str) -> list[str]:
    """The names of the weights that ``fuse`` joins with the one of this name, in its order."""
    owner, own, suffix = name.rsplit(".", 2) if name.count(".") > 1 else ("", "", "")
    parts = next((parts for _, parts in _GROUPS.values() if own in parts), None)
    return [f"{owner}.{part}.{suffix}" for part in parts] if parts is not None else [name]


def stored_names(name: str) -> tuple[str, ...]:
    """The names of the layers that the layer of this name was made of by ``fuse``: its own where that is none."""
    owner, _, own = name.rpartition(".")
    parts = next((parts for fused, parts in _GROUPS.values() if fused == own), (own,))
    return tuple(f"{owner}.{part}" if owner else part for part in parts)


def fusible(model: PreTrainedModel) -> bool:
    """Whether the layers have plain linear layers by the names of Llama."""
    return all(
        type(getattr(getattr(layer, block, None), name, None)) is nn.Linear
        for layer in model.model.layers for block, (_, names) in _GROUPS.items() for name in names
    )


@torch.no_grad()
def fuse(model: PreTrainedModel) -> None:
    """Join queries, keys and values, and gate and up, in place: one group after the other, so that only one of them is
    in memory twice."""
    for layer in model.model.layers:
        for block, (name, names) in _GROUPS.items():
            _join(getattr(layer, block), name, names)


def _join(owner: nn.Module, name: str, names: tuple[str, ...]) -> None:
    linears = [getattr(owner, part) for part in names]
    weight = _one_below_the_other([linear.weight.detach() for linear in linears])
    biases = [linear.bias for linear in linears]
    joined = nn.Linear(1, 1, bias=False, device="meta")
    joined.in_features, joined.out_features = weight.shape[1], weight.shape[0]
    joined.weight = nn.Parameter(weight, requires_grad=False)
    if biases[0] is not None:
        joined.bias = nn.Parameter(torch.cat(biases), requires_grad=False)
    setattr(owner, name, joined)
    start = 0
    for part, linear in zip(names, linears):
        setattr(owner, part, LinearSlice(owner, name, start, start + linear.out_features))
        start += linear.out_features


def _one_below_the_other(weights: list[torch.Tensor]) -> torch.Tensor:
    """Weights [out, in] as one, copied only where they don't lie so in memory already (``room``)."""
    first = weights[0]
    if all(map(is_unread, weights)):
        return unread((sum(map(len, weights)), first.shape[1]), first.dtype)
    at, base = first.storage_offset(), first.untyped_storage().data_ptr()
    for weight in weights:
        place = weight.storage_offset(), weight.untyped_storage().data_ptr(), weight.stride()
        if place != (at, base, first.stride()):
            return torch.cat(weights)
        at += len(weight) * first.stride(0)
    return first.as_strided((sum(map(len, weights)), first.shape[1]), first.stride())
