"""Lessons on the screen: a whole one walked through, keys, what is hidden, how pages look."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
from textual.events import MouseScrollUp

from engines.report.wording import between
from engines.reproduce.entry import shipped
from spec_tui.learn.lesson import along, find, names
from spec_tui.learn.lesson_progress import LessonProgress
from spec_tui.present.rows import words_of
from spec_tui.present.token_styles import HERE
from spec_tui.session.kept_settings import finished_lessons
from spec_tui.tui.recorded import lessons
from spec_tui.tui.screens.lesson_sources import DocumentScreen, SourcesScreen
from spec_tui.tui.screens.lessons import FigurePanel, LessonScreen, LessonsScreen, LessonText, _fitted
from spec_tui.tui.screens.papers import PapersScreen
from spec_tui.tui.screens.race import RaceScreen
from spec_tui.tui.widgets.footer import Footer
from tests.tiers import SIZES
from tests.tui.test_hostile import screen_text

WHEEL = ("delta_x", "delta_y", "button", "shift", "meta", "ctrl")  # of a turn of the mouse wheel


def progress_in(name: str) -> LessonProgress:
    return LessonProgress.of(find(name))


@pytest.fixture(autouse=True)
def nothing_finished(tmp_path, monkeypatch):
    """What one test finishes is no other's."""
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))


@asynccontextmanager
async def learning(begin: str = "", size=(80, 24), presenter: bool = False):
    app = lessons(progress_in(begin) if begin else None, presenter=presenter)
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


@pytest.mark.parametrize("name", names())
async def test_in_the_smallest_window_each_page_shows_its_picture_and_its_text(name):
    async with learning(name, size=(60, 16)) as (app, pilot):
        screen = app.screen
        for _ in range(screen.progress.length):
            picture = screen.query_one("#figure" if screen.has_class("figured") else "#doing")
            assert picture.size.height >= 4 and screen.query_one(LessonText).size.height >= 6
            for _ in range(2):  # where it asks, the answer stays hidden
                await pilot.press("right")
            await pilot.pause()
            if app.screen is not screen:
                break


@pytest.mark.parametrize("presenter", [False, True])
async def test_a_whole_lesson_page_by_page(presenter):
    progress = progress_in("trees")
    async with learning("trees", presenter=presenter) as (app, pilot):
        screen = app.screen
        assert isinstance(screen, LessonScreen) and screen.has_class("presenting") == presenter
        for at, page in enumerate(progress.pages):
            progress.at = at
            view = progress.view()
            assert screen.progress.at == at and screen.player.place == view.place and screen.player.run == view.run
            assert all(paragraph in text(screen) for paragraph in view.paragraphs) and "page down" not in text(screen)
            assert screen.query_one(FigurePanel).display == (view.figure is not None)
            assert screen.query_one("#doing").display == (view.figure is None)
            assert not screen.query_one("#figures").display and screen.query_one(Footer).display
            if view.asks:
                await pilot.press("enter")
                assert f"Press {between(1, len(view.options))}; a guess is enough" in shown(screen)
                assert screen.progress.at == at
                await pilot.press("9")
                assert screen.progress.view().asks
                wrong = progress.right(page) % len(view.options) + 1
                await pilot.press(str(wrong))
                assert f"✗ Not so. {wrong}: " in text(screen) and f"Right is {progress.right(page)}: " in text(screen)
                assert not page.answered or screen.player.place.phase == page.answered
                await pilot.press(str(progress.right(page)))
                assert "✓ Right. " in text(screen), "it may be tried again"
                await pilot.press(str(progress.right(page)))
                assert "It is answered" in shown(screen)
            if at + 1 < progress.length:
                await pilot.press("right")
        await pilot.press("right")
        assert isinstance(app.screen, LessonsScreen)
        listed = app.screen.query_one("#list")
        assert listed.highlighted == names().index("trees") + 1
        marked = [index for index in range(listed.option_count) if "✓" in str(listed.get_option_at_index(index).prompt)]
        assert marked == [names().index("trees")] and finished_lessons() == {"trees"}
    async with learning() as (app, pilot):
        assert "✓" in str(app.screen.query_one("#list").get_option_at_index(names().index("trees")).prompt)


@pytest.mark.parametrize("answered", [True, False])
async def test_a_lesson_that_is_left_at_its_end_has_its_mark(answered):
    async with learning() as (app, pilot):
        app.screen.chosen(names().index("greedy"))
        await pilot.pause()
        progress = app.screen.progress
        progress.at = progress.length - 1
        app.screen.turned()
        assert progress.view().asks
        await pilot.press(*["1"] * answered, "escape")
        await pilot.pause()
        assert isinstance(app.screen, LessonsScreen) and finished_lessons() == ({"greedy"} if answered else set())
        assert app.screen.query_one("#list").highlighted == 0, "where it was"


async def test_a_lesson_that_another_screen_replaces_in_the_middle_has_no_mark(session):
    async with session() as s:
        await s.ask("/learn", feed=0)
        await s.pilot.press("enter", "right")
        offered = {command.title: command for command in s.app.get_system_commands(s.app.screen)}
        await offered["Race"].callback()
        await s.pilot.pause()
        assert isinstance(s.app.screen, RaceScreen) and finished_lessons() == set()


async def test_a_choice_answers_at_once_and_nothing_is_told_before():
    async with learning("draft", (120, 40)) as (app, pilot):
        screen = app.screen
        await pilot.press(*["right"] * 3)
        view = screen.progress.view()
        assert view.asks and "Press 1 to 3, or click." in text(screen)
        before = shown(screen)
        event = screen.player.run.rounds[screen.player.place.round - 1]
        await pilot.press("full_stop", "full_stop")
        assert screen.player.place.phase == "draft", "a question cannot be looked behind"
        assert f"accepted {len(event.path)}" not in before and "Predict" not in before
        assert "4 Verify › 5 Accept › 6 Own token › 7 Keep" in before, "the names of the phases do not tell either"
        await pilot.press(str(screen.progress.right(screen.progress.pages[3])))
        assert "✓ Right. " in text(screen) and screen.player.place.phase == "correct"
        await pilot.press("full_stop")
        assert screen.player.place.phase == "keep"


async def test_a_click_on_an_answer_gives_it():
    async with learning("draft", (120, 40)) as (app, pilot):
        screen = app.screen
        await pilot.press(*["right"] * 3)
        panel, right = screen.query_one("#lesson"), screen.progress.right(screen.progress.pages[3])
        rows = panel.text_rows()
        row = next(n for n, line in enumerate(rows) if line.startswith(f" {right} "))
        await pilot.click(panel, offset=(6, 1))
        assert screen.progress.view().asks, "a paragraph is no answer"
        await pilot.click(panel, offset=(6, row))
        await pilot.pause()
        assert "✓ Right. " in text(screen)


async def test_figures_are_moved_and_drawn():
    async with learning("chance") as (app, pilot):
        screen = app.screen
        await pilot.press("right", "2", "right", "right")
        figure = screen.query_one(FigurePanel)
        before = figure.text_rows()
        assert figure.display and "p, target" in before[1]
        await pilot.press("space")
        assert "drawn 1,000" in figure.text_rows()[1]
        await pilot.press("up")
        assert figure.text_rows()[2] != before[2] and "drawn 1,000" not in figure.text_rows()[1]
        await pilot.press("full_stop")
        assert screen.progress.at == 3, "there are no phases beside a figure"


async def test_the_mouse_does_in_a_figure_what_the_keys_do():
    async with learning("chance") as (app, pilot):
        await pilot.press("right", "2", "right", "right")
        figure = app.screen.query_one(FigurePanel)
        before = figure.text_rows()
        await pilot.click(figure)
        assert "drawn 1,000" in figure.text_rows()[1]
        figure.post_message(MouseScrollUp(figure, 5, 5, **dict.fromkeys(WHEEL, 0)))
        await pilot.pause()
        assert figure.text_rows()[2] != before[2], "as with ↑"


async def test_a_click_on_a_phase_goes_there_unless_a_question_would_be_answered_by_it():
    async with learning("draft", (120, 40)) as (app, pilot):
        screen = app.screen
        await pilot.press("right")
        bar = screen.query_one("#phases")
        place = bar.text_rows()[0].index("Accept")
        await pilot.click(bar, offset=(place, 0))
        assert screen.player.place.phase == "accept"
        await pilot.click(bar, offset=(bar.text_rows()[0].index("Context"), 0))
        assert screen.player.place.phase == "context"
        await pilot.press("right", "right")
        before = screen.player.place
        assert screen.progress.view().asks
        await pilot.click(bar, offset=(place, 0))
        await pilot.click(screen.query_one("#timeline"), offset=(5, 2))
        assert screen.player.place == before, "nor does a click on another round"


@pytest.mark.parametrize("name, presses", [("draft", 2), ("lookup", 3)])
async def test_what_the_reader_predicts_is_hidden_until_they_go_on(name, presses):
    async with learning(name, (100, 30)) as (app, pilot):
        screen = app.screen
        await pilot.press("right")
        assert screen.progress.view().page.predicts and not screen.progress.view().asks
        accepted = f"accepted {len(screen.progress.view().run.rounds[screen.player.place.round - 1].path)}"
        telling = ("Bonus", "Correct", accepted, "target's next")
        assert not [words for words in telling if words in shown(screen)]
        await pilot.press(*["full_stop"] * presses)
        assert accepted in shown(screen)


async def test_every_page_of_every_lesson_is_drawn_whole_at_80x24():
    async with learning() as (app, pilot):
        for number in range(len(names())):
            app.screen.query_one("#list").highlighted = number
            await pilot.press("enter")
            await pilot.pause()
            screen = app.screen
            pages = [(at, {}) for at in range(screen.progress.length)]
            asking = [(at, page) for at, page in enumerate(screen.progress.pages) if page.choices]
            pages += [(at, {at: screen.progress.right(page)}) for at, page in asking]  # the others: tests/learn
            for at, answers in pages:
                screen.progress.at, screen.progress.answers = at, answers
                screen.turned()
                view, rows = screen.progress.view(), screen.query_one(LessonText).text_rows()
                assert view.page.title in rows[0] and "page down" not in rows[-1]
                assert f"{at + 1} of {screen.progress.length}" in rows[0]
                said = "".join(text(screen).split())  # lines may be broken at hyphens
                assert all("".join(paragraph.split()) in said for paragraph in view.paragraphs)
                assert ("End of the lesson" in shown(screen)) == (at + 1 == screen.progress.length and not view.asks)
            await pilot.press("escape")
            await pilot.pause()


async def test_a_figure_has_the_rows_that_its_text_leaves_free():
    async with learning("rasd", (80, 24)) as (app, pilot):
        await pilot.press("right", "right", *["down"] * 2)
        await pilot.pause()
        assert "3 of 3: fused" in shown(app.screen) and "more branch" not in shown(app.screen)


async def test_the_papers_tables_of_a_lesson_without_an_engine():
    async with learning("rasd") as (app, pilot):
        lesson = app.screen
        await pilot.press("L")
        listed = app.screen
        assert isinstance(listed, PapersScreen) and list(shipped())[listed.listed.highlighted] == "rasd-rest"
        assert "lanes" not in str(listed.query_one(".box").border_subtitle)
        await pilot.press("enter")
        assert app.screen is lesson
        await pilot.resize_terminal(120, 40)
        await pilot.press("L", "end")
        await pilot.pause()
        assert "acceptance by depth and size of the tree" in screen_text(app), "there is room for whole names"


async def test_sources_open_at_those_of_the_page():
    async with learning("payoff", (100, 30)) as (app, pilot):
        lesson = app.screen
        for at, page in enumerate(lesson.progress.pages):
            if page.see.startswith("docs/benchmark.md"):
                lesson.progress.at = at
        lesson.turned()
        await pilot.press("O")
        await pilot.pause()
        assert isinstance(app.screen, SourcesScreen) and "docs/benchmark.md" in screen_text(app)
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, DocumentScreen) and app.screen.query("MarkdownH1")
        await pilot.press("down", "escape", "home", "enter")
        assert app.clipboard.startswith("https://arxiv.org/abs/")
        await pilot.press("escape")
        assert app.screen is lesson


async def test_words_presenter_phases_and_the_way_out():
    async with learning("forward", (120, 40)) as (app, pilot):
        screen = app.screen
        await pilot.press("w")
        assert "token: A token is a word or a piece of a word" in text(screen)
        await pilot.press("T")
        assert "let the audience say" in text(screen)
        await pilot.press("escape")
        assert "A language model reads and writes tokens" in text(screen)
        await pilot.press("left")
        assert "This is the beginning" in shown(screen)
        await pilot.press("full_stop")
        assert screen.player.place.phase == "keep"
        await pilot.press("right", "left")
        assert screen.player.place.phase == "correct", "a page brings its place back"
        await pilot.press("P")
        await pilot.pause()
        assert screen.has_class("presenting") and app.theme == "spec-light"
        await pilot.press("escape")
        assert not screen.has_class("presenting") and app.screen is screen and app.theme == "spec-dark"
        assert {"Lesson: next page", "Lesson: words", "Present"} <= {
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
        assert isinstance(s.app.screen, LessonScreen) and s.app.screen.progress.lesson.name == "draft"
        await s.pilot.press("escape", "escape")
        assert s.app.screen is s.chat
        assert "Lessons" in {command.title for command in s.app.get_system_commands(s.chat)}


async def test_a_path_begins_at_once_and_the_list_stands_behind_it():
    lesson = along(15)
    app = lessons(LessonProgress.of(lesson))
    async with app.run_test(size=(80, 24)) as pilot:
        for _ in range(3):
            await pilot.pause()
        assert isinstance(app.screen, LessonScreen) and app.screen.progress.length == len(lesson.pages)
        await pilot.press("escape")
        await pilot.pause()
        assert isinstance(app.screen, LessonsScreen)


def picture(snap_compare, name: str, size, keys=(), presenter: bool = False) -> bool:
    app = lessons(progress_in(name) if name else None, presenter=presenter)

    async def steps(pilot) -> None:
        for _ in range(3):
            await pilot.pause()
        for key in keys:
            await pilot.press(key)
        await pilot.pause()

    return snap_compare(app, terminal_size=size, run_before=steps)


@pytest.mark.parametrize("size", SIZES)
def test_page(snap_compare, size):
    assert picture(snap_compare, "trees", size, ["right"])


@pytest.mark.parametrize("size", SIZES)
def test_question(snap_compare, size):
    assert picture(snap_compare, "draft", size, ["right"] * 3)


@pytest.mark.parametrize("size", SIZES)
def test_reveal(snap_compare, size):
    assert picture(snap_compare, "draft", size, [*["right"] * 3, "1"])


@pytest.mark.parametrize("size", SIZES)
def test_figure(snap_compare, size):
    assert picture(snap_compare, "chance", size, ["right", "2", "right", "right", "space"])


def test_presented(snap_compare):
    assert picture(snap_compare, "trees", (80, 24), ["right"], presenter=True)


def test_list(snap_compare):
    assert picture(snap_compare, "", (80, 24))


@pytest.mark.parametrize("here", [0, 4, 6])
def test_a_figure_without_room_shows_where_the_reader_is_and_what_is_left_out(here):
    rows = [[(f"{HERE if n == here else ' '} row {n}", "text")] for n in range(9)]
    assert _fitted(rows, 9) == rows
    shown = [words_of(row) for row in _fitted(rows, 4)]
    assert len(shown) == 4 and "6 more rows" in shown[-1] and sum(HERE in words for words in shown) == 1
