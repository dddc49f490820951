"""spec-tui datastore, on the shipped tokenizer and on a tiny model that answers."""

from __future__ import annotations

import hashlib
import json
import os
import sys

import msgspec
import pytest

from engines.datastores.building import build_journal
from engines.datastores.building import model_answers as answers
from engines.folders import sample_model
from engines.hub.download_progress import in_bytes
from engines.model.loading import load_tokenizer
from spec_tui.cli import datastore as commands
from spec_tui.session import loader
from tests.conftest import make_llama, make_tokenizer
from tests.datastores.conftest import home

__all__ = ["home"]  # a fixture

TEXTS = {
    "a.py": "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n",
    "b.md": "# Notes\n\nThe fox sleeps. The fox eats. The fox sleeps again.\n" * 30,
    "sub/c.txt": "One more file with \x1b[31mcolours\u202e in it.\n" * 20,
}


@pytest.fixture
def texts(tmp_path):
    for name, content in TEXTS.items():
        path = tmp_path / "texts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, "utf-8")
    return tmp_path / "texts"


@pytest.fixture
def model(cli, tiny, monkeypatch):
    """Commands that need a model get the tiny one; its weights and its tokenizer are its own."""

    def load(*_):
        tiny.open_datastores.refresh()
        return tiny

    monkeypatch.setattr(loader, "load_here", load)
    monkeypatch.setattr(commands, "tokenizer_of", lambda load: tiny.tokenizer)
    return tiny


def prompts(tmp_path, lines=("one?", "two?", "three?", "four?")):
    path = tmp_path / "prompts.txt"
    path.write_text("\n".join(lines), "utf-8")
    return str(path)


def content(folder):
    """What a store's files hold; the time of its building apart."""
    found = {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    facts = json.loads(found.pop("manifest.json"))
    return found, {key: value for key, value in facts.items() if key not in ("created", "checksum", "name")}


def test_a_store_is_built_listed_described_probed_verified_and_removed(model, cli, texts, home):
    done = cli("datastore", "build", "notes", "--from", str(texts))
    assert done.code == 0 and done.out.startswith("notes: sparse, ") and "about " in done.err
    listed = json.loads(cli("datastore", "list", "--format", "json").out)
    assert [(e["name"], e.get("kind")) for e in listed] == [("notes", "sparse"), ("python-stdlib", None)]
    facts = json.loads(cli("datastore", "info", "notes", "--format", "json").out)
    assert facts["documents"] == 3 and facts["tokens"] > 500 and facts["bytes"] == listed[0]["bytes"]
    assert facts["parameters"]["sources"]["roots"] == ["texts"]

    (found,) = json.loads(cli("datastore", "probe", "The fox", "--format", "json").out)[0]["drafts"]
    draft, retrieval = found["draft"], found["retrieval"]
    assert retrieval["hits"] == 90
    assert sum(prob for prob, parent in zip(draft["probs"], draft["parents"]) if parent == -1) == pytest.approx(1)
    origin = draft["origins"][draft["origin"][0]]
    assert origin["document"] == "texts/b.md" == retrieval["passages"][0]["document"] and origin["line"] >= 3
    words = cli("datastore", "probe", "The fox").out
    assert "90 occurrences: The fox" in words and "texts/b.md:" in words
    assert "no suffix of the text with two or more tokens occurs" in cli("datastore", "probe", "zqzqzq").out

    assert "sound: 7 files" in cli("datastore", "verify", "notes").out
    refused = cli("datastore", "remove", "notes")
    assert refused.code == 2 and "--yes" in refused.err and "?:" not in refused.err and (home / "notes").is_dir()
    assert cli("datastore", "remove", "notes", "--yes").code == 0 and not (home / "notes").exists()
    assert cli("datastore", "remove", "notes", "--yes").code == 2


def test_damage_is_found_and_told(cli, texts, home):
    cli("datastore", "build", "notes", "--from", str(texts))
    part = home / "notes" / "suffixes.bin"
    part.write_bytes(part.read_bytes()[:-1] + b"\x7f")
    done = cli("datastore", "verify", "--format", "json")
    assert done.code == 3 and "suffixes.bin" in json.loads(done.out)[0]["problem"]
    done = cli("datastore", "verify", "notes", "nowhere")
    assert done.code == 2 and "suffixes.bin" not in done.err, "names are looked up before anything is read"
    (home / "notes" / "manifest.json").write_text("{}")
    assert cli("datastore", "info", "notes").code == 3
    assert "cannot be used" in cli("datastore", "list").out.replace("\n", " ")
    (home / "notes" / "manifest.json").write_text('{"format": 99}')
    assert (": datastore notes has format 99, this program reads up to 1; update spec-tui, or build it "
            "anew") in " ".join(cli("datastore", "list").out.split())


@pytest.mark.parametrize("arguments, message", [
    (["x"], "nothing to build from"),
    (["x", "--from", "nowhere"], "does not exist"),
    (["../x", "--from", "."], "cannot be the name"),
    (["python-stdlib", "--from", "."], "choose another name, or build it from python-stdlib alone"),
    (["x", "--from", ".", "--kind", "thick"], "no kind"),
    (["x", "--from", "model-answers"], "questions"),
    (["x", "--from", "model-answers", ".", "--prompts", "f"], "cannot be combined with other sources"),
    (["x", "--from", ".", "--prompts", "f"], "model-answers"),
    (["x", "--from", "model-answers", "--prompts", "f", "--answers", "2"], "all the same"),
    (["x", "--from", "model-answers", "--prompts", "f", "--temperature", "-1"], "out of range"),
    (["x", "--from", ".", "--limit", "0"], "limit"),
    (["x", "--from", ".", "--kind", "dense", "--index", "magic"], "no index"),
    (["x", "--from", ".", "--dims", "-1"], "principal"),
    (["x", "--from", "model-answers", "--prompts", "f", "--engine", "nosuch"], "there is no engine"),
    (["x", "--from", "hf:no/such/thing"], "names no dataset"),
    (["x", "--from", ".", "--columns", ","], "a value of --columns is empty"),
    (["x", "--from", "https://example.com/x.txt"], "https://example.com/x.txt is an address, not a file"),
    (["x", "--from", "-"], "save the text to a file first"),
])  # fmt: skip
def test_what_cannot_be_built_is_said(cli, arguments, message, home):
    done = cli("datastore", "build", *arguments)
    assert done.code == 2 and message in done.err and not done.out
    assert not home.exists() or not [p for p in home.iterdir() if p.is_dir()]


@pytest.mark.parametrize("more", [(), ("--prompt", " ")])
def test_an_empty_text_is_refused_before_a_model_is_loaded(cli, monkeypatch, more):
    monkeypatch.setattr(loader, "load_here", lambda *_: pytest.fail("loaded"))
    done = cli("datastore", "probe", " ", *more)
    assert done.code == 2 and "the text is empty" in done.err


@pytest.mark.parametrize("source, words", [
    (["nowhere"], "nowhere does not exist"), (["pipe"], "pipe is neither a file nor a folder"),
    (["empty"], "no text to build from in empty"),
    (["nowhere", "--columns", "prompt,answer"], "there is no file nowhere"),
    (["model-answers", "--prompts", "empty"], "there are no prompts in empty"),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_a_bad_source_is_refused_before_a_model_is_loaded(cli, tmp_path, monkeypatch, source, words, kind):
    for name in ("load_here", "load"):
        monkeypatch.setattr(loader, name, lambda *_: pytest.fail("loaded"))
    monkeypatch.setattr(commands, "tokenizer_of", lambda *_: pytest.fail("loaded"))
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    (tmp_path / "empty").touch()
    done = cli("datastore", "build", "x", "--kind", kind, "--from", *source)
    assert done.code == 2 and words in done.err


def test_more_dimensions_than_the_model_has_are_refused_and_the_default_is_not(model, cli, texts):
    command = ("datastore", "build", "notes", "--from", str(texts), "--kind", "dense", "--limit", "99")
    done = cli(*command, "--dims", "5000")
    assert done.code == 2 and f"--dims is at most {model.identity.width}" in done.err
    assert model.identity.width < 64 and cli(*command).code == 0


def test_a_table_is_not_empty_however_narrow_the_terminal(cli, home, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1")
    assert "python-stdlib" in cli("datastore", "list").out


def test_a_taken_name_needs_replace(cli, texts):
    cli("datastore", "build", "notes", "--from", str(texts))
    done = cli("datastore", "build", "notes", "--from", str(texts / "a.py"))
    assert done.code == 2 and "--replace" in done.err
    assert cli("datastore", "build", "notes", "--from", str(texts / "a.py"), "--replace").code == 0
    assert json.loads(cli("datastore", "info", "notes", "--format", "json").out)["documents"] == 1


def test_one_token_is_one_token(model, cli, texts):
    done = cli("datastore", "build", "notes", "--from", str(texts / "a.py"), "--limit", "1")
    assert "about 1 token, " in done.err and "notes: sparse, 1 token in 1 document, " in done.out
    assert "sparse, 1 token, " in " ".join(cli("datastore", "list").out.split())


def test_several_files_after_from(cli, texts):
    done = cli("datastore", "build", "notes", "--from", str(texts / "a.py"), str(texts / "b.md"), "--limit", "50")
    assert "50 tokens in 2 documents" in done.out


class Unplugged(KeyboardInterrupt):
    """Ctrl+c."""


@pytest.mark.parametrize("after", [1, 2, 3])
def test_answers_of_a_build_that_was_interrupted_are_not_asked_again(
    model, cli, tmp_path, home, monkeypatch, after
):
    asked = []
    command = ("--from", "model-answers", "--prompts", prompts(tmp_path), "--kind", "both", "--max-new-tokens", "12")
    assert cli("datastore", "build", "whole", *command).code == 0
    run = type(model).run

    def interrupted(self, request, *rest):
        asked.append(request.conversation[-1][1])
        if len(asked) == after + 1:
            raise Unplugged
        return run(self, request, *rest)

    monkeypatch.setattr(build_journal, "EVERY", -1.0)
    monkeypatch.setattr(type(model), "run", interrupted)
    done = cli("datastore", "build", "parts", *command)
    assert done.code == 130 and "the same command continues" in done.err
    row = next(one for one in json.loads(cli("datastore", "list", "--format", "json").out) if one["unfinished"])
    assert row["bytes"] == sum(one.stat().st_size for one in (home / "parts.partial").rglob("*") if one.is_file()) > 0
    assert f"unfinished, {in_bytes(row['bytes'])}: " in cli("datastore", "list").out
    assert cli("datastore", "build", "parts", *command).code == 0
    assert asked == ["one?", "two?", "three?", "four?"][:after] + ["one?", "two?", "three?", "four?"][after:][:1] + [
        "one?", "two?", "three?", "four?"][after:]  # fmt: skip
    assert content(home / "parts") == content(home / "whole")


def test_hidden_states_of_an_interrupted_build_give_the_same_bytes(model, cli, texts, home, monkeypatch):
    from engines.datastores.building.hidden_states import HiddenStates

    monkeypatch.setattr(HiddenStates, "batch", 200)
    monkeypatch.setattr("engines.datastores.building.build_journal.EVERY", -1.0)
    command = ("--from", str(texts), "--kind", "dense", "--window", "64", "--dims", "8")
    assert cli("datastore", "build", "whole", *command).code == 0
    read, calls = HiddenStates.__call__, []

    def interrupted(self, batch):
        calls.append(len(batch))
        if len(calls) == 4:
            raise Unplugged
        return read(self, batch)

    monkeypatch.setattr(HiddenStates, "__call__", interrupted)
    assert cli("datastore", "build", "parts", *command).code == 130
    before = len(calls)
    assert cli("datastore", "build", "parts", *command).code == 0
    assert len(calls) > before > 1 and content(home / "parts") == content(home / "whole")


def test_another_command_does_not_take_up_an_unfinished_build(model, cli, tmp_path, monkeypatch):
    command = ["datastore", "build", "x", "--from", "model-answers", "--prompts", prompts(tmp_path), "--max-new-tokens"]
    whole = answers.ModelAnswers.documents

    def one(self, resume=None):
        yield next(whole(self, resume))
        raise Unplugged

    with monkeypatch.context() as patch:
        patch.setattr(build_journal, "EVERY", -1.0)
        patch.setattr(answers.ModelAnswers, "documents", one)
        assert cli(*command, "9").code == 130
    refused = cli(*command, "8")
    assert refused.code == 2 and "--fresh" in refused.err
    assert cli(*command, "8", "--fresh").code == 0


def test_a_store_of_another_tokenizer_or_model_is_refused(model, cli, texts, tmp_path, monkeypatch):
    assert cli("datastore", "build", "mine", "--from", str(texts), "--kind", "both", "--dims", "8").code == 0
    shown = cli("datastore", "probe", TEXTS["b.md"][:90], "--datastore", "mine", "--format", "json")
    sparse, dense = json.loads(shown.out)[0]["drafts"]
    assert dense["retrieval"]["scores"][0] > 0.999 and dense["draft"]["tokens"] and sparse["retrieval"]["match"]
    assert "cosine" in cli("datastore", "probe", "The fox sleeps").out

    from engines.model.loading import wrap
    from engines.runtime import Runtime

    other = Runtime.measured(wrap(make_llama(7, layers=3), "another"), make_tokenizer())
    monkeypatch.setattr(loader, "load_here", lambda *_: other)
    for named in ((), ("--datastore", "mine")):  # its sparse part fits
        done = cli("datastore", "probe", "The fox", *named)
        assert done.code == 0 and "mine, sparse: " in done.out and "dense" not in done.out


def test_a_store_of_the_shipped_tokenizer_is_not_for_the_tiny_one(model, cli, texts, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(commands, "tokenizer_of", lambda load: load_tokenizer(str(sample_model("target"))))
        cli("datastore", "build", "mine", "--from", str(texts))
    refused = cli("datastore", "probe", "The fox", "--datastore", "mine")
    assert refused.code == 3 and "another tokenizer" in refused.err
    assert cli("datastore", "probe", "The fox").code == 2  # none fits


def test_hostile_names_and_texts_steer_no_terminal(model, cli, texts):
    (texts / "evil\x1b]0;owned\x07\u202e.md").write_text("The fox \x1b[2J\x9b31m runs. The fox \x1b[2J runs.\n" * 9)
    cli("datastore", "build", "evil", "--from", str(texts))
    for command in (("probe", "The fox"), ("info", "evil"), ("list",)):
        done = cli("datastore", *command)
        assert done.code == 0 and not set("\x1b\x07\x9b\u202e") & set(done.out + done.err)
    for name in ("../../etc", "a\x1b[0m", "", "con", "x" * 99, "A", "/"):
        done = cli("datastore", "remove", name, "--yes")
        assert done.code == 2 and "\x1b" not in done.err


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file whose name is no UTF-8")
def test_a_name_that_is_no_text_is_json_that_every_program_reads(cli, tmp_path):
    source = tmp_path / os.fsdecode(b"n\xffame.txt")
    source.write_text(TEXTS["a.py"])
    assert cli("datastore", "build", "odd", "--from", str(source)).code == 0
    told = cli("datastore", "info", "odd", "--format", "json").out
    assert msgspec.json.decode(told)["parameters"]["sources"]["roots"] == ["n\ufffdame.txt"]


def test_verify_measures_the_index(model, cli, texts):
    cli("datastore", "build", "mine", "--from", str(texts), "--kind", "both", "--dims", "16")
    result = json.loads(cli("datastore", "verify", "mine", "--recall", "--mrr", "--format", "json").out)[0]
    assert result["recall"]["value"] == 1 and 0 < result["mrr"] <= 1 and result["index"] == "exact"
    assert "recall@10 1.000" in cli("datastore", "verify", "mine", "--recall").out.replace("\n", " ")


def test_every_file_of_the_store_is_named_in_its_manifest(cli, texts, home):
    cli("datastore", "build", "notes", "--from", str(texts))
    facts = json.loads((home / "notes" / "manifest.json").read_text())
    for file in facts["files"]:
        assert hashlib.sha256((home / "notes" / file["path"]).read_bytes()).hexdigest() == file["sha256"]
    assert {p.name for p in (home / "notes").iterdir()} == {f["path"] for f in facts["files"]} | {"manifest.json"}


@pytest.mark.parametrize("command", [
    ("probe", "\udcff\udcfe"), ("probe", "x", "--prompt", "\udcff"), ("probe", "x", "--datastore", "\udcff"),
    ("build", "x", "--from", "\udcff"), ("build", "\udcff", "--from", "x"), ("remove", "\udcff"), ("info", "\udcff"),
    ("build", "x", "--from", "model-answers", "--prompts", "x", "--system", "\udcff"),
])  # fmt: skip
def test_bytes_that_are_no_text_are_refused(model, cli, command):
    done = cli("datastore", *command)
    assert done.code == 2 and "bug" not in done.err and done.err.startswith("spec-tui: ")
