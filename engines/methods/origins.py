"""Kinds of origin of drafted tokens (``Origin.source``): what screens, legends, the help and exports show of them. Each
method names those of its drafts (``MethodSpec.origins``); what several methods have is declared here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ATTRIBUTES = frozenset({"bold", "italic", "underline", "underline2", "reverse"})


@dataclass(frozen=True, slots=True)
class OriginKind:
    """Who proposes tokens.

    Attributes:
        name: as in ``Origin.source``; lower-case letters.
        letter: in a draft tree.
        label: a noun that can stand after "from the": "datastore".
        hue: the kind, of those here, whose colour it has.
        attributes: words among ``ATTRIBUTES``, which tell it from others of this colour.
        legend: under a text; "" for ``label``.
        drafter: what the method drafts with is the better label (``engines.methods.what_drafts``), and its
            probabilities are beliefs, not shares of what was found.
    """

    name: str
    letter: str
    label: str
    hue: Literal["draft", "retrieval", "prompt", "output", "target"] = "draft"
    attributes: str = ""
    legend: str = ""
    drafter: bool = False

    @property
    def words(self) -> str:
        """What it is, where it stands alone."""
        return self.legend or self.label

    def clashes(self, other: OriginKind) -> bool:
        """Whether both cannot be told apart by name or letter, and are not the same."""
        return self != other and (self.name == other.name or self.letter == other.letter)


DRAFT = OriginKind("draft", "D", "draft model", drafter=True)
RETRIEVAL = OriginKind("retrieval", "R", "datastore", "retrieval", "italic")
PROMPT = OriginKind("prompt", "P", "prompt", "prompt", "reverse", "copied from prompt")
OUTPUT = OriginKind("output", "O", "answer so far", "output", "underline", "copied from answer")
HISTORY = OriginKind("history", "H", "past answers", "output", "bold", "copied from past answer")
SERVER = OriginKind("server", "S", "server", "draft", "italic")
TARGET = OriginKind("target", "T", "target", "target", "bold underline")
SHARED = (DRAFT, RETRIEVAL, PROMPT, OUTPUT, HISTORY, SERVER, TARGET)
