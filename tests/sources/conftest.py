"""A tiny model as it lies on the hub, with everything around it that is of no use here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import make_llama, make_tokenizer

NEEDED = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}


def save(folder: Path, seed: int = 1, **changes) -> Path:
    """A random model with its tokenizer, saved."""
    make_llama(seed, **changes).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def saved(tmp_path_factory) -> Path:
    """A model folder as transformers saves it."""
    return save(tmp_path_factory.mktemp("saved"))


@pytest.fixture(scope="session")
def crowded(saved) -> dict[str, bytes]:
    """The same as on the hub, among files for other programs."""
    useless = {
        "README.md": b"# a card", ".gitattributes": b"x", "pytorch_model.bin": b"pickle" * 900, "model.gguf": b"g" * 99,
        "onnx/model.onnx": b"o" * 900, "original/model.safetensors": b"m" * 900, "consolidated.safetensors": b"c" * 900,
        "model.fp16.safetensors": b"v" * 900, "trainer_state.json": b"{}", "modeling_own.py": b"raise SystemExit",
        "flax_model.msgpack": b"f" * 900, "tf_model.h5": b"t" * 900, "config_sentence_transformers.json": b"{}",
    }
    return {p.name: p.read_bytes() for p in saved.iterdir()} | useless
