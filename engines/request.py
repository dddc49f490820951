"""What a user asks for: one run, in plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any

from engines import laws
from engines.errors import UsageProblem
from engines.model.load_options import KINDS, check_type, option

ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class Request:
    """One run.

    Attributes:
        conversation: (role, content) pairs, ending with the user's turn; roles system, user, assistant. With ``raw``
            the contents are joined and fed without the chat template.
        engine: id of an engine (``engines.methods``); "" takes the default for the available models.
        options: values of the engine's options by name; those left out take their defaults.
        temperature, top_p, top_k, min_p: sampling; top_k 0 and min_p 0 are no filters.
        repetition_penalty, no_repeat_ngram_size: over prompt and answer; 1 and 0 are off.
        seed: repeats a run; under a law that shares noise the text depends on prompt, sampling and seed only.
        law: one of ``engines.laws.LAWS``.
        draft_model: a folder, a hub id or a name known here: the run drafts with this model; "" takes the one loaded.
        datastores: names of those to search; none takes the ones that ship and fit the model.
        continued: token ids of an answer to this prompt that was begun: the run goes on from there, with the noise of
            its positions, and gives the last of them as its first token. ``max_new_tokens`` counts from that one.
        detail: rounds say what the target has at every row (``Round.verified``); it takes time, but changes no text.
        keeps: what the engine drafts may depend on past answers, and this one may be kept to draft from; measurements
            are made without.
    """

    conversation: tuple[tuple[str, str], ...]
    engine: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    law: str = option(laws.DEFAULT, "Verification law: how drafted tokens are accepted. Those that change the text, "
                      f"LOSSY: {', '.join(law.name for law in laws.LAWS.values() if not law.lossless)}.",
                      metavar="|".join(laws.LAWS), choices=tuple(laws.LAWS))
    temperature: float = option(0.0, "Sampling temperature; 0 is greedy.", metavar="T")
    top_p: float = option(
        1.0, "Sample from the most probable tokens that together have this probability.", metavar="P")
    top_k: int = option(0, "Sample from the K most probable tokens; 0: from all.", metavar="K")
    min_p: float = option(
        0.0, "Sample from tokens with at least this share of the highest probability.", metavar="P")
    repetition_penalty: float = option(
        1.0, "Above 1, tokens that already occurred become less probable, as in transformers.", metavar="R")
    no_repeat_ngram_size: int = option(
        0, "No sequence of N tokens (2 or more) occurs twice, as in transformers; 0: off.", metavar="N")
    seed: int = option(0, "Seed of the random numbers; the same seed gives the same text.", metavar="S")
    max_new_tokens: int = option(256, "Maximum length of the answer, in tokens.", metavar="N")
    raw: bool = option(False, "Feed the prompt as it is, without the chat template.")
    datastores: tuple[str, ...] = ()
    continued: tuple[int, ...] = ()
    detail: bool = False
    keeps: bool = True
    draft_model: str = ""

    def __post_init__(self) -> None:
        """Numbers of NumPy become Python's, which events can hold."""
        for of in fields(self):
            object.__setattr__(self, of.name, _plain(getattr(self, of.name)))

    def check(self) -> None:
        """Raises UsageProblem, naming what is wrong: a value of another type, or outside of its range."""
        self._check_types()
        if not any(content.strip() for role, content in self.conversation if role != "system"):
            raise UsageProblem("the prompt is empty", "type a prompt")
        if not self.raw and self.conversation[-1][0] != "user":
            raise UsageProblem("the conversation does not end with the user's turn", "put the prompt at its end")
        try:
            "".join(content for _, content in self.conversation).encode()
        except UnicodeEncodeError:  # half a character: bytes of a command line that are not UTF-8
            raise UsageProblem("the text is not valid Unicode", "give text in UTF-8") from None
        if self.temperature != 0:
            _within("temperature", self.temperature, 1e-6, 100, also="0, or ")
        _within("top-p", self.top_p, 0, 1, open_low=True)
        _within("top-k", self.top_k, 0, None)
        _within("min-p", self.min_p, 0, 1)
        _within("repetition-penalty", self.repetition_penalty, 0.01, 100)
        if self.no_repeat_ngram_size != 0:  # 1 would forbid every token that was ever written
            _within("no-repeat-ngram-size", self.no_repeat_ngram_size, 2, None, also="0, or ")
        _within("seed", self.seed, 0, 2**63 - 1)
        _within("max-new-tokens", self.max_new_tokens, 1, None)
        laws.find(self.law)

    def _check_types(self) -> None:
        turns = self.conversation
        if not isinstance(turns, tuple | list) or not all(
            isinstance(turn, tuple | list) and len(turn) == 2 and turn[0] in ROLES and isinstance(turn[1], str)
            for turn in turns
        ):
            raise UsageProblem("the conversation is not made of pairs (role, content)",
                               f'give (("user", "your prompt"),); roles are: {", ".join(ROLES)}')
        if not isinstance(self.options, Mapping):
            raise UsageProblem("options are not a mapping of names to values", 'give {"num_tokens": 4}, for example')
        for name, kind in (("datastores", str), ("continued", Integral)):
            values = getattr(self, name)
            if not isinstance(values, tuple | list) or not all(isinstance(value, kind) for value in values):
                raise UsageProblem(f"{name} is not made of {KINDS[kind]}s", f"give a tuple of {KINDS[kind]}s")
        for of in fields(self):
            check_type(of, getattr(self, of.name))

    @property
    def text_depends_on_draft(self) -> bool:
        """Whether another draft gives another text: then a seed repeats a run only if nothing is remembered."""
        return laws.find(self.law).varies(self.temperature)


def need_request(value: object) -> None:
    """Raises UsageProblem where this is no request."""
    if not isinstance(value, Request):
        raise UsageProblem(f"a {type(value).__name__} is not a request", 'give Request((("user", "your prompt"),))')


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list) and any(isinstance(item, Integral) for item in value):
        return tuple(map(_plain, value))
    if type(value) in (bool, int, float) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def _within(name: str, value: float, low: float, high: float | None, open_low: bool = False, also: str = "") -> None:
    ok = (value > low if open_low else value >= low) and (high is None or value <= high)
    if not ok:
        bound = f"{'above' if open_low else 'at least'} {low}"
        bound += f" and at most {high}" if high is not None else ""
        raise UsageProblem(f"{name} {value} is out of range", f"{name} is {also}{bound}")
