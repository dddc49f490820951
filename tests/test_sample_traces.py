"""The traces that ship: whole, small, of these weights, and of nobody's machine."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from engines.errors import UsageProblem
from engines.methods import specs
from engines.report.events import Audited, Finished
from engines.report.run_state import fold_all
from engines.request import Request
from engines.wire import read_trace
from spec_tui.session.sample_traces import names, trace_path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import record_traces as tool  # noqa: E402


@pytest.mark.parametrize("name", tool.TRACES)
def test_each_is_whole_small_and_of_no_machine(name):
    path = trace_path(name)
    trace, data = read_trace(path), path.read_bytes()
    assert not trace.problems and trace.complete and len(data) <= tool.LARGEST
    started, request = trace.events[0], tool.TRACES[name]
    assert (started.engine, started.conversation) == (request.engine, request.conversation)
    run = fold_all(trace.events)
    assert run.text == run.finished.text and run.audited.verdict in ("identical", "tie", "consistent")
    assert all(round.verified for round in run.rounds)
    for secret in (str(ROOT), str(Path.home()), platform.node()):
        assert len(secret) < 4 or secret.encode() not in data
    model = {"sample": "sample_models/target"}.get(tool.model_of(name), tool.model_of(name))
    assert started.model == model and {"torch", "python"} <= set(started.versions)


def test_the_folder_holds_those_of_the_tool_and_the_readme_names_them():
    assert set(names()) == set(tool.TRACES)
    table = (ROOT / "sample_traces" / "README.md").read_text()
    assert all(f"| `{name}` |" in table for name in names())


def test_every_method_that_ships_has_one():
    recorded = {read_trace(trace_path(name)).events[0].engine for name in names()}
    own = {spec.id for spec in specs() if spec.drafter.startswith("engines.") and not spec.host}
    assert recorded == own - {"draft-verify"}  # of which none is recorded yet


def test_they_are_what_these_weights_write(sample):
    """Greedy text is the target's own: one run for each prompt of a greedy trace."""
    recorded = {}
    for name, request in tool.TRACES.items():
        if tool.model_of(name) != "sample":
            continue
        *_, finished, audited = read_trace(trace_path(name)).events
        assert isinstance(finished, Finished) and isinstance(audited, Audited)
        if request.temperature == 0 and audited.verdict == "identical":
            longest = recorded.get(request.conversation, finished)
            recorded[request.conversation] = max(longest, finished, key=lambda end: len(end.tokens))
    assert len(recorded) >= 3
    for conversation, finished in recorded.items():
        *_, again = sample.run(Request(conversation, "pld", max_new_tokens=len(finished.tokens)))
        assert again.text == finished.text


def test_names_and_files(tmp_path):
    with pytest.raises(UsageProblem, match="no trace 'tre'") as caught:
        trace_path("tre")
    assert "tree" in caught.value.hint
    (tmp_path / "own.jsonl").touch()
    assert trace_path(str(tmp_path / "own.jsonl")) == tmp_path / "own.jsonl"
    with pytest.raises(UsageProblem, match="cannot be read: No such file"):
        read_trace(trace_path(str(tmp_path / "gone.jsonl")))
