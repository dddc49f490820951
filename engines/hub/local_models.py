"""Models on this machine, inspected without loading them: the ones that ship, the ones in the hub's cache; and which of
them fit a target as draft models, decided by their tokenizers' files, without building a tokenizer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from engines.errors import first_line
from engines.folders import PAIR, listed, sample_model, sample_models
from engines.hub import gguf_config, gguf_file, gguf_folder
from engines.hub import hub_cache as cache
from engines.hub.download_progress import in_bytes
from engines.hub.known_models import KNOWN, draft_beside, known_files, known_name
from engines.hub.model_source import ModelSource
from engines.hub.safetensors_headers import parameters_of, repeated, stored, stored_in
from engines.hub.untrusted_json import read_object, words_in
from engines.vocabularies import shared_tokens

_OTHER_PROGRAMS = (
    ("LM Studio", "~/.lmstudio/models", "*/*/*.gguf"),
    ("LM Studio", "~/.cache/lm-studio/models", "*/*/*.gguf"),
    ("Ollama", ("OLLAMA_MODELS", "~/.ollama/models"), "blobs/sha256*"),
    ("llama.cpp", ("LLAMA_CACHE", "~/.cache/llama.cpp"), "*.gguf"),
    ("llama.cpp", "~/Library/Caches/llama.cpp", "*.gguf"),
)
_NOT_CAUSAL = "not a causal language model"
_NOTHING = {"path": None, "problem": None, "title": "", "type": None, "parameters": 0, "dtype": None}
_LARGEST_SHARE = 0.5  # of the target's parameters: a larger model is no draft model that somebody would want unasked
_MOST_BESIDE = 40  # files in a target's folder that are looked at


def look_at(folder: Path) -> dict[str, Any]:
    """``{"path", "problem", "title", "type", "parameters", "dtype"}`` of a folder or a GGUF file: problem is None for a
    usable causal model; the title is untrusted, "" where the files state none; parameters as people count them, a tied
    table once."""
    if os.path.isfile(folder):
        return _look_at_gguf(folder)
    found = _NOTHING | {"path": str(folder)}
    try:
        config = read_object(folder / "config.json")
        found["type"] = config["model_type"] if isinstance(config.get("model_type"), str) else None
        found["problem"] = _lacking(folder, config)
        files = [file for file in listed(folder, "*.safetensors") if os.path.isfile(file)]
        for file in files:
            counts = stored(file)
            found["parameters"] += sum(counts.values())
            found["dtype"] = found["dtype"] or next(iter(counts), None)
        found["parameters"] -= repeated(files, config)
    except OSError as error:
        found["problem"] = f"{Path(error.filename or folder).name}: {error.strerror}"
    except ValueError as error:
        found["problem"] = first_line(error)
    return found


def _lacking(folder: Path, config: dict[str, Any]) -> str | None:
    """What keeps the folder from being a usable model, as far as file names and configuration tell."""
    if not any("CausalLM" in name or "LMHead" in name for name in words_in(config, "architectures")):
        return _NOT_CAUSAL
    if not listed(folder, "*.safetensors"):
        return "no weights in safetensors" if listed(folder, "*.bin") else "no weights here, not downloaded"
    if not any(os.path.exists(folder / name) for name in ("tokenizer.json", "tokenizer_config.json")):
        return "no tokenizer"
    return None


def cached() -> list[dict[str, Any]]:
    """The causal language models in the hub's cache, as ``look_at`` with their ids. Never asks the network."""
    models = [{"id": name, **look_at(folder)} for name, folder in cache.models()]
    return [model for model in models if model["problem"] != _NOT_CAUSAL]


def shipped() -> Iterator[dict[str, Any]]:
    """The models that come with the program, as ``look_at`` with their names for people and roles."""
    for name in sample_models():
        place = sample_model(name)
        found = {"path": None, "problem": "missing"} if place is None else look_at(place)
        yield {"name": _title(name), "role": "target" if name == PAIR[0] else "draft", **found}


def _title(name: str) -> str:
    return f"sample {name}" if name in PAIR else name


@dataclass(frozen=True, slots=True)
class UsualDraft:
    """The draft model that a target is given where none is named.

    Attributes:
        title: for people; ``origin``: where it is, in words.
        place: its folder or file.
        fits: whether its tokens are the target's; None where the files don't tell. ``why``: that in words.
    """

    title: str
    place: Path
    fits: bool | None
    why: str
    origin: str = "ships with the program"


def usual_draft(target: Path) -> UsualDraft | None:
    """The draft model that a target (its folder or file) is given where none is named: the one that is fetched with it;
    else the smallest with its tokens in a file beside its own; of those that ship the first whose tokens are the
    target's, else the first whose files don't tell, else the first. None where there is none."""
    if (place := draft_beside(target)) is not None:
        return UsualDraft(known_name(str(place)), place, _SAME.same, _SAME.why, "came with the target")
    ours, others = _readable(target), []
    if (place := _sibling(target, ours)) is not None:
        return UsualDraft(place.name, place, _SAME.same, _SAME.why, "beside the target")
    for name in sample_models()[1:]:
        if (place := sample_model(name)) is None:
            continue
        theirs = _readable(place)
        if isinstance(theirs, dict) and theirs == ours:
            return UsualDraft(_title(name), place, _SAME.same, _SAME.why)
        others.append((name, place, theirs))
    found = [(name, place, _fit(theirs, ours)) for name, place, theirs in others]
    judged = [UsualDraft(_title(name), place, fit.same, fit.why) for name, place, fit in found]
    return min(judged, key=lambda draft: (None, False).index(draft.fits), default=None)


def known() -> list[dict[str, Any]]:
    """The models that go by a name here, as ``look_at`` with their names; what comes with its draft model has that as
    "drafted_by"."""
    found = []
    for model in KNOWN.values():
        if model.present:
            found.append({"name": model.name, **_look_at_gguf(model.path)})
            if model.draft is not None:
                found[-1]["drafted_by"] = _look_at_gguf(model.draft.path)
        else:
            problem = f"not here: spec-tui model get {model.name} ({in_bytes(model.missing)}, {model.licence})"
            found.append({"name": model.name, "path": None, "problem": problem})
    return found


def of_other_programs() -> list[dict[str, Any]]:
    """The GGUF files that LM Studio, Ollama and llama.cpp keep, as ``look_at`` with names for people."""
    found = []
    for program, folder, pattern in _OTHER_PROGRAMS:
        variable, usual = folder if isinstance(folder, tuple) else ("", folder)
        home = Path(os.path.expanduser(os.environ.get(variable) or usual))
        for file in listed(home, pattern):
            with suppress(gguf_file.LaterPart):  # its model is listed by its first file
                if gguf_file.begins(file):
                    found.append({"name": f"{program}: {file.name}", **_look_at_gguf(file)})
    return found


def _look_at_gguf(file: Path) -> dict[str, Any]:
    """As ``look_at``. Raises LaterPart."""
    found = _NOTHING | {"path": str(file)}
    try:
        header = gguf_file.read(file)
        found |= {"title": header.title, "type": header.architecture, "dtype": header.weights_name}
        found["parameters"] = sum(header.stored().values()) - header.repeated
        gguf_config.config_of(header)
    except gguf_file.LaterPart:
        raise
    except OSError as error:
        found["problem"] = error.strerror or str(error)
    except ValueError as error:
        found["problem"] = first_line(error)
    return found


@dataclass(frozen=True, slots=True)
class Candidate:
    """A draft model on this machine.

    Attributes:
        origin: "named" by the user, "fetched" by name, in a file "beside" the target's, "shipped" or in the hub's
            "cache".
        parameters: their number, None where the files don't tell.
        fits: None where the files don't tell.
        share, same: as of ``Fit``.
    """

    name: str
    origin: str
    parameters: int | None
    fits: bool | None
    why: str
    share: float | None = None
    same: bool | None = None


def candidates(target: ModelSource, named: ModelSource | None, parameters: int | None) -> tuple[Candidate, ...]:
    """The draft models on this machine for a target of so many parameters: the named one, then those that fit."""
    ours, known = _readable(target.place), [source.place for source in (target, named) if source is not None]
    found = []
    if named is not None:
        found.append((named.name, "named", named.place, parameters_of(named, stored_in(named)), None))
    others = [*_fetched(target.place)]
    others += [(model["name"], "shipped", model) for model in shipped() if model["path"] is not None]
    for name, origin, model in others + [(model["id"], "cache", model) for model in cached()]:
        folder = Path(model["path"])
        if not any(folder.samefile(other) for other in known):
            known.append(folder)
            found.append((name, origin, folder, model["parameters"], model["problem"]))
    judged = []
    for name, origin, folder, size, problem in found:
        fit = _fit(_readable(folder), ours)
        why = fit.why
        if fit.fits and size and parameters and size >= parameters:
            why += ", but it is no smaller than the target"
        why = f"{why}; {problem}" if problem else why
        judged.append(Candidate(name, origin, size or None, fit.fits, why, fit.share, fit.same))
    return tuple(sorted(judged, key=lambda c: (c.origin != "named", not c.fits, not c.same, -(c.share or 0.0))))


def _beside(target: Path) -> Iterator[Path]:
    """The GGUF files in the folder of a target in such a file, the smallest first; the target's own not."""
    if os.path.isfile(target):
        files = [file for file in listed(target.parent, "*.[gG][gG][uU][fF]") if gguf_file.begins(file)]
        files.sort(key=lambda file: (file.stat().st_size, file.name))
        yield from [file for file in files if not file.samefile(target)][:_MOST_BESIDE]


def _sibling(target: Path, ours: dict[str, int] | str | None) -> Path | None:
    """The smallest usable model beside a target with the same tokens, of at most half its parameters."""
    for file in _beside(target):
        with suppress(gguf_file.LaterPart):
            found = _look_at_gguf(file)
            small = 0 < found["parameters"] <= _LARGEST_SHARE * _look_at_gguf(target)["parameters"]
            if small and not found["problem"] and isinstance(ours, dict) and _readable(file) == ours:
                return file
    return None


def _fetched(target: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Name, origin and facts of what may draft for a target and lies beside it, or was fetched."""
    if (own := draft_beside(target)) is not None:
        yield known_name(str(own)), "fetched", _look_at_gguf(own)
    for file in _beside(target):
        with suppress(gguf_file.LaterPart):
            yield file.name, "beside", _look_at_gguf(file)
    for model in known_files():
        yield model.name, "fetched", _look_at_gguf(model.path)


class Fit(NamedTuple):
    """How the tokens of a draft model and a target compare.

    Attributes:
        same: whether they are the same; None where the files don't tell.
        share: of the target's tokens that the draft model has too, 0..1; None where the files don't tell.
        why: in words.
    """

    same: bool | None
    share: float | None
    why: str

    @property
    def fits(self) -> bool | None:
        """Whether it can draft, translated where need be; None where the files don't tell."""
        return True if self.same or self.share else self.same


_SAME = Fit(True, 1.0, "the same tokens")


def fit(draft: Path, target: Path) -> Fit:
    """Whether the model of one folder or file can draft for that of another."""
    return _fit(_readable(draft), _readable(target))


def _fit(theirs: dict[str, int] | str | None, ours: dict[str, int] | str | None) -> Fit:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        why = difference(theirs, ours)
        if why is None:
            return _SAME
        shared = shared_tokens(theirs, ours)
        share = shared / max(1, len(ours))
        if shared == len(ours):
            return Fit(False, share, f"{why}; it has all tokens of the target, under other ids")
        known = f"it has {shared:,} of the target's {len(ours):,} tokens ({share:.0%}) and drafts only these"
        return Fit(False, share, f"{why}; {known}" if shared else f"{why}; they share none")
    broken = next((v for v in (theirs, ours) if isinstance(v, str)), None)
    if broken:
        return Fit(False, None, broken)
    return Fit(None, None, "no file of its tokenizer can be compared; it is compared at loading")


def _readable(place: Path) -> dict[str, int] | str | None:
    """The vocabulary, or what is wrong with the files that hold it."""
    try:
        return vocabulary(place)
    except (OSError, ValueError) as error:
        return first_line(error)


def vocabulary(folder: Path) -> dict[str, int] | None:
    """Token by token its id, as the tokenizer's ``get_vocab()``; None where no file of the folder, which may be a GGUF
    file, says it. Raises OSError, ValueError: a file is unreadable or damaged."""
    if os.path.isfile(folder):
        return {token: number for number, token in enumerate(gguf_folder.tokens_and_types(gguf_file.read(folder))[0])}
    try:
        if os.path.exists(folder / "tokenizer.json"):
            found = _fast(folder / "tokenizer.json")
        elif found := _read(folder / "vocab.json"):
            found |= _read(folder / "added_tokens.json")
        else:
            return None
        settings = _read(folder / "tokenizer_config.json")
        for number, token in (settings.get("added_tokens_decoder") or {}).items():
            found.setdefault(token["content"] if isinstance(token, dict) else token, int(number))
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"the tokenizer files in {folder.name} are damaged") from error
    if not all(isinstance(token, str) and type(number) is int for token, number in found.items()):
        raise ValueError(f"the tokenizer files in {folder.name} are damaged")
    return found


def _fast(file: Path) -> dict[str, int]:
    content = _read(file)
    words = content["model"]["vocab"]  # {token: id}, or for Unigram [[token, score], ...]
    found = dict(words) if isinstance(words, dict) else {entry[0]: i for i, entry in enumerate(words)}
    return found | {token["content"]: token["id"] for token in content.get("added_tokens") or ()}


def _read(file: Path) -> dict[str, Any]:
    return read_object(file) if os.path.exists(file) else {}


def difference(theirs: dict[str, int], ours: dict[str, int]) -> str | None:
    """Why a draft model of one vocabulary does not fit a target of another, in words; None if it fits."""
    if theirs == ours:
        return None
    if len(theirs) != len(ours):
        return f"it has {len(theirs):,} tokens, the target {len(ours):,}"
    here, there = ({number: token for token, number in v.items()} for v in (ours, theirs))
    differing = sorted(n for n in here.keys() | there.keys() if here.get(n) != there.get(n))
    first = differing[0]
    other = f"{first} is {there.get(first)!r}, in the target {here.get(first)!r}"
    return f"{len(differing):,} of {len(ours):,} tokens differ: {other}"
