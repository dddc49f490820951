"""The benchmarks in tools: what they ask and what they keep, without their clocks."""

from __future__ import annotations

import importlib
import json
import os
import sys
from argparse import Namespace
from itertools import groupby
from time import monotonic, sleep
from types import SimpleNamespace

import pytest

from engines.datastores.search.sparse import SparseStore
from engines.errors import ModelUnavailable, RunFailed
from engines.race.lanes import parse_lanes
from engines.race.token_times import TokenTimes
from engines.report.events import Finished
from engines.request import Request
from spec_tui.session.engine_commands import Load, LoadRequest, Run
from tests.race.fakes import VirtualRacer
from tests.test_sample_models import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import bench
import bench_one_machine
import bench_requests
import bench_ui
import bench_untrained
import soak
from benches import arithmetic, chat_app, llama_cpp
from benches.rows import Row

TOOLS = ROOT / "tools"


@pytest.mark.parametrize("file", sorted([*TOOLS.glob("*.py"), *TOOLS.glob("benches/*.py")]), ids=lambda file: file.stem)
def test_what_a_tool_imports_is_there(file):
    importlib.import_module(".".join(file.relative_to(TOOLS).with_suffix("").parts))


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


def test_a_section_says_which_model_and_program_it_lacks(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    for section in (llama_cpp.bench_llama_cpp, llama_cpp.bench_served, arithmetic.bench_arithmetic):
        assert section(1) == [] and "llama.cpp is not installed" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="the processor time of another process is read from /proc")
def test_the_chat_under_measurement_reports_its_models_and_each_answer():
    out, into = os.pipe()
    witness = chat_app.Witness(into, "tests.session.fake_runtime:load")
    try:
        witness.submit(Load(LoadRequest()))
        witness.submit(Run(Request((("user", "hello"),), max_new_tokens=4)))
        deadline, ended = monotonic() + 20, False
        while not ended and monotonic() < deadline:
            ended = any(isinstance(event, Finished) for _, event in witness.events())
            sleep(0.01)
    finally:
        witness.close()
        os.close(into)
    with open(out, "rb") as reports:
        ready, answer = map(json.loads, reports)
    assert ready["threads"] == -1 and answer["request"]["conversation"] == [["user", "hello"]]
    assert answer["tokens"] > 0 and answer["own_seconds"] > 0 and answer["seconds"] >= 0


def test_a_datastore_is_made_up_and_searched(tmp_path):
    made = bench_one_machine.MadeUp(tmp_path, tokens=70_000)
    store = SparseStore(made)
    assert store.longest(made.text[100:116].tolist(), 16).length == 16
    assert len(bench_one_machine.seconds(store, made.text, seed=1)) == bench_one_machine.LOOKUPS


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


def test_requests_at_once_each_have_a_prompt_of_their_own():
    with pytest.raises(SystemExit, match="the suite has 12 prompts: give no more --requests"):
        bench_requests.measured(Namespace(suite="coding"), [1, 16])


def test_a_server_that_refuses_one_of_several_requests_ends_the_measurement():
    def refuses():
        raise ModelUnavailable("the server is full", "ask later")

    connecting = iter((VirtualRacer, refuses))
    with pytest.raises(ModelUnavailable, match="is full"):
        bench_requests.rate(lambda: next(connecting)(), ["one", "two"], tokens=8)


def test_servers_take_turns_at_being_first(monkeypatch):
    asked = []
    monkeypatch.setattr(bench_requests, "rate", lambda server, *_: asked.append(server) or {"a": 1.0, "b": 2.0}[server])
    servers = bench_requests.Servers("a", "b", None)
    assert {bench_requests.rates(servers, ["one"], 8, repeat) for repeat in range(4)} == {(1.0, 2.0)}
    assert sorted(asked[::2]) == ["a", "a", "b", "b"]


def runs(names: list) -> list[int]:
    """How often each name stands in a row, one after the other."""
    return [len([*same]) for _, same in groupby(names)]


def test_lanes_read_a_prompt_by_turns_and_first_without_being_counted():
    class Runner(VirtualRacer):
        token_times = TokenTimes(1, 2.0, 1, 1.0, 1)

    found = llama_cpp.first_tokens(runner := Runner(), ("pld", "llama.cpp"), repeats=5)
    assert found == {"pld": [2.0] * 5, "llama.cpp": [2.0] * 5}
    assert len(runner.ran) == 12 and max(runs(runner.ran)) == 2


def test_contexts_are_timed_by_turns_and_first_without_being_counted():
    class Model:
        vocab_size, length = 50, 0

        def rewind(self, context):
            self.length = min(self.length, len(context) - 1)
            return self.length

        def extend(self, tokens):
            self.length += len(tokens)

        def forward(self, tokens, parents):
            timed.append((self.length, len(tokens)))

        def drop(self):
            pass

    timed: list = []
    found = arithmetic.forwards(Model(), {4: (1, 3), 9: (1,)}, repeats=5)
    assert {which: len(seconds) for which, seconds in found.items()} == {(4, 1): 5, (4, 3): 5, (9, 1): 5}
    assert set(timed) == set(found) and max(runs([context for context, _ in timed])) <= 2 * 10


def test_a_long_comparison_goes_on_after_a_run_that_failed_and_names_it(capsys):
    class Breaks(VirtualRacer):
        target = SimpleNamespace(model=SimpleNamespace(config=SimpleNamespace(num_hidden_layers=4)))

        def run(self, request):
            if request.engine != "autoregressive":
                raise RunFailed("the model's logits are not numbers")
            return super().run(request)

    (found := soak.Soak(Breaks(), seed=0)).text()
    assert found.different == 4 and "4 texts differ or failed" in str(found)
    said = capsys.readouterr().out
    assert said.count("FAILED: Request(") == 4 and "logits are not numbers" in said
