"""The server: a page with a terminal, a websocket for each session, limits on how many there are and what they take."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from engines.errors import UsageProblem
from spec_tui.learn.class_room import ClassRoom
from spec_tui.serve import gate as gates
from spec_tui.serve.browser_session import AWAY, STOPPED, BrowserSession, started_by
from spec_tui.serve.gate import Gate
from spec_tui.serve.session_policy import FOLDERS, SessionPolicy
from spec_tui.session.log import open_log

try:
    from aiohttp import web
except ImportError:  # the extra "serve" is not installed, which the command says
    web = None

_Handler = Callable[["web.Request"], Awaitable["web.StreamResponse"]]
_NAME = re.compile(r"[0-9a-f]{32}")
_SIZES = {"width": (20, 500, 80), "height": (8, 200, 24)}  # least, most, default; in cells
_NEWS = 0.1  # seconds between two messages to a class, at least
_LOOK = 0.5  # seconds between two looks at the memory
_PATIENCE = 3.0  # seconds that a browser gets to take leave
_LONGEST = 1 << 20  # characters of a message: a long text that is pasted
_CLOSED = 4000  # code of a websocket that we close; the reason is for the person
_NO_ROOM = {errno.ENOSPC, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE}  # of disk, memory, processes, files
_STATIC = {  # of textual-serve
    "textual.js": "js/textual.js", "xterm.css": "css/xterm.css",
    "RobotoMono.ttf": "fonts/RobotoMono-VariableFont_wght.ttf",
    "RobotoMono-Italic.ttf": "fonts/RobotoMono-Italic-VariableFont_wght.ttf",
}
_OWN = ("session.js", "session.css")
_POLICY = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; \
img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_HEADERS = {
    "Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store", "X-Frame-Options": "DENY", "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin", "Server": "spec-tui",
}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What sessions may take.

    Attributes:
        sessions: at most, at the same time.
        memory: of one, bytes.
        grace: seconds that a session without its browser goes on.
    """

    sessions: int = 8
    memory: int = 4 << 30
    grace: float = 60.0

    @property
    def full(self) -> str:
        """What is said where there are as many as there may be."""
        return f"All {self.sessions} sessions are in use. Try again later." if self.sessions > 1 else (
            "The only session is in use. Try again later.")

    @property
    def too_large(self) -> str:
        """What is said to a session that takes too much."""
        return f"The session needed more than {self.memory / 2**30:.3g} GiB of memory, so it was ended."


class _Socket:
    """A browser's websocket, as a session sees it, and the connection below it."""

    def __init__(self, socket: web.WebSocketResponse, connection: asyncio.Transport | None) -> None:
        self._socket, self._connection = socket, connection

    async def draw(self, data: bytes) -> None:
        with suppress(ConnectionError, RuntimeError):
            await self._socket.send_bytes(data)

    async def leave(self, why: str) -> None:
        closing = asyncio.create_task(self._socket.close(code=_CLOSED, message=why.encode()))
        done, _ = await asyncio.wait([closing], timeout=_PATIENCE)
        if not done or closing.cancelled() or closing.exception() is not None:
            closing.cancel()
            if self._connection is not None:  # a browser that does not read holds up nobody
                self._connection.abort()


class SessionServer:
    """Serves a policy.

    Args:
        policy: what each session shows.
        gate: who may connect.
        command: of the sessions' processes, where it is another than the policy's.
        pages: of the lesson that a class goes through; 0 where there is no class.
    """

    def __init__(
        self, policy: SessionPolicy, gate: Gate, limits: Limits, command: list[str] | None = None, pages: int = 0
    ) -> None:
        self.policy, self.gate, self.limits = policy, gate, limits
        self.sessions: dict[str, BrowserSession] = {}
        self._command = command
        self._folder = Path(tempfile.mkdtemp(prefix=FOLDERS))
        self._away: dict[str, asyncio.TimerHandle] = {}
        self._made = 0
        self.room = ClassRoom(pages) if pages else None
        self._tasks: set[asyncio.Task[None]] = set()
        self._soon: asyncio.TimerHandle | None = None

    def application(self) -> web.Application:
        """As aiohttp takes it."""
        @web.middleware
        async def guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
            return await self._guarded(request, handler)

        app = web.Application(middlewares=[guard])
        app.add_routes([
            web.get("/", self._page), web.get("/session/{name}", self._session), web.get("/file/{name}", self._file),
        ])
        return app

    async def watch(self) -> None:
        """End sessions that take too much memory, until this is cancelled."""
        while True:
            await asyncio.sleep(_LOOK)
            started = await asyncio.to_thread(started_by) if self.sessions else {}
            for session in [*self.sessions.values()]:
                if session.memory(started) > self.limits.memory:
                    self._in_background(session.end(self.limits.too_large, at_once=True))

    async def close(self) -> None:
        """End all sessions; returns when nothing is left of them."""
        for timer in (*self._away.values(), *filter(None, [self._soon])):
            timer.cancel()
        ends = (session.end(STOPPED) for session in [*self.sessions.values()])
        await asyncio.gather(*ends, return_exceptions=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- who may connect --------------------------------------------------------------------------
    async def _guarded(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            answer = self._refused(request) or await handler(request)
        except web.HTTPException as error:
            answer = _plain("There is nothing at this address.", error.status)
        if not answer.prepared:
            answer.headers.update(_HEADERS)
        return answer

    def _refused(self, request: web.Request) -> web.Response | None:
        """What a request gets that may not go on; one with the token in its address gets a cookie instead."""
        if not self.gate.answers_to(request.headers.get("Host")):
            return _plain(gates.WRONG_HOST, 421)
        checks = {"token": self.gate.opens_with} if self.gate.token else {}
        checks |= {"lead": self.gate.leads} if self.gate.lead else {}
        given = {name: request.query[name] for name in checks if name in request.query}
        if not all(checks[name](secret) for name, secret in given.items()):
            return _plain(gates.WRONG_TOKEN, 403)
        if given:
            answer = web.Response(status=303, headers={"Location": "./"})
            secure = (self.gate.public_url or "").startswith("https:")
            for name, secret in given.items():
                answer.set_cookie(
                    _cookie(request, name), secret, httponly=True, samesite="Lax", secure=secure, path="/")
            return answer
        return None if self.gate.opens_with(request.cookies.get(_cookie(request, "token"))) else _plain(
            gates.NO_TOKEN, 403)

    # -- what there is ----------------------------------------------------------------------------
    async def _page(self, request: web.Request) -> web.Response:
        return web.Response(body=_own("session.html"), content_type="text/html", charset="utf-8")

    async def _file(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name in _OWN:
            kind = "text/javascript" if name.endswith("js") else "text/css"
            return web.Response(body=_own(name), content_type=kind, charset="utf-8")
        if name not in _STATIC:
            raise web.HTTPNotFound
        return web.FileResponse(str(files("textual_serve") / "static" / _STATIC[name]))

    async def _session(self, request: web.Request) -> web.StreamResponse:
        """The websocket of a session. Its name is the browser's own secret; the leading session, of which there is one,
        is named by the leader's secret, and is shown in the browser that opened it last."""
        if not self.gate.takes_from(request.headers.get("Origin"), request.headers.get("Host")):
            return _plain(gates.WRONG_ORIGIN, 403)
        name = request.match_info["name"]
        if not _NAME.fullmatch(name):
            raise web.HTTPNotFound
        socket = web.WebSocketResponse(heartbeat=15, max_msg_size=_LONGEST, timeout=2.0)
        await socket.prepare(request)
        browser = _Socket(socket, request.transport)
        if leads := self.gate.leads(request.cookies.get(_cookie(request, "lead"))):
            name = self.gate.lead
        try:
            if (session := await self._shown(name, browser, _size(request.query), leads)) is not None:
                async for message in socket:
                    if message.type is not web.WSMsgType.TEXT or not await _take(session, message.data):
                        break
        finally:
            self._left(name, browser)
        return socket

    def _left(self, name: str, browser: _Socket) -> None:
        """A browser has gone: where no other shows the session, it has to come back in time."""
        if (session := self.sessions.get(name)) is None:
            return
        session.detach(browser)
        if session.browser is None and name not in self._away:
            self._away[name] = asyncio.get_running_loop().call_later(self.limits.grace, self._gone, name)

    async def _shown(self, name: str, browser: _Socket, size: tuple[int, int], leads: bool) -> BrowserSession | None:
        """The session of this name, shown in this browser; None where there is no room for one more. ``leads``: of a
        class, it is the teacher's."""
        if (timer := self._away.pop(name, None)) is not None:
            timer.cancel()
        if (session := self.sessions.get(name)) is not None:
            await session.attach(browser, *size)
            return session
        policy = self.policy
        if self.room is not None:
            policy = msgspec.structs.replace(policy, role="teacher" if leads else "student")
        # students take no teacher's place
        if sum(other.role == policy.role for other in self.sessions.values()) >= self.limits.sessions:
            await browser.leave(self.limits.full)
            return None
        self._made += 1
        session = BrowserSession(policy, self._folder / str(self._made), self._over, self._command, self._take_event)
        self.sessions[name] = session
        try:
            await session.start(browser, *size)
        except BaseException as error:
            self._over(session)
            if not isinstance(error, OSError):
                raise
            why = error.strerror or type(error).__name__
            why = "this machine has no room for it" if error.errno in _NO_ROOM else why
            await browser.leave(f"The session could not be started: {why}.")
            return None
        return session

    def _over(self, ended: BrowserSession) -> None:
        for name in [name for name, session in self.sessions.items() if session is ended]:
            del self.sessions[name]
            if (timer := self._away.pop(name, None)) is not None:
                timer.cancel()
        if self.room is not None:
            self.room.left(ended)
            self._spread()

    # -- a class ----------------------------------------------------------------------------------
    def _take_event(self, session: BrowserSession, data: bytes) -> None:
        """What a session's process says; without a class nothing of it is listened to."""
        if self.room is not None and self.room.heard(session, session.role == "teacher", data):
            self._spread()

    def _spread(self) -> None:
        """Tell every session soon what the class sees then: of many votes at the same time only once."""
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(_NEWS, self._tell_all)

    def _tell_all(self) -> None:
        self._soon = None
        news = self.room.news(sum(session.role == "student" for session in self.sessions.values()))
        for session in self.sessions.values():
            self._in_background(session.tell(news))

    def _gone(self, name: str) -> None:
        """A browser did not come back."""
        self._away.pop(name, None)
        if (session := self.sessions.get(name)) is not None and session.browser is None:
            self._in_background(session.end(AWAY))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this while the server goes on: asyncio itself keeps no task that nobody refers to."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _ToLog(logging.Handler):
    """Writes what aiohttp and asyncio say of connections to the log file; by themselves they say it on the terminal of
    whoever serves."""

    def emit(self, record: logging.LogRecord) -> None:
        if (log := open_log("serve")) is not None:
            with suppress(OSError), log:
                log.write(self.format(record).encode("utf-8", "backslashreplace") + b"\n")


async def run_server(
    policy: SessionPolicy, gate: Gate, limits: Limits, port: int, announce: Callable[[int], None], pages: int = 0
) -> None:
    """Serve until the process is asked to end. Raises UsageProblem where the address cannot be taken.

    Args:
        port: 0 takes a free one.
        announce: told the port once the server answers.
        pages: as of ``SessionServer``.
    """
    server = SessionServer(policy, gate, limits, pages=pages)
    log, loops_log = logging.Logger("requests"), logging.getLogger("asyncio")
    for speaker in (log, loops_log):
        speaker.addHandler(_ToLog())
    loops_log.propagate = False
    runner = web.AppRunner(
        server.application(), access_log=None, logger=log, handle_signals=False, shutdown_timeout=2.0)
    await runner.setup()
    asked = asyncio.Event()
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        with suppress(AttributeError, NotImplementedError):  # Windows
            if signal.getsignal(number := getattr(signal, name)) is not signal.SIG_IGN:  # nohup, a background job
                asyncio.get_running_loop().add_signal_handler(number, asked.set)
    watching = asyncio.create_task(server.watch())
    try:
        site = web.TCPSite(runner, gate.host, port)
        try:
            await site.start()
        except (OSError, UnicodeError) as error:  # the latter for a name that no machine can have
            number = getattr(error, "errno", None)
            of_port = number in (errno.EADDRINUSE, errno.EACCES)
            # asyncio's message shows a tuple; the error number of an unknown name is not one of the system's
            why = os.strerror(number) if of_port else getattr(error, "strerror", "there is no such name")
            raise UsageProblem(f"{gate.host} port {port} cannot be served on: {why}",
                               "--port takes another; 0 takes a free one" if of_port else
                               "--host takes an address of this machine") from None
        announce(runner.addresses[0][1])
        await asked.wait()
    finally:
        watching.cancel()
        await server.close()
        await runner.cleanup()


async def _take(session: BrowserSession, text: str) -> bool:
    """Do what a browser's message says; False for one that is none."""
    try:
        kind, *rest = json.loads(text)
        if kind == "stdin":
            await session.type(str(rest[0]))
        elif kind == "resize":
            await session.resize(*_size(rest[0]))
        elif kind in ("focus", "blur"):
            await session.focus(kind == "focus")
    except (ValueError, TypeError, IndexError, AttributeError, RecursionError):
        return False
    return True


def _size(given: Any) -> tuple[int, int]:
    """Columns and lines, within what can be drawn."""
    sizes = []
    for name, (least, most, default) in _SIZES.items():
        try:
            sizes.append(max(least, min(most, int(given.get(name, default)))))
        except (ValueError, TypeError, OverflowError):
            sizes.append(default)
    return sizes[0], sizes[1]


def _cookie(request: web.Request, secret: str) -> str:
    """The cookie that stands for a secret of the address."""
    return f"spec-tui-{request.url.port}" + f"-{secret}" * (secret != "token")


def _own(name: str) -> bytes:
    return (files("spec_tui.serve") / "page" / name).read_bytes()


def _plain(words: str, status: int) -> web.Response:
    return web.Response(text=words + "\n", status=status)
