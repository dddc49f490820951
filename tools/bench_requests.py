"""Requests at once against a real server: what drafting gains, beside the forecast of ``engines.cost.concurrent``.

    python tools/bench_requests.py --model smollm2 --spec ngram-simple [--requests 1,2,4,8,16] [--write]
    python tools/bench_requests.py --model smollm2 --vllm [...]

A server gets as many slots as requests, once without drafts and once with its own. Each prompt is first asked alone:
that tells the tokens and the drafted rows of its rounds. Then b are asked at once, and tokens are counted while all b
are being written. The forecast knows the rounds of each prompt alone and t(n): a pass of b requests takes as long as
one over all their rows.

llama.cpp serves the GGUF file. Its t(n) is that of one request that reads n tokens; requests at once without drafts
tell what it takes to sample and send a token. Its draft model, alone on a server, tells what a step takes; it drafts
for one request after the other. vLLM (the environment of ``make test-vllm``) serves the model in float32 and copies
n-grams. Its t(n) is that of n requests without drafts. --write puts the table and a plot of it into docs.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier
from time import perf_counter

import pages
import test_vllm
from benches.rows import shuffled

from engines import folders
from engines.bench import suite
from engines.cost.concurrent import Served
from engines.cost.curve import CostCurve
from engines.hub.known_models import draft_beside, resolve
from engines.machine import processors
from engines.methods.llama_cpp import SPEC as LLAMA_CPP
from engines.methods.server import SPEC as SERVER
from engines.race.interval import MedianInterval
from engines.report.events import Prefilled, Round
from engines.report.metrics import measure
from engines.request import Request
from engines.servers.connection import Connection
from engines.servers.llama_cpp import LlamaCppModel
from engines.servers.llama_cpp_start import LlamaCppServer, Settings
from engines.servers.openai_compatible import OpenAICompatibleModel
from engines.servers.served_model import ServedModel
from spec_tui.export.plots import Bar, BarRow, Plot, draw

PAGE = Path(__file__).resolve().parent.parent / "docs" / "servers.md"
CONTEXT = 768  # tokens of each request

Server = Callable[[], ServedModel]
"""Connects to it anew."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """Of one answer: tokens, drafted rows and seconds of a round."""

    tokens: float
    drafted: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Times:
    """What a server takes without drafts.

    Attributes:
        rows: t(n) of n rows.
        at_once: for n requests at once, a token each.
        step: of its draft model, for one request; 0 without one.
    """

    rows: CostCurve
    at_once: CostCurve
    step: float = 0.0

    @property
    def token(self) -> float:
        """Seconds to sample and send a token: what n requests take longer than n rows, by least squares."""
        more = [(count, seconds - self.rows.at(count)) for count, seconds in self.at_once.points]
        return sum(count * longer for count, longer in more) / sum(count**2 for count, _ in more)


@dataclass(frozen=True, slots=True)
class Servers:
    """One that drafts nothing, one that drafts, and the times of the first."""

    plain: Server
    drafting: Server
    times: Times


@dataclass(frozen=True, slots=True)
class AtOnce:
    """So many requests at once: tokens/s without drafts and drafting, the gain with its range, and that forecast."""

    requests: int
    none: float
    drafting: float
    gain: MedianInterval
    forecast: float

    def __str__(self) -> str:
        median = self.gain.median
        return (f"| {self.requests} | {self.none:.1f} | {self.drafting:.1f} | "
                f"{median:.2f} ({self.gain.low or median:.2f}-{self.gain.high or median:.2f}) | "
                f"{self.forecast:.2f} | {self.forecast / median - 1:+.0%} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="smollm2", help="a known name or a GGUF file (default: smollm2)")
    parser.add_argument("--draft", type=Path, help="GGUF file of the draft model (default: the one beside the model)")
    parser.add_argument("--suite", default="", help="coding, or the shipped one (default)")
    parser.add_argument("--vllm", action="store_true", help="vLLM in place of llama.cpp")
    parser.add_argument("--spec", default="ngram-simple", help="how llama.cpp drafts (default: ngram-simple)")
    parser.add_argument("--most", type=int, default=8, help="tokens that it drafts at most (default: 8)")
    parser.add_argument("--ngram", type=int, default=4, help="tokens of the n-gram that it looks for (default: 4)")
    parser.add_argument("--requests", default="1,2,4,8,16", help="at once (default: 1,2,4,8,16)")
    parser.add_argument("--tokens", type=int, default=128, help="of each answer (default: 128)")
    parser.add_argument("--repeats", type=int, default=3, help="of each number of requests (default: 3)")
    parser.add_argument("--write", action="store_true", help="into docs/servers.md")
    asked = parser.parse_args()
    counts = sorted({int(word) for word in asked.requests.split(",")})
    rows, note = measured(asked, counts)
    print(note)
    if asked.write:
        server, on = ("-vllm", " vLLM") if asked.vllm else ("", "")
        name = f"requests-{Path(asked.model).stem}{server}.svg"
        PAGE.with_name(name).write_bytes(draw(plot(rows)))
        pages.put(PAGE, f"requests {asked.model}{on}", page_text(rows, note, name))


def page_text(rows: Sequence[AtOnce], note: str, picture: str) -> str:
    """Markdown: the table, and its picture."""
    head = ["| requests | tokens/s, no drafts | drafting | gain | forecast | off by |", "|--:|--:|--:|--:|--:|--:|"]
    alt = "The gain of drafting by requests at once, measured and forecast: the numbers of the table"
    return "\n".join([*head, *map(str, rows), "", f"![{alt}]({picture})", "", note])


def plot(rows: Sequence[AtOnce]) -> Plot:
    """Measured gains above the forecast ones, by requests at once."""
    bars = [BarRow(f"{row.requests} at once" if row.requests > 1 else "1 request", (
        Bar(row.gain, f"{row.gain.median:.2f}"),
        Bar(MedianInterval(row.forecast, None, None, None, 1), f"{row.forecast:.2f}", "theirs"))) for row in rows]
    axis = "tokens a second, drafting / not drafting (1: drafting breaks even)"
    return Plot(panels={"": bars}, axis=axis, own=True, line=1, legend={"ours": "measured", "theirs": "forecast"})


def measured(asked: argparse.Namespace, counts: Sequence[int]) -> tuple[list[AtOnce], str]:
    """Measured and forecast gains, and a sentence on rounds and t(n)."""
    cases = (suite.by_name(Path(asked.suite)) or suite.shipped()).cases
    if len(cases) < max(counts):
        raise SystemExit(f"the suite has {len(cases)} prompts: give no more --requests")
    # the shortest: those that are read first don't wait long for the others
    prompts = sorted((case.turns[0] for case in cases), key=len)[: max(counts)]
    with (vllm_servers if asked.vllm else llama_cpp_servers)(asked, counts) as servers:
        alone = [rounds_of(servers.drafting, prompt, asked.tokens) for prompt in prompts]
        rows = []
        for count in counts:
            pairs = [rates(servers, prompts[:count], asked.tokens, repeat) for repeat in range(asked.repeats)]
            none, drafted = (statistics.median(side) for side in zip(*pairs))
            gains = MedianInterval.of([drafted / none for none, drafted in pairs])
            rows.append(AtOnce(count, none, drafted, gains, gain(servers.times, count, alone[:count])))
            print(rows[-1], flush=True)
    mean = [statistics.mean(side) for side in zip(*((found.tokens, found.drafted) for found in alone))]
    return rows, f"Alone, a round has {mean[0]:.2f} tokens and {mean[1]:.2f} drafted ones. {in_words(servers.times)}"


def in_words(times: Times) -> str:
    """Both curves."""
    rows = ", ".join(f"t({n}) {seconds * 1e3:.1f}" for n, seconds in times.rows.points if n & (n - 1) == 0)
    requests = ", ".join(f"{n}: {seconds * 1e3:.1f}" for n, seconds in times.at_once.points)
    return f"{rows} ms" + (f"; requests at once {requests} ms." if times.rows != times.at_once else ".")


def gain(times: Times, count: int, alone: Sequence[Rounds]) -> float:
    """Tokens a second with these rounds over those without drafts, for so many requests at once. A round of a request
    alone tells what drafting takes beyond steps, rows and tokens: once a round, for however many requests."""
    tokens, drafted, seconds = (statistics.mean(side) for side in zip(*map(astuple, alone)))
    one_by_one = CostCurve(((1, times.step), (2, 2 * times.step))) if times.step else None

    def needs(count: int) -> float:
        forecast = Served(price=times.rows, draft_price=one_by_one).by(count)
        return forecast.seconds(drafted) + count * tokens * times.token

    return tokens * times.at_once.at(count) / (needs(count) + max(0.0, seconds - needs(1)))


@contextmanager
def llama_cpp_servers(asked: argparse.Namespace, counts: Sequence[int]) -> Iterator[Servers]:
    """llama.cpp with the GGUF file, and with a draft model where that is asked for."""
    file = Path(resolve(asked.model))
    draft = (asked.draft or draft_beside(file)) if "draft" in asked.spec else None
    if "draft-simple" in asked.spec and draft is None:
        raise SystemExit(f"no draft model lies beside {file}: give --draft FILE")
    options = {"spec": asked.spec, "most": asked.most, "ngram": asked.ngram}
    with llama_cpp(file, max(counts)) as plain, llama_cpp(file, max(counts), draft, **options) as drafting:
        with llama_cpp(file, 1) as server:
            rows = CostCurve(server().measure_price().price)
        step = 0.0
        if draft is not None:
            with llama_cpp(draft, 1) as server:
                step = t_of_requests(server, [1]).at(1)
        yield Servers(plain, drafting, Times(rows, t_of_requests(plain, counts), step))


@contextmanager
def llama_cpp(file: Path, slots: int, draft: Path | None = None, **options) -> Iterator[Server]:
    chosen = LLAMA_CPP.parse({**options, "draft": str(draft or ""), "context": CONTEXT})
    server = LlamaCppServer(Settings(file=str(file), threads=processors(), slots=slots, **chosen))
    try:
        yield lambda: EndlessOnLlamaCpp(Connection(server.connection.address, server.key, direct=True), LLAMA_CPP)
    finally:
        server.close()


@contextmanager
def vllm_servers(asked: argparse.Namespace, counts: Sequence[int]) -> Iterator[Servers]:
    """vLLM with the model in float32, and with a drafter that copies n-grams."""
    environment = folders.cache() / "vllm"
    test_vllm.prepare(environment)
    speculation = {"method": "ngram", "num_speculative_tokens": asked.most, "prompt_lookup_max": asked.ngram,
                   "prompt_lookup_min": 2}
    with TemporaryDirectory(dir=environment) as place:
        test_vllm.export("model", asked.model, "--output", folder := f"{place}/model")
        with vllm(environment, folder, None) as plain:
            times = t_of_requests(plain, sorted({*counts, 1, 2, 4, 8, 16, 32, 64}))
            with vllm(environment, folder, json.dumps(speculation)) as drafting:
                yield Servers(plain, drafting, Times(times, times))


@contextmanager
def vllm(environment: Path, folder: str, speculation: str | None) -> Iterator[Server]:
    with test_vllm.served(environment, Path(folder), speculation, 64, processors()) as address:
        yield lambda: EndlessOnVllm(Connection(address, direct=True), SERVER)


class EndlessOnLlamaCpp(LlamaCppModel):
    """A model whose answers don't end by themselves: b requests stay b."""

    def _body(self, request, prompt):
        return super()._body(request, prompt) | {"ignore_eos": True}


class EndlessOnVllm(OpenAICompatibleModel):
    """The same on vLLM."""

    def _vllm_body(self, request, prompt):
        return super()._vllm_body(request, prompt) | {"ignore_eos": True}


def answer(model: ServedModel, prompt: str, tokens: int, together: Barrier) -> list[tuple[float, int]]:
    """One answer: when tokens came, and how many."""
    together.wait()
    came = []
    for event in model.run(Request((("user", prompt),), max_new_tokens=tokens)):
        if isinstance(event, Prefilled):
            came.append((perf_counter(), 1))
        elif isinstance(event, Round):
            came.append((perf_counter(), len(event.emitted)))
    return came


def rates(servers: Servers, prompts: Sequence[str], tokens: int, repeat: int) -> tuple[float, float]:
    """Tokens a second without drafts and drafting, in an order that favours neither."""
    found = {name: rate(getattr(servers, name), prompts, tokens) for name in shuffled(("plain", "drafting"), repeat)}
    return found["plain"], found["drafting"]


def rate(server: Server, prompts: Sequence[str], tokens: int) -> float:
    """Tokens a second of answers to all prompts at once, while all are being written."""
    models, together = [server() for _ in prompts], Barrier(len(prompts))
    with ThreadPoolExecutor(len(prompts)) as pool:
        answers = list(pool.map(lambda model, prompt: answer(model, prompt, tokens, together), models, prompts))
    begin, end = max(came[0][0] for came in answers), min(came[-1][0] for came in answers)
    if begin >= end:
        raise SystemExit("the first answer ended before the last began: give more --tokens")
    return sum(count for came in answers for at, count in came if begin < at <= end) / (end - begin)


def rounds_of(server: Server, prompt: str, tokens: int) -> Rounds:
    """Of a prompt that is asked alone."""
    model = server()
    found = measure(model.run(Request((("user", prompt),), max_new_tokens=tokens)))
    rounds = found.target_forwards
    return Rounds((found.new_tokens - 1) / rounds, found.drafted / rounds, found.decode_seconds / rounds)


def t_of_requests(server: Server, sizes: Sequence[int]) -> CostCurve:
    """t(n) of n requests at once that draft nothing, a row each."""
    found = []
    for size in (min(sizes), *sizes):  # the first time is not counted: the server warms up
        several = [f"Tell a story of {number} friends." for number in range(2, size + 2)]
        found.append((size, size / rate(server, several, 200 if size < 4 else 64 + size)))
    return CostCurve.fit(found[1:])


if __name__ == "__main__":
    main()
