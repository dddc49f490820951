"""Sessions over a websocket, with a process that draws what it is told. A real browser: tools/test_browser.py."""

from __future__ import annotations

import asyncio
import errno
import gc
import re
import sys
from pathlib import Path

import psutil
import pytest

from spec_tui.serve import browser_session
from spec_tui.serve.gate import Gate
from spec_tui.serve.session_policy import SessionPolicy
from spec_tui.session.log import log_path

aiohttp = pytest.importorskip("aiohttp", reason="of the extra serve, which is not installed")

from aiohttp.test_utils import TestClient, TestServer  # noqa: E402

from spec_tui.serve.web_server import Limits, SessionServer, run_server  # noqa: E402

FAKE = r"""
import os, sys, time
def draw(data):
    os.write(1, b"D" + len(data).to_bytes(4, "big") + data)
os.write(1, b"__GANGLION__\n")
draw(f"here {os.environ['COLUMNS']} at {os.getpid()} in {os.getcwd()}.".encode())
inp = sys.stdin.buffer
while head := inp.read(5):
    data = inp.read(int.from_bytes(head[1:], "big"))
    if data == b"large":
        kept = bytearray(300 << 20)
    elif data == b"crash":
        os._exit(3)
    elif data == b"flood":
        for _ in range(64):
            draw(b"x" * (1 << 20))
    elif b'"quit"' in data:
        break
    draw(head[:1] + data)
"""
COMMAND = [sys.executable, "-S", "-c", FAKE]
NAMES = ["a" * 32, "b" * 32]


@pytest.fixture
async def start():
    """A client of a server; the server's settings are given by keyword."""
    started = []

    async def make(gate: Gate = Gate("127.0.0.1"), **limits):
        sessions = SessionServer(SessionPolicy(shows="lessons"), gate, Limits(**limits), COMMAND)
        client = TestClient(TestServer(sessions.application()))
        await client.start_server()
        started.append((sessions, client))
        return sessions, client

    yield make
    for sessions, client in started:
        await sessions.close()
        await client.close()
        assert not sessions.sessions


async def connect(client, name=NAMES[0], query="?width=70&height=20", **headers):
    origin = str(client.make_url("/")).rstrip("/")
    return await client.ws_connect(f"/session/{name}{query}", headers={"Origin": origin} | headers)


async def until(socket, words: bytes) -> bytes:
    seen = b""
    while words not in seen:
        message = await socket.receive(20)
        assert message.type is aiohttp.WSMsgType.BINARY, (message, seen)
        seen += message.data
    return seen


async def begun(socket) -> tuple[int, Path]:
    """The process of a new session and its folder, as it says itself."""
    said = re.search(r"here \d+ at (\d+) in (.*)\.", (await until(socket, b".")).decode())
    return int(said[1]), Path(said[2])


async def reason(socket) -> str:
    """Why the server closed it."""
    while (message := await socket.receive(20)).type is not aiohttp.WSMsgType.CLOSE:
        pass
    return message.extra


async def test_what_is_typed_and_drawn_and_how_a_session_comes_back(start):
    sessions, client = await start(grace=30)
    one = await connect(client)
    await until(one, b"here 70")
    await one.send_json(["stdin", "\ud800é"])
    await until(one, b"D?\xc3\xa9")
    await one.send_json(["resize", {"width": 10_000, "height": "x"}])
    await until(one, b'"width": 500, "height": 24')
    await one.close()
    again = await connect(client)
    await until(again, b'"attach", "width": 70')
    elsewhere = await connect(client)
    assert "another window" in await reason(again)
    await until(elsewhere, b"attach")
    assert len(sessions.sessions) == 1


async def test_sessions_have_a_limit_and_folders_of_their_own(start):
    _, client = await start(sessions=2)
    sockets = [await connect(client, name) for name in NAMES]
    folders = {(await begun(socket))[1] for socket in sockets}
    assert await reason(await connect(client, "c" * 32)) == "All 2 sessions are in use. Try again later."
    assert len(folders) == 2 and all((folder / "data").is_dir() for folder in folders)
    await sockets[0].send_json(["stdin", "crash"])
    assert "ended" in await reason(sockets[0])
    await until(await connect(client, "c" * 32), b"here")  # there is room again


async def test_sessions_without_their_browsers_end(start):
    sessions, client = await start(grace=0)
    sockets = [await connect(client, name) for name in NAMES]
    found, ended = [await begun(socket) for socket in sockets], [*sessions.sessions.values()]
    await asyncio.gather(*(socket.close() for socket in sockets))
    while sessions.sessions:
        gc.collect()  # nor is one forgotten while another ends
        await asyncio.sleep(0.01)
    assert all("away for too long" in session.why for session in ended)
    assert not any(folder.exists() or psutil.pid_exists(process) for process, folder in found)


async def test_a_page_that_is_loaded_twice_quickly_is_one_session_that_ends_with_it(start, monkeypatch):
    """The second connection comes while the process of the first one starts."""
    begin = asyncio.create_subprocess_exec

    async def slow(*args, **how):
        await asyncio.sleep(0.2)
        return await begin(*args, **how)

    monkeypatch.setattr(browser_session.asyncio, "create_subprocess_exec", slow)
    sessions, client = await start(grace=0.2)
    first = await connect(client)
    await first.close()
    second = await connect(client)
    await until(second, b"attach")
    assert len(sessions.sessions) == 1
    await second.close()
    async with asyncio.timeout(10):
        while sessions.sessions:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("error, why", [
    (OSError(errno.ENOSPC, "No space left on device"), "has no room for it"),
    (PermissionError(errno.EACCES, "Permission denied"), "Permission denied"),
])
async def test_a_session_that_cannot_be_started_takes_no_place_and_says_why(start, monkeypatch, error, why):
    def refuse(folder):
        raise error

    monkeypatch.setattr(browser_session, "furnish", refuse)
    sessions, client = await start()
    assert "could not be started" in (told := await reason(await connect(client))) and why in told
    assert not sessions.sessions


async def test_a_page_that_is_loaded_again_is_told_where_its_session_cannot_start(start, monkeypatch):
    async def refuse(*args, **how):
        await asyncio.sleep(0.2)
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(browser_session.asyncio, "create_subprocess_exec", refuse)
    sessions, client = await start()
    await connect(client)
    assert "ended unexpectedly" in await reason(await connect(client))
    assert not sessions.sessions


@pytest.mark.parametrize("ended_by", ["memory", "server"])
async def test_a_browser_that_does_not_read_holds_up_nobody(start, ended_by):
    sessions, client = await start(memory=200 << 20)
    blocked, other = [await connect(client, name) for name in NAMES]
    (process, folder), _ = await begun(blocked), await begun(other)
    await blocked.send_json(["stdin", "flood"])
    await asyncio.sleep(1)
    async with asyncio.timeout(15):
        if ended_by == "server":
            await sessions.close()
            assert not folder.parent.exists()
        else:
            watching = asyncio.create_task(sessions.watch())
            sessions.limits = Limits(memory=1)
            while sessions.sessions:
                await asyncio.sleep(0.01)
            assert not watching.done()
            watching.cancel()
    assert not psutil.pid_exists(process)


async def test_a_session_that_needs_too_much_memory_ends(start):
    sessions, client = await start(memory=200 << 20)
    watching = asyncio.create_task(sessions.watch())
    small, large = [await connect(client, name) for name in NAMES]
    await until(large, b"here")
    await large.send_json(["stdin", "large"])
    assert await reason(large) == "The session needed more than 0.195 GiB of memory, so it was ended."
    await until(small, b"here")
    assert [*sessions.sessions] == [NAMES[0]]
    watching.cancel()


async def test_who_is_let_in(start):
    _, client = await start(Gate("0.0.0.0", token="right"))
    page = await client.get("/")
    assert page.status == 403 and "needs its token" in await page.text()
    wrong = await client.get("/?token=wrong", allow_redirects=False)
    assert wrong.status == 403 and "is wrong" in await wrong.text() and "Set-Cookie" not in wrong.headers
    right = await client.get("/?token=right", allow_redirects=False)
    cookie = right.headers["Set-Cookie"]
    assert right.status == 303 and "HttpOnly" in cookie and "SameSite=Lax" in cookie
    page = await client.get("/")
    assert page.status == 200 and "default-src 'none'" in page.headers["Content-Security-Policy"]
    for host in ("example.org", "127.0.0.1:99999999", "127.0.0.1:abc"):
        assert (await client.get("/", headers={"Host": host})).status == 421
    for headers in ({}, {"Origin": "http://example.org"}):
        assert (await client.get(f"/session/{NAMES[0]}", headers=headers)).status == 403
    for path in ("/file/..%2f..%2fserver.py", "/file/server.py", "/session/../x", "/static/js/textual.js", "/x"):
        assert (await client.get(path, headers={"Origin": str(client.make_url("/")).rstrip("/")})).status == 404
    for file in ("textual.js", "xterm.css", "session.js", "session.css", "RobotoMono.ttf"):
        assert (await client.get(f"/file/{file}")).status == 200


@pytest.mark.parametrize("message", ["{", "[]", "[1]", '["stdin"]', '["resize", 3]', '["resize", [1]]', "[" * 5000])
async def test_a_message_that_is_none_closes_the_connection(start, message):
    _, client = await start()
    socket = await connect(client)
    await until(socket, b"here")
    await socket.send_str(message)
    await asyncio.sleep(0)
    if message == "[1]":  # of a kind that is not known
        await socket.send_json(["stdin", "still"])
        await until(socket, b"still")
    else:
        assert (await socket.receive(20)).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)


@pytest.mark.parametrize("request_", [
    b"GET /\0 HTTP/1.1\r\n\r\n", b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
], ids=["nul", "long", "smuggled"])  # fmt: skip
async def test_requests_that_are_none_are_not_seen_on_the_terminal(request_, monkeypatch, tmp_path, capfd):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    port = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(run_server(
        SessionPolicy(shows="lessons"), Gate("127.0.0.1"), Limits(), 0, port.set_result))
    reader, writer = await asyncio.open_connection("127.0.0.1", await port)
    writer.write(request_)
    assert b" 400 " in await reader.readline()
    writer.close()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert "".join(capfd.readouterr()) == ""
    assert "Error handling request" in log_path("serve").read_text()


async def test_at_the_end_nothing_is_left(start):
    sessions, client = await start()
    found = [await begun(await connect(client, name)) for name in NAMES]
    (above,) = {folder.parent for _, folder in found}
    assert above.exists()
    await sessions.close()
    assert not any(psutil.pid_exists(process) for process, _ in found) and not above.exists()
