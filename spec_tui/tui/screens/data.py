"""The datastores: what is in them, which are searched for the next answers, and how far builds have come."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.events import Key
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from engines.datastores.datastore_events import Built
from engines.errors import SpecError
from engines.hub.download_progress import in_bytes, in_time
from engines.report.events import Ready
from engines.report.wording import counted
from spec_tui.present.datastore_text import source_words
from spec_tui.present.on_screen import failure
from spec_tui.present.progress_text import amount, amount_done, rate_and_time_left
from spec_tui.present.text import in_column, one_line, wrap
from spec_tui.present.token_styles import ABSENT, BUSY, PRESENT, WAITING
from spec_tui.session import shell_lines as command
from spec_tui.session.datastore_jobs import DatastoreJobs, Refused
from spec_tui.session.settings import FIT_LATER, ChatSettings, stores
from spec_tui.tui.actions import Action
from spec_tui.tui.screens.modal import Box, DescribedList, DescribedModal, Description, fact
from spec_tui.tui.widgets.strip_panel import gauge

if TYPE_CHECKING:
    from engines.datastores.building.build_spec import BuildSpec
    from engines.datastores.storage.catalog import CatalogEntry
    from spec_tui.session.chat_session import ChatSession

INTERVAL = 0.1  # seconds between two checks for changes
WIDTH = 32  # columns of the facts, before the screen is laid out
BAR, TITLE = 24, 11  # columns
NONE = """There are no datastores yet.

n builds one: from files, the standard library of Python, or the model's own answers."""


@dataclass(frozen=True, slots=True)
class DatastoreRow:
    """A line of the list.

    Attributes:
        entry: None for a datastore that is built when it is first searched, or whose build has just begun.
        unfinished: a build that is running or was interrupted.
        spec: of an unfinished build, None if it is not known.
    """

    name: str
    entry: CatalogEntry | None = None
    unfinished: bool = False
    spec: BuildSpec | None = None

    @property
    def id(self) -> str:
        return unfinished_id(self.name) if self.unfinished else self.name

    def is_running(self, jobs: DatastoreJobs) -> bool:
        """Whether this is the running build."""
        return self.unfinished and jobs.builds is not None and jobs.builds.name == self.name

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return self.entry.size if self.entry is not None else 0


def unfinished_id(name: str) -> str:
    """Id of the row of a build; no datastore can have this name."""
    return f"{name}.partial"


def list_rows(session: ChatSession) -> dict[str, DatastoreRow]:
    """The rows by id: datastores that can be searched, in the engine's order; then all others; then builds."""
    from engines.datastores.building.build_spec import STANDARD_LIBRARY, unfinished_build
    from engines.datastores.storage import catalog

    listed = catalog.listing()
    builds = {e.name: DatastoreRow(e.name, e, True, unfinished_build(e.name)) for e in listed if e.unfinished}
    if (spec := session.datastore_jobs.builds) is not None:
        builds[spec.name] = DatastoreRow(spec.name, None, True, spec)
    complete = {e.name: DatastoreRow(e.name, e) for e in listed if not e.unfinished}
    offered = {STANDARD_LIBRARY} - set(builds)  # it is built when it is searched
    fitting = {name: DatastoreRow(name) for name in stores(session.ready) if name in offered or name in complete}
    return {row.id: row for row in (*(fitting | complete).values(), *builds.values())}


def row_label(row: DatastoreRow, chosen: bool, session: ChatSession) -> Content:
    """The line of the list."""
    word, style = row_state(row, session)
    mark = f"{WAITING if row.unfinished else PRESENT if chosen else ABSENT} "
    kind = "built on demand" if row.entry is None else row.entry.manifest.kind if row.entry.manifest else ""
    return Content.assemble((mark, "$primary"), (in_column(row.name, 21), "" if word else "bold"),
                            (word or kind, style))  # fmt: skip


def row_state(row: DatastoreRow, session: ChatSession) -> tuple[str, str]:
    """Why a datastore cannot be searched, in a word or two ("" if it can), and the style of that."""
    if row.unfinished:
        if row.is_running(session.datastore_jobs):
            return _share(session.datastore_jobs), "$primary"
        return "unfinished", "$warning"
    if row.entry is not None and row.entry.problem:
        return "cannot be used", "bold $error"
    if session.ready is not None and row.name not in stores(session.ready):
        return "does not fit", "$tok-prompt"
    return "", "$tok-prompt"


def _share(jobs: DatastoreJobs) -> str:
    if jobs.work.stopping:
        return "stopping"
    steps = [step for step in jobs.stages.values() if step.total]
    return f"building {steps[-1].done / steps[-1].total * 100:.0f}%" if steps else "building"


def row_keys(row: DatastoreRow | None, session: ChatSession) -> str:
    """What can be done with a row."""
    if session.datastore_jobs.work and session.stuck:
        return "no answer: ctrl+r in the chat restarts the engine · esc closes"
    if session.datastore_jobs.work:
        return "esc stops, progress is kept · d goes back; the build continues"
    if row is None:
        return "n build · esc closes"
    if row.unfinished:
        return "R continue · n build · - remove · c copy command · esc closes"
    gone = "" if row.entry is None or row.entry.shipped else " · - remove"
    if row_state(row, session)[0]:
        return f"enter use marked · n build{gone} · c copy command · esc closes"
    probe = " · / probe" if row.entry is not None else ""
    return f"space choose · enter use · n build{probe}{gone} · c copy · esc closes"


def row_facts(row: DatastoreRow, session: ChatSession, width: int) -> Content:
    """What is known of a row, folded to a width in columns."""
    lines = [Content.assemble((one_line(row.name), "bold")), Content("")]
    if row.is_running(session.datastore_jobs):
        lines, known = [*lines, *_stages(session.datastore_jobs, width), Content("")], _spec_facts(row.spec)
    else:
        known = _unfinished(row) if row.unfinished else facts(row.name, row.entry, session.ready)
    return Content("\n").join([*lines, *[fact(title, words, TITLE, width) for title, words in known]])


def _stages(jobs: DatastoreJobs, width: int) -> list[Content]:
    """The stages of a build so far; the last one with its bar, rate and time left."""
    lines = []
    *ended, last = [*jobs.stages.values()] or [None]
    lines += [Content.assemble(("✓ ", "$success"), (f"{one_line(step.stage)}: ", "$tok-prompt"),
                               amount(step.done, step.unit)) for step in ended]  # fmt: skip
    if last is None:
        return [*lines, Content("starting")]
    lines.append(Content.assemble((f"{BUSY} ", "$primary"), one_line(last.stage)))
    if last.total:
        (filled, _), (track, _) = gauge(last.done / last.total, BAR)
        lines.append(Content.assemble("  ", (filled, "$primary"), (track, "$border")))
    parts = [amount_done(last), *filter(None, rate_and_time_left(last).split(", "))]
    return lines + [Content(line) for words in parts for line in wrap(
        one_line(words), max(12, width), initial_indent="  ", subsequent_indent="  ")]  # fmt: skip


def _unfinished(row: DatastoreRow) -> list[tuple[str, str]]:
    done = ("unfinished", f"{in_bytes(row.size)} done and kept")
    if row.spec is None:
        return [done, ("remedy", "repeat the command that began it, or remove it with -")]
    return [done, *_spec_facts(row.spec), ("remedy", "R continues it; - removes it")]


def _spec_facts(spec: BuildSpec) -> list[tuple[str, str]]:
    """What is built."""
    known = [("from", ", ".join(spec.sources)), ("kind", spec.kind)]
    known += [("prompts", spec.prompts)] if spec.prompts else []
    return known + ([("limit", counted(spec.limit, "token"))] if spec.limit else [])


def facts(name: str, entry: CatalogEntry | None, ready: Ready | None) -> list[tuple[str, str]]:
    """Name and value of what is known of a datastore; without an entry it is built when it is first searched."""
    kind = stores(ready).get(name)
    fits = "not known before the model is loaded" if ready is None else (
        f"yes: {kind}" if kind else "no: it was built for another tokenizer or model")
    if entry is None:
        return [("contents", "the standard library of this Python; built in seconds when it is searched"),
                ("fits", fits)]
    if entry.manifest is None:
        return [("problem", entry.problem), ("remedy", entry.hint)]
    m = entry.manifest
    known = [
        ("kind", m.kind), ("tokens", f"{m.tokens:,} in {counted(m.documents, 'document')}"),
        ("size", in_bytes(entry.size)), ("vocabulary", f"{m.vocab_size:,} tokens"), ("fits", fits),
        ("built", m.created[:16].replace("T", " ")),
        ("origin", "ships with the program" if entry.shipped else "built by you"),
    ]
    if m.model is not None:
        known[2:2] = [("keys", f"{m.keys:,}, hidden states of {m.model.name}")]
    sources = source_words(m.parameters.get("sources"))
    return known + ([("from", sources)] if sources else [])


class DataScreen(DescribedModal[ChatSettings]):
    """Gives back the settings with the datastores chosen, None if closed."""

    CSS_PATH: ClassVar = ["modal.tcss", "data.tcss"]
    word_here = "datastore"
    PALETTE = "Datastore: "
    ACTIONS = (
        Action(id="data.leave", run="leave", keys="escape", label="Close",
               help="Stop a build and keep its progress; else close"),
        Action(id="data.choose", run="choose", keys="space", label="Choose", help="Choose or deselect this one"),
        Action(id="data.new", run="new", keys="n", label="Build", help="Build a datastore"),
        Action(id="data.resume", run="resume", keys="R", label="Go on", help="Continue an unfinished build"),
        Action(id="data.probe", run="probe", keys="slash", label="Probe",
               help="What would be drafted after a text, and from where"),
        Action(id="data.remove", run="remove", keys="minus,delete", label="Remove",
               help="Delete it (press twice); stop a build"),
        Action(id="data.copy", run="copy", keys="c", label="Copy", help="Copy the equivalent command line"),
        Action(id="data.close", run="close", keys="d,q", label="Close", palette="",
               help="Back to the chat; a build continues"),
    )

    def __init__(self, session: ChatSession) -> None:
        super().__init__()
        self.session, self.datastore_jobs = session, session.datastore_jobs
        self.chosen = list(session.settings.datastores)
        self.rows: dict[str, DatastoreRow] = {}
        self._to_remove = ""  # by a second press
        self._seen: tuple = ()
        self._drawn = -1
        self._reported: object = self.datastore_jobs.ended

    # -- building and drawing ---------------------------------------------------------------------
    def compose(self) -> ComposeResult:
        with Box("datastores", ""):
            with Horizontal(id="pair"):
                yield DescribedList(id="stores")
                yield Description()
            yield Static("", id="chosen", markup=False)

    def on_mount(self) -> None:
        self.listed.focus()
        self._draw_chosen()
        self._update()
        if self.session.phase == "ready":
            self.datastore_jobs.refresh()  # other programs may have built some
        self.set_interval(INTERVAL, self._update)
        self.on_resize()  # what is drawn before there is a layout has no width

    def _update(self) -> None:
        """Draw what has changed. The disk is read when a job has ended, not at every step."""
        work, ended = self.datastore_jobs.work, self.datastore_jobs.ended
        seen = (self.session.ready, work, id(ended), self.session.stuck)
        if seen != self._seen:
            if self._seen and seen[0] is not self._seen[0]:
                if not self._to_remove:  # else what removes it must stay in sight
                    self._draw_chosen()
                if isinstance(ended, Built) and ended.name in set(stores(seen[0])) - set(stores(self._seen[0])):
                    self._reported = None  # it is known to the engine only now: say once more how it is chosen
            self._seen = seen
            self._list()
            self.chosen = [name for name in self.chosen if name in self.rows]
        if ended is not None and ended is not self._reported:
            self._reported = ended
            self._report_end(ended)
        if self._drawn != self.datastore_jobs.changes:
            self._drawn = self.datastore_jobs.changes
            self._draw_build()

    def _list(self, at: str | None = None) -> None:
        """List the rows again; the same row stays highlighted, or ``at`` is."""
        here, before = at or self.here, self.listed.highlighted or 0
        self.rows = list_rows(self.session)
        self.listed.clear_options()
        self.listed.add_options([Option(self._label(row), id=row.id) for row in self.rows.values()])
        if not self.rows:
            self.describe(NONE)
        elif here in self.rows:
            self.listed.highlighted = list(self.rows).index(here)
        else:
            self.listed.highlighted = min(before, len(self.rows) - 1)
        self._draw_hint()

    def _label(self, row: DatastoreRow) -> Content:
        return row_label(row, row.name in self.searched and not row.unfinished, self.session)

    @property
    def searched(self) -> tuple[str, ...]:
        """The datastores that the next answer searches with what is chosen here."""
        return replace(self.session.settings, datastores=tuple(self.chosen)).searched(self.session.ready)

    def _draw_build(self) -> None:
        row = next((row for row in self.rows.values() if row.is_running(self.datastore_jobs)), None)
        if row is not None:
            self.listed.replace_option_prompt(row.id, self._label(row))
            if self.here == row.id:
                self._draw_about(row)

    def _draw_about(self, row: DatastoreRow) -> None:
        panel = self.query_one("#about", Static)
        panel.update(row_facts(row, self.session, panel.size.width or WIDTH))

    @property
    def row(self) -> DatastoreRow | None:
        """The one under the cursor."""
        return self.rows.get(self.here or "")

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        if (row := self.rows.get(event.option.id)) is not None:
            self._draw_about(row)
            self._draw_hint()

    def _draw_hint(self) -> None:
        self.query_one(Box).show_keys(row_keys(self.row, self.session))

    def _draw_chosen(self) -> None:
        settings = self.session.settings
        names = ", ".join(self.searched)
        if not names:
            if self.session.ready is None:
                self._say(FIT_LATER)
            elif stores(self.session.ready):
                self._say("no datastore is searched yet: space chooses one, n builds one")
            else:
                self._say("no datastore fits the model: n builds one")
            return
        names += "" if self.chosen else " (the default)"
        engine = settings.resolved(self.session.ready)
        less = "" if settings.retrieves(self.session.ready) else f"; {engine} searches none, rest does (ctrl+e)"
        self._say(f"the next answers search {names}{less}")

    def _say(self, words: str, wrong: bool = False) -> None:
        self.tell("#chosen", one_line(words), wrong)

    def _report_end(self, ended: object) -> None:
        """How a build or a removal ended."""
        self._list(ended.name if isinstance(ended, Built) else None)
        if isinstance(ended, Built):
            way = "the next answers search it" if ended.name in self.searched else "space chooses it"
            self._say(f"{ended.name} is built, in {in_time(ended.seconds)}: {way}, / probes it")
        elif not isinstance(ended, Refused):
            self._say(f"removed {ended.removed}")
        elif ended.do != "estimate":
            stopped = ended.kind == "cancelled"
            left = any(row.unfinished and row.name == ended.name for row in self.rows.values())
            way = "R continues it" if left else "nothing was built yet"
            self._say(f"{ended.message}: {way}" if stopped else failure(ended), wrong=not stopped)

    def on_resize(self) -> None:
        self.call_after_refresh(lambda: self.row and self._draw_about(self.row))

    # -- what keys do -----------------------------------------------------------------------------
    def on_key(self, event: Key) -> None:
        if event.key not in ("minus", "delete") and self._to_remove:
            self._to_remove = ""
            self._draw_chosen()

    def action_leave(self) -> None:
        if self.datastore_jobs.work and not self.session.stuck:
            self._stop()
        else:
            self.dismiss(None)

    def _stop(self) -> None:
        self.session.cancel()
        self._say(f"stopping {self.datastore_jobs.work.command.spec.name} after this step; its progress is kept")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Use the chosen datastores."""
        try:
            self.dismiss(self.session.settings.with_datastores(self.chosen, self.session.ready))
        except SpecError as error:
            self._say(failure(error), wrong=True)

    def action_choose(self) -> None:
        row = self.row
        if row is None:
            return
        state, _ = row_state(row, self.session)
        if row.name in self.searched and not row.unfinished:
            if len(self.searched) == 1:
                self._say(f"only {row.name} is searched: choose another one first")
                return
            self.chosen = [name for name in self.searched if name != row.name]
        elif state:
            self._refuse(row, state)
            return
        else:
            self.chosen = [*self.searched, row.name]
        default = replace(self.session.settings, datastores=()).searched(self.session.ready)
        if set(self.chosen) == set(default):
            self.chosen = []  # so that it follows another model
        self._list()
        self._draw_chosen()

    def _ready(self) -> bool:
        """Whether the engine is free; if not, say why."""
        if self.session.phase != "ready":
            self._say("the model is not loaded: a datastore is built for its tokenizer", wrong=True)
        elif self.session.busy:
            still = self.session.still
            other = f"{still.partition(':')[0]}: wait for it, or stop it in the chat"  # esc closes this screen then
            self._say(still if self.datastore_jobs.work else other, wrong=True)
        return self.session.phase == "ready" and not self.session.busy

    def action_new(self) -> None:
        from spec_tui.tui.screens.build import BuildScreen

        if self._ready():
            row = self.row
            offered = row is not None and row.entry is None and not row.unfinished
            self.app.push_screen(BuildScreen(self.session, row.name if offered else ""), self._start_build)

    def _start_build(self, wanted: tuple[BuildSpec, bool] | None) -> None:
        if wanted is not None:
            self._build(*wanted)

    def _build(self, spec: BuildSpec, fresh: bool) -> None:
        self.datastore_jobs.build(spec, fresh)
        self._update()
        self.listed.highlighted = list(self.rows).index(unfinished_id(spec.name))
        self._say(f"building {spec.name}: the chat can answer again once that is done")

    def action_resume(self) -> None:
        row = self.row
        if row is None or not row.unfinished or row.is_running(self.datastore_jobs):
            self._say("R continues an unfinished build; this one is complete")
        elif row.spec is None:
            self._say("the settings of this build are not known: repeat its command, or remove it with -", wrong=True)
        elif self._ready():
            self._build(row.spec, fresh=False)

    def _refuse(self, row: DatastoreRow, state: str) -> None:
        """Say why a datastore cannot be searched."""
        problem = "" if row.unfinished or row.entry is None else row.entry.problem
        self._say(f"{row.name} cannot be searched: {problem or state}", wrong=True)

    def action_probe(self) -> None:
        from spec_tui.tui.screens.probe import ProbeScreen

        row = self.row
        if row is None:
            return
        state, _ = row_state(row, self.session)
        if state:
            self._refuse(row, state)
        elif row.entry is None:
            self._say(f"{row.name} is built when it is first searched; n builds it now")
        elif self._ready():
            self.app.push_screen(ProbeScreen(self.session, row.name))

    def action_remove(self) -> None:
        row = self.row
        if row is None:
            return
        if row.is_running(self.datastore_jobs):
            self._stop()
        elif row.entry is None or row.entry.shipped:
            why = "is not on the disk: it is built when it is first searched" if row.entry is None else (
                "ships with the program and cannot be removed")
            self._say(f"{row.name} {why}")
        elif self._to_remove != row.id:
            self._to_remove = row.id
            both = sum(other.name == row.name for other in self.rows.values()) > 1
            what = f"{row.name} and its unfinished build" if both else f"{row.name} ({in_bytes(row.size)})"
            self._say(f"- again removes {what}; any other key keeps it", wrong=True)
        else:
            self._to_remove = ""
            self._remove(row.name)

    def _remove(self, name: str) -> None:
        """The engine removes it, because it may have it open; without a loaded model this process does."""
        if self.session.phase == "loading" or self.session.busy:
            self._ready()
        elif self.session.phase == "ready":
            self.datastore_jobs.remove(name)
        else:
            from engines.datastores.storage import catalog

            try:
                catalog.remove(name)
                self._say(f"removed {name}")
            except SpecError as error:
                self._say(failure(error), wrong=True)
            self._list()

    def action_copy(self) -> None:
        row, load = self.row, self.session.load_request
        if row is not None and row.spec is not None:
            line = command.build_line(row.spec, load)
        else:
            line = command.chat_line([n for n in self.chosen if n in stores(self.session.ready)], load)
        self.app.copy_to_clipboard(line)
        self._say(f"copied: {line}")
