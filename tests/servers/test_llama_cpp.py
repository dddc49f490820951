"""A real server of llama.cpp, with a tiny model and its own n-gram speculation."""

from __future__ import annotations

import json
import urllib.request

import pytest

from engines import Request, UsageProblem
from engines.report.answer import Answer
from engines.report.events import Finished, Prefilled, Round, Started
from engines.report.metrics import measure
from engines.servers import connect
from tests.sources.gguf_files import Tiny

xllamacpp = pytest.importorskip("xllamacpp", reason="llama.cpp is not here to ask")
TURN = (("user", "Repeat: one two three one two three one two three."),)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    settings = xllamacpp.CommonParams()
    settings.model.path = str(Tiny("llama", "F32").write(tmp_path_factory.mktemp("gguf") / "tiny.gguf"))
    settings.n_ctx, settings.n_parallel, settings.warmup = 256, 1, False
    settings.cpuparams.n_threads = 1
    settings.endpoint_metrics, settings.verbosity = True, -1
    settings.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
    settings.speculative.ngram_simple.size_n, settings.speculative.ngram_simple.size_m = 2, 4
    server = xllamacpp.Server(settings)
    yield server.listening_address
    del server


@pytest.fixture(scope="module")
def served(address):
    return connect(address)


def totals(address: str) -> tuple[int, int]:
    """Drafted and accepted tokens of all requests, as the server counts them."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(address + "/metrics", timeout=10) as answer:
        rows = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#"))
    names = ("num_draft_tokens_total", "num_accepted_tokens_total")
    return tuple(int(rows[f"llamacpp:spec_decode_{name}"]) for name in names)


def test_it_says_what_it_serves(served, address):
    ready = served.ready
    assert ready.served and ready.model == "tiny.gguf" and ready.context_limit == 256 and ready.vocab_size > 0
    assert ready.device == address and not ready.capabilities.audit and not ready.capabilities.race


def test_an_answer_is_a_run_whose_counts_are_the_server_s(served, address):
    before = totals(address)
    started, prefilled, *rounds, finished = served.run(Request(TURN, max_new_tokens=60))
    assert isinstance(started, Started) and isinstance(prefilled, Prefilled) and isinstance(finished, Finished)
    assert all(isinstance(event, Round) for event in rounds) and prefilled.prompt_tokens == len(started.prompt)
    metrics, after = measure([started, prefilled, *rounds]), totals(address)
    assert (metrics.drafted, metrics.accepted) == (after[0] - before[0], after[1] - before[1]) and metrics.drafted > 0
    emitted = [prefilled.first, *(token for event in rounds for token in event.emitted)]
    assert tuple(token.token for token in emitted) == finished.tokens
    assert "".join(token.text for token in emitted) == finished.text
    assert finished.reason in ("length", "stop") and len(finished.tokens) <= 60


def test_it_stops_where_it_is_asked_to(served):
    events: list = []
    asked = Request(TURN, max_new_tokens=400)
    for event in served.run(asked, cancelled=lambda: sum(isinstance(e, Round) for e in events) > 3):
        events.append(event)
    assert events[-1].reason == "cancelled" and len(events[-1].tokens) < 400
    assert [*served.run(Request(TURN, max_new_tokens=3))][-1].reason == "length", "the next one is answered"


def test_what_it_cannot_do_is_said(served):
    for request in (Request(TURN, no_repeat_ngram_size=3), Request((("user", "word " * 600),)),
                    Request(TURN, continued=(5,))):
        with pytest.raises(UsageProblem):
            list(served.run(request))
    answer = Answer.from_events(list(served.run(Request(TURN, max_new_tokens=2))))
    with pytest.raises(UsageProblem, match="cannot be audited"):
        served.audit(answer)


def test_a_drawn_answer_says_that_the_server_drew_it(served):
    started, *_ = served.run(Request(TURN, temperature=0.8, max_new_tokens=2))
    assert started.law == "rejection" and "own random numbers" in started.warnings[0]


def test_the_command_line_asks_it(address, capsys):
    from spec_tui.cli import call

    assert call(["run", "--server", address, "one two three", "--max-new-tokens", "5", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["engine"] == "server" and found["stats"]["new_tokens"] == len(found["tokens"])
