"""A model is tested once on a machine, and again where anything that the test depends on has changed."""

from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from engines.errors import ModelUnavailable
from engines.libraries import hf
from engines.model import lean_forward, selftest
from engines.model.loading import wrap
from tests.conftest import ONE, make_llama


@pytest.fixture
def tested(monkeypatch, tmp_path):
    """The names of the models that were tested."""
    names, test = [], selftest.selftest

    def spy(model):
        names.append(model.name)
        return test(model)

    monkeypatch.setenv("SPEC_TUI_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(selftest, "selftest", spy)
    return names


def test_the_same_model_is_tested_once(tested):
    for name in ("first", "again"):
        assert wrap(make_llama(3), name).trees
    assert tested == ["first"]


@pytest.mark.parametrize("change", [
    lambda model: model.model.layers[1].mlp.up_proj.weight.data.mul_(1.01),
    lambda model: setattr(model.config, "max_position_embeddings", 77),
], ids=["weights", "configuration"])  # fmt: skip
def test_another_is_tested(tested, change):
    wrap(make_llama(3), "one", ONE)
    other = make_llama(3)
    change(other)
    wrap(other, "other", ONE)
    assert tested == ["one", "other"]


def test_changed_code_and_other_threads_are_tested(tested, monkeypatch):
    wrap(make_llama(3), "one", ONE)
    monkeypatch.setattr(selftest, "code_digest", lambda: "another")
    wrap(make_llama(3), "changed", ONE)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    wrap(make_llama(3), "threads", ONE)
    assert tested == ["one", "changed", "threads"]


@pytest.mark.parametrize("module", [hf, lean_forward])
def test_all_code_that_computes_models_counts(module, monkeypatch):
    file, read, before = Path(module.__file__), Path.read_bytes, selftest.code_digest()
    monkeypatch.setattr(Path, "read_bytes", lambda self: read(self) + (b"# changed" if self == file else b""))
    assert selftest.code_digest.__wrapped__() != before


def test_code_that_came_with_a_model_is_tested_each_time(tested):
    class Own(LlamaForCausalLM):
        """Of a file that may be another one the next time."""

    for _ in range(2):
        model = make_llama(3)
        model.__class__ = Own
        wrap(model, "own", ONE)
    assert tested.count("own") >= 2


def test_what_fails_is_tested_again(tested, monkeypatch):
    def forward(self, input_ids=None, past_key_values=None, **settings):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(LlamaForCausalLM, "forward", forward)
    for _ in range(2):
        with pytest.raises(ModelUnavailable, match="division"):
            wrap(make_llama(3), "broken", ONE)
    assert set(tested) == {"broken"} and len(tested) % 2 == 0


def test_what_was_kept_is_of_no_use_where_it_cannot_be_written(tested, monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("SPEC_TUI_CACHE_DIR", str(file / "below"))
    for _ in range(2):
        assert wrap(make_llama(3), "model", ONE).trees
    assert tested == ["model", "model"]
