"""A method is added by its room alone: the steps of CONTRIBUTING.md, with the example of docs/adding-an-engine.md."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from engines import MethodSpec, Request, methods
from engines.methods.origins import OriginKind
from engines.methods.shared.explain import drafting
from engines.report.events import Round
from engines.report.run_state import RunState, fold_all
from engines.wire import read_trace
from spec_tui.export.page import page
from spec_tui.present import token_styles as marks
from spec_tui.tui.screens.help import help_text
from tests.cli.conftest import cli
from tests.engines import test_laws, test_lossless
from tests.test_docs import ROOT, build_site, code
from tests.tui.test_parts import tree_rows

__all__ = ["cli"]  # a fixture
NAME = "engines.methods.repeat"


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MethodSpec]:
    """The folder of the example, where the package of the methods looks for them."""
    example = next(block for block in code(ROOT / "docs" / "adding-an-engine.md", "python") if "SPEC =" in block)
    (tmp_path / "repeat").mkdir()
    (tmp_path / "repeat" / "__init__.py").write_text(example.replace("repeat_method", NAME))
    with monkeypatch.context() as patch:
        patch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
        methods._found.cache_clear()
        yield methods.known("repeat")
    methods._found.cache_clear()
    del sys.modules[NAME], methods.repeat


@pytest.fixture
def run(room, tiny) -> RunState:
    return fold_all(tiny.run(Request((("user", "aaaa"),), "repeat", {"budget": "paper"}, max_new_tokens=40)))


def test_the_command_line_and_the_help_have_it(room, cli):
    assert room in methods.specs()
    listed = cli("engines").out
    assert "repeat  Repeat" in listed and "Most tokens drafted." in listed
    assert "E echo" in str(help_text(400))


def test_its_origin_is_in_tree_legend_explanation_and_exported_page(run):
    assert run.rounds[0].draft.tokens and "E " in "\n".join(tree_rows(run.rounds[0]))
    assert marks.style_of(replace(run.tokens[-1], source="echo"), "source") == "by-echo"
    assert ("by-echo", "echo") in marks.legend({"by-echo"}, "source", [run])
    assert "4 from the echo" in drafting(run, run.rounds[0], deep=False)[0]
    assert ".by-echo{font-style:italic;color:var(--src-output)}" in page([run])


def test_the_tests_of_all_methods_have_it_and_it_passes(room, tiny):
    found = [options for engine, options in test_lossless.variants() if engine == "repeat"]
    assert found == [{}, {"budget": "paper"}] and test_laws.drafting()["repeat"] == ("repeat", {})
    for options in found:
        test_lossless.test_tiny_models(tiny, "repeat", options, temperature=0.8, seed=0)


def test_the_readmes_table_and_the_site_have_it(room):
    assert "| `repeat` | Repeat | Drafts the last token again and again. |" in build_site.engines_table()
    assert '{ "Repeat" = "methods/repeat.md" }' in build_site.site_config()
    assert "| num_tokens | Most tokens drafted. |" in build_site.method_page(room, None)


def test_without_it_its_origin_is_shown_by_name():
    """Of a recording: the name is untrusted."""
    kind = methods.origin_kind("\x1b]52;<b>echo")
    assert (kind.name, kind.letter) == ("unknown", "?") and "\x1b" not in kind.label and "<b>echo" in kind.label


@pytest.mark.parametrize("kinds", [
    (OriginKind("draft", "Z", "another"),), (OriginKind("another", "D", "another"),),
    (OriginKind("one", "Z", "one"), OriginKind("two", "Z", "two")),
])
def test_a_kind_of_origin_that_is_taken_is_refused(kinds, monkeypatch):
    spec = MethodSpec(id="x", title="X", summary="", source="", drafter="", origins=kinds)
    monkeypatch.setattr(EntryPoint, "load", lambda entry: spec)
    monkeypatch.setattr(methods, "entry_points", lambda group: [EntryPoint("x", "x:SPEC", group)])
    methods._found.cache_clear()
    try:
        assert methods.known("x") is None and "whose name or letter is taken" in methods.problems()[0]
    finally:
        monkeypatch.undo()
        methods._found.cache_clear()


def test_the_kinds_of_origin_can_be_told_apart():
    kinds = list(methods.origins().values())
    assert not any(kind.clashes(other) for kind in kinds for other in kinds)
    assert len({(kind.hue, kind.attributes) for kind in kinds}) == len(kinds)


@pytest.mark.parametrize("path", sorted((ROOT / "sample_traces").glob("*.jsonl")), ids=lambda path: path.stem)
def test_drafts_have_the_kinds_of_origin_that_their_methods_declare(path):
    for started, *events in read_trace(path).runs:
        kinds = {kind.name for kind in methods.find(started.engine).origins}
        assert {o.source for e in events if isinstance(e, Round) for o in e.draft.origins} <= kinds
