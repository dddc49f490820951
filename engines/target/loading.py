"""Finding and loading models: folders and hub ids, safetensors only, no remote code, every failure a sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from engines.errors import ModelUnavailable, UsageProblem, first_line
from engines.target.model import CausalModel
from engines.target.selftest import selftest
from engines.target.tuning import tune

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_DEVICES = ("cpu", "cuda", "mps", "xpu")
_HUB_SECONDS = 5.0
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


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder or hub id. Raises ModelUnavailable."""
    _find(name)
    return _guarded(name, "tokenizer", lambda: AutoTokenizer.from_pretrained(name, trust_remote_code=False))


def load_model(name: str, dtype: torch.dtype, device: torch.device, threads: int | None = None) -> CausalModel:
    """A causal language model, tuned (see ``tuning.tune`` for ``threads``), tested and ready to decode with.

    Raises:
        ModelUnavailable: missing, unreadable, not a decoder-only language model, not in safetensors, or one that
            cannot verify several tokens at once; the message says which and what to do.
    """
    _find(name)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    config = _guarded(name, "configuration", lambda: AutoConfig.from_pretrained(name, trust_remote_code=False))
    if config.is_encoder_decoder or type(config) not in AutoModelForCausalLM._model_mapping:
        raise ModelUnavailable(
            f"{name} is not a causal language model (its type is {config.model_type})",
            "choose a decoder-only model such as a Llama, Qwen or Mistral",
        )
    model, report = _guarded(
        name, "weights",
        lambda: AutoModelForCausalLM.from_pretrained(
            name, dtype=dtype, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        ),
    )
    lacking = sorted([*report["missing_keys"], *(str(key[0]) for key in report["mismatched_keys"])])
    if lacking:  # transformers would draw them at random
        raise ModelUnavailable(
            f"{name} lacks {len(lacking)} of its weights, the first is {lacking[0]}",
            "it is not a language model, or its download is incomplete",
        )
    return wrap(_guarded(name, "weights", lambda: model.to(device)), name, threads)


def wrap(model: PreTrainedModel, name: str, threads: int | None = None) -> CausalModel:
    """A transformers model already in memory as a tuned and tested ``CausalModel``. Raises ModelUnavailable."""
    model = model.eval()
    try:
        parameters = model.num_parameters()
        backend = tune(model, threads) if model.device.type == "cpu" else "generic"
        causal = CausalModel(model, name, parameters, backend)
        reason = selftest(causal)
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, KeyError) as error:
        reason = f"a trial forward failed ({type(error).__name__})"
    if reason:
        raise ModelUnavailable(f"{name} cannot be decoded with here: {reason}", "choose another model")
    return causal


def _find(name: str) -> None:
    """Tell a missing folder from a hub id, and an unreachable hub from a slow one, before transformers is asked.

    Raises:
        ModelUnavailable: no such folder, or a hub id that is not cached while the hub does not answer.
    """
    if not name.strip():
        raise ModelUnavailable("the name of the model is empty", "give a folder, or a hub id such as owner/name")
    path = Path(name).expanduser()
    looks_local = path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1 or "\\" in name
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelUnavailable(f"{name} is a folder without config.json", "give a folder saved by transformers")
    elif path.exists():
        raise ModelUnavailable(f"{name} is a file, not a model folder", "give the folder that holds config.json")
    elif looks_local:
        raise ModelUnavailable(f"there is no model folder {name}", "check it, or give a hub id such as owner/name")
    elif not _cached(name) and not _hub_answers():
        raise _unreachable(name)


def _cached(name: str) -> bool:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        return isinstance(try_to_load_from_cache(name, "config.json"), str)
    except HFValidationError:
        return True  # no hub id at all: transformers' own error says so without asking the hub


def _hub_answers() -> bool:
    """One short question: the hub's client would try for minutes before it says that nobody answers."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return True  # the client answers at once, and says that it is offline
    try:
        get_session().head(constants.ENDPOINT, timeout=_HUB_SECONDS)
    except Exception:
        return False
    return True


def _unreachable(name: str) -> ModelUnavailable:
    return ModelUnavailable(f"{name} is not in the local cache and the hub could not be reached", _OFFLINE)


def _guarded(name: str, what: str, call: Callable):
    """Run a transformers loader; its many failures become one sentence each."""
    from huggingface_hub.errors import GatedRepoError, OfflineModeIsEnabled, RepositoryNotFoundError

    try:
        return call()
    except GatedRepoError:
        raise ModelUnavailable(f"{name} is gated", "accept its licence on the hub and log in: hf auth login") from None
    except RepositoryNotFoundError:
        raise ModelUnavailable(f"the hub has no model {name}", "check the id, or log in if it is private") from None
    except OfflineModeIsEnabled:
        raise ModelUnavailable(f"{name} is not in the local cache, and HF_HUB_OFFLINE is set", _OFFLINE) from None
    except Exception as error:  # transformers, the hub and safetensors raise some twenty kinds
        raise _translated(name, what, error) from None


_OFFLINE = "connect once to download it, or give a local folder with --model"


def _translated(name: str, what: str, error: Exception) -> ModelUnavailable:
    text = f"{type(error).__name__}: {error} {error.__cause__ or ''}".lower()
    local = Path(name).expanduser().is_dir()
    if "repo id must" in text or "repo_name" in text:
        return ModelUnavailable(f"{name!r} is neither a folder nor a hub id", "hub ids look like owner/name")
    if not local and any(w in text for w in ("connect", "resolve", "offline", "timeout", "timed out", "unreachable")):
        return _unreachable(name)
    if "out of memory" in text or "can't allocate" in text:
        return ModelUnavailable(f"{name} does not fit into memory", "choose a smaller model or --dtype bfloat16")
    if "safetensors" in text:
        return ModelUnavailable(
            f"{name} has no readable safetensors weights", "convert it with transformers' save_pretrained"
        )
    if "remote code" in text or "trust_remote_code" in text:
        return ModelUnavailable(f"{name} needs code of its own to run, which is not trusted", "choose another model")
    if not local and "is not a local folder and is not a valid model identifier" in text:
        return ModelUnavailable(f"neither a folder nor a model of the hub is named {name}", "check the name")
    return ModelUnavailable(
        f"the {what} of {name} cannot be read: {first_line(error)}", "check that the download is complete"
    )


