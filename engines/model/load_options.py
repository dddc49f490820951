"""Which models to load, and how they are computed: declared here, for the library, the command line and the screen."""

from __future__ import annotations

import os
from dataclasses import Field, dataclass, field, fields, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Self

from engines.errors import UsageProblem

if TYPE_CHECKING:
    from engines.hub.model_source import TrustPolicy

AUTO, STORED, INT8, INT4, NONE, FLOAT32 = "auto", "stored", "int8", "int4", "none", "float32"
"""``AUTO`` and ``NONE`` also name heads: those that were trained for the target, one of each kind, and no head."""
CHOICES = (AUTO, STORED, INT8, INT4, NONE)
"""Of ``--quantize``; ``auto`` and ``stored`` differ for a large draft model: ``auto`` makes 3 bits of more than 4."""
ARITHMETICS = (INT8, FLOAT32)
"""Of ``--arithmetic``."""
KINDS = {str: "string", bool: "boolean", Integral: "whole number", Real: "number"}
_TYPES = {str: str, bool: bool, int: Integral, float: Real}  # of fields, by the types of their defaults


def option(default: Any, said: str, **more: Any) -> Any:
    """A field of a dataclass that is a flag too: ``said`` is its help, ``more`` is ``metavar``, ``choices`` or
    ``min``."""
    return field(default=default, metadata={"help": said, **more})


def check_type(of: Field, value: Any) -> None:
    """Raises UsageProblem: a value that is not of a field's type. A field whose default is None takes it, or else a
    string, or a whole number if it has a ``min``."""
    kind = _TYPES.get(type(of.default))
    if of.default is None and value is not None:
        kind = Integral if "min" in of.metadata else str
    if kind and (not isinstance(value, kind) or isinstance(value, bool) != (kind is bool)):
        raise UsageProblem(f"{of.name} {value!r} is not a {KINDS[kind]}", f"give a {KINDS[kind]}")


def flag(name: str) -> str:
    """A field as it is typed on a command line."""
    return f"--{name.replace('_', '-')}"


_MODEL = {"metavar": "DIR|HUB_ID"}


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Models, folders or hub ids, and how they are computed. What a flag says of itself is its field's ``help``:
    ``spec-tui run --help`` shows it. Besides:

    Attributes:
        draft_model: one that is named may have another vocabulary than the target (``engines.vocabularies``).
        head: a family is one of ``heads.head_config.FAMILIES``.
        threads: for the whole process; a negative number leaves cores to a screen (``engines.model.tuning.tune``).
        strict: every engine writes the same text in half precision too (``CausalModel.be_strict``).
    """

    model: str | None = option(
        None, "Target model: a folder, a GGUF file, a hub id or a known name. Default: the one fetched or chosen last, "
        "else the sample model.", **_MODEL)
    draft_model: str | None = option(
        None, "Draft model, of any vocabulary. Default: one known for the target, or with its vocabulary.", **_MODEL)
    head: str | None = option(
        None, "Draft head, remembered for the target: a folder, a hub id or a name; eagle, eagle-3 or medusa: the best "
              "available head of that family; none; or auto: of each kind, the best head trained for the target. "
              "Default: the remembered head, else auto.", **_MODEL)
    revision: str | None = option(None, "Branch, tag or commit of the target on the hub. Default: main.", metavar="REV")
    draft_revision: str | None = option(None, "The same for the draft model.", metavar="REV")
    dtype: str = option(
        AUTO, "float32, bfloat16, float16, or auto: float32 on a CPU. Native code keeps the weights' type and adds "
              "in float32.", metavar="D")
    device: str = option(AUTO, "cpu, cuda, mps, or auto.", metavar="D")
    strict: bool = option(
        False, "Compute each token in the same way with and without drafts, to the last bit, so that ties cannot "
               "differ. Without native code, and on GPUs, drafts cannot be faster then.")
    quantize: str = option(
        AUTO, "Weights of linear layers in native code: auto (as a GGUF file stores them; a large draft model in 3 "
              "bits where its file has more than 4), stored, int8 or int4 (any model), none (unpacked to the dtype).",
        metavar="Q", choices=CHOICES)
    draft_quantize: str = option(
        AUTO, "The same for the draft model; it does not change the text.", metavar="Q", choices=CHOICES)
    native: bool = option(
        True, "Run models on the CPU as native code, which is included in compiled form or is compiled here once, in "
              "seconds.")
    arithmetic: str = option(
        INT8, "How native code multiplies weights that are integers: int8 (inputs are rounded to 8 bits, as in "
              "llama.cpp: faster, most of all for several tokens) or float32.", metavar="A", choices=ARITHMETICS)
    threads: int | None = option(
        None, "CPU threads of the models. Default: the fastest number, measured at loading.", metavar="N", min=1)
    allow_pickle: bool = option(False, "Read .bin weights (pickles) where there are no safetensors.")
    trust_remote_code: bool = option(False, "Run the Python code that comes with a model. Read it first.")

    @property
    def terms(self) -> TrustPolicy:
        """What may be done with the files of these models."""
        from engines.hub.model_source import TrustPolicy

        return TrustPolicy(self.allow_pickle, self.trust_remote_code)

    def check(self) -> None:
        """Raises UsageProblem: a value of another type, a choice that there is not, no thread, more threads than
        processors, or the revision of no draft model."""
        for of in fields(self):
            check_type(of, getattr(self, of.name))
            choices = of.metadata.get("choices")
            if choices is not None and getattr(self, of.name) not in choices:
                raise UsageProblem(f"{flag(of.name)} {getattr(self, of.name)!r} is unknown",
                                   f"choices are: {', '.join(choices)}")
        if self.threads == 0:
            raise UsageProblem("0 threads compute nothing", "give at least 1, or leave it out")
        if self.threads and self.threads > (most := os.cpu_count() or 1):
            raise UsageProblem(f"{self.threads} threads are more than the {most} processors here",
                               f"give at most {most}")
        if self.draft_revision is not None and self.draft_model is None:
            raise UsageProblem("--draft-revision requires --draft-model", "give --draft-model with it")

    def of_target(self) -> Self:
        """The same target alone, with nothing named that drafts for it."""
        return replace(self, **{of.name: of.default for of in fields(self) if of.name in DRAFTING})


DRAFTING = ("draft_model", "draft_revision", "draft_quantize", "head")
"""Options of what drafts."""
