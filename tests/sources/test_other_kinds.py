"""What people hand to such a program: split files are read, and all else is called what it is, with what helps."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from engines.errors import ModelUnavailable
from engines.folders import sample_model
from engines.hub import local_models
from engines.hub.model_source import locate
from engines.hub.other_kinds import pasted
from engines.model.loading import load_config, load_model
from tests.conftest import ONE
from tests.sources.gguf_files import Tiny
from tests.sources.llama_cpp import LlamaCpp

PARTS = 3


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEC_TUI_CACHE_DIR", str(tmp_path / "cache"))


def split(folder: Path, kind: str = "F32") -> list[Path]:
    """A model in one file (the last of the list), and in several as the gguf package cuts it."""
    folder.mkdir()
    whole = Tiny("llama", kind).write(folder.parent / f"{folder.name}-whole.gguf")
    reader = gguf.GGUFReader(whole)
    count = -(-len(reader.tensors) // PARTS)
    writer = gguf.GGUFWriter(folder / "m.gguf", "llama", split_max_tensors=count)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        sub = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
    return [*sorted(folder.glob("*.gguf")), whole]


def refused(name: object, load: bool = False) -> str:
    with pytest.raises(ModelUnavailable) as caught:
        source = locate(str(name))
        if load:
            load_config(source)
    assert caught.value.hint
    return f"{caught.value.message} | {caught.value.hint}"


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_all_files_of_a_model_are_one(kind, tmp_path):
    first, *_, whole = parts = split(tmp_path / "parts", kind)
    assert len(parts) == PARTS + 1
    one, several = (load_model(str(path), ONE) for path in (whole, first))
    assert one.fingerprint == several.fingerprint and one.parameters == several.parameters
    fed = [5, 80, 81, 90, 7], [-1, 0, 1, 2, 3]
    assert torch.equal(one.forward(*fed), several.forward(*fed))
    source = locate(str(first))
    assert sum(source.path(name).stat().st_size for name in source.choice.weights) == source.gguf.size
    assert LlamaCpp(first).tokens("the thin"), "llama.cpp reads them as one too"


def test_a_file_that_was_merged_from_several_is_read(tmp_path):
    """As ``llama-gguf-split --merge`` writes it: it says that it has no parts."""
    def merged(writer):
        writer.add_uint16("split.no", 0), writer.add_uint16("split.count", 0)

    file = Tiny("llama").write(tmp_path / "merged.gguf", merged)
    assert load_model(str(file), ONE).forward([5], [-1]).shape[0] == 1


def test_files_under_other_names_are_refused_as_llama_cpp_refuses_them(tmp_path):
    first, *_ = split(tmp_path / "parts")
    assert "NAME-00001-of-00003.gguf" in refused(first.rename(first.with_name("z.gguf")))


def test_what_lacks_is_named_and_a_later_file_names_the_first(tmp_path, monkeypatch):
    first, second, third, _ = split(tmp_path / "parts")
    assert f"file 3 of the 3 of a model | name the first of them, {first.name}" in refused(third)
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "parts"))
    assert [m["name"] for m in local_models.of_other_programs()] == [f"llama.cpp: {first.name}"]
    second.unlink()
    assert f"file 2 is not beside it: {second.name}" in refused(first)
    shutil.copy(third, second)
    assert "parts" not in refused(first)


def test_files_of_another_model_are_not_taken(tmp_path):
    first, second, _, _ = split(tmp_path / "parts")
    content = bytearray(second.read_bytes())
    at = content.index(b"split.tensors.count") + len(b"split.tensors.count") + 4
    content[at] ^= 1
    second.write_bytes(content)
    assert f"file 2 is not beside it: {second.name}" in refused(first)


def test_a_split_model_of_the_hub_is_fetched_whole(tmp_path, hub):
    parts = split(tmp_path / "parts")[:-1]
    hub.publish("someone/parts", {path.name: path.read_bytes() for path in parts} | {"README.md": b"-"})
    assert f"name the first, {parts[0].name}" in refused(f"someone/parts:{parts[1].name}")
    assert len(locate(f"someone/parts:{parts[0].name}").gguf.parts) == PARTS
    before = len(hub.asked)
    assert len(locate(f"someone/parts:{parts[0].name}").gguf.parts) == PARTS and len(hub.asked) == before
    hub.publish("someone/lacks", {path.name: path.read_bytes() for path in parts[:2]})
    assert f"lacks {parts[2].name}" in refused(f"someone/lacks:{parts[0].name}")


def other_gguf(path: Path, architecture: str, kind: str = "model", tensors: bool = True) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type(kind)
    if tensors:
        writer.add_tensor("a.weight", np.zeros((4, 32), np.float32))
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
    return path


@pytest.mark.parametrize("architecture, kind, words", [
    ("llama", "adapter", "adapter (LoRA)"), ("clip", "mmproj", "reads pictures"), ("clip", "model", "reads pictures"),
    ("llama", "imatrix", "importance matrix"), ("controlvector", "model", "control vector"),
    ("bert", "model", "embedding model"), ("whisper", "model", "speech"), ("eagle3", "model", "draft head"),
    ("mamba", "model", "its architecture is mamba"),
])  # fmt: skip
def test_other_gguf_files_are_called_what_they_are(architecture, kind, words, tmp_path):
    said = refused(other_gguf(tmp_path / "m.gguf", architecture, kind))
    assert words in said and "download" not in said.partition("|")[0]


def test_a_big_endian_file_is_called_one(tmp_path):
    path = Tiny("llama").write(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes()[:4] + b"\0\0\0\3" + path.read_bytes()[8:])
    assert "is a big-endian GGUF file | choose a little-endian one" in refused(path)


def test_a_tokenizer_without_merges_is_damaged(tmp_path):
    path = Tiny("llama").write(tmp_path / "m.gguf", lambda writer: writer.kv_data[0].pop("tokenizer.ggml.merges"))
    assert "its tokenizer is damaged: it has no merges" in refused(path)


def test_a_vocabulary_alone_is_one(tmp_path):
    assert "vocabulary without weights" in refused(other_gguf(tmp_path / "m.gguf", "llama", tensors=False))


@pytest.mark.parametrize("name, begin, words", [
    ("model.safetensors", b"\x10\0\0\0\0\0\0\0{}", "weights alone | give the folder"),
    ("no-ending", b"\x10\0\0\0\0\0\0\0{}", "weights alone | give the folder"),
    ("pytorch_model.bin", b"PK\x03\x04", "pickled | give the folder"),
    ("consolidated.00.pth", b"PK\x03\x04", "checkpoint of PyTorch"),
    ("old.pt", b"\x80\x02", "checkpoint of PyTorch"),
    ("model.onnx", b"\x08\x07", "ONNX"), ("m.tflite", b"....TFL3", "LiteRT"), ("m.task", b"x", "MediaPipe"),
    ("ggml-model-q4_0.bin", b"lmgg....", "GGML"), ("q4.bin", b"tjgg....", "GGJT"),
    ("m.zip", b"PK\x03\x04", "archive | unpack"), ("m.tar.gz", b"\x1f\x8b\x08", "archive | unpack"),
    ("m.7z", b"7z\xbc\xaf\x27\x1c", "7z archive"), ("m.zst", b"\x28\xb5\x2f\xfd", "zstd"),
    ("m.h5", b"\x89HDF\r\n", "Keras"), ("m.llamafile", b"MZqFpD", "llamafile"),
    ("config.json", b"{}", "settings file, not a model | give the folder"),
    ("tokenizer.model", b"\n\x0e", "tokenizer alone"), ("m.gguf.part", b"xx", "not finished"),
    ("page", b"<!doctype html><html>", "web page"),
    ("m.gguf", b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"), ("n.gguf", b"<html>", "web page"),
    ("lfs.safetensors", b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    ("latest", b'{"schemaVersion":2,"mediaType":"application/vnd.docker.distribution.manifest.v2+json","x":"ollama"}',
     "ollama"),
    ("notes.txt", b"hello", "a file, not a model"), ("empty", b"", "a file, not a model"),
])  # fmt: skip
def test_other_files_are_called_what_they_are(name, begin, words, tmp_path):
    (tmp_path / name).write_bytes(begin)
    assert words in refused(tmp_path / name)


def folder_of(path: Path, *files: str, **contents: dict) -> Path:
    path.mkdir()
    for name in files:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).touch()
    for name, content in contents.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return path


def test_other_folders_are_called_what_they_are(tmp_path):
    lora = folder_of(tmp_path / "lora", "adapter_model.safetensors",
                     adapter_config={"base_model_name_or_path": "owner/base"})
    assert 'an adapter (LoRA) of "owner/base"' in refused(lora) and "merge_and_unload" in refused(lora)
    (lora / "config.json").write_text("{}")
    assert "an adapter (LoRA), not a whole model" in refused(lora) and "merge_and_unload" in refused(lora)
    shards = folder_of(tmp_path / "shards", *(f"model-0000{n}-of-00002.safetensors" for n in (1, 2)), config={})
    assert "lacks model.safetensors.index.json" in refused(shards)
    pointer = folder_of(tmp_path / "pointer", "tokenizer.json", config={})
    (pointer / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    assert "model.safetensors of" in refused(pointer) and "git lfs pull" in refused(pointer)
    assert "pictures" in refused(folder_of(tmp_path / "pipeline", model_index={}))
    assert "Meta's own form" in refused(folder_of(tmp_path / "meta", "consolidated.00.pth", params={}))
    assert "Mistral's own form" in refused(folder_of(tmp_path / "mistral", "consolidated.safetensors", params={}))
    assert "ONNX" in refused(folder_of(tmp_path / "onnx", "model.onnx"))
    assert "MLC" in refused(folder_of(tmp_path / "mlc", "mlc-chat-config.json"))
    assert "snapshots/abc" in refused(folder_of(tmp_path / "models--a--b", "blobs/x", "snapshots/abc/config.json"))
    assert "ollama's store" in refused(folder_of(tmp_path / "ollama", "blobs/x", "manifests/y"))
    assert "checkpoint-1000" in refused(folder_of(tmp_path / "run", "checkpoint-500/a", "checkpoint-1000/a"))
    assert "one of its GGUF files: a.gguf" in refused(folder_of(tmp_path / "files", "a.gguf"))
    assert "without config.json" in refused(folder_of(tmp_path / "nothing", "a.txt"))


@pytest.mark.parametrize("config, words", [
    ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "gptq"),
    ({"quantization_config": {"quant_method": "awq"}}, "awq"),
    ({"quantization_config": {"quant_method": "fp8"}}, "fp8"),
    ({"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}, "bitsandbytes"),
    ({"quantization_config": {"load_in_8bit": False, "load_in_4bit": True}}, "bitsandbytes"),
    ({"quantization_config": {"quant_method": "compressed-tensors"}}, "compressed-tensors"),
    ({"quantization_config": {"quant_method": "mxfp4"}}, "mxfp4"),
    ({"quantization_config": {"quant_method": "own-way"}}, "own-way"),
    ({"quantization_config": {"quant_method": 7}}, "quantised in an unsupported format"),
    ({"quantization": {"group_size": 64, "bits": 4}}, "MLX"),
])  # fmt: skip
def test_weights_quantised_for_other_programs_are_called_so(config, words, tmp_path):
    folder = shutil.copytree(sample_model("target"), tmp_path / "model")
    found = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(found | config))
    said = refused(folder, load=True)
    assert words in said and "the model it was made from" in said and "optimum" not in said


def test_marks_of_older_quantised_folders(tmp_path):
    for file, words in (("quantize_config.json", "gptq"), ("quant_config.json", "awq")):
        folder = shutil.copytree(sample_model("target"), tmp_path / file)
        (folder / file).write_text("{}")
        assert words in refused(folder, load=True)


@pytest.mark.parametrize("typed, wanted", [
    ("https://huggingface.co/Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-0.5B"),
    ("https://huggingface.co/Qwen/Qwen2.5-0.5B/tree/main", "Qwen/Qwen2.5-0.5B"),
    ("http://hf.co/a/b?x=1", "a/b"), ("hf.co/a/b", "a/b"), ("hf:a/b", "a/b"), ("hf://a/b", "a/b"),
    ("https://huggingface.co/a/b/resolve/main/x/m-q4.gguf?download=true", "a/b:x/m-q4.gguf"),
    ("https://huggingface.co/a/b/blob/main/m.gguf", "a/b:m.gguf"), ("hf:a/b:m.gguf", "a/b:m.gguf"),
    ("a/b", "a/b"), ("a/b:m.gguf", "a/b:m.gguf"), ("/home/hf.co/a", "/home/hf.co/a"),
])  # fmt: skip
def test_a_pasted_link_is_the_hub_s_model(typed, wanted):
    assert pasted(typed) == wanted


def test_a_pasted_link_finds_the_model(tmp_path, hub):
    content = Tiny("llama").write(tmp_path / "m.gguf").read_bytes()
    hub.publish("someone/files", {"a.gguf": content})
    assert locate("https://huggingface.co/someone/files/blob/main/a.gguf").gguf is not None
    assert "someone/files:FILE: a.gguf" in refused("hf.co/someone/files")


def test_a_type_of_weights_in_place_of_a_file_says_which_files_there_are(hub):
    """As Ollama and llama.cpp name them."""
    hub.publish("someone/files", {f"m-{kind}.gguf": b"-" for kind in ("IQ4_XS", "Q4_K_M", "Q8_0")})
    said = refused("hf.co/someone/files:q4_k_m")
    assert "someone/files:q4_k_m names no file" in said
    assert "someone/files:FILE; it has m-Q4_K_M.gguf, m-IQ4_XS.gguf, m-Q8_0.gguf" in said


@pytest.mark.parametrize("name, words", [
    ("ollama:llama3", "ollama"), ("https://example.org/m.gguf", "a link, which is not followed"),
    ("s3://bucket/model", "s3"), ("file:///x/m.gguf", "without file://"), ("modelscope:a/b", "modelscope"),
])  # fmt: skip
def test_names_of_other_places_are_called_so(name, words):
    assert words in refused(name)
