"""What a user must know before a speed is believed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.race.result import Disturbance
from engines.report.events import UNDISCLOSED, Draft, Emitted, Finished, Origin, Prefilled, Round
from engines.report.run_state import RunState, fold_all
from engines.request import Request
from spec_tui.present.speed_caveats import loop_length, speed_caveats
from tests.tui.fakes import script


@pytest.mark.parametrize(("tokens", "period"), [
    ([7] * 24, 1), ([7] * 23, None), ([1, 2, 3] + [4, 5] * 12, 2), ([*range(20)] * 3, 20), ([*range(20)] * 2, None),
    ([*range(65)] * 3, None), ([4, 5] * 12 + [9], None), ([], None),
])
def test_a_loop_at_the_end_of_an_answer(tokens, period):
    assert loop_length(tokens) == period


def a_run(
    document: str | None, tokens: int = 20, token: int | None = None, source: str = "retrieval"
) -> RunState:
    """A run that copies one token a round from a document, always this one where one is given."""
    started = replace(script(Request((("user", "x"),), "rest"), "x")[0], datastores=("sample",))
    first = Emitted(0, "a", "a", "target")
    rounds = []
    for n in range(1, tokens):
        origin = Origin(source, n, document, 3, "sample" if source == "retrieval" else None)
        draft = Draft((n,), (-1,), ("a",), (0.9,), (0,), (origin,))
        emitted = Emitted(n if token is None else token, "a", "a", "accepted", 0)
        rounds.append(Round(n, 1, draft, (0,), (emitted,), 0.001, 0.01, 0.0, n, {}))
    return fold_all([started, Prefilled(1, 0, 0.1, first, 1), *rounds, Finished("stop", (), "")])


def test_an_answer_that_the_datastore_holds_is_told():
    assert [found.words for found in speed_caveats(a_run("answers/7.txt"))] == [
        "the datastore already holds this answer (answers/7.txt): its speed says little about other prompts"]
    assert [found.words for found in speed_caveats(a_run("answer 3", source="history"))] == [
        "a past answer already holds this one (answer 3): its speed says little about other prompts"]
    assert not any(map(speed_caveats, (a_run(None), a_run("answers/7.txt", tokens=9), RunState())))


def written(*texts: str, seconds: float = 0.01) -> RunState:
    """What a server sent that tells no tokens, each message so long after the one before."""
    started = replace(a_run(None).started, arrival=True)
    first, *others = (Emitted(UNDISCLOSED, text, text, "target") for text in texts)
    rounds = [Round(n, 1, Draft(), (), (token,), None, seconds, None, None, known="text")
              for n, token in enumerate(others, 1)]
    return fold_all([started, Prefilled(None, None, 0.1, first, None), *rounds])


def test_an_answer_that_a_server_sends_all_at_once_says_nothing_of_its_speed():
    at_once, streamed = written("One", " two", " three", seconds=0.00005), written("One", " two", seconds=0.001)
    assert "came all at once" in speed_caveats(at_once)[0].words and not speed_caveats(streamed)
    assert not speed_caveats(written("One"))


def test_an_answer_of_undisclosed_tokens_repeats_itself_only_where_its_text_does():
    assert not speed_caveats(written(*(f"{n} " for n in range(30))))
    assert "(2 tokens over and over)" in speed_caveats(written(*["ha", " ho "] * 15))[0].words


def test_a_busy_machine_is_told():
    assert "other programs kept 1.2 of 2 cores busy" in speed_caveats(RunState(), Disturbance(1.2, None, 2))[0].words
    assert not speed_caveats(RunState(), Disturbance(0.1, None, 2))


def test_on_the_status_line_a_caution_takes_one_row_of_eighty_columns():
    found = speed_caveats(a_run("answers/7.txt", 60, token=9), Disturbance(1.2, 0.3, 16))
    assert len(found) == 3 and all(len(caveat.brief) <= 76 and caveat.brief != caveat.words for caveat in found)
