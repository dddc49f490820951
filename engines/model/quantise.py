"""Which linear layers of a model become quantised, and in which way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import torch
from torch import nn
from transformers import PreTrainedModel

from engines.errors import UsageProblem
from engines.model.quantised_linear import (
    GROUP,
    Int4Linear,
    Int8GroupsLinear,
    Int8RowsLinear,
    QuantisedLinear,
    WeightGrid,
    quantised,
    works,
)
from engines.model.quantize_choices import AUTO, CHOICES, INT4, INT8
from engines.model.weight_layouts import stored_names

PLAIN = "plain"
LABELS = {AUTO: "weights as stored", INT8: "int8 weights", INT4: "int4 weights"}
_STORED = {4: Int4Linear, 8: Int8GroupsLinear}
StoredGrid = Callable[[str], WeightGrid | None]
"""The weight of the layer of a name as it is stored in the model's file; None where it is stored otherwise."""


def check_choice(choice: str) -> None:
    """Raises UsageProblem: there is no such choice."""
    if choice not in CHOICES:
        raise UsageProblem(f"there is no quantisation {choice!r}", "choices are: " + ", ".join(CHOICES))


@torch.inference_mode()
def quantise(model: PreTrainedModel, choice: str, stored: StoredGrid = lambda name: None) -> Counter[str]:
    """Replace linear layers of a model on the CPU by quantised ones, in place, after ``fuse``.

    ``auto`` takes what is stored on a grid, and leaves the rest. ``int4`` takes that too, and quantises the rest in
    groups of 32; the head, on which every choice of a token hangs, gets 8 bits. ``int8`` has one scale for each output,
    but takes 8 bits in groups where they are stored. A weight that is also used elsewhere (tied embeddings) keeps its
    plain copy there.

    Returns:
        How many layers are of which kind, in words; ``PLAIN`` are those that stayed.
    """
    head = model.get_output_embeddings()
    return _replaced(model, lambda linear, name: _quantised(linear, choice, _grid(name, stored), linear is head))


@torch.inference_mode()
def quantise_drafting(module: nn.Module, plain: str) -> Counter[str]:
    """Replace the linear layers of what only drafts, on the CPU, by layers of 4 bits, in place, but for those of the
    name ``plain``: on drafts no text depends, so a little less agreement costs nothing but a few of them. Returns as
    ``quantise``."""
    return _replaced(module, lambda linear, name: (
        None if name.rpartition(".")[2] == plain else _quantised(linear, INT4, None, False)))


def _replaced(
    model: nn.Module, layer_for: Callable[[nn.Linear, str], QuantisedLinear | None]
) -> Counter[str]:
    """Put what a function gives for a layer and its name in its place; None: it stays. Returns as ``quantise``."""
    counts: Counter[str] = Counter()
    for owner, name, own in list(_linears(model)):
        layer = layer_for(getattr(owner, own), name)
        if layer is not None:
            setattr(owner, own, layer)
        counts[layer.words if layer is not None else PLAIN] += 1
    return counts


def _linears(model: nn.Module) -> Iterator[tuple[nn.Module, str, str]]:
    """The owner, the full name and the own name of each plain linear layer."""
    for name, owner in model.named_modules():
        for own, child in owner.named_children():
            if type(child) is nn.Linear:
                yield owner, f"{name}.{own}" if name else own, own


def _grid(name: str, stored: StoredGrid) -> WeightGrid | None:
    """What is stored of a layer that may be several joined ones; None where they are not all of as many bits."""
    whole = stored(name)
    grids = [stored(part) for part in stored_names(name)] if whole is None else [whole]
    found = [grid for grid in grids if grid is not None]
    if len(found) < len(grids) or len({grid.bits for grid in found}) > 1:
        return None
    return WeightGrid.joined(found) if len(found) > 1 else found[0]


def _quantised(linear: nn.Linear, choice: str, grid: WeightGrid | None, head: bool) -> QuantisedLinear | None:
    """The layer to take, None for none."""
    kind = _kind(linear, choice, grid.bits if grid is not None else None, head)
    if kind is None or kind is Int8RowsLinear:
        return kind and kind(linear)
    if grid is not None and kind is not _STORED[grid.bits]:
        grid = None
    return kind(linear, quantised(linear.weight, 4 if kind is Int4Linear else 8) if grid is None else grid)


def _kind(linear: nn.Linear, choice: str, bits: int | None, head: bool) -> type[QuantisedLinear] | None:
    """What a layer becomes whose weight is stored on a grid of so many bits (None: on none); None: it stays."""
    if bits is not None and not (choice == INT8 and bits == 4):
        kind = _STORED[bits]
    elif choice == AUTO:
        return None
    else:
        kind = Int8RowsLinear if choice == INT8 else Int8GroupsLinear if head else Int4Linear
    return kind if works(kind, linear.in_features, linear.out_features) else None


def bytes_quantised(model: PreTrainedModel, choice: str, bits: Callable[[str], int | None]) -> int:
    """Bytes that the weights of a model would take after ``quantise``, without doing it: the model may lie on the meta
    device. ``bits`` says of the layer of a name on which grid its weight is stored, None for none."""
    head, gone, total = model.get_output_embeddings(), set(), 0
    for owner, name, own in _linears(model):
        linear, stored = getattr(owner, own), {bits(part) for part in stored_names(name)}
        kind = _kind(linear, choice, stored.pop() if len(stored) == 1 else None, linear is head)
        if kind is not None:
            gone.add(linear)
            total += _size(kind, linear.weight)
    kept = {id(p): p for module in model.modules() for name, p in module.named_parameters(recurse=False)
            if module not in gone or name != "weight"}
    return total + sum(parameter.nbytes for parameter in kept.values())


def _size(kind: type[QuantisedLinear], weight: torch.Tensor) -> int:
    """Bytes of a quantised weight: whole numbers, and scales (with zeros, of groups) in bfloat16."""
    if kind is Int8RowsLinear:
        return weight.numel() + 2 * len(weight)
    return (weight.numel() // 2 + weight.numel() // GROUP * 4) * (2 if kind is Int8GroupsLinear else 1)
