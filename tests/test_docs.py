"""What the documents say is true of the program."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from engines import methods

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import build_site  # noqa: E402

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def code(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_have_the_options_that_are_shown(page):
    from typer.main import get_command

    from spec_tui.cli.commands import app

    group = get_command(app)
    for block in code(page, "sh"):
        for line in block.splitlines():
            words = line.partition("spec-tui ")[2].partition("#")[0]
            if not words:
                continue
            command = group
            for word in words.split():
                if word.startswith("-") or not getattr(command, "commands", None):
                    break
                command = command.commands[word]
            known = {option for parameter in command.params for option in parameter.opts}
            assert set(re.findall(r"--[a-z-]+", words)) <= known, line


def test_make_has_the_targets_that_are_shown():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"(?:^|`)make ([a-z]+)", (ROOT / "README.md").read_text(), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_site_leads_to_every_page_and_method():
    site = build_site.site_config()
    pages = [page.relative_to(ROOT).as_posix() for page in PAGES if page.name != "README.md"]
    assert all(f'"{page}"' in site for page in pages)
    assert re.findall(r'"methods/([^"]+)\.md"', site) == [spec.id for spec in build_site.own_methods()]


def test_a_methods_page_has_a_run_what_was_measured_and_what_was_published():
    page = build_site.method_page(methods.find("pld"), "smollm2-pld")
    assert 'src="../runs/smollm2-pld.html"' in page and "| num_tokens |" in page
    own = page.partition("## Measured on smollm2")[2].partition("## What papers report")
    assert own[0].count("\n| pld |") >= 3 and "| x generate" in own[0]
    assert "speed-up 1.49" in own[2] and "Qwen2.5 14B | HumanEval | greedy" in own[2]


def test_the_readme_has_the_table_of_the_engines():
    assert build_site.engines_table() in (ROOT / "README.md").read_text(), "make docs writes it"


def test_the_library_is_used_as_the_readme_shows(tiny, monkeypatch, capsys):
    import engines

    monkeypatch.setattr(engines, "load", lambda: tiny)
    (block,) = code(ROOT / "README.md", "python")
    exec(compile(block, "README.md", "exec"), {})
    assert "'new_tokens':" in (said := capsys.readouterr().out) and "identical" in said
