"""Peers: what generate writes when it is called directly, which is what our engines write; timed, stopped, broken."""

from __future__ import annotations

import copy
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from engines.bench import generate_runs as generate
from engines.bench.bench_results import BenchResults
from engines.bench.entrants import able, fitting
from engines.bench.generate_runs import Generator
from engines.bench.hf_generate import GenerateLane, generate_lanes
from engines.bench.suite import parse
from engines.errors import RunFailed, UsageProblem
from engines.race import runner
from engines.race.lanes import Race, parse_lanes
from engines.race.peers import Peers
from engines.race.runner import race
from engines.report.events import Finished, Prefilled, Round
from engines.request import Request
from tests.conftest import TEXTS, TURN, make_llama
from tests.tiers import some

LANES = parse_lanes(["autoregressive,pld,draft"])
SUITE = "\n".join([
    '{"turns": ["abc abc abc", "and again"], "category": "chat"}',
    '{"prompt": "xxxx aaaa xxxx aaaa", "category": "copy"}',
])


@pytest.fixture(autouse=True)
def quick(monkeypatch, no_sweeps):
    """With a short warm-up."""
    monkeypatch.setattr(runner, "WARM_UP", 2)


@pytest.fixture(scope="module")
def plain():
    """The weights of the tiny runtime once more, as transformers has them."""
    target, draft = make_llama(1, layers=3), make_llama(1, layers=3)
    draft.model.layers = draft.model.layers[:2]
    draft.config.num_hidden_layers = 2
    return target, draft


@pytest.fixture
def generator(tiny, plain):
    return Generator(*plain, tiny)


def directly(plain, tiny, prompt, **how):
    ids = torch.tensor([list(prompt)])
    out = plain[0].generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=24,
        eos_token_id=sorted(tiny.end_tokens), pad_token_id=0, **how,
    )
    return tuple(out[0, ids.shape[1]:].tolist())


@pytest.mark.parametrize("text", some(TEXTS, lambda text: text == TEXTS[0]))
def test_a_peer_writes_what_generate_writes_and_what_we_write(tiny, plain, generator, text):
    request = Request((("user", text),), max_new_tokens=24)
    ways = {"generate": {}, "generate+lookup": {"prompt_lookup_num_tokens": 10},
            "generate+assistant": {"assistant_model": plain[1]}}
    started, *_, ours = tiny.run(Request(request.conversation, "autoregressive", max_new_tokens=24))
    for name, how in ways.items():
        said, prefilled, *rounds, end = generator.run(GenerateLane(name).of(request))
        assert end.tokens == directly(plain, tiny, started.prompt, **how) == ours.tokens
        assert said.prompt == started.prompt and said.engine == name and end.reason == ours.reason
        assert isinstance(prefilled, Prefilled) and all(isinstance(r, Round) for r in rounds)
        told = [prefilled.first.token, *(e.token for r in rounds for e in r.emitted)]
        assert tuple(told) == end.tokens
        times = generator.token_times
        assert times.first + times.later == len(end.tokens) and times.first_seconds == prefilled.seconds > 0
        assert times.later_seconds == pytest.approx(sum(r.verify_seconds for r in rounds))
        assert times.rounds == sum(r.verify_seconds > 0 for r in rounds)
        assert times.first == 1 or name != "generate"


def test_what_the_model_would_do_by_itself_stays_out(tiny, plain):
    """Penalties of a model's own generation config would write another text."""
    target = copy.deepcopy(plain[0])
    target.generation_config.repetition_penalty = 3.0
    target.generation_config.temperature, target.generation_config.do_sample = 0.7, True
    request = Request(TURN, max_new_tokens=24)
    *_, penalised = Generator(target, None, tiny).run(GenerateLane("generate").of(request))
    *_, ours = tiny.run(Request(TURN, "autoregressive", max_new_tokens=24))
    assert penalised.tokens == ours.tokens


def test_each_run_begins_with_the_draft_models_own_settings(generator, plain):
    settings = plain[1].generation_config
    before = settings.to_dict()
    for _ in generator.run(Request(TURN, "generate+assistant", max_new_tokens=8)):
        pass
    assert plain[1].generation_config is settings and settings.to_dict() == before


def test_a_peer_stops_when_it_is_told_to(generator):
    (end,) = generator.run(Request(TURN, "generate", max_new_tokens=200), lambda: True)
    assert end == Finished("cancelled", (), "")


def test_what_breaks_in_transformers_is_a_sentence(generator, monkeypatch):
    def broken(*_, **__):
        raise ValueError("surprise\nmore")

    monkeypatch.setattr(generator.target, "generate", broken)
    with pytest.raises(RunFailed, match=r"generate failed: surprise$") as failure:
        list(generator.run(Request(TURN, "generate")))
    assert "--no-peers" in failure.value.hint


def test_all_run_in_one_race_and_write_the_same(tiny, generator):
    suite, contest = parse(SUITE, "some"), Peers(tiny)
    contest.loaded = {lane.engine: generator for lane in generate_lanes(LANES)}
    asked = Race((*LANES, *generate_lanes(LANES)), Request((), max_new_tokens=12), suite.prompts, 2)
    found = BenchResults(suite, lambda: contest.token_times)
    for event in race(contest, asked):
        found.add(event)
    assert len(found.complete) == len(found.token_times) == 6 * 3 * 2 and found.finished.reason == "done"
    assert {pair.verdict for pair in found.pairs} == {"same"} and len(found.pairs) == 3 * 15
    for run in found.complete:
        times = found.token_times[run.lane, run.repeat, run.prompt]
        assert times.first + times.later == len(run.state.finished.tokens) == run.measured.tokens
        assert 0 < times.first_seconds + times.later_seconds <= run.measured.seconds
    assert all(found.ratio(lane, found.counterpart(lane), task) for lane in found.own for task in found.tasks)
    assert found.length(0) == found.length(3) == 1
    memory = [figures.memory for figures in found.by_task()]
    weights = sum(p.numel() * 4 for p in generator.target.parameters())
    assert weights < memory[3] < 2 * weights and memory[5] > memory[4] >= memory[3]


def test_our_times_are_those_of_our_rounds(tiny):
    contest = Peers(tiny)
    events = list(contest.run(Request(TURN, "pld", max_new_tokens=24)))
    rounds = [event for event in events if isinstance(event, Round)]
    times = contest.token_times
    assert times.rounds == len(rounds) and times.later == len(events[-1].tokens) - 1
    assert times.later_seconds >= sum(r.draft_seconds + r.verify_seconds + r.other_seconds for r in rounds)


def test_who_cannot_run_is_left_out_with_a_reason(tiny):
    lanes = parse_lanes(["autoregressive,rest:datastore=nowhere,draft-verify:layers=a9,draft"])
    fit, said = able(Peers(tiny), lanes, Request(TURN))
    assert [lane.label for lane in fit] == ["autoregressive", "draft"]
    left_out = [sentence.split(" is left out: ")[0] for sentence in said]
    assert left_out == ["rest:datastore=nowhere", "draft-verify:layers=a9"]


def test_questions_that_do_not_fit_are_left_out_and_counted(tiny):
    rows = ['{"prompt": "short", "category": "a"}', '{"prompt": "%s", "category": "a"}' % ("long " * 60),
            '{"turns": ["one", "two"], "category": "b"}']  # a token a byte, a context of 256
    suite, said = fitting(tiny, parse("\n".join(rows), "x"), Request((), max_new_tokens=50))
    assert [case.turns for case in suite.cases] == [("short",), ("one", "two")]
    assert said == ["questions too long for the context of 256 tokens are left out: 1 of a"]
    assert fitting(tiny, suite, Request((), max_new_tokens=50)) == (suite, [])
    assert len(fitting(tiny, suite, Request((), max_new_tokens=250))[0].cases) == 1
    with pytest.raises(UsageProblem, match="no question fits into the model's context of 256 tokens"):
        fitting(tiny, suite, Request((("system", "x" * 300),), max_new_tokens=5))


def test_plain_models_are_loaded_from_where_ours_came_from(saved, tiny):
    ready = replace(tiny.ready, model=str(saved), draft_model=str(saved))
    target, draft = generate.load(ready, torch.float32, draft=True)
    assert type(target).__module__.startswith("transformers.") and draft is not target
    assert not target.training and target.dtype == torch.float32
    assert generate.load(ready, torch.float32, draft=False)[1] is None


def test_beside_quantised_weights_generate_has_plain_ones(saved, tiny):
    ready = replace(tiny.ready, model=str(saved), draft_model=None, dtype="bfloat16, weights as stored")
    target, _ = generate.load(ready, torch.bfloat16, draft=True)
    quantised = SimpleNamespace(ready=ready, end_tokens=tiny.end_tokens, tokenizer=tiny.tokenizer, target=tiny.target,
                                translation=None)
    started = next(Generator(target, None, quantised).run(
        Request((("user", "abc"),), "generate", max_new_tokens=2)))
    assert started.dtype == "bfloat16"
