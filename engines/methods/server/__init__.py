"""A server's own speculation: whatever it was started with drafts, and it cannot be chosen from here."""

from __future__ import annotations

from engines.methods.options import Option
from engines.methods.spec import MethodSpec

SPEC = MethodSpec(
    id="server",
    title="Server",
    summary="The server that holds the model drafts as it was started to; how, only it knows.",
    source="the server's own documentation",
    drafter="engines.methods.drafter:Drafter",
    explanation="engines.methods.server.explain",
    options=(
        Option("url", "", "As a lane of a race: the server's address, http://HOST:PORT.", lane=True),
        Option("model", "", "As a lane of a race: which of the server's models, where it has several.", lane=True),
        Option("api_key_env", "", "As a lane of a race: the environment variable with the server's key.", lane=True),
    ),
    lossless=None,
    host="server",
    flag="--server URL",
)
