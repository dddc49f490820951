"""The audit on the chat screen: a key, a badge, the token where it matters."""

from __future__ import annotations

import json
from dataclasses import replace

from engines.report.answer import Answer
from engines.report.events import Audited, Failed, Prefilling
from engines.report.run_state import RunState
from engines.wire import from_json, to_json
from spec_tui.present import audit_text as verdict
from spec_tui.tui.screens.inspector import Inspector
from tests.tui.fakes import ANSWER, FakeClient, finding, pieces


def style_of(session, text: str) -> str:
    """The style of the badge in the answer's foot."""
    lines = session.chat.transcript.wrapped.lines
    return next(tok.style for line in lines for tok in line.toks if text in tok.text.replace("\u00a0", " "))


async def audited(s, *finds) -> Audited:
    s.client.finds = finds
    await s.pilot.press("escape", "a")
    s.client.feed()
    await s.settle()
    return s.chat.session.last.run.audited


async def test_the_verdict_is_a_badge_and_a_sentence(session):
    async with session() as s:
        await s.ask("one")
        found = await audited(s, "identical")
        run = s.chat.session.last.run
        assert s.client.audits == [run.answer] and run.answer.tokens == tuple(t.emitted.token for t in run.tokens)
        assert "✓ identical" in s.shown and style_of(s, "✓ identical") == "good"
        assert s.status == verdict.sentence(found) and "its 136 tokens" in s.status
        assert s.chat.transcript.cursor is None and not s.chat.session.busy
        await s.pilot.resize_terminal(200, 60)
        await s.settle()
        assert "✓ identical" in s.shown, "it stays where the text is laid out anew"


async def test_a_bug_is_jumped_to_and_explained(session):
    async with session() as s:
        await s.ask("one")
        await audited(s, "BUG", 41, 2.31)
        assert "✗ BUG at 42" in s.shown and style_of(s, "✗ BUG") == "bad"
        assert s.chat.transcript.cursor == (0, 41) and "2.3 ahead" in s.status and "·rather" in s.status
        assert "token 42" in s.chat.query_one("#answer-title").text_rows()[0]
        await s.pilot.press("enter")
        assert isinstance(s.app.screen, Inspector)
        text = str(s.app.screen.query_one("#text").content)
        assert "token 42 of the answer" in text and "✗ the target's choice is ·rather (0.620)" in text
        assert "2.3; rounding explains only 0.0031" in text
        await s.pilot.press("left")
        assert "✓ the target's own choice, 1.5 ahead" in str(s.app.screen.query_one("#text").content)


def test_a_gap_within_the_tolerance_is_explained_by_what_the_code_writes_without_drafts():
    answer = Answer("m", "float32", (1, 2), (3, 4, 5), probs=(0.5, 0.5, 0.5))
    found = replace(finding(answer, "BUG", 1, 0.001), exact=False)
    assert found.gap <= found.tolerance and "without drafts, the code that wrote" in verdict.sentence(found)
    assert verdict.of_token(found, 1, 4)[0][1].startswith("✗ without drafts")
    assert not verdict.of_token(found, 0, found.choices[0].token)[0][1].startswith("✗")
    drawn = replace(found, leads=(None, None, None), draws=True)
    assert "gives it another one" in verdict.sentence(drawn) and "gives it another one" in verdict.of_token(
        drawn, 1, 4)[0][1]
    assert "to the last bit" in verdict.sentence(replace(finding(answer, "tie", 1, 0.001), exact=True))


def test_a_tie_where_filters_leave_one_token_is_a_tie():
    """With top_k 1 there is no second best score; that is no sign of random draws."""
    answer = Answer("m", "float32", (1, 2), (3, 4, 5), temperature=0.8, top_k=1)
    found = replace(finding(answer, "tie", 1, 0.001), leads=(None, None, None), draws=False)
    assert "the target's choice there is" in verdict.sentence(found) and "drawn" not in verdict.sentence(found)
    assert verdict.of_token(found, 1, 5)[0][1].startswith("≈ a tie")
    run = replace(RunState(), audited=found)
    assert (verdict.near_tie(run, 1), verdict.near_tie(run, 0)) == (True, None)


def test_an_audit_that_an_earlier_version_kept_is_read_as_it_was_meant():
    found = finding(Answer("m", "float32", (1, 2), (3, 4, 5)), "lossy")
    for leads, drawn in (((None, None, None), True), ((None, 1.5, 2.0), False)):
        kept = json.loads(to_json(replace(found, leads=leads, draws=drawn)))
        del kept["draws"]
        assert from_json(json.dumps(kept).encode()).drawn is drawn


async def test_a_tie_tells_its_gap_and_leaves_the_view_alone(session):
    async with session() as s:
        await s.ask("one")
        await audited(s, "tie", 41, 0.0012)
        assert "≈ tie at 42 (gap 0.0012)" in s.shown and style_of(s, "≈ tie") == "warn"
        assert s.chat.transcript.cursor is None
        s.chat.transcript.select((0, 41))
        await s.pilot.press("enter")
        text = str(s.app.screen.query_one("#text").content)
        assert "≈ a tie with the target's choice" in text and "0.0012; rounding explains 0.0031" in text


async def test_dice_and_lossy_laws_have_words_of_their_own(session):
    async with session(size=(200, 60)) as s:
        await s.ask("one")
        await audited(s, "consistent")
        assert "✓ consistent" in s.shown and "keeps the distribution, not the text" in s.status
        await s.pilot.press("left", "enter")
        assert "can draw this token" in str(s.app.screen.query_one("#text").content)
        await s.pilot.press("escape")
        await audited(s, "lossy", 3, 1.5)
        assert "≠ lossy (1 of 136)" in s.shown and "✓ consistent" not in s.shown
        assert "by design; 1 of 136 tokens are not the target's choice" in s.status


async def test_progress_is_shown_and_esc_stops(session):
    async with session() as s:
        await s.ask("one")
        await s.pilot.press("escape", "a")
        s.client.feed(2)
        await s.settle()
        assert "auditing the answer" in s.status and " 75%" in s.status and "esc stops" in s.status
        await s.pilot.press("a")
        assert "esc stops · Still auditing" in s.status and len(s.client.audits) == 1
        await s.ask("two", feed=0)
        assert len(s.client.requests) == 1 and s.chat.prompt.text == "two"
        await s.pilot.press("escape")
        await s.settle()
        assert "the audit was stopped" in s.status and not s.chat.session.busy and s.notice == ""
        assert "identical" not in s.shown and s.chat.session.last.run.audited is None
        await s.pilot.press("enter")
        assert len(s.client.requests) == 2, "the next turn goes as if nothing had been"


async def test_a_long_prompt_shows_how_far_it_is_read_and_esc_says_that_it_stops(session):
    async with session() as s:
        await s.ask("one", feed=1)
        s.client.say(Prefilling(1024, 2900, 6.2))
        await s.settle()
        assert "reading the prompt: 1,024 of 2,900 tokens, 6 s left" in s.status and " 35%" in s.status
        assert "esc stops" in s.status
        stop, s.client.cancel = s.client.cancel, lambda *job, **how: None  # an engine ends its part first
        await s.pilot.press("escape")
        assert "stopping after this part of the prompt" in s.status
        s.client.say(Prefilling(1280, 2900, 5.0))
        await s.settle()
        assert "stopping after this part of the prompt" in s.status
        stop(1)
        await s.settle()
        assert "reading" not in s.shown + s.status and not s.chat.session.busy


async def test_it_works_on_the_turn_under_the_cursor_and_by_command(session):
    async with session() as s:
        await s.ask("one")
        await s.ask("zwei")
        s.chat.transcript.select((0, 3))
        s.chat.transcript.focus()
        await s.pilot.press("a")
        assert "auditing answer 1" in s.status
        s.client.feed()
        await s.settle()
        turns = s.chat.session.turns
        assert turns[0].run.audited and not turns[1].run.audited
        assert s.shown.index("✓ identical") < s.shown.index("zwei")
        s.chat.transcript.action_jump(True)
        await s.ask("/audit")
        assert turns[1].run.audited and s.shown.count("✓ identical") == 2
        assert "Audit the answer" in [c.title for c in s.app.get_system_commands(s.chat)]


async def test_the_badge_goes_with_its_answer_and_stays_beside_the_baseline(session):
    async with session(size=(200, 60)) as s:
        await s.ask("one")
        await audited(s, "identical")
        await s.pilot.press("b")
        s.client.feed()
        await s.settle()
        assert "same text ✓ · ✓ identical" in s.shown.replace("·\n", "· ")
        await s.pilot.press("ctrl+r")
        s.client.feed()
        await s.settle()
        assert "identical" not in s.shown and "same text" not in s.shown


async def test_where_the_baseline_parts_the_audit_gives_the_same_explanation(session):
    """Two texts of one target part where two scores are as good: a difference is a tie once the audit has said so."""
    async with session(size=(200, 60)) as s:
        await s.ask("one")
        words = pieces(ANSWER)
        s.client.text = "".join([*words[:41], " elsewhere", *words[42:]])
        await s.pilot.press("escape", "b")
        s.client.feed()
        await s.settle()
        assert "differs at token 42 ≠" in s.shown
        assert "≠ differs from autoregressive decoding at token 42" in s.status and "F6 says whether" in s.status
        assert "started with the option strict" in s.status
        s.client.finds = ("tie", 41, 0.0012)
        await s.pilot.press("f6")
        s.client.feed()
        await s.settle()
        assert "baseline: tie at 42 ≈ · ≈ tie at 42 (gap 0.0012)" in s.shown.replace("·\n", "· ")
        run = s.chat.session.last.run
        assert "both are the target's choice" in verdict.parting(run, 41, False)
        assert "--strict" not in verdict.parting(run, 41, True)
        assert verdict.near_tie(run, 40) is False, "a lead of 1.5 is none"
        assert "rounding does not explain it" in verdict.parting(run, 40, False)


async def test_without_an_answer_there_is_nothing_to_audit(session):
    async with session() as s:
        await s.pilot.press("escape", "a")
        assert "Type a prompt first" in s.status and not s.client.audits
        await s.ask("one", feed=5)
        s.chat.transcript.focus()
        await s.pilot.press("a")
        assert "Still answering" in s.status and not s.client.audits
        await s.pilot.press("escape")
        await s.settle()
        await s.pilot.press("a")
        assert s.client.audits[0].tokens, "a stopped answer can be audited"


async def test_an_audit_that_fails_or_dies_is_said_and_over(session):
    async with session() as s:
        await s.ask("one")
        await s.pilot.press("escape", "a")
        s.client.pending.clear()
        s.client.say(Failed("the audit failed: no memory", "try a shorter answer", "failed"))
        await s.settle()
        assert "The audit failed: no memory." in s.notice and not s.chat.session.busy
        assert s.chat.session.last.run.failed is None, "the answer is as good as before"
        await s.pilot.press("escape", "a")
        s.client.die()
        await s.settle()
        assert s.chat.session.phase == "dead" and not s.chat.session.busy and s.chat.prompt.text == ""
        await s.pilot.press("ctrl+r")
        await s.settle()
        await s.pilot.press("a")
        s.client.feed()
        await s.settle()
        assert "✓ identical" in s.shown


async def test_hostile_text_in_a_finding_is_harmless(session):
    from engines.report.events import Choice

    async with session(client=FakeClient()) as s:
        await s.ask("one")
        await audited(s, "BUG", 2, 5.0)
        run = s.chat.session.last.run
        bad = Choice(3, "\x1b]0;owned\x07\u202e[red]\n", 0.5)
        object.__setattr__(run.audited, "choices", (bad,) * run.audited.checked)
        said = verdict.sentence(run.audited) + str(verdict.of_token(run.audited, 2, 99))
        assert not set(said) & {"\x1b", "\x07", "\u202e"}


async def test_of_a_lossy_answer_that_dice_wrote_the_bias_is_told_and_nothing_is_counted(session):
    async with session(size=(80, 24)) as s:
        await s.ask("/law redraw")
        await s.ask("/temp 0.8")
        await s.ask("one")
        found = await audited(s, "lossy")
        found = replace(found, leads=(None,) * found.checked, differences=0, draws=True)
        assert verdict.badge(found) == ("≠ lossy", "warn")
        assert verdict.sentence(found, 0.25).endswith("by design, bias 0.250 per round")
        assert "bias 0.250 per round" in s.notice and "not the target's choice" in s.notice, "all of it can be read"


async def test_audit_and_baseline_have_keys_that_work_in_the_prompt(session):
    async with session(size=(80, 24)) as s:
        await s.ask("one")
        assert s.chat.focused is s.chat.prompt
        await s.pilot.press("f6")
        assert len(s.client.audits) == 1 and s.chat.prompt.text == ""
        await s.pilot.press("f7")
        assert "auditing the answer" in s.status and "Still auditing" in s.notice, "there is no room beside the bar"
        s.client.feed()
        await s.settle()
        await s.pilot.press("f7")
        assert "esc stops" in s.status and s.chat.session.measuring is not None
