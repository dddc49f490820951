"""The replay finish against folds, plots whose axes start at zero, tables that sort, setups that can run."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.errors import UsageProblem
from engines.race.lanes import Lane
from engines.race.result import LaneFigures
from engines.report.events import Finished, Prefilled, Round
from engines.report.metrics import Metrics
from engines.report.run_state import RunState, fold_all
from engines.request import Request
from spec_tui.present.playback import SPEEDS
from spec_tui.present.text import cells
from spec_tui.session.race_state import RaceReplay, timeline
from spec_tui.session.settings import ChatSettings
from spec_tui.tui.race_controller import MOST, RaceSetup, missing, usual_lanes
from spec_tui.tui.widgets.race_lanes import LaneText, LaneView, RaceLanes
from spec_tui.tui.widgets.race_numbers import COLUMNS, SORTS, ranked
from spec_tui.tui.widgets.strip_plot import lines
from tests.tui.fakes import ANSWER, READY, RETRIEVING, script

ASKED = Request((("user", "Merge two lists."),), "draft")


def events_of(engine: str, seed: int, tokens: int = 60):
    return script(replace(ASKED, engine=engine, max_new_tokens=tokens), ANSWER, seed)


@given(st.lists(st.tuples(st.sampled_from(["draft", "autoregressive"]), st.integers(0, 50), st.integers(1, 60)),
                min_size=1, max_size=4), st.floats(0, 1.2))
def test_every_moment_of_the_photo_finish_is_a_fold_of_what_had_happened(which, share):
    told = {lane: events_of(*one) for lane, one in enumerate(which)}
    replay = RaceReplay({lane: fold_all(events) for lane, events in told.items()})
    replay.clock.position = replay.clock.end * share
    for lane, events in told.items():
        clock, seen = 0.0, events[:1]
        for event in events[1:]:
            clock += event.seconds if isinstance(event, Prefilled) else 0.0
            if isinstance(event, Round):
                clock += event.draft_seconds + event.verify_seconds + event.other_seconds
            if clock > replay.clock.position:
                break
            seen.append(event)
        assert replay.at(lane) == fold_all(seen)
        assert replay.arrived(lane) == isinstance(seen[-1], Finished)
        assert replay.points(lane) == timeline(fold_all(seen))


@given(st.lists(st.floats(0.001, 3), max_size=60), st.sampled_from(SPEEDS))
def test_however_the_clock_ticks_it_ends_at_the_fold_of_each_lane(ticks, speed):
    told = {lane: events_of(engine, lane) for lane, engine in enumerate(("autoregressive", "pld", "draft"))}
    replay = RaceReplay({lane: fold_all(events) for lane, events in told.items()})
    replay.clock.speed, before = speed, 0.0
    for tick in ticks:
        replay.clock.tick(tick)
        assert before <= replay.clock.position <= replay.clock.end
        before = replay.clock.position
    replay.clock.skip()
    assert not replay.clock.playing
    assert {lane: replay.at(lane) for lane in told} == {n: fold_all(e) for n, e in told.items()}
    replay.clock.toggle()
    assert replay.clock.position == 0 and replay.clock.playing


def test_short_races_are_slowed_down_so_that_they_can_be_watched():
    replay = RaceReplay({0: fold_all(events_of("draft", 1))})
    assert replay.clock.end < 2 and replay.clock.end / replay.clock.speed >= 6 and replay.clock.speed in SPEEDS
    replay.clock.faster(-20)
    assert replay.clock.speed == SPEEDS[0]
    replay.clock.faster(20)
    assert replay.clock.speed == SPEEDS[-1]
    assert RaceReplay({}).clock.end == 0 and not RaceReplay({0: RunState()}).clock.playing


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(20, 90), st.integers(2, 20))
def test_lines_start_at_zero_end_at_their_marks_and_never_fall(seed, count, width, height):
    dice = random.Random(seed)
    series = []
    for n in range(count):
        times = sorted(dice.uniform(0.01, 5) for _ in range(dice.randint(1, 40)))
        series.append((str(n + 1), [(t, k + 1) for k, t in enumerate(times)]))
    right, top = max(p[-1][0] for _, p in series), 50
    rows = lines(series, right, top, width, height)
    assert len(rows) == height and {len(row) for row in rows} == {width}
    text = ["".join(char for char, _ in row) for row in rows]
    assert all(any(mark in row for row in text) for mark, _ in series)  # told apart without colour
    ends = {n: max(x for row in rows for x, cell in enumerate(row) if cell[1] == n) for n in range(count)}
    slowest = max(range(count), key=lambda n: series[n][1][-1][0])
    assert ends[slowest] >= width - 1 - count
    alone = lines(series[:1], right, top, width, height)
    highest = [min((y for y in range(height) if alone[y][x][0] != " "), default=height) for x in range(width)]
    reach = [y for y in highest if y < height]
    assert reach == sorted(reach, reverse=True) and reach[0] >= height - 1 - height * series[0][1][-1][1] // top


def test_a_line_twice_as_high_is_twice_as_many_tokens():
    rows = lines([("1", [(1.0, 10)]), ("2", [(1.0, 20)])], 1.0, 40, 40, 40)
    at = {cell[0]: 40 - y for y, row in enumerate(rows) for cell in row if cell[0] in "12"}
    assert at["2"] == pytest.approx(2 * at["1"], abs=1)


@pytest.mark.parametrize("width", [20, 47])
def test_the_text_of_a_lane_is_the_same_however_it_came(width):
    run = fold_all(events_of("draft", 3, 80))
    grown, whole = LaneText(), LaneText()
    for rounds in range(len(run.rounds) + 1):
        grown.follow(run.until(rounds), width)
    grown.follow(run, width)
    whole.follow(run, width)
    assert grown.rows(99, "outcome") == whole.rows(99, "outcome")
    text = "".join("".join(part for part, _ in row) for row in whole.rows(99, "outcome"))
    assert text.split() == "".join(t.text for t in run.tokens).split() or "".join(text.split()) == "".join(
        "".join(t.text for t in run.tokens).split())
    grown.follow(run.until(2), width)  # back in time
    again = LaneText()
    again.follow(run.until(2), width)
    assert grown.rows(99, "source") == again.rows(99, "source")
    assert all(sum(cells(part) for part, _ in row) <= width for row in whole.rows(99, "outcome"))


def test_a_token_that_stands_out_is_among_the_lines_shown():
    run, text = fold_all(events_of("draft", 3, 80)), LaneText()
    text.follow(run, 24)
    for at in (1, 20, len(run.tokens) - 2):
        if run.tokens[at].text.strip():
            shown = text.rows(4, "outcome", at)
            assert len(shown) <= 4
            assert [part for row in shown for part, style in row if style == "changed"]


def figures(lane: int, **changes) -> LaneFigures:
    return LaneFigures(lane, changes.get("rates", ()), (), changes.get("metrics", Metrics()), changes.get("ttft"), None)


def test_the_table_sorts_by_each_column_the_best_first():
    lanes = [figures(0, rates=(10.0,), ttft=0.2), figures(1, rates=(30.0,), ttft=0.3), figures(2),
             figures(3, rates=(20.0,), ttft=0.1)]
    by = {column.title if column else "": n for n, column in enumerate(SORTS)}
    assert [f.lane for f in ranked(lanes, by[""])] == [0, 1, 2, 3]
    assert [f.lane for f in ranked(lanes, by["tokens/s"])] == [1, 3, 0, 2]
    assert [f.lane for f in ranked(lanes, by["1st token"])] == [3, 0, 1, 2]
    assert len(SORTS) == 1 + sum(column.key is not None for column in COLUMNS)


def test_headings_do_not_touch_even_with_the_mark_of_the_sorted_column():
    assert all(len(column.title) + (column.key is not None) < column.width for column in COLUMNS[1:])


def test_the_usual_lanes_are_those_that_can_run():
    engines = [lane.engine for lane in usual_lanes(ChatSettings(), RETRIEVING)]
    assert engines == ["autoregressive", "pld", "draft", "rest", "hybrid"]
    alone = replace(READY, draft_model=None, datastores=())
    lanes = usual_lanes(ChatSettings(), alone)
    assert [lane.engine for lane in lanes] == ["autoregressive", "pld"]
    assert not any(missing(lane, alone, ChatSettings()) for lane in lanes)
    own = ChatSettings().with_option("pld", "num_tokens", 3).with_engine("pld")
    assert usual_lanes(own, RETRIEVING)[-1] == Lane("pld", {"num_tokens": 3})


def test_a_setup_that_cannot_run_says_what_to_do():
    lanes = (Lane("autoregressive"), Lane("pld"))
    ready = replace(READY, draft_model=None)
    setup = RaceSetup(lanes, "Go.")
    assert setup.race(ChatSettings(temperature=0.5), READY).request.temperature == 0.5
    for wrong, words in (
        (RaceSetup(lanes[:1], "Go."), "2 to 6 lanes"), (RaceSetup(lanes, " \n"), "no prompt"),
        (RaceSetup((*lanes, Lane("draft")), "Go."), "draft cannot run"),
    ):
        with pytest.raises(UsageProblem, match=words) as found:
            wrong.race(ChatSettings(), ready)
        assert found.value.hint
    seven = RaceSetup(tuple(Lane("pld", {"num_tokens": n}) for n in range(1, MOST + 2)), "Go.")
    with pytest.raises(UsageProblem, match="lanes, not 7"):
        seven.race(ChatSettings(), ready)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("lossy", [False, True])
def test_where_a_text_differs_is_shown_whole(width, lossy):
    run = fold_all(script(ASKED))
    lanes = RaceLanes()
    lanes.lanes = tuple(LaneView(label="draft:num_tokens=12,shape=tree", run=run, total=9, numbers=("420.8 tokens/s",),
                                 badge=(words, "warn"), speed="1.94x", lossy=lossy)
                        for words in (*["✓ same text"] * 4, "? differs at 1054"))  # too many to stand side by side
    lanes.order, lanes._texts = tuple(range(5)), [LaneText()]
    rows = ["".join(text for text, _ in row) for row in lanes.rows(width, 20)]
    assert any(row.endswith("? differs at 1054") for row in rows) and max(map(cells, rows)) <= width
