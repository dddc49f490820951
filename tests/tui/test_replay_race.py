"""Recorded runs side by side: what the photo finish comes to is what the traces say, and nothing is offered that needs
a model."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from engines.errors import UsageProblem
from engines.report.events import Finished, Round, Started
from engines.report.run_state import fold_all
from engines.report.traces import Trace
from engines.wire import read_trace
from spec_tui.session.race_state import RaceState
from spec_tui.session.recorded_race import ELSEWHERE, SEPARATE, RecordedRun, recorded_race
from spec_tui.session.sample_traces import trace_path
from spec_tui.tui import recorded as applications

SHIPPED = {name: read_trace(trace_path(name)) for name in ("autoregressive", "pld", "tree")}


def recorded(*names: str) -> RaceState:
    return recorded_race([RecordedRun(name, SHIPPED[name]) for name in names])


def changed(name: str, number: int = 0, **fields) -> RecordedRun:
    """A shipped trace with an event that says something else."""
    events = list(SHIPPED[name].events)
    events[number] = replace(events[number], **fields)
    return RecordedRun(name, Trace(tuple(events)))


@asynccontextmanager
async def opened(race: RaceState, size=(120, 40), speed=None):
    app = applications.race(race, speed)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        await pilot.pause()
        yield app.screen, pilot


def test_a_lane_of_another_program_is_shown_with_the_others():
    other = changed("autoregressive", engine="llama.cpp", options={})
    race = recorded_race([RecordedRun("pld", SHIPPED["pld"]), other])
    assert [lane.engine for lane in race.asked.lanes] == ["pld", "llama.cpp"] and len(race.result.complete) == 2


async def test_the_end_of_the_photo_finish_is_that_of_the_folds():
    async with opened(recorded("pld", "autoregressive")) as (screen, pilot):
        await pilot.press("r", "R", "a", "-", "t", "f", "i", "e", "c", "x", "ctrl+o", "end")
        await pilot.pause()
        controller = screen.controller
        assert pilot.app.screen is screen and controller.replay.clock.over and len(controller.race.labels) == 2
        for lane, name in enumerate(("pld", "autoregressive")):
            whole = fold_all(SHIPPED[name].runs[0])
            assert controller.replay.at(lane) == whole
            shown = screen.query_one("#race-lanes").text_rows()
            assert any(f"{whole.metrics.tokens_per_second:.1f} tokens/s" in row for row in shown)
        said = "\n".join(screen.query_one("#race-lanes").text_rows() + screen.query_one("#race-table").text_rows())
        assert all(words in said for words in ("✓ same text", "recorded runs", "1st", "pld and autoregressive write"))
        assert "RECORDED, perhaps at different times · 2 runs" in screen.query_one("#race-top").text_rows()[0]
        offered = {key.description for key in screen.query("FooterKey")}
        assert {"Step", "Play", "Diff", "Quit"} <= offered and not offered & {"Start", "Back", "Stop"}
        await pilot.press("f1")
        await pilot.pause()
        told = str(pilot.app.screen.query_one("#text").content)
        assert "Photo finish" in told and not [words for words in (
            "Race again", "Add a lane", "Remove the lane", "How often", "Fair draws", "Races of this", "Save numbers",
            "Copy the command", "/lanes", "/engine") if words in told]
        await pilot.press("escape")
        await pilot.press("escape", "m")
        await pilot.pause()
        assert "Back" in {key.description for key in screen.query("FooterKey")}
        await pilot.press("escape", "home", "1", "enter")
        await pilot.pause()
        assert pilot.app.screen is not screen and pilot.app.screen.player.run == fold_all(SHIPPED["pld"].runs[0])


def test_speed_ups_only_against_what_was_asked_the_same():
    race = recorded("autoregressive", "pld", "tree")
    base, same, other = race.figures()
    rates = [fold_all(SHIPPED[n].runs[0]).metrics.tokens_per_second for n in ("autoregressive", "pld")]
    assert same.speed_up.median == pytest.approx(rates[1] / rates[0]) and other.speed_up is base.speed_up is None
    assert [(p.first, p.second, p.verdict) for p in race.result.pairs] == [(0, 1, "same")]
    notes = " ".join(race.notes())
    assert "3 draft:shape=tree has another prompt than 1 autoregressive" in notes and "other texts are not" in notes
    assert race.notes()[0] == SEPARATE and not race.comparable
    elsewhere = recorded_race([
        changed("pld", machine={"cpus": 96}), RecordedRun("autoregressive", SHIPPED["autoregressive"]),
    ])
    assert elsewhere.notes()[0] == ELSEWHERE and not any(f.speed_ups for f in elsewhere.figures())
    assert [p.verdict for p in elsewhere.result.pairs] == ["same"]  # a text is the same wherever it was written


@pytest.mark.parametrize("audits, verdict", [(("identical", "identical"), "tie"), (("identical", None), "unchecked"),
                                             (("identical", "BUG"), "BUG")])
def test_texts_that_differ_and_what_the_recorded_audits_say(audits, verdict):
    sources = []
    for name, finding in zip(("autoregressive", "pld"), audits):
        events = [replace(e, verdict=finding) if hasattr(e, "verdict") else e for e in SHIPPED[name].events
                  if finding or not hasattr(e, "verdict")]
        if name == "pld":
            at = next(n for n, e in enumerate(events) if isinstance(e, Round))
            first = replace(events[at].emitted[0], token=events[at].emitted[0].token + 1)
            events[at] = replace(events[at], emitted=(first, *events[at].emitted[1:]))
        sources.append(RecordedRun(name, Trace(tuple(events))))
    (pair,) = recorded_race(sources).result.pairs
    assert (pair.verdict, pair.at) == (verdict, 1)


def test_a_run_that_is_cut_off_is_shown_and_counts_nowhere():
    torn = tuple(event for event in SHIPPED["pld"].events if isinstance(event, Started | Round))[:3]
    race = recorded_race([
        RecordedRun("autoregressive", SHIPPED["autoregressive"]), RecordedRun("torn", Trace(torn, ("cut off",))),
    ])
    assert len(race.shown(1).state.rounds) == 2 and not race.figures()[1].rates and not race.result.pairs
    assert any("2 pld is cut off" in note for note in race.notes()) and "torn: cut off" in race.notes()
    holed = Trace(tuple(e for e in SHIPPED["pld"].events if not (isinstance(e, Round) and e.index == 2)))
    race = recorded_race([RecordedRun("autoregressive", SHIPPED["autoregressive"]), RecordedRun("holed", holed)])
    assert not race.result.pairs and not race.comparable
    assert any("rounds of 2 pld are missing" in note for note in race.notes())
    with pytest.raises(UsageProblem, match="none of these runs"):
        recorded_race([RecordedRun("torn", Trace(torn))])


def test_what_cannot_be_put_side_by_side():
    twice = RecordedRun("pld", Trace(SHIPPED["pld"].events * 2))
    assert recorded_race([twice] * 3).labels[::5] == ("pld #1", "pld #6")
    with pytest.raises(UsageProblem, match="8 runs"):
        recorded_race([twice] * 4)
    with pytest.raises(UsageProblem, match="not known here: evil"):
        recorded_race([changed("pld", engine="evil\x1b[31m")])
    cancelled = next(n for n, e in enumerate(SHIPPED["pld"].events) if isinstance(e, Finished))
    runs = RecordedRun("a", SHIPPED["autoregressive"]), changed("pld", cancelled, reason="cancelled")
    stopped = recorded_race(runs)
    assert not stopped.result.pairs and any("stopped by hand" in note for note in stopped.notes())


def test_picture(snap_compare):
    async def steps(pilot):
        await pilot.pause()
        await pilot.press("end")
        await pilot.pause()

    assert snap_compare(applications.race(recorded("autoregressive", "pld")), terminal_size=(120, 40), run_before=steps)
