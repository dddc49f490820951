"""The wrap loses nothing, overflows nothing, and may be told in any portions."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from spec_tui.present.text import cells, in_column
from spec_tui.tui.widgets.wrap import GHOST, Tok, Wrapper

words = st.lists(st.text(alphabet="ab  \n.漢🙂é", min_size=1, max_size=9), max_size=40)


def text_of(wrapper: Wrapper, without: str = "ghost") -> str:
    out = []
    for number, line in enumerate(wrapper.lines):
        out.append("" if number == 0 else "\n" if line.soft is None else line.soft)
        out += [tok.text for tok in line.toks if tok.style != without]
    return "".join(out)


def wrapped(parts: list[str], width: int) -> Wrapper:
    wrapper = Wrapper(width)
    wrapper.start_line()
    wrapper.push(Tok(part, "x", 0, n) for n, part in enumerate(parts))
    return wrapper


@settings(max_examples=200)
@given(words, st.integers(4, 30))
def test_text_is_kept_and_no_line_is_too_wide(parts, width):
    wrapper = wrapped(parts, width)
    assert text_of(wrapper) == "".join(parts)
    for line in wrapper.lines:
        assert sum(cells(t.text) for t in line.toks) == line.cells <= width


@settings(max_examples=100)
@given(words, words, st.integers(4, 30))
def test_a_tail_comes_off_without_a_trace(parts, tail, width):
    tail = [t.replace("\n", "") or "x" for t in tail]
    plain, tailed = Wrapper(width), Wrapper(width)
    plain.start_line(), tailed.start_line()
    for n, part in enumerate(parts):
        plain.push([Tok(part, "x", 0, n)])
        tailed.drop_tail()
        tailed.push([Tok(part, "x", 0, n)])
        count = len(tailed.lines)
        tailed.put_tail(Tok(t, "ghost") for t in tail)
        assert len(tailed.lines) == count and tailed.lines[-1].cells <= width
    tailed.drop_tail()
    assert [line.toks for line in plain.lines] == [line.toks for line in tailed.lines]


def test_words_move_whole_and_indents_stay():
    wrapper = wrapped(["one", " two", " thr", "ee", " four"], 10)
    assert ["".join(t.text for t in line.toks) for line in wrapper.lines] == ["one two", "three four"]
    wrapper = wrapped(["    ", "return", "_value_that_is_long"], 12)
    assert "".join(t.text for t in wrapper.lines[0].toks).startswith("    return")


def test_tabs_are_four_blanks():
    assert text_of(wrapped(["a\tb"], 20)) == "a    b"


# -- Markdown and code --------------------------------------------------------------------------------

ANSWER = '''# Stack

- push, which **adds** an item to the end of the list, in `O(1)`
- pop

```python
class Stack:
    """A stack.

    def is no word here"""
    def push(self, item):  # adds "one"
        self.items.append(item) if item is not None else self.items.append("nothing at all")
```

It is *def* no code.
'''
PARTS = ["```", "\n", "```python\n", "  ", "- ", "def", " x", "# ", "**", "`", "漢 字", '"""', "\t"]


def read(width: int) -> Wrapper:
    wrapper = Wrapper(width)
    wrapper.start_line(answer=True)
    wrapper.push(Tok(word, None, 0, n) for n, word in enumerate(re.findall(r"\s*\S+\n*", ANSWER)))
    return wrapper


def rows(wrapper: Wrapper) -> list[str]:
    return ["".join(tok.text for tok in line.toks) for line in wrapper.lines]


@settings(max_examples=200)
@given(st.lists(st.sampled_from(PARTS), max_size=40), st.integers(4, 30))
def test_reading_an_answer_keeps_its_text_and_its_width_and_moves_no_row(parts, width):
    wrapper, before, ended = Wrapper(width), [], []
    wrapper.start_line(answer=True)
    for n, part in enumerate(parts):
        wrapper.push([Tok(part, None, 0, n), Tok("gone", GHOST, 0, n)])
        now = [(row, line.block.kind) for row, line in zip(rows(wrapper), wrapper.lines)]
        assert all(now[y] == before[y] for y, over in enumerate(ended) if over), "a line that has ended changed"
        assert [row for row, _ in now[: max(0, len(before) - 1)]] == [row for row, _ in before[:-1]], "a row moved"
        before, ended = now, [line.block is not wrapper.lines[-1].block for line in wrapper.lines]
    texts = dict.fromkeys(line.block for line in wrapper.lines)
    assert "\n".join(block.text for block in texts) == "".join(parts).replace("\t", "    ")
    for line in wrapper.lines:
        assert sum(cells(t.text) for t in line.toks) == line.cells <= width
        for tok, at in line.placed():
            assert not tok.is_text or line.block.text[at : at + len(tok.text)] == tok.text
            assert not tok.is_text or "".join(text for text, _ in line.block.pieces(at, at + len(tok.text))) == tok.text


def test_code_and_items_stay_recognisable_where_they_are_wrapped():
    shown = rows(read(34))
    assert shown[2:4] == ["- push, which **adds** an item to", "  the end of the list, in `O(1)`"]
    at = shown.index("        self.items.append(item) if")
    assert shown[at + 1] == "        ↳ item is not None else"
    kinds = {row: line.block.kind for row, line in zip(shown, read(34).lines)}
    assert kinds["# Stack"] == "heading" and kinds["- pop"] == "item" and kinds["```python"] == kinds["```"] == "fence"
    assert kinds["class Stack:"] == "code" and kinds["It is *def* no code."] == "text"


def test_code_has_quiet_colours_and_prose_has_none():
    styles: dict[str, set[str]] = {}
    for block in dict.fromkeys(line.block for line in read(80).lines):
        for text, style in block.pieces(0, len(block.text)):
            styles.setdefault(style, set()).add(text)
    assert styles["keyword"] == {"class", "def", "self", "if", "is", "not", "None", "else"}
    assert {'"""', "A stack.", '    def is no word here"""', '"nothing at all"'} <= styles["string"]
    assert styles["comment"] == {'# adds "one"'}
    assert styles["strong"] == {"Stack", "adds"} and styles["code"] == {"O(1)"}
    assert {"# ", "- ", "**", "`", "```python", "```"} == styles["markup"]


@given(st.text(max_size=30), st.integers(2, 24))
def test_a_text_in_a_column_takes_the_columns_width_whatever_its_letters(text, width):
    shown = in_column(text, width)
    assert cells(shown) == width and shown.endswith(" ")
