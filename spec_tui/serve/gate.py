"""Who may connect: the names that this server answers to, the pages that may open its websocket, the token in its
address."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from urllib.parse import urlsplit

from engines.errors import UsageProblem

NO_TOKEN = "This address needs its token. Ask the person who serves spec-tui for the whole address."
WRONG_TOKEN = "The token in this address is wrong. Ask the person who serves spec-tui for the whole address."
WRONG_HOST = "spec-tui does not answer to this name. Use the address that it printed when it started."
WRONG_ORIGIN = "Another page tried to open a session. Open the address of spec-tui itself."


@dataclass(frozen=True)
class Gate:
    """Who may connect.

    Attributes:
        host: the address that the server is bound to.
        public_url: where it is reached from elsewhere, for example by a proxy; None where that is nowhere else.
        token: the secret in the address; "" where none is needed, as only this machine reaches the server.
        lead: the secret of whoever leads a class; "" where there is none.
    """

    host: str
    public_url: str | None = None
    token: str = field(default="", repr=False)
    lead: str = field(default="", repr=False)

    @classmethod
    def of(cls, host: str, public_url: str | None, lead: bool = False) -> Gate:
        """With a new token, unless only this machine reaches the server, and with ``lead`` a teacher's secret, too.
        Raises UsageProblem: no such address."""
        if public_url is not None and not _is_page(public_url):
            raise UsageProblem(f"{public_url[:80]} is not an address of a page", "for example https://class.example.org")
        token = "" if is_local(host) and public_url is None else secrets.token_urlsafe(24)
        return cls(host, public_url, token, secrets.token_urlsafe(24) if lead else "")

    def answers_to(self, host: str | None) -> bool:
        """Whether the name in a request's ``Host`` is one of ours. A page of somebody else can make its own name lead
        to this machine, but no number: those are all ours."""
        name = _name(f"//{host or ''}")
        if name is None:
            return False
        own = {"localhost", self.host.lower(), _name(self.public_url or "")}
        if not is_local(self.host):
            own |= _names_here()
        return name in own or _is_number(name)

    def takes_from(self, origin: str | None, host: str | None) -> bool:
        """Whether the page that opens a websocket is our own: ``origin`` and ``host`` are the request's."""
        if not origin or _name(origin) is None:
            return False
        found = urlsplit(origin)
        here = urlsplit(self.public_url or "")
        return found.netloc.lower() == (host or "").lower() or (
            bool(here.netloc) and (found.scheme, found.netloc.lower()) == (here.scheme, here.netloc.lower()))

    def opens_with(self, token: str | None) -> bool:
        """Whether this is the token; the comparison takes as long for any."""
        return not self.token or _same(token, self.token)

    def leads(self, secret: str | None) -> bool:
        """Whether this is the teacher's secret."""
        return bool(self.lead) and _same(secret, self.lead)


def _same(given: str | None, secret: str) -> bool:
    return hmac.compare_digest((given or "").encode("utf-8", "replace"), secret.encode())


def is_local(host: str) -> bool:
    """Whether only this machine reaches a server that is bound to ``host``."""
    return host == "localhost" or (_is_number(host) and ipaddress.ip_address(host).is_loopback)


@cache
def _names_here() -> frozenset[str]:
    """What this machine is called; asking takes its time."""
    return frozenset({socket.gethostname().lower(), socket.getfqdn().lower()})


def _name(url: str) -> str | None:
    """The host in a URL, in small letters; None where there is none."""
    with suppress(ValueError):
        found = urlsplit(url)
        _ = found.port  # raises where it is not one
        return found.hostname
    return None


def _is_page(url: str) -> bool:
    """Whether a token can be added to this address: it has no query, no fragment, and nobody's password."""
    return _name(url) is not None and urlsplit(url).scheme in ("http", "https") and not set("?#@").intersection(url)


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
