"""Servers that are not there, are something else, or misbehave: each ends in a sentence, soon."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from engines import ModelUnavailable, Request, RunFailed, UsageProblem
from engines.report.events import Finished, Round
from engines.servers import connect, connection

TURN = (("user", "hello"),)
PROPS = {"default_generation_settings": {"n_ctx": 64}, "model_alias": "m", "chat_template": "x"}
TOKENS = {"tokens": [{"id": 1, "piece": "a"}, {"id": 2, "piece": [195]}]}


def chunk(n: int, **more) -> bytes:
    row = {"content": f"w{n} ", "tokens": [n], "stop": False, "timings": {"predicted_ms": n, "prompt_ms": 1}} | more
    return b"data: " + json.dumps(row).encode() + b"\n\n"


END = chunk(0, content="", tokens=[], stop=True, stop_type="limit")


class Handler(BaseHTTPRequestHandler):
    """Answers like llama.cpp's server, except where ``server.wrong`` has another answer: (status, headers, body)."""

    def _send(self, path: str) -> None:
        self.server.asked.append((path, dict(self.headers)))
        right = {
            "/props": PROPS, "/v1/models": {"data": []}, "/apply-template": {"prompt": "a"}, "/tokenize": TOKENS,
        }
        stream = [chunk(n) for n in range(5)] + [END]
        status, headers, body = self.server.wrong.get(path, (200, {}, right.get(path, stream)))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        parts = body if isinstance(body, list) else [body if isinstance(body, bytes) else json.dumps(body).encode()]
        for part in parts:
            for some in part() or () if callable(part) else [part]:
                self.wfile.write(some)
                self.wfile.flush()

    def do_GET(self) -> None:
        self._send(self.path)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._send(self.path)

    def log_message(self, *_) -> None:
        pass


@pytest.fixture
def server():
    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_) -> None:
            """A client that left is none."""

    made = Quiet(("127.0.0.1", 0), Handler)
    made.wrong, made.asked = {}, []
    made.url = f"http://127.0.0.1:{made.server_port}"
    threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def test_a_good_answer(server):
    *_, finished = connect(server.url).run(Request(TURN))
    assert finished == Finished("length", (0, 1, 2, 3, 4), "w0 w1 w2 w3 w4 ")


@pytest.mark.parametrize("url", ["", "localhost:8080", "ftp://a", "http://", "http://a b", "http://a/?x=1", "\x1b[31m"])
def test_what_is_no_address(url):
    with pytest.raises(UsageProblem, match="no address of a server"):
        connect(url)


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
    ((401, {}, b""), "wants a key"), ((404, {}, b"nothing"), "has no /props"), ((503, {}, b"Loading"), "still loading"),
    ((500, {}, {"error": {"message": "out of \x1b[31m memory"}}), "out of"), ((200, {}, b"<html>"), "else than JSON"),
    ((302, {"Location": "http://elsewhere/"}, b""), "elsewhere"), ((200, {}, {}), "is no server of llama.cpp"),
    ((200, {}, b"[" * 100_000), "else than JSON"), ((200, {}, [b"x" * (1 << 20)] * 70), "too large"),
])
def test_a_server_that_answers_otherwise(server, answer, words):
    server.wrong["/props"] = answer
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
