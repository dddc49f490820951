"""Quantised linear layers: what is multiplied is the unpacked weight, and engines stay lossless on it."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from engines import Request, load
from engines.errors import UsageProblem
from engines.hub import gguf_file
from engines.hub.model_source import locate
from engines.model import gguf_weights, quantise, quantised_linear
from engines.model.batch_invariant import ROWS
from engines.model.description import describe
from engines.model.loading import load_model, read_model, resolve_quantisation, wrap
from engines.model.quantised_linear import (
    GROUP,
    Int4Linear,
    Int8GroupsLinear,
    Int8RowsLinear,
    QuantisedLinear,
    WeightGrid,
    quantised,
    works,
)
from engines.model.weight_layouts import as_loaded, weight_bytes
from engines.report.answer import Answer
from engines.runtime import Runtime
from tests.conftest import SMOLLM2, TURN, add_datastores, make_llama, make_tokenizer
from tests.heads import make_head, make_medusa
from tests.sources.gguf_files import Tiny
from tests.tiers import some

CPU = torch.device("cpu")
KINDS = {"int4": Int4Linear, "int8 in groups": Int8GroupsLinear, "int8": Int8RowsLinear}
ULP = 2.0**-8  # of bfloat16
DRAFTS = [("pld", {}), ("rest", {"n_min": 1}), ("admg", {}), ("draft-verify", {"layers": "a2,m3"})]

pytestmark = pytest.mark.skipif(
    not all(works(kind, 64, 64) for kind in KINDS.values()), reason="this torch has no operations for quantised layers"
)


def made(words: str, inputs: int = 96, outputs: int = 80, bias: bool = True) -> tuple[nn.Module, torch.Tensor]:
    """A layer, and its weight unpacked by hand, float32 [out, in]."""
    torch.manual_seed(5)
    linear = nn.Linear(inputs, outputs, bias=bias, dtype=torch.bfloat16).requires_grad_(False)
    if words == "int8":
        layer = Int8RowsLinear(linear)
        return layer, layer.numbers.float() * layer.scales.float()[:, None]
    grid = quantised(linear.weight, 4 if words == "int4" else 8)
    return KINDS[words](linear, grid), grid.unpacked


@pytest.mark.parametrize("words", KINDS)
@pytest.mark.parametrize("rows", [1, 2, 5, 8, 40])
@torch.inference_mode()
def test_the_product_is_that_of_the_unpacked_weight(words, rows):
    layer, weight = made(words)
    x = torch.randn(rows, 96, dtype=torch.bfloat16)
    expected = x.float() @ weight.t() + layer.bias.float()
    assert (layer(x).float() - expected).abs().max() <= 2 * ULP * expected.abs().max()
    assert torch.equal(layer(x[None])[0], layer(x))
    assert torch.equal(layer.part(x, 16, 40), layer(x)[:, 16:40])
    for dtype in (torch.bfloat16, torch.float32):
        stream = torch.ones(rows, 80, dtype=dtype)
        total = layer.add(stream, x.to(dtype))
        assert total.dtype == dtype and torch.equal(total, stream + layer(x.to(dtype)))
    assert (layer.weight.float() - weight).abs().max() <= 2 * ULP * weight.abs().max()
    layer.bias = None
    assert torch.equal(layer.add(torch.ones(rows, 80), x.float()), 1 + layer(x.float()))
    whole = layer(x.float())
    assert whole.dtype == torch.float32 and torch.equal(whole.bfloat16(), layer(x))


@pytest.mark.parametrize("words", KINDS)
@torch.inference_mode()
def test_a_row_has_the_same_bits_among_any_number_of_rows(words):
    layer, _ = made(words, 256, 320)
    x = torch.randn(64, 256, dtype=torch.bfloat16)
    together = layer(x)
    for rows in (1, 2, 3, 4, 5, 7, 8, 16, 33):
        assert torch.equal(layer(x[:rows]), together[:rows]), rows
        assert torch.equal(layer(x[-rows:]), together[-rows:]), rows


@pytest.mark.parametrize("bits, share", [(4, 0.5), (8, 0.5)])
def test_no_number_is_further_from_its_weight_than_half_a_step(bits, share):
    weight = torch.randn(48, 128)
    weight[3] = 0
    grid = quantised(weight, bits)
    error = (grid.unpacked - weight).abs().view(48, -1, GROUP)
    rounding = ULP * weight.abs().view(48, -1, GROUP).amax(-1)  # of the scale
    assert (error.amax(-1) <= share * grid.scale + rounding).all()
    assert not grid.unpacked[3].any()


def test_the_sizes_that_the_operations_do_not_take_are_refused():
    for kind in KINDS.values():
        assert not works(kind, 100, 64) and not works(kind, 64, 100)


def unpacked_as_read(file: gguf_file.GgufFile, model) -> dict[str, torch.Tensor]:
    return gguf_weights.unpacked(file, model, torch.float32)


@pytest.mark.parametrize("kind", sorted(gguf_weights.GRID_KINDS))
def test_the_grid_of_a_file_is_the_file_s_own(kind, tmp_path):
    path = Tiny("llama", kind).write(tmp_path / "m.gguf")
    file, model = gguf_file.read(path), read_model(locate(str(path)), torch.float32, CPU)
    stored, expected = gguf_weights.StoredGrids(file, model), unpacked_as_read(file, model)
    names = [name.removesuffix(".weight") for name in expected if "proj" in name]
    assert len(names) == 14
    for name in [*names, "lm_head"]:  # the head is the embedding
        grid, weight = stored.grid(name), expected.get(f"{name}.weight", expected["model.embed_tokens.weight"])
        assert stored.kind(name) == kind and (grid.bits, grid.size) == (stored.form(name).bits, stored.form(name).size)
        assert torch.equal(grid.unpacked, weight), name
    assert stored.form("model.norm") is None


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3", "phi3"])
def test_a_file_s_own_numbers_are_multiplied_in_every_family(family, tmp_path):
    path = str(Tiny(family, "Q4_1").write(tmp_path / "m.gguf"))
    ours = load_model(path, torch.float32, CPU, 1, quantize="stored", native=False)
    plain = read_model(locate(path), torch.float32, CPU)
    assert ours.quantised.startswith("linear layers: ") and "int4" in ours.backend
    text = list(range(5, 40))
    with torch.inference_mode():
        expected = plain.eval()(torch.tensor([text])).logits[0]
    ours.truncate(0)
    error = ours.forward(text, list(range(-1, len(text) - 1))).float() - expected
    assert error.square().mean().sqrt() < 0.03 * expected.std()
    (remark,) = [words for words in ours.remarks if "are not quantised" in words]
    assert remark.startswith(f"{ours.name}: 1 of ")  # the head: 276 outputs are no multiple of 16


@functools.cache
def tiny(choice: str, strict: bool) -> Runtime:
    """As the other dtypes are tested, with every linear layer but the head quantised."""
    target = make_llama(1, layers=3)
    quantising = partial(quantise.quantise, choice=choice)
    runtime = Runtime(wrap(target, "tiny-target", 1, strict, quantising=quantising, native=False), make_tokenizer())
    add_datastores(f"quantised-{choice}{'-strict' * strict}", runtime)
    return runtime


def events_of(runtime: Runtime, engine: str, options: dict, turn=TURN, **kw) -> list:
    return list(runtime.run(Request(turn, engine, options, top_p=0.95, seed=3, **kw)))


def written(events: list) -> list[tuple]:
    """Tokens with their probabilities, each a sum over all logits of its row."""
    return [(one.token, one.prob) for event in events[2:-1] for one in event.emitted]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("choice", ["int4", "int8"])
def test_strict_engines_write_the_same_from_the_same_logits(choice, temperature):
    runtime = tiny(choice, True)
    assert runtime.target.rows == ROWS and choice in runtime.ready.backend
    alone = written(events_of(runtime, "autoregressive", {}, temperature=temperature, max_new_tokens=18))
    for engine, options in DRAFTS:
        found = events_of(runtime, engine, options, temperature=temperature, max_new_tokens=18)
        assert written(found) == alone, engine


@pytest.mark.parametrize("choice", ["int4", "int8"])
def test_every_engine_writes_what_the_audit_finds_to_be_the_model_s(choice):
    runtime = tiny(choice, False)
    for engine, options in [("autoregressive", {}), *DRAFTS]:
        answer = Answer.from_events(events_of(runtime, engine, options, max_new_tokens=40))
        assert runtime.audit(answer).verdict in ("identical", "tie"), engine


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_heads_of_a_quantised_target_are_quantised_too_and_change_no_text(temperature):
    target = tiny("int4", True).target
    head, medusa = make_head(target, draft_tokens=192, mlp=64), make_medusa(target, draft_tokens=192)
    assert (head.quantised, medusa.quantised) == ("8 int4", "1 int4") and "int4" in head.backend
    assert not getattr(head._network.fc, "quantised", False), "single channels of what it reads are too large"
    runtime = Runtime(target, make_tokenizer(), heads={one.shape.kind: one for one in (head, medusa)})
    alone = written(events_of(runtime, "autoregressive", {}, temperature=temperature, max_new_tokens=18))
    for engine, options in (("eagle", {"budget": "paper"}), ("eagle", {"shape": "tree", "budget": "paper"}),
                            ("medusa", {"budget": "paper"})):
        found = events_of(runtime, engine, options, temperature=temperature, max_new_tokens=18)
        assert written(found) == alone and any(event.draft.tokens for event in found[2:-1]), engine


def test_a_quantised_head_says_nearly_what_it_said(monkeypatch):
    target = tiny("int4", False).target
    target.features.request(make_head(target).request)
    target.truncate(0)
    target.extend(list(range(5, 25)))
    ours = make_head(target, draft_tokens=192, mlp=64)
    monkeypatch.setattr(target, "quantised", "")
    plain = make_head(target, draft_tokens=192, mlp=64)
    assert ours.weight_bytes < plain.weight_bytes / 2 and not plain.quantised
    rows = [[head.after(list(range(5, 26))), head.step(7)] for head in (ours, plain)]
    found, expected = (torch.stack(each)[:, ours.file.ids] for each in rows)
    assert (found - expected).square().mean().sqrt() < 0.2 * expected.std()


def test_an_answer_of_other_weights_is_no_bug_of_these(tiny):
    answer = Answer.from_events(events_of(tiny, "pld", {}))
    other = replace(answer, dtype=f"{answer.dtype}, int8 weights")
    with pytest.raises(UsageProblem, match="written by tiny-target in float32, int8 weights"):
        tiny.audit(other)


@pytest.mark.parametrize("choice", some(["int4", "int8"], lambda choice: choice == "int4"))
def test_the_sample_pair(choice):
    pair = load(quantize=choice, draft_quantize="int4", threads=1, native=False)
    rounded = "products rounded to bfloat16"
    assert pair.draft.weights == f"int4 weights, {rounded}"
    assert pair.ready.dtype == f"float32, {choice} weights, {rounded}" and choice in pair.ready.backend
    linears = [layer for layer in pair.target.model.modules() if isinstance(layer, QuantisedLinear)]
    numbers = sum(layer.in_features * layer.out_features for layer in linears)
    held = sum(tensor.nbytes for layer in linears for tensor in layer.held)
    assert numbers > 8_000_000 and held < 1.1 * numbers, "the others may lie in two layouts, as was measured"
    assert pair.target.weight_bytes > held
    for engine in ("autoregressive", "draft", "pld"):
        answer = Answer.from_events(events_of(pair, engine, {}, max_new_tokens=40))
        assert pair.audit(answer).verdict in ("identical", "tie"), engine


@torch.inference_mode()
def test_an_audit_multiplies_once_for_the_slices_of_a_layer(monkeypatch):
    runtime, ids, calls = tiny("int4", False), torch.tensor([[5, 6, 7]]), Counter()
    before = runtime.target.model(ids).logits
    answer = Answer.from_events(events_of(runtime, "pld", {}, max_new_tokens=12))
    forward = QuantisedLinear.forward
    monkeypatch.setattr(QuantisedLinear, "forward", lambda self, x: calls.update([self]) or forward(self, x))
    assert runtime.audit(answer).verdict in ("identical", "tie")
    assert len(calls) == 12 and len(set(calls.values())) == 1  # four products a layer, each as often
    assert torch.equal(runtime.target.model(ids).logits, before)


def test_a_layer_lies_in_memory_once():
    model = make_llama(1, layers=2)
    before = weight_bytes(model)
    counts = quantise.quantise(model, "int4")
    linears = [layer for layer in model.modules() if isinstance(layer, Int4Linear)]
    assert counts == {"int4": len(linears), quantise.PLAIN: 1}
    numbers = sum(layer.in_features * layer.out_features for layer in linears)
    assert before - weight_bytes(model) == 4 * numbers - (numbers // 2 + numbers // GROUP * 4)


def test_what_is_not_there_falls_back_and_says_so(monkeypatch):
    monkeypatch.setattr(quantise, "works", lambda *_: False)
    model = wrap(make_llama(1, layers=2), "m", 1, quantising=partial(quantise.quantise, choice="int4"), native=False)
    assert model.quantised == "" and "int4" not in model.backend and model.rounding == torch.float32
    assert any("9 of 9 linear layers are not quantised" in words for words in model.remarks)


def test_an_operation_that_fails_or_lies_is_not_used(monkeypatch):
    works.cache_clear()
    monkeypatch.setattr(Int4Linear, "_product", lambda self, x: torch.zeros(len(x), self.out_features).bfloat16())
    monkeypatch.setattr(quantised_linear, "_scales", lambda scale, zero: torch.ops.aten.no_such_operation())
    assert not works(Int4Linear, 64, 64) and not works(Int8GroupsLinear, 64, 64)
    works.cache_clear()


def test_which_quantisation_a_model_gets(tmp_path):
    grid = locate(str(Tiny("llama", "Q4_0").write(tmp_path / "grid.gguf")))
    other = locate(str(Tiny("llama", "F16").write(tmp_path / "other.gguf")))
    for native in (False, True):
        assert resolve_quantisation(grid, "stored", CPU, native) == ("stored", "")
        assert resolve_quantisation(grid, "none", CPU, native) == ("none", "")
        for choice in ("auto", "stored"):
            assert resolve_quantisation(other, choice, CPU, native) == ("none", "")
        assert resolve_quantisation(other, "int8", CPU, native) == ("int8", "")
    assert resolve_quantisation(grid, "auto", CPU, True) == ("auto", "")
    assert resolve_quantisation(grid, "auto", CPU, False) == ("none", "")
    choice, said = resolve_quantisation(grid, "int4", torch.device("cuda"), False)
    assert choice == "none" and "on the CPU only" in said
    with pytest.raises(UsageProblem, match="there is no quantisation 'int3'"):
        load(quantize="int3")


def test_layers_are_the_same_for_what_must_not_depend_on_layouts():
    model = make_llama(1, layers=1).to(torch.bfloat16)
    quantise.quantise(model, "int8")
    layer, x = model.model.layers[0].mlp.down_proj, torch.randn(3, model.config.intermediate_size).bfloat16()
    with torch.inference_mode():
        expected = layer(x)
        with as_loaded(model):
            assert torch.equal(layer(x), expected)


def test_grids_of_several_layers_are_joined():
    grids = [quantised(torch.randn(32, 64), 4) for _ in range(2)]
    joined = WeightGrid.joined(grids)
    assert torch.equal(joined.unpacked, torch.cat([grid.unpacked for grid in grids]))


@pytest.mark.thorough
@pytest.mark.timeout(300)
@pytest.mark.parametrize("choice, words", [
    ("auto", "linear layers: 120 Q4_1, 1 Q8_0"),
    ("stored", "linear layers: 120 int4, 1 int8 in groups"),
])
def test_a_real_model_as_its_file_holds_it(choice, words):
    if not SMOLLM2.is_file():
        pytest.skip("smollm2 is not on this machine: spec-tui model get smollm2 fetches it")
    runtime = load(str(SMOLLM2), quantize=choice, threads=1, native=choice == "auto", arithmetic="float32")
    assert runtime.target.quantised == words
    if choice == "auto":
        said = next(m.weights for m in describe(str(SMOLLM2)).memory if m.quantize == "auto")
        assert said == runtime.target.weight_bytes == pytest.approx(SMOLLM2.stat().st_size, rel=0.02)
    question = (("user", "What is the capital of France?"),)
    for engine, options in (("autoregressive", {}), ("pld", {})):
        events = events_of(runtime, engine, options, question, max_new_tokens=24)
        assert "Paris" in events[-1].text
        assert runtime.audit(Answer.from_events(events)).verdict in ("identical", "tie"), engine
