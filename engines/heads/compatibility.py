"""Whether a head is of a target, and the rows of its language modelling head."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from engines.errors import UsageProblem
from engines.heads.head_config import EAGLE, MEDUSA
from engines.heads.head_file import HeadFile
from engines.libraries.hf import text_config
from engines.model.causal_model import CausalModel
from engines.model.native.native_linear import make_native
from engines.model.quantise import PLAIN, quantise_drafting
from engines.report.events import HeadReads


def check_compatible(file: HeadFile, target: CausalModel) -> None:
    """Raises UsageProblem: the head is of another target; the message says what differs."""
    config, found = file.config, None
    if config.vocabulary and config.vocabulary != target.vocab_size:
        found = f"its vocabulary has {config.vocabulary:,} tokens, the target's {target.vocab_size:,}"
    elif file.embeddings is not None and tuple(file.embeddings.shape) != (target.vocab_size, config.width):
        found = f"its embeddings are {' x '.join(map(str, file.embeddings.shape))}"
    elif file.embeddings is None and config.width != config.target_width:
        found = f"its hidden size is {config.width}, the target's {config.target_width}, and it has no embeddings"
    elif file.rows is None and config.family != EAGLE and target.model.get_output_embeddings() is None:
        found = f"{target.name} has no language modelling head"
    if found:
        raise UsageProblem(f"the head {file.name} does not fit {target.name}: {found}",
                           "give a head that was trained for this model")


def reads_of(file: HeadFile, target: CausalModel) -> HeadReads:
    """What the head reads of the target."""
    layers = text_config(target.model.config).num_hidden_layers
    return HeadReads(file.config.title, file.config.layers, layers, not file.config.layers)


def rows_for(file: HeadFile, target: CausalModel) -> torch.Tensor:
    """The rows [..., draft vocabulary, width] that a head's logits are computed with: its own, or the target's."""
    if file.rows is not None:
        return file.rows
    rows = target.model.get_output_embeddings().weight.detach()
    return rows if file.ids is None else rows[file.ids.to(rows.device)]


@torch.no_grad()
def embeddings_of(target: CausalModel) -> torch.Tensor:
    """The target's embeddings [vocabulary, width] as it reads them: some multiply the rows of their weight."""
    return target.model.get_input_embeddings()(torch.arange(target.vocab_size, device=target.device))


def standing_alone(file: HeadFile, target: CausalModel) -> HeadFile:
    """The head with what it shares with the target: the rows of the language modelling head (vLLM takes the target's,
    all of them, for a head of EAGLE-1 and 2), of EAGLE the embeddings too. Medusa heads get a row for every token,
    zero for those that they don't draft: vLLM (0.32) loads no ``token_map``."""
    rows, embeddings = None if file.config.family == EAGLE else rows_for(file, target), file.embeddings
    if file.config.family == MEDUSA:
        if file.ids is None:
            return replace(file, rows=rows)
        whole = rows.new_zeros(*rows.shape[:-2], file.config.vocabulary, rows.shape[-1])
        whole[..., file.ids, :] = rows
        return replace(file, rows=whole, ids=None, config=replace(file.config, draft_vocabulary=file.config.vocabulary))
    if embeddings is None:
        embeddings = embeddings_of(target)
    if file.config.family == EAGLE:
        file = replace(file, ids=None, config=replace(file.config, draft_vocabulary=file.config.vocabulary))
    return replace(file, rows=rows, embeddings=embeddings)


def lay_out_as(target: CausalModel, layers: nn.Module) -> str:
    """Store the linear layers of a head as those of its target are, in place: in 4 bits where they are quantised, else
    as native layers where they are. ``fc`` is not quantised: single channels of what it reads are a thousand times
    larger than others, and it is asked once a round. Returns how many are quantised, in words."""
    found = ""
    if target.quantised:
        counts = quantise_drafting(layers, "fc", target.rounds)
        found = ", ".join(f"{count} {words}" for words, count in sorted(counts.items()) if words != PLAIN)
    if target.native:
        make_native(layers)
    return found


def linear_of(rows: torch.Tensor) -> nn.Linear:
    """A language modelling head of rows [draft vocabulary, width]."""
    linear = nn.Linear(rows.shape[1], rows.shape[0], bias=False, device="meta")
    linear.weight = nn.Parameter(rows.contiguous(), requires_grad=False)
    return linear
