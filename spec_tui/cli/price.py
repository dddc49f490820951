"""``spec-tui price``: what verification costs here, and the acceptance from which drafts are faster."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from engines.cost.curve import CostCurve
from engines.cost.speedup_model import SpeedupModel
from engines.errors import UsageProblem
from spec_tui.cli.failures import INTERRUPTED, Interrupt
from spec_tui.cli.option_groups import Format, ModelOrServerOptions, OutputFormat
from spec_tui.cli.run import load_decoder
from spec_tui.present.served_price import WHAT_IT_IS
from spec_tui.present.text import one_line

if TYPE_CHECKING:
    from engines.servers.served_model import ServedModel

_LENGTHS = (1, 3, 7, 15, 31, 63)  # drafted tokens: with the root as many rows as t(n) was measured at
_FRESH = "Measure again, even if a measurement is stored. Texts under the rejection law may then change."


def price(
    fresh: Annotated[bool, Option("--fresh", help=_FRESH)] = False,
    format: OutputFormat = Format.text,
    *,
    models: ModelOrServerOptions,
) -> int:
    """The price of verification: t(n), the time of a forward pass over n tokens, and the acceptance
    from which drafting is faster.

    t(n) is measured when a model is loaded for the first time, and kept; --fresh measures it again. What
    follows from it for drafts is a forecast. In llama.cpp, with --backend or --server, it is measured from outside:
    by what the server says that it took to read n new tokens.
    """
    load = models.load
    served = load.server is not None or load.backend
    if served and fresh:
        raise UsageProblem("--fresh would change nothing here", "a server's t(n) is measured each time, and not kept")
    decoder = load_decoder(load)
    if served:
        return _from_outside(decoder, format)
    if fresh:
        decoder.measure_price()
    facts = facts_of(decoder.ready)
    print(json.dumps(facts) if format is Format.json else "\n".join(lines(facts)))
    return 0


def _from_outside(server: ServedModel, format: Format) -> int:
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
    print(json.dumps(facts) if format is Format.json else "\n".join(
        [*_head(facts, "tokens read, n"), "", *wrap(WHAT_IT_IS, 80)]))
    return 0


def facts_of(ready) -> dict[str, Any]:
    """The object of ``--format json``; seconds, and shares between 0 and 1."""
    curve = CostCurve(ready.price)
    most = min(_LENGTHS[-1], ready.context_limit - 2)
    drafters = {"lookup, drafting for next to nothing": SpeedupModel(curve, most=most)}
    if ready.draft_price:
        token = ready.draft_price[0][1]
        drafters["draft model, a chain"] = SpeedupModel(curve, token, token, most=most)
    return {
        "model": ready.model, "dtype": ready.dtype, "device": ready.device, "backend": ready.backend,
        "threads": ready.threads, "draft_model": ready.draft_model,
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
    """The same for people, at most 80 columns."""
    out = _head(facts)
    if facts["draft_price"]:
        out += [_row("draft model, ms", [f"{seconds * 1e3:.2f}" for _, seconds in facts["draft_price"]])]
    for name, drafts in facts["drafts"].items():
        sizes = drafts["sizes"]
        out += [
            "",
            f"forecast, {name}: at most {drafts['at_best']:.2f}x",
            _row("tokens drafted", [f"{size['tokens']}" for size in sizes]),
            _row("break-even tokens", [f"{size['needs']:.2f}" for size in sizes]),
            _row("break-even acceptance", [_share(size["acceptance_needed"]) for size in sizes]),
        ]
    return out


def _head(facts: dict[str, Any], rows: str = "tokens verified, n") -> list[str]:
    """The model, and t(n) of so many ``rows``."""
    name = "/".join(Path(facts["model"]).parts[-2:])
    threads = "not disclosed" if facts["threads"] is None else facts["threads"]
    return [
        one_line(f"{name}, {facts['dtype']} on {facts['device']}", 80),
        one_line(f"forward pass: {facts['backend']}; threads: {threads}", 80),
        "",
        _row(rows, [f"{n}" for n, _ in facts["price"]]),
        _row("t(n), ms", [f"{seconds * 1e3:.2f}" for _, seconds in facts["price"]]),
        _row("t(n) / t(1)", [f"{seconds / facts['price'][0][1]:.2f}" for _, seconds in facts["price"]]),
    ]


def _row(name: str, cells: list[str]) -> str:
    return f"  {name:<22}" + "".join(f"{cell:>8}" for cell in cells)


def _share(value: float | None) -> str:
    return "never" if value is None else f"{value:.0%}"
