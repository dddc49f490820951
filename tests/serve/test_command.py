"""``spec-tui serve`` up to the moment that it serves."""

from __future__ import annotations

import pytest

from engines.errors import SpecError
from engines.folders import sample_traces
from spec_tui.cli import serve as command
from spec_tui.cli.option_groups import ModelOrServerOptions
from spec_tui.serve.gate import Gate
from spec_tui.session.host_access import HostAccess

NONE = ModelOrServerOptions()


def policy(*what: str, models: ModelOrServerOptions = NONE, engine: str = "", options=None, theme=None):
    return command._policy([*what], models, engine, options or {}, theme, False)


def test_what_is_offered():
    assert policy("learn").names == () and policy("learn", "trees").names == ("trees",)
    assert policy("replay", "rest").names == (str((sample_traces() / "rest.jsonl").resolve()),)
    assert policy("replay", "rest", "pld").shows == "race"
    chat = policy(models=ModelOrServerOptions(model="sample"), engine="pld", options={"num_tokens": "4"})
    assert (chat.shows, chat.load.model, chat.engine) == ("chat", "sample", "pld")
    assert chat.access == HostAccess(False, chat.load) and policy("learn").access == HostAccess(False)


@pytest.mark.parametrize("what, given, words", [
    (["learn", "trie"], {}, "no lesson"), (["learn", "rest", "trees"], {}, "one lesson"),
    (["replay"], {}, "needs a recorded run"), (["replay", "no-such"], {}, "no trace"), (["chat"], {}, "nothing to"),
    (["learn"], {"models": ModelOrServerOptions(model="sample")}, "loads no model"),
    ([], {"engine": "none"}, "none"), ([], {"options": {"a": "1"}}, "needs an engine"),
    ([], {"theme": "x"}, "no theme"),
    ([], {"models": ModelOrServerOptions(model="owner/name")}, "not on this machine"),
])  # fmt: skip
def test_what_cannot_be_served_is_said_before_a_session_begins(what, given, words):
    with pytest.raises(SpecError, match=words):
        policy(*what, **given)


def test_without_the_extra_it_says_how_to_get_it(cli, monkeypatch):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    done = cli("serve", "learn")
    assert done.code == 2 and "pip install 'spec-tui[serve]'" in done.err


@pytest.mark.parametrize("gate, address", [
    (Gate("127.0.0.1"), "http://127.0.0.1:8000/"), (Gate("::1"), "http://[::1]:8000/"),
    (Gate("10.0.0.1", token="t"), "http://10.0.0.1:8000/?token=t"),
    (Gate("127.0.0.1", "https://class.example.org/spec", "t"), "https://class.example.org/spec/?token=t"),
])  # fmt: skip
def test_the_address_to_open(gate, address):
    assert command._address(gate, 8000) == address


def test_a_class_has_two_addresses_and_a_path_where_no_lesson_is_named(cli, monkeypatch):
    begun = []
    monkeypatch.setattr(command, "_serve", lambda policy, gate, limits, port: begun.append((policy, gate)) or 0)
    assert cli("serve", "learn", "--lead", "--host", "0.0.0.0").code == 0
    assert cli("serve", "learn", "trees", "--lead").code == 0 and cli("serve", "learn").code == 0
    (path, gate), (lesson, local), (_, without) = begun
    assert path.names == ("path-45",) and lesson.names == ("trees",) and not without.lead
    students, teacher = command._address(gate, 8000), command._address(gate, 8000, leads=True)
    assert gate.lead and gate.lead not in students and teacher == f"{students}&lead={gate.lead}"
    assert command._address(local, 8000, leads=True) == f"http://127.0.0.1:8000/?lead={local.lead}"
    assert gate.leads(gate.lead) and not gate.leads(gate.token) and not without.leads("") and not without.leads(None)
