"""Papers' tables: what each shows, and its rows as lanes of a race."""

from __future__ import annotations

from textual.content import Content

from engines.reproduce.entry import PaperEntry, shipped
from spec_tui.session.chat_session import ChatSession
from spec_tui.tui.race_controller import not_raced
from spec_tui.tui.screens.modal import ListScreen


class PapersScreen(ListScreen[str]):
    """Gives back the name of an entry, None if closed.

    Args:
        first: name of the entry to begin on; "" is the first one.
        session: of the engine that could race its rows; None where there is none.
    """

    word_here = "paper's table"

    def __init__(self, first: str = "", session: ChatSession | None = None) -> None:
        self._names = list(shipped())
        keys = "enter takes its rows as lanes · " * (session is not None) + "page down reads on · esc closes"
        why = {name: not_raced(entry, session) if session is not None else "" for name, entry in shipped().items()}
        wide = max(map(len, self._names)) + 2
        super().__init__(
            "papers' tables", keys,
            [Content.assemble((name, "$tok-prompt strike" if why[name] else ""),
                              (" " * (wide - len(name)) + entry.tables[0], "$tok-prompt"))
             for name, entry in shipped().items()],
            [_about(name, entry, why[name]) for name, entry in shipped().items()],
            self._names.index(first) if first else 0)

    def chosen(self, number: int) -> None:
        self.dismiss(self._names[number])


def _about(name: str, entry: PaperEntry, why: str) -> Content:
    claims = "\n".join(f"· {claim.says}" for claim in entry.claims)
    why = why or (f"cannot be run here: {entry.cannot}" if entry.cannot else "")
    limits = "" if entry.cannot else "Not as in the paper: " + "; ".join(
        entry.differs or ("the model, the machine and the prompts",))
    command = f"spec-tui reproduce {name}" + ("" if entry.cannot else " --quick")
    where = f"{entry.paper}, {', '.join(entry.tables)}"
    parts = [(f"{entry.title}.", "bold"), (where, "$tok-prompt"), why and (f"It {why}", "$warning"), entry.shows,
             claims, limits, (command, "$tok-prompt")]
    return Content.assemble(*(piece for part in parts if part for piece in (part, "\n\n")))
