"""A head for a model, from its answers to a folder of its own: read the answers, train, write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from engines.errors import UsageProblem
from engines.folders import check_new_folder
from engines.heads.checkpoint import write
from engines.heads.compatibility import embeddings_of
from engines.heads.head_config import EAGLE, EAGLE3, MEDUSA, HeadConfig, MedusaConfig, usual_layers
from engines.heads.head_file import HeadFile
from engines.heads.hidden_state_cache import HiddenStateCache, Text, size_on_disk
from engines.heads.medusa_student import MedusaStudent
from engines.heads.training import (
    BYTES_KEPT,
    HELD_OUT,
    HeadRecipe,
    HeadTrainer,
    TargetParts,
    TrainingProgress,
    frequent,
    split,
)
from engines.heads.training_time_test import EagleStudent
from engines.libraries import hf
from engines.libraries.hf import text_config

if TYPE_CHECKING:
    from engines.model.causal_model import CausalModel

_MEASURED = 8  # answers that an estimate reads
_UPDATES = 3  # that it measures
_DEEP = 7  # layers of a target from which on the usual three of EAGLE-3 differ
_DRAFTED = 8192  # tokens that a head of EAGLE-3 or Medusa heads draft, where none says how many

@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSpec:
    """Attributes:
    name: of the head.
    family: EAGLE (1 and 2), EAGLE-3 or Medusa (``config``).
    vocabulary: most tokens that it can draft, the most frequent of the answers; None: all of EAGLE-1 and 2, of others
        8,192.
    layers: EAGLE-3: those that it reads; empty for the usual ones.
    heads: Medusa: how many.
    recipe: how it is trained.
    dtype: of the weights that are written; the range of float16 is too small for the weights of large channels.
    """

    name: str
    family: str = EAGLE3
    vocabulary: int | None = None
    layers: tuple[int, ...] = ()
    heads: int = 4
    recipe: HeadRecipe = field(default_factory=HeadRecipe)
    dtype: str = "bfloat16"


def recipe_for(family: str, heads: int, **given: Any) -> HeadRecipe:
    """The usual recipe of a family, with what is given. Medusa heads are all trained from the beginning: none reads
    what another says."""
    if family != MEDUSA:
        return HeadRecipe(**given)
    return HeadRecipe(steps=heads, single=0.0, batch_tokens=768, **given)


@dataclass(frozen=True, slots=True)
class TrainingEstimate:
    """Attributes:
    tokens: of all texts.
    bytes: that the target's states and the training's own take on disk, at most, until the head is written.
    parameters: of the head, those shared with the target left out.
    reading: seconds that the target takes to read all texts.
    each_pass: seconds of training on all of them once, every step unrolled.
    """

    tokens: int
    bytes: int
    parameters: int
    reading: float
    each_pass: float


def config_for(target: CausalModel, spec: HeadSpec) -> HeadConfig | MedusaConfig:
    """The config of a head for a target: of EAGLE the sizes of one of its layers. Raises UsageProblem."""
    sizes, most = text_config(target.model.config), spec.vocabulary
    if most is None:
        most = target.vocab_size if spec.family == EAGLE else _DRAFTED
    draft_vocabulary = min(most, target.vocab_size)
    if spec.family == MEDUSA:
        return MedusaConfig(heads=spec.heads, blocks=1, width=sizes.hidden_size, vocabulary=target.vocab_size,
                           draft_vocabulary=draft_vocabulary)
    whole = sizes.num_hidden_layers
    layers = spec.layers or (usual_layers(whole) if whole >= _DEEP else (1, (1 + whole) // 2, whole))
    if spec.family == EAGLE:
        layers = ()
    if len(set(layers)) != len(layers) or not all(1 <= layer <= whole for layer in layers):
        raise UsageProblem(f"a head cannot read layers {', '.join(map(str, layers))} of {whole}",
                           "give --layers, counted from 1, each once")
    heads = sizes.num_attention_heads
    return HeadConfig(
        family=spec.family, width=sizes.hidden_size, target_width=sizes.hidden_size, mlp=sizes.intermediate_size,
        heads=heads, kv_heads=getattr(sizes, "num_key_value_heads", None) or heads,
        head_dim=getattr(sizes, "head_dim", None) or sizes.hidden_size // heads, vocabulary=target.vocab_size,
        draft_vocabulary=draft_vocabulary, layers=tuple(layers), eps=getattr(sizes, "rms_norm_eps", 1e-5),
    )


def estimate(
    target: CausalModel, spec: HeadSpec, texts: Sequence[Text], answers: int, work: Path
) -> TrainingEstimate:
    """What training on so many answers takes, by some of them: the target reads a few, and the head is trained on these
    for a few updates, which are then forgotten, as is what they wrote below the folder ``work``. Raises UsageProblem
    and OSError as ``make_head``."""
    config = config_for(target, spec)
    if not texts:
        raise UsageProblem("there are no answers to estimate by", "give some of them")
    tokens = round(sum(len(text.tokens) for text in texts) / len(texts) * answers)
    try:
        parameters, reading, each_pass = _measured(target, spec, config, list(texts[:_MEASURED]), work)
    except OSError as error:  # the file that it names is gone
        raise OSError(error.errno, error.strerror, str(work)) from None
    states = size_on_disk(tokens, len(config.layers), config.target_width)
    return TrainingEstimate(tokens, states + BYTES_KEPT * parameters, parameters, reading * tokens, each_pass * tokens)


class _Measured(Exception):
    """Ends a training of which enough updates are measured."""


def _measured(
    target: CausalModel, spec: HeadSpec, config: HeadConfig | MedusaConfig, texts: list[Text], work: Path
) -> tuple[int, float, float]:
    """Parameters of the head; seconds a token of reading, and of an update with every step unrolled."""
    times: list[tuple[int, float]] = []

    def told(progress: TrainingProgress) -> None:
        times.append((progress.tokens, perf_counter()))
        if len(times) > _UPDATES:
            raise _Measured

    recipe = replace(spec.recipe, minutes=60.0, single=0.0, judge_seconds=3600.0)
    with TemporaryDirectory(dir=work) as folder:
        cache = HiddenStateCache(Path(folder), target, config.layers, texts)
        began = perf_counter()
        cache.fill(lambda done, total: None)
        reading = (perf_counter() - began) / sum(len(text.tokens) for text in texts)
        read = (cache.read() * HELD_OUT)[:max(HELD_OUT, len(texts))]  # only the time counts
        parts = parts_of(target)
        student = MedusaStudent(config) if isinstance(config, MedusaConfig) else EagleStudent(config, parts.embeddings)
        ids = torch.arange(config.draft_vocabulary)
        with suppress(_Measured):
            HeadTrainer(student, parts, read, ids, recipe, Path(folder)).train(told)
    (before, began), (after, ended) = times[0], times[-1]  # the first one warms up
    return sum(p.numel() for p in student.network.parameters()), reading, (ended - began) / (after - before)


def make_head(
    target: CausalModel, model: str, texts: Sequence[Text], spec: HeadSpec, work: Path, out: Path,
    reading: Callable[[int, int], None], training: Callable[[TrainingProgress], None],
) -> TrainingProgress:
    """Train a head and write it to the folder ``out``; returns how the training ended. ``work``, a folder for this
    training alone, holds what it goes on from when it was interrupted; it is removed when the head is written.

    Args:
        model: the target's name, for the file.
        reading: told how many of how many texts the target has read.
        training: told of each update. What either raises interrupts the training.

    Raises:
        OSError: a folder cannot be written.
        UsageProblem: ``out`` is there and not empty or cannot be made, too few texts, layers that the target does not
            have, a ``work`` folder of a training on other texts or with other options, or the target is in use.
    """
    config = config_for(target, spec)
    check_new_folder(out, "name another folder, or remove that one")
    cache = HiddenStateCache(work, target, config.layers, texts)
    cache.fill(reading)
    read, parts = cache.read(), parts_of(target)
    ids = frequent(read, config.draft_vocabulary, target.vocab_size)
    student = MedusaStudent(config) if isinstance(config, MedusaConfig) else EagleStudent(config, parts.embeddings)
    trainer = HeadTrainer(student, parts, read, ids, spec.recipe, work)
    trainer.train(training)
    trainer.judge()
    progress = trainer.progress
    trained, held = split(read)
    all_drafted = config.family == EAGLE and len(ids) == config.vocabulary
    write(HeadFile(
        name=spec.name, folder=out, config=config, weights=trainer.best(), rows=None, embeddings=None,
        ids=None if all_drafted else ids, layers_said=config.layers, made_for=target.fingerprint, card={
            "answers": len(trained), "answer_tokens": sum(len(text) - text.start for text in trained),
            "held_out_answers": len(held), "tokens_trained_on": progress.tokens, "updates": progress.updates,
            "minutes": round(progress.minutes, 1), "agreement": [round(a, 3) for a in progress.agreement],
            "expected_tokens_a_round": round(progress.best or 0.0, 3), "recipe": asdict(spec.recipe),
        },
    ), model, spec.dtype)
    rmtree(work, ignore_errors=True)
    return progress


def parts_of(target: CausalModel) -> TargetParts:
    """What a head shares with a target. Raises UsageProblem: the target has no such parts."""
    model = target.model
    head, norm = model.get_output_embeddings(), getattr(model.base_model, "norm", None)
    if head is None or norm is None or not hasattr(norm, "weight"):
        raise UsageProblem(f"{target.name} has no head or no final norm that a draft head could share",
                           "choose a Llama-like model")
    found = (embeddings_of(target), head.weight, hf.norm_weight(norm))
    return TargetParts(*(tensor.detach().float().cpu() for tensor in found))
