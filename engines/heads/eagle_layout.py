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
from engines.heads.head_config import EAGLE, EAGLE3, PLAIN_ROPE, HeadConfig, usual_layers
from engines.heads.head_file import HeadFile, count, named, number, rows_of, size_of
from engines.heads.local_heads import OWN
from engines.hub.untrusted_json import is_count, object_in

RUN_HERE = "heads that run here are Medusa, and EAGLE-1, EAGLE-2 and EAGLE-3 of one layer"
_LAYER = re.compile(r"^(?:midlayer|layers\.0)\.(?:self_attn\.|mlp\.)?")
_NOT_READ = ("rotary_emb.inv_freq", "k_scale", "v_scale")
"""Tensors of a layer that follow from its configuration, or are of a quantised cache."""


def eagle_head(
    name: str, folder: Path, saved: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], layers: int,
    target_width: int,
) -> HeadFile:
    """The head of these tensors, for a target of so many layers.

    Raises:
        ModelUnavailable: no head of the EAGLE family.
        ValueError: tensors that are missing or of the wrong sizes.
    """
    tensors = {key.removeprefix("model."): tensor for key, tensor in tensors.items()}
    inside = {_LAYER.sub("", key) for key in tensors if _LAYER.match(key)}
    tensors = {_LAYER.sub("", key): tensor for key, tensor in tensors.items()}
    family = _family(name, tensors)
    config, said = _config(family, saved, tensors, layers, target_width)
    weights, ids = _weights(config, tensors), _ids(config, tensors)
    for key in sorted((inside | {"fc.bias", "lm_head.bias"}) - {*map(_stored, weights), *_NOT_READ}):
        if key in tensors and tensors[key].any():  # a bias of zeros changes nothing
            raise ValueError(f"it has {key[:60]}, which is not computed here")
    rows = tensors.get("lm_head.weight") if family == EAGLE3 else None
    if family == EAGLE3 and rows is None and object_in(saved, OWN).get("lm_head") != "target":
        raise ValueError("it lacks lm_head.weight")
    if rows is not None and rows.shape != (config.draft_vocabulary, config.width):
        raise ValueError(f"its lm_head has {size_of(rows)} numbers, its vocabulary and width are "
                         f"{config.draft_vocabulary} and {config.width}")
    return HeadFile(
        name=name, folder=folder, config=config, weights=weights, ids=ids, rows=rows,
        embeddings=tensors.get("embed_tokens.weight"), layers_said=said,
    )


def eagle_tensors(file: HeadFile) -> dict[str, torch.Tensor]:
    """A head in the layout of vLLM's speculators, or of EAGLE-1 and 2 in SafeAILab's. A bias of zeros is left out."""
    inner = {name: "self_attn." for name in ("q_proj", "k_proj", "v_proj", "o_proj")}
    inner |= {name: "mlp." for name in ("gate_proj", "up_proj", "down_proj")}
    tensors = {}
    for name, tensor in file.weights.items():
        if name == "tap_norm":
            parts = tensor.chunk(len(file.config.layers)) if file.config.tap_norm == "each" else ()
            tensors |= {f"fc_norm.{i}.weight": part for i, part in enumerate(parts)} or {"input_norm.weight": tensor}
            continue
        if name == "fc.bias" and not tensor.any():
            continue
        own = name.partition(".")[0]
        outside = own in ("fc", "norm")
        tensors[_stored(name) if outside else f"layers.0.{inner.get(own, '')}{_stored(name)}"] = tensor
    if file.ids is not None:
        known = torch.zeros(file.config.vocabulary, dtype=torch.bool)
        known[file.ids] = True
        tensors |= {"d2t": file.ids - torch.arange(len(file.ids)), "t2d": known}
    more = {"lm_head.weight": file.rows, "embed_tokens.weight": file.embeddings}
    return tensors | {name: tensor for name, tensor in more.items() if tensor is not None}


def eagle_config(config: HeadConfig, target: str) -> dict[str, Any]:
    """The configuration beside them."""
    layer = {
        "model_type": "llama", "hidden_size": config.width, "intermediate_size": config.mlp,
        "num_attention_heads": config.heads, "num_key_value_heads": config.kv_heads, "head_dim": config.head_dim,
        "num_hidden_layers": 1, "hidden_act": "silu", "vocab_size": config.vocabulary, "rms_norm_eps": config.eps,
        "rope_theta": config.rope_theta, "attention_bias": config.attention_bias,
    }
    if config.family != EAGLE3:
        return {"architectures": ["LlamaForCausalLM"], **layer, "base_model_name_or_path": target}
    return {
        "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3",
        "draft_vocab_size": config.draft_vocabulary, "target_hidden_size": config.target_width,
        "norm_before_residual": config.norm_before_residual,
        "norm_before_fc": config.tap_norm == "whole", "fc_norm": config.tap_norm == "each",
        "norm_output": config.norm_output,
        "eagle_aux_hidden_state_layer_ids": list(config.layers),
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
        raise ModelUnavailable(f"{name} is {other}", RUN_HERE)
    fc, queries = tensors.get("fc.weight"), tensors.get("q_proj.weight")
    if fc is None or queries is None or fc.dim() != 2 or queries.dim() != 2:
        raise ModelUnavailable(f"{name} is not a draft head: it has no fc.weight, or no decoder layer",
                               "give the folder of an EAGLE head or of Medusa heads")
    if queries.shape[1] == 2 * fc.shape[0] and "hidden_norm.weight" in tensors:
        return EAGLE3
    if queries.shape[1] == fc.shape[0] and fc.shape[1] == 2 * fc.shape[0]:
        if "lm_head.weight" in tensors:
            raise ModelUnavailable(f"{name} has an lm_head of its own", "EAGLE-1 and 2 draft with the target's")
        return EAGLE
    raise ModelUnavailable(f"{name} is not an EAGLE head: fc is {size_of(fc)}, queries are {size_of(queries)}",
                           "give the folder of an EAGLE head")


def _config(
    family: str, saved: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], layers: int, target_width: int
) -> tuple[HeadConfig, tuple[int, ...]]:
    """The config, and the layers as the file names them. Raises ValueError."""
    inner = object_in(saved, "transformer_layer_config") or saved
    width, entries = tensors["fc.weight"].shape
    heads = count(inner, "num_attention_heads")
    head_dim = count(inner, "head_dim", default=max(1, width // heads))
    kv_heads = rows_of(tensors, "k_proj.weight") // head_dim
    if rows_of(tensors, "q_proj.weight") != heads * head_dim or not kv_heads or heads % kv_heads:
        raise ValueError(f"its config says {heads} heads of {head_dim}, its queries are "
                         f"{size_of(tensors['q_proj.weight'])}")
    if head_dim % 2:
        raise ValueError(f"its head_dim is {head_dim}, and numbers are rotated in pairs")
    activation = inner.get("hidden_act")
    if activation not in (None, "silu", "swish"):
        raise ValueError(f"its activation is {str(activation)[:30]}, which is not computed here")
    vocabulary = _vocabulary(inner, saved, tensors)
    each = [t for key, t in tensors.items() if re.fullmatch(r"fc_norm\.\d+\.weight", key)]
    said, counted = (), ()
    if family == EAGLE3:
        made_for = saved.get("target_hidden_size")
        if is_count(made_for) and made_for != target_width:
            raise ValueError(f"it is for a target whose hidden size is {made_for}, this target's is {target_width}")
        if entries % target_width:
            raise ValueError(f"its fc reads {entries} numbers, which is not a multiple of the target's hidden size "
                             f"{target_width}")
        said, counted = _layers(saved, layers, entries // target_width)
    elif width != target_width:
        raise ValueError(f"its hidden size is {width}, the target's is {target_width}")
    draft = rows_of(tensors, "lm_head.weight") if "lm_head.weight" in tensors else (
        rows_of(tensors, "d2t") if "d2t" in tensors else vocabulary)
    return HeadConfig(
        family=family, width=width, target_width=target_width, mlp=rows_of(tensors, "gate_proj.weight"), heads=heads,
        kv_heads=kv_heads, head_dim=head_dim, vocabulary=vocabulary, draft_vocabulary=draft, layers=counted,
        eps=number(inner, "rms_norm_eps", 1e-5), rope_theta=_theta(inner),
        norm_before_residual=saved.get("norm_before_residual") is True,
        norm_output=(saved.get("norm_output") or object_in(saved, "eagle_config").get("norm_output")) is True,
        tap_norm="each" if each else "whole" if "input_norm.weight" in tensors else "",
        attention_bias="q_proj.bias" in tensors,
    ), said


def _layers(saved: Mapping[str, Any], layers: int, taps: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Layers as the file names them and as they are counted here, by the layer that they come after. Files of other
    programs that begin with 1 count by the layer whose output is meant, from 0, which is one less. Raises
    ValueError."""
    key = "eagle_aux_hidden_state_layer_ids"
    found = saved.get(key) or object_in(saved, "eagle_config").get(key)
    if found is None or found == []:
        said, counted = (), usual_layers(layers)
    elif isinstance(found, list) and all(map(is_count, found)):
        said = tuple(found)
        counted = tuple(layer + 1 for layer in said) if said[0] == 1 and OWN not in saved else said
    else:
        raise ValueError(f"{key} is not a list of layers")
    if len(counted) != taps:
        raise ValueError(f"its fc reads {taps} layers, its config names {len(counted)}")
    if len(set(counted)) != taps or not all(1 <= layer <= layers for layer in counted):
        raise ValueError(f"it reads layers {', '.join(map(str, counted))} of a target that has {layers}")
    return said, counted


def _weights(config: HeadConfig, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Those of ``HeadNetwork``. Raises ValueError: one is missing, or has another size than the others say."""
    from engines.heads.network import HeadNetwork

    with torch.device("meta"):
        wanted = HeadNetwork(config).state_dict()
    found = {}
    for name, like in wanted.items():
        tensor = _tensor(name, config, tensors, like)
        if tensor.shape != like.shape:
            raise ValueError(f"{name} is {size_of(tensor)} and not {size_of(like)}")
        found[name] = tensor
    return found


def _tensor(name: str, config: HeadConfig, tensors: Mapping[str, torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    if name == "tap_norm":
        if config.tap_norm == "whole":
            return tensors["input_norm.weight"]
        return torch.cat([named(tensors, f"fc_norm.{i}.weight") for i in range(len(config.layers))])
    if name == "fc.bias":  # a configuration that does not say has one; the tensors know
        return tensors.get(name, torch.zeros(like.shape))
    return named(tensors, _stored(name))


def _stored(name: str) -> str:
    """The name in a file of a parameter of ``HeadNetwork``, inside its layer."""
    return name if "." in name else f"{name}.weight"


def _ids(config: HeadConfig, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    """The target's token of each draft token: ``d2t`` is an offset. Raises ValueError."""
    if "d2t" not in tensors:
        if config.draft_vocabulary != config.vocabulary:
            raise ValueError(f"it drafts {config.draft_vocabulary} tokens of {config.vocabulary}, and has no d2t that "
                             "says which")
        return None
    offsets = tensors["d2t"]
    if offsets.shape != (config.draft_vocabulary,) or not len(offsets) or offsets.is_floating_point():
        raise ValueError(f"d2t is {size_of(offsets)}, for {config.draft_vocabulary} tokens")
    ids = offsets.long() + torch.arange(len(offsets))
    if not (int(ids.min()) >= 0 and int(ids.max()) < config.vocabulary and len(ids.unique()) == len(ids)):
        raise ValueError("d2t names tokens twice, or beyond the vocabulary")
    return ids


def _vocabulary(inner: Mapping[str, Any], saved: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> int:
    for name in ("t2d", "embed_tokens.weight"):
        if name in tensors:
            return rows_of(tensors, name)
    return count(inner, "vocab_size", default=count(saved, "vocab_size", default=0))


def _theta(saved: Mapping[str, Any]) -> float:
    """Base of the rotation: what the head's own file says, never the target's. Raises ValueError for scaled ones."""
    rope = object_in(saved, "rope_parameters") or object_in(saved, "rope_scaling")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", None):
        raise ValueError(f"its rotation is scaled ({str(kind)[:20]}), which is not computed here")
    return number(saved, "rope_theta", number(rope, "rope_theta", PLAIN_ROPE))
