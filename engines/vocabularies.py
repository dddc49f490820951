"""Two vocabularies compared by what their tokens spell, so that any model can draft for any other.

Source: Timor et al. 2025 (TLI, token-level intersection): a draft model is restricted to the tokens that both have. The
text that it reads is spelled in its own tokens, each of the target's tokens by itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@lru_cache
def byte_alphabet() -> dict[str, int]:
    """Characters of byte-level BPE vocabularies to bytes: printable Latin-1 bytes stand for themselves, the others for
    code points from 256 on, in order (the convention of GPT-2's tokenizer)."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}


def spelled(vocabulary: Mapping[str, int]) -> dict[bytes, int]:
    """Ids by what a token spells, of a tokenizer's ``get_vocab()``; of tokens that spell the same the smallest id.

    Bytes are written in GPT-2's alphabet where any token begins with its space, else as ``<0xE4>``, with ``▁`` for
    a space.
    """
    alphabet = byte_alphabet()
    byte_level = any(token.startswith("Ġ") for token in vocabulary)

    def spell(token: str) -> bytes:
        if byte_level:
            plain = all(ch in alphabet for ch in token)  # else an added token, stored as plain text
            return bytes(alphabet[ch] for ch in token) if plain else token.encode("utf-8", "replace")
        if byte := _BYTE.fullmatch(token):
            return bytes([int(byte[1], 16)])
        return token.replace("▁", " ").encode("utf-8", "replace")

    found: dict[bytes, int] = {}
    for token, number in sorted(vocabulary.items(), key=lambda item: item[1]):
        found.setdefault(spell(token), number)
    found.pop(b"", None)
    return found


def shared_tokens(theirs: Mapping[str, int], ours: Mapping[str, int]) -> int:
    """How many tokens of one vocabulary another spells too."""
    return len(spelled(theirs).keys() & spelled(ours).keys())


class Translation:
    """From a target's tokens to a draft model's.

    Attributes:
        shared: ids of the draft model by ids of the target, of the tokens that both have.
        share: of the target's tokens that are among them, 0..1.
    """

    def __init__(self, theirs: Mapping[str, int], ours: Mapping[str, int]) -> None:
        self._theirs, own = spelled(theirs), spelled(ours)
        self._spelling = {number: spelling for spelling, number in own.items()}
        self.shared = {number: self._theirs[spelling] for number, spelling in self._spelling.items()
                       if spelling in self._theirs}
        self.share = len(self.shared) / max(1, len(ours))
        self._longest = max(map(len, self._theirs), default=0)
        self._read: dict[int, tuple[int, ...]] = {}

    def read(self, token: int) -> tuple[int, ...]:
        """A token of the target in tokens of the draft model, the longest that fit first; nothing where it has none."""
        if token in self.shared:
            return (self.shared[token],)
        if token not in self._read:
            self._read[token] = tuple(self._pieces(self._spelling.get(token, b"")))
        return self._read[token]

    def _pieces(self, spelling: bytes) -> list[int]:
        found, start = [], 0
        while start < len(spelling):
            ends = range(min(len(spelling), start + self._longest), start, -1)
            end = next((end for end in ends if spelling[start:end] in self._theirs), None)
            if end is not None:
                found.append(self._theirs[spelling[start:end]])
            start = end or start + 1
        return found
