"""Save the answer as trace, document or recording, or the screen as a picture: the dialog, and the files. In a browser,
where no file can be written, what would be saved is copied."""

from __future__ import annotations

from pathlib import Path

from textual.app import App
from textual.content import Content

from engines.errors import SpecError
from engines.folders import unused, writable_folder, write_whole
from engines.report.run_state import RunState
from engines.report.traces import Trace, written
from spec_tui.export.formats import FORMATS, ExportOptions
from spec_tui.export.svg import portable
from spec_tui.present.on_screen import failure
from spec_tui.session.host_access import HostAccess
from spec_tui.tui.screens.modal import ListScreen

PICTURE = "svg"
_ENDINGS = {"trace": "jsonl"}
CHOICES = {
    "trace": "events of the run and its baseline, for spec-tui replay",
    **{name: form.words for name, form in FORMATS.items()},
    PICTURE: "picture of the screen as it is",
}
"""What there is to choose: name and words."""


class ExportScreen(ListScreen[str]):
    """Gives back a name of ``CHOICES``, None if closed; without an ``answer`` the picture is the only choice."""

    word_here = "trace"

    def __init__(self, answer: bool) -> None:
        self._names = list(CHOICES) if answer else [PICTURE]
        lines = [Content.assemble((f"{n:<7}", "bold"), (CHOICES[n], "$tok-prompt")) for n in self._names]
        enter = "saves a new file" if HostAccess.here().whole else "copies it: no file is saved in a browser"
        super().__init__("export", f"enter {enter} · esc closes", lines)

    def chosen(self, number: int) -> None:
        self.dismiss(self._names[number])


def deliver(app: App, form: str, run: RunState, baseline: RunState | None) -> str:
    """Save an answer, or the screen, in a form of ``CHOICES``; copy it where no file can be written. Returns what there
    is to say."""
    try:
        if form == PICTURE:
            what, data, ending = "screen", portable(app.export_screenshot(title="spec-tui")).encode(), form
        else:
            what, (data, ending) = "answer", document(run, form, baseline)
        if HostAccess.here().whole:
            return f"saved the {what} as {save(data, ending)}"
    except OSError as error:
        return f"could not save it: {error.strerror or error}"
    except SpecError as error:
        return failure(error)
    app.copy_to_clipboard(data.decode())
    return f"copied the {what}: paste it into a file that ends in .{ending}"


def document(run: RunState, name: str, baseline: RunState | None = None) -> tuple[bytes, str]:
    """An answer in a form of ``CHOICES`` that is not the picture, and the file's ending; a trace with the baseline that
    it was compared with."""
    events = tuple(run.events)
    if name == "trace":
        measured = baseline.events if baseline is not None and baseline is not run else ()
        return written(events) + written(measured), _ENDINGS[name]
    return FORMATS[name].make(Trace(events), "answer", ExportOptions()).encode("utf-8", "backslashreplace"), name


def save(data: bytes, ending: str, folder: Path | None = None) -> Path:
    """Write a file where there is none yet: in the current folder, else the documents folder. Returns its path.

    Raises:
        OSError: it cannot be written.
        UsageProblem: the session has no access to this machine.
    """
    HostAccess.here().need("saving a file")
    folder = folder or writable_folder()
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(path := unused(folder, "spec-tui", f".{ending}"), data, replace=False)
    return path
