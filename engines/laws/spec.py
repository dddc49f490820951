"""What a law says of itself: its name, what it keeps, and the words for what it did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from engines.core.tree import children
from engines.report.events import Emitted, Round, Started, Trial
from engines.report.plain_text import LOSSY
from engines.report.run_state import RunState, TokenState
from engines.report.wording import chosen, listed, p3, quoted

SHOWN = 3  # trials that a paragraph tells one by one
GREEDY_SOURCE = "Leviathan et al. 2023, section 2.2 (argmax); REST (He et al. 2024), section 3.2, draft acceptance"


class LawSpec:
    """A law, for people. This one compares: the target has one token at each row, and a draft stays where it carries
    it. At temperature 0 every law comes to that.

    Attributes:
        name, summary: as typed; what the law does, in one sentence; ``brief``: of a lossless one, in a few words.
        source: where to read about it.
        lossless: the text follows the target's distribution, whatever is drafted.
        text_depends_on_draft: above temperature 0 the text is another with another draft, seed or not.
        shares_noise: above temperature 0 draft and target add the same noise, so that a drafter's probabilities are
            beliefs that include it, and not to be compared with the target's.
        trials_title: what the trials of a token are, over a list of them.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    brief: ClassVar[str] = ""
    source: ClassVar[str]
    lossless: ClassVar[bool] = True
    text_depends_on_draft: ClassVar[bool] = False
    shares_noise: ClassVar[bool] = False
    trials_title: ClassVar[str] = ""

    @property
    def label(self) -> str:
        """The name as it is shown, marked where the law changes the target's distribution."""
        return self.name if self.lossless else f"{self.name} {LOSSY}"

    def varies(self, temperature: float) -> bool:
        """Whether the text depends on what is drafted: then a seed repeats a run only if nothing is remembered."""
        return self.text_depends_on_draft and temperature > 0

    def at(self, temperature: float) -> LawSpec:
        """The words for this temperature: at 0 all laws are told alike."""
        return self if temperature > 0 else GREEDY

    def reference(self, temperature: float) -> str:
        """Where to read on."""
        return self.source if temperature > 0 else GREEDY_SOURCE

    def rule(self, started: Started) -> str:
        """What the target says at every row."""
        return "At every row the target has one token, its likeliest."

    def walk(self, event: Round) -> str:
        """How the law went down the tree."""
        path = listed(event.draft.pieces[n] for n in event.path)
        walk = f"From the root on, the target's own token was among those drafted: {path}. " if event.path else ""
        if not event.emitted or event.emitted[-1].node >= 0:
            return walk + "There the answer ends."
        last = event.emitted[-1]
        if last.kind == "bonus":
            return walk + "The path ends there: nothing was drafted below it."
        where = "Then" if event.path else "Right after the root"
        return walk + f"{where} the target has {quoted(last.piece)}, and drafted was {rivals(event)}: the walk ends."

    def more(self, event: Round) -> list[str]:
        """What else there is to say of the walk."""
        gaps = [(e.gap, e.piece) for e in event.emitted if e.gap is not None]
        if not gaps:
            return []
        gap, piece = min(gaps)
        return [f"The closest call was at {quoted(piece)}, {gap:.3f} ahead of the next best score. The draft decides "
                "how many tokens a round makes, never which: the text is the one that the target writes alone."]

    def own_token(self, last: Emitted) -> list[str]:
        """How the target's own token at the end of a round was chosen."""
        return []

    def fate(self, token: TokenState, who: str) -> str:
        """One sentence on what became of the draft where a token stands that was tried; ``who`` proposed it."""
        return ""

    def compared(self, trial: Trial) -> str:
        """What a trial compared, as in ``0.412 < 0.733``."""
        return ""

    def trials_column(self, event: Round) -> str:
        """The head of a column of ``compared``; "" where nothing was tried."""
        return ""

    def trial(self, trial: Trial, before: Sequence[Trial] = ()) -> str:
        """A trial as a row of a list, after those ``before`` it."""
        return ""

    def trials_note(self, trials: Sequence[Trial]) -> str:
        """What explains a list of trials; "" where nothing does."""
        return ""


class _Greedy(LawSpec):
    """All laws at temperature 0."""

    name, summary, source = "greedy", "the target's likeliest token", GREEDY_SOURCE


GREEDY = _Greedy()


def rivals(event: Round) -> str:
    """What was drafted where the walk ended."""
    below = children(event.draft.parents).get(event.path[-1] if event.path else -1, [])
    return listed((event.draft.pieces[n] for n in below), 3) if below else "nothing"


def trials_of(event: Round) -> list[Trial]:
    """All trials of a round, in order."""
    return [trial for emitted in event.emitted for trial in emitted.trials]


def one_by_one(told: Sequence[str]) -> str:
    """The first few of many, the others counted."""
    return "; ".join(told[:SHOWN]) + (f" … and {len(told) - SHOWN} more" if len(told) > SHOWN else "")


def bias_of(event: Round) -> str:
    return "" if event.bias is None else f" The bias of this round's first token is {p3(event.bias)}."


def after_root(run: RunState, event: Round) -> str:
    """What the target has after the root."""
    if not event.emitted:
        return ""
    first = event.emitted[0]
    if first.trials:
        return f" After the root its likeliest is {chosen(first.top[0])}." if first.top else ""
    return f" After the root it has {quoted(first.piece)} ({p3(first.prob)})."
