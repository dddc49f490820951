"""Contents and names in the hub's cache: one content under many names, no bytes and no names but those listed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from engines.hub import hub_cache as cache
from engines.model.load_options import LoadOptions
from engines.model.loading import load_models
from tests.hub import NEEDED, digest
from tests.sources.test_download import NAME, WEIGHTS, Watcher, fetch, here, refused


def blobs() -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (cache.repository(NAME) / "blobs").iterdir()}


def as_listed(files: dict[str, bytes]) -> dict[str, bytes]:
    return {digest(name, data): data for name, data in files.items()}


def test_one_content_under_many_names_is_fetched_once(hub, crowded):
    same = json.dumps({"a": "x" * 200_000}).encode()
    twins = {name: same for name in ("vocab.json", "added_tokens.json", "special_tokens_map.json", "vocab.txt")}
    hub.publish(NAME, crowded | twins)
    hub.pause = 0.001
    watcher = Watcher()
    source = fetch(progress=watcher)
    wanted = {name: (crowded | twins)[name] for name in NEEDED | {WEIGHTS} | set(twins)}
    assert here(source) == wanted and blobs() == as_listed(wanted)
    assert sum(len(hub.got(name)) for name in twins) == 1
    size = sum(len(data) for data in as_listed(wanted).values())
    assert {e.bytes for e in watcher.events if e.bytes} == {size}
    assert max(e.done for e in watcher.events if e.done) <= 1


def test_what_another_program_writes_into_a_partial_file_is_noticed(hub, crowded):
    hub.publish(NAME, crowded)
    hub.held.add(WEIGHTS)

    def intrude(_):
        if hub.holding.is_set() and not hub.released.is_set():
            [partial] = (cache.repository(NAME) / "blobs").glob("*.incomplete")
            with open(partial, "ab") as other:
                other.write(b"not of the hub")
            hub.released.set()

    assert f"{WEIGHTS} arrived damaged" in refused(progress=intrude)
    assert digest(WEIGHTS, crowded[WEIGHTS]) not in blobs()
    assert here(fetch())[WEIGHTS] == crowded[WEIGHTS]


def test_a_blob_of_another_length_than_listed_is_fetched_again(hub, crowded):
    hub.publish(NAME, crowded)
    broken = cache.repository(NAME) / "blobs" / digest(WEIGHTS, crowded[WEIGHTS])
    broken.parent.mkdir(parents=True)
    broken.write_bytes(crowded[WEIGHTS] * 2)
    assert here(fetch())[WEIGHTS] == crowded[WEIGHTS]


@pytest.mark.parametrize("etag", ["mirror", "../../../pwned"])
def test_only_the_digest_of_the_listing_names_a_content(hub, crowded, tmp_path, etag):
    hub.publish(NAME, crowded)
    hub.etag = etag
    source = fetch()
    wanted = {name: crowded[name] for name in NEEDED | {WEIGHTS}}
    assert here(source) == wanted and blobs() == as_listed(wanted)
    assert {p.name for p in tmp_path.iterdir()} == {"cache"}
    assert not any(a.method == "HEAD" for a in hub.asked), "no question but for the content"
    assert len(hub.got(WEIGHTS)) == 1


def test_an_answer_longer_than_listed_is_left(hub, crowded):
    hub.publish(NAME, crowded)
    hub.endless = {WEIGHTS, "config.json"}
    assert here(fetch())[WEIGHTS] == crowded[WEIGHTS]


def test_what_is_there_is_checked_in_view(hub, crowded, monkeypatch):
    weights = bytes(range(256)) * 40_000
    hub.publish(NAME, crowded | {WEIGHTS: weights})
    hub.cuts[WEIGHTS] = [9_000_000] + [0] * 9
    refused()
    hub.cuts.clear()
    sha256 = hashlib.sha256

    def slow(*given, **how):
        made = sha256(*given, **how)
        return SimpleNamespace(
            update=lambda block: (time.sleep(0.02), made.update(block)), digest=made.digest, hexdigest=made.hexdigest)

    monkeypatch.setattr(hashlib, "sha256", slow)
    watcher = Watcher()
    assert here(fetch(progress=watcher))[WEIGHTS] == weights
    checks = [e for e in watcher.events if re.fullmatch(r"checking what is there: [\d.]+ of [\d.]+ MB", e.stage)]
    assert len(checks) > 3 and [e.done for e in checks] == sorted(e.done for e in checks) and checks[-1].done <= 1
    assert checks[-1].done > 0.5 and {e.bytes for e in checks} == {len(weights) - 9_000_000}
    assert watcher.events[-1].stage.startswith("downloading ")


def test_a_content_that_two_models_have_is_counted_once(hub, crowded, monkeypatch):
    monkeypatch.setattr("engines.model.loading.load_model", lambda source, *_, **__: SimpleNamespace(
        folder=source.folder, compute=None))
    size = len(crowded[WEIGHTS])
    hub.publish(NAME, crowded, "v1")
    hub.publish(NAME, crowded | {"generation_config.json": b"{}"}, "v2")
    for number, revision in enumerate(("v1", "v2")):
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache.folder() / str(number)))
        room = int(1.8 * size)
        monkeypatch.setattr("shutil.disk_usage", lambda path, free=room: type("Usage", (), {"free": free}))
        hub.asked.clear()
        watcher = Watcher()
        asked = LoadOptions(NAME, NAME, revision="v1", draft_revision=revision, device="cpu")
        target, _, draft, _ = load_models(asked, watcher)
        assert [(f / WEIGHTS).read_bytes() for f in (target.folder, draft.model.folder)] == [crowded[WEIGHTS]] * 2
        assert len([a for a in hub.asked if a.path.startswith("/cdn/")]) == 1
        announced = [e for e in watcher.events if e.bytes and e.done is None]
        total = sum(len(crowded[name]) for name in NEEDED | {WEIGHTS})
        assert [e.bytes for e in announced] == [total] + [2] * number


@pytest.mark.parametrize("links", ["symbolic", "hard", "none"])
def test_where_there_are_no_links_there_are_files(hub, crowded, monkeypatch, links):
    def impossible(*_):
        raise OSError("no such thing here")

    if links != "symbolic":
        monkeypatch.setattr(Path, "symlink_to", impossible)
    if links == "none":
        monkeypatch.setattr(Path, "hardlink_to", impossible)
    hub.publish(NAME, crowded)
    source = fetch()
    assert here(source) == {name: crowded[name] for name in NEEDED | {WEIGHTS}}
    config = source.folder / "config.json"
    assert config.is_symlink() == (links == "symbolic")
    assert links == "none" or config.samefile(cache.repository(NAME) / "blobs" / digest("", crowded["config.json"]))
    if links == "symbolic":
        assert not os.path.isabs(os.readlink(config)), "the cache may be moved"


def test_other_programs_read_the_cache_offline(hub, crowded, saved):
    from huggingface_hub import scan_cache_dir, try_to_load_from_cache
    from transformers import AutoModelForCausalLM, AutoTokenizer

    extra = "additional_chat_templates/tools.jinja"
    commit = hub.publish(NAME, crowded | {extra: b"{{ tools }}"}, "v1")
    source = fetch(revision="v1")
    hub.asked.clear()
    weights = AutoModelForCausalLM.from_pretrained(saved).state_dict()
    for revision in ("v1", commit):
        there = {"revision": revision, "cache_dir": cache.folder()}
        model = AutoModelForCausalLM.from_pretrained(NAME, local_files_only=True, **there)
        assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
        assert len(AutoTokenizer.from_pretrained(NAME, local_files_only=True, **there)) == 260
        assert try_to_load_from_cache(NAME, extra, **there) == str(source.folder / extra)
    found = scan_cache_dir(cache.folder())
    assert not found.warnings and hub.asked == []
    assert [(r.commit_hash, r.refs) for repo in found.repos for r in repo.revisions] == [(commit, {"v1"})]
