"""llama.cpp's server in a process of its own: ``python -m engines.servers.llama_cpp_process``.

The settings (``engines.servers.llama_cpp_start.Settings``) come in as a line of JSON. What goes out is a line of JSON,
with ``address`` or ``problem``. When the input ends, whoever started the process is gone, and so is the server.
llama.cpp's own messages go to the standard error.
"""

from __future__ import annotations

import json
import os
import sys
from types import SimpleNamespace
from typing import Any

from engines.methods.llama_cpp import MODELS


def main() -> None:
    """Serve until the input ends. Does not return."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the library prints is no answer
    try:
        server = _serve(SimpleNamespace(**json.loads(sys.stdin.readline())))
        said = {"address": server.listening_address}
    except Exception as error:  # whatever the library raises for a file that it cannot use
        said = {"problem": str(error)}
    try:
        out.write(json.dumps(said) + "\n")
        out.flush()
        while sys.stdin.readline():
            pass
    finally:
        os._exit(0)  # the library ends in its own order only when nothing is asked of it


def _serve(asked: SimpleNamespace) -> Any:
    """The server with these settings, which answers already."""
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = asked.file
    settings.n_ctx, settings.n_parallel, settings.warmup = asked.context * asked.slots, asked.slots, True
    settings.api_keys, settings.endpoint_metrics, settings.ui = [asked.key], True, False
    settings.cache_ram_mib, settings.verbosity = 0, -1
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = asked.threads
    _speculate(settings.speculative, asked)
    return xllamacpp.Server(settings)


def _speculate(speculative: Any, asked: SimpleNamespace) -> None:
    import xllamacpp

    kinds, ways = xllamacpp.common_speculative_type, asked.spec.split("+")
    if asked.spec != "none":
        found = {way: getattr(kinds, f"COMMON_SPECULATIVE_TYPE_{way.replace('-', '_').upper()}", None) for way in ways}
        if missing := [way for way, kind in found.items() if kind is None]:
            raise ValueError(f"this build of llama.cpp has no {missing[0]}")
        speculative.types = list(found.values())
    for way in ways:
        if way in MODELS:
            draft = speculative.draft
            draft.mparams.path, draft.p_min = asked.draft, asked.p_min
            draft.n_max, draft.n_min = asked.most or draft.n_max, asked.least or draft.n_min
            draft.cpuparams.n_threads = draft.cpuparams_batch.n_threads = asked.threads
        elif way == "ngram-mod":
            mod = speculative.ngram_mod
            mod.n_match, mod.n_max = asked.ngram or mod.n_match, asked.most or mod.n_max
            mod.n_min = min(asked.least or mod.n_min, mod.n_max)
        elif way in ("ngram-simple", "ngram-map-k", "ngram-map-k4v"):
            table = getattr(speculative, way.replace("-", "_"))
            table.size_n, table.size_m = asked.ngram or table.size_n, asked.most or table.size_m
            table.min_hits = asked.hits or table.min_hits


if __name__ == "__main__":
    main()
