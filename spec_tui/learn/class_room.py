"""What the sessions of a class share: the page that the teacher shows, and votes. Of a student's session nothing is
taken but a vote, a whole number within a range."""

from __future__ import annotations

import json
from collections.abc import Hashable

STAGES = ("page", "vote", "shown")
"""A page is read; the class votes on how many drafted tokens its round accepts; the round is shown."""
MOST = 9
"""The largest vote: a digit."""
_LONGEST = 500  # bytes of what a session says


class ClassRoom:
    """The page that is shown, and the votes on its round.

    Attributes:
        at: index of the page.
        stage: one of ``STAGES``.
        most: the largest number that may be voted for; 0 where there is no vote.
        votes: what each session said last.
    """

    def __init__(self, pages: int) -> None:
        self.pages, self.at, self.stage, self.most = pages, 0, "page", 0
        self.votes: dict[Hashable, int] = {}

    def heard(self, who: Hashable, leads: bool, data: bytes) -> bool:
        """Take in what a session said; whether it is something that counts."""
        said = _parsed(data)
        if leads and said.get("type") == "page":
            return self._lead(said.get("at"), said.get("stage"), said.get("most"))
        if not leads and said.get("type") == "vote":
            return self._vote(who, said.get("said"))
        return said.get("type") == "hello"

    def left(self, who: Hashable) -> None:
        """A session has ended."""
        self.votes.pop(who, None)

    def news(self, here: int) -> dict[str, object]:
        """What every session is told. ``here``: the students' sessions."""
        counts = [0] * (self.most + 1)
        for said in self.votes.values():
            counts[said] += 1
        return {"type": "class", "at": self.at, "stage": self.stage, "counts": counts, "here": here}

    def _lead(self, at: object, stage: object, most: object) -> bool:
        if not _within(at, self.pages - 1) or stage not in STAGES or not _within(most, MOST):
            return False
        if at != self.at or stage == "page" or (stage == "vote" and self.stage != "vote"):
            self.votes.clear()
        if stage == "shown":
            most = self.most  # the vote is over
        self.at, self.stage, self.most = at, stage, most
        return True

    def _vote(self, who: Hashable, said: object) -> bool:
        if self.stage != "vote" or not _within(said, self.most):
            return False
        self.votes[who] = said
        return True


def _within(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _parsed(data: bytes) -> dict[str, object]:
    """What was said; empty for what is no object."""
    try:
        said = json.loads(data) if len(data) <= _LONGEST else None
    except (ValueError, RecursionError):
        said = None
    return said if isinstance(said, dict) else {}
