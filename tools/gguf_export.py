"""Our own models as GGUF files: the sample pair for tests, and the draft model that is trained for smollm2.

For other models llama.cpp has a converter, convert_hf_to_gguf.py, which refuses a tokenizer that it does not know, as
ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.quants import quantize
from safetensors.torch import load_file

_COUNTS = {
    "context_length": "max_position_embeddings", "embedding_length": "hidden_size", "vocab_size": "vocab_size",
    "feed_forward_length": "intermediate_size", "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim", "attention.value_length": "head_dim", "rope.dimension_count": "head_dim",
}
_NORMAL, _CONTROL = 1, 3  # ggml's types of a token


def export(
    folder: Path, file: Path, kind_of: Callable[[str], str], name: str, licence: str = "",
    tokenizer: Mapping[str, Any] | None = None,
) -> None:
    """Write a model of the Llama family, in a single file of safetensors, as a GGUF file.

    Args:
        kind_of: ggml's type for a matrix by its name in the file ("blk.0.ffn_up.weight"). One whose rows are no whole
            blocks of the type is F16; vectors are float32, as llama.cpp has them.
        name: that the file states of the model. ``licence``: SPDX.
        tokenizer: its metadata; None: the folder's own, which is cut as the sample pair's.
    """
    config = json.loads((folder / "config.json").read_text("utf-8"))
    rope = config["rope_parameters"]
    assert config["model_type"] == "llama" and rope["rope_type"] == "default", "other models are llama.cpp's to convert"
    layers = config["num_hidden_layers"]
    writer = gguf.GGUFWriter(file, "llama")
    said = {"general.name": name, "general.license": licence, "llama.rope.freq_base": float(rope["rope_theta"]),
            "llama.attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"])}
    said |= {f"llama.{theirs}": config[ours] for theirs, ours in _COUNTS.items()}
    for key, value in (said | dict(tokenizer or _tokenizer(folder, config))).items():
        _add(writer, key, value)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, layers)
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for stored, weight in load_file(folder / "model.safetensors").items():
        stem, _, suffix = stored.rpartition(".")
        if stem == "lm_head" and config["tie_word_embeddings"]:
            continue
        theirs, numbers = f"{names.get_name(stem)}.{suffix}", weight.float().numpy()
        if count := heads.get(stem.rpartition(".")[2]):  # llama.cpp interleaves the halves of each head's rotation
            halves = numbers.reshape(count, 2, len(numbers) // count // 2, -1)
            numbers = halves.swapaxes(1, 2).reshape(numbers.shape)
        kind = gguf.GGMLQuantizationType[_kind(kind_of(theirs), numbers)]
        writer.add_tensor(theirs, quantize(np.ascontiguousarray(numbers), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _kind(wanted: str, numbers: np.ndarray) -> str:
    if numbers.ndim == 1:
        return "F32"
    block, _ = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[wanted]]
    return wanted if numbers.shape[-1] % block == 0 else "F16"


def _tokenizer(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """The metadata of the sample pair's tokenizer: byte-level BPE that cuts digits one by one."""
    found = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    digits, level = found["pre_tokenizer"]["pretokenizers"]
    assert digits["type"] == "Digits" and level["type"] == "ByteLevel", "llama.cpp has this cut by the name smollm"
    words = found["model"]["vocab"] | {token["content"]: token["id"] for token in found["added_tokens"]}
    tokens = sorted(words, key=words.__getitem__)
    control = {token["content"] for token in found["added_tokens"]}
    keys = {
        "model": "gpt2", "pre": "smollm", "tokens": tokens,
        "token_type": [_CONTROL if token in control else _NORMAL for token in tokens],
        "merges": [" ".join(merge) for merge in found["model"]["merges"]],
        "bos_token_id": config["bos_token_id"], "eos_token_id": words[settings["eos_token"]],
        "padding_token_id": words[settings["pad_token"]], "add_bos_token": False, "add_eos_token": False,
    }
    template = (folder / "chat_template.jinja").read_text("utf-8")
    return {f"tokenizer.ggml.{key}": value for key, value in keys.items()} | {"tokenizer.chat_template": template}


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    adders = {list: writer.add_array, bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
    adders.get(type(value), writer.add_string)(key, value)
