"""Servers that are not there, are something else, or misbehave: each ends in a sentence, soon."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time

import pytest

from engines import ModelUnavailable, Request, RunFailed, SpecError, UsageProblem
from engines.errors import StartCancelled
from engines.race.lanes import parse_lane
from engines.race.peers import addresses
from engines.report.events import Finished, Round
from engines.servers import connect, connection
from engines.servers.remote_cost import measure_remote_cost
from tests.servers.misbehaving import END, PROPS, chunk, misbehaving

TURN = (("user", "hello"),)


@pytest.fixture
def server():
    with misbehaving() as made:
        yield made


def test_a_good_answer(server):
    *_, finished = connect(server.url).run(Request(TURN))
    assert finished == Finished("length", (0, 1, 2, 3, 4), "w0 w1 w2 w3 w4 ")


@pytest.mark.parametrize("change", [
    lambda stream: stream.replace(b"\n", b"\r"), lambda stream: stream.replace(b"\n", b"\r\n"),
    lambda stream: b"\xef\xbb\xbf" + stream,
], ids=["CR", "CR LF", "byte order mark"])
def test_events_may_be_separated_in_all_ways_of_their_format(server, change):
    server.wrong["/completion"] = (200, {}, [change(chunk(1) + chunk(2) + END)])
    *_, finished = connect(server.url).run(Request(TURN))
    assert finished.text == "w1 w2 "


@pytest.mark.parametrize("url", ["", "localhost:8080", "ftp://a", "http://", "http://a b", "http://a/?x=1", "\x1b[31m",
                                 "http://a:99999", "http://a:0", None])
def test_what_is_no_address(url):
    with pytest.raises(UsageProblem, match="is not the address of a server"):
        connect(url)


@pytest.mark.parametrize("key", ["sec\nret", "sec ret", "s\u00e9cret"])
def test_a_key_that_is_none_is_refused_and_not_repeated(key):
    with pytest.raises(UsageProblem) as caught:
        connection.Connection("http://127.0.0.1:9", key)
    assert "key" in caught.value.message and key not in caught.value.message + caught.value.hint


def test_a_lanes_address_with_a_password_is_refused_before_it_is_said():
    with pytest.raises(UsageProblem, match="password"):
        addresses([parse_lane("server:url=http://me:pw@127.0.0.1:9")])


@pytest.mark.parametrize("url", ["http://me:secret@127.0.0.1:1", "http://me:secret@127.0.0.1:1/?x=1",
                                 "http://me:secret@127.0.0.1:99999", "me:secret@127.0.0.1", "ftp://me:secret@a"])
def test_a_password_is_not_repeated(url):
    with pytest.raises(UsageProblem, match="contains a password") as caught:
        connect(url)
    assert "secret" not in caught.value.message + caught.value.hint


def test_the_key_goes_to_the_server_and_nowhere_else(server):
    model = connect(server.url, "s3cret")
    events = list(model.run(Request(TURN)))
    assert all(headers["Authorization"] == "Bearer s3cret" for _, headers in server.asked)
    assert "s3cret" not in repr((model.ready, events))


KEY = 'sk-"S\\ECRET-KEY'


@pytest.mark.parametrize("answer", [
    (500, {}, {"error": {"message": f"no such key: {KEY}"}}), (500, {}, {"error": {"key": KEY}}),
    (503, {}, KEY.encode()), (429, {}, {"detail": [KEY]}),
    (200, {}, [chunk(1), b"data: " + json.dumps({"error": KEY}).encode() + b"\n\n"]),
    (200, {}, [f"error: {json.dumps({'message': KEY})}\n".encode()]), (500, {}, b"x" * 170 + b" " + KEY.encode()),
], ids=["message", "other field", "text", "list", "stream", "stream's end", "at the cut"])
def test_a_key_that_the_server_repeats_is_not_shown(server, answer):
    model = connect(server.url, KEY)
    server.wrong["/completion"] = answer
    with pytest.raises(RunFailed) as caught:
        list(model.run(Request(TURN)))
    said = caught.value.message
    assert "***" in said and not re.search("sk-|ECRET", said)


def test_nor_is_it_kept_in_what_a_server_says_of_itself_or_writes(server):
    server.wrong["/props"] = (200, {}, PROPS | {"model_alias": KEY, "model_ftype": f"a {KEY}", "build_info": KEY})
    server.wrong["/tokenize"] = (200, {}, {"tokens": [{"id": 1, "piece": KEY}]})
    server.wrong["/completion"] = (200, {}, [chunk(1, content=f"it is {KEY}."), END])
    model = connect(server.url, KEY)
    events = list(model.run(Request(TURN)))
    assert "ECRET" not in repr((model.ready, events)) and events[-1].text == "it is ***."
    assert (events[0].dtype, events[0].prompt_pieces) == ("a ***", ("***",))


def test_a_key_that_is_a_word_stays_in_an_answer(server):
    server.wrong["/completion"] = (200, {}, [chunk(1, content="ollama is"), END])
    *_, finished = connect(server.url, "ollama").run(Request(TURN))
    assert finished.text == "ollama is"


@pytest.mark.parametrize(("answer", "words"), [
    ((401, {}, b""), "requires a key"), ((503, {}, b"Loading"), "still loading"),
    ((500, {}, {"error": {"message": "out of \x1b[31m memory"}}), "out of"),
    ((302, {"Location": "http://elsewhere/"}, b""), "elsewhere"),
    ((200, {}, [b"x" * (1 << 20)] * 70), "too large"),
])
def test_a_server_that_answers_otherwise(server, answer, words):
    server.wrong["/props"] = answer
    with pytest.raises(ModelUnavailable, match=words):
        connect(server.url)


@pytest.mark.parametrize(("props", "models", "words"), [
    ((404, {}, b"nothing"), (404, {}, b"nothing"), "has no /v1/models"), ((200, {}, b"<html>"), None, "names no model"),
    ((200, {}, {}), (200, {}, b"{" * 100_000), "other than JSON"),
    ((200, {}, {}), (200, {}, b"[" * 100_000), "does not answer like such a server"),
])
def test_a_server_of_another_kind(server, props, models, words):
    server.wrong["/props"] = props
    if models is not None:
        server.wrong["/v1/models"] = models
    with pytest.raises(ModelUnavailable, match=words):
        connect(server.url)


def test_nobody_there():
    with pytest.raises(ModelUnavailable, match="nobody answers"):
        connect("http://127.0.0.1:9")


@pytest.mark.parametrize(("name", "value"), [
    ("SSL_CERT_FILE", "/nonexistent.pem"), ("ALL_PROXY", "socks9://me:secret@a:1"), ("HTTP_PROXY", "http://[::"),
])
def test_proxies_and_certificates_that_cannot_be_used_are_named(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageProblem, match=name) as caught:
        connect("http://127.0.0.1:9")
    assert "secret" not in caught.value.message


def test_a_server_that_is_there_is_not_said_to_be_gone(server, monkeypatch):
    with pytest.raises(ModelUnavailable, match="does not speak https") as caught:
        connect(server.url.replace("http:", "https:"))
    assert "http://" in caught.value.hint
    model = connect(server.url)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with pytest.raises(ModelUnavailable, match="by way of the proxy that HTTP_PROXY names"):
        connect(server.url)
    assert list(model.run(Request(TURN, max_new_tokens=1)))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert connect(server.url)


@pytest.mark.parametrize(("parts", "words"), [
    ([chunk(1), chunk(2)], "broke off"), ([chunk(1), b"data: {nonsense\n\n"], "other than JSON"),
    ([chunk(1), chunk(2, error={"message": "slot lost"})], "slot lost"), ([b"data: " + b"x" * (2 << 20)], "too large"),
    ([b"error: {\"message\": \"gone\"}\n"], "gone"),
])
def test_an_answer_that_breaks_keeps_what_had_arrived(server, parts, words):
    model, events = connect(server.url), []
    server.wrong["/completion"] = (200, {}, parts)
    with pytest.raises(RunFailed, match=words):
        for event in model.run(Request(TURN)):
            events.append(event)
    assert len(events) >= 1 and all(not isinstance(event, Finished) for event in events)


def test_a_model_of_a_router_is_named_in_all_that_is_asked(server):
    server.wrong |= {"/v1/models": (200, {}, {"data": [{"id": "a"}, {"id": "b"}]}),
                     "/props": (200, {}, PROPS | {"role": "router", "default_generation_settings": {"n_ctx": 0}}),
                     "/props?model=b": (200, {}, PROPS | {"model_alias": "b"})}
    with pytest.raises(ModelUnavailable, match="has several models: a, b") as several:
        connect(server.url)
    assert "--served-model" in several.value.hint
    model = connect(server.url, model="b")
    assert (model.ready.model, model.ready.context_limit) == ("b", 64) and list(model.run(Request(TURN)))
    assert [json.loads(body)["model"] for body in server.bodies.values()] == ["b"] * 3
    del server.wrong["/props"]
    with pytest.raises(ModelUnavailable, match="has no model nonsense: a, b"):
        connect(server.url, model="nonsense")


def test_another_model_at_the_same_address_is_named(server):
    model = connect(server.url)
    server.wrong["/props"] = (200, {}, PROPS | {"model_alias": "another", "default_generation_settings": {"n_ctx": 32}})
    started, *_ = model.run(Request(TURN))
    assert started.model == model.ready.model == "another" and model.ready.context_limit == 32


def test_a_refused_question(server):
    model = connect(server.url)
    server.wrong["/completion"] = (429, {}, b"too many")
    with pytest.raises(RunFailed, match="busy"):
        list(model.run(Request(TURN)))


def test_a_stopped_request_is_closed_and_the_server_notices(server):
    model, noticed = connect(server.url), threading.Event()

    def endless():
        yield chunk(1)
        try:
            while True:
                yield chunk(2)
        finally:
            noticed.set()

    server.wrong["/completion"] = (200, {}, [endless])
    events: list = []
    for event in model.run(Request(TURN), cancelled=lambda: len(events) > 5):
        events.append(event)
    assert events[-1].reason == "cancelled"
    assert noticed.wait(30)  # longer than a busy machine takes


def test_no_seed_is_the_one_that_means_another_each_time(server):
    model = connect(server.url)
    for seed, sent in ((7, 7), (2**32 - 2, 2**32 - 2), (2**32 - 1, 0)):
        list(model.run(Request(TURN, seed=seed, max_new_tokens=1)))
        assert json.loads(server.bodies["/completion"])["seed"] == sent


def test_how_long_the_way_is_is_asked_without_a_prompt(server):
    model = connect(server.url)
    started, *_ = model.run(Request(TURN, max_new_tokens=1))
    assert started.round_trip == model.round_trip > 0 and not started.arrival
    paths = [path for path, _ in server.asked]
    assert paths.count("/health") == 5 and paths.index("/completion") > paths.index("/health")
    server.wrong["/health"] = (404, {}, b"")
    assert connect(server.url).round_trip > 0, "that there is nothing comes back as soon"
    server.asked.clear()
    server.wrong["/health"] = (200, {}, [lambda: time.sleep(0.6)])
    assert connect(server.url).round_trip > 0.5
    assert [path for path, _ in server.asked].count("/health") == 1, "a slow server is not asked five times"


def test_a_silent_server_is_left_at_once_when_asked(server):
    model, gone = connect(server.url), threading.Event()
    server.wrong["/completion"] = (200, {}, [chunk(1), lambda: gone.wait(20) and None])
    events = model.run(Request(TURN), cancelled=lambda: bool(rounds))
    rounds = []
    for event in events:
        rounds.append(event)
    gone.set()
    assert not any(isinstance(event, Round) for event in rounds)


def test_a_silent_server_is_given_up(server, monkeypatch):
    monkeypatch.setattr(connection, "_SILENCE", 0.2)
    model, gone = connect(server.url), threading.Event()
    server.wrong["/completion"] = (200, {}, [chunk(1), lambda: gone.wait(20) and None])
    with pytest.raises(RunFailed, match=r"silent|broke"):
        list(model.run(Request(TURN)))
    gone.set()


def test_a_server_that_says_that_it_is_still_there_is_not_silent(server, monkeypatch):
    monkeypatch.setattr(connection, "_SILENCE", 0.5)

    def pings():
        for _ in range(12):
            time.sleep(0.1)
            yield b": ping\n\n"

    model = connect(server.url)
    server.wrong["/completion"] = (200, {}, [chunk(1), pings, chunk(2), END])
    assert list(model.run(Request(TURN)))[-1].text == "w1 w2 "


@pytest.mark.parametrize("path, wrong, words", [
    ("/completion", [chunk(1, tokens=5)], r"\$.tokens"), ("/completion", [chunk(1, tokens=[-1])], r"\$.tokens\[0\]"),
    ("/completion", [chunk(1, timings={"draft_n": "9"})], r"\$.timings.draft_n"),
    ("/completion", [chunk(1, content={"a": 1})], r"\$.content"), ("/tokenize", {"tokens": 5}, r"\$.tokens"),
    ("/tokenize", {"tokens": [{"piece": "a"}]}, r"tokens\[0\]"), ("/apply-template", {"prompt": [1]}, r"\$.prompt"),
])
def test_a_field_of_another_kind_is_named(server, path, wrong, words):
    model = connect(server.url)
    server.wrong[path] = (200, {}, wrong)
    with pytest.raises(SpecError, match=words):
        list(model.run(Request(TURN)))


@pytest.mark.parametrize("path, wrong", [
    ("/props", PROPS | {"model_alias": 5}), ("/props", PROPS | {"default_generation_settings": {"n_ctx": -1}}),
    ("/v1/models", {"data": [{"id": "m", "meta": {"n_params": "7B"}}]}),
])
def test_so_is_one_of_what_it_says_of_itself(server, path, wrong):
    server.wrong[path] = (200, {}, wrong)
    with pytest.raises(ModelUnavailable, match="does not answer like such a server"):
        connect(server.url)


def test_half_a_character_becomes_a_mark(server):
    model = connect(server.url)
    server.wrong["/completion"] = (200, {}, [chunk(1, content="a\ud83d"), chunk(2, content="\ude00b"), END])
    *_, finished = model.run(Request(TURN))
    assert finished.text == "a??b" and finished.text.encode()


def test_so_do_bytes_that_are_no_text(server):
    model = connect(server.url)
    cut = [chunk(n, content="X").replace(b"X", half) for n, half in enumerate((b"caf\xe9 ", b"\xf0\x9f", b"\x98\x80"))]
    server.wrong["/completion"] = (200, {}, [*cut, END])
    *_, finished = model.run(Request(TURN))
    assert finished.text == "caf\ufffd \ufffd\ufffd\ufffd" and finished.reason == "length"


@pytest.mark.parametrize("at_once", [1, 1000])
def test_a_server_that_goes_on_after_the_limit_is_left(server, at_once):
    model = connect(server.url)
    server.wrong["/completion"] = (200, {}, [lambda: iter(lambda: chunk(1, tokens=[1] * at_once), None)])
    *_, finished = model.run(Request(TURN, max_new_tokens=30))
    assert finished.reason == "length" and finished.tokens == (1,) * 30


def test_a_token_that_is_longer_than_any_ends_the_answer(server):
    model, events = connect(server.url), []
    parts = [chunk(1), chunk(2, content="x" * 1000), chunk(3, content="x" * 900_000), END]
    server.wrong["/completion"] = (200, {}, parts)
    with pytest.raises(RunFailed, match="sends 900,000 letters as 1 token"):
        for event in model.run(Request(TURN)):
            events.append(event)
    assert len(events) == 3, "what had arrived is kept"
    assert len(events[-1].emitted[0].text) == 1000, "a server may hold the text of some tokens back"


def test_names_and_labels_of_a_server_are_not_endless(server):
    server.wrong["/props"] = (200, {}, PROPS | {name: "A" * 500_000 for name in
                                                ("model_alias", "model_ftype", "build_info")})
    pieces = [{"id": 1, "piece": "a" * 10**6}, {"id": 2, "piece": [1] * 10**5}]
    server.wrong["/tokenize"] = (200, {}, {"tokens": pieces})
    started, *_ = connect(server.url).run(Request(TURN))
    assert len(repr(started)) < 5000


def test_messages_without_an_end_and_without_tokens_are_left(server):
    model = connect(server.url)
    server.wrong["/completion"] = (200, {}, [lambda: iter(lambda: chunk(1, tokens=[], content=""), None)])
    with pytest.raises(RunFailed, match="does not end its answer"):
        list(model.run(Request(TURN)))


def drip():
    while True:
        yield b" "
        time.sleep(0.02)


@pytest.mark.parametrize("path", ["/props", "/tokenize"])
def test_one_deadline_holds_for_a_whole_answer(server, monkeypatch, path):
    """However often a part of it comes."""
    model = None if path == "/props" else connect(server.url)
    monkeypatch.setattr(connection, "_ANSWER", 0.2)
    server.wrong[path] = (200, {}, [drip])
    with pytest.raises(ModelUnavailable, match="in time"):
        list(model.run(Request(TURN))) if model else connect(server.url)
    del server.wrong[path]
    assert connect(server.url), "it is asked again by another connection"


def test_headers_that_do_not_end_are_left_too(monkeypatch):
    monkeypatch.setattr(connection, "_ANSWER", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        def answer() -> None:
            with contextlib.suppress(OSError):
                one, _ = listening.accept()
                one.sendall(b"HTTP/1.1 200 OK\r\n")
                while True:
                    one.sendall(b"X: y\r\n")
                    time.sleep(0.02)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with pytest.raises(ModelUnavailable, match="in time"):
            connect(f"http://127.0.0.1:{listening.getsockname()[1]}")
        thread.join(5)
        assert not thread.is_alive(), "the connection is closed"


@pytest.mark.parametrize("path", ["/apply-template", "/tokenize", "/completion"])
def test_a_run_is_stopped_wherever_the_server_keeps_it_waiting(server, path):
    model, asked = connect(server.url), time.monotonic()
    server.wrong[path] = (200, {}, [drip])
    with contextlib.nullcontext() if path == "/completion" else pytest.raises(StartCancelled, match="request was"):
        list(model.run(Request(TURN), cancelled=lambda: time.monotonic() - asked > 0.2))
    assert time.monotonic() - asked < 5


def test_what_a_refusal_says_is_not_looked_through_for_ever(server):
    server.wrong["/props"] = (500, {}, [b"a b " * (1 << 18)] * 40)
    with pytest.raises(ModelUnavailable) as caught:
        connect(server.url)
    assert len(caught.value.message) < 300


@pytest.mark.parametrize("tokens, limit", [((), 100), ((1, 2), 1), ((1, 2), 0)])
def test_a_server_without_room_for_a_prompt_has_no_price(tokens, limit):
    with pytest.raises(RunFailed, match="no context for a prompt"):
        measure_remote_cost(lambda prompt: (1, 1.0), tokens, limit, lambda: False, lambda done: None)
