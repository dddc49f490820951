"""What a session may do with the machine that it runs on. On a terminal that is everything that its user may do. In a
browser it is what ``spec-tui serve`` leaves: the one who types there is a visitor."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from engines import methods
from engines.errors import UsageProblem
from engines.folders import shipped
from engines.hub.known_models import SAMPLE
from spec_tui.session import engine_commands as commands

_VARIABLE = "SPEC_TUI_HOST_ACCESS"
_WHY = "this session runs in a browser, without access to the files, programs and network of the server"


@dataclass(frozen=True, slots=True)
class HostAccess:
    """What is allowed. A process tells those that it starts by a variable of the environment.

    Attributes:
        whole: files may be named, read and written, models fetched and chosen, other programs started and asked.
        load: where not, the one request for a model that may be loaded, besides the models that ship; None for none.
    """

    whole: bool = True
    load: commands.LoadRequest | None = None

    @classmethod
    def here(cls) -> HostAccess:
        """That of this process."""
        told = os.environ.get(_VARIABLE)
        if told is None:
            return cls()
        load = json.loads(told)
        return cls(False, commands.LoadRequest(**load) if load else None)

    @property
    def variables(self) -> dict[str, str]:
        """The environment that tells another process."""
        return {} if self.whole else {_VARIABLE: json.dumps(asdict(self.load) if self.load is not None else None)}

    def need(self, what: str) -> None:
        """Raises UsageProblem without access to the machine. ``what`` needs it: "saving a file"."""
        if not self.whole:
            raise UsageProblem(f"{what} is not possible here", _WHY)

    def offers(self, *models: str | None) -> bool:
        """Whether all these models may be loaded; None and "" stand for those that are taken without a name."""
        served = (self.load.model, self.load.draft_model, self.load.head) if self.load is not None else ()
        return self.whole or all(not name or name in served or name == SAMPLE or shipped(name) for name in models)

    def need_model(self, *models: str | None) -> None:
        """Raises UsageProblem where one of these models may not be loaded."""
        if not self.offers(*models):
            self.need("loading another model")

    def check(self, command: commands.Command, program: str) -> None:
        """Raises UsageProblem for a command that the engine may not follow. ``program``: the one that has the model,
        as in ``Ready.host``."""
        if self.whole:
            return
        match command:
            case commands.Load(request):
                self._check_load(request)
            case commands.Run(request):
                self._check_engines([request.engine], program)
                self.need_model(request.draft_model)
            case commands.StartRace(race):
                self._check_engines((lane.engine for lane in race.lanes), program)
                self.need_model(race.request.draft_model, *(lane.draft_model for lane in race.lanes))
            case commands.StartAdvice(_, request, _):
                self.need_model(request.draft_model)
            case commands.EstimateDatastore() | commands.BuildDatastore():
                self.need("building a datastore")

    def _check_load(self, request: commands.LoadRequest) -> None:
        served = self.load or commands.LoadRequest()
        self.need_model(request.model, request.draft_model, request.head)
        if request.fetch:
            self.need("fetching a model")
        elsewhere = request.server, request.backend
        if elsewhere not in ((None, ""), (served.server, served.backend)):
            self.need("asking another program")
        if request.allow_pickle > served.allow_pickle or request.trust_remote_code > served.trust_remote_code:
            self.need("loading a model with code of its own")

    def _check_engines(self, engines: Iterable[str], program: str) -> None:
        """Other programs are started, and asked at any address, by the engines that stand for them."""
        if any(methods.find(engine).host not in ("", program) for engine in engines if engine):
            self.need("asking another program")
