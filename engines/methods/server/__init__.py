"""A server's own speculation: whatever it was started with drafts, and it cannot be chosen from here."""

from __future__ import annotations

from engines.methods.options import Option
from engines.methods.origins import SERVER
from engines.methods.spec import MethodSpec
from engines.report.events import Round
from engines.report.run_state import RunState
from engines.report.wording import tokens


def _explain(run: RunState, event: Round, deep: bool) -> list[str]:
    """How much was drafted."""
    drafted, kept = len(event.draft.tokens), len(event.path)
    words = f"The server drafted {tokens(drafted)} in its own way."
    if kept < drafted:
        words += " It says how many were rejected, not which."
    return [words]


def _why_empty(run: RunState, event: Round) -> str:
    """Why nothing was drafted."""
    return "the server's drafter proposed nothing, or it was started without one"


SPEC = MethodSpec(
    id="server",
    title="Server",
    summary="A server holds the model and drafts in the way set when it was started.",
    source="the server's own documentation",
    drafter="engines.methods.drafter:Drafter",
    order=210,
    explain=_explain,
    why_empty=_why_empty,
    origins=(SERVER,),
    options=(
        Option("url", "", "As a lane of a race: the server's address, http://HOST:PORT.", lane=True),
        Option("model", "", "As a lane of a race: the server's model, if it has several.", lane=True),
        Option("api_key_env", "", "As a lane of a race: the environment variable with the server's key.", lane=True),
    ),
    lossless=None,
    host="server",
    flag="--server URL",
)
