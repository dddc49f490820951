"""Figures of the laws: one trial, a chain judged as a block, and noise that chooses a token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from engines.core.tree import children
from engines.randomness import GumbelNoise, SeededRng, bound, residual
from engines.report.events import Choice, Round
from engines.report.run_state import RunState
from engines.report.wording import quoted
from spec_tui.learn.figures.base import LessonFigure, Runs, told
from spec_tui.learn.lesson_facts import kept_chances
from spec_tui.present.rows import Row, bar
from spec_tui.present.text import in_column, one_line
from spec_tui.present.token_styles import HERE

AT_ONCE = 1000  # random draws for one press of a key


class TrialFigure(LessonFigure):
    """p, q and what a rejection leaves, and the law drawing from them."""

    title = "p, q, what a rejection leaves, and what the law wrote"
    moves = "q: how much the drafter is like the target"
    draws = f"the law draws {AT_ONCE:,} times"
    _MIXES = (-0.8, -0.4, 0.0, 0.4, 0.8, 1.0)
    count, direction = len(_MIXES), 1

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        pairs: dict[str, tuple[float, float]] = {}
        for node in children(event.draft.parents).get(-1, ()):
            p, q = event.verified[node + 1].drafted, event.draft.probs[node]
            if p is not None and q is not None and len(pairs) < 4:
                pairs.setdefault(event.draft.pieces[node], (p, q))
        self.names = [*map(quoted, pairs), "others"]
        both = np.array([*pairs.values(), (0.0, 0.0)])
        both[-1] = np.maximum(0.0, 1 - both.sum(axis=0))
        self.p, self._q = (column / column.sum() for column in both.T)
        self.at, self.drawn, self.kept = self._MIXES.index(0.0), np.zeros(len(self.names), int), 0
        self.rng = SeededRng(run.started.seed)

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
        super().move(step)
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
        q, total, sure = self.q, int(self.drawn.sum()), self.accepted > 0.9995
        left = [None] * len(q) if sure else residual(self.p, q)  # without a rejection there is none
        drawn = self.drawn / total if total else None
        label = 11
        room = max(3, (width - label) // 4 - 8)
        said = f"drawn {total:,}" if total else "drawn: space"
        heads = ("p, target", "q, drafter", "residual", said)
        out: list[Row] = [[(" " * label, "text"), *((f"{head:<{room + 7}} ", "title") for head in heads)]]
        for n, name in enumerate(self.names):
            row = [(in_column(name, label), "text")]
            for share, style in ((self.p[n], "accepted"), (q[n], "by-draft"), (left[n], "muted"),
                                 (drawn[n] if drawn is not None else None, "accent")):
                known = share is not None
                row += [(f"{bar(share, room) if known else '':<{room}}", style),
                        (f" {share:.3f}  " if known else " " * 8, "text")]
            out.append(row)
        n, kept = int(np.argmax(self.p - q)), self.accepted
        drawn = f" ({self.kept / total:.3f} of the draws)" if total else ""
        out += told(width, f"A draft is kept with probability {kept:.3f}{drawn}.")
        return [*out, *told(width, "No draft is rejected: q is p.")] if sure else [
            *out, *told(width, f"{one_line(self.names[n], label)}:", f"kept {min(self.p[n], q[n]):.3f} + rejected "
                  f"(1 - {kept:.3f}) × residual {left[n]:.3f} = {self.p[n]:.3f} = p."),
        ]


class BlockFigure(LessonFigure):
    """A drawn chain: the chance that its beginnings stay, token by token and as a block. Each is the chance given the
    tokens up to there and no later one, so that of a block may rise from row to row."""

    title = "the chance that the tokens up to a row stay, averaged over what follows"
    moves = "the chain"

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        self.chains = [one for one in run.rounds if len(kept_chances(one)) > 1]
        self.count, self.at = len(self.chains), self.chains.index(event)

    def rows(self, width: int, height: int) -> list[Row]:
        event = self.chains[self.at]
        chances, label = kept_chances(event), 13
        room = max(3, (width - label - 16) // 2 - 8)
        out: list[Row] = [[(f"{'':<{label}}  {'p':<6}{'q':<7}", "title"), (f"{'token by token':<{room + 8}}", "title"),
                           ("as a block: weight", "title")]]
        (alone, weight), last = chances[-1], len(chances)
        more = any(block > one + 0.0005 for one, block in chances)
        words = ("Here no token makes up for earlier ones." if not more else
                 "A token with p above q makes up for those before it. A weight is an average over what may follow its "
                 "row.")
        chance = f"{alone:.3f} " + ("either way" if alone == weight else f"token by token, {weight:.3f} as a block")
        said = told(width, f"Round {event.index}, all {last}: {chance}.", words)
        first = max(0, last - max(2, height - 1 - len(said)))  # the last row counts: the first ones give way
        if first:
            first += 1
            out.append([(f" … {first} before", "muted")])
        for node, (alone, weight) in list(enumerate(chances))[first:]:
            p, q = event.verified[node + 1].drafted, event.draft.probs[node]
            made_up = weight > alone + 0.0005
            name = in_column(f"{node + 1} {quoted(event.draft.pieces[node])}", label + 1)
            out.append([(f"{name}{p:.3f} {q:.3f}  ", "text"),
                        (f"{bar(alone, room):<{room}}", "bar"), (f" {alone:.3f}  ", "text"),
                        (f"{bar(weight, room):<{room}}", "accent" if made_up else "bar"),
                        (f" {weight:.3f}", "strong" if made_up else "text")])
        return [*out, *said]

    def still(self, width: int, height: int) -> list[Row]:
        return self.rows(width, len(kept_chances(self.chains[self.at])) + 4)


class NoiseFigure(LessonFigure):
    """Scores and noise of one position, for two engines with the same seed."""

    title = "one position: log p + noise = score"
    moves = "the position"
    direction = 1
    draws = f"choose with {AT_ONCE:,} other seeds"
    _HEADS, _BAR = ("log p", "noise", "score"), "score, │ zero"

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        self.texts = [(one_line(other.started.engine, 14), [token.emitted for token in other.tokens])
                      for other in runs.values() if self._drawn(other) == self._drawn(run)]
        first = self.texts[0][1]
        self.places = [n for n, emitted in enumerate(first) if emitted.noise is not None and len(emitted.top) > 2]
        self.count, self.share = len(self.places), None
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

    def move(self, step: int) -> None:
        super().move(step)
        self.share = None

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
            out.append([(f"{HERE if n == best else ' '}{in_column(quoted(choice.piece), 14)}", style),
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
