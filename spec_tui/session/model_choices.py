"""The models that can be chosen: those that ship, those in the hub's cache, local folders; and what a download takes.

Nothing is loaded and, ``to_download`` excepted, nothing is asked of the network. Files are read: seconds with a full
cache, so screens call this from a thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engines.errors import UsageProblem
from engines.folders import listed, model_label, same_place, shipped, typed_path
from engines.hub.known_models import KnownModel
from engines.model.load_options import AUTO
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.session.host_access import HostAccess

_MOST = 40  # local folders that are looked at


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model on this machine.

    Attributes:
        name: as a ``LoadRequest`` takes it: a folder, a file, a hub id, a name known here; None for the draft model
            that is taken without a name.
        title: for people. Untrusted.
        origin: where it is, in words.
        folder: with its files, or its one file; None where it is not here.
        facts: as ``engines.hub.local_models.look_at``: "type", "parameters", "dtype", "problem".
        same: of a draft model, whether it has the target's tokens and no others.
        fits: of a draft model, whether it can draft for the target; None if the files don't tell.
        share: of the target's tokens that the draft model has, 0..1; None if the files don't tell.
        why: that in words, "" for a target.
        to_fetch: the known model that it will be once that is fetched; None for one that is here.
    """

    name: str | None
    title: str
    origin: str
    folder: Path | None
    facts: dict[str, Any]
    fits: bool | None = None
    why: str = ""
    share: float | None = None
    same: bool | None = None
    to_fetch: KnownModel | None = None

    @property
    def problem(self) -> str:
        """Why it cannot be chosen; "" if it can, as far as its files tell, or once it is fetched."""
        return "" if self.to_fetch else self.facts.get("problem") or (self.why if self.fits is False else "")


def targets(load: LoadRequest) -> tuple[ModelChoice, ...]:
    """The available target models: those that have a name here, the one that ships, those in the hub's cache and of
    other programs, folders and GGUF files here and beside the loaded one."""
    from engines.hub import local_models
    from engines.hub.known_models import SAMPLE

    found = [_known(facts) for facts in local_models.known()]
    for facts in local_models.shipped():
        if facts["path"] is not None and facts["role"] == "target":
            found.append(ModelChoice(SAMPLE, facts["name"], "ships with the program", Path(facts["path"]), facts))
    for facts in local_models.cached():
        found.append(ModelChoice(facts["id"], facts["id"], "in the hub's cache", Path(facts["path"]), facts))
    for facts in local_models.of_other_programs():
        found.append(ModelChoice(facts["path"], facts["name"], "kept by another program", Path(facts["path"]), facts))
    found += _looked_at(_folders(load))
    return tuple(choice for choice in found if HostAccess.here().offers(choice.name))


def _known(facts: dict[str, Any]) -> ModelChoice:
    from engines.hub.known_models import KNOWN

    name, model = facts["name"], KNOWN[facts["name"]]
    if facts["path"] is not None:
        return ModelChoice(name, name, "your data folder", Path(facts["path"]), facts)
    return ModelChoice(name, name, "not here", None, facts, to_fetch=model)


def drafts(target: ModelChoice, available: tuple[ModelChoice, ...]) -> tuple[ModelChoice, ...]:
    """The available models, those beside the target and those that were fetched to draft, as draft models of a target:
    first those with its tokens, then those that have some of them, those that can't be chosen last, with the reason. A
    model that is no smaller than the target is not among them; of a target that is not here nothing is."""
    from engines.hub import local_models

    if target.folder is None:
        return ()
    size, judged, seen = target.facts.get("parameters") or 0, [], [target.folder]
    usual = local_models.usual_draft(target.folder)
    if usual is not None:
        why = usual.why
        if not usual.fits:
            why += ": without another draft model, engines that need one can't run"
        facts, same = local_models.look_at(usual.place), usual.fits or None
        judged.append(ModelChoice(None, usual.title, usual.origin, usual.place, facts, usual.fits, why,
                                  1.0 if same else None, same))
        seen.append(usual.place)
    for choice in (*available, *_looked_at(_beside(target.folder)), *_fetched_drafts()):
        if choice.folder is None or any(same_place(str(choice.folder), place) for place in seen):
            continue
        seen.append(choice.folder)
        if size and (choice.facts.get("parameters") or 0) >= size:
            continue
        found = local_models.fit(choice.folder, target.folder)
        judged.append(replace(choice, fits=found.fits, why=found.why, share=found.share, same=found.same))
    return tuple(sorted(judged, key=lambda choice: (bool(choice.problem), not choice.same, -(choice.share or 0.0))))


def _looked_at(places: Iterable[Path]) -> list[ModelChoice]:
    """Folders and files as choices; a later file of a model in several is none."""
    from engines.hub import gguf_file, local_models

    found = []
    for place in places:
        with suppress(gguf_file.LaterPart):
            facts = local_models.look_at(place)
            where = "a local folder" if os.path.isdir(place) else "a local file"
            found.append(ModelChoice(str(place), facts["title"] or model_label(str(place)), where, place, facts))
    return [choice for choice in found if HostAccess.here().offers(choice.name)]


def _fetched_drafts() -> list[ModelChoice]:
    from engines.hub import known_models, local_models

    drafts = [known.draft for known in known_models.KNOWN.values() if known.draft is not None and known.draft.here]
    return [ModelChoice(draft.name, draft.name, "your data folder", draft.path, local_models.look_at(draft.path))
            for draft in drafts]


def heads(target: ModelChoice) -> tuple[ModelChoice, ...]:
    """The available draft heads for a target: those that are taken by themselves, then each, those that can't be chosen
    last, with the reason."""
    from engines.heads.local_heads import local_heads

    judged = []
    for head in local_heads():
        differs = head.differs(target.folder) if target.folder is not None else ""
        made = f"it was trained for {head.target}" if head.target else "its file does not say for which model"
        its = head.target in (target.name, target.title) or (
            target.folder is not None and same_place(head.target, target.folder))
        most = max(head.stored, key=head.stored.__getitem__, default=None)
        facts = {"type": head.title, "parameters": sum(head.stored.values()), "dtype": most, "target": head.target}
        origin = "ships with the program" if head.ships else "trained here"
        judged.append(ModelChoice(head.name, head.name, origin, head.folder, facts,
                                  False if differs or head.fault else its or None,
                                  head.fault or (f"{differs}; {made}" if differs else made)))
    by_itself = ModelChoice(AUTO, "by itself", "", None, {}, True, "of each kind one that was trained for the target")
    return (by_itself, *sorted(judged, key=lambda choice: (bool(choice.problem), not choice.fits)))


def names_default(choice: ModelChoice) -> bool:
    """Whether a target is the one that is loaded where none is named."""
    from engines.hub.known_models import default_model

    default = default_model()
    return choice.name == default or str(choice.folder) == default


def _folders(load: LoadRequest) -> Iterator[Path]:
    """Folders with a model's configuration, and GGUF files: the loaded ones, those beside them, those in the working
    directory and in its subfolder ``models``."""
    own: list[Path] = []
    for name in (load.model, load.draft_model):
        with suppress(UsageProblem):  # empty, or no path
            if os.path.exists(path := typed_path(name or "")):
                own.append(path.resolve())
    seen: set[Path] = set()
    try:
        here = Path.cwd()
    except OSError:  # deleted
        here = None
    places = [path.parent for path in own] + ([here, here / "models"] if here is not None else [])
    for folder in (*own, *(child for place in dict.fromkeys(places) for child in _children(place))):
        if _is_model(folder) and folder not in seen and not shipped(str(folder)):
            seen.add(folder)
            yield folder
            if len(seen) == _MOST:
                return


def _beside(target: Path) -> list[Path]:
    """The models in the folder that a target lies in."""
    found = [place for place in _children(target.absolute().parent) if _is_model(place) and not shipped(str(place))]
    return found[:_MOST]


def _is_model(place: Path) -> bool:
    return os.path.isfile(place / "config.json") or place.suffix.lower() == ".gguf"


def _children(place: Path) -> list[Path]:
    return sorted(path.resolve() for path in listed(place))


class _Announced(Exception):
    """Leaves the search for a model once the size of its download is known."""


def to_download(name: str, load: LoadRequest) -> int:
    """Bytes that loading a hub id or a folder would download, 0 if all is here. It asks the hub.

    Raises:
        ModelUnavailable: there is no such model, or the hub cannot be reached.
        UsageProblem: the session has no access to this machine.
    """
    HostAccess.here().need_model(name)
    from spec_tui.session.environment import prepare_this_process

    prepare_this_process()
    from engines.hub.model_source import locate

    def progress(step: Any) -> None:
        if step.bytes is not None:
            raise _Announced(step.bytes)

    try:
        source = locate(name, None, load.terms, progress=progress)
    except _Announced as announced:
        return announced.args[0]
    return source.download.bytes if source.download is not None else 0
