"""``spec-tui model get`` and ``remove``: what they say, esc on a terminal, nothing fetched where that is forbidden."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import replace

from engines.folders import data
from engines.hub import known_models
from spec_tui.session.environment import child_environment
from tests.e2e.terminal import Terminal
from tests.sources.test_get_model import asked, model  # noqa: F401  a fixture

# A known model whose package never comes.
WAITS = """
import sys, time
from dataclasses import replace
from engines.hub import get_model, known_models
from engines.progress import Loading
known_models.KNOWN["tiny"] = replace(known_models.KNOWN["smollm2"], name="tiny", file="tiny.gguf")
def wait(model, progress):
    for _ in range(3000):
        progress(Loading("asking for tiny"))
        time.sleep(0.02)
get_model._from_hub = wait
from spec_tui.cli import main
sys.argv = ["spec-tui", "model", "get", "tiny", "--skippable"]
main()
"""


def test_it_says_licence_and_origin_and_is_fetched_once(cli, model, hub, tmp_path):  # noqa: F811
    done = cli("model", "get", "tiny")
    assert done.code == 0 and "licence Apache-2.0" in done.err and "HuggingFaceTB" in done.err
    assert "its checksum is right" in done.err and asked(tmp_path)
    (tmp_path / "shop" / "asked").unlink()
    assert "is here already" in cli("model", "get", "tiny").err and not asked(tmp_path)
    assert "tiny" in cli("model", "list").out
    assert re.search(r"licence +Apache-2.0", cli("model", "info", "tiny").out), "its file does not say"
    refused = cli("model", "remove", "tiny")
    assert refused.code == 2 and "give --yes" in refused.err and model.present, "there is nobody to ask"
    assert "which freed" in cli("model", "remove", "tiny", "--yes").err and not model.present
    assert "was not here" in cli("model", "remove", "tiny").err
    shutil.rmtree(data() / "models", ignore_errors=True)
    (data() / "models").write_text("no folder")
    assert "was not here" in cli("model", "remove", "tiny", "--yes").err


def test_offline_fetches_nothing(cli, model, hub, tmp_path):  # noqa: F811
    done = cli("model", "get", "tiny", "--offline")
    assert done.code == 3 and "--offline fetches nothing" in done.err
    done = cli("model", "get", "tiny", "--offline", "--skippable")
    assert done.code == 0 and "going on with the sample model" in done.err
    assert not asked(tmp_path) and not hub.asked and not model.present


def test_a_failure_is_no_end_where_it_may_be_skipped(cli, model, hub, tmp_path):  # noqa: F811
    (tmp_path / "shop" / "tiny_model-1.0-py3-none-any.whl").unlink()
    done = cli("model", "get", "tiny", "--skippable")
    assert done.code == 0 and "could not be fetched" in done.err and "spec-tui model get tiny fetches it" in done.err
    assert cli("model", "get", "tiny").code == 3


def test_the_flag_holds_for_what_loads_a_model_and_for_its_processes(cli, monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE")
    assert cli("run", "hello", "--max-new-tokens", "2").code == 0
    assert "HF_HUB_OFFLINE" not in child_environment()
    assert cli("run", "hello", "--max-new-tokens", "2", "--offline").code == 0
    assert child_environment()["HF_HUB_OFFLINE"] == "1"


def test_the_first_run_asks_once_and_remembers(tmp_path):
    where = {"SPEC_TUI_DATA_DIR": str(tmp_path), "HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:9"}
    command = [sys.executable, "-m", "spec_tui"]
    with Terminal(command, **where) as terminal:
        text = terminal.wait_for("A number and enter")
        assert "smollm2 (98.4 MB)" in text and "needs 3 GB of memory" in text and "neither" in text
        terminal.type("7\r")
        terminal.wait_for("from 1 to 3")
        terminal.type("3\r")
        terminal.wait_for("Type a prompt")
    with Terminal(command, **where) as terminal:
        assert "A number and enter" not in terminal.wait_for("Type a prompt")


def test_neither_is_an_answer_to_the_question(cli, monkeypatch):
    monkeypatch.setattr("spec_tui.cli.model_fetch.choose_model", lambda: "sample")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert cli("model", "get").code == 0
    assert "there is no known model 'sample'" in cli("model", "get", "sample").err


def test_without_a_terminal_the_smallest_is_taken_and_a_choice_is_kept(cli, model, hub, monkeypatch):  # noqa: F811
    monkeypatch.setattr("spec_tui.cli.model_fetch.KNOWN", {"tiny": model})
    assert "tiny came from" in cli("model", "get", "--skippable").err and known_models.chosen() == "tiny"
    known_models.choose("sample")
    assert "came from" not in cli("model", "get", "--skippable").err and known_models.default_label() != "tiny"
    assert cli("model", "get", "tiny").code == 0 and known_models.default_model() == "tiny"
    assert "the name of a model is missing" in cli("model", "get").err


def test_a_machine_that_has_too_little_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(known_models, "ram", lambda: (4 * 10**9, 10**9))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10**9})())
    said = known_models.KNOWN["qwen-coder"].lacking
    assert said == "Not enough here: only 1 GB of memory are free and 1 GB are free on the disk"
    assert "memory" not in replace(known_models.KNOWN["smollm2"], memory=10**8).lacking


def test_what_is_here_of_a_model_is_not_to_be_fetched_again(monkeypatch, tmp_path):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(known_models, "ram", lambda: (16 * 10**9, 8 * 10**9))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 800 * 10**6})())
    coder = known_models.KNOWN["qwen-coder"]
    assert coder.lacking == "Not enough here: only 800 MB are free on the disk" and coder.offer.startswith("1.61 GB")
    coder.path.parent.mkdir(parents=True)
    with coder.path.open("wb") as file:
        file.truncate(coder.size)
    assert (coder.lacking, coder.offer) == ("", "491 MB, needs 3 GB of memory")


def test_esc_on_a_terminal_goes_on_without_it(tmp_path):
    with Terminal([sys.executable, "-c", WAITS], HF_HUB_OFFLINE="0", SPEC_TUI_DATA_DIR=str(tmp_path)) as terminal:
        terminal.wait_for("Press esc to skip it")
        terminal.type("\x1b[A")  # an arrow key only begins like it
        terminal.wait_for("asking for tiny")
        terminal.type("\x1b")
        terminal.wait_for("skipped; going on with the sample model")
        assert terminal.exit_code() == 0
    assert not list(tmp_path.rglob("*.gguf"))
