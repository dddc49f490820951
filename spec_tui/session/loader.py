"""How an engine gets its model: loaded into this process, asked of a server, or run by another program."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import engines
from engines.errors import UsageProblem
from engines.model.quick_import import import_quickly

if TYPE_CHECKING:
    from engines.hub.download import Progress
    from spec_tui.session.engine_service import Decoder

LOADER = f"{__name__}:load_for_a_screen"
_GATHER = 0.15  # seconds


def load(server: str | None = None, api_key_env: str | None = None, backend: str = "",
         served_model: str | None = None, fetch: bool = False, **kwargs) -> Decoder:
    """The model that a ``LoadRequest`` names. Raises SpecError."""
    if fetch:
        _fetch(kwargs["model"], kwargs["progress"])
    if server is None and not backend:
        return engines.load(**kwargs)
    from engines import servers

    model = kwargs["model"]
    served = _started(backend, kwargs) if backend else servers.connect(
        server, servers.key_in(api_key_env), model=served_model)
    if model is not None and served.token_ids:
        served.audit_with(cache(lambda: engines.load(**kwargs | {"draft_model": None})))
    return served


def _fetch(name: str, progress: Progress) -> None:
    """Get a known model, unless it is here. Raises ModelUnavailable."""
    from engines.hub.get_model import get
    from engines.hub.known_models import KNOWN

    if not KNOWN[name].present:
        get(KNOWN[name], progress)


def _started(backend: str, kwargs: dict[str, Any]) -> Decoder:
    """A program that is started for a GGUF file. Raises SpecError."""
    from engines.race.peers import gguf_file, no_gguf
    from engines.servers import start

    model, draft = kwargs["model"], kwargs["draft_model"]
    if model is None:
        raise UsageProblem(f"{backend} reads GGUF files", f"name one: --backend {backend} --model FILE.gguf")
    files = []
    for name, flag in ((model, "--model"), (draft, "--draft-model")):
        files.append(gguf_file(name) if name is not None else None)
        if name is not None and files[-1] is None:
            raise no_gguf(name, flag)
    return start(*files, kwargs["threads"], progress=kwargs["progress"])


def load_quickly(**kwargs) -> Decoder:
    """The same, for a process that neither compiles nor distributes."""
    if kwargs.get("server") is None and not kwargs.get("backend"):
        import_quickly()
    return load(**kwargs)


def load_for_a_screen(**kwargs) -> Decoder:
    """The same, where some frames a second are drawn: of what a server sends in between, nobody is in a hurry."""
    decoder = load_quickly(**kwargs)
    if decoder.ready.served:
        decoder.gather = _GATHER
    return decoder
