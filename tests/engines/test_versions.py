"""Versions of other libraries: what is said of one that was not tested, and both names of a forward's cache."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from engines.errors import LibraryProblem, ModelUnavailable
from engines.libraries import hf, versions
from engines.model.load_options import LoadOptions
from engines.model.loading import wrap
from engines.model.selftest import unfit
from tests.conftest import make_llama


@pytest.fixture
def transformers_is(monkeypatch):
    """Pretend that a version of transformers is installed."""
    def pretend(version: str | None) -> None:
        known = versions.installed
        monkeypatch.setattr(versions, "installed", lambda name: version if name == "transformers" else known(name))

    return pretend


def test_what_runs_the_tests_was_tested():
    assert not versions.untested() and not versions.advice() and not versions.unsatisfied()


def test_a_newer_version_is_named_and_so_is_the_command_that_helps(transformers_is):
    transformers_is("5.99.1")
    said, = versions.untested()
    assert said == "transformers 5.99.1 is installed; spec-tui was tested with 5.20.0 to 5.24.0"
    assert versions.advice() == "install a tested version: pip install 'transformers>=5.20.0,<=5.24.0'"


def test_an_older_version_is_refused_before_anything_is_loaded(transformers_is):
    transformers_is("5.19.0")
    with pytest.raises(LibraryProblem, match=r"transformers 5.19.0 is installed") as caught:
        versions.check("transformers")
    assert "pip install" in caught.value.hint


def test_a_missing_requirement_is_named(transformers_is):
    transformers_is(None)
    assert "transformers is not installed, spec-tui needs <6,>=5.20" in versions.unsatisfied()


_BROKEN = """
import sys, types
sys.modules["transformers"] = types.ModuleType("transformers")
from spec_tui.cli import call
sys.exit(call(["run", "Hello", "--model", "sample"]))
"""


def test_a_version_that_lacks_what_is_used_is_one_line_and_no_trace():
    done = subprocess.run([sys.executable, "-c", _BROKEN], capture_output=True, text=True)
    assert done.returncode == LibraryProblem.exit_code
    assert "Traceback" not in done.stderr and "this is a bug" not in done.stderr
    assert "spec-tui was tested with 5.20.0 to 5.24.0; this one fails: cannot import name" in done.stderr


def test_python_without_docstrings_is_refused_with_what_helps():
    command = [sys.executable, "-OO", "-m", "spec_tui", "run", "Hello", "--model", "sample"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == LibraryProblem.exit_code and "start Python without -OO" in done.stderr
    assert "Traceback" not in done.stderr and "this is a bug" not in done.stderr


@pytest.mark.parametrize("name", ["cache", "past_key_values"])
def test_a_forward_takes_its_cache_by_either_name(name):
    model, seen = make_llama(1), {}
    plain = model.forward

    def older(input_ids, position_ids=None, past_key_values=None, use_cache=None, logits_to_keep=0):
        seen["cache"] = past_key_values
        return plain(input_ids, position_ids=position_ids, use_cache=use_cache)

    def newer(input_ids, position_ids=None, cache=None, use_cache=None, logits_to_keep=0):
        return older(input_ids, position_ids, cache, use_cache)

    model.forward = {"cache": newer, "past_key_values": older}[name]
    cache = hf.growing_cache()
    hf.ForwardCall(model)(torch.tensor([[1, 2, 3]]), cache)
    assert seen["cache"] is cache


def test_a_class_without_a_cache_is_unfit_and_one_with_either_name_is_not():
    def forward(self, input_ids):
        """Takes no cache."""

    config = make_llama(1).config
    assert "no keys and values" in unfit(type("None", (), {"forward": forward}), config)
    for name in ("cache", "past_key_values"):
        namespace = {}
        exec(f"def forward(self, input_ids, {name}=None): ...", namespace)
        assert unfit(type("Some", (), {"forward": namespace["forward"]}), config) is None


def test_a_model_that_fails_under_an_untested_version_is_not_called_unfit(transformers_is):
    model = make_llama(1)
    model.forward = lambda *args, **kwargs: 1 / 0
    transformers_is("5.99.1")
    with pytest.raises(ModelUnavailable, match=r"transformers 5.99.1 is installed") as caught:
        wrap(model, "mine", LoadOptions(native=False))
    assert caught.value.hint == "install a tested version: pip install 'transformers>=5.20.0,<=5.24.0'"
