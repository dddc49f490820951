"""Text from models, prompts and files is untrusted: what can steer a terminal is made visible instead."""

from __future__ import annotations

# C0 (except newline and tab), DEL and C1 become pictures; bidirectional overrides and other invisible steering
# characters become a replacement mark, so that what is read is what was written; so do lone surrogates, which no
# terminal can be sent.
_PICTURES = {c: 0x2400 + c for c in range(32) if c not in (9, 10)} | {127: 0x2421}
_MARKS = dict.fromkeys(
    [*range(0x80, 0xA0), 0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A), 0xFEFF,
     *range(0xD800, 0xE000)], 0xFFFD
)
_TABLE = _PICTURES | _MARKS

LOSSY = "LOSSY"
"""The mark of everything that does not keep the target's distribution, wherever it is shown."""


def sanitise(text: str) -> str:
    """The text with everything that could steer a terminal made visible; newlines and tabs stay."""
    return text.translate(_TABLE)


def one_line(text: str, width: int | None = None) -> str:
    """A label: control characters and line breaks as visible marks, cut to ``width`` characters with an ellipsis, after
    a whole word if that leaves half of them."""
    text = sanitise(text).replace("\n", "↵").replace("\t", "→")
    if width is None or len(text) <= width:
        return text
    kept = text[: max(0, width - 1)]
    words = kept if text[len(kept)].isspace() else kept.rpartition(" ")[0]
    return (words.rstrip() if len(words) >= width // 2 else kept) + "…"


def visible(piece: str) -> str:
    """A token as a label: as ``one_line``, and spaces as middle dots."""
    return one_line(piece).replace(" ", "·")
