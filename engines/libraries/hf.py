"""The only door to transformers.

Nothing else imports it: names of arguments, cache classes, fields of configurations, loaders, logits processors and
tokenizers of GGUF files are asked for here. What is used and is not documented by transformers stands in a function of
its own, with what was checked. "Checked" means: the tests pass with 5.20.0, 5.23.0 and 5.24.0 (``make test-versions``).
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import RLock
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import nn

from engines.errors import LibraryProblem
from engines.libraries import versions

versions.check("transformers")
if sys.flags.optimize > 1:
    raise LibraryProblem("transformers reads docstrings, which python -OO leaves out", "start Python without -OO")
try:
    from transformers import (
        CONFIG_MAPPING,
        MODEL_FOR_CAUSAL_LM_MAPPING,
        AutoConfig,
        AutoModelForCausalLM,
        AutoTokenizer,
        DynamicCache,
        GenerationConfig,
        LlamaConfig,
        LlamaForCausalLM,
        MinPLogitsWarper,
        NoRepeatNGramLogitsProcessor,
        PreTrainedConfig,
        PreTrainedModel,
        PreTrainedTokenizerFast,
        RepetitionPenaltyLogitsProcessor,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )
    from transformers import PreTrainedTokenizerBase as Tokenizer
    from transformers.cache_utils import Cache, CacheLayerMixin
    from transformers.generation.streamers import BaseStreamer
    from transformers.utils import logging
except ImportError as error:  # a version that moved or removed something
    raise versions.unusable("transformers", error) from error

__all__ = ["BaseStreamer", "Cache", "CacheLayerMixin", "GenerationConfig", "PreTrainedConfig", "PreTrainedModel",
           "PreTrainedTokenizerFast", "Tokenizer"]

_REPORT_SECONDS = 0.25
_READING = RLock()  # transformers replaces methods of its classes, and torch's dtype, while it makes and reads a model
_FROM_ONE = ("Gemma", "Gemma2", "Gemma3", "RecurrentGemma", "VaultGemma", "Qwen3Next", "Qwen3_5", "Qwen3_5Moe")
Processor = Callable[[torch.Tensor | None, torch.Tensor], torch.Tensor]
"""Logits [rows, vocabulary] from token ids [rows, length] and logits."""


def be_quiet() -> None:
    """Neither warnings nor progress bars from now on: the terminal is ours."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def make_tiny_model() -> None:
    """Make a model without memory. The first one that is made imports more of torch and transformers."""
    with torch.device("meta"):
        LlamaForCausalLM(LlamaConfig(vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=2))


# -- configurations -----------------------------------------------------------------------------------------


def read_config(folder: Path, trust_remote_code: bool) -> PreTrainedConfig:
    """The configuration in a folder. Raises Exception: whatever transformers raises for one that it cannot read."""
    return AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)


def knows(model_type: str) -> bool:
    """Whether there is a class of configurations for a ``model_type``."""
    return model_type in CONFIG_MAPPING


def model_class(config: PreTrainedConfig) -> type[PreTrainedModel] | None:
    """The class of causal language models for a configuration, None where there is none."""
    try:
        found = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    except KeyError:
        return None
    return found if isinstance(found, type) else found[0]


def text_config(config: PreTrainedConfig) -> PreTrainedConfig:
    """The configuration of the decoder of text, inside one of several parts."""
    return config.get_text_config(decoder=True)


def rope(config: PreTrainedConfig) -> Mapping[str, Any]:
    """The settings of rotary positions, or of each kind of layer by its name; empty where there are none."""
    return getattr(config, "rope_parameters", None) or {}


def ropes(config: PreTrainedConfig) -> Mapping[str, Mapping[str, Any]]:
    """The settings of rotary positions of each kind of layer that has its own, by its name; "" where all have one."""
    found = rope(config)
    return {"": found} if "rope_type" in found or not found else found


def activation(config: PreTrainedConfig) -> str:
    """The name of the MLP's activation."""
    return getattr(config, "hidden_activation", None) or getattr(config, "hidden_act", "") or ""


def scales(config: PreTrainedConfig) -> tuple[float, float, float]:
    """The factors of the embedding's rows, of the outputs of attention and MLP, and of the logits: 1 but for Granite.
    The factor of an embedding that scales its rows itself is ``embedding_scale``."""
    logits = getattr(config, "logits_scaling", None) or 1.0
    return getattr(config, "embedding_multiplier", 1.0), getattr(config, "residual_multiplier", 1.0), 1.0 / logits


def caps(config: PreTrainedConfig) -> tuple[float, float]:
    """The soft caps c of attention's scores and of the logits, which are c tanh(x / c); 0 without."""
    found = (getattr(config, f"{name}_logit_softcapping", None) for name in ("attn", "final"))
    return tuple(cap or 0.0 for cap in found)


def embedding_scale(embedding: nn.Module) -> float | None:
    """The factor by which an embedding multiplies its rows; None: an embedding of an unknown kind.

    ``scalar_embed_scale`` is undocumented; checked: Gemma 3.
    """
    if type(embedding) is nn.Embedding:
        return 1.0
    scale = getattr(embedding, "scalar_embed_scale", None)
    return float(scale) if isinstance(embedding, nn.Embedding) and isinstance(scale, float) else None


def norm_weight(norm: nn.Module) -> torch.Tensor:
    """The weight [width] by which a norm multiplies; norms of some families count it from one.

    Which do is undocumented; checked: those that are named here, and that Gemma 3n and Gemma 4 do not.
    """
    weight = norm.weight.detach()
    return weight + 1 if type(norm).__name__.removesuffix("RMSNorm") in _FROM_ONE else weight


def layer_kinds(config: PreTrainedConfig) -> Sequence[str] | None:
    """The kind of attention of each layer, such as "sliding_attention"; None where the configuration names none."""
    return getattr(config, "layer_types", None)


def layer_configs(config: PreTrainedConfig, layers: int) -> list[PreTrainedConfig]:
    """A configuration for each of the first ``layers`` layers, the same one where all are alike.

    ``per_layer_config`` is undocumented; checked: families whose layers have sizes of their own (Gemma 3n, OpenELM).
    """
    if getattr(config, "is_heterogeneous", False):
        return list(config.per_layer_config)[:layers]
    return [config] * layers


def attention_name(config: PreTrainedConfig) -> str:
    """Which implementation of attention a model runs. The field is private; checked: it only names measurements."""
    return str(getattr(config, "_attn_implementation", ""))


# -- forwards -----------------------------------------------------------------------------------------------


def arguments(kind: type | PreTrainedModel) -> frozenset[str]:
    """Names of the arguments of a model's (or a class's) forward; not every model's own code has all of them."""
    return frozenset(inspect.signature(kind.forward).parameters)


def cache_argument(names: frozenset[str]) -> str | None:
    """Which of a forward's arguments takes the cache: "cache" since 5.24, "past_key_values" before and in models' own
    code; None where it takes none."""
    return next((name for name in ("cache", "past_key_values") if name in names), None)


class ForwardCall:
    """Calls a model's forward with the arguments that it knows."""

    def __init__(self, model: PreTrainedModel) -> None:
        names = arguments(model)
        self._model, self._cache = model, cache_argument(names)
        self._takes_positions, self._takes_logits = "position_ids" in names, "logits_to_keep" in names

    def __call__(
        self, ids: torch.Tensor, cache: Cache | None = None, positions: torch.Tensor | None = None,
        mask: Any = None, last: int | None = None,
    ) -> torch.Tensor:
        """Logits [texts, rows, vocabulary].

        Args:
            ids: token ids [texts, rows].
            cache: keys and values of what comes before; None: nothing does, and none are kept.
            positions: [texts, rows]; where the model takes none, it counts from the cache.
            mask: as the model takes it (``engines.model.masks``).
            last: of how many rows, the last ones, logits are wanted; all where the model cannot leave any out.
        """
        how: dict[str, Any] = {"use_cache": cache is not None}
        if cache is not None and self._cache is not None:
            how[self._cache] = cache
        if mask is not None:
            how["attention_mask"] = mask
        if positions is not None and self._takes_positions:
            how["position_ids"] = positions
        if last is not None and self._takes_logits:
            how["logits_to_keep"] = last
        return self._model(input_ids=ids, **how).logits


def growing_cache() -> Cache:
    """An empty cache of transformers' own that keeps all rows: of no configuration, for one that names a window may
    have none, and drop rows."""
    return DynamicCache()


def state_and_index(kind: type, config: PreTrainedConfig) -> tuple[bool, bool]:
    """Whether a model of this class and configuration keeps a running state of past tokens, and an index beside keys
    and values, as far as these tell.

    ``_is_stateful`` and the methods of cache layers are undocumented; checked: the refused families of
    tests/engines/families.py (Mamba, RWKV, Jamba, LFM2, Qwen3-Next, DeepSeek 3.2).
    """
    try:
        layers = DynamicCache(config=config).layers
    except (AttributeError, KeyError, TypeError, ValueError):
        layers = []  # it has kinds of layers that only the model knows
    state = getattr(kind, "_is_stateful", False) or any(hasattr(layer, "update_recurrent_state") for layer in layers)
    return bool(state), any(hasattr(layer, "update_indexer") for layer in layers)


# -- loading ------------------------------------------------------------------------------------------------


def read_tokenizer(folder: Path, trust_remote_code: bool) -> Tokenizer:
    """The tokenizer in a folder, of several chat templates with the one named "default"; where none is, with all by
    their names. Raises Exception: whatever transformers raises for one that it cannot read."""
    found = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    if isinstance(found.chat_template, dict):
        found.chat_template = found.chat_template.get("default", found.chat_template)
    return found


def reopen_tokenizer(folder: Path) -> Tokenizer:
    """A ``PreTrainedTokenizerFast`` that ``save_pretrained`` wrote into a folder, by its tokenizer.json alone: the
    family's own class may cut text in its own way. ``from_pretrained`` takes twice as long: it parses the file in
    Python as well. Raises OSError, ValueError, Exception: whatever the Rust library raises for a damaged file."""
    settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    kept = {name: value for name, value in settings.items() if name not in ("backend", "tokenizer_class")}
    found = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), name_or_path=str(folder), **kept)
    template = folder / "chat_template.jinja"
    if os.path.isfile(template):
        found.chat_template = template.read_text("utf-8")
    return found


def empty_model(config: PreTrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    """A model without memory for its weights."""
    with _READING, torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=dtype)


class ReadWeights(NamedTuple):
    """A model on the CPU; names of weights that it lacks and of those that it has no place for, sorted; of weights of
    other sizes the shape that is stored and the one that its configuration asks for."""

    model: PreTrainedModel
    lacking: list[str]
    unused: list[str]
    misfits: dict[str, tuple[Sequence[int], Sequence[int]]]


def read_folder(folder: Path, dtype: torch.dtype, pickled: bool, trust_remote_code: bool, ends: bool) -> ReadWeights:
    """A model and its weights from a folder.

    Args:
        pickled: whether weights are read that are not in safetensors.
        ends: whether generation_config.json is read; a damaged one must not be.

    Raises:
        Exception: whatever transformers raises for what it cannot read.
    """
    given = {} if ends else {"generation_config": GenerationConfig()}
    model, report = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, use_safetensors=not pickled, weights_only=True, trust_remote_code=trust_remote_code,
        output_loading_info=True, ignore_mismatched_sizes=True, **given,  # else it only says that there are some
    )
    misfits = {name: (stored, asked) for name, stored, asked in report["mismatched_keys"]}
    return ReadWeights(model, sorted(report["missing_keys"]), sorted(report["unexpected_keys"]), misfits)


def fill(empty: PreTrainedModel, weights: Mapping[str, torch.Tensor], folder: Path) -> ReadWeights:
    """``empty`` with these weights, which it takes as they are, with its buffers, and with the generation_config.json
    of a folder, which says where answers end.

    ``from_pretrained`` does it too, in half a second more: it prepares to convert every checkpoint that was ever
    written otherwise. ``_init_weights`` and ``_is_hf_initialized``, by which it leaves weights alone, are undocumented;
    checked: the families of GGUF files.
    """
    expected = {name: weight.shape for name, weight in empty.state_dict().items()}
    misfits = {name: (weight.shape, expected[name]) for name, weight in weights.items()
               if name in expected and expected[name] != weight.shape}
    fitting = {name: weight for name, weight in weights.items() if name not in misfits}
    empty.generation_config = GenerationConfig.from_pretrained(folder)
    empty.load_state_dict(fitting, strict=False, assign=True)
    empty.tie_weights()
    for parameter in empty.parameters():
        parameter.requires_grad_(False)._is_hf_initialized = True
    for module in empty.modules():
        missing = [name for name, buffer in module.named_buffers(recurse=False) if buffer.is_meta]
        for name in missing:
            setattr(module, name, torch.empty_like(getattr(module, name), device="cpu"))
        if missing:
            empty._init_weights(module)
    lacking = [name for name, weight in empty.named_parameters() if weight.is_meta and name not in misfits]
    return ReadWeights(empty.eval(), sorted(lacking), sorted(weights.keys() - expected.keys()), misfits)


@contextmanager
def counted(progress: Callable[[float], None]) -> Iterator[None]:
    """Inside, ``progress`` is told the share of what transformers has a progress bar for, such as reading weights. One
    thread is inside at a time; to one that waits, ``progress`` is told 0 and may raise."""
    while not _READING.acquire(timeout=_REPORT_SECONDS):
        progress(0.0)
    clock = perf_counter()

    def items(things: Sized) -> Iterator:
        nonlocal clock
        for number, thing in enumerate(things):
            if perf_counter() - clock > _REPORT_SECONDS:
                clock = perf_counter()
                progress(number / len(things))
            yield thing

    def hook(bar: Callable, args: tuple, kwargs: dict):
        return items(args[0]) if args and isinstance(args[0], Sized) else bar(*args, **kwargs)

    before = logging.set_tqdm_hook(hook)
    try:
        yield
    finally:
        logging.set_tqdm_hook(before)
        _READING.release()


# -- logits -------------------------------------------------------------------------------------------------


def filters(top_k: int, top_p: float, min_p: float) -> list[Processor]:
    """The filters of sampling that are on (``engines.core.sampling.Sampling``), in the order of ``generate``."""
    found: list[Processor] = [TopKLogitsWarper(top_k)] if top_k else []
    found += [TopPLogitsWarper(top_p)] if top_p < 1 else []
    return [*found, MinPLogitsWarper(min_p)] if min_p else found


def penalties(repetition_penalty: float, no_repeat_ngram_size: int) -> list[Processor]:
    """The penalties on repetitions that are on (``engines.model.penalties.Penalties``)."""
    found: list[Processor] = [RepetitionPenaltyLogitsProcessor(repetition_penalty)] if repetition_penalty != 1 else []
    return [*found, NoRepeatNGramLogitsProcessor(no_repeat_ngram_size)] if no_repeat_ngram_size else found


# -- tokenizers of GGUF files -------------------------------------------------------------------------------
# transformers.integrations.gguf is undocumented; checked: llama.cpp gives the same ids (tests/sources/test_gguf.py).


@cache
def gguf_tokenizer_names() -> Mapping[str, str]:
    """transformers' names for the metadata of a GGUF file's tokenizer, by the file's."""
    from transformers.integrations.gguf import GGUF_TOKENIZER_MAPPING

    return GGUF_TOKENIZER_MAPPING["tokenizer"]


@cache
def gguf_splits() -> frozenset[str]:
    """Ways to cut text before merges, by llama.cpp's names, that transformers knows."""
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    return frozenset(GGUF_PRE_TOKENIZER_SPLITS)


def gguf_tokenizer(architecture: str, parts: Mapping[str, Any]) -> Any:
    """A ``tokenizers.Tokenizer`` of a file's metadata, by ``gguf_tokenizer_names``. Raises Exception: whatever the Rust
    library raises for one that is damaged."""
    from transformers.integrations.gguf import convert_gguf_tokenizer

    return convert_gguf_tokenizer(architecture, dict(parts))[0]
