"""A model on a server: what cannot be done there is not offered, and what is not known is drawn as such."""

from __future__ import annotations

from dataclasses import replace

from engines.methods import specs
from engines.report.events import (
    UNDISCLOSED,
    Draft,
    Emitted,
    Failed,
    Finished,
    Origin,
    Prefilled,
    PriceMeasured,
    Pricing,
    Round,
)
from engines.report.run_state import fold_all
from engines.request import Request
from engines.servers.served_model import CAPABILITIES
from spec_tui.present.served_price import served_price
from spec_tui.present.speed_explained import explanation
from spec_tui.present.step.explain import explain
from spec_tui.present.step.phases import StepPosition
from spec_tui.present.token_facts import facts, fate, marked_text
from spec_tui.session.engine_commands import Command, LoadRequest, MeasurePrice
from spec_tui.tui.app import SpecTui
from spec_tui.tui.screens.price import PriceScreen
from spec_tui.tui.widgets.speed_panel import SpeedPanel, telemetry
from tests.tui.fakes import READY, FakeClient, script

SERVED = replace(
    READY, host="server", draft_model=None, price=(), draft_price=(), device="http://127.0.0.1:8080",
    capabilities=CAPABILITIES,
)
ROUND = Round(
    index=1, position=9, draft=Draft((5, UNDISCLOSED), (-1, 0), (" a", "undisclosed"), (None, None), (0, 0),
                                     (Origin("server"),)),
    path=(0,), emitted=(Emitted(5, " a", " a", "accepted", 0), Emitted(6, " b", " b", "corrected")),
    draft_seconds=None, verify_seconds=0.05, other_seconds=None, cache_length=None,
)


async def test_only_the_server_s_own_way_is_offered(session):
    async with session(client=FakeClient(ready=SERVED)) as s:
        assert s.chat.session.settings.resolved(SERVED) == specs("server")[0].id
        await s.pilot.press("ctrl+e")
        await s.pilot.pause()
        offered = s.app.screen.query_one("#engines")
        assert [option.id for option in offered.options] == [spec.id for spec in specs("server")]
        await s.pilot.press("escape")


async def test_an_engine_that_does_not_run_where_the_model_does_is_dropped(session):
    async with session(client=FakeClient(ready=SERVED), request=Request((), engine="pld")) as s:
        server = specs("server")[0]
        assert f"the next answers use {server.title}" in s.status + s.notice
        await s.pilot.press("ctrl+e", "enter")
        assert s.chat.session.settings.engine == server.id
        s.client.ready, s.client.auto = READY, False
        s.chat._models_chosen(LoadRequest(model="another"))
        await s.pilot.press("ctrl+e", "escape")  # nothing is known of the next model yet
        s.client.say(READY)
        await s.settle()
        await s.pilot.press("ctrl+e")
        engines = s.app.screen.query_one("#engines")
        assert engines.highlighted_option.id == s.chat.session.settings.resolved(READY) == "hybrid"


async def test_the_address_is_shown_at_any_size_before_anything_is_asked(session):
    async with session(size=(80, 24), client=FakeClient(ready=SERVED)) as s:
        assert SERVED.device in "\n".join(s.chat.query_one("#top").text_rows())


async def test_nothing_is_said_of_a_server_that_is_not_connected_yet():
    app = SpecTui(FakeClient(ready=Failed("nobody answers", "", "model")), LoadRequest(server=SERVED.device))
    async with app.run_test() as pilot:
        await pilot.pause()
        said = app.screen.transcript.welcome
        assert "The engine drafts" in said and not any(word in said for word in ("F7", "F6", "/race", "Hybrid"))


async def test_no_baseline_and_no_audit(session):
    async with session(client=FakeClient(ready=SERVED)) as s:
        assert "F7" not in s.chat.transcript.welcome and "/race" not in s.chat.transcript.welcome
        await s.ask("hello")
        await s.pilot.press("escape", "b", "f7", "f6")
        await s.settle()
        assert s.chat.session.phase == "ready" and s.chat.session.measuring is None
        assert "measures the baseline" not in str(s.chat.query_one("#speed").text_rows())


async def test_a_rejected_token_that_nobody_names_is_drawn(session):
    async with session(client=FakeClient(ready=SERVED)) as s:
        await s.ask("hello", feed=2)
        s.client.say(replace(ROUND, index=2))
        await s.settle()

        def drawn() -> bool:
            return "undisclosed" in "\n".join(s.chat.query_one("#tree").text_rows())

        for _ in range(100):  # a busy machine draws later
            if drawn():
                break
            await s.pilot.pause(0.05)
        assert drawn()


def test_a_server_s_round_has_one_time_and_no_word_stands_for_what_is_not_disclosed():
    run = fold_all([Prefilled(3, None, 0.1, ROUND.emitted[1], None), ROUND])
    panel = SpeedPanel()
    panel.detailed = True
    panel.show_run(run, None, None)
    rows = ["".join(text for text, _ in row) for row in panel.rows(51, 40)]
    assert any("in all" in row and "50.00 ms  100%" in row for row in rows)
    assert not any(row.startswith(("  draft ", "  verify ", "  other ")) for row in rows)
    words = " ".join(paragraph for phase in ("verify", "accept", "correct", "keep")
                     for paragraph in explain(run, StepPosition(1, phase), True).paragraphs)
    assert "took 50.0 ms in all" in words and "verify 50" not in words and "rows in 50" not in words
    assert "another token, which is not disclosed" in words
    assert "‹undisclosed›" not in words and "some rows" not in words


def test_the_facts_of_a_token_claim_nothing_of_a_draft_that_is_not_disclosed():
    told = replace(ROUND, emitted=(ROUND.emitted[0], Emitted(6, " b", " b", "target")), known="accepted", draft=replace(
        ROUND.draft, tokens=(5,), parents=(-1,), pieces=(" a",), probs=(None,), origin=(0,)))
    for event, said, drafted in ((ROUND, "another token than the draft", "2 drafted, 1 kept"),
                                 (told, "is not disclosed", "— drafted, 1 kept")):
        run = fold_all([Prefilled(3, None, 0.1, ROUND.emitted[1], None), event])
        assert said in fate(run, run.tokens[-1], event) and "undisclosed" not in marked_text(run)
        assert drafted in dict(facts(run, run.tokens[-1], event))["its round"]
        assert dict(facts(run, run.tokens[-2], event))["draft says"] == "an unknown probability"
        assert "Nothing was drafted" not in " ".join(explain(run, StepPosition(1, "correct")).paragraphs)


def test_what_a_server_does_not_disclose_is_no_number():
    known = replace(ROUND.draft, tokens=(5,), parents=(-1,), pieces=(" a",), probs=(None,), origin=(0,))
    for what, said in (("accepted", "accepted  1 of   —"), ("text", "accepted  — of   —")):
        run = fold_all([Prefilled(3, None, 0.1, ROUND.emitted[1], None), replace(ROUND, draft=known, known=what)])
        assert said in "".join(text for row in telemetry(run, None, None, 80) for text, _ in row)
        assert run.metrics.acceptance_rate is None and run.metrics.drafted is None


ASKS = replace(SERVED, backend="llama.cpp b1", capabilities=replace(CAPABILITIES, asks_price=True))
PRICE = ((1, 0.010), (4, 0.014), (16, 0.030))


class Measuring(FakeClient):
    """A client whose model is measured as far as a test lets it be."""

    asked = 0

    def submit(self, command: Command) -> int:
        job = super().submit(command)
        if isinstance(command, MeasurePrice):
            self.asked += 1
            self.say(Pricing(0.25))
        return job


def screen_text(s) -> str:
    return " ".join(" ".join(s.app.screen.query_one("#price").text_rows()).split())


async def test_the_price_is_measured_when_it_is_asked_for(session):
    async with session(size=(80, 24), client=Measuring(ready=ASKS)) as s:
        await s.pilot.press("escape", "p")
        assert isinstance(s.app.screen, PriceScreen)
        assert "enter measures it" in screen_text(s) and s.client.asked == 0, "looking asks nothing"
        await s.pilot.press("left", "right", "backspace", "enter")
        await s.settle()
        await s.pilot.pause(0.3)
        assert s.client.asked == 1 and s.chat.session.busy and "Measuring t(n)" in screen_text(s)
        await s.pilot.press("enter")
        assert s.client.asked == 1, "one at a time"
        s.client.say(PriceMeasured(PRICE, 192))
        await s.settle()
        await s.pilot.pause(0.3)
        said = screen_text(s)
        assert "cost of a pass, t(n), ms" in said and "drafting takes extra time" in said
        assert "forecast" not in said and "faster" not in said
        assert s.chat.session.ready.price == PRICE and not s.chat.session.busy


async def test_a_measurement_that_fails_or_is_stopped_leaves_the_session_free(session):
    async with session(client=Measuring(ready=ASKS)) as s:
        for end, said in ((Failed("it keeps no prompts", "later"), "it keeps no prompts"),
                          (Failed("stopped", "", "cancelled"), "is not measured")):
            await s.pilot.press("escape", "p", "enter")
            await s.settle()
            s.client.say(end)
            await s.settle()
            await s.pilot.pause(0.3)
            assert said in screen_text(s) and not s.chat.session.busy
            await s.pilot.press("escape")


async def test_a_server_without_a_clock_of_its_own_has_no_price(session):
    async with session(client=Measuring(ready=replace(SERVED, backend="vLLM 0.32.0"))) as s:
        await s.pilot.press("escape", "p", "enter")
        await s.settle()
        assert s.client.asked == 0 and "vLLM 0.32.0 reports no times of its own" in screen_text(s)


def answer(*rounds: Round, arrival: bool = False, round_trip: float | None = 0.0004):
    events = script(Request((("user", "hi"),), engine="server"), "a b")
    started = replace(events[0], engine="server", price=(), arrival=arrival, round_trip=round_trip)
    return fold_all([started, Prefilled(3, None, 0.1, ROUND.emitted[1], None), *rounds, Finished("stop", (6,), "x")])


def test_rounds_that_were_seen_stand_by_what_they_verified():
    alone = replace(ROUND, draft=Draft(), path=(), emitted=(Emitted(6, " b", " b", "target"),))
    first = answer(ROUND, replace(ROUND, index=2, verify_seconds=0.07), replace(alone, index=3, verify_seconds=0.02))
    other = answer(replace(alone, verify_seconds=9.0))
    other = replace(other, started=replace(other.started, options={"spec": "none"}))
    found = served_price(first, [first, first, other], ASKS, None, "")
    assert [(seen.rows, seen.count, round(seen.seconds, 3)) for seen in found.seen] == [(1, 2, 0.02), (3, 4, 0.06)]
    assert "by the server's clock" in found.of_rounds
    late = answer(replace(ROUND, known="accepted"), arrival=True)
    found = served_price(late, [late], SERVED, None, "")
    assert [seen.rows for seen in found.seen] == [None] and "as messages arrived" in found.of_rounds
    text = answer(replace(ROUND, known="text"))
    assert "does not report rounds" in served_price(text, [text], SERVED, None, "").of_rounds
    assert served_price(replace(text, started=replace(text.started, engine="pld")), [], READY, None, "") is None


def test_the_connection_stands_beside_the_times_and_nobody_explains_them():
    panel = SpeedPanel()
    panel.detailed = True
    for arrival, where in ((False, "excluded"), (True, "included")):
        panel.show_run(answer(ROUND, arrival=arrival), None, None)
        rows = ["".join(text for text, _ in row) for row in panel.rows(51, 40)]
        assert any(row.rstrip().endswith(f"connection 0.4 ms {where}") for row in rows)
    assert "not disclosed" in explanation(answer(ROUND))[0]
    panel.show_run(answer(ROUND, round_trip=None), None, None)
    assert not any("connection" in text for row in panel.rows(51, 40) for text, _ in row)
