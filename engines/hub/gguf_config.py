"""A transformers configuration from a GGUF file's metadata, for the families that are read here.

A GGUF file states a model's sizes under llama.cpp's names. What the defaults of a configuration would get wrong, and
what cannot be carried over, is refused: a model that is read almost right answers almost right.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from engines.hub.gguf_file import GgufFile, GgufTensor

Config = dict[str, Any]

_SIZES = {
    "hidden_size": "embedding_length", "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count", "num_attention_heads": "attention.head_count",
    "max_position_embeddings": "context_length",
}  # fmt: skip
_WINDOW, _PATTERN = "attention.sliding_window", "attention.sliding_window_pattern"


class Unsupported(ValueError):
    """A model that transformers or this reader cannot carry over; the message says what of it, ``hint`` what helps."""

    def __init__(self, message: str, hint: str = "choose another model") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True)
class Family:
    """How one of llama.cpp's architectures is called in transformers, and what it has beyond the usual sizes.

    Attributes:
        more: the part of the configuration that only this family has, from a ``Keys``.
        rotated: llama.cpp's converter interleaves the two halves of each head's rows in Q and K; undo it.
        norm_offset: norms are stored with this added.
    """

    model_type: str
    class_name: str
    more: Callable[[Keys], Config] = field(default=lambda keys: {})
    rotated: bool = False
    norm_offset: float = 0.0


class Keys:
    """Values of a file by llama.cpp's names, without the architecture that they begin with."""

    def __init__(self, file: GgufFile) -> None:
        self.file = file
        self.tensors = {tensor.name: tensor for tensor in file.tensors}

    def get(self, name: str, default: Any = None) -> Any:
        """A number or text; ``default`` where there is none. Raises Unsupported for a list."""
        value = self.file.metadata.get(f"{self.file.architecture}.{name}", default)
        if isinstance(value, list):
            raise Unsupported(f"its layers differ in {name}")
        return value

    def number(self, name: str, default: Any = None, kind: type = float) -> Any:
        """A positive number, with the ``kind`` int a whole one; ``default`` where there is none, or 0. Raises
        Unsupported for what is none."""
        value = self.get(name)
        if value is None or value == 0:
            return default
        if type(value) not in (int, kind) or not 0 < value < math.inf:
            raise Unsupported(f"its {name} is {str(value)[:40]!r}, which is not a positive number")
        return value

    def need(self, name: str, kind: type = int) -> Any:
        """The same. Raises Unsupported where there is none."""
        if (value := self.number(name, kind=kind)) is None:
            raise Unsupported(f"it does not state {name}")
        return value

    def tensor(self, name: str) -> GgufTensor:
        """A tensor by name. Raises Unsupported where there is none."""
        if name not in self.tensors:
            raise Unsupported(f"it has no tensor {name}")
        return self.tensors[name]

    def numbers(self, tensor: GgufTensor) -> tuple[float, ...]:
        """The numbers of a small float32 tensor. Raises Unsupported for one of another type."""
        if tensor.kind != "F32":
            raise Unsupported(f"its {tensor.name} is {tensor.kind}")
        stored = self.file.content()[tensor.begin : tensor.begin + tensor.size]
        return struct.unpack(f"<{tensor.count}f", stored.tobytes())

    def stated(self, name: str) -> bool:
        """Whether the file has a value of this name, of any type."""
        return f"{self.file.architecture}.{name}" in self.file.metadata

    def layer_types(self, period: int) -> list[str]:
        """Which layers attend within a window: as the file states it, by default all but every ``period``-th. Raises
        Unsupported for a list that is not one of the layers."""
        layers, stated = self.need("block_count"), self.file.metadata.get(f"{self.file.architecture}.{_PATTERN}")
        if not isinstance(stated, list):
            period = self.number(_PATTERN, period, int)
            stated = [layer % period != 0 for layer in range(1, layers + 1)]
        if len(stated) != layers or not all(one in (0, 1) for one in stated):
            raise Unsupported(f"its {_PATTERN} does not say of each layer whether it attends within a window")
        return ["sliding_attention" if one else "full_attention" for one in stated]

    @property
    def per_head(self) -> int:
        """The width of the residual stream over the number of heads. Raises Unsupported where that is below 1."""
        width, heads = self.need("embedding_length"), self.need("attention.head_count")
        if width < heads:
            raise Unsupported(f"its embedding_length {width} is less than its attention.head_count {heads}")
        return width // heads

    @property
    def head_dim(self) -> int:
        """Numbers in a head. Raises Unsupported where the file states no sizes that give it."""
        return self.number("attention.key_length", kind=int) or self.per_head


def _biases(keys: Keys) -> Config:
    """Which layers have biases. Raises Unsupported where heads are rotated in part."""
    found = {"attention_bias": "blk.0.attn_q.bias" in keys.tensors, "mlp_bias": "blk.0.ffn_gate.bias" in keys.tensors}
    if keys.number("rope.dimension_count", keys.head_dim, int) != keys.head_dim:
        raise Unsupported("it rotates a part of each head")
    return found


def _llama(keys: Keys) -> Config:
    found = _biases(keys)
    if window := keys.number(_WINDOW, kind=int):
        found |= {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": window}
    return found


def _phi3(keys: Keys) -> Config:
    if any(name.startswith("rope_factors") for name in keys.tensors):
        raise Unsupported("its positions are scaled by factors for long and short contexts")
    rotated = keys.number("rope.dimension_count", keys.head_dim, int)
    if rotated > keys.head_dim:
        raise Unsupported(f"it rotates {rotated} numbers of heads that have {keys.head_dim}")
    return {
        "sliding_window": keys.number(_WINDOW, kind=int),
        "partial_rotary_factor": rotated / keys.head_dim,
    }


def _granite(keys: Keys) -> Config:
    return _biases(keys) | {
        "attention_multiplier": keys.number("attention.scale", keys.head_dim**-0.5),
        "embedding_multiplier": keys.number("embedding_scale", 1.0),
        "residual_multiplier": keys.number("residual_scale", 1.0),
        "logits_scaling": keys.number("logit_scale", 1.0),
    }


def _gemma(keys: Keys, largest: int, period: int) -> Config:
    """``largest``: the layers of the one size whose attention is not scaled by the head's size. ``period``: of its
    attention windows."""
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": keys.need(_WINDOW),
        "layer_types": keys.layer_types(period),
        "query_pre_attn_scalar": keys.per_head if keys.need("block_count") == largest else keys.head_dim,
        "attn_logit_softcapping": keys.number("attn_logit_softcapping"),
        "final_logit_softcapping": keys.number("final_logit_softcapping"),
    }


def _gemma3(keys: Keys) -> Config:
    return _gemma(keys, 62, 6) | _ropes(keys, 10_000.0)


def _olmo2(keys: Keys) -> Config:
    """OLMo 2 has no windows; OLMo 3, which has them, is of the same architecture in llama.cpp."""
    if not (window := keys.number(_WINDOW, kind=int)):
        return {}
    found = {"model_type": "olmo3", "architectures": ["Olmo3ForCausalLM"], "sliding_window": window}
    return found | {"layer_types": keys.layer_types(4)} | _ropes(keys, keys.number("rope.freq_base", 10_000.0))


FAMILIES = {
    "llama": Family("llama", "LlamaForCausalLM", _llama, rotated=True),
    "qwen2": Family("qwen2", "Qwen2ForCausalLM"),
    "qwen3": Family("qwen3", "Qwen3ForCausalLM"),
    "gemma2": Family("gemma2", "Gemma2ForCausalLM", lambda keys: _gemma(keys, 46, 2), norm_offset=1.0),
    "gemma3": Family("gemma3_text", "Gemma3ForCausalLM", _gemma3, norm_offset=1.0),
    "phi3": Family("phi3", "Phi3ForCausalLM", _phi3),
    "granite": Family("granite", "GraniteForCausalLM", _granite, rotated=True),
    "olmo2": Family("olmo2", "Olmo2ForCausalLM", _olmo2),
}


_TYPES = {  # general.type
    "adapter": ("it is an adapter (LoRA), not a whole model",
                "merge it into its base model (llama.cpp's llama-export-lora), and give that file"),
    "mmproj": ("it is the part of a model that reads pictures", "give the file of the language model beside it"),
    "imatrix": ("it is an importance matrix, which is for quantising", "give the file of the model"),
    "vocab": ("it is a vocabulary without weights", "give the file of the model"),
}
_OTHERS = {  # general.architecture of what writes no text by itself
    "clip": _TYPES["mmproj"],
    "controlvector": ("it is a control vector, not a model", "give the file of the model"),
    "eagle3": ("it is a draft head for llama.cpp, not a whole model",
               "give it to llama.cpp; a head for use here is a folder, given with --head"),
    **dict.fromkeys(("bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "modern-bert"), (
        "it is an embedding model, which writes no text", "give a model that writes text")),
    **dict.fromkeys(("whisper", "flux", "sd1", "sd3", "sdxl", "wan", "qwen_image", "ltxv", "hidream"), (
        "it is for speech or pictures, not a language model", "give a language model")),
}


def family(file: GgufFile) -> Family:
    """The family of a file. Raises Unsupported."""
    for key, known in (("type", _TYPES), ("architecture", _OTHERS)):
        if isinstance(value := file.metadata.get(f"general.{key}"), str) and value in known:
            raise Unsupported(*known[value])
    if not file.tensors:
        raise Unsupported(*_TYPES["vocab"])
    if file.architecture not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise Unsupported(f"its architecture is {file.architecture or 'not stated'}; these are read: {known}")
    return FAMILIES[file.architecture]


def config_of(file: GgufFile) -> Config:
    """The content of config.json for a file. Raises Unsupported."""
    kind, keys = family(file), Keys(file)
    heads = keys.need("attention.head_count")
    found: Config = {
        "model_type": kind.model_type,
        "architectures": [kind.class_name],
        **{ours: keys.need(theirs) for ours, theirs in _SIZES.items()},
        "num_key_value_heads": keys.number("attention.head_count_kv", heads, int),
        "head_dim": keys.head_dim,
        "vocab_size": keys.tensor("token_embd.weight").shape[0],
        "rms_norm_eps": keys.need("attention.layer_norm_rms_epsilon", float),
        "rope_parameters": _rope(keys),
        "tie_word_embeddings": "output.weight" not in keys.tensors,
        **{f"{name}_token_id": token_id(file, ggml) for name, ggml in SPECIAL_TOKENS.items()},
    }
    found |= kind.more(keys)
    window = keys.number(_WINDOW, kind=int)
    if window is not None and window < found["max_position_embeddings"]:  # a larger one changes nothing
        for ours, theirs in (("sliding_window", _WINDOW), ("layer_types", _PATTERN)):
            if keys.stated(theirs) and ours not in found:
                raise Unsupported(f"it states {theirs}, which is not read for {file.architecture}")
    return found


SPECIAL_TOKENS = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}
"""ggml's words by transformers'."""


def token_id(file: GgufFile, name: str) -> int | None:
    """A special token by ggml's name for it ("bos", "eot"); None where the file states none, or none of its own."""
    value = file.metadata.get(f"tokenizer.ggml.{name}_token_id")
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    return value if type(value) is int and isinstance(tokens, list) and 0 <= value < len(tokens) else None


_SCALING = "rope.scaling."


def _rope(keys: Keys) -> Config:
    """The rotation of positions. Raises Unsupported for a scaling that transformers would not compute as llama.cpp."""
    theta, kind = keys.number("rope.freq_base", 10_000.0), keys.get(f"{_SCALING}type", "linear")
    factor = keys.number(f"{_SCALING}factor") or keys.number("rope.scale_linear", 1.0)  # the older name
    if kind == "none" or factor == 1.0:
        found = {"rope_type": "default", "rope_theta": theta}
    elif kind == "linear":
        found = {"rope_type": "linear", "rope_theta": theta, "factor": factor}
    elif kind == "yarn":
        original = keys.need(f"{_SCALING}original_context_length")
        scaled = {"factor": factor, "original_max_position_embeddings": original}
        found = {"rope_type": "yarn", "rope_theta": theta, **scaled}
    else:
        raise Unsupported(f"its positions are scaled by {str(kind)[:40]!r}")
    _refuse_other_scaling(keys, 1 + 0.1 * math.log(max(1.0, factor)) if found["rope_type"] == "yarn" else 1.0)
    if "rope_freqs.weight" not in keys.tensors:
        return found
    if found["rope_type"] != "default":
        raise Unsupported("its positions are scaled both by one factor and by factors for each frequency")
    return _llama3_rope(theta, keys)


def _refuse_other_scaling(keys: Keys, attention: float) -> None:
    """Raises Unsupported where a scaling has more settings than the above, unless they are the usual ones.

    llama.cpp ignores some of these in the families that are read, so where they are unusual it computes something else
    than the model. ``attention``: what rotated numbers are multiplied by. ``attn_factor`` comes on top of that, but
    llama.cpp's older converter wrote the whole of it there for OLMo 3, as its newer one does in ``yarn_attn_factor``.
    """
    usual = {
        "attn_factor": (1.0, attention), "yarn_attn_factor": (attention,), "yarn_beta_fast": (32.0,),
        "yarn_beta_slow": (1.0,), "yarn_ext_factor": (1.0,), "yarn_log_multiplier": (0.0,),
    }  # fmt: skip
    read = {"type", "factor", "original_context_length", "finetuned"}
    begin = f"{keys.file.architecture}.{_SCALING}"
    for setting in sorted({name.removeprefix(begin) for name in keys.file.metadata if name.startswith(begin)} - read):
        value, known = keys.get(_SCALING + setting), usual.get(setting, ())
        if type(value) not in (int, float) or not any(math.isclose(value, one, rel_tol=1e-3) for one in known):
            raise Unsupported(f"its positions are scaled with {setting} {str(value)[:40]!r}, which is not read")


def _ropes(keys: Keys, near: float) -> Config:
    """The rotations where layers with a window have one of their own, not scaled; ``near``: its theta by default."""
    windowed = {"rope_type": "default", "rope_theta": keys.number("rope.freq_base_swa", near)}
    return {"rope_parameters": {"full_attention": _rope(keys), "sliding_attention": windowed}}


def _llama3_rope(theta: float, keys: Keys) -> Config:
    """Llama 3.1's scaling. The file has only the factors that it leads to, one for each frequency: they tell the
    largest factor, the other three numbers are the same in all of these models; held against the file's factors."""
    stored = keys.numbers(keys.tensor("rope_freqs.weight"))
    factor, low, high, original = max(stored), 1.0, 4.0, 8192
    if len(stored) != keys.head_dim // 2:
        raise Unsupported(f"its positions are scaled by {len(stored)} factors, for heads of {keys.head_dim}")
    if not (theta >= 1 and all(0 < one < math.inf for one in stored)):
        raise Unsupported("the factors that its positions are scaled by are not positive numbers")
    for i, wanted in enumerate(stored):
        turns = original / (2 * math.pi * theta ** (2 * i / keys.head_dim))
        smooth = min(1.0, max(0.0, (turns - low) / (high - low)))
        if not math.isclose(1 / ((1 - smooth) / factor + smooth), wanted, rel_tol=1e-3):
            raise Unsupported("its positions are scaled by factors of its own")
    scaling = {"low_freq_factor": low, "high_freq_factor": high, "original_max_position_embeddings": original}
    return {"rope_type": "llama3", "rope_theta": theta, "factor": factor, **scaling}
