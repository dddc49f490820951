"""What a user asks for: one run, in plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from engines.errors import UsageProblem


@dataclass(frozen=True, slots=True)
class LawSpec:
    """A law, for people: what it does in one sentence, and whether it keeps the target's distribution."""

    summary: str
    lossless: bool = True


LAWS = {
    "exact": LawSpec("the target's own token, by noise of seed and position; every engine writes the same text"),
    "rejection": LawSpec("dice (Leviathan, Chen); the target's distribution, but the text depends on the draft"),
    "redraw": LawSpec("a draw for every path of the tree, the longest match wins (the code of REST and DReSD)", False),
    "typical": LawSpec("keeps drafts that the target finds likely enough (Medusa)", False),
}
"""The laws by name (``engines.laws``). Those that are not lossless are there to be seen and measured."""


def law_mark(law: str) -> str:
    """A law's name as it is shown: with LOSSY behind it where it changes the target's distribution."""
    return law if LAWS[law].lossless else f"{law} LOSSY"


@dataclass(frozen=True, slots=True)
class Request:
    """One run.

    Attributes:
        conversation: (role, content) pairs, ending with the user's turn; roles system, user, assistant. With ``raw``
            the contents are joined and fed without the chat template.
        engine: id of an engine (``engines.methods.registry``); "" takes the default for the models at hand.
        options: values of the engine's options by name; those left out take their defaults.
        law: one of ``LAWS``.
        temperature, top_p, top_k: sampling; temperature 0 is greedy, top_k 0 is no filter.
        seed: with ``exact``, text depends on prompt, sampling and seed only.
        datastores: names of those to search; none takes the ones that ship and fit the model.
        continued: token ids of an answer to this prompt that was begun: the run goes on from there, with the noise of
            its positions, and gives the last of them as its first token. ``max_new_tokens`` counts from that one.
        detail: rounds say what the target has at every row (``Round.verified``); it takes time, but changes no text.
    """

    conversation: tuple[tuple[str, str], ...]
    engine: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    law: str = "exact"
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    max_new_tokens: int = 256
    raw: bool = False
    datastores: tuple[str, ...] = ()
    continued: tuple[int, ...] = ()
    detail: bool = False

    def check(self) -> None:
        """Raises UsageProblem, naming the range, where a value is outside of it."""
        if not any(content.strip() for role, content in self.conversation if role != "system"):
            raise UsageProblem("the prompt is empty", "type something to ask, or give --prompt-file")
        if self.temperature != 0:
            _within("temperature", self.temperature, 1e-6, 100, also="0, or ")
        _within("top-p", self.top_p, 0, 1, open_low=True)
        _within("top-k", self.top_k, 0, None)
        _within("seed", self.seed, 0, 2**63 - 1)
        _within("max-new-tokens", self.max_new_tokens, 1, None)
        if self.law not in LAWS:
            raise UsageProblem(f"there is no law {self.law!r}", "laws are: " + ", ".join(map(law_mark, LAWS)))


def _within(
    name: str, value: float, low: float, high: float | None, open_low: bool = False, also: str = ""
) -> None:
    ok = (value > low if open_low else value >= low) and (high is None or value <= high)
    if not ok:
        bound = f"{'above' if open_low else 'at least'} {low}"
        bound += f" and at most {high}" if high is not None else ""
        raise UsageProblem(f"{name} {value} is out of range", f"{name} is {also}{bound}")
