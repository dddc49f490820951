"""The models of a session: target, tokenizer, and a draft model where its vocabulary is the target's.

What can be refused from configurations and tokenizers is refused before weights are downloaded or read.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerBase

from engines.errors import ModelUnavailable, UsageProblem
from engines.folders import sample_model
from engines.hub.model_files import TrustPolicy
from engines.hub.model_source import ModelSource, Progress, check_room, locate
from engines.model.causal_model import CausalModel
from engines.model.loading import load_config, load_model, load_tokenizer
from engines.progress import Loading


@dataclass(frozen=True, slots=True)
class ModelNames:
    """Which models are wanted: folders or hub ids with their revisions; None takes the ones that ship."""

    model: str | None = None
    draft_model: str | None = None
    revision: str | None = None
    draft_revision: str | None = None


@dataclass(frozen=True, slots=True)
class ModelPair:
    """Loaded models. ``warnings``: what the user should know of how they were found."""

    target: CausalModel
    tokenizer: PreTrainedTokenizerBase
    draft: CausalModel | None
    warnings: tuple[str, ...]


def load_models(
    names: ModelNames, terms: TrustPolicy, dtype: torch.dtype, device: torch.device, threads: int | None,
    progress: Progress, strict: bool = False,
) -> ModelPair:
    """Find, download and load; the target ``strict`` or not: of drafts nothing depends on the last bit.

    Raises:
        ModelUnavailable: a model is missing or unusable.
        UsageProblem: a named draft model with another vocabulary; a revision of what has none.
    """
    name = shipped_target() if names.model is None else names.model
    source = locate(name, names.revision, terms, "target", progress)
    progress(Loading("loading the tokenizer", 0.1))
    load_config(source)
    tokenizer = load_tokenizer(source)
    draft_source, warnings = _find_draft(names, terms, source, tokenizer, progress)
    check_room(source, draft_source)
    source.fetch_weights(progress)
    if draft_source is not None:
        draft_source.fetch_weights(progress)
    progress(Loading("loading the weights", 0.2))
    target = load_model(source, dtype, device, threads, strict)
    warnings += source.remarks
    draft = None
    if draft_source is not None:
        progress(Loading("loading the draft model", 0.8))
        draft = load_model(draft_source, dtype, device, torch.get_num_threads())
        warnings += draft_source.remarks
    return ModelPair(target, tokenizer, draft, warnings)


def _find_draft(
    names: ModelNames, terms: TrustPolicy, target: ModelSource, tokenizer: PreTrainedTokenizerBase, progress: Progress
) -> tuple[ModelSource | None, tuple[str, ...]]:
    """The draft model, its vocabulary checked; a shipped one that does not fit is a warning."""
    asked = names.draft_model is not None
    if names.draft_revision is not None and not asked:
        raise UsageProblem("--draft-revision is of no draft model", "give --draft-model with it")
    found = names.draft_model if asked else sample_model("draft")
    if found is None:
        return None, ("no draft model is at hand: give --draft-model to use the draft engine",)
    source = locate(str(found), names.draft_revision, terms, "draft model", progress, beside=target)
    theirs = load_tokenizer(source)
    if theirs.get_vocab() == tokenizer.get_vocab():
        load_config(source)
        return source, ()
    problem = (
        f"the vocabulary of draft model {source.name} ({len(theirs)} tokens) is not that of {target.name}"
        f" ({len(tokenizer)} tokens)"
    )
    if asked:
        raise UsageProblem(problem, "give a draft model made with the target's tokenizer")
    return None, (problem + ": give --draft-model to use the draft engine",)


def shipped_target() -> str:
    """The folder of the target that ships. Raises ModelUnavailable."""
    folder = sample_model("target")
    if folder is None:
        raise ModelUnavailable("the sample models are missing", "reinstall spec-tui, or give --model")
    return str(folder)
