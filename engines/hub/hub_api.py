"""What the hub says about a model, and every way in which it says nothing, as a sentence."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any
from urllib.parse import quote

from engines.errors import ModelUnavailable, SpecError, first_line
from engines.hub import hub_cache as cache
from engines.hub.untrusted_json import is_count, object_in, parse_object, words_in
from engines.progress import with_heartbeat

TICK = 0.25
"""Seconds between two reports of progress; also how long a cancel waits."""

_TIMEOUTS = 5.0, 10.0, 5.0, 5.0  # seconds to connect, until something comes, to send, for a free connection
_LISTING, _LISTING_SECONDS = 32 << 20, 60.0  # bytes and seconds that an answer about a model may take
_SAID = 1 << 16  # bytes of what the hub says of an error
_OF_THE_BODY = {"content-encoding", "content-length", "transfer-encoding"}
_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_LONGEST = 200  # bytes of a part of a name: file systems take 255, a partial file has an ending more
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_OFFLINE_NOW = "spec-tui runs offline (HF_HUB_OFFLINE, or the option)"
NOT_FETCHED = f"is not in the local cache, and {_OFFLINE_NOW}"
NOT_ASKED = f"{_OFFLINE_NOW}, so the hub is not asked"
OFFLINE = "connect once to download it, or give a local folder"
AGAIN = "what was fetched stays: try again to go on from there"


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file on the hub. ``size`` in bytes; ``digest``: sha256 of the content if the hub keeps it as a large file, else
    its git blob id (sha1)."""

    name: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class Listing:
    """A revision of a model on the hub.

    Attributes:
        gated: its files are given only to those who have accepted its terms.
        licence: as the model card says, None if it doesn't.
        parameters: number of parameters by dtype as stored ("BF16"), as counted by the hub; empty where it did not.
    """

    name: str
    revision: str
    commit: str
    files: dict[str, RemoteFile]
    gated: bool = False
    licence: str | None = None
    parameters: dict[str, int] = field(default_factory=dict)


def ask(name: str, revision: str | None, beat: Callable[[], None] = lambda: None) -> Listing:
    """The listing of a model; ``beat`` is called meanwhile, and raises a BaseException that is not an Exception to
    stop. Raises ModelUnavailable: no such model or revision, gated, offline, or the hub does not answer."""
    with hub_errors(name, revision):
        return with_heartbeat(lambda: _listing(name, revision), beat, TICK)


def offline() -> bool:
    """Whether the user has forbidden questions to the hub."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


@contextmanager
def content(listing: Listing, name: str, range: str | None) -> Iterator[Any]:
    """The answer that a file of a model is streamed in; ``range`` as in HTTP. Raises what the hub's client raises."""
    from huggingface_hub import constants, hf_hub_url

    url = hf_hub_url(listing.name, name, revision=listing.commit, endpoint=constants.ENDPOINT)
    with _opened(url, {"Range": range} if range else {}, constants.HF_HUB_DOWNLOAD_TIMEOUT) as response:
        yield response


@contextmanager
def _opened(url: str, headers: dict[str, str], timeout: float | tuple[float, ...]) -> Iterator[Any]:
    """The hub's answer to a GET, whose content is still to be read. Raises what the hub's client raises, which would
    read what is said of an error to its end, and ModelUnavailable where the content would unpack to any size."""
    from huggingface_hub import get_session
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

    headers = {**build_hf_headers(), "Accept-Encoding": "identity", **headers}
    with get_session().stream("GET", url, headers=headers, timeout=timeout, follow_redirects=True) as response:
        if response.is_error:
            kept = {name: value for name, value in response.headers.items() if name.lower() not in _OF_THE_BODY}
            said = next(response.iter_raw(), b"")[:_SAID]
            hf_raise_for_status(type(response)(
                response.status_code, headers=kept, content=said, request=response.request))
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise ModelUnavailable("the hub sends compressed data, which was not requested", "check HF_ENDPOINT")
        yield response


def commit_of_dataset(name: str) -> str:
    """The commit that a dataset of the hub is at now. Raises ModelUnavailable."""
    with hub_errors(name, None):
        return _commit(_about(name, None, "datasets"), name)


def _listing(name: str, revision: str | None) -> Listing:
    found = _about(name, revision)
    commit, siblings = _commit(found, name), found.get("siblings")
    if not isinstance(siblings, list):
        raise ModelUnavailable(f"the hub's answer about {name} makes no sense: it has no list of files",
                               "check HF_ENDPOINT")
    files = [file for sibling in siblings if (file := _file(sibling)) is not None]
    counted = object_in(object_in(found, "safetensors"), "parameters")
    return Listing(
        name=name, revision=revision or "main", commit=commit, files={file.name: file for file in files},
        gated=bool(found.get("gated")), licence=_licence(object_in(found, "cardData")),
        parameters={dtype: count for dtype, count in counted.items() if is_count(count)},
    )


def _commit(found: dict[str, Any], name: str) -> str:
    """The commit that an answer of the hub is about. Raises ModelUnavailable."""
    commit = found.get("sha")
    if not (isinstance(commit, str) and re.fullmatch(r"[0-9a-f]{40}", commit)):
        raise ModelUnavailable(f"the hub names no commit of {name}", "check HF_ENDPOINT")
    return commit


def _about(name: str, revision: str | None, kind: str = "models") -> dict[str, Any]:
    """What the hub answers about a model, or a thing of another ``kind`` in its addresses; huggingface_hub would read
    an answer that never ends, and takes what has other types than it expects. Raises ModelUnavailable and what the
    hub's client raises."""
    from huggingface_hub import constants
    from huggingface_hub.utils import validate_repo_id

    validate_repo_id(name)
    at_revision = f"/revision/{quote(revision, safe='')}" if revision else ""
    url, found = f"{constants.ENDPOINT}/api/{kind}/{name}{at_revision}?blobs=true", bytearray()
    until = monotonic() + _LISTING_SECONDS
    with _opened(url, {}, _TIMEOUTS) as answer:
        for block in answer.iter_bytes():
            found += block
            if len(found) > _LISTING or monotonic() > until:
                raise ModelUnavailable(f"the hub's answer about {name} does not end", "check HF_ENDPOINT, or try later")
    try:
        return parse_object(bytes(found), "its answer")
    except ValueError as error:
        raise ModelUnavailable(f"the hub's answer about {name} makes no sense: {error}", "check HF_ENDPOINT") from None


def _file(sibling: Any) -> RemoteFile | None:
    if not isinstance(sibling, dict):
        return None
    name, large = sibling.get("rfilename"), object_in(sibling, "lfs")
    size, digest = (large.get("size"), large.get("sha256")) if large else (sibling.get("size"), sibling.get("blobId"))
    known = is_count(size) and isinstance(digest, str) and _DIGEST.fullmatch(digest)
    return RemoteFile(name, size, digest) if known and _is_name(name) else None


def _is_name(name: Any) -> bool:
    """Whether a file of this name stays in its folder on every system, and can be shown. Others are as if not there."""
    if not isinstance(name, str) or not name.isprintable() or set(name) & set('\\:*?"<>|'):
        return False
    parts = name.split("/")
    return not {"", ".", ".."} & set(parts) and len(name) <= 1000 and all(len(p.encode()) <= _LONGEST for p in parts)


def _licence(card: dict[str, Any]) -> str | None:
    """``license`` of a model card; "other" is named by the card in a second field."""
    named, own = card.get("license"), card.get("license_name")
    named = named if isinstance(named, str) else ", ".join(words_in(card, "license"))
    return (own if isinstance(own, str) and own else named) if named else None


@contextmanager
def hub_errors(name: str, revision: str | None) -> Iterator[None]:
    """Turns what fails in talking to the hub, and in writing its cache, into ModelUnavailable: each Exception."""
    try:
        yield
    except SpecError:
        raise
    except Exception as error:  # the hub's client raises some twenty kinds
        raise sentence(error, name, revision) from None


def sentence(error: Exception, name: str, revision: str | None) -> ModelUnavailable:
    """What went wrong with a model of the hub, and the way out."""
    from huggingface_hub import errors

    known = (  # gated is a kind of not found
        (errors.GatedRepoError, f"{name} is gated", "accept its licence on the hub and log in: hf auth login"),
        (errors.RepositoryNotFoundError, f"{name} is not on the hub", "check the id, or log in if it is private"),
        (errors.RevisionNotFoundError, f"{name} has no revision {revision or 'main'}",
         "give a branch, a tag or a whole commit hash of its page on the hub"),
        (errors.OfflineModeIsEnabled, f"{at_revision(name, revision)} {NOT_FETCHED}", OFFLINE),
        (errors.HFValidationError, f"{name!r} is neither a folder nor a hub id", "hub ids look like owner/name"),
    )
    if found := next((words for kind, *words in known if isinstance(error, kind)), None):
        return ModelUnavailable(*found)
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return ModelUnavailable(f"the hub gives no access to {name}", "log in: hf auth login")
    if status == 429:
        return ModelUnavailable("too many requests to the hub", "wait some minutes, or log in: hf auth login")
    if status is not None:
        return ModelUnavailable(f"the hub cannot give {name} (it answers with error {status})", "try again later")
    if isinstance(error, errors.HTTPError):
        missing = f"{at_revision(name, revision)} is not in the local cache and the hub could not be reached"
        return ModelUnavailable(missing, OFFLINE)
    return _local(error, name)


def _local(error: Exception, name: str) -> ModelUnavailable:
    """What went wrong on this machine."""
    code = getattr(error, "errno", None)
    if code in _FULL:
        return ModelUnavailable(f"the disk of {cache.folder()} is full", f"make room, or set HF_HOME; {AGAIN}")
    if code in _DENIED:
        return ModelUnavailable(f"the cache {cache.folder()} cannot be written", "set HF_HOME to a folder of your own")
    hint = AGAIN if isinstance(error, OSError) else "check HF_ENDPOINT, or try again"
    return ModelUnavailable(f"{name} cannot be fetched: {first_line(error, named=True)}", hint)


def at_revision(name: str, revision: str | None) -> str:
    """A model and its revision, in words."""
    return f"{name} at revision {revision}" if revision else name
