"""Medusa against a plain reference, round by round: candidates, both trees, the accepted path.

The reference was written from the paper (Cai et al. 2024) and the layout of its checkpoints by somebody who had not
read the drafter. It keeps nothing from round to round: the whole text is read again for each token.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from engines import Request
from engines.cost.curve import CostCurve
from engines.folders import sample_heads
from engines.report.events import Prefilled, Round, Started
from engines.runtime import Prices, Runtime

PUBLISHED = """
0 00 1 01 2 000 10 02 3 03 4 04 20 05 001 5 06 6 07 010 11 7 08 002 30 09 8 9 100 020 12 003 40 21 004 005
0000 011 006 030 50 13 007 008 009 60 040 14 70 012 200 31 22 80 050 15 101 021 90 060 0001 16 070
"""  # mc_sim_7b_63: which candidate of each head in turn, the likeliest path first


class PlainMedusa:
    """The shipped heads of the sample model as their file has them, and the model as transformers runs it."""

    def __init__(self, runtime) -> None:
        held = load_file(sample_heads() / "sample-medusa" / "model.safetensors")
        heads = sum(name.endswith("weight") for name in held)
        self.blocks = [[held[f"blocks.{head}.layers.0.{kind}"].float() for kind in ("weight", "bias")]
                       for head in range(heads)]
        self.model, self.ids = runtime.target.model, held["token_map"].long()
        self.rows = self.model.get_input_embeddings().weight[self.ids].float()  # its lm_head is tied to them

    def states(self, text: list[int]) -> torch.Tensor:
        """The hidden states of a text after the final norm, [tokens, width]."""
        return self.model.model(input_ids=torch.tensor([text]), use_cache=False).last_hidden_state[0]

    @torch.inference_mode()
    def guesses(self, text: list[int]) -> list[dict[int, float]]:
        """For each head, the probability of every token that it can draft; ``text`` ends with the root, which the row
        before it chose."""
        state = self.states(text)[-2]
        found = []
        for weight, bias in self.blocks:
            probs = torch.softmax(self.rows @ (state + F.silu(weight @ state + bias)), -1)
            found.append(dict(zip(self.ids.tolist(), probs.tolist())))
        return found

    @torch.inference_mode()
    def accepted(self, text: list[int], tree: set[tuple[int, ...]]) -> tuple[int, ...]:
        """What the target goes on with at temperature 0, as far as the tree holds it, and one token more."""
        found: tuple[int, ...] = ()
        while found in tree or not found:
            logits = self.model.lm_head.weight @ self.states([*text, *found])[-1]
            found = (*found, int(logits.argmax()))
        return found


def published(guesses: list[dict[int, float]], nodes: int) -> set[tuple[int, ...]]:
    best = [sorted(guess, key=guess.get, reverse=True)[:10] for guess in guesses]
    paths = [tuple(map(int, path)) for path in PUBLISHED.split()[:nodes]]
    return {tuple(best[head][rank] for head, rank in enumerate(path)) for path in paths}


def likeliest(guesses: list[dict[int, float]], nodes: int, top_k: int) -> set[tuple[int, ...]]:
    best = [sorted(guess, key=guess.get, reverse=True)[:top_k] for guess in guesses]
    scored = {path: score(guesses, path) for deep in range(1, 1 + len(best)) for path in product(*best[:deep])}
    return set(sorted(scored, key=scored.get, reverse=True)[:nodes])


def score(guesses: list[dict[int, float]], path: tuple[int, ...]) -> float:
    found = 1.0
    for guess, token in zip(guesses, path):
        found *= guess[token]
    return found


def paths_of(draft) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    for token, parent in zip(draft.tokens, draft.parents):
        found.append((*(found[parent] if parent >= 0 else ()), token))
    return found


def answered(runtime, options: dict) -> Iterator[tuple[list[int], Round]]:
    """The rounds of an answer, each with the text before it, whose last token is the root; not those at its end, whose
    trees are cut to what is left."""
    turns = (("user", "Write a Python function that adds two numbers."),)
    text: list[int] = []
    for event in runtime.run(Request(turns, "medusa", options=options, max_new_tokens=18)):
        if isinstance(event, Started):
            text += event.prompt
            last = len(text) + event.max_new_tokens - 5
        elif isinstance(event, Prefilled):
            text.append(event.first.token)
        elif isinstance(event, Round) and len(text) < last:
            yield text, event
            text += [emitted.token for emitted in event.emitted]


@pytest.mark.parametrize("options", [
    {"budget": "paper"}, {"top_k": 3}, pytest.param({"budget": "paper", "nodes": 9}, marks=pytest.mark.thorough),
], ids=str)
def test_every_round_is_what_the_plain_reference_says(sample, options):
    free = CostCurve(((1, 1e-9), (64, 1e-9)))
    prices = Prices(CostCurve(((1, 1.0), (64, 1.5))), free, dict.fromkeys(sample.heads, free))  # so that drafting pays
    sample = Runtime(sample.target, sample.tokenizer, prices, draft=sample.draft, heads=sample.heads)
    plain, drafted, accepted = PlainMedusa(sample), 0, 0
    for text, event in answered(sample, options):
        guesses, paths = plain.guesses(text), paths_of(event.draft)
        if options.get("budget") == "paper":
            expected = published(guesses, options.get("nodes", 63))
        else:  # the budget may leave some of them out
            expected = likeliest(guesses, 32, options["top_k"]) & set(paths)
        assert set(paths) == expected and len(paths) == len(expected)
        said = dict(zip(paths, event.draft.probs))
        assert all(said[path] == pytest.approx(guesses[len(path) - 1][path[-1]], rel=1e-3) for path in paths)
        assert tuple(emitted.token for emitted in event.emitted) == plain.accepted(text, expected)
        drafted, accepted = drafted + len(paths), accepted + len(event.path)
    assert drafted > 20 and accepted > 1
