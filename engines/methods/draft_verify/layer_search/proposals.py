"""Which set of sublayers to try next: Bayesian optimisation by optuna's tree-structured Parzen estimator.

Draft & Verify rounds the points of a continuous optimiser and revisits the same sets. Here each sublayer is a yes or a
no, and no set is proposed twice. A proposal depends only on the seed and the trials so far, so an interrupted search
continues as if it had not been interrupted.
"""

from __future__ import annotations

import random

from engines.model.skipped_layers import SkippedLayers

_STARTUP = 16  # random sets before the estimator is asked
_LARGEST_SHARE = 0.6  # of the sublayers, in a random set
_COUNTABLE = 20  # sublayers; with more there are too many sets to try them all

Sublayer = tuple[str, int]  # "a" or "m" (attention or MLP), layer


class Proposals:
    """Proposes subsets of ``removable``, the sublayers that a model can do without."""

    def __init__(self, removable: SkippedLayers, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna, self._seed = optuna, seed
        self._sublayers = [("a", layer) for layer in removable.attention] + [("m", layer) for layer in removable.mlp]
        yes_or_no = optuna.distributions.CategoricalDistribution([False, True])
        self._space = {f"{kind}{layer}": yes_or_no for kind, layer in self._sublayers}
        self._study = optuna.create_study(direction="maximize")
        self._tried: set[SkippedLayers] = set()

    def learn(self, skipped: SkippedLayers, value: float) -> None:
        """Record that a set was tried; a larger value is better."""
        names = {f"a{n}" for n in skipped.attention} | {f"m{n}" for n in skipped.mlp}
        chosen = {name: name in names for name in self._space}
        self._study.add_trial(
            self._optuna.trial.create_trial(params=chosen, distributions=self._space, value=value)
        )
        self._tried.add(skipped)

    def next(self) -> SkippedLayers | None:
        """A set that was not tried yet, never the empty one; None if all were tried."""
        size = len(self._sublayers)
        if size <= _COUNTABLE and len(self._tried) >= 2**size - 1:
            return None
        rng = random.Random(f"{self._seed} {len(self._tried)}")
        chosen = self._random(rng) if len(self._tried) < _STARTUP else self._estimated(rng)
        while (skipped := self._as_layers(chosen)) in self._tried or not skipped:
            chosen ^= {rng.choice(self._sublayers)}
        return skipped

    def _random(self, rng: random.Random) -> set[Sublayer]:
        """A random share of the sublayers: half of them, as fair coins would choose, is mostly too many to skip."""
        share = _LARGEST_SHARE * rng.random()
        return {sublayer for sublayer in self._sublayers if rng.random() < share}

    def _estimated(self, rng: random.Random) -> set[Sublayer]:
        """The set of which the estimator, fitted to all trials, expects most."""
        sampler = self._optuna.samplers.TPESampler(
            seed=rng.getrandbits(31), multivariate=True, n_startup_trials=_STARTUP
        )
        self._study.sampler = sampler
        asked = self._study.ask(self._space)
        chosen = asked.params
        self._study.tell(asked, state=self._optuna.trial.TrialState.FAIL)  # the measured value comes through ``learn``
        return {(kind, layer) for kind, layer in self._sublayers if chosen[f"{kind}{layer}"]}

    def _as_layers(self, chosen: set[Sublayer]) -> SkippedLayers:
        attention, mlp = (tuple(sorted(n for kind, n in chosen if kind == which)) for which in "am")
        return SkippedLayers(attention, mlp)
