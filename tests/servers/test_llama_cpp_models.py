"""llama.cpp with models that have something to say: the shipped pair, written as GGUF files, and smollm2 with its draft
model. What is shown of its speculation is what it has counted, and its text is held against the same weights here."""

from __future__ import annotations

import functools
import json
from dataclasses import replace

import pytest

from engines import Request
from engines.errors import ModelUnavailable
from engines.folders import sample_model
from engines.methods.llama_cpp import KEEPING
from engines.race.lanes import parse_lanes
from engines.race.peers import Peers
from engines.report.answer import Answer
from engines.report.events import Round
from engines.report.metrics import measure
from engines.servers.llama_cpp_start import OwnLlamaCpp
from spec_tui.cli import call
from tests.conftest import SMOLLM2
from tests.servers.totals import Totals, totals
from tests.tiers import some

pytest.importorskip("xllamacpp", reason="llama.cpp is not here to ask")
NGRAMS = [{"spec": way, "ngram": 2, "most": 4} for way in ("ngram-simple", "ngram-map-k", "ngram-map-k4v")]
WAYS = [{"spec": "draft-simple"}, {"spec": "draft-simple", "most": 6, "p_min": 0.5}, *NGRAMS,
        {"spec": "ngram-simple+draft-simple", "ngram": 3}, {"spec": "ngram-cache"}]
NGRAMS_OF_ANSWERS = [*NGRAMS, {"spec": "ngram-mod", "ngram": 4, "most": 8}]
ALWAYS = [WAYS[0], NGRAMS[0], WAYS[-1]]
PROMPTS = [
    (("user", "Repeat this sentence: Tom bought 4 apples and a hat in the morning."),),
    (("user", "Write a Python function that adds two numbers."),),
]
REPEATS = (("user", "Repeat this: one two three one two three one two three one two three"),)


@pytest.fixture(scope="module")
def own(sample_gguf):
    """llama.cpp with the shipped pair."""
    model = OwnLlamaCpp(*sample_gguf, threads=1, context=1024)
    yield model
    model.close()


@pytest.fixture(scope="module")
def real():
    """llama.cpp with smollm2 and its draft model."""
    if not SMOLLM2.is_file():
        pytest.skip("smollm2 is not on this machine: spec-tui model get smollm2 fetches it")
    model = OwnLlamaCpp(SMOLLM2, sample_model("smollm2-draft"), threads=1, context=1024)
    yield model
    model.close()


def answered(model, prompt, way, new):
    """Events of an answer, what was counted of it here, and what the server counted. The server is started anew for
    another ``way``, so its totals are read after an answer, too."""
    options = {"context": 1024, **way}
    list(model.run(Request(prompt, "llama.cpp", options, max_new_tokens=1)))
    server = model.server
    before = totals(server.connection.address, server.key)
    events = list(model.run(Request(prompt, "llama.cpp", options, max_new_tokens=new)))
    assert model.server is server
    metrics = measure(events)
    ours = Totals(metrics.drafting_rounds, metrics.drafted, metrics.accepted)
    return events, ours, totals(server.connection.address, server.key).since(before)


@functools.cache
def alone(runtime, prompt):
    """The tokens that the model writes here without drafts."""
    return list(runtime.run(Request(prompt, max_new_tokens=40)))[-1].tokens


@pytest.mark.parametrize("way", some(WAYS, ALWAYS.__contains__, ids=["-".join(map(str, w.values())) for w in WAYS]))
def test_rounds_are_as_it_counts_them_and_the_text_is_the_model_s(own, sample, way):
    counted = []
    for prompt in PROMPTS:
        events, ours, theirs = answered(own, prompt, way, 40)
        assert ours == theirs
        assert events[0].prompt == tuple(sample.prompt(Request(prompt))[0]), "the same template and tokens"
        found = sample.audit(Answer.from_events(events).by(sample.ready))
        assert found.verdict in ("identical", "tie") and found.differences == found.ties
        assert events[-1].tokens == alone(sample, prompt) or found.ties
        counted.append(ours)
    rounds, drafted, accepted = map(sum, zip(*counted))
    assert drafted >= rounds > 0 and 0 < accepted <= drafted


def test_a_draft_model_is_accepted_more_often_than_a_random_one(own):
    """The exported draft model is the one that was trained for the target, not merely one that loads."""
    _, (_, drafted, accepted), _ = answered(own, PROMPTS[0], {"spec": "draft-simple"}, 60)
    assert accepted / drafted > 0.4


@pytest.mark.parametrize("way", NGRAMS_OF_ANSWERS, ids=lambda way: way["spec"])
def test_what_is_forgotten_does_not_draft_another_answer(own, way):
    """Its server keeps n-grams of answers in one of its ways, so a benchmark would race it against its own memory."""
    asked = Request(PROMPTS[1], "llama.cpp", {"context": 1024, **way}, max_new_tokens=40)

    def rounds():
        own.forget()
        return sum(isinstance(event, Round) for event in own.run(asked))

    own.forget_acceptance()
    first, again = rounds(), rounds()
    assert again < first if way["spec"] in KEEPING else again == first
    own.forget_acceptance()
    assert rounds() == first


@pytest.mark.parametrize("way", [{"spec": "draft-simple"}, NGRAMS[0]], ids=lambda way: way["spec"])
def test_smollm2_is_counted_as_it_counts_itself(real, smollm2, way):
    events, ours, theirs = answered(real, REPEATS, way, 24)
    assert ours == theirs and ours.accepted > 0
    found = smollm2.audit(Answer.from_events(events).by(smollm2.ready))
    assert found.differences <= 2 and (found.gap or 0.0) < 0.5, "it rounds activations to 8 bits"


def told(model, *lanes):
    """Why lanes of llama.cpp cannot run beside a model, and what to do."""
    with Peers(model) as peers, pytest.raises(ModelUnavailable) as caught:
        for lane in parse_lanes(lanes):
            list(peers.run(lane.of(Request(PROMPTS[0], max_new_tokens=2))))
    return f"{caught.value.message} | {caught.value.hint}"


def test_what_is_in_no_gguf_file_is_named_with_the_ways_to_one(sample, sample_gguf, monkeypatch):
    assert "sample is not one | spec-tui model get smollm2 fetches one" in told(sample, "llama.cpp")
    monkeypatch.setattr(sample, "ready", replace(sample.ready, model=str(sample_gguf[0])))
    words = told(sample, "llama.cpp:spec=draft-simple")
    assert "sample-draft is not one" in words and "writes one; then --draft-model FILE.gguf" in words


@pytest.mark.parametrize("more, words", [
    (["--model", "sample"], "writes one; then --model FILE.gguf"),
    (["--model", "{0}", "--draft-model", "sample-draft"], "writes one; then --draft-model FILE.gguf"),
    ([], "--backend llama.cpp --model FILE.gguf"),
])  # fmt: skip
def test_so_is_what_cannot_be_started(sample_gguf, capsys, more, words):
    given = [text.format(*sample_gguf) for text in more]
    assert call(["run", "hi", "--backend", "llama.cpp", *given]) == (3 if more else 2)
    assert words in capsys.readouterr().err


def test_written_files_race_on_the_command_line(sample_gguf, capsys):
    target, draft = sample_gguf
    lanes = f"autoregressive,llama.cpp,llama.cpp:spec=draft-simple:draft={draft}"
    asked = ["compare", PROMPTS[0][0][1], "--model", str(target), "--engines", lanes, "--max-new-tokens", "24"]
    assert call([*asked, "--repeats", "1", "--threads", "1", "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {pair["verdict"] for pair in result["pairs"]} <= {"same", "tie"}
