"""A datastore that can be built at once, offered when an engine is chosen that finds none to search."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from spec_tui.present.on_screen import failure
from spec_tui.present.progress_text import estimate_parts, progress_line
from spec_tui.present.text import one_line
from spec_tui.tui.actions import Action
from spec_tui.tui.screens.build import INTERVAL
from spec_tui.tui.screens.modal import Box, SpecModal

if TYPE_CHECKING:
    from spec_tui.session.chat_session import ChatSession


class OfferedDatastore(SpecModal["BuildSpec"]):
    """Gives back what to build, None if it is not wanted.

    Args:
        engine: title of the engine that would search it.
        name: of the datastore, which is also its source.
    """

    CSS_PATH: ClassVar = ["modal.tcss", "build.tcss"]
    word_here = "datastore"
    ACTIONS = (
        Action(id="offered.build", run="build", keys="enter", label="Build", footer=True,
               help="Build the datastore that is offered"),
    )

    def __init__(self, session: ChatSession, engine: str, name: str) -> None:
        super().__init__()
        from engines.datastores.building.build_spec import BuildSpec

        self.session, self.jobs, self._engine = session, session.datastore_jobs, engine
        self._spec, self._drawn = BuildSpec(name, (name,)), -1

    def compose(self) -> ComposeResult:
        with Box("build it now?", "enter builds it · esc skips it"):
            yield Static(f"{self._engine} searches a datastore, and none fits this model. {self._spec.name} can be "
                         f"built at once, from the standard library of your Python.\n", markup=False)
            yield Static("", id="takes", markup=False)

    def on_mount(self) -> None:
        self.jobs.estimate(self._spec)
        self._draw()
        self.set_interval(INTERVAL, self._draw)

    def _draw(self) -> None:
        if self._drawn == self.jobs.changes:
            return
        self._drawn, work, found = self.jobs.changes, self.jobs.work, self.jobs.estimated
        if work is not None:
            words = progress_line(self.jobs.step) if self.jobs.step else "estimating"
        elif found is not None:
            words = " · ".join(estimate_parts(found.estimate))
        else:
            ended = self.jobs.ended
            words = failure(ended) if ended is not None else ""
        self.query_one("#takes", Static).update(Content.styled(one_line(words), "bold"))

    def action_build(self) -> None:
        if not self.jobs.work:
            self.dismiss(self._spec)

    def action_close(self) -> None:
        if self.jobs.work:
            self.session.cancel()
        self.dismiss(None)
