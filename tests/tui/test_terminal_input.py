"""What a terminal sends reaches the application as it was meant: pastes as pastes, whatever is in them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from textual import events

from spec_tui.tui.terminal_input import InputDecoder, InputParser

BEGIN, END = b"\x1b[200~", b"\x1b[201~"
HARD = st.lists(st.sampled_from(
    [b"\x1b", b"\x1b[31m", b"\x1b[2", b"\x1b[20", b"[201~", b"\r", b"a", "ü".encode(), b"\xe4"])).map(b"".join)


def received(data: bytes, cuts: list[int]) -> list[events.Event]:
    """The events of these bytes, which arrive in pieces."""
    reader, parser, found = InputDecoder(), InputParser(), []
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    for begin, end in pairwise(places):
        found += parser.feed(reader.decode(data[begin:end]))
    return found


@given(pasted=HARD.filter(lambda text: END not in text + END[:-1]), cuts=st.lists(st.integers(0, 400), max_size=8))
def test_a_paste_is_one_paste_wherever_it_is_cut(pasted, cuts):
    found = received(b"x" + BEGIN + pasted + END + b"y", cuts)
    text = pasted.decode("utf-8", "replace").replace("\x1b", "␛")
    assert [type(event) for event in found] == [events.Key, events.Paste, events.Key]
    assert (found[0].key, found[-1].key) == ("x", "y")
    assert found[1].text == text


@given(cuts=st.lists(st.integers(0, 40), max_size=4))
def test_keys_outside_pastes_stay_keys(cuts):
    found = received(b"a\x1b[A" + BEGIN + b"1" + END + b"\x1b[B\xe4!", cuts)
    assert [event.key if isinstance(event, events.Key) else event.text for event in found][:2] == ["a", "up"]
    assert [event.text for event in found if isinstance(event, events.Paste)] == ["1"]
    assert [event.character for event in found[-2:]] == ["\ufffd", "!"]
