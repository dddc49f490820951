"""Rules of the house: what may import what, what loads when, how long a file may be."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted([*(ROOT / "engines").rglob("*.py"), *(ROOT / "spec_tui").rglob("*.py")])
LONGEST = 350


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported(path: Path) -> set[str]:
    """Top-level names of everything a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(path)}: imports are absolute"
            found.add((node.module or "").partition(".")[0])
    return found


@pytest.mark.parametrize("path", [p for p in SOURCES if name(p).startswith("engines")], ids=name)
def test_engines_know_nothing_of_terminals(path):
    assert not imported(path) & {"spec_tui", "textual", "rich", "typer", "click"}


@pytest.mark.parametrize("path", [p for p in SOURCES if name(p).startswith("spec_tui")], ids=name)
def test_the_terminal_leaves_torch_to_the_engines(path):
    assert not imported(path) & {"torch", "transformers", "tokenizers", "safetensors"}


@pytest.mark.parametrize(
    "module, forbidden",
    [
        ("engines", "torch transformers numpy rich textual typer spec_tui"),
        ("engines.methods.registry as r; r.specs()", "torch transformers optuna rich textual typer spec_tui"),
        ("spec_tui", "torch transformers rich textual typer"),
        ("spec_tui.cli", "torch transformers textual rich"),
        ("spec_tui.cli.commands", "torch transformers optuna textual rich"),
        ("spec_tui.session.process", "torch transformers textual rich typer"),
        ("spec_tui.session.worker", "torch transformers textual rich typer"),
        ("spec_tui.tui.app", "torch transformers"),
        (
            "spec_tui.tui.replay_app, spec_tui.tui.learn_app, spec_tui.export.formats",
            "torch transformers huggingface_hub",
        ),
    ],
)
def test_imports_are_cheap(module, forbidden):
    program = f"import sys; import {module}\nassert not (found := set({forbidden.split()}) & set(sys.modules)), found"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_files_fit_in_a_head(path):
    assert len(path.read_text("utf-8").splitlines()) <= LONGEST


CALLS = {"eval", "exec", "compile", "__import__"}
MODULES = {"pickle", "dill", "joblib", "shelve", "marshal", "requests", "urllib3", "aiohttp"}


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_nothing_is_unpickled_evaluated_or_sent(path):
    assert not imported(path) & MODULES
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            called = node.func
            assert not (isinstance(called, ast.Name) and called.id in CALLS)
            for keyword in node.keywords:
                assert keyword.arg not in ("trust_remote_code", "shell", "weights_only") or harmless(keyword)


def harmless(keyword: ast.keyword) -> bool:
    """Off, or handed on as the user said it (whose defaults are off)."""
    if isinstance(keyword.value, ast.Constant):
        return keyword.value.value is (keyword.arg == "weights_only")
    return isinstance(keyword.value, ast.Name | ast.Attribute) and keyword.arg == "trust_remote_code" == getattr(
        keyword.value, "attr", getattr(keyword.value, "id", None)
    )


def test_nothing_is_trusted_unless_the_user_says_so():
    from engines.hub.model_files import TrustPolicy
    from spec_tui.session.client import LoadRequest

    for unsaid in (TrustPolicy(), LoadRequest()):
        assert (unsaid.allow_pickle, unsaid.trust_remote_code) == (False, False)


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_every_file_says_what_it_is_for(path):
    source = path.read_text("utf-8")
    assert not source.strip() or path.name == "__main__.py" or ast.get_docstring(ast.parse(source))
