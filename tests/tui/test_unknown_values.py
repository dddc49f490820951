"""Values that an engine elsewhere does not say: absent in the events, drawn as unknown on every screen, never 0."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.report.events import Prefilled, Round
from engines.report.metrics import measure, together
from engines.report.run_state import fold_all
from engines.report.traces import Trace, written
from engines.request import Request
from engines.wire import read_trace
from spec_tui.export.formats import FORMATS, ExportOptions
from spec_tui.present import token_facts
from spec_tui.present.step.phases import phases_of
from spec_tui.session.replay_client import ReplayClient
from spec_tui.tui.recorded import replay
from tests.step.test_explain import said
from tests.tiers import SMALL_FIRST
from tests.tui.fakes import script

ASKED = Request((("user", "one"),), engine="draft", max_new_tokens=64)


def bare(event):
    """An event as a server would give it: what a round took in all, no probabilities, nothing of its cache."""
    if isinstance(event, Prefilled):
        return replace(event, first=replace(event.first, prob=None, top=()), cache_length=None)
    if isinstance(event, Round):
        took = event.draft_seconds + event.verify_seconds + event.other_seconds
        emitted = tuple(replace(e, prob=None, gap=None, top=()) for e in event.emitted)
        return replace(event, draft_seconds=None, verify_seconds=took, other_seconds=None, cache_length=None,
                       emitted=emitted)
    return event


EVENTS = tuple(map(bare, script(ASKED)))


def test_a_trace_keeps_what_is_absent_absent(tmp_path):
    path = tmp_path / "server.jsonl"
    path.write_bytes(written(EVENTS))
    trace = read_trace(path)
    assert trace.events == EVENTS and not trace.problems


def test_metrics_count_what_is_known_and_no_more():
    whole, m = measure(script(ASKED)), measure(EVENTS)
    assert (m.draft_seconds, m.other_seconds, m.verify_scale, m.break_even) == (None, None, None, None)
    assert m.decode_seconds == pytest.approx(whole.decode_seconds)
    assert m.tokens_per_second == pytest.approx(whole.tokens_per_second)
    both = together([whole, m])
    assert both.draft_seconds is None and both.verify_seconds > m.verify_seconds
    assert m.stats()["draft_seconds"] is None


def test_an_answer_without_probabilities_is_audited_without_them():
    assert fold_all(EVENTS).answer.probs == ()


def test_no_words_call_it_zero():
    run = fold_all(EVENTS)
    token = run.tokens[3]
    assert dict(token_facts.facts(run, token, run.rounds[token.round]))["target says"] == "an unknown probability"
    for deep in (False, True):
        told = " ".join(said(run, 2, phase, deep) for phase in phases_of(run, 2))
        assert "None" not in told and "an unknown time" in told and " 0 rows" not in told


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_every_export_is_made(name):
    assert FORMATS[name].make(Trace(EVENTS), "answer", ExportOptions())


@pytest.mark.parametrize("size", SMALL_FIRST, ids=str)
@pytest.mark.parametrize("screen", ["chat", "step"])
async def test_every_screen_draws_it(screen, size):
    app = replay(ReplayClient(Trace(EVENTS), float("inf"), title="a-server"), screen)
    async with app.run_test(size=size) as pilot:
        await pilot.pause(0.3)
        keys = ["escape", "left", "enter", "escape", "v", "v", "v"] if screen == "chat" else ["right"] * 8 + ["e"]
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        for name in ("p", "escape"):
            await pilot.press(name)
            await pilot.pause()
    assert app.return_code in (0, None)
