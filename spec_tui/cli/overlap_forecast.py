"""What ``spec-tui price --overlap`` says of a recorded run: drafting while the target verifies."""

from __future__ import annotations

from typing import Any

from engines.cost.curve import CostCurve
from engines.cost.overlap import BEYOND, forecasts, widest
from engines.errors import UsageProblem
from engines.report.guess_ranks import guess_ranks
from engines.report.run_state import fold_all
from engines.wire import read_trace
from spec_tui.present.tables import aligned, text_width
from spec_tui.present.text import one_line, wrap
from spec_tui.session.sample_traces import trace_path


def facts_of(name: str) -> dict[str, Any]:
    """The forecast as an object; ``name`` as of ``spec-tui replay``. Raises UsageProblem: there is no such trace, or
    no model drafted in it."""
    run = fold_all(read_trace(trace_path(name)).events)
    started = run.started
    points = started.draft_price or started.head_price if started is not None else ()
    ranks = guess_ranks(run.rounds)
    if not points or not started.price or not any(event.draft_forwards for event in run.rounds):
        raise UsageProblem(f"no model with known times drafted in {name}, so nothing can overlap with verifying",
                           "take a run of draft or eagle; with shape=tree it covers several prepared contexts too")
    price, step, most = CostCurve(started.price), points[0][1], widest(ranks)
    guessed = [rank for rank in ranks if rank is not None]
    return {
        "trace": name, "engine": started.engine, "model": started.model, "step_over_pass": step / price.at(1),
        "ranks": {str(rank): guessed.count(rank) / len(guessed) for rank in range(1, min(most, 10) + 1)},
        "beyond": guessed.count(BEYOND) / len(guessed),
        "rows": [{"prepared": one.prepared, "length": one.length, "rounds": one.rounds, "hits": one.hits,
                  "gain": one.gain, "speed_up": one.speed_up} for one in forecasts(ranks, price, step)],
    }


def lines(facts: dict[str, Any]) -> list[str]:
    """The same for people."""
    shares = ", ".join(f"{share:.0%}" for share in [*facts["ranks"].values()][:4])
    out = [*wrap(one_line(f"{facts['trace']}: {facts['engine']}; a draft forward pass takes "
                          f"{facts['step_over_pass']:.0%} of a target's"), text_width()),
           *wrap(f"the target's token was the drafter's first guess, its second, ... in {shares} of the places; none "
                 f"of them in {facts['beyond']:.0%}", text_width()), ""]
    rows = [["prepared", "length", "rounds", "next was ready", "x taking turns", "x alone"]]
    for row in facts["rows"]:
        rows.append([f"{row['prepared']}", f"{row['length']}", f"{row['rounds']}", f"{row['hits'] / row['rounds']:.0%}",
                     f"{row['gain']:.2f}x", f"{row['speed_up']:.2f}x"])
    return [*out, *aligned(rows), "", *wrap(
        "A forecast: the recorded text in chains of the best length, drafter and target on machines of their own, as "
        "in PEARL (one context prepared) and SSD (several). Rounds that come to a place where nothing was drafted do "
        "not count. A recorded chain covers one prepared context only.", text_width())]
