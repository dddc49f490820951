"""Why does a head accept nothing? Its agreement with the target under each reading of what its file leaves open.

Files count the layers that a head reads in two ways, one apart; they say, or do not say, whether the residual stream
begins with the normalised feature; where they name no base of the rotation, some mean 10,000, others the target's.
Medusa heads may have been trained on the hidden state before the final norm, or one place off. Each of these mistakes
leaves a head that runs and drafts nothing of use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch

from engines.errors import UsageProblem
from engines.heads.compatibility import embeddings_of, rows_for
from engines.heads.draft_head import DraftHead
from engines.heads.head_file import HeadFile
from engines.heads.hidden_state_cache import TappedText, Text, states_of
from engines.heads.medusa_heads import MedusaHeads
from engines.heads.medusa_student import MedusaStudent
from engines.heads.training import Student, agreement, simulated
from engines.heads.training_time_test import EagleStudent
from engines.libraries.hf import rope, text_config
from engines.model.causal_model import CausalModel
from engines.model.feature_request import LAST, FeatureRequest

STEPS = 4
_CLEARLY = 0.10  # of agreement at the first step: less is chance on so few positions


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadReading:
    """A reading of a head's file and how the head does under it.

    Attributes:
        choices: what it takes the file to mean, by name, as plain data.
        words: the same for people.
        declared: it is what the file says, and what runs.
        agreement: share of positions at which the head's likeliest token is the target's, by depth.
    """

    choices: Mapping[str, Any]
    words: str
    declared: bool
    agreement: tuple[float, ...]

    @property
    def accepted(self) -> float:
        """Tokens of a round that a chain of this depth lets expect."""
        return simulated(self.agreement)


@dataclass(frozen=True, slots=True)
class HeadCheck:
    """All readings, the best first, and on how many ``positions`` they were tried."""

    readings: tuple[HeadReading, ...]
    positions: int

    @property
    def declared(self) -> HeadReading:
        """The one that runs."""
        return next(reading for reading in self.readings if reading.declared)

    @property
    def better(self) -> HeadReading | None:
        """One that is clearly better than the declared one, and not at the first place alone: a head that is hardly
        trained repeats the root."""
        best, declared = self.readings[0].agreement, self.declared.agreement
        clearly = best[0] > declared[0] + _CLEARLY and (len(best) == 1 or sum(best[1:]) > sum(declared[1:]))
        return self.readings[0] if clearly else None


def check(head: DraftHead | MedusaHeads, target: CausalModel, texts: Sequence[Text]) -> HeadCheck:
    """Try the readings of a head on texts that the target wrote greedily; its cache is left empty. Raises UsageProblem:
    there are no texts, or the target is in use."""
    if not texts:
        raise UsageProblem("there are no answers to check the head on", "give other prompts")
    with target.alone("the check of a head"):
        found = [*(_of_medusa if isinstance(head, MedusaHeads) else _of_eagle)(head, target, texts)]
    positions = sum(len(text.tokens) - text.start for text in texts)
    return HeadCheck(tuple(sorted(found, key=lambda reading: -reading.accepted)), positions)


def as_read(file: HeadFile, reading: HeadReading, folder: Path) -> HeadFile:
    """The head, for another folder, with a file that declares a reading. Raises UsageProblem: its layout has no words
    for what is meant."""
    if not reading.choices.keys() <= {field.name for field in fields(file.config)}:
        raise UsageProblem(f"the layout of the head {file.name} cannot express this: {reading.words}",
                           "ask whoever made it, or train one")
    return replace(file, folder=folder, config=replace(file.config, **reading.choices))


def _of_eagle(head: DraftHead, target: CausalModel, texts: Sequence[Text]) -> Iterator[HeadReading]:
    config, count = head.config, text_config(target.model.config).num_hidden_layers
    layerings = [config.layers]
    for shift in (1, -1) if config.layers else ():
        moved = tuple(layer + shift for layer in config.layers)
        if min(moved) >= 1 and max(moved) <= count:
            layerings.append(moved)
    orders = (True, False) if config.layers else (False,)
    embeddings = embeddings_of(target) if head.file.embeddings is None else head.file.embeddings
    settings = rope(target.model.config)
    thetas = dict.fromkeys([config.rope_theta, float(settings.get("rope_theta") or config.rope_theta)])
    for layers in layerings:
        read = _tapped(target, texts, layers)
        for normed, theta in product(orders, thetas):
            tried = replace(config, layers=layers, norm_before_residual=normed, rope_theta=theta)
            named = f"layers {', '.join(map(str, tried.layers))}, " if tried.layers else ""
            yield HeadReading(
                choices={"layers": tried.layers, "norm_before_residual": normed, "rope_theta": theta},
                words=f"{named}{'norm before residual, ' if normed else ''}rope theta {theta:g}",
                declared=tried == config,
                agreement=_agreement(head, target, EagleStudent(tried, embeddings.float().cpu()), read, STEPS),
            )


def _of_medusa(head: MedusaHeads, target: CausalModel, texts: Sequence[Text]) -> Iterator[HeadReading]:
    last = text_config(target.model.config).num_hidden_layers
    read, steps = _tapped(target, texts, (last,)), min(STEPS, head.config.heads)
    for normed, shift in product((True, False), (0, -1, 1)):
        inputs = read if normed else [replace(text, final=text.taps) for text in read]
        place = {0: "the token after the root", -1: "the root itself", 1: "the token two after the root"}[shift]
        yield HeadReading(
            choices={"after_final_norm": normed, "first_place": shift + 1},
            words=f"the state {'after' if normed else 'before'} the final norm, the first head drafts {place}",
            declared=normed and not shift,
            agreement=_agreement(head, target, MedusaStudent(head.config, shift), inputs, steps),
        )


def _tapped(target: CausalModel, texts: Sequence[Text], layers: Sequence) -> list[TappedText]:
    found = []
    try:
        with target.features.requested(FeatureRequest(history=frozenset((*layers, LAST)))):
            for text in texts:
                taps, final = states_of(target, text.tokens, layers)
                found.append(TappedText(torch.tensor(text.tokens), text.start, text.greedy, taps, final))
    finally:
        target.truncate(0)
    return found


def _agreement(
    head: DraftHead | MedusaHeads, target: CausalModel, student: Student, read: Sequence[TappedText], steps: int
) -> tuple[float, ...]:
    rows = rows_for(head.file, target).detach().float().cpu()
    student.network.load_state_dict(head.file.weights)
    student.network.float()
    return tuple(agreement(student, read, lambda states, step: states @ (rows[step] if rows.dim() == 3 else rows).T,
                           head.file.ids, steps))
