"""Test doubles for the core: a table-driven model, dice that enumerate, drafters that mean harm."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import torch

from engines.core.lossless_laws import Exact, Law, Verdict
from engines.core.outcome import DraftLimits, Outcome, Stop
from engines.core.sampling import Sampling
from engines.core.tree import DraftTree
from engines.methods.drafter import Drafter, Resources
from engines.model.feature_request import COSINES, LAST, FeatureRequest
from engines.randomness import SeededRng
from engines.report.events import Origin
from engines.report.recorder import record

HIDDEN = FeatureRequest(latest=frozenset({LAST}))
MEASURED = FeatureRequest(recent=frozenset({COSINES}))


class ToyModel:
    """A ``CausalModel`` without a network: the logits after a context are a fixed random function of the context."""

    def __init__(self, vocab_size: int, seed: int = 0, spread: float = 1.5, context_limit: int = 10_000) -> None:
        self.vocab_size, self.seed, self.spread, self.context_limit = vocab_size, seed, spread, context_limit
        self.trees, self.device = True, torch.device("cpu")
        self._table: dict[int, torch.Tensor] = {}
        self.tokens: list[int] = []
        self.texts: list[list[int]] = []  # up to and with each pending row

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def pending(self) -> int:
        return len(self.texts)

    def logits_after(self, context: Sequence[int]) -> torch.Tensor:
        key = hash((self.seed, *context[-4:], len(context) % 3)) & 0x7FFFFFFF
        if key not in self._table:
            generator = torch.Generator().manual_seed(key)
            self._table[key] = torch.randn(self.vocab_size, generator=generator, dtype=torch.float64) * self.spread
        return self._table[key]

    def extend(self, tokens, cancelled=lambda: False, progress=None):
        self.drop()
        self.tokens += list(tokens)
        return self.logits_after(self.tokens) if tokens else None

    def forward(self, tokens, parents):
        rows = []
        for token, parent in zip(tokens, parents):
            above = self.tokens if parent < 0 else self.texts[parent]
            self.texts.append([*above, token])
            rows.append(self.logits_after(self.texts[-1]))
        return torch.stack(rows)

    def keep(self, rows):
        kept = [self.texts[r] for r in rows]
        for shorter, longer in itertools.pairwise(kept):
            assert longer[:-1] == shorter, "kept rows are not a path"
        self.tokens = kept[-1]
        self.drop()

    def drop(self):
        self.texts = []

    def truncate(self, length):
        self.drop()
        del self.tokens[length:]

    def rewind(self, context):
        shared = 0
        while shared < min(len(self.tokens), len(context) - 1) and self.tokens[shared] == context[shared]:
            shared += 1
        self.truncate(shared)
        return shared

    def synchronize(self):
        pass


class Words:
    """A detokenizer for toys: a token's text is its number."""

    def stream(self):
        return self

    def step(self, token: int) -> str:
        return f"{token} "

    def piece(self, token: int) -> str:
        return str(token)

    def text(self, tokens) -> str:
        return "".join(map(self.piece, tokens))


def outcome(context, prompt_length, tree, path, emitted, draft_seconds=0.0, verify_seconds=0.0) -> Outcome:
    """What a drafter is told of a round, or of the prefill."""
    return Outcome(
        context=context, prompt_length=prompt_length, position=len(context) - len(emitted), tree=tree,
        verdict=Verdict(path=list(path), tokens=list(emitted)), logits=None, draft_seconds=draft_seconds,
        verify_seconds=verify_seconds,
    )


def showing(hidden: torch.Tensor) -> SimpleNamespace:
    """A target whose last forward left these hidden states [rows, width]."""
    return SimpleNamespace(features=SimpleNamespace(latest=lambda tap: hidden))


def answer(model, drafter: Drafter, law: Law, prompt: Sequence[int], new: int, end=frozenset()) -> tuple[int, ...]:
    """Tokens of one run of the loop."""
    if isinstance(drafter, Scripted):
        drafter.resources = Resources(law=law, vocab_size=model.vocab_size, target=model)
    *_, finished = record(model, drafter, law, prompt, Stop(frozenset(end), new), Words())
    return finished.tokens


def autoregressive(model: ToyModel, prompt: Sequence[int], new: int, sampling=Sampling(), seed=0, end=frozenset()):
    """The oracle: no loop, no tree, no cache."""
    law = Exact(sampling, seed, model.vocab_size)
    out: list[int] = []
    while len(out) < new and not (out and out[-1] in end):
        context = [*prompt, *out]
        out.append(int(law.scores(model.logits_after(context)[None], len(context)).argmax()))
    return tuple(out)


class BranchingDice(SeededRng):
    """Follows a script of outcomes, then takes the first; remembers what else could have happened."""

    def __init__(self, script: list[int]) -> None:
        self.script, self.taken, self.weight = script, [], 1.0
        self.open: list[list[int]] = []

    def _branch(self, weights: list[float]) -> int:
        at = len(self.taken)
        likely = [i for i, w in enumerate(weights) if w > 0]
        chosen = self.script[at] if at < len(self.script) else likely[0]
        if at >= len(self.script):
            self.open += [[*self.taken, i] for i in likely[1:]]
        self.taken.append(chosen)
        self.weight *= weights[chosen]
        return chosen

    def accept(self, probability: float) -> tuple[float, bool]:
        accepted = self._branch([1 - probability, probability]) == 1
        return (0.0 if accepted else 1.0), accepted

    def draw(self, probs) -> int:
        return self._branch((probs / probs.sum()).tolist())


def enumerate_outcomes(run: Callable[[SeededRng], tuple]) -> dict[tuple, float]:
    """Every outcome of a random procedure with its exact probability."""
    outcomes: dict[tuple, float] = defaultdict(float)
    scripts: list[list[int]] = [[]]
    while scripts:
        dice = BranchingDice(scripts.pop())
        outcomes[run(dice)] += dice.weight
        scripts += dice.open
    return dict(outcomes)


class Scripted(Drafter):
    """Drafts what a function says."""

    def __init__(self, make: Callable[[Sequence[int], DraftLimits], DraftTree]) -> None:
        self.make = make

    def start(self, outcome: Outcome) -> None:
        pass

    def propose(self, context, room):
        return self.make(context, room)


_HERE = Origin("draft")


def chain(tokens) -> DraftTree:
    return DraftTree.chain(list(tokens), _HERE)


def random_tree(rng: random.Random, vocab: int, nodes: int, duplicates: bool = False) -> DraftTree:
    """A random tree; with ``duplicates`` siblings may repeat a token."""
    tree = DraftTree(origins=[_HERE])
    for _ in range(nodes):
        parent, token = rng.randrange(-1, len(tree)), rng.randrange(vocab)
        if duplicates:
            tree.tokens.append(token)
            tree.parents.append(parent)
            tree.probs.append(None)
            tree.origin.append(0)
        else:
            tree.add(token, parent, None, 0)
    return tree


def adversaries(model: ToyModel, truth: Sequence[int], prompt_length: int, end: int) -> dict[str, Drafter]:
    """Drafters that try to change the text."""
    rng = random.Random(5)

    def ahead(context, n):
        done = len(context) - prompt_length
        return list(truth[done : done + n])

    return {
        "oracle": Scripted(lambda c, room: chain(ahead(c, 9))),
        "liar": Scripted(lambda c, room: chain([(t + 1) % model.vocab_size for t in ahead(c, 9)])),
        "half liar": Scripted(lambda c, room: chain([*ahead(c, 2), 1, 1, 1])),
        "random trees": Scripted(lambda c, room: random_tree(rng, model.vocab_size, rng.randrange(30))),
        "duplicates": Scripted(lambda c, room: random_tree(rng, model.vocab_size, 25, duplicates=True)),
        "token zero": Scripted(lambda c, room: chain([0] * 8)),
        "end inside": Scripted(lambda c, room: chain([*ahead(c, 3), end, *ahead(c, 3)])),
        "end everywhere": Scripted(lambda c, room: random_tree(rng, 2, 12)),
        "ignores the room": Scripted(lambda c, room: chain(ahead(c, 200) + [0] * 50)),
        "last token repeated": Scripted(lambda c, room: chain([c[-1]] * 5)),
    }
