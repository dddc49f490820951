"""Who may connect to a served application."""

from __future__ import annotations

import pytest

from engines.errors import UsageProblem
from spec_tui.serve.gate import Gate, is_local


@pytest.mark.parametrize("host, public_url, needed", [
    ("127.0.0.1", None, False), ("localhost", None, False), ("::1", None, False), ("0.0.0.0", None, True),
    ("192.168.1.7", None, True), ("127.0.0.1", "https://class.example.org", True),
])  # fmt: skip
def test_a_token_is_needed_where_others_reach_the_server(host, public_url, needed):
    gate = Gate.of(host, public_url)
    assert bool(gate.token) is needed
    assert gate.opens_with(None) is not needed and gate.opens_with(gate.token + "x") is not needed
    assert gate.opens_with(gate.token)


def test_two_servers_have_two_tokens():
    assert Gate.of("0.0.0.0", None).token != Gate.of("0.0.0.0", None).token


@pytest.mark.parametrize("host, known", [
    ("127.0.0.1:8000", True), ("localhost:8000", True), ("[::1]:8000", True), ("10.0.0.3", True),
    ("class.example.org", True), ("evil.example.org:8000", False), ("127.0.0.1.example.org", False), ("", False),
    ("127.0.0.1:99999999", False), ("127.0.0.1:abc", False),
    (None, False), ("[", False),
])  # fmt: skip
def test_a_name_that_leads_here_by_somebody_else_is_refused(host, known):
    assert Gate("127.0.0.1", "https://class.example.org").answers_to(host) is known


@pytest.mark.parametrize("origin, ours", [
    ("http://127.0.0.1:8000", True), ("https://class.example.org", True), ("http://class.example.org", False),
    ("http://127.0.0.1:8001", False), ("http://evil.example.org", False), ("null", False), ("", False), (None, False),
    ("http://[", False), ("http://127.0.0.1:x", False),
])  # fmt: skip
def test_a_page_of_somebody_else_opens_no_session(origin, ours):
    assert Gate("127.0.0.1", "https://class.example.org").takes_from(origin, "127.0.0.1:8000") is ours


def test_a_cookie_of_any_bytes_is_compared():
    assert not Gate("0.0.0.0", token="right").opens_with(b"\xff\xfe".decode("utf-8", "surrogateescape"))


@pytest.mark.parametrize("public_url", [
    "class.example.org", "http://[::1", "https://class.example.org/?x=1", "https://class.example.org/#y",
    "https://me:secret@class.example.org",
])
def test_what_is_no_address_is_refused(public_url):
    with pytest.raises(UsageProblem, match="not an address"):
        Gate.of("127.0.0.1", public_url)
    assert not is_local("127.0.0.1.example.org")
