"""``spec-tui forget``: remove what is kept to draft from."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from engines.report.wording import counted
from spec_tui.cli.failures import narrate
from spec_tui.cli.prompts import confirmed


def forget(yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False) -> int:
    """Remove the past answers that the engines suffix and hybrid keep on this machine to draft from, for all models.

    It says how many there are and where, and asks first unless you give --yes. Conversations are stored separately and
    stay. With history=0 the engine suffix does not use past answers; SPEC_TUI_HISTORY=off keeps neither answers
    nor conversations.
    """
    from engines.hub.download_progress import in_bytes
    from engines.methods.shared import past_answers

    kept = past_answers.kept()
    if not kept.size:
        narrate(f"no past answers are kept (they would be in {past_answers.folder()})")
        return 0
    told = (f"{counted(kept.answers, 'past answer')} of {counted(kept.models, 'model')}, {kept.tokens:,} tokens, "
            f"{in_bytes(kept.size)} in {past_answers.folder()}")
    if not yes and not confirmed(f"forget {told}?", "give --yes"):
        narrate("nothing was removed")
        return 1
    past_answers.forget()
    narrate(f"forgot {told}")
    return 0
