"""The folder of a benchmark: everything as JSON, the runs as CSV, the tables as Markdown, plots."""

from __future__ import annotations

import json
from pathlib import Path

from engines.errors import RunFailed, UsageProblem
from spec_tui.cli.bench_output import SCHEMA, Report, as_csv, as_json, markdown
from spec_tui.cli.failures import narrate

RESULTS, RUNS, TABLES = "results.json", "runs.csv", "tables.md"
PLOTS = ("speed-ups.svg", "tasks.svg", "generate.svg")


class Folder:
    """A folder to write a benchmark into. Files of an earlier benchmark are replaced, no others.

    Raises:
        UsageProblem: it cannot be made, or holds files of these names that no benchmark wrote.
    """

    def __init__(self, path: Path) -> None:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageProblem(f"the folder {path} cannot be made: {error.strerror}", "name another") from None
        self._path = path
        taken = [name for name in (RESULTS, RUNS, TABLES, *PLOTS) if (path / name).exists()]
        if taken and not _ours(path / RESULTS):
            raise UsageProblem(
                f"{path / taken[0]} exists and is of no benchmark, so it is not overwritten", "name another folder"
            )

    def write(self, report: Report) -> None:
        """Write it all. Raises RunFailed where the disk is full or gone, or where nothing can be drawn."""
        from spec_tui.cli.bench_plots import draw

        texts = {RESULTS: as_json(report), RUNS: as_csv(report), TABLES: markdown(report)}
        try:
            for name in PLOTS:
                (self._path / name).unlink(missing_ok=True)  # an earlier benchmark's may have no counterpart now
            for name, text in texts.items():
                (self._path / name).write_text(text + "\n", "utf-8", newline="\n")
            drawn = draw(report, self._path, PLOTS)
        except OSError as error:
            raise RunFailed(f"{self._path} cannot be written: {error.strerror}", "name another folder") from None
        narrate(f"wrote {', '.join([*texts, *drawn])} into {self._path}")


def _ours(results: Path) -> bool:
    try:
        found = json.loads(results.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and str(found.get("schema", "")).startswith(SCHEMA.rpartition(" ")[0])
