"""``spec-tui learn`` from the outside: plain lists and texts, no torch, and live runs."""

from __future__ import annotations

import subprocess
import sys

from spec_tui.learn.lesson import find, names


def spec_tui(*arguments: str, given: str = "") -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "spec_tui", *arguments], input=given, capture_output=True, text=True,
                          timeout=120)


def test_lists_and_tells_without_a_terminal():
    listed = spec_tui("learn")
    assert listed.returncode == 0 and [line.split()[1] for line in listed.stdout.splitlines()] == list(names())
    told = spec_tui("learn", "laws", "--format", "text")
    assert told.returncode == 0 and all(page.title in told.stdout for page in find("laws").pages)
    assert "\x1b" not in told.stdout and "Answer: " in told.stdout


def test_refusals_say_what_to_do():
    unknown, pipe = spec_tui("learn", "everything"), spec_tui("learn", "rest")
    assert unknown.returncode == pipe.returncode == 2
    assert "the lessons are: forward" in unknown.stderr and "--format text" in pipe.stderr


def test_a_lesson_loads_no_torch():
    program = ("import sys; from spec_tui.cli import main\n"
               "sys.argv = ['spec-tui', 'learn', 'rest', '--format', 'text']\n"
               "try: main()\nexcept SystemExit: pass\n"
               "import spec_tui.tui.recorded, spec_tui.tui.screens.lessons\n"
               "assert not set(sys.modules) & {'torch', 'transformers', 'huggingface_hub'}")
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_live_runs_take_the_place_of_the_recorded_ones(sample, monkeypatch):
    import spec_tui.cli.run
    from spec_tui.cli.learn import _ran
    from spec_tui.learn.lesson import recorded
    from spec_tui.learn.walk import Walk

    monkeypatch.setattr(spec_tui.cli.run, "load_decoder", lambda load: sample)
    lesson = find("forward")
    sample.forget_acceptance()  # what other tests' drafts taught decides how much is drafted
    runs, shipped = _ran(lesson), recorded(lesson)
    assert {name: run.text for name, run in runs.items()} == {name: run.text for name, run in shipped.items()}
    assert all(run.audited is not None and run.rounds[0].verified for run in runs.values())
    assert runs["pld"].rounds[0].verify_seconds != shipped["pld"].rounds[0].verify_seconds
    walk = Walk(lesson, runs)
    # How much is drafted depends on what forward passes cost here; the question needs a draft that was right at first.
    corrected = [e for e in runs["pld"].rounds if e.path and e.emitted[-1].kind == "corrected"]
    assert len(walk.pages) >= 3 and walk.asking == bool(corrected)
