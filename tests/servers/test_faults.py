"""Many answers, most of them with something wrong: each ends in a sentence, and keeps what had arrived."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from engines import Request, SpecError
from engines.errors import RunFailed, StartCancelled
from engines.race import peers
from engines.race.lanes import Race, parse_lanes
from engines.race.race_events import RaceFinished
from engines.race.runner import race
from engines.report.events import Finished, Prefilled, Round
from engines.servers import connect, llama_cpp_start
from tests.race.fakes import VirtualRacer
from tests.servers.misbehaving import END, chunk, misbehaving
from tests.sources.gguf_files import Tiny

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
        for _ in range(1000):
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
    assert 0 < ended < 1000 and kept > 1000


@pytest.fixture
def slow(monkeypatch):
    """llama.cpp as it reads a large file: it says nothing. The processes that are started."""
    started: list[subprocess.Popen] = []

    def silent(command, **how):
        assert command[-1] == "engines.servers.llama_cpp_process"
        started.append(subprocess.Popen([sys.executable, "-S", "-c", "import sys; sys.stdin.read()"], **how))
        return started[-1]

    monkeypatch.setattr(llama_cpp_start, "find_spec", lambda name: True)
    monkeypatch.setattr(llama_cpp_start, "subprocess", SimpleNamespace(**vars(subprocess) | {"Popen": silent}))
    return started


def test_a_race_is_cancelled_while_llama_cpp_starts_for_a_lane(slow, monkeypatch):
    monkeypatch.setattr(peers, "gguf_file", lambda model: Path("large.gguf"))
    host = VirtualRacer()
    host.ready = SimpleNamespace(host="", model="large.gguf", draft_model=None, threads=1, context_limit=64)
    host.prompt = lambda request: ((1, 2), ("hel", "lo"))
    with peers.Peers(host) as racer:
        events = list(race(racer, Race(parse_lanes(["llama.cpp"]), Request(TURN)), cancelled=lambda: bool(slow)))
    assert events[-1] == RaceFinished("cancelled")
    assert len(slow) == 1 and slow[0].poll() is not None, "nothing of it is left"


def test_a_start_for_other_options_is_cancelled_with_its_run(tmp_path, request):
    pytest.importorskip("xllamacpp", reason="llama.cpp is not here")
    own = llama_cpp_start.OwnLlamaCpp(Tiny("llama", "F32").write(tmp_path / "tiny.gguf"), threads=1)
    slow = request.getfixturevalue("slow")  # from here on
    try:
        with pytest.raises(StartCancelled) as stopped:
            list(own.run(Request(TURN, "llama.cpp", {"most": 2}), cancelled=lambda: bool(slow)))
        assert isinstance(stopped.value, RunFailed) and stopped.value.kind == "cancelled"
        assert slow[0].poll() is not None
    finally:
        own.close()
