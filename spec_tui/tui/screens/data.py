"""The datastores: what is in them, which are searched for the next answers, and how far builds have come."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.events import Key
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from engines.datastores.events import Built, Refused
from engines.errors import SpecError
from engines.hub.download_progress import in_bytes, in_time
from spec_tui.present.text import one_line
from spec_tui.session import shell_lines as command
from spec_tui.session.settings import ChatSettings, stores
from spec_tui.tui import datastore_rows as shown
from spec_tui.tui.datastore_rows import DatastoreRow, rows
from spec_tui.tui.screens.modal import Box, SpecModal

if TYPE_CHECKING:
    from engines.datastores.building.build_spec import BuildSpec
    from spec_tui.session.chat_session import ChatSession

INTERVAL = 0.1  # seconds between two checks for changes
WIDTH = 32  # columns of the facts, before the screen is laid out


class DataScreen(SpecModal[ChatSettings]):
    """Gives back the settings with the datastores chosen, None if closed."""

    CSS_PATH: ClassVar = ["modal.tcss", "data.tcss"]
    BINDINGS: ClassVar = [
        Binding("escape", "leave", "Close", id="data.leave", tooltip="Stop a build and keep what is done; else close"),
        Binding("space", "choose", "Choose", id="data.choose", tooltip="Search this one, or not"),
        Binding("n", "new", "Build", id="data.new", tooltip="Build a datastore"),
        Binding("r", "resume", "Go on", id="data.resume", tooltip="Go on with an unfinished build"),
        Binding("p", "probe", "Probe", id="data.probe", tooltip="What would be drafted after a text, and from where"),
        Binding("x", "remove", "Remove", id="data.remove", tooltip="Delete it (press twice); stop a build"),
        Binding("c", "copy", "Copy", id="data.copy", tooltip="Copy the command line that does the same"),
        Binding("d,q", "close", "Close", id="data.close", show=False, tooltip="Back to the chat; a build goes on"),
    ]

    def __init__(self, sitting: ChatSession) -> None:
        super().__init__()
        self.sitting, self.stock = sitting, sitting.stock
        self.chosen = list(sitting.settings.datastores)
        self.rows: dict[str, DatastoreRow] = {}
        self._to_remove = ""  # by a second x
        self._seen: tuple = ()
        self._drawn = -1
        self._reported: object = self.stock.ended

    # -- building and drawing ---------------------------------------------------------------------
    def compose(self) -> ComposeResult:
        with Box("datastores", ""):
            with Horizontal(id="pair"):
                yield OptionList(id="stores")
                with VerticalScroll(id="facts", can_focus=False):
                    yield Static("", id="about", markup=False)
            yield Static("", id="chosen", markup=False)

    def on_mount(self) -> None:
        self.listed = self.query_one(OptionList)
        self.listed.focus()
        self._draw_chosen()
        self._update()
        if self.sitting.phase == "ready":
            self.stock.refresh()  # other programs may have built some
        self.set_interval(INTERVAL, self._update)
        self.on_resize()  # what is drawn before there is a layout has no width

    def _update(self) -> None:
        """Draw what has changed. The disk is read when a job has ended, not at every step."""
        work, ended = self.stock.work, self.stock.ended
        seen = (self.sitting.ready, work and (work.do, work.spec.name), id(ended))
        if seen != self._seen:
            self._seen = seen
            self.chosen = [n for n in self.chosen if n != getattr(ended, "removed", "")]
            self._list()
        if ended is not None and ended is not self._reported:
            self._reported = ended
            self._report_end(ended)
        if self._drawn != self.stock.changes:
            self._drawn = self.stock.changes
            self._draw_build()

    def _list(self, at: str | None = None) -> None:
        """List the rows again; the same row stays highlighted, or ``at`` is."""
        here, before = at or self._here(), self.listed.highlighted or 0
        self.rows = rows(self.sitting)
        self.listed.clear_options()
        self.listed.add_options([Option(self._label(row), id=row.id) for row in self.rows.values()])
        if not self.rows:
            self.query_one("#about", Static).update(shown.NONE)
        elif here in self.rows:
            self.listed.highlighted = list(self.rows).index(here)
        else:
            self.listed.highlighted = min(before, len(self.rows) - 1)
        self._draw_hint()

    def _label(self, row: DatastoreRow) -> Content:
        return shown.label(row, row.name in self.chosen and not row.unfinished, self.sitting)

    def _draw_build(self) -> None:
        row = next((row for row in self.rows.values() if row.is_running(self.stock)), None)
        if row is not None:
            self.listed.replace_option_prompt(row.id, self._label(row))
            if self._here() == row.id:
                self._draw_about(row)

    def _draw_about(self, row: DatastoreRow) -> None:
        panel = self.query_one("#about", Static)
        panel.update(shown.about(row, self.sitting, panel.size.width or WIDTH))

    def _here(self) -> str | None:
        at = self.listed.highlighted
        return None if at is None else self.listed.get_option_at_index(at).id

    @property
    def row(self) -> DatastoreRow | None:
        """The one under the cursor."""
        return self.rows.get(self._here() or "")

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        if (row := self.rows.get(event.option.id)) is not None:
            self._draw_about(row)
            self._draw_hint()

    def _draw_hint(self) -> None:
        self.query_one(Box).border_subtitle = Content(shown.keys(self.row, self.sitting))

    def _draw_chosen(self) -> None:
        names = ", ".join(self.chosen) or "those that ship with the program"
        settings = self.sitting.settings
        engine = settings.resolved(self.sitting.ready)
        less = "" if settings.retrieves(self.sitting.ready) else f"; {engine} searches none, rest does (ctrl+e)"
        self._say(f"next answers search {names}{less}")

    def _say(self, words: str, wrong: bool = False) -> None:
        line = self.query_one("#chosen", Static)
        line.update(one_line(words))
        line.set_class(wrong, "wrong")

    def _report_end(self, ended: object) -> None:
        """How a build or a removal ended."""
        self._list(ended.name if isinstance(ended, Built) else None)
        if isinstance(ended, Built):
            self._say(f"{ended.name} is built, in {in_time(ended.seconds)}: space chooses it, p looks into it")
        elif not isinstance(ended, Refused):
            self._say(f"removed {ended.removed}")
        elif ended.do != "estimate":
            stopped = ended.kind == "cancelled"
            left = any(row.unfinished and row.name == ended.name for row in self.rows.values())
            way = ("r goes on from there" if left else "nothing had been done yet") if stopped else ended.hint
            self._say(f"{ended.message}: {way}", wrong=not stopped)

    def on_resize(self) -> None:
        self.call_after_refresh(lambda: self.row and self._draw_about(self.row))

    # -- what keys do -----------------------------------------------------------------------------
    def on_key(self, event: Key) -> None:
        if event.key != "x" and self._to_remove:
            self._to_remove = ""
            self._draw_chosen()

    def action_leave(self) -> None:
        if self.stock.busy:
            self._stop()
        else:
            self.dismiss(None)

    def _stop(self) -> None:
        self.sitting.cancel()
        self._say(f"stopping {self.stock.work.spec.name} at its next step; what is done stays")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Use the chosen datastores."""
        try:
            self.dismiss(self.sitting.settings.with_datastores(self.chosen, self.sitting.ready))
        except SpecError as error:
            self._say(f"{error.message}: {error.hint}", wrong=True)

    def action_choose(self) -> None:
        row = self.row
        if row is None:
            return
        state, _ = shown.state(row, self.sitting)
        if row.name in self.chosen and not row.unfinished:
            self.chosen.remove(row.name)
        elif state:
            verb = "" if state.startswith("does") else "is "
            self._say(f"{row.name} cannot be searched: it {verb}{state}", wrong=True)
            return
        else:
            self.chosen.append(row.name)
        self.listed.replace_option_prompt(row.id, self._label(row))
        self._draw_chosen()

    def _ready(self) -> bool:
        """Whether the engine is free; if not, say why."""
        if self.sitting.phase != "ready":
            self._say("the model is not loaded: a datastore is built for its tokenizer", wrong=True)
        elif self.sitting.busy:
            self._say(f"{self.sitting.still.partition(':')[0]}: wait for it, or stop it in the chat", wrong=True)
        return self.sitting.phase == "ready" and not self.sitting.busy

    def action_new(self) -> None:
        from spec_tui.tui.screens.build import BuildScreen

        if self._ready():
            row = self.row
            offered = row is not None and row.entry is None and not row.unfinished
            self.app.push_screen(BuildScreen(self.sitting, row.name if offered else ""), self._start_build)

    def _start_build(self, wanted: tuple[BuildSpec, bool] | None) -> None:
        if wanted is not None:
            self._build(*wanted)

    def _build(self, spec: BuildSpec, fresh: bool) -> None:
        self.stock.build(spec, fresh)
        self._update()
        self.listed.highlighted = list(self.rows).index(shown.unfinished_id(spec.name))
        self._say(f"building {spec.name}: the chat answers again when it is done")

    def action_resume(self) -> None:
        row = self.row
        if row is None or not row.unfinished or row.is_running(self.stock):
            self._say("r goes on with an unfinished build; this is none")
        elif row.spec is None:
            self._say("what began this build is not known: repeat its command line, or x removes it", wrong=True)
        elif self._ready():
            self._build(row.spec, fresh=False)

    def action_probe(self) -> None:
        from spec_tui.tui.screens.probe import ProbeScreen

        row = self.row
        if row is None:
            return
        state, _ = shown.state(row, self.sitting)
        if state:
            self._say(f"{row.name} cannot be searched: {state}", wrong=True)
        elif row.entry is None:
            self._say(f"{row.name} is not built yet: n builds it")
        elif self._ready():
            self.app.push_screen(ProbeScreen(self.sitting, row.name))

    def action_remove(self) -> None:
        row = self.row
        if row is None:
            return
        if row.is_running(self.stock):
            self._stop()
        elif row.entry is None or row.entry.shipped:
            why = "is not built yet" if row.entry is None else "ships with the program: it stays"
            self._say(f"{row.name} {why}")
        elif self._to_remove != row.id:
            self._to_remove = row.id
            both = sum(other.name == row.name for other in self.rows.values()) > 1
            what = f"{row.name} and its unfinished build" if both else f"{row.name} ({in_bytes(row.size)})"
            self._say(f"x again removes {what}; any other key keeps it", wrong=True)
        else:
            self._to_remove = ""
            self._remove(row.name)

    def _remove(self, name: str) -> None:
        """The engine removes it, because it may have it open; without a loaded model this process does."""
        if self.sitting.phase == "loading" or self.sitting.busy:
            self._ready()
        elif self.sitting.phase == "ready":
            self.stock.remove(name)
        else:
            from engines.datastores.storage import catalog

            try:
                catalog.remove(name)
                self._say(f"removed {name}")
            except SpecError as error:
                self._say(f"{error.message}: {error.hint}", wrong=True)
            self._list()

    def action_copy(self) -> None:
        row, load = self.row, self.sitting.load_request
        if row is not None and row.spec is not None:
            line = command.build_line(row.spec, load)
        else:
            line = command.chat_line([n for n in self.chosen if n in stores(self.sitting.ready)], load)
        self.app.copy_to_clipboard(line)
        self._say(f"copied: {line}")
