"""The wrap loses nothing, overflows nothing, and may be told in any portions."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from spec_tui.tui.widgets.wrap import Tok, Wrapper, cells

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
