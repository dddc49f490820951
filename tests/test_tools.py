"""The benchmarks in tools: what they ask and what they keep, without their clocks."""

from __future__ import annotations

import json
import sys

import pytest

from engines.race.lanes import parse_lanes
from tests.race.fakes import VirtualRacer
from tests.test_sample_models import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import bench
import bench_ui
import bench_untrained
from benches.rows import Row


def test_the_share_that_drawing_takes_is_read_from_what_is_printed():
    assert bench.printed_share(f"UI: {bench_ui.shares(busy=0.123, idle=0.01)}, 4 us a token") == 12.3


def test_a_section_that_fails_loses_no_other(monkeypatch, capsys):
    def broken(repeats):
        raise TypeError("nothing was found")

    sections = {name: lambda repeats, name=name: [Row(name, [1.0], "x")] for name in ("first", "last")}
    monkeypatch.setattr(bench, "SECTIONS", {"first": sections["first"], "broken": broken, "last": sections["last"]})
    monkeypatch.setattr(sys, "argv", ["bench.py", "--json"])
    with pytest.raises(SystemExit, match="failed: broken"):
        bench.main()
    said = capsys.readouterr()
    assert [row["name"] for row in json.loads(said.out)] == ["first", "last"] and "nothing was found" in said.err


def test_lanes_are_asked_with_their_datastore_and_draft_model_and_with_past_answers(monkeypatch, tmp_path):
    class Recorder(VirtualRacer):
        def run(self, request):
            requests.append(request)
            return super().run(request)

    requests: list = []
    monkeypatch.setattr(bench_untrained, "load", lambda *_, **__: Recorder())
    monkeypatch.setattr(bench_untrained, "sets", lambda: {"one": ["a prompt"]})
    monkeypatch.setattr(bench_untrained.tempfile, "mkdtemp", lambda **_: str(tmp_path))
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", "the benchmark sets another")
    bench_untrained.run(None, parse_lanes(["rest:datastore=mine,draft:model=small"]), tokens=8, repeats=1)
    asked = {request.engine: request for request in requests}
    assert asked["rest"].datastores == ("mine",) and asked["draft"].draft_model == "small"
    assert all(request.keeps for request in requests)
