"""A local HTTP server that plays the hub: models with revisions, large files behind a redirect, and all its moods."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

NEEDED = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}
"""The files of a saved model that are needed beside its weights."""

_LARGE = (".safetensors", ".bin", ".gguf", ".onnx")
_BLOCK = 1 << 14


def digest(name: str, data: bytes) -> str:
    """The name of a blob: sha256 of a large file, git's sha1 of another."""
    if name.endswith(_LARGE):
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def save(folder: Path, seed: int = 1, **changes: Any) -> Path:
    """A random model with its tokenizer, saved."""
    from tests.conftest import make_llama, make_tokenizer

    make_llama(seed, **changes).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


@dataclass
class Model:
    """A model's repository: commit -> files, branches and tags -> commit."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    revisions: dict[str, str] = field(default_factory=dict)
    gated: bool = False
    licence: str | None = None
    counted: dict[str, int] | None = None


@dataclass(frozen=True)
class Asked:
    """A request that came in. ``range``: its Range header."""

    method: str
    path: str
    range: str | None
    sent_token: bool


class FakeHub:
    """The hub at ``url``.

    Attributes:
        asked: every request so far.
        cuts: by file name, after how many bytes of the next answers the connection is cut, one entry an answer.
        held: file names whose answers stop in the middle until ``released`` is set.
        ignores_ranges: answers always begin at the beginning.
        damages: file names whose content arrives changed.
        endless: file names whose answers never end; "" stands for the answer about a model.
        circles: file names that are redirected to themselves, for ever.
        strays: file names that are redirected to what is no place on the web.
        nonsense: what it answers about every model.
        lies: by file name, by how much the size that is listed is wrong.
        etag: what every answer calls its content, None for the digest.
        broken: answer everything with this status; what it says of that is endless where "" is.
        packed: it says of every answer that it is packed.
    """

    def __init__(self) -> None:
        self.models: dict[str, Model] = {}
        self.asked: list[Asked] = []
        self.cuts: dict[str, list[int]] = {}
        self.held: set[str] = set()
        self.holding, self.released = threading.Event(), threading.Event()
        self.ignores_ranges = False
        self.damages: set[str] = set()
        self.endless: set[str] = set()
        self.circles: set[str] = set()
        self.strays: set[str] = set()
        self.lies: dict[str, int] = {}
        self.nonsense: bytes | None = None
        self.etag: str | None = None
        self.broken: int | None = None
        self.packed = False
        self.pause = 0.0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    def publish(
        self, name: str, files: Path | dict[str, bytes], revision: str = "main", **about: Any
    ) -> str:
        """A new commit with these files (a folder, or names and contents), as a branch or tag. Returns the commit."""
        if isinstance(files, Path):
            files = {p.relative_to(files).as_posix(): p.read_bytes() for p in files.rglob("*") if p.is_file()}
        model = self.models.setdefault(name, Model())
        for key, value in about.items():
            setattr(model, key, value)
        commit = hashlib.sha1(f"{name}{revision}{len(model.commits)}".encode()).hexdigest()
        model.commits[commit], model.revisions[revision] = dict(files), commit
        return commit

    def got(self, name: str, method: str = "GET") -> list[Asked]:
        """Requests for the content of a file."""
        return [a for a in self.asked if a.method == method and "/resolve/" in a.path and a.path.endswith("/" + name)]

    def fetched(self) -> set[str]:
        """Names of the files whose content was asked for."""
        return {a.path.split("/resolve/")[1].partition("/")[2] for a in self.asked
                if a.method == "GET" and "/resolve/" in a.path}

    def environment(self, home: Path) -> dict[str, str]:
        """Variables for a process that shall take this for the hub."""
        return {
            "HF_ENDPOINT": self.url, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "0",
            "HF_HUB_CACHE": str(home / "hub"), "NO_PROXY": "127.0.0.1,localhost",
        }


@contextmanager
def played(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[FakeHub]:
    """A hub that huggingface_hub takes for its own, in this process, with no time lost in waiting."""
    from huggingface_hub import constants

    from engines.hub import download as transfer
    from engines.hub import download as workers
    from engines.hub import hub_api as asking

    hub = FakeHub()
    settings = {
        "HF_HUB_OFFLINE": False, "ENDPOINT": hub.url, "HF_HUB_CACHE": str(cache), "HF_HUB_DISABLE_TELEMETRY": True,
        "HUGGINGFACE_CO_URL_TEMPLATE": hub.url + "/{repo_id}/resolve/{revision}/{filename}",
    }
    for name, value in settings.items():
        monkeypatch.setattr(constants, name, value)
    hub.offline = lambda said=True: monkeypatch.setattr(constants, "HF_HUB_OFFLINE", said)  # as the variable says it
    for module in (asking, transfer):
        monkeypatch.setattr(module, "TICK", 0.01)
    monkeypatch.setattr(workers, "_PAUSES", (0.01,) * 5)
    try:
        yield hub
    finally:
        hub.close()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        with suppress(ConnectionError):
            self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        headers = self.headers
        self.hub.asked.append(Asked(self.command, path, headers.get("Range"), "Authorization" in headers))
        if self.hub.broken and "" in self.hub.endless and self.command == "GET":
            self._head(self.hub.broken, 1 << 50, {})
            while not self.hub.released.wait(0.001):
                self.wfile.write(b" " * _BLOCK)
        elif self.hub.broken:
            self._json(self.hub.broken, {"error": "broken"})
        elif path.startswith("/api/models/"):
            self._describe(path.removeprefix("/api/models/"))
        elif path.startswith("/cdn/"):
            self._send(*self._large(path.removeprefix("/cdn/")))
        elif "/resolve/" in path:
            self._resolve(path)
        else:
            self._json(200, {})

    def _describe(self, rest: str) -> None:
        name, _, revision = rest.partition("/revision/")
        found = self._find(name, revision or "main")
        if found is None:
            return
        model, commit = found
        siblings = []
        for file, data in model.commits[commit].items():
            size = len(data) + self.hub.lies.get(file, 0)
            entry: dict[str, Any] = {"rfilename": file, "size": size, "blobId": digest("git", data)}
            if file.endswith(_LARGE):
                entry["lfs"] = {"sha256": digest(file, data), "size": size, "pointerSize": 130}
            siblings.append(entry)
        about: dict[str, Any] = {
            "id": name, "modelId": name, "sha": commit, "siblings": siblings, "gated": "auto" if model.gated else False,
            "private": False, "tags": [], "cardData": {"license": model.licence} if model.licence else {},
        }
        if model.counted:
            about["safetensors"] = {"parameters": model.counted, "total": sum(model.counted.values())}
        if self.hub.nonsense is not None:
            self._head(200, len(self.hub.nonsense), {"Content-Type": "application/json"})
            self.wfile.write(self.hub.nonsense)
            return
        if "" in self.hub.endless:
            self._head(200, 1 << 50, {"Content-Type": "application/json"})
            while not self.hub.released.wait(0.001):
                self.wfile.write(b" " * _BLOCK)
            return
        self._json(200, about)

    def _resolve(self, path: str) -> None:
        name, _, rest = path[1:].partition("/resolve/")
        revision, _, file = rest.partition("/")
        found = self._find(name, revision)
        if found is None:
            return
        model, commit = found
        if model.gated and "Authorization" not in self.headers:
            return self._json(401, {"error": "gated"}, {"X-Error-Code": "GatedRepo", "X-Repo-Commit": commit})
        if file not in model.commits[commit]:
            return self._json(404, {"error": "no file"}, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
        if file in self.hub.circles | self.hub.strays:
            return self._json(302, {}, {"Location": path if file in self.hub.circles else "file:///etc/hostname"})
        data = model.commits[commit][file]
        headers = {"X-Repo-Commit": commit, "ETag": f'"{self.hub.etag or digest(file, data)}"'}
        if not file.endswith(_LARGE):
            return self._send(file, data, headers)
        headers |= {"X-Linked-ETag": headers["ETag"], "X-Linked-Size": str(len(data))}
        elsewhere = self.hub.url.replace("127.0.0.1", "localhost")  # another host, as the hub's CDN is
        headers["Location"] = f"{elsewhere}/cdn/{name}/{commit}/{file}"
        return self._json(302, {}, headers)

    def _large(self, rest: str) -> tuple[str, bytes]:
        name, commit, file = rest.rsplit("/", 2)
        return file, self.hub.models[name].commits[commit][file]

    def _find(self, name: str, revision: str) -> tuple[Model, str] | None:
        model = self.hub.models.get(name)
        if model is None:
            return self._json(401, {"error": "no model"}, {"X-Error-Code": "RepoNotFound"})
        commit = revision if revision in model.commits else model.revisions.get(revision)
        if commit is None:
            return self._json(404, {"error": "no revision"}, {"X-Error-Code": "RevisionNotFound"})
        return model, commit

    def _json(self, status: int, content: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        body = json.dumps(content).encode()
        self._head(status, len(body), {"Content-Type": "application/json", **(headers or {})})
        if self.command == "GET":
            self.wfile.write(body)

    def _send(self, file: str, data: bytes, headers: dict[str, str] | None = None) -> None:
        """A file's content, from where the request wants it; cut, held up or damaged as the hub is told."""
        start, end, status = 0, len(data), 200
        headers = dict(headers or {})
        wanted = self.headers.get("Range", "").removeprefix("bytes=")
        if wanted and not self.hub.ignores_ranges:
            first, _, last = wanted.partition("-")
            start, end, status = int(first), min(end, int(last) + 1) if last else end, 206
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        endless = file in self.hub.endless
        self._head(status, 1 << 50 if endless else end - start, headers)
        if self.command != "GET":
            return
        if file in self.hub.damages:
            data = bytes(b ^ 1 for b in data)
        cut = self.hub.cuts.get(file) or []
        stop = min(end, start + cut.pop(0)) if cut else end
        for at in range(start, stop, _BLOCK):
            if file in self.hub.held and at >= start + (stop - start) // 2:
                self.hub.holding.set()
                self.hub.released.wait(20)
            if self.hub.pause:
                threading.Event().wait(self.hub.pause)
            self.wfile.write(data[at : min(at + _BLOCK, stop)])
        while endless and not self.hub.released.wait(0.001):
            self.wfile.write(bytes(_BLOCK))
        self.wfile.flush()
        if stop < end:
            self.close_connection = True
            self.connection.close()

    def _head(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        headers = {**headers, "Content-Encoding": "gzip"} if self.hub.packed else headers
        for key, value in {**headers, "Content-Length": str(length)}.items():
            self.send_header(key, value)
        self.end_headers()
