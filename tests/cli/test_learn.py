"""``spec-tui learn`` from the outside: plain lists and texts, no torch."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from engines.errors import UsageProblem
from spec_tui.cli.learn import learn
from spec_tui.export.handout import handout
from spec_tui.learn.lesson import along, find, names
from spec_tui.learn.lesson_progress import LessonProgress


def spec_tui(*arguments: str, given: str = "") -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "spec_tui", *arguments], input=given, capture_output=True, text=True,
                          timeout=120)


def test_lists_and_tells_without_a_terminal():
    listed = spec_tui("learn")
    assert listed.returncode == 0 and [
        line.split()[1] for line in listed.stdout.splitlines() if line[:2].strip()] == list(names())
    told = spec_tui("learn", "chance", "--format", "text")
    assert told.returncode == 0 and all(page.title in told.stdout for page in find("chance").pages)
    assert "\x1b" not in told.stdout and "\nAnswers\n" in told.stdout


def test_a_handout_is_one_page_with_pictures_and_no_script(tmp_path):
    taken = [LessonProgress.of(lesson) for lesson in (find("chance"), along(15))]
    page = handout("Two <lessons>", taken, notes=True)
    assert page.count("<pre>") == sum(progress.length for progress in taken) and "<script" not in page
    assert "Two &lt;lessons&gt;" in page and "<aside>" in page
    linked = re.sub(r'<a href="https://[^"]*">', "", page)
    assert linked != page and "http" not in linked.replace("http-equiv", ""), "only sources are linked"
    assert "residual" in page and "<aside>" not in handout("", taken[:1])
    assert page.index("<h1>Answers</h1>") > page.rindex("<pre>")
    assert f"<h1 id=\"chance\">Lesson 4: {find('chance').title}</h1>" in page and page.count("Answer ") > 4
    struck = set(re.findall(r'<span class="s-ghost">([^<]*)</span>', page))
    assert struck and all(word == word.strip() and word[0] in "‹r" for word in struck), "a line is only through words"
    file = tmp_path / "lessons.html"
    assert learn(["export", "draft"], output=str(file)) == 0
    with pytest.raises(UsageProblem, match="exists"):
        learn(["export", "draft"], output=str(file))
    assert learn(["export", "greedy"], output=str(file), force=True) == 0
    with pytest.raises(UsageProblem, match="a path has its own lessons"):
        learn(["draft"], path=15)
    assert file.read_text().startswith("<!doctype html>")


def test_refusals_say_what_to_do():
    unknown, pipe = spec_tui("learn", "everything"), spec_tui("learn", "the", "exact", "law")  # found, but no terminal
    assert unknown.returncode == pipe.returncode == 2
    assert "the lessons are: forward" in unknown.stderr and "--format text" in pipe.stderr


def test_a_lesson_loads_no_torch():
    program = ("import sys; from spec_tui.cli import main\n"
               "sys.argv = ['spec-tui', 'learn', 'rest', '--format', 'text']\n"
               "try: main()\nexcept SystemExit: pass\n"
               "import spec_tui.tui.recorded, spec_tui.tui.screens.lessons\n"
               "assert not set(sys.modules) & {'torch', 'transformers', 'huggingface_hub'}")
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
