"""Lessons on the screen: a whole one walked through, keys, what is hidden, how pages look."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from spec_tui.learn.lesson import find, names, recorded
from spec_tui.learn.walk import Walk
from spec_tui.tui.recorded import lessons
from spec_tui.tui.screens.lessons import LessonScreen, LessonsScreen, LessonText
from tests.tiers import SIZES


@asynccontextmanager
async def learning(begin: str = "", size=(80, 24), presenter: bool = False):
    app = lessons(begin, presenter=presenter)
    async with app.run_test(size=size) as pilot:
        for _ in range(3):
            await pilot.pause()
        yield app, pilot


def shown(screen) -> str:
    """Everything that the screen's panels show."""
    return "\n".join(row for panel in screen.query("StripPanel") if panel.display for row in panel.text_rows())


def text(screen) -> str:
    """The lesson's own words, unwrapped."""
    return " ".join(" ".join(screen.query_one(LessonText).text_rows()).split())


@pytest.mark.parametrize("presenter", [False, True])
async def test_a_whole_lesson_page_by_page(presenter):
    lesson = find("rest")
    walk = Walk(lesson, recorded(lesson))
    async with learning("rest", presenter=presenter) as (app, pilot):
        screen = app.screen
        assert isinstance(screen, LessonScreen) and screen.has_class("presenting") == presenter
        for page in lesson.pages:
            view = walk.view()
            assert screen.player.place == view.place == walk.place(page) and screen.player.run == view.run
            assert all(paragraph in text(screen) for paragraph in view.paragraphs) and "page down" not in text(screen)
            walk.forward()
            await pilot.press("right")
        assert screen.walk.view().asks and "your guess" in text(screen)
        await pilot.press("enter")
        assert "Type a number from 0 to" in shown(screen)
        await pilot.press("9", "9", "enter")
        assert screen.walk.said is None
        await pilot.press("1", "2", "backspace", "enter")
        assert screen.walk.said == 1 and screen.player.place.phase == "accept"
        assert "✗ You said 1; it is 0." in text(screen)
        await pilot.press("left", "5")
        assert "It is answered" in shown(screen) and screen.walk.said == 1
        await pilot.press("right", "right")
        assert isinstance(app.screen, LessonsScreen)
        assert app.screen.query_one("#list").highlighted == names().index("rest") + 1


async def test_a_choice_answers_at_once_and_nothing_is_told_before():
    async with learning("laws", (120, 40)) as (app, pilot):
        screen = app.screen
        await pilot.press(*["right"] * len(find("laws").pages))
        right = screen.walk.right()
        before = shown(screen)
        number = screen.player.place.round
        event = screen.player.run.rounds[number - 1]
        await pilot.press("full_stop", "full_stop")
        assert screen.player.place.phase == "tree", "a question cannot be looked behind"
        assert f"accepted {len(event.path)}" not in before and "Predict" not in before
        assert "4 Verify › 5 Accept › 6 Correct › 7 Keep" in before, "the names of the phases do not tell either"
        await pilot.press("7")
        assert "Press 1 to 2" in shown(screen)
        await pilot.press(str(right))
        assert "✓ You are right." in text(screen) and f"accepted {len(event.path)}" in shown(screen)


async def test_every_page_of_every_lesson_is_drawn_whole_at_80x24():
    async with learning() as (app, pilot):
        for number in range(len(names())):
            app.screen.query_one("#list").highlighted = number
            await pilot.press("enter")
            await pilot.pause()
            screen = app.screen
            for _ in range(screen.walk.length):
                view, rows = screen.walk.view(), screen.query_one(LessonText).text_rows()
                assert view.title in rows[0] and "page down" not in rows[-1]
                assert all(paragraph in text(screen) for paragraph in view.paragraphs[view.verdict is not None :])
                assert f"{screen.walk.at + 1} of {screen.walk.length}" in rows[0]
                if view.asks:
                    screen.walk.guess(screen.walk.right())
                else:
                    screen.walk.forward()
                screen.turned()
            await pilot.press("escape")
            await pilot.pause()


async def test_words_presenter_phases_and_the_way_out():
    async with learning("forward", (120, 40)) as (app, pilot):
        screen = app.screen
        await pilot.press("w")
        assert "prefill: The first forward pass, which reads the whole question." in text(screen)
        await pilot.press("escape")
        assert "A language model works on tokens" in text(screen)
        await pilot.press("left")
        assert "This is the beginning" in shown(screen)
        await pilot.press("full_stop")
        assert screen.player.place.phase == "correct"
        await pilot.press("right", "left")
        assert screen.player.place.phase == "verify", "a page brings its place back"
        await pilot.press("P")
        await pilot.pause()
        assert screen.has_class("presenting") and app.theme == "spec-light"
        await pilot.press("escape")
        assert not screen.has_class("presenting") and app.screen is screen and app.theme == "spec-dark"
        assert {"Lesson: next page", "Lesson: words", "Lesson: present"} <= {
            command.title for command in app.get_system_commands(screen)}
        await pilot.press("escape")
        assert isinstance(app.screen, LessonsScreen) and app.screen.query_one("#list").highlighted == 0
        await pilot.press("escape")
        await pilot.pause()
        assert not app.is_running or app._exit


async def test_from_the_chat_and_back(session):
    async with session() as s:
        await s.ask("/learn", feed=0)
        assert isinstance(s.app.screen, LessonsScreen)
        await s.pilot.press("down", "enter")
        await s.pilot.pause()
        assert isinstance(s.app.screen, LessonScreen) and s.app.screen.walk.lesson.name == "pld"
        await s.pilot.press("escape", "escape")
        assert s.app.screen is s.chat
        assert "Lessons" in {command.title for command in s.app.get_system_commands(s.chat)}


def picture(snap_compare, name: str, size, keys=(), presenter: bool = False) -> bool:
    app = lessons(name, presenter=presenter)

    async def steps(pilot) -> None:
        for _ in range(3):
            await pilot.pause()
        for key in keys:
            await pilot.press(key)
        await pilot.pause()

    return snap_compare(app, terminal_size=size, run_before=steps)


@pytest.mark.parametrize("size", SIZES)
def test_page(snap_compare, size):
    assert picture(snap_compare, "trees", size, ["right"] * 3)


@pytest.mark.parametrize("size", SIZES)
def test_question(snap_compare, size):
    assert picture(snap_compare, "pld", size, ["right"] * 5)


@pytest.mark.parametrize("size", SIZES)
def test_reveal(snap_compare, size):
    assert picture(snap_compare, "draft", size, [*["right"] * 5, "1", "2", "enter"])


def test_presented(snap_compare):
    assert picture(snap_compare, "forward", (80, 24), ["right"] * 5, presenter=True)


def test_list(snap_compare):
    assert picture(snap_compare, "", (80, 24))
