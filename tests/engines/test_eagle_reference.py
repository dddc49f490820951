"""EAGLE-3 against a plain reference over a whole answer: chains and EAGLE-2's trees, round by round.

The reference reads the shipped head's file and runs the model as transformers does. It keeps nothing from round to
round: the whole text is read again for each path, all of its columns at once.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from engines import Request
from engines.folders import sample_heads
from engines.report.events import Prefilled, Round, Started
from tests.engines.test_rest import paths_of

LAYERS, HEADS, EPS = (2, 6, 9), 4, 1e-5


class PlainEagle:
    """The shipped EAGLE-3 head of the sample model as its file has it."""

    def __init__(self, runtime) -> None:
        held = load_file(sample_heads() / "sample" / "model.safetensors")
        floating = {name: tensor.float() for name, tensor in held.items() if tensor.is_floating_point()}
        self.of = {name.removeprefix("layers.0."): tensor for name, tensor in floating.items()}
        self.ids = held["d2t"] + torch.arange(len(held["d2t"]))
        self.model = runtime.target.model
        self.embeddings = self.model.get_input_embeddings().weight.float()

    def normed(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.rms_norm(x, x.shape[-1:], self.of[f"{name}.weight"], EPS)

    def layer(self, tokens: list[int], features: torch.Tensor) -> torch.Tensor:
        """Outputs of columns [columns, width] from the tokens after them and their features."""
        embedded = self.normed(self.embeddings[tokens], "input_layernorm")
        read = torch.cat([embedded, self.normed(features, "hidden_norm")], -1)
        q, k, v = ((read @ self.of[f"self_attn.{name}_proj.weight"].T).unflatten(-1, (HEADS, -1)).transpose(0, 1)[None]
                   for name in "qkv")
        angles = torch.arange(len(tokens))[:, None] / 10_000 ** (torch.arange(0, q.shape[-1], 2) / q.shape[-1])
        angles = torch.cat([angles, angles], -1)[None]
        q, k = apply_rotary_pos_emb(q, k, angles.cos(), angles.sin())
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)[0].transpose(0, 1).flatten(1)
        stream = features + attended @ self.of["self_attn.o_proj.weight"].T
        x = self.normed(stream, "post_attention_layernorm")
        gate, up, down = (self.of[f"mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
        return stream + (F.silu(x @ gate.T) * (x @ up.T)) @ down.T

    @torch.inference_mode()
    def taps(self, text: list[int]) -> torch.Tensor:
        """Fused features of a text's tokens without the last, the root."""
        states = self.model(torch.tensor([text[:-1]]), output_hidden_states=True, use_cache=False).hidden_states
        return torch.cat([states[layer][0] for layer in LAYERS], -1) @ self.of["fc.weight"].T

    @torch.inference_mode()
    def guesses(self, text: list[int], taps: torch.Tensor, path: tuple[int, ...]) -> dict[int, float]:
        """Probability of every token that it can draft, after a text and a drafted path: each step adds a column whose
        feature is the output of the last."""
        features = taps
        outputs = self.layer(text[1:], features)
        for drafted in range(1, len(path) + 1):
            features = torch.cat([features, outputs[-1:]])
            outputs = self.layer([*text[1:], *path[:drafted]], features)
        logits = self.embeddings[self.ids] @ self.normed(outputs[-1], "norm")  # its lm_head is tied to them
        return dict(zip(self.ids.tolist(), logits.softmax(-1).tolist()))


def likeliest(guesses: dict[int, float], count: int) -> list[int]:
    return sorted(guesses, key=guesses.get, reverse=True)[:count]


def chain(plain: PlainEagle, text: list[int], count: int) -> dict[tuple[int, ...], float]:
    taps, path, found = plain.taps(text), (), {}
    for _ in range(count):
        guesses = plain.guesses(text, taps, path)
        path = (*path, likeliest(guesses, 1)[0])
        found[path] = guesses[path[-1]]
    return found


def tree(plain: PlainEagle, text: list[int], depth: int, top_k: int, nodes: int) -> dict[tuple[int, ...], float]:
    """Each level expands the ``top_k`` likeliest paths; of all candidates the likeliest are verified."""
    taps, probs, reach, beam = plain.taps(text), {}, {(): 1.0}, [()]
    for _ in range(depth):
        level = []
        for path in beam:
            guesses = plain.guesses(text, taps, path)
            for token in likeliest(guesses, top_k):
                probs[*path, token] = guesses[token]
                reach[*path, token] = reach[path] * guesses[token]
                level.append((*path, token))
        beam = sorted(level, key=reach.get, reverse=True)[:top_k]
    return {path: probs[path] for path in sorted(probs, key=reach.get, reverse=True)[:nodes]}


def answered(runtime, options: dict) -> Iterator[tuple[list[int], Round]]:
    """The rounds of an answer, each with the text before it, whose last token is the root; not those at its end, whose
    drafts are cut to what is left."""
    turns = (("user", "Write a Python function that adds two numbers."),)
    text: list[int] = []
    for event in runtime.run(Request(turns, "eagle", options=options, max_new_tokens=24)):
        if isinstance(event, Started):
            text += event.prompt
            last = len(text) + event.max_new_tokens - 5
        elif isinstance(event, Prefilled):
            text.append(event.first.token)
        elif isinstance(event, Round) and len(text) < last:
            yield text, event
            text += [emitted.token for emitted in event.emitted]


@pytest.fixture(scope="module")
def with_eagle3():
    from engines import load

    return load("sample", head="sample")


@pytest.mark.parametrize("options", [
    {"num_tokens": 4}, {"shape": "tree", "depth": 3, "top_k": 4, "total_nodes": 14},
], ids=["chain", "tree"])
def test_every_round_is_what_the_plain_reference_says(with_eagle3, options):
    plain, drafted, accepted = PlainEagle(with_eagle3), 0, 0
    for text, event in answered(with_eagle3, {"budget": "paper", **options}):
        if "shape" in options:
            expected = tree(plain, text, options["depth"], options["top_k"], options["total_nodes"])
        else:
            expected = chain(plain, text, options["num_tokens"])
        paths = paths_of(event.draft)
        assert len(paths) == len(expected) and set(paths) == set(expected)
        assert dict(zip(paths, event.draft.probs)) == pytest.approx(expected, rel=2e-3)
        drafted, accepted = drafted + len(paths), accepted + len(event.path)
    assert drafted > 20 and accepted > 1
