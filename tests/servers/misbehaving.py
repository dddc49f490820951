"""A server of our own that answers as it is told to: like llama.cpp's, or slowly, cut, with garbage, without end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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
        self.server.bodies[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._send(self.path)

    def log_message(self, *_) -> None:
        pass


@contextmanager
def misbehaving() -> Iterator[ThreadingHTTPServer]:
    """The server, with its ``url``, what it was ``asked`` (path, headers) and the ``bodies`` by path."""

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_) -> None:
            """A client that left is none."""

    made = Quiet(("127.0.0.1", 0), Handler)
    made.wrong, made.asked, made.bodies = {}, [], {}
    made.url = f"http://127.0.0.1:{made.server_port}"
    threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()
