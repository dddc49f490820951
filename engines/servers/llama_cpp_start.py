"""llama.cpp for a GGUF file on this machine: its server runs in a process of ours, and ends with us."""

from __future__ import annotations

import json
import os
import secrets
import select
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any

from engines import methods
from engines.errors import ModelUnavailable, UsageProblem
from engines.machine import processors
from engines.methods.llama_cpp import DRAFT, KEEPING, MODELS, NGRAMS, OWN_FILE, SPEC
from engines.progress import Loading, unless
from engines.report.events import Preparing, PriceMeasured, RunEvent
from engines.request import Request
from engines.servers.connection import Connection
from engines.servers.llama_cpp import LlamaCppModel
from engines.servers.served_model import Prompt, ServedModel

_PATIENCE = 600.0  # seconds that a large file may take to load
_START = f"the start of {SPEC.title}"
_LOOK = 0.1  # seconds between two looks at whether the loading was stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a server of llama.cpp is started with: the model's ``file``, CPU ``threads``, the options of the method
    (``engines.methods.llama_cpp``), and ``slots``, the requests that it decodes at once, each with this ``context``."""

    file: str
    threads: int
    spec: str
    most: int
    least: int
    ngram: int
    hits: int
    p_min: float
    draft: str
    context: int
    slots: int = 1


class LlamaCppServer:
    """A server of llama.cpp in a process of its own, on this machine alone, with a key that nobody else knows.
    ``progress``: told now and then that it loads; may raise to leave. Raises ModelUnavailable: llama.cpp is not
    installed, or cannot use the file."""

    def __init__(self, settings: Settings, progress: Callable[[Loading], None] = lambda _: None) -> None:
        if find_spec("xllamacpp") is None:
            raise ModelUnavailable("llama.cpp is not installed", "pip install 'spec-tui[llamacpp]'")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "engines.servers.llama_cpp_process"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._log, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=os.name == "posix",  # the terminal's ctrl+c is ours
        )
        self._end = weakref.finalize(self, _end, self.process)
        try:
            self.key = secrets.token_urlsafe(24)
            said = self._started(json.dumps({**asdict(settings), "key": self.key}), settings, progress)
        except BaseException:
            self.close()
            raise
        self.connection = Connection(said, self.key, direct=True)

    @property
    def ended(self) -> bool:
        """Whether the process is gone, by a fault of its own or by somebody's hand."""
        return self.process.poll() is not None

    def close(self) -> None:
        """End the process; returns when it has."""
        self._end()
        self._log.close()

    def _started(self, line: str, settings: Settings, progress: Callable[[Loading], None]) -> str:
        """The server's address. Raises ModelUnavailable."""
        pipe, since = self.process.stdout, monotonic()
        name = Path(settings.file).name
        with suppress(BrokenPipeError):  # it died: its last words say why
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        while True:
            progress(Loading(f"llama.cpp reads {name}"))
            if select.select([pipe], [], [], _LOOK)[0]:
                break
            if monotonic() - since > _PATIENCE:
                raise ModelUnavailable(f"llama.cpp has not loaded {name} in {_PATIENCE:.0f} seconds", "try it again")
        try:
            said = json.loads(pipe.readline())
        except ValueError:  # it died
            said = {}
        if "address" not in said:
            why = self._last_words() or str(said.get("problem", ""))
            reason = f": {' '.join(why.split())[:200]}" if why else ""
            raise ModelUnavailable(
                f"llama.cpp cannot run {name} with these options{reason}", "try spec=none, or another file")
        return str(said["address"])

    def _last_words(self) -> str:
        """The last error that llama.cpp printed."""
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 4096))
        lines = [line for line in self._log.read().decode("utf-8", "replace").splitlines() if "rror" in line]
        return lines[-1] if lines else ""


def _end(process: subprocess.Popen) -> None:
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(1.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


class OwnLlamaCpp(ServedModel):
    """A GGUF file in llama.cpp, asked as ``engines.runtime.Runtime`` is. Its server is started for a choice of options,
    and anew for another.

    Args:
        file: of the model.
        draft: that of a draft model, where there is one.
        threads: of the CPU; None: one for each processor that this process may use; a negative number leaves so many,
            where more than two are there: one of two is half of the speed, and drawing does not take that.
        context: of the model, in tokens; None where it is not known.
        options: of the method, to begin with.
        progress: told what is loaded; may raise to leave.

    Raises:
        ModelUnavailable: see ``LlamaCppServer``.
    """

    size_setting = "most"

    def __init__(
        self, file: Path, draft: Path | None = None, threads: int | None = None, context: int | None = None,
        options: Mapping[str, Any] | None = None, progress: Callable[[Loading], None] = lambda _: None,
    ) -> None:
        self._file, self._draft, self._context = file, draft, context
        self._threads = threads if threads and threads > 0 else _threads(processors(), -(threads or 0))
        self.server: LlamaCppServer | None = None
        self._settings: Settings | None = None
        self._model: LlamaCppModel | None = None
        self._model = self._open(SPEC.parse(options or {}), progress)
        super().__init__(self._model.connection, SPEC)
        self.ready = self._model.ready
        self.ways = tuple({"spec": way} for way in (*NGRAMS, *(["draft-simple"] if draft is not None else [])))

    def run(
        self, request: Request, cancelled: Callable[[], bool] = lambda: False,
        progress: Callable[[Preparing], None] = lambda event: None, prompt: Prompt | None = None,
    ) -> Iterator[RunEvent]:
        """As ``LlamaCppModel.run``; ``progress`` is told where the server has to be started anew for the options.
        Raises StartCancelled, too."""
        request.check()
        spec = methods.find(request.engine or SPEC.id)
        if spec.id != SPEC.id:
            raise UsageProblem(f"llama.cpp does not run {spec.title}", f"take the engine {SPEC.id}")
        self._model = self._open(spec.parse(request.options), unless(cancelled, progress, _START))
        self.ready = replace(self.ready, context_limit=self._model.ready.context_limit)
        self._model.gather = self.gather
        self._asked = True
        yield from self._model.run(request, cancelled, prompt=prompt)

    def measure_price(
        self, cancelled: Callable[[], bool] = lambda: False, progress: Callable[[float], None] = lambda done: None
    ) -> PriceMeasured | None:
        """As ``LlamaCppModel.measure_price``, without a model that drafts: it would read each prompt, too. The next
        answer starts the server with it again."""
        if set(self._model.options["spec"].split("+")) & set(MODELS):
            without = SPEC.parse({**self._model.options, "spec": "none"})
            self._model = self._open(without, unless(cancelled, lambda step: progress(0.0), _START))
        self._asked = True
        found = self._model.measure_price(cancelled, progress)
        if found is not None:
            self.ready = replace(self.ready, price=found.price)
        return found

    def forget(self) -> None:
        self._model.forget()

    def forget_acceptance(self) -> None:
        """A server that drafts from earlier answers, and has given any, is started anew, at once: the next
        run's time does not include it."""
        if self._asked and self._settings is not None and set(self._settings.spec.split("+")) & KEEPING:
            self.close()
            with suppress(ModelUnavailable):  # the next answer tries it again, and says why
                self._model = self._open(self._model.options, lambda _: None)

    def close(self) -> None:
        if self.server is not None:
            self.server.close()
            self.server = self._settings = None

    def _open(self, options: dict[str, Any], progress: Callable[[Loading], None]) -> LlamaCppModel:
        """The model as a server with these options has it."""
        wanted = self._wanted(options)
        if wanted != self._settings or self.server.ended:
            self.close()
            self.server, self._settings, self._asked = LlamaCppServer(wanted, progress), wanted, False
        elif self._model.options == options:
            return self._model
        found = LlamaCppModel(self.server.connection, SPEC, options)
        found.ready = replace(found.ready, model=self._file.name, device="cpu", threads=self._threads,
                              draft_model=self._draft.name if self._draft else None)
        if self._model is not None and self._model._anew:
            found.forget()
        return found

    def _wanted(self, options: dict[str, Any]) -> Settings:
        ways, draft = options["spec"].split("+"), options[DRAFT]
        if "draft-simple" in ways and not draft and self._draft is not None:
            draft = str(self._draft)
        files = [OWN_FILE[way] for way in ways if way in OWN_FILE]
        if files and not draft:
            raise UsageProblem(f"llama.cpp has no {files[0]} to draft with", "give one as a GGUF file: draft=FILE.gguf")
        context = min(options["context"], self._context or options["context"])
        computes = bool(set(ways) & set(MODELS))
        unused = {DRAFT: draft if files else "", "p_min": options["p_min"] if computes else 0.0}
        return Settings(file=str(self._file), threads=self._threads, **{**options, "context": context, **unused})


def _threads(processors: int, left: int) -> int:
    return max(min(processors, 2), processors - left)
