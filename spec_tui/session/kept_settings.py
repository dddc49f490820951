"""What is kept in the data folder: for each model the engine and the settings that it is asked with where no engine is
named, and the draft head that was named for it last; the file of prompts that was evaluated with; and for all models
the view of texts, and which lessons were finished. A file that is damaged counts as none; settings that name what is
not here are left out, and say so.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from engines import folders, methods
from engines.errors import RunFailed, SpecError, UsageProblem, first_line
from engines.folders import typed_path
from engines.heads.head_config import FAMILIES
from engines.model.load_options import AUTO, NONE
from engines.race.lanes import Lane
from engines.request import Request
from spec_tui.present.token_styles import OUTCOME, VIEWS
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.session.settings import check_datastores

_HEAD = "-head.json"
_PROMPTS = "prompts.json"
_LESSONS = "lessons.json"
_VIEW = "view.json"


@dataclass(frozen=True, slots=True)
class KeptSettings:
    """What is kept for a model.

    Attributes:
        model: its name, as ``_name`` has it.
        engine, options, datastores, draft_model: as of ``engines.race.lanes.Lane``.
        gained: what it was kept for, in words.
        gone: why it cannot be used, in words; "" where it can.
    """

    model: str
    engine: str
    options: dict[str, Any] = field(default_factory=dict)
    datastores: tuple[str, ...] = ()
    draft_model: str = ""
    gained: str = ""
    gone: str = ""

    @property
    def words(self) -> str:
        """What is used, or why it is not, and how that is undone, a sentence without its full stop."""
        given = " ".join(f"{name}={value}" for name, value in self.options.items())
        setting = " ".join(filter(None, [self.engine, given]))
        why = f" ({self.gained})" if self.gained else ""
        undo = shlex.join(["spec-tui", "advise", "--undo", "--model", self.model])
        if self.gone:
            return f"{setting}, which is kept for this model, is left out: {self.gone}; {undo} forgets it"
        return f"{setting}, kept for this model{why}; {undo} forgets it"


def find(load: LoadRequest) -> KeptSettings | None:
    """What is kept for the model that would be loaded; None where that is nothing."""
    try:
        kept = msgspec.json.decode(folders.read_file(_file(load)), type=KeptSettings)
    except (OSError, ValueError):
        return None
    return replace(kept, gone=_gone(kept)) if kept.model == _name(load) else None


def _gone(kept: KeptSettings) -> str:
    from engines.hub.known_models import resolve

    try:
        spec = methods.find(kept.engine)
        spec.parse(kept.options)
        check_datastores(kept.datastores)
        draft = typed_path(resolve(kept.draft_model)) if kept.draft_model else Path()
    except (SpecError, OSError, ValueError) as error:
        return first_line(error)
    if draft.is_absolute() and not os.path.exists(draft):
        return f"there is no {kept.draft_model}"
    return f"{spec.title} decodes in another program" if spec.host else ""


def keep(load: LoadRequest, lane: Lane, gained: str = "") -> KeptSettings:
    """Ask this model as a lane does from now on. Raises RunFailed where it cannot be written."""
    draft = _from_any_folder(lane.draft_model)
    kept = KeptSettings(_name(load), lane.engine, dict(lane.options), lane.datastores, draft, gained)
    try:
        folders.write_json(_file(load), asdict(kept))
    except OSError as error:
        raise RunFailed(f"the settings cannot be kept: {error.strerror}", "see spec-tui doctor") from None
    return kept


def forget(load: LoadRequest) -> bool:
    """Whether something was kept for this model; it is no longer. Raises RunFailed."""
    try:
        _file(load).unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise RunFailed(f"the settings cannot be removed: {error.strerror}", "remove the file") from None
    return True


def begin_with(load: LoadRequest, request: Request) -> tuple[LoadRequest, Request, KeptSettings | None]:
    """What is asked for, with what is kept for the model where no engine and no option is named, and nothing of that is
    gone."""
    kept = None if request.engine or request.options or load.elsewhere else find(load)
    if kept is None or kept.gone:
        return load, request, kept
    if kept.draft_model and load.draft_model is None:
        load = replace(load, draft_model=kept.draft_model)
    asked = replace(request, engine=kept.engine, options=dict(kept.options),
                    datastores=request.datastores or kept.datastores)
    return load, asked, kept


def with_head(load: LoadRequest) -> LoadRequest:
    """What is asked for, with the head that is kept for the model where none is named; ``AUTO`` forgets it."""
    if load.elsewhere:
        return load
    if load.head == AUTO:
        with suppress(OSError):
            _file(load, _HEAD).unlink(missing_ok=True)
        return replace(load, head=None)
    kept = _kept_head(load) if load.head is None else ""
    return replace(load, head=kept) if kept and not _fault(kept) else load


def head_left_out(load: LoadRequest) -> str:
    """That the head which is kept for the model is left out, and why, in words; "" where none is kept, it can be taken,
    or another one is named."""
    kept = "" if load.head is not None or load.server is not None or load.backend else _kept_head(load)
    fault = _fault(kept) if kept else ""
    return f"the head {kept}, which is kept for this model, is left out: {fault}" if fault else ""


def keep_head(load: LoadRequest) -> None:
    """Keep the head that was named for a model, once both are loaded. What cannot be written is not kept."""
    if load.head in (None, NONE) or load.head == _kept_head(load):
        return
    from engines.heads.local_heads import local_heads

    ours, named = any(head.name == load.head for head in local_heads()), typed_path(load.head)
    head = str(named.resolve()) if os.path.isdir(named) and not ours else load.head
    folders.keep_setting(_file(load, _HEAD).name, model=_name(load), head=head)


def keep_prompts(file: Path | None) -> None:
    """Keep which file of prompts was evaluated with last; None: our own. What cannot be written is not kept."""
    folders.keep_setting(_PROMPTS, file=str(file.absolute()) if file else "")


def kept_prompts() -> str:
    """That file's path, as far as it is still there; "" for our own prompts."""
    file = folders.kept_setting(_PROMPTS).get("file")
    return file if isinstance(file, str) and os.path.isfile(file) else ""


def finished_lessons() -> frozenset[str]:
    """Names of the lessons that were gone through to their ends."""
    found = folders.kept_setting(_LESSONS).get("finished")
    return frozenset(name for name in found if isinstance(name, str)) if isinstance(found, list) else frozenset()


def finish_lesson(name: str) -> None:
    """Keep that a lesson was gone through. What cannot be written is not kept."""
    folders.keep_setting(_LESSONS, finished=sorted(finished_lessons() | {name}))


def _kept_head(load: LoadRequest) -> str:
    """The head that is kept for a model, whether it is still there or not; "" for none."""
    kept = folders.kept_setting(_file(load, _HEAD).name)
    head = kept.get("head")
    return head if kept.get("model") == _name(load) and isinstance(head, str) else ""


def _fault(head: str) -> str:
    """Why a head that was kept cannot be taken, in words; "" if it can, as far as its files tell."""
    from engines.heads.local_heads import local_heads, may_be_on_hub, place_of

    if (ours := next((one for one in local_heads() if one.name == head), None)) is not None:
        return ours.fault
    if head.lower() in FAMILIES:
        return ""
    with suppress(OSError, ValueError, UsageProblem):
        return "" if place_of(head) is not None or may_be_on_hub(head) else "it is not here"
    return "it is not here"


def kept_view() -> str:
    """The view of texts that was chosen last; the first where none was."""
    view = folders.kept_setting(_VIEW).get("view")
    return view if isinstance(view, str) and view in VIEWS else OUTCOME


def keep_view(view: str) -> None:
    """Begin with this view of ``VIEWS`` from now on. What cannot be written is not kept."""
    folders.keep_setting(_VIEW, view=view)


def _file(load: LoadRequest, ending: str = ".json") -> Path:
    model = hashlib.blake2b(_name(load).encode("utf-8", "surrogatepass"), digest_size=16)
    return folders.setting_file(model.hexdigest() + ending)


def _name(load: LoadRequest) -> str:
    """The model: its short name, else the whole path of a folder or file, else as it was given."""
    from engines.hub.known_models import default_model, known_name

    given = load.model or default_model()
    return known_name(given) or _from_any_folder(given)


def _from_any_folder(model: str) -> str:
    """A model as it was given; of one that lies in a folder or file here the whole path."""
    from engines.hub.known_models import names

    try:
        path = Path(model).expanduser()
        return str(path.resolve()) if model and model not in names() and os.path.exists(path) else model
    except (OSError, RuntimeError, ValueError):
        return model
