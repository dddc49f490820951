"""Prompt lookup decoding: copy what followed the last n tokens where they occurred before.

Source: Saxena, "Prompt Lookup Decoding" (2023), and the n-gram approach of the guide. Differences, each an option or a
choice of ours: the latest match that still has a full continuation is preferred (upstream takes the oldest), and
several distinct matches can be merged into one tree.
"""

from __future__ import annotations

from engines.options import Option
from engines.registry import EngineSpec

SPEC = EngineSpec(
    id="pld",
    title="Prompt lookup",
    summary="Finds the last few tokens earlier in the prompt or answer and drafts what followed them.",
    source="Saxena 2023, prompt lookup decoding",
    options=(
        Option("max_ngram", 3, "Longest suffix looked for, in tokens.", 1, 64),
        Option("min_ngram", 1, "Shortest suffix that counts as a match.", 1, 64),
        Option("num_tokens", 10, "Tokens copied after a match.", 1, 256),
        Option("num_candidates", 1, "Distinct matches merged into the draft tree.", 1, 16),
    ),
)
