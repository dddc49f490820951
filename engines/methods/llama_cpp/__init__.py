"""llama.cpp's own speculation, in a server that is started for the loaded model's GGUF file.

Source: docs/speculative.md and common/speculative.cpp of llama.cpp. A value of 0 leaves it to llama.cpp.
"""

from __future__ import annotations

from engines.methods.options import Option
from engines.methods.spec import MethodSpec

DRAFT = "draft"  # the way of drafting with a draft model, and the option with its file
EAGLE3 = "eagle3"  # the way of drafting with an EAGLE-3 head, in a file of its own
NGRAMS = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")  # the ways that need no file
KEEPING = frozenset({"ngram-mod"})  # those that draft from earlier answers, too, as long as the server lives

SPEC = MethodSpec(
    id="llama.cpp",
    title="llama.cpp",
    summary="llama.cpp reads the model's GGUF file itself, and drafts in one of its own ways, or not at all.",
    source="llama.cpp, docs/speculative.md",
    drafter="engines.methods.drafter:Drafter",
    explanation="engines.methods.server.explain",
    options=(
        Option("spec", "none", "How it drafts: not at all, after an n-gram that occurred before, with a draft model,"
               " with an EAGLE-3 head.",
               choices=("none", *NGRAMS, DRAFT, EAGLE3)),
        Option("most", 0, "Tokens that it drafts at most; 0: as llama.cpp has it (3 with a draft model or a head, 48"
               " after an n-gram, ngram-mod 64).", low=0, high=256),
        Option("ngram", 0, "Tokens of the n-gram that it looks for; 0: as llama.cpp has it (12, ngram-mod 24).",
               low=0, high=256),
        Option("p_min", 0.0, "A draft model or a head stops where its token is less probable.", low=0, high=1),
        Option(DRAFT, "", "GGUF file of the draft model, or of the EAGLE-3 head; empty: the loaded draft model's."),
        Option("context", 4096, "Tokens that its context holds, where the model's own is not shorter.", low=64,
               high=1 << 20),
    ),
    lossless=None,
    host="llama.cpp",
    flag="--backend llama.cpp --model FILE.gguf",
    default_priority=1,
)
