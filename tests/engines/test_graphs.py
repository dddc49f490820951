"""The logic of CUDA graphs without CUDA: shapes, padding, what moves and what is dropped, against the lean forward."""

from __future__ import annotations

import copy
import random
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.model import cuda_graphs as graphs
from engines.model import loading
from engines.model.causal_model import CausalModel
from engines.model.cuda_graphs import ROWS, CudaGraphForward
from engines.model.feature_request import LAST, FeatureRequest
from engines.model.fused_layers import fuse
from engines.model.lean_forward import LeanForward
from engines.model.native.native_forward import NativeForward
from engines.model.selftest import selftest
from tests.conftest import ONE, make_llama
from tests.engines.families import cached, make
from tests.engines.recorder import Addresses, Recorder
from tests.engines.test_lean import FAMILIES, TEXT, TREE, same
from tests.engines.toys import HIDDEN, MEASURED, random_tree

ROOT = Path(__file__).parents[2]


def pair(model) -> tuple[CausalModel, CausalModel, Recorder]:
    fuse(model)
    recorder = Recorder()
    ours = CausalModel(model, "graphs", compute=CudaGraphForward(model, recorder))
    return ours, CausalModel(copy.deepcopy(model), "lean", compute=LeanForward(model)), recorder


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_and_rows_are_those_of_the_lean_forward(name):
    ours, theirs, recorder = pair(make(*FAMILIES[name]))
    for model in (ours, theirs):
        model.features.request(HIDDEN)
    for _ in range(2):  # the second time nothing is recorded
        recorded = recorder.recorded
        for model in (ours, theirs):
            model.truncate(0)
        same(ours.extend(TEXT[:20]), theirs.extend(TEXT[:20]))
        same(ours.extend(TEXT[20:26]), theirs.extend(TEXT[20:26]))
        same(ours.features.latest(LAST), theirs.features.latest(LAST))
        for tokens, parents in (TREE, ([3], [3]), ([3, 4, 5], [7, 8, 9]), ([9], [-1])):
            same(ours.forward(tokens, parents), theirs.forward(tokens, parents))
            same(ours.features.latest(LAST), theirs.features.latest(LAST))
        for model in (ours, theirs):
            model.keep([0, 2, 5])
        same(ours.forward([5], [-1]), theirs.forward([5], [-1]))
        torch.testing.assert_close(cached(ours), cached(theirs))
    assert recorder.recorded == recorded and recorder.replayed == 14


_SHARED: dict[str, tuple] = {}


@settings(max_examples=25)
@given(st.sampled_from(["llama", "qwen2 with window"]), st.integers(0, 99999))
def test_whatever_is_fed_however(name, seed):
    if name not in _SHARED:
        _SHARED[name] = pair(make(*FAMILIES[name]))
    ours, theirs, _ = _SHARED[name]
    dice = random.Random(seed)
    begun = 1 + dice.randrange(40)
    for model in (ours, theirs):
        model.truncate(0)
        model.extend(TEXT[:begun])
    for _ in range(dice.randrange(1, 5)):
        tree = random_tree(dice, 260, dice.randrange(1, 1 + dice.choice([2, 9, 40, 80])))
        same(ours.forward(tree.tokens, tree.parents), theirs.forward(tree.tokens, tree.parents))
        path = [dice.randrange(len(tree))]
        while tree.parents[path[0]] >= 0:
            path.insert(0, tree.parents[path[0]])
        for model in (ours, theirs):
            model.keep(path)
    assert ours.tokens == theirs.tokens
    same(ours.forward([4, 5], [-1, 0]), theirs.forward([4, 5], [-1, 0]))


def test_shapes_are_few_and_each_is_recorded_once():
    ours, theirs, recorder = pair(make_llama(3, context=2048))
    for model in (ours, theirs):
        model.extend(TEXT)
    for rows in range(1, 70):
        tokens, parents = list(range(5, 5 + rows)), [-1, *range(rows - 1)]
        same(ours.forward(tokens, parents), theirs.forward(tokens, parents))
        for model in (ours, theirs):
            model.drop()
    assert recorder.recorded == len(ROWS) and recorder.replayed == 64 + 1, "the text, and 1 to 64 rows; more are eager"
    for model in (ours, theirs):
        model.extend((TEXT * 12)[:470])
    same(ours.forward(*TREE), theirs.forward(*TREE))
    assert recorder.recorded == len(ROWS) + 1, "a wider shape"


def test_what_moved_is_recorded_anew(monkeypatch):
    monkeypatch.setattr(graphs, "_AT_ONCE", 1)
    ours, theirs, recorder = pair(make_llama(3, context=2048))
    for model in (ours, theirs):
        model.extend(TEXT[:9])
    same(ours.forward(*TREE), theirs.forward(*TREE))
    before, place = recorder.recorded, ours.cache.layers[0].keys.data_ptr()
    for model in (ours, theirs):
        model.drop()
        model.extend((TEXT * 20)[:600])
        model.truncate(9)
    assert ours.cache.layers[0].keys.data_ptr() != place
    same(ours.forward(*TREE), theirs.forward(*TREE))
    assert recorder.recorded == before + 1


def test_a_program_reads_no_freed_memory_after_a_long_text():
    model = make_llama(3, context=2048)
    fuse(model)
    graph = Addresses()
    ours = CausalModel(model, "graphs", compute=CudaGraphForward(model, graph))
    ours.extend(TEXT[:9])
    ours.forward(*TREE)
    ours.drop()
    ours.extend((TEXT * 40)[:1500])  # positions beyond the first table of rotations
    assert graph.freed == 0


def test_padding_writes_behind_the_last_row_only():
    ours, theirs, _ = pair(make_llama(3))
    for model in (ours, theirs):
        model.extend(TEXT[:11])
    stored = [layer.keys[..., :11, :].clone() for layer in ours.cache.layers]
    for rows in ([-1, 0, 0], [0, 3, 4, 1, 6]):
        same(ours.forward([7] * len(rows), rows), theirs.forward([7] * len(rows), rows))
    for layer, kept in zip(ours.cache.layers, stored):
        assert torch.equal(layer.keys[..., :11, :], kept)
    assert ours.cache.offset == 19 and all(layer.keys.isfinite().all() for layer in ours.cache.layers)


def test_the_least_recently_used_program_goes(monkeypatch):
    monkeypatch.setattr(graphs, "_PROGRAMS", 2)
    ours, _, recorder = pair(make_llama(3))
    ours.extend(TEXT[:9])
    for rows in (1, 2, 1, 4, 1, 2, 1, 2):
        ours.forward([5] * rows, [-1] * rows)
        ours.drop()
    assert recorder.recorded == 5, "16 rows of text, 1, 2, 4, and 2 again"


def test_without_sublayers_and_watched_it_runs_as_it_comes():
    ours, theirs, recorder = pair(make(*FAMILIES["qwen3"]))
    for model in (ours, theirs):
        model.features.request(MEASURED)
        model.extend(TEXT[:20])
        model.forward(*TREE)
        model.keep([0, 1])
    for mine, other in zip(ours.features.mean_cosines(ours.length), theirs.features.mean_cosines(theirs.length)):
        assert mine == pytest.approx(other, abs=1e-6)
    for model in (ours, theirs):
        model.features.request(FeatureRequest())
    found = []
    for model in (ours, theirs):
        with model.skipping(frozenset({0}), frozenset({1})):
            found.append(model.forward(*TREE))
    same(*found)
    assert recorder.recorded == 0
    same(ours.forward(*TREE), theirs.forward(*TREE))
    assert recorder.recorded == 1


def test_logits_stay_after_the_next_forward():
    ours, _, _ = pair(make_llama(3))
    ours.extend(TEXT[:9])
    first = ours.forward([5], [-1])
    kept = first.clone()
    ours.forward([6], [0])
    assert torch.equal(first, kept)


def test_what_cannot_be_recorded_runs_without_graphs_and_says_so(monkeypatch):
    def fails(program):
        raise RuntimeError("CUDA error: operation not permitted\nmore")

    model = make_llama(3)
    fuse(model)
    ours = CausalModel(model, "graphs", compute=CudaGraphForward(model, fails))
    theirs = CausalModel(model, "lean", compute=LeanForward(model))
    assert ours.backend == "lean, CUDA graphs"
    for one in (ours, theirs):
        one.extend(TEXT[:9])
    same(ours.forward(*TREE), theirs.forward(*TREE))
    assert ours.backend == "lean, no CUDA graphs" and "not permitted" in ours.compute.failure


@pytest.mark.parametrize("read", [lambda x: x.sum().item(), lambda x: torch.tensor([1.0]), lambda x: x.nonzero()])
def test_the_recorder_refuses_what_a_graph_could_not_hold(read):
    with pytest.raises(RuntimeError, match="capturing"):
        Recorder()(lambda: read(torch.ones(3)))


@pytest.mark.parametrize("name", ["llama", "qwen2 with window", "smollm3"])
def test_away_from_the_host_nothing_of_it_gets_into_a_program(name):
    """Tensors of the device "meta" refuse to be read, and most operations to mix them with the host's, as on a GPU."""
    model = make(*FAMILIES[name], dtype=torch.bfloat16).to("meta")
    fuse(model)
    programs = []
    ours = CausalModel(model, "graphs", compute=CudaGraphForward(
        model, lambda program: (program(), programs.append(program), program)[-1]))
    ours.features.request(HIDDEN)
    ours.extend(TEXT[:20])
    assert ours.forward(*TREE).shape == (7, 260) and ours.features.latest(LAST).shape == (7, 32)
    ours.keep([0, 2, 5])
    ours.extend((TEXT * 3)[:100])
    assert not ours.compute.failure and len(programs) == 2, "of 32 rows and of 8"
    ours.compute.embed = lambda ids: torch.ones(len(ids), 32, dtype=torch.bfloat16)
    with pytest.raises(RuntimeError):
        ours.forward([5], [-1])
    assert ours.compute.failure, "a program that mixes them would have been seen"


def test_the_benchmark_of_the_gpu_path_says_what_it_lacks(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import bench_cuda

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert bench_cuda.main([]) == 3 and "no CUDA device" in capsys.readouterr().err
    assert bench_cuda.main(["--device", "cpu", "--shape", "tiny", "--tokens", "4", "--repeats", "2"]) == 0
    out = capsys.readouterr().out
    assert "the bounds do not apply" in out and "MISSED" not in out and "tokens/s" in out
    model = bench_cuda.build("tiny", torch.bfloat16, torch.device("cpu"))
    table = model.model.get_input_embeddings().weight.nbytes
    assert bench_cuda.read_bytes(model) == model.weight_bytes - table > 0


def make_tiny():
    import bench_cuda

    return bench_cuda.SHAPES["tiny"]()


def test_the_self_test_takes_it_in_half_precision_too():
    for dtype in (torch.bfloat16, torch.float16):
        ours, _, recorder = pair(make(*FAMILIES["qwen2 with window"], dtype=dtype))
        assert selftest(ours) is None and ours.trees and recorder.replayed > 2


def test_on_a_cpu_models_are_loaded_without_it():
    assert type(loading.wrap(make_llama(1, hidden=64), "tiny", ONE).compute) is NativeForward
