"""The same method in other programs: what to paste there. Each method says in its own room which have it.

Names of options are those of vLLM 0.32 (``--speculative-config``), SGLang's documentation of 2026
(``--speculative-algorithm``), llama.cpp b11434 (``llama-server``) and transformers 5.23 (``generate``).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.methods.shared.stop_rules import NONE, TOP

CONVERTER = "llama.cpp/convert_hf_to_gguf.py"
"""In llama.cpp's repository. It reads folders, or with ``--remote`` a model of the hub."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model as other programs find it.

    Attributes:
        name: as this program takes it.
        gguf: full path of its GGUF file; None where it has another form.
        folder: full path of its folder, or the id under which the hub has it; None for a GGUF file.
        beside: full path, without an ending, of what is written where a program reads another form.
    """

    name: str
    gguf: str | None = None
    folder: str | None = None
    beside: str = "model"

    def as_gguf(self) -> tuple[list[str], str]:
        """Commands that write a GGUF file, none where it is one; and its path."""
        if self.gguf is not None:
            return [], self.gguf
        place, there = f"{self.beside}.gguf", Path(self.folder).is_absolute()
        command = ["python", CONVERTER, *([] if there else ["--remote"]), self.folder, "--outfile", place]
        return [CONVERTER_KNOWS, shlex.join(command)], place

    def as_folder(self) -> tuple[list[str], str]:
        """The same of a folder of safetensors."""
        if self.folder is not None:
            return [], self.folder
        place = f"{self.beside}-BF16"
        return [shlex.join(["spec-tui", "model", "export", self.name, "--type", "bf16", "--output", place])], place

    def pretrained(self) -> str:
        """The arguments of transformers' ``from_pretrained``."""
        if self.gguf is None:
            return repr(self.folder)
        folder, _, file = self.gguf.rpartition("/")
        return f"{folder or '/'!r}, gguf_file={file!r}"


@dataclass(frozen=True, slots=True)
class DraftSetup:
    """What a method drafts with, and how deep its drafts were of use.

    Attributes:
        depth: within so many drafted tokens most of the accepted ones lay.
        target: the model that answers.
        draft_model: None where there is none.
        same_tokens: whether its tokens are the target's.
        head: the name of a draft head as it was given; None where there is none.
        family: of that head (``engines.heads.head_config``).
    """

    depth: int
    target: ModelFiles
    draft_model: ModelFiles | None = None
    same_tokens: bool = True
    head: str | None = None
    family: str = ""

    def as_head(self) -> tuple[list[str], str]:
        """The command that writes the head in vLLM's layout, and the folder."""
        place, (_, model) = f"{self.target.beside}-head", self.target.as_folder()
        command = ["spec-tui", "head", "export", self.head, place, "--model", self.target.name, "--target-name", model]
        return [shlex.join(command)], place


def vllm_method(family: str) -> str:
    """What vLLM calls drafting with a head of a family."""
    return family.lower().replace("-", "")


@dataclass(frozen=True, slots=True)
class Counterpart:
    """How a program is told to draft in the same way.

    Attributes:
        program: its name.
        paste: commands, quoted for a shell, or lines of Python.
        lost: what does not carry over, a sentence without a full stop; "" where all does.
    """

    program: str
    paste: str
    lost: str = ""


FIXED = "the size of a draft, which here follows cost and acceptance"
CHAIN = "the tree, of which a chain is left"
STOP = "the rule by which a draft ends early"
CONVERTER_KNOWS = "# it knows the tokenizers of published models, not that of the sample pair"
NOT_TRIED = "# not tried here: SGLang needs a GPU"


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


def losses(options: Mapping[str, Any], *others: str, trees: bool = False) -> str:
    """What does not carry over of these options, beside what ``others`` say. ``trees``: the program verifies them."""
    said = [FIXED] if options.get("budget") == "auto" else []
    said += [CHAIN] if not trees and (options.get("shape") == "tree" or options.get("num_candidates", 1) > 1) else []
    return "; ".join([*said, *others])


def vllm(setup: DraftSetup, lost: str = "", before: Sequence[str] = (), **config: Any) -> Counterpart:
    """vLLM's server with these fields of ``--speculative-config``; those that are None are left out. ``before`` are
    commands that write what it drafts with."""
    given = {name: value for name, value in config.items() if value is not None}
    written, model = setup.target.as_folder()
    command = shlex.join(["vllm", "serve", model, "--speculative-config", json.dumps(given)])
    return Counterpart("vLLM", "\n".join([*written, *before, command]), lost)


def sglang(setup: DraftSetup, algorithm: str, lost: str = "", before: Sequence[str] = (), **flags: Any) -> Counterpart:
    """SGLang's server with these flags, whose names begin with "speculative"; underscores stand for dashes. ``before``
    as of ``vllm``."""
    written, model = setup.target.as_folder()
    words = ["python", "-m", "sglang.launch_server", "--model-path", model, "--speculative-algorithm", algorithm]
    for name, value in flags.items():
        words += [f"--speculative-{name.replace('_', '-')}", f"{value}"]
    return Counterpart("SGLang", "\n".join([NOT_TRIED, *written, *before, shlex.join(words)]), lost)


def sglang_tree(options: Mapping[str, Any], setup: DraftSetup) -> dict[str, int]:
    """The sizes of a draft as SGLang's flags: its nodes have the root in them."""
    tree = options.get("shape") == "tree"
    steps = size(options, setup)
    return {"num_steps": steps, "eagle_topk": options["top_k"] if tree else 1,
            "num_draft_tokens": 1 + (options["total_nodes"] if tree else steps)}


def llama_cpp(
    setup: DraftSetup, spec_type: str, lost: str = "", draft_model: ModelFiles | None = None, **flags: Any
) -> Counterpart:
    """``llama-server`` with these flags; underscores stand for dashes. ``draft_model`` is what it drafts with."""
    written, model = setup.target.as_gguf()
    words = ["llama-server", "--model", model, "--spec-type", spec_type]
    if draft_model is not None:
        more, draft = draft_model.as_gguf()
        written, words = written + more, [*words, "--spec-draft-model", draft]
    for name, value in flags.items():
        words += [f"--{name.replace('_', '-')}", f"{value}"]
    return Counterpart("llama.cpp", "\n".join([*written, shlex.join(words)]), lost)


def transformers(setup: DraftSetup, lost: str = "", **arguments: Any) -> Counterpart:
    """A call of ``generate`` with these arguments."""
    given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return Counterpart("transformers", "\n".join([*_loaded(setup), f"model.generate(**inputs, {given})"]), lost)


def assisted(setup: DraftSetup, lost: str = "", **settings: Any) -> Counterpart:
    """``generate`` with the draft model as assistant: its settings are read from the assistant's own generation
    configuration."""
    drafter = setup.draft_model.pretrained()
    lines = [*_loaded(setup), f"assistant = AutoModelForCausalLM.from_pretrained({drafter}, dtype='auto')"]
    lines += [f"assistant.generation_config.{name} = {value!r}" for name, value in settings.items()]
    arguments = "assistant_model=assistant"
    if not setup.same_tokens:
        lines.append(f"assistant_tokenizer = AutoTokenizer.from_pretrained({drafter})")
        arguments += ", tokenizer=tokenizer, assistant_tokenizer=assistant_tokenizer"
    return Counterpart("transformers", "\n".join([*lines, f"model.generate(**inputs, {arguments})"]), lost)


def _loaded(setup: DraftSetup) -> list[str]:
    """Lines that load the target, and a prompt."""
    model = setup.target.pretrained()
    files = [each.gguf for each in (setup.target, setup.draft_model) if each is not None]
    return [
        *["# transformers reads GGUF files with two more packages: pip install accelerate gguf"] * any(files),
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        f"tokenizer = AutoTokenizer.from_pretrained({model})",
        f"model = AutoModelForCausalLM.from_pretrained({model}, dtype='auto')",
        "inputs = tokenizer('Your prompt', return_tensors='pt')",
    ]
