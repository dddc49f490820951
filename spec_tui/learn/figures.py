"""The figures of lessons: what is drawn from a recorded run, and what the reader may move or draw at random in it.

A figure is data and its rows. Random draws come from the code that the laws use (``engines.randomness``), sizes and
times from the run's events; nothing is made up.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import lru_cache
from statistics import fmean, median
from textwrap import wrap

import numpy as np

from engines.core.tree import chain_to, children, depths
from engines.cost.curve import CostCurve
from engines.cost.speedup_model import SpeedupModel
from engines.methods import specs
from engines.methods.admg.rules import leave_out
from engines.randomness import GumbelNoise, SeededRng, bound, residual
from engines.report.events import Choice, Emitted, Round
from engines.report.run_state import RunState, origin_of
from engines.report.wording import context_tail, counted, joined, ms, quoted, seconds_of
from spec_tui.learn.lesson import find, names
from spec_tui.learn.lesson_facts import FLAT, Missing, kept_chances
from spec_tui.present.rows import Row, bar, words_of
from spec_tui.present.text import one_line
from spec_tui.present.token_styles import ABSENT, ACCEPTED, HERE, PRESENT, PRUNED, REJECTED, proposer

Runs = Mapping[str, RunState]
AT_ONCE = 1000  # random draws for one press of a key


class LessonFigure(ABC):
    """A picture that the reader may change.

    Args:
        runs: the runs of the lesson.
        run, event: the run of the page, and its round; None where the page names none.

    Attributes:
        title: what it shows.
        moves: what ↑ and ↓ change; "" where they change nothing.
        draws: what space does; "" where it does nothing. ``verb`` is that in a word.
        of_run: whether it shows the run.

    Raises:
        Missing: the run does not have what it shows.
    """

    title = ""
    moves = ""
    draws = ""
    verb = "Draw"
    of_run = True

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        self.runs, self.run, self.event = runs, run, event

    @abstractmethod
    def rows(self, width: int, height: int) -> list[Row]:
        """The picture in a space of this size."""

    def move(self, step: int) -> None:  # noqa: B027
        """Change what ``moves`` names, up or down."""

    def draw(self) -> None:  # noqa: B027
        """Do what ``draws`` says."""

    def still(self, width: int, height: int) -> list[Row]:
        """The picture on paper and line by line, where no key can be pressed: with what the keys would lead to."""
        return self.rows(width, height)


def told(width: int, strong: str, plain: str = "") -> list[Row]:
    """Sentences under a picture, wrapped: what matters first."""
    rows: list[Row] = []
    for line in wrap(f"{strong} {plain}", width - 1, initial_indent=" ", subsequent_indent=" "):
        rest = strong[sum(len(words_of(row).strip()) + 1 for row in rows) :]
        head = min(len(line), len(rest) + 1) if rest else 0
        rows.append([(line[:head], "strong"), (line[head:], "text")])
    return rows


class CostFigure(LessonFigure):
    """t(n): a part that all rows share, and a part for each row."""

    title = "t(n): the time of a forward pass over n rows"
    moves = "n"

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        points = run.started.price if run.started is not None else ()
        if len(points) < 2:
            raise Missing("this run has no t(n)")
        self.curve = CostCurve(points)
        self.sizes = [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= max(16, points[-1][0])]
        self.at = 3

    def move(self, step: int) -> None:
        self.at = max(0, min(len(self.sizes) - 1, self.at - step))  # larger ones stand below

    def rows(self, width: int, height: int) -> list[Row]:
        one, top = self.curve.at(1), self.curve.at(self.sizes[-1])
        measured = {n for n, _ in self.curve.points}
        room = max(8, width - 44)
        out: list[Row] = []
        for number, n in enumerate(self.sizes):
            seconds = self.curve.at(n)
            here, bent = number == self.at, seconds > FLAT * one
            out.append([(f"{HERE if here else ' '}{counted(n, 'row'):>8} ", "strong" if here else "text"),
                        (f"{bar(seconds / top, room):<{room}}", "accent" if bent else "bar"),
                        (f" {'' if n in measured else '~ '}{ms(seconds)}".rjust(12), "strong" if here else "muted"),
                        (f" {seconds / one:>5.2f} × t(1)", "strong" if here else "muted")])
        n = self.sizes[self.at]
        times = self.curve.at(n) / one
        between = " ~ is interpolated." if set(self.sizes) - measured else ""
        return [*out, *told(width, f"t({n}) = {times:.2f} × t(1).",
                            f"{counted(n, 'single pass')}: {n} × t(1).{between}")]


class TrialFigure(LessonFigure):
    """p, q and what a rejection leaves, and the law drawing from them."""

    title = "p, q, what a rejection leaves, and what the law has written"
    moves = "q: how much the drafter is like the target"
    draws = f"the law draws {AT_ONCE:,} times"
    _MIXES = (-0.8, -0.4, 0.0, 0.4, 0.8, 1.0)

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        if event is None or not event.verified:
            raise Missing("this round has no probabilities")
        pairs: dict[str, tuple[float, float]] = {}
        for node in children(event.draft.parents).get(-1, ()):
            p, q = event.verified[node + 1].drafted, event.draft.probs[node]
            if p is not None and q is not None and len(pairs) < 4:
                pairs.setdefault(event.draft.pieces[node], (p, q))
        if len(pairs) < 2:
            raise Missing("this round has too few probabilities")
        self.names = [*map(quoted, pairs), "others"]
        both = np.array([*pairs.values(), (0.0, 0.0)])
        both[-1] = np.maximum(0.0, 1 - both.sum(axis=0))
        self.p, self._q = (column / column.sum() for column in both.T)
        self.at, self.drawn, self.kept = self._MIXES.index(0.0), np.zeros(len(self.names), int), 0
        self.rng = SeededRng(run.started.seed if run.started is not None else 0)

    @property
    def q(self) -> np.ndarray:
        """The drafter's distribution as it is set: the recorded one, or one nearer to p or to none at all."""
        mix = self._MIXES[self.at]
        other = self.p if mix > 0 else np.full(len(self.p), 1 / len(self.p))
        return (1 - abs(mix)) * self._q + abs(mix) * other

    @property
    def accepted(self) -> float:
        """The chance that a draft is accepted: the sum of the smaller of p and q."""
        return float(np.minimum(self.p, self.q).sum())

    def move(self, step: int) -> None:
        self.at = max(0, min(len(self._MIXES) - 1, self.at + step))
        self.drawn[:], self.kept = 0, 0

    def draw(self) -> None:
        q = self.q
        left = residual(self.p, q)
        for _ in range(AT_ONCE):
            token = self.rng.draw(q)
            _, kept = self.rng.accept(bound(float(self.p[token]), float(q[token])))
            self.drawn[token if kept else self.rng.draw(left)] += 1
            self.kept += kept

    def still(self, width: int, height: int) -> list[Row]:
        if not self.drawn.any():
            self.draw()
        return self.rows(width, height)

    def rows(self, width: int, height: int) -> list[Row]:
        q, left, total = self.q, residual(self.p, self.q), int(self.drawn.sum())
        drawn = self.drawn / total if total else None
        label = 11
        room = max(3, (width - label) // 4 - 8)
        said = f"drawn {total:,}" if total else "drawn: space"
        heads = ("p, target", "q, drafter", "residual", said)
        out: list[Row] = [[(" " * label, "text"), *((f"{head:<{room + 7}} ", "title") for head in heads)]]
        for n, name in enumerate(self.names):
            row = [(f"{one_line(name, label - 1):<{label}}", "text")]
            for share, style in ((self.p[n], "accepted"), (q[n], "by-draft"), (left[n], "muted"),
                                 (drawn[n] if drawn is not None else None, "accent")):
                known = share is not None
                row += [(f"{bar(share, room) if known else '':<{room}}", style),
                        (f" {share:.3f}  " if known else " " * 8, "text")]
            out.append(row)
        n, kept = int(np.argmax(self.p - q)), self.accepted
        drawn = f" ({self.kept / total:.3f} of the draws)" if total else ""
        return [
            *out, *told(width, f"A draft is kept with probability {kept:.3f}{drawn}."),
            *told(width, f"{one_line(self.names[n], label)}:", f"kept {min(self.p[n], q[n]):.3f} + rejected "
                  f"(1 - {kept:.3f}) × residual {left[n]:.3f} = {self.p[n]:.3f} = p."),
        ]


class BlockFigure(LessonFigure):
    """A drawn chain: the chance that its beginnings stay, token by token and as a block. Each is the chance given the
    tokens up to there and no later one, so that of a block may rise from row to row."""

    title = "the chance that the tokens up to a row stay, whatever is drafted after them"
    moves = "the chain"

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        self.chains = [one for one in run.rounds if len(kept_chances(one)) > 1]
        if event not in self.chains:
            raise Missing("this round has no chain whose probabilities are known")
        self.at = self.chains.index(event)

    def move(self, step: int) -> None:
        self.at = max(0, min(len(self.chains) - 1, self.at - step))

    def rows(self, width: int, height: int) -> list[Row]:
        event = self.chains[self.at]
        chances, label = kept_chances(event), 13
        room = max(3, (width - label - 16) // 2 - 8)
        out: list[Row] = [[(f"{'':<{label}}  {'p':<6}{'q':<7}", "title"), (f"{'token by token':<{room + 8}}", "title"),
                           ("as a block: weight", "title")]]
        for node, (alone, weight) in enumerate(chances[: max(2, height - 4)]):
            p, q = event.verified[node + 1].drafted, event.draft.probs[node]
            made_up = weight > alone + 0.0005
            name = f"{node + 1} {one_line(quoted(event.draft.pieces[node]), label - 3)}"
            out.append([(f"{name:<{label}} {p:.3f} {q:.3f}  ", "text"),
                        (f"{bar(alone, room):<{room}}", "bar"), (f" {alone:.3f}  ", "text"),
                        (f"{bar(weight, room):<{room}}", "accent" if made_up else "bar"),
                        (f" {weight:.3f}", "strong" if made_up else "text")])
        (alone, weight), last = chances[-1], len(chances)
        words = ("Here nothing is made up for." if not any(block > one + 0.0005 for one, block in chances) else
                 "A token with p above q makes up for those before it. Row by row one more drafted token is known: a "
                 "weight of an earlier row is an average over all that may come after it.")
        return [*out, *told(width, f"Round {event.index}: all {last} stay with {alone:.3f} or {weight:.3f}.", words)]

    def still(self, width: int, height: int) -> list[Row]:
        return self.rows(width, len(kept_chances(self.chains[self.at])) + 4)


class NoiseFigure(LessonFigure):
    """Scores and noise of one position, for two engines with the same seed."""

    title = "one position: log p + noise = score"
    moves = "the position"
    draws = f"choose with {AT_ONCE:,} other seeds"
    _HEADS, _BAR = ("log p", "noise", "score"), "score, │ zero"

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        self.texts = [(one_line(other.started.engine, 14), self._emitted(other)) for other in runs.values()
                      if other.started is not None and self._drawn(other) == self._drawn(run)]
        first = self.texts[0][1] if self.texts else []
        self.places = [n for n, emitted in enumerate(first) if emitted.noise is not None and len(emitted.top) > 2]
        if not self.places or len(self.texts) < 2:
            raise Missing("these runs were not drawn by noise")
        self.share = None
        self.at = next((at for at, n in enumerate(self.places) if first[n].top[0].token != first[n].token), 0)

    @staticmethod
    def _columns(p: float, log: float, noise: float) -> tuple[str, ...]:
        """The cells of a token, at most 7 characters each; the last one's value is the bar's."""
        return f"{log:.2f}", f"{noise:+.2f}", f"{log + noise:.2f}"

    @staticmethod
    def _drawn(run: RunState) -> tuple:
        """What fixes the text of a run that is drawn by noise."""
        started = run.started
        return started.conversation, started.model, started.law, started.temperature, started.seed

    @staticmethod
    def _emitted(run: RunState) -> list[Emitted]:
        return [token.emitted for token in run.tokens]

    def move(self, step: int) -> None:
        self.at, self.share = max(0, min(len(self.places) - 1, self.at + step)), None

    def _choices(self) -> list[Choice]:
        """The likeliest tokens of the position, the chosen one among them."""
        emitted = self.texts[0][1][self.places[self.at]]
        top = list(emitted.top[:4])
        if emitted.token not in {choice.token for choice in top}:
            top[-1] = Choice(emitted.token, emitted.piece, emitted.prob)
        return top

    def _scores(self, seed: int, choices: Sequence[Choice]) -> list[tuple[float, float]]:
        """log p and noise of each token under a seed."""
        return _scored(seed, self._position, tuple((choice.token, choice.prob) for choice in choices))

    @property
    def _position(self) -> int:
        return len(self.run.started.prompt) + self.places[self.at]

    def draw(self) -> None:
        tokens = tuple((choice.token, choice.prob) for choice in self._choices())
        self.share = np.array(_shares(self._position, tokens))

    def rows(self, width: int, height: int) -> list[Row]:
        place, choices = self.places[self.at], self._choices()
        pairs = self._scores(self.run.started.seed, choices)
        best = int(np.argmax([sum(pair) for pair in pairs]))
        room = max(6, width - 64)
        drawn = f"of {AT_ONCE:,} seeds" if self.share is not None else ""
        out: list[Row] = [[(f"{'token ' + str(place + 1):<15}{'p':>6}", "title"),
                           ("".join(f"{head:>8}" for head in self._HEADS), "title"),
                           (f" {self._BAR:<{room}}{drawn:>16}", "title")]]
        total = sum(choice.prob for choice in choices)
        columns = [self._columns(choice.prob, *pair) for choice, pair in zip(choices, pairs)]
        bars = _around_zero([float(column[-1]) for column in columns], room)
        for n, (choice, column) in enumerate(zip(choices, columns)):
            style = "strong" if n == best else "text"
            share = f"{self.share[n]:>7.3f} ({choice.prob / total:.3f})" if self.share is not None else ""
            out.append([(f"{HERE if n == best else ' '}{one_line(quoted(choice.piece), 13):<14}", style),
                        (f"{choice.prob:>6.3f}{''.join(f'{cell:>8}' for cell in column)} ", style),
                        (bars[n], "accent" if n == best else "bar"), (share, "muted")])
        for name, emitted in self.texts:
            if place < len(emitted):
                before = "".join(one.text for one in emitted[max(0, place - 6) : place])
                out.append([(f" text of {name:<15}", "muted"), (f"…{one_line(before, 30)}", "text"),
                            (one_line(emitted[place].text, 14), "accent")])
        same = len({tuple(one.token for one in emitted[: place + 1]) for _, emitted in self.texts}) == 1
        words = "The same text so far." if same else "The texts differ here: a tie of two scores, within rounding."
        note = self._elsewhere(choices) if self.share is None else "In brackets: p among the listed tokens."
        return [*out, [(f" {words} ", "good" if same else "bad"), (note, "muted")]]

    def still(self, width: int, height: int) -> list[Row]:
        words = self._elsewhere(self._choices())
        if self.share is None:
            self.draw()
        return [*self.rows(width, height), [(f" {words}", "muted")]]

    def _elsewhere(self, choices: Sequence[Choice]) -> str:
        """What wins at this position with the next seed that chooses another token."""
        own, shown = self._winner(self.run.started.seed, choices), f"This is seed {self.run.started.seed}."
        for seed in range(self.run.started.seed + 1, self.run.started.seed + 20):
            if (other := self._winner(seed, choices)) != own:
                return f"{shown} Seed {seed} would give {one_line(quoted(choices[other].piece), 14)}."
        return shown

    def _winner(self, seed: int, choices: Sequence[Choice]) -> int:
        return _winner(self._scores(seed, choices))


class WaitingFigure(NoiseFigure):
    """The same position as a race: a random waiting time for each token, divided by its p; the shortest wins."""

    title = "one position: waiting time / p = arrival, and the first to arrive is written"
    _HEADS, _BAR = ("waiting", "arrival"), "arrival"

    @staticmethod
    def _columns(p: float, log: float, noise: float) -> tuple[str, ...]:
        arrival = math.exp(-log - noise)
        return f"{math.exp(-noise):.3f}", f"{arrival:.3f}" if arrival < 1000 else f"{arrival:.0e}"


def _around_zero(values: Sequence[float], room: int) -> list[str]:
    """Bars of these values to the left and to the right of a line at zero."""
    low, high = min(0.0, *values), max(0.0, *values)
    left = round((room - 1) * -low / ((high - low) or 1.0))
    right = room - 1 - left
    return [f"{'█' * (round(left * value / low) if value < 0 else 0):>{left}}│"
            f"{bar(value / high if value > 0 else 0.0, right):<{right}}" for value in values]


def _scored(seed: int, position: int, tokens: tuple[tuple[int, float], ...]) -> list[tuple[float, float]]:
    """log p and noise of each of these tokens, given with their p, under a seed."""
    noise = GumbelNoise(seed, max(token for token, _ in tokens) + 1).at(position)
    return [(math.log(max(p, 1e-9)), float(noise[token])) for token, p in tokens]


def _winner(scores: Sequence[tuple[float, float]]) -> int:
    return int(np.argmax([sum(pair) for pair in scores]))


@lru_cache(maxsize=32)
def _shares(position: int, tokens: tuple[tuple[int, float], ...]) -> tuple[float, ...]:
    """How often each of these tokens wins, over many seeds."""
    won = [_winner(_scored(seed + 1, position, tokens)) for seed in range(AT_ONCE)]
    return tuple(won.count(n) / AT_ONCE for n in range(len(tokens)))


class TrieFigure(LessonFigure):
    """A tree of continuations with their shares, and the cut to the c likeliest nodes."""

    title = "continuations in a trie, cut to c nodes"
    moves = "c, the nodes that are kept"

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        if event is None or len(event.draft.tokens) < 4 or None in event.draft.probs:
            raise Missing("this round has no trie")
        draft, reach = event.draft, []
        for node, parent in enumerate(draft.parents):
            reach.append(draft.probs[node] * (reach[parent] if parent >= 0 else 1.0))
        self.reach, self.depth = reach, depths(draft.parents)
        self.order = sorted(range(len(reach)), key=lambda node: (-reach[node], self.depth[node], node))
        self.most = self.kept = len(reach)

    def move(self, step: int) -> None:
        self.kept = max(1, min(self.most, self.kept + step))

    def still(self, width: int, height: int) -> list[Row]:
        self.kept = (self.most + 1) // 2
        return self.rows(width, height)

    def rows(self, width: int, height: int) -> list[Row]:
        draft, kept = self.event.draft, set(self.order[: self.kept])
        leaves = [node for node in range(len(draft.parents)) if node not in set(draft.parents)]
        path, out = self.event.path, []
        below = sum(1 for node in path if node in kept and all(n in kept for n in path[: path.index(node)]))
        leaves.sort(key=lambda leaf: (
            leaf not in path[-1:], set(chain_to(draft.parents, leaf)).isdisjoint(path), leaf))
        said = told(width, f"c = {self.kept}: {self.kept} of the {self.most} nodes of this run's draft stay.",
                    f"{below} of {counted(len(path), 'accepted token')} would be drafted. The pass reads "
                    f"{self.kept + 1} rows{self._price()}. {ACCEPTED} accepted, {REJECTED} not accepted, {PRUNED} cut.")
        for leaf in leaves[: max(1, height - len(said) - 1)]:
            chain = chain_to(draft.parents, leaf)
            row: list = [(" ", "text")]
            for node in chain:
                mark = PRUNED if node not in kept else ACCEPTED if node in path else REJECTED
                style = "ghost" if node not in kept else "accepted" if node in path else "text"
                row.append((f"{mark}{one_line(quoted(draft.pieces[node]), 12)} ", style))
                row.append((f"{self.reach[node]:.3f} ", "muted"))
            out.append(row)
        if len(leaves) > len(out):
            out.append([(f" … and {counted(len(leaves) - len(out), 'more branch')}", "muted")])
        return [*out, *said]

    def _price(self) -> str:
        if self.run.started is None or not self.run.started.price:
            return ""
        curve, rows = CostCurve(self.run.started.price), self.kept + 1
        guessed = "about " if rows > curve.points[-1][0] else ""  # beyond what was measured
        return f": {guessed}{curve.at(rows) / curve.at(1):.2f} × t(1)"


class NeighboursFigure(LessonFigure):
    """What lay nearest to the present state: what passed the filter, and what was dropped."""

    title = "the nearest states, and how they went on"
    moves = "the neighbour"
    draws = "the list, or the map"
    verb = "Map"

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        if event is None or event.retrieval is None or not event.retrieval.passages or not event.retrieval.scores:
            raise Missing("this round has no neighbours")
        self.found, self.at, self.mapped = event.retrieval, 0, False
        passages, dropped, places = self.found.passages, self.found.dropped, self.found.map
        if len(places) != len(passages) + len(dropped):
            raise Missing("this round has no map")
        kept = [True] * len(passages) + [False] * len(dropped)
        self.near = sorted(zip((*passages, *dropped), kept, places), key=lambda one: -one[0].weight)

    def move(self, step: int) -> None:
        self.at = max(0, min(len(self.near) - 1, self.at - step))

    def draw(self) -> None:
        self.mapped = not self.mapped

    def still(self, width: int, height: int) -> list[Row]:
        return [*self._list(width, height), *self._map(width, height)]

    def rows(self, width: int, height: int) -> list[Row]:
        return self._map(width, height) if self.mapped else self._list(width, height)

    def _map(self, width: int, height: int) -> list[Row]:
        """The present state in the middle of its neighbours; a cell is twice as high as wide."""
        said = told(width, f"{HERE} is the present state; the numbers are those of the list.",
                    f"Neighbours marked {REJECTED} were dropped. The map shows only the two directions in which these "
                    "keys differ most from the present one, so distances in it are rough.")
        rows, columns = max(3, height - len(said)), width - 1
        left, right, low, high = (limit(0.0, *(place[axis] for *_, place in self.near))
                                  for axis in (0, 1) for limit in (min, max))
        scale = max((right - left) / (columns - 1), (high - low) / (2 * (rows - 1)), 1e-9)
        cells = [[(" ", "text")] * columns for _ in range(rows)]
        marks = [(str(n) if kept else f"{REJECTED}{n}", "accent" if n == self.at + 1 else "text" if kept else "bad",
                  place) for n, (_, kept, place) in enumerate(self.near, 1)]
        for mark, style, (x, y) in [(HERE, "strong", (0.0, 0.0)), *marks]:
            _put(cells[round((high - y) / (2 * scale))], round((x - left) / scale), mark, style)
        return [*cells, *said]

    def _list(self, width: int, height: int) -> list[Row]:
        scores, text, left = self.found.scores, max(20, width - 28), max(10, (width - 28) // 3)
        out: list[Row] = []
        listed = sum(kept for _, kept, _ in self.near)
        passed = (f"{counted(self.found.hits, 'near state')} passed the filter; {self.found.used} are used, the "
                  f"nearest {listed} are listed.")
        dropped = f"{REJECTED} went on with another token, so it is dropped." if self.found.dropped else ""
        said = told(width, f"{passed} {dropped}".rstrip(),
                    f"Cosines of those used: {min(scores):.3f} to {max(scores):.3f}. Before | stands the token that "
                    "followed the key, after | what would be drafted.")
        room = max(1, height - len(said))
        first = max(0, self.at - room + 1)
        for n, (passage, kept, _) in list(enumerate(self.near))[first : first + room]:
            before = "…" + one_line(passage.before, 400)[-left + 1 :]
            after = one_line(passage.after, 400)[: text - left - 1].rstrip("…") + "…"
            here = n == self.at
            out.append([(f"{n + 1:>2} {passage.weight:.3f} ", "strong" if here else "text"),
                        (f"{bar(max(0.0, passage.weight), 12):<12} ", "bar" if kept else "muted"),
                        (f"{' ' if kept else REJECTED} ", "bad"), (f"{before:>{left}}", "muted"), ("|", "accent"),
                        (after, "ghost" if not kept else "strong" if here else "text")])
        return [*out, *said]


def _put(cells: Row, at: int, mark: str, style: str) -> None:
    """A mark at a place of a row of cells, or at the next one to the right, else to the left, where it stands alone."""
    size = len(mark)
    free = [n for n in range(len(cells) - size + 1)
            if all(not text.strip() for text, _ in cells[max(0, n - 1) : n + size + 1])]
    for n, sign in enumerate(mark, min(free, key=lambda n: (abs(n - at), -n), default=at)):
        cells[n] = (sign, style)


class KeyFigure(LessonFigure):
    """Which state is the key: the one from which the last token was chosen."""

    title = "which state is the key"

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        if event is None or event.retrieval is None or len(ends := context_tail(run, event.position, 2)) < 2:
            raise Missing("this round looked up no state")
        self.read, self.root = (one_line(quoted(piece), 14) for piece in ends)

    def rows(self, width: int, height: int) -> list[Row]:
        table = (("token", self.read, self.root, "the draft"),
                 ("read?", "yes", "not yet: the root", ""),
                 ("state after it", "known: THE KEY", "not there yet", ""),
                 ("chosen from it", self.root, "what comes next", ""))
        return [[(f" {head:<16}", "title"), *((f"{cell:<20}", "accent" if "KEY" in cell else "text") for cell in cells)]
                for head, *cells in table]


class CosinesFigure(LessonFigure):
    """How much each attention changes the state, and a threshold to move."""

    title = "the cosine of each attention, and the threshold alpha"
    moves = "alpha"
    _STEP = 0.005

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        layers = run.prefilled.layers if run.prefilled is not None else None
        if layers is None or not any(layers.attention_cosine) or layers.alpha is None:
            raise Missing("this run has no cosines")
        self.layers, self.alpha = layers, layers.alpha

    def move(self, step: int) -> None:
        self.alpha = min(1.0, max(0.5, round(self.alpha + step * self._STEP, 3)))

    def rows(self, width: int, height: int) -> list[Row]:
        layers, cosines = self.layers, [c or 0.0 for c in self.layers.attention_cosine]
        now = leave_out(layers, self.alpha, layers.m or 10**6, layers.n or 0, interval=layers.m is not None)
        each = max(1, min(4, (width - 14) // len(cosines)))
        low = max(min(cosines) - 0.02, 1 - 3 * (1 - median(cosines)))  # a few small ones would flatten all others
        tall = max(2, min(12, height - 4 - (width < 100)))
        out: list[Row] = []
        for level in range(tall, 0, -1):
            floor = low + (1 - low) * (level - 1) / tall
            row: list = [(f"{floor:>10.3f} ", "muted")]
            for c, rule in zip(cosines, now.attention):
                share = max(0.0, min(1.0, (c - floor) / ((1 - low) / tall)))
                least = level == 1  # what is below the axis is drawn as its lowest block
                cell = " ▁▂▃▄▅▆▇█"[max(int(least), round(share * 8))] * max(1, each - 1)
                row.append((f"{cell:<{each}}", "ghost" if rule else "bar"))
            out.append(row)
        for name, rules in (("attention", now.attention), ("MLP", now.mlp)):
            marks = "".join(f"{ABSENT if rule else PRESENT:<{each}}" for rule in rules)
            out.append([(f"{name:>10} ", "muted"), (marks, "text")])
        left = sum(rule != "" for rule in (*now.attention, *now.mlp))
        share = 1 - left / (2 * len(cosines))
        words = (f"{left} of {2 * len(cosines)} sublayers are left out ({ABSENT}); a draft pass runs {share:.0%} "
                 f"({PRESENT}). Recorded with alpha = {layers.alpha:g}{self._rules()}. The axis begins at {low:.3f}; "
                 "smaller cosines are drawn as its lowest block.")
        return [*out, *told(width, f"alpha = {self.alpha:.3f}:", words)]

    def _rules(self) -> str:
        """The other settings of the run, as far as they leave out or protect anything."""
        layers = self.layers
        every = layers.m if layers.m is not None and layers.m <= len(layers.attention) else None
        last = f", n = {layers.n}" if layers.n else ""
        return (f", m = {every}" if every else ", without the interval rule") + last


class FusionFigure(LessonFigure):
    """Two trees become one, in three steps."""

    title = "two trees become one"
    moves = "the step: what was drafted, what was retrieved, both"
    _SAYS = ("what the {} drafted", "what was retrieved, and what was pruned", "fused: shared tokens once")

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        if event is None or not event.draft.also or event.retrieval is None:
            raise Missing("this round has no fused tree")
        self.at = 0
        draft = event.draft
        self.sources = [{origin_of(draft, node).source} | (
            {draft.origins[draft.also[node]].source} if draft.also[node] >= 0 else set())
            for node in range(len(draft.tokens))]

    def move(self, step: int) -> None:
        self.at = max(0, min(len(self._SAYS) - 1, self.at - step))

    def still(self, width: int, height: int) -> list[Row]:
        out: list[Row] = []
        for self.at in range(len(self._SAYS)):  # noqa: B020
            out += self.rows(width, height)
        return out

    def rows(self, width: int, height: int) -> list[Row]:
        draft, shown = self.event.draft, []
        for node, who in enumerate(self.sources):
            model = "draft" in who
            if self.at == 2 or (model if self.at == 0 else who - {"draft"}):
                shown.append(node)
        inner = {draft.parents[node] for node in shown}
        out: list[Row] = []
        above: list[int] = []
        for chain in sorted(chain_to(draft.parents, node) for node in shown if node not in inner):
            row: list = [(" ", "text")]
            for depth, node in enumerate(chain):
                who = self.sources[node]
                model = "draft" in who
                style = "strong" if len(who) > 1 else "by-draft" if model else "by-retrieval"
                sign = ("D", "R", "B" if len(who) > 1 else "D" if model else "R")[self.at]
                cell = f"{sign}{one_line(quoted(draft.pieces[node]), 12)} "
                row.append((" " * len(cell), "text") if above[: depth + 1] == chain[: depth + 1] else (cell, style))
            out.append(row)
            above = chain
        found = self.event.retrieval
        if self.at == 1 and found.pruned:
            out.append([(" " + " ".join(f"{PRUNED}{one_line(quoted(piece), 12)} and {count - 1} after it" if count > 1
                                        else f"{PRUNED}{one_line(quoted(piece), 12)}" for piece, count in found.pruned),
                         "ghost")])
        more = len(out) - max(1, height - 3)
        if more > 0:
            out = [*out[: height - 4], [(f" … and {counted(more + 1, 'more branch')}", "muted")]]
        both = sum(len(who) > 1 for who in self.sources)
        says = self._SAYS[self.at].format(proposer("draft", self.run))
        marks = ("D: drafted.", "R: retrieved.", f"D: only drafted, R: only retrieved, B: both ({both}).")[self.at]
        return [*out, *told(width, f"{self.at + 1} of 3: {says}.", f"{counted(len(shown), 'node')}. {marks}")]


class BreakEvenFigure(LessonFigure):
    """What drafts of each length bring at an acceptance that the reader moves, and where they break even."""

    title = "expected speed-up by the length of the draft; the line is as fast as without drafts"
    moves = "the chance that a drafted token is accepted, once those before it were"

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        if run.started is None or not run.started.price:
            raise Missing("this run has no t(n)")
        draft = CostCurve(run.started.draft_price).at(1) if run.started.draft_price else 0.0
        self.model = SpeedupModel(CostCurve(run.started.price), first=draft, each=draft)
        self.recorded = run.metrics.chance_accepted
        self.chance = 0.5 if self.recorded is None else self.recorded

    def move(self, step: int) -> None:
        self.chance = max(0.0, min(1.0, round(round(self.chance / 0.05 + step) * 0.05, 2)))

    def rows(self, width: int, height: int) -> list[Row]:
        model, room = self.model.assuming(self.chance), max(12, width - 42)
        lengths = (1, 2, 3, 4, 6, 8, 12)[: max(2, height - 3)]
        top = max(2.0, *(model.speed_up(k) for k in lengths))
        line = round(room / top)
        out: list[Row] = [[(f"{'length':>6}{'gives':>8}{'needs':>8}  ", "title"),
                           (f"{'speed-up':<{line}}│ 1.00x", "title")]]
        for k in lengths:
            gain = model.speed_up(k)
            drawn = f"{bar(gain / top, room):<{room}}"
            out.append([(f"{k:>6}{model.expected(k):>8.2f}{model.needs(k):>8.2f}  ", "text"),
                        (drawn[:line], "bar"), ("│", "accent"), (drawn[line + 1 :], "good" if gain > 1 else "bar"),
                        (f" {gain:.2f}x", "good" if gain > 1 else "bad")])
        least = model.pays_from
        words = "as in this run. " if self.chance == self.recorded else ""
        words += ("No length pays at any chance." if least is None else
                  f"At a chance above {least:.2f} drafts of some length pay.")
        words += " gives, needs: tokens a round; needs is break-even."
        return [*out, *told(width, f"chance = {self.chance:.2f}.", words)]


class BatchFigure(LessonFigure):
    """What the rounds of a run would cost where several such answers are written at the same time: a pass has the rows
    of all of them."""

    title = "the rounds of this run, for b answers at the same time"
    moves = "b, the answers that share a pass"
    _BATCHES = (1, 2, 4, 8, 16, 32)

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        if run.started is None or not run.started.price or not run.started.draft_price or not run.metrics.drafted:
            raise Missing("this run has no t(n), or no draft model")
        self.curve, self.draft = CostCurve(run.started.price), CostCurve(run.started.draft_price)
        self.gained, self.at = run.metrics.mean_generated_length, 0

    def move(self, step: int) -> None:
        self.at = max(0, min(len(self._BATCHES) - 1, self.at - step))  # larger ones stand below

    def seconds(self, answers: int) -> float:
        """The time of a round on average: its draft, and a pass over b(n+1) rows."""
        return fmean((event.draft_forwards or 0) * self.draft.at(answers)
                     + self.curve.at(answers * (1 + len(event.draft.tokens))) for event in self.run.rounds)

    def needs(self, answers: int) -> float:
        """Break-even: the tokens that each answer has to gain in a round."""
        return self.seconds(answers) / self.curve.at(answers)

    def rows(self, width: int, height: int) -> list[Row]:
        each = 1 + fmean(len(event.draft.tokens) for event in self.run.rounds)
        most = 1 + max(len(event.draft.tokens) for event in self.run.rounds)
        end, room = self.curve.points[-1][0], max(4, width - 60)
        line = round(room * self.gained / self.needs(self._BATCHES[-1]))
        heads = f"{'b':>5}{'rows b(n+1)':>13}{'plain t(b)':>12}{'a round':>12}{'break-even':>12}  "
        out: list[Row] = [[(heads, "title"), (f"{'M':>{line}}│", "title")]]
        for number, b in enumerate(self._BATCHES):
            needed, here = self.needs(b), number == self.at
            plain, took = ("~ " * (rows > end) + ms(seconds) for rows, seconds in
                           ((b, self.curve.at(b)), (b * most, self.seconds(b))))
            drawn = f"{bar(needed / self.needs(self._BATCHES[-1]), room):<{room}}"
            out.append([(f"{HERE if here else ' '}{b:>4}{b * each:>13.1f}{plain:>12}{took:>12}"
                         f"{needed:>12.2f}  ", "strong" if here else "text"),
                        (drawn[:line], "bar"), ("│", "accent"), (drawn[line + 1 :], "bad")])
        b = self._BATCHES[self.at]
        verdict = "pays" if self.needs(b) < self.gained else "does not pay"
        return [*out, *told(width, f"b = {b}: drafting {verdict}: a round gained M = {self.gained:.2f}.",
                            f"~ is beyond {end} measured rows.")]

    def still(self, width: int, height: int) -> list[Row]:
        drafted = fmean(len(event.draft.tokens) for event in self.run.rounds)
        paying = [b for b in self._BATCHES if self.needs(b) < self.gained]
        limit = f"Of these b drafting pays up to {max(paying)}." if paying else "Drafting pays for none of these b."
        return [*self.rows(width, height),
                *told(width, limit, f"The bar is break-even, the line M; n is {drafted:.1f} on average.")]


class RaceFigure(LessonFigure):
    """Recorded runs on one clock."""

    moves = "the time"
    of_run = False
    draws = "to the end"
    verb = "End"

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        asked = run.started.conversation if run.started is not None else None
        self.title = f"recorded runs of {one_line(run.started.model, 30)} on one clock" if asked else ""
        self.lanes = [other for other in runs.values()
                      if other.started is not None and other.started.conversation == asked and other.rounds]
        if len(self.lanes) < 2:
            raise Missing("these runs are not of one prompt")
        whole = [sum(map(seconds_of, lane.rounds)) for lane in self.lanes]
        self.longest, self.shortest = max(whole), min(whole)
        self.time = 0.0

    def move(self, step: int) -> None:
        self.time = max(0.0, min(self.longest, self.time + step * self.longest / 10))

    def draw(self) -> None:
        self.time = self.longest

    def still(self, width: int, height: int) -> list[Row]:
        self.time = self.shortest  # at the end all bars are full
        return self.rows(width, height)

    def rows(self, width: int, height: int) -> list[Row]:
        room = max(8, width - 60)
        most = max(len(lane.tokens) for lane in self.lanes)
        out: list[Row] = [[(f"{'':<16}{'tokens a round':>15}{'ms a round':>12}{'tokens/s':>10}  ", "title"),
                           (f"tokens after {self.time:.2f} s", "title")]]
        for lane in self.lanes:
            spent, tokens = 0.0, 1
            for event in lane.rounds:
                spent += seconds_of(event)
                if spent > self.time:
                    break
                tokens += len(event.emitted)
            m, whole = lane.metrics, sum(map(seconds_of, lane.rounds))
            out.append([(f"{one_line(lane.started.engine, 15):<16}", "text"),
                        (f"{m.mean_generated_length or 0:>15.2f}{1000 * whole / len(lane.rounds):>12.1f}", "text"),
                        (f"{(len(lane.tokens) - 1) / whole:>10.1f}  ", "strong"),
                        (f"{bar(tokens / most, room):<{room}}", "bar"), (f" {tokens}", "text")])
        words = ("The bar is of one moment and has the first token; rounds before it may have been faster or slower "
                 "than later ones.")
        return [*out, *told(width, "tokens/s is of the whole run, without its first token.", words)]


class ReadingFigure(LessonFigure):
    """The sections of the papers that the lessons name."""

    title = "what to read next, by lesson"
    moves = "further down"
    of_run = False

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        self.entries: list[Row] = []
        seen: set[str] = set()
        for number, lesson in enumerate(map(find, names()), 1):
            every = [one for page in lesson.pages for one in page.see.split("; ") if one]
            named = dict.fromkeys(one for one in every if one not in seen)
            self.entries.append([(f"{number:>2} {lesson.title} ", "title"), (f"({lesson.name})", "muted")])
            self.entries += [[(f"   {one}", "text")] for one in named]
            seen.update(named)
        self.at = 0

    def move(self, step: int) -> None:
        self.at = max(0, min(len(self.entries) - 1, self.at - step))

    def still(self, width: int, height: int) -> list[Row]:
        return self.rows(width, len(self.entries))

    def rows(self, width: int, height: int) -> list[Row]:
        return _from(self.entries, self, height)


class EnginesFigure(LessonFigure):
    """The engines that draft: what each needs, and how it drafts."""

    title = "the engines: what each of them needs, and how it drafts"
    moves = "further down"
    of_run = False

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        self.at = 0

    def move(self, step: int) -> None:
        self.at = max(0, self.at - step)

    def still(self, width: int, height: int) -> list[Row]:
        return self._lines(width)

    def rows(self, width: int, height: int) -> list[Row]:
        return _from(self._lines(width), self, height)

    @staticmethod
    def _lines(width: int) -> list[Row]:
        out: list[Row] = []
        for spec in specs():
            either = tuple(spec.drafts_with[1].values()) if spec.drafts_with is not None else ()
            needed = [" or ".join(either)] * bool(either) + [need for need in spec.needs if need not in either]
            needs = f" Needs: {joined(needed)}." if needed else ""
            for n, line in enumerate(wrap(spec.summary.rstrip(".") + "." + needs, width - 17)):
                out.append([(f" {'' if n else spec.id:<16}", "title"), (line, "text")])
        return out


def _from(lines: list[Row], figure: ReadingFigure | EnginesFigure, height: int) -> list[Row]:
    """As many lines as fit from where the reader is, who cannot go beyond the last ones."""
    figure.at = max(0, min(figure.at, len(lines) - height + 1))
    shown = lines[figure.at : figure.at + height]
    if (more := len(lines) - figure.at - len(shown)) > 0:
        shown[-1] = [(f"… ↓ {more + 1} more", "muted")]
    return shown


FIGURES: dict[str, type[LessonFigure]] = {
    "cost": CostFigure, "trial": TrialFigure, "weights": BlockFigure, "noise": NoiseFigure,
    "waiting": WaitingFigure, "key": KeyFigure, "engines": EnginesFigure, "trie": TrieFigure,
    "neighbours": NeighboursFigure, "cosines": CosinesFigure, "fusion": FusionFigure,
    "break-even": BreakEvenFigure, "batch": BatchFigure, "race": RaceFigure, "reading": ReadingFigure,
}
"""The figures by the names that pages give."""
