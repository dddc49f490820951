"""What each law says of itself: its name, what it keeps, and the words for what it did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from engines.core.tree import children
from engines.report.events import UNDISCLOSED, Emitted, Round, Started, Trial
from engines.report.plain_text import LOSSY
from engines.report.run_state import TokenState
from engines.report.wording import chosen, counted, listed, p3, quoted

SHOWN = 3  # trials that a paragraph tells one by one


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

    name: ClassVar[str] = "greedy"
    summary: ClassVar[str] = "the target's likeliest token"
    brief: ClassVar[str] = ""
    source: ClassVar[str] = (
        "Leviathan et al. 2023, section 2.2 (argmax); REST (He et al. 2024), section 3.2, draft acceptance")
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
        return self.at(temperature).source

    def rule(self, started: Started) -> str:
        """What the target says at every row."""
        return "At every row the target chooses one token, its likeliest."

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
        return walk + f"{where} the target chooses {quoted(last.piece)}; the draft had {rivals(event)}. The walk ends."

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

    def kept(self, who: str) -> str:
        """One sentence on a drafted token that stands, and for which nothing was tried; ``who`` proposed it."""
        return f"Proposed ({who}), and the target chose the same token: accepted."

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


class ExactSpec(LawSpec):
    """Coupled sampling: one text for every engine."""

    name = "exact"
    summary = "the target's own token, by noise of seed and position; every engine writes the same text"
    brief = "by noise; one text for all engines"
    source = "Daliri et al. 2024, coupled sampling"
    shares_noise = True

    def rule(self, started: Started) -> str:
        return ("At every row the target chooses one token: the one with the best score plus noise, fixed by seed "
                f"{started.seed} and the position.")

    def own_token(self, last: Emitted) -> list[str]:
        return ["It is fixed by prompt, seed and position: every engine chooses it."]


class TryingSpec(LawSpec):
    """A law that tries drafts against the target's distribution p, by random draws or a threshold."""

    text_depends_on_draft = True

    def rule(self, started: Started) -> str:
        return "At every row the target gives its distribution p; random draws decide which drafts stay."

    def trial_words(self, trial: Trial) -> str:
        """A trial in a sentence about the round, after the token's label."""
        raise NotImplementedError

    def _one_by_one(self, event: Round) -> str:
        """The first few trials of a round, the others counted."""
        trials = trials_of(event)
        more = f" … and {len(trials) - SHOWN} more" if len(trials) > SHOWN else ""
        pieces = event.draft.pieces
        return "; ".join(f"{quoted(pieces[t.node])}{self.trial_words(t)}" for t in trials[:SHOWN]) + more + "."


class RejectionSpec(TryingSpec):
    """Speculative sampling: the target's distribution, a text for each engine."""

    name = "rejection"
    summary = "speculative sampling (Leviathan, Chen): the target's distribution, but the text depends on the draft"
    brief = "by random draws; the same distribution"
    source = "Leviathan et al. 2023, algorithm 1; Chen et al. 2023, modified rejection sampling"
    trials_title = "the trials of the rejection law, in order: accepted when the random draw < p/q"

    def walk(self, event: Round) -> str:
        rule = "A draft is accepted when a random draw is below p/q"
        if point_masses(event):
            rule += ("; these were not drawn at random, so the law takes each as a point mass, q = 1, whatever "
                     "probability the drafter gave it")
        return f"{rule}. {self._one_by_one(event)}"

    def trial_words(self, trial: Trial) -> str:
        return (f": draw {p3(trial.draw)} {'<' if trial.accepted else '≥'} {p3(_ratio(trial))} = "
                f"{p3(trial.target_prob)}/{p3(trial.draft_prob)}, {'accepted' if trial.accepted else 'rejected'}")

    def more(self, event: Round) -> list[str]:
        return [f"{counted(len(trials_of(event)), 'trial')} in this round. After a rejection p becomes "
                "norm(max(0, p − q)), and a sibling is tried against that: so the distribution of the text stays the "
                "target's, but the text itself depends on the random draws and on the draft."]

    def own_token(self, last: Emitted) -> list[str]:
        return [f"It was drawn from {'the residual distribution' if last.trials else 'p'}."]

    def fate(self, token: TokenState, who: str) -> str:
        last, before = token.emitted.trials[-1], len(token.emitted.trials) - 1
        if token.kind == "accepted":
            turn = f", tried after {counted(before, 'other')}" if before else ""
            return (f"Proposed ({who}){turn}; the random draw, {p3(last.draw)}, fell below p/q, "
                    f"{p3(_ratio(last))}: accepted.")
        return ("The drafts were rejected here; this token was drawn from the residual distribution, "
                "max(0, p - q).")

    def compared(self, trial: Trial) -> str:
        return f"{p3(trial.draw)} {'<' if trial.accepted else '≥'} {p3(_ratio(trial))}"

    def trials_column(self, event: Round) -> str:
        return "draw < p/q, q = 1" if point_masses(event) else "draw < p/q"

    def trial(self, trial: Trial, before: Sequence[Trial] = ()) -> str:
        again = ", drawn again" if any(other.node == trial.node for other in before) else ""
        return (f"p {p3(trial.target_prob)}  q {p3(trial.draft_prob)}  p/q {p3(_ratio(trial)):>6}  "
                f"draw {p3(trial.draw)}  {'accepted' if trial.accepted else 'rejected'}{again}")

    def trials_note(self, trials: Sequence[Trial]) -> str:
        if all(trial.draft_prob == 1.0 for trial in trials):
            return "q is 1 where the draft comes without a distribution"
        return "after a rejection p is the residual" if len(trials) > 1 else ""


class BlockSpec(RejectionSpec):
    """Block verification: drawn chains are judged as a whole, the longest prefix first."""

    name = "block"
    summary = "block verification (Sun): a drawn chain is judged as a whole, so more of it is kept than by rejection"
    brief = "for drawn chains, as a whole; the same distribution"
    source = "Sun et al. 2024 (Block Verification Accelerates Speculative Decoding), algorithm 2"
    trials_title = "the trials of the block law, the longest prefix first: it stays when the random draw < its bound"

    def walk(self, event: Round) -> str:
        if not _as_block(event):
            return f"This draft is no chain that was drawn, so it is judged token by token. {super().walk(event)}"
        return ("The chain is judged as a whole. It is shortened from its end, one token at a time, until a random "
                f"draw is below the bound of what is left. {self._one_by_one(event)}")

    def trial_words(self, trial: Trial) -> str:
        if trial.bound is None:
            return super().trial_words(trial)
        return (f": draw {p3(trial.draw)} {'<' if trial.accepted else '≥'} {p3(trial.bound)}, "
                f"{'the chain stays up to here' if trial.accepted else 'cut'}")

    def more(self, event: Round) -> list[str]:
        if not _as_block(event):
            return super().more(event)
        return ["The weight of a chain is min(1, weight before × p/q), token by token: a token with p > q "
                "makes up for one before it with p < q. The last token's bound is the chain's weight. "
                "At a place before it, let r be the sum of max(0, weight × p − q) over the tokens that may follow: the "
                "bound is r / (r + 1 − weight). More is accepted than token by token, and the distribution of the "
                "text stays the target's."]

    def own_token(self, last: Emitted) -> list[str]:
        if not last.trials or last.trials[0].bound is None:
            return super().own_token(last)
        return ["It was drawn from max(0, weight × p − q), scaled to a total of 1."]

    def kept(self, who: str) -> str:
        return f"Proposed ({who}), and kept with the chain, which was accepted up to a later token."

    def fate(self, token: TokenState, who: str) -> str:
        last = token.emitted.trials[-1]
        if last.bound is None:
            return super().fate(token, who)
        if token.kind == "accepted":
            return (f"Proposed ({who}), the last token of the chain that stays; the random draw, {p3(last.draw)}, fell "
                    f"below its bound, {p3(last.bound)}: accepted with all before it.")
        return "The chain was cut here; this token was drawn from max(0, weight × p − q), scaled to 1."

    def compared(self, trial: Trial) -> str:
        if trial.bound is None:
            return super().compared(trial)
        return f"{p3(trial.draw)} {'<' if trial.accepted else '≥'} {p3(trial.bound)}"

    def trials_column(self, event: Round) -> str:
        return "draw < bound" if _as_block(event) else super().trials_column(event)

    def trial(self, trial: Trial, before: Sequence[Trial] = ()) -> str:
        if trial.bound is None:
            return super().trial(trial, before)
        return (f"p {p3(trial.target_prob)}  q {p3(trial.draft_prob)}  bound {p3(trial.bound)}  draw {p3(trial.draw)}  "
                f"{'stays' if trial.accepted else 'cut'}")

    def trials_note(self, trials: Sequence[Trial]) -> str:
        if any(trial.bound is None for trial in trials):
            return super().trials_note(trials)
        return "tokens before the last that stays are kept with it, without a draw of their own"


class LossySpec(TryingSpec):
    """A law that changes the target's distribution."""

    lossless = False
    how: ClassVar[str]

    def walk(self, event: Round) -> str:
        bias = "" if event.bias is None else f" The bias of this round's first token is {p3(event.bias)}."
        return f"{LOSSY}: {self.how}. {self._one_by_one(event)}{bias}"

    def more(self, event: Round) -> list[str]:
        return ["Neither the text nor its distribution is the target's. The bias is the total variation distance "
                "between the token's distribution under this law, given the draft, and the target's; it is "
                "computed exactly."]


class RedrawSpec(LossySpec):
    """Each path of the tree draws its own tokens; the longest match wins."""

    name = "redraw"
    summary = "a draw for every path of the tree, the longest match wins (the code of REST and DReSD)"
    how = "every path of the tree draws its own tokens, and the longest match wins"
    source = "the public code of REST and DReSD; docs/glossary.md, redraw"
    trials_title = f"the draws of the redraw law, {LOSSY}: one for each path through a node; it hits when draw < p"

    def trial_words(self, trial: Trial) -> str:
        return f" has p {p3(trial.target_prob)}, draw {p3(trial.draw)}: {'drawn' if trial.accepted else 'missed'}"

    def own_token(self, last: Emitted) -> list[str]:
        if not last.trials:
            return ["It was drawn from p."]
        return [f"What the paths drew here was discarded, and this token drawn again from p. {LOSSY}."]

    def fate(self, token: TokenState, who: str) -> str:
        if token.kind != "accepted":
            return (f"Every path drew another token here than the one drafted. What they drew was discarded, and this "
                    f"token drawn again: so what was drafted had more than one chance. {LOSSY}.")
        mine = [trial for trial in token.emitted.trials if trial.node == token.emitted.node]
        hits, p = sum(trial.accepted for trial in mine), mine[0].target_prob if mine else 0.0
        drew = f"{hits} of {len(mine)} paths through it drew it" if len(mine) > 1 else "its path drew it"
        return (f"Proposed ({who}), and {drew}, each by a draw of its own: kept. The chance that one does is "
                f"{1 - (1 - p) ** len(mine):.3f} where the target has {p3(p)}, and a miss is drawn again. {LOSSY}.")

    def compared(self, trial: Trial) -> str:
        return f"{p3(trial.draw)} {'<' if trial.accepted else '≥'} {p3(trial.target_prob)}"

    def trials_column(self, event: Round) -> str:
        return "draw < p"

    def trial(self, trial: Trial, before: Sequence[Trial] = ()) -> str:
        return f"p {p3(trial.target_prob)}  draw {p3(trial.draw)}  {'drew it' if trial.accepted else 'missed'}"


class TypicalSpec(LossySpec):
    """Medusa's typical acceptance."""

    name = "typical"
    summary = "keeps drafts that the target finds likely enough (Medusa)"
    how = ("a draft passes where the target finds it likely enough, without a random draw; of the paths of drafts that "
           "pass the longest is kept")
    source = "Medusa (Cai et al. 2024), typical acceptance"
    trials_title = f"typical acceptance, {LOSSY}: no random draw, a draft passes when p > threshold"

    def rule(self, started: Started) -> str:
        return "At every row the target gives its distribution p, and with it a threshold for drafts."

    def trial_words(self, trial: Trial) -> str:
        return f" has p {p3(trial.target_prob)}, threshold {p3(trial.draw)}: {'passes' if trial.accepted else 'fails'}"

    def own_token(self, last: Emitted) -> list[str]:
        return ["It was drawn from p."]

    def fate(self, token: TokenState, who: str) -> str:
        if token.kind != "accepted":
            return ("Nothing that was drafted here passed the threshold; this token was drawn from the target's "
                    "distribution.")
        tried = next((trial for trial in token.emitted.trials if trial.node == token.emitted.node), None)
        p, bound = (tried.target_prob, tried.draw) if tried else (token.prob, 0.0)
        return (f"Proposed ({who}); the target gives it {p3(p)}, above the threshold {p3(bound)}: kept, as if it had "
                f"probability 1. {LOSSY}.")

    def compared(self, trial: Trial) -> str:
        return f"{p3(trial.target_prob)} {'>' if trial.accepted else '≤'} {p3(trial.draw)}"

    def trials_column(self, event: Round) -> str:
        return "p > threshold"

    def trial(self, trial: Trial, before: Sequence[Trial] = ()) -> str:
        return f"p {p3(trial.target_prob)}  threshold {p3(trial.draw)}  {'passes' if trial.accepted else 'fails'}"


GREEDY = LawSpec()
REJECTION = RejectionSpec()
LAWS: dict[str, LawSpec] = {law.name: law for law in (ExactSpec(), REJECTION, BlockSpec(), RedrawSpec(), TypicalSpec())}
"""The laws by name, in the order in which they are shown."""


def rivals(event: Round) -> str:
    """What was drafted where the walk ended."""
    below = children(event.draft.parents).get(event.path[-1] if event.path else -1, [])
    if below and all(event.draft.tokens[n] == UNDISCLOSED for n in below):
        return "another token, which is not disclosed"
    none = "nothing" if event.known == "all" else "nothing that is disclosed"
    return listed((event.draft.pieces[n] for n in below), 3) if below else none


def trials_of(event: Round) -> list[Trial]:
    """All trials of a round, in order."""
    return [trial for emitted in event.emitted for trial in emitted.trials]


def after_root(event: Round) -> str:
    """What the target chooses after the root."""
    if not event.emitted:
        return ""
    first = event.emitted[0]
    if first.trials:
        return f" After the root its likeliest is {chosen(first.top[0])}." if first.top else ""
    return f" After the root it chooses {quoted(first.piece)} ({p3(first.prob)})."


def point_masses(event: Round) -> bool:
    """Whether drafts were tried that nobody drew: q is then 1, and not what the drafter gave them."""
    trials = trials_of(event)
    return all(t.draft_prob == 1.0 for t in trials) and any(event.draft.probs[t.node] != 1.0 for t in trials)


def _as_block(event: Round) -> bool:
    """Whether a round's chain was judged as a whole."""
    return any(trial.bound is not None for trial in trials_of(event))


def _ratio(trial: Trial) -> float:
    return trial.target_prob / trial.draft_prob if trial.draft_prob else 0.0
