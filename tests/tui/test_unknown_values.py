"""Values that an engine elsewhere does not say: absent in the events, drawn as unknown on every screen, never 0."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from engines.report.events import UNDISCLOSED, Prefilled, Round, ServerTotals, Started
from engines.report.metrics import measure, together
from engines.report.run_state import fold_all
from engines.report.traces import Trace, written
from engines.request import Request
from engines.servers.served_model import chain
from engines.wire import read_trace
from spec_tui.export import about
from spec_tui.export.formats import FORMATS, ExportOptions
from spec_tui.present import token_facts
from spec_tui.present.rows import words_of
from spec_tui.present.step.phases import StepPosition, phases_of
from spec_tui.present.step.player import StepPlayer
from spec_tui.session.replay_client import ReplayClient
from spec_tui.tui.recorded import replay
from spec_tui.tui.widgets.step_panels import Doing, StepTree, Timeline
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


def disclosing(known):
    """The events of a server that says no more of its rounds than this."""
    for event in EVENTS:
        if isinstance(event, Started):
            event = replace(event, engine="server", price=(), draft_price=())
        if isinstance(event, Prefilled) and known == "text":
            event = replace(event, first=replace(event.first, token=UNDISCLOSED))
        if isinstance(event, Round):
            kept = [e for e in event.emitted if e.node >= 0] if known == "accepted" else []
            own = replace(event.emitted[-1], kind="target", node=-1)
            draft = chain([e.token for e in kept], [e.piece for e in kept])
            event = replace(event, known=known, draft=draft, path=tuple(range(len(kept))), retrieval=None, emitted=(
                *(replace(e, node=n) for n, e in enumerate(kept)), own))
        yield event


@pytest.mark.parametrize("known", ["accepted", "text"])
def test_documents_count_no_drafts_that_are_not_disclosed(known):
    run = fold_all(disclosing(known))
    kept = [str(len(event.path)) if known == "accepted" else "—" for event in run.rounds]
    assert [row[1:3] for row in about.rounds(run)] == [("—", accepted) for accepted in kept] and len(set(kept)) > (
        known == "accepted")
    totals = ServerTotals(drafted_by_round=tuple(range(7, 7 + len(kept))))
    told = [row[1] for row in about.rounds(replace(run, finished=replace(run.finished, totals=totals)))]
    assert told == (list(map(str, totals.drafted_by_round)) if known == "accepted" else ["—"] * len(kept))


@pytest.mark.parametrize("known", ["accepted", "text"])
def test_step_claims_nothing_of_drafts_that_are_not_disclosed(known):
    run = fold_all(disclosing(known))
    false = re.compile(r"othing (is )?drafted|\bone row|\b1 rows?\b|\d forgotten|forgotten: \d|had nothing\.|"
                       r"\b0 drafted|drafted \d|\d of \d+ drafted")
    for number in range(1, len(run.rounds) + 1):
        for phase in phases_of(run, number):
            player = StepPlayer(run, StepPosition(number, phase))
            rows = [row for panel in (Doing(), StepTree(), Timeline()) for row in panel.draw(player, 80, 20)]
            words = [said(run, number, phase, deep) for deep in (False, True)]
            told = "\n".join([*words, *map(words_of, rows)])
            assert not false.search(told), told
            assert phase != "draft" or ("says which tokens" if known == "accepted" else "does not say") in words[0]
    first = said(run, 0, "correct")
    assert ("message" in first) == (known == "text")


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
