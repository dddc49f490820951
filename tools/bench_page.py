"""The tables and plots of docs/benchmark.md: a full run of spec-tui bench on smollm2.

    python tools/bench_page.py [flags of spec-tui bench]

Some fifteen minutes on two cores; the machine should have nothing else to do. ctrl+c leaves the page as it was.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pages

DOCS = Path(__file__).resolve().parent.parent / "docs"
FLAGS = ("--model", "smollm2", "--max-new-tokens", "64", "--repeats", "2", "--format", "csv")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "spec_tui", "bench", *FLAGS, *sys.argv[1:], "--out", folder]
        try:
            done = subprocess.run(command, stdout=subprocess.DEVNULL)
        except KeyboardInterrupt:
            raise SystemExit("interrupted: the page is as it was") from None
        tables = Path(folder) / "tables.md"
        if done.returncode != 0 or not tables.exists():  # a cut-short run is none
            raise SystemExit(f"spec-tui bench ended with {done.returncode}: the page is as it was")
        _title, _, rows = tables.read_text("utf-8").partition("\n")  # the page has one of its own
        pages.put(DOCS / "benchmark.md", "tables", rows.strip())
        for plot in Path(folder).glob("*.svg"):
            (DOCS / f"benchmark-{plot.name}").write_bytes(plot.read_bytes())
    print(f"wrote {DOCS.name}/benchmark.md and its plots")


if __name__ == "__main__":
    main()
