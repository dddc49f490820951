"""The step screen: keys, what is hidden until it is decided, what the engine is asked for, how it looks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.methods import specs
from engines.report.events import Failed, Prefilled, Round
from engines.report.run_state import fold_all
from engines.report.wording import p3
from engines.request import Request
from engines.wire import read_trace
from spec_tui.present.rows import words_of
from spec_tui.present.step.branching import version_from
from spec_tui.present.step.phases import StepPosition, phases_of
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.session.sample_traces import trace_path
from spec_tui.tui.app import SpecTui
from spec_tui.tui.screens.branch import BranchScreen, table_rows
from spec_tui.tui.screens.chat import ChatScreen
from spec_tui.tui.screens.engine import EngineScreen
from spec_tui.tui.screens.step import StepScreen
from spec_tui.tui.widgets.step_panels import Timeline, phase_rows
from tests.tiers import SIZES, some
from tests.tui.fakes import ANSWER, READY, RETRIEVING, FakeClient, script

PROMPT = "Write a function that merges two sorted lists."
SHORT = ANSWER[:220]
EVENTS = script(Request((("user", PROMPT),), engine="draft"), SHORT)


def shown(screen) -> str:
    """Everything that the screen's panels show."""
    return "\n".join(row for panel in screen.query("StripPanel") if panel.display for row in panel.text_rows())


async def stepping(s, *keys: str) -> StepScreen:
    s.client.text = s.client.text[: len(SHORT)]
    await s.ask(PROMPT)
    await s.pilot.press("escape", "full_stop")
    await s.settle()
    for key in keys:
        await s.pilot.press(key)
    await s.settle()
    return s.app.screen


async def test_the_command_and_the_palette_open_it_too(session):
    async with session() as s:
        await s.ask("/step", feed=0)
        assert "ask something first" in s.status
        await s.ask(PROMPT)
        await s.ask("/step", feed=0)
        assert isinstance(s.app.screen, StepScreen)
        commands = {c.title: c for c in s.app.get_system_commands(s.app.screen)}
        assert {"Step: play", "Step: guess", "Step: branch", "Present", "Step: go to"} <= set(commands)
        await commands["Step: round"].callback()
        assert s.app.screen.player.place.round == 2


async def test_from_the_chat_and_back_at_the_round_of_the_cursor(session):
    async with session() as s:
        screen = await stepping(s)
        assert isinstance(screen, StepScreen) and screen.player.place == StepPosition(1)
        await s.pilot.press("escape")
        assert isinstance(s.app.screen, ChatScreen)
        await s.pilot.press("home", "left_square_bracket", *["right_square_bracket"] * 2)
        cursor = s.chat.transcript.cursor
        await s.pilot.press("full_stop")
        await s.settle()
        run = s.chat.session.last.run
        assert s.app.screen.player.place.round == run.tokens[cursor[1]].round + 1 > 1


async def test_every_phase_of_the_run_can_be_walked_through(session):
    async with session(client=FakeClient(ANSWER[:30])) as s:
        screen = await stepping(s)
        run, seen = screen.player.run, []
        for _ in range(len(run.rounds) * 7):
            seen.append(screen.player.place)
            await s.pilot.press("full_stop")
        assert screen.player.place == StepPosition(len(run.rounds), "keep") and len(set(seen)) >= 4 * len(run.rounds)
        assert "This is the end" in shown(screen)
        await s.pilot.press("home")
        assert screen.player.place == StepPosition()
        await s.pilot.press("comma")
        assert "This is the beginning" in shown(screen)
        await s.pilot.press("end", "left")
        assert screen.player.place.round == len(run.rounds) - 1


async def test_the_words_are_of_this_round(session):
    async with session() as s:
        screen = await stepping(s, "full_stop", "full_stop", "full_stop")
        event = screen.player.run.rounds[0]
        text = " ".join(shown(screen).split())
        assert f"{1 + len(event.draft.tokens)} rows" in text and p3(event.emitted[0].prob) in text
        simple = shown(screen)
        await s.pilot.press("x")
        assert shown(screen) != simple and "not recorded" in shown(screen)
        await s.pilot.press("X")
        assert shown(screen) == simple


def test_q_is_what_the_law_used_and_a_drafters_own_probability_is_called_otherwise():
    """At temperature 0, and where nothing was drawn, the two differ for one token."""
    for name, decided in (("smollm2-drawn-tree", "draft q"), ("smollm2-rest", "drafter")):
        run = fold_all(read_trace(trace_path(name)).events)
        number = next(n for n, event in enumerate(run.rounds, 1) if event.path)
        for phase, head in (("draft", "drafter"), ("verify", "drafter"), ("accept", decided)):
            first = words_of(phase_rows(run, StepPosition(number, phase), 80, 24)[0])
            assert head in first and (" q " in first) == (head == "draft q"), first


async def test_help_begins_with_the_keys_of_the_screen_it_is_opened_on(session):
    async with session() as s:
        await stepping(s)
        await s.pilot.press("f1")
        await s.pilot.pause()
        begins = str(s.app.screen.query_one("#text").content).split("marks")[0]
        assert begins.startswith("this screen") and "Guess" in begins
        await s.pilot.press("escape", "escape", "escape", "f1")
        await s.pilot.pause()
        assert str(s.app.screen.query_one("#text").content).startswith("marks")


async def test_a_guess_comes_before_the_verdict(session):
    async with session() as s:
        screen = await stepping(s, "G")
        player = screen.player
        while not player.asks or len(player.run.rounds[player.place.round - 1].path) == 0:
            await s.pilot.press("right")
        event = player.run.rounds[player.place.round - 1]
        for key in ("full_stop", "full_stop"):
            await s.pilot.press(key)
            text = shown(screen)
            assert "●" not in text and "✗" not in text and f"accepted {len(event.path)}" not in text
        await s.pilot.press("full_stop")
        assert player.place.phase == "tree" and "How many will be accepted" in shown(screen)
        await s.pilot.press("9")
        assert "press 0 to" in shown(screen) and not player.guesses
        await s.pilot.press(str(len(event.path)))
        assert player.place.phase == "verify" and f"you said {len(event.path)}" in shown(screen)
        assert "1 of 1 right" in shown(screen)
        await s.pilot.press("G")
        assert "Off: 1 of 1 right" in shown(screen)
        await s.pilot.resize_terminal(80, 24)
        for key in ("G", "end", "full_stop", "G"):
            await s.pilot.press(key)
            await s.pilot.pause()
            (said,) = screen.query_one("#step-said").text_rows()
            assert said.strip() and "…" not in said and ("right" in said or key == "G")


async def test_what_a_round_came_to_is_seen_in_the_smallest_usual_window(session):
    async with session() as s:
        screen = await stepping(s, "g", "4", "enter")
        await s.pilot.resize_terminal(80, 24)
        while screen.player.place.phase != "keep":
            await s.pilot.press("full_stop")
        await s.pilot.pause()
        rows = screen.query_one("#doing").text_rows()
        heads = [row.split()[0] for row in rows if row.strip()]
        assert heads[-5:] == ["before", "new", "after", "time", "gained"]


async def test_bookmarks_the_number_of_a_round_and_a_click_on_the_timeline(session):
    async with session() as s:
        screen = await stepping(s, "right", "k", "number_sign", "9")
        assert "9" in shown(screen)
        await s.pilot.press("enter")
        assert screen.player.place.round == 9
        await s.pilot.press("shift+right")
        assert screen.player.place.round == 2 and "▼ 2" in shown(screen)
        await s.pilot.press("number_sign", "4", "escape")
        assert screen.player.place.round == 2 and s.app.screen is screen
        await s.pilot.click(Timeline, offset=(5, 2))
        assert screen.player.place.round == 6


async def test_playing_goes_on_by_itself_and_its_speed_changes(session):
    async with session() as s:
        screen = await stepping(s, "greater_than_sign", "greater_than_sign", "greater_than_sign", "space")
        begin = screen.player.place
        await s.pilot.pause(0.8)
        assert screen.player.clock.playing and screen.player.place != begin
        await s.pilot.press("space")
        assert not screen.player.clock.playing


async def test_presenting_is_light_and_without_chrome_and_shows_the_keys(session):
    async with session() as s:
        screen = await stepping(s)
        theme = s.app.theme
        await s.pilot.press("P", "right")
        assert s.app.theme == "spec-light" and not screen.query_one("#step-top").display
        assert "→" in "\n".join(screen.query_one("#step-said").text_rows())
        await s.pilot.press("escape")
        assert s.app.theme == theme and screen.query_one("#step-top").display and s.app.screen is screen
        await s.pilot.press("P", "escape", "escape")
        assert s.app.theme == theme and isinstance(s.app.screen, ChatScreen)


async def test_a_run_that_still_grows_is_followed(session):
    async with session() as s:
        await s.ask(PROMPT, feed=4)
        s.chat.action_step()
        await s.settle()
        screen = s.app.screen
        assert screen.player.rounds == 2
        await s.pilot.press("end", "full_stop")
        assert "more will come" in shown(screen)
        s.client.feed()
        await s.settle()
        await s.pilot.pause(0.2)
        assert screen.player.rounds > 2


async def test_the_answer_is_made_again_with_every_row(session):
    async with session() as s:
        screen = await stepping(s, "full_stop", "full_stop", "full_stop")
        assert "not recorded" in shown(screen)
        await s.pilot.press("A")
        asked = s.client.requests[-1]
        assert asked.detail and asked.conversation == s.client.requests[0].conversation and asked.engine == "hybrid"
        s.client.feed()
        await s.settle()
        await s.pilot.pause(0.2)
        assert "Same text, with every row" in shown(screen) and screen.player.run.rounds[0].verified
        assert len(s.chat.session.turns) == 1 and not s.chat.session.baselines
        await s.pilot.press("A")
        assert "recorded already" in shown(screen)
        await s.pilot.resize_terminal(80, 24)
        await s.pilot.pause()
        text = screen.turn.run.text
        other = next(run for seed in range(2, 20) if len((run := fold_all(
            script(screen.turn.request, text, seed=seed))).rounds) != len(screen.turn.run.rounds))
        screen._say_how_it_ended(other)
        now, before = len(other.rounds), len(screen.turn.run.rounds)
        assert f"every row; in {now} rounds, not {before}: drafts of other sizes." in shown(screen)


async def test_no_branch_begins_where_the_text_before_is_not_known(session):
    async with session() as s:
        screen = await stepping(s)
        screen.turn.run = fold_all(event for event in EVENTS if not isinstance(event, Round) or event.index != 2)
        while screen.player.run is not screen.turn.run:  # it is taken with the next frame
            await s.pilot.pause(0.02)
        await s.pilot.press("3", "number_sign", "3", "enter", "B")
        assert s.app.screen is screen and "The text before this round is not known" in shown(screen)


@pytest.mark.parametrize("how", some(["fail", "die", "stop"], lambda how: how == "die"))
async def test_a_second_run_that_does_not_end_is_told(session, how):
    async with session() as s:
        screen = await stepping(s, "A")
        s.client.feed(4)
        await s.settle()
        if how == "fail":
            s.client.pending.clear()
            s.client.say(Failed("the model failed", "try again"))
        elif how == "die":
            s.client.die()
        else:
            await s.pilot.press("escape")
        await s.settle()
        await s.pilot.pause(0.2)
        if how == "stop":
            assert s.client.cancels == 1 and isinstance(s.app.screen, ChatScreen)
        else:
            assert "The second run failed" in shown(screen) and screen.player.run is s.chat.session.turns[0].run
        assert s.chat.session.turns[0].run.finished is not None


async def branched(s, feed: int | None = None) -> BranchScreen:
    screen = await stepping(s, "right", "right")
    await s.pilot.press("B")
    assert isinstance(s.app.screen, EngineScreen)
    await s.pilot.press("home", "down", "enter")
    await s.settle()
    assert isinstance(s.app.screen, BranchScreen) and screen.player.place.round == 3
    s.client.feed(feed)
    await s.settle()
    await s.pilot.pause(0.3)
    return s.app.screen


async def test_two_versions_side_by_side(session):
    async with session() as s:
        screen = await branched(s)
        run, asked = s.chat.session.last.run, s.client.requests[-1]
        given = tuple(t.emitted.token for t in run.tokens[: run.starts[2]])
        assert asked.engine == "pld" and asked.continued == given
        assert not asked.keeps, "past answers hold the one that is branched"
        assert asked.max_new_tokens == 256 - len(given) + 1
        text = shown(screen)
        left = len(run.tokens) - run.starts[2]
        assert "engine pld" in text and f"The same text, all {left} tokens" in text and "both are complete" in text
        await s.pilot.press("full_stop")
        inner = s.app.screen
        assert isinstance(inner, StepScreen) and inner.player.run.started.engine == "pld"
        await s.pilot.press("escape", "escape", "escape")
        assert isinstance(s.app.screen, ChatScreen) and len(s.chat.session.turns) == 1


@pytest.mark.parametrize(("pace", "said"), [
    ([1] * 12, "no difference (1.00x ±"), ([0.5] * 12, "faster (±"), ([0.05] * 6 + [1] * 6, "too noisy to tell ("),
    ([0.1] * 3, "x, noise unknown")])
def test_a_branch_is_faster_only_where_noise_does_not_explain_it(pace, said):
    """A version whose passes all take 10 ms beside one whose passes take so many times as long."""
    template = next(e for e in EVENTS if isinstance(e, Round))
    versions = [version_from(fold_all([EVENTS[0], *(
        replace(template, index=i + 1, verify_seconds=0.01 * factor) for i, factor in enumerate(factors))]), 1)
        for factors in ([1] * 12, pace)]
    assert said in words_of(table_rows(*versions, "said", True, 80)[0])


def test_versions_of_different_lengths_are_compared_as_far_as_both_go():
    """An answer whose end is drafted ten times as fast as its beginning, beside a branch that has written that much."""
    template = next(e for e in EVENTS if isinstance(e, Round) and len(e.emitted) == 1)
    rounds = [replace(template, index=i + 1, verify_seconds=0.01 if i < 12 else 0.001) for i in range(200)]
    whole, begun = (version_from(fold_all([EVENTS[0], *part]), 1) for part in (rounds, rounds[:12]))
    for versions in ((whole, begun), (begun, whole)):
        title, _, tokens, *_, speed, _ = map(words_of, table_rows(*versions, "said", True, 80))
        assert "up to the shorter" in title and "no difference (1.00x ±" in title
        assert tokens.split()[1:] == ["12", "12"] and len(set(speed.split()[1:])) == 1
    assert "up to the shorter" not in words_of(table_rows(begun, begun, "said", True, 80)[0])


async def test_the_dialog_of_a_branch_says_what_enter_does_and_asks_nothing_without_effect(session):
    async with session() as s:
        await stepping(s, "right", "B")
        dialog = s.app.screen
        box = dialog.query_one(".box")
        assert "branch" in str(box.border_title) and "continues here" in str(box.border_subtitle)
        assert dialog.query(".sampling") and not dialog.query(".system")


async def test_the_dialog_of_a_branch_shows_the_preset_of_the_model(session):
    async with session(client=FakeClient(ready=replace(READY, model="smollm2"))) as s:
        await stepping(s, "right")
        s.chat.session.last.run = replace(s.chat.session.last.run, started=replace(
            s.chat.session.last.run.started, model="smollm2"))
        await s.pilot.press("B")
        s.app.screen.query_one("#engines").highlighted = [spec.id for spec in specs()].index("admg")
        await s.settle()
        values = {field.option.name: field.value for field in s.app.screen.query("#options Field")}
        assert (values["preset"], values["alpha"], values["m"]) == ("smollm2", 0.99, 1000)


async def test_the_dialog_of_a_branch_says_an_engine_once_at_every_size_and_its_frame_stands_still(session):
    async with session(size=(80, 24)) as s:
        await stepping(s, "right", "B")
        dialog = s.app.screen
        frames = set()
        for _ in specs():
            await s.pilot.press("down")
            await s.pilot.pause()
            frames.add(dialog.query_one(".box").region)
        assert len(frames) == 1
        assert str(dialog.query_one("#hint").content)
        await s.pilot.press("f1")
        await s.pilot.pause()
        keys = str(s.app.screen.query_one("#text").content).split("marks")[0]
        assert "enter or ctrl+s" in keys and "tab" in keys and "The next field" in keys
        await s.pilot.press("escape")
        await s.pilot.resize_terminal(120, 40)
        await s.pilot.pause()
        assert str(dialog.query_one("#about").content) and not str(dialog.query_one("#hint").content)


async def test_a_branch_is_stopped_before_it_is_closed(session):
    async with session() as s:
        screen = await branched(s, feed=4)
        assert "esc stops it" in shown(screen)
        await s.pilot.press("escape")
        assert s.app.screen is screen and s.client.cancels == 1
        await s.settle()
        await s.pilot.pause(0.3)
        assert "stopped" in shown(screen)
        await s.pilot.press("escape")
        assert isinstance(s.app.screen, StepScreen)


async def test_a_branch_that_does_not_stop_is_left(session):
    async with session() as s:
        screen = await branched(s, feed=4)
        s.client.cancel = lambda *job, **how: None  # its drafter does not return
        await s.pilot.press("escape")
        s.chat.session.jobs.at_work.heard -= 6
        await s.pilot.pause(0.3)
        assert "The engine does not answer: in the chat ctrl+r restarts it" in shown(screen)
        await s.pilot.press("escape", "escape", "ctrl+r")
        await s.settle()
        assert s.app.screen is s.chat and s.client.restarts == 1 and not s.chat.session.busy


async def test_no_branch_while_the_engine_is_busy_or_before_the_first_round(session):
    async with session() as s:
        screen = await stepping(s, "home", "B")
        assert s.app.screen is screen and "begins at a round" in shown(screen)
        await s.pilot.press("A", "right", "B")
        assert s.app.screen is screen and "Still measuring every row" in shown(screen)


@pytest.mark.parametrize("strange", some(
    ["damaged", "empty", "failed", "hostile", "cut"], lambda strange: strange in ("damaged", "hostile")
))
async def test_strange_runs_are_drawn(strange):
    events = {
        "damaged": [e for e in EVENTS if isinstance(e, Round)], "empty": [], "cut": EVENTS[:2],
        "failed": [*EVENTS[:4], Failed("broke", "")],
        "hostile": [replace(e, draft=replace(e.draft, pieces=("\x1b[31m\u202e",) * len(e.draft.pieces)))
                    if isinstance(e, Round) else replace(e, first=replace(e.first, text="\x1b]0;x\x07"))
                    if isinstance(e, Prefilled) else e for e in EVENTS],
    }[strange]
    app = SpecTui(FakeClient(), LoadRequest())
    async with app.run_test(size=(80, 24)) as pilot:
        screen = StepScreen(fold_all(events), "a \x1b[1m title")
        await app.push_screen(screen)
        for number in range(4):
            screen.player.jump(number)
            for phase in phases_of(screen.player.run, screen.player.place.round):
                screen.player.place = StepPosition(screen.player.place.round, phase)
                screen.draw()
                await pilot.pause()
                assert not {"\x1b", "\x07", "\u202e"} & set(shown(screen))


def picture(snap_compare, size, *, keys=(), engine="draft", ready=None, theme=None, branch=False) -> bool:
    client = FakeClient(SHORT, **({"ready": ready} if ready else {}))
    app = SpecTui(client, LoadRequest(), theme=theme, initial_request_options=Request((), engine=engine))

    async def steps(pilot) -> None:
        await pilot.pause()
        app.screen.prompt.cursor_blink = False
        app.screen.pump()
        app.screen.ask(PROMPT)
        client.feed()
        app.screen.pump()
        await pilot.pause()
        for key in ("escape", "full_stop", *keys):
            await pilot.press(key)
            await pilot.pause()
        if branch:
            client.feed()
            app.screen_stack[0].pump()
            await pilot.pause()
        app.screen.draw()
        await pilot.pause()

    return snap_compare(app, terminal_size=size, run_before=steps)


@pytest.mark.parametrize("size", SIZES)
def test_step(snap_compare, size):
    assert picture(snap_compare, size, keys=["right", *["full_stop"] * 4, "x"])


def test_step_draws_the_mask(snap_compare):
    assert picture(snap_compare, (120, 40), keys=["right", "full_stop", "full_stop"])


def test_step_asks_for_a_guess(snap_compare):
    assert picture(snap_compare, (80, 24), engine="rest", ready=RETRIEVING, keys=["G", "right", "k", "full_stop"])


def test_step_presents(snap_compare):
    assert picture(snap_compare, (80, 24), keys=["P", "right", *["full_stop"] * 3])


def test_step_without_colour(snap_compare, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert picture(snap_compare, (120, 40), keys=["right", *["full_stop"] * 5])


@pytest.mark.parametrize("size", SIZES[::2])
def test_branch(snap_compare, size):
    assert picture(snap_compare, size, keys=["right", "right", "B", "home", "down", "enter"], branch=True)
