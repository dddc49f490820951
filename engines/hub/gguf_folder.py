"""What transformers reads of a model beside its weights, made once from a GGUF file and kept in the cache.

Configuration, tokenizer and chat template are written as transformers' own files, so that everything after this reads
a folder; the weights stay where they are.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from engines import folders
from engines.errors import ModelUnavailable, first_line
from engines.hub.gguf_config import SPECIAL_TOKENS, Unsupported, config_of, token_id
from engines.hub.gguf_file import GgufFile
from engines.machine import content_check, keep, kept

CHECKS = "checks.json"  # of all other files in a folder
_FORM = 6  # of what is written; a new number makes the folders again
_ENDS = {  # tokens that end an answer, by llama.cpp's list, the marks between files at its end
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "</s>", "<eos>", "<turn|>",
    "<end_of_utterance>", "<｜end▁of▁sentence｜>", "[e~[", "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<|fim_repo|>",
    "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>", "<PAD>", "[PAD]",
}  # fmt: skip
_CONTROL, _OWN = 3, 4  # ggml's types of a token that is no text, and of one that is never made of others
# How text is cut before merges are applied, by llama.cpp's names (its src/llama-vocab.cpp).
_EACH_DIGIT = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")
_WHOLE_WORDS = (  # a word that is a token is not merged, and a begin token is added unless the file says otherwise
    "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano", "tekken",
)
_GPT2 = ("gpt-2", "gpt2", "mpt", "olmo", "jais", "phi-2", "roberta-bpe")


def prepared(file: GgufFile) -> Path:
    """The folder of config.json, tokenizer and generation_config.json for a file, written where it is not there yet: in
    the cache, else in a temporary folder that this process removes when it ends.

    Raises:
        ValueError: the model is none of the families that are read, or its tokenizer none that is known.
        ModelUnavailable: neither can be written.
    """
    try:
        return _written(file, folders.cache() / "gguf")
    except OSError as error:
        with suppress(OSError):
            return _written(file, Path(folders.temporary_folder().name))
        raise ModelUnavailable(folders.cache_problem(error), folders.OTHER_CACHE) from None


def _written(file: GgufFile, parent: Path) -> Path:
    """That folder in this one. Raises OSError where it cannot be written, ValueError as above."""
    folder = parent / f"{file.digest}-{_FORM}"
    if _intact(folder):
        return folder
    config = config_of(file)
    parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=parent))
    try:
        _write(file, config, temporary)
        keep(temporary / CHECKS, _checks(temporary))
        try:
            shutil.rmtree(folder, ignore_errors=True)  # damaged, or not there
            os.rename(temporary, folder)
        except OSError:  # another process was faster
            if not _intact(folder):
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _intact(folder: Path) -> bool:
    """Whether all files are there as they were written."""
    try:
        return kept(folder / CHECKS) == _checks(folder)
    except OSError:
        return False


def _checks(folder: Path) -> dict[str, str]:
    """A check of each file's content, by name. Raises OSError."""
    files = sorted(file for file in folder.iterdir() if file.name != CHECKS)
    return {file.name: content_check(folders.read_file(file)) for file in files}


def _write(file: GgufFile, config: dict[str, Any], folder: Path) -> None:
    tokenizer(file, config["max_position_embeddings"]).save_pretrained(folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    for noise in ("is_local", "local_files_only", "gguf_file"):
        settings.pop(noise, None)
    generation = {"eos_token_id": ends_of_answer(file), "bos_token_id": config["bos_token_id"]}
    generation["pad_token_id"] = config["pad_token_id"]
    written = {"tokenizer_config": settings, "generation_config": generation, "config": config}
    for name, content in written.items():
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def ends_by_name(tokens: Collection[str]) -> set[str]:
    """Which of the texts of tokens end an answer, as llama.cpp takes them."""
    found = _ENDS.intersection(tokens)
    return found - {"<|end|>"} if {"<|return|>", "<|call|>"} <= found else found  # there it ends a part of an answer


def ends_of_answer(file: GgufFile) -> list[int]:
    """The tokens that end an answer: those the file names, and those that end one by their text."""
    tokens, _ = tokens_and_types(file)
    named = {token_id(file, name) for name in ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")} - {None}
    by_name = ends_by_name(tokens)
    return sorted(named | {number for number, text in enumerate(tokens) if text in by_name})


def tokenizer(file: GgufFile, context: int) -> Any:
    """The file's tokenizer as a transformers one, with its chat template; ``context`` in tokens. Raises ValueError: a
    kind of tokenizer, or a way to cut text, that is not known here."""
    from tokenizers import pre_tokenizers

    from engines.libraries import hf

    _, types = tokens_and_types(file)
    parts = {name: file.metadata.get(f"tokenizer.{key}") for key, name in hf.gguf_tokenizer_names().items()}
    parts = {name: value for name, value in parts.items() if value is not None}
    parts["token_type"] = types
    kind, cut = parts.get("tokenizer_type"), parts.get("pre_tokenizer_type", "default")
    if kind == "gpt2" and cut not in (*hf.gguf_splits(), *_EACH_DIGIT, *_GPT2):
        raise Unsupported(f"its pre-tokenizer is not supported ({str(cut)[:40]!r})")
    if kind not in ("gpt2", "llama"):
        raise Unsupported(f"its tokenizer type is not supported ({str(kind)[:40]!r})")
    if kind == "gpt2" and not parts.get("merges"):
        raise Unsupported("its tokenizer is damaged: it has no merges")
    try:
        backend = hf.gguf_tokenizer(file.architecture, parts)
    except Exception as error:  # of the Rust library, which has no class for it
        raise Unsupported(f"its tokenizer is damaged: {first_line(error)}") from None
    if kind == "gpt2" and cut in _EACH_DIGIT:
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    if kind == "gpt2":
        backend.model.ignore_merges = cut in _WHOLE_WORDS
    backend = _within(backend, len(parts["tokens"]))
    tokens = parts["tokens"]
    if kind == "llama":
        backend.add_tokens(_with_spaces(tokens, types))
    special = {f"{ours}_token": token_id(file, theirs) for ours, theirs in SPECIAL_TOKENS.items()}
    add_bos = file.metadata.get("tokenizer.ggml.add_bos_token", kind == "llama" or cut in _WHOLE_WORDS)
    made = hf.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        **{name: tokens[number] for name, number in special.items() if number is not None},
        model_max_length=context, clean_up_tokenization_spaces=False,
        add_bos_token=bool(add_bos), add_eos_token=bool(file.metadata.get("tokenizer.ggml.add_eos_token", False)),
    )
    template = file.metadata.get("tokenizer.chat_template")
    if isinstance(template, str):
        made.chat_template = template
    return made


def _with_spaces(tokens: list[str], types: list[int]) -> list[Any]:
    """Tokens of SentencePiece with spaces that are never made of others, as Gemma's runs of spaces. It looks for them,
    the longest first, in the text whose spaces have become its mark; so a mark that somebody types is as a space."""
    from tokenizers import AddedToken

    return [AddedToken(token.replace(" ", "▁"), normalized=True)
            for token, kind in zip(tokens, types) if kind == _OWN and " " in token]


def _within(backend: Any, size: int) -> Any:
    """The tokenizer without the tokens that the class it was made with adds beyond the model's vocabulary."""
    if backend.get_vocab_size(with_added_tokens=True) == size:
        return backend
    content = json.loads(backend.to_str())
    content["added_tokens"] = [token for token in content["added_tokens"] if token["id"] < size]
    return type(backend).from_str(json.dumps(content))


def tokens_and_types(file: GgufFile) -> tuple[list[str], list[int]]:
    """Texts and types of all tokens. Raises ValueError where there are none, or where a text is there twice."""
    tokens, types = (file.metadata.get(f"tokenizer.ggml.{key}") for key in ("tokens", "token_type"))
    if not isinstance(tokens, list) or not tokens or not all(isinstance(token, str) for token in tokens):
        raise Unsupported("it has no tokenizer")
    if not isinstance(types, list) or len(types) != len(tokens):
        types = [1] * len(tokens)
    if len(set(tokens)) != len(tokens):
        raise Unsupported("its vocabulary has a token twice")
    ends = ends_by_name(tokens)  # of whatever type a file says they are
    return tokens, [_CONTROL if text in ends else kind for text, kind in zip(tokens, types)]
