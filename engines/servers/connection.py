"""Requests to a server, and its answers as far as they can be believed: bounded in size and time, every failure a
sentence."""

from __future__ import annotations

import codecs
import json
import math
import os
import queue
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic, perf_counter
from typing import Any, NamedTuple
from urllib.request import getproxies, proxy_bypass

import httpx2 as httpx
import msgspec

from engines.errors import ModelUnavailable, RunFailed, SpecError, StartCancelled, UsageProblem, first_line
from engines.progress import with_heartbeat
from engines.servers.answers import Answered, Error, Sent, reason

_CONNECT, _ANSWER, _SILENCE = 5.0, 30.0, 180.0  # seconds: to connect, for a whole short answer, between parts of a long
_REST = 2.0  # seconds for what a server may still say after the end of an answer
_LONGEST, _LARGEST = 1 << 20, 64 << 20  # bytes: of a line of a stream, of an answer
_SAID = 1 << 16  # bytes of an answer that are looked through for why it was refused
_KEY = "***"  # is shown where a server repeats the key
_SECRET, _WORD = 4, 12  # letters: what is shorter is no secret; may be a word of an answer, as "not-needed" is
_LOOK = 0.05  # seconds between two looks at whether a request was cancelled
_TRIPS, _LONG = 5, 0.5  # at most, and the seconds of one that is the last
_CHEAP = "/health"  # where llama.cpp and vLLM answer with nothing; "no such path" comes back as soon
_END = object()
_DONE = b'{"done": true}'  # a message in the place of "[DONE]", which is no JSON
_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")  # that lines of a stream of events begin with
Cancelled = Callable[[], bool]
_PROXIED = ("http", "https", "all")
_WHICH = "is it a llama.cpp server, or OpenAI-compatible?"


class RefusedRequest(ModelUnavailable):
    """A server answers, and not with what is asked for."""


class _Whole(NamedTuple):
    """An answer, and the seconds it took."""

    response: httpx.Response
    data: bytes
    seconds: float


def checked_address(url: str) -> str:
    """The URL of a server as it may be shown. Raises UsageProblem: no such address, or one with a password in it."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError, ValueError):
        parsed = httpx.URL("")
    strange = any(letter.isspace() or not letter.isprintable() for letter in url)
    strange |= parsed.port is not None and not 0 < parsed.port < 1 << 16
    strange |= parsed.scheme not in ("http", "https") or not parsed.host or bool(parsed.query or parsed.fragment)
    if parsed.userinfo or (strange and "@" in url):  # first, so that it is not repeated
        raise UsageProblem("the address contains a password", "put it into an environment variable: --api-key-env")
    if strange:
        raise UsageProblem(f"{url[:100]} is not the address of a server", "give one like http://127.0.0.1:8080")
    return str(parsed).rstrip("/")


class Connection:
    """A server's address, and requests to it. Proxies and certificates are those of the environment.

    Args:
        url: ``http://HOST:PORT`` or https, with a path where the server is below one.
        api_key: sent as a bearer token.
        direct: through no proxy: the server is ours, on this machine.

    Attributes:
        address: the URL as it may be shown.

    Raises:
        UsageProblem: no such address, or one with a password in it; proxies or certificates that cannot be used.
    """

    def __init__(self, url: str, api_key: str | None = None, direct: bool = False) -> None:
        self.address = checked_address(url)
        headers = {"Accept-Encoding": "identity"}  # nothing that unpacks to more than it is
        if api_key:
            if not (api_key.isascii() and api_key.isprintable()) or " " in api_key:
                raise UsageProblem("the server's key has invalid characters",
                                   "check the variable that --api-key-env names")
            headers["Authorization"] = f"Bearer {api_key}"
        self._key = api_key if api_key and len(api_key) >= _SECRET else ""
        spellings = {self._key, json.dumps(self._key)[1:-1], repr(self._key)[1:-1]} - {""}
        self._spellings = sorted(spellings, key=len, reverse=True)
        self._direct = direct
        self._made = partial(
            _client, base_url=self.address, headers=headers, timeout=httpx.Timeout(_ANSWER, connect=_CONNECT),
            follow_redirects=False, trust_env=not direct,
        )
        self._client = self._made()

    def hidden(self, text: str) -> str:
        """What a server says, as it may be shown and kept: without the key."""
        for spelling in self._spellings:
            text = text.replace(spelling, _KEY)
        return text

    def hidden_in_answer(self, text: str) -> str:
        """The same for what a model reads or writes, where a key of a few letters stays: it may be a word there."""
        return self.hidden(text) if len(self._key) >= _WORD else text

    def said(self, error: Any) -> str:
        """What a server says of an error, in a line."""
        text = reason(error) or str(error or "")
        return " ".join(self.hidden(text).split())[:200] or "no reason is given"

    def get(self, path: str, kind: type[Answered], cancelled: Cancelled = lambda: False) -> Answered:
        """What a GET answers, as JSON of this kind. Raises ModelUnavailable, StartCancelled."""
        return self._json(self._checked(path, None, cancelled), kind)

    def find(self, path: str, kind: type[Answered]) -> Answered | None:
        """The same; None where there is no such path, or it answers otherwise than with this kind. Raises
        RefusedRequest, ModelUnavailable."""
        whole = self._answer(path)
        if whole.response.status_code in (404, 405, 501):
            return None
        self._check(whole)
        try:
            return _decoded(whole.data, msgspec.json.Decoder(kind))
        except ValueError:
            return None

    def text(self, path: str) -> str:
        """What a GET answers, as text. Raises ModelUnavailable."""
        return self._checked(path).data.decode("utf-8", "replace")

    def round_trip(self) -> float | None:
        """Seconds that an empty request takes there and back, the least of a few, of which a long one is the last; None
        where nobody answers."""
        least = math.inf
        for _ in range(_TRIPS):
            try:
                took = self._answer(_CHEAP).seconds
            except ModelUnavailable:
                return None
            least = min(least, took)
            if took > _LONG:
                break
        return least

    def post(
        self, path: str, body: dict[str, Any], kind: type[Answered], cancelled: Cancelled = lambda: False
    ) -> Answered:
        """What a POST of JSON answers, as JSON of this kind. Raises ModelUnavailable, StartCancelled."""
        return self._json(self._checked(path, body, cancelled), kind)

    def stream(
        self, path: str, body: dict[str, Any], kind: type[Sent], cancelled: Cancelled, gather: float = 0.0
    ) -> Iterator[Sent]:
        """The events of a POST that are sent as they come, each JSON of this kind. Once cancelled, or closed, the
        request is gone: the server notices and stops. A connection that is left open after the answer isn't waited for.
        ``gather``: seconds that further events may gather before they are read. Who waits for each is woken for each,
        and takes that time from a server that computes on all cores of this machine. Raises RunFailed: refused, broken
        off, silent for long, or no such events."""
        arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        stop = threading.Event()
        request = self._client.build_request("POST", path, json=body, timeout=httpx.Timeout(_SILENCE, connect=_CONNECT))
        opened: list[httpx.Response] = []
        told = (request, msgspec.json.Decoder(kind), opened, arrived, stop, gather)
        thread = threading.Thread(target=self._receive, args=told, daemon=True)
        thread.start()
        since, ended = monotonic(), False
        try:
            while not cancelled():
                try:
                    events = arrived.get(timeout=max(_LOOK, gather))
                except queue.Empty:
                    if ended and monotonic() - since > _REST:
                        return
                    if monotonic() - since > _SILENCE:
                        silent = f"{self.address} has been silent for {_SILENCE:.0f} seconds"
                        raise RunFailed(silent, "ask again") from None
                    continue
                if events or not ended:
                    since = monotonic()
                elif monotonic() - since > _REST:
                    return
                if events is _END:
                    return
                if isinstance(events, SpecError):
                    raise events
                for event in events:
                    if cancelled():
                        return
                    ended |= event.ends
                    yield event
        finally:
            stop.set()
            self._leave(opened, thread.is_alive())

    def _leave(self, opened: list[httpx.Response], waits: bool = True) -> None:
        """End a request wherever it is: the thread that waits for it is woken, and the server notices."""
        for response in opened:
            with suppress(Exception):  # a read that waits is woken by this, not by closing
                response.extensions["network_stream"].get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        if not opened and waits:  # nothing is known of its connection yet
            client, self._client = self._client, self._made()
            with suppress(Exception):
                client.close()

    def _receive(
        self, request: httpx.Request, decoder: msgspec.json.Decoder, opened: list[httpx.Response],
        arrived: queue.SimpleQueue[Any], stop: threading.Event, gather: float,
    ) -> None:
        """Put the events of an answer into a queue, those together that came together, and at last an error or the
        end."""
        events: list[Any] = []

        def deliver() -> None:
            arrived.put(events.copy())  # none, too: a server that keeps the connection alive is not silent
            if events:
                events.clear()
                stop.wait(gather)

        end: Any = _END
        try:
            response = self._client.send(request, stream=True)
            opened.append(response)
            if stop.is_set():  # nobody could close what was not open yet
                return
            if response.status_code != 200:
                raise RunFailed(*self._refusal(_Whole(response, _bounded(response), 0.0)))
            with _before_reading(response, deliver):
                for data in self._streamed(response):
                    if stop.is_set():
                        return
                    events.append(self._parsed(data, decoder, RunFailed))
        except SpecError as error:
            end = error
        except httpx.ConnectError as error:
            end = RunFailed(*self._unconnected(error))
        except Exception as error:  # whatever the library raises for a connection that is closed under it
            why = first_line(error, without=self.hidden)
            end = RunFailed(f"the connection to {self.address} broke: {why}", "ask again")
        finally:
            if not stop.is_set():
                arrived.put(events)
                arrived.put(end)
            for response in opened:
                with suppress(Exception):
                    response.close()

    def _streamed(self, response: httpx.Response) -> Iterator[bytes]:
        """The data of a stream's events. Raises RunFailed: the server says that it broke off, or this is no stream."""
        said, streams = bytearray(), False
        event = b""
        for line in _lines(response):
            if not streams and len(said) < _SAID:
                said += line.strip()
            event = line[6:].strip() if line.startswith(b"event:") else event if line else b""
            streams |= line.startswith(_FIELDS)
            data = line[5:].strip() if line.startswith(b"data:") else b""
            if data == b"[DONE]":
                yield _DONE
                return
            failure = data if event == b"error" else line[6:] if line.startswith(b"error:") else b""
            if failure:
                raise RunFailed(f"{self.address} broke off: {self._message(failure)}", "ask again")
            if data:
                yield data
        if said and not streams:
            if why := reason(_json(said)):
                raise RunFailed(f"{self.address} failed: {self.said(why)}", "ask again; its log says more")
            raise RunFailed(f"{self.address} does not stream its answers", _WHICH)

    def _checked(self, path: str, body: dict[str, Any] | None = None, cancelled: Cancelled = lambda: False) -> _Whole:
        """``_answer``, where that is no refusal. Raises ModelUnavailable, StartCancelled."""
        whole = self._answer(path, body, cancelled)
        self._check(whole)
        return whole

    def _json(self, whole: _Whole, kind: type[Answered]) -> Answered:
        return self._parsed(whole.data, msgspec.json.Decoder(kind), ModelUnavailable)

    def _parsed(self, data: bytes, decoder: msgspec.json.Decoder, failed: type[SpecError]) -> Any:
        """An answer, or a message of it. Raises ``failed``."""
        try:
            return _decoded(data, decoder)
        except msgspec.ValidationError as error:
            why = first_line(error, without=self.hidden)
            raise failed(f"{self.address} does not answer like such a server: {why}", _WHICH) from None
        except ValueError:
            raise failed(f"{self.address} answers with something other than JSON", _WHICH) from None

    def _check(self, whole: _Whole) -> None:
        if whole.response.status_code != 200:
            raise RefusedRequest(*self._refusal(whole))

    def _answer(
        self, path: str, body: dict[str, Any] | None = None, cancelled: Cancelled = lambda: False
    ) -> _Whole:
        """A whole answer to a POST of JSON, or to a GET, whatever its status, in ``_ANSWER`` seconds. Raises
        ModelUnavailable, StartCancelled."""
        opened: list[httpx.Response] = []
        until = monotonic() + _ANSWER

        def fetch() -> _Whole:
            clock = perf_counter()
            with self._client.stream("GET" if body is None else "POST", path, json=body) as response:
                opened.append(response)
                data = _bounded(response)
            return _Whole(response, data, perf_counter() - clock)

        def beat() -> None:
            if cancelled():
                raise StartCancelled("the request")
            if monotonic() > until:
                raise self._unanswered(httpx.ReadTimeout(""))

        try:
            return with_heartbeat(fetch, beat, _LOOK, lambda: self._leave(opened))
        except SpecError:
            raise
        except Exception as error:  # of whatever kind the library raises
            raise self._unanswered(error) from None

    def _unanswered(self, error: Exception) -> ModelUnavailable:
        if isinstance(error, httpx.ConnectError):
            return ModelUnavailable(*self._unconnected(error))
        if isinstance(error, httpx.TimeoutException):
            return ModelUnavailable(f"{self.address} did not answer in time", "the server may be loading or busy")
        why = first_line(error, without=self.hidden)
        return ModelUnavailable(f"{self.address} cannot be asked: {why}", "check the address")

    def _unconnected(self, error: httpx.ConnectError) -> tuple[str, str]:
        """Why there is no connection, and what to do."""
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ssl.SSLError):
            cause = cause.__cause__ or cause.__context__
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (f"the certificate of {self.address} is not trusted: {cause.verify_message}",
                    "name a file with its authority's certificate in SSL_CERT_FILE")
        if cause is not None:
            return f"{self.address} does not speak https as it should", "does its address begin with http://?"
        if not self._direct and (proxy := _proxy(self._client.base_url)):
            return (f"nobody answers at {self.address} by way of the proxy that {proxy} names",
                    "check the proxy, or name the server's host in NO_PROXY")
        return f"nobody answers at {self.address}", "start the server there, or check host and port"

    def _refusal(self, whole: _Whole) -> tuple[str, str]:
        status, data = whole.response.status_code, whole.data[:_SAID]
        said = self._message(data)
        if status in (401, 403):
            does = "refuses the key" if "authorization" in self._client.headers else "requires a key"
            why = f": {said}" if reason(_json(data)) else ""
            return f"{self.address} {does}{why}", "name the environment variable that holds it: --api-key-env NAME"
        if 300 <= status < 400:
            where = self._header(whole, "location")
            return f"{self.address} sends requests elsewhere{where and f': {where}'}", (
                "give the address that it redirects to")
        if status == 404 and not _is_error(data):
            path = whole.response.request.url.path.removeprefix(self._client.base_url.path.rstrip("/"))
            return f"{self.address} has no {path}", _WHICH
        if status in (429, 503):
            after = self._header(whole, "retry-after")
            return f"{self.address} is busy or still loading: {said}", (
                f"try again in {after} seconds" if after.isdigit() else "try again in a moment")
        return f"{self.address} answered with an error ({status}): {said}", "the server's log may say more"

    def _header(self, whole: _Whole, name: str) -> str:
        """A header's value, in a line; "" where there is none."""
        value = whole.response.headers.get(name, "")
        return self.said(value) if value else ""

    def _message(self, data: bytes) -> str:
        """What an error's body says, in a line."""
        return self.said(_json(data) or data.decode("utf-8", "replace"))


def _client(**how: Any) -> httpx.Client:
    """A client. Raises UsageProblem: the environment names proxies or certificates that cannot be used; what it says of
    a proxy is not repeated, since it may contain a password."""
    try:
        return httpx.Client(**how)
    except OSError as error:
        names = " and ".join(name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name))
        why = first_line(error)
        raise UsageProblem(f"the certificates of {names or 'this machine'} cannot be read: {why}",
                           "name a file of certificates in SSL_CERT_FILE") from None
    except (ImportError, ValueError, httpx.InvalidURL):
        names = ", ".join(_variable(scheme) for scheme in getproxies() if scheme in _PROXIED)
        raise UsageProblem(f"a proxy of the environment cannot be used ({names})",
                           "give one like http://HOST:PORT, or unset it") from None


def _proxy(url: httpx.URL) -> str:
    """The variable of the environment whose proxy requests to this URL go through; "" where they go directly."""
    proxies = getproxies()
    used = next((scheme for scheme in (url.scheme, "all") if proxies.get(scheme)), "")
    return _variable(used) if used and not proxy_bypass(url.host) else ""


def _variable(scheme: str) -> str:
    return f"{scheme.upper()}_PROXY"


def _bounded(response: httpx.Response) -> bytes:
    """The whole answer. Raises ValueError where it is larger than any could be."""
    data = bytearray()
    for part in _parts(response):
        data += part
        if len(data) > _LARGEST:
            raise ValueError("the answer is too large")
    return bytes(data)


def _parts(response: httpx.Response) -> Iterator[bytes]:
    """An answer as it comes. Raises ValueError where it is compressed, which was not asked for."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise ValueError("it sends compressed answers, though it was asked not to")
    yield from response.iter_raw()


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
    """Lines of a stream of events, which may end with CR or LF or both, and a byte order mark may come before them."""
    rest, size, ended = b"", 0, False
    for part in _parts(response):
        part, ended = part.removeprefix(b"\n") if ended else part, part.endswith(b"\r")
        *lines, rest = (rest + part).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        size += len(part)
        if size > _LARGEST or len(rest) > _LONGEST:
            raise ValueError("the answer is too large")
        yield from (line.removeprefix(codecs.BOM_UTF8) for line in lines)
    yield rest


def _decoded(data: bytes, decoder: msgspec.json.Decoder) -> Any:
    """Raises ValueError: it is no JSON; msgspec.ValidationError, which is one: it is of another kind."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        raise
    except (ValueError, RecursionError):
        with suppress(RecursionError):  # half a character, as a server may cut it between two messages, is a mark
            text = data.decode(json.detect_encoding(data), "replace")
            found = json.loads(text, parse_constant=lambda nan_or_infinity: None)
            return decoder.decode(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
        raise ValueError("it is nested too deep") from None


def _json(data: bytes | bytearray) -> Any:
    """What a body says; None where it is no JSON."""
    with suppress(ValueError):
        return _decoded(bytes(data), msgspec.json.Decoder())
    return None


def _is_error(data: bytes) -> bool:
    """Whether a body says what is wrong, as a server of this form does; a wrong path has no such body, or one that
    names the path."""
    with suppress(ValueError):
        found = _decoded(data, msgspec.json.Decoder(Error))
        return isinstance(found.error, dict) or found.object == "error" or "model" in str(found.error or "")
    return False
