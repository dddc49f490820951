"""The same method in other programs: what to paste there. Each method says in its own room which have it.

Names of options are those of vLLM 0.32 (``--speculative-config``), llama.cpp b11434 (``llama-server``) and
transformers 5.23 (``generate``).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engines.methods.shared.stop_rules import NONE, TOP


@dataclass(frozen=True, slots=True)
class DraftSetup:
    """What a method drafts with, and how deep its drafts were of use.

    Attributes:
        depth: within so many drafted tokens most of the accepted ones lay.
        draft_model, head: names as they were given; None where there is none.
    """

    depth: int
    draft_model: str | None = None
    head: str | None = None


@dataclass(frozen=True, slots=True)
class Counterpart:
    """How a program is told to draft in the same way.

    Attributes:
        program: its name.
        paste: the settings, quoted for a shell, or lines of Python.
        lost: what does not carry over, a sentence without a full stop; "" where all does.
    """

    program: str
    paste: str
    lost: str = ""


FIXED = "the size of a draft, which here follows cost and acceptance"
CHAIN = "the tree, of which a chain is left"
STOP = "the rule by which a draft ends early"


def size(options: Mapping[str, Any], setup: DraftSetup) -> int:
    """Tokens of a draft for a program that drafts the same number every round: those that are set, or where a budget
    decides those that were of use."""
    most = int(options["num_tokens"])
    chain = options.get("shape", "chain") == "chain"
    return most if chain and options.get("budget") == "paper" else min(most, setup.depth) if chain else setup.depth


def least_probability(options: Mapping[str, Any]) -> tuple[float | None, tuple[str, ...]]:
    """Below which probability of a token a draft ends, for a program that knows only this rule, None where none is set;
    and what to say where another rule is set."""
    rule = options.get("stop", NONE)
    return (options["confidence"], ()) if rule == TOP else (None, (STOP,) if rule != NONE else ())


def losses(options: Mapping[str, Any], *others: str) -> str:
    """What does not carry over of these options, beside what ``others`` say."""
    said = [FIXED] if options.get("budget") == "auto" else []
    said += [CHAIN] if options.get("shape") == "tree" or options.get("num_candidates", 1) > 1 else []
    return "; ".join([*said, *others])


def vllm(lost: str = "", **config: Any) -> Counterpart:
    """vLLM's ``--speculative-config`` with these fields; those that are None are left out."""
    given = {name: value for name, value in config.items() if value is not None}
    return Counterpart("vLLM", shlex.join(["--speculative-config", json.dumps(given)]), lost)


def llama_cpp(spec_type: str, lost: str = "", **flags: Any) -> Counterpart:
    """Flags of ``llama-server``; underscores stand for dashes."""
    words = ["--spec-type", spec_type]
    for name, value in flags.items():
        words += [f"--{name.replace('_', '-')}", f"{value}"]
    return Counterpart("llama.cpp", shlex.join(words), lost)


def transformers(lost: str = "", **arguments: Any) -> Counterpart:
    """A call of ``generate`` with these arguments."""
    given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return Counterpart("transformers", f"model.generate(**inputs, {given})", lost)


def assisted(draft_model: str, lost: str = "", **settings: Any) -> Counterpart:
    """``generate`` with an assistant: its settings are read from the assistant's own generation configuration."""
    lines = [f"assistant = AutoModelForCausalLM.from_pretrained({draft_model!r})"]
    lines += [f"assistant.generation_config.{name} = {value!r}" for name, value in settings.items()]
    return Counterpart("transformers", "\n".join([*lines, "model.generate(**inputs, assistant_model=assistant)"]), lost)
