"""What a model is and what it would take, from its configuration and the headers of its weights: nothing is loaded."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from engines import machine
from engines.errors import SpecError, first_line
from engines.folders import open_file
from engines.hub.kept_weights import kept_bytes
from engines.hub.local_models import Candidate, candidates
from engines.hub.model_checks import read_config
from engines.hub.model_source import ModelSource, Progress, TrustPolicy, auto_map, locate
from engines.hub.safetensors_headers import parameters_of, stored_in
from engines.hub.untrusted_json import is_count, object_in, read_object, words_in
from engines.libraries import hf
from engines.model.causal_model import usable_context
from engines.model.fused_layers import fuse
from engines.model.gguf_weights import StoredWeights
from engines.model.lean_forward import fits
from engines.model.load_options import AUTO, CHOICES, STORED, LoadOptions
from engines.model.loading import check_sentencepiece, load_config, resolve_quantisation
from engines.model.masks import FULL, spans
from engines.model.native.native_code import obtainable
from engines.model.quantise import bytes_laid_out
from engines.progress import Loading

_TEMPLATES = ("chat_template.jinja", "chat_template.json", "additional_chat_templates/default.jinja")
_CARD = 1 << 16  # bytes of a model card that are read
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """The sizes in a configuration, None where it does not say.

    Attributes:
        attention: numbers of layers by what they see, e.g. ``{"full": 6, "window 512": 20}``.
        rows: numbers that the KV cache holds of a token.
    """

    type: str
    architecture: str | None = None
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_size: int | None = None
    vocabulary: int | None = None
    context: int | None = None
    attention: dict[str, int] = field(default_factory=dict)
    rows: int | None = None
    quantised: str | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes at a dtype and a choice of ``quantize`` ("auto": as it is loaded): weights, KV cache for the whole context
    and for 1000 tokens of it; and where it fits."""

    dtype: str
    weights: int
    cache: int | None
    cache_per_1000: int | None
    fits: dict[str, bool]
    quantize: str = AUTO


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """All that is known of a model without loading it.

    Attributes:
        where: "folder", "file" (GGUF), "cache" or "hub"; ``folder``: its path, of a GGUF file the file's.
        problem: why it will be refused, None if nothing is known against it; hint: what to do about that.
        drafts: "trees", "chains" or None if it is refused; the test at loading has the last word.
        title: what its file calls it, untrusted; else the name.
        parameters: as people count them, a tied table once; None for pickled weights.
        stored: numbers that are stored, by dtype; ``stored_as``: what users call that, such as "Q4_K_M", "" where it
            has no name of its own.
        files: sizes in bytes of the files that are needed, by name; ``to_download``: of them, what is not here.
        kept: bytes of its weights that lie in the cache folder in the order of native code.
    """

    name: str
    title: str
    where: str
    folder: str
    revision: str | None
    commit: str | None
    problem: str | None
    hint: str | None
    drafts: str | None
    remarks: tuple[str, ...]
    shape: ModelSizes
    parameters: int | None
    stored: dict[str, int]
    stored_as: str
    weights: str
    files: dict[str, int]
    to_download: int
    kept: int
    licence: str | None
    gated: bool | None
    chat_template: bool
    memory: tuple[Memory, ...]
    machine: dict[str, Any]
    draft_models: tuple[Candidate, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def describe(name: str, options: LoadOptions = LoadOptions(), progress: Progress = lambda _: None) -> ModelDescription:
    """Describe a model, of whose options revision, draft model and trust count; of one that is on the hub only,
    configuration and tokenizer are downloaded, no weights. Raises ModelUnavailable, UsageProblem: as
    ``engines.hub.model_source.locate`` where nothing is to be loaded, also for the draft model."""
    terms = options.terms
    looser = replace(terms, allow_pickle=True)  # what would be refused is described, too
    source = locate(name, options.revision, looser, "target", progress, to_load=False)
    draft = None
    if options.draft_model is not None:
        draft = locate(options.draft_model, options.draft_revision, looser, "draft model", progress, to_load=False)
    progress(Loading("reading the configuration"))
    config, problem, hint = _config(source, terms)
    try:
        remarks = usable_context(config, source.name)[1] if config is not None else ()
        shape = sizes_of(source.folder, config)
        verified = None if config is None else "chains" if spans(config) is None else "trees"
    except Exception as error:  # transformers takes much that no model could be made of
        problem = problem or f"its configuration makes no sense: {first_line(error)}"
        config, shape, verified, remarks = None, sizes_of(source.folder, None), None, ()
        hint = hint or "choose another model"
    listing, stored, room = source.listing, stored_in(source), _machine()
    where = "hub" if listing else "cache" if source.folder.parent.name == "snapshots" else "folder"
    where = "file" if source.gguf else where
    parameters = parameters_of(source, stored) or None
    small = () if source.gguf else source.choice.small  # of a GGUF file they were made from it
    names, sizes = (*small, *source.choice.weights), memory(shape, sum(stored.values()), room)
    if sizes and problem is None:
        sizes = laid_out_memory(source, sizes, stored, room)
    return ModelDescription(
        name=name, title=(source.gguf and source.gguf.title) or name, where=where, folder=str(source.place),
        revision=options.revision,
        commit=None if where in ("folder", "file") else source.folder.name, problem=problem, hint=hint,
        drafts=verified if problem is None else None, remarks=(*remarks, *_warnings(source, config, shape)),
        shape=shape, parameters=parameters, stored=stored,
        stored_as=(source.gguf and source.gguf.weights_name) or "",
        weights="GGUF" if source.gguf else "pickled" if source.choice.pickled else "safetensors",
        files={n: listing.files[n].size if listing else source.path(n).stat().st_size for n in names},
        to_download=source.download.bytes - source.download.fetched if source.download else 0,
        kept=kept_bytes(source.gguf.path) if source.gguf else 0,
        licence=listing.licence if listing else _licence(source), gated=listing.gated if listing else None,
        chat_template=_has_template(source.folder), memory=sizes, machine=room,
        draft_models=candidates(source, draft, parameters),
    )


def _config(source: ModelSource, terms: TrustPolicy) -> tuple[hf.PreTrainedConfig | None, str | None, str | None]:
    """The decoder's configuration, and why the model will be refused, with what to do about it."""
    problem = hint = None
    if source.choice.pickled and not terms.allow_pickle:
        problem, hint = "its weights are pickled, there are no safetensors", "--allow-pickle reads them"
    try:
        found = hf.text_config(load_config(source))
        check_sentencepiece(source)
        return found, problem, hint
    except SpecError as error:
        problem, hint = error.message, error.hint
    hf.be_quiet()
    try:  # what is refused is described as far as it goes
        read_config(source.folder)
        return hf.text_config(hf.read_config(source.folder, source.terms.trust_remote_code)), problem, hint
    except Exception:
        return None, problem, hint


def _warnings(source: ModelSource, config: hf.PreTrainedConfig | None, shape: ModelSizes) -> tuple[str, ...]:
    found = source.remarks
    if auto_map(source.folder) and not source.terms.trust_remote_code:
        found += ("it comes with code of its own, which is not run unless --trust-remote-code is given",)
    named = any(word in (shape.architecture or "") for word in ("CausalLM", "LMHead"))
    if not named and getattr(config, "is_decoder", None) is False:  # so of all encoders, and of some decoders
        found += (f"saved as {shape.architecture}, perhaps an encoder: the test at loading would refuse that",)
    return found


def _licence(source: ModelSource) -> str | None:
    """As a GGUF file says, or the front matter of the model card, a README.md that lies here."""
    if source.gguf is not None:
        said = source.gguf.metadata.get("general.license")
        return said if isinstance(said, str) and said else None
    try:
        with open_file(source.folder / "README.md") as stream:
            card = stream.read(_CARD).decode(errors="replace")
    except OSError:
        return None
    front = re.match(r"---[ \t\r]*\n(.*?)^---", card, re.DOTALL | re.MULTILINE)
    found = front and re.search(r"^license:(.*)$", front[1], re.MULTILINE)
    return found[1].strip().strip("\"'") or None if found else None


def _has_template(folder: Path) -> bool:
    if any(os.path.exists(folder / name) for name in _TEMPLATES):
        return True
    try:
        return bool(read_object(folder / "tokenizer_config.json").get("chat_template"))
    except (OSError, ValueError):
        return False


def _machine() -> dict[str, Any]:
    total, free = machine.ram()
    return {
        "ram": total, "ram_free": free, "native": obtainable(),
        "gpus": [{"device": d, "name": n, "memory": t, "free": f} for d, n, t, f in machine.gpus()],
    }


def sizes_of(folder: Path, config: hf.PreTrainedConfig | None) -> ModelSizes:
    """The sizes of a decoder; without a configuration that transformers understands, what its file calls itself. Raises
    Exception: transformers took a configuration that makes no sense, of whatever kind; not without one."""
    try:
        raw = read_config(folder)
    except (OSError, ValueError):
        raw = {"model_type": "unknown"}
    architecture = next(iter(words_in(raw, "architectures")), None)
    if config is None:
        return ModelSizes(str(raw.get("model_type")), architecture)
    layers, quantised = _number(config, "num_hidden_layers"), object_in(raw, "quantization_config")
    context = usable_context(config, "")[0]
    first = _layer_configs(config, layers)[0]
    heads, kv_heads, size = _heads(first)
    return ModelSizes(
        type=config.model_type, architecture=architecture, layers=layers, hidden=_number(config, "hidden_size"),
        heads=heads, kv_heads=kv_heads, head_size=size, vocabulary=_number(config, "vocab_size"),
        context=context if is_count(context) else None, attention=_attention(config, layers),
        rows=_rows(config, layers), quantised=str(quantised.get("quant_method", "yes")) if quantised else None,
    )


def _number(config: hf.PreTrainedConfig, name: str) -> int | None:
    value = getattr(config, name, None)
    return value if is_count(value) and value > 0 else None


def _layer_configs(config: hf.PreTrainedConfig, layers: int | None) -> list[hf.PreTrainedConfig]:
    """The configuration of each layer that keeps rows of its own; at least one, the same one where all are alike."""
    kept = max((layers or 1) - (_number(config, "num_kv_shared_layers") or 0), 1)
    return hf.layer_configs(config, kept)


def _heads(config: hf.PreTrainedConfig) -> tuple[int | None, int | None, int | None]:
    """Heads, heads for keys and values, and the size of one."""
    heads, hidden = _number(config, "num_attention_heads"), _number(config, "hidden_size")
    size = _number(config, "head_dim") or (hidden // heads if heads and hidden else None)
    kv_heads = 1 if getattr(config, "multi_query", False) else _number(config, "num_key_value_heads") or heads
    return heads, kv_heads, size


def _rows(config: hf.PreTrainedConfig, layers: int | None) -> int | None:
    """Numbers kept of a token: keys and values of every layer, windows or not (the buffer is one length for all)."""
    if not layers:
        return None
    if latent := _number(config, "kv_lora_rank"):
        return layers * (latent + (_number(config, "qk_rope_head_dim") or 0))
    found = 0
    for layer in _layer_configs(config, layers):
        _, kv_heads, size = _heads(layer)
        if not kv_heads or not size:
            return None
        found += 2 * kv_heads * size
    return found


def _attention(config: hf.PreTrainedConfig, layers: int | None) -> dict[str, int]:
    kinds, sizes = hf.layer_kinds(config), spans(config)
    counts = Counter(kinds or {next(iter(sizes or {"unknown": None})): layers or 0})
    words = {}
    for kind, count in counts.items():
        size = (sizes or {}).get(kind)
        word = "full" if kind == FULL else kind.removesuffix("_attention").replace("sliding", "window")
        words[f"{word} {size:,}" if size else word] = count
    return words


def memory(shape: ModelSizes, parameters: int | None, room: dict[str, Any]) -> tuple[Memory, ...]:
    """What the weights and the KV cache take at each dtype; nothing for quantised weights, which are not what their
    count says. ``room``: {"ram": bytes, "gpus": [{"device", "memory"}]}."""
    if not parameters or shape.quantised:
        return ()
    places = {"ram": room["ram"]} | {gpu["device"]: gpu["memory"] for gpu in room["gpus"]}
    found = []
    for dtype, size in BYTES.items():
        weights, cache = parameters * size, None
        if shape.rows and shape.context:
            cache = shape.rows * shape.context * size
        fits = {place: weights + (cache or 0) <= memory for place, memory in places.items() if memory}
        found.append(Memory(
            dtype=dtype, weights=weights, cache=cache, fits=fits,
            cache_per_1000=shape.rows * 1000 * size if shape.rows else None,
        ))
    return tuple(found)


def laid_out_memory(
    source: ModelSource, plain: tuple[Memory, ...], stored: dict[str, int], room: dict[str, Any]
) -> tuple[Memory, ...]:
    """What the model takes in native code on the CPU, at each dtype and then quantised; without such code ``plain``,
    where every number has its dtype's size. Whether a GPU has room is judged by ``plain`` in any case.

    Args:
        stored: numbers by the type that they are stored in.
        room: of ``_machine``.
    """
    if not room["native"]:
        return plain
    half = bool(stored) and set(stored) <= {"BF16", "F16"}
    first, *others = plain

    def laid_out(row: Memory, kind: str, choice: str, half: bool) -> Memory:  # keys and values are float32
        weights = bytes_laid_out(model, kind, grids, half)
        ram = {"ram": weights + (first.cache or 0) <= room["ram"]} if room["ram"] else {}
        return replace(first, dtype=row.dtype, weights=weights, quantize=choice, fits=row.fits | ram)

    try:
        model = hf.empty_model(load_config(source), torch.float32)
        grids = StoredWeights(source.gguf, model) if source.gguf is not None else None
        if fits(model, native=True):
            fuse(model)
        found: dict[str, Memory] = {}
        for choice in CHOICES:
            kind, _ = resolve_quantisation(source, choice, native=True)
            if choice == STORED or (choice != AUTO and kind in found):
                continue  # the same as what is there
            found[kind] = laid_out(first, kind, choice, half)
        as_it_is, *rest = found
        halves = (laid_out(row, as_it_is, AUTO, half=True) for row in others)
        return found[as_it_is], *halves, *(found[kind] for kind in rest)
    except Exception:  # code of a model's own, or a configuration that only its loading refuses
        return plain
