"""ADMG: the rules of Algorithm 1, the adaptive exit, and drafting with a part of the target that leaves no trace."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engines import Request, RunFailed, UsageProblem, measure, methods
from engines.core.lossless_laws import Rejection
from engines.core.sampling import Sampling
from engines.core.tree import DraftTree
from engines.cost.budget import Budget
from engines.cost.curve import CostCurve
from engines.folders import sample_model
from engines.hub.known_models import KNOWN
from engines.methods.admg import SPEC
from engines.methods.admg.drafter import ADMG
from engines.methods.admg.rules import removed
from engines.methods.drafter import Resources
from engines.methods.shared.self_draft import EXIT_OPTIONS, AdaptiveExit, SelfDraft
from engines.model.loading import wrap
from engines.report.events import Layers, Origin, Prefilled, Round
from engines.runtime import Prices, Runtime
from spec_tui.learn.showcase_prompts import SHOWCASES
from tests.conftest import ONE, make_llama, make_tokenizer
from tests.engines.families import cached
from tests.engines.test_laws import target_distribution
from tests.engines.test_sublayers import CLEAR, UNCLEAR, wrapped
from tests.engines.toys import ToyModel, answer, enumerate_outcomes, outcome
from tests.tiers import families

FIRST, SECOND = ("user", "abcabc, and abcabd?"), ("user", "abcabc again")
EXIT = {option.name: option.default for option in EXIT_OPTIONS}
TOKENIZER = make_tokenizer()


@given(
    st.lists(st.floats(-1, 1) | st.none(), min_size=1, max_size=40), st.floats(0, 1), st.integers(1, 12),
    st.integers(0, 12), st.booleans(), st.booleans(),
)
def test_the_rules_are_algorithm_1(cosines, alpha, m, n, cosine, interval):
    last = len(cosines)
    free = range(1, last - n + 1)
    by_cosine = {i for i in free if cosine and (c := cosines[i - 1]) is not None and c >= alpha}
    by_interval = {i for i in free if interval and i in {j * m for j in range(1, last + 1)}}
    attention, mlp = ([(i, rule) for i, rule in enumerate(rules, start=1) if rule] for rules in removed(
        cosines, alpha, m, n, cosine, interval))
    assert {i for i, _ in attention} == by_cosine | by_interval
    assert {i for i, _ in mlp} == by_interval
    assert {i for i, rule in attention if rule == "both"} == by_cosine & by_interval
    assert {i for i, rule in attention if rule == "cosine"} == by_cosine - by_interval
    assert {rule for _, rule in mlp} <= {"interval"}


def test_the_exit_follows_a_sequence_worked_out_by_hand():
    exit = AdaptiveExit(0.6, 0.9, 0.01, 0.5, 0.9)
    steps = [  # accepted, drafted, longest -> smoothed acceptance, threshold
        (12, 12, True, 0.5, 0.601),  # 0.5 * 0 + 0.5 * 1: too low, up by 0.1 * 0.01
        (12, 12, True, 0.75, 0.602),
        (4, 4, False, 0.875, 0.603),
        (12, 12, True, 0.9375, 0.603),  # high enough, but the chain was as long as it may be
        (3, 3, False, 0.96875, 0.602),
        (1, 2, False, 0.734375, 0.603),
        (0, 0, False, 0.734375, 0.603),  # nothing was drafted
        (0, 1, False, 0.3671875, 0.604),
    ]
    for accepted, drafted, longest, smoothed, threshold in steps:
        exit.learn(accepted, drafted, longest)
        assert exit.accepted == smoothed
        assert exit.threshold == pytest.approx(threshold, abs=1e-12)


def test_the_threshold_is_a_probability():
    exit = AdaptiveExit(0.99, 0.9, 0.5, 0.0, 0.0)
    exit.learn(0, 3, False)
    assert exit.threshold == 1
    for _ in range(3):
        exit.learn(3, 3, False)
    assert exit.threshold == 0


PRICES = Prices(CostCurve(((1, 1.0), (64, 1.5))))  # no clock is asked


@cache
def family(name) -> Runtime:
    """A target that agrees with its part now and then; answers have no end."""
    found = Runtime(wrapped(name), TOKENIZER, PRICES)
    found.end_tokens = frozenset()
    return found


def run(on: Runtime, engine="admg", options=None, turns=(FIRST,), new=24, **kw):
    return list(on.run(Request(tuple(turns), engine, options or {}, max_new_tokens=new, **kw)))


def rounds(events) -> list[Round]:
    return [event for event in events if isinstance(event, Round)]


def prefilled(events) -> Prefilled:
    return next(event for event in events if isinstance(event, Prefilled))


HALF = {"alpha": 0.0, "m": 2, "n": 0, "exit_start": 0.0, "num_tokens": 5}  # all attention, every other MLP
PART = {"cosine": False, "m": 2, "n": 0, "exit_start": 0.0, "num_tokens": 5}


@pytest.mark.parametrize("name", families(CLEAR))
def test_it_is_lossless_on_every_family(name):
    on = family(name)
    for temperature in (0.0, 0.8):
        kw = {"temperature": temperature, "seed": 3, "new": 12}
        *_, plain = run(on, "autoregressive", **kw)
        events = run(on, options=PART, **kw)
        assert events[-1] == plain
        assert measure(events).drafted >= 6
        assert any(prefilled(events).layers.mlp) and any(prefilled(events).layers.attention)
        assert temperature or run(on, options=HALF, law="rejection", new=12)[-1] == plain


class Halved(ToyModel):
    """A toy whose part is another toy."""

    def __init__(self, seed: int) -> None:
        super().__init__(3, seed=seed)
        self.sublayers = ()

    @contextmanager
    def skipping(self, attention, mlp):
        assert (attention, mlp) == (frozenset({1}), frozenset())
        whole, length = self.seed, self.length
        self.seed += 1
        try:
            yield
        finally:
            self.seed = whole
            self.truncate(length)


class Fixed(SelfDraft):
    layers = Layers(("", "search"), ("", ""))


@pytest.mark.parametrize("sampling", [Sampling(1.0), Sampling(0.7, top_p=0.8), Sampling(0.0)])
@pytest.mark.parametrize("start", [0.0, 0.5])
def test_rejection_gives_exactly_the_targets_distribution(start, sampling):
    target = Halved(1)

    def tried(dice):
        target.truncate(0)
        law = Rejection(sampling, 0, dice)
        options = EXIT | {"num_tokens": 2, "exit_start": start, "exit_step": 0.5}
        return answer(target, Fixed(Resources(law=law, vocab_size=3, target=target), **options), law, [0, 1, 2], 4)

    outcomes, expected = enumerate_outcomes(tried), target_distribution(target, sampling, 4, prompt=[0, 1, 2])
    for text in outcomes.keys() | expected.keys():
        assert outcomes.get(text, 0.0) == pytest.approx(expected.get(text, 0.0), abs=1e-9), text


@pytest.fixture(scope="module")
def deep() -> Runtime:
    """A Llama of eight layers that agrees with its part often: each layer adds little."""
    model = make_llama(4, layers=8)
    with torch.no_grad():
        for layer in model.model.layers:
            for weight in (layer.self_attn.o_proj.weight, layer.mlp.down_proj.weight):
                weight *= 0.15
    found = Runtime(wrap(model, "deep", ONE), TOKENIZER, PRICES)
    found.end_tokens = frozenset()
    return found


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_after_every_round_the_rows_are_those_of_a_run_without_drafts(deep, temperature):
    deep.forget()
    *_, plain = run(deep, "autoregressive", new=40, temperature=temperature)
    expected = cached(deep.target)
    deep.forget()
    options = {"alpha": 0.9, "m": 3, "n": 1, "exit_start": 0.2}
    accepted, drafted = 0, 0
    for event in deep.run(Request((FIRST,), "admg", options, max_new_tokens=40, temperature=temperature)):
        if isinstance(event, Round | Prefilled):
            assert event.cache_length == deep.target.length == deep.target.cache.offset
            for ours, theirs in zip(cached(deep.target, event.cache_length), expected):
                torch.testing.assert_close(ours, theirs[..., : event.cache_length, :], atol=1e-4, rtol=1e-4)
        if isinstance(event, Round):
            accepted, drafted = accepted + len(event.path), drafted + len(event.draft.tokens)
    assert event == plain and 3 < accepted < drafted - 3


def test_events_say_what_was_left_out_and_why_a_draft_ended(deep):
    deep.forget_acceptance()
    events = run(deep, options={"alpha": 0.97, "m": 4, "n": 1, "num_tokens": 3, "exit_step": 0.5, "exit_beta2": 0.0})
    layers = prefilled(events).layers
    assert layers.positions == prefilled(events).prompt_tokens
    assert (layers.attention, layers.mlp) == removed(layers.attention_cosine, 0.97, 4, 1)
    assert {"cosine", "interval"} <= {*layers.attention, *layers.mlp} and "" in layers.attention
    assert (layers.alpha, layers.m, layers.n) == (0.97, 4, 1)
    exit, stops, written = AdaptiveExit(0.6, 0.9, 0.5, 0.5, 0.0), set(), 1
    for event in rounds(events):
        drafted, note, most = event.draft.tokens, event.note, min(3, 24 - written - 1)
        written += len(event.emitted)
        if not most:
            continue
        assert note["draft_forwards"] == len(drafted) and note["exit_threshold"] == pytest.approx(exit.threshold)
        low = [prob < exit.threshold for prob in event.draft.probs]
        assert not any(low[:-1])
        assert note["stopped"] == ("longest" if len(drafted) == most else "low confidence")
        assert low[-1] or len(drafted) == most
        exit.learn(len(event.path), len(drafted), len(drafted) == 3)
        stops.add(note["stopped"])
    assert stops == {"longest", "low confidence"}


def test_a_draft_ends_with_the_answer(deep):
    *_, plain = run(deep, "autoregressive")
    deep.end_tokens = frozenset({plain.tokens[9]})
    try:
        events = run(deep, options={"cosine": False, "interval": False, "exit_start": 0.0})
        last = rounds(events)[-1]
        assert events[-1].tokens == plain.tokens[: plain.tokens.index(plain.tokens[9]) + 1]
        assert last.note["stopped"] == "end token" and last.draft.tokens[-1] == plain.tokens[9]
    finally:
        deep.end_tokens = frozenset()


def test_only_chains_of_num_tokens_hold_the_threshold(deep):
    options = {"cosine": False, "interval": False, "num_tokens": 5, "exit_start": 0.0035, "exit_target": 0.0}

    def second(new: int) -> float:
        """The threshold of a second run; all drafts of the first are accepted."""
        deep.forget_acceptance()
        found = run(deep, options=options, new=new)
        assert all(event.path == tuple(range(len(event.draft.tokens))) for event in rounds(found))
        return rounds(run(deep, options=options))[0].note["exit_threshold"]

    assert second(7) == 0.0035  # a single chain of five
    assert second(9) == 0.0025  # and one of one token: the answer has no room for more
    *_, plain = run(deep, "autoregressive")
    assert plain.tokens[5] not in plain.tokens[:5]
    deep.end_tokens = frozenset({plain.tokens[5]})
    try:
        assert second(24) == 0.0035  # the fifth is the end token
    finally:
        deep.end_tokens = frozenset()


def test_each_rule_has_a_switch(deep):
    given = {"alpha": 0.97, "m": 4, "n": 1}
    off = {"cosine": False, "interval": False}
    cosine, interval, none = (prefilled(run(deep, options=given | part)).layers for part in (
        {"interval": False}, {"cosine": False}, off))
    assert {*cosine.attention} == {"", "cosine"} and not any(cosine.mlp) and (cosine.m, cosine.n) == (None, 1)
    assert interval.attention == interval.mlp == ("", "", "", "interval", "", "", "", "") and interval.alpha is None
    assert not any(none.attention + none.mlp) and none.n is None and len(none.attention_cosine) == 8
    events = run(deep, options=given | off | {"exit_start": 0.0})
    assert all(len(event.path) == len(event.draft.tokens) for event in rounds(events))  # the whole target drafts
    assert any("nothing is left out" in words for words in events[0].warnings)
    for n, said in ((8, True), (7, False)):  # of eight layers
        assert said == any("nothing is left out" in words for words in run(deep, options={"n": n}, new=2)[0].warnings)


@pytest.mark.parametrize(("least", "other_reuses"), [(1000, 0), (12, 20)])
def test_the_cosines_of_a_second_turn(deep, monkeypatch, least, other_reuses):
    monkeypatch.setattr("engines.model.features.LEAST_RECENT", least)
    *_, answered = run(deep, options={"alpha": 0.97})
    turns = (FIRST, ("assistant", answered.text), SECOND)
    warm = run(deep, options={"alpha": 0.97}, turns=turns)
    deep.forget()
    cold = run(deep, options={"alpha": 0.97}, turns=turns)
    deep.forget()
    run(deep, "pld", turns=turns)
    other = run(deep, options={"alpha": 0.97}, turns=turns)  # rows of another engine were not measured
    assert prefilled(warm).reused > 24 and prefilled(cold).reused == 0
    assert prefilled(other).reused >= other_reuses and (other_reuses or not prefilled(other).reused)
    ours, theirs = prefilled(warm).layers, prefilled(cold).layers
    assert ours.positions == theirs.positions == prefilled(cold).prompt_tokens
    assert prefilled(other).layers.positions == theirs.positions - prefilled(other).reused
    for found in (ours, prefilled(other).layers) if not other_reuses else (ours,):
        assert found.attention_cosine == pytest.approx(theirs.attention_cosine, abs=1e-5)
        assert found.mlp_cosine == pytest.approx(theirs.mlp_cosine, abs=1e-5)
    assert warm[-1] == other[-1] == cold[-1]


def test_the_exit_is_kept_for_the_conversation_but_not_where_dice_decide(deep):
    def first(**kw) -> float:
        return rounds(run(deep, options={"alpha": 0.97}, **kw))[0].note["exit_threshold"]

    deep.forget_acceptance()
    thresholds = [first(), first(), first(temperature=0.8)]
    assert thresholds[0] == 0.6 and len(set(thresholds)) == 3
    hot = {"law": "rejection", "temperature": 0.8}
    assert first(**hot) == first(**hot) == 0.6
    assert first(law="rejection") not in (0.6, *thresholds)
    deep.forget_acceptance()
    assert first() == 0.6


def test_what_breaks_while_drafting_leaves_the_target_as_it_was(deep, monkeypatch):
    deep.forget()
    *_, plain = run(deep, "autoregressive")
    deep.forget()
    extend, calls = deep.target.extend, []

    def breaking(tokens, *args):
        calls.append(tokens)
        if len(calls) == 6:
            raise KeyError("broken")
        return extend(tokens, *args)

    monkeypatch.setattr(deep.target, "extend", breaking)
    events = []
    with pytest.raises(RunFailed, match="KeyError: 'broken'"):
        for event in deep.run(Request((FIRST,), "admg", HALF, max_new_tokens=24)):
            events.append(event)
    monkeypatch.undo()
    target = deep.target
    assert target.cache.pending == 0 and target.length == len(target.tokens) == events[-1].cache_length
    modules = list(target.model.modules())
    assert not any("forward" in vars(m) or m._forward_hooks or m._forward_pre_hooks for m in modules)
    assert run(deep, "autoregressive")[-1] == plain


@pytest.mark.parametrize(("took", "pays"), [(0.9, True), (12.5, False)])
def test_it_remarks_that_drafting_cannot_pay_once_it_has_seen_it(deep, took, pays):
    budget, memory = Budget(CostCurve(((1, 1.0), (13, 1.1)))), {}
    resources = Resources(law=None, vocab_size=260, target=deep.target, budget=budget, memory=memory)
    drafter = ADMG(resources, **SPEC.parse({}))
    assert not drafter.remark()
    tree = DraftTree.chain([1] * 12, Origin("draft"))
    drafter.learn(outcome([1], 1, tree, (), (1,), 2 * took, 2 * 1.1))  # a machine at half its speed
    assert ADMG(resources, **SPEC.parse({})).remark() == drafter.remark()
    assert pays == (not drafter.remark())
    assert pays or "104% of the time of a full one" in drafter.remark()
    assert not ADMG(resources, **SPEC.parse({"alpha": 0.5})).remark(), "another part, which has not drafted yet"


@pytest.mark.parametrize("name", UNCLEAR)
def test_a_model_that_is_not_understood_is_refused(name):
    with pytest.raises(UsageProblem, match="cannot be run without some of its layers"):
        run(family(name))


def test_presets_give_the_values_and_the_model_decides_which():
    shipped = str(sample_model("target"))
    tuned = SPEC.parse({}, shipped)
    assert tuned["preset"] == "sample"
    assert SPEC.parse({}, str(sample_model("draft")))["preset"] == "sample-draft"
    assert SPEC.parse({}, "smollm2")["preset"] == "smollm2" and SPEC.parse({}, "sample")["preset"] == "sample"
    assert SPEC.parse({}, str(KNOWN["smollm2"].path))["preset"] == "smollm2"
    assert SPEC.parse({}, f"someone/files:{KNOWN['smollm2'].file}")["preset"] == "smollm2"
    assert SPEC.parse({})["preset"] == SPEC.parse({}, "other/model")["preset"] == "paper"
    assert [SPEC.parse({"preset": p})[o] for p in ("paper", "paper-code") for o in ("alpha", "m", "n")] == [
        0.985, 3, 2, 0.985, 4, 3]
    given = SPEC.parse({"preset": "paper", "m": 5}, shipped)
    assert (given["alpha"], given["m"], given["n"]) == (0.985, 5, 2)
    assert SPEC.parse(tuned) == tuned  # as a recorded run is repeated
    assert SPEC.defaults(tuned)["alpha"] == tuned["alpha"]
    with pytest.raises(UsageProblem, match="preset"):
        SPEC.parse({"preset": "llama"})
    assert methods.find("pld").parse({}, shipped) == methods.find("pld").parse({})


def test_presets_of_the_sample_models_have_attention_on_both_sides_of_alpha(sample):
    for on in (sample, Runtime(sample.draft, sample.tokenizer, PRICES)):
        options = SPEC.parse({}, on.target.name)
        for showcase in SHOWCASES:
            found = list(on.run(Request((("user", showcase.prompt),), "admg", max_new_tokens=2)))
            layers, free = prefilled(found).layers, len(on.target.sublayers) - options["n"]
            over = [c >= options["alpha"] for c in layers.attention_cosine[:free]]
            assert layers.alpha == options["alpha"] and 0 < sum(over) < free
