"""Real things that people hand to such a program and that aren't read here: what each is, and what helps."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from engines.errors import ModelUnavailable
from engines.folders import open_file
from engines.hub.untrusted_json import object_in, read_object

_WHOLE = "give the folder that it is in, with config.json and the tokenizer"
_CONVERT = "give the model it was made from: a folder with safetensors, or a GGUF file"
_QUANTISED = ("give the model it was made from (--quantize int8 or int4 quantises that here), or a GGUF file of it")
_UNZIP = "unpack it, and give the folder"
_POINTER = b"version https://git-lfs"
_HUB = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/|hf://|hf:", re.IGNORECASE)


class Kind(NamedTuple):
    """``what`` it is, in words that follow "is"; ``help``: what to do instead."""

    what: str
    help: str


ADAPTER = Kind("an adapter (LoRA), not a whole model",
               "merge it into its base model (peft's merge_and_unload, then save_pretrained), and give that folder")
UNKNOWN = Kind("a file, not a model", "give a GGUF file, or the folder that holds config.json")
_MAGIC = (  # first bytes of a file
    (b"lmgg", Kind("a GGML file, the format before GGUF", "give a GGUF file of the model")),
    (b"tjgg", Kind("a GGJT file, the format before GGUF", "give a GGUF file of the model")),
    (b"fmgg", Kind("a GGMF file, the format before GGUF", "give a GGUF file of the model")),
    (b"algg", Kind("an adapter (LoRA) in the format before GGUF", "merge it into its base model, and give that")),
    (b"\x1f\x8b", Kind("a compressed archive", _UNZIP)),
    (b"7z\xbc\xaf\x27\x1c", Kind("a 7z archive", _UNZIP)),
    (b"\x28\xb5\x2f\xfd", Kind("a compressed file (zstd)", "decompress it")),
    (b"BZh", Kind("a compressed archive", _UNZIP)),
    (b"\xfd7zXZ", Kind("a compressed archive", _UNZIP)),
    (b"\x89HDF", Kind("a Keras file (HDF5)", _CONVERT)),
    (_POINTER, Kind("a pointer of git-lfs, not the file itself", "fetch the file: git lfs pull")),
    (b"<!DOCTYPE html", Kind("a web page, not a model", "download the file itself: its page has a link for that")),
    (b"<html", Kind("a web page, not a model", "download the file itself: its page has a link for that")),
    (b"\x80", Kind("a pickle of weights", _WHOLE)),
)
_ENDINGS = {
    ".safetensors": Kind("a file of weights alone", _WHOLE),
    ".bin": Kind("a file of weights alone, pickled", f"{_WHOLE}; --allow-pickle reads such weights"),
    **dict.fromkeys((".pth", ".pt", ".ckpt"), Kind(
        "a checkpoint of PyTorch", "convert it with its own script, then give the folder that it writes")),
    ".onnx": Kind("a model in ONNX", _CONVERT),
    **dict.fromkeys((".tflite", ".litertlm"), Kind("a model of LiteRT", _CONVERT)),
    ".task": Kind("a model of MediaPipe", _CONVERT),
    ".mlmodel": Kind("a model of Core ML", _CONVERT),
    ".engine": Kind("an engine of TensorRT", _CONVERT),
    ".pte": Kind("a program of ExecuTorch", _CONVERT),
    ".llamafile": Kind("a llamafile, a program with a model inside", "give the GGUF file that is in it (unzip it)"),
    ".nemo": Kind("a model of NeMo", _CONVERT),
    **dict.fromkeys((".zip", ".tar"), Kind("an archive", _UNZIP)),
    ".json": Kind("a settings file, not a model", "give the folder that it is in"),
    ".model": Kind("a tokenizer alone", "give the folder that it is in"),
    ".jinja": Kind("a chat template, not a model", "give the folder that it is in"),
    **dict.fromkeys((".part", ".incomplete", ".crdownload"), Kind(
        "a download that was not finished", "let it finish, or start it again")),
}


def file_kind(path: Path) -> Kind:
    """What a file is that is no GGUF file, by its first bytes, else its name. Raises OSError."""
    if not os.path.isfile(path):
        return Kind("a pipe or a device, not a model", UNKNOWN.help)
    with open_file(path) as stream:
        begin = stream.read(512)
    if path.suffix.lower() == ".llamafile":
        return _ENDINGS[".llamafile"]
    if begin[:4] == b"PK\x03\x04":  # torch's own files are archives too
        return _ENDINGS.get(path.suffix.lower()) or Kind("an archive, or a pickle of weights", f"{_UNZIP}, or {_WHOLE}")
    if b'"mediaType"' in begin and b"ollama" in begin:
        return Kind("a list of ollama's, not a model", "give the largest of the files it names, in ollama's blobs")
    ending = _ENDINGS.get(path.suffix.lower())
    magic = next((kind for magic, kind in _MAGIC if begin[: len(magic)].lower() == magic.lower()), None)
    if magic is not None and not (ending and begin[:1] == b"\x80"):
        return magic
    if ending is None and begin[8:9] == b"{" and int.from_bytes(begin[:8], "little") < 1 << 32:
        return _ENDINGS[".safetensors"]
    return ending or UNKNOWN


def folder_kind(folder: Path) -> Kind | None:
    """What a folder without config.json is; None where nothing tells. Raises OSError."""
    names = {path.name for path in folder.iterdir()}
    if "adapter_config.json" in names:
        return _adapter(folder)
    if "model_index.json" in names:
        return Kind("a pipeline that makes pictures", "give a language model")
    if {"params.json", "consolidated.00.pth"} <= names:
        return Kind("Meta's own format of a Llama", "give the same model in transformers' format or as a GGUF file")
    if "params.json" in names and any(name.startswith("consolidated") for name in names):
        return Kind("Mistral's own format", "give the same model in transformers' format or as a GGUF file")
    if "mlc-chat-config.json" in names:
        return Kind("a model of MLC", _CONVERT)
    if {"blobs", "snapshots"} <= names:
        found = next((path.name for path in sorted((folder / "snapshots").iterdir())), "REVISION")
        return Kind("the hub's store of a model", f"give its folder snapshots/{found}, or the hub id")
    if {"blobs", "manifests"} <= names:
        return Kind("ollama's store of models", "give one of the GGUF files in blobs: spec-tui model list names them")
    if any(name.endswith((".onnx", ".onnx_data")) for name in names):
        return Kind("a model in ONNX", _CONVERT)
    if names and any(re.fullmatch(r"checkpoint-\d+", name) for name in names):
        last = max((n for n in names if re.fullmatch(r"checkpoint-\d+", n)), key=lambda n: int(n.split("-")[1]))
        return Kind("a training's folder", f"give one of its checkpoints, such as {last}")
    return None


def _adapter(folder: Path) -> Kind:
    try:
        base = read_object(folder / "adapter_config.json").get("base_model_name_or_path")
    except (OSError, ValueError):
        base = None
    of = f" of {json.dumps(base[:80])}" if isinstance(base, str) and base else ""
    return ADAPTER._replace(what=ADAPTER.what.replace(",", f"{of},"))


def check_pointers(name: str, folder: Path, files: Iterable[str]) -> None:
    """Raises ModelUnavailable where a file of a model's folder is a pointer of git-lfs; OSError."""
    for file in files:
        with open_file(folder / file) as stream:
            if stream.read(len(_POINTER)) == _POINTER:
                raise ModelUnavailable(f"{file} of {name} is a pointer of git-lfs, not the file itself",
                                       "fetch the file: git lfs pull")


def check_weights(name: str, config: dict[str, Any], folder: Path) -> None:
    """Raises ModelUnavailable where a folder's weights are in a form that isn't read here: quantised for other
    programs, or MLX's."""
    found = object_in(config, "quantization_config") or object_in(config, "compression_config")
    method = found.get("quant_method", "bitsandbytes" if "load_in_4bit" in found else "")
    words = method[:40] if isinstance(method, str) else ""
    if not found:
        marks = {"quantize_config.json": "gptq", "quant_config.json": "awq"}
        words = next((words for file, words in marks.items() if os.path.exists(folder / file)), "")
        words = "for MLX" if object_in(config, "quantization") else words
    if found or words:
        how = f" ({words})" if words else ""
        raise ModelUnavailable(f"the weights of {name} are quantised{how} in an unsupported format", _QUANTISED)


def pasted(name: str) -> str:
    """A hub id, or a file of the hub, from a link to it or a name as other programs have it; anything else as it is.

    ``https://huggingface.co/a/b``, ``hf:a/b``, ``hf.co/a/b`` and the like name model a/b; a link to a file of it, and
    ``hf.co/a/b:FILE``, name ``a/b:FILE``.
    """
    found = _HUB.match(name.strip())
    if found is None:
        return name
    path, _, tag = name.strip()[found.end() :].partition("?")[0].partition("#")[0].strip("/").partition(":")
    parts = path.split("/")
    if len(parts) >= 5 and parts[2] in ("blob", "resolve", "raw") and path.lower().endswith(".gguf"):
        return f"{parts[0]}/{parts[1]}:{'/'.join(parts[4:])}"
    return "/".join(parts[:2]) + (f":{tag}" if tag else "")


def check_name(name: str) -> None:
    """Raises ModelUnavailable for a name that is of another place than folders and the hub."""
    if re.match(r"(ollama|docker|oci|ms|modelscope|s3|gs|az|file|ftp|magnet):", name, re.IGNORECASE):
        place = name.partition(":")[0]
        hint = "give a path, without file://" if place.lower() == "file" else "download it, and give the file or folder"
        raise ModelUnavailable(f"{name[:80]} is a name on {place}, which is not supported", hint)
    if re.match(r"https?://", name, re.IGNORECASE):
        raise ModelUnavailable(f"{name[:80]} is a link, which is not followed here",
                               "download it and give the file; or give a hub id such as owner/name")
