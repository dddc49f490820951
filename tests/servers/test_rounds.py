"""Rounds of llama.cpp's server from its messages, one a token, as it sends them (recorded from it, shortened)."""

from __future__ import annotations

from engines.report.events import UNDISCLOSED, Finished, Prefilled, Round
from engines.report.metrics import measure
from engines.servers.answers import Timings
from engines.servers.llama_cpp import _Rounds


def messages(*rows: tuple[int, str, float, int, int]) -> list:
    """Events of (token, text, predicted_ms, drafted, accepted)."""
    rounds, events = _Rounds(3), []
    for n, (token, text, ms, drafted, accepted) in enumerate(rows):
        timings = Timings(cache_n=2, prompt_ms=50.0, predicted_ms=ms)
        if drafted:
            timings.draft_n, timings.draft_n_accepted = drafted, accepted
        events += rounds.add([(token, text)], timings, n == len(rows) - 1)
    return events


def test_a_change_of_the_counters_begins_a_round():
    first, alone, whole, cut, last = messages(
        (5, "a", 0.001, 0, 0), (6, "b", 80.0, 0, 0), (7, "c", 200.0, 2, 2), (8, "d", 200.0, 2, 2),
        (9, "e", 200.0, 2, 2), (10, "f", 300.0, 6, 3), (11, "g", 300.0, 6, 3), (12, "h", 380.0, 6, 3),
    )
    assert isinstance(first, Prefilled) and (first.reused, first.seconds, first.first.text) == (2, 0.05, "a")
    assert [e.kind for e in alone.emitted] == ["target"] and not alone.draft.tokens
    assert [e.kind for e in whole.emitted] == ["accepted", "accepted", "bonus"] and whole.draft.tokens == (7, 8)
    assert [e.kind for e in cut.emitted] == ["accepted", "corrected"] and cut.path == (0,)
    assert cut.draft.tokens == (10, *[UNDISCLOSED] * 3) and cut.draft.parents == (-1, 0, 1, 2)
    assert [round(e.verify_seconds, 3) for e in (alone, whole, cut, last)] == [0.08, 0.12, 0.1, 0.08]
    assert [e.position for e in (alone, whole, cut, last)] == [4, 5, 8, 10]


def test_steps_without_drafts_have_one_token_each():
    events = messages((5, "a", 0.0, 0, 0), (6, "b", 10.0, 0, 0), (7, "c", 20.0, 0, 0), (8, "d", 30.0, 0, 0))
    assert [len(e.emitted) for e in events[1:]] == [1, 1, 1]


def test_steps_behind_a_character_of_several_tokens_are_not_invented():
    """Three tokens a message, of which only the last has text; recorded with drafts of three tokens."""
    def character(*rows: tuple[float, int, int]) -> list:
        rounds, events = _Rounds(3), []
        for ms, drafted, accepted in rows:
            timings = Timings(predicted_ms=ms, draft_n=drafted, draft_n_accepted=accepted)
            events += rounds.add([(1, ""), (2, ""), (3, "\U0001f44c")], timings, (ms, drafted, accepted) == rows[-1])
        return [*events, Finished("length", (), "", rounds.totals)]

    first, *events, end = character((87.9, 6, 0), (222.4, 15, 0), (364.4, 24, 0), (457.4, 30, 1))
    assert {event.known for event in events} == {"text"} and [len(event.emitted) for event in events] == [2, 3, 3, 3]
    metrics = measure([first, *events, end])
    assert (metrics.drafted, metrics.accepted, metrics.target_forwards, metrics.new_tokens) == (30, 1, 10, 12)
    assert metrics.tau == 0.1 and metrics.mean_generated_length == 1.1 and round(metrics.decode_seconds, 4) == 0.4574
    assert metrics.depth_tried == () and metrics.rows == {} and metrics.accepted_length is None
    first, *events, end = character((60.0, 0, 0), (150.0, 0, 0))
    assert {event.known for event in events} == {"all"} and end.totals is None
    assert [round(event.verify_seconds, 3) for event in events] == [0.03] * 5


def test_an_answer_that_ends_inside_a_draft_keeps_what_was_sent():
    *_, last = messages((5, "a", 0.0, 0, 0), (6, "b", 10.0, 5, 5), (7, "", 10.0, 5, 5))
    assert isinstance(last, Round) and last.path == (0, 1) and len(last.draft.tokens) == 5
    metrics = measure([last])
    assert (metrics.drafted, metrics.accepted) == (5, 2)


def test_counters_that_cannot_be_break_nothing():
    for event in messages((5, "a", 5.0, 0, 0), (6, "b", 1.0, 9, 20), (7, "c", -3.0, 2, 1), (8, "d", 0.0, 0, 0)):
        if isinstance(event, Round):
            assert event.verify_seconds >= 0 and len(event.path) <= len(event.draft.tokens)
