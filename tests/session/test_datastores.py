"""Commands about datastores to the engine process: progress, stopping, failures."""

from __future__ import annotations

import pytest

from engines.datastores.building.build_spec import BuildSpec
from engines.datastores.datastore_events import Building, Built, DatastoreList, Probed, ProbeDraft
from engines.datastores.search.reduction import Recipe
from engines.progress import BuildProgress
from engines.report.events import DatastoreInfo, Draft, Failed, Finished, Origin, Passage, Ready, Retrieval
from engines.wire import from_json, to_json
from spec_tui.session import engine_commands as commands
from spec_tui.session.engine_commands import LoadRequest
from tests.session.test_process import ask, client, either, load, run, until  # noqa: F401 (fixtures)


def loaded(engine):
    load(engine, LoadRequest(model="some"))
    until(engine, Ready)
    return engine


def test_a_build_is_told_and_what_fits_after_it(either):  # noqa: F811
    loaded(either).submit(commands.BuildDatastore(BuildSpec("short", ("x",), "both", recipe=Recipe(8))))
    seen = until(either, DatastoreList)
    assert {type(event) for event in seen[:-2]} == {Building} and isinstance(seen[-2], Built)
    assert (seen[-2].kind, seen[-1].datastores) == ("both", (DatastoreInfo("a", sparse=True),))


def test_an_endless_build_tells_some_of_its_steps_and_stops(either):  # noqa: F811
    job = loaded(either).submit(commands.BuildDatastore(BuildSpec("endless", ("x",))))
    seen = until(either, Building)
    while seen[-1].step.done < 300:
        seen += until(either, Building)
    assert len(seen) * 3 < seen[-1].step.done, "not every step"
    run(either, ask("hello", max_new_tokens=3))  # waits
    either.cancel(job)
    seen = until(either, Finished)
    assert next(event for event in seen if not isinstance(event, Building)) == Failed(
        "the build was stopped", "what was done of it is kept, and the same build continues it", "cancelled")


def test_failures_are_told_and_bugs_end_nothing(either):  # noqa: F811
    either.submit(commands.ListDatastores())
    assert until(either, Failed)[-1].message == "no model is loaded"
    loaded(either).submit(commands.RemoveDatastore("nothing"))
    assert "nothing" in until(either, Failed)[-1].message
    either.submit(commands.BuildDatastore({"name": 7, "sources": "x"}))
    assert "not a valid request for a datastore" in until(either, Failed)[-1].message
    either.submit(commands.BuildDatastore(BuildSpec("bug", ("x",))))
    assert until(either, Failed)[-1].kind == "bug"
    run(either, ask("hello", max_new_tokens=3))
    assert until(either, Finished)


@pytest.mark.parametrize("hostile", ["plain", "a\x1b]0;owned\x07\ud800\u202e\n"])
def test_what_is_said_of_datastores_is_json_both_ways(hostile):
    draft = Draft((1,), (-1,), (hostile,), (0.5,), (0,), (Origin("retrieval", 0, hostile, 2, "n", None, 0),))
    found = Retrieval(0.1, 2, 5, 5, (), (Passage("n", hostile, None, hostile, hostile, 5.0),))
    probed = Probed("n", hostile, hostile, 3, (hostile,), (ProbeDraft("m", hostile, draft, found, hostile),))
    for event in (probed, Probed("n", "", None, 0), DatastoreList((DatastoreInfo("a"),), "b"),
                  Building("n", BuildProgress(hostile, 1, None, "bytes", 0.5, None))):  # fmt: skip
        assert from_json(to_json(event)) == event
