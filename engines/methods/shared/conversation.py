"""The text so far as a datastore that grows with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from engines.datastores.search.continuations import Continuations, Match, in_order, spread
from engines.methods.origins import OUTPUT, PROMPT
from engines.methods.shared.counted_text import CountedText
from engines.report.events import Origin


class Conversation(CountedText):
    """Prompt and answer of a run, to be searched (a ``continuations.Lookup``); a position is an index into them.
    ``prompt_length``: tokens of the prompt, the first ones."""

    def __init__(self, context: Sequence[int] = (), prompt_length: int = 0) -> None:
        super().__init__()
        self.prompt_length = prompt_length
        self.extend(context)

    def grow(self, context: Sequence[int]) -> None:
        """Take in what was emitted since."""
        self.extend(context[len(self) :])

    def longest(self, context: Sequence[int], n_max: int = 16, n_min: int = 2) -> Match | None:
        return next(self.falling(context, n_max, n_min), None)

    def falling(self, context: Sequence[int], n_max: int = 16, n_min: int = 2) -> Iterator[Match]:
        found = self.suffixes(context, n_max)
        match = next(found, None)
        while match is not None:
            (size, places), match = match, next(found, None)
            shorter, positions = match[0] if match is not None else 0, places - self.begins[0]
            for length in range(size, max(shorter, n_min - 1), -1):
                yield Match(length, len(positions), positions)

    def continuations(self, match: Match, length: int = 10, limit: int = 5000) -> Continuations:
        """See ``Lookup``; strides are taken over the occurrences from first to last."""
        positions = match.where[spread(match.count, limit)].astype(np.int64)
        tokens = self.after_places(positions + self.begins[0], length)
        order = in_order(tokens)
        return Continuations.of(tokens[order], positions[order], match)

    def origin(self, position: int, match: int) -> Origin:
        """Of what is copied from a position on."""
        return Origin((PROMPT if position < self.prompt_length else OUTPUT).name, place=position, match=match)
