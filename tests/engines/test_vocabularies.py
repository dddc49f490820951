"""Draft models with another vocabulary: what is translated, and that the target's distribution is kept."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from engines import Request, UsageProblem, methods, runtime
from engines.core.lossless_laws import Exact, Rejection
from engines.core.outcome import DraftLimits
from engines.core.sampling import Sampling
from engines.cost.curve import CostCurve
from engines.errors import StartCancelled
from engines.methods.drafter import Resources
from engines.model.loading import LoadedDraft
from engines.progress import Loading
from engines.race.lanes import Race, parse_lane
from engines.race.result import RaceResult
from engines.race.runner import race
from engines.runtime import Runtime
from engines.vocabularies import Translation, shared_tokens, spelled
from tests.conftest import TURN
from tests.engines.test_laws import PROMPT, enumerate_outcomes, target_distribution
from tests.engines.toys import ToyModel, answer

OURS = {"a": 0, "b": 1, "ab": 2}
THEIRS = {"b": 0, "x": 1, "a": 2, "bc": 3}


def test_tokens_are_compared_by_what_they_spell():
    byte_level = {"Ġthe": 5, "é": 1, "Ċ": 2, "<|end|> x": 3, "the": 9}
    pieces = {"▁the": 0, "<0x0A>": 7, "<0xE9>": 8, "the": 4, "▁": 6}
    assert spelled(byte_level) == {b" the": 5, b"\xe9": 1, b"\n": 2, b"<|end|> x": 3, b"the": 9}
    assert spelled(pieces) == {b" the": 0, b"\n": 7, b"\xe9": 8, b"the": 4, b" ": 6}
    assert shared_tokens(byte_level, pieces) == 4
    assert Translation(pieces, byte_level).shared == {5: 0, 1: 8, 2: 7, 9: 4}


def test_a_text_is_read_in_the_draft_models_tokens():
    words = Translation(THEIRS, OURS)
    spelling = {number: token for token, number in THEIRS.items()}
    for tokens in product(range(4), repeat=3):  # 3 is no token of the target
        read = [piece for token in tokens for piece in words.read(token)]
        assert "".join(spelling[piece] for piece in read) == "".join(["a", "b", "ab", ""][token] for token in tokens)
    assert words.share == pytest.approx(2 / 3)


def drafter(law, draft, **options):
    spec = methods.find("draft")
    resources = Resources(law=law, vocab_size=3, draft_model=draft, translation=Translation(THEIRS, OURS))
    return spec.load_drafter()(resources, **spec.parse(options))


@pytest.mark.parametrize("options", [
    {"num_tokens": 3}, {"shape": "tree", "depth": 2, "top_k": 2, "total_nodes": 4},
    {"shape": "tree", "draw": "distinct", "depth": 2, "top_k": 2},
], ids=["chain", "tree", "distinct"])
def test_rejection_keeps_the_targets_distribution(options):
    """TLI: the draft's distribution is restricted to the shared tokens and scaled to total 1."""
    target, draft, sampling = ToyModel(3, seed=1), ToyModel(4, seed=2, spread=1.0), Sampling(1.0)

    def run(dice) -> tuple:
        target.truncate(0)
        draft.truncate(0)
        law = Rejection(sampling, 0, dice)
        return answer(target, drafter(law, draft, **options), law, PROMPT, 3)

    outcomes = enumerate_outcomes(run)
    for text, p in target_distribution(target, sampling, 3).items():
        assert outcomes.get(text, 0.0) == pytest.approx(p, abs=1e-9)


def test_what_is_drafted_follows_the_shared_tokens():
    draft, law = ToyModel(4, seed=5), Exact(Sampling(), 0, 3)
    context = [0, 2, 1]
    logits = draft.logits_after([2, 2, 0, 0])  # a, then a and b for ab, then b
    best = 1 if logits[0] > logits[2] else 0
    engine = drafter(law, draft, num_tokens=1)
    tree = engine.propose(context, DraftLimits(4, 8))
    assert tree.tokens == [best] and draft.tokens == [2, 2, 0, 0]
    shared = torch.stack([logits[2], logits[0]]).softmax(0)
    assert tree.probs[0] == pytest.approx(float(shared[best]), rel=1e-4)


def loading(tiny, loaded: list[str]) -> Runtime:
    """The same models, and its draft model by any other name."""
    def load_draft(name, progress):
        progress(Loading("reading", 0.5))
        loaded.append(name)
        return LoadedDraft(tiny.draft), ("a remark",)

    return Runtime(tiny.target, tiny.tokenizer, tiny.prices, draft=tiny.draft, load_draft=load_draft)


def test_the_price_of_a_model_of_a_lane_is_measured_anew_too(tiny, monkeypatch):
    old, new, loaded = CostCurve(((1, 1.0),)), CostCurve(((1, 2.0),)), []
    monkeypatch.setattr(runtime, "price", lambda model, fresh, beside: new if fresh else old)
    monkeypatch.setattr(runtime, "fixed_price", lambda model, measured, fresh: measured)
    decoder = loading(tiny, loaded)
    asked = Request(TURN, "draft", draft_model="other", max_new_tokens=2)
    before, *_ = decoder.run(asked)
    decoder.measure_price()
    after, *_ = decoder.run(asked)
    assert (before.draft_price, after.draft_price) == (old.points, new.points) and loaded == ["other"]


def test_the_loading_of_a_model_of_a_lane_is_told_and_can_be_stopped(tiny):
    told, loaded = [], []
    decoder, asked = loading(tiny, loaded), Request(TURN, "draft", draft_model="other", max_new_tokens=2)
    with pytest.raises(StartCancelled, match="the loading of draft model other was stopped"):
        next(decoder.run(asked, lambda: True, told.append))
    assert not told and not loaded
    assert list(decoder.run(asked, progress=told.append)) and loaded == ["other"]
    assert told == [Loading("draft model: reading", 0.5)]


def test_a_draft_model_is_not_loaded_and_measured_beside_a_run(tiny):
    loaded = []
    decoder = loading(tiny, loaded)
    going_on = decoder.run(Request(TURN, max_new_tokens=2))
    next(going_on)
    with pytest.raises(UsageProblem, match="loading a draft model cannot begin while the same model"):
        decoder.memory("draft", {}, 10, "other")
    assert not loaded and decoder.memory("draft", {}, 10)
    going_on.close()
    assert decoder.memory("draft", {}, 10, "other") == decoder.memory("draft", {}, 10) and loaded == ["other"]


def test_a_lane_drafts_with_a_model_of_its_own(tiny):
    loaded = []
    lane = parse_lane("draft:model=other/x:y.gguf:num_tokens=3")
    assert (lane.draft_model, lane.options) == ("other/x:y.gguf", {"num_tokens": 3})
    assert parse_lane(lane.label) == lane
    asked = Race((parse_lane("draft"), lane), Request(TURN, max_new_tokens=12))
    result = RaceResult()
    for event in race(loading(tiny, loaded), asked):
        result.add(event)
    first, second = (run.state for run in result.complete)
    assert loaded == ["other/x:y.gguf"] and first.text == second.text
    assert second.metrics.drafted and {run.state.started.draft_model for run in result.complete} == {"tiny-draft"}
    for wrong in ("pld:model=x", "draft:model="):
        with pytest.raises(UsageProblem, match="draft model"):
            parse_lane(wrong)
