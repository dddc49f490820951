"""Servers that are not there, are something else, or misbehave: each ends in a sentence, soon."""

from __future__ import annotations

import threading

import pytest

from engines import ModelUnavailable, Request, RunFailed, UsageProblem
from engines.race.lanes import parse_lane
from engines.race.peers import addresses
from engines.report.events import Finished, Round
from engines.servers import connect, connection
from engines.servers.price_from_outside import price_from_outside
from tests.servers.misbehaving import chunk, misbehaving

TURN = (("user", "hello"),)


@pytest.fixture
def server():
    with misbehaving() as made:
        yield made


def test_a_good_answer(server):
    *_, finished = connect(server.url).run(Request(TURN))
    assert finished == Finished("length", (0, 1, 2, 3, 4), "w0 w1 w2 w3 w4 ")


@pytest.mark.parametrize("url", ["", "localhost:8080", "ftp://a", "http://", "http://a b", "http://a/?x=1", "\x1b[31m"])
def test_what_is_no_address(url):
    with pytest.raises(UsageProblem, match="no address of a server"):
        connect(url)


@pytest.mark.parametrize("key", ["sec\nret", "sec ret", "s\u00e9cret"])
def test_a_key_that_is_none_is_refused_and_not_repeated(key):
    with pytest.raises(UsageProblem) as caught:
        connection.Connection("http://127.0.0.1:9", key)
    assert "key" in caught.value.message and key not in caught.value.message + caught.value.hint


def test_a_lanes_address_with_a_password_is_refused_before_it_is_said():
    with pytest.raises(UsageProblem, match="password"):
        addresses([parse_lane("server:url=http://me:pw@127.0.0.1:9")])


def test_a_password_is_not_repeated():
    with pytest.raises(UsageProblem) as caught:
        connect("http://me:secret@127.0.0.1:1")
    assert "secret" not in caught.value.message + caught.value.hint


def test_the_key_goes_to_the_server_and_nowhere_else(server):
    model = connect(server.url, "s3cret")
    events = list(model.run(Request(TURN)))
    assert all(headers["Authorization"] == "Bearer s3cret" for _, headers in server.asked)
    assert "s3cret" not in repr((model.ready, events))


@pytest.mark.parametrize(("answer", "words"), [
    ((401, {}, b""), "wants a key"), ((503, {}, b"Loading"), "still loading"),
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
    ((200, {}, {}), (200, {}, b"[" * 100_000), "else than JSON"),
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


@pytest.mark.parametrize(("parts", "words"), [
    ([chunk(1), chunk(2)], "broke off"), ([chunk(1), b"data: {nonsense\n\n"], "else than JSON"),
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
    assert events[-1].reason == "cancelled" and noticed.wait(5)


def test_how_long_the_way_is_is_asked_without_a_prompt(server):
    model = connect(server.url)
    started, *_ = model.run(Request(TURN, max_new_tokens=1))
    assert started.round_trip == model.round_trip > 0 and not started.arrival
    paths = [path for path, _ in server.asked]
    assert paths.count("/health") == 5 and paths.index("/completion") > paths.index("/health")
    server.wrong["/health"] = (404, {}, b"")
    assert connect(server.url).round_trip > 0, "that there is nothing comes back as soon"


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


@pytest.mark.parametrize("tokens, limit", [((), 100), ((1, 2), 1), ((1, 2), 0)])
def test_a_server_without_room_for_a_prompt_has_no_price(tokens, limit):
    with pytest.raises(RunFailed, match="no context for a prompt"):
        price_from_outside(lambda prompt: (1, 1.0), tokens, limit, lambda: False, lambda done: None)
