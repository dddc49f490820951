"""A folder with all forms of a report, and its plots."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from engines.errors import RunFailed, UsageProblem
from engines.folders import make_folder, read_file, room_or, write_whole
from spec_tui.export.plots import Plot, draw
from spec_tui.export.report import WRITERS, Report

RESULTS = "results.json"


class ResultsFolder:
    """A folder to write reports of one kind into. Files of an earlier report are replaced, no others.

    Args:
        schema: of the kind, as its JSON has it.
        names: of the other files, by format.
        plots: names of plots.

    Raises:
        UsageProblem: it cannot be made, or holds files of these names that no report of this kind wrote.
    """

    def __init__(self, path: Path, schema: str, names: Mapping[str, str], plots: tuple[str, ...]) -> None:
        self.path, self._names, self._plots = path, {"json": RESULTS, **names}, plots
        taken = [name for name in (*self._names.values(), *plots) if os.path.exists(path / name)]
        if taken and not _is_of(path / RESULTS, schema):
            wrote = schema.rpartition(" ")[0]
            raise UsageProblem(f"{path / taken[0]} exists and was not written by {wrote}, so it is not overwritten",
                               "name another folder")
        make_folder(path)

    def write(self, report: Report, *plots: Plot | None) -> list[str]:
        """Write it all, with a plot for each name that has one. Returns the names of the files. Raises RunFailed: the
        disk is full or gone."""
        drawn = {name: plot for name, plot in zip(self._plots, plots) if plot is not None}
        try:
            for form, name in self._names.items():
                write_whole(self.path / name, f"{WRITERS[form](report)}\n".encode())
            for name in self._plots:
                (self.path / name).unlink(missing_ok=True)  # an earlier report's may have no counterpart now
            for name, plot in drawn.items():
                write_whole(self.path / name, draw(plot))
        except OSError as error:
            raise RunFailed(f"{self.path} cannot be written: {error.strerror}",
                            room_or(error, "name another folder")) from None
        return [*self._names.values(), *drawn]


def _is_of(results: Path, schema: str) -> bool:
    try:
        found = json.loads(read_file(results))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and str(found.get("schema", "")).startswith(schema.rpartition(" ")[0])
