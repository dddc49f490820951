"""Rows of the training data, the tokenizer trained on them, and the encoded token streams."""

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

SPECIAL_TOKENS = ("<|endoftext|>", "<|pad|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>")
CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] | trim }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
REAL_SOURCES = ("chat", "code", "docs", "stories")
UNCLEAR_SOURCE = "GPTeacher"  # rows of unclear origin, left out
MAX_TOKENIZER_DOCUMENTS = 150_000


def row_files(data_dir: Path, split: str) -> dict[str, Path]:
    """Name and path of every row file of a split ("train" or "valid"), sorted by name."""
    files = {}
    for path in sorted(data_dir.glob("*.jsonl.gz")):
        name = path.name.removesuffix(".jsonl.gz")
        if name.endswith(".valid") == (split == "valid"):
            files[name.removesuffix(".valid")] = path
    return files


def rows(path: Path) -> Iterator[dict]:
    """The rows of one gzipped JSON-lines file that training may use."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if UNCLEAR_SOURCE not in row.get("source", ""):
                yield row


def document(row: dict) -> str:
    """The text a row is trained on: a chat in the template's form, or plain text."""
    if "messages" not in row:
        return row["text"].strip() + "\n" + SPECIAL_TOKENS[0]
    turns = (f"<|{m['role']}|>\n{m['content'].strip()}<|end|>\n" for m in row["messages"])
    return "".join(turns) + SPECIAL_TOKENS[0]


def plain(text: str) -> str:
    """Lower-case words with single spaces, to compare texts by."""
    return " ".join(re.findall(r"\w+", text.lower()))


def train_tokenizer(documents: list[str], vocabulary: int, context: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with one token per digit and the chat template."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    every = max(1, len(documents) // MAX_TOKENIZER_DOCUMENTS)
    bpe.train_from_iterator(documents[::every], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|end|>",
        pad_token="<|pad|>",
        bos_token=None,
        model_max_length=context,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def reuse_tokenizer(folder: Path, context: int) -> PreTrainedTokenizerFast:
    """An existing tokenizer that states the given context length."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.model_max_length = context
    for noise in ("is_local", "local_files_only"):  # how it was loaded here says nothing about it
        tokenizer.init_kwargs.pop(noise, None)
    return tokenizer


def encode(tokenizer: PreTrainedTokenizerFast, documents: list[str], out: Path) -> int:
    """Write the documents' tokens, where each starts and how many bytes they are; return the token count."""
    encoded = []
    for i in range(0, len(documents), 2000):
        batch = tokenizer.backend_tokenizer.encode_batch(documents[i : i + 2000], add_special_tokens=False)
        encoded += [np.array(e.ids, dtype=np.uint16) for e in batch]
    tokens = np.concatenate(encoded)
    starts = np.cumsum([0] + [len(e) for e in encoded[:-1]])
    size = sum(len(d.encode()) for d in documents)
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez(out, tokens=tokens, starts=starts, bytes=size)
    return len(tokens)


def prepare(data_dir: Path, work: Path, vocabulary: int, context: int, tokenizer_dir: Path | None) -> None:
    """Train (or reuse) the tokenizer and encode every source of both splits below `work`."""
    texts = {
        (split, name): [document(row) for row in rows(path)]
        for split in ("train", "valid")
        for name, path in row_files(data_dir, split).items()
    }
    if not any(split == "train" for split, _ in texts):
        raise SystemExit(f"no *.jsonl.gz training rows in {data_dir}")
    if tokenizer_dir:
        tokenizer = reuse_tokenizer(tokenizer_dir, context)
    else:
        train = [text for (split, _), batch in texts.items() if split == "train" for text in batch]
        tokenizer = train_tokenizer(train, vocabulary, context)
    for (split, name), batch in texts.items():
        count = encode(tokenizer, batch, work / "streams" / split / f"{name}.npz")
        print(f"prepare: {split} {name}: {len(batch)} documents, {count} tokens")
    tokenizer.save_pretrained(work / "tokenizer")  # last: it marks the stage as done
