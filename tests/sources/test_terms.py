"""What is read and run of a model only when the user insists: pickled weights and code of its own; sharded weights."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from engines import Request, load
from engines.errors import ModelUnavailable, UsageProblem
from engines.report.events import Finished
from tests.conftest import make_llama
from tests.hub import save

NAME = "someone/tiny"
OWN = '''
import pathlib
from transformers import LlamaConfig, LlamaForCausalLM

pathlib.Path({proof!r}).touch()

class OwnConfig(LlamaConfig):
    model_type = "own"

class OwnModel(LlamaForCausalLM):
    config_class = OwnConfig
'''


class Trap:
    """An object whose unpickling leaves a file."""

    def __init__(self, place) -> None:
        self.place = place

    def __reduce__(self):
        return open, (str(self.place), "w")


def refused(*args, kind=ModelUnavailable, **kw) -> str:
    with pytest.raises(kind) as caught:
        load(*args, **kw)
    return f"{caught.value.message} | {caught.value.hint}"


def answer(runtime) -> Finished:
    return list(runtime.run(Request((("user", "abc"),), engine="autoregressive", max_new_tokens=12)))[-1]


@pytest.fixture
def pickled(crowded, saved, tmp_path) -> dict[str, bytes]:
    """The same model with its weights in a .bin file only."""
    torch.save(load_file(saved / "model.safetensors"), tmp_path / "weights")
    files = {name: data for name, data in crowded.items() if not name.endswith("safetensors")}
    return files | {"pytorch_model.bin": (tmp_path / "weights").read_bytes()}


@pytest.fixture
def own(crowded, tmp_path, monkeypatch):
    """A model that brings its own classes; the second value appears when their code is run."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("transformers.utils.hub.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    proof = tmp_path / "it-ran"
    config = json.loads(crowded["config.json"]) | {
        "model_type": "own", "architectures": ["OwnModel"],
        "auto_map": {"AutoConfig": "modeling_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnModel"},
    }
    files = {"config.json": json.dumps(config).encode(), "modeling_own.py": OWN.format(proof=str(proof)).encode()}
    return crowded | files, proof


def test_a_hub_id_decodes_as_its_folder_does(hub, crowded, saved):
    hub.publish(NAME, crowded)
    runtime = load(NAME)
    assert runtime.ready.model == NAME and runtime.draft is None
    assert answer(runtime) == answer(load(str(saved)))


def test_target_and_draft_model_with_their_revisions(hub, crowded, tmp_path):
    hub.publish(NAME, {"config.json": b"{}", "model.safetensors": b""})
    hub.publish(NAME, crowded, "good")
    draft = save(tmp_path / "draft", seed=2, layers=1)
    hub.publish("someone/draft", {"config.json": b"{}", "model.safetensors": b""})
    hub.publish("someone/draft", draft, "better")
    runtime = load(NAME, "someone/draft", revision="good", draft_revision="better")
    assert runtime.ready.draft_model == "someone/draft"
    assert runtime.ready.draft_parameters < runtime.ready.parameters
    assert "--draft-revision" in refused(NAME, str(draft), revision="good", draft_revision="x", kind=UsageProblem)
    assert "--draft-model" in refused(NAME, revision="good", draft_revision="x", kind=UsageProblem)


def test_a_draft_that_does_not_fit_is_refused_before_its_weights_are_fetched(hub, crowded, saved):
    tokenizer = json.loads(crowded["tokenizer.json"])
    vocabulary = tokenizer["model"]["vocab"]
    tokenizer["model"] |= {"vocab": {f"z{token}z": number for token, number in vocabulary.items()}, "merges": []}
    tokenizer["added_tokens"] = []
    plain = json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}).encode()
    hub.publish("someone/other", crowded | {
        "tokenizer.json": json.dumps(tokenizer).encode(), "tokenizer_config.json": plain,
        "special_tokens_map.json": b"{}",
    })
    said = refused(str(saved), "someone/other", kind=UsageProblem)
    assert "vocabulary of draft model someone/other" in said and "shares no token" in said
    assert "model.safetensors" not in hub.fetched()
    assert load(str(saved)).ready.warnings == (  # one line, of a draft model that nobody named
        f"no draft model here fits {saved}: give --draft-model to use the draft engine",)


def test_what_is_no_language_model_is_refused_before_its_weights_are_fetched(hub, crowded):
    config = {"model_type": "vit", "architectures": ["ViTForImageClassification"]}
    hub.publish(NAME, crowded | {"config.json": json.dumps(config).encode()})
    assert "not a causal language model" in refused(NAME)
    assert "model.safetensors" not in hub.fetched()


def test_no_room_for_both_models_is_said_before_either_is_fetched(hub, crowded, monkeypatch):
    hub.publish(NAME, crowded)
    hub.publish("someone/twin", crowded)
    room = int(1.5 * len(crowded["model.safetensors"]))
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": room}))
    assert "no room for someone/tiny and someone/twin" in refused(NAME, "someone/twin")
    assert "model.safetensors" not in hub.fetched()


def test_sharded_weights(hub, crowded, saved, tmp_path):
    make_llama(1).save_pretrained(tmp_path / "shards", max_shard_size="40KB")
    shards = {p.name: p.read_bytes() for p in (tmp_path / "shards").iterdir()}
    assert sum(name.endswith(".safetensors") for name in shards) > 2
    hub.publish(NAME, {n: d for n, d in crowded.items() if n != "model.safetensors"} | shards)
    assert answer(load(NAME)) == answer(load(str(saved)))
    fetched = {name for name in hub.fetched() if name.endswith(".safetensors")}
    assert fetched == {name for name in shards if name.endswith(".safetensors")}
    (next((tmp_path / "shards").glob("model-00002*"))).unlink()
    assert "lacks model-00002-of" in refused(str(tmp_path / "shards"))


def test_pickled_weights_are_refused_before_the_download_and_the_flag_is_named(hub, pickled):
    hub.publish(NAME, pickled)
    message = refused(NAME)
    assert "no weights in safetensors" in message and "--allow-pickle reads pytorch_model.bin" in message
    assert hub.fetched() == set()


def test_pickled_weights_are_read_when_the_user_insists(hub, pickled, saved):
    hub.publish(NAME, pickled)
    runtime = load(NAME, allow_pickle=True)
    assert any("pickled" in w and NAME in w for w in runtime.ready.warnings)
    assert answer(runtime) == answer(load(str(saved)))
    assert "pytorch_model.bin" in hub.fetched()


def test_pickled_weights_of_a_folder(pickled, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "pytorch_model.bin"):
        (folder / name).write_bytes(pickled[name])
    assert "--allow-pickle" in refused(str(folder))
    assert load(str(folder), allow_pickle=True).ready.parameters


def test_safetensors_are_taken_where_there_are_both(hub, crowded):
    hub.publish(NAME, crowded)
    assert not any("pickled" in w for w in load(NAME, allow_pickle=True).ready.warnings)
    assert "pytorch_model.bin" not in hub.fetched()


def test_what_is_pickled_beside_weights_is_never_run(hub, pickled, saved, tmp_path):
    trap = tmp_path / "sprung"
    torch.save(load_file(saved / "model.safetensors") | {"trap": Trap(trap)}, tmp_path / "bad")
    hub.publish(NAME, pickled | {"pytorch_model.bin": (tmp_path / "bad").read_bytes()})
    assert "more than weights" in refused(NAME, allow_pickle=True)
    assert not trap.exists()


def test_code_of_a_models_own_is_not_run_and_the_flag_is_named(hub, own):
    files, proof = own
    hub.publish(NAME, files)
    message = refused(NAME)
    assert "code of its own" in message and "--trust-remote-code" in message
    assert not proof.exists() and not {"model.safetensors", "modeling_own.py"} & hub.fetched()


def test_code_of_a_models_own_runs_when_the_user_insists(hub, own, saved):
    files, proof = own
    hub.publish(NAME, files)
    runtime = load(NAME, trust_remote_code=True)
    assert proof.exists() and type(runtime.target.model).__name__ == "OwnModel"
    assert any("code" in w and NAME in w for w in runtime.ready.warnings)
    assert answer(runtime) == answer(load(str(saved)))


def test_code_is_fetched_later_for_a_model_that_is_here_without(hub, crowded, own, tmp_path):
    files, proof = own
    hub.publish(NAME, files)
    from engines.hub.model_source import locate

    locate(NAME).fetch_weights()
    hub.asked.clear()
    assert load(NAME, trust_remote_code=True).ready and proof.exists()
    assert hub.fetched() == {"modeling_own.py"}


def test_trust_changes_nothing_for_a_model_without_code(hub, crowded):
    hub.publish(NAME, crowded)
    assert not any("code" in w for w in load(NAME, trust_remote_code=True).ready.warnings)
