"""Which set of sublayers to try next: Bayesian optimisation by optuna's tree-structured Parzen estimator.

Draft & Verify rounds the points of a continuous optimiser and comes back to the same sets; here sublayers are yes or
no, and no set is proposed twice. What is proposed depends on seed and trials alone, so that an interrupted search goes
on as if it had not been.
"""

from __future__ import annotations

import random

from engines.model.skipped_layers import SkippedLayers

_STARTUP = 16  # sets drawn before the estimator is asked
_SHARE = 0.6  # of the sublayers, the most that such a set leaves out
_COUNTABLE = 20  # sublayers; the sets of more are never exhausted


class Proposals:
    """Sets to leave out of ``all_``, the sublayers that a model can do without."""

    def __init__(self, all_: SkippedLayers, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna, self._seed = optuna, seed
        self._names = [("a", layer) for layer in all_.attention] + [("m", layer) for layer in all_.mlp]
        yes_or_no = optuna.distributions.CategoricalDistribution([False, True])
        self._space = {f"{kind}{layer}": yes_or_no for kind, layer in self._names}
        self._study = optuna.create_study(direction="maximize")
        self._seen: set[SkippedLayers] = set()

    def learn(self, removed: SkippedLayers, value: float) -> None:
        """A set was tried; a larger value is better."""
        out = {f"a{n}" for n in removed.attention} | {f"m{n}" for n in removed.mlp}
        chosen = {name: name in out for name in self._space}
        self._study.add_trial(
            self._optuna.trial.create_trial(params=chosen, distributions=self._space, value=value)
        )
        self._seen.add(removed)

    def next(self) -> SkippedLayers | None:
        """A set that was not tried yet, never the empty one; None where all were."""
        size = len(self._names)
        if size <= _COUNTABLE and len(self._seen) >= 2**size - 1:
            return None
        dice = random.Random(f"{self._seed} {len(self._seen)}")
        out = self._drawn(dice) if len(self._seen) < _STARTUP else self._estimated(dice)
        while (found := self._removed(out)) in self._seen or not found:
            out ^= {dice.choice(self._names)}
        return found

    def _drawn(self, dice: random.Random) -> set[tuple[str, int]]:
        """Few or many at random: half of all sublayers, which is what fair coins leave out, is mostly too much."""
        share = _SHARE * dice.random()
        return {name for name in self._names if dice.random() < share}

    def _estimated(self, dice: random.Random) -> set[tuple[str, int]]:
        """What the estimator, fitted to all trials, expects most of."""
        sampler = self._optuna.samplers.TPESampler(
            seed=dice.getrandbits(31), multivariate=True, n_startup_trials=_STARTUP
        )
        self._study.sampler = sampler
        asked = self._study.ask(self._space)
        chosen = asked.params
        self._study.tell(asked, state=self._optuna.trial.TrialState.FAIL)  # what is measured comes by ``learn``
        return {(kind, layer) for kind, layer in self._names if chosen[f"{kind}{layer}"]}

    def _removed(self, out: set[tuple[str, int]]) -> SkippedLayers:
        attention, mlp = (tuple(sorted(n for kind, n in out if kind == which)) for which in "am")
        return SkippedLayers(attention, mlp)
