"""Measuring a pair: held-out loss by source, with sublayers dropped, and the draft's agreement."""

import math
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F

from . import corpus
from .stages import MAX_ATTENTION_DROP, MAX_MLP_DROP
from .sublayers import SublayerGates, drop_probabilities, random_gates


class HeldOut:
    """The beginning of every held-out source, as tokens of one tokenizer."""

    def __init__(self, data_dir: Path, tokenizer, tokens_per_source: int):
        self.tokens: dict[str, torch.Tensor] = {}
        self.bytes_per_token: dict[str, float] = {}
        for name, path in corpus.row_files(data_dir, "valid").items():
            if name in corpus.REAL_SOURCES:
                text = "".join(corpus.document(row) for row in corpus.rows(path))
                ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
                self.bytes_per_token[name] = len(text.encode()) / len(ids)
                self.tokens[name] = torch.tensor(ids[:tokens_per_source])

    def windows(self, name: str, length: int) -> Iterator[torch.Tensor]:
        """The source cut into windows without overlap; the last one may be shorter."""
        for window in self.tokens[name].split(length):
            if len(window) > 1:
                yield window[None]


@torch.inference_mode()
def loss_by_source(model, held_out: HeldOut, window: int) -> dict[str, dict[str, float]]:
    """Loss per token (nats), bits per byte and number of tokens for every held-out source."""
    results = {}
    for name in held_out.tokens:
        total, count = 0.0, 0
        for tokens in held_out.windows(name, window):
            logits = model(input_ids=tokens[:, :-1], use_cache=False).logits.float()
            total += F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum").item()
            count += tokens.shape[1] - 1
        loss = total / count
        bits = loss / math.log(2) / held_out.bytes_per_token[name]
        results[name] = {"loss": loss, "bits_per_byte": bits, "tokens": count}
    return results


def dropping_variants(layers: int) -> dict[str, torch.Tensor]:
    """Gates of each way to drop sublayers that the card reports."""
    third, fourth = torch.ones(layers, 2, 1), torch.ones(layers, 2, 1)
    third[1::3, 0] = 0
    fourth[2::4] = 0
    chances = drop_probabilities(layers, MAX_ATTENTION_DROP, MAX_MLP_DROP)
    return {
        "at random, as in training": random_gates(chances, 1, seed=0),
        "attention of every 3rd layer": third.flatten(0, 1),
        "attention and MLP of every 4th layer": fourth.flatten(0, 1),
    }


def dropped_losses(model, held_out: HeldOut, window: int) -> dict[str, dict[str, float]]:
    """Loss by source for every way of dropping sublayers; random gates are drawn anew per window."""
    layers = model.config.num_hidden_layers
    gates, results = SublayerGates(model), {}
    redraw = _Redraw(model, gates, layers)
    for name, values in dropping_variants(layers).items():
        gates.values, redraw.active = values, "random" in name
        results[name] = {source: r["loss"] for source, r in loss_by_source(model, held_out, window).items()}
    redraw.remove()
    gates.remove()
    return results


class _Redraw:
    """A hook that draws new random gates before every forward pass while active."""

    def __init__(self, model, gates: SublayerGates, layers: int):
        self.active, self._draws, self._gates = False, 0, gates
        self._chances = drop_probabilities(layers, MAX_ATTENTION_DROP, MAX_MLP_DROP)
        self._hook = model.register_forward_pre_hook(self._draw)

    def _draw(self, _module, _inputs) -> None:
        if self.active:
            self._gates.values = random_gates(self._chances, 1, seed=self._draws)
            self._draws += 1

    def remove(self) -> None:
        self._hook.remove()


@torch.inference_mode()
def agreement(target, draft, held_out: HeldOut, window: int) -> dict[str, dict[str, float]]:
    """By source: how often the draft's likeliest token is the target's, and the divergence in nats."""
    results = {}
    for name in held_out.tokens:
        same, divergence, count = 0, 0.0, 0
        for tokens in held_out.windows(name, window):
            theirs = target(input_ids=tokens, use_cache=False).logits.float()
            ours = draft(input_ids=tokens, use_cache=False).logits.float()
            same += (theirs.argmax(-1) == ours.argmax(-1)).sum().item()
            logs = [F.log_softmax(x, -1).flatten(0, 1) for x in (ours, theirs)]
            divergence += F.kl_div(*logs, log_target=True, reduction="sum").item()
            count += tokens.shape[1]
        results[name] = {"same": same / count, "kl": divergence / count, "tokens": count}
    return results


@torch.inference_mode()
def greedy_answer(model, tokenizer, prompt: str, limit: int) -> tuple[str, list[int], list[int]]:
    """The greedy answer to a prompt in the chat template, with the token ids of prompt and answer."""
    asked = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    out = model.generate(**asked, max_new_tokens=limit, do_sample=False)[0].tolist()
    prompt_ids = asked["input_ids"][0].tolist()
    answer = out[len(prompt_ids) :]
    return tokenizer.decode(answer, skip_special_tokens=True), prompt_ids, answer


@torch.inference_mode()
def agreement_on_answer(draft, prompt_ids: list[int], answer_ids: list[int]) -> int:
    """How many tokens of the target's answer are the draft's likeliest token at their place."""
    return sum(guessed(draft, prompt_ids, answer_ids))


@torch.inference_mode()
def guessed(draft, prompt_ids: list[int], answer_ids: list[int]) -> list[bool]:
    """Of each token of the target's answer, whether it is the draft's likeliest token at its place."""
    tokens = torch.tensor([prompt_ids + answer_ids])
    guesses = draft(input_ids=tokens, use_cache=False).logits[0].argmax(-1)
    return (guesses[len(prompt_ids) - 1 : -1] == tokens[0, len(prompt_ids) :]).tolist()


def rounds(right: list[bool], chain: int) -> int:
    """How many rounds an answer takes if `chain` tokens are drafted in each and `right` says which would be guessed."""
    count = at = 0
    while at < len(right):
        drafted = right[at : at + chain]
        at += 1 + (drafted.index(False) if False in drafted else len(drafted))
        count += 1
    return count
