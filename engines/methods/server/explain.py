"""What Step says of a draft that a server made."""

from __future__ import annotations

from engines.report.events import Round
from engines.report.run_state import RunState
from engines.report.wording import tokens


def draft(run: RunState, event: Round, deep: bool) -> list[str]:
    """How much was drafted, and what is not known of it."""
    if event.known != "all":
        return [_undisclosed(event)]
    drafted, kept = len(event.draft.tokens), len(event.path)
    words = f"The server drafted {tokens(drafted)} in its own way."
    if kept < drafted:
        words += " It says how many were rejected, not which."
    return [words]


def nothing(run: RunState, event: Round) -> str:
    """Why nothing was drafted."""
    if event.known != "all":
        return _undisclosed(event)
    return "the server's drafter proposed nothing, or it was started without one"


def _undisclosed(event: Round) -> str:
    """What is not known of a round."""
    if event.known == "text":
        return "the server sends text as it comes, and does not say what it drafted, or which tokens are of one step"
    return "the server says which tokens of its draft were accepted; how many others there were it says at the end"
