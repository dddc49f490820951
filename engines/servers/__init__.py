"""Models that another program serves, asked over HTTP: the same events as of a model that runs here.

``connect`` asks the server what it is. What a server does not disclose is unknown in the events (None, or a drafted
token ``UNDISCLOSED``), never guessed. llama.cpp's server is understood so far.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engines.servers.llama_cpp import LlamaCppModel

__all__ = ["connect"]


def connect(url: str, api_key: str | None = None) -> LlamaCppModel:
    """A model that is served at this address, ready to be asked.

    Args:
        url: of the server, ``http://HOST:PORT``.
        api_key: sent with every request, and told to nobody else.

    Raises:
        UsageProblem: no address of a server.
        ModelUnavailable: nobody answers there, or a program that is not understood.
    """
    from engines.servers.connection import Connection
    from engines.servers.llama_cpp import LlamaCppModel

    return LlamaCppModel(Connection(url, api_key))
