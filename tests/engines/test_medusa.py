"""The medusa engine: its heads against a plain reading of their definition, its trees, its files with their traps."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from engines import Request
from engines.core.lossless_laws import Exact
from engines.core.outcome import DraftLimits
from engines.core.sampling import Sampling
from engines.core.tree import DraftTree
from engines.errors import ModelUnavailable, UsageProblem
from engines.heads import training
from engines.heads.checkpoint import read, write
from engines.heads.head_config import MEDUSA, MEDUSA_HEADS
from engines.heads.hidden_state_cache import TappedText, Text
from engines.heads.local_heads import family_of_head
from engines.heads.make_head import HeadSpec, estimate, make_head
from engines.heads.medusa_heads import MedusaHeads
from engines.heads.medusa_student import MedusaStudent
from engines.heads.training import Batch, HeadRecipe
from engines.methods.drafter import Resources
from engines.methods.medusa import SPEC
from engines.methods.medusa.drafter import PUBLISHED, Medusa
from engines.report.events import Round
from tests.conftest import make_llama
from tests.engines.toys import outcome
from tests.heads import make_medusa, make_medusa_file

TEXT = [5, 17, 40, 3, 99, 120, 7, 40, 3, 99, 8, 31]


@pytest.fixture(scope="module")
def target():
    from engines.model.loading import wrap

    return wrap(make_llama(1), "tiny-target")


def plainly(target, file, text):
    """Logits of each head after a text whose last token is the root, by the definition."""
    state = target.model(torch.tensor([text[:-1]]), output_hidden_states=True).hidden_states[-1][0, -1]
    found = []
    for head in range(file.config.heads):
        x = state
        for block in range(file.config.blocks):
            inner = file.weights["weight"][head, block] @ x + file.weights["bias"][head, block]
            x = x + inner * torch.sigmoid(inner)
        rows = file.rows[head] if file.rows is not None else target.model.lm_head.weight
        logits = torch.full((target.vocab_size,), float("-inf"))
        ids = range(target.vocab_size) if file.ids is None else file.ids.tolist()
        for token in ids:
            logits[token] = rows[token] @ x
        found.append(logits)
    return found


def drafter_of(target, file, **options):
    law = Exact(Sampling(), 0, target.vocab_size)
    resources = Resources(law=law, vocab_size=target.vocab_size, target=target,
                          heads={MEDUSA_HEADS: MedusaHeads(file, target)})
    return Medusa(resources, **SPEC.parse({"budget": "paper", **options}))


def paths_of(tree):
    paths = []
    for token, parent in zip(tree.tokens, tree.parents):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    return paths


@pytest.mark.parametrize("changes", [{}, {"draft_tokens": 90}, {"blocks": 3, "heads": 2}])
@torch.inference_mode()
def test_the_published_tree_is_what_the_definition_says(target, changes):
    file = make_medusa_file(target, **changes)
    drafter = drafter_of(target, file)
    target.features.request(drafter.features)
    target.truncate(0)
    target.extend(TEXT[:-1])
    state = target.features.latest("last")[0]
    drafter.start(outcome(TEXT, len(TEXT) - 1, DraftTree(), (), TEXT[-1:]))
    logits = plainly(target, file, TEXT)
    wanted = torch.stack(logits) if file.ids is None else torch.stack(logits)[:, file.ids]
    torch.testing.assert_close(drafter.medusa.logits(state, file.config.heads), wanted, atol=2e-4, rtol=1e-4)
    tree = drafter.propose(TEXT, DraftLimits(100, 100))
    expected = []
    for path in PUBLISHED:
        if len(path) <= file.config.heads:
            ranked = [logits[head].argsort(descending=True) for head in range(len(path))]
            expected.append(tuple(int(ranked[head][int(rank)]) for head, rank in enumerate(path)))
    assert paths_of(tree) == expected and tree.note.heads == file.config.heads
    probs = [row.softmax(-1) for row in logits]
    for path, prob in zip(expected, tree.probs):
        assert prob == pytest.approx(float(probs[len(path) - 1][path[-1]]), rel=1e-3)
    assert len(drafter.propose(TEXT, DraftLimits(2, 9))) == 9
    assert {len(path) for path in paths_of(drafter.propose(TEXT, DraftLimits(1, 100)))} == {1}


def test_the_published_tree_has_its_nodes():
    assert len(PUBLISHED) == len(set(PUBLISHED)) == 63 and max(map(len, PUBLISHED)) == 4
    assert all(path[:-1] in PUBLISHED[:number] for number, path in enumerate(PUBLISHED) if path[:-1])


@torch.inference_mode()
def test_without_it_the_likeliest_paths_are_drafted(tiny):
    started, _, *events = tiny.run(Request((("user", "abc"),), "medusa", {"nodes": 20}, max_new_tokens=12))
    drafts = [event.draft for event in events if isinstance(event, Round) and event.draft.tokens]
    assert drafts and started.head == "tiny-medusa" and started.head_price[-1][0] == 4
    file = make_medusa_file(tiny.target)
    drafter = drafter_of(tiny.target, file)
    tiny.target.features.request(drafter.features)
    tiny.target.truncate(0)
    tiny.target.extend(TEXT[:-1])
    state = tiny.target.features.latest("last")[0]
    drafter.start(outcome(TEXT, len(TEXT) - 1, DraftTree(), (), TEXT[-1:]))
    drafter.budget = type("All", (), {"more": lambda *_: True, "prune": lambda self, tree, seconds: tree})()
    tree = drafter.propose(TEXT, DraftLimits(100, 20))
    rows = drafter.medusa.logits(state, 4).softmax(-1)
    level = {(): 1.0}
    reached = {}
    for head in range(4):
        top = rows[head].topk(10)
        level = {(*path, t): above * p for path, above in level.items()
                 for t, p in zip(top.indices.tolist(), top.values.tolist())}
        reached |= level
        level = dict(sorted(level.items(), key=lambda item: -item[1])[:40])
    assert set(paths_of(tree)) == set(sorted(reached, key=reached.get, reverse=True)[:20])


@pytest.mark.parametrize("law, temperature", [("exact", 0.8), ("typical", 0.0)])
def test_laws(tiny, law, temperature):
    texts = set()
    for engine in ("autoregressive", "medusa"):
        request = Request((("user", "abc abc"),), engine, {"budget": "paper"} if engine == "medusa" else {},
                          temperature=temperature, law=law, max_new_tokens=40)
        texts.add(list(tiny.run(request))[-1].tokens)
    assert len(texts) == 1


def test_without_heads_the_engine_says_what_to_do(tiny, monkeypatch):
    monkeypatch.setattr(tiny, "heads", {})
    with pytest.raises(UsageProblem, match="needs Medusa heads"):
        list(tiny.run(Request((("user", "abc"),), "medusa")))


# -- files ----------------------------------------------------------------------------------------------------


def tensors_of(file, before=""):
    """As FasterDecoding writes them."""
    found = {}
    for head in range(file.config.heads):
        for block in range(file.config.blocks):
            for name in ("weight", "bias"):
                found[f"{before}{head}.{block}.linear.{name}"] = file.weights[name][head, block].clone()
        found[f"{before}{head}.{file.config.blocks}.weight"] = file.rows[head].clone()
    return found


CONFIG = {"base_model_name_or_path": "a/target", "medusa_num_heads": 2, "medusa_num_layers": 1}


def saved(folder, tensors, config=CONFIG, name="model.safetensors"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / name)
    return read("heads", folder, 2, 32)


def vllm(tensors):
    """The same in the spelling of vLLM's copies, with what their configuration says."""
    found = {}
    for name, tensor in tensors.items():
        head, block, *rest = name.split(".")
        found[f"blocks.{head}.layers.{block}.{rest[1]}" if len(rest) > 1 else f"lm_heads.{head}.weight"] = tensor
    return found, {"model_type": "medusa", "num_heads": 5, "num_hidden_layers": 1, "vocab_size": 260,
                   "truncated_vocab_size": None, "hidden_size": 32}  # fmt: skip


def test_every_spelling_is_the_same_heads(target, tmp_path):
    file = make_medusa_file(target, heads=3)
    plain = tensors_of(file)
    found = [saved(tmp_path / "a", plain), saved(tmp_path / "b", tensors_of(file, "medusa_head.")),
             saved(tmp_path / "c", *vllm(plain)), saved(tmp_path / "d", plain, name="medusa_lm_head.safetensors")]
    for heads in found:
        assert (heads.config, heads.ids) == (file.config, None)  # the config says 2, or 5
        assert torch.equal(heads.rows, file.rows)
        assert all(torch.equal(heads.weights[name], file.weights[name]) for name in file.weights)
    bare = saved(tmp_path / "e", {name: tensor for name, tensor in plain.items() if "bias" not in name})
    assert not bare.config.bias and not bare.weights["bias"].any()
    assert saved(tmp_path / "f", tensors_of(make_medusa_file(target, blocks=2))).config.blocks == 2
    one, config = vllm(plain)
    one = {name: tensor for name, tensor in one.items() if not name.startswith(("lm_heads.1", "lm_heads.2"))}
    shared = saved(tmp_path / "g", one, {**config, "original_lm_head": True})
    assert torch.equal(shared.rows, file.rows[0])
    fewer = saved(tmp_path / "h", {**one, "token_map": torch.tensor([3, 9, 200])}, {
        **config, "original_lm_head": True, "truncated_vocab_size": 3})
    assert fewer.ids.tolist() == [3, 9, 200] and torch.equal(fewer.rows, file.rows[0][[3, 9, 200]])
    assert MedusaHeads(fewer, target).logits(torch.ones(32), 2).isfinite().sum() == 6


def test_pickled_heads_are_read_only_when_that_is_allowed(target, tmp_path):
    file = make_medusa_file(target)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    torch.save(tensors_of(file), tmp_path / "medusa_lm_head.pt")
    with pytest.raises(ModelUnavailable, match="only pickled") as refused:
        read("heads", tmp_path, 2, 32)
    assert "medusa_lm_head.pt" in refused.value.hint
    assert read("heads", tmp_path, 2, 32, allow_pickle=True).config == file.config
    for other in ({"0.0.linear.weight": print}, [1, 2], torch.ones(3)):
        torch.save(other, tmp_path / "medusa_lm_head.pt")
        with pytest.raises(ModelUnavailable, match="more than weights"):
            read("heads", tmp_path, 2, 32, allow_pickle=True)


def broken(file):
    plain = tensors_of(file)
    yield "lacks 1.0.weight", {n: t for n, t in plain.items() if n != "1.0.linear.weight"}, {}
    yield "lacks 2.0.bias", {n: t for n, t in plain.items() if n != "2.0.linear.bias"}, {}
    yield "lacks the language modelling head of head 3", {n: t for n, t in plain.items() if n != "3.1.weight"}, {}
    yield "2.0.weight is 32 x 31 and not", {**plain, "2.0.linear.weight": torch.zeros(32, 31)}, {}
    yield "modelling head is 259 x 32 and not 260 x 32", {**plain, "1.1.weight": torch.zeros(259, 32)}, {}
    yield "modelling head is a single number", {**plain, "0.1.weight": torch.tensor(1.0)}, {}
    yield "draft 260 tokens of 300, and have no token_map", plain, {"vocab_size": 300}
    empty = {n: t[:0] if t.shape == (260, 32) else t for n, t in plain.items()}
    yield "one of its tensors is empty", empty, {"vocab_size": None}
    yield "names tokens twice", {**plain, "token_map": torch.tensor([1, 1])}, {"truncated_vocab_size": 2}
    yield "its hidden size is 16, the target's is 32", {"0.0.linear.weight": torch.zeros(16, 16)}, {}


def test_what_cannot_be_used_is_refused_with_the_reason(target, tmp_path):
    file = make_medusa_file(target)
    for number, (reason, tensors, changes) in enumerate(broken(file)):
        with pytest.raises(ModelUnavailable, match=reason):
            saved(tmp_path / str(number), tensors, CONFIG | changes)
    wrong = replace(file, config=replace(file.config, vocabulary=261))
    with pytest.raises(UsageProblem, match="261 tokens, the target's 260"):
        MedusaHeads(wrong, target)


@pytest.mark.parametrize("draft_tokens", [None, 90])
def test_written_heads_are_read_as_they_were(target, tmp_path, draft_tokens):
    file = replace(make_medusa_file(target, draft_tokens=draft_tokens), folder=tmp_path, card={"minutes": 1})
    write(file, "tiny-target", "float32")
    found = read("tiny-medusa", tmp_path, 2, 32)
    assert (found.config, found.made_for, found.card) == (file.config, target.fingerprint, file.card)
    assert family_of_head(tmp_path) == MEDUSA and (found.rows is None) == (file.rows is None)
    assert torch.equal(found.weights["weight"], file.weights["weight"])


# -- training -------------------------------------------------------------------------------------------------


@torch.inference_mode()
def test_step_i_of_the_training_is_head_i_of_the_drafter(target):
    heads = make_medusa(target, draft_tokens=90)
    target.features.request(heads.request)
    states = []
    for length in range(1, len(TEXT) + 1):
        target.truncate(0)
        target.extend(TEXT[:length])
        states.append(target.features.latest("last")[0])
    final = torch.stack(states)
    student = MedusaStudent(heads.config)
    student.network.load_state_dict(heads.file.weights)
    batch = Batch([TappedText(torch.tensor(TEXT), 6, True, final[:, :0], final)], 4)
    rows = target.model.lm_head.weight[heads.file.ids]
    for step, read_ in enumerate(student.states(batch, 4)):
        for position, state in zip(batch.positions.tolist(), read_):
            drafted = heads.logits(final[position - 1 - step], 4)[step]
            torch.testing.assert_close(rows @ state, drafted, atol=1e-5, rtol=1e-5)
            assert batch.following.tolist()[position - batch.positions[0]] == TEXT[position + 1]


@pytest.mark.parametrize("products", (torch.float32, torch.bfloat16), ids=str)
def test_heads_that_are_trained_are_written_and_learn(target, tmp_path, monkeypatch, products):
    monkeypatch.setattr(training, "quickest_dtype", lambda: products)
    generator = torch.Generator().manual_seed(0)
    texts = [Text(tuple(torch.randperm(40, generator=generator)[:3].tolist() * 8), 4, True) for _ in range(32)]
    spec = HeadSpec(name="tiny", family=MEDUSA, heads=2, vocabulary=40, dtype="float32", recipe=HeadRecipe(
        minutes=0.03, steps=2, single=0.0, batch_tokens=256))
    losses = []
    with pytest.raises(UsageProblem, match="no answers"):
        estimate(target, spec, [], 0, tmp_path)
    needs = estimate(target, spec, texts[:4], len(texts), tmp_path)
    assert needs.tokens == 32 * 24 and needs.reading > 0 < needs.each_pass
    assert needs.bytes == needs.tokens * 2 * 32 + needs.parameters * 28 and not any(tmp_path.iterdir())
    ended = make_head(target, "tiny", texts, spec, tmp_path / "work", tmp_path / "heads", lambda *_: None,
                      lambda progress: losses.append(progress.losses[0]))
    assert ended.updates > 3 and losses[-1] < losses[0] and len(ended.agreement) == 2
    heads = MedusaHeads(read("tiny", tmp_path / "heads", 2, 32), target)
    assert (heads.config.heads, heads.config.draft_vocabulary, heads.file.rows) == (2, 40, None)
