"""``spec-tui serve`` up to the moment that it serves."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass

import pytest

from engines.folders import sample_traces
from spec_tui.cli import serve as command
from spec_tui.serve import web_server
from spec_tui.serve.gate import Gate
from spec_tui.serve.session_policy import SessionPolicy
from spec_tui.session.host_access import HostAccess


@dataclass(frozen=True)
class Served:
    policy: SessionPolicy
    gate: Gate
    urls: list[str]


@pytest.fixture
def serve(cli, monkeypatch):
    """``spec-tui serve`` with these arguments, up to the moment that it listens; what it would serve."""
    begun = []

    async def listen(policy, gate, limits, port, announce, pages):
        begun.append((policy, gate))
        announce(port)

    def run(*arguments: str) -> Served:
        done = cli("serve", *arguments)
        assert done.code == 0, done.err
        return Served(*begun.pop(), re.findall(r"https?://\S+", done.out + done.err))

    monkeypatch.setattr(web_server, "run_server", listen)
    return run


def test_what_is_offered(serve):
    assert serve("learn").policy.names == () and serve("learn", "trees").policy.names == ("trees",)
    assert serve("learn", "exact", "law").policy.names == ("exact",)
    assert serve("replay", "rest").policy.names == (str((sample_traces() / "rest.jsonl").resolve()),)
    assert serve("replay", "rest", "pld").policy.shows == "race"
    chat = serve("--model", "sample", "--engine", "pld", "--set", "num_tokens=4").policy
    assert (chat.shows, chat.load.model, chat.engine) == ("chat", "sample", "pld")
    assert chat.access == HostAccess(False, chat.load) and serve("learn").policy.access == HostAccess(False)


@pytest.mark.parametrize("arguments, words", [
    ("learn trie", "no lesson"), ("learn rest trees", "no lesson"), ("learn rest --path 15", "has its own"),
    ("replay", "needs a recorded run"),
    ("replay no-such", "no trace"), ("chat", "nothing to"), ("learn --model sample", "loads no model"),
    ("--engine none", "none"), ("--set a=1", "needs an engine"), ("--theme x", "no theme"),
    ("--model owner/name", "not on this machine"), ("--model ~nobody-here/x", "stands for no home folder"),
    ("--server http://h:99999", "not the address of a server"), ("--server h:81", "not the address of a server"),
])  # fmt: skip
def test_what_cannot_be_served_is_said_before_a_session_begins(arguments, words, cli):
    done = cli("serve", *arguments.split())
    assert done.code and not done.out and words in done.err


def test_without_the_extra_it_says_how_to_get_it(cli, monkeypatch):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    done = cli("serve", "learn")
    assert done.code == 2 and "pip install 'spec-tui[serve]'" in done.err


@pytest.mark.parametrize("host", ["192.0.2.1", "999.1.1.1", "a..b"])
def test_an_address_that_is_not_of_this_machine_is_not_blamed_on_the_port(host, cli):
    done = cli("serve", "learn", "--host", host)
    assert done.code == 2 and f"{host} port 8000 cannot" in done.err and "--host takes an address" in done.err


def test_a_port_that_is_taken_is(cli):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = cli("serve", "learn", "--port", str(taken.getsockname()[1]))
    assert done.code == 2 and "--port takes another" in done.err
    assert "cannot be served on: Address already in use\n" in done.err


@pytest.mark.parametrize("arguments, address", [
    ("", "http://127.0.0.1:8000/"), ("--host ::1", "http://[::1]:8000/"),
    ("--host 0", f"http://{socket.gethostname()}:8000/?token={{}}"),
    ("--host 10.0.0.1", "http://10.0.0.1:8000/?token={}"), ("--port 81", "http://127.0.0.1:81/"),
    ("--public-url https://class.example.org/spec", "https://class.example.org/spec/?token={}"),
])  # fmt: skip
def test_the_address_to_open(arguments, address, serve):
    served = serve("learn", *arguments.split())
    assert served.urls == [address.format(served.gate.token)] and ("{}" in address) == bool(served.gate.token)


def test_a_class_has_two_addresses_and_a_path_where_no_lesson_is_named(serve):
    path, lesson = serve("learn", "--lead", "--host", "0.0.0.0"), serve("learn", "trees", "--lead")
    assert (path.policy.names, lesson.policy.names) == (("path-45",), ("trees",))
    assert serve("learn", "--path", "15").policy.names == ("path-15",)
    (students, teacher), gate, without = path.urls, path.gate, serve("learn").gate
    assert gate.lead and gate.lead not in students and teacher == f"{students}&lead={gate.lead}"
    assert lesson.urls[1] == f"http://127.0.0.1:8000/?lead={lesson.gate.lead}" and not without.lead
    assert gate.leads(gate.lead) and not gate.leads(gate.token) and not without.leads("") and not without.leads(None)
