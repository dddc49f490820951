"""Retrieval in the terminal: which datastores are asked, what a lookup brought, and who wrote a token."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.datastores.storage import catalog as places
from engines.errors import DatastoreProblem, UsageProblem
from engines.report.events import Draft, Emitted, Origin, Passage, Prefilled, Retrieval, Round
from engines.report.run_state import RunState, fold_all
from engines.request import Request
from spec_tui.present.text import cells
from spec_tui.session.settings import ChatSettings
from spec_tui.tui import slash
from spec_tui.tui.screens.inspector import explain
from spec_tui.tui.widgets.retrieval_rows import weight_words
from spec_tui.tui.widgets.tree_panel import TreePanel, by_weight
from tests.tui.fakes import RETRIEVING, FakeClient, entries, script


@pytest.fixture(autouse=True)
def nothing_built(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))


# -- which datastores -----------------------------------------------------------------------------


def test_datastores_are_chosen_by_command_and_asked():
    outcome = slash.execute("/datastore python-stdlib, sample python-stdlib", ChatSettings(engine="rest"), RETRIEVING)
    assert outcome.settings.datastores == ("python-stdlib", "sample") and "sample" in outcome.message
    assert outcome.settings.request((("user", "x"),), RETRIEVING).datastores == ("python-stdlib", "sample")
    assert "from python-stdlib, sample" in outcome.settings.summary(RETRIEVING)
    cleared = slash.execute("/datastore", outcome.settings, RETRIEVING)
    assert cleared.settings.datastores == () and cleared.message == "datastores: sample"  # the default


def test_an_engine_that_searches_none_is_said():
    outcome = slash.execute("/datastore sample", ChatSettings(engine="pld"), RETRIEVING)
    assert "pld searches none" in outcome.message and "from" not in outcome.settings.summary(RETRIEVING)


def test_an_unknown_datastore_is_refused_with_those_there_are():
    with pytest.raises(UsageProblem) as caught:
        slash.execute("/datastore sample elsewhere", ChatSettings(), RETRIEVING)
    assert "'elsewhere'" in caught.value.message
    with pytest.raises(UsageProblem):
        slash.execute("/datastore ../../etc", ChatSettings(), RETRIEVING)


def test_a_datastore_of_another_tokenizer_is_refused_at_once():
    shipped = next(entry for entry in places.listing() if entry.shipped)
    for tokenizer in (shipped.manifest.tokenizer, ""):
        ready = replace(RETRIEVING, datastores=(), tokenizer=tokenizer)
        chosen = slash.execute(f"/datastore {shipped.name}", ChatSettings(), ready).settings.datastores
        assert chosen == (shipped.name,), "built since the model was loaded, or nothing is known of the tokenizer"
    with pytest.raises(DatastoreProblem, match="another tokenizer"):
        slash.execute(f"/datastore {shipped.name}", ChatSettings(), replace(ready, tokenizer="another"))


def test_names_are_completed_word_by_word():
    for typed, whole in (("sa", "sample"), ("sample ", "sample python-stdlib"), ("sample py", "sample python-stdlib")):
        assert list(slash.complete(f"/datastore {typed}", ChatSettings(), RETRIEVING)) == [f"/datastore {whole}"]


async def test_the_form_takes_them_and_the_answer_names_them(session):
    async with session(client=FakeClient(ready=RETRIEVING), request=Request((), "rest")) as s:
        await s.pilot.press("ctrl+e")
        form = s.app.screen
        field = form.query_one(".datastores")
        assert field.option.choices == ("the default ones", *(info.name for info in RETRIEVING.datastores))
        field.editor.value = "python-stdlib"
        form.action_apply()
        await s.pilot.pause()
        await s.ask("Merge two lists.")
        assert s.client.requests[0].datastores == ("python-stdlib",)
        assert "from python-stdlib" in s.shown


# -- what a lookup brought ------------------------------------------------------------------------

FIRST = Prefilled(1, 0, 0.1, Emitted(1, "So", "So", "target"), 1)
PASSAGE = Passage("sample", "a/merge.py", 12, "def merge(", "a, b):\n    out = []", 41.0)


def a_run(draft: Draft, path: tuple[int, ...], retrieval: Retrieval | None) -> RunState:
    emitted = [Emitted(draft.tokens[n], draft.pieces[n], draft.pieces[n], "accepted", n) for n in path]
    event = Round(7, 1, draft, path, (*emitted, Emitted(9, "x", "x", "corrected", -1)), 0.001, 0.01, 0.0, 5,
                  {"match": 1, "other": 4}, retrieval=retrieval)
    started = replace(script(Request((("user", "x"),), "rest"), "x")[0], datastores=("sample",))
    return fold_all([started, FIRST, event])


def panel_rows(run: RunState, width: int = 40, height: int = 30, detailed: bool = True) -> list[str]:
    panel = TreePanel()
    panel.detailed = detailed
    panel.show_round(run, 0)
    rows = ["".join(text for text, _ in row) for row in panel.rows(width, height)]
    assert len(rows) == height and all(cells(row) <= width for row in rows)
    return rows


def a_draft(parents: tuple[int, ...], probs: tuple[float, ...], also: tuple[int, ...] = ()) -> Draft:
    pieces = tuple(f" n{n}" for n in range(len(parents)))
    origins = (Origin("retrieval", 40, "a/merge.py", 1, "sample", 12, 0), Origin("draft"))
    return Draft(tuple(range(len(parents))), parents, pieces, probs, (0,) * len(parents), origins, also)


def test_the_tree_shows_who_proposed_what_was_fused_and_what_was_pruned():
    found = Retrieval(0.0004, 1, 56, 50, (), (PASSAGE,), ((" cut", 9), ("\n", 3)), 1)
    rows = panel_rows(a_run(a_draft((-1, 0, -1), (0.6, 0.5, 0.4), (1, -1, -1)), (0,), found))
    text = "\n".join(rows)
    assert "● ·n0 .60RD" in text and "✗ ·n2 .40R " in text
    assert "└─✂ ·cut ×9  ↵ ×3" in rows
    assert "other 4" in text and "match 1 ‹So›" in text and "0.40 ms" in text
    assert "56 hits, 50 used · 1 fused · 12 pruned" in text


def test_passages_say_where_and_what_and_which_was_right():
    other = replace(PASSAGE, document="b.py", line=None, weight=2.0)
    found = Retrieval(0.0004, 1, 56, 50, (), (PASSAGE, other))
    text = "\n".join(panel_rows(a_run(a_draft((-1,), (0.6,)), (0,), found), 60))
    assert "● sample · a/merge.py:12" in text and "×41" in text and "def merge(│a, b):↵    out = []" in text
    assert "  sample · b.py " in text and "×2" in text
    first = "\n".join(panel_rows(a_run(a_draft((-1,), (0.6,)), (0,), found), 60, detailed=False))
    assert "match 1 ‹So›" in first and "● sample · a/merge.py:12" in first  # the best place, and no numbers
    assert "b.py" not in first and "hits" not in first and " ms" not in first


def test_a_share_of_what_is_expected_is_no_count():
    weighed = replace(PASSAGE, weight=0.38)
    assert weight_words(weighed, Retrieval(0.0002, 3, 132, 8, (), (weighed,))) == "0.38"
    assert weight_words(replace(PASSAGE, weight=1.0), Retrieval(0.0002, 3, 1, 1)) == "×1"


def test_by_meaning_the_nearest_are_shown_and_misses_are_said():
    found = Retrieval(0.0002, None, 3, 3, (0.93, 0.81), (replace(PASSAGE, weight=0.93),))
    text = "\n".join(panel_rows(a_run(a_draft((-1,), (0.6,)), (), found)))
    assert "nearest 0.93 0.81" in text and "3 neighbours, 3 used" in text and "●" not in text
    assert "no match for the end of the text" in "\n".join(panel_rows(a_run(Draft(), (), Retrieval(0.0001, 0))))
    assert "nothing was looked up" in "\n".join(panel_rows(a_run(Draft(), (), None)))


def test_a_run_that_searches_nothing_has_no_lookup_and_a_low_panel_keeps_the_tree():
    run = a_run(a_draft((-1,), (0.6,)), (0,), None)
    run = replace(run, started=replace(run.started, datastores=()))
    assert not any("retrieval" in row for row in panel_rows(run))
    low = panel_rows(a_run(a_draft((-1,), (0.6,)), (0,), Retrieval(0.1, 1, 1, 1, (), (PASSAGE,))), 40, 9)
    assert "·n0" in "\n".join(low) and not any("retrieval" in row for row in low)


@given(st.integers(0, 64), st.integers(10, 40), st.randoms(use_true_random=False))
def test_any_tree_is_folded_to_its_heaviest_paths(count, height, dice):
    parents = tuple(dice.randrange(-1, n) if n else -1 for n in range(count))
    draft = a_draft(parents, tuple(dice.choice([None, 0.0, 0.3, 1.0]) for _ in parents))
    path, node = [], -1
    while (below := [n for n, parent in enumerate(parents) if parent == node]) and len(path) < 3:
        path.append(node := dice.choice(below))
    run = a_run(draft, tuple(path), Retrieval(0.1, 1, 1, 1))
    text = "\n".join(panel_rows(run, 40, height))
    shown, more = sum(map(text.count, ("● ", "✗ ", "○ "))), re.search(r"… (\d+) more", text)
    if more is None:
        assert shown == count
    else:
        assert shown + int(more[1]) <= count and int(more[1]) > 0
    order = by_weight(draft, frozenset(path))
    assert sorted(order) == list(range(count)) and set(order[: len(path)]) == set(path)
    assert all(parent < 0 or order.index(parent) < order.index(n) for n, parent in enumerate(parents))


def test_hostile_passages_are_harmless():
    bad = "\x1b]0;owned\x07\u202e[red]\n"
    passage = Passage(bad, bad, 1, bad, bad, 1.0)
    found = Retrieval(0.1, 1, 1, 1, (), (passage,), ((bad, 2),))
    draft = replace(a_draft((-1,), (0.6,)), origins=(Origin("retrieval", 1, bad, 1, bad, 1, 0),))
    run = a_run(draft, (0,), found)
    text = "".join(panel_rows(run, 80)) + "".join(panel_rows(run, 80, 12)) + str(explain(run, 1))
    assert not set(text) & {"\x1b", "\x07", "\u202e"} and "[red]" in text


# -- who wrote a token ----------------------------------------------------------------------------


def test_the_inspector_opens_the_passage():
    found = Retrieval(0.0004, 1, 56, 50, (), (PASSAGE,))
    text = str(explain(a_run(a_draft((-1,), (0.6,), (1,)), (0,), found), 1))
    assert "datastore sample, document a/merge.py, line 12, after a match of 1 token; and draft model" in text
    assert "def merge(│a, b):\n    out = []" in text
    assert "│" not in str(explain(a_run(a_draft((-1,), (0.6,)), (0,), Retrieval(0.0004, 1, 56, 50)), 1))


async def test_the_source_view_names_the_datastore(session):
    async with session(client=FakeClient(ready=RETRIEVING), request=Request((), "rest")) as s:
        await s.ask("Merge two lists.")
        s.chat.action_view("source")
        await s.settle()
        assert "datastore" in s.chat.query_one("#legend").text_rows()[0]
        assert "by-retrieval" in s.chat.transcript.seen


# -- the Data screen ------------------------------------------------------------------------------


async def test_the_data_screen_chooses_among_those_that_can_be_searched(session, monkeypatch):
    monkeypatch.setattr(places, "listing", entries)
    async with session(client=FakeClient(ready=RETRIEVING), request=Request((), "rest")) as s:
        await s.pilot.press("escape", "d")
        screen = s.app.screen
        names = list(screen.rows)
        assert names == ["sample", "python-stdlib", "broken", "other-tokens", "half.partial"]
        said = {}
        for name in names:
            screen.query_one("#stores").highlighted = names.index(name)
            await s.pilot.press("space")
            await s.pilot.pause()
            said[name] = str(screen.query_one("#about").content), str(screen.query_one("#chosen").content)
        assert "58,249 in 750 documents" in said["sample"][0] and "57,749" in said["sample"][0]
        assert "ships" in said["sample"][0] and "yes: sparse and dense" in said["sample"][0]
        assert "unfinished" in said["half.partial"][1] and "repeat the command" in said["half.partial"][0]
        assert "tokens.bin is damaged" in " ".join(said["broken"][0].split()) and "is damaged" in said["broken"][1]
        assert "no: it was built for" in said["other-tokens"][0] and "does not fit" in said["other-tokens"][1]
        assert screen.chosen == ["sample", "python-stdlib"]
        screen.query_one("#stores").highlighted = 0
        await s.pilot.press("space", "enter")
        await s.pilot.pause()
        assert s.chat.session.settings.datastores == ("python-stdlib",) and "python-stdlib" in s.status
        await s.ask("/data")
        await s.pilot.press("space", "escape")
        assert s.chat.session.settings.datastores == ("python-stdlib",)


@pytest.mark.parametrize("opens", ["d", "o", "h", "learn", "papers"])
async def test_page_down_reads_on_in_what_is_said_of_the_marked_line(session, monkeypatch, opens):
    from spec_tui.tui.screens.modal import Description

    monkeypatch.setattr(places, "listing", entries)
    async with session(size=(100, 14), client=FakeClient(ready=RETRIEVING)) as s:
        await s.ask("one")
        await s.pilot.press("escape")
        await (s.pilot.press(opens) if len(opens) == 1 else s.chat.run_action(opens))
        while not s.app.screen.query(Description):
            await s.pilot.pause(0.01)
        panel = s.app.screen.query_one(Description)
        rows = s.app.screen.query_one("OptionList")
        for _ in range(50):  # its own words may come late, and take the place of these
            panel.text.update("a long story\n" * 40)
            await s.pilot.pause(0.05)
            marked = rows.highlighted
            await s.pilot.press("pagedown")
            if panel.scroll_y > 0:
                break
        assert panel.scroll_y > 0 and rows.highlighted == marked
        await s.pilot.press("pageup")
        assert panel.scroll_y == 0


async def test_without_datastores_the_data_screen_says_how_to_make_one(session, monkeypatch):
    monkeypatch.setattr(places, "listing", list)
    async with session(size=(80, 24)) as s:
        await s.pilot.press("escape", "d", "space")
        assert "n builds one" in str(s.app.screen.query_one("#about").content)
        await s.pilot.press("escape")
        assert s.app.screen is s.chat
