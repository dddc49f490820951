"""What a GGUF file says of a model, from a folder's config.json, and which tensors it has: the other way of
``gguf_config``. What llama.cpp would not compute the same is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from engines.hub.gguf_config import Unsupported
from engines.hub.untrusted_json import object_in

ROPE_FACTORS = "rope_freqs"
_ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}  # by transformers' names
_COUNTS = {
    "context_length": "max_position_embeddings", "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size", "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
}  # fmt: skip
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufModel:
    """A model as llama.cpp has it.

    Attributes:
        architecture: in llama.cpp's words.
        keys: metadata, without that of the tokenizer.
        shapes: of each tensor by transformers' name for it.
        heads: how many heads' rows a tensor has whose halves llama.cpp interleaves, by transformers' name.
        rope_factors: float32, one for each frequency, where positions are scaled by them; else None.
    """

    architecture: str
    keys: Mapping[str, Any]
    shapes: Mapping[str, Shape]
    heads: Mapping[str, int]
    rope_factors: np.ndarray | None

    @property
    def layers(self) -> int:
        return self.keys[f"{self.architecture}.block_count"]


def gguf_model(config: dict[str, Any]) -> GgufModel:
    """A model from the content of its config.json. Raises Unsupported."""
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in _ARCHITECTURES:
        raise Unsupported(f"its architecture is {str(kind)[:40]}; these are written: {', '.join(_ARCHITECTURES)}")
    _refuse(config)
    counts = {theirs: _count(config, ours) for theirs, ours in _COUNTS.items()}
    hidden, heads = counts["embedding_length"], counts["attention.head_count"]
    kv_heads = _count(config, "num_key_value_heads", heads if kind == "llama" else None)
    head = _count(config, "head_dim", None if kind == "qwen3" else hidden // heads)
    if head % 2:
        raise Unsupported(f"its heads have an odd number of dimensions ({head})")
    epsilon = config.get("rms_norm_eps")
    if type(epsilon) not in (int, float) or not 0 < epsilon < 1:
        raise Unsupported("its config.json does not state rms_norm_eps")
    rope, factors = _rope(config, head)
    counts |= {
        "attention.head_count_kv": kv_heads, "attention.key_length": head, "attention.value_length": head,
        "rope.dimension_count": head, "vocab_size": _count(config, "vocab_size"),
    }  # fmt: skip
    keys = counts | {"attention.layer_norm_rms_epsilon": float(epsilon)} | rope
    shapes = _shapes(config, hidden, {"q": heads * head, "k": kv_heads * head, "v": kv_heads * head})
    if kind == "qwen3":
        shapes |= {f"model.layers.{i}.self_attn.{name}_norm.weight": (head,)
                   for i in range(counts["block_count"]) for name in "qk"}
    architecture = _ARCHITECTURES[kind]
    rotated = {name: heads if ".q_proj." in name else kv_heads
               for name in shapes if architecture == "llama" and (".q_proj." in name or ".k_proj." in name)}
    return GgufModel(
        architecture=architecture, keys={f"{architecture}.{name}": value for name, value in keys.items()},
        shapes=shapes, heads=rotated, rope_factors=factors,
    )


def _refuse(config: dict[str, Any]) -> None:
    """Raises Unsupported for what llama.cpp has another idea of."""
    kind = config["model_type"]
    if config.get("quantization_config"):
        raise Unsupported("its weights are quantised already, in a way that GGUF does not have")
    if config.get("hidden_act", "silu") != "silu":
        raise Unsupported(f"its MLPs have another activation than silu ({str(config['hidden_act'])[:40]!r})")
    windowed = config.get("use_sliding_window", kind == "mistral") and config.get("sliding_window")
    kinds = config.get("layer_types")
    if windowed or (isinstance(kinds, list) and any(layer != "full_attention" for layer in kinds)):
        raise Unsupported("its attention sees a window of the text, which llama.cpp leaves out for it")
    if kind in ("mistral", "qwen3") and config.get("attention_bias"):
        raise Unsupported("its attention has biases")
    if config.get("partial_rotary_factor", 1) != 1:
        raise Unsupported("it rotates a part of each head")


def _count(config: dict[str, Any], name: str, otherwise: int | None = None) -> int:
    """A positive whole number. Raises Unsupported."""
    value = config.get(name)
    value = otherwise if value is None else value
    if type(value) is not int or not 0 < value < 1 << 31:
        raise Unsupported(f"its config.json does not state {name}")
    return value


def _shapes(config: dict[str, Any], hidden: int, attention: dict[str, int]) -> dict[str, Shape]:
    """Shapes of all tensors by transformers' names; ``attention``: rows of Q, K and V."""
    rows, mlp = _count(config, "vocab_size"), _count(config, "intermediate_size")
    llama, qwen2 = config["model_type"] == "llama", config["model_type"] == "qwen2"
    attention_bias, mlp_bias = llama and config.get("attention_bias"), llama and config.get("mlp_bias")
    linear = {f"self_attn.{name}_proj": (count, hidden, attention_bias or qwen2) for name, count in attention.items()}
    linear["self_attn.o_proj"] = (hidden, attention["q"], attention_bias)
    linear |= {f"mlp.{name}_proj": (mlp, hidden, mlp_bias) for name in ("gate", "up")}
    linear["mlp.down_proj"] = (hidden, mlp, mlp_bias)
    found: dict[str, Shape] = {"model.embed_tokens.weight": (rows, hidden)}
    for i in range(_count(config, "num_hidden_layers")):
        layer = f"model.layers.{i}."
        found |= {f"{layer}{name}.weight": (hidden,) for name in ("input_layernorm", "post_attention_layernorm")}
        found |= {f"{layer}{name}.weight": (outputs, inputs) for name, (outputs, inputs, _) in linear.items()}
        found |= {f"{layer}{name}.bias": (outputs,) for name, (outputs, _, biased) in linear.items() if biased}
    found["model.norm.weight"] = (hidden,)
    if not config.get("tie_word_embeddings"):
        found["lm_head.weight"] = (rows, hidden)
    return found


def _rope(config: dict[str, Any], head: int) -> tuple[dict[str, Any], np.ndarray | None]:
    """How positions rotate: metadata, and factors by frequency where there are any. Raises Unsupported."""
    said = object_in(config, "rope_scaling") | object_in(config, "rope_parameters")
    theta = said.get("rope_theta", config.get("rope_theta", 10_000.0))
    kind, factor = said.get("rope_type", said.get("type", "default")), said.get("factor", 1.0)
    if not all(type(number) in (int, float) and 0 < number < 1e30 for number in (theta, factor)):
        raise Unsupported("its positions are rotated by what are no numbers")
    keys: dict[str, Any] = {"rope.freq_base": float(theta)}
    if kind == "default":
        return keys, None
    if kind == "linear":
        return keys | {"rope.scaling.type": "linear", "rope.scaling.factor": float(factor)}, None
    if kind == "llama3" and all(said.get(name) == usual for name, usual in _LLAMA3.items()):
        return keys, llama3_factors(float(theta), float(factor), head)
    raise Unsupported(f"its positions are scaled in a way that is not written here ({str(kind)[:40]!r})")


def llama3_factors(theta: float, factor: float, head: int) -> np.ndarray:
    """Llama 3.1's scaling of positions as llama.cpp's converter writes it: what each frequency is divided by, float32
    [head // 2]."""
    turns = _LLAMA3["original_max_position_embeddings"] / (2 * math.pi * theta ** (np.arange(0, head, 2) / head))
    low, high = _LLAMA3["low_freq_factor"], _LLAMA3["high_freq_factor"]
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)
