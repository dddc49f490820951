"""Which linear layers of a model become quantised, and in which way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import nn

from engines.errors import UsageProblem
from engines.libraries.hf import PreTrainedModel
from engines.model.native.native_linear import NativeEmbedding, NativeLinear, StoredRows, stored_bytes
from engines.model.quantised_linear import (
    GROUP,
    GridForm,
    Int4Linear,
    Int8GroupsLinear,
    Int8RowsLinear,
    WeightGrid,
    quantised,
    works,
)
from engines.model.quantize_choices import ARITHMETICS, AUTO, CHOICES, INT4, INT8, NONE, STORED
from engines.model.weight_layouts import LaidOut, is_unread, stored_names

PLAIN = "plain"
_OF_BITS = {4: Int4Linear, 8: Int8GroupsLinear}


class Stored(Protocol):
    """The weights of a model's file that are stored on grids, by the names of their layers."""

    def form(self, name: str) -> GridForm | None:
        """The form of one, None where it is stored otherwise."""

    def grid(self, name: str) -> WeightGrid:
        """One that has a form."""

    def rows(self, name: str) -> StoredRows:
        """The same as it is stored."""


def check_choice(choice: str) -> None:
    """Raises UsageProblem: there is no such choice."""
    if choice not in CHOICES:
        raise UsageProblem(f"there is no quantisation {choice!r}", "choices are: " + ", ".join(CHOICES))


def check_arithmetic(choice: str) -> None:
    """Raises UsageProblem: there is no such choice."""
    if choice not in ARITHMETICS:
        raise UsageProblem(f"there is no arithmetic {choice!r}", "choices are: " + ", ".join(ARITHMETICS))


@torch.inference_mode()
def quantise(
    model: PreTrainedModel, choice: str, stored: Stored | None = None, native: bool = False, rounds: bool = False,
    narrow: bool = False,
) -> Counter[str]:
    """Replace linear layers of a model on the CPU by quantised ones, in place, after ``fuse``.

    ``auto`` and ``stored`` take what is stored on a grid, and leave the rest. ``int4`` takes that too, and quantises
    the rest in groups of 32; the head, on which every choice of a token hangs, gets 8 bits. ``int8`` takes 8 bits where
    they are stored, and quantises the rest. A weight that is also used elsewhere (tied embeddings) keeps its plain copy
    there.

    Args:
        native: their products are native code, and they are in float32; else they are torch's, of which int8 has one
            scale for each output.
        rounds: inputs of native products are rounded to 8 bits (``NativeLinear``).
        narrow: what is stored in more than 4 bits is quantised to 4, the head too: of a model that only drafts.

    Returns:
        How many layers are of which kind, in words; ``PLAIN`` are those that stayed.
    """
    head = model.get_output_embeddings()

    def layer_for(linear: nn.Linear, name: str) -> LaidOut | None:
        own = _stored_form(name, stored)
        form = GridForm(4) if narrow and own is not None and own.bits > 4 else _form(choice, own, linear is head)
        kind = _kind(linear, form, native, choice == INT8 and form is not own)
        if kind is None or kind is Int8RowsLinear:
            return kind and kind(linear)
        if kind is NativeLinear:
            as_stored = [stored.rows(part) for part in _parts(name, stored)] if own is not None else []
            if form is own:
                return kind(linear, as_stored, rounds)
            narrowed = is_unread(linear.weight)
            return kind(linear, kind(linear, as_stored).narrowed() if narrowed else _quantised(linear, form), rounds)
        if form is not own:
            return kind(linear, quantised(linear.weight, form.bits))
        return kind(linear, WeightGrid.joined([stored.grid(part) for part in _parts(name, stored)]))

    if native and stored is not None:
        _keep_embedding(model, stored)
    return _replaced(model, layer_for)


def _keep_embedding(model: PreTrainedModel, stored: Stored) -> None:
    """Look rows of an embedding of its own, whose weight was not read, up in what is stored."""
    name, embedding = _own_embedding(model, model.get_output_embeddings()), model.get_input_embeddings()
    if name is not None and is_unread(embedding.weight):
        rows = nn.Linear(1, 1, bias=False, device="meta")
        (rows.out_features, rows.in_features), rows.weight = embedding.weight.shape, embedding.weight
        model.set_input_embeddings(NativeEmbedding(NativeLinear(rows, [stored.rows(name)])))


def _own_embedding(model: PreTrainedModel, head: nn.Module | None) -> str | None:
    """The name of the embedding, None where it is no plain one or has the head's weight."""
    embedding = model.get_input_embeddings()
    if type(embedding) is not nn.Embedding or head is None or head.weight is embedding.weight:
        return None
    return next(name for name, module in model.named_modules() if module is embedding)


@torch.inference_mode()
def quantise_drafting(module: nn.Module, plain: str, native: bool = False, rounds: bool = False) -> Counter[str]:
    """Replace the linear layers of what only drafts, on the CPU, by layers of 4 bits, in place, but for those of the
    name ``plain``: on drafts no text depends, so a little less agreement costs nothing but a few of them. ``native``,
    ``rounds`` and what is returned: as of ``quantise``."""

    def layer_for(linear: nn.Linear, name: str) -> LaidOut | None:
        kind = _kind(linear, GridForm(4), native, rows=False)
        if kind is None or name.rpartition(".")[2] == plain:
            return None
        if kind is NativeLinear:
            return kind(linear, _quantised(linear, GridForm(4)), rounds)
        return kind(linear, quantised(linear.weight, 4))

    return _replaced(module, layer_for)


def _quantised(linear: nn.Linear, form: GridForm) -> list[StoredRows]:
    """The weight of a layer in whole numbers of so many bits, as a file would store them."""
    return [StoredRows.of_grid(quantised(linear.weight, form.bits))]


def _replaced(model: nn.Module, layer_for: Callable[[nn.Linear, str], LaidOut | None]) -> Counter[str]:
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


def _parts(name: str, stored: Stored) -> tuple[str, ...]:
    """The layers that are stored of one that may be several joined ones."""
    return (name,) if stored.form(name) is not None else stored_names(name)


def _stored_form(name: str, stored: Stored | None) -> GridForm | None:
    """The form in which a layer is stored that may be several joined ones; None where one of them has none."""
    forms = [stored.form(part) for part in _parts(name, stored)] if stored is not None else [None]
    return GridForm.joined(forms) if None not in forms else None


def _form(choice: str, stored: GridForm | None, head: bool) -> GridForm | None:
    """The form that a layer gets; None: it stays."""
    if choice == NONE:
        return None
    if stored is not None and not (choice == INT8 and stored.bits == 4):
        return stored
    if choice in (INT4, INT8):
        return GridForm(8 if choice == INT8 or head else 4)
    return None


def _kind(linear: nn.Linear, form: GridForm | None, native: bool, rows: bool) -> type[LaidOut] | None:
    """What a layer becomes, None where it stays. ``rows``: where it is torch's, with a scale for each output."""
    if form is None:
        return None
    if native:
        return NativeLinear if linear.in_features % GROUP == 0 else None
    kind = Int8RowsLinear if rows else _OF_BITS[form.bits]
    return kind if form.size == GROUP and works(kind, linear.in_features, linear.out_features) else None


def bytes_laid_out(
    model: PreTrainedModel, choice: str, stored: Stored | None, native: bool, half: bool = False
) -> int:
    """Bytes that the weights of a model would take in memory, without loading it: it may lie on the meta device.

    Args:
        choice, stored, native: as of ``quantise``.
        half: native layers that are not quantised are stored in half precision.
    """
    head, gone, total = model.get_output_embeddings(), set(), 0
    for owner, name, own in _linears(model):
        linear, found = getattr(owner, own), _stored_form(name, stored)
        form = _form(choice, found, linear is head)
        kind = _kind(linear, form, native, choice == INT8 and form is not found)
        if kind is not None:
            gone.add(linear)
            if kind is NativeLinear and form is found:
                total += sum(stored_bytes(stored.rows(part)) for part in _parts(name, stored))
            else:
                total += _size(kind, form, linear.weight)
        elif native and half:
            gone.add(linear)
            total += 2 * linear.weight.numel()
        if linear in gone:
            embedding = model.get_input_embeddings()
            exact = form is found or kind is None
            if native and linear is head and exact and head.weight is embedding.weight:
                gone.add(embedding)  # its rows are looked up in the head
    table = _own_embedding(model, head) if native and stored is not None and choice in (AUTO, STORED) else None
    if table is not None and stored.form(table) is not None:
        gone.add(model.get_input_embeddings())
        total += stored_bytes(stored.rows(table))
    kept = {id(p): p for module in model.modules() for name, p in module.named_parameters(recurse=False)
            if module not in gone or name != "weight"}
    return total + sum(parameter.nbytes for parameter in kept.values())


def _size(kind: type[LaidOut], form: GridForm, weight: torch.Tensor) -> int:
    """Bytes of a quantised weight: whole numbers, and scales."""
    numbers = weight.numel()
    if kind is Int8RowsLinear:
        return numbers + 2 * len(weight)
    if kind is NativeLinear:
        return numbers * form.bits // 8 + numbers // GROUP * (4 if form.bits == 4 else 2)
    return (numbers // 2 + numbers // GROUP * 4) * (2 if kind is Int8GroupsLinear else 1)
