"""What each session shows, and what it gets of this machine for that: files to read, a folder of its own, variables."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

import msgspec

import engines
import spec_tui
from engines import folders
from engines.errors import ModelUnavailable, UsageProblem
from engines.folders import typed_path
from engines.heads.head_config import FAMILIES
from engines.heads.local_heads import may_be_on_hub, place_of
from engines.hub import hub_cache, kept_weights
from engines.hub.known_models import KNOWN, default_model, draft_beside, known_name, resolve
from engines.model.load_options import AUTO, NONE
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.session.environment import child_environment
from spec_tui.session.host_access import HostAccess

_KEPT = (
    "PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT",
    "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "MKL_NUM_THREADS", "TEXTUAL_ANIMATIONS", "NO_COLOR",
    "HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_UPDATE_CHECK", "HF_HUB_DISABLE_PROGRESS_BARS", "HF_HUB_VERBOSITY",
    "TRANSFORMERS_VERBOSITY", "TOKENIZERS_PARALLELISM", "DO_NOT_TRACK",
)
"""Variables of the environment that a session has from here; there are no others."""
_SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/proc", "/sys", "/etc/ld.so.cache", "/etc/ld.so.conf",
    "/etc/ld.so.conf.d", "/etc/localtime", "/etc/ssl", "/etc/mime.types", "/etc/nsswitch.conf", "/etc/alternatives",
    "/etc/hosts", "/etc/resolv.conf", "/etc/host.conf", "/etc/gai.conf",
)
_MADE = ("costs", "tunings", "native", "selftests", "gguf")  # in the cache folder
FOLDERS = "spec-tui-serve-"
"""How the name of a server's folder begins, in which its sessions have theirs."""
_FETCH = "fetch it first: spec-tui run Hello --model {}"
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/dri", "/dev/kfd", "/dev/dxg")


class SessionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What each session shows.

    Attributes:
        shows: the chat, with a model; or what needs none: lessons, a recorded run, several of them side by side.
        load: the model of a chat.
        engine, options: what a chat begins with; "" takes the default.
        names: the lesson to begin with, of a class the one that it goes through ("path-45" is a path); or the files of
            the recorded runs, absolute.
        theme, presenter: as of ``SpecTui``.
        role: of a session of a class; "" where there is none.
    """

    shows: Literal["chat", "lessons", "replay", "race"]
    load: LoadRequest = LoadRequest()
    engine: str = ""
    options: dict[str, str] = {}
    names: tuple[str, ...] = ()
    theme: str | None = None
    presenter: bool = False
    role: Literal["", "teacher", "student"] = ""

    @property
    def access(self) -> HostAccess:
        """What a session may do with this machine."""
        return HostAccess(False, self.load if self.shows == "chat" else None)


class Confinement(msgspec.Struct, frozen=True):
    """The arguments of ``confinement.confine``."""

    read: tuple[str, ...]
    listed: tuple[str, ...]
    write: tuple[str, ...]
    port: int | None


def on_this_machine(load: LoadRequest) -> LoadRequest:
    """The request with the models and the head where they are on this machine: a session fetches nothing, and starts
    elsewhere.

    Raises:
        ModelUnavailable: one is not here whole.
        UsageProblem: another program would have to be started, or a name can be no path or no address.
    """
    from engines.hub.model_source import locate
    from engines.servers.connection import checked_address

    if load.backend:
        raise UsageProblem("a session starts no other program", "start its server, and give --server URL")
    if load.server is not None:
        checked_address(load.server)
        if load.model is None:
            return load
    names = {"model": load.model or default_model(), "draft_model": load.draft_model}
    for role, name in names.items():
        if name is None or known_name(name) == name:
            if name is not None:
                resolve(name)
            continue
        revision = load.revision if role == "model" else load.draft_revision
        place = typed_path(name)
        if not os.path.exists(place) and hub_cache.snapshot(name.partition(":")[0], revision) is None:
            raise ModelUnavailable(f"{name} is not on this machine", _FETCH.format(name))
        source = locate(name, revision)
        if source.download is not None:
            raise ModelUnavailable(f"{name} is not here whole", _FETCH.format(name))
        if os.path.exists(place):
            names[role] = str(place.resolve())
    return replace(load, **names, head=_head_here(load.head))


def _head_here(name: str | None) -> str | None:
    """A head by its folder, if it has one; a family may be any of those that ship. Raises ModelUnavailable."""
    if name in (None, AUTO, NONE) or name.lower() in FAMILIES:
        return name
    if (place := place_of(name)) is not None:
        return str(place.resolve())
    if not may_be_on_hub(name) or hub_cache.snapshot(name) is None:
        raise ModelUnavailable(f"the head {name} is not on this machine", "spec-tui head list names those that are")
    return name


def confinement(policy: SessionPolicy, folder: Path) -> Confinement:
    """What a session may open: the program, the system's libraries, the models, and a folder of its own."""
    root = Path(engines.__file__).resolve().parent.parent
    program = (Path(engines.__file__).parent, Path(spec_tui.__file__).parent, *root.glob("sample_*"), root / "docs")
    libraries = [entry for entry in _modules() if Path(entry).resolve() != root or root.name.endswith("-packages")]
    interpreter = {sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parent)}
    read = {*_SYSTEM, *interpreter, *libraries, *map(str, program), *_places(policy)}
    write = {str(folder), *_DEVICES, *map(str, Path("/dev").glob("nvidia*"))}
    return Confinement(tuple(sorted(read)), (str(root),), tuple(sorted(write)), _port(policy.load.server))


def _places(policy: SessionPolicy) -> Iterator[str]:
    """Files and folders that are shown, or that models are read from."""
    if policy.shows != "chat":
        yield from policy.names if policy.shows != "lessons" else ()
        return
    for name in (policy.load.model, policy.load.draft_model, policy.load.head):
        if name:
            place = typed_path(resolve(name))
            yield str(place.resolve() if os.path.exists(place) else hub_cache.repository(name.partition(":")[0]))
            yield from map(str, kept_weights.files_of(place))
            if name == policy.load.model and (draft := draft_beside(place)) is not None:
                yield str(draft.resolve())
                yield from map(str, kept_weights.files_of(draft))


def _port(server: str | None) -> int | None:
    """The port of a server. None where there is none."""
    from urllib.parse import urlsplit

    if server is None:
        return None
    found = urlsplit(server)
    return found.port or (443 if found.scheme == "https" else 80)


def _modules() -> list[str]:
    """Where modules are found, without the current folder, unless this program itself lies there."""
    root = str(Path(engines.__file__).resolve().parent.parent)
    here = os.path.realpath(os.curdir)
    return [entry for entry in sys.path if entry and (os.path.realpath(entry) != here or here == root)]


def variables(policy: SessionPolicy, folder: Path) -> dict[str, str]:
    """The environment of a session, whose home is ``folder``: made of a list of what is allowed."""
    every = child_environment()
    kept = {name: every[name] for name in (*_KEPT, policy.load.api_key_env or "") if name in every}
    return kept | policy.access.variables | {
        "HOME": str(folder), "USERPROFILE": str(folder), "USER": "visitor", "LOGNAME": "visitor",
        "TMPDIR": str(folder / "tmp"), "TEMP": str(folder / "tmp"), "TMP": str(folder / "tmp"),
        "SPEC_TUI_DATA_DIR": str(folder / "data"), "SPEC_TUI_CACHE_DIR": str(folder / "cache"),
        "XDG_STATE_HOME": str(folder / "state"), "XDG_CACHE_HOME": str(folder / "cache"),
        "HF_HUB_CACHE": str(hub_cache.folder()), "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": os.pathsep.join(_modules()), "PYTHONDONTWRITEBYTECODE": "1",
        "TEXTUAL_DRIVER": "spec_tui.serve.browser_driver:BrowserDriver", "TEXTUAL_COLOR_SYSTEM": "truecolor",
        "TERM": "xterm-256color", "COLORTERM": "truecolor",
    }


def furnish(folder: Path) -> None:
    """Make a session's folder, with links to the models that have a name here, and with what was made on this
    machine: times of forward passes, numbers of threads, native code, tokenizers of GGUF files, and a link to the
    weights in its order. Raises OSError."""
    for name in ("tmp", "data", "cache", "state"):
        (folder / name).mkdir(parents=True, mode=0o700)
    for model in (file for known in KNOWN.values() for file in known.files):
        if model.here:
            place = folder / "data" / model.path.relative_to(folders.data())
            place.parent.mkdir(parents=True)
            with suppress(OSError):  # Windows
                place.symlink_to(model.path.resolve())
    for kind in _MADE:
        if os.path.isdir(folders.cache() / kind):
            shutil.copytree(folders.cache() / kind, folder / "cache" / kind, ignore=shutil.ignore_patterns("tmp*"))
    kept_weights.folder().mkdir(parents=True, exist_ok=True)
    with suppress(OSError):
        (folder / "cache" / kept_weights.folder().name).symlink_to(kept_weights.folder().resolve())
