"""Who runs the lanes of a race: our engines on the loaded model, llama.cpp on that model's own file, servers by their
address, and what else was loaded for it, as ``transformers.generate``; each timed by the same clock.

Other programs are asked with the same token ids on the same number of threads, in the same order of turns. Their
answers are audited as those of the loaded model would be, whose tokens they have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from engines import methods
from engines.errors import ModelUnavailable, StartCancelled, UsageProblem
from engines.hub.known_models import known_name
from engines.hub.model_source import locate
from engines.methods.llama_cpp import DRAFT
from engines.methods.llama_cpp import SPEC as LLAMA_CPP
from engines.methods.spec import MethodSpec
from engines.progress import Loading, unless
from engines.race.token_times import TokenTimes
from engines.report.answer import Answer
from engines.report.events import Audited, Finished, Prefilled, Preparing, Round, RunEvent, Started
from engines.request import Request
from engines.servers import connect, key_in

if TYPE_CHECKING:
    from engines.runtime import Runtime
    from engines.servers.served_model import Prompt, ServedModel


class Peers:
    """A racer: each lane runs where its engine is. What was started for it ends with ``close``, or where it is left as
    a context.

    Attributes:
        loaded: others that run lanes in this process, by the engine of their lanes. Their events come when a run is
            over, with their own ``token_times``: a ``bench.hf_generate.Generator``.
        token_times: of the last run that ended.
    """

    def __init__(self, host: Runtime) -> None:
        self.host = host
        self.loaded: dict[str, Any] = {}
        self.token_times: TokenTimes | None = None
        self._open: dict[str, ServedModel] = {}

    def __enter__(self) -> Peers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def run(
        self, request: Request, cancelled: Callable[[], bool] = lambda: False,
        progress: Callable[[Preparing], None] = lambda event: None,
    ) -> Iterator[RunEvent]:
        """A run, wherever its engine is; without events where it is cancelled before that has started. Raises
        SpecError."""
        if (peer := self.loaded.get(request.engine)) is not None:
            yield from peer.run(request, cancelled)
            self.token_times = peer.token_times
            return
        rounds, begun = 0, perf_counter()
        spec = self._elsewhere(request.engine)
        prompt = self.host.prompt(request) if spec else None
        clock = perf_counter()
        encoding = clock - begun
        with suppress(StartCancelled):
            for event in self._events(request, spec, prompt, cancelled, progress):
                if isinstance(event, Started) and not event.machine:
                    begun = perf_counter() - encoding  # another program, that was started or reached for this
                elif isinstance(event, Prefilled):
                    clock = perf_counter()
                elif isinstance(event, Finished):
                    seconds = perf_counter() - clock
                    self.token_times = TokenTimes(1, clock - begun, len(event.tokens) - 1, seconds, rounds)
                rounds += isinstance(event, Round)
                yield event

    def _events(
        self, request: Request, spec: MethodSpec | None, prompt: Prompt | None, cancelled: Callable[[], bool],
        progress: Callable[[Preparing], None],
    ) -> Iterator[RunEvent]:
        if spec is None:
            yield from self.host.run(request, cancelled, progress)
        else:
            told = unless(cancelled, progress, f"the start of {spec.title}")
            peer = self._peer(spec, spec.parse(request.options), told)
            yield from peer.run(request, cancelled, prompt=prompt)

    def _elsewhere(self, engine: str) -> MethodSpec | None:
        """The method of an engine that is another program than the host; None for an engine of the host."""
        spec = methods.find(engine) if engine else None
        return spec if spec and spec.host and spec.host != self.host.ready.host else None

    def audit(self, answer: Answer, *watched: Callable) -> Audited | None:
        """Any lane's answer, by the loaded model."""
        if answer.lossless is None:
            answer = answer.by(self.host.ready)
        return self.host.audit(answer, *watched)

    def forget(self) -> None:
        self.host.forget()
        for peer in self._open.values():
            peer.forget()

    def forget_acceptance(self) -> None:
        self.host.forget_acceptance()
        for peer in self._open.values():
            peer.forget_acceptance()

    def memory(self, engine: str, options: Mapping[str, Any], rows: int, draft_model: str = "") -> int | None:
        """Bytes; None for another program's."""
        if engine in self.loaded:
            return self.loaded[engine].memory(engine, rows)
        return None if self._elsewhere(engine) else self.host.memory(engine, options, rows, draft_model)

    def _peer(self, spec: MethodSpec, options: dict[str, Any], progress: Callable[[Loading], None]) -> ServedModel:
        """The one with these options, started or reached when it is first asked. Raises SpecError."""
        key = f"{spec.id} {options}"
        if key not in self._open:
            self._open[key] = self._llama_cpp(options, progress) if spec is LLAMA_CPP else self._server(options)
            self._open[key].forget()  # what a server has kept of others' prompts
        return self._open[key]

    def _llama_cpp(self, options: dict[str, Any], progress: Callable[[Loading], None]) -> ServedModel:
        ready = self.host.ready
        file, draft = gguf_file(ready.model), None
        if file is None:
            raise no_gguf(ready.model)
        if ready.draft_model is not None and not options[DRAFT]:
            draft = gguf_file(ready.draft_model)
            if draft is None and "draft-simple" in options["spec"].split("+"):
                raise no_gguf(ready.draft_model, "--draft-model")
        from engines.servers.llama_cpp_start import OwnLlamaCpp

        return OwnLlamaCpp(file, draft, ready.threads, ready.context_limit, options, progress)

    def _server(self, options: dict[str, Any]) -> ServedModel:
        if not options["url"]:
            raise UsageProblem("a server as a lane needs its address", "for example server:url=http://127.0.0.1:8080")
        peer = connect(options["url"], key_in(options["api_key_env"]), options, options["model"] or None)
        if not peer.token_ids:
            raise UsageProblem(f"{peer.ready.backend} reports no token ids, so its text cannot be compared",
                               "a lane takes llama.cpp's server, or vLLM")
        mine, theirs = self.host.ready.vocab_size, peer.ready.vocab_size
        if mine and theirs and mine != theirs:
            raise UsageProblem(
                f"{peer.ready.model} on {peer.ready.device} has a vocabulary of {theirs} tokens, the loaded model one "
                f"of {mine}", "all lanes of a race get the same tokens: load the model that the server has")
        return peer


def gguf_file(model: str) -> Path | None:
    """The GGUF file of a model, by the name it was loaded with; None where it has another form. Raises
    ModelUnavailable."""
    source = locate(model)
    return source.gguf.path if source.gguf is not None else None


def no_gguf(model: str, flag: str = "--model") -> ModelUnavailable:
    """What is said of a model that llama.cpp cannot read as it is, with the way to a file that it can."""
    name = known_name(model) or model
    hint = ("spec-tui model get smollm2 fetches one, llama.cpp's convert_hf_to_gguf.py writes one; "
            f"then {flag} FILE.gguf")
    return ModelUnavailable(f"llama.cpp reads GGUF files, and {name} is not one", hint)


def addresses(lanes) -> list[str]:
    """The addresses that prompts will be sent to, so that they can be named first. Raises UsageProblem: an address
    contains a password."""
    found = [lane.options["url"] for lane in lanes if methods.find(lane.engine).host and lane.options.get("url")]
    if any("@" in url.partition("://")[2].partition("/")[0] for url in found):
        raise UsageProblem("an address contains a password", "put it into an environment variable: api_key_env=NAME")
    return found
