"""The models: which target, draft model and head answer next. What is available, what fits, what a download takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Thread
from typing import Any, ClassVar, Literal

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from engines.errors import SpecError
from engines.folders import same_place
from engines.hub.download_progress import in_bytes
from engines.model.load_options import AUTO
from spec_tui.present.on_screen import failure, on_screen
from spec_tui.present.tables import in_number
from spec_tui.present.text import in_column, one_line
from spec_tui.present.token_styles import ABSENT, PRESENT
from spec_tui.session import model_choices
from spec_tui.session.chat_session import ChatSession
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.session.model_choices import ModelChoice
from spec_tui.tui.actions import Action
from spec_tui.tui.screens.modal import Box, DescribedList, DescribedModal, Description, fact
from spec_tui.tui.widgets.path_input import PathInput

Role = Literal["target", "draft", "head"]
Fitting = tuple[tuple[ModelChoice, ...], tuple[ModelChoice, ...]]
"""The draft models and the heads of a target."""
TITLES: dict[Role, str] = {"target": "target model", "draft": "draft model", "head": "draft head"}
DATASTORES = "datastores"
ANOTHER: dict[Role, str] = {
    role: f"another {title}: a folder{'' if role == 'head' else ', a GGUF file'} or a hub id (owner/name)"
    for role, title in TITLES.items()
}
LOOKING = "looking for models on this machine …"
JUDGING = "comparing their tokens …"
KEYS = "enter loads · space marks · tab another · d datastores · esc closes"
OTHER = "another"
"""Behind a role: the line under its list that leads to the field for one that is not listed."""
TITLE = 13  # columns of a fact's name


class ModelsScreen(DescribedModal["LoadRequest | Literal['datastores']"]):
    """Gives back what to load, ``DATASTORES`` to choose those instead, None if closed."""

    CSS_PATH: ClassVar = ["modal.tcss", "models.tcss"]
    ACTIONS = (
        Action(id="models.mark", run="mark", keys="space", label="Mark", footer=True,
               help="Mark this model, so that both models can be chosen before they are loaded"),
        Action(id="models.data", run="data", keys="d", label="Datastores", footer=True,
               help="Choose the datastores that drafts are retrieved from"),
    )

    def __init__(self, session: ChatSession) -> None:
        super().__init__()
        self.session = session
        self.load = replace(  # a model of this machine
            session.load_request, server=None, api_key_env=None, backend="", served_model=None
        )
        self.rows: dict[str, tuple[Role, ModelChoice]] = {}
        self._targets: tuple[ModelChoice, ...] = ()
        self._drafts: tuple[ModelChoice, ...] = ()
        self._heads: tuple[ModelChoice, ...] = ()
        self._judging = True  # which draft models and heads fit
        self._role: Role = "target"  # of the row that was highlighted last
        self._asked: ModelChoice | None = None  # whose download was said; enter again loads it

    # -- building and drawing ---------------------------------------------------------------------
    def compose(self) -> ComposeResult:
        with Box("models", KEYS):
            with Horizontal(id="pair"):
                yield DescribedList(Option(f"  {LOOKING}", disabled=True), id="models")
                yield Description(LOOKING)
            yield PathInput(placeholder=ANOTHER["target"], id="another")
            yield Static("", id="said", markup=False)

    def on_mount(self) -> None:
        self.listed.focus()
        self._say("the conversation is kept; the next answer uses the models you load")
        self._look_up(lambda: model_choices.targets(self.session.load_request), self._show_targets)

    @property
    def word_here(self) -> str:
        return "datastore" if self.here == DATASTORES else TITLES[self._role]

    def _look_up(self, look: Callable[[], Any], show: Callable[[Any], None]) -> None:
        """Look something up in a thread, and show it. When the application ends it does not wait for the thread, as it
        would for a worker of Textual's."""
        def work() -> None:
            try:
                found = look()
            except Exception as error:
                self.call_later(_raise, error)
            else:
                self.call_later(show, found)

        Thread(target=work, daemon=True).start()

    def _show_targets(self, targets: tuple[ModelChoice, ...]) -> None:
        self._targets = targets
        self._list()
        self._judge()

    def _judge(self) -> None:
        """Read which draft models and heads fit the target."""
        self._judging, self._drafts, self._heads = True, (), ()
        target, targets = self.target, self._targets

        def fitting() -> Fitting:
            if target is None or target.folder is None:
                return (), ()
            return model_choices.drafts(target, targets), model_choices.heads(target)

        self._look_up(fitting, partial(self._show_drafts, target))

    def _show_drafts(self, target: ModelChoice | None, found: Fitting) -> None:
        if target is self.target:  # no other one was marked meanwhile
            (self._drafts, self._heads), self._judging = found, False
            self._list()

    @property
    def target(self) -> ModelChoice | None:
        """The target that is marked; None for one that is not listed."""
        return next((choice for choice in self._targets if _is(choice, self.load.model, "target")), None)

    def _list(self) -> None:
        """List everything again; the same row stays highlighted."""
        here = self.here
        self.rows = {}
        options: list[Option] = []
        for role, choices in zip(TITLES, (self._targets, self._drafts, self._heads)):
            options += [Option(" ", disabled=True)] * bool(options) + [_heading(TITLES[role])]
            for number, choice in enumerate(choices):
                self.rows[f"{role}-{number}"] = (role, choice)
                options.append(Option(self._label(role, choice), id=f"{role}-{number}"))
            if role != "target" and self._judging:
                options.append(Option(f"  {JUDGING}", disabled=True))
            options.append(Option(Content.styled(f"  another {TITLES[role]} …", "$tok-prompt"), id=f"{role}-{OTHER}"))
        fitting = ", ".join(self.session.settings.searched(self.session.ready)) or "none fits the model"
        options += [Option(" ", disabled=True), _heading("datastores"),
                    Option(Content(f"  {one_line(fitting, 36) if self.session.ready else '…'}"), id=DATASTORES)]
        self.listed.clear_options()
        self.listed.add_options(options)
        ids = [option.id for option in options]
        if here is not None and here in ids:
            self.listed.highlighted = ids.index(here)
        else:
            marked = [key for key, (role, choice) in self.rows.items() if self._marked(role, choice)]
            self.listed.highlighted = ids.index(marked[0]) if marked else 1

    def _marked(self, role: Role, choice: ModelChoice) -> bool:
        """Whether it is one of those that are, or would be, loaded: the draft model that is taken without a name is not
        where it does not fit."""
        if role == "draft":
            return choice.fits is not False and _is(choice, self.load.draft_model, role)
        return self._marked_head(choice) if role == "head" else _is(choice, self.load.model, role)

    def _marked_head(self, choice: ModelChoice) -> bool:
        """The same of a head: the one that is named, and those that were taken by themselves beside it."""
        named, loaded = self.load.head, self.session.load_request
        if choice.name == AUTO or choice.name == named:
            return named in (None, AUTO, choice.name)
        taken = self.session.ready.heads.values() if self.session.ready is not None else ()
        same = (self.load.model, named) == (loaded.model, loaded.head)
        return (same and any(head.name == choice.name for head in taken)) or (
            named is not None and choice.folder is not None and same_place(named, choice.folder))

    def _label(self, role: Role, choice: ModelChoice) -> Content:
        mark = f"{PRESENT if self._marked(role, choice) else ABSENT} "
        size = choice.facts.get("parameters")
        words = in_number(size, "") if size else ""
        if choice.to_fetch:
            words = in_bytes(choice.to_fetch.missing)
        elif choice.problem:
            words = "not here" if choice.folder is None else "does not fit" if choice.fits is False else "not usable"
        elif role == "head":
            words = f"for {one_line(choice.facts.get('target') or 'any', 10)}" if choice.facts else ""
        elif choice.same:
            words += " same tokens"
        elif choice.share is not None and choice.share < 1:
            words += f" shares {choice.share:.0%}"  # what is beside the list says more
        room = 15 if self.has_class("-narrow") else 22
        style = "$tok-prompt" if choice.problem else ""
        return Content.assemble((mark, "$primary"), (in_column(choice.title, room + 1), style), (words, "$tok-prompt"))

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        panel = self.query_one("#about", Static)
        if event.option.id in self.rows:
            self._role, choice = self.rows[event.option.id]
            panel.update(_about(self._role, choice, panel.size.width or 36))
        elif (role := _role_of_another(event.option.id)) is not None:
            self._role = role
            panel.update("enter: type a name or a path; tab completes it")
        else:
            panel.update("d or enter: choose, build, probe or remove datastores")
        self.query_one(Input).placeholder = ANOTHER[self._role]

    def _say(self, words: str, wrong: bool = False) -> None:
        self.tell("#said", one_line(on_screen(words)), wrong)

    # -- what keys do -----------------------------------------------------------------------------
    def action_data(self) -> None:
        self.dismiss(DATASTORES)

    def action_mark(self) -> None:
        found = self.rows.get(self.here or "")
        if found is not None and self._mark(*found):
            self._list()

    def _mark(self, role: Role, choice: ModelChoice) -> bool:
        """Whether the choice could be marked; if not, say why."""
        if choice.problem:
            self._say(f"{choice.title} cannot be the {TITLES[role]}: {choice.problem}", wrong=True)
            return False
        if role == "draft":
            self.load = replace(self.load, draft_model=choice.name, draft_revision=None)
        elif role == "head":
            automatic = choice.name == AUTO and self.session.load_request.head is None
            self.load = replace(self.load, head=None if automatic else choice.name)
        elif not self._marked(role, choice):
            self.load = replace(self.load, model=choice.name, revision=None, draft_model=None, draft_revision=None,
                                head=None, fetch=choice.to_fetch is not None)
            self._judge()
        return True

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter: load what is marked, this row included."""
        if event.option.id == DATASTORES:
            self.action_data()
        elif _role_of_another(event.option.id) is not None:
            self.query_one(Input).focus()
        elif event.option.id in self.rows and self._mark(*self.rows[event.option.id]):
            self._load()

    def _load(self) -> None:
        if self.load == self.session.load_request and self.session.phase == "ready":
            self._say("these models are loaded already")
            self._list()
        elif self.session.phase == "loading":
            self._say("the models are still loading: enter again when they are ready", wrong=True)
        elif self.target is not None and self.target.to_fetch and self._asked is not self.target:
            self._asked, model = self.target, self.target.to_fetch
            self._say(f"{model.name}: {in_bytes(model.missing)} to download ({model.licence}); enter again "
                      f"downloads it. {model.lacking}", wrong=bool(model.lacking))
        else:
            self.dismiss(self.load)

    # -- a model that is not listed ---------------------------------------------------------------
    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter: load it if it is here; else say what it would download, and a second enter loads it."""
        name = event.value.strip()
        role = self._role
        if not name:
            self._load()
        elif role == "head":  # some megabytes; loading shows them
            self._mark(role, ModelChoice(name, name, "", None, {}))
            self._load()
        elif self._asked is not None and self._asked.name == name:
            if self._mark(role, self._asked):
                self._load()
        else:
            self._say(f"looking for {name} …")
            self._look_up(partial(_to_download, name, self.load), partial(self._found, name, role))

    def on_input_changed(self, event: Input.Changed) -> None:
        self._asked = None

    def _found(self, name: str, role: Role, size: int | SpecError) -> None:
        if self.query_one(Input).value.strip() != name:  # another one was typed meanwhile
            return
        if isinstance(size, SpecError):
            self._say(failure(size), wrong=True)
            return
        self._asked = ModelChoice(name, name, "", None, {})
        if size:
            self._say(f"{name}: {in_bytes(size)} to download; enter again downloads it")
        elif self._mark(role, self._asked):
            self._load()


def _raise(error: Exception) -> None:
    """What went wrong in a thread: raised in the application, its border takes it."""
    raise error


def _to_download(name: str, load: LoadRequest) -> int | SpecError:
    """How many bytes a model of the hub is, or why it cannot be had."""
    try:
        return model_choices.to_download(name, load)
    except SpecError as error:
        return error


def _heading(words: str) -> Option:
    return Option(Content.styled(words, "bold $primary"), disabled=True)


def _role_of_another(option: str | None) -> Role | None:
    """Of which role an option leads to the field for another model; None for any other option."""
    return next((role for role in TITLES if option == f"{role}-{OTHER}"), None)


def _is(choice: ModelChoice, name: str | None, role: Role) -> bool:
    """Whether a choice is what a load request names."""
    if name is None:
        return choice.name is None if role == "draft" else model_choices.names_default(choice)
    return choice.name == name or (choice.folder is not None and same_place(name, choice.folder))


def _about(role: Role, choice: ModelChoice, width: int) -> Content:
    """What is known of a model, folded to a width in columns."""
    facts: dict[str, Any] = choice.facts
    size = facts.get("parameters")
    known = [
        ("where", choice.origin), ("path", str(choice.folder) if choice.name == str(choice.folder) else ""),
        ("architecture", facts.get("type") or ""),
        ("parameters", in_number(size, "") if size else "not known" if facts and choice.to_fetch is None else ""),
        ("stored as", facts.get("dtype") or ""), 
        ("problem", choice.problem and (facts.get("problem") or "")),
    ]
    if (model := choice.to_fetch) is not None:
        known += [("model", model.title), ("good for", model.good_for), ("takes", model.offer), ("", model.lacking),
                  ("licence", model.licence)]
    if role != "target":
        known.append(("fits", {True: "yes", False: "no", None: "not known"}[choice.fits] + f": {choice.why}"))
    lines = [Content.assemble((one_line(choice.title), "bold")), Content("")]
    lines += [fact(title, on_screen(words), TITLE, width) for title, words in known if words]
    return Content("\n").join(lines)
