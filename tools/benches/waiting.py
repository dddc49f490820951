"""How threads wait for each other: forwards of the default model under each policy, alone and beside a busy process."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from benches.rows import Row, shuffled
from benches.shapes import forward_seconds

POLICIES = {"libgomp's own": None, "PASSIVE": "PASSIVE", "ACTIVE": "ACTIVE"}
ROWS = (1, 8)
FORWARDS = 60
CONTEXT = 256
BUSY = "while True: pass"


def bench_waiting(repeats: int) -> list[Row]:
    """Median milliseconds of a forward; one process for each policy and number of threads, by turns. With one thread
    nobody waits."""
    runs = {"1 thread": (1, None)}
    runs |= {f"{os.cpu_count()} threads, {name}": (os.cpu_count(), value) for name, value in POLICIES.items()}
    samples: dict[tuple[str, int, str], list[float]] = {}
    for repeat in range(repeats):
        for name in shuffled(runs, repeat):
            threads, policy = runs[name]
            for rows, beside, seconds in _measured(threads, policy):
                samples.setdefault((name, rows, beside), []).append(seconds * 1e3)
    return [Row(f"{rows} row(s), {name}, {beside}", found, "ms") for (name, rows, beside), found in samples.items()]


def _measured(threads: int, policy: str | None) -> list[tuple[int, str, float]]:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {"OMP_WAIT_POLICY": policy} if policy else {}
    command, here = [sys.executable, "-m", "benches.waiting", str(threads)], Path(__file__).parents[1]
    done = subprocess.run(command, env=environment, cwd=here, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout)


def _forwards(model, rows: int) -> float:
    return statistics.median(forward_seconds(model, rows) for _ in range(FORWARDS))


def main() -> None:
    from engines import load

    model = load(threads=int(sys.argv[1])).target
    model.extend([7 * i % 8000 + 5 for i in range(CONTEXT)])
    found = [(rows, "alone", _forwards(model, rows)) for rows in ROWS]
    busy = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        found += [(rows, "beside a busy process", _forwards(model, rows)) for rows in ROWS]
    finally:
        busy.kill()
        busy.wait()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
