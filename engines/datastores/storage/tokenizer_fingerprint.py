"""Which token ids mean the same: a fingerprint of a vocabulary."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any


def of_vocabulary(vocabulary: Mapping[str, int]) -> str:
    """Fingerprint of token -> id, added tokens included, in whatever order: 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for number, token in sorted((number, token) for token, number in vocabulary.items()):
        word = token.encode("utf-8", "surrogatepass")
        digest.update(b"%d %d " % (number, len(word)))
        digest.update(word)
    return digest.hexdigest()


def of_tokenizer(tokenizer: Any) -> str:
    """Fingerprint of a tokenizer of transformers: two that share it give each id the same meaning."""
    return of_vocabulary(tokenizer.get_vocab())


def vocab_size(tokenizer: Any) -> int:
    """One above the highest token id; ids that no token has lie below it too."""
    return max(tokenizer.get_vocab().values(), default=-1) + 1
