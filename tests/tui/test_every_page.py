"""Every page of every lesson, every figure to its ends, at every size, large and not: all of it is drawn."""

from __future__ import annotations

import pytest

from spec_tui.export.handout import handout
from spec_tui.learn.lesson import along, find, names, paths
from spec_tui.learn.lesson_progress import LessonProgress
from spec_tui.learn.lesson_text import lesson_lines
from spec_tui.learn.pictures import picture
from spec_tui.present.styles import all_styles
from spec_tui.tui.recorded import lessons
from spec_tui.tui.screens.lessons import FigurePanel, LessonScreen
from spec_tui.tui.widgets.step_panels import Doing, phase_rows
from spec_tui.tui.widgets.strip_panel import StripPanel, size
from tests.tiers import some

SIZES = [(80, 24), (100, 30), (120, 40), (200, 60)]
MOST = 12  # steps of a figure in each direction


def drawn(screen: LessonScreen) -> None:
    """All of its panels can be asked for lines, each in a style that there is."""
    for panel in screen.query(StripPanel):
        if panel.is_on_screen_tree and panel.size.area:
            panel.forget_styles()
            panel.render_lines(panel.size.region)
            assert all(style in all_styles() for row in panel.rows(*panel.size) for _, style in row)


@pytest.mark.parametrize("of, presenter", some(
    [(size, presenter) for size in SIZES for presenter in (False, True)],
    lambda case: case == ((80, 24), True)))
async def test_every_page_and_figure_of_every_lesson_is_drawn(of, presenter):
    app = lessons(presenter=presenter)
    async with app.run_test(size=of) as pilot:
        for lesson in map(find, names()):
            progress = LessonProgress.of(lesson)
            screen = LessonScreen(progress)
            await app.push_screen(screen)
            await pilot.pause()
            figured = None
            for progress.at in range(progress.length):  # noqa: B020
                screen.turned()
                figured, was = progress.view().figure is not None, figured
                if of[0] >= 100 or figured != was:  # the panels get other heights
                    await pilot.pause()
                drawn(screen)
                whole(screen)
                figure = progress.view().figure
                for step in (1, -1) if figure is not None else ():
                    for _ in range(MOST):
                        figure.move(step)
                    screen.action_move(step)
                    drawn_figure(screen)
                if figure is not None and figure.draws:
                    screen.action_draw_figure()
                    drawn_figure(screen)
                for what in ("words", "notes", "notes"):
                    screen.action_shows(what)
                drawn(screen)
                if progress.view().asks:
                    progress.answer(1)
                    screen.turned()
                    drawn(screen)
            screen.dismiss(False)
            await pilot.pause()


def whole(screen: LessonScreen) -> None:
    """What the page is about is all there, or a mark says how much is not, and ↓ leads there."""
    figure, doing = screen.query_one(FigurePanel), screen.query_one(Doing)
    if screen.progress.view().figure is not None:
        width, height = figure.size
        rows = screen.progress.view().figure.rows(width, height - 1 - (height > 9))
        assert len(rows) < height and all(size(row) <= width for row in rows)
        return
    table = phase_rows(screen.player.run, screen.player.place, doing.size.width, 10_000)
    last = "".join(text for text, _ in table[-1]).rstrip()
    head = "".join(text for text, _ in table[0])
    assert size(table[0]) <= doing.size.width and "…" not in head, "the head of a table is whole"
    shown = [row.rstrip() for row in doing.text_rows()]
    assert head.rstrip() in shown
    if "↓" in "".join(shown):
        screen.action_move(-1)
        assert doing.scrolled == 1
        doing.scroll(1_000)
        shown = [row.rstrip() for row in doing.text_rows()]
        assert any(row.startswith("… ↑") for row in shown)
    if screen.player.place.phase != "draft":  # what else is known of a draft stands below where there is room
        assert any(row in (last, last[: doing.size.width - 1] + "…") for row in shown)


def drawn_figure(screen: LessonScreen) -> None:
    panel = screen.query_one(FigurePanel)
    if panel.size.area:
        panel.render_lines(panel.size.region)
        assert panel.text_rows() and all(style in all_styles() for row in panel.rows(*panel.size) for _, style in row)


@pytest.mark.parametrize("name", names())
def test_every_picture_of_a_page_has_styles_that_there_are(name):
    """As in the texts, and in the handout."""
    progress = LessonProgress.of(find(name))
    for progress.at in range(progress.length):  # noqa: B020
        for width, height in ((60, 8), (96, 16), (160, 40)):
            figure = progress.view().figure
            rows = picture(progress.view(), width, height)
            for step in (1, -1) if figure is not None else ():
                for _ in range(MOST):
                    figure.move(step)
                rows = [*rows, *figure.rows(width, height)]
            assert all(style in all_styles() for row in rows for _, style in row)


@pytest.mark.parametrize("minutes", paths())
def test_a_lecture_is_told_as_text_and_as_a_page(minutes):
    progress = LessonProgress.of(along(minutes))
    text = "\n".join(lesson_lines(progress, notes=True))
    page = handout("lecture", [LessonProgress.of(along(minutes))], notes=True)
    assert all(one.title in text for one in progress.pages) and page.count("<section>") >= progress.length
