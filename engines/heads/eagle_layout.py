"""The layouts of heads of the EAGLE family. Spellings that are read: SafeAILab's (``midlayer.``), vLLM speculators'
(``layers.0.``), SpecForge's and SGLang's (settings under ``eagle_config``), each with or without ``model.`` before the
names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from engines.errors import ModelUnavailable
from engines.heads.at_hand import OWN
from engines.heads.head_file import HeadFile, count, named, number, rows_of, size_of
from engines.heads.shape import EAGLE, EAGLE3, PLAIN_ROPE, HeadShape, usual_layers
from engines.hub.untrusted_json import is_count, object_in

_LAYER = re.compile(r"^(?:midlayer|layers\.0)\.(?:self_attn\.|mlp\.)?")


def eagle_head(
    name: str, folder: Path, config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], layers: int,
    target_width: int,
) -> HeadFile:
    """The head of these tensors, for a target of so many layers.

    Raises:
        ModelUnavailable: no head of the EAGLE family.
        ValueError: tensors that are missing or of the wrong sizes.
    """
    tensors = {_LAYER.sub("", key.removeprefix("model.")): tensor for key, tensor in tensors.items()}
    family = _family(name, tensors)
    shape, said = _shape(family, config, tensors, layers, target_width)
    weights, ids = _weights(shape, tensors), _ids(shape, tensors)
    rows = tensors.get("lm_head.weight") if family == EAGLE3 else None
    if family == EAGLE3 and rows is None and object_in(config, OWN).get("lm_head") != "target":
        raise ValueError("it lacks lm_head.weight")
    if rows is not None and rows.shape != (shape.draft_vocabulary, shape.width):
        raise ValueError(f"its lm_head has {size_of(rows)} numbers, its vocabulary and width are "
                         f"{shape.draft_vocabulary} and {shape.width}")
    return HeadFile(
        name=name, folder=folder, shape=shape, weights=weights, ids=ids, rows=rows,
        embeddings=tensors.get("embed_tokens.weight"), layers_said=said,
    )


def eagle_tensors(file: HeadFile) -> dict[str, torch.Tensor]:
    """A head in the layout of vLLM's speculators, or of EAGLE-1 and 2 in SafeAILab's. A bias of zeros is left out."""
    inner = {name: "self_attn." for name in ("q_proj", "k_proj", "v_proj", "o_proj")}
    inner |= {name: "mlp." for name in ("gate_proj", "up_proj", "down_proj")}
    tensors = {}
    for name, tensor in file.weights.items():
        if name == "tap_norm":
            parts = tensor.chunk(len(file.shape.layers)) if file.shape.tap_norm == "each" else ()
            tensors |= {f"fc_norm.{i}.weight": part for i, part in enumerate(parts)} or {"input_norm.weight": tensor}
            continue
        if name == "fc.bias" and not tensor.any():
            continue
        own, dot, _ = name.partition(".")
        outside = own in ("fc", "norm")
        stored = name if dot else f"{name}.weight"
        tensors[stored if outside else f"layers.0.{inner.get(own, '')}{stored}"] = tensor
    if file.ids is not None:
        known = torch.zeros(file.shape.vocabulary, dtype=torch.bool)
        known[file.ids] = True
        tensors |= {"d2t": file.ids - torch.arange(len(file.ids)), "t2d": known}
    more = {"lm_head.weight": file.rows, "embed_tokens.weight": file.embeddings}
    return tensors | {name: tensor for name, tensor in more.items() if tensor is not None}


def eagle_config(shape: HeadShape, target: str) -> dict[str, Any]:
    """The configuration beside them."""
    layer = {
        "model_type": "llama", "hidden_size": shape.width, "intermediate_size": shape.mlp,
        "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_dim,
        "num_hidden_layers": 1, "hidden_act": "silu", "vocab_size": shape.vocabulary, "rms_norm_eps": shape.eps,
        "rope_theta": shape.rope_theta, "attention_bias": shape.attention_bias,
    }
    if shape.family != EAGLE3:
        return {"architectures": ["LlamaForCausalLM"], **layer, "base_model_name_or_path": target}
    return {
        "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3",
        "draft_vocab_size": shape.draft_vocabulary, "target_hidden_size": shape.target_width,
        "norm_before_residual": shape.norm_before_residual,
        "norm_before_fc": shape.tap_norm == "whole", "fc_norm": shape.tap_norm == "each",
        "norm_output": shape.norm_output,
        "eagle_aux_hidden_state_layer_ids": list(shape.layers),
        "speculators_config": {
            "algorithm": "eagle3", "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 4}],
            "verifier": {"name_or_path": target, "architectures": []},
        },
        "transformer_layer_config": layer,
    }


def _family(name: str, tensors: Mapping[str, torch.Tensor]) -> str:
    """The family, by the tensors. Raises ModelUnavailable for heads of other families, by their name."""
    other = ""
    if "mask_hidden" in tensors:
        other = "a P-EAGLE head, which drafts several tokens in one pass"
    elif any(key.startswith("mtp.") or key.endswith("eh_proj.weight") for key in tensors):
        other = "an MTP head"
    elif any(re.match(r"layers\.[1-9]", key) for key in tensors):
        other = "a head of several layers (DFlash, or EAGLE-3 with more than one layer)"
    elif any(key.startswith(("q_norm", "k_norm")) for key in tensors):
        other = "a head that normalises queries and keys"
    if other:
        raise ModelUnavailable(f"{name} is {other}",
                               "heads that run here are Medusa, and EAGLE-1, EAGLE-2 and EAGLE-3 of one layer")
    fc, queries = tensors.get("fc.weight"), tensors.get("q_proj.weight")
    if fc is None or queries is None or fc.dim() != 2 or queries.dim() != 2:
        raise ModelUnavailable(f"{name} is no draft head: it has no fc.weight, or no decoder layer",
                               "give the folder of an EAGLE head or of Medusa heads")
    if queries.shape[1] == 2 * fc.shape[0] and "hidden_norm.weight" in tensors:
        return EAGLE3
    if queries.shape[1] == fc.shape[0] and fc.shape[1] == 2 * fc.shape[0] and "lm_head.weight" not in tensors:
        return EAGLE
    raise ModelUnavailable(
        f"{name} is no EAGLE head: fc is {size_of(fc)}, queries are {size_of(queries)}",
        "give the folder of an EAGLE head",
    )


def _shape(
    family: str, config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], layers: int, target_width: int
) -> tuple[HeadShape, tuple[int, ...]]:
    """The shape, and the layers as the file names them. Raises ValueError."""
    inner = object_in(config, "transformer_layer_config") or config
    width, entries = tensors["fc.weight"].shape
    heads = count(inner, "num_attention_heads")
    head_dim = count(inner, "head_dim", default=width // max(1, heads))
    kv_heads = rows_of(tensors, "k_proj.weight") // head_dim
    if rows_of(tensors, "q_proj.weight") != heads * head_dim or not kv_heads or heads % kv_heads:
        raise ValueError(f"its config says {heads} heads of {head_dim}, its queries are "
                         f"{size_of(tensors['q_proj.weight'])}")
    vocabulary = _vocabulary(inner, config, tensors)
    each = [t for key, t in tensors.items() if re.fullmatch(r"fc_norm\.\d+\.weight", key)]
    said, counted = (), ()
    if family == EAGLE3:
        made_for = config.get("target_hidden_size")
        if is_count(made_for) and made_for != target_width:
            raise ValueError(f"it is for a target whose hidden size is {made_for}, this target's is {target_width}")
        if entries % target_width:
            raise ValueError(f"its fc reads {entries} numbers, which is no multiple of the target's hidden size "
                             f"{target_width}")
        said, counted = _layers(config, layers, entries // target_width)
    elif width != target_width:
        raise ValueError(f"its hidden size is {width}, the target's is {target_width}")
    draft = rows_of(tensors, "lm_head.weight") if "lm_head.weight" in tensors else (
        len(tensors["d2t"]) if "d2t" in tensors else vocabulary)
    return HeadShape(
        family=family, width=width, target_width=target_width, mlp=rows_of(tensors, "gate_proj.weight"), heads=heads,
        kv_heads=kv_heads, head_dim=head_dim, vocabulary=vocabulary, draft_vocabulary=draft, layers=counted,
        eps=number(inner, "rms_norm_eps", 1e-5), rope_theta=_theta(inner),
        norm_before_residual=config.get("norm_before_residual") is True,
        norm_output=(config.get("norm_output") or object_in(config, "eagle_config").get("norm_output")) is True,
        tap_norm="each" if each else "whole" if "input_norm.weight" in tensors else "",
        attention_bias="q_proj.bias" in tensors,
    ), said


def _layers(config: Mapping[str, Any], layers: int, taps: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Layers as the file names them and as they are counted here, by the layer that they come after. Files of other
    programs that begin with 1 count by the layer whose output is meant, from 0, which is one less. Raises
    ValueError."""
    key = "eagle_aux_hidden_state_layer_ids"
    found = config.get(key) or object_in(config, "eagle_config").get(key)
    if found is None or found == []:
        said, counted = (), usual_layers(layers)
    elif isinstance(found, list) and all(map(is_count, found)):
        said = tuple(found)
        counted = tuple(layer + 1 for layer in said) if said[0] == 1 and OWN not in config else said
    else:
        raise ValueError(f"{key} is no list of layers")
    if len(counted) != taps:
        raise ValueError(f"its fc reads {taps} layers, its config names {len(counted)}")
    if len(set(counted)) != taps or not all(1 <= layer <= layers for layer in counted):
        raise ValueError(f"it reads layers {', '.join(map(str, counted))} of a target that has {layers}")
    return said, counted


def _weights(shape: HeadShape, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Those of ``HeadNetwork``. Raises ValueError: one is missing, or has another size than the others say."""
    from engines.heads.network import HeadNetwork

    with torch.device("meta"):
        wanted = HeadNetwork(shape).state_dict()
    found = {}
    for name, like in wanted.items():
        tensor = _tensor(name, shape, tensors, like)
        if tensor.shape != like.shape:
            raise ValueError(f"{name} is {size_of(tensor)} and not {size_of(like)}")
        found[name] = tensor
    return found


def _tensor(name: str, shape: HeadShape, tensors: Mapping[str, torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    if name == "tap_norm":
        if shape.tap_norm == "whole":
            return tensors["input_norm.weight"]
        return torch.cat([named(tensors, f"fc_norm.{i}.weight") for i in range(len(shape.layers))])
    if name == "fc.bias":  # a configuration that does not say has one; the tensors know
        return tensors.get(name, torch.zeros(like.shape))
    return named(tensors, name if "." in name else f"{name}.weight")



def _ids(shape: HeadShape, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    """The target's token of each draft token: ``d2t`` is an offset. Raises ValueError."""
    if "d2t" not in tensors:
        if shape.draft_vocabulary != shape.vocabulary:
            raise ValueError(f"it drafts {shape.draft_vocabulary} tokens of {shape.vocabulary}, and has no d2t that "
                             "says which")
        return None
    offsets = tensors["d2t"]
    if offsets.shape != (shape.draft_vocabulary,) or offsets.is_floating_point():
        raise ValueError(f"d2t is {size_of(offsets)}, for {shape.draft_vocabulary} tokens")
    ids = offsets.long() + torch.arange(len(offsets))
    if len(ids) and not (int(ids.min()) >= 0 and int(ids.max()) < shape.vocabulary and len(ids.unique()) == len(ids)):
        raise ValueError("d2t names tokens twice, or beyond the vocabulary")
    return ids


def _vocabulary(inner: Mapping[str, Any], config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> int:
    for name in ("t2d", "embed_tokens.weight"):
        if name in tensors:
            return rows_of(tensors, name)
    return count(inner, "vocab_size", default=count(config, "vocab_size", default=0))


def _theta(config: Mapping[str, Any]) -> float:
    """Base of the rotation: what the head's own file says, never the target's. Raises ValueError for scaled ones."""
    rope = object_in(config, "rope_parameters") or object_in(config, "rope_scaling")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", None):
        raise ValueError(f"its rotation is scaled ({str(kind)[:20]}), which is not computed here")
    return number(config, "rope_theta", number(rope, "rope_theta", PLAIN_ROPE))
