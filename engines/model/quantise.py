"""Which linear layers of a model become quantised, and in which way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import nn

from engines.hub.kept_weights import Place, in_memory
from engines.libraries.hf import PreTrainedModel
from engines.model.fused_layers import is_unread, stored_names
from engines.model.load_options import AUTO, INT4, INT8, NONE, STORED
from engines.model.native.native_linear import GROUP, NativeEmbedding, NativeLinear, stored_bytes
from engines.model.native.weight_grid import quantised

if TYPE_CHECKING:
    from engines.model.gguf_weights import StoredWeights

PLAIN = "plain"
_FEW = 4  # bits: fewer do not gain enough


@torch.inference_mode()
def quantise(
    model: PreTrainedModel, choice: str, stored: StoredWeights | None = None, rounds: bool = False,
    narrow: bool = False, place: Place = in_memory,
) -> Counter[str]:
    """Replace linear layers of a model on the CPU by native ones whose weights are integers, in place, after ``fuse``.

    ``auto`` and ``stored`` take what is stored on a grid, and leave the rest. ``int4`` takes that too, and quantises
    the rest in groups of 32; the head, on which every choice of a token hangs, gets 8 bits. ``int8`` takes 8 bits where
    they are stored, and quantises the rest. A weight that is also used elsewhere (tied embeddings) keeps its plain copy
    there.

    Args:
        rounds: inputs of products are rounded to 8 bits (``NativeLinear``).
        narrow: what is stored in more than 4 bits becomes 3 bits, the head too: of a model that only drafts.
        place: gives the memory of what is stored.

    Returns:
        How many layers are of which kind, in words; ``PLAIN`` are those that stayed.
    """
    head = model.get_output_embeddings()

    def layer_for(linear: nn.Linear, name: str) -> NativeLinear | None:
        own = _stored_bits(name, stored)
        narrowed = narrow and (own or 0) > _FEW
        bits = own if narrowed else _bits(choice, own, linear is head)
        if bits is None or linear.in_features % GROUP:
            return None
        if bits == own:
            return NativeLinear(linear, [stored.rows(part) for part in _parts(name, stored)], rounds, narrowed, place)
        return NativeLinear(linear, [quantised(linear.weight, bits)], rounds)

    if stored is not None:
        _keep_embedding(model, stored, place)
    return _replaced(model, layer_for)


def _keep_embedding(model: PreTrainedModel, stored: StoredWeights, place: Place) -> None:
    """Look rows of an embedding of its own, whose weight was not read, up in what is stored."""
    name, embedding = _own_embedding(model, model.get_output_embeddings()), model.get_input_embeddings()
    if name is not None and is_unread(embedding.weight):
        rows = nn.Linear(1, 1, bias=False, device="meta")
        (rows.out_features, rows.in_features), rows.weight = embedding.weight.shape, embedding.weight
        model.set_input_embeddings(NativeEmbedding(NativeLinear(rows, [stored.rows(name)], place=place)))


def _own_embedding(model: PreTrainedModel, head: nn.Module | None) -> str | None:
    """The name of the embedding, None where it is no plain one or has the head's weight."""
    embedding = model.get_input_embeddings()
    if type(embedding) is not nn.Embedding or head is None or head.weight is embedding.weight:
        return None
    return next(name for name, module in model.named_modules() if module is embedding)


@torch.inference_mode()
def quantise_drafting(module: nn.Module, plain: str, rounds: bool = False) -> Counter[str]:
    """Replace the linear layers of what only drafts, on the CPU, by native layers of 4 bits, in place, but for those of
    the name ``plain``: on drafts no text depends, so a little less agreement costs nothing but a few of them.
    ``rounds`` and what is returned: as of ``quantise``."""

    def layer_for(linear: nn.Linear, name: str) -> NativeLinear | None:
        if linear.in_features % GROUP or name.rpartition(".")[2] == plain:
            return None
        return NativeLinear(linear, [quantised(linear.weight, _FEW)], rounds)

    return _replaced(module, layer_for)


def _replaced(model: nn.Module, layer_for: Callable[[nn.Linear, str], NativeLinear | None]) -> Counter[str]:
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


def _parts(name: str, stored: StoredWeights) -> tuple[str, ...]:
    """The layers that are stored of one that may be several joined ones."""
    return (name,) if stored.bits(name) is not None else stored_names(name)


def _stored_bits(name: str, stored: StoredWeights | None) -> int | None:
    """Of how many bits the numbers of a layer are that may be several joined ones; None where one is on no grid."""
    bits = [stored.bits(part) for part in _parts(name, stored)] if stored is not None else [None]
    return max(bits) if None not in bits else None


def narrows(model: nn.Module, stored: StoredWeights) -> bool:
    """Whether ``narrow`` makes a difference to this model."""
    return any((_stored_bits(name, stored) or 0) > _FEW for _, name, _ in _linears(model))


def _bits(choice: str, stored: int | None, head: bool) -> int | None:
    """Of how many bits a layer's numbers become; None: it stays."""
    if stored is not None and not (choice == INT8 and stored == 4):
        return stored
    if choice in (INT4, INT8):
        return 8 if choice == INT8 or head else 4
    return None


def bytes_laid_out(model: PreTrainedModel, choice: str, stored: StoredWeights | None, half: bool = False) -> int:
    """Bytes that the weights of a model take in native code, without loading it: it may lie on the meta device.

    Args:
        choice, stored: as of ``quantise``; ``NONE`` leaves all.
        half: layers that are not quantised are stored in half precision.
    """
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    gone, total = set(), 0
    for owner, name, own in _linears(model):
        linear, found = getattr(owner, own), _stored_bits(name, stored)
        bits = _bits(choice, found, linear is head) if choice != NONE and linear.in_features % GROUP == 0 else None
        if bits is None and not half:
            continue
        gone.add(linear)
        if bits is not None and bits == found:
            total += sum(stored_bytes(stored.rows(part)) for part in _parts(name, stored))
        else:
            total += _size(bits, linear.weight)
        if linear is head and bits in (None, found) and head.weight is embedding.weight:
            gone.add(embedding)  # its rows are looked up in the head
    table = _own_embedding(model, head) if stored is not None and choice in (AUTO, STORED) else None
    if table is not None and stored.bits(table) is not None:
        gone.add(embedding)
        total += stored_bytes(stored.rows(table))
    kept = {id(p): p for module in model.modules() for name, p in module.named_parameters(recurse=False)
            if module not in gone or name != "weight"}
    return total + sum(parameter.nbytes for parameter in kept.values())


def _size(bits: int | None, weight: torch.Tensor) -> int:
    """Bytes of a weight: integers of so many bits and their scales, or in half precision."""
    numbers = weight.numel()
    return 2 * numbers if bits is None else numbers * bits // 8 + numbers // GROUP * (4 if bits == 4 else 2)
