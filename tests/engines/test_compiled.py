"""Compiled layers compute what the lean forward computes, are kept, and engines stay lossless on them."""

from __future__ import annotations

import copy
from functools import cache, partial

import pytest
import torch

from engines import Request
from engines.model import compiled_layers
from engines.model.causal_model import CausalModel
from engines.model.compiled_layers import CompiledForward
from engines.model.feature_request import FeatureRequest
from engines.model.lean_forward import LeanForward
from engines.model.loading import wrap
from engines.model.quantise import quantise
from engines.model.weight_layouts import fuse, lay_out
from engines.report.answer import Answer
from engines.runtime import Runtime
from tests.conftest import TURN, make_llama, make_tokenizer
from tests.engines.families import make
from tests.engines.test_lean import FAMILIES, TEXT, TREE, same
from tests.engines.toys import HIDDEN, MEASURED


def uncompiled(self, part, progress):
    """A program that is not compiled: the function of tensors itself."""
    return lambda given: [part(*given[:6], given[6:])]


def programs(forward: CompiledForward) -> tuple[int, int]:
    """Layers that have a program for one row, and for several."""
    return tuple(sum(part.program is not None for part in forward.parts[several]) for several in (False, True))


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(CompiledForward, "_program", uncompiled)


def pair(model, layout="transposed") -> tuple[CausalModel, CausalModel]:
    fuse(model)
    if layout == "int4":
        quantise(model, "int4")
    else:
        lay_out(model, layout)
    return (CausalModel(model, "compiled", layout="plain", compute=CompiledForward(model)),
            CausalModel(model, "lean", layout="plain", compute=LeanForward(model)))


def compare(ours: CausalModel, theirs: CausalModel, same=same) -> None:
    """One row, several, a tree, a prompt, rows that are kept, and hidden states after layers."""
    for model in (ours, theirs):
        model.features.request(HIDDEN)
        model.truncate(0)
    same(ours.extend(TEXT[:20]), theirs.extend(TEXT[:20]))
    for tokens, parents in (TREE, ([3], [-1]), ([3, 4, 5], [-1, 0, 0])):
        same(ours.forward(tokens, parents), theirs.forward(tokens, parents))
        for tap in HIDDEN.latest | HIDDEN.history:
            same(ours.features.latest(tap), theirs.features.latest(tap))
        for model in (ours, theirs):
            model.drop()
    for model in (ours, theirs):
        model.forward(*TREE)
        model.keep([0, 2, 5])
    same(ours.forward([5], [-1]), theirs.forward([5], [-1]))


@pytest.mark.parametrize("name", FAMILIES)
def test_the_layers_of_every_family_are_a_function_of_their_tensors(name, quick):
    ours, theirs = pair(make(*FAMILIES[name]))
    assert ours.compute.name == "lean, compiled" and not ours.compute.remark
    compare(ours, theirs)


@pytest.mark.parametrize("layout, one, several", [("both", 1, 0), ("transposed", 1, 1), ("int4", 1, 1)])
def test_which_layouts_have_programs(layout, one, several, quick):
    model = make_llama(3, hidden=64, layers=3)
    ours, theirs = pair(model, layout)
    assert programs(ours.compute) == (3 * one, 3 * several)
    compare(ours, theirs)


def test_sublayers_that_are_observed_or_left_out_run_as_they_do_without(quick):
    ours, theirs = pair(make_llama(4, hidden=64, layers=4))
    for model in (ours, theirs):
        model.features.request(MEASURED)
        model.extend(TEXT[:12])
        model.forward([7], [-1])
    for tap in MEASURED.latest | MEASURED.history:
        same(ours.features.latest(tap), theirs.features.latest(tap))
    for model in (ours, theirs):
        model.drop()
        model.features.request(FeatureRequest())
    with ours.skipping(frozenset({1}), frozenset({2})), theirs.skipping(frozenset({1}), frozenset({2})):
        same(ours.forward([7], [-1]), theirs.forward([7], [-1]))


def test_what_is_not_compiled_says_why(monkeypatch):
    def broken(*args):
        raise RuntimeError("no C++ compiler was found")

    monkeypatch.setattr(compiled_layers, "_compile", broken)
    model = make_llama(5, hidden=64)
    fuse(model)
    lay_out(model, "transposed")
    forward = CompiledForward(model)
    assert forward.name == "lean" and "no C++ compiler was found" in forward.remark
    packed = make_llama(5, hidden=64)
    fuse(packed)
    assert "in a way that torch can compile" in CompiledForward(packed).remark
    half = wrap(make_llama(5, hidden=64).bfloat16(), "half", threads=1, compile=True)
    assert any("in half precision" in remark for remark in half.remarks)
    other = wrap(make("gpt2", {}), "other", threads=1, compile=True)
    assert any("Llama-like models on the CPU" in remark for remark in other.remarks)


@cache
def compiler() -> str:
    """Why nothing can be compiled here, "" where it can."""
    try:
        from torch._inductor.cpp_builder import get_cpp_compiler

        get_cpp_compiler()
    except Exception as error:  # the compiler's own kinds
        return str(error)
    return ""


@pytest.fixture(scope="module")
def loaded():
    """A quantised model with biases, compiled for real, and the stages that were told."""
    if compiler():
        pytest.skip(compiler())
    model = make_llama(6, hidden=64, layers=3, attention_bias=True)
    quantising = partial(quantise, choice="int4")
    lean = wrap(copy.deepcopy(model), "lean", threads=1, quantising=quantising)
    told: list = []
    ours = wrap(model, "compiled", threads=1, progress=told.append, quantising=quantising, compile=True)
    stages = [event.stage for event in told]
    assert [event.done for event in told] == sorted(event.done for event in told)
    return ours, lean, stages


def close(ours, theirs):
    """As bfloat16 rounds: in a product of several rows the last bit before it may be another."""
    torch.testing.assert_close(ours, theirs, atol=0.05 * float(theirs.abs().max()), rtol=0)


@pytest.mark.timeout(600)  # two runs of a C++ compiler
def test_compiled_for_real(loaded):
    ours, lean, stages = loaded
    assert not ours.compute.remark and ours.backend.startswith("lean, compiled"), ours.remarks
    assert sum("compiling" in stage for stage in stages) == 2
    compare(ours, lean, close)
    ours.truncate(0), lean.truncate(0)
    ours.extend(TEXT[:9]), lean.extend(TEXT[:9])
    close(ours.forward([3], [-1]), lean.forward([3], [-1]))


def test_a_program_that_is_loaded_leaves_no_files(loaded, monkeypatch, tmp_path):
    """A process that is killed cannot remove them."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    kept = compiled_layers.measured_file("programs", []).parent
    before = sorted(kept.iterdir())
    assert programs(CompiledForward(loaded[0].model)) == (3, 3)
    assert sorted(kept.iterdir()) == before and not list(tmp_path.iterdir())


def test_programs_are_kept_and_damaged_ones_made_anew(loaded, monkeypatch):
    ours, _, _ = loaded
    told = []
    again = CompiledForward(ours.model, told.append)
    assert not told and programs(again) == (3, 3)
    made = []

    def copied(part, file):
        made.append(part.several)
        file.write_bytes(kept[file])

    kept = {file: file.read_bytes() for file in compiled_layers.measured_file("programs", []).parent.glob("*.pt2")}
    monkeypatch.setattr(compiled_layers, "_compile", copied)
    for file in kept:
        file.write_bytes(b"no program")
    assert not CompiledForward(ours.model).remark and made == [False, True]


@pytest.mark.parametrize("engine, options", [
    ("pld", {}), ("recycling", {}), ("admg", {}), ("draft-verify", {"layers": "a1,m2"}),
])
def test_engines_are_lossless_on_compiled_layers(loaded, engine, options):
    ours, _, _ = loaded
    ours.truncate(0)
    runtime = Runtime(ours, make_tokenizer())
    texts = {}
    for name, given in (("autoregressive", {}), (engine, options)):
        answer = Answer.from_events(list(runtime.run(
            Request(TURN, engine=name, options=given, max_new_tokens=40, raw=True))))
        texts[name] = answer.tokens
        assert runtime.audit(answer).verdict in ("identical", "tie")
    assert texts["autoregressive"] == texts[engine]


def test_strict_engines_write_the_same_from_the_same_logits(loaded):
    model = make_llama(6, hidden=64, layers=3, attention_bias=True)
    strict = wrap(model, "strict", threads=1, strict=True, quantising=partial(quantise, choice="int4"), compile=True)
    assert strict.backend.startswith("lean") and "compiled" not in strict.backend
    assert any("its layers are not compiled: strict mode" in remark for remark in strict.remarks)
    runtime, found = Runtime(strict, make_tokenizer()), []
    for engine in ("autoregressive", "pld", "recycling"):
        events = list(runtime.run(Request(TURN, engine=engine, max_new_tokens=20, raw=True)))
        found.append([(one.token, one.prob) for event in events[2:-1] for one in event.emitted])
    assert found[0] == found[1] == found[2] and len(found[0]) > 15
