"""What an entry may be: those that ship fit the published figures; a wrong file is refused in a sentence."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from engines.bench import published
from engines.bench.suite import shipped as suite
from engines.cost.curve import CostCurve
from engines.errors import UsageProblem
from engines.reproduce import needs, sublayer_facts
from engines.reproduce.entry import PaperEntry, StoreNeed, find, parse, shipped
from engines.reproduce.measures import MEASURES, RowFacts
from engines.reproduce.needs import DatastoreBuilder
from engines.reproduce.questions import MORE, asked_of, known
from engines.reproduce.reproduction import Reproduction, theirs
from engines.request import Request

GOOD = """
title = "a table"
paper = "A paper"
tables = ["Table 1"]
shows = "something"
measures = ["M"]
[[rows]]
name = "plain"
lane = "autoregressive"
"""


@pytest.mark.parametrize("name", shipped())
def test_an_entry_that_ships_stands_beside_what_was_published(name):
    entry = shipped()[name]
    if entry.cannot:
        assert len(entry.cannot) > 20
        return
    for setting in entry.settings:
        assert asked_of(entry.asked_in(setting)).cases
    found = {cell.row for cell in Reproduction(name, entry).cells() if cell.theirs}
    sources = {figure.source for figure in published.figures()}
    for row in entry.rows:
        assert row.name in found or not row.published, row.name
    assert bool(found) == bool(theirs(entry)) == bool(sources & set(entry.sources))
    assert entry.claims and all(claim.says.endswith(".") for claim in entry.claims)


@pytest.mark.parametrize("name", shipped())
def test_what_differs_is_true_of_the_quick_form_too(name):
    entry = shipped()[name]
    sizes = {f"{store.tokens:,} tokens" for store in entry.stores if store.tokens}
    assert not any(size in said for size in sizes for said in entry.differs), "--quick cuts datastores"


def test_every_published_figure_is_beside_a_row_or_said_to_be_out_of_reach():
    beside = {id(figure) for name, entry in shipped().items() if not entry.cannot
              for cell in Reproduction(name, entry).cells() for figure in cell.theirs}
    cannot = [entry for entry in shipped().values() if entry.cannot]
    for figure in published.figures():
        assert id(figure) in beside or any(
            figure.source in entry.sources and figure.data in entry.shows for entry in cannot), figure


def test_every_measure_of_a_published_figure_is_a_column():
    from engines.reproduce.measures import MEASURES

    assert {figure.measure for figure in published.figures()} <= set(MEASURES)


def test_questions_are_asked_once():
    cases = known().cases
    assert len({case.turns for case in cases}) == len(cases) == len(suite().cases) + MORE.read_text().count("\n")


def test_a_file_of_ones_own(tmp_path):
    (tmp_path / "mine.toml").write_text(GOOD + '[prompts]\nfile = "asked.txt"\n')
    (tmp_path / "asked.txt").write_text("one\ntwo\n")
    name, entry = find(str(tmp_path / "mine.toml"))
    assert name == "mine" and isinstance(entry, PaperEntry)
    assert [case.turns for case in asked_of(entry.prompts).cases] == [("one",), ("two",)]
    (tmp_path / "asked.txt").unlink()
    with pytest.raises(UsageProblem, match="there is no file"):
        asked_of(entry.prompts)


STORE = '[[stores]]\nname = "s"\n'
ROW = '[[rows]]\nname = "r"\n'


@pytest.mark.parametrize("changes, words", [
    ("title = 3", "not an entry"), ("[[rows", "not an entry"), ("colour = 1", "unknown field `colour`"),
    (GOOD.replace('"M"', '"speed"'), "no measure 'speed'"),
    (GOOD + ROW + 'lane = "nobody"', "there is no engine 'nobody'"),
    (GOOD + ROW + 'lane = "rest:c=0"', "c"),
    (GOOD + ROW + 'lane = "rest"\nstores = ["s"]', "not one of its stores"),
    (GOOD + ROW + ROW, "used twice"), (GOOD + '[[rows]]\nname = ""\n', "is empty"),
    (GOOD + ROW + 'part = "head"', "attention or MLP"),
    (GOOD + ROW + 'published = { colour = 1 }', "no field 'colour'"),
    (GOOD.replace("something", "some\\u202ething"), "unprintable"),
    (GOOD + STORE + 'source = "web"', "source is answers or python"),
    (GOOD + STORE + 'kind = "thick"', "kind is sparse, dense or both"),
    (GOOD + STORE + "answers = 3", "give a temperature"),
    (GOOD + STORE + "tokens = 1", ">= 200 - at `$.stores[0].tokens`"),
    (GOOD + '[[claims]]\nsays = "x"\nmeasure = "tau"\nrising = ["plain"]', "not one of its measures"),
    (GOOD + '[[claims]]\nsays = "x"\nmeasure = "M"\nrising = ["plain"]', "two rows"),
    (GOOD + '[[settings]]\nname = "hot"\ntemperature = -1', "temperature"),
    (GOOD + '[[settings]]\nname = "odd"\nlaw = "mine"', "law"),
    (GOOD.replace('lane = "autoregressive"', 'lane = "pld"').replace('"M"', '"speed-up"'), "baseline"),
    (GOOD.replace("tables", 'cannot = "no"\ntables'), "has no rows"),
    (GOOD + "\n[quick]\nmost = 0", ">= 1 - at `$.quick.most`"), (GOOD + ROW * 64, "length <= 64 - at `$.rows`"),
])  # fmt: skip
def test_what_is_wrong_is_said(changes, words):
    with pytest.raises(UsageProblem) as refused:
        parse(changes.encode(), "mine.toml")
    said = refused.value
    assert words in said.message and said.message.startswith("mine.toml") and "papers.md" in said.hint


def test_what_is_not_text_or_too_long_is_refused():
    for data in (b"\xff\xfe", b"a = 1\n" * (1 << 18), b"a=" + b"[" * 100_000, b"repeats = " + b"9" * 5000):
        with pytest.raises(UsageProblem):
            parse(data, "mine.toml")


@pytest.mark.parametrize("name", ["nothing", "rest-nothing", "../entry.toml", "nowhere.toml", "~nobody-here/x.toml"])
def test_an_entry_that_there_is_not(name):
    with pytest.raises(UsageProblem) as refused:
        find(name)
    assert "rest-trie" in refused.value.hint or name != "rest-nothing"


def test_a_quick_entry_cuts_datastores_and_takes_the_one_that_ships(sample):
    some = [StoreNeed(name=str(n), source="python", tokens=n) for n in (1000, 10_000)]
    estimates = [each.estimate for each in DatastoreBuilder(sample, some, most=2000).prepared()]
    assert [estimate.tokens for estimate in estimates] == [1000, 2000]
    shipped_one, = DatastoreBuilder(sample, [StoreNeed(name="x")]).prepared()
    assert shipped_one.name == "sample" and not shipped_one.missing


def test_a_datastore_is_built_anew_once_what_it_is_made_of_has_changed(sample, monkeypatch, tmp_path):
    def names():
        some = StoreNeed(name="p", source="python"), StoreNeed(name="s", temperature=0.7), StoreNeed(name="g", dims=8)
        return [each.name for each in DatastoreBuilder(sample, some).prepared()]

    first = names()
    assert names() == first, "used again"
    (tmp_path / "prompts.txt").write_text("What is new?")
    store = next(DatastoreBuilder(sample, ())._answers())[1]
    newer = replace(store.manifest, parameters={"sources": store.manifest.parameters["sources"] | {"digest": "new"}})
    monkeypatch.setattr(needs, "sys", SimpleNamespace(version_info=(*sys.version_info[:2], 99)))
    monkeypatch.setattr(needs, "STORE_PROMPTS", tmp_path / "prompts.txt")
    monkeypatch.setattr(DatastoreBuilder, "_answers", lambda self: iter([("new", SimpleNamespace(manifest=newer))]))
    assert not set(first) & set(names())


def test_answers_that_ship_are_taken_as_long_as_they_are(sample):
    some = [StoreNeed(name=str(most), dims=8, max_new_tokens=most) for most in (32, 128)]
    short, long = DatastoreBuilder(sample, some).prepared()
    assert short.name == long.name and short.estimate.tokens == long.estimate.tokens, "one datastore serves both"


def test_a_sublayer_is_timed_until_the_device_has_done_it(tiny, monkeypatch):
    """On a GPU the clock alone would tell how long it takes to start its kernels."""
    told = []
    monkeypatch.setattr(tiny.target, "synchronize", lambda: told.append("waited"))
    monkeypatch.setattr(sublayer_facts, "perf_counter", lambda: told.append("read") or 0.0)
    sublayer_facts.measure_sublayers(tiny, ["x"], Request(()))
    reads = [n for n, what in enumerate(told) if what == "read"]
    assert reads and all(told[n - 1] == "waited" for n in reads)


def test_a_quick_entry_has_no_more_answers_written_than_a_slow_model_writes_in_half_a_minute(sample, monkeypatch):
    slow = sample.fixed_prices._replace(target=CostCurve(((1, 0.05), (64, 0.5))))
    monkeypatch.setattr(sample, "fixed_prices", slow)
    need = StoreNeed(name="drawn", source="answers", temperature=0.7)
    quick, whole = (DatastoreBuilder(sample, [need], most).prepared()[0].estimate.tokens for most in (6000, None))
    assert quick == 512 and whole > 6000


def test_the_size_of_a_store_is_that_of_what_a_lane_searches():
    row, started = RowFacts(), SimpleNamespace(datastore_bytes=410_000)  # of 10 MB, most of them keys
    row.runs = [SimpleNamespace(state=SimpleNamespace(started=started))]
    assert MEASURES["store MB"].of(row) == 0.41


def test_a_row_of_the_paper_s_head_says_which_other_head_drafts():
    entry = shipped()["rasd-ablation"]
    assert entry.drafted_by(entry.head) == entry, "the paper's own"
    other = entry.drafted_by("EAGLE-3")
    assert [row.name for row in other.rows] == [
        "Autoregressive", "REST", "EAGLE-2, EAGLE-3 head", "w/o p", "w/o tf", "RASD (REST)"]
    assert [row.lane for row in other.rows] == [row.lane for row in entry.rows]
    assert other.claims[-2].rising == ("EAGLE-2, EAGLE-3 head", "RASD (REST)")
    assert not any(entry.head for entry in shipped().values() if entry.paper == "DReSD")


def test_the_example_of_the_document_is_an_entry():
    page = (Path(__file__).parents[2] / "docs" / "papers.md").read_text("utf-8")
    entry = parse(page.partition("```toml\n")[2].partition("```")[0].encode(), "papers.md")
    cells = Reproduction("mine", entry).cells()
    assert [bool(cell.theirs) for cell in cells if cell.measure == "M"] == [False, True]
