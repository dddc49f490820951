"""The chat screen against decoding without one: the real application in a pseudo-terminal, each in its own process."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

from benches.rows import Row
from benches.terminal import Terminal

HERE = Path(__file__).parent
PROMPTS = (
    "Write a short story about a brave mouse and a cat.",
    "Write a Python function that counts how often each word occurs in a text and returns a dictionary.",
    "Tell me a story about a boy and his kite.",
)
ENGINES = ("autoregressive", "draft")
PATIENCE = 300.0  # seconds that loading or an answer may take


def bench_chat(repeats: int) -> list[Row]:
    """Tokens a second in the chat screen (120x40) over those without one, by the rounds' own times, which is what the
    screen shows, and by the clock, from the first token of an answer to its last; both warm, by turns. And the
    processor time of each side, which other work on the machine disturbs less. Threads are those that the application
    chooses; OMP_NUM_THREADS sets them."""
    chat = Chat()
    try:
        alone = Alone(chat.about["threads"])
        try:
            return _compare(chat, alone, repeats)
        finally:
            alone.close()
    finally:
        chat.close()


def _compare(chat: Chat, alone: Alone, repeats: int) -> list[Row]:
    if chat.about != alone.about:
        print(f"not alike: {chat.about} in the chat, {alone.about} without it", file=sys.stderr)
    rows: list[Row] = []
    for engine in ENGINES:
        chat.choose(engine)
        warm = chat.ask(PROMPTS[0])
        alone.ask(warm["request"])
        pairs = []
        for repeat in range(repeats):
            pairs.append(_pair(chat, alone, repeat))
        rows += _rows(engine, pairs)
    return rows


def _pair(chat: Chat, alone: Alone, repeat: int) -> tuple[dict, dict]:
    """All prompts on both sides: the chat's totals, then the other's."""
    shown, plain = [], []
    for number, prompt in enumerate(PROMPTS):
        if (repeat + number) % 2 and repeat:  # the request is known from the last turn
            plain.append(alone.ask(chat.requests[prompt]))
            shown.append(chat.ask(prompt))
        else:
            shown.append(chat.ask(prompt))
            plain.append(alone.ask(chat.requests[prompt]))
    return _sum(shown), _sum(plain)


def _sum(runs: list[dict]) -> dict:
    return {name: sum(run[name] for run in runs) for name in runs[0] if name != "request"}


def _rows(engine: str, pairs: list[tuple[dict, dict]]) -> list[Row]:
    def ratios(name: str) -> list[float]:
        return [(a["tokens"] / a[name]) / (b["tokens"] / b[name]) for a, b in pairs]

    def each(name: str, side: int) -> list[float]:
        return [pair[side][name] / pair[side]["tokens"] * 1e3 for pair in pairs]

    return [
        Row(f"chat / headless, {engine}, by the rounds' times", ratios("own_seconds"), "x", ">= 0.9"),
        Row(f"chat / headless, {engine}, by the clock", ratios("seconds"), "x", ">= 0.9"),
        Row(f"headless, {engine}", [b["tokens"] / b["seconds"] for _, b in pairs], "tokens/s"),
        Row(f"processor time of the engine in the chat, {engine}", each("engine_cpu", 0), "ms/token"),
        Row(f"processor time of the engine headless, {engine}", each("engine_cpu", 1), "ms/token"),
        Row(f"processor time of the screen, {engine}", each("screen_cpu", 0), "ms/token"),
    ]


class Chat:
    """The application in a pseudo-terminal, typed into; ``other``: a backend and a model instead of ours."""

    def __init__(self, *other: str) -> None:
        self.requests: dict[str, dict] = {}
        out, into = os.pipe()
        self._reports = os.fdopen(out, "rb", buffering=0)
        self._terminal = Terminal([sys.executable, str(HERE / "chat_app.py"), str(into), *other], pass_fds=(into,))
        os.close(into)
        try:
            self.about = self._report()
        except BaseException:
            self.close()
            raise

    def choose(self, engine: str) -> None:
        self._enter(f"/engine {engine}")

    def ask(self, prompt: str) -> dict:
        """An answer in a conversation of its own."""
        self._enter("/new")
        self._enter(prompt)
        report = self._report()
        self.requests[prompt] = report["request"]
        return report

    def _enter(self, line: str) -> None:
        """Type a line, as slowly as no paste comes."""
        for keys in (line, "\r"):
            self._terminal.type(keys)
            time.sleep(0.15)

    def _report(self) -> dict:
        if not select.select([self._reports], [], [], PATIENCE)[0]:
            raise RuntimeError(f"the application has reported nothing for {PATIENCE:.0f} seconds")
        line = self._reports.readline()
        report = json.loads(line) if line else {"failed": "the application ended"}
        if "failed" in report:
            raise RuntimeError(report["failed"])
        return report

    def close(self) -> None:
        self._terminal.close()
        self._reports.close()


class Alone:
    """``Runtime.run`` in a process of its own, with as many threads."""

    def __init__(self, threads: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "headless.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        )
        self.about = json.loads(self._process.stdout.readline())

    def ask(self, request: dict) -> dict:
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()
