"""A model on a server: what cannot be done there is not offered, and what is not known is drawn as such."""

from __future__ import annotations

from dataclasses import replace

from engines.methods import specs
from engines.report.events import UNDISCLOSED, Draft, Emitted, Origin, Prefilled, Round
from engines.report.run_state import fold_all
from engines.servers.served_model import CAPABILITIES
from spec_tui.tui.widgets.speed_panel import telemetry
from tests.tui.fakes import READY, FakeClient

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


async def test_the_address_is_shown_at_any_size_before_anything_is_asked(session):
    async with session(size=(80, 24), client=FakeClient(ready=SERVED)) as s:
        assert SERVED.device in "\n".join(s.chat.query_one("#top").text_rows())


async def test_no_baseline_and_no_audit(session):
    async with session(client=FakeClient(ready=SERVED)) as s:
        await s.ask("hello")
        await s.pilot.press("escape", "b", "f7", "f6")
        await s.settle()
        assert s.chat.session.phase == "ready" and s.chat.session.measures is None
        assert "measures the baseline" not in str(s.chat.query_one("#speed").text_rows())


async def test_a_rejected_token_that_nobody_names_is_drawn(session):
    async with session(client=FakeClient(ready=SERVED)) as s:
        await s.ask("hello", feed=2)
        s.client._out.append(replace(ROUND, index=2))
        await s.settle()
        assert "undisclosed" in "\n".join(s.chat.query_one("#tree").text_rows())


def test_what_a_server_does_not_disclose_is_no_number():
    known = replace(ROUND.draft, tokens=(5,), parents=(-1,), pieces=(" a",), probs=(None,), origin=(0,))
    for what, said in (("accepted", "accepted  1 of   —"), ("text", "accepted  — of   —")):
        run = fold_all([Prefilled(3, None, 0.1, ROUND.emitted[1], None), replace(ROUND, draft=known, known=what)])
        assert said in "".join(text for row in telemetry(run, None, None, 80) for text, _ in row)
        assert run.metrics.acceptance_rate is None and run.metrics.drafted is None
