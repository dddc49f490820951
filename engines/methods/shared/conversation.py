"""The text so far as a datastore that grows with it."""

from __future__ import annotations

from collections.abc import Sequence

from engines.core.outcome import Outcome
from engines.datastores.search.dynamic import DynamicStore
from engines.methods.origins import OUTPUT, PROMPT
from engines.report.events import Origin


class Conversation(DynamicStore):
    """Prompt and answer of a run, to be searched. ``prompt_length``: tokens of the prompt, the first ones."""

    prompt_length = 0

    def start(self, outcome: Outcome) -> None:
        """A run begins."""
        self.prompt_length = outcome.prompt_length
        self.clear()
        self.extend(outcome.context)

    def grow(self, context: Sequence[int]) -> None:
        """Take in what was emitted since."""
        self.extend(context[len(self) :])

    def origin(self, position: int, match: int) -> Origin:
        """Of what is copied from a position on."""
        return Origin((PROMPT if position < self.prompt_length else OUTPUT).name, place=position, match=match)
