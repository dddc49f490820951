"""What a session in a browser may do with the machine that serves it."""

from __future__ import annotations

import pytest

from engines.errors import UsageProblem
from engines.folders import sample_model
from engines.race.lanes import Lane, Race
from engines.report.events import Failed
from engines.request import Request
from spec_tui.session import model_choices
from spec_tui.session.engine_commands import (
    BuildDatastore,
    Close,
    EstimateDatastore,
    ListDatastores,
    Load,
    LoadRequest,
    ProbeDatastore,
    RemoveDatastore,
    Run,
    StartAdvice,
    StartRace,
)
from spec_tui.session.engine_service import Service
from spec_tui.session.host_access import HostAccess
from spec_tui.tui.widgets.path_input import completed

SERVED = LoadRequest(model="/models/served", draft_model="owner/draft")
VISITOR = HostAccess(False, SERVED)
ASKED = Request((("user", "x"),))


def race(*lanes: Lane) -> StartRace:
    return StartRace(Race(lanes, ASKED))


REFUSED = {
    "another model": Load(LoadRequest(model="/etc")),
    "another model of the hub": Load(LoadRequest(model="owner/other")),
    "a model to be fetched": Load(LoadRequest(model="/models/served", fetch=True)),
    "another draft model": Load(LoadRequest(model="/models/served", draft_model="owner/other")),
    "another head": Load(LoadRequest(head="/etc")),
    "a server": Load(LoadRequest(server="http://127.0.0.1:1")),
    "another program": Load(LoadRequest(model="/models/served", backend="llama.cpp")),
    "pickled weights": Load(LoadRequest(model="/models/served", allow_pickle=True)),
    "code of a model": Load(LoadRequest(model="/models/served", trust_remote_code=True)),
    "a run with another draft model": Run(Request(ASKED.conversation, draft_model="/etc")),
    "a run in another program": Run(Request(ASKED.conversation, engine="server", options={"url": "http://127.0.0.1:1"})),
    "a lane of a server": race(Lane("pld"), Lane("server", {"url": "http://127.0.0.1:1", "api_key_env": "HOME"})),
    "a lane of llama.cpp": race(Lane("llama.cpp")),
    "a lane with another draft model": race(Lane("draft", draft_model="/etc")),
    "an evaluation with another draft model": StartAdvice(None, Request(ASKED.conversation, draft_model="/etc"), 1.0),
    "an estimate": EstimateDatastore({"sources": ["/etc"]}),
    "a datastore of files": BuildDatastore({"sources": ["/etc"]}),
}
ALLOWED = {
    "what is served": Load(SERVED), "on other threads": Load(LoadRequest(model="/models/served", threads=1)),
    "what ships": Load(LoadRequest(model="sample")), "what ships, by its folder": Load(
        LoadRequest(model=str(sample_model("target")))),
    "a run": Run(ASKED), "a race": race(Lane("pld"), Lane("rest", {"c": 4})), "an evaluation": StartAdvice(
        None, ASKED, 1.0),
    "the list": ListDatastores(), "a probe": ProbeDatastore("a", "b"), "its own datastore": RemoveDatastore("a"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_visitor_is_refused(what):
    with pytest.raises(UsageProblem, match="not possible here") as refused:
        VISITOR.check(REFUSED[what], "")
    assert "runs in a browser" in refused.value.hint
    HostAccess().check(REFUSED[what], "")  # on a terminal it is the user's own machine


@pytest.mark.parametrize("what", ALLOWED)
def test_a_visitor_may(what):
    VISITOR.check(ALLOWED[what], "")


def test_the_engine_holds_it_whatever_the_screens_ask(monkeypatch):
    loaded, events = [], []
    for name, value in VISITOR.variables.items():
        monkeypatch.setenv(name, value)

    def hear(job, event):
        events.append(event)
        if job == 2:
            service.command(3, Close())

    service = Service(hear, lambda *given: loaded.append(given))
    service.command(1, REFUSED["another model"])
    service.command(2, REFUSED["a datastore of files"])
    service.serve()
    assert not loaded
    failed, refused = events
    assert isinstance(failed, Failed) and "not possible here" in failed.message
    assert "building a datastore is not possible here" in refused.message


def test_processes_tell_each_other(monkeypatch):
    assert HostAccess.here() == HostAccess() and not HostAccess().variables
    for name, value in VISITOR.variables.items():
        monkeypatch.setenv(name, value)
    assert HostAccess.here() == VISITOR
    assert "sample" in {choice.name for choice in model_choices.targets(SERVED) if VISITOR.offers(choice.name)}
    with pytest.raises(UsageProblem, match="loading another model"):
        model_choices.to_download("/etc/passwd", LoadRequest())
    assert completed("/et") is None, "names of files are not told"
