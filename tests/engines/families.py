"""Tiny random models of many families, with windows smaller than the texts of the tests."""

from __future__ import annotations

import torch

from engines.model.causal_model import CausalModel
from engines.model.fused_layers import fuse
from engines.model.lean_forward import LeanForward, fits
from engines.model.native.native_forward import NativeBuffer
from engines.model.selftest import selftest

WINDOW = 6
MIXED = ["sliding_attention", "full_attention"]
_WINDOWED = {"sliding_window": WINDOW}
_QWEN = {"use_sliding_window": True, "layer_types": MIXED, **_WINDOWED}
_MIXED = {"layer_types": MIXED, **_WINDOWED}
_MLA = {
    "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
    "v_head_dim": 12, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_group": 1,
    "topk_group": 1, "first_k_dense_replace": 1, "n_shared_experts": 1,
}
_STATE = {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}

# name -> (model type, changes to the configuration)
NAMED = {
    "llama": ("llama", {}),
    "qwen2": ("qwen2", {}),
    "qwen2 with window": ("qwen2", _QWEN),
    "qwen3": ("qwen3", {}),
    "mistral": ("mistral", {"sliding_window": None}),
    "mistral with window": ("mistral", _WINDOWED),
    "gemma2": ("gemma2", {"head_dim": 8, **_MIXED}),
    "gemma3": ("gemma3_text", {"head_dim": 8, **_MIXED}),
    "gpt2": ("gpt2", {}),
    "gpt_neox": ("gpt_neox", {}),
    "phi3": ("phi3", {"sliding_window": None}),
    "phi3 with window": ("phi3", _WINDOWED),
    "smollm3": ("smollm3", {"no_rope_layers": [1, 0]}),
    "smollm3 with window": ("smollm3", {"no_rope_layers": [1, 0], **_QWEN}),
}
TREES = {
    "opt": ("opt", {"ffn_dim": 64, "word_embed_proj_dim": 32}),
    "gptj": ("gptj", {"rotary_dim": 4}),
    "falcon with rope": ("falcon", {"alibi": False}),
    "starcoder2": ("starcoder2", _WINDOWED),
    "mixtral": ("mixtral", {"num_local_experts": 4, **_WINDOWED}),
    "olmo2": ("olmo2", {}),
    "olmo3": ("olmo3", _MIXED),
    "stablelm": ("stablelm", {}),
    "granite": ("granite", {}),
    "cohere2": ("cohere2", _MIXED),
    "gpt_oss": ("gpt_oss", {"head_dim": 8, "num_local_experts": 4, **_MIXED}),
    "deepseek_v2": ("deepseek_v2", _MLA),
    "deepseek_v3": ("deepseek_v3", _MLA),
    "longcat, which uses the weight of its router itself": ("longcat_flash", {
        **{name: value for name, value in _MLA.items() if name not in ("n_group", "topk_group", "n_shared_experts")},
        "num_layers": 2, "head_dim": 8, "v_head_dim": 8, "ffn_hidden_size": 64, "expert_ffn_hidden_size": 32,
        "moe_topk": 2, "zero_expert_num": 2,
    }),
    "llama4 with chunks": ("llama4_text", {
        "head_dim": 8, "attention_chunk_size": WINDOW, "num_local_experts": 2, "intermediate_size_mlp": 64,
        "layer_types": ["chunked_attention", "full_attention"], "no_rope_layers": [1, 0],
    }),
    "gemma4 with shared keys": ("gemma4_text", {
        "head_dim": 8, "global_head_dim": 16, "sliding_window": WINDOW, "num_hidden_layers": 4,
        "num_kv_shared_layers": 2, "vocab_size_per_layer_input": 260, "hidden_size_per_layer_input": 8,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    }),
    "gemma3 of text and images": ("gemma3", {
        "text_config": {
            "vocab_size": 260, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 8,
            "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512, "pad_token_id": 0,
            **_MIXED,
        },
        "vision_config": {
            "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1,
            "image_size": 28, "patch_size": 14,
        },
        "mm_tokens_per_image": 4,
    }),
}
CHAINS = {
    "bloom": ("bloom", {}),
    "mpt": ("mpt", {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 256}),
    "falcon with alibi": ("falcon", {"alibi": True}),
    "gpt_neo": ("gpt_neo", {"window_size": WINDOW, "attention_types": [[["global", "local"], 1]]}),
    "llama that names a window and has none": ("llama", {"sliding_window": 64}),
}
STATE, ENCODER, CACHE, INDEX = "running state", "it is an encoder", "no keys and values", "an index"
COUNTS = "several tokens are fed at once"
REFUSED = {
    "mamba": ("mamba", _STATE, STATE),
    "mamba2": ("mamba2", {**_STATE, "num_heads": 4, "head_dim": 16}, STATE),
    "rwkv": ("rwkv", {"attention_hidden_size": 32}, STATE),
    "jamba": ("jamba", {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 8}, STATE),
    "lfm2": ("lfm2", {"layer_types": ["conv", "full_attention"], "block_ff_dim": 64}, STATE),
    "qwen3_next": ("qwen3_next", {"num_experts": 2, "moe_intermediate_size": 32}, STATE),
    "recurrent_gemma": ("recurrent_gemma", {"num_key_value_heads": 1, "lru_width": 32}, STATE),
    "bert": ("bert", {}, ENCODER),
    "roberta, which leaves padding out of its positions": ("roberta", {"is_decoder": True}, COUNTS),
    "gpt": ("openai-gpt", {}, CACHE),
    "deepseek_v32": ("deepseek_v32", {**_MLA, "index_n_heads": 4, "index_head_dim": 16, "index_topk": 8}, INDEX),
}
_COMMON = {
    "vocab_size": 260, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "bos_token_id": None, "eos_token_id": 0,
    "pad_token_id": 0,
}


def make(model_type: str, changes: dict, seed: int = 1, noise: float = 0.0, dtype=torch.float32):
    """A random model whose logits are spread; with ``noise``, one that agrees with that of the seed now and then."""
    from transformers import AutoConfig, AutoModelForCausalLM

    plain = AutoConfig.for_model(model_type)
    known = {name: value for name, value in _COMMON.items() if hasattr(plain, name)}
    config = AutoConfig.for_model(model_type, **(known | changes))
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.3)
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3 * noise)
    return model.to(dtype).eval()


def as_on_a_gpu(model, name: str, strict: bool = False) -> CausalModel:
    """A model by torch's operations, as it runs where there is no native code: by our own forward where that fits."""
    compute = None
    if fits(model):
        fuse(model)
        compute = LeanForward(model)
    made = CausalModel(model, name, compute=compute)
    assert selftest(made) is None
    if strict:
        made.be_strict()
    return made


def cached(model: CausalModel, end: int | None = None) -> list[torch.Tensor]:
    """Keys and values of each layer in turn, [1, heads, rows, dim]: copies of the rows up to ``end``, or of all
    committed ones, however the buffer lays them out."""
    found = []
    for layer in model.cache.layers:
        keys, rows = layer.keys, slice(model.length if end is None else end)
        if isinstance(model.cache, NativeBuffer):
            heads, capacity, dim = keys.shape[1:]
            keys = keys.reshape(1, heads, capacity // 16, dim, 16).transpose(3, 4).reshape(keys.shape)
        found += [keys[..., rows, :].clone(), layer.values[..., rows, :].clone()]
    return found
