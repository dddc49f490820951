"""Lessons as a page to print: texts, pictures, questions, and their answers after the last lesson."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spec_tui.export.page import declarations_of, document, text_of
from spec_tui.learn.glossary_entries import explained
from spec_tui.learn.lesson import heading
from spec_tui.learn.lesson_progress import LessonProgress
from spec_tui.learn.pictures import MARKS, READING, caption, picture
from spec_tui.learn.sources import Source, sources
from spec_tui.present.rows import Row
from spec_tui.present.styles import all_styles
from spec_tui.present.text import capital

_WIDE, _HIGH = 96, 16  # of a picture

_LAYOUT = """
pre{overflow-x:auto;border:1px solid var(--border);border-radius:.3rem;padding:.6rem;font-size:12px;line-height:1.35}
pre{break-inside:avoid} h1,h2{break-after:avoid} h1{break-before:page} h1:first-of-type{break-before:auto}
ol{margin-top:0}
aside{border-left:3px solid var(--accent);padding-left:.8rem} dt{font-weight:700} dd{margin:0 0 .4rem 1rem}
@page{@bottom-center{content:counter(page)}}
@media print{body{font-size:11px;max-width:none;padding:0} pre{font-size:10px;white-space:pre} a{color:inherit}
a:not([href^="#"])::after{content:" (" attr(href) ")"}}
"""


def handout(title: str, lessons: Sequence[LessonProgress], notes: bool = False) -> str:
    """A whole HTML document of these lessons, without a script. ``notes`` adds those for the presenter."""
    rules = "".join(f"pre .s-{name}{{{declarations_of(name)}}}\n" for name in all_styles())
    contents = "".join(f'<li><a href="#{text_of(progress.lesson.name)}">{text_of(heading(progress.lesson))}</a></li>'
                       for progress in lessons)
    body = [f"<h1>{text_of(title)}</h1>\n<ul>{contents}</ul>\n"] if len(lessons) > 1 else []
    body.append("".join(f"<p>{text_of(words)}</p>\n" for words in (*READING, MARKS)))
    seen: set[str] = set()
    answers: list[str] = []
    for progress in lessons:
        name = heading(progress.lesson) if len(lessons) > 1 else progress.lesson.title
        body += _lesson(progress, name, notes, seen)
        answers += _answers(progress, name)
    if answers:
        body.append(f"<h1>Answers</h1>\n{''.join(answers)}")
    words = sorted({term for progress in lessons for page in progress.pages for term in page.terms}, key=str.lower)
    entries = "".join(f"<dt>{text_of(word)}</dt><dd>{text_of(explained(word))}</dd>\n" for word in words)
    return document(title, "".join([*body, f"<h1>Words</h1>\n<dl>{entries}</dl>\n"]), _LAYOUT + rules)


def _lesson(progress: LessonProgress, name: str, notes: bool, seen: set[str]) -> Iterator[str]:
    lesson = progress.lesson
    yield f'<h1 id="{text_of(lesson.name)}">{text_of(name)}</h1>\n<p>{text_of(capital(lesson.about))}.</p>\n'
    for number in range(progress.length):
        progress.at = number
        view = progress.view()
        yield f"<section>\n<h2>{number + 1}. {text_of(view.page.title)}</h2>\n"
        title = f"{view.figure.title}. " if view.figure is not None else ""
        yield f'<p class="muted">{text_of(capital(title) + caption(view, seen))}</p>\n'
        yield f"<pre>{_rows(picture(view, _WIDE, _HIGH))}</pre>\n"
        yield "".join(f"<p>{text_of(words)}</p>\n" for words in view.paragraphs)
        if view.options:
            yield f"<ol>{''.join(f'<li>{text_of(words)}</li>' for words in view.options)}</ol>\n"
        if notes and view.note:
            yield f"<aside>{text_of(view.note)}</aside>\n"
        if view.page.see:
            yield f'<p class="muted">→ {text_of(view.page.see)}</p>\n'
        yield "</section>\n"
    if cited := sources(lesson):
        yield f"<section>\n<h2>Sources</h2>\n<ul>{''.join(map(_source, cited))}</ul>\n</section>\n"


def _answers(progress: LessonProgress, name: str) -> Iterator[str]:
    asking = [(number, page) for number, page in enumerate(progress.pages, 1) if page.choices]
    if asking:
        yield f"<h2>{text_of(name)}</h2>\n"
    for number, page in asking:
        right = progress.right(page)
        why = text_of(progress.filled(page, page.choices[right - 1].why))
        yield f"<p><b>Page {number}, {text_of(page.title)}</b> Answer {right}. {why}</p>\n"


def _source(one: Source) -> str:
    if not one.url:
        return f"<li>{text_of(one.words)}</li>"
    link = f'<a href="{text_of(one.url)}">{text_of(one.title)}</a>'
    return f"<li>{text_of(one.authors)} ({one.year}). {link}</li>"


def _rows(rows: Sequence[Row]) -> str:
    return "\n".join("".join(f'<span class="s-{style}">{text_of(text)}</span>' for text, style in row) for row in rows)
