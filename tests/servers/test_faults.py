"""Many answers, most of them with something wrong: each ends in a sentence, and keeps what had arrived."""

from __future__ import annotations

import random

import pytest

from engines import Request, SpecError
from engines.report.events import Finished, Prefilled, Round
from engines.servers import connect
from tests.servers.misbehaving import END, chunk, misbehaving

TURN = (("user", "hello"),)


def answer(rng: random.Random) -> tuple[tuple, int]:
    """What the server does with a request: (status, headers, body), and how many tokens arrive whole."""
    good = rng.randrange(6)
    parts = [chunk(n) for n in range(good)]
    fault = rng.choice(["none", "cut", "torn", "garbage", "error", "500", "429", "302", "binary", "empty", "huge"])
    if fault in ("500", "429", "302"):
        return (int(fault), {"Location": "http://127.0.0.1:9/"}, b"no"), 0
    more = {
        "none": [END], "cut": [], "torn": [chunk(good)[: rng.randrange(1, 40)]], "garbage": [b"data: {]\n\n"],
        "error": [chunk(good, error={"message": "lost"})], "binary": [rng.randbytes(200) + b"\n"], "empty": [b"\n\n"],
        "huge": [b"data: " + b"[" * 50_000 + b"\n\n"],
    }
    return (200, {}, parts + more[fault]), good


@pytest.mark.thorough
def test_requests_with_faults():
    rng, ended, kept = random.Random(0), 0, 0
    with misbehaving() as server:
        model = connect(server.url)
        for _ in range(250):
            server.wrong["/completion"], whole = answer(rng)
            events: list = []
            try:
                for event in model.run(Request(TURN)):
                    events.append(event)
                ended += isinstance(events[-1], Finished)
            except SpecError as error:
                assert error.message and error.hint
            tokens = [e.first.token for e in events if isinstance(e, Prefilled)]
            tokens += [token.token for e in events if isinstance(e, Round) for token in e.emitted]
            assert tokens == list(range(whole))
            kept += len(tokens)
    assert 0 < ended < 250 and kept > 250
