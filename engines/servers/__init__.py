"""Models that another program serves, asked over HTTP: the same events as of a model that runs here.

``connect`` asks a server what it is: llama.cpp's, or an OpenAI-compatible one, of which vLLM tells the most.
``llama_cpp_start`` starts llama.cpp for a file. What a server does not disclose is unknown in the events (None, or a
token ``UNDISCLOSED``), never guessed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engines.errors import UsageProblem

if TYPE_CHECKING:
    from engines.servers.served_model import ServedModel

__all__ = ["connect", "key_in"]

_LLAMA_CPP = "llamacpp"  # owns the models that it lists, while it loads one and to those without a key, too


def connect(
    url: str, api_key: str | None = None, options: Mapping[str, Any] | None = None, model: str | None = None
) -> ServedModel:
    """A model that is served at this address, ready to be asked.

    Args:
        url: of the server, ``http://HOST:PORT``.
        api_key: sent with every request, and told to nobody else.
        options: of the engine that stands for it, as its runs have them.
        model: which of the server's, where it has several.

    Raises:
        UsageProblem: no address of a server.
        ModelUnavailable: nobody answers there, or a program that is not understood.
    """
    from engines.methods.server import SPEC
    from engines.servers.answers import LlamaCppMark
    from engines.servers.connection import Connection, RefusedRequest
    from engines.servers.llama_cpp import LlamaCppModel
    from engines.servers.openai_compatible import OpenAICompatibleModel

    if not isinstance(url, str):
        raise UsageProblem(f"{url!r} is not the address of a server", "give one like http://127.0.0.1:8080")
    connection = Connection(url.rstrip("/").removesuffix("/v1"), api_key)
    mark, refused = None, None
    try:
        mark = connection.find("/props", LlamaCppMark)
    except RefusedRequest as error:  # by a gateway that knows OpenAI's paths only, or by llama.cpp
        refused = error
    if mark is not None and mark.default_generation_settings is not None:
        found: ServedModel = LlamaCppModel(connection, SPEC, options, model)
    else:
        try:
            found = OpenAICompatibleModel(connection, SPEC, options, model)
        except RefusedRequest as error:
            raise refused or error from None
        if refused is not None and found.owner == _LLAMA_CPP:
            raise refused
    found.round_trip = connection.round_trip()
    return found


def key_in(variable: str | None) -> str | None:
    """The key in an environment variable; None where none is named. Raises UsageProblem where it is empty."""
    if not variable:
        return None
    if not (key := os.environ.get(variable, "").strip()):
        raise UsageProblem(f"the environment variable {variable[:60]} is empty", "put the key of the server into it")
    return key
