"""The application as a person meets it: a real terminal, the models that ship, keys and what the screen says."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.e2e.terminal import Terminal
from tests.tiers import some

APPLICATION = [sys.executable, "-m", "spec_tui"]
WITHOUT_A_MODEL = [
    sys.executable,
    "-c",
    "from spec_tui.session import process; start = process.ProcessClient\n"
    "process.ProcessClient = lambda: start('tests.session.fake_runtime:load')\n"
    "from spec_tui.cli import main; main()",
]
LEAVES_THE_ALTERNATE_SCREEN = b"\x1b[?1049l"
SHOWS_THE_CURSOR = b"\x1b[?25h"

pytestmark = [
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks for the engine process in /proc"),
]


def send(terminal: Terminal, line: str) -> None:
    """Type a line, see it, press enter."""
    terminal.type(line)
    terminal.wait_for(lambda screen: line in prompt_box(screen))
    terminal.type("\r")
    terminal.wait_for(lambda screen: line not in prompt_box(screen))


def prompt_box(screen: str) -> str:
    """What stands between the lowest pair of rules."""
    return screen.rpartition("╭")[2]


def finished(screen: str) -> object:
    """Whether the line below an answer is there."""
    return re.search(r"· \d+ tokens · [\d.]+ tokens/s", screen)


def engine_of(terminal: Terminal) -> int:
    """The engine process: the only child of the application's that runs the worker."""
    children = f"/proc/{terminal.process.pid}/task/{terminal.process.pid}/children"
    with open(children) as file:
        for child in file.read().split():
            with open(f"/proc/{child}/cmdline") as command:
                if "spec_tui.session.worker" in command.read():
                    return int(child)
    raise AssertionError("there is no engine process")


def ended(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{pid}"):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_a_whole_session():
    """Ask, switch the engine, stop an answer, lose the engine, go on, leave."""
    with Terminal(APPLICATION, columns=120, rows=40) as terminal:
        terminal.wait_for("ready")
        send(terminal, "Count from 1 to 5.")
        screen = terminal.wait_for(finished)
        assert "Hybrid" in screen

        send(terminal, "/engine pld")
        terminal.wait_for("engine: Prompt lookup")
        send(terminal, "/new")
        send(terminal, "Write a long story about a fox.")
        terminal.wait_for("esc stops and keeps the text")
        terminal.wait_for(lambda screen: "fox" in screen.partition("╭")[0])
        terminal.type("\x1b")
        screen = terminal.wait_for(lambda screen: "stopped with esc" in screen or "cut at" in screen)
        assert "Prompt lookup" in screen
        assert "stopped with esc" in screen, "it was not stopped in time"

        os.kill(engine_of(terminal), signal.SIGKILL)
        terminal.wait_for("SIGKILL")
        terminal.type("\x12")  # ctrl+r
        terminal.wait_for(lambda screen: "SIGKILL" not in screen)
        terminal.wait_for("ready")
        engine = engine_of(terminal)

        terminal.type("\x11")  # ctrl+q
        assert terminal.exit_code() == 0
        assert ended(engine)
        assert terminal.current_modes() == terminal.modes
        end = terminal.raw[-400:]
        assert LEAVES_THE_ALTERNATE_SCREEN in end and SHOWS_THE_CURSOR in end
        assert b"Traceback" not in terminal.raw


def test_a_conversation_outlives_the_application(tmp_path):
    """It is on the disk as soon as its answer has ended, even where the application is killed; and it goes on."""
    folder = {"SPEC_TUI_DATA_DIR": str(tmp_path)}
    with Terminal(WITHOUT_A_MODEL, columns=80, rows=24, **folder) as terminal:
        terminal.wait_for("ready")
        send(terminal, "a first question")
        terminal.wait_for(finished)
        terminal.wait_for("its speed says little")  # the answer of the stand-in repeats itself; saved by now
        terminal.process.kill()
    with Terminal(WITHOUT_A_MODEL, columns=80, rows=24, **folder) as terminal:
        terminal.wait_for("ready")
        send(terminal, "/history")
        terminal.wait_for("enter continues it")
        terminal.type("\r")
        screen = terminal.wait_for("continuing")
        assert "a first question" in screen and finished(screen)
        send(terminal, "a second one")
        terminal.wait_for("its speed says little")
        terminal.type("\x11")
        assert terminal.exit_code() == 0


def test_a_paste_a_list_of_commands_esc_and_a_resize():
    """What a pilot cannot see: bracketed paste, the terminal's own size, and letters that are keys."""
    with Terminal([*WITHOUT_A_MODEL, "--engine", "pld"], columns=120, rows=40) as terminal:
        terminal.wait_for("   ready")
        assert "Prompt lookup" in terminal.text
        terminal.type(b"\x1b[200~first line\nsecond line\x1b[201~")
        screen = terminal.wait_for("second line")
        assert screen.count("first line") == screen.count("second line") == 1

        for view in ("rejected", "source", "confidence", "plain"):
            terminal.type("\x1b")  # esc goes to the text, and stays there
            time.sleep(0.3)
            terminal.type("v")
            terminal.wait_for(f"{view} · ")
        terminal.resize(50, 12)
        terminal.wait_for("enlarge the window")
        terminal.resize(120, 40)
        terminal.wait_for("second line")
        terminal.type("v")
        terminal.wait_for("outcome · ")
        terminal.wait_for("i Prompt")
        terminal.type("\r")  # enter leads back to the prompt
        terminal.wait_for("esc Text")
        terminal.type("!")
        terminal.wait_for("second line!")

        terminal.type("\x7f" * 40 + "/eng")  # at once: no letter overtakes a key that deletes
        terminal.wait_for("choose the engine")
        terminal.type("\r")
        terminal.wait_for("/engine autoregressive")
        terminal.type("\r")
        terminal.wait_for("engine: Autoregressive")


def test_leaving_while_it_loads():
    with Terminal(APPLICATION, columns=80, rows=24) as terminal:
        terminal.wait_for("Type a prompt")
        engine = engine_of(terminal)
        terminal.type("\x11")
        assert terminal.exit_code(10) == 0
        assert ended(engine) and terminal.current_modes() == terminal.modes


def test_a_model_that_is_not_there():
    with Terminal([*APPLICATION, "--model", "/nonexistent/model"], columns=80, rows=24) as terminal:
        terminal.wait_for("no model folder /nonexistent/model")
        terminal.type("\x11")
        assert terminal.exit_code() == 0


def test_hostile_text_cannot_steer_the_terminal():
    """Model, prompt and answer carry escape sequences; none of them reaches the terminal."""
    command = [*WITHOUT_A_MODEL, "--model", "evil\x1b]0;owned\x07"]
    with Terminal(command, columns=100, rows=30) as terminal:
        terminal.wait_for("ready")
        terminal.type("\x1b[200~hostile \x1b]0;owned\x07\x9b2J \u202e\x1b[201~")  # pasted
        terminal.wait_for(lambda screen: "hostile" in prompt_box(screen))
        terminal.type("\r")
        terminal.wait_for(finished)
        screen = terminal.wait_for("]0;owned␇b␛[31mc")
        assert "evil␛]0;owned␇" in screen
        for sequence in (b"\x1b]0;", b"\x1b[31mc", b"owned\x07", "\x9b".encode(), "\u202e".encode()):
            assert sequence not in terminal.raw
        terminal.type("\x11")
        assert terminal.exit_code() == 0


def test_bytes_that_are_no_text_end_nothing():
    """A pasted Latin-1 text: its bytes become marks, and the application goes on."""
    with Terminal(WITHOUT_A_MODEL, columns=80, rows=24) as terminal:
        terminal.wait_for("ready")
        terminal.type(b"caf\xe9 \x9bx")
        terminal.wait_for(lambda screen: "caf" in prompt_box(screen) or "caf" in screen)
        terminal.type("\x11")
        assert terminal.exit_code() == 0
        assert b"Traceback" not in terminal.raw and b"UnicodeDecodeError" not in terminal.raw


def test_nor_a_replay():
    with Terminal([*APPLICATION, "replay", "pld"], columns=80, rows=24) as terminal:
        terminal.wait_for("replay of pld")
        terminal.type(b"\xe9P")  # the letter is a key
        terminal.wait_for("P ends presenting")
        terminal.type("\x11")
        assert terminal.exit_code() == 0


def test_the_terminal_is_restored_after_a_stop_from_outside():
    with Terminal(WITHOUT_A_MODEL, columns=80, rows=24) as terminal:
        terminal.wait_for("ready")
        terminal.process.send_signal(signal.SIGSTOP)
        terminal.process.send_signal(signal.SIGCONT)
        # Textual may lose the first key to the reader of before the stop.
        for _ in range(40):
            terminal.type("\x11")
            with contextlib.suppress(subprocess.TimeoutExpired):
                terminal.process.wait(0.5)
                break
        assert terminal.exit_code() == 0 and terminal.current_modes() == terminal.modes


@pytest.mark.parametrize("number", some(
    [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL], lambda n: n in (signal.SIGHUP, signal.SIGKILL)
))
def test_every_way_to_die_restores_the_terminal_and_ends_the_engine(number):
    with Terminal(APPLICATION, columns=80, rows=24) as terminal:
        terminal.wait_for("Type a prompt")
        assert terminal.current_modes() != terminal.modes
        engine = engine_of(terminal)
        os.kill(terminal.process.pid, number)
        orderly = number in (signal.SIGTERM, signal.SIGHUP)
        assert terminal.exit_code() == (128 + number if orderly else -number)
        assert ended(engine)
        assert_restored(terminal)


@pytest.mark.parametrize("number", some([signal.SIGTERM, signal.SIGKILL], lambda n: n == signal.SIGTERM))
def test_so_does_a_replay(number):
    with Terminal([*APPLICATION, "replay", "pld"], columns=80, rows=24) as terminal:
        terminal.wait_for("replay of pld")
        begin, screen = terminal.raw.index(b"spec-tui is starting"), terminal.raw.index(b"\x1b[?1049h")
        assert begin < terminal.raw.rindex(b"\r\x1b[K", 0, screen), "a word at once, taken back before the screen"
        os.kill(terminal.process.pid, number)
        terminal.process.wait(20)
        assert_restored(terminal)


def test_a_terminal_that_goes_away_leaves_nothing_running():
    with Terminal(APPLICATION, columns=80, rows=24) as terminal:
        terminal.wait_for("Type a prompt")
        engine = engine_of(terminal)
        group = processes_of(terminal)
        terminal.hang_up()
        terminal.process.wait(20)
        assert ended(engine) and all(map(ended, group))


def test_a_command_asked_to_end_leaves_no_progress_on_the_screen(tmp_path):
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text(f"all work and no play makes {number} dull boys " * 100_000)
    command = [*APPLICATION, "datastore", "build", "big", "--from", *map(str, tmp_path.glob("*.txt"))]
    with Terminal(command, SPEC_TUI_DATA_DIR=str(tmp_path / "data")) as terminal:
        terminal.wait_for(lambda screen: "█".encode() in terminal.raw)
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.exit_code() == 128 + signal.SIGTERM
        assert "█" not in terminal.text and b"\x1b[?25l" not in terminal.raw
        assert b"Traceback" not in terminal.raw


def assert_restored(terminal: Terminal) -> None:
    """Modes and screen are as before, at the latest a moment after the end."""
    deadline = time.monotonic() + 10
    modes = [b"\x1b[?%dl" % mode for mode in (1000, 1003, 1006, 2004, 1049)]
    while terminal.current_modes() != terminal.modes or not all(mode in terminal.raw for mode in modes):
        assert time.monotonic() < deadline, terminal.raw[-400:]
        time.sleep(0.05)
    assert terminal.raw.rindex(SHOWS_THE_CURSOR) > terminal.raw.rindex(b"\x1b[?25l")
    assert terminal.raw.rindex(LEAVES_THE_ALTERNATE_SCREEN) > terminal.raw.rindex(b"\x1b[?1049h")
    assert b"Traceback" not in terminal.raw


def processes_of(terminal: Terminal) -> list[int]:
    """The processes that the application started."""
    with open(f"/proc/{terminal.process.pid}/task/{terminal.process.pid}/children") as file:
        return [int(child) for child in file.read().split()]


def test_the_application_killed_takes_its_engine_with_it():
    with Terminal(APPLICATION, columns=80, rows=24) as terminal:
        terminal.wait_for("Type a prompt")
        engine = engine_of(terminal)
        terminal.process.kill()
        assert ended(engine)


def race_screen(terminal: Terminal) -> None:
    """From the prompt to the race."""
    terminal.wait_for("   ready")
    terminal.type("\x1b")
    terminal.wait_for("v View")
    terminal.type("r")


@pytest.mark.timeout(240)
def test_a_race_outlives_its_screen_and_the_application(tmp_path):
    """A result is there again after esc, and among the former races after a new start."""
    command = [*APPLICATION, "--model", "sample"]
    with Terminal(command, columns=120, rows=40, SPEC_TUI_DATA_DIR=str(tmp_path)) as terminal:
        race_screen(terminal)
        terminal.wait_for("enter starts")
        terminal.type("***")
        terminal.wait_for("1 repeat;")
        terminal.type("\r")
        terminal.wait_for("photo finish", 80)
        terminal.type("\x1b[F")  # end
        terminal.wait_for("all lanes write the same text")
        terminal.type("\x1b")
        terminal.wait_for("v View")
        terminal.type("r")
        terminal.wait_for("photo finish")
        terminal.type("\x11")  # ctrl+q
        terminal.exit_code()
    with Terminal(command, columns=120, rows=40, SPEC_TUI_DATA_DIR=str(tmp_path)) as terminal:
        race_screen(terminal)
        terminal.wait_for("enter starts")
        terminal.type("h")
        terminal.wait_for("enter shows it")
        terminal.type("\r")
        terminal.wait_for("HISTORY, kept from today")


@pytest.mark.thorough
def test_another_model_goes_on_with_the_conversation(tmp_path):
    """The models screen in a real terminal: a local folder is chosen, and the next answer knows the earlier one."""
    import shutil

    from engines.folders import sample_model

    folder = tmp_path / "mine"
    shutil.copytree(sample_model("draft"), folder)
    with Terminal([*APPLICATION, "--model", str(sample_model("target"))], columns=120, rows=40,
                  SPEC_TUI_DATA_DIR=str(tmp_path / "data")) as terminal:
        terminal.wait_for("ready")
        send(terminal, "Count from 1 to 5.")
        terminal.wait_for(finished)
        terminal.type("\x0c")  # ctrl+l
        terminal.wait_for("target model")
        terminal.type("\t")
        time.sleep(1)  # the focus is not seen on the screen
        terminal.type(str(folder))
        terminal.wait_for("mine")
        terminal.type("\r")

        def loaded(screen: str) -> bool:
            return "/mine · 1.6" in screen and "ready" in screen

        terminal.wait_for(lambda screen: "enter again downloads it" in screen or loaded(screen))
        if not loaded(terminal.text):  # the folder was not looked at yet when enter was pressed
            terminal.type("\r")
        terminal.wait_for(loaded)
        assert "Count from 1 to 5." in terminal.text and "1 turn in this conversation" in terminal.text
        send(terminal, "And on to 8?")
        terminal.wait_for("2 turns in this conversation")
