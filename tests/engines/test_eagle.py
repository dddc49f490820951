"""The eagle engine: the drafter against a plain reading of its definition, its cache, and what it never changes."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from engines import Request
from engines.core.lossless_laws import Exact
from engines.core.outcome import DraftLimits
from engines.core.sampling import Sampling
from engines.errors import UsageProblem
from engines.heads.compatibility import rows_for
from engines.heads.draft_head import DraftHead
from engines.heads.head_config import EAGLE_HEAD
from engines.heads.network import HeadNetwork, Rotation
from engines.heads.training_time_test import unrolled
from engines.methods.drafter import Resources
from engines.methods.eagle import SPEC
from engines.methods.eagle.drafter import Eagle
from engines.model.native.native_check import unavailable
from engines.report.events import Prefilled, Round
from tests.conftest import make_llama
from tests.heads import make_file, make_head

TEXT = [5, 17, 40, 3, 99, 120, 7, 40, 3, 99, 8, 31]
FAMILIES = {
    "eagle-3": {}, "norm first": {"norm_before_residual": True}, "output norm": {"norm_output": True},
    "norm of each tap": {"tap_norm": "each"}, "norm of taps": {"tap_norm": "whole"},
    "another base": {"rope_theta": 500.0}, "whole vocabulary": {"draft_tokens": 260}, "eagle": {"family": "EAGLE"},
    "eagle, frequent tokens": {"family": "EAGLE", "draft_vocabulary": 200},
}
NATIVE = {"head_dim": 16, "mlp": 48}  # sizes that native code takes, one not of whole groups
FAMILIES |= {f"{name}, native": FAMILIES[name] | NATIVE for name in ("eagle-3", "norm first", "output norm", "eagle",
                                                               "eagle, frequent tokens")}


@pytest.fixture(scope="module")
def target():
    from engines.model.loading import wrap

    return wrap(make_llama(1, layers=4), "tiny-target")


def reading(target, head, text):
    """The target with features of a text, all but its last token, which is the root."""
    target.features.request(head.request)
    target.truncate(0)
    target.extend(text[:-1])


def plainly(target, head, text, drafted):
    """Logits after a text and drafted tokens by the definition: every column anew, no cache, one column at a time."""
    file, config = head.file, head.config
    states = target.model(torch.tensor([text]), output_hidden_states=True).hidden_states
    taps = states[-1][0] if config.family == "EAGLE" else torch.cat([states[layer][0] for layer in config.layers], -1)
    weights, everything = file.weights, [*text, *drafted]
    keys, values, output = [], [], None

    def normed(x, name):
        return x * (x.pow(2).mean(-1, keepdim=True) + config.eps).rsqrt() * weights[name]

    for t in range(len(everything) - 1):
        feature = output
        if t < len(text) - 1:
            feature = taps[t]
            if config.tap_norm == "whole":
                feature = normed(feature, "tap_norm")
            elif config.tap_norm:
                feature = torch.cat([F.rms_norm(part, part.shape, None, config.eps) for part in feature.chunk(3)])
                feature = feature * weights["tap_norm"]
            feature = weights["fc.weight"] @ feature if config.family != "EAGLE" else feature
        embedded = target.model.get_input_embeddings().weight[everything[t + 1]]
        if config.family == "EAGLE":
            read = residual = weights["fc.weight"] @ torch.cat([embedded, feature]) + weights["fc.bias"]
        else:
            read = torch.cat([normed(embedded, "input_layernorm"), normed(feature, "hidden_norm")])
            residual = read[config.width :] if config.norm_before_residual else feature
        angle = t / config.rope_theta ** (torch.arange(0, config.head_dim, 2) / config.head_dim)

        def turned(x, angle=angle):
            numbers = torch.complex(*x.view(-1, config.head_dim).chunk(2, -1))
            pairs = numbers * torch.polar(torch.ones_like(angle), angle)
            return torch.cat([pairs.real, pairs.imag], -1)

        query, key, value = (weights[f"{name}_proj.weight"] @ read for name in "qkv")
        keys.append(turned(key))
        values.append(value.view(-1, config.head_dim))
        attended = []
        for number, one in enumerate(turned(query)):
            group = number // (config.heads // config.kv_heads)
            share = torch.stack([one @ key[group] / math.sqrt(config.head_dim) for key in keys]).softmax(0)
            attended.append(sum(s * value[group] for s, value in zip(share, values)))
        stream = residual + weights["o_proj.weight"] @ torch.cat(attended)
        x = normed(stream, "post_attention_layernorm")
        gate = F.silu(weights["gate_proj.weight"] @ x) * (weights["up_proj.weight"] @ x)
        output = stream + weights["down_proj.weight"] @ gate
        final = output if config.family == "EAGLE" else normed(output, "norm")
        output = final if config.norm_output else output
    rows = target.model.get_output_embeddings().weight
    logits = torch.full((target.vocab_size,), float("-inf"))
    ids = torch.arange(target.vocab_size) if file.ids is None else file.ids
    logits[ids] = rows[ids] @ final
    return logits


def drafted_by(head, logits):
    """Of the target's vocabulary, the logits of what a head drafts."""
    return logits if head.drafts is None else logits[head.drafts]


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_chains_and_trees_are_what_the_definition_says(target, family):
    head = make_head(target, **FAMILIES[family])
    reading(target, head, TEXT)
    close = {"atol": 2e-4, "rtol": 1e-4}
    torch.testing.assert_close(head.after(TEXT), drafted_by(head, plainly(target, head, TEXT, [])), **close)
    for length in (1, 2, 3):
        found = head.step((50, 60, 70)[length - 1])
        wanted = drafted_by(head, plainly(target, head, TEXT, [50, 60, 70][:length]))
        torch.testing.assert_close(found, wanted, **close)
    head.drop()
    first = head.level([10, 11], [-1, -1])
    second = head.level([12, 13, 14], [1, 0, 1])
    for found, path in zip([*first, *second], ([10], [11], [11, 12], [10, 13], [11, 14])):
        torch.testing.assert_close(found, drafted_by(head, plainly(target, head, TEXT, path)), **close)


@torch.inference_mode()
def test_a_rewound_context_gives_what_a_fresh_one_gives(target):
    head, fresh = make_head(target), make_head(target)
    reading(target, head, TEXT)
    head.after(TEXT)
    head.step(9)
    other = [*TEXT[:7], 77, 78]
    target.rewind(other)
    target.extend(other[target.length : -1])
    kept = head.after(other)
    assert head.length == len(other) - 1
    reading(target, fresh, other)
    torch.testing.assert_close(kept, fresh.after(other), atol=1e-5, rtol=1e-5)


@pytest.mark.skipif(bool(unavailable()), reason="no native code here")
def test_the_sizes_of_native_code_are_computed_by_it(target):
    assert make_head(target, **NATIVE).native and not make_head(target).native


@pytest.mark.parametrize("family", [name for name, config in FAMILIES.items() if "family" not in config])
@torch.inference_mode()
def test_step_i_of_the_training_is_step_i_of_the_drafter(target, family):
    head = make_head(target, **FAMILIES[family])
    reading(target, head, TEXT)
    taps = torch.cat([target.features.rows(layer, 0, len(TEXT) - 1) for layer in head.config.layers], -1)
    steps = 4
    embedded = target.model.get_input_embeddings()(torch.tensor([TEXT + [0] * steps]))
    rotation = Rotation(head.config.rope_theta, head.config.head_dim, taps)
    network = HeadNetwork(head.config)
    network.load_state_dict(head.file.weights)
    rows = rows_for(head.file, target)
    outputs = list(unrolled(network, rotation, taps[None], embedded, steps, first=2))
    for column in (2, 5):
        reading(target, head, TEXT[: column + 2])
        found = [head.after(TEXT[: column + 2])] + [head.step(TEXT[column + 1 + step]) for step in range(1, steps)]
        for step, logits in enumerate(found):
            trained = (network.final(outputs[step][0, column - 2][None]) @ rows.T)[0]
            torch.testing.assert_close(trained, logits, atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_the_tree_is_eagle_2s(target):
    head = make_head(target)
    reading(target, head, TEXT)
    law = Exact(Sampling(), 0, target.vocab_size)
    options = SPEC.parse({"budget": "paper", "shape": "tree", "depth": 3, "top_k": 3, "total_nodes": 11})
    heads = {EAGLE_HEAD: head}
    drafter = Eagle(Resources(law=law, vocab_size=target.vocab_size, target=target, heads=heads), **options)
    tree = drafter.propose(TEXT, DraftLimits(100, 100))
    everything, beam = {}, {(): 0.0}
    for _ in range(3):
        level = {}
        for path, above in beam.items():
            top = plainly(target, head, TEXT, path).log_softmax(-1).topk(3)
            level |= {(*path, t): above + v for t, v in zip(top.indices.tolist(), top.values.tolist())}
        everything |= level
        beam = dict(sorted(level.items(), key=lambda item: -item[1])[:3])
    expected = sorted(everything, key=lambda path: -everything[path])[:11]
    paths: list[tuple] = []
    for token, parent in zip(tree.tokens, tree.parents):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    assert sorted(paths) == sorted(expected)
    assert tree.note.candidates == len(everything)


@pytest.mark.parametrize("family", ["eagle", "norm of each tap"])
@pytest.mark.parametrize("law, temperature", [("exact", 0.0), ("exact", 0.8), ("rejection", 0.0)])
def test_other_families_are_lossless_too(tiny, monkeypatch, family, law, temperature):
    monkeypatch.setitem(tiny.heads, EAGLE_HEAD, make_head(tiny.target, **FAMILIES[family]))
    texts = set()
    for engine, options in (("autoregressive", {}), ("eagle", {}), ("eagle", {"shape": "tree", "budget": "paper"})):
        request = Request((("user", "abc abc"),), engine, options, temperature=temperature, law=law, max_new_tokens=50)
        texts.add(list(tiny.run(request))[-1].tokens)
    assert len(texts) == 1


def test_a_second_turn_reads_only_what_is_new(tiny, monkeypatch):
    first = (("user", "Tell me of the cat on the mat."),)
    options = {"budget": "paper"}
    answer = list(tiny.run(Request(first, "eagle", options, max_new_tokens=30)))[-1].text
    head = tiny.heads[EAGLE_HEAD]
    length = head.length
    turns = (*first, ("assistant", answer), ("user", "And the hat?"))
    read, rows = [], tiny.target.features.rows

    def counting(tap, begin=0, end=None):
        read.append(end - begin)
        return rows(tap, begin, end)

    monkeypatch.setattr(tiny.target.features, "rows", counting)
    events = list(tiny.run(Request(turns, "eagle", options, max_new_tokens=30)))
    prefilled = next(event for event in events if isinstance(event, Prefilled))
    assert prefilled.reused > 20 and read[0] <= prefilled.prompt_tokens - min(prefilled.reused, length) + 1
    again = list(tiny.run(Request(turns, "autoregressive", max_new_tokens=30)))
    assert events[-1].tokens == again[-1].tokens
    assert any(event.draft.tokens for event in events if isinstance(event, Round))


def test_without_a_head_the_engine_says_what_to_do(tiny, monkeypatch):
    monkeypatch.setattr(tiny, "heads", {})
    with pytest.raises(UsageProblem, match="EAGLE head"):
        list(tiny.run(Request((("user", "abc"),), "eagle")))


def test_a_head_of_another_target_is_refused_with_what_differs(target):
    with pytest.raises(UsageProblem, match="261 tokens, the target's 260"):
        DraftHead(make_file(target, vocabulary=261), target)
    with pytest.raises(UsageProblem, match="hidden size is 16"):
        DraftHead(make_file(target, width=16), target)
