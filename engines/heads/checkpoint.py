"""Reading heads from files. Which family a file holds is told by its tensors: configurations say it wrongly or not.

Spellings that are read: SafeAILab's (``midlayer.``), vLLM speculators' (``layers.0.``), SpecForge's and SGLang's
(settings under ``eagle_config``), each with or without ``model.`` before the names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from engines.errors import ModelUnavailable, first_line
from engines.folders import write_json
from engines.heads.shape import EAGLE, EAGLE3, PLAIN_ROPE, HeadShape, usual_layers
from engines.hub.untrusted_json import is_count, object_in, read_object

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
PICKLED = "pytorch_model.bin"
OWN = "spec_tui"
"""Key of a configuration under which ``write`` keeps what other programs have no words for."""

_LAYER = re.compile(r"^(?:midlayer|layers\.0)\.(?:self_attn\.|mlp\.)?")
_NORMS = ("post_attention_layernorm", "input_layernorm", "hidden_norm", "norm")
_BELONGS = ("fc", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_MEDUSA = re.compile(r"^(medusa_head\.)?\d+\.\d+\.(linear\.)?(weight|bias)$|^blocks\.\d+\.layers\.\d+\.")
_DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


@dataclass(slots=True)
class HeadFile:
    """A head as its files have it.

    Attributes:
        name: as the user gave it; ``folder``: where it lies.
        shape: what it is, for a target of which nothing is known yet but what the file says.
        weights: of ``HeadNetwork``, by its names.
        ids: int64 [draft vocabulary], the target's token of each token that the head drafts; None where they are all.
        rows: [draft vocabulary, width] its language modelling head; None where the target's is used.
        embeddings: [vocabulary, width]; None where the target's are used.
        layers_said: layers as the file names them, before they are counted as here; empty where it names none.
        made_for: fingerprint of the target that it was trained for; "" where the file does not say.
        card: what its training noted, for people.
    """

    name: str
    folder: Path
    shape: HeadShape
    weights: dict[str, torch.Tensor]
    ids: torch.Tensor | None
    rows: torch.Tensor | None
    embeddings: torch.Tensor | None
    layers_said: tuple[int, ...]
    made_for: str
    card: Mapping[str, Any]

    @property
    def parameters(self) -> int:
        """Numbers that the file holds, embeddings included."""
        held = [*self.weights.values(), *(t for t in (self.rows, self.embeddings) if t is not None)]
        return sum(tensor.numel() for tensor in held)


def read(name: str, folder: Path, layers: int, target_width: int, allow_pickle: bool = False) -> HeadFile:
    """Read a head for a target of so many layers, whose hidden states have ``target_width`` numbers.

    Raises:
        ModelUnavailable: unreadable, pickled though that is not allowed, no head of the EAGLE family, tensors that are
            missing or of the wrong sizes; the message says which.
    """
    try:
        config = read_object(folder / CONFIG)
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"the head {name} cannot be read: {first_line(error)}", "check the folder") from None
    tensors = _known_names(_load(name, folder, allow_pickle))
    family = _family(name, tensors)
    try:
        shape, said = _shape(family, config, tensors, layers, target_width)
        weights = _weights(shape, tensors)
        ids = _ids(shape, tensors)
    except ValueError as error:
        raise ModelUnavailable(f"the head {name} cannot be used: {error}", "choose another head") from None
    own = object_in(config, OWN)
    made_for, shared = own.get("target_fingerprint"), own.get("lm_head") == "target"
    rows = tensors.get("lm_head.weight") if family == EAGLE3 else None
    if family == EAGLE3 and rows is None and not shared:
        raise ModelUnavailable(f"the head {name} lacks lm_head.weight", "its download is incomplete")
    if rows is not None and rows.shape != (shape.draft_vocabulary, shape.width):
        raise ModelUnavailable(
            f"the head {name} cannot be used: its lm_head has {' x '.join(map(str, rows.shape))} numbers, its "
            f"vocabulary and width are {shape.draft_vocabulary} and {shape.width}", "choose another head",
        )
    return HeadFile(
        name=name, folder=folder, shape=shape, weights=weights, ids=ids, rows=rows,
        embeddings=tensors.get("embed_tokens.weight"), layers_said=said,
        made_for=made_for if isinstance(made_for, str) else "", card=object_in(own, "card"),
    )


def write(file: HeadFile, target: str, dtype: str = "bfloat16") -> None:
    """Write a head in the layout of vLLM's speculators. Rows of the language modelling head that are the target's are
    left out, which is said under ``OWN``. Raises OSError."""
    shape = file.shape
    inner = {name: "self_attn." for name in ("q_proj", "k_proj", "v_proj", "o_proj")}
    inner |= {name: "mlp." for name in ("gate_proj", "up_proj", "down_proj")}
    tensors = {}
    for name, tensor in file.weights.items():
        own, dot, _ = name.partition(".")
        outside = own in ("fc", "norm")
        stored = name if dot else f"{name}.weight"
        tensors[stored if outside else f"layers.0.{inner.get(own, '')}{stored}"] = tensor.to(_DTYPES[dtype])
    if file.ids is not None:
        known = torch.zeros(shape.vocabulary, dtype=torch.bool)
        known[file.ids] = True
        tensors |= {"d2t": file.ids - torch.arange(len(file.ids)), "t2d": known}
    if file.rows is not None:
        tensors["lm_head.weight"] = file.rows.to(_DTYPES[dtype])
    file.folder.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file.folder / WEIGHTS)
    own = {"target_fingerprint": file.made_for, "card": dict(file.card)}
    own |= {} if file.rows is not None else {"lm_head": "target"}
    write_json(file.folder / CONFIG, {
        "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3",
        "draft_vocab_size": shape.draft_vocabulary, "target_hidden_size": shape.target_width,
        "norm_before_residual": shape.norm_before_residual, "norm_before_fc": False, "norm_output": shape.norm_output,
        "eagle_aux_hidden_state_layer_ids": list(shape.layers), "dtype": dtype,
        "speculators_config": {
            "algorithm": "eagle3", "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 4}],
            "verifier": {"name_or_path": target, "architectures": []},
        },
        "transformer_layer_config": {
            "model_type": "llama", "hidden_size": shape.width, "intermediate_size": shape.mlp,
            "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_dim,
            "num_hidden_layers": 1, "vocab_size": shape.vocabulary, "rms_norm_eps": shape.eps,
            "rope_theta": shape.rope_theta, "attention_bias": shape.attention_bias,
        },
        OWN: own,
    })


def _load(name: str, folder: Path, allow_pickle: bool) -> dict[str, torch.Tensor]:
    try:
        if (folder / WEIGHTS).is_file():
            return load_file(folder / WEIGHTS)
        if (folder / PICKLED).is_file():
            if not allow_pickle:
                raise ModelUnavailable(
                    f"the head {name} has no weights in safetensors, only pickled ones",
                    f"--allow-pickle reads {PICKLED} without running what is pickled in it",
                )
            return torch.load(folder / PICKLED, map_location="cpu", weights_only=True)
    except ModelUnavailable:
        raise
    except (OSError, SafetensorError, RuntimeError, ValueError, EOFError, KeyError) as error:
        raise ModelUnavailable(f"the weights of the head {name} cannot be read: {first_line(error)}",
                               "its download is incomplete, or it is damaged") from None
    except Exception as error:  # whatever unpickling raises
        raise ModelUnavailable(f"the pickled weights of the head {name} hold more than weights, or are damaged",
                               "they are not read; choose another") from error
    raise ModelUnavailable(f"the head {name} has no {WEIGHTS}", "its download is incomplete")


def _known_names(tensors: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """By names without what spellings differ in: ``layers.0.self_attn.q_proj.weight`` is ``q_proj.weight``."""
    found = {}
    for name, tensor in tensors.items():
        if isinstance(tensor, torch.Tensor):
            found[_LAYER.sub("", str(name).removeprefix("model."))] = tensor
    return found


def _family(name: str, tensors: Mapping[str, torch.Tensor]) -> str:
    """The family, by the tensors. Raises ModelUnavailable for heads of other families, by their name."""
    other = ""
    if any(_MEDUSA.match(key) for key in tensors):
        other = "a Medusa head"
    elif "mask_hidden" in tensors:
        other = "a P-EAGLE head, which drafts several tokens in one pass"
    elif any(key.startswith("mtp.") or key.endswith("eh_proj.weight") for key in tensors):
        other = "an MTP head"
    elif any(re.match(r"layers\.[1-9]", key) for key in tensors):
        other = "a head of several layers (DFlash, or EAGLE-3 with more than one layer)"
    elif any(key.startswith(("q_norm", "k_norm")) for key in tensors):
        other = "a head that normalises queries and keys"
    if other:
        raise ModelUnavailable(f"{name} is {other}",
                               "heads that run here are EAGLE-1, EAGLE-2 and EAGLE-3 of one layer")
    fc, queries = tensors.get("fc.weight"), tensors.get("q_proj.weight")
    if fc is None or queries is None or fc.dim() != 2 or queries.dim() != 2:
        raise ModelUnavailable(f"{name} is no draft head: it has no fc.weight, or no decoder layer",
                               "give the folder of an EAGLE head")
    if queries.shape[1] == 2 * fc.shape[0] and "hidden_norm.weight" in tensors:
        return EAGLE3
    if queries.shape[1] == fc.shape[0] and fc.shape[1] == 2 * fc.shape[0] and "lm_head.weight" not in tensors:
        return EAGLE
    raise ModelUnavailable(
        f"{name} is no EAGLE head: fc is {_size(fc)}, queries are {_size(queries)}", "give the folder of an EAGLE head"
    )


def _shape(
    family: str, config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], layers: int, target_width: int
) -> tuple[HeadShape, tuple[int, ...]]:
    """The shape, and the layers as the file names them. Raises ValueError."""
    inner = object_in(config, "transformer_layer_config") or config
    width, entries = tensors["fc.weight"].shape
    heads = _count(inner, "num_attention_heads")
    head_dim = _count(inner, "head_dim", default=width // max(1, heads))
    kv_heads = _rows(tensors, "k_proj.weight") // head_dim
    if _rows(tensors, "q_proj.weight") != heads * head_dim or not kv_heads or heads % kv_heads:
        raise ValueError(f"its config says {heads} heads of {head_dim}, its queries are "
                         f"{_size(tensors['q_proj.weight'])}")
    vocabulary = _vocabulary(inner, config, tensors)
    each = [t for key, t in tensors.items() if re.fullmatch(r"fc_norm\.\d+\.weight", key)]
    said, counted = (), ()
    if family == EAGLE3:
        if entries % target_width:
            raise ValueError(f"its fc reads {entries} numbers, which is no multiple of the target's hidden size "
                             f"{target_width}")
        said, counted = _layers(config, layers, entries // target_width)
    elif width != target_width:
        raise ValueError(f"its hidden size is {width}, the target's is {target_width}")
    draft = _rows(tensors, "lm_head.weight") if "lm_head.weight" in tensors else (
        len(tensors["d2t"]) if "d2t" in tensors else vocabulary)
    return HeadShape(
        family=family, width=width, target_width=target_width, mlp=_rows(tensors, "gate_proj.weight"), heads=heads,
        kv_heads=kv_heads, head_dim=head_dim, vocabulary=vocabulary, draft_vocabulary=draft, layers=counted,
        eps=_number(inner, "rms_norm_eps", 1e-5), rope_theta=_theta(inner),
        norm_before_residual=config.get("norm_before_residual") is True,
        norm_output=(config.get("norm_output") or object_in(config, "eagle_config").get("norm_output")) is True,
        tap_norm="each" if each else "whole" if "input_norm.weight" in tensors else "",
        attention_bias="q_proj.bias" in tensors,
    ), said


def _layers(config: Mapping[str, Any], layers: int, taps: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Layers as the file names them and as they are counted here, by the layer that they come after. Files that begin
    with 1 count by the layer whose output is meant, from 0, which is one less. Raises ValueError."""
    key = "eagle_aux_hidden_state_layer_ids"
    found = config.get(key) or object_in(config, "eagle_config").get(key)
    if found is None or found == []:
        said, counted = (), usual_layers(layers)
    elif isinstance(found, list) and all(map(is_count, found)):
        said = tuple(found)
        counted = tuple(layer + 1 for layer in said) if said[0] == 1 else said
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
            raise ValueError(f"{name} is {_size(tensor)} and not {_size(like)}")
        found[name] = tensor
    return found


def _tensor(name: str, shape: HeadShape, tensors: Mapping[str, torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    if name == "tap_norm":
        if shape.tap_norm == "whole":
            return tensors["input_norm.weight"]
        return torch.cat([_named(tensors, f"fc_norm.{i}.weight") for i in range(len(shape.layers))])
    if name == "fc.bias":  # a configuration that does not say has one; the tensors know
        return tensors.get(name, torch.zeros(like.shape))
    return _named(tensors, name if "." in name else f"{name}.weight")


def _named(tensors: Mapping[str, torch.Tensor], name: str) -> torch.Tensor:
    if name not in tensors:
        raise ValueError(f"it lacks {name}")
    return tensors[name]


def _ids(shape: HeadShape, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    """The target's token of each draft token: ``d2t`` is an offset. Raises ValueError."""
    if "d2t" not in tensors:
        if shape.draft_vocabulary != shape.vocabulary:
            raise ValueError(f"it drafts {shape.draft_vocabulary} tokens of {shape.vocabulary}, and has no d2t that "
                             "says which")
        return None
    offsets = tensors["d2t"]
    if offsets.shape != (shape.draft_vocabulary,) or offsets.is_floating_point():
        raise ValueError(f"d2t is {_size(offsets)}, for {shape.draft_vocabulary} tokens")
    ids = offsets.long() + torch.arange(len(offsets))
    if len(ids) and not (int(ids.min()) >= 0 and int(ids.max()) < shape.vocabulary and len(ids.unique()) == len(ids)):
        raise ValueError("d2t names tokens twice, or beyond the vocabulary")
    return ids


def _vocabulary(inner: Mapping[str, Any], config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> int:
    for name in ("t2d", "embed_tokens.weight"):
        if name in tensors:
            return _rows(tensors, name)
    return _count(inner, "vocab_size", default=_count(config, "vocab_size", default=0))


def _theta(config: Mapping[str, Any]) -> float:
    """Base of the rotation: what the head's own file says, never the target's. Raises ValueError for scaled ones."""
    rope = object_in(config, "rope_parameters") or object_in(config, "rope_scaling")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", None):
        raise ValueError(f"its rotation is scaled ({str(kind)[:20]}), which is not computed here")
    return _number(config, "rope_theta", _number(rope, "rope_theta", PLAIN_ROPE))


def _number(config: Mapping[str, Any], key: str, default: float) -> float:
    value = config.get(key)
    if value is None:
        return default
    if type(value) not in (int, float) or not 0 < value < 1e12:
        raise ValueError(f"{key} is no number that can be")
    return float(value)


def _count(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = config.get(key)
    if value is None and default is not None:
        return default
    if not is_count(value) or not value:
        raise ValueError(f"its config has no {key}")
    return value


def _rows(tensors: Mapping[str, torch.Tensor], name: str) -> int:
    tensor = _named(tensors, name)
    if not tensor.dim():
        raise ValueError(f"{name} is a single number")
    return tensor.shape[0]


def _size(tensor: torch.Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "a single number"


def names_needed(names: Iterable[str], allow_pickle: bool) -> tuple[str, ...]:
    """Of the files of a repository those that a head is read from."""
    names = set(names)
    weights = [WEIGHTS] if WEIGHTS in names else [PICKLED] if allow_pickle and PICKLED in names else []
    return tuple(name for name in (CONFIG, *weights) if name in names)
