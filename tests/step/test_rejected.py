"""Rejected drafts in the text: each stands where it was rejected, the answer stays, nothing breaks a line."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engines.report.events import UNDISCLOSED, Draft, Emitted, Origin, Round
from engines.report.run_state import RunState, fold_all
from engines.report.traces import Trace
from engines.wire import read_trace
from spec_tui.present.rejected import LONGEST, branches, interleaved, words
from spec_tui.session.sample_traces import names, trace_path
from spec_tui.tui.widgets.race_lanes import LaneText


def runs() -> list[RunState]:
    traces: list[Trace] = [read_trace(trace_path(name)) for name in names()]
    return [fold_all(run) for trace in traces for run in trace.runs]


def by_hand(event: Round) -> dict[int, list[int]]:
    """The same by search: of all paths of the tree the one that takes the likeliest child each time."""
    draft, found, context = event.draft, {}, -1
    for index, token in enumerate(event.emitted):
        path, here = [], context
        while nodes := [n for n, parent in enumerate(draft.parents) if parent == here]:
            here = sorted(nodes, key=lambda n: (-(draft.probs[n] or 0.0), n))[0]
            path.append(here)
        if path and path[0] != token.node:
            found[index] = path
        if token.node < 0:
            return found
        context = token.node
    return found


def test_every_recorded_round_names_what_the_drafter_wanted_first():
    kept = 0
    for run in runs():
        for event in run.rounds:
            found = branches(event)
            assert found == by_hand(event)
            kept += len(found)
            for index, nodes in found.items():
                assert event.emitted[index].node not in nodes
                assert not set(nodes) & set(event.path), "what was accepted is not struck through"
    assert kept > 100


def test_a_corrected_token_has_what_it_corrected_before_it():
    for run in runs():
        for index, gone in interleaved(run):
            token = run.tokens[index]
            if token.kind == "corrected":
                assert gone, "what it corrected"
            if token.kind in ("bonus", "target"):
                assert not gone


def test_a_draft_that_is_not_disclosed_is_not_made_up():
    draft = Draft((5, UNDISCLOSED, 7), (-1, 0, 1), ("a", "b", "c"), (None,) * 3, (0,) * 3, (Origin("server"),))
    event = Round(1, 0, draft, (), (Emitted(9, "x", "x", "corrected"),), 0.0, 0.0, 0.0, 1)
    assert branches(event) == {0: [0]}


@given(st.lists(st.text(st.sampled_from("ab .\n\t\r\x1b\x9b\u202e\u200eé漢 "), max_size=5), max_size=2 * LONGEST))
@example(["lst", "):", "\n", "   ", " return"])
@example([" "])
def test_rejected_words_never_break_a_line_nor_steer(pieces):
    found = words(pieces)
    text = "".join(found)
    assert not re.search(r"[\n\t\r\x00-\x1f\x7f-\x9f\u202e\u200e]", text)
    assert "  " not in text and not text.endswith(" "), "blanks that would not be seen are marks"
    assert all(word.strip(" ") and word[1:].count(" ") == 0 for word in found)
    if len(pieces) <= LONGEST:
        back = text.replace("·", " ").replace("↵", "\n").replace("→", "\t")
        assert len(back) == len("".join(pieces)), "a mark for each character"
        assert re.sub(r"[^ab .\n\té漢]", "", back) == re.sub(r"[^ab .\n\té漢]", "", "".join(pieces))
    else:
        assert found[-1].strip() == f"…+{len(pieces) - LONGEST}"


def unwrapped(text: str) -> str:
    """Without what depends on where rows end."""
    return text.replace(" ", "").replace("↳", "")


@pytest.mark.parametrize("width", [20, 38, 90])
def test_a_lane_keeps_them_and_its_place(width):
    height = 6
    for run in runs():
        text = LaneText()
        text.follow(run, width)
        plain = ["".join(piece for piece, _ in row) for row in text.rows(10**6, "outcome")]
        back = max(0, len(text) - height) // 2
        index, row = text.place(height, back)
        text.follow(run, width, keeps=True)
        rows = text.rows(10**6, "rejected")
        own = "".join("".join(piece for piece, style in row if style != "ghost") for row in rows)
        assert unwrapped(own) == unwrapped("".join(plain))
        again = text.back_to(index, row, height)
        marked = text.rows(height, "rejected", at=index, back=again)[row]
        assert not back or "changed" in [style for _, style in marked], "it stays on its row"
        text.follow(run, width)
        assert text.place(height, text.back_to(index, row, height)) == (index, row)
