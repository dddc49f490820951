"""Files and listings that somebody made up, or that are damaged: described or refused in a sentence, and soon."""

from __future__ import annotations

import json
import os
import time
from urllib.request import urlopen

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines import load
from engines.errors import ModelUnavailable, SpecError
from engines.hub import hub_api
from engines.hub.local_models import look_at
from engines.hub.model_source import locate
from engines.model.description import describe
from engines.model.loading import load_config, load_tokenizer
from engines.request import Request
from tests.hub import save
from tests.sources.test_download import NAME, WEIGHTS, fetch, here, refused

DEEP = "[" * 200_000
VALUES = (
    None, True, 0, -3, 7, 3_000_000, 10**12, 10**400, 1.5, "x", "", [], [[]], [None], [5], {}, {"a": 1}, [{"a": [1]}],
    ["full_attention"], {"quant_method": []}, "\x1b[2J", "\ud800",
)


def safetensors(header: str) -> bytes:
    return len(header).to_bytes(8, "little") + header.encode()


@pytest.fixture
def folder(tmp_path):
    return save(tmp_path / "model")


def said(folder) -> str:
    """What is said of a folder: why it will be refused, by ``model info`` or by the refusal itself."""
    begun, looked = time.monotonic(), look_at(folder)
    json.dumps(looked)
    try:
        found = describe(str(folder))
    except SpecError as error:
        return error.message
    finally:
        assert time.monotonic() - begun < 10
    from spec_tui.cli.model import _print

    _print(found)
    json.dumps(found.to_dict())
    return found.problem or ""


@pytest.mark.parametrize(
    "content, words",
    [
        ("[]", "not a JSON object"), (DEEP, "nested too deep"), ('{"a":' * 100_000, "nested too deep"),
        ("{'", "not JSON"), ("\xff\xfe", "not JSON"), ("", "not JSON"),
    ],
    ids=["list", "deep", "deep objects", "cut off", "bytes", "empty"],
)
@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "tokenizer_config.json", WEIGHTS])
def test_what_is_no_json_object_is_said_to_be_damaged(folder, file, content, words):
    data = safetensors(content) if file == WEIGHTS else content.encode("latin-1")
    (folder / file).write_bytes(data)
    message = said(folder)
    if file == WEIGHTS:
        assert f"{file} is damaged" in message and f"{file} is damaged" in look_at(folder)["problem"]
    elif file == "config.json" and content:
        assert f"{file} is damaged: it is {words}" in message
        assert f"{file} is damaged: it is {words}" in look_at(folder)["problem"]
    elif file == "tokenizer.json" and content:
        [sample, *_] = describe(str(folder)).draft_models
        assert sample.fits is False and f"{file} is damaged" in sample.why


@pytest.mark.parametrize(
    "tensor",
    [
        {}, 5, [], {"dtype": "F32", "shape": [1]}, {"dtype": "F32", "shape": "x", "data_offsets": [0, 0]},
        {"dtype": "F32", "shape": [1], "data_offsets": []}, {"dtype": 5, "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, 0]}, {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]},
        {"dtype": "F32", "shape": [10**12, 10**12], "data_offsets": [0, 0]},
        {"dtype": "F32", "shape": [0], "data_offsets": [0, 10**400]},
    ],
)
def test_headers_of_weights_that_say_nonsense(folder, tensor):
    data = safetensors(json.dumps({"__metadata__": {"format": "pt"}, "a": tensor}))
    (folder / WEIGHTS).write_bytes(data)
    words = f"{WEIGHTS} is damaged"
    assert words in said(folder) and words in look_at(folder)["problem"]


@pytest.mark.parametrize("count", [9_999 + 2, 3_000_000, 10**12, 10**300])
@pytest.mark.parametrize("key", ["num_hidden_layers", "num_labels", "num_attention_heads"])
def test_more_layers_than_any_model_has(folder, key, count):
    for kind in ("llama", "qwen2"):
        changed = json.loads((folder / "config.json").read_text()) | {key: count, "model_type": kind}
        (folder / "config.json").write_text(json.dumps(changed))
        assert f"no model has as many {key}" in said(folder)
    with pytest.raises(ModelUnavailable, match=key):
        load_config(locate(str(folder)))


MOODS = {
    "redirects in circles": ({"circles": {WEIGHTS}}, "connection to the hub was lost"),
    "redirects out of the web": ({"strays": {WEIGHTS}}, "connection to the hub was lost"),
    "less than listed": ({"lies": {WEIGHTS: 1000}}, "connection to the hub was lost"),
    "more than listed": ({"lies": {WEIGHTS: -1000}}, "arrived damaged"),
    "another content": ({"damages": {WEIGHTS}}, "arrived damaged"),
    "content without end": ({"endless": {WEIGHTS}, "damages": {WEIGHTS}}, "arrived damaged"),
    "a listing without end": ({"endless": {""}}, "the hub's answer about someone/tiny does not end"),
    "a configuration that is another": ({"damages": {"config.json"}}, "config.json arrived damaged"),
}


@pytest.mark.parametrize("mood", MOODS)
def test_a_hostile_hub_is_refused_in_a_sentence_and_forgotten_once_it_is_mended(hub, crowded, mood, monkeypatch):
    monkeypatch.setattr("engines.hub.hub_api._LISTING", 1 << 20)
    hub.publish(NAME, crowded)
    settings, words = MOODS[mood]
    before = {name: getattr(hub, name) for name in settings}
    for name, value in settings.items():
        setattr(hub, name, value)
    begun = time.monotonic()
    assert words in refused()
    assert time.monotonic() - begun < 20
    for name, value in before.items():
        setattr(hub, name, value)
    assert here(fetch())[WEIGHTS] == crowded[WEIGHTS]


@pytest.mark.parametrize("answer", [b"[]", b"{nope", b'{"id": 5}', b'{"id": "x", "siblings": [5]}', b"\xff"])
def test_answers_about_a_model_that_make_no_sense(hub, crowded, answer):
    hub.publish(NAME, crowded)
    hub.nonsense = answer
    assert refused()


def test_an_error_that_is_explained_without_end_is_not_read_to_its_end(hub, crowded):
    hub.publish(NAME, crowded)
    hub.endless, hub.broken = {""}, 500
    begun = time.monotonic()
    assert "error 500" in refused()
    assert time.monotonic() - begun < 20


def test_packed_answers_are_not_unpacked(hub, crowded):
    hub.publish(NAME, crowded)
    hub.packed = True
    assert "compressed data" in refused()


@pytest.mark.parametrize(("fields", "words"), [
    ({"siblings": 5}, "has no list of files"), ({"siblings": {"a": 1}}, "has no list of files"),
    ({"siblings": [5, None, {"rfilename": 5, "size": "x"}, {"rfilename": "a", "lfs": 7}]}, "has no config.json"),
    ({"sha": 7}, "names no commit"), ({"sha": ["b" * 40]}, "names no commit"),
])
def test_an_answer_with_fields_of_other_types_is_refused_in_words(hub, crowded, fields, words):
    hub.publish(NAME, crowded)
    hub.nonsense = json.dumps({"id": NAME, "sha": "b" * 40, "siblings": []} | fields).encode()
    found = refused()
    assert words in found and "what was fetched" not in found and "Error" not in found


def test_what_a_card_has_in_other_types_is_as_if_not_said(hub, crowded):
    commit = hub.publish(NAME, crowded)
    listed = json.loads(about(hub, NAME))
    for card, counted in ([1], "x"), ({"license": {"a": 1}, "license_name": 5}, {"parameters": [5]}), ("mit", 3):
        hub.nonsense = json.dumps(listed | {"cardData": card, "safetensors": counted, "gated": []}).encode()
        found = hub_api.ask(NAME, None)
        assert (found.commit, found.licence, found.parameters, found.gated) == (commit, None, {}, False)
        assert WEIGHTS in found.files


def about(hub, name) -> bytes:
    """What the hub answers about a model."""
    with urlopen(f"{hub.url}/api/models/{name}") as answer:
        return answer.read()


def test_a_dataset_whose_commit_is_no_commit_is_refused(hub, crowded):
    with pytest.raises(ModelUnavailable, match="names no commit"):
        hub_api.commit_of_dataset(NAME)  # this hub answers with an empty object
    hub.broken = 404
    with pytest.raises(ModelUnavailable):
        hub_api.commit_of_dataset(NAME)


def changed(folder, file, **values):
    """Write other values into a JSON file of the model."""
    place = folder / file
    place.write_text(json.dumps((json.loads(place.read_text()) if place.exists() else {}) | values))


@pytest.mark.parametrize(
    "content, words",
    [
        ("{nope", "is not JSON"), ("[1]", "not a JSON object"), ('{"eos_token_id": [[1]]}', "is not a token id"),
        ('{"eos_token_id": "x"}', "is not a token id"), ('{"eos_token_id": -1}', "is not a token id"),
    ],
)
def test_a_damaged_generation_config_is_said_and_left_aside(folder, content, words):
    (folder / "generation_config.json").write_text(content)
    [remark] = [r for r in describe(str(folder)).remarks if "generation_config.json" in r]
    runtime = load(str(folder), threads=1)
    assert words in remark and remark in runtime.ready.warnings
    assert runtime.end_tokens == {runtime.target.model.config.eos_token_id}
    assert list(runtime.run(Request(conversation=(("user", "a"),), max_new_tokens=2)))


def test_an_end_token_beyond_the_vocabulary_is_said(folder):
    changed(folder, "generation_config.json", eos_token_id=[3, 10**9])
    ready = load(str(folder), threads=1).ready
    assert any("end token 1000000000 is beyond its vocabulary" in warning for warning in ready.warnings)


def test_weights_that_are_not_used_are_said(folder):
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / WEIGHTS)
    save_file(weights | {"model.more.weight": torch.zeros(3)}, folder / WEIGHTS, {"format": "pt"})
    warnings = load(str(folder), threads=1).ready.warnings
    assert any("not used: 1, the first is model.more.weight" in w for w in warnings)


def bomb(folder, **changes):
    place = folder / "tokenizer.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | changes))


def grown(times, **pattern):
    return {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": pattern, "content": "ee"}] * times}


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"added_tokens": [{"id": 2**31, "content": "x"}]}, "ids that no vocabulary has"),
        ({"normalizer": grown(26, String="e")}, "its normalizer makes a text a thousand times as long"),
        ({"decoder": grown(26, Regex="")}, "its decoder makes a text a thousand times as long"),
    ],
    ids=["ids", "normalizer", "decoder"],
)
def test_tokenizers_that_would_fill_the_memory_are_refused_before_they_are_built(folder, changes, words):
    bomb(folder, **changes)
    with pytest.raises(ModelUnavailable, match=words):
        load_tokenizer(locate(str(folder)))


def test_replacements_of_well_known_tokenizers_are_no_bombs(folder):
    kept = [{"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]
    bomb(folder, normalizer={"type": "Sequence", "normalizers": kept})
    load_tokenizer(locate(str(folder)))


def test_a_length_that_is_no_number_is_the_tokenizers_fault(folder):
    changed(folder, "tokenizer_config.json", model_max_length="x")
    with pytest.raises(ModelUnavailable, match=r"tokenizer_config.json is damaged: its model_max_length"):
        load_tokenizer(locate(str(folder)))


@pytest.mark.parametrize("file", ["tokenizer.json", "generation_config.json", WEIGHTS])
def test_pipes_are_not_opened(folder, file):
    (folder / file).unlink(missing_ok=True)
    os.mkfifo(folder / file)
    begun = time.monotonic()
    with pytest.raises(ModelUnavailable, match=f"{file} is a pipe or a device"):
        locate(str(folder))
    look_at(folder)
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("name", ["~nouser-at-all/x", "a" * 5000, "/" + "a" * 5000])
def test_names_that_can_be_no_model(name):
    with pytest.raises(ModelUnavailable, match="there is no model") as refusal:
        locate(name)
    assert len(refusal.value.message) < 200


def test_the_reason_of_a_validation_error_is_not_cut_off(folder):
    changed(folder, "config.json", eos_token_id=[[1]])
    with pytest.raises(ModelUnavailable, match=r"eos_token_id.*\[\[1\]\]"):
        load_config(locate(str(folder)))


KEYS = (
    "architectures", "model_type", "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
    "head_dim", "vocab_size", "max_position_embeddings", "rope_parameters", "layer_types", "quantization_config",
    "auto_map", "sliding_window", "is_encoder_decoder", "text_config", "num_labels", "id2label", "dtype",
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), min_size=1, max_size=2))
def test_any_nonsense_in_a_configuration_is_described_or_refused(folder, saved, changes):
    config = json.loads((saved / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    said(folder)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=st.sampled_from(VALUES), key=st.sampled_from(("model", "added_tokens", "vocab", "content", "decoder")))
def test_any_nonsense_in_a_tokenizer_is_no_reason_to_fail(folder, saved, key, value):
    changed = json.loads((saved / "tokenizer.json").read_text())
    settings = json.loads((saved / "tokenizer_config.json").read_text())
    if key == "vocab":
        changed["model"]["vocab"] = value
    elif key == "content":
        changed["model"]["vocab"] = {"a": value}
    elif key == "decoder":
        settings["added_tokens_decoder"] = value
    else:
        changed[key] = value
    (folder / "tokenizer.json").write_text(json.dumps(changed))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    said(folder)


NAMES = [
    "../x.model", "/etc/x.model", "a/../../x.model", "..\\x.model", "c:x.model", "c:\\x.model", "..", ".", "",
    "additional_chat_templates/..", "additional_chat_templates/", "additional_chat_templates//x", "\x1b[31mred.model",
    "vocab.\n.txt", "vocab.\x00txt", "vocab.\u202etxt", "vocab.\ud800", "x" * 300 + ".model", "ü" * 120 + ".model",
]


@pytest.mark.parametrize("name", NAMES)
def test_files_under_unusable_names_are_as_if_not_there(hub, crowded, tmp_path, name):
    hub.publish(NAME, crowded)
    wanted = here(fetch())
    hub.publish(NAME, crowded | {name: b"evil"}, "v1")
    assert here(fetch(revision="v1")) == wanted and name not in hub.fetched()
    assert {p.name for p in tmp_path.iterdir()} == {"cache"}


def test_an_unusable_name_is_told_where_the_file_is_needed(hub, crowded):
    shard = "model-00001-of-00001\n.safetensors"
    files = {name: data for name, data in crowded.items() if name != WEIGHTS}
    for index in ({"weight_map": {"a": shard}}, {"weight_map": {"a": "../../x.safetensors"}}):
        files["model.safetensors.index.json"] = json.dumps(index).encode()
        hub.publish(NAME, files | {shard: crowded[WEIGHTS], "model-1.safetensors": crowded[WEIGHTS]})
        assert "lacks " in refused() and "lists no such weights" in refused()
    for index in ({}, [], {"weight_map": 5}, {"weight_map": {"a": 5}}, {"weight_map": {"a": []}}):
        files["model.safetensors.index.json"] = json.dumps(index).encode()
        hub.publish(NAME, files | {"model-1.safetensors": crowded[WEIGHTS]})
        assert "model.safetensors.index.json is damaged" in refused()


def test_counts_that_cannot_be_are_not_believed(hub, crowded):
    hub.publish(NAME, crowded, counted={"F32": 10**400, "BF16": -5})
    assert describe(NAME).stored == {} and describe(NAME).parameters is None
