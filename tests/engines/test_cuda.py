"""On a GPU, where there is one: CUDA graphs compute what the lean forward does, and every engine writes the same."""

from __future__ import annotations

import random

import pytest
import torch

from engines import load
from engines.cost.curve import CostCurve
from engines.errors import ModelUnavailable
from engines.model.causal_model import CausalModel
from engines.model.cuda_graphs import ROWS, CudaGraphForward
from engines.model.feature_request import LAST
from engines.model.lean_forward import LeanForward, fits
from engines.model.loading import wrap
from engines.runtime import Runtime
from tests.conftest import add_datastores, make_llama, make_tiny
from tests.engines.families import make
from tests.engines.test_lean import FAMILIES
from tests.engines.test_lossless import IDS, TURNS, VARIANTS, run
from tests.engines.toys import HIDDEN, random_tree
from tests.tiers import first_of_each

DEVICE = "cuda"
CHEAP = CostCurve(((1, 1.0), (64, 1.5)))

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="make test-cuda runs them")


def pays(runtime: Runtime) -> Runtime:
    """No clock decides whether anything is drafted."""
    runtime.prices = runtime.prices._replace(target=CHEAP)
    return runtime


@pytest.fixture(scope="module")
def small():
    return make_tiny("cuda", lambda model: model.to(DEVICE))


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def shipped(request):
    runtime = load(device=DEVICE, dtype=request.param)
    add_datastores(f"cuda-{request.param}", runtime)
    return pays(runtime)


@pytest.fixture(scope="module", params=["bfloat16", "float16"])
def strict(request):
    dtype = getattr(torch, request.param)
    return make_tiny(f"cuda-{request.param}", lambda model: model.to(DEVICE, dtype), strict=True)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(("engine", "options"), VARIANTS, ids=IDS)
def test_every_engine_writes_the_same(small, engine, options, temperature):
    kw = {"new": 70, "temperature": temperature, "seed": 1}
    text, metrics = run(small, engine, options, **kw)
    assert text == run(small, "autoregressive", **kw)[0]
    assert metrics.drafted > 0


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(("engine", "options"), first_of_each(VARIANTS, IDS))
def test_every_engine_writes_the_same_strictly_in_half_precision(strict, engine, options, temperature):
    kw = {"new": 24, "temperature": temperature, "seed": 1}
    assert run(strict, engine, options, **kw)[0] == run(strict, "autoregressive", **kw)[0]


@pytest.mark.parametrize(("engine", "options"), first_of_each(VARIANTS, IDS))
def test_every_engine_drafts_for_the_shipped_pair(shipped, engine, options):
    """In bfloat16 another token may win a near tie: there no text is compared."""
    text, metrics = run(shipped, engine, options)
    assert metrics.drafted > 0 and len(text.tokens) > 20
    if shipped.target.dtype == torch.float32:
        assert text == run(shipped, "autoregressive")[0]


def test_programs_are_recorded_and_none_fails(shipped):
    run(shipped, "draft")
    for model in (shipped.target, shipped.draft):
        assert isinstance(model.compute, CudaGraphForward)
        assert not model.compute.failure and model.compute._shapes, "a capture that fails is said in the backend's name"
    assert "CUDA graphs" in shipped.ready.backend


def test_a_greedy_text_is_the_cpus_and_transformers_own(shipped):
    from transformers import AutoModelForCausalLM

    if shipped.target.dtype != torch.float32:
        pytest.skip("in float32")
    there = load(device="cpu", threads=1)
    plain = AutoModelForCausalLM.from_pretrained(shipped.ready.model, dtype=torch.float32).to(DEVICE)
    for prompt in TURNS.values():
        ours = run(shipped, "autoregressive", prompt=prompt, new=60)[0].tokens
        assert ours == run(there, "autoregressive", prompt=prompt, new=60)[0].tokens
        inputs = shipped.tokenizer.apply_chat_template(
            [{"role": r, "content": c} for r, c in prompt], add_generation_prompt=True, return_tensors="pt",
            return_dict=True).to(DEVICE)
        out = plain.generate(**inputs, do_sample=False, max_new_tokens=60)
        assert tuple(out[0, inputs["input_ids"].shape[1] :].tolist()) == ours


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", FAMILIES)
def test_programs_compute_what_the_lean_forward_does(name, dtype):
    module = make(*FAMILIES[name]).to(DEVICE, getattr(torch, dtype))
    if not fits(module):
        pytest.skip("its module rounds elsewhere in half precision")
    ours = wrap(module, "graphs")
    assert isinstance(ours.compute, CudaGraphForward)
    theirs = CausalModel(module, "lean", compute=LeanForward(module))
    dice, tolerance = random.Random(name), 1e-4 if dtype == "float32" else 0.03
    for model in (ours, theirs):
        model.features.request(HIDDEN)
    for begun in (3, 40, 180):
        text = [dice.randrange(4, 250) for _ in range(begun)]
        for model in (ours, theirs):
            model.truncate(0)
            model.extend(text)
        for size in (1, 2, 5, 17, ROWS[-1], ROWS[-1] + 3):
            tree = random_tree(dice, 250, size)
            for rows in ([model.forward(tree.tokens, tree.parents) for model in (ours, theirs)],
                         [model.features.latest(LAST) for model in (ours, theirs)]):
                mine, other = (row.float().cpu() for row in rows)
                assert (mine - other).square().mean().sqrt() <= tolerance * other.std()
            for model in (ours, theirs):
                model.keep([0])
    assert not ours.compute.failure


def test_a_buffer_that_moves_is_recorded_anew():
    model = wrap(make_llama(3, context=16384).to(DEVICE), "long")
    dice, logits = random.Random(0), []
    text = [dice.randrange(4, 250) for _ in range(9000)]
    for at in (0, 4000, 4090, 8190):
        model.truncate(0)
        model.extend(text[: at + 1])
        logits.append(model.forward([5, 6, 7], [-1, 0, 0]).cpu())
        model.drop()
    model.truncate(0)
    model.extend(text[:1])
    torch.testing.assert_close(model.forward([5, 6, 7], [-1, 0, 0]).cpu(), logits[0])
    assert not model.compute.failure


def test_weights_of_a_gguf_file_are_unpacked(sample_gguf):
    target, draft = map(str, sample_gguf)
    runtime = pays(load(target, draft_model=draft, device=DEVICE, dtype="float32"))
    text, _ = run(runtime, "draft")
    assert text.tokens == run(load(device="cpu", threads=1), "autoregressive")[0].tokens


def test_no_memory_left_is_said():
    torch.cuda.empty_cache()
    _, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (20 << 20)) / total)
    try:
        with pytest.raises(ModelUnavailable, match="memory"):
            load(device=DEVICE, dtype="float32")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
