"""A download in the engine's process: stopped from the screen, begun again, and nothing asked of the hub but models."""

from __future__ import annotations

import time

from engines.report.events import Failed, Loading, Ready
from spec_tui.session.engine_commands import Load, LoadRequest
from spec_tui.session.process import ProcessClient
from tests.hub import NEEDED

NAME, WEIGHTS = "someone/tiny", "model.safetensors"


def until(client, holds, timeout: float = 60.0) -> list:
    """What arrives up to the first event for which this holds."""
    seen, deadline = [], time.monotonic() + timeout
    while not any(holds(event) for event in seen):
        assert time.monotonic() < deadline, seen[-5:]
        seen += [event for _, event in client.events()]
        time.sleep(0.01)
    return seen


def test_a_download_is_stopped_and_goes_on(hub, crowded, tmp_path, monkeypatch):
    for name, value in hub.environment(tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "0")
    hub.publish(NAME, crowded, "v1")
    hub.held.add(WEIGHTS)
    client = ProcessClient("tests.sources.fetching:load")
    try:
        job = client.submit(Load(LoadRequest(NAME, revision="v1")))
        seen = until(client, lambda e: isinstance(e, Loading) and (e.done or 0) > 0.4)
        assert any(e.stage.startswith(f"downloading {NAME}: 6 files, ") for e in seen)
        assert hub.holding.wait(10)
        begun = time.monotonic()
        client.cancel(job)
        failed = until(client, lambda e: isinstance(e, Failed))[-1]
        assert (failed.kind, failed.hint) == ("cancelled", "what was downloaded stays")
        assert time.monotonic() - begun < 5
        hub.released.set()
        client.submit(Load(LoadRequest(NAME, revision="v1")))
        ready = until(client, lambda e: isinstance(e, Ready | Failed))[-1]
        assert isinstance(ready, Ready) and ready.model == NAME
    finally:
        client.close()
    first, second = hub.got(WEIGHTS)
    assert first.range is None and second.range.startswith("bytes=")
    assert hub.fetched() == NEEDED | {WEIGHTS}
    kinds = {a.path.split("/")[1] for a in hub.asked}
    assert kinds == {"api", "cdn", "someone"} and {a.path for a in hub.asked if a.path.startswith("/api/")} == {
        f"/api/models/{NAME}/revision/v1"
    }
