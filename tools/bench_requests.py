"""Requests at once against a real server: what drafting gains, beside the forecast of ``engines.cost.concurrent``.

    python tools/bench_requests.py --model smollm2 --spec ngram-simple [--requests 1,2,4,8,16] [--write]

llama.cpp serves the model's GGUF file in as many slots as requests, once without drafts and once with its own. Each
prompt is first asked alone: that tells the tokens and the drafted rows of its rounds. Then b are asked at once, and
tokens are counted while all b are being written. The forecast knows the rounds of each prompt alone, t(n) of one request
with n rows, and what b requests without drafts take longer than t(b): sampling and sending for each of them. A pass of b
requests takes as long as one over all their rows, and that.
--write puts the table and a plot of it into docs.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Barrier
from time import perf_counter

import pages

from engines.bench import suite
from engines.cost.concurrent import Served
from engines.cost.curve import CostCurve
from engines.hub.known_models import draft_beside, resolve
from engines.machine import processors
from engines.methods.llama_cpp import SPEC
from engines.race.interval import MedianInterval
from engines.report.events import Prefilled, Round
from engines.report.metrics import measure
from engines.request import Request
from engines.servers.connection import Connection
from engines.servers.llama_cpp import LlamaCppModel
from engines.servers.llama_cpp_start import LlamaCppServer, Settings
from spec_tui.export.plots import Bar, BarRow, Plot, draw

PAGE = Path(__file__).resolve().parent.parent / "docs" / "servers.md"
CONTEXT = 768  # tokens of each request


@dataclass(frozen=True, slots=True)
class Rounds:
    """Of one answer: tokens and drafted rows of a round."""

    tokens: float
    drafted: float


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
        name = f"requests-{Path(asked.model).stem}.svg"
        draw(plot(rows), PAGE.with_name(name))
        pages.put(PAGE, f"requests {asked.model}", page_text(rows, note, name))


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
    file = Path(resolve(asked.model))
    draft = (asked.draft or draft_beside(file)) if "draft" in asked.spec else None
    if "draft-simple" in asked.spec and draft is None:
        raise SystemExit(f"no draft model lies beside {file}: give --draft FILE")
    cases = (suite.by_name(Path(asked.suite)) or suite.shipped()).cases
    # the shortest: those that are read first don't wait long for the others
    prompts = sorted((case.turns[0] for case in cases), key=len)[: max(counts)]
    price, draft_price = t_of_rows(file), t_of_rows(draft) if draft is not None else None
    with served(file, max(counts)) as server:
        together = t_of_requests(server, counts)
    forecast = Served(price=price, draft_price=draft_price)
    options = {"spec": asked.spec, "most": asked.most, "ngram": asked.ngram}
    with served(file, max(counts)) as plain, served(file, max(counts), draft, **options) as drafting:
        alone = [rounds_of(drafting, prompt, asked.tokens) for prompt in prompts]
        rows = []
        for count in counts:
            pairs = [(rate(plain, prompts[:count], asked.tokens), rate(drafting, prompts[:count], asked.tokens))
                     for _ in range(asked.repeats)]
            none, drafted = (statistics.median(side) for side in zip(*pairs))
            gains = MedianInterval.of([drafted / none for none, drafted in pairs])
            rows.append(AtOnce(count, none, drafted, gains, gain(forecast, together, count, alone[:count])))
            print(rows[-1], flush=True)
    mean = [statistics.mean(side) for side in zip(*((found.tokens, found.drafted) for found in alone))]
    curve = ", ".join(f"t({n}) {seconds * 1e3:.1f}" for n, seconds in price.points if n in (1, 2, 4, 8, 16, 32, 64))
    curve += "; requests at once " + ", ".join(f"{n}: {seconds * 1e3:.1f}" for n, seconds in together.points)
    return rows, f"Alone, a round has {mean[0]:.2f} tokens and {mean[1]:.2f} drafted ones. {curve} ms."


def gain(forecast: Served, together: CostCurve, count: int, alone: Sequence[Rounds]) -> float:
    """Tokens a second with these rounds over those without drafts, for so many requests at once. ``together``: what a
    round of so many takes without drafts."""
    model = replace(forecast.by(count), other=max(0.0, together.at(count) - forecast.price.at(count)))
    tokens, drafted = (statistics.mean(side) for side in zip(*((found.tokens, found.drafted) for found in alone)))
    return tokens / model.needs(drafted)


@contextmanager
def served(file: Path, slots: int, draft: Path | None = None, **options) -> Iterator[LlamaCppServer]:
    """llama.cpp with a file, in so many slots."""
    chosen = SPEC.parse({**options, "draft": str(draft or ""), "context": CONTEXT})
    server = LlamaCppServer(Settings(file=str(file), threads=processors(), slots=slots, **chosen))
    try:
        yield server
    finally:
        server.close()


class Endless(LlamaCppModel):
    """A model whose answers don't end by themselves: b requests stay b."""

    @classmethod
    def of(cls, server: LlamaCppServer) -> Endless:
        return cls(Connection(server.connection.address, server.key, direct=True), SPEC)

    def _body(self, request, prompt):
        return super()._body(request, prompt) | {"ignore_eos": True}


def answer(server: LlamaCppServer, prompt: str, tokens: int, together: Barrier) -> list[tuple[float, int]]:
    """One answer: when tokens came, and how many."""
    model = Endless.of(server)
    together.wait()
    came = []
    for event in model.run(Request((("user", prompt),), max_new_tokens=tokens)):
        if isinstance(event, Prefilled):
            came.append((perf_counter(), 1))
        elif isinstance(event, Round):
            came.append((perf_counter(), len(event.emitted)))
    return came


def rate(server: LlamaCppServer, prompts: Sequence[str], tokens: int) -> float:
    """Tokens a second of answers to all prompts at once, while all are being written."""
    together = Barrier(len(prompts))
    with ThreadPoolExecutor(len(prompts)) as pool:
        answers = list(pool.map(lambda prompt: answer(server, prompt, tokens, together), prompts))
    begin, end = max(came[0][0] for came in answers), min(came[-1][0] for came in answers)
    if begin >= end:
        raise SystemExit("the first answer ended before the last began: give more --tokens")
    return sum(count for came in answers for at, count in came if begin < at <= end) / (end - begin)


def rounds_of(server: LlamaCppServer, prompt: str, tokens: int) -> Rounds:
    """Of a prompt that is asked alone."""
    model = Endless.of(server)
    found = measure(model.run(Request((("user", prompt),), max_new_tokens=tokens)))
    return Rounds((found.new_tokens - 1) / found.target_forwards, found.drafted / found.target_forwards)


def t_of_rows(file: Path) -> CostCurve:
    """t(n) of n rows of one request."""
    with served(file, 1) as server:
        return CostCurve(Endless.of(server).measure_price().price)


def t_of_requests(server: LlamaCppServer, sizes: Sequence[int]) -> CostCurve:
    """t(n) of n requests at once that draft nothing, a row each."""
    found = []
    for size in sizes:
        several = [f"Tell a story of {number} friends." for number in range(2, size + 2)]
        found.append((size, size / rate(server, several, 200 if size < 4 else 64 + size)))
    return CostCurve.fit(found)


if __name__ == "__main__":
    main()
