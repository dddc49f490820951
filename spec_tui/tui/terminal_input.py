"""Decodes what a terminal or a browser sends. In Textual's own way bytes that are not UTF-8 would end the application,
and what follows an escape character in a paste would be taken as keys."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterable
from types import ModuleType

from textual._xterm_parser import XTermParser
from textual.message import Message

from spec_tui.present.text import sanitise

_BEGIN, _END = "\x1b[200~", "\x1b[201~"  # of a bracketed paste


def decode_input_of(driver: ModuleType) -> None:
    """Let a module of Textual's drivers use ``InputDecoder`` and ``InputParser``."""
    driver.getincrementaldecoder, driver.XTermParser = lambda encoding: InputDecoder, InputParser


class InputParser(XTermParser):
    """Textual's parser; an empty text, where half a character has arrived, does not end the input."""

    def feed(self, data: str) -> Iterable[Message]:
        return super().feed(data) if data else ()


class InputDecoder:
    """A UTF-8 decoder. Other bytes (a pasted Latin-1 text) become replacement characters, and escape characters within
    a bracketed paste become visible: Textual's parser (8.2.8) would take what follows them as keys."""

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._pasting = False
        self._last = ""  # outside a paste the last characters, passed on already; within one what may begin its end

    def decode(self, data: bytes, final: bool = False) -> str:
        text, out = self._decoder.decode(data, final), []
        while text:
            text = (self._within if self._pasting else self._outside)(text, out)
        return "".join(out)

    def _outside(self, text: str, out: list[str]) -> str:
        """Pass on the text up to a paste. Returns the rest."""
        seen = self._last + text
        at = seen.find(_BEGIN)
        if at < 0:
            self._last = seen[1 - len(_BEGIN) :]
            out.append(text)
            return ""
        end = at + len(_BEGIN) - len(self._last)
        self._pasting, self._last = True, ""
        out.append(text[:end])
        return text[end:]

    def _within(self, text: str, out: list[str]) -> str:
        """Pass on the paste without escape characters. Returns what follows it."""
        seen = self._last + text
        pasted, end, rest = seen.partition(_END)
        self._pasting, self._last = not end, ""
        if not end:
            held = next((n for n in range(len(_END) - 1, 0, -1) if pasted.endswith(_END[:n])), 0)
            pasted, self._last = pasted[: len(pasted) - held], pasted[len(pasted) - held :]
        out.append(pasted.replace("\x1b", sanitise("\x1b")) + end)
        return rest
