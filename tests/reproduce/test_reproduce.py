"""An entry of each paper, run on the sample pair; its arithmetic, computed anew from what it wrote."""

from __future__ import annotations

import copy
import csv
import dataclasses
import io
import json
import os
import statistics

import msgspec
import pytest

from engines.race.interval import ratio_of
from engines.reproduce.entry import Claim, shipped
from engines.reproduce.questions import asked_of
from engines.reproduce.reproduction import ClaimVerdict, theirs
from spec_tui.cli.reproduce import EntryRun
from spec_tui.export.plots import draw
from spec_tui.export.report import WRITERS
from spec_tui.export.reproduce_report import _claimed, notes, plot, report

TOKENS, TWICE = 8, "rest-store-size-chat"


pytestmark = pytest.mark.usefixtures("no_sweeps")


@pytest.fixture(scope="module")
def reproduced(sample):
    """Runs an entry once, as small as it gets."""
    done = {}

    def run(name):
        if name not in done:
            entry = shipped()[name].made_quick()
            entry = msgspec.structs.replace(
                entry, repeats=2 if name == TWICE else 1, max_new_tokens=TOKENS, settings=entry.settings[:1],
                prompts=msgspec.structs.replace(entry.prompts, most=1),
                quick=msgspec.structs.replace(entry.quick, store_tokens=1500),
            )
            made = EntryRun(sample, name, entry, quick=True)
            assert made.run() == 0
            made.done.measure()
            done[name] = made.done
        return done[name]

    return run


@pytest.mark.parametrize("name", [
    "rest-store-size-chat", "dresd-speed", "rasd-ablation", "admg-sublayers", "medusa-tree", "eagle-tree",
    "guide-draft-model",
])
def test_an_entry_of_each_paper_runs(reproduced, name):
    done = reproduced(name)
    cells = done.cells()
    assert len(cells) == max(1, len(done.runs)) * len(done.entry.rows) * len(done.entry.measures)
    left_out = {sentence.partition(" is left out")[0] for sentence in done.left_out}
    assert not left_out
    for row in done.entry.rows:
        assert any(cell.here is not None for cell in cells if cell.row == row.name), row.name
    assert any(cell.theirs for cell in cells) or not theirs(done.entry)
    written = {form: write(report(done)) for form, write in WRITERS.items()}
    prompts = sum(len(asked_of(done.entry.asked_in(setting)).cases) for setting in done.entry.settings[:1])
    said = " ".join(notes(done))
    assert f"{os.cpu_count()} cores" in said and "None" not in said and "(s)" not in said
    assert f"the prompts: {prompts} of spec-tui's own instead of " in said or not theirs(done.entry)
    assert ("answers of at most" in said) is bool(done.runs)
    assert all(row.name in written["table"] and row.name in written["md"] for row in done.entry.rows)
    assert max(map(len, written["table"].splitlines())) <= 80
    rows = list(csv.DictReader(io.StringIO(written["csv"])))
    assert len(rows) == sum(max(1, len(cell.theirs)) for cell in cells)


def test_what_disturbed_a_setting_is_said_with_its_name(reproduced):
    done = copy.copy(reproduced(TWICE))
    run = copy.deepcopy(done.runs[0])
    for each in run.results.complete:
        each.measured = dataclasses.replace(each.measured, other_seconds=9 * each.measured.seconds)
    nucleus = dataclasses.replace(run, setting=msgspec.structs.replace(run.setting, name="nucleus"))
    done.runs = [run, nucleus]
    said = [sentence for sentence in notes(done) if "other programs kept" in sentence]
    assert [sentence.partition(":")[0] for sentence in said] == [run.setting.name, "nucleus"]


def mean_by_prompt(runs, number):
    by_prompt = {}
    for run in runs:
        if (value := number(run)) is not None:
            by_prompt.setdefault(run["prompt"], []).append(value)
    return statistics.mean(statistics.mean(values) for values in by_prompt.values()) if by_prompt else None


def expected(measure, runs, base):
    """A measure of a row's runs, from the numbers of each run alone."""
    if measure == "M":
        return sum(r["new_tokens"] - 1 for r in runs) / sum(r["target_forwards"] for r in runs)
    if measure == "tau":
        return sum(r["accepted"] for r in runs) / sum(r["target_forwards"] for r in runs)
    if measure == "MAR":
        return mean_by_prompt(runs, lambda r: r["path_acceptance"])
    if measure == "calls":
        return mean_by_prompt(runs, lambda r: r["target_forwards"])
    if measure == "drafted":
        return sum(r["drafted"] for r in runs) / rounds if (rounds := sum(r["drafting_rounds"] for r in runs)) else None
    if measure == "speed-up":
        return statistics.median(mine / theirs for mine, theirs in zip(rates(runs), rates(base), strict=True))
    return statistics.median({"tokens/s": rates(runs), "ms/token": [1000 / rate for rate in rates(runs)]}[measure])


def rates(runs):
    """Tokens a second of each repeat."""
    repeats = [[r for r in runs if r["repeat"] == n] for n in sorted({r["repeat"] for r in runs})]
    return [sum(r["later_tokens"] for r in each) / sum(r["later_seconds"] for r in each) for each in repeats]


@pytest.mark.parametrize("name, measures", [
    ("rest-store-size-chat", {"M", "ms/token", "speed-up"}),
    ("dresd-speed", {"M", "MAR", "speed-up", "tokens/s"}), ("rasd-ablation", {"tau", "M", "speed-up", "drafted"}),
])
def test_its_arithmetic_by_hand(reproduced, name, measures):
    found = json.loads(WRITERS["json"](report(reproduced(name))))
    assert found["schema"] == "spec-tui reproduce 1" and found["quick"]
    baseline = next(row["name"] for row in found["entry"]["rows"] if row["lane"] == "autoregressive")
    checked = set()
    for cell in found["cells"]:
        of = {row["name"]: [r for r in found["runs"] if (r["setting"], r["row"]) == (cell["setting"], row["name"])]
              for row in found["entry"]["rows"]}
        if cell["measure"] in measures:
            wanted = expected(cell["measure"], of[cell["row"]], of[baseline])
            assert cell["here"] == pytest.approx(wanted), cell
            timed = cell["measure"] in ("ms/token", "speed-up", "tokens/s")
            known = timed and name == TWICE
            assert cell["low"] <= cell["here"] <= cell["high"] if known else cell["low"] is cell["high"] is None
            checked.add(cell["measure"])
    assert checked == measures
    said = " ".join(found["notes"])
    assert ("by Student's t" in said) == (name == TWICE) == ("| interval |" in WRITERS["md"](report(reproduced(name))))
    assert ("a single repeat does not tell" in said) == (name != TWICE)
    values = {(c["setting"], c["row"], c["measure"]): c["here"] for c in found["cells"]}
    for claim in found["claims"]:
        own = [values[claim["setting"], row, claim["measure"]] for row in claim["rising"]]
        equal, timed = len(set(own)) == 1 < len(own), claim["measure"] == "speed-up"
        assert claim["values"] == own
        if not (timed and name == TWICE):  # one repeat tells nothing of speeds
            assert claim["holds"] == (None if equal or timed else own == sorted(set(own)))


@pytest.mark.parametrize(("repeats", "holds", "said"), [
    (((1.2, 1.2, 1.21), (1.5, 1.52, 1.5)), True, "It holds here. "),
    (((1.5, 1.52, 1.5), (1.2, 1.2, 1.21)), False, "It does not hold here. "),
    (((1.2, 1.6, 1.4), (1.3, 1.55, 1.5)), None, "It cannot be told here: it is within the noise of 3 repeats. "),
    (((1.2,), (1.5,)), None, "It cannot be told here from a single repeat. "),
    (((0.9, 0.91, 0.9), (1.5, 1.52, 1.5)), False, "It does not hold here. "),  # below the bound
])
def test_a_claim_about_speeds_holds_only_beyond_the_noise(repeats, holds, said):
    low, high = (dict(enumerate(each)) for each in repeats)
    claim = Claim("It is faster.", "speed-up", ("a", "b"), above=1.0)
    bound = [ratio_of(each, dict.fromkeys(each, 1.0)) for each in (low, high)]
    values = tuple(statistics.median(each.values()) for each in (low, high))
    verdict = ClaimVerdict(claim, "greedy", values, (ratio_of(high, low), *bound))
    assert verdict.holds is holds and said in _claimed(verdict)


def test_it_is_drawn(reproduced):
    assert b"<svg" in draw(plot(reproduced("rest-store-size-chat")))
