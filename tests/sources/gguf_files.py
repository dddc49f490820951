"""Tiny GGUF files with random weights, of every family that is read; and the sample pair as such."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import gguf_export

HIDDEN, LAYERS, HEADS, KV_HEADS, CONTEXT = 256, 2, 4, 2, 256
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {"bias": True},
    "qwen3": {"head": 32, "qk_norm": True},
    "gemma2": {
        "head": 32, "post_norms": True, "window": 4,
        "floats": {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    },
    "gemma3": {"head": 32, "qk_norm": True, "post_norms": True, "window": 4},
    "phi3": {"fused": True},
    "granite": {"floats": {"attention.scale": 0.2, "embedding_scale": 3.0, "residual_scale": 0.5, "logit_scale": 2.0}},
    "olmo2": {"qk_norm": True, "joint_norms": True, "post_norms": True, "pre_norms": False, "untied": True},
}  # fmt: skip
# What makes random blocks numbers of the usual size, and the bytes where it stands.
SCALES = {
    "Q2_K": (5e-3, 80, 82), "Q3_K": (2e-3, 108), "Q4_K": (2e-4, 0, 2), "Q5_K": (1e-4, 0, 2), "Q6_K": (5e-5, 208),
    "IQ4_NL": (5e-4, 0), "IQ4_XS": (3e-5, 0),
}
PIECES = "SentencePiece"
SPECIAL = ("<|end|>", "<|user|>", "<|im_end|>")


def exported(folder: Path, file: Path, kind: str = "F32") -> Path:
    """A model of the sample pair as a GGUF file."""
    gguf_export.export(folder, file, lambda _: kind, "a model")
    return file


def alphabet() -> list[str]:
    """The 256 bytes as byte-level tokenizers write them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [b for b in range(256) if b not in plain]
    spelled = {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(other)}
    return [spelled[b] for b in range(256)]


def vocabulary() -> tuple[list[str], list[str]]:
    """Tokens and merges: bytes, some words and numbers that would be merged, and control tokens."""
    tokens, merges = alphabet(), []
    words = ("th", "the", "Ġt", "Ġth", "Ġthe", "er", "in", "an", "12", "123", "Ġ1", "Ġ12", "'s", "ĠĠ", "ĊĊ", "!!", "ll")
    for word in words:
        tokens.append(word)
        head = max((t for t in tokens[:-1] if word.startswith(t)), key=len)
        merges.append(f"{head} {word[len(head):]}")
    return [*tokens, *SPECIAL], merges


def pieces() -> tuple[list[str], list[int]]:
    """Tokens of a SentencePiece model and their types: some words, and as Gemma's has them: bytes, and runs of newlines
    and of spaces that are symbols of their own."""
    words = ["▁", *"abcdefghijklmnopqrstuvwxyz0123456789.,<>", "th", "▁a", "▁t", "▁th", "▁the", "the", "in", "an"]
    kinds = {
        3: ["<pad>", "<eos>", "<bos>"], 2: ["<unk>"], 4: ["\n", "\n\n", "\t", *(" " * n for n in range(2, 6)), "<b>"],
        6: [f"<0x{byte:02X}>" for byte in range(256)], 1: words,
    }
    return [token for some in kinds.values() for token in some], [kind for kind, some in kinds.items() for _ in some]


class Tiny:
    """Writes one model; ``change`` may alter the writer before the file is written. ``pre``: how its tokenizer cuts
    text, or ``PIECES`` for one of SentencePiece."""

    def __init__(self, architecture: str, kind: str = "F32", seed: int = 0, pre: str = "gpt-2", **more: Any) -> None:
        self.family = FAMILIES[architecture] | more
        self.architecture, self.kind, self.pre = architecture, gguf.GGMLQuantizationType[kind], pre
        self.rng = np.random.default_rng(seed)
        self.head = self.family.get("head", HIDDEN // HEADS)
        self.tokens, self.merges = (pieces()[0], []) if pre == PIECES else vocabulary()

    def write(self, path: Path, change=lambda writer: None) -> Path:
        writer = gguf.GGUFWriter(path, self.architecture)
        self._sizes(writer)
        self.put_tokenizer(writer)
        self._tensors(writer)
        change(writer)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def write_head(self, path: Path) -> Path:
        """An EAGLE-3 head for this model, as llama.cpp reads one."""
        writer = gguf.GGUFWriter(path, "eagle3")
        self._sizes(writer, blocks=1)
        self.put_tokenizer(writer)
        writer.add_array("eagle3.target_layers", [0, 1, 1])
        writer.add_uint32("eagle3.target_hidden_size", HIDDEN)
        rows = {"fc": (HIDDEN, 3 * HIDDEN), "output": (len(self.tokens), HIDDEN)}
        heads = {"q": HEADS, "k": KV_HEADS, "v": KV_HEADS}
        rows |= {f"blk.0.attn_{name}": (count * self.head, 2 * HIDDEN) for name, count in heads.items()}
        rows |= {f"blk.0.{name}": (HIDDEN, HIDDEN) for name in ("attn_output", "ffn_gate", "ffn_up", "ffn_down")}
        for name, size in rows.items():
            self.put(writer, f"{name}.weight", *size)
        for name in ("output_norm", "blk.0.attn_norm", "blk.0.attn_norm_2", "blk.0.ffn_norm"):
            self._norm(writer, f"{name}.weight", HIDDEN)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def _sizes(self, writer: gguf.GGUFWriter, blocks: int = LAYERS) -> None:
        writer.add_context_length(CONTEXT)
        writer.add_embedding_length(HIDDEN)
        writer.add_feed_forward_length(HIDDEN)
        writer.add_block_count(blocks)
        writer.add_head_count(HEADS)
        writer.add_head_count_kv(KV_HEADS)
        writer.add_rope_freq_base(10_000.0)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_dimension_count(self.head)
        writer.add_vocab_size(len(self.tokens))
        writer.add_key_length(self.head)
        writer.add_value_length(self.head)
        if window := self.family.get("window"):
            writer.add_sliding_window(window)
        for name, value in self.family.get("floats", {}).items():
            writer.add_float32(f"{self.architecture}.{name}", value)

    def put_tokenizer(self, writer: gguf.GGUFWriter) -> None:
        if self.pre == PIECES:
            self._pieces(writer)
            return
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(self.pre)
        writer.add_token_list(self.tokens)
        writer.add_token_merges(self.merges)
        writer.add_token_types([3 if t in SPECIAL else 1 for t in self.tokens])
        writer.add_bos_token_id(self.tokens.index("<|user|>"))
        writer.add_eos_token_id(self.tokens.index("<|end|>"))
        writer.add_add_bos_token(False)
        writer.add_chat_template("{% for m in messages %}<|user|>{{ m.content }}{% endfor %}")

    def _pieces(self, writer: gguf.GGUFWriter) -> None:
        types = pieces()[1]
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_list(self.tokens)
        writer.add_token_scores([-float(n) if kind == 1 else -1000.0 for n, kind in enumerate(types)])
        writer.add_token_types(types)
        for name in ("pad", "eos", "bos", "unk"):
            getattr(writer, f"add_{name}_token_id")(self.tokens.index(f"<{name}>"))
        writer.add_add_bos_token(True)
        writer.add_add_space_prefix(False)

    def _tensors(self, writer: gguf.GGUFWriter) -> None:
        wide, narrow = HEADS * self.head, KV_HEADS * self.head
        self.put(writer, "token_embd.weight", len(self.tokens), HIDDEN)
        self._norm(writer, "output_norm.weight", HIDDEN)
        if self.family.get("untied"):
            self.put(writer, "output.weight", len(self.tokens), HIDDEN)
        for block in (f"blk.{i}." for i in range(LAYERS)):
            if self.family.get("pre_norms", True):
                self._norm(writer, block + "attn_norm.weight", HIDDEN)
                self._norm(writer, block + "ffn_norm.weight", HIDDEN)
            if self.family.get("post_norms"):
                self._norm(writer, block + "post_attention_norm.weight", HIDDEN)
                self._norm(writer, block + "post_ffw_norm.weight", HIDDEN)
            if self.family.get("qk_norm"):
                joint = self.family.get("joint_norms")
                self._norm(writer, block + "attn_q_norm.weight", wide if joint else self.head)
                self._norm(writer, block + "attn_k_norm.weight", narrow if joint else self.head)
            if self.family.get("fused"):
                self.put(writer, block + "attn_qkv.weight", wide + 2 * narrow, HIDDEN)
                self.put(writer, block + "ffn_up.weight", 2 * HIDDEN, HIDDEN)
            else:
                for name, rows in (("q", wide), ("k", narrow), ("v", narrow)):
                    self.put(writer, f"{block}attn_{name}.weight", rows, HIDDEN)
                    if self.family.get("bias"):
                        bias = self.rng.normal(0, 0.1, rows).astype(np.float32)
                        writer.add_tensor(f"{block}attn_{name}.bias", bias)
                self.put(writer, block + "ffn_gate.weight", HIDDEN, HIDDEN)
                self.put(writer, block + "ffn_up.weight", HIDDEN, HIDDEN)
            self.put(writer, block + "attn_output.weight", HIDDEN, wide)
            self.put(writer, block + "ffn_down.weight", HIDDEN, HIDDEN)

    def _norm(self, writer: gguf.GGUFWriter, name: str, size: int) -> None:
        writer.add_tensor(name, (1 + self.rng.normal(0, 0.1, size)).astype(np.float32))

    def put(self, writer: gguf.GGUFWriter, name: str, rows: int, columns: int) -> None:
        weight = self.rng.normal(0, 0.08, (rows, columns)).astype(np.float32)
        kind = self.kind
        try:
            stored = gguf.quants.quantize(weight, kind)
        except NotImplementedError:  # K-quants and tables: blocks of random bytes with small scales
            block, size = gguf.GGML_QUANT_SIZES[kind]
            stored = self.rng.integers(0, 256, (rows, columns // block, size), dtype=np.uint8)
            scale, *places = SCALES[kind.name]
            for at in places:
                stored[:, :, at : at + 2] = np.array([scale], np.float16).view(np.uint8)
            stored = stored.reshape(rows, -1)
        writer.add_tensor(name, stored, raw_dtype=kind)
