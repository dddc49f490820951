"""Answers without a screen: a request a line on stdin, its clocks on stdout, both as JSON (tools/benches/chat.py)."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from engines.hub.known_models import KNOWN
from spec_tui.session.environment import prepare_this_process

# smollm2 writes tokens more slowly than the screen looks for events
MODEL = "smollm2" if KNOWN["smollm2"].present else "sample"


def main() -> None:
    prepare_this_process()
    from engines import Request, load
    from engines.report import encoding

    runtime = load(model=MODEL, threads=-1)  # as the application loads
    print(json.dumps({"threads": runtime.ready.threads, "backend": runtime.ready.backend}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(runtime, encoding.build(Request, json.loads(line)))), flush=True)


def answer(runtime, request) -> dict:
    """A run, by the rounds' own times and by the clock of whoever reads its events, from the first token on."""
    from engines.report.events import Prefilled, Round
    from engines.report.metrics import Metrics

    metrics = Metrics()
    for event in runtime.run(request):
        if isinstance(event, Prefilled):
            first = time.perf_counter(), time.process_time()
        elif isinstance(event, Round):
            last = time.perf_counter(), time.process_time()
        metrics = metrics.add(event)
    return {
        "tokens": metrics.new_tokens - 1, "own_seconds": metrics.decode_seconds, "seconds": last[0] - first[0],
        "engine_cpu": last[1] - first[1],
    }


if __name__ == "__main__":
    main()
