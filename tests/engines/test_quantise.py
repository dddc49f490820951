"""Quantised linear layers: which become so, in how many bits, and what is said of it (products: ``test_native``)."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
import torch

from engines import Request, load
from engines.errors import UsageProblem
from engines.folders import sample_model
from engines.hub.model_source import locate
from engines.model import quantise
from engines.model.description import describe
from engines.model.loading import load_model, read_model, resolve_quantisation, wrap
from engines.model.native.native_check import unavailable
from engines.model.native.native_linear import GROUP, NativeLinear, native_layers, weight_bytes
from engines.model.native.weight_grid import quantised
from engines.report.answer import Answer
from engines.runtime import Runtime
from tests.conftest import ONE, SMOLLM2, TURN, make_llama, make_tokenizer
from tests.heads import make_head
from tests.sources.gguf_files import Tiny
from tests.tiers import some

CPU = torch.device("cpu")
ULP = 2.0**-8  # of bfloat16

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=f"no native code here: {unavailable()}")


@pytest.mark.parametrize("bits, share", [(4, 0.5), (8, 0.5)])
def test_no_number_is_further_from_its_weight_than_half_a_step(bits, share):
    weight = torch.randn(48, 128)
    weight[3] = 0
    found, groups = NativeLinear(torch.nn.Linear(128, 48), [quantised(weight, bits)]).weight, weight.view(48, -1, GROUP)
    step = (groups.amax(-1) - groups.amin(-1)) / 15 if bits == 4 else groups.abs().amax(-1) / 127
    error = (found - weight).abs().view(48, -1, GROUP)
    assert (error.amax(-1) <= share * step + ULP * groups.abs().amax(-1)).all()  # the second is rounding of the scale
    assert not found[3].any()


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3", "phi3"])
def test_a_file_s_own_numbers_are_multiplied_in_every_family(family, tmp_path):
    path = str(Tiny(family, "Q4_1").write(tmp_path / "m.gguf"))
    ours = load_model(path, ONE)
    plain = read_model(locate(path), torch.float32, CPU)
    assert ours.quantised.startswith("linear layers: ") and "Q4_1" in ours.backend
    text = list(range(5, 40))
    with torch.inference_mode():
        expected = plain.eval()(torch.tensor([text])).logits[0]
    ours.truncate(0)
    error = ours.forward(text, list(range(-1, len(text) - 1))).float() - expected
    assert error.square().mean().sqrt() < 0.03 * expected.std()


@functools.cache
def tiny(choice: str) -> Runtime:
    """As the other dtypes are tested, with every linear layer quantised."""
    quantising = partial(quantise.quantise, choice=choice)
    return Runtime.measured(wrap(make_llama(1, layers=3), "tiny-target", ONE, quantising=quantising), make_tokenizer())


def events_of(runtime: Runtime, engine: str, options: dict, turn=TURN, **kw) -> list:
    return list(runtime.run(Request(turn, engine, options, top_p=0.95, seed=3, **kw)))


def test_a_quantised_head_says_nearly_what_it_said(monkeypatch):
    target = tiny("int4").target
    target.features.request(make_head(target).request)
    target.truncate(0)
    target.extend(list(range(5, 25)))
    ours = make_head(target, draft_tokens=192, mlp=64)
    monkeypatch.setattr(target, "quantised", "")
    monkeypatch.setattr(target, "native", False)
    plain = make_head(target, draft_tokens=192, mlp=64)
    assert ours.weight_bytes < plain.weight_bytes / 2 and not plain.quantised
    rows = [[head.after(list(range(5, 26))), head.step(7)] for head in (ours, plain)]
    found, expected = (torch.stack(each) for each in rows)
    assert (found - expected).square().mean().sqrt() < 0.2 * expected.std()


def test_an_answer_of_other_weights_is_no_bug_of_these(tiny):
    answer = Answer.from_events(events_of(tiny, "pld", {}))
    other = replace(answer, dtype=f"{answer.dtype}, int8 weights")
    with pytest.raises(UsageProblem, match="written by tiny-target in float32, int8 weights"):
        tiny.audit(other)


def test_what_is_rounded_beside_quantised_layers_is_said_apart():
    half = load_model(str(sample_model("target")), replace(ONE, dtype="bfloat16", quantize="int4"))
    assert half.precision == "float32, int4 weights, products of 8-bit inputs, other weights in bfloat16"


@pytest.mark.parametrize("choice", some(["int4", "int8"], lambda choice: choice == "int4"))
def test_the_sample_pair(choice):
    pair = load(quantize=choice, draft_quantize="int4", threads=1)
    assert pair.draft.weights == "int4 weights, products of 8-bit inputs"
    assert pair.ready.dtype == f"float32, {choice} weights, products of 8-bit inputs"
    assert not load("sample", quantize=choice, arithmetic="float32", threads=1).target.rounds
    layers = [layer for layer in native_layers(pair.target.model) if layer.words.startswith("Q")]
    numbers = sum(layer.in_features * layer.out_features for layer in layers)
    held = sum(layer.nbytes for layer in layers)
    assert numbers > 8_000_000 and held < (1.0 if choice == "int4" else 1.1) * numbers
    assert pair.target.weight_bytes > held
    for engine in ("autoregressive", "draft", "pld"):
        answer = Answer.from_events(events_of(pair, engine, {}, max_new_tokens=40))
        assert pair.audit(answer).verdict in ("identical", "tie"), engine


@torch.inference_mode()
def test_an_audit_multiplies_once_for_the_slices_of_a_layer(monkeypatch):
    runtime, calls = tiny("int4"), Counter()
    answer = Answer.from_events(events_of(runtime, "pld", {}, max_new_tokens=12))
    forward = NativeLinear.forward
    monkeypatch.setattr(NativeLinear, "forward", lambda self, x: calls.update([self]) or forward(self, x))
    assert runtime.audit(answer).verdict in ("identical", "tie")
    assert len(calls) == 13 and len(set(calls.values())) == 1  # four products a layer and the head, each as often
    assert not any("part" in vars(layer) for layer in native_layers(runtime.target.model)), "as it was"


def test_a_layer_lies_in_memory_once():
    model = make_llama(1, layers=2)
    before = weight_bytes(model)
    counts = quantise.quantise(model, "int4")
    layers = native_layers(model)
    assert counts == {"Q4_1": len(layers) - 1, "Q8_0": 1}
    numbers = {bits: sum(layer.in_features * -(-layer.out_features // 32) * 32 for layer in layers
                         if layer.words.startswith(f"Q{bits}")) for bits in (4, 8)}
    held = sum(bits * count // 8 + count // GROUP * (4 if bits == 4 else 2) for bits, count in numbers.items())
    replaced = sum(4 * layer.in_features * layer.out_features for layer in layers)
    assert before - weight_bytes(model) == replaced - held


def test_layers_of_other_sizes_stay_and_it_is_said():
    model = wrap(make_llama(1, hidden=48), "m", ONE, quantising=partial(quantise.quantise, choice="int4"))
    assert "1 Q8_0" not in model.quantised
    (remark,) = [words for words in model.remarks if "are not quantised" in words]
    assert remark.startswith("m: ") and "of another size" in remark


def test_which_quantisation_a_model_gets(tmp_path):
    grid = locate(str(Tiny("llama", "Q4_0").write(tmp_path / "grid.gguf")))
    other = locate(str(Tiny("llama", "F16").write(tmp_path / "other.gguf")))
    assert resolve_quantisation(grid, "auto", True) == ("auto", "")
    assert resolve_quantisation(other, "auto", True) == ("none", "")
    assert resolve_quantisation(other, "int8", True) == ("int8", "")
    for native in (False, True):
        assert resolve_quantisation(grid, "none", native) == ("none", "")
    assert resolve_quantisation(grid, "auto", False) == ("none", "")
    choice, said = resolve_quantisation(grid, "int4", False)
    assert choice == "none" and "native code" in said
    with pytest.raises(UsageProblem, match="--quantize 'int3' is unknown"):
        load(quantize="int3")


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_a_real_model_as_its_file_holds_it():
    if not SMOLLM2.is_file():
        pytest.skip("smollm2 is not on this machine: spec-tui model get smollm2 fetches it")
    runtime = load(str(SMOLLM2), threads=1, arithmetic="float32")
    assert runtime.target.quantised == "linear layers: 120 Q4_1, 1 Q8_0"
    said = next(m.weights for m in describe(str(SMOLLM2)).memory if m.quantize == "auto")
    assert said == runtime.target.weight_bytes == pytest.approx(SMOLLM2.stat().st_size, rel=0.02)
    question = (("user", "What is the capital of France?"),)
    for engine, options in (("autoregressive", {}), ("pld", {})):
        events = events_of(runtime, engine, options, question, max_new_tokens=24)
        assert "Paris" in events[-1].text
        assert runtime.audit(Answer.from_events(events)).verdict in ("identical", "tie"), engine
