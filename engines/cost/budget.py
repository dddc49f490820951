"""How much to draft: the size that maximises expected tokens a second, by t(n) and the acceptance seen so far.

Where the text may depend on what is drafted (the rejection law above temperature 0), a budget decides on counts and on
a cost curve that stays fixed, never on a clock, so that a run can be repeated with its seed. Elsewhere it also learns
from the rounds what drafting and verifying really take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, islice
from operator import mul
from typing import Any

from engines.core.tree import DraftTree, depths
from engines.cost.curve import CostCurve, best_length, best_rate
from engines.cost.forward_times import DraftingTime, ForwardTimes

_STRENGTH = 4.0  # judgements that the prior is worth
_MEMORY = 0.98  # of the evidence, a round: what is skipped long enough is tried again
_TRIES = 4  # rounds of a run that draft in any case, so that what is said to not pay has been measured
_CERTAIN = 0.995  # no estimate is surer
_COLUMNS = 24  # depths, or lengths of a match, told apart
DRAFT_MODEL = 0.7
"""Acceptance expected of a draft model before any is seen."""

_RIVAL = 1 / 3  # the same where copies beside it promise less: over all tasks of the suite one in three came true
_COPY = 1 / 3  # the same of a copy after a match of one token
_ON_TRIAL = 2.0  # passes of one row that a draft model beside copies may lose before any round paid for it
_AT_RISK = 0.01  # of the time, what a draft model may lose where there are copies beside it
_SEARCHING = 0.01  # the same of each source of copies
_AT_FIRST = 0.3  # passes of one row that a search may lose before any round paid for it
_IDLE = 0.02  # of the time, what a method may lose in all: searching, choosing and reading are not free
_LOST = 1.0  # passes of one row lost after which a method rests
_LOST_BY_PARTS = 3.0  # the same of a method whose parts may each lose little
_WON = 2.0  # passes won that are remembered
_SLOWEST = 4.0  # passes that drafting in a round may seem to take: more is an accident
_RESTS = 8, 64  # rounds of the first rest, and of the longest
_MEANING = "meaning"

Kind = tuple[str, int]
"""What acceptance is counted by: the source, and the rank among the candidates of its tree."""

LEVELS: Kind = ("levels", 0)
"""Counts whole levels of a tree: whether any node of a depth was accepted."""

NODES_A_LEVEL = 2
"""Nodes of each level that are verified: a guess made before the tree is there."""


@dataclass(slots=True)
class AcceptanceCounts:
    """Judgements on one kind of draft, by column: depth, or for copies the length of the match before the token (a
    copied token that is accepted makes the match one longer). Old ones fade.

    Attributes:
        tried: nodes judged: their parent was accepted.
        kept: of these, accepted.
        predicted: sum of the drafter's own probabilities over those judged that had one.
        used: columns that anything was counted in, the first ones.
    """

    tried: list[float] = field(default_factory=lambda: [0.0] * _COLUMNS)
    kept: list[float] = field(default_factory=lambda: [0.0] * _COLUMNS)
    predicted: list[float] = field(default_factory=lambda: [0.0] * _COLUMNS)
    used: int = 0

    def fade(self) -> None:
        """Let every count weigh a little less: a round has passed."""
        used = self.used
        for column in (self.tried, self.kept, self.predicted):
            column[:used] = [count * _MEMORY for count in column[:used]]

    def add(self, column: int, kept: bool, prob: float | None) -> None:
        """Count a judgement on a node to which the drafter gave the probability ``prob``, or none."""
        self.used = max(self.used, column + 1)
        self.tried[column] += 1
        self.kept[column] += kept
        self.predicted[column] += prob or 0.0


@dataclass(slots=True)
class RestPeriod:
    """A method that loses time rests: it drafts nothing and looks for nothing, twice as long each time, until its
    drafts pay again.

    Attributes:
        account: passes of one row that its rounds won, less those lost; between rests.
        left: rounds of rest to come; ``following``: of the next rest.
        patience: passes of one row that may be lost before a rest.
    """

    account: float = 0.0
    left: int = 0
    following: int = _RESTS[0]
    patience: float = _LOST

    def learn(self, won: float) -> None:
        """A round won so many passes."""
        self.account = min(self.account + won + _IDLE, _WON)
        if self.account < -self.patience:
            self.left, self.account, self.following = self.following, 0.0, min(2 * self.following, _RESTS[1])
        elif self.account >= _LOST:
            self.following = _RESTS[0]


class Acceptance:
    """What has been seen of drafts so far, by kind and column; a prior stands in where nothing has.

    The chance in a column is the mean of a beta distribution whose prior comes from the column before: a draft model's
    next depth is expected to be as good as the last one, and a copy to fail the less the longer it has matched (before
    anything is seen, after n matched tokens with 2 / (n + 2)).

    Attributes:
        to_lose: passes of one row that a draft model beside copies may lose from here on: a share of what all rounds
            took, and what its own drafts won. Old ones fade. None where there are no copies.
        to_search: the same of each source of copies, by its name.
        times: what forwards of the target took; ``drafting``: what drafts took.
        rest: whether the method as a whole pays.
    """

    def __init__(self) -> None:
        self._counts: dict[Kind, AcceptanceCounts] = {}
        self.to_lose: float | None = None
        self.to_search: dict[str, float] = {}
        self.times, self.drafting = ForwardTimes(), DraftingTime()
        self.rest = RestPeriod()

    def chances(self, kind: Kind, copied: bool, unseen: float = DRAFT_MODEL) -> list[float]:
        """For each column the probability that a node is accepted once its parent is; ``unseen``: what is expected of a
        draft model before any is seen."""
        counts = self._counts.get(kind, _NOTHING)
        prior = (_COPY if copied else unseen) / (1 + kind[1])
        return [min(chance, _CERTAIN) for chance in _posterior(counts.kept, counts.tried, prior, copied)]

    def calibration(self, kind: Kind, copied: bool = False) -> list[float]:
        """For each column the factor by which the drafter's own probabilities come true: expected to be 1, and of
        copies, whose probabilities are shares of what followed elsewhere, to come to 1 with the length of the match (of
        what was found by meaning, with each accepted token: one near state is worth no more than one equal token)."""
        counts = self._counts.get(kind, _NOTHING)
        return _posterior(counts.kept, counts.predicted, _COPY if copied else 1.0, copied)

    def learn(self, tree: DraftTree, path: Sequence[int], seen: Sequence[Kind]) -> None:
        """Count a verdict, and let fade what is known of ``seen``, the kinds of this round, drafted or not."""
        for kind in {LEVELS, *seen}:
            if kind in self._counts:
                self._counts[kind].fade()
        levels = self._judge(tree, [tree.tokens[node] for node in path], len(tree))
        for depth, kept in levels.items():
            self._of(LEVELS).add(_column(0, depth), kept, None)

    def overhear(self, tree: DraftTree, said: Sequence[int]) -> None:
        """Count a draft that was not verified, as far down as the text that was written tells."""
        self._judge(tree, said, len(said))

    def _judge(self, tree: DraftTree, said: Sequence[int], deepest: int) -> dict[int, bool]:
        """Count the nodes on and beside a text, down to a depth, beyond whose end nothing is accepted; by depth whether
        any of its level was."""
        accepted, levels = {-1: 0}, {}  # depths of accepted nodes
        own = _own(tree)
        for node, parent in enumerate(tree.parents):
            if parent not in accepted or accepted[parent] == deepest:
                continue
            depth = accepted[parent] + 1
            kept = depth <= len(said) and tree.tokens[node] == said[depth - 1]  # a duplicate of an accepted node too
            if kept:
                accepted[node] = depth
            rank, prob = tree.origin[node], tree.probs[node]
            origin = tree.origins[rank]
            self._of(kind_of(origin, rank if prob is None else 0)).add(_column(origin.match, depth), kept, prob)
            if own is None or own[node]:
                levels[depth] = levels.get(depth, False) or kept
        return levels

    def _of(self, kind: Kind) -> AcceptanceCounts:
        return self._counts.setdefault(kind, AcceptanceCounts())


@dataclass(frozen=True, slots=True)
class BudgetChoice:
    """What a budget chose of a draft.

    Attributes:
        kept: nodes that are verified; ``proposed``: nodes it chose from, None for a chain, which ends where it is long
            enough.
        expected: tokens that the round is expected to make.
        rests: nothing was looked for: rounds before took more time than they saved (``RestPeriod``).
    """

    kept: int
    proposed: int | None
    expected: float
    rests: bool = False


RESTING = BudgetChoice(0, None, 1.0, rests=True)


class Budget:
    """One run's decisions on how much to draft.

    Args:
        price: t(n) of the target.
        acceptance: what is known already; shared between runs where the text cannot depend on it.
        timed: whether the rounds' own times may be learned from.

    Attributes:
        unseen: acceptance expected of a draft model before any is seen.
        resting: nothing is drafted in this round.
    """

    def __init__(self, price: CostCurve, acceptance: Acceptance | None = None, timed: bool = False) -> None:
        self.price, self._at, self._cheapest_row = price, cache(price.at), cache(self._row_share)
        self._times: list[float] = []  # t(1), t(2), ... as they are expected in this round
        self.acceptance = acceptance or Acceptance()
        self.timed = timed
        self.unseen = DRAFT_MODEL
        self.resting = False
        self._seen: list[Kind] = []
        self._rounds = 0
        self._expected_drafting = 0.0  # seconds of drafting expected for this round, and of reading before it
        self._expected_reading = 0.0
        self._drafted: float | None = None  # seconds of this round's drafting alone, where searches stand beside it
        self._valued: list[tuple[DraftTree, list[float]]] = []  # this round's trees, with the values of their nodes
        self._pruned: DraftTree | None = None  # the one that the round's draft was cut from
        self._tables: dict[object, Any] = {}

    def rests(self) -> bool:
        """Whether the round that begins is one of rest: never where the rounds' own times may not be learned from."""
        rest = self.acceptance.rest
        self.resting = self.timed and rest.left > 0
        rest.left -= self.resting
        return self.resting

    def more(
        self, kind: Kind, values: Sequence[float], most: int, draft_seconds: Callable[[int], float], width: int = 1,
        once: float = 0.0,
    ) -> bool:
        """Whether to draft another token of a chain, or another level of a tree.

        Args:
            values: for each token drafted so far the probability that it will be accepted, with all before it.
            most: how many there may be.
            draft_seconds: time of drafting n of them.
            width: rows to verify for each.
            once: seconds that this round's drafting takes beyond that, to read what others drafted: each token is
                read once, whoever drafts it.
        """
        done = len(values)
        if done >= most:
            return False
        if not done:
            self._seen.append(kind)
        chances, seconds = self._foreseen(kind, most, draft_seconds, width)
        alive = accumulate(chances[done:], mul, initial=values[-1] if values else 1.0)
        expected = [*values, *islice(alive, 1, None)]
        more = best_length(expected, seconds, least=done) > done or (self._rounds < _TRIES and not done)
        if more:
            self._expected_drafting, self._expected_reading = draft_seconds(done + 1), once
        return more

    def belief(self, kind: Kind, depth: int, prob: float) -> float:
        """The drafter's own probability of a node at a depth, as far as such ones came true."""
        return min(prob * self._known(kind, copied=False, unsaid=False)[_column(0, depth)], _CERTAIN)

    def prune(self, tree: DraftTree, draft_seconds: float = 0.0) -> DraftTree:
        """The nodes of a tree that are worth verifying, its drafting paid already.

        Only for drafts whose nodes are point masses: leaving out a node that was drawn at random would bias the
        rejection law.
        """
        self._see(tree)
        self._pruned = tree
        if not len(tree):
            return tree
        values = self.values(tree)
        order = sorted(range(len(tree)), key=values.__getitem__, reverse=True)  # a parent stays before its child
        falling = [values[node] for node in order]
        count = best_length(falling, self._seconds(len(tree), self._draft(draft_seconds)))
        count = max(count, 1 if self._rounds < _TRIES else 0)
        kept = tree.select(sorted(order[:count])) if count < len(tree) else tree
        expected = 1 + sum(falling[:count])
        kept.budget = BudgetChoice(count, len(tree), round(expected, 2))
        return kept

    def least_shares(self, match: int | None, depth: int, nodes: int) -> list[float]:
        """For each depth the share of what was found below which a node is not worth a row of the pass, whatever else
        is drafted: its chance, the share as far as such ones came true, is half of what a row takes of a pass at the
        least, among so many. ``match``: tokens matched; None of what was found by meaning."""
        known = self._known((_MEANING if match is None else "retrieval", 0), copied=True, unsaid=False)
        true = accumulate((min(1.0, known[_column(match, 1 + d)]) for d in range(depth)), mul)
        least = self._cheapest_row(nodes) / 2
        return [least / share for share in true]

    def _row_share(self, most: int) -> float:
        """The least share of a pass of one row that each row more takes, among up to so many."""
        one = self._at(1)
        sizes = [size for size in (1, 2, 4, 8, 16, 32, 64, 128, 256) if size <= max(1, most)]
        return max(0.0, min((self._at(1 + size) - one) / (size * one) for size in sizes))

    def score(self, tree: DraftTree) -> float:
        """Accepted tokens expected of a draft: the sum of its nodes' probabilities. If another draft is taken, it is
        judged all the same, by the text that comes."""
        self._see(tree)
        values = self.values(tree)
        self._valued.append((tree, values))
        return sum(values)

    def rate(self, tree: DraftTree) -> float:
        """Tokens a second expected of a round that verifies the best part of a tree, its drafting paid already."""
        values = sorted(self.values(tree), reverse=True)
        return best_rate(values, self._seconds(len(values)))

    def chain_rate(self, kind: Kind, most: int, draft_seconds: Callable[[int], float]) -> float:
        """The same of a chain that a draft model beside copies has not drafted yet; arguments as of ``more``. It is not
        drafted where that may lose more than such a model may (conservative bandits, Wu et al. 2016)."""
        least = self._verify(2) - self._verify(1) + self._draft(draft_seconds(1))
        if least > self.acceptance.to_lose * self._verify(1):
            most = 0
        chances, seconds = self._foreseen(kind, most, draft_seconds)
        return best_rate(list(accumulate(chances, mul)), seconds)

    def affords(self, source: str) -> bool:
        """Whether one of several sources of copies is to search in this round: not where its searches took more time
        than they won, beyond a small share of all. Each does where the rounds' own times may not be learned from."""
        return not self.timed or self._to_search(source) > 0

    def searched(self, source: str, seconds: float, won: float) -> None:
        """What a search of such a source took, and what it ``won``."""
        if self.timed:
            self.acceptance.to_search[source] = self._to_search(source) + won - seconds / self._verify(1)

    def drafted(self, seconds: float) -> None:
        """What a draft model beside sources of copies took in this round."""
        self._drafted = seconds

    def _to_search(self, source: str) -> float:
        return self.acceptance.to_search.setdefault(source, _AT_FIRST)

    def won(self, accepted: int, rows: int, rival: float = 0.0) -> float:
        """Passes of one row that a round saved which verified so many drafted rows and accepted so many of them. It is
        compared with drafting nothing, or with a rival that would have made so many tokens a second."""
        one = self._verify(1)
        return ((accepted + 1) * min(one, 1 / rival if rival else one) - self._verify(1 + rows)) / one

    def compete(self, expected: float | None) -> None:
        """There are copies beside a draft model or head, which cost next to nothing. ``expected``: the acceptance that
        is expected of it before any is seen; of one of which that is not known less is expected, and it drafts once
        rounds without it have paid for a try."""
        self.acceptance.rest.patience = _LOST_BY_PARTS
        self.unseen = _RIVAL if expected is None else expected
        if self.acceptance.to_lose is None:
            self.acceptance.to_lose = 0.0 if expected is None else _ON_TRIAL

    def _foreseen(
        self, kind: Kind, most: int, draft_seconds: Callable[[int], float], width: int = 1
    ) -> tuple[list[float], list[float]]:
        """The chance of each of ``most`` tokens of a chain, or levels of a tree, and the seconds of a round that drafts
        0, 1, ... of them; arguments as of ``more``."""
        def foresee() -> tuple[list[float], list[float]]:
            chances = self.acceptance.chances(kind, copied=False, unseen=self.unseen)
            chances = [*chances, *chances[-1:] * (most - _COLUMNS)][:most]  # what lies deeper counts in the last column
            return chances, [self._verify(1 + width * n) + (self._draft(draft_seconds(n)) if n else 0.0)
                             for n in range(len(chances) + 1)]

        return self._once(("foreseen", kind, most, width), foresee)

    def _once(self, key: object, compute: Callable[[], Any]) -> Any:
        """What is the same all through a round."""
        found = self._tables.get(key)
        if found is None:
            found = self._tables[key] = compute()
        return found

    def _see(self, tree: DraftTree) -> None:
        for rank, origin in enumerate(tree.origins):
            first = kind_of(origin)
            self._seen.append(first)
            if rank:
                self._seen.append((first[0], min(rank, 3)))

    def values(self, tree: DraftTree) -> list[float]:
        """For each node the probability that it is accepted, by the drafter's own belief as far as that came true, or
        by what is known of its kind where the drafter has none. Those of siblings add up to at most their parent's,
        since at most one of them is accepted."""
        for valued, values in self._valued:
            if valued is tree:
                return values
        values, left = [], {}  # left: by parent, what the siblings so far leave of its probability
        of, table, before = None, [], 0  # the origin of the node before, its table, the column before depth 1
        for parent, depth, rank, prob in zip(tree.parents, depths(tree.parents), tree.origin, tree.probs):
            if of != (rank, prob is None):
                of = rank, prob is None
                table, before = self._table(tree, *of), _column(tree.origins[rank].match, 0)
            column = before + depth
            chance = table[column if column < _COLUMNS else -1]
            if prob is not None:
                chance *= prob
                if chance > _CERTAIN:
                    chance = _CERTAIN
            whole = values[parent] if parent >= 0 else 1.0
            value = min(chance * whole, left.get(parent, whole))
            left[parent] = left.get(parent, whole) - value
            values.append(value)
        return values

    def _table(self, tree: DraftTree, rank: int, unsaid: bool) -> list[float]:
        """What is known of nodes of an origin of a tree, with probabilities or without, by column."""
        return self._known(kind_of(tree.origins[rank], rank if unsaid else 0), _copied(tree.origins[rank]), unsaid)

    def _known(self, kind: Kind, copied: bool, unsaid: bool) -> list[float]:
        known = self.acceptance.chances if unsaid else self.acceptance.calibration
        return self._once(("known", kind, copied, unsaid), lambda: known(kind, copied))

    def learn(
        self, tree: DraftTree, path: Sequence[int], draft_seconds: float, verify_seconds: float,
        said: Sequence[int] = (),
    ) -> None:
        """The verdict on the last draft, what it took, and the tokens that were written: they judge the drafts that
        were scored and not taken."""
        if self.resting:
            self.acceptance.times.learn(self._at(1), self._at(1), verify_seconds)
            self._times.clear()
            return
        self.acceptance.learn(tree, path, self._seen)
        for other, _ in self._valued:
            if other is not tree and other is not self._pruned:
                self.acceptance.overhear(other, said)
        self._settle(tree, len(path))
        if self.timed:
            drafting = max(0.0, draft_seconds - self._expected_reading)
            took = (self._verify(1 + len(tree)) + min(drafting, _SLOWEST * self._at(1))) / self._verify(1)
            self.acceptance.times.learn(self._at(1), self._at(1 + len(tree)), verify_seconds)
            if self._rounds:  # the first drafts read from disk, and import
                self.acceptance.rest.learn(1 + len(path) - took)
                self.acceptance.drafting.learn(
                    draft_seconds if self._drafted is None else self._drafted,
                    self._expected_drafting + self._expected_reading)
            self._times.clear()
        self._seen, self._valued, self._pruned = [], [], None
        self._expected_drafting = self._expected_reading = 0.0
        self._drafted = None
        self._tables.clear()
        self._rounds += 1

    def _settle(self, tree: DraftTree, accepted: int) -> None:
        """What the round took and brought, by the prices: what a draft model beside copies may lose after it."""
        drafting = self._draft(self._expected_drafting)
        one, took = self._verify(1), self._verify(1 + len(tree)) + drafting
        won = (1 + accepted) * one - took if self._expected_drafting else 0.0
        if self.acceptance.to_lose is not None:
            self.acceptance.to_lose = _MEMORY * self.acceptance.to_lose + (_AT_RISK * took + won) / one
        for source, credit in self.acceptance.to_search.items():
            self.acceptance.to_search[source] = _MEMORY * credit + _SEARCHING * took / one

    def _seconds(self, most: int, drafting: float = 0.0) -> list[float]:
        """Seconds of a round that verifies 0 to so many drafted nodes."""
        self._verify(most + 1)
        return [seconds + drafting for seconds in self._times[: most + 1]]

    def _verify(self, rows: int) -> float:
        while len(self._times) < rows:
            self._times.append(self.acceptance.times.seconds(self._at(1), self._at(len(self._times) + 1)))
        return self._times[rows - 1]

    def _draft(self, foreseen: float) -> float:
        """Seconds that drafting is expected to take; ``foreseen``: by the price alone, 0 where no model drafts."""
        return self.acceptance.drafting.seconds(foreseen) if self.timed and foreseen else foreseen


def _posterior(kept: list[float], total: list[float], prior: float, copied: bool) -> list[float]:
    """For each column kept / total, leaning on the column before, the first on ``prior``; of copies each is expected
    to be better than the one before."""
    value, out = prior, []
    for column, (good, judged) in enumerate(zip(kept, total)):
        if copied and column and value < 1:
            value = 1 - (1 - value) * (column + 2) / (column + 3)
        if good or judged:
            value = (good + _STRENGTH * value) / (judged + _STRENGTH)
        out.append(value)
    return out


def _own(tree: DraftTree) -> list[bool] | None:
    """Which nodes belong to the levels of a tree: of a fused one those on paths that its draft model drafted alone;
    None stands for all of them."""
    sources = [origin.source for origin in tree.origins]
    if sources == ["draft"] or "draft" not in sources:
        return None
    own: list[bool] = []
    for parent, origin in zip(tree.parents, tree.origin):
        own.append(sources[origin] == "draft" and (parent < 0 or own[parent]))
    return own


def _copied(origin: Any) -> bool:
    """Whether an origin's tokens stood after others somewhere, and its probabilities are shares of such places."""
    return origin.match is not None or kind_of(origin)[0] == _MEANING


def _column(match: int | None, depth: int) -> int:
    """The column of a node: its depth, or the length of the match before it."""
    return min((match or 1) + depth - 1, _COLUMNS) - 1


def kind_of(origin: Any, rank: int = 0) -> Kind:
    """What the acceptance of an origin (``engines.report.events.Origin``) is counted by; the first candidate
    deserves more trust than the fourth. Retrieval by meaning is another source than that by exact match: it knows no
    length of a match."""
    meaning = origin.source == "retrieval" and origin.match is None
    return _MEANING if meaning else origin.source, min(rank, 3)


_NOTHING = AcceptanceCounts()
