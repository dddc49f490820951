"""The glossary: every word and sign of the screens. ``glossary.toml`` is its one source; the screen, the lessons and
docs/glossary.md are made from it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import msgspec

from spec_tui.present.text import capital
from spec_tui.present.token_styles import GLYPHS

FILE = Path(__file__).parent / "glossary.toml"
_MARKUP = re.compile(
    r"\*{1,2}([^*\s](?:[^*]*[^*\s])?)\*{1,2}|`([^`]+)`|\s?\(\[[^\]]+\]\([^)]+\)\)|\[([^\]]+)\]\([^)]+\)"
)
_MARKS = "Marks"


class GlossaryEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A word with its other names.

    Attributes:
        means: what it means, in Markdown; ``short`` the same in a sentence, where that is long or technical.
        label: how the names stand in the table of the document, where that is not plain.
    """

    names: tuple[str, ...]
    means: str
    short: str = ""
    label: str = ""


class GlossaryPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A piece of the document: a heading, or text, or a table of entries; in this order where it has several."""

    title: str = ""
    text: str = ""
    heads: tuple[str, ...] = ()
    entries: tuple[GlossaryEntry, ...] = ()


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    parts: tuple[GlossaryPart, ...]


@cache
def parts() -> tuple[GlossaryPart, ...]:
    """The glossary in the order of the document."""
    return msgspec.toml.decode(FILE.read_bytes(), type=_File).parts


@cache
def entries() -> Mapping[str, GlossaryEntry]:
    """The entries by each of their names, in the order of the document."""
    return {name: entry for part in parts() for entry in part.entries for name in entry.names}


def meaning(entry: GlossaryEntry) -> str:
    """What an entry means, without markup, as a sentence."""
    words = entry.short or _MARKUP.sub(lambda found: found[1] or found[2] or found[3] or "", entry.means)
    return capital(words) + ("" if words.endswith((".", "!", "?", ":")) else ".")


def explained(name: str) -> str:
    """A word in a sentence. Raises KeyError."""
    return meaning(entries()[name])


def word_of(kind: str) -> str:
    """What the glossary calls a token of this kind."""
    return "target token" if kind == "target" else kind


def markdown() -> str:
    """docs/glossary.md."""
    return "\n".join(["# Glossary", *_lines(), ""])


def _lines() -> Iterator[str]:
    for part in parts():
        if part.title:
            yield from ("", f"## {part.title}")
        if part.text:
            yield from ("", part.text.rstrip())
        if part.entries:
            yield from ("", f"| {' | '.join(part.heads)} |", "|---|---|", *map(_table_row, part.entries))
    yield from ("", f"## {_MARKS}", "", "| mark | meaning |", "|---|---|")
    yield from (f"| {sign} | {words} |" for sign, words in GLYPHS.items())


def _table_row(entry: GlossaryEntry) -> str:
    return f"| {entry.label or ', '.join(f'*{name}*' for name in entry.names)} | {entry.means} |"
