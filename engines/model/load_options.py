"""Which models to load, and how they are computed: declared here, for the library, the command line and the screen."""

from __future__ import annotations

from dataclasses import dataclass

from engines.model.quantize_choices import AUTO


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Models, folders or hub ids, and how they are computed.

    Attributes:
        model: the target; None takes the one that ships.
        draft_model: None takes the one that ships, or lies beside the target, where its vocabulary is the target's; a
            named one may have another (``engines.vocabularies``).
        head: a learned draft head, a folder, a hub id, the name of one at hand, or a family (``head_config.FAMILIES``:
            the first of it at hand, if any); of kinds that it is not of, one at hand that was trained for the target is
            taken. "none" takes none.
        revision, draft_revision: branches, tags or commits of hub ids.
        dtype: "float32", "bfloat16", "float16", or "auto": float32 on a CPU, bfloat16 elsewhere. In native code that of
            the weights: sums are float32.
        device: "cpu", "cuda", "mps", or "auto".
        threads: of the CPU, for the whole process: so many, or None for what a short measurement on the target finds
            best; a negative number leaves cores to a screen (``engines.model.tuning.tune``).
        allow_pickle: weights are read from .bin files where there are no safetensors.
        trust_remote_code: code that comes with a model is run.
        strict: a token's logits are the same to the last bit however it was fed, so that in half precision too every
            engine writes the same text (``CausalModel.be_strict``).
        quantize: one of ``engines.model.quantize_choices``.
        draft_quantize: the same for the draft model, on whose weights the distribution of the answers does not depend.
        native: target and draft model are computed by native code (``engines.model.native``) where they can be, on the
            CPU; the first time it is compiled, which takes seconds.
        arithmetic: how native code multiplies weights that are whole numbers: one of
            ``engines.model.quantize_choices.ARITHMETICS``.
    """

    model: str | None = None
    draft_model: str | None = None
    head: str | None = None
    revision: str | None = None
    draft_revision: str | None = None
    dtype: str = AUTO
    device: str = AUTO
    threads: int | None = None
    allow_pickle: bool = False
    trust_remote_code: bool = False
    strict: bool = False
    quantize: str = AUTO
    draft_quantize: str = AUTO
    native: bool = True
    arithmetic: str = AUTO
