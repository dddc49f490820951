"""A real server of llama.cpp, with a tiny model and its own n-gram speculation."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import msgspec
import pytest

from engines import Request, UsageProblem
from engines.cost.interleaved import ROWS
from engines.errors import ModelUnavailable, RunFailed
from engines.methods.llama_cpp import SPEC
from engines.race.lanes import Race, parse_lanes
from engines.race.peers import Peers
from engines.race.race_events import Compared
from engines.race.runner import race
from engines.report.answer import Answer
from engines.report.events import Finished, Prefilled, Round, Started
from engines.report.metrics import measure
from engines.servers import connect, llama_cpp_start
from engines.servers.connection import Connection
from engines.servers.llama_cpp_start import LlamaCppServer, OwnLlamaCpp, Settings
from tests.race.fakes import VirtualRacer
from tests.servers.totals import Totals, totals
from tests.sources import gguf_files
from tests.sources.gguf_files import Tiny

pytest.importorskip("xllamacpp", reason="llama.cpp is not here to ask")
TURN = (("user", "Repeat: one two three one two three one two three."),)


NGRAM = {"spec": "ngram-simple", "ngram": 2, "most": 4, "context": 256}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return Tiny("llama", "F32").write(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="module")
def own(file):
    """llama.cpp as it is started here."""
    model = OwnLlamaCpp(file, threads=1, options=NGRAM)
    yield model
    model.close()


def test_a_server_has_as_many_slots_as_asked_for_each_with_its_context(file):
    server = LlamaCppServer(Settings(file=str(file), threads=1, slots=3, **SPEC.parse(NGRAM)))
    try:
        slots = json.loads(Connection(server.connection.address, server.key, direct=True).text("/slots"))
    finally:
        server.close()
    assert [slot["n_ctx"] for slot in slots] == [256] * 3


@pytest.fixture(scope="module")
def address(own):
    return own.connection.address


@pytest.fixture(scope="module")
def key(own):
    return own.server.key


@pytest.fixture(scope="module")
def served(address, key):
    return connect(address, key)


def test_it_says_what_it_serves(served, address):
    ready = served.ready
    assert ready.served and ready.threads is None
    assert ready.model == "tiny.gguf" and ready.context_limit == 256 and ready.vocab_size > 0
    assert ready.device == address and not ready.capabilities.audit and not ready.capabilities.race


def test_an_answer_is_a_run_whose_counts_are_the_server_s(served, address, key):
    before = totals(address, key)
    started, prefilled, *rounds, finished = served.run(Request(TURN, max_new_tokens=60))
    assert isinstance(started, Started) and isinstance(prefilled, Prefilled) and isinstance(finished, Finished)
    assert all(isinstance(event, Round) for event in rounds) and prefilled.prompt_tokens == len(started.prompt)
    metrics, told = measure([started, prefilled, *rounds]), totals(address, key).since(before)
    assert Totals(metrics.drafting_rounds, metrics.drafted, metrics.accepted) == told and metrics.drafted > 0
    emitted = [prefilled.first, *(token for event in rounds for token in event.emitted)]
    assert tuple(token.token for token in emitted) == finished.tokens
    assert "".join(token.text for token in emitted) == finished.text
    assert finished.reason in ("length", "stop") and len(finished.tokens) <= 60


def test_its_price_is_measured_when_asked_for_by_its_own_clock(served, own, monkeypatch):
    asked, told = Request(TURN, "llama.cpp", NGRAM, max_new_tokens=30), []
    *_, before = own.run(asked)
    assert served.ready.capabilities.asks_price and not served.ready.price and not own.ready.price
    assert served.measure_price(cancelled=lambda: True) is None and not served.ready.price
    found = served.measure_price(progress=told.append)
    sizes = [rows for rows, _ in found.price]  # fewer of them where the machine is very busy
    assert sizes == sorted(sizes) and {1, 4, 16} <= set(sizes) <= set(ROWS) and served.ready.price == found.price
    assert found.context + max(ROWS) < 256 and all(0 < seconds < 5 for _, seconds in found.price)
    assert told == sorted(told) and 0 <= told[0] <= told[-1] <= 1
    assert own.measure_price().context == found.context and own.ready.price
    post = own.connection.post

    def all_read_anew(path, body, kind, *more):
        timings = {"prompt_n": len(body.get("prompt", "")), "prompt_ms": 100.0}
        return msgspec.convert({"timings": timings}, kind) if path == "/completion" else post(path, body, kind, *more)

    monkeypatch.setattr(own.connection, "post", all_read_anew)
    with pytest.raises(RunFailed, match="keeps no prompts"):
        own.measure_price()
    monkeypatch.undo()
    *_, after = own.run(asked)
    assert after == before, "it answers as it did"


def test_the_price_on_the_command_line(address, key, capsys, monkeypatch):
    from spec_tui.cli import call

    monkeypatch.setenv("SERVER_KEY", key)
    asked = ["price", "--server", address, "--api-key-env", "SERVER_KEY"]
    assert call([*asked, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["price"]) >= 3 and 0 < found["round_trip_seconds"] < 5 and "drafts" not in found
    assert call(asked) == 0
    said = capsys.readouterr().out
    assert all(part in said for part in ("tiny.gguf", "tokens read, n", "t(n) / t(1)"))
    assert "drafting takes extra time" in " ".join(said.split())
    assert max(map(len, said.splitlines())) <= 80 and key not in said
    assert call([*asked, "--fresh"]) == 2


def test_messages_may_gather_before_they_are_read(served, monkeypatch):
    asked = Request(TURN, max_new_tokens=30)
    *_, at_once = served.run(asked)
    monkeypatch.setattr(served, "gather", 0.01)
    events = list(served.run(asked))
    assert events[-1] == at_once and measure(events).new_tokens == len(at_once.tokens)
    assert list(served.run(asked))[-1] == at_once, "the connection is as it was"


@pytest.mark.parametrize("predicted, pieces, tokens", [
    (4, [(7, [240, 159]), (8, [143]), (9, [148])], (5, 7, 8, 9)),  # a character in three tokens
    (4, [(7, [240, 159]), (8, [143]), (6, [148])], (5, 9)),  # it has another way to write that character
    (4, [(7, " "), (9, "x")], (5, 9)),  # a tokenizer that puts a space before each text
    (2, None, (5, 9)),  # nothing lacks: nothing is asked
])
def test_tokens_that_are_held_back_until_their_character_is_whole_are_counted(
        served, monkeypatch, predicted, pieces, tokens):
    def messages(path, body, kind, *more):
        rows = [{"content": "a", "tokens": [5], "tokens_predicted": 1},
                {"content": "\U0001f3d4", "tokens": [9], "tokens_predicted": predicted},
                {"content": "", "tokens": [], "tokens_predicted": predicted, "stop": True, "stop_type": "limit"}]
        return iter(msgspec.convert(rows, list[kind]))

    post = served.connection.post

    def answered(path, body, kind, *more):
        if path == "/tokenize" and body["content"] == "\U0001f3d4":
            return msgspec.convert({"tokens": [{"id": token, "piece": piece} for token, piece in pieces]}, kind)
        return post(path, body, kind, *more)

    monkeypatch.setattr(served, "_parts", {})
    monkeypatch.setattr(served.connection, "stream", messages)
    monkeypatch.setattr(served.connection, "post", answered)
    *_, finished = served.run(Request(TURN, max_new_tokens=8))
    assert (finished.tokens, finished.text) == (tokens, "a\U0001f3d4")


def test_a_whole_letter_of_a_draft_is_asked_for_once(served, monkeypatch):
    """A step with a draft counts its tokens to its end, so that each seems to lack some."""
    def messages(path, body, kind, *more):
        rows = [{"content": "ж", "tokens": [5], "tokens_predicted": 5}] * 5
        return iter(msgspec.convert([*rows, {"stop": True, "stop_type": "limit"}], list[kind]))

    post, asked = served.connection.post, []

    def answered(path, body, kind, *more):
        if path != "/tokenize" or body["content"] != "ж":
            return post(path, body, kind, *more)
        asked.append(path)
        return msgspec.convert({"tokens": [{"id": 5, "piece": "ж"}]}, kind)

    monkeypatch.setattr(served, "_parts", {})
    monkeypatch.setattr(served.connection, "stream", messages)
    monkeypatch.setattr(served.connection, "post", answered)
    *_, finished = served.run(Request(TURN, max_new_tokens=8))
    assert finished.text == "ж" * 5 and len(asked) == 1


def test_it_stops_where_it_is_asked_to(served):
    events: list = []
    asked = Request(TURN, max_new_tokens=400)
    for event in served.run(asked, cancelled=lambda: sum(isinstance(e, Round) for e in events) > 3):
        events.append(event)
    assert events[-1].reason == "cancelled" and len(events[-1].tokens) < 400
    assert [*served.run(Request(TURN, max_new_tokens=3))][-1].reason == "length", "the next one is answered"


def test_what_it_cannot_do_is_said(served):
    for request in (Request(TURN, no_repeat_ngram_size=3), Request((("user", "word " * 600),)),
                    Request(TURN, continued=(5,)), "Hello"):
        with pytest.raises(UsageProblem):
            list(served.run(request))
    answer = Answer.from_events(list(served.run(Request(TURN, max_new_tokens=2))))
    with pytest.raises(UsageProblem, match="cannot audit its own answers"):
        served.audit(answer)


def test_an_engine_of_ours_is_refused_by_its_name(own):
    with pytest.raises(UsageProblem, match=r"llama\.cpp does not run Prompt lookup"):
        list(own.run(Request(TURN, "pld")))


def test_a_drawn_answer_says_that_the_server_drew_it(served):
    started, *_ = served.run(Request(TURN, temperature=0.8, max_new_tokens=2))
    assert started.law == "rejection" and "own random numbers" in started.warnings[0]


def test_the_command_line_asks_it(address, key, capsys, monkeypatch):
    from spec_tui.cli import call

    monkeypatch.setenv("SERVER_KEY", key)
    asked = ["run", "--server", address, "--api-key-env", "SERVER_KEY", "one two three", "--max-new-tokens", "5"]
    assert call([*asked, "--format", "json"]) == 0
    written = capsys.readouterr()
    found = json.loads(written.out)
    assert f"prompts go to {address}" in written.err and key not in written.out + written.err
    assert found["engine"] == "server" and found["stats"]["new_tokens"] == len(found["tokens"])


def test_it_is_nobody_else_s(address):
    with pytest.raises(ModelUnavailable, match="requires a key"):
        connect(address)


def test_another_setting_starts_it_anew_and_the_text_stays(file, tmp_path):
    own = OwnLlamaCpp(file, threads=1, options=NGRAM)

    def answer(**options) -> tuple[Started, Finished, list]:
        told: list = []
        asked = Request(TURN, "llama.cpp", NGRAM | options, max_new_tokens=20)
        started, *_, finished = own.run(asked, progress=told.append)
        return started, finished, told

    pid = own.server.process.pid
    assert answer()[2] == [] and own.server.process.pid == pid
    plain, text, told = answer(spec="none")
    assert plain.options["spec"] == "none" and plain.lossless is None and "tiny.gguf" in told[0].stage
    assert answer()[1] == text, "its drafts change nothing"
    for way, missing in (("draft-simple", "no draft model"), ("draft-eagle3", "no EAGLE-3 head"),
                         ("ngram-mod+draft-dflash", "no DFlash model")):
        with pytest.raises(UsageProblem, match=missing):
            answer(spec=way)
    head = Tiny("llama", "F32").write_head(tmp_path / "head.gguf")
    counted = totals(own.server.connection.address, own.server.key)
    assert answer(spec="draft-eagle3", draft=str(head), most=3)[1] == text and counted == (0, 0, 0)
    _, drafted, accepted = totals(own.server.connection.address, own.server.key)
    assert drafted > accepted >= 0, "a head drafts"
    process = own.server.process
    own.close()
    assert process.poll() is not None, "it ends with us"


def test_a_prompt_is_read_anew_though_options_that_its_way_does_not_use_differ(file):
    own = OwnLlamaCpp(file, threads=1, options=NGRAM)

    def reused(**options) -> int:
        _, prefilled, *_ = own.run(Request(TURN, "llama.cpp", NGRAM | options, max_new_tokens=8))
        return prefilled.reused

    try:
        reused()
        assert reused(p_min=0.5) > 0, "the server keeps what it has read"
        own.forget()
        assert reused(p_min=0.2) == 0
    finally:
        own.close()


def test_a_run_does_not_wait_for_a_server_that_was_started_anew_to_forget(file, monkeypatch):
    own = OwnLlamaCpp(file, threads=1, options=NGRAM | {"spec": "ngram-mod"})

    def answer() -> tuple:
        told: list = []
        asked = Request(TURN, "llama.cpp", own._model.options, max_new_tokens=8)
        *_, finished = own.run(asked, progress=told.append)
        return finished.text, told

    pid = own.server.process.pid
    own.forget_acceptance()
    assert own.server.process.pid == pid, "it has given no answer"
    text, _ = answer()
    own.forget_acceptance()
    assert own.server.process.pid != pid
    assert answer() == (text, []), "nothing is loaded in its time"
    monkeypatch.setattr(llama_cpp_start, "find_spec", lambda name: None)
    own.forget_acceptance()
    with pytest.raises(ModelUnavailable, match="not installed"):
        answer()
    own.close()


def test_ways_of_drafting_are_joined_each_once():
    spec = next(option for option in SPEC.options if option.name == "spec")
    for right in ("none", "ngram-mod", "ngram-mod+draft-simple", "ngram-map-k+ngram-cache+draft-mtp"):
        assert spec.parse(right) == right
    for wrong in ("", "draft", "ngram-mod,draft-simple", "none+ngram-mod", "ngram-mod+ngram-mod", "ngram-mod+"):
        with pytest.raises(UsageProblem, match="not one of its values") as refused:
            spec.parse(wrong)
        assert "draft-dflash | draft-dspark | draft-mtp, or several of them joined by +" in refused.value.hint


def test_it_is_started_anew_where_it_died_in_the_middle_of_an_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(gguf_files, "CONTEXT", 4096)  # an answer that no machine has written before it dies
    model = OwnLlamaCpp(Tiny("llama", "F32").write(tmp_path / "tiny.gguf"), threads=1, options=NGRAM)
    try:
        question = Request(TURN, max_new_tokens=3000)
        events = model.run(question)
        arrived = [next(events), next(events)]
        model.server.process.kill()
        model.server.process.wait()
        with pytest.raises(RunFailed):
            arrived.extend(events)
        loading = []
        assert isinstance([*model.run(question, progress=loading.append)][-1], Finished) and loading
    finally:
        model.close()


def test_what_it_cannot_read_and_what_is_not_installed(tmp_path, monkeypatch):
    (wrong := tmp_path / "wrong.gguf").write_bytes(b"GGUF, or so it says")
    with pytest.raises(ModelUnavailable, match=r"llama\.cpp cannot run wrong\.gguf with these options"):
        OwnLlamaCpp(wrong)
    monkeypatch.setattr(llama_cpp_start, "find_spec", lambda name: None)
    with pytest.raises(ModelUnavailable) as missing:
        OwnLlamaCpp(wrong)
    assert missing.value.hint == "pip install 'spec-tui[llamacpp]'"


def test_a_process_that_dies_at_once_says_why(file, tmp_path, monkeypatch):
    (python := tmp_path / "python").write_text("#!/bin/sh\necho 'ImportError: libgomp is missing' >&2\n")
    python.chmod(0o755)
    monkeypatch.setattr(llama_cpp_start.sys, "executable", str(python))
    open_pipe = llama_cpp_start.subprocess.Popen

    def dead(*args, **more):
        process = open_pipe(*args, **more)
        process.wait()
        return process

    monkeypatch.setattr(llama_cpp_start.subprocess, "Popen", dead)
    with pytest.raises(ModelUnavailable, match="these options: ImportError: libgomp is missing"):
        OwnLlamaCpp(file)


@pytest.mark.parametrize("processors, asked, threads", [(1, -1, 1), (2, -1, 2), (4, None, 4), (4, -1, 3)])
def test_a_core_is_left_to_the_screen_where_more_than_two_are_there(processors, asked, threads, file, monkeypatch):
    monkeypatch.setattr(llama_cpp_start, "processors", lambda: processors)
    model = OwnLlamaCpp(file, threads=asked, options=NGRAM)
    model.close()
    assert model.ready.threads == threads


class Host(VirtualRacer):
    """A loaded model whose tokens are those of the served one."""

    def __init__(self, served) -> None:
        super().__init__()
        self.ready, self._served = served.ready, served
        self.audited: list = []

    def prompt(self, request):
        return self._served._prompt(request, lambda: False)

    def audit(self, answer, *watched):
        self.audited.append(answer)
        return super().audit(answer, *watched)


def test_it_races_beside_engines_of_ours(served, address, key, monkeypatch):
    monkeypatch.setenv("SERVER_KEY", key)
    host = Host(served)
    host.ready = replace(host.ready, host="", model="here", dtype="float32")
    lane = f"server:url={address}:api_key_env=SERVER_KEY"
    asked = Race(parse_lanes(["autoregressive", lane, lane]), Request(TURN, max_new_tokens=12))
    with Peers(host) as peers:
        events = list(race(peers, asked))
    pairs = {(pair.first, pair.second): pair.verdict for pair in events if isinstance(pair, Compared)}
    assert pairs[1, 2] == "same" and pairs[0, 1] != "same"
    assert ("here", "float32", None) in {(a.model, a.dtype, a.lossless) for a in host.audited}
    assert "Bearer" not in repr(events) and os.environ["SERVER_KEY"] not in repr(events)
