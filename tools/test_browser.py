"""The application in a real browser (``make test-browser``): what is drawn there, what keys do, who is let in, and what
a visitor cannot reach.

    python tools/test_browser.py [--picture FILE] [drawing doors chat]

It needs Chromium, of the distribution's packages, and the extra ``serve``. Chromium runs without a window and is told
what to do by its DevTools protocol. The screens are read as text from what its websockets received, by a terminal
emulator; colours are those of the pictures that it draws.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pyte

ROOT = Path(__file__).parents[1]
NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 120.0  # seconds until something is on a screen; loading a model is slow on a busy machine
KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), "Escape": (27, ""), "ArrowDown": (40, "")}
SECRET = "a-key-that-no-session-may-see"
REFUSED = "not possible here"


class Chromium:
    """A browser without a window, steered by the DevTools protocol."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket, self._number = socket, 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.tabs: dict[str, Tab] = {}
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            said = json.loads(message.data)
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
            elif (tab := self.tabs.get(said.get("sessionId", ""))) is not None:
                tab.heard(said["method"], said["params"])

    async def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Do something. Raises RuntimeError where the browser refuses."""
        self._number += 1
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        asked = {"id": self._number, "method": method, "params": parameters}
        await self._socket.send_json(asked | ({"sessionId": session} if session else {}))
        found = await asyncio.wait_for(answer, PATIENCE)
        if "error" in found:
            raise RuntimeError(f"{method}: {found['error']['message']}")
        return found["result"]

    async def open(self, address: str, width: int = 1200, height: int = 760) -> Tab:
        """A tab with cookies and storage of its own, at an address."""
        context = (await self.call("Target.createBrowserContext"))["browserContextId"]
        target = (await self.call("Target.createTarget", url="about:blank", browserContextId=context))["targetId"]
        session = (await self.call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        tab = self.tabs[session] = Tab(self, session, target, context)
        for domain in ("Page", "Runtime", "Network"):
            await tab.call(f"{domain}.enable")
        await tab.call("Emulation.setFocusEmulationEnabled", enabled=True)  # each tab is as if in front
        await tab.resize(width, height)
        await tab.call("Page.navigate", url=address)
        return tab


class Tab:
    """A tab, and the terminal in it as text."""

    def __init__(self, browser: Chromium, session: str, target: str, context: str) -> None:
        self._browser, self._session, self._target, self._context = browser, session, target, context
        self.screen = pyte.Screen(80, 24)
        self._stream = pyte.ByteStream(self.screen)
        self.problems: list[str] = []

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return await self._browser.call(method, self._session, **parameters)

    def heard(self, method: str, said: dict[str, Any]) -> None:
        """An event of the browser: what a websocket got or sent, or an error of the page."""
        if method == "Network.webSocketFrameReceived" and said["response"]["opcode"] == 2:
            self._stream.feed(base64.b64decode(said["response"]["payloadData"]))
        elif method == "Network.webSocketFrameSent" and said["response"]["payloadData"].startswith('["resize"'):
            size = json.loads(said["response"]["payloadData"])[1]
            self.screen.resize(size["height"], size["width"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(str(said["exceptionDetails"].get("exception", {}).get("description")))

    @property
    def text(self) -> str:
        """The terminal."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    async def asked(self, expression: str) -> Any:
        """What the page answers to an expression of its language."""
        found = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def said(self) -> str:
        """The page around it."""
        return await self.asked("document.body?.innerText ?? ''")

    async def may_copy(self) -> None:
        """Let the page write to the clipboard, and the test read it."""
        await self._browser.call("Browser.grantPermissions", browserContextId=self._context,
                                 permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])

    async def clipboard(self) -> str:
        """What the browser's clipboard has; the page itself may not ask."""
        assert not await self.asked("navigator.clipboard.readText()"), "a session reads what was copied elsewhere"
        return await self.asked("Object.getOwnPropertyDescriptor(Navigator.prototype, 'clipboard')"
                                ".get.call(navigator).readText()")

    async def sees(self, *words: str, gone: str = "", within: float = PATIENCE) -> None:
        """Wait until all these words are on the terminal or the page. Raises AssertionError."""
        end = time.monotonic() + within
        while True:
            here = f"{self.text}\n{await self.said()}"
            if all(word in here for word in words) and (not gone or gone not in here):
                return
            if time.monotonic() > end:
                raise AssertionError(f"not on the screen: {words}, but\n{here}\n{self.problems}")
            await asyncio.sleep(0.1)

    async def type(self, text: str) -> None:
        """Type, letter by letter."""
        for letter in text:
            await self.call("Input.dispatchKeyEvent", type="char", text=letter)

    async def press(self, *keys: str) -> None:
        """Press keys by name: "Enter", "ctrl+l"."""
        for key in keys:
            name = key.removeprefix("ctrl+")
            code, text = KEYS.get(name, (ord(name[0].upper()), ""))
            press = {"key": name, "code": name if name in KEYS else f"Key{name.upper()}",
                     "windowsVirtualKeyCode": code, "modifiers": 2 * (name != key)}
            await self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **press)
            await self.call("Input.dispatchKeyEvent", type="keyUp", **press)
            if key == "Escape":  # with what follows at once it would be another key
                await asyncio.sleep(0.5)

    async def resize(self, width: int, height: int) -> None:
        """The window, in pixels."""
        await self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                        mobile=False)

    async def reload(self) -> None:
        self.screen.reset()
        await self.call("Page.reload")

    async def picture(self) -> bytes:
        """A PNG of what is drawn."""
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])

    async def close(self) -> None:
        await self._browser.call("Target.closeTarget", targetId=self._target)


@asynccontextmanager
async def chromium() -> AsyncIterator[Chromium]:
    """A browser; at the end nothing of it is left."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        sys.exit("there is no Chromium: install it with the distribution's packages, for example apt install chromium")
    folder = Path(tempfile.mkdtemp(prefix="spec-tui-browser-"))
    command = [program, "--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
               "--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"]
    command += ["--no-sandbox"] * (hasattr(os, "geteuid") and os.geteuid() == 0)  # which it refuses to have as root
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        told, lines = folder / "DevToolsActivePort", []
        while len(lines) < 2:
            await asyncio.sleep(0.1)
            if process.poll() is not None:
                sys.exit(f"{program} ended with code {process.returncode}")
            lines = told.read_text().split() if told.exists() else []
        async with aiohttp.ClientSession() as http, http.ws_connect(
                f"ws://127.0.0.1:{lines[0]}{lines[1]}", max_msg_size=0) as socket:
            yield Chromium(socket)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


class Server:
    """A running ``spec-tui serve``."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.address = process.stdout.readline().strip()

    @property
    def sessions(self) -> list[psutil.Process]:
        """The processes of all sessions."""
        return psutil.Process(self.process.pid).children(recursive=True)

    async def has(self, count: Callable[[int], bool], within: float = PATIENCE) -> None:
        """Wait until there are so many processes. Raises AssertionError."""
        end = time.monotonic() + within
        while not count(len(self.sessions)):
            assert time.monotonic() < end, f"{len(self.sessions)} processes: {self.sessions}"
            await asyncio.sleep(0.1)


@asynccontextmanager
async def served(*arguments: str) -> AsyncIterator[Server]:
    """A server; ctrl+c ends it, and nothing is left."""
    command = [sys.executable, "-m", "spec_tui", "serve", *arguments, "--port", "0"]
    environment = {**os.environ, "SPEC_TUI_TEST_SECRET": SECRET, "PYTHONUNBUFFERED": "1"}
    before = set(Path(tempfile.gettempdir()).glob("spec-tui-serve-*"))
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT, env=environment,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.default_int_handler))  # a background job ignores it
    try:
        server = Server(process)
        assert server.address, "the server did not start"
        yield server
        sessions = server.sessions
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0, "ctrl+c is the way to end it"
        assert not psutil.wait_procs(sessions, 5)[1], "processes are left"
        assert not set(Path(tempfile.gettempdir()).glob("spec-tui-serve-*")) - before, "folders are left"
    finally:
        process.kill()
        process.wait()


async def drawing(browser: Chromium, picture: Path | None) -> None:
    """Lessons without a model: type, colours, keys, sizes, reload, two at once, the limit."""
    async with served("learn", "--sessions", "2") as server:
        one = await browser.open(server.address)
        await one.sees("Why a forward pass is slow", "enter begins")
        colours(await one.picture(), least=5)
        await one.press("ArrowDown", "ArrowDown")
        await one.sees("Greedy acceptance", "spec-tui learn greedy")
        await one.press("Enter")
        await one.sees("Greedy acceptance", "1 of ")
        columns = one.screen.columns
        await one.resize(800, 500)
        await one.sees("Greedy acceptance")
        assert one.screen.columns < columns, "a smaller window has fewer columns"
        two = await browser.open(server.address)
        await two.sees("enter begins")
        assert "enter begins" not in one.text, "each tab has its own session"
        processes = {process.pid for process in server.sessions}
        await one.reload()
        await one.sees("Greedy acceptance", "1 of ")
        assert {process.pid for process in server.sessions} == processes, "a reload goes on with the same session"
        three = await browser.open(server.address)
        await three.sees("All 2 sessions are in use.")
        await three.close()
        assert not one.problems + two.problems, one.problems + two.problems


async def doors(browser: Chromium, picture: Path | None) -> None:
    """The token, other names, other pages, a browser that goes away, the limit on memory."""
    async with served("replay", "rest", "--host", "0.0.0.0", "--grace", "1") as server:
        port = server.address.partition("?")[0].rstrip("/").rpartition(":")[2]
        plain, token = f"http://127.0.0.1:{port}/", server.address.partition("token=")[2]
        for query, words in (("", "needs its token"), ("?token=wrong", "The token in this address is wrong")):
            tab = await browser.open(plain + query)
            await tab.sees(words)
            await tab.close()
        async with aiohttp.ClientSession() as http:
            for path in ("session/" + "0" * 32, "file/textual.js"):
                assert (await http.get(plain + path)).status == 403
            assert (await http.get(plain, headers={"Host": "example.org"})).status == 421
            door = {"Cookie": f"spec-tui-{port}={token}", "Origin": "http://example.org"}
            assert (await http.get(f"{plain}session/{'0' * 32}", headers=door)).status == 403
        tab = await browser.open(f"{plain}?token={token}")
        await tab.sees("outcome")
        assert token not in await tab.asked("location.href"), "the token does not stay in the address"
        await tab.close()
        await server.has(lambda count: count == 0)
    async with served("learn", "--memory", "0.02") as server:
        tab = await browser.open(server.address)
        await tab.sees("needed more than 0.02 GiB of memory")
        await server.has(lambda count: count == 0)


async def chat(browser: Chromium, picture: Path | None) -> None:
    """A model, copying, and what a visitor cannot reach."""
    async with served("--model", "sample", "--engine", "rest") as server:
        tab = await browser.open(server.address)
        await tab.may_copy()
        await tab.sees("Type a prompt")
        await tab.type("Write a Python function that adds two numbers.")
        await tab.press("Enter")
        await tab.sees("def ", "tokens/s", gone="your prompt waits")
        colours(await tab.picture(), least=8)
        for process in server.sessions:
            assert SECRET not in " ".join(process.environ().values()), f"{process} has the server's environment"
        await asyncio.sleep(2)  # the answer ends
        if picture is not None:
            picture.write_bytes(smaller(await tab.picture()))
        await tab.press("Escape")
        await tab.type("e")
        await tab.sees("no file is saved in a browser")
        await tab.press("Enter")
        await tab.sees("copied the answer: paste it")
        assert json.loads((await tab.clipboard()).splitlines()[0]), "a trace"
        await tab.type("y")
        await tab.sees("copied the answer", gone="paste it")
        answer = await tab.clipboard()
        assert "def " in answer and answer.split()[0] in tab.text, answer
        await tab.asked("Clipboard.prototype.writeText = () => Promise.reject(new Error('refused')), 0")
        await tab.type("y")
        await tab.sees("This browser does not let the page copy.")
        shown = "document.getElementById('text').value"
        assert await tab.asked(shown) == answer, "where the browser refuses, the page shows the text"
        await tab.asked("document.getElementById('close').click()")
        await tab.type("o")
        await tab.sees("target model")
        assert str(Path.home()) not in tab.text
        await tab.press("Tab")
        await tab.type("/etc/passwd")
        await tab.press("Enter")
        await tab.sees("loading another model is " + REFUSED)
        await tab.press("Escape")
        await tab.type("r")
        await tab.sees("enter")
        await tab.type("i")
        await asyncio.sleep(1)
        await tab.type("/lanes autoregressive,server:url=http://127.0.0.1:1")
        await tab.press("Enter")
        await tab.sees("2 server:url", "enter starts")
        await tab.press("Enter")
        await tab.sees("another program is " + REFUSED)
        assert not tab.problems, tab.problems


def colours(picture: bytes, least: int) -> None:
    """Raises AssertionError where a picture has fewer colours than the screen that it shows."""
    from PIL import Image

    found = Image.open(io.BytesIO(picture)).convert("RGB").getcolors(1 << 24)
    frequent = [colour for count, colour in found if count > 40]
    assert len(frequent) >= least, frequent


def smaller(picture: bytes) -> bytes:
    """The same PNG with a palette."""
    from PIL import Image

    out = io.BytesIO()
    drawn = Image.open(io.BytesIO(picture)).convert("P", palette=Image.Palette.ADAPTIVE, colors=64)
    drawn.save(out, "PNG", optimize=True)
    return out.getvalue()


async def check(names: list[str], picture: Path | None) -> int:
    """Run these parts; the exit code."""
    failed = 0
    async with chromium() as browser:
        for name in names:
            try:
                await PARTS[name](browser, picture)
                print(f"{name}: ok", flush=True)
            except AssertionError as error:
                failed += 1
                print(f"{name}: {error}", flush=True)
    return min(failed, 1)


PARTS = {"drawing": drawing, "doors": doors, "chat": chat}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--picture", type=Path, help="write a picture of the chat (PNG)")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="what to check (default: everything)")
    arguments = parser.parse_args()
    return asyncio.run(check(arguments.parts or [*PARTS], arguments.picture))


if __name__ == "__main__":
    sys.exit(main())
