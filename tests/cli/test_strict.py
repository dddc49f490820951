"""--strict reaches the engine from every command that generates, and what it costs is said once."""

from __future__ import annotations

import shlex
from dataclasses import replace
from types import SimpleNamespace

import pytest

from engines.race.lanes import Lane, Race
from engines.request import Request
from spec_tui.present.race_text import remarks
from spec_tui.session import loader
from spec_tui.session import shell_lines as command
from spec_tui.session.engine_commands import LoadRequest
from tests.session import fake_runtime


@pytest.fixture
def loaded(monkeypatch):
    asked = []

    def load(how, progress):
        asked.append(how)
        decoder = fake_runtime.load(how, progress)
        decoder.ready = replace(decoder.ready, price=((1, 0.01), (8, 0.01)))
        return decoder

    monkeypatch.setattr(loader, "load_here", load)
    return asked


@pytest.mark.parametrize("words", [("run", "hello"), ("price",)])
def test_it_reaches_the_engine(cli, loaded, words):
    for given in ((), ("--strict",)):
        assert cli(*words, *given).code == 0
    assert [how.strict for how in loaded] == [False, True]


@pytest.mark.parametrize("words", [("run", "hello"), ("price",)])
def test_so_does_the_quantisation(cli, loaded, words):
    cli(*words, "--quantize", "int4")
    assert [how.quantize for how in loaded] == ["int4"]
    line = command.compare_line(Race((Lane("pld"),), Request(()), (("a",),)), LoadRequest(quantize="int8"))
    assert "--quantize int8" in line and "--quantize" not in command.compare_line(
        Race((Lane("pld"),), Request(()), (("a",),)), LoadRequest())


def test_a_race_is_repeated_with_it():
    race = Race((Lane("autoregressive"), Lane("pld")), Request(()), (("a",),))
    line = command.compare_line(race, LoadRequest(dtype="bfloat16", strict=True))
    assert "--strict" in shlex.split(line) and "--strict" not in command.compare_line(race, LoadRequest())


def test_a_remark_of_all_lanes_is_said_once():
    def lane(*warnings):
        started = SimpleNamespace(lossy=False, lossless=True, warnings=warnings, round_trip=None)
        return SimpleNamespace(state=SimpleNamespace(started=started))

    runs = [lane("strict: costs 1.1x", "short"), lane("strict: costs 1.1x"), lane("strict: costs 1.1x", "long")]
    spread = SimpleNamespace(at_once=False)
    result = SimpleNamespace(figures=lambda: [SimpleNamespace(lane=i, metrics=spread) for i in range(3)],
                             of=lambda i: [runs[i]])
    assert remarks(result, ("a", "b", "c")) == ["note: strict: costs 1.1x", "note: a: short", "note: c: long"]
    runs[1:] = []
    result.figures = lambda: [SimpleNamespace(lane=0, metrics=spread)]
    assert remarks(result, ("a",)) == ["note: a: strict: costs 1.1x", "note: a: short"]
