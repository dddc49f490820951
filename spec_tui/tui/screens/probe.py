"""What would be drafted from a datastore after a text: looked up while the text is typed, as in a run."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Input, Static

from engines.datastores.datastore_events import Probed, ProbeDraft
from engines.methods.options import Option
from engines.report.events import Emitted, Round
from engines.report.run_state import Log, RunState, TokenState
from engines.report.wording import counted
from spec_tui.present.on_screen import on_screen
from spec_tui.present.text import one_line
from spec_tui.session import shell_lines as command
from spec_tui.session.chat_session import ChatSession
from spec_tui.session.datastore_jobs import Question, Refused
from spec_tui.tui.actions import Action
from spec_tui.tui.screens.modal import Box, SpecModal
from spec_tui.tui.widgets import retrieval_rows
from spec_tui.tui.widgets.field import Field
from spec_tui.tui.widgets.strip_panel import BLANK, Row, StripPanel, rows_of, title_row
from spec_tui.tui.widgets.tree_panel import tree_rows

INTERVAL = 0.05  # seconds between two checks for changes
TREE_ROWS = 14  # most rows of a draft's tree
TEXT = Option("text", "", "The end of a context; the draft continues it.")
PROMPT = Option("prompt", "", "The prompt that the text begins to answer; may be empty.")
EMPTY = (
    "Type a text. Below it you see what would be drafted next, how likely each token is, and where it comes from.",
    "",
    "A sparse datastore is searched for the longest suffix of the text.",
    "A dense datastore is searched for the model's hidden state after the text.",
)


class ProbePanel(StripPanel):
    """The drafts of the retrieving methods, drawn as in the chat; as high as they are."""

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self._probed: Probed | Refused | None = None
        self._late = False

    def show(self, probed: Probed | Refused | None, late: bool = False) -> None:
        """Show an answer, or one that is ``late``, to an earlier question; None shows what to do."""
        self._probed, self._late = probed, late
        self.styles.height = len(self.rows(self.size.width or 70, 0))
        self.update_rows()

    def rows(self, width: int, height: int) -> list[Row]:
        found = self._probed
        if found is None:
            return [row for text in EMPTY for row in rows_of(text, width) or [BLANK]]
        if isinstance(found, Refused):
            texts = one_line(f"{found.message}."), one_line(on_screen(found.hint))
            return [row for text in texts for row in rows_of(text, width, "bad")]
        return [row for draft in found.drafts for row in self._draft(found, draft, width)]

    def _draft(self, found: Probed, probed: ProbeDraft, width: int) -> list[Row]:
        run = run_of(found, probed)
        passages = retrieval_rows.rows_needed(probed.retrieval)
        return [
            title_row(width, probed.title, "probing …" if self._late else counted(len(probed.draft.tokens), "token")),
            *rows_of(one_line(probed.remark), width, "warn"),
            *tree_rows(run.rounds[0], run, 0, width, TREE_ROWS, judged=False),
            *retrieval_rows.rows(run, 0, width, passages, judged=False), [],
        ]


def run_of(found: Probed, probed: ProbeDraft) -> RunState:
    """A probe as a run with a single round before which nothing is missing, for the widgets that draw rounds."""
    tokens = [TokenState(p, p, "target", "target", 1.0, -1, Emitted(-1, p, p, "target")) for p in found.pieces]
    round_ = Round(
        index=0, position=found.tokens, draft=probed.draft, path=(), emitted=(), draft_seconds=probed.retrieval.seconds,
        verify_seconds=0.0, other_seconds=0.0, cache_length=0, retrieval=probed.retrieval,
    )
    return RunState(rounds=Log([round_]), starts=Log([len(tokens)]), tokens=Log(tokens))


class ProbeScreen(SpecModal[None]):
    """Probes one datastore."""

    CSS_PATH: ClassVar = ["modal.tcss", "probe.tcss"]
    word_here = "retrieval"
    PALETTE = "Probe: "
    ACTIONS = (
        Action(id="probe.copy", run="copy", anywhere="ctrl+y", label="Copy", help="Copy the command line of this"),
        Action(id="probe.up", run="scroll(-1)", keys="up", label="Up", palette="", help="Scroll"),
        Action(id="probe.down", run="scroll(1)", keys="down", label="Down", palette="", help="Scroll"),
    )

    def __init__(self, session: ChatSession, name: str) -> None:
        super().__init__()
        self.session, self.jobs, self.datastore = session, session.datastore_jobs, name
        self._wanted: Question | None = None
        self._shown: object = self.jobs.probed  # the answer to an earlier question

    def compose(self) -> ComposeResult:
        with Box(f"probe {self.datastore}", "tab text, prompt · ↑ ↓ scroll · ctrl+y copy command · esc closes"):
            yield Field(TEXT, "", classes="wide", id="probe-text")
            yield Field(PROMPT, "", classes="wide", id="probe-prompt")
            with VerticalScroll(id="found", can_focus=False):
                yield ProbePanel(id="drafts")
            yield Static("", id="hint", markup=False)

    def on_mount(self) -> None:
        self.panel = self.query_one(ProbePanel)
        self.panel.show(None)
        self.query(Input).first().focus()
        self.set_interval(INTERVAL, self._update)

    @property
    def question(self) -> Question:
        """What is asked now."""
        text, prompt = (self.query_one(f"#probe-{field} Input", Input).value for field in ("text", "prompt"))
        return self.datastore, text, prompt if prompt.strip() else None

    def on_input_changed(self, event: Input.Changed) -> None:
        self._wanted = self.question

    def on_field_explained(self, event: Field.Explained) -> None:
        self._hint(event.words)

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def _hint(self, words: str) -> None:
        self.query_one("#hint", Static).update(one_line(words))

    def _update(self) -> None:
        if self._wanted is not None:
            wanted, self._wanted = self._wanted, None
            if wanted[1] or wanted[2]:
                self.jobs.probe(wanted)
            self._draw()
        if self.jobs.probed is not self._shown:
            self._shown = self.jobs.probed
            self._draw()

    def _draw(self) -> None:
        probed = self.jobs.probed
        current = probed is not None and probed is self._shown and probed.name == self.datastore
        late = isinstance(probed, Probed) and (probed.name, probed.text, probed.prompt) != self.question
        self.panel.show(probed if current and any(self.question[1:]) else None, late)

    def action_scroll(self, step: int) -> None:
        self.query_one("#found", VerticalScroll).scroll_relative(y=step, animate=False)

    def action_copy(self) -> None:
        line = command.probe_line(*self.question, self.session.load_request)
        self.app.copy_to_clipboard(line)
        self._hint(f"copied: {line}")
