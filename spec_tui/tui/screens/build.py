"""The form of a datastore to build: enter shows the estimate, a second enter builds."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, Static

from engines.datastores.datastore_events import Estimated
from engines.errors import SpecError, UsageProblem
from engines.hub.download_progress import in_bytes
from engines.methods.options import Option
from spec_tui.present.on_screen import on_screen
from spec_tui.present.progress_text import estimate_parts, left_out, progress_line
from spec_tui.present.text import one_line
from spec_tui.session import shell_lines as command
from spec_tui.session.host_access import HostAccess
from spec_tui.tui.actions import Action
from spec_tui.tui.screens.modal import Box, SpecModal
from spec_tui.tui.widgets.field import Field

if TYPE_CHECKING:
    from engines.datastores.building.build_spec import BuildSpec
    from spec_tui.session.chat_session import ChatSession

INTERVAL = 0.1  # seconds between two checks for changes
FIELDS = (
    Option("name", "", "Name: a-z, 0-9, - and _."),
    Option("from", "", "Files and folders, separated by spaces ('quote' names that have spaces), python-stdlib, "
           "hf:DATASET[:SPLIT][:COLUMN], or model-answers: the model's answers to your prompts."),
    Option("kind", "sparse", "sparse: exact matches, for rest; dense: hidden states of the model, for dresd; both.",
           choices=("sparse", "dense", "both")),
    Option("limit", 0, "Maximum number of tokens; 0: all.", 0),
)  # fmt: skip
ANSWER_FIELDS = (
    Option("prompts", "", "A file of prompts: one per line, or lines of JSON with a \"prompt\"."),
    Option("answers", 1, "Answers to each prompt; more than one needs a temperature.", 1),
    Option("temperature", 0.0, "Temperature of the answers; 0 is greedy.", 0, 100),
    Option("max_new_tokens", 256, "Maximum length of an answer, in tokens.", 1),
)
WIDE = ("name", "from", "prompts")


class BuildScreen(SpecModal["tuple[BuildSpec, bool]"]):
    """Returns what to build, and whether an unfinished build is dropped for it; None if closed. ``offered``: name to
    begin with, of a source and its datastore."""

    CSS_PATH: ClassVar = ["modal.tcss", "build.tcss"]
    word_here = "datastore"
    PALETTE = "Build: "
    ACTIONS = (
        Action(id="build.close", run="close", keys="escape", label="Close", palette="",
               help="Stop the estimate; close without building"),
        Action(id="build.copy", run="copy", anywhere="ctrl+y", label="Copy", help="Copy the command line of this form"),
    )

    def __init__(self, session: ChatSession, offered: str = "") -> None:
        super().__init__()
        self.session, self.datastore_jobs, self._offered = session, session.datastore_jobs, offered
        self._spec: BuildSpec | None = None  # that the estimate is of
        self._fresh = False
        self._drawn: tuple = ()

    def compose(self) -> ComposeResult:
        with Box("build a datastore", ""):
            with Vertical(id="form"):
                for option in (*FIELDS, *ANSWER_FIELDS):
                    value = self._offered if option.name in ("name", "from") else option.default
                    classes = "wide" * (option.name in WIDE) + " answers" * (option in ANSWER_FIELDS)
                    yield Field(option, value, classes=classes, id=option.name)
            yield Static("", id="hint", markup=False)
            yield Static("", id="takes", markup=False)

    def on_mount(self) -> None:
        self._follow_sources()
        self._draw()
        self.query(Input).first().focus()
        self.set_interval(INTERVAL, self._update)

    # -- the form ---------------------------------------------------------------------------------
    def _value(self, name: str) -> object:
        return self.query_one(f"#{name}", Field).value

    def _follow_sources(self) -> None:
        """Show the fields of model-answers only with that source."""
        from engines.datastores.building.build_spec import ANSWERS

        answered = ANSWERS in str(self.query_one("#from Input", Input).value).split()
        self.set_class(answered, "answered")

    def on_field_changed(self, event: Field.Changed) -> None:
        """The form has changed: the estimate is no longer true."""
        self._follow_sources()
        self._spec = None
        self._draw()

    def on_field_explained(self, event: Field.Explained) -> None:
        self.tell("#hint", one_line(event.words), event.wrong)

    def _form_spec(self) -> BuildSpec:
        """What the form says. Raises UsageProblem."""
        HostAccess.here().need("building a datastore")
        from engines.datastores.building.build_spec import BuildSpec

        try:
            sources = tuple(shlex.split(str(self._value("from"))))
        except ValueError:
            raise UsageProblem("a quotation mark is not closed", "close it, or put \\ before it") from None
        given = {"limit": self._value("limit") or None}
        if self.has_class("answered"):
            given |= {name.name: self._value(name.name) for name in ANSWER_FIELDS}
            given["prompts"] = given["prompts"] or None
        spec = BuildSpec(str(self._value("name")), sources, str(self._value("kind")), **given)
        spec.check()
        return spec.with_absolute_paths()

    def _check_free(self, spec: BuildSpec) -> bool:
        """Whether an unfinished build of the name is of something else. Raises UsageProblem if the name is taken."""
        from engines.datastores.building.build_spec import unfinished_build
        from engines.datastores.storage import catalog

        same_name = [e for e in catalog.listing() if e.name == spec.name]
        if any(not e.unfinished for e in same_name):
            raise UsageProblem(f"there is a datastore {spec.name}", "choose another name, or remove it first")
        return any(e.unfinished for e in same_name) and unfinished_build(spec.name) != spec

    # -- estimate and beginning -------------------------------------------------------------------
    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter: first what it will take, then go."""
        if self.datastore_jobs.work:
            return
        if self._spec is not None and self.datastore_jobs.estimated is not None:
            self.dismiss((self._spec, self._fresh))
            return
        self._estimate()

    def _estimate(self) -> None:
        try:
            spec = self._form_spec()
            self._fresh = self._check_free(spec)
        except SpecError as error:
            self._show([_problem(error.message, error.hint)])
            return
        self._spec = spec
        self.datastore_jobs.estimate(spec)
        self._draw()

    def _update(self) -> None:
        if self._drawn != (self.datastore_jobs.changes, self.session.stuck):
            self._draw()

    def _draw(self) -> None:
        self._drawn = self.datastore_jobs.changes, self.session.stuck
        work, ended = self.datastore_jobs.work, self.datastore_jobs.ended
        keys = "enter estimates · tab next field · ctrl+y copy command · esc closes"
        if self.session.stuck:
            lines, keys = [Content.styled(self.session.still, "bold $error")], "esc closes"
        elif work is not None:
            step = self.datastore_jobs.step
            lines = [Content(progress_line(step) if step else "reading the sources")]
            keys = "esc stops"
        elif self._spec is None:
            lines = [Content.styled("enter estimates size and time before anything is built", "$tok-prompt")]
        elif self.datastore_jobs.estimated is not None:
            lines = self._takes(self.datastore_jobs.estimated)
            keys = "enter builds it · ctrl+y copy command · esc closes"
        else:
            lines = [_problem(ended.message, ended.hint, ended.kind == "cancelled")] if ended is not None else []
        self._show(lines)
        self.query_one(Box).show_keys(keys)

    def _takes(self, found: Estimated) -> list[Content]:
        lines = [Content.styled(" · ".join(estimate_parts(found.estimate, "limit")), "bold")]
        if found.estimate.building and found.estimate.building > found.free:
            lines.append(Content.styled(f"the disk has only {in_bytes(found.free)} left", "bold $error"))
        if words := left_out(found.skipped):
            lines.append(Content.styled(one_line(words), "$tok-prompt"))
        if self._fresh:
            name = self._spec.name
            lines.append(Content.styled(f"the progress of another, unfinished build of {name} is dropped", "$warning"))
        return [*lines, Content.assemble(("enter", "bold $primary"), " builds it")]

    def _show(self, lines: list[Content]) -> None:
        self.query_one("#takes", Static).update(Content("\n").join(lines))

    # -- leaving ----------------------------------------------------------------------------------
    def action_close(self) -> None:
        if self.datastore_jobs.work and not self.session.stuck:
            self.session.cancel()
        else:
            self.dismiss(None)

    def action_copy(self) -> None:
        try:
            line = command.build_line(self._form_spec(), self.session.load_request)
        except SpecError as error:
            self._show([_problem(error.message, error.hint)])
            return
        self.app.copy_to_clipboard(line)
        self._show([Content(one_line(f"copied: {line}"))])


def _problem(message: str, hint: str, meant: bool = False) -> Content:
    """What is wrong, and the way out; ``meant`` if the user wanted it."""
    fields = [option.name for option in (*FIELDS, *ANSWER_FIELDS)]
    words = one_line(on_screen(f"{message}: {hint}" if hint else message, fields))
    return Content.styled(words, "$tok-prompt" if meant else "bold $error")
