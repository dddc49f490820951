"""Heads from files in every spelling, with the traps that files set; training and checking them."""

from __future__ import annotations

import errno
import gzip
import json
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig

from engines.errors import ModelUnavailable, UsageProblem
from engines.heads import training
from engines.heads.check_head import HeadCheck, HeadReading, as_read, check
from engines.heads.checkpoint import read, write
from engines.heads.compatibility import standing_alone
from engines.heads.draft_head import DraftHead
from engines.heads.head_config import EAGLE, EAGLE3
from engines.heads.hidden_state_cache import HiddenStateCache, Text
from engines.heads.make_head import HeadSpec, config_for, make_head, parts_of
from engines.heads.network import HeadNetwork, Rotation
from engines.heads.self_generated_data import generate_answers, kept_answers, read_answers
from engines.heads.training import HeadRecipe, simulated, split
from engines.heads.training_time_test import unrolled
from engines.model import tensor_files
from engines.model.causal_model import CausalModel
from tests.conftest import make_llama
from tests.engines.families import NAMED, TREES, make
from tests.heads import make_file
from tests.tiers import some


@pytest.fixture(scope="module")
def target():
    from engines.model.loading import wrap

    return wrap(make_llama(3, layers=7), "tiny-target")


def tensors_of(file, rows=True):
    """As SafeAILab writes them."""
    inner = {"q_proj": "self_attn.", "k_proj": "self_attn.", "v_proj": "self_attn.", "o_proj": "self_attn."}
    inner |= {"gate_proj": "mlp.", "up_proj": "mlp.", "down_proj": "mlp."}
    found = {}
    for name, tensor in file.weights.items():
        own, dot, _ = name.partition(".")
        outside = "" if own in ("fc", "norm") else "midlayer."
        found[f"{outside}{inner.get(own, '')}{name if dot else f'{name}.weight'}"] = tensor.clone()
    if file.config.family == EAGLE3:
        known = torch.zeros(file.config.vocabulary, dtype=torch.bool)
        known[file.ids] = True
        found |= {"d2t": file.ids - torch.arange(len(file.ids)), "t2d": known}
        if rows:
            generator = torch.Generator().manual_seed(7)
            found["lm_head.weight"] = torch.randn(len(file.ids), file.config.width, generator=generator)
    return found


CONFIG = {"architectures": ["LlamaForCausalLM"], "num_attention_heads": 4, "head_dim": 8, "hidden_size": 32,
          "vocab_size": 260, "draft_vocab_size": 200, "rms_norm_eps": 1e-5}  # fmt: skip


def saved(folder, tensors, config):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return read("a-head", folder, 7, 32)


def renamed(tensors, old, new):
    return {name.replace(old, new): tensor for name, tensor in tensors.items()}


def test_every_spelling_is_the_same_head(target, tmp_path):
    plain = tensors_of(make_file(target, layers=(2, 3, 4)))
    spellings = {
        "safeailab": (plain, CONFIG),
        "speculators": (renamed(plain, "midlayer.", "layers.0."), {
            "architectures": ["Eagle3Speculator"], "eagle_aux_hidden_state_layer_ids": None,
            "draft_vocab_size": 200, "transformer_layer_config": CONFIG,
        }),
        "behind model": ({f"model.{name}": tensor for name, tensor in plain.items()}, CONFIG),
        "specforge": (plain, {**CONFIG, "architectures": ["LlamaForCausalLMEagle3"],
                              "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 3, 4]}}),
    }
    first = None
    for name, (tensors, config) in spellings.items():
        found = saved(tmp_path / name, tensors, config)
        assert found.config.family == EAGLE3 and found.config.draft_vocabulary == 200, name
        first = first or found
        assert replace(found.config, layers=()) == replace(first.config, layers=()), name
        assert all(torch.equal(found.weights[key], first.weights[key]) for key in first.weights), name
        DraftHead(found, target)
    assert first.config.layers == (2, 3, 4)


def test_traps(target, tmp_path):
    file = make_file(target, layers=(2, 3, 4))
    named = {**CONFIG, "eagle_aux_hidden_state_layer_ids": [2, 3, 4]}
    found = saved(tmp_path / "a", tensors_of(file), named)
    assert found.config.rope_theta == 10_000  # not the target's
    assert torch.equal(found.ids, file.ids)  # d2t is an offset
    theta = saved(tmp_path / "b", tensors_of(file), {**named, "rope_parameters": {"rope_theta": 5e5}})
    assert theta.config.rope_theta == 5e5
    by_output = saved(tmp_path / "c", tensors_of(file), {**named, "eagle_aux_hidden_state_layer_ids": [1, 2, 3]})
    assert (by_output.layers_said, by_output.config.layers) == ((1, 2, 3), (2, 3, 4))
    eagle = make_file(target, EAGLE)
    config = {name: value for name, value in CONFIG.items() if name != "draft_vocab_size"}
    with_bias = saved(tmp_path / "d", tensors_of(eagle), config)
    assert with_bias.config.family == EAGLE and torch.equal(with_bias.weights["fc.bias"], eagle.weights["fc.bias"])
    without = {name: tensor for name, tensor in tensors_of(eagle).items() if name != "fc.bias"}
    assert not saved(tmp_path / "e", without, config).weights["fc.bias"].any()


def broken(file):
    plain = tensors_of(file)
    yield ["lacks", "midlayer"][0], {n: t for n, t in plain.items() if "down_proj" not in n}, {}
    yield "no d2t", {n: t for n, t in plain.items() if n != "d2t"}, {}
    yield "names 2", plain, {"eagle_aux_hidden_state_layer_ids": [2, 3]}
    yield "reads layers 2, 3, 9", plain, {"eagle_aux_hidden_state_layer_ids": [2, 3, 9]}
    yield "for a target whose hidden size is 48, this target's is 32", plain, {"target_hidden_size": 48}
    yield "config says 5 heads", plain, {"num_attention_heads": 5}
    yield "config says 1000 heads", plain, {"num_attention_heads": 1000, "head_dim": None}
    yield "d2t is a single number", {
        n: t for n, t in plain.items() if n != "lm_head.weight"} | {"d2t": torch.tensor(3)}, {}
    yield "weights are float8_e4m3fn", {n: t.to(torch.float8_e4m3fn) if t.is_floating_point() else t
                                        for n, t in plain.items()}, {}
    yield "rotation is scaled", plain, {"rope_scaling": {"rope_type": "llama3"}}
    yield "names tokens twice", {**plain, "d2t": -torch.arange(200)}, {}
    yield "P-EAGLE", {**plain, "mask_hidden": torch.zeros(1, 1, 96)}, {}
    yield "not numbers", {**plain, "norm.weight": plain["norm.weight"] * torch.nan}, {}
    yield "several layers", {**plain, "layers.1.mlp.up_proj.weight": torch.zeros(2, 2)}, {}
    yield "has o_proj.bias, which is not", {**plain, "midlayer.self_attn.o_proj.bias": torch.ones(32)}, {}
    yield "has down_proj.bias, which is not", {**plain, "midlayer.mlp.down_proj.bias": torch.ones(32)}, {}
    yield "has k_proj.bias, which is not", {**plain, "midlayer.self_attn.k_proj.bias": torch.ones(16)}, {}
    yield "has fc.bias, which is not", {**plain, "fc.bias": torch.ones(32)}, {}
    yield "activation is gelu, which is not", plain, {"hidden_act": "gelu"}
    yield "head_dim is 1, and", plain, {"num_attention_heads": 32, "head_dim": 1}
    empty = {"lm_head.weight": torch.zeros(0, 32), "d2t": torch.zeros(0, dtype=torch.int64)}
    yield "d2t is 0, for 0 tokens", plain | empty, {}
    yield "not a draft head", {"norm.weight": torch.zeros(2)}, {}


def test_what_cannot_be_used_is_refused_with_the_reason(target, tmp_path):
    config = {**CONFIG, "eagle_aux_hidden_state_layer_ids": [2, 3, 4]}
    for number, (reason, tensors, changes) in enumerate(broken(make_file(target, layers=(2, 3, 4)))):
        with pytest.raises(ModelUnavailable, match=reason):
            saved(tmp_path / str(number), tensors, config | changes)
    eagle = tensors_of(make_file(target, EAGLE))
    with pytest.raises(ModelUnavailable, match="has an lm_head of its own"):
        saved(tmp_path / "eagle", {**eagle, "lm_head.weight": torch.ones(260, 32)}, CONFIG)
    (tmp_path / "eagle" / "model.safetensors").rename(tmp_path / "eagle" / "model-00001-of-00001.safetensors")
    (tmp_path / "eagle" / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(ModelUnavailable, match="a-head are in several files"):
        read("a-head", tmp_path / "eagle", 7, 32)
    (tmp_path / "0" / "model.safetensors").rename(tmp_path / "0" / "pytorch_model.bin")
    with pytest.raises(ModelUnavailable, match="only pickled"):
        read("a-head", tmp_path / "0", 7, 32)
    (tmp_path / "0" / "config.json").write_text('{"hydra_num_heads": 3}')
    with pytest.raises(ModelUnavailable, match="is a Hydra head"):
        read("a-head", tmp_path / "0", 7, 32)
    (tmp_path / "0" / "config.json").unlink()
    with pytest.raises(ModelUnavailable, match=r"a-head has no config\.json"):
        read("a-head", tmp_path / "0", 7, 32)


def test_what_changes_nothing_is_no_reason_to_refuse_a_head(target, tmp_path):
    """Older libraries wrote the frequencies of the rotation; configurations hold unused fields of their target."""
    unused = {"layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4), "layers.0.mlp.up_proj.bias": torch.zeros(48)}
    config = CONFIG | {"hidden_act": "silu", "sliding_window": 512, "use_sliding_window": False, "mlp_bias": False}
    assert saved(tmp_path, tensors_of(make_file(target, EAGLE)) | unused, config).config.family == EAGLE


def test_a_written_head_is_read_as_it_was(target, tmp_path):
    file = replace(make_file(target, layers=(2, 3, 4)), folder=tmp_path / "head", card={"minutes": 1})
    write(file, "tiny-target", "float32")
    found = read("tiny-head", tmp_path / "head", 7, 32)
    assert (found.config, found.made_for, found.rows, found.card) == (file.config, target.fingerprint, None, file.card)
    assert torch.equal(found.ids, file.ids) and "lm_head.weight" not in load_file(tmp_path / "head/model.safetensors")
    assert all(torch.equal(found.weights[name], file.weights[name]) for name in file.weights)


@pytest.fixture(scope="module")
def texts(target):
    """Loops that a head learns quickly: after a token comes the next of four."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(48):
        cycle = torch.randperm(40, generator=generator)[:3].tolist()
        found.append(Text(tuple(cycle * 8), 4, True))
    return found


@pytest.mark.parametrize("products", some([torch.float32, torch.bfloat16], lambda dtype: dtype == torch.float32))
@pytest.mark.parametrize(("family", "most", "drafted"), [(EAGLE3, 40, 40), (EAGLE, 40, 40), (EAGLE, None, 260)])
def test_training_goes_on_where_it_was_stopped_and_learns(
    target, texts, tmp_path, monkeypatch, family, most, drafted, products
):
    monkeypatch.setattr(training, "quickest_dtype", lambda: products)
    recipe = HeadRecipe(minutes=0.1, steps=3, single=0.0, batch_tokens=256)
    spec = HeadSpec(name="tiny", family=family, vocabulary=most, layers=(2, 3, 4), recipe=recipe, dtype="float32")
    reports = []

    def told(progress):
        reports.append((progress.updates, progress.losses[0]))
        if len(reports) == 3:
            raise KeyboardInterrupt

    work, out = tmp_path / "work", tmp_path / "head"
    with pytest.raises(KeyboardInterrupt):
        make_head(target, "tiny", texts, spec, work, out, lambda *_: None, told)
    assert reports[-1][0] == 3 and not out.exists()
    with pytest.raises(UsageProblem, match="another target"):
        HiddenStateCache(work, target, (2, 3, 5), texts)
    ended = make_head(target, "tiny", texts, spec, work, out, lambda *_: None, told)
    assert reports[3][0] == 4 and ended.updates > 10  # no update is made twice
    assert ended.losses[0] < reports[0][1]
    head = DraftHead(read("tiny", out, 7, 32), target)
    assert (head.config.family, head.config.draft_vocabulary) == (family, drafted)
    assert not work.exists()  # what only the training needed


@pytest.mark.parametrize("family", (EAGLE, EAGLE3))
def test_only_products_are_bfloat16_in_a_training(target, family):
    config = config_for(target, HeadSpec(name="tiny", family=family, layers=(2, 3, 4)))
    features, embedded = torch.ones(1, 4, (len(config.layers) or 1) * 32), torch.ones(1, 6, 32)
    with torch.autocast("cpu", torch.bfloat16):
        network, rotation = HeadNetwork(config), Rotation(config.rope_theta, config.head_dim, embedded)
        _, residual = network.entry(embedded[:, :4], network.fused(features).float())
        outputs = list(unrolled(network, rotation, features, embedded, 2))
    assert {sums.dtype for sums in (residual, *outputs)} == {torch.float32}


def stopped_training(target, texts, work, **recipe):
    """A training that was stopped after its first update."""
    spec = HeadSpec(name="tiny", vocabulary=40, layers=(2, 3, 4), recipe=HeadRecipe(batch_tokens=256, **recipe))
    def told(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_head(target, "t", texts, spec, work, work, lambda *_: None, told)
    return spec


def test_a_training_goes_on_only_with_the_options_that_it_was_begun_with(target, texts, tmp_path):
    work, out, nothing = tmp_path / "work", tmp_path / "head", lambda *_: None
    spec = stopped_training(target, texts, work)
    done = {"minutes": 1e-6, "judge_seconds": 1}  # these may change
    for other in (replace(spec, recipe=replace(spec.recipe, seed=99, **done)), replace(spec, vocabulary=30),
                  replace(spec, recipe=replace(spec.recipe, rate=1e-4, **done))):
        with pytest.raises(UsageProblem, match="begun with other options") as said:
            make_head(target, "tiny", texts, other, work, out, nothing, nothing)
        assert f"remove {work / 'state.safetensors'}: the training begins anew" in said.value.hint
    spec = replace(spec, recipe=replace(spec.recipe, **done))
    assert make_head(target, "tiny", texts, spec, work, out, nothing, nothing).updates == 1
    with pytest.raises(UsageProblem, match="exists and is not empty"):
        make_head(target, "tiny", texts, spec, work, out, nothing, nothing)
    assert not work.exists(), "said before the training"


def test_the_agreement_that_is_kept_is_of_the_weights_that_are_written(target, texts, tmp_path, monkeypatch):
    looks = iter([[0.9, 0.5], [0.1, 0.2]])  # the weights of the first look are better
    monkeypatch.setattr(training, "agreement", lambda *_: next(looks))
    spec = HeadSpec(name="tiny", vocabulary=40, layers=(2, 3, 4), recipe=HeadRecipe(minutes=1e-6, judge_seconds=0))
    ended = make_head(target, "tiny", texts, spec, tmp_path / "work", tmp_path / "head", *[lambda *_: None] * 2)
    card = read("tiny", tmp_path / "head", 7, 32).card
    assert ended.agreement == card["agreement"] == [0.9, 0.5] and card["expected_tokens_a_round"] == 2.35
    assert ended.accepted == simulated([0.1, 0.2]) and not next(looks, None)


@pytest.mark.parametrize("file, content", [
    ("state.safetensors", b"xx"), ("state.safetensors", bytes(1000)), ("progress.json", b'{"x": 1}'),
    ("progress.json", b"{"), ("progress.json", None), ("best.safetensors", b"xx"),
])
def test_a_training_that_was_damaged_says_what_to_remove(target, texts, tmp_path, file, content):
    work, out, nothing = tmp_path / "work", tmp_path / "head", lambda *_: None
    spec = stopped_training(target, texts, work)
    spec = replace(spec, recipe=replace(spec.recipe, minutes=1e-6))

    def trained():
        return make_head(target, "tiny", texts, spec, work, out, nothing, nothing)

    progress, state = work / "progress.json", work / "state.safetensors"
    noted = json.loads(progress.read_text())
    noted["progress"]["best"] = 9.0  # so that the best weights are not replaced
    progress.write_text(json.dumps(noted))
    (work / file).unlink(missing_ok=True)
    if content is None:
        os.mkfifo(work / file)
    else:
        (work / file).write_bytes(content)
    with pytest.raises(UsageProblem, match=f"{file} cannot be read") as caught:
        trained()
    assert state.name in caught.value.hint and file in caught.value.hint and not out.exists()
    state.unlink()
    (work / file).unlink(missing_ok=True)
    assert trained().updates == 1


@pytest.mark.parametrize("lengths", [[4, 1, 1], [[4, 1]], [[4.0, 1.0, 1.0]], [[9, 1, 1]]])
def test_a_damaged_file_of_hidden_states_is_named(target, tmp_path, lengths):
    states = HiddenStateCache(tmp_path, target, (2,), [Text((1, 2, 3, 4), 1, True)])
    shard = tmp_path / "taps-00000.safetensors"
    save_file({"lengths": torch.tensor(lengths), "tokens": torch.zeros(4, dtype=torch.int32),
               "taps": torch.zeros(4, 2), "final": torch.zeros(4, 2)}, shard)
    with pytest.raises(UsageProblem, match=r"taps-00000\.safetensors is damaged"):
        states.read()


def test_two_that_write_one_file_of_tensors_do_not_disturb_each_other(tmp_path, monkeypatch):
    file, save_file = tmp_path / "state.safetensors", tensor_files.save_file

    def slow(tensors, path):
        monkeypatch.setattr(tensor_files, "save_file", save_file)
        save_file(tensors, path)
        tensor_files.save({"of": torch.tensor([2])}, file)  # another process, meanwhile

    monkeypatch.setattr(tensor_files, "save_file", slow)
    tensor_files.save({"of": torch.tensor([1])}, file)
    assert tensor_files.load(file)["of"].tolist() == [1] and [*tmp_path.iterdir()] == [file]


def test_a_full_disk_leaves_no_part_of_a_head(target, tmp_path, monkeypatch):
    file = replace(make_file(target, layers=(2, 3, 4)), folder=tmp_path / "deep" / "head")

    def full(tensors, path):
        path.write_bytes(b"part")
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    with monkeypatch.context() as patched:
        patched.setattr(tensor_files, "save_file", full)
        with pytest.raises(OSError, match="No space left") as caught:
            write(file, "tiny", "float32")
        assert caught.value.errno == errno.ENOSPC and not any((tmp_path / "deep").iterdir())
    write(file, "tiny", "float32")
    with pytest.raises(OSError, match="not empty"):
        write(file, "another", "float32")
    (tmp_path / "empty").mkdir()
    write(replace(file, folder=tmp_path / "empty"), "tiny", "float32")
    assert {path.name for path in (tmp_path / "empty").iterdir()} == {"config.json", "model.safetensors"}


@pytest.mark.thorough
def test_an_off_by_one_reading_is_found(target, texts, tmp_path):
    generated = []
    for text in texts[:24]:
        target.truncate(0)
        tokens = list(text.tokens[:4])
        logits = target.extend(tokens)
        for _ in range(20):
            tokens.append(int(logits.argmax()))
            logits = target.extend(tokens[-1:])
        generated.append(Text(tuple(tokens), 4, True))
    spec = HeadSpec(name="tiny", vocabulary=260, layers=(2, 3, 4), dtype="float32",
                    recipe=HeadRecipe(minutes=0.12, steps=2, single=0.5, batch_tokens=512, rate=5e-3))
    make_head(target, "tiny", generated, spec, tmp_path / "work", tmp_path / "head", lambda *_: None, lambda _: None)
    file = read("tiny", tmp_path / "head", 7, 32)
    sound = check(DraftHead(file, target), target, generated[:12])
    assert sound.better is None and sound.readings[0].declared
    wrong = replace(file, config=replace(file.config, layers=(3, 4, 5)))
    found = check(DraftHead(wrong, target), target, generated[:12])
    assert found.better.choices["layers"] == (2, 3, 4) and not found.better.choices["norm_before_residual"]
    assert found.declared.agreement[0] < sound.declared.agreement[0] - 0.1
    write(as_read(wrong, found.better, tmp_path / "taken"), "tiny", "float32")
    assert read("taken", tmp_path / "taken", 7, 32).config == file.config


def test_what_is_held_out_is_not_trained_on(texts, target, tmp_path):
    cache = HiddenStateCache(tmp_path, target, (2, 3, 4), texts)
    cache.fill(lambda *_: None)
    trained, held = split(cache.read())
    assert len(trained) + len(held) == len(texts) and len(held) == 3
    assert not {bytes(t.tokens) for t in trained} & {bytes(t.tokens) for t in held}
    assert simulated([0.5, 0.5]) == 1.75


def test_answers_go_on_after_a_kill_in_the_middle_of_a_line(tiny, tmp_path, monkeypatch):
    file, asked = tmp_path / "answers.jsonl", ["abc", "def"]
    made = generate_answers(tiny, asked[:1], file, "autoregressive", 12, lambda done, total: None)
    with file.open("a") as out:
        out.write('{"prompt": "def", "tok')
    again = generate_answers(tiny, asked, file, "autoregressive", 12, lambda done, total: None)
    assert again[:1] == made and len(again) == 2
    monkeypatch.setattr(type(tiny), "run", None)  # both are kept: nothing is asked
    assert generate_answers(tiny, asked, file, "autoregressive", 12, lambda done, total: None) == again
    for line in ('{"x": 1}', '{"prompt": "abc", "tokens": ["a"]}', '{"prompt": [], "tokens": []}'):
        file.write_text(line + "\n")
        with pytest.raises(UsageProblem, match=r"answers\.jsonl is damaged"):
            generate_answers(tiny, asked, file, "autoregressive", 12, lambda done, total: None)


def test_an_answer_may_hold_any_separator_and_a_damaged_line_is_named(tiny, tmp_path):
    file, row = tmp_path / "answers.jsonl", {"prompt": "abc", "answer": "one\u2028two\x85three"}
    file.write_text(json.dumps(row, ensure_ascii=False) + "\n", "utf-8")
    text, = read_answers(tiny, file)
    assert tiny.tokenizer.decode(text.tokens[text.start:]) == row["answer"]
    file.write_text(f"{json.dumps(row)}\n[]\n", "utf-8")
    with pytest.raises(UsageProblem, match=r"line 2 of .*answers\.jsonl is not a JSON object"):
        read_answers(tiny, file)


def test_damaged_zipped_answers_are_refused_with_a_sentence(tiny, tmp_path):
    file, zipped = tmp_path / "answers.jsonl.gz", gzip.compress(str([*range(9999)]).encode())
    for content in (zipped[:-999], *(zipped[:at] + bytes(40) + zipped[at + 40 :] for at in (15, len(zipped) // 2))):
        file.write_bytes(content)
        with pytest.raises(UsageProblem, match=r"answers\.jsonl\.gz cannot be read as lines of JSON: it is damaged"):
            read_answers(tiny, file)


def test_kept_answers_of_another_model_or_length_are_not_trained_on(tiny, tmp_path, monkeypatch):
    file = tmp_path / "answers.jsonl"

    def answered(length):
        text, = generate_answers(tiny, ["abc"], file, "autoregressive", length, lambda done, total: None)
        return len(text.tokens) - text.start

    assert (answered(12), answered(20)) == (12, 20)
    monkeypatch.setattr(tiny.target, "fingerprint", "another")
    assert not kept_answers(tiny, file, 12) and answered(12) == 12
    assert [json.loads(line)["target"] for line in file.read_text().splitlines()][-1] == "another"


@pytest.mark.parametrize("name", ["llama", "gemma2", "gemma3", "gemma4 with shared keys"])
def test_a_head_is_trained_on_what_the_target_computes_with(name):
    """Gemma multiplies its embeddings; norms of Gemma 2 and 3 count their weights from one, others do not."""
    target = CausalModel(make(*(NAMED | TREES)[name]), name)
    parts, model = parts_of(target), target.model
    read = model.get_input_embeddings()(torch.arange(target.vocab_size))
    torch.testing.assert_close(parts.embeddings, read)
    torch.testing.assert_close(parts.norm, model.base_model.norm(torch.ones(32)))
    torch.testing.assert_close(standing_alone(make_file(target, layers=(1,)), target).embeddings, read)


@pytest.mark.parametrize("whole, read_ones", [(3, (1, 2, 3)), (4, (1, 2, 4)), (6, (1, 3, 6)), (7, (2, 3, 4))])
def test_a_head_of_eagle_3_reads_three_layers_of_any_target(whole, read_ones):
    small = SimpleNamespace(model=SimpleNamespace(config=LlamaConfig(num_hidden_layers=whole)), vocab_size=64)
    assert config_for(small, HeadSpec(name="tiny")).layers == read_ones


def test_a_head_that_repeats_the_root_is_not_misread():
    """As Medusa heads do that are hardly trained: the first agrees with the root itself, the others with nothing."""
    declared, shifted = (0.03, 0.05, 0.04, 0.03), (0.81, 0.01, 0.03, 0.02)
    readings = [HeadReading(choices={}, words="", declared=said, agreement=agreement)
                for said, agreement in ((False, shifted), (True, declared))]
    assert HeadCheck(tuple(readings), 100).better is None


def test_too_few_texts_are_refused(texts, target, tmp_path):
    spec = HeadSpec(name="tiny", layers=(2, 3, 4))
    with pytest.raises(UsageProblem, match="too few"):
        make_head(target, "tiny", texts[:8], spec, tmp_path, tmp_path / "out", lambda *_: None, lambda _: None)
    with pytest.raises(UsageProblem, match="cannot read layers 2, 3, 9"):
        make_head(target, "t", texts, replace(spec, layers=(2, 3, 9)), tmp_path, tmp_path, lambda *_: None, print)
