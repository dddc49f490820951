"""A model found: which of its files are needed, the folder they lie in, fetched from the hub where they must be."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from engines.errors import ModelUnavailable, UsageProblem, first_line, way_out
from engines.folders import check_reachable
from engines.hub import download as transfer
from engines.hub import gguf_file, gguf_folder
from engines.hub import hub_api as hub
from engines.hub import hub_cache as cache
from engines.hub.download import Download, Progress
from engines.hub.download_progress import in_bytes
from engines.hub.gguf_config import Unsupported
from engines.hub.gguf_file import GgufFile
from engines.hub.known_models import meant, resolve
from engines.hub.model_checks import generation_problem
from engines.hub.other_kinds import ADAPTER, UNKNOWN, check_name, check_pointers, file_kind, folder_kind, pasted
from engines.hub.untrusted_json import object_in, read_object
from engines.progress import Loading

Role = Literal["target", "draft model"]

_WORDS: dict[Role, str] = {"target": "", "draft model": "draft: "}
_FLAGS: dict[Role, str] = {"target": "--revision", "draft model": "--draft-revision"}
_SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_SETTINGS = ("config.json", "generation_config.json", "chat_template.*", "additional_chat_templates/*")
_TOKENIZER = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt",
    "*.model", "*.tiktoken", "tekken.json",
)
_IN_A_MODEL = re.compile(r"[\w.\-]+/[\w.\-]+:[\w.\-]+(/[\w.\-]+)*")  # a file of one of the hub's
_SHOWN = 80  # characters of a name in a message



@dataclass(frozen=True, slots=True)
class TrustPolicy:
    """What the user allows beyond safetensors and the code of transformers.

    Attributes:
        allow_pickle: weights in .bin files are read, by torch's weights-only unpickler, where there are no others.
        trust_remote_code: Python files that come with the model are run.
    """

    allow_pickle: bool = False
    trust_remote_code: bool = False


@dataclass(frozen=True, slots=True)
class FileChoice:
    """The files of a model that are needed, and no others. ``small``: all but weights. ``pickled``: the weights are in
    .bin files."""

    small: tuple[str, ...]
    weights: tuple[str, ...]
    pickled: bool


@dataclass(slots=True)
class ModelSource:
    """Where a model is.

    Attributes:
        name: as the user gave it.
        folder: holds configuration and tokenizer; the weights too, once ``fetch_weights`` has returned, unless they
            are in a GGUF file.
        choice: the files it is made of.
        listing: what the hub says about it; None for a folder and for a model that is cached completely.
        download: what was missing when it was found, None where nothing was.
        gguf: the header of the file that the weights are in; None for safetensors and pickled ones.
        notes: what was noticed when it was loaded, for the user.
    """

    name: str
    folder: Path
    terms: TrustPolicy
    choice: FileChoice
    listing: hub.Listing | None = None
    download: Download | None = None
    gguf: GgufFile | None = None
    notes: tuple[str, ...] = ()

    @property
    def place(self) -> Path:
        """What names the model to those who only look at its files: its GGUF file, else its folder."""
        return self.gguf.path if self.gguf is not None else self.folder

    def path(self, name: str) -> Path:
        """Where a file of the model lies."""
        parts = self.gguf.parts if self.gguf is not None else ()
        return next((part for part, _ in parts if part.name == name), self.folder / name)

    def fetch_weights(self, progress: Progress = lambda _: None) -> None:
        """Download the weights, unless they are here. Raises ModelUnavailable, and whatever ``progress`` raises."""
        if self.download is not None:
            self.download.fetch(self.choice.weights, progress)
            self.download = None

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the user should know about how this model is read."""
        found = self.notes
        if problem := generation_problem(self.folder):
            found += (f"{self.name}: {problem}; answers end where config.json or the tokenizer says",)
        if self.choice.pickled:
            found += (f"the weights of {self.name} are pickled files: read by torch's weights-only loader",)
        if self.terms.trust_remote_code and (classes := auto_map(self.folder)):
            where = sorted({v.partition("--")[0] for v in classes.values() if "--" in v} | {self.name})
            found += (f"code that comes with {' and '.join(where)} runs here, with all your rights",)
        return found


def locate(
    name: str, revision: str | None = None, terms: TrustPolicy | None = None, role: Role = "target",
    progress: Progress = lambda _: None, to_load: bool = True, beside: ModelSource | None = None,
) -> ModelSource:
    """Find a model; of one that is on the hub only, fetch configuration and tokenizer.

    A folder, and a model that the hub's cache holds completely, are taken as they are: the hub is not asked.

    Args:
        name: a folder, a GGUF file, a hub id, a file of the hub as ``owner/name:FILE.gguf``, or a known model's name.
        revision: branch, tag or commit of a hub id; None is "main".
        role: what the model is for, for messages.
        progress: told of the download; to stop, it raises a BaseException that is not an Exception. What was fetched
            stays.
        to_load: the size of the whole download is said first, and refused where the disk has no room. Else a GGUF file
            of the hub is refused unless it is here: what it is stands in the file itself.
        beside: a model whose weights will be fetched before this one's: what both have is counted there.

    Raises:
        ModelUnavailable: missing, unreachable, gated, without weights that may be read, no room on the disk.
        UsageProblem: a revision that is none, or of a folder or file.
    """
    terms = terms or TrustPolicy()
    _check_revision(name, revision, role)
    place = pasted(resolve(name))
    if (path := gguf_file.at(place)) is not None:
        if revision is not None:
            raise UsageProblem(f"{name} is a file here: it has no revisions", f"{_FLAGS[role]} is for hub ids")
        return _in_gguf(name, path, terms)
    of_hub = _IN_A_MODEL.fullmatch(place) and not os.path.exists(place)
    name, _, file = place.partition(":") if of_hub else (place, "", "")
    folder = _folder(name)
    if folder is not None:
        if revision is not None:
            raise UsageProblem(f"{name} is a folder: it has no revisions", f"{_FLAGS[role]} is for hub ids")
        return _complete(name, folder, terms)
    problem = None
    try:
        if (folder := _snapshot(name, revision)) is not None:
            if file and all(os.path.isfile(folder / part) for part in gguf_file.parts_by_name(file)):
                return _in_gguf(place, folder / file, terms)
            if not file:
                return _complete(name, folder, terms)
    except ModelUnavailable as error:
        problem = error
    listing = _ask(name, revision, problem, progress)
    choice = FileChoice((), _listed(file, listing), False) if file else choose_files(name, listing.files.keys(), terms)
    ahead = beside.download if beside is not None else None
    download = Download(listing, (*choice.small, *choice.weights), _WORDS[role], ahead)
    if to_load:
        download.announce(progress)
    elif file and download.bytes:
        raise ModelUnavailable(f"{place} is not here, and only its file ({in_bytes(download.bytes)}) says what it is",
                               f"load it once, which downloads it: spec-tui --model {place}")
    if file:  # its configuration is in it
        return _in_gguf(place, download.fetch(choice.weights, progress) / file, terms)
    folder = download.fetch(choice.small, progress)
    source = ModelSource(name=name, folder=folder, terms=terms, choice=choice, listing=listing, download=download)
    _check_index(source)
    return source


def _ask(name: str, revision: str | None, problem: ModelUnavailable | None, progress: Progress) -> hub.Listing:
    """What the hub says of a model. Raises ModelUnavailable; of a name without an owner the hint begins with the known
    names that may be meant."""
    asking = Loading(f"asking the hub for {name}")
    try:
        if hub.offline():
            raise _offline(name, revision, problem)
        progress(asking)
        return hub.ask(name, revision, lambda: progress(asking))
    except ModelUnavailable as error:
        raise ModelUnavailable(error.message, error.hint if "/" in name else f"{meant(name)} {error.hint}") from None


def _in_gguf(name: str, path: Path, terms: TrustPolicy) -> ModelSource:
    """A model in a GGUF file, or in several of which this is the first. Raises ModelUnavailable."""
    try:
        file = gguf_file.read(path)
        folder = gguf_folder.prepared(file)
        small = tuple(sorted(found.name for found in folder.iterdir() if found.name != gguf_folder.CHECKS))
    except Unsupported as error:
        raise ModelUnavailable(f"{name} cannot be decoded with here: {error}", error.hint) from None
    except gguf_file.NotRead as error:
        raise ModelUnavailable(str(error), error.hint) from None
    except ValueError as error:
        if (kind := file_kind(path)) is not UNKNOWN:  # another file under such a name
            raise ModelUnavailable(f"{name} is {kind.what}", kind.help) from None
        raise ModelUnavailable(first_line(error), "its download is incomplete, or it is damaged") from None
    except OSError as error:
        raise ModelUnavailable(f"{name} cannot be read: {error.strerror or error}",
                               way_out(error, "check the file")) from None
    return ModelSource(name=name, folder=folder, terms=terms, gguf=file,
                       choice=FileChoice(small, tuple(part.name for part, _ in file.parts), False))


def _listed(file: str, listing: hub.Listing) -> tuple[str, ...]:
    """A file that the hub has, and the others of its model. Raises ModelUnavailable."""
    if file not in listing.files:
        alike = file.lower()
        others = sorted((n for n in listing.files if n.endswith(".gguf")), key=lambda n: (alike not in n.lower(), n))
        hint = f"it has {', '.join(others[:8])}" if others else "it has no GGUF files"
        if not alike.endswith(".gguf"):  # a type of weights, by which Ollama and llama.cpp choose a file
            raise ModelUnavailable(f"{listing.name}:{file} names no file", f"name one, {listing.name}:FILE; {hint}")
        raise ModelUnavailable(f"{listing.name} has no file {file}", hint)
    needed = gguf_file.parts_by_name(file)
    if needed[0] != file:
        raise ModelUnavailable(f"{file} is one of the {len(needed)} files of a model", f"name the first, {needed[0]}")
    if lacking := [name for name in needed[1:] if name not in listing.files]:
        raise ModelUnavailable(f"{listing.name} lacks {lacking[0]}, a file of the same model", "choose another model")
    return needed


def check_room(*sources: ModelSource | None) -> None:
    """Refuse downloads that the disk has no room for together. Raises ModelUnavailable."""
    waiting = [s for s in sources if s is not None and s.download is not None]
    if waiting:
        size = sum(s.download.bytes - s.download.fetched for s in waiting)
        transfer.check_room(size, " and ".join(s.name for s in waiting))


def _check_revision(name: str, revision: str | None, role: Role) -> None:
    if revision is not None and (not revision.strip() or ".." in revision or revision.startswith(("/", "-"))):
        hint = f"{_FLAGS[role]} takes a branch, a tag or a commit"
        raise UsageProblem(f"{revision!r} is not a revision of {name}", hint)


def _short(name: str) -> str:
    return name if len(name) <= _SHOWN else f"{name[:_SHOWN]}..."


def _path(name: str) -> Path:
    """The path of that name. Raises ModelUnavailable for what can be none: too long, or of an unknown user."""
    try:
        path = Path(name).expanduser()
        check_reachable(path)
    except (OSError, RuntimeError, ValueError) as error:
        why = getattr(error, "strerror", None) or first_line(error).rstrip(".")
        raise ModelUnavailable(f"there is no model {_short(name)}: {why}", "check the name") from None
    return path


def _folder(name: str) -> Path | None:
    """The folder of that name, None for what looks like a hub id. Raises ModelUnavailable for what is neither."""
    if not name.strip():
        raise ModelUnavailable("the name of the model is empty", "give a folder, or a hub id such as owner/name")
    path, shown = _path(name), _short(name)
    looks_local = path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1 or "\\" in name
    if os.path.isdir(path):
        if not os.path.isfile(path / "config.json"):
            files = ", ".join(sorted(found.name for found in path.glob("*.gguf")))
            hint = f"give one of its GGUF files: {files}"[:300] if files else "give a folder saved by transformers"
            if (kind := folder_kind(path)) is not None:
                raise ModelUnavailable(f"{name} is {kind.what}", kind.help)
            raise ModelUnavailable(f"{name} is a folder without config.json", hint)
        return path
    if os.path.exists(path):
        try:
            kind = file_kind(path)
        except OSError as error:
            raise ModelUnavailable(f"{name} cannot be read: {error.strerror or error}",
                                   way_out(error, "check the file")) from None
        raise ModelUnavailable(f"{name} is {kind.what}", kind.help)
    check_name(name)
    if looks_local:
        raise ModelUnavailable(f"there is no model folder {shown}", "check it, or give a hub id such as owner/name")
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
        names = names_in(folder)
        check_regular(folder)
        choice = choose_files(name, names, terms)
        check_pointers(name, folder, names.intersection((*choice.small, *choice.weights)))
        needed = shards(folder, choice) + (_code(folder) if terms.trust_remote_code else ())
        lacking = [n for n in needed if n not in names]
        if not any(_matches(n, _TOKENIZER) for n in names):
            lacking.append("a tokenizer")
    except (OSError, ValueError) as error:
        hint = "download it again"
        hint = way_out(error, hint) if isinstance(error, OSError) else hint
        raise ModelUnavailable(f"{name} cannot be read: {first_line(error)}", hint) from None
    if lacking:
        raise ModelUnavailable(f"{name} lacks {lacking[0]}", "its download is incomplete")
    return ModelSource(name, folder, terms, choice)


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
        what = hub.at_revision(name, revision)
        return ModelUnavailable(f"{what} {hub.NOT_FETCHED}", hub.OFFLINE)
    return ModelUnavailable(f"{problem.message}; {hub.NOT_ASKED}", problem.hint)


def choose_files(name: str, names: Collection[str], terms: TrustPolicy) -> FileChoice:
    """Choose among the file names of a model: what transformers would read of it, and nothing for other programs.
    Raises ModelUnavailable: no configuration, or no weights that may be read; says which flag would allow them."""
    if "config.json" not in names:
        if any(n.endswith(".gguf") for n in names):
            raise _unreadable(name, names)
        raise ModelUnavailable(f"{name} has no config.json", "choose a model saved by transformers")
    index, weights, pickled = _weights(names, terms.allow_pickle)
    if not weights:
        raise _unreadable(name, names)
    patterns = (*_SETTINGS, *_TOKENIZER, *(("*.py",) if terms.trust_remote_code else ()))
    small = [n for n in names if _matches(n, patterns)] + ([index] if index else [])
    return FileChoice(tuple(sorted(small)), weights, pickled)


def _weights(names: Collection[str], allow_pickle: bool) -> tuple[str | None, tuple[str, ...], bool]:
    """Index file (None for a single file), weight files, whether they are pickled; in transformers' own order."""
    for single, index in (_SAFETENSORS, _PICKLED) if allow_pickle else (_SAFETENSORS,):
        pickled = single == _PICKLED[0]
        if single in names:
            return None, (single,), pickled
        if index in names:
            stem, ending = single.rsplit(".", 1)
            of_index = [n for n in names if re.fullmatch(rf"{stem}-\d+-of-\d+\.{ending}", n)]
            # a shard may have any name; the index, which says so, is not here yet
            return index, tuple(sorted(of_index or (n for n in names if _matches(n, (f"*.{ending}",))))), pickled
    return None, (), False


def _unreadable(name: str, names: Collection[str]) -> ModelUnavailable:
    if "adapter_config.json" in names:
        return ModelUnavailable(f"{name} is {ADAPTER.what}", ADAPTER.help)
    if any(re.fullmatch(r"model-\d+-of-\d+\.safetensors", n) for n in names):
        return ModelUnavailable(f"{name} lacks {_SAFETENSORS[1]}, which names the weights", "get that file, too")
    endings = {n.rpartition(".")[2] for n in names}
    if endings & {"bin", "pt", "pth"}:
        _, readable, _ = _weights(names, allow_pickle=True)
        hint = "choose one that is converted"
        if readable:
            hint = f"--allow-pickle reads {readable[0]} without running what is pickled in it; or {hint}"
        return ModelUnavailable(f"{name} has no weights in safetensors, only pickled ones", hint)
    other = next((what for what in ("gguf", "onnx", "h5", "msgpack") if what in endings), None)
    if other == "gguf":
        files = ", ".join(n for n in sorted(names) if n.endswith(".gguf"))
        return ModelUnavailable(f"{name} has its weights in GGUF files", f"name one, {name}:FILE: {files}"[:300])
    if other:
        return ModelUnavailable(f"{name} has its weights in {other}, not in safetensors",
                                "choose the model they were made from")
    return ModelUnavailable(f"{name} has no weights in safetensors", "it is not a model, or its download is incomplete")


def shards(folder: Path, choice: FileChoice) -> tuple[str, ...]:
    """The weight files: those that the index names where there is one. Raises OSError and ValueError."""
    index = next((n for n in choice.small if n.endswith(".index.json")), None)
    if index is None:
        return choice.weights
    names = object_in(read_object(folder / index), "weight_map").values()
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{index} is damaged: it names no weights")
    return tuple(sorted(set(names)))


def names_in(folder: Path) -> set[str]:
    """Names of the files of a model folder, as on the hub: subfolders with a slash. Dead links are no files."""
    found = {p.name for p in folder.iterdir() if os.path.isfile(p)}
    more = folder.glob("additional_chat_templates/*")
    return found | {f"{p.parent.name}/{p.name}" for p in more if os.path.isfile(p)}


def check_regular(folder: Path) -> None:
    """Raises ValueError where a file of a model is a pipe or a device: to open one may wait for ever."""
    for place in folder.iterdir():
        odd = os.path.exists(place) and not (os.path.isfile(place) or os.path.isdir(place))
        if odd and _matches(place.name, (*_SETTINGS, *_TOKENIZER, "*.json", "*.safetensors", "*.bin")):
            raise ValueError(f"{place.name} is a pipe or a device, not a file")


def auto_map(folder: Path) -> dict[str, str]:
    """Classes that the model brings itself, as ``{"AutoConfig": "module.Class"}``; empty where it brings none."""
    found: dict[str, str] = {}
    for file in ("config.json", "tokenizer_config.json"):
        with suppress(OSError, ValueError):
            for key, value in object_in(read_object(folder / file), "auto_map").items():
                first = next((v for v in value if v), "") if isinstance(value, list) else value
                found[key] = first if isinstance(first, str) else ""
    return found


def _code(folder: Path) -> tuple[str, ...]:
    """Python files of the model's own that its classes are in."""
    return tuple({f"{value.rpartition('.')[0]}.py": 0 for value in auto_map(folder).values() if "--" not in value})


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a name fits one of the patterns; a star does not reach over a slash."""
    return any(fnmatchcase(name, p) and name.count("/") == p.count("/") for p in patterns)
