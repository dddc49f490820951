"""Quiet colours for code that is still being written: comments, strings and keywords, a line at a time.

Not a lexer of a library: those want the whole text again for each line, and colour lines anew that stand already.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Language:
    """What is coloured of the languages of a kind.

    Attributes:
        words: keywords.
        comment: what begins a comment that ends with the line; "" for none.
        blocks: what opens something that may go over lines: what closes it, its style.
        quotes: of strings that end on their line.
    """

    words: frozenset[str]
    comment: str = "#"
    blocks: dict[str, tuple[str, str]] = field(default_factory=dict)
    quotes: str = "\"'"

    def __post_init__(self) -> None:
        parts = [rf"(?P<open>{'|'.join(map(re.escape, self.blocks))})"] if self.blocks else []
        if self.comment:
            parts.append(rf"(?P<comment>(?:{self.comment}).*)")
        strings = "|".join(rf"{quote}(?:[^{quote}\\]|\\.)*{quote}" for quote in self.quotes)
        parts += [f"(?P<string>{strings})", r"(?P<word>[^\W\d]\w*)"]
        object.__setattr__(self, "pattern", re.compile("|".join(parts)))


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_C_BLOCKS = {"/*": ("*/", "comment")}
_PYTHON = Language(_words(
    "False None True and as assert async await break case class continue def del elif else except finally for from "
    "global if import in is lambda match nonlocal not or pass raise return self try while with yield"),
    blocks={'"""': ('"""', "string"), "'''": ("'''", "string")})
_C = Language(_words(
    "abstract as async await auto bool boolean break byte case catch char class const constexpr continue default defer "
    "delete do double else enum export extends extern false final finally float fn for func function go goto if impl "
    "implements import in include inline instanceof int interface let long loop match mod module mut namespace new nil "
    "null nullptr operator override package private protected pub public range return self short signed sizeof static "
    "string struct super switch template this throw throws trait true try type typedef typename undefined union "
    "unsigned use using val var virtual void volatile where while yield"),
    comment="//", blocks=_C_BLOCKS, quotes="\"'`")
_SHELL = Language(_words(
    "alias begin break case class continue def do done echo elif else elsif end ensure esac export false fi for "
    "function if in local module next nil null on then true unless until while yes no return set source"),
    comment=r"(?<![^\s])#")
_SQL_WORDS = (
    "add all alter and as asc begin between by case check commit count create default delete desc distinct drop else "
    "end exists foreign from group having in index inner insert into is join key left like limit not null on or order "
    "outer primary references returning right rollback select set sum table then union unique update values view when "
    "where with")
_SQL = Language(_words(f"{_SQL_WORDS} {_SQL_WORDS.upper()}"), comment="--", blocks=_C_BLOCKS)
_STYLES = Language(frozenset(), comment="", blocks=_C_BLOCKS)
_MARKUP = Language(frozenset(), comment="", blocks={"<!--": ("-->", "comment")})
_DATA = Language(frozenset({"true", "false", "null"}), comment="//")

_BY_NAME = {
    **dict.fromkeys(("python", "py", "python3", "pycon"), _PYTHON),
    **dict.fromkeys(("c", "h", "cpp", "c++", "cc", "hpp", "java", "javascript", "js", "jsx", "typescript", "ts", "tsx",
                     "go", "rust", "rs", "kotlin", "swift", "csharp", "cs", "c#", "php", "scala", "dart", "zig",
                     "objc", "cuda", "glsl"), _C),
    **dict.fromkeys(("bash", "sh", "shell", "zsh", "console", "ruby", "rb", "perl", "yaml", "yml", "toml", "ini",
                     "dockerfile", "makefile", "make", "r", "julia", "elixir", "cmake"), _SHELL),
    "sql": _SQL, "json": _DATA, "jsonc": _DATA, "css": _STYLES, "scss": _STYLES,
    **dict.fromkeys(("html", "xml", "svg", "vue"), _MARKUP),
}


def language_of(words: str) -> Language | None:
    """The language that stands behind a fence; None for one that is not coloured."""
    name = words.split()[0].lower() if words.strip() else ""
    return _BY_NAME.get(name.strip("{}."))


def coloured(line: str, language: Language | None, opened: str = "") -> tuple[list[tuple[str, str]], str]:
    """A line of code in pieces with their styles, and what it leaves open, as ``opened`` for the next line."""
    if language is None:
        return [(line, "text")], ""
    out, at = [], 0
    while at < len(line):
        if opened:
            close, style = language.blocks[opened]
            end = line.find(close, at)
            stop = len(line) if end < 0 else end + len(close)
            out.append((line[at:stop], style))
            at, opened = stop, opened if end < 0 else ""
            continue
        found = language.pattern.search(line, at)
        if found is None:
            break
        out.append((line[at : found.start()], "text"))
        at, what = found.end(), found.lastgroup
        if what == "open":
            opened, what = found[0], language.blocks[found[0]][1]
        elif what == "word":
            what = "keyword" if found[0] in language.words else "text"
        out.append((found[0], what))
    return [*out, (line[at:], "text")], opened
