"""The last hidden states that retrieval reads are what the language modelling head reads."""

from __future__ import annotations

import pytest
import torch

from engines import Request
from engines.methods.drafter import Drafter
from engines.model.feature_request import LAST, FeatureRequest
from engines.report.events import Finished, Round
from tests.engines.test_families import wrapped
from tests.engines.toys import HIDDEN

TURN = (("user", "Repeat: one two three one two three."),)


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma3", "gpt_neox", "phi3 with window", "opt"])
def test_hidden_states_are_those_transformers_gives(name):
    causal = wrapped(name)
    causal.truncate(0)  # other tests have read something with it
    tokens = [5, 9, 5, 7, 11, 3]
    with torch.inference_mode():
        states = causal.model(torch.tensor([tokens]), output_hidden_states=True).hidden_states[-1][0]
    causal.features.request(HIDDEN)
    causal.extend(tokens[:3])
    torch.testing.assert_close(causal.features.latest(LAST)[-1], states[2], atol=1e-4, rtol=1e-4)
    causal.forward(tokens[3:], [-1, 0, 1])
    torch.testing.assert_close(causal.features.latest(LAST), states[3:], atol=1e-4, rtol=1e-4)
    causal.features.request(FeatureRequest())
    causal.drop()
    causal.forward(tokens[3:4], [-1])
    with pytest.raises(ValueError, match="no forward has shown"):
        causal.features.latest(LAST)


class Watcher(Drafter):
    features = FeatureRequest(latest=frozenset({LAST}))

    def __init__(self, resources, **options):
        super().__init__(resources)
        self.seen = []

    def start(self, outcome):
        self.seen = [self.resources.target.features.latest(LAST)]

    def learn(self, outcome):
        self.seen.append(self.resources.target.features.latest(LAST))


def test_drafters_that_ask_read_them(tiny, monkeypatch):
    made = []
    make = lambda *a, **k: made.append(Watcher(*a)) or made[-1]  # noqa: E731
    monkeypatch.setattr("engines.methods.spec.MethodSpec.load_drafter", lambda spec: make)
    *events, finished = tiny.run(Request(TURN, "pld", max_new_tokens=20))
    rounds = [e for e in events if isinstance(e, Round)]
    assert isinstance(finished, Finished) and len(made[0].seen) == 1 + len(rounds)
    assert all(hidden.shape == (1, tiny.target.model.config.hidden_size) for hidden in made[0].seen)
    assert not tiny.target.features.active, "the next run does not pay for it"
