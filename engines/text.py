"""From token ids to text: streaming, and one token's label."""

from __future__ import annotations

import json
from functools import lru_cache

from transformers import PreTrainedTokenizerBase


class Detokenizer:
    """A tokenizer's way back: ``stream()`` for an answer, ``piece()`` for a label."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self._special = set(tokenizer.all_special_ids)
        self._backend = getattr(tokenizer, "backend_tokenizer", None)
        self._bytes = _byte_alphabet() if self._is_byte_level() else None
        self._pieces: dict[int, str] = {}

    def _is_byte_level(self) -> bool:
        return self._backend is not None and '"ByteLevel"' in json.dumps(json.loads(self._backend.to_str())["decoder"])

    def stream(self) -> FastStream | SlowStream:
        """A fresh decoder of one answer; ``step(token)`` returns the text it completes."""
        # tokenizers' own stream breaks on byte-fallback vocabularies, where a lone byte can follow finished text
        return FastStream(self._backend) if self._bytes is not None else SlowStream(self.tokenizer)

    def piece(self, token: int) -> str:
        """The token's own text: special tokens by name, half a character as ``<0xE4>``, unknown ids as ``<id 9>``."""
        piece = self._pieces.get(token)
        if piece is None:
            piece = self._pieces[token] = self._label(token)
        return piece

    def _label(self, token: int) -> str:
        raw = self.tokenizer.convert_ids_to_tokens(token) if 0 <= token < len(self.tokenizer) else None
        if raw is None:
            return f"<id {token}>"
        if isinstance(raw, bytes):
            raw = raw.decode("utf-8", "replace")
        if token in self._special:
            return raw
        if self._bytes is None:
            return raw.replace("▁", " ")
        if not all(ch in self._bytes for ch in raw):  # an added token, stored as plain text
            return raw
        data = bytes(self._bytes[ch] for ch in raw)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "".join(chr(b) if b < 0x80 else f"<0x{b:02X}>" for b in data)


class FastStream:
    """Streaming over the tokenizers library: text is held back until its characters are complete."""

    def __init__(self, backend) -> None:
        from tokenizers.decoders import DecodeStream

        self._backend, self._stream = backend, DecodeStream(skip_special_tokens=True)

    def step(self, token: int) -> str:
        """What this token adds to the text."""
        return self._stream.step(self._backend, token) or ""


class SlowStream:
    """The same for any other tokenizer: decode a short window again with each token."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer, self._ids, self._start, self._done = tokenizer, [], 0, 0

    def step(self, token: int) -> str:
        """What this token adds to the text."""
        self._ids.append(token)
        before = self._decode(self._ids[self._start : self._done])
        after = self._decode(self._ids[self._start :])
        if len(after) <= len(before) or after.endswith("\ufffd"):
            return ""
        self._start, self._done = self._done, len(self._ids)
        return after[len(before) :]

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=True)


@lru_cache
def _byte_alphabet() -> dict[str, int]:
    """Characters of byte-level BPE vocabularies to bytes: printable Latin-1 bytes stand for themselves, the others for
    code points from 256 on, in order (the convention of GPT-2's tokenizer)."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}
