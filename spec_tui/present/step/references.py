"""Where to read on: the section or algorithm that a phase of a method follows."""

from __future__ import annotations

from engines.errors import UsageProblem
from engines.methods import registry

LEVIATHAN = "Leviathan et al. 2023, section 2.3 and algorithm 1"
TREES = "REST (He et al. 2024), section 3.2; SpecInfer (Miao et al. 2024)"
CACHE = "docs/architecture.md, KV rows"
ROUND = "docs/glossary.md, round; Leviathan et al. 2023, section 2.1"

_DRAFTING = {
    "autoregressive": "the baseline of Leviathan et al. 2023, section 3.3",
    "pld": "Saxena 2023, prompt lookup decoding",
    "rest": "REST (He et al. 2024), section 3.2, algorithms 1 and 2",
    "dresd": "DReSD (Gritta et al. 2025), sections 3.1 to 3.5, algorithm 1",
    "admg": "ADMG (Metel et al. 2024), sections 3.1 and 3.2, algorithm 1",
    "rasd": "RASD, algorithm 1, sections 3.2.2 (pruning) and 3.2.3 (fusion)",
}
_GREEDY = "Leviathan et al. 2023, section 2.2 (argmax); REST (He et al. 2024), section 3.2, draft acceptance"
_LAWS = {
    "exact": "Daliri et al. 2024, coupled sampling",
    "rejection": "Leviathan et al. 2023, algorithm 1; Chen et al. 2023, modified rejection sampling",
    "redraw": "the public code of REST and DReSD; docs/glossary.md, redraw",
    "typical": "Medusa (Cai et al. 2024), typical acceptance",
}


def of_engine(engine: str) -> str:
    """How an engine drafts; for one that is not listed here, what it says of itself; "" where it is not known."""
    if engine in _DRAFTING:
        return _DRAFTING[engine]
    try:
        return registry.find(engine).source
    except UsageProblem:
        return ""


def of_law(law: str, temperature: float) -> str:
    """What a law follows; at temperature 0 all come to the same; "" for an unknown one."""
    return _LAWS.get(law, "") if temperature > 0 or law not in _LAWS else _GREEDY
