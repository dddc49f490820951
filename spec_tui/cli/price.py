"""``spec-tui price``: what verification costs here, and the acceptance from which drafts are faster."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from typer import Option

from engines.cost.curve import CostCurve
from engines.cost.interleaved import ROWS
from engines.cost.speedup_model import SpeedupModel
from engines.errors import UsageProblem
from engines.folders import model_label
from engines.progress import BuildProgress
from engines.report.wording import joined
from spec_tui.cli import round_profile
from spec_tui.cli.failures import INTERRUPTED, Interrupt
from spec_tui.cli.option_groups import Alone, Format, ModelOrServerOptions, Only, OutputFormat
from spec_tui.cli.prompts import comma_separated
from spec_tui.cli.run import load_decoder
from spec_tui.cli.status_line import StageProgress
from spec_tui.present.price_text import BUSY
from spec_tui.present.rows import bar
from spec_tui.present.served_price import WHAT_IT_IS
from spec_tui.present.tables import aligned, share, text_width
from spec_tui.present.text import as_json, one_line, wrap

if TYPE_CHECKING:
    from engines.servers.served_model import ServedModel

_LOOKUP, _CHAIN = "lookup, drafting for next to nothing", "draft model, a chain"
_BAR, _BESIDE = 30, 46  # columns of a bar, at most, and of the numbers before it
_LENGTHS = (1, 3, 7, 15, 31, 63)  # drafted tokens: with the root as many rows as t(n) was measured at
_REQUESTS = ("Also forecast the gain of drafting when this many requests are decoded at once: 1,2,4,8,16,32,64; and "
             "up to how many requests drafting pays.")
_ACCEPTANCE = "With --requests: the probability that a drafted token is accepted if those before it were."
_CONTEXT = ("With --requests: tokens of context of each request; their keys and values are read in every pass, and "
            "the time of that is measured. Default: the context that t(n) is measured with.")
_OVERLAP = ("Load no model; forecast from a recorded run, or the name of one that ships, what drafting while the "
            "target verifies would gain (PEARL, SSD).")
_ENGINE = ("Also run this engine on the example prompts, and say how long a round takes and where its time goes. "
           "Repeatable; with options as in a race.")
_OF_REQUESTS = Only(lambda given: given["requests"] is not None, "--requests")
_FEW = ("Requests took so long that not all sizes were measured, and these only a few times: the server is slow or the "
        "machine is busy. Measure again when nothing else runs.")
_FRESH = "Measure again, even if a measurement is stored. Texts that depend on random draws may then change."


def price(
    fresh: Annotated[bool, Option("--fresh", help=_FRESH)] = False,
    requests: Annotated[str | None, Option(metavar="LIST", help=_REQUESTS)] = None,
    acceptance: Annotated[float, Option(metavar="SHARE", min=0, max=1, help=_ACCEPTANCE), _OF_REQUESTS] = 0.7,
    context: Annotated[int, Option(metavar="TOKENS", min=0, show_default=False, help=_CONTEXT), _OF_REQUESTS] = 0,
    engine: Annotated[list[str] | None, Option(metavar="ID:OPTION=VALUE", help=_ENGINE)] = None,
    format: OutputFormat = Format.text,
    overlap: Annotated[str, Option(metavar="TRACE", help=_OVERLAP), Alone(frozenset({"format"}))] = "",
    *,
    models: ModelOrServerOptions,
) -> int:
    """The price of verification: t(n), the time of a forward pass over n tokens, and the acceptance
    from which drafting is faster.

    t(n) is measured when a model is loaded for the first time, and kept; --fresh measures it again. What follows for
    drafts is a forecast. In llama.cpp, with --backend or --server, it is measured from outside: by the time that the
    server reports for reading n new tokens.
    """
    if overlap:
        from spec_tui.cli import overlap_forecast as overlapping

        facts = overlapping.facts_of(overlap)
        print(as_json(facts) if format is Format.json else "\n".join(overlapping.lines(facts)))
        return 0
    asked = _Asked(() if requests is None else _counts(requests), acceptance, context)
    load = models.load
    served = load.server is not None or load.backend
    if served and fresh:
        raise UsageProblem("--fresh would change nothing here", "a server's t(n) is measured each time, and not kept")
    if served and engine:
        raise UsageProblem("a server does not say where the time of its rounds goes", "leave --engine out")
    if served and context:
        raise UsageProblem("--context would change nothing here",
                           "what a server takes to read keys and values is not measured")
    lanes = round_profile.lanes_of(engine) if engine else []
    decoder = load_decoder(load)
    if (limit := decoder.ready.context_limit) is not None and context > limit:
        raise UsageProblem(f"--context {context:,} is more than the model's context of {limit:,}", "take a smaller one")
    if served:
        return _from_outside(decoder, asked, format)
    if fresh:
        decoder.measure_price()
    facts = facts_of(decoder.ready)
    if asked.counts:
        facts["requests"] = _requests(facts, asked, *decoder.measure_reading())
    if lanes:
        with StageProgress() as progress:
            facts["rounds"] = round_profile.profile(
                decoder, lanes, lambda done, total: progress.show(BuildProgress("profiling", done, total, "prompts")))
    print(as_json(facts) if format is Format.json else "\n".join(lines(facts)))
    return 0


class _Asked(NamedTuple):
    """Of requests at once: their numbers, the chance that a token is accepted, the context of each."""

    counts: tuple[int, ...]
    acceptance: float
    context: int


def _counts(text: str) -> tuple[int, ...]:
    """The numbers of ``--requests``, ascending. Raises UsageProblem."""
    from engines.cost.concurrent import LIMIT

    words = comma_separated(text, "--requests")
    if not words or not all(word.isdecimal() and 1 <= int(word) <= LIMIT for word in words):
        raise UsageProblem(f"--requests {text!r} is not understood", f"numbers from 1 to {LIMIT}: 1,2,4,8")
    return tuple(sorted({int(word) for word in words}))


def _requests(facts: dict[str, Any], asked: _Asked, reading: float = 0.0, measured_at: int = 0) -> dict[str, Any]:
    """What drafters gain with so many requests at once; ``reading`` and ``measured_at`` as of ``concurrent.Served``."""
    from engines.cost import concurrent
    from engines.report.encoding import plain

    price, draft = (CostCurve(tuple(map(tuple, facts.get(key) or ()))) for key in ("price", "draft_price"))
    drafters = {_LOOKUP: None, **({_CHAIN: draft} if draft.points else {})}
    chances, found = (asked.acceptance,), {}
    for name, draft_price in drafters.items():
        served = concurrent.Served(price=price, draft_price=draft_price, reading=reading, measured_at=measured_at,
                                   context=asked.context)
        found[name] = {"stops_after": concurrent.stops_after(served, chances),
                       "points": [plain(concurrent.at(served, count, chances)) for count in asked.counts]}
    return {"most_requests": concurrent.LIMIT, "acceptance": asked.acceptance,
            "context": asked.context or measured_at or None, "reading_seconds": reading, "drafts": found}


def _from_outside(server: ServedModel, asked: _Asked, format: Format) -> int:
    """Measure t(n) of a served model, and show it."""
    try:
        with Interrupt() as interrupted:
            found = server.measure_price(interrupted)
    finally:
        server.close()
    if found is None:
        return INTERRUPTED
    ready = server.ready
    facts = {"model": ready.model, "dtype": ready.dtype, "device": ready.device, "backend": ready.backend,
             "threads": ready.threads, "context": found.context, "round_trip_seconds": server.round_trip,
             "price": [list(point) for point in found.price]}
    if asked.counts:
        facts["requests"] = _requests(facts, asked, measured_at=found.context)
    room = (ready.context_limit or inf) - 1  # tokens that a prompt may have
    few = wrap(_FEW, text_width()) if len(found.price) < sum(rows < room for rows in ROWS) else []
    print(as_json(facts) if format is Format.json else "\n".join(
        [*_head(facts, "tokens read, n"), *few, *_at_once(facts), "", *wrap(WHAT_IT_IS, text_width())]))
    return 0


def facts_of(ready) -> dict[str, Any]:
    """The object of ``--format json``; seconds, and shares between 0 and 1."""
    curve = CostCurve(ready.price)
    most = min(_LENGTHS[-1], ready.context_limit - 2)
    drafters = {_LOOKUP: SpeedupModel(curve, most=most)}
    if ready.draft_price:
        token = ready.draft_price[0][1]
        drafters[_CHAIN] = SpeedupModel(curve, token, token, most=most)
    return {
        "model": ready.model, "dtype": ready.dtype, "device": ready.device, "backend": ready.backend,
        "threads": ready.threads, "draft_model": ready.draft_model, "busy": ready.price_busy,
        "price": [list(point) for point in ready.price], "draft_price": [list(point) for point in ready.draft_price],
        "drafts": {name: _forecast(forecast, most) for name, forecast in drafters.items()},
    }


def _forecast(forecast: SpeedupModel, most: int) -> dict[str, Any]:
    return {
        "at_best": forecast.at_best,
        "sizes": [
            {"tokens": n, "needs": forecast.needs(n), "acceptance_needed": forecast.acceptance_needed(n)}
            for n in _LENGTHS if n <= most
        ],
    }


def lines(facts: dict[str, Any]) -> list[str]:
    """The same for people."""
    out = _head(facts)
    if facts["busy"]:
        out += wrap(f"{BUSY[:1].upper()}{BUSY[1:]}: --fresh measures it again.", text_width())
    if drafts := facts["draft_price"]:
        out += ["", *aligned([["draft model, n", *(f"{n}" for n, _ in drafts)],
                              ["draft model, ms", *(f"{seconds * 1e3:.2f}" for _, seconds in drafts)]])]
    for name, drafts in facts["drafts"].items():
        sizes = drafts["sizes"]
        out += ["", *wrap(f"forecast, {name}: at most {drafts['at_best']:.2f}x", text_width()), *aligned([
            ["tokens drafted", *(f"{size['tokens']}" for size in sizes)],
            ["break-even tokens", *(f"{size['needs']:.2f}" for size in sizes)],
            ["break-even acceptance", *(share(size["acceptance_needed"], none="never") for size in sizes)],
        ])]
    if "rounds" in facts:
        out += ["", *round_profile.lines(facts["rounds"])]
    return out + _at_once(facts)


def _at_once(facts: dict[str, Any]) -> list[str]:
    """The gains by requests at once as a table with bars: a mark where drafting breaks even."""
    if (found := facts.get("requests")) is None:
        return []
    out: list[str] = []
    for name, drafts in found["drafts"].items():
        top = max(1.0, *(point["gain"] for point in drafts["points"]))
        pays = _pays(drafts, found["most_requests"])
        said = f"at {found['acceptance']:.0%} acceptance drafting {pays}"
        out += ["", f"forecast, {name}:", *wrap(said, text_width()),
                f"  {'requests':>8}{'length':>7}{'gain':>8}{'breaks even from':>18}"]
        room = max(0, min(_BAR, text_width() - _BESIDE))
        line = round(room / top)
        for point in drafts["points"]:
            drawn = f"{bar(point['gain'] / top, room):<{room}}"
            least = share(point["pays_from"], none="never")
            out.append(f"  {point['requests']:>8}{point['length'] or 'none':>7}{point['gain']:>7.2f}x"
                       f"{least:>18}  {drawn[:line]}│{drawn[line:].rstrip()}".rstrip())
    context = f", {found['context']:,} tokens of context each" if found["context"] else ""
    reads = f"; reading a token of context takes {found['reading_seconds'] * 1e6:.2f} us"
    return [*out, "", *wrap(
        f"A pass for b requests that draft n tokens each is taken as t(b(n + 1)){context}"
        f"{reads if found['reading_seconds'] else ''}. │ is where drafting breaks even.", text_width())]


def _pays(drafts: dict[str, Any], most: int) -> str:
    """For how many requests drafting pays; where t(n) has a step it may pay again for more of them."""
    last = drafts["stops_after"]
    if last is None:
        return f"pays for {most} and more"
    again = joined(str(point["requests"]) for point in drafts["points"]
                   if point["requests"] > last and point["length"])
    if last == 0:
        return f"does not pay for one request alone, but pays for {again}" if again else "never pays"
    pays = "pays for one request alone" if last == 1 else f"pays for up to {last} requests at once"
    return f"{pays}, and again for {again}" if again else pays


def _head(facts: dict[str, Any], rows: str = "tokens verified, n") -> list[str]:
    """The model, and t(n) of so many ``rows``."""
    threads = "not disclosed" if facts["threads"] is None else facts["threads"]
    return [
        *wrap(one_line(f"{model_label(facts['model'])}, {facts['dtype']} on {facts['device']}"), text_width()),
        *wrap(one_line(f"forward pass: {facts['backend']}; threads: {threads}"), text_width()),
        "",
        *aligned([
            [rows, *(f"{n}" for n, _ in facts["price"])],
            ["t(n), ms", *(f"{seconds * 1e3:.2f}" for _, seconds in facts["price"])],
            ["t(n) / t(1)", *(f"{seconds / facts['price'][0][1]:.2f}" for _, seconds in facts["price"])],
        ]),
    ]
