"""A head that is exported holds what it shares with its target, in vLLM's layout, and drafts as before."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from engines import Request
from engines.heads.checkpoint import read, write
from engines.heads.compatibility import standing_alone
from engines.heads.draft_head import DraftHead
from engines.heads.medusa_heads import MedusaHeads
from engines.hub.untrusted_json import read_object
from engines.model.loading import wrap
from engines.report.events import Round
from tests.conftest import TURN, make_llama
from tests.heads import make_file, make_medusa_file


def exported(file, target, folder):
    write(replace(standing_alone(file, target), folder=folder), "a/target", "float32")
    return read("exported", folder, 3, 32)


@pytest.mark.parametrize(("engine", "make", "kind"), [("eagle", make_file, DraftHead),
                                                      ("medusa", make_medusa_file, MedusaHeads)])
def test_an_exported_head_drafts_what_it_drafted(tiny, tmp_path, monkeypatch, engine, make, kind):
    file = make(tiny.target, draft_tokens=200)
    assert file.rows is None
    found = exported(file, tiny.target, tmp_path / "out")
    drafts = []
    for each in (file, found):
        head = kind(each, tiny.target)
        monkeypatch.setitem(tiny.heads, head.config.kind, head)
        events = tiny.run(Request(TURN, engine, {"budget": "paper"}, max_new_tokens=12))
        drafts.append([(event.draft.tokens, event.draft.parents) for event in events if isinstance(event, Round)])
    assert drafts[0] == drafts[1] and drafts[0][0][0]
    assert found.made_for == tiny.target.fingerprint
    assert found.ids is None if engine == "medusa" else found.ids.equal(file.ids)


def test_no_place_on_this_machine_is_written(tiny, tmp_path):
    write(replace(make_file(tiny.target), folder=tmp_path / "head"), str(tmp_path / "models" / "mine"), "float32")
    assert len({path.stat().st_mode for path in (tmp_path / "head").iterdir()}) == 1, "who reads one file reads all"
    assert str(tmp_path) not in (tmp_path / "head" / "config.json").read_text() and "models/mine" in (
        tmp_path / "head" / "config.json").read_text()


def test_the_rows_are_those_of_the_target_and_of_no_other(tiny, tmp_path):
    file = make_file(tiny.target)
    held = exported(file, tiny.target, tmp_path / "out")
    model = tiny.target.model
    assert torch.equal(held.rows, model.get_output_embeddings().weight[file.ids])
    assert torch.equal(held.embeddings, model.get_input_embeddings().weight)
    other = DraftHead(held, wrap(make_llama(7, layers=3), "other"))
    assert torch.equal(other._head.weight, held.rows), "its own rows, whatever the target's are"


@pytest.mark.parametrize(("tap_norm", "named", "flag"), [("each", "fc_norm.2.weight", "fc_norm"),
                                                         ("whole", "input_norm.weight", "norm_before_fc")])
def test_norms_before_fc_are_written_as_vllm_names_them(tiny, tmp_path, tap_norm, named, flag):
    file = make_file(tiny.target, tap_norm=tap_norm)
    found = exported(file, tiny.target, tmp_path / "out")
    assert named in load_file(tmp_path / "out" / "model.safetensors")
    assert read_object(tmp_path / "out" / "config.json")[flag] is True
    assert found.config == file.config and torch.equal(found.weights["tap_norm"], file.weights["tap_norm"])


@pytest.mark.parametrize(("bias", "drafted"), [(False, 260), (True, 260), (False, 200)])
def test_a_head_of_eagle_2_takes_the_language_modelling_head_of_its_target(tiny, tmp_path, bias, drafted):
    file = make_file(tiny.target, "EAGLE", draft_vocabulary=drafted)
    file.weights["fc.bias"].fill_(bias)
    found = exported(file, tiny.target, tmp_path / "out")
    held = load_file(tmp_path / "out" / "model.safetensors")
    assert "lm_head.weight" not in held and ("fc.bias" in held) == bias
    assert torch.equal(held["embed_tokens.weight"], tiny.target.model.get_input_embeddings().weight)
    assert (found.config, found.ids, found.rows) == (replace(file.config, draft_vocabulary=260), None, None)
    assert all(torch.equal(found.weights[name], tensor) for name, tensor in file.weights.items())
