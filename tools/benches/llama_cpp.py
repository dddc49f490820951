"""Our engines against llama.cpp on the same GGUF file, prompts and threads; and the chat screen in front of its server
against a client that does nothing but read."""

from __future__ import annotations

import http.client
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from urllib.parse import urlsplit

from benches.chat import PROMPTS, Chat
from benches.peers import measured, ratios, timed
from benches.rows import Row, shuffled
from engines.hub.known_models import KNOWN
from engines.servers.llama_cpp_start import LlamaCppServer, Settings

MODEL, THREADS, NEW_TOKENS = "smollm2", 2, 120
OURS = ("autoregressive", "pld", "suffix", "recycling", "draft", "hybrid")
THEIRS = (
    "llama.cpp", "llama.cpp:spec=ngram-simple:ngram=3:most=8", "llama.cpp:spec=ngram-mod:ngram=8:most=16",
    "llama.cpp:spec=draft-simple",
)


def lacking(*models: str) -> bool:
    """Say which of these models is not on this machine, and whether llama.cpp is not. Returns whether anything is
    lacking."""
    said = [f"{name} is not on this machine: spec-tui model get {name} fetches it"
            for name in models if not KNOWN[name].present]
    if find_spec("xllamacpp") is None:
        said.append("llama.cpp is not installed: pip install 'spec-tui[llamacpp]'")
    for sentence in said:
        print(sentence, file=sys.stderr)
    return bool(said)


def bench_llama_cpp(repeats: int, most: int | None = None) -> list[Row]:
    """Tokens a second after the first, weights as the file stores them; all lossless, in one
    interleaved run. And the time to the first token of a prompt of some 512 tokens, with nothing kept."""
    from engines import load
    from engines.bench.suite import shipped
    from engines.race.lanes import parse_lane
    from engines.race.peers import Peers

    if lacking(MODEL):
        return []
    runtime = load(MODEL, threads=THREADS)
    with Peers(runtime) as runner:
        contenders = {name: timed(runner, parse_lane(name), NEW_TOKENS) for name in (*OURS, *THEIRS)}
        texts = [case.turns[0] for case in shipped().limited(1).cases][:most]
        rates = measured(contenders, texts, repeats)
        firsts = first_tokens(runner, (OURS[0], THEIRS[0]), repeats)
    plain, best, peer = OURS[0], _best(rates, OURS), _best(rates, THEIRS)
    return [
        *(Row(name, rates[name], "tokens/s") for name in contenders),
        Row(f"{plain} / {THEIRS[0]}", ratios(rates, plain, THEIRS[0]), "x", ">= 1.0"),
        Row(f"best of ours ({best}) / {THEIRS[0]}", ratios(rates, best, THEIRS[0]), "x", ">= 1.5"),
        Row(f"best of ours ({best}) / best of llama.cpp ({peer})", ratios(rates, best, peer), "x", ">= 1.2"),
        Row("512-token prompt to the first token, ours / llama.cpp", ratios(firsts, plain, THEIRS[0]), "x", "<= 1.3"),
    ]


def _best(rates: dict[str, list[float]], names: tuple[str, ...]) -> str:
    """The fastest by its median."""
    return max(names, key=lambda name: Row(name, rates[name], "").median)


def first_tokens(runner, lanes: tuple[str, ...], repeats: int) -> dict[str, list[float]]:
    """Seconds to each lane's first token, read anew each time; by turns, after a warm-up."""
    from engines import Request
    from engines.race.lanes import parse_lane

    request = Request((("user", "The boat went past the mill and the old bridge. " * 45),), max_new_tokens=2)
    found: dict[str, list[float]] = {lane: [] for lane in lanes}
    for repeat in range(repeats + 1):
        for lane in shuffled(lanes, repeat):
            runner.forget()
            for _ in runner.run(parse_lane(lane).of(request)):
                pass
            found[lane].append(runner.token_times.first_seconds)
    return {lane: seconds[1:] for lane, seconds in found.items()}


def bench_served(repeats: int) -> list[Row]:
    """Tokens a second that the chat shows of llama.cpp, started by it, over those that such a server gives a client
    that reads its stream and does nothing else, on as many threads; by turns. By the server's own times, which is what
    the screen shows, and by the clock, from the first token to the last."""
    if lacking(MODEL):
        return []
    chat = Chat("llama.cpp", MODEL)
    try:
        with _server(chat.about["threads"]) as server:
            pairs = []
            for repeat in range(repeats + 1):
                pairs.append([_both(chat, server, prompt, (repeat + n) % 2) for n, prompt in enumerate(PROMPTS)])
    finally:
        chat.close()
    print(f"{chat.about['backend']}, {chat.about['threads']} threads", file=sys.stderr, flush=True)
    found = {name: [_ratio(turn, name) for turn in pairs[1:]] for name in ("own_seconds", "seconds")}
    return [
        Row("chat / a client that only reads, by the server's times", found["own_seconds"], "x", ">= 0.97"),
        Row("chat / a client that only reads, by the clock", found["seconds"], "x"),
    ]


def _ratio(turn: list[tuple[dict, dict]], name: str) -> float:
    shown, plain = (sum(pair[side]["tokens"] for pair in turn) / sum(pair[side][name] for pair in turn)
                    for side in (0, 1))
    return shown / plain


@contextmanager
def _server(threads: int) -> Iterator[LlamaCppServer]:
    """llama.cpp with the model."""
    from engines.methods.llama_cpp import SPEC
    from engines.race.peers import gguf_file

    server = LlamaCppServer(Settings(file=str(gguf_file(MODEL)), threads=threads, **SPEC.parse({"context": 2048})))
    try:
        yield server
    finally:
        server.close()


def _both(chat: Chat, server: LlamaCppServer, prompt: str, chat_first: int) -> tuple[dict, dict]:
    if chat_first:
        shown = chat.ask(prompt)
        return shown, _read(server, prompt)
    plain = _read(server, prompt)
    return chat.ask(prompt), plain


def _read(server: LlamaCppServer, prompt: str) -> dict:
    """An answer, read and thrown away: its tokens after the first, and the seconds they took."""
    post = server.connection.post
    text = post("/apply-template", {"messages": [{"role": "user", "content": prompt}]}, dict)["prompt"]
    tokens = post("/tokenize", {"content": text, "add_special": True, "parse_special": True}, dict)["tokens"]
    connection, begun, last = http.client.HTTPConnection(urlsplit(server.connection.address).netloc), 0.0, b""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {server.key}"}
    body = {"prompt": tokens, "n_predict": 256, "stream": True, "temperature": 0, "cache_prompt": True}
    connection.request("POST", "/completion", json.dumps(body), headers)
    for line in connection.getresponse():
        if line.startswith(b"data: "):
            begun, last = begun or time.perf_counter(), line[6:]
    seconds, timings = time.perf_counter() - begun, json.loads(last)["timings"]
    connection.close()
    return {"tokens": timings["predicted_n"] - 1, "own_seconds": timings["predicted_ms"] / 1000, "seconds": seconds}
