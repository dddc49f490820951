"""What a benchmark is written as: tables, Markdown, JSON, CSV, a folder with plots."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from engines.bench.entrants import facts
from engines.bench.hf_generate import generate_lanes
from engines.bench.suite import parse
from engines.errors import UsageProblem
from engines.race.lanes import Lane, parse_lanes
from engines.race.race_events import Compared
from engines.request import Request
from spec_tui.cli.bench import results_folder
from spec_tui.export import bench_report
from spec_tui.export.bench_report import plots
from spec_tui.present.tables import aligned, in_number
from tests.bench.made import pace, report, standings, written
from tests.bench.test_standings import steady


def made(repeats: int = 6, **how):
    return report(standings(lambda lane, repeat, prompt: steady(lane, repeat % 2, prompt), repeats=repeats, **how),
                  repeats)


RESULTS, RUNS, TABLES = "results.json", "runs.csv", "tables.md"
PLOTS = ("speed-ups.svg", "tasks.svg", "generate.svg")


def fill(folder, done) -> None:
    results_folder(folder).write(bench_report.report(done), *plots(done))


def cells(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


@pytest.mark.parametrize("count, words", [
    (950, "950"), (999, "999"), (11_600_000, "11.6 M"),
    (1_540_000_000, "1.54 B"), (999_900_000, "1 B"), (999_400_000, "999 M"), (5 * 10**15, "5000 T")])
def test_a_large_number_has_three_digits_and_no_exponent(count, words):
    assert in_number(count) == words and in_number(count, "") == words.replace(" ", "")


def test_a_table_for_people():
    text = written("table", made())
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80 and "\x1b" not in text
    rows = {tuple(cells(line)) for line in lines}
    assert ("autoregressive", "7.5", "5.0..10.0", "baseline", "-") in rows
    assert ("pld", "10.0", "6.7..13.3", "1.33x", "1.33..1.33") in rows
    assert ("pld", "1.33", "1.33..1.33", "1.23", "1.20..1.25") in rows  # over generate, and with the prefills
    assert ("rest:c=16", "-", "-", "-", "-") in rows  # transformers has no such method
    assert ("tokens/s by task", "copy", "chat") in rows and ("pld", "30.0", "7.5") in rows
    assert ("x autoregressive by task", "copy", "chat") in rows and ("pld", "4.00", "1.00") in rows
    assert ("x generate by task", "copy", "chat") in rows and ("autoregressive", "2.00", "2.00") in rows
    assert any(row[:5] == ("generate+lookup", "7.5", "5.0..10.0", "2.00", "2.00..2.00") for row in rows)
    assert any(row[0] == "generate+lookup" and row[-1] == "500 ms" for row in rows)
    assert ("as papers count", "MAR", "accepted length", "tau", "calls", "lookup", "datastores") in rows
    assert ("pld", "50%", "1.00", "1.00", "5.00", "-", "-") in rows
    said = " ".join(text.split())
    assert "-: transformers has no such method (rest:c=16)" in said and "the numbers are of" not in said
    assert "A processor, 2 cores, 2 threads" in said and "torch 9.9" in said and "models/target, 12.0 M" in said
    assert "/home" not in said and "95% or more (6 repeats)" in said
    assert "published elsewhere" not in said and "such as --engine pld:budget=paper" in said


def test_lanes_of_other_programs_stand_beside_ours():
    lanes = parse_lanes(["autoregressive,llama.cpp"])
    found = report(standings(lambda lane, repeat, prompt: pace(10, 1 / (1 + lane), rounds=5), lanes=lanes))
    tables = [[cells(line)[:2] for line in part.splitlines()] for part in written("table", found).split("\n\n")]
    assert tables[0] == [["lane", "tokens/s"], ["autoregressive", "10.0"], ["llama.cpp", "20.0"]]
    assert ["llama.cpp", "50%"] in tables[1], "what it accepted"
    lanes = {lane["lane"]: lane for lane in json.loads(written("json", found))["lanes"]}
    assert [*lanes] == ["autoregressive", "llama.cpp"] and lanes["llama.cpp"]["speed_up"]["median"] == 2.0
    assert lanes["llama.cpp"]["tasks"]["copy"]["speed_up"]["median"] == 2.0


def test_the_machine_and_the_versions_are_those_of_this_program(tiny):
    ask = Request((("user", "a"),), max_new_tokens=2)
    here = next(tiny.run(ask))
    elsewhere = replace(here, machine={}, versions={"server": "llama.cpp b1"})
    found = facts(tiny, [elsewhere, here])
    assert found["machine"]["cpus"] == here.machine["cpus"]
    assert found["versions"] == {"server": "llama.cpp b1", **here.versions}
    assert facts(tiny, [elsewhere])["versions"] == elsewhere.versions


def test_what_decodes_as_published_stands_beside_what_was_published():
    lanes = parse_lanes(["autoregressive,pld,rest:budget=paper:c=16,rest:budget=paper"])
    found = report(standings(lambda lane, repeat, prompt: pace(10, 1 / (1 + lane), rounds=5), lanes=lanes))
    text = written("md", found)
    rows = {tuple(line.split(" | ")[:5]) for line in text.splitlines()}
    assert ("| rest", "x 2.36", "x 4.00", "CodeLlama 7B", "HumanEval") in rows  # c=16 is not the paper's
    assert ("| rest", "MAR 28%", "MAR 50%", "CodeLlama 7B", "CodeAlpaca") in rows
    assert ("| rest", "tau 0.86", "tau 1.00", "Qwen2.5 14B", "HumanEval") in rows
    said = " ".join(text.split())
    assert said.index("published elsewhere:") > said.index("machine:") and "other machines" in said
    figures = json.loads(written("json", found))["published"]["figures"]
    assert {(f["engine"], f["lane"], f["temperature"]) for f in figures} == {("rest", "rest:budget=paper", 0.0)}


def test_markdown_has_the_intervals_of_every_task():
    text = written("md", made())
    assert "| pld | 30.0 (20.0..40.0) | 7.5 (5.0..10.0) |" in text.splitlines()
    blocks = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(blocks) == 7 and all(len({line.count("|") for line in block}) == 1 for block in blocks)


def test_json_has_everything():
    found = json.loads(written("json", made()))
    assert found["schema"] == "spec-tui bench 1" and found["finish_reason"] == "done" and found["repeats"] == 6
    assert found["suite"] == {"name": "made", "tasks": {"copy": 1, "chat": 2}, "questions": 2}
    auto, pld, rest = found["lanes"]
    assert pld["tokens_per_second"]["median"] == pytest.approx(10.0) and pld["speed_up"]["low"] == pytest.approx(4 / 3)
    assert pld["tasks"]["copy"]["speed_up"]["median"] == 4 and auto["speed_up"] is None
    assert auto["over_generate"]["median"] == 2 and rest["over_generate"] is None
    assert pld["tasks"]["copy"]["over_generate"]["median"] == 4 and pld["mean_generated_length"] == 2
    assert pld["tasks"]["chat"]["mean_generated_length"] == 2 and pld["tasks"]["chat"]["acceptance_rate"] == 0.5
    plain, lookup = found["generate"]
    assert plain["call"] == "generate(do_sample=False)" and plain["over_generate"] is None
    assert lookup["over_generate"]["median"] == 2 and lookup["acceptance_rate"] is None
    assert found["published"]["figures"] == [] and lookup["over_prompts"] is None
    assert pld["over_prompts"] == {"calls": 5, "accepted_length": 1, "path_acceptance": 0.5}
    assert found["models"]["target"]["name"] == "models/target" and found["versions"] == {"torch": "9.9"}
    assert len(found["runs"]) == 5 * 3 * 6 and found["waited"] == 0


def test_csv_is_a_line_a_run():
    rows = list(csv.DictReader(io.StringIO(written("csv", made(2)))))
    assert len(rows) == 5 * 3 * 2 and {row["lane"] for row in rows} >= {"generate", "pld"}
    assert [(row["task"], row["question"], row["turn"]) for row in rows[::5][:3]] == [
        ("copy", "1", "0"), ("chat", "2", "0"), ("chat", "2", "1")
    ]
    assert {row["tokens_per_second"] for row in rows if row["lane"] == "generate"} == {"5.0", "2.5"}
    lookup = next(row for row in rows if row["lane"] == "generate+lookup")
    assert lookup["drafted"] == lookup["acceptance_rate"] == "" and lookup["mean_generated_length"] == "2.5"
    assert (lookup["first_tokens"], lookup["later_tokens"], lookup["ttft_seconds"]) == ("1", "10", "0.5")


def test_what_was_cut_short_says_so():
    cut = report(standings(lambda lane, repeat, prompt: None if prompt else steady(lane, repeat, prompt), repeats=1,
                           reason="cancelled"), 1)
    text = " ".join(written("table", cut).split())
    assert "the numbers are of the 1 of 3 prompts that every lane answered" in text and "single repeat" in text
    assert json.loads(written("json", cut))["finish_reason"] == "cancelled"
    nothing = report(standings(lambda *where: None))
    assert written("table", nothing) == written("md", nothing) == ""
    assert json.loads(written("json", nothing))["runs"] == []
    assert written("csv", nothing) == "lane,repeat,prompt"


def test_without_generate_there_is_no_column_of_it():
    alone = report(standings(steady, lanes=parse_lanes(["autoregressive,pld"])), left_out=("x is left out: why",))
    text = written("table", alone)
    assert "x generate" not in text and "transformers" not in text and "x is left out: why" in text
    assert json.loads(written("json", alone))["generate"] == [] and json.loads(written("json", alone))["left_out"]


def test_texts_are_held_against_the_baselines():
    pairs = tuple(Compared(*pair, 0, "tie", 5) for pair in ((0, 3), (1, 3), (2, 3), (3, 4)))
    pairs = (*pairs, Compared(0, 1, 0, "same"), Compared(1, 2, 0, "BUG", 3, bugs=(2,)))
    said = " ".join(written("table", made(pairs=pairs)).split())
    assert "autoregressive and generate differ, first at token 6" in said
    assert "other pairs of lanes that differ: 3" in said
    assert "the audit found a BUG in rest:c=16" in said and "pld and generate differ" not in said


HOSTILE = "a\x1b]0;owned\x07\x9b2J\u202e$\\frac{1}{2}$<script>|"


def test_many_tasks_fold_and_hostile_names_steer_nothing():
    rows = [json.dumps({"prompt": "x", "category": f"{HOSTILE}{n}", "question_id": HOSTILE}) for n in range(12)]
    lanes = (Lane("autoregressive"), Lane("rest", {}, (HOSTILE.replace("|", ""),)), *generate_lanes([Lane("pld")])[:1])
    found = report(standings(lambda *where: pace(10, 1.0), lanes=lanes, suite=parse("\n".join(rows), HOSTILE)))
    for text in (written("table", found), written("md", found), written("json", found), written("csv", found)):
        assert not any(mark in text for mark in ("\x1b", "\x07", "\x9b", "\u202e"))
    assert "<script" not in written("md", found)
    lines = written("table", found).splitlines()
    assert sum(line.startswith("tokens/s by task") for line in lines) > 1


def test_a_long_name_of_a_task_does_not_widen_the_table():
    rows = [json.dumps({"prompt": "x", "category": letter * 300}) for letter in "ab"]
    found = report(standings(lambda *where: pace(10, 1.0), suite=parse("\n".join(rows), "long")))
    assert max(map(len, written("table", found).splitlines())) <= 80
    assert list(json.loads(written("json", found))["suite"]["tasks"]) == ["a" * 300, "b" * 300]


def test_names_of_wide_letters_shift_no_column():
    wide = "要約"
    table = aligned([["task", "tokens/s"], [wide, "9.0"], ["edit", "12.0"]])
    assert table == ["task  tokens/s", f"{wide}       9.0", "edit      12.0"]


def test_fewer_threads_are_said_with_their_reasons():
    found = standings(steady)
    assert "fewer threads" not in written("table", report(found))
    found.on_fewer_threads, found.rounds = 1, 4
    said = " ".join(written("table", report(found)).split())
    assert "25% of our rounds ran on fewer threads" in said
    assert "the context is long; generate keeps its threads" in said


def test_a_folder_has_it_all(tmp_path):
    folder = tmp_path / "new" / "results"
    fill(folder, made())
    assert sorted(path.name for path in folder.iterdir()) == sorted([RESULTS, RUNS, TABLES, *PLOTS])
    assert json.loads((folder / RESULTS).read_text())["repeats"] == 6
    assert len(list(csv.DictReader((folder / RUNS).open()))) == 90 and "| pld |" in (folder / TABLES).read_text()
    for name in PLOTS:
        root = ET.parse(folder / name).getroot()
        assert root.tag.endswith("svg") and len(list(root.iter())) > 50
        assert all(float(root.get(side).removesuffix("pt")) > 100 for side in ("width", "height"))
    fill(folder, report(standings(steady, lanes=parse_lanes(["autoregressive,pld"]))))
    assert sorted(path.name for path in folder.iterdir()) == sorted([RESULTS, RUNS, TABLES, *PLOTS[:2]])


def test_hostile_names_are_drawn_as_they_are_read(tmp_path):
    lanes = (Lane("autoregressive"), Lane("rest", {}, (HOSTILE,)))
    fill(tmp_path, report(standings(lambda *where: pace(10, 1.0), lanes=lanes)))
    ET.parse(tmp_path / PLOTS[0])


@pytest.mark.parametrize("name, content", [
    (TABLES, "a diary"), (RESULTS, "a diary"), (RESULTS, '{"schema": "mine"}'), (PLOTS[0], "<svg/>"), (RUNS, "[1]"),
])  # fmt: skip
def test_other_peoples_files_stay(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(UsageProblem, match=f"{name} exists and was not written by spec-tui bench"):
        results_folder(tmp_path)
    assert (tmp_path / name).read_text() == content
    with pytest.raises(UsageProblem, match="cannot be made"):
        results_folder(tmp_path / name)
