"""Loading what ``engines.hub`` found: target, tokenizer, and a draft model where its vocabulary is the target's. Every
failure is a sentence. What configurations and tokenizers show to be unfit is refused before weights are fetched."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch

from engines.errors import ModelUnavailable, SpecError, UsageProblem, first_line
from engines.folders import open_file
from engines.hub.gguf_file import GgufFile
from engines.hub.kept_weights import kept_weights
from engines.hub.known_models import default_model
from engines.hub.local_models import usual_draft
from engines.hub.model_checks import check_tokenizer, generation_problem, read_config
from engines.hub.model_source import ModelSource, Progress, auto_map, check_room, locate
from engines.hub.other_kinds import check_weights
from engines.libraries import hf, versions
from engines.libraries.hf import PreTrainedConfig, PreTrainedModel, Tokenizer
from engines.model.causal_model import CausalModel
from engines.model.cuda_graphs import CudaGraphForward
from engines.model.forward import GenericForward
from engines.model.fused_layers import fuse, is_unread
from engines.model.gguf_weights import GRID_KINDS, StoredWeights
from engines.model.lean_forward import LeanForward, fits
from engines.model.load_options import AUTO, INT8, NONE, STORED, LoadOptions
from engines.model.native.native_check import unavailable
from engines.model.native.native_code import digest
from engines.model.native.native_forward import NativeForward, takes
from engines.model.native.native_linear import NARROW, make_native, share_embedding, weight_bytes
from engines.model.quantise import PLAIN, narrows, quantise
from engines.model.selftest import test_once, unfit
from engines.model.tuning import tune_once
from engines.progress import Loading
from engines.vocabularies import Translation

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_DEVICES = ("cpu", "cuda", "mps", "xpu")
_AUTO = {"configuration": "AutoConfig", "tokenizer": "AutoTokenizer"}  # in whose place a model may have code of its own
_FREQUENT = 65_536  # tokens that a draft model with many more may draft
_LARGE = 100_000_000  # parameters of a draft model whose steps take as long as memory takes to give its weights
_SAMPLES = 8  # numbers of each weight that its fingerprint is taken of
_COMPILED = 0.1  # of the bar of all loading: what compiling takes of it
_SHORT = {"f32": "float32", "fp32": "float32", "f16": "float16", "fp16": "float16", "bf16": "bfloat16"}


def resolve_device(device: str) -> torch.device:
    """The device by name; "auto" takes CUDA where there is one. Raises UsageProblem."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
        if found.type not in _DEVICES:
            raise RuntimeError
        torch.empty(1, device=found)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise UsageProblem(f"device {device!r} does not work here", "use --device cpu; see spec-tui doctor") from None
    return found


def resolve_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """The dtype by name; "auto" is float32 on the CPU, bfloat16 elsewhere. Raises UsageProblem."""
    if dtype == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    name = _SHORT.get(dtype, dtype)
    if name not in DTYPES:
        raise UsageProblem(f"there is no dtype {dtype!r}", "dtypes are: auto, " + ", ".join(DTYPES))
    return DTYPES[name]


def resolve_quantisation(source: ModelSource, choice: str, native: bool) -> tuple[str, str]:
    """How this model is quantised here, and what a user should know of it: ``auto`` is no quantisation where most of
    the file is on no grid, and only ``native`` code multiplies integers."""
    stored = source.gguf.stored() if source.gguf is not None else {}
    held = sum(count for kind, count in stored.items() if kind in GRID_KINDS)
    if choice == NONE or (choice in (AUTO, STORED) and 2 * held <= sum(stored.values())):
        return NONE, ""
    if not native:
        said = f"{source.name}: weights are not quantised; that needs native code on the CPU"
        return NONE, said if choice not in (AUTO, STORED) else ""
    return choice, ""


def native_here(
    wanted: bool, device: torch.device, progress: Progress = lambda _: None
) -> tuple[bool, tuple[str, ...]]:
    """Whether there is native code (``engines.model.native``), which may be compiled for that, and what a user should
    know: why not."""
    if not wanted or device.type != "cpu":
        return False, ()
    loading = partial(Loading, "compiling native code for this processor, once")
    why = unavailable(lambda share: progress(loading(share * _COMPILED)))
    return not why, (f"models run without native code, slower: {why}",) if why else ()


def load_models(
    options: LoadOptions, progress: Progress = lambda _: None
) -> tuple[CausalModel, Tokenizer, LoadedDraft | None, tuple[str, ...]]:
    """Find, download and load target, tokenizer and draft model. The target is strict or not: of drafts nothing depends
    on the last bit. A draft model that is not named and fails is left out. The last value that is returned is what the
    user should know of the draft model.

    Raises:
        ModelUnavailable: a model is missing or unusable.
        UsageProblem: as ``LoadOptions.check``; an unknown dtype or device; a named draft model that shares no token
            with the target.
    """
    options.check()
    device, _ = _resolved(options)
    source = locate(options.model or default_model(), options.revision, options.terms, "target", progress)
    native_here(options.native, device, progress)
    progress(Loading("loading the tokenizer", _COMPILED))
    load_config(source)
    tokenizer = load_tokenizer(source)
    found, warnings, failed = None, (), []
    with _optional(options.draft_model, failed):
        found, warnings = _find_draft(options.draft_model or None, options.draft_revision, source, tokenizer, progress)
    draft_source = found.source if found is not None else None
    check_room(source, draft_source)
    source.fetch_weights(progress)
    if draft_source is not None:
        draft_source.fetch_weights(progress)
    target = load_model(source, options, _part(progress, 0.2, 0.65))
    draft = None
    if found is not None:
        with _optional(options.draft_model, failed):
            draft = _read_draft(found, options, _part(progress, 0.65, 0.8, "draft model: "))
    return target, tokenizer, draft, (*warnings, *failed)


@contextmanager
def _optional(draft_model: str | None, failed: list[str]) -> Iterator[None]:
    """Within, a draft model is found or read. Where none was named, ``failed`` gets the sentence for what fails. Raises
    ModelUnavailable where one was."""
    try:
        yield
    except ModelUnavailable as error:
        if draft_model:
            raise
        failed.append(f"no draft model is used: {error.message}")


def _resolved(options: LoadOptions) -> tuple[torch.device, torch.dtype]:
    """Device and dtype of these options here. Raises UsageProblem: one is unknown."""
    device = resolve_device(options.device)
    return device, resolve_dtype(options.dtype, device)


class LoadedDraft(NamedTuple):
    """A draft model in memory; ``translation`` of the target's tokens to its own, None where they are the same."""

    model: CausalModel
    translation: Translation | None = None


class _FoundDraft(NamedTuple):
    """A draft model, its weights not loaded yet."""

    source: ModelSource
    translation: Translation | None = None


def load_draft(
    name: str, target: str, tokenizer: Tokenizer, options: LoadOptions, progress: Progress = lambda _: None,
    make_room: Callable[[], None] = lambda: None,
) -> tuple[LoadedDraft, tuple[str, ...]]:
    """Another draft model for a target that was loaded with these options, and what is to be known of it. ``make_room``
    is called once its files are here, before they are read. Raises as ``load_models``."""
    source = locate(target, options.revision, options.terms, "target")
    found, warnings = _find_draft(name, None, source, tokenizer, progress)
    check_room(found.source)
    found.source.fetch_weights(progress)
    make_room()
    return _read_draft(found, options, progress), warnings


def _read_draft(found: _FoundDraft, options: LoadOptions, progress: Progress) -> LoadedDraft:
    """A draft model whose weights are available, on as many threads as its target."""
    own = replace(options, quantize=options.draft_quantize, threads=torch.get_num_threads(), strict=False)
    model = load_model(found.source, own, progress, drafts=True)
    if found.translation is None:
        _draft_frequent(model)
    return LoadedDraft(model, found.translation)


def _draft_frequent(model: CausalModel) -> None:
    """Let a draft model with a large vocabulary draft the frequent tokens only, which vocabularies number first: its
    head is up to a fourth of all that a step reads, and no law asks that every token can be drafted (FR-Spec, Zhao et
    al. 2025)."""
    if isinstance(model.compute, NativeForward) and 2 * model.vocab_size >= 3 * _FREQUENT:
        model.compute.narrow(_FREQUENT)
        model.quantised = ", ".join(filter(None, (model.quantised, f"drafts {_FREQUENT:,} of its tokens")))


def _part(progress: Progress, begin: float, end: float, what: str = "") -> Progress:
    """Tells of a part of the loading as of a part of the whole."""
    return lambda event: progress(Loading(what + event.stage, begin + (end - begin) * event.done))


def no_draft_fits(target: str) -> str:
    """What is said of a target for which no draft model is found."""
    return f"no draft model here fits {target}: give --draft-model to use the draft engine"


def _find_draft(
    name: str | None, revision: str | None, target: ModelSource, tokenizer: Tokenizer, progress: Progress
) -> tuple[_FoundDraft | None, tuple[str, ...]]:
    """The draft model, its vocabulary compared; one that is not named must have the target's."""
    none_fits = None, (no_draft_fits(target.name),)
    usual = usual_draft(target.place) if name is None else None
    if name is None and (usual is None or usual.fits is False):
        return none_fits
    source = locate(name or str(usual.place), revision, target.terms, "draft model", progress, beside=target)
    # Where the files of one that is not named say that it fits, its tokenizer need not be built.
    theirs = None if usual is not None and usual.fits else load_tokenizer(source)
    if theirs is None or theirs.get_vocab() == tokenizer.get_vocab():
        load_config(source)
        return _FoundDraft(source), ()
    if name is None:
        return none_fits
    load_config(source)
    translation = Translation(theirs.get_vocab(), tokenizer.get_vocab())
    if not translation.shared:
        raise UsageProblem(
            f"the vocabulary of draft model {source.name} ({len(theirs)} tokens) shares no token with that of"
            f" {target.name} ({len(tokenizer)} tokens)", "give another draft model")
    return _FoundDraft(source, translation), (
        f"draft model {source.name} has {len(translation.shared):,} of the target's {len(tokenizer):,} tokens"
        f" ({translation.share:.0%}) and drafts only these; the text is translated for it",)


def load_tokenizer(source: ModelSource | str) -> Tokenizer:
    """The tokenizer of a model. Raises ModelUnavailable."""
    source = _located(source)
    if source.gguf is None:  # else its files were written here, from a checked header
        _guarded(source, "tokenizer", lambda: check_tokenizer(source.folder))
        check_sentencepiece(source)
    found = _guarded(source, "tokenizer", lambda: hf.read_tokenizer(
        source.folder, source.terms.trust_remote_code) if source.gguf is None else hf.reopen_tokenizer(source.folder))
    found.begins_templates = source.gguf is not None  # engines.tokenization
    return found


def check_sentencepiece(source: ModelSource) -> None:
    """Raises ModelUnavailable where the only tokenizer is a SentencePiece file, and no library here reads it."""
    others = any(os.path.exists(source.folder / name) for name in ("tokenizer.json", "vocab.json", "vocab.txt"))
    if others or versions.installed("sentencepiece"):
        return
    for file in source.folder.glob("*.model"):
        with suppress(OSError), open_file(file) as stream:
            if stream.read(1) == b"\n":  # else tiktoken's, in base64
                raise ModelUnavailable(f"the tokenizer of {source.name} is a SentencePiece file, {file.name}, and"
                                       " sentencepiece is not installed", "pip install sentencepiece")


def load_config(source: ModelSource) -> PreTrainedConfig:
    """The configuration of a causal language model; needs no weights. Raises ModelUnavailable: unreadable, another kind
    of model, one that no cache of keys and values serves, or one that needs code of its own which is not trusted."""
    hf.be_quiet()
    settings = _guarded(source, "configuration", lambda: read_config(source.folder))
    named = settings.get("model_type")
    if isinstance(named, str) and not hf.knows(named) and "AutoConfig" not in auto_map(source.folder):
        known = f"which transformers {versions.installed('transformers')} does not know"
        raise ModelUnavailable(f"{source.name} is of the type {named[:40]}, {known}",
                               "a newer transformers may know it; or choose another model")
    check_weights(source.name, settings, source.folder)
    config = _guarded(source, "configuration", lambda: hf.read_config(source.folder, source.terms.trust_remote_code))
    own_class = source.terms.trust_remote_code and "AutoModelForCausalLM" in auto_map(source.folder)
    kind = None if own_class else hf.model_class(config)
    if config.is_encoder_decoder or not (own_class or kind):
        if "AutoModelForCausalLM" in auto_map(source.folder):
            raise _untrusted(source.name)
        raise ModelUnavailable(f"{source.name} is not a causal language model (its type is {config.model_type})",
                               "choose a decoder-only model such as a Llama, Qwen or Mistral")
    reason = _guarded(source, "configuration", lambda: unfit(kind, config)) if kind else None
    if reason:
        raise _unusable(source.name, reason)
    return config


def load_model(
    source: ModelSource | str, options: LoadOptions = LoadOptions(), progress: Progress = lambda _: None,
    drafts: bool = False,
) -> CausalModel:
    """A causal language model, tested and ready to decode with, computed as the options say of the target. One that
    only ``drafts`` is read from memory in 3 bits where its file has more than 4. ``progress`` is told of reading,
    tuning and testing, 0..1.

    Raises:
        UsageProblem: an unknown dtype or device.
        ModelUnavailable: missing, unreadable, not a decoder-only language model, not in safetensors, or one that
            cannot verify several tokens at once; the message says which and what to do.
    """
    source = _located(source)
    device, dtype = _resolved(options)
    native, _ = native_here(options.native, device, progress)
    quantize, said = resolve_quantisation(source, options.quantize, native)
    model = read_model(source, dtype, device, progress, as_stored=quantize in (AUTO, STORED))
    quantising = stored = None
    narrow = drafts and quantize == AUTO and model.num_parameters() >= _LARGE
    if quantize != NONE:
        stored = StoredWeights(source.gguf, model) if source.gguf is not None else None
        quantising = partial(_quantise, source.gguf, choice=quantize, stored=stored, narrow=narrow,
                             rounds=options.arithmetic == INT8)
    fingerprint = weights_fingerprint(model, stored)
    causal = wrap(model, source.name, options, progress, quantising, fingerprint)
    causal.remarks += source.remarks + ((said,) if said else ())
    if causal.quantised:
        numbers = NARROW if NARROW in causal.quantised else "" if quantize in (AUTO, STORED) else quantize
        causal.weights = ", ".join(filter(None, (_weights_words(causal, numbers), causal.weights)))
    return causal


def _quantise(file: GgufFile | None, model: PreTrainedModel, **how: Any) -> Counter[str]:
    """``quantise``, with the weights of a file in the memory that was kept of it."""
    if file is None:
        return quantise(model, **how)
    narrowed = how["narrow"] and narrows(model, how["stored"])
    with kept_weights(file, [AUTO if how["choice"] == STORED else how["choice"], narrowed], digest()) as place:
        return quantise(model, **how, place=place)


def _weights_words(model: CausalModel, numbers: str) -> str:
    """How the weights of a model are not those that were loaded, "" where they are; ``numbers``: what they became."""
    rounded = "products of 8-bit inputs" if model.rounds else ""
    return ", ".join(filter(None, (numbers and f"{numbers} weights", rounded)))


def read_model(
    source: ModelSource, dtype: torch.dtype, device: torch.device, progress: Progress = lambda _: None,
    as_stored: bool = False,
) -> PreTrainedModel:
    """A causal language model as transformers loads it, with nothing of ours done to it. ``as_stored``: what
    ``quantise`` takes as a GGUF file stores it is not read. Raises ModelUnavailable."""
    config = load_config(source)
    source.fetch_weights()
    progress(Loading("loading the weights", 0.0))
    with hf.counted(lambda share: progress(Loading("loading the weights", 0.6 * share))):
        model, lacking, unused, misfits = _guarded(
            source, "weights", lambda: _with_weights(source, config, dtype, as_stored))
    if misfits:
        name, (stored, asked) = min(misfits.items())
        raise ModelUnavailable(
            f"the weights of {source.name} do not fit its configuration: {name} is {_shape(stored)},"
            f" the configuration makes it {_shape(asked)}", "they belong to different models: get both again")
    if lacking:  # transformers would draw them at random
        raise ModelUnavailable(f"{source.name} lacks {len(lacking)} of its weights, the first is {lacking[0]}",
                               "it is not a language model, or its download is incomplete")
    if unused:
        source.notes += (f"{source.name}: weights that are not used: {len(unused)}, the first is {unused[0]}",)
    return _guarded(source, "weights", lambda: model.to(device))


def _shape(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes)) or "one number"


def _with_weights(
    source: ModelSource, config: PreTrainedConfig, dtype: torch.dtype, as_stored: bool
) -> hf.ReadWeights:
    """The model on the CPU."""
    if source.gguf is None:  # transformers ignores a damaged generation_config.json, or fails at it
        return hf.read_folder(source.folder, dtype, source.choice.pickled, source.terms.trust_remote_code,
                              ends=not generation_problem(source.folder))
    empty = hf.empty_model(config, dtype)
    weights = StoredWeights(source.gguf, empty)
    return hf.fill(empty, weights.unpacked(dtype, weights.replacing(empty) if as_stored else ()), source.folder)


def wrap(
    model: PreTrainedModel, name: str, options: LoadOptions = LoadOptions(), progress: Progress = lambda _: None,
    quantising: Callable[..., Counter[str]] | None = None, fingerprint: str | None = None,
) -> CausalModel:
    """A transformers model already in memory as a tuned and tested ``CausalModel``, of the dtype and on the device that
    it has; ``quantising`` is ``quantise`` with its arguments but the model, ``fingerprint`` what
    ``weights_fingerprint`` gives, if that is known. Raises ModelUnavailable."""
    model = model.eval()
    reason = unfit(type(model), model.config)
    native, _ = native_here(options.native, model.device, progress)
    try:
        if not reason:
            known = {"parameters": model.num_parameters(), "fingerprint": fingerprint or weights_fingerprint(model)}
            half = model.dtype if model.dtype != torch.float32 else None
            words, remarks, forwards = _prepared(model, name, progress, quantising, native)
            if options.strict:  # not all of its forwards are recorded, so bits might differ
                forwards = [kind for kind in forwards if kind is not CudaGraphForward]
            if model.device.type == "cuda":  # cuDNN plans anew for each length of a text, for longer than a pass
                torch.backends.cuda.enable_cudnn_sdp(False)
            if model.device.type == "cpu":
                facts = [forwards[0].name, weight_bytes(model)]
                tune_once(model, lambda: _rows(forwards[0], model), facts, options.threads,
                          lambda done: progress(Loading("measuring threads", 0.6 + 0.25 * done)))
            progress(Loading("testing the model with drafts", 0.85))
            for compute in forwards:
                causal = CausalModel(model, name, **known, compute=compute(model))
                causal.quantised = words
                reason = test_once(causal)
                if not reason and (causal.trees or compute is GenericForward):
                    break
            causal.remarks += remarks
            if native and half is not None:
                rounded = str(half).removeprefix("torch.")
                causal.weights = f"other weights in {rounded}" if words else f"{rounded} weights"
            if options.strict and not reason:
                causal.be_strict()
    except SpecError:
        raise
    except (MemoryError, torch.OutOfMemoryError):
        reason = "there is no memory left for a forward"
    except Exception as error:  # families need inputs that nobody can list, and say so in their own ways
        reason = f"a forward of tokens alone fails: {first_line(error)}"
    if reason:
        raise _unusable(name, reason)
    return causal


def _prepared(
    model: PreTrainedModel, name: str, progress: Progress, quantising: Callable[..., Counter[str]] | None, native: bool
) -> tuple[str, tuple[str, ...], list[type]]:
    """Join, quantise and reorder the linear layers of a model, in place. Returns which are quantised, in words; what is
    to be known of that; and the kinds of forward that may compute it, the fastest first."""
    words, remarks, fused = "", (), fits(model, native) and (native or model.device.type != "cpu")
    if fused:
        fuse(model)
    if quantising is not None:
        progress(Loading("preparing the weights", 0.6))
        words, remarks = _quantised_words(name, quantising(model))
    if native:
        make_native(model)
        share_embedding(model)
    if any(map(is_unread, model.parameters())):
        raise RuntimeError("weights that were not read were not replaced")
    if native:
        model.float()
    return words, remarks, [*(_forwards(model) if fused else ()), GenericForward]


def _forwards(model: PreTrainedModel) -> list[type]:
    """What of ours may compute a model whose layers are joined, the fastest first."""
    if model.device.type == "cpu":
        return [NativeForward] if takes(model) else []
    return [CudaGraphForward, LeanForward] if model.device.type == "cuda" else [LeanForward]


def _quantised_words(name: str, kinds: Counter[str]) -> tuple[str, tuple[str, ...]]:
    """Which linear layers are quantised, "" for none, and a remark on those that are not."""
    stay, remark = kinds[PLAIN], ()
    if stay:
        why = "they are stored otherwise, or of another size"
        remark = (f"{name}: {stay} of {kinds.total()} linear layers are not quantised: {why}",)
    found = ", ".join(f"{count} {words}" for words, count in sorted(kinds.items()) if words != PLAIN)
    return f"linear layers: {found}" if found else "", remark


@torch.no_grad()
def weights_fingerprint(model: PreTrainedModel, stored: StoredWeights | None = None) -> str:
    """32 hexadecimal digits over names, shapes and some numbers of all weights, as transformers loads them. The numbers
    are rounded to bfloat16, so that the digits are the same in float32 and in bfloat16; in float16, which rounds
    otherwise, they may be others. Those that were not read are ``stored``. Raises ModelUnavailable: they are nan, which
    products of integers would hide."""
    digest = hashlib.sha256(model.config.model_type.encode())
    for name, weight in sorted(model.named_parameters()):
        digest.update(f"{name} {tuple(weight.shape)}".encode())
        if weight.numel():
            where = torch.linspace(0, weight.numel() - 1, _SAMPLES, dtype=torch.float64).long().to(weight.device)
            # not of a flat view: there is none of a weight that lies transposed, and all of it would be copied
            places = torch.unravel_index(where, weight.shape)
            if is_unread(weight):
                numbers = stored.numbers(name.removesuffix(".weight"), *places)
            else:
                numbers = weight[places] if weight.dim() else weight.expand(_SAMPLES)
            if numbers.isnan().any():
                raise ModelUnavailable(f"the weight {name} is damaged: some of its numbers are nan",
                                       "get the model again")
            rounded = numbers.float().to(torch.bfloat16).view(torch.int16)
            digest.update(rounded.cpu().numpy().tobytes())
    return digest.hexdigest()[:32]


def _rows(kind: type, model: PreTrainedModel) -> Callable[[int], torch.Tensor] | None:
    """A function that sends so many rows through a forward of this kind, to time it; None where that fails, which the
    self-test will find too."""

    def send(rows: int) -> torch.Tensor:
        cache.reserve(rows)
        return forward.run([0] * rows, range(rows), None, cache, True)

    try:
        forward = kind(model)
        cache = forward.buffer(hf.text_config(model.config).num_hidden_layers)
        send(1)
    except Exception:  # whatever kernels refuse
        return None
    return send


def _unusable(name: str, reason: str) -> ModelUnavailable:
    """A model that cannot be decoded with; where libraries were not tested, that may be the reason."""
    if untested := versions.untested():
        return ModelUnavailable(
            f"{name} cannot be decoded with here: {reason}. That may be due to a library: {'; '.join(untested)}",
            versions.advice(),
        )
    return ModelUnavailable(f"{name} cannot be decoded with here: {reason}", "choose another model")


def _located(source: ModelSource | str) -> ModelSource:
    return source if isinstance(source, ModelSource) else locate(source)


def _guarded(source: ModelSource, what: str, call: Callable):
    """Run a transformers loader; its many failures become one sentence each."""
    try:
        return call()
    except SpecError:
        raise
    except Exception as error:  # transformers, the hub and safetensors raise some twenty kinds
        raise _translated(source, what, error) from None


def _translated(source: ModelSource, what: str, error: Exception) -> ModelUnavailable:
    name = source.name
    # torch has no class of error for memory of the CPU that it cannot have
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error):
        return ModelUnavailable(f"{name} does not fit into memory", "choose a smaller model or --dtype bfloat16")
    if not source.terms.trust_remote_code and _AUTO.get(what) in auto_map(source.folder):
        return _untrusted(name)
    if what == "weights" and source.gguf is None and source.choice.pickled:
        return ModelUnavailable(f"the pickled weights of {name} hold more than weights, or are damaged",
                                "they are not read; choose another")
    if isinstance(error, TypeError | AttributeError | ImportError) and (untested := versions.untested()):
        return ModelUnavailable(f"the {what} of {name} cannot be read: {first_line(error)}; {'; '.join(untested)}",
                                versions.advice())
    return ModelUnavailable(f"the {what} of {name} cannot be read: {first_line(error)}",
                            "check that the download is complete")


def _untrusted(name: str) -> ModelUnavailable:
    return ModelUnavailable(f"{name} needs code of its own to run, which is not trusted",
                            "read it, then allow it with --trust-remote-code; or choose another model")
