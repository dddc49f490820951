"""Requests to a server, and its answers as far as they can be believed: bounded in size and time, every failure a
sentence."""

from __future__ import annotations

import json
import math
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic, perf_counter
from typing import Any

import httpx2 as httpx

from engines.errors import ModelUnavailable, RunFailed, SpecError, UsageProblem, first_line

_CONNECT, _ANSWER, _SILENCE = 5.0, 30.0, 180.0  # seconds: to connect, for a short answer, between parts of a long one
_LONGEST, _LARGEST = 1 << 20, 64 << 20  # bytes: of a line of a stream, of an answer
_LOOK = 0.05  # seconds between two looks at whether a stream was cancelled
_TRIPS, _CHEAP = 5, "/health"  # where llama.cpp and vLLM answer with nothing; "no such path" comes back as soon
_END = object()
_WHICH = "is it a server of llama.cpp, or one of OpenAI's form?"


class Connection:
    """A server's address, and requests to it. Proxies and certificates are those of the environment.

    Args:
        url: ``http://HOST:PORT`` or https, with a path where the server is below one.
        api_key: sent as a bearer token.
        direct: through no proxy: the server is ours, on this machine.

    Attributes:
        address: the URL as it may be shown.

    Raises:
        UsageProblem: no such address, or one with a password in it.
    """

    def __init__(self, url: str, api_key: str | None = None, direct: bool = False) -> None:
        try:
            parsed = httpx.URL(url)
        except (httpx.InvalidURL, TypeError, ValueError):
            parsed = httpx.URL("")
        strange = any(letter.isspace() or not letter.isprintable() for letter in url)
        if strange or parsed.scheme not in ("http", "https") or not parsed.host or parsed.query or parsed.fragment:
            raise UsageProblem(f"{url[:100]} is no address of a server", "give one like http://127.0.0.1:8080")
        if parsed.userinfo:
            raise UsageProblem("the address contains a password", "put it into an environment variable: --api-key-env")
        self.address = str(parsed).rstrip("/")
        headers = {"Accept-Encoding": "identity"}  # nothing that unpacks to more than it is
        if api_key:
            if not (api_key.isascii() and api_key.isprintable()) or " " in api_key:
                raise UsageProblem("the server's key has characters that no key has",
                                   "check the variable that --api-key-env names")
            headers["Authorization"] = f"Bearer {api_key}"
        limits = httpx.Timeout(_ANSWER, connect=_CONNECT)
        self._client = httpx.Client(
            base_url=self.address, headers=headers, timeout=limits, follow_redirects=False, trust_env=not direct
        )

    def get(self, path: str) -> Any:
        """What a GET answers, as JSON. Raises ModelUnavailable."""
        return self._json("GET", path, None)

    def find(self, path: str) -> Any:
        """The same; None where there is no such path, or it answers otherwise than with JSON."""
        response, data = self._answer("GET", path, None)
        if response.status_code in (404, 405, 501):
            return None
        self._check(response, data)
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            return None

    def text(self, path: str) -> str:
        """What a GET answers, as text. Raises ModelUnavailable."""
        response, data = self._answer("GET", path, None)
        self._check(response, data)
        return data.decode("utf-8", "replace")

    def round_trip(self) -> float | None:
        """Seconds that an empty request takes there and back, the least of a few; None where nobody answers."""
        least = math.inf
        for _ in range(_TRIPS):
            clock = perf_counter()
            try:
                self._answer("GET", _CHEAP, None)
            except ModelUnavailable:
                return None
            least = min(least, perf_counter() - clock)
        return least

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """What a POST of JSON answers, as JSON. Raises ModelUnavailable."""
        return self._json("POST", path, body)

    def stream(
        self, path: str, body: dict[str, Any], cancelled: Callable[[], bool], gather: float = 0.0
    ) -> Iterator[Any]:
        """The events of a POST that are sent as they come, each JSON. Once cancelled, or closed, the request is gone:
        the server notices and stops.

        Args:
            gather: seconds that further events may gather before they are read. Who waits for each is woken for each,
                and takes that time from a server that computes on all cores of this machine.

        Raises:
            RunFailed: refused, broken off, silent for long, or no such events.
        """
        arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        stop = threading.Event()
        request = self._client.build_request("POST", path, json=body, timeout=httpx.Timeout(_SILENCE, connect=_CONNECT))
        opened: list[httpx.Response] = []
        thread = threading.Thread(target=self._receive, args=(request, opened, arrived, stop, gather), daemon=True)
        thread.start()
        since = monotonic()
        try:
            while not cancelled():
                try:
                    events = arrived.get(timeout=max(_LOOK, gather))
                except queue.Empty:
                    if monotonic() - since > _SILENCE:
                        silent = f"{self.address} has been silent for {_SILENCE:.0f} seconds"
                        raise RunFailed(silent, "ask again") from None
                    continue
                since = monotonic()
                if events is _END:
                    return
                if isinstance(events, SpecError):
                    raise events
                for event in events:
                    if cancelled():
                        return
                    yield event
        finally:
            stop.set()
            for response in opened:
                with suppress(Exception):  # a read that waits is woken by this, not by closing
                    response.extensions["network_stream"].get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    def _receive(
        self, request: httpx.Request, opened: list[httpx.Response], arrived: queue.SimpleQueue[Any],
        stop: threading.Event, gather: float,
    ) -> None:
        """Put the events of an answer into a queue, those together that came together, and at last an error or the
        end."""
        events: list[Any] = []

        def deliver() -> None:
            if events:
                arrived.put(events.copy())
                events.clear()
                stop.wait(gather)

        end: Any = _END
        try:
            response = self._client.send(request, stream=True)
            opened.append(response)
            if stop.is_set():  # nobody could close what was not open yet
                return
            if response.status_code != 200:
                raise RunFailed(*self._refusal(response, _bounded(response)))
            with _before_reading(response, deliver):
                for line in _lines(response):
                    if stop.is_set():
                        return
                    if line.startswith(b"data:") and (data := line[5:].strip()) not in (b"", b"[DONE]"):
                        events.append(_parsed(data, RunFailed, self.address))
                    if line.startswith(b"error:"):
                        raise RunFailed(f"{self.address} broke off: {_message(line[6:])}", "ask again")
        except SpecError as error:
            end = error
        except Exception as error:  # whatever the library raises for a connection that is closed under it
            end = RunFailed(f"the connection to {self.address} broke: {first_line(error)}", "ask again")
        finally:
            if not stop.is_set():
                arrived.put(events)
                arrived.put(end)
            for response in opened:
                with suppress(Exception):
                    response.close()

    def _json(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        response, data = self._answer(method, path, body)
        self._check(response, data)
        return _parsed(data, ModelUnavailable, self.address)

    def _check(self, response: httpx.Response, data: bytes) -> None:
        if response.status_code != 200:
            raise ModelUnavailable(*self._refusal(response, data))

    def _answer(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[httpx.Response, bytes]:
        """A whole answer, whatever its status. Raises ModelUnavailable."""
        try:
            with self._client.stream(method, path, json=body) as response:
                return response, _bounded(response)
        except httpx.ConnectError:
            raise ModelUnavailable(
                f"nobody answers at {self.address}", "start the server there, or check host and port"
            ) from None
        except httpx.TimeoutException:
            raise ModelUnavailable(
                f"{self.address} did not answer in time", "the server may be loading or busy"
            ) from None
        except (httpx.HTTPError, OSError, ValueError) as error:
            raise ModelUnavailable(
                f"{self.address} cannot be asked: {first_line(error)}", "check the address"
            ) from None

    def _refusal(self, response: httpx.Response, data: bytes) -> tuple[str, str]:
        """What a status means, and what to do."""
        status, said = response.status_code, _message(data)
        if status in (401, 403):
            return f"{self.address} refuses the key" if "authorization" in self._client.headers else (
                f"{self.address} wants a key"), "name the environment variable that holds it: --api-key-env NAME"
        if 300 <= status < 400:
            return f"{self.address} sends requests elsewhere", "give the address that it redirects to"
        if status == 404 and not _is_error(data):
            return f"{self.address} has no {response.request.url.path}", _WHICH
        if status in (429, 503):
            return f"{self.address} is busy or still loading: {said}", "try again in a moment"
        return f"{self.address} answered with an error ({status}): {said}", "the server's log may say more"


def _bounded(response: httpx.Response) -> bytes:
    """The whole answer. Raises ValueError where it is larger than any could be."""
    data = bytearray()
    for part in response.iter_raw():
        data += part
        if len(data) > _LARGEST:
            raise ValueError("the answer is too large")
    return bytes(data)


@contextmanager
def _before_reading(response: httpx.Response, do: Callable[[], None]) -> Iterator[None]:
    """Do this each time when all that has come is read, and before more is waited for."""
    stream = response.extensions["network_stream"]
    read = stream.read

    def read_then(*args: Any, **how: Any) -> bytes:
        do()
        return read(*args, **how)

    stream.read = read_then
    try:
        yield
    finally:
        del stream.read  # its connection serves the next request, too


def _lines(response: httpx.Response) -> Iterator[bytes]:
    rest, size = b"", 0
    for part in response.iter_raw():
        *lines, rest = (rest + part).split(b"\n")
        size += len(part)
        if size > _LARGEST or len(rest) > _LONGEST:
            raise ValueError("the answer is too large")
        yield from lines
    yield rest


def _parsed(data: bytes, kind: type[SpecError], address: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise kind(f"{address} answers with something else than JSON", _WHICH) from None


def _is_error(data: bytes) -> bool:
    """Whether a body says what is wrong, as a server of this form does; a wrong path has no such body."""
    try:
        return isinstance(json.loads(data)["error"], dict)
    except (ValueError, RecursionError, KeyError, TypeError):
        return False


def _message(data: bytes) -> str:
    """What an error's body says, in a line."""
    try:
        found = json.loads(data)
        error = found.get("error", found)
        text = str(error.get("message", error) if isinstance(error, dict) else error)
    except (ValueError, RecursionError, AttributeError):
        text = data.decode("utf-8", "replace")
    return " ".join(text.split())[:200] or "no reason is given"
