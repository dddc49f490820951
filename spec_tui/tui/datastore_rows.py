"""The Data screen in words: its rows, what is known of each datastore, how far a build has come."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

from textual.content import Content

from engines.hub.download_progress import in_bytes
from engines.report.events import Ready
from spec_tui.present.progress import amount, amount_done, rate_and_time_left
from spec_tui.present.text import one_line
from spec_tui.session.settings import stores
from spec_tui.tui.widgets.strip_panel import bar

if TYPE_CHECKING:
    from engines.datastores.building.build_spec import BuildSpec
    from engines.datastores.storage.catalog import CatalogEntry
    from spec_tui.session.chat_session import ChatSession
    from spec_tui.session.datastore_jobs import DatastoreJobs

NONE = """There are no datastores yet.

n builds one: from files, the standard library of Python, or the model's own answers."""
BAR, TITLE = 24, 11  # columns


@dataclass(frozen=True, slots=True)
class DatastoreRow:
    """A line of the list.

    Attributes:
        entry: None for a datastore that is built when it is used, or whose build has just begun.
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
        work = jobs.work
        return self.unfinished and work is not None and work.do == "build" and work.spec.name == self.name

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return self.entry.size if self.entry is not None else 0


def unfinished_id(name: str) -> str:
    """Id of the row of a build; no datastore can have this name."""
    return f"{name}.partial"


def rows(sitting: ChatSession) -> dict[str, DatastoreRow]:
    """The rows by id: datastores that can be searched, in the engine's order; then all others; then builds."""
    from engines.datastores.building.build_spec import STANDARD_LIBRARY, unfinished_build
    from engines.datastores.storage import catalog

    listed = catalog.listing()
    builds = {e.name: DatastoreRow(e.name, e, True, unfinished_build(e.name)) for e in listed if e.unfinished}
    work = sitting.stock.work
    if work is not None and work.do == "build":
        builds[work.spec.name] = DatastoreRow(work.spec.name, None, True, work.spec)
    complete = {e.name: DatastoreRow(e.name, e) for e in listed if not e.unfinished}
    offered = {STANDARD_LIBRARY} - set(builds)  # it is built when it is searched
    fitting = {name: DatastoreRow(name) for name in stores(sitting.ready) if name in offered or name in complete}
    return {row.id: row for row in (*(fitting | complete).values(), *builds.values())}


def label(row: DatastoreRow, chosen: bool, sitting: ChatSession) -> Content:
    """The line of the list."""
    word, style = state(row, sitting)
    mark = "◌ " if row.unfinished else "● " if chosen else "○ "
    kind = "built when used" if row.entry is None else row.entry.manifest.kind if row.entry.manifest else ""
    return Content.assemble((mark, "$primary"), (f"{one_line(row.name, 20):<20} ", "" if word else "bold"),
                            (word or kind, style))  # fmt: skip


def state(row: DatastoreRow, sitting: ChatSession) -> tuple[str, str]:
    """Why a datastore cannot be searched, in a word or two ("" if it can), and the style of that."""
    if row.unfinished:
        if row.is_running(sitting.stock):
            return _share(sitting.stock), "$primary"
        return "unfinished", "$warning"
    if row.entry is not None and row.entry.problem:
        return "damaged", "bold $error"
    if sitting.ready is not None and row.name not in stores(sitting.ready):
        return "does not fit", "$tok-prompt"
    return "", "$tok-prompt"


def _share(stock: DatastoreJobs) -> str:
    if stock.work.stopping:
        return "stopping"
    steps = [step for step in stock.work.stages.values() if step.total]
    return f"building {steps[-1].done / steps[-1].total * 100:.0f} %" if steps else "building"


def keys(row: DatastoreRow | None, sitting: ChatSession) -> str:
    """What can be done with a row."""
    if sitting.stock.busy:
        return "esc stops, what is done stays · d back to the chat, it goes on"
    if row is None:
        return "n build · esc close"
    if row.unfinished:
        return "r go on · n build · x remove · c copy command · esc close"
    gone = "" if row.entry is None or row.entry.shipped else " · x remove"
    if state(row, sitting)[0]:
        return f"enter use marked · n build{gone} · c copy command · esc close"
    probe = " · p probe" if row.entry is not None else ""
    return f"space choose · enter use · n build{probe}{gone} · c copy · esc"


def about(row: DatastoreRow, sitting: ChatSession, width: int) -> Content:
    """What is known of a row, folded to a width in columns."""
    lines = [Content.assemble((one_line(row.name), "bold")), Content("")]
    if row.is_running(sitting.stock):
        lines, known = [*lines, *_stages(sitting.stock, width), Content("")], _spec_facts(row.spec)
    else:
        known = _unfinished(row) if row.unfinished else facts(row.name, row.entry, sitting.ready)
    return Content("\n").join([*lines, *[_fact(title, words, width) for title, words in known]])


def _fact(title: str, words: str, width: int) -> Content:
    folded = wrap(one_line(words), max(12, width - TITLE), break_on_hyphens=False) or [""]
    return Content.assemble((f"{title:<{TITLE}}", "$tok-prompt"), f"\n{'':{TITLE}}".join(folded))


def _stages(stock: DatastoreJobs, width: int) -> list[Content]:
    """The stages of a build so far; the last one with its bar, rate and time left."""
    lines = []
    *ended, last = [*stock.work.stages.values()] or [None]
    lines += [Content.assemble(("✓ ", "$success"), (f"{one_line(step.stage)}: ", "$tok-prompt"),
                               amount(step.done, step.unit)) for step in ended]  # fmt: skip
    if last is None:
        return [*lines, Content("the engine begins")]
    lines.append(Content.assemble(("● ", "$primary"), one_line(last.stage)))
    if last.total:
        filled = bar(last.done / last.total, BAR)
        track = "·" * (BAR - len(filled))
        lines.append(Content.assemble("  ", (filled, "$primary"), (track, "$border")))
    parts = [amount_done(last), *filter(None, rate_and_time_left(last).split(", "))]
    return lines + [Content(line) for words in parts for line in wrap(
        one_line(words), max(12, width), initial_indent="  ", subsequent_indent="  ")]  # fmt: skip


def _unfinished(row: DatastoreRow) -> list[tuple[str, str]]:
    done = ("unfinished", f"{in_bytes(row.size)} are done, and stay")
    if row.spec is None:
        return [done, ("way out", "repeat the command line it was begun with, or x removes it")]
    return [done, *_spec_facts(row.spec), ("way out", "r goes on from there; x removes it")]


def _spec_facts(spec: BuildSpec) -> list[tuple[str, str]]:
    """What is built."""
    known = [("from", ", ".join(spec.sources)), ("kind", spec.kind)]
    known += [("prompts", spec.prompts)] if spec.prompts else []
    return known + ([("limit", f"{spec.limit:,} tokens")] if spec.limit else [])


def facts(name: str, entry: CatalogEntry | None, ready: Ready | None) -> list[tuple[str, str]]:
    """Name and value of what is known of a datastore; without an entry it is offered but not built yet."""
    kind = stores(ready).get(name)
    fits = "not known before the model is loaded" if ready is None else (
        f"yes: {kind}" if kind else "no: it was built for another tokenizer or model")
    if entry is None:
        return [("contents", "the standard library of this Python; built in seconds when it is searched"),
                ("fits", fits)]
    if entry.manifest is None:
        return [("damaged", entry.problem or "it cannot be read"),
                ("way out", "" if entry.shipped else "x removes it; then build it again")]
    m = entry.manifest
    known = [
        ("kind", m.kind), ("tokens", f"{m.tokens:,} in {m.documents:,} documents"), ("size", in_bytes(m.size)),
        ("vocabulary", f"{m.vocab_size:,} tokens"), ("fits", fits), ("built", m.created[:16].replace("T", " ")),
        ("whose", "ships with the program" if entry.shipped else "yours"),
    ]
    if m.model is not None:
        known[2:2] = [("keys", f"{m.keys:,}, hidden states of {m.model.name}")]
    sources = source_words(m.parameters.get("sources"))
    return known + ([("from", sources)] if sources else [])


def source_words(sources: object) -> str:
    """Where the text of a datastore came from; the manifest may contain anything."""
    if not isinstance(sources, dict):
        return ""
    kind, parts, roots = sources.get("kind"), sources.get("parts"), sources.get("roots")
    if kind == "joined" and isinstance(parts, list):
        return "; ".join(filter(None, map(source_words, parts)))
    if kind == "files" and isinstance(roots, list):
        return f"{', '.join(map(str, roots))}: {sources.get('files')} files"
    if kind == "model-answers":
        how = "greedy" if not sources.get("temperature") else f"temperature {sources['temperature']}"
        return f"the model's answers to {sources.get('prompts')} prompts, {how}"
    hidden = ("digest", "model", "kind")
    words = [f"{k} {value}" for k, value in sources.items() if k not in hidden and value not in ("", [], {}, None)]
    return ", ".join([str(kind), *words])
