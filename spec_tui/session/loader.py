"""How an engine gets its model: loaded into this process, or asked of a server."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import engines
from engines.errors import UsageProblem
from engines.model.quick_import import import_quickly

if TYPE_CHECKING:
    from spec_tui.session.engine_service import Decoder

LOADER = f"{__name__}:load_quickly"


def load(server: str | None = None, api_key_env: str | None = None, **kwargs) -> Decoder:
    """The model that a ``LoadRequest`` names. Raises SpecError."""
    if server is None:
        return engines.load(**kwargs)
    from engines.servers import connect

    return connect(server, _key(api_key_env))


def load_quickly(**kwargs) -> Decoder:
    """The same, for a process that neither compiles nor distributes."""
    if kwargs.get("server") is None:
        import_quickly()
    return load(**kwargs)


def _key(variable: str | None) -> str | None:
    """The key in an environment variable. Raises UsageProblem where there is none."""
    if variable is None:
        return None
    if not (key := os.environ.get(variable, "").strip()):
        raise UsageProblem(f"the environment variable {variable[:60]} is empty", "put the key of the server into it")
    return key
