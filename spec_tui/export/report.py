"""What a job has to report, as plain data, and its forms: terminal, Markdown, web page, JSON, CSV."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import Any

from spec_tui.export.page import document, preformatted, rows_as_table, text_of
from spec_tui.present.tables import Rows, as_csv, as_markdown, as_text, escaped, text_width, whole
from spec_tui.present.text import as_json, fill, one_line, sanitise


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A text in lines that stay as they are: a prompt, or settings to copy; and a note on it, "" for none."""

    name: str
    text: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What is to be written.

    Attributes:
        title, setting, asked: for documents, which stand alone: what it is, names and values of what was asked, and
            texts.
        verdict: paragraphs that come first.
        pastes: settings to copy.
        tables: with a header each; ``notes``: sentences below them.
        labels: of lanes, shortened in a terminal where they are too wide.
        data: everything, as plain JSON data.
        rows: the same as rows of equal columns; ``columns``: their names where there is no row.
    """

    title: str = ""
    setting: Rows = ()
    asked: Sequence[TextBlock] = ()
    verdict: Sequence[str] = ()
    pastes: Sequence[TextBlock] = ()
    tables: Sequence[Rows] = ()
    notes: Sequence[str] = ()
    labels: Sequence[str] = ()
    data: Callable[[], dict[str, Any]] = dict
    rows: Callable[[], Sequence[dict[str, Any]]] = list
    columns: Sequence[str] = ()


def text(report: Report, width: int = 0) -> str:
    """For people, so wide; 0: as the terminal."""
    width = width or text_width()
    verdict = [fill(sanitise(one_line(said)), width) for said in report.verdict]
    pastes = "\n".join(line for block in report.pastes for line in _pasted(block, width))
    rest = as_text(report.tables, report.labels, report.notes, width)
    return "\n\n".join(filter(None, [*verdict, sanitise(pastes), rest]))


def _pasted(block: TextBlock, width: int) -> Iterator[str]:
    yield f"{block.name}:\n{indent(block.text, '  ')}"
    if block.note:
        yield fill(block.note, width, initial_indent="  ", subsequent_indent="    ")


def markdown(report: Report) -> str:
    """A document in Markdown. Texts stand in fences that they cannot close."""
    parts = [f"# {escaped(report.title)}"] * bool(report.title) + [escaped(said) for said in report.verdict]
    parts += [as_markdown([report.setting], ())] if report.setting else []
    parts += [_fenced(block) for block in (*report.asked, *report.pastes)]
    return "\n\n".join(filter(None, [*parts, as_markdown(report.tables, report.notes)]))


def _fenced(block: TextBlock) -> str:
    shown = sanitise(block.text)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", shown)), default=0))
    note = f"{block.note}\n\n" if block.note else ""
    return f"## {escaped(block.name)}\n\n{note}{fence}text\n{shown}\n{fence}"


def page(report: Report) -> str:
    """A whole HTML document; everything from models, prompts and files is escaped."""
    body = [f"<h1>{text_of(report.title)}</h1>\n", *(_paragraph(said) for said in report.verdict)]
    body += [_table(report.setting)] if report.setting else []
    for block in (*report.asked, *report.pastes):
        body.append(f"<h2>{text_of(block.name)}</h2>\n{preformatted(block.text)}")
        body += [_paragraph(block.note)] * bool(block.note)
    body += ["<h2>numbers</h2>\n", *map(_table, report.tables), *map(_paragraph, report.notes)]
    return document(report.title, "".join(body))


def _table(rows: Rows) -> str:
    head, *cells = whole(rows)
    return rows_as_table(cells, head)


def _paragraph(said: str) -> str:
    return f"<p>{text_of(said)}</p>\n"


WRITERS: dict[str, Callable[[Report], str]] = {
    "table": text,
    "md": markdown,
    "html": page,
    "json": lambda report: as_json(report.data()),
    "csv": lambda report: as_csv(report.rows(), report.columns),
}
"""By format. Where nothing was measured, the first two are "" unless there is something to say."""
