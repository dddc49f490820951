"""llama.cpp's own speculation, in a server that is started for the loaded model's GGUF file.

Source: docs/speculative.md and common/speculative.cpp of llama.cpp. A value of 0 leaves it to llama.cpp.
"""

from __future__ import annotations

from engines.methods.options import Option
from engines.methods.server import SPEC as SERVER
from engines.methods.spec import MethodSpec

# The ways of drafting, by llama.cpp's names.
OWN_FILE = {"draft-simple": "draft model", "draft-eagle3": "EAGLE-3 head", "draft-dflash": "DFlash model",
            "draft-dspark": "DSpark model"}  # that read a file beside the model's, and what is in it
MODELS = (*OWN_FILE, "draft-mtp")  # that compute: the last by layers of the model's own file
NGRAMS = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")  # that need no file
KEEPING = frozenset({"ngram-mod"})  # those that draft from earlier answers, too, as long as the server lives
DRAFT = "draft"  # the option with the file

SPEC = MethodSpec(
    id="llama.cpp",
    title="llama.cpp",
    summary="llama.cpp reads the model's GGUF file itself, and drafts in one of its own ways, or not at all.",
    source="llama.cpp, docs/speculative.md",
    drafter="engines.methods.drafter:Drafter",
    order=200,
    explain=SERVER.explain,
    why_empty=SERVER.why_empty,
    origins=SERVER.origins,
    options=(
        Option("spec", "none", "How it drafts: not at all; after an n-gram that occurred before; with a draft model, an"
               " EAGLE-3 head, DFlash, DSpark, or the MTP layers of the model's own file. Several may be joined by +:"
               " where one finds nothing, another drafts.",
               choices=("none", *NGRAMS, *MODELS), several=True),
        Option("most", 0, "Maximum number of tokens drafted; 0: llama.cpp's default (3 where a model drafts, 48 after"
               " an n-gram, ngram-mod 64).", low=0, high=256),
        Option("least", 0, "Minimum number of drafted tokens: shorter drafts of a model or ngram-mod are not verified;"
               " 0: llama.cpp's default (none; ngram-mod 48).", low=0, high=256),
        Option("ngram", 0, "Length of the n-gram it looks for; 0: llama.cpp's default (12, ngram-mod 24).",
               low=0, high=256),
        Option("hits", 0, "Number of times an n-gram must have occurred before ngram-simple or an ngram-map drafts;"
               " 0: llama.cpp's default (1).", low=0, high=256),
        Option("p_min", 0.0, "A model's draft ends where its token is less probable than this.", low=0, high=1),
        Option(DRAFT, "", "GGUF file of the model that drafts, or of its head; empty: the loaded draft model's."),
        Option("context", 4096, "Length of its context in tokens, at most the model's own.", low=64,
               high=1 << 20),
    ),
    lossless=None,
    host="llama.cpp",
    flag="--backend llama.cpp --model FILE.gguf",
    default_priority=1,
)
