"""The sizes of a model, as its configuration has them, and what they take in memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig

from engines.hub.untrusted_json import is_count, object_in, words_in
from engines.model.causal_model import usable_context
from engines.model.configuration import read_config
from engines.model.masks import FULL, spans

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """The sizes in a configuration. ``attention``: layers by what they see, e.g. ``{"full": 6, "window 512": 20}``.
    ``rows``: numbers that the KV cache holds of a token; None where the configuration does not say."""

    type: str
    architecture: str | None = None
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_size: int | None = None
    vocabulary: int | None = None
    context: int | None = None
    attention: dict[str, int] = field(default_factory=dict)
    rows: int | None = None
    quantised: str | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes at a dtype: weights, KV cache for the whole context and for 1000 tokens of it; and where it fits."""

    dtype: str
    weights: int
    cache: int | None
    cache_per_1000: int | None
    fits: dict[str, bool]


def shape_of(folder: Path, config: PreTrainedConfig | None) -> ModelSizes:
    """The sizes of a decoder; without a configuration that transformers understands, what its file calls itself.

    Raises:
        Exception: transformers took a configuration that makes no sense, of whatever kind; not without one.
    """
    try:
        raw = read_config(folder)
    except (OSError, ValueError):
        raw = {"model_type": "unknown"}
    architecture = next(iter(words_in(raw, "architectures")), None)
    if config is None:
        return ModelSizes(str(raw.get("model_type")), architecture)
    layers, quantised = _number(config, "num_hidden_layers"), object_in(raw, "quantization_config")
    context = usable_context(config, "")[0]
    first = _layer_configs(config, layers)[0]
    heads, kv_heads, size = _heads(first)
    return ModelSizes(
        config.model_type, architecture, layers, _number(config, "hidden_size"), heads, kv_heads, size,
        _number(config, "vocab_size"), context if is_count(context) else None, _attention(config, layers),
        _rows(config, layers), str(quantised.get("quant_method", "yes")) if quantised else None,
    )


def _number(config: PreTrainedConfig, name: str) -> int | None:
    value = getattr(config, name, None)
    return value if is_count(value) and value > 0 else None


def _layer_configs(config: PreTrainedConfig, layers: int | None) -> list[PreTrainedConfig]:
    """The configuration of each layer that keeps rows of its own; at least one, the same one where all are alike."""
    kept = max((layers or 1) - (_number(config, "num_kv_shared_layers") or 0), 1)
    if getattr(config, "is_heterogeneous", False):
        return list(config.per_layer_config)[:kept]
    return [config] * kept


def _heads(config: PreTrainedConfig) -> tuple[int | None, int | None, int | None]:
    """Heads, heads for keys and values, and the size of one."""
    heads, hidden = _number(config, "num_attention_heads"), _number(config, "hidden_size")
    size = _number(config, "head_dim") or (hidden // heads if heads and hidden else None)
    kv_heads = 1 if getattr(config, "multi_query", False) else _number(config, "num_key_value_heads") or heads
    return heads, kv_heads, size


def _rows(config: PreTrainedConfig, layers: int | None) -> int | None:
    """Numbers kept of a token: keys and values of every layer, windows or not (the buffer is one length for all)."""
    if not layers:
        return None
    if latent := _number(config, "kv_lora_rank"):
        return layers * (latent + (_number(config, "qk_rope_head_dim") or 0))
    found = 0
    for layer in _layer_configs(config, layers):
        _, kv_heads, size = _heads(layer)
        if not kv_heads or not size:
            return None
        found += 2 * kv_heads * size
    return found


def _attention(config: PreTrainedConfig, layers: int | None) -> dict[str, int]:
    kinds, sizes = getattr(config, "layer_types", None), spans(config)
    counts = Counter(kinds or {next(iter(sizes or {"unknown": None})): layers or 0})
    words = {}
    for kind, count in counts.items():
        size = (sizes or {}).get(kind)
        word = "full" if kind == FULL else kind.removesuffix("_attention").replace("sliding", "window")
        words[f"{word} {size:,}" if size else word] = count
    return words


def drafts(config: PreTrainedConfig | None) -> str | None:
    """Whether whole trees of drafts can be verified on such a model, or chains only; the test at loading may say
    otherwise. None where nothing is known."""
    if config is None:
        return None
    return "chains" if spans(config) is None else "trees"


def memory(shape: ModelSizes, parameters: int | None, room: dict[str, Any]) -> tuple[Memory, ...]:
    """What the weights and the KV cache take at each dtype; nothing for quantised weights, which are not what their
    count says. ``room``: {"ram": bytes, "gpus": [{"device", "memory"}]}."""
    if not parameters or shape.quantised:
        return ()
    places = {"ram": room["ram"]} | {gpu["device"]: gpu["memory"] for gpu in room["gpus"]}
    found = []
    for dtype, size in BYTES.items():
        weights, cache = parameters * size, None
        if shape.rows and shape.context:
            cache = shape.rows * shape.context * size
        fits = {place: weights + (cache or 0) <= memory for place, memory in places.items() if memory}
        found.append(Memory(dtype, weights, cache, shape.rows * 1000 * size if shape.rows else None, fits))
    return tuple(found)
