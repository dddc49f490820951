"""A model found: the folder it lies in, fetched from the hub where it must be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engines.errors import ModelUnavailable, UsageProblem, first_line
from engines.hub import download as transfer
from engines.hub import hub_api as hub
from engines.hub import hub_cache as cache
from engines.hub.download import Download, Progress
from engines.hub.model_files import FileChoice, TrustPolicy, auto_map, choose, missing, names_in, shards
from engines.progress import Loading

Role = Literal["target", "draft model"]

_WORDS: dict[Role, str] = {"target": "", "draft model": "draft: "}
_FLAGS: dict[Role, str] = {"target": "--revision", "draft model": "--draft-revision"}


def _quiet(_: Loading) -> None:
    """No progress wanted."""


@dataclass(slots=True)
class ModelSource:
    """Where a model is.

    Attributes:
        name: as the user gave it.
        folder: holds configuration and tokenizer; the weights too, once ``fetch_weights`` has returned.
        choice: the files it is made of.
        listing: what the hub says about it; None for a folder and for a model that is cached completely.
        download: what was missing when it was found, None where nothing was.
    """

    name: str
    folder: Path
    terms: TrustPolicy
    choice: FileChoice
    listing: hub.Listing | None = None
    download: Download | None = None

    def fetch_weights(self, progress: Progress = _quiet) -> None:
        """Download the weights, unless they are here. Raises ModelUnavailable, and whatever ``progress`` raises."""
        if self.download is not None:
            self.download.fetch(self.choice.weights, progress)
            self.download = None

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the user should know about how this model is read."""
        found: tuple[str, ...] = ()
        if self.choice.pickled:
            found += (f"the weights of {self.name} are pickled files: read by torch's weights-only loader",)
        if self.terms.trust_remote_code and (classes := auto_map(self.folder)):
            where = sorted({v.partition("--")[0] for v in classes.values() if "--" in v} | {self.name})
            found += (f"code that comes with {' and '.join(where)} runs here, with all your rights",)
        return found


def locate(
    name: str, revision: str | None = None, terms: TrustPolicy | None = None, role: Role = "target",
    progress: Progress = _quiet, announce: bool = True, beside: ModelSource | None = None,
) -> ModelSource:
    """Find a model; of one that is on the hub only, fetch configuration and tokenizer.

    A folder, and a model that the hub's cache holds completely, are taken as they are: the hub is not asked.

    Args:
        name: a folder or a hub id.
        revision: branch, tag or commit of a hub id; None is "main".
        role: what the model is for, for messages.
        progress: told of the download; what it raises leaves this function, and what was fetched stays.
        announce: say the size of the whole download first, and refuse it where the disk has no room.
        beside: a model whose weights will be fetched before this one's: what both have is counted there.

    Raises:
        ModelUnavailable: missing, unreachable, gated, without weights that may be read, no room on the disk.
        UsageProblem: a revision that is none, or of a folder.
    """
    terms = terms or TrustPolicy()
    _check_revision(name, revision, role)
    folder = _folder(name)
    if folder is not None:
        if revision is not None:
            raise UsageProblem(f"{name} is a folder: it has no revisions", f"{_FLAGS[role]} is for hub ids")
        return _complete(name, folder, terms)
    problem = None
    try:
        if (folder := _snapshot(name, revision)) is not None:
            return _complete(name, folder, terms)
    except ModelUnavailable as error:
        problem = error
    if hub.offline():
        raise _offline(name, revision, problem)
    beat = _beat(progress, name)
    beat()
    listing = hub.ask(name, revision, beat)
    choice = choose(name, listing.files.keys(), terms)
    ahead = beside.download if beside is not None else None
    download = Download(listing, (*choice.small, *choice.weights), _WORDS[role], ahead)
    if announce:
        download.announce(progress)
    folder = download.fetch(choice.small, progress)
    source = ModelSource(name=name, folder=folder, terms=terms, choice=choice, listing=listing, download=download)
    _check_index(source)
    return source


def check_room(*sources: ModelSource | None) -> None:
    """Refuse downloads that the disk has no room for together. Raises ModelUnavailable."""
    waiting = [s for s in sources if s is not None and s.download is not None]
    if waiting:
        size = sum(s.download.bytes - s.download.fetched for s in waiting)
        transfer.check_room(size, " and ".join(s.name for s in waiting))


def _beat(progress: Progress, name: str) -> Callable[[], None]:
    return lambda: progress(Loading(f"asking the hub for {name}"))


def _check_revision(name: str, revision: str | None, role: Role) -> None:
    if revision is not None and (not revision.strip() or ".." in revision or revision.startswith(("/", "-"))):
        hint = f"{_FLAGS[role]} takes a branch, a tag or a commit"
        raise UsageProblem(f"{revision!r} is no revision of {name}", hint)


def _folder(name: str) -> Path | None:
    """The folder of that name, None for what looks like a hub id. Raises ModelUnavailable for what is neither."""
    if not name.strip():
        raise ModelUnavailable("the name of the model is empty", "give a folder, or a hub id such as owner/name")
    path = Path(name).expanduser()
    looks_local = path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1 or "\\" in name
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelUnavailable(f"{name} is a folder without config.json", "give a folder saved by transformers")
        return path
    if path.exists():
        raise ModelUnavailable(f"{name} is a file, not a model folder", "give the folder that holds config.json")
    if looks_local:
        raise ModelUnavailable(f"there is no model folder {name}", "check it, or give a hub id such as owner/name")
    return None


def _snapshot(name: str, revision: str | None) -> Path | None:
    """The cached folder of a hub id, complete or not. Raises ModelUnavailable for what can be no hub id."""
    from huggingface_hub.utils import validate_repo_id

    with hub.hub_errors(name, revision):
        validate_repo_id(name)
    return cache.snapshot(name, revision)


def _complete(name: str, folder: Path, terms: TrustPolicy) -> ModelSource:
    """A model that lies in a folder. Raises ModelUnavailable where something of it is missing."""
    try:
        if lacking := missing(folder, name, terms):
            raise ModelUnavailable(f"{name} lacks {lacking[0]}", "its download is incomplete")
        return ModelSource(name, folder, terms, choose(name, names_in(folder), terms))
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"{name} cannot be read: {first_line(error)}", "its download is incomplete") from None


def _check_index(source: ModelSource) -> None:
    """Raises ModelUnavailable where the index names weights that the hub does not list, or not under such a name."""
    try:
        lacking = sorted(set(shards(source.folder, source.choice)) - set(source.choice.weights))
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"{source.name} cannot be read: {first_line(error)}", "choose another model") from None
    if lacking:
        hint = "the hub lists no such weights: choose another model"
        raise ModelUnavailable(f"{source.name} lacks {lacking[0]}", hint)


def _offline(name: str, revision: str | None, problem: ModelUnavailable | None) -> ModelUnavailable:
    if problem is None:
        what = hub.at(name, revision)
        return ModelUnavailable(f"{what} is not in the local cache, and HF_HUB_OFFLINE is set", hub.OFFLINE)
    return ModelUnavailable(f"{problem.message}; HF_HUB_OFFLINE is set, so the hub is not asked", problem.hint)
