"""How an engine gets its model: loaded into this process, asked of a server, or run by another program."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from engines.errors import UsageProblem
from engines.model.quick_import import import_quickly

if TYPE_CHECKING:
    from engines.hub.download import Progress
    from engines.model.load_options import LoadOptions
    from engines.runtime import Runtime
    from spec_tui.session.engine_commands import LoadRequest
    from spec_tui.session.engine_service import Decoder

LOADER = f"{__name__}:load_for_a_screen"
_GATHER = 0.15  # seconds


def load(asked: LoadRequest, progress: Progress) -> Decoder:
    """The model that a request names. Raises SpecError."""
    if asked.fetch:
        _fetch(asked.model, progress)
    if not asked.elsewhere:
        import_quickly()  # this process neither compiles nor distributes
        return load_here(asked, progress)
    from engines import servers

    served = _started(asked, progress) if asked.backend else servers.connect(
        asked.server, servers.key_in(asked.api_key_env), model=asked.served_model)
    if asked.model is not None and served.token_ids:
        served.audit_with(cache(lambda: load_here(asked.of_target(), progress)))
    return served


def load_here(options: LoadOptions, progress: Progress) -> Runtime:
    """Models in this process. Raises SpecError."""
    from engines.runtime import Runtime

    return Runtime.load(options, progress)


def _fetch(name: str, progress: Progress) -> None:
    """Get a known model, unless it is here. Raises ModelUnavailable."""
    from engines.hub.get_model import get
    from engines.hub.known_models import KNOWN

    if not KNOWN[name].present:
        get(KNOWN[name], progress)


def _started(asked: LoadRequest, progress: Progress) -> Decoder:
    """A program that is started for a GGUF file. Raises SpecError."""
    from engines.hub.local_models import usual_draft
    from engines.race.peers import gguf_file, no_gguf
    from engines.servers.llama_cpp_start import OwnLlamaCpp

    if asked.model is None:
        raise UsageProblem(f"{asked.backend} reads GGUF files",
                           f"name one: --backend {asked.backend} --model FILE.gguf")
    files = []
    for name, flag in ((asked.model, "--model"), (asked.draft_model, "--draft-model")):
        files.append(gguf_file(name) if name is not None else None)
        if name is not None and files[-1] is None:
            raise no_gguf(name, flag)
    if files[1] is None and (usual := usual_draft(files[0])) is not None and usual.fits:
        files[1] = gguf_file(str(usual.place))
    return OwnLlamaCpp(*files, asked.threads, progress=progress)


def load_for_a_screen(asked: LoadRequest, progress: Progress) -> Decoder:
    """As ``load``, where some frames a second are drawn: of what a server sends in between, nobody is in a hurry."""
    decoder = load(asked, progress)
    if decoder.ready.served:
        decoder.gather = _GATHER
    return decoder
