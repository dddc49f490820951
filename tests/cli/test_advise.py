"""``spec-tui advise`` with a decoder that needs no model, and once with a real one."""

from __future__ import annotations

import itertools
import json
import os
from types import SimpleNamespace

import pytest

from engines import Request
from engines.advice.adviser import Adviser
from engines.advice.trial_lanes import candidates
from engines.bench.suite import parse
from engines.methods.spec import MethodSpec
from engines.race.lanes import parse_lanes
from spec_tui.cli import advise
from tests.session.fake_runtime import FakeRuntime

QUICK = ("--max-new-tokens", "4", "--minutes", "0.001")


@pytest.fixture(autouse=True)
def quick(monkeypatch, no_sweeps):
    """The fake has no datastores, and answers in no time."""
    nothing = SimpleNamespace(sparse=lambda names: [])
    monkeypatch.setattr(FakeRuntime, "open_datastores", nothing, raising=False)


def test_a_verdict_and_what_to_paste(cli, tmp_path):
    prompts, page = tmp_path / "chat.json", tmp_path / "report.html"
    prompts.write_text(json.dumps([{"messages": [{"role": "user", "content": f"Say {n}."}]} for n in range(4)]))
    done = cli("advise", "--prompts", str(prompts), "--html", str(page), *QUICK)
    assert done.code == 0 and "too little time for a verdict" in done.out.replace("\n", " ")
    assert "stage 1 of " in done.err and f"wrote {page}" in done.err and max(map(len, done.out.splitlines())) <= 80
    assert page.read_text().startswith("<!doctype html>") and "not tried" in page.read_text()
    again = cli("advise", "--prompts", str(prompts), "--sample", "2", "--html", str(page), *QUICK, "--format", "json")
    found = json.loads(again.out)
    assert again.code == 0 and found["schema"] == "spec-tui advice 1" and found["asked"]["prompts"] == 2
    assert found["rounds"][0]["lanes"][0]["lane"] == "autoregressive" and "eagle" in found["left_out"]


@pytest.mark.parametrize("model, code, words", [
    ("sample", 0, "nothing is kept for sample"), ("nonsense", 3, "nothing is kept for nonsense, and no such model")])
def test_undo_says_for_which_model_nothing_is_kept(cli, monkeypatch, model, code, words):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    done = cli("advise", "--undo", "--model", model)
    assert done.code == code and words in done.err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_page_that_cannot_be_written_costs_neither_the_verdict_nor_what_is_kept(cli, tmp_path):
    (tmp_path / "report.html").symlink_to("/dev/full")
    write_document, page = advise.write_document, tmp_path / "other.html"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(advise, "write_document", lambda path, *rest: write_document(tmp_path / "report.html", *rest))
        done = cli("advise", "--html", str(page), "--save", *QUICK)
    assert done.code == 1 and "too little time for a verdict" in done.out.replace("\n", " ")
    assert "report.html cannot be written: No space left on device" in done.err and "nothing is kept" in done.err


@pytest.mark.parametrize("arguments, words", [
    (("--minutes", "0"), "minutes 0 is out of range"), (("--prompts", "none.txt"), "there is no file none.txt"),
    (("--html", "."), "is a folder"), (("--html", "/dev/null"), "is not a report of advise"),
    (("--html", "mine.html"), "is not a report of advise"), (("--audit",), "No such option: --audit"),
])
def test_what_cannot_be_is_said_before_anything_is_loaded(cli, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.html").write_text("<p>mine")
    done = cli("advise", *arguments)
    assert done.code == 2 and words in done.err and not done.out and "fake" not in done.err


def test_settings_are_what_methods_declare():
    lanes, missing = candidates(lambda spec, options, draft: "it cannot" if "draft model" in spec.needs else "")
    assert missing == {"draft": "it cannot", "rasd": "it cannot"}
    labels = [lane.label for lane in lanes]
    assert "pld:budget=paper" in labels and "eagle:shape=tree" in labels and len(set(labels)) == len(labels)
    assert not any(label.startswith(("autoregressive", "draft:")) for label in labels)
    assert MethodSpec(id="a", title="A", summary="", source="", drafter="").trials == ()


def test_a_run_on_a_real_model_ends_when_the_time_is_over(tiny):
    ticks = itertools.count()
    suite = parse("\n".join(f'{{"prompt": "abab {n} abab"}}' for n in range(6)), "made")
    adviser = Adviser(tiny, parse_lanes(["pld,pld:num_tokens=4"]), suite, Request((), max_new_tokens=12), 12.0,
                      clock=lambda: next(ticks))
    for _ in adviser.run():
        pass
    assert adviser.finished and 1 <= adviser.rounds[-1].prompts() <= 6
    assert adviser.rounds[-1].ratio(1) is not None and not adviser.rounds[-1].result.bugs
