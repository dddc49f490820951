"""Going through a run by hand and by the clock: places, guesses, bookmarks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.tree import depths
from engines.report.run_state import RunState, fold, fold_all
from engines.request import Request
from spec_tui.present.step.phases import StepPosition, event_of, following, phases_of
from spec_tui.present.step.player import PACE, SPEEDS, Guess, StepPlayer
from tests.tui.fakes import ANSWER, script

REQUEST = Request((("user", "hello there"),), engine="draft")


@pytest.fixture
def run() -> RunState:
    return fold_all(script(REQUEST, ANSWER))


def drafting(run: RunState, start: int = 1) -> int:
    return next(n for n in range(start, len(run.rounds) + 1) if run.rounds[n - 1].draft.tokens)


@settings(max_examples=40)
@given(st.lists(st.sampled_from(["forward", "back", "home", "end", "guess", "mark", "next_mark", "tick", "jump"])),
       st.booleans(), st.data())
def test_no_keys_lead_out_of_the_run(keys, guessing, data):
    player = StepPlayer(fold_all(script(REQUEST, ANSWER)))
    player.guessing = guessing
    player.clock.playing = True
    for key in keys:
        if key == "jump":
            player.jump(data.draw(st.integers(-5, 200)))
        elif key in ("guess", "next_mark"):
            getattr(player, key)(data.draw(st.integers(0, 9)) if key == "guess" else 1)
        elif key == "tick":
            player.tick(PACE)
        else:
            getattr(player, key)()
        assert 0 <= player.place.round <= player.rounds
        assert player.place.phase in phases_of(player.run, player.place.round)
        rounds = [guess.round for guess in player.guesses]
        assert len(rounds) == len(set(rounds))


def test_a_draft_is_not_judged_before_the_guess(run):
    player = StepPlayer(run, StepPosition(drafting(run)))
    player.guessing = True
    seen = [player.place]
    while player.forward():
        seen.append(player.place)
    assert seen[-1].phase == "tree" and player.hides and player.asks  # it stops once, and asks
    most = max(depths(event_of(run, player.place.round).draft.parents))
    assert player.most() == min(9, most) and not player.guess(most + 1)
    assert player.guess(1)
    came = len(event_of(run, player.place.round).path)
    assert player.place.phase == "verify" and not player.hides
    assert player.guesses == [Guess(player.place.round, 1, came)]
    assert not player.guess(2)  # too late


def test_the_largest_guess_stands_for_more(run):
    longer = Guess(1, 9, 12)
    assert longer.right and longer.came == 12 and not Guess(1, 8, 12).right and Guess(1, 2, 2).right


def test_passing_without_a_guess(run):
    player = StepPlayer(run, StepPosition(drafting(run), "tree"))
    player.guessing = True
    assert not player.forward() and player.forward()
    assert player.place.phase == "verify" and not player.guesses


def test_playing_waits_for_a_guess_and_goes_on_after_it(run):
    player = StepPlayer(run, StepPosition(drafting(run), "draft"))
    player.guessing = player.clock.playing = True
    for _ in range(100):
        player.tick(PACE)
    assert player.place.phase == "tree" and player.clock.playing
    player.guess(0)
    assert player.tick(PACE) and player.place.phase == "accept"


def test_playing_takes_its_time_and_ends(run):
    player = StepPlayer(run)
    player.clock.playing = True
    assert not player.tick(PACE * 0.9) and player.tick(PACE * 0.2)
    player.clock.faster(1, SPEEDS)
    player.tick(0)
    assert player.tick(PACE / player.clock.speed * 1.01)
    for _ in range(len(run.rounds) * 7):
        player.tick(PACE)
    assert player.place == StepPosition(len(run.rounds), "keep")
    player.tick(PACE)
    assert not player.clock.playing
    player.clock.faster(99, SPEEDS)
    assert player.clock.speed == max(SPEEDS)


def test_rounds_are_gone_to_in_the_same_phase_or_at_their_beginning(run):
    number = drafting(run)
    player = StepPlayer(run, StepPosition(number, "verify"))
    player.jump(drafting(run, number + 1))
    assert player.place.phase == "verify"
    player.guessing = True
    player.jump(number)
    assert player.place == StepPosition(number)


def test_bookmarks_go_around(run):
    player = StepPlayer(run, StepPosition(3))
    assert player.mark() and not player.mark() and not player.next_mark(1)
    for number in (5, 2):
        player.jump(number)
        player.mark()
    assert player.bookmarks == [2, 5]
    player.next_mark(1)
    assert player.place.round == 5
    player.next_mark(1)
    assert player.place.round == 2
    player.next_mark(-1)
    assert player.place.round == 5


def test_the_same_text_in_other_rounds_keeps_the_place(run):
    other = fold_all(script(REQUEST, ANSWER, seed=2))
    assert other.text == run.text and list(other.starts) != list(run.starts)
    for number in range(1, len(run.rounds) + 1):
        player = StepPlayer(run, StepPosition(number))
        player.mark()
        player.guesses = [Guess(number, 1, 1)]
        player.update(other)
        at = player.place.round
        assert player.bookmarks == [at]
        same = run.starts[number - 1] == other.starts[at - 1] and (
            run.rounds[number - 1].draft.tokens == other.rounds[at - 1].draft.tokens)
        assert [guess.round for guess in player.guesses] == [at] * same
        assert other.starts[at - 1] <= run.starts[number - 1] < len(other.tokens)
        assert at == len(other.rounds) or other.starts[at] > run.starts[number - 1]
        assert player.place.phase in phases_of(other, at)


def test_a_growing_run_can_be_gone_through():
    events, run = script(REQUEST, ANSWER), RunState()
    player = StepPlayer(run)
    for event in events:
        run = fold(run, event)
        player.update(run)
        while following(run, player.place) is not None:
            player.forward()
    assert player.place == StepPosition(len(run.rounds), "keep")


def test_the_score_counts_what_came_true(run):
    player = StepPlayer(run)
    player.guesses = [Guess(1, 2, 2), Guess(2, 0, 3), Guess(3, 1, 1)]
    assert player.score == "2 of 3 right"
