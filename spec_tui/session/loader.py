"""How the engine process loads models."""

from __future__ import annotations

import engines
from engines.model.quick_import import import_quickly

LOADER = f"{__name__}:load"


def load(**kwargs):
    """``engines.load``, whose libraries are imported quickly: this process neither compiles nor distributes."""
    import_quickly()
    return engines.load(**kwargs)
