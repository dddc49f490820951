"""What lessons name: papers with authors, titles and links, and documents of this project."""

from __future__ import annotations

from functools import cache

import msgspec

from engines.folders import document
from spec_tui.learn.lesson import FOLDER, Lesson


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A paper, or a document of this project.

    Attributes:
        name: how pages name it.
        url: where to read it; "" of a document.
    """

    name: str
    title: str
    authors: str = ""
    year: int = 0
    url: str = ""

    @property
    def words(self) -> str:
        """All of it in a line."""
        if not self.url:
            return f"{self.title}: {self.name}"
        return f"{self.authors} ({self.year}). {self.title}. {self.url}"

    @property
    def text(self) -> str:
        """A document in Markdown; "" of a paper, and where the document is not here."""
        path = None if self.url else document(self.name.rpartition("/")[2])
        return path.read_text(encoding="utf-8") if path is not None else ""


@cache
def every_source() -> tuple[Source, ...]:
    """All that lessons may name."""
    found = msgspec.toml.decode((FOLDER / "sources.toml").read_bytes(), type=dict[str, tuple[Source, ...]])
    return found["sources"]


def named_in(see: str) -> list[Source]:
    """The sources that a page names, in its order."""
    return [one for part in see.split("; ") for one in every_source() if part == one.name or part.startswith(
        (f"{one.name},", f"{one.name} "))]


def sources(lesson: Lesson) -> list[Source]:
    """Everything that a lesson names, each once."""
    return [*dict.fromkeys(one for page in lesson.pages for one in named_in(page.see))]
