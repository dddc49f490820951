"""Datastores of chats: rows of several columns through the chat template, cut where documents may be no longer."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from engines.datastores.building.build_spec import BuildSpec, build, estimate_build, open_corpus
from engines.datastores.building.hidden_states import HiddenStates, tokens_before
from engines.datastores.datastore_events import BuildEstimate
from engines.datastores.search.dense import DenseStore
from engines.datastores.search.reduction import Recipe
from engines.datastores.search.sparse import SparseStore
from engines.errors import UsageProblem
from engines.request import Request
from engines.tokenization import encode
from spec_tui.present.progress_text import amount, estimate_parts, left_out

ROWS = [{"prompt": "Add", "input": "1 and 2", "answer": "3"}, {"prompt": "Say hi", "input": "", "answer": "hi"},
        {"prompt": "Nothing", "input": "", "answer": " "}]  # fmt: skip


@pytest.fixture
def chats(tmp_path):
    file = tmp_path / "chats.jsonl"
    file.write_text("\n".join(map(json.dumps, ROWS)) + "\n", "utf-8")
    return BuildSpec("chats", (str(file),), columns=("prompt", "input", "answer"))


def written(tokenizer, question, answer):
    """The chat as the model reads and writes it."""
    prompt, _ = encode(tokenizer, Request((("user", question),)), 260)
    return [*prompt, *tokenizer(answer, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]


def tokens_of(store):
    text = np.asarray(store.array("tokens")).tolist()
    ends = [i for i, token in enumerate(text) if token == 0xFFFF]
    return [text[begin:end] for begin, end in zip([0, *(e + 1 for e in ends)], ends)]


def test_a_row_is_the_chat_that_the_model_would_have_had(tiny, chats):
    chats.check()
    store = build(chats, open_corpus(chats), tiny.tokenizer)
    wanted = [written(tiny.tokenizer, "Add\n1 and 2", "3"), written(tiny.tokenizer, "Say hi", "hi")]
    assert tokens_of(store) == wanted and store.manifest.parameters["sources"]["columns"] == list(chats.columns)
    place = SparseStore(store).documents.place(len(wanted[0]) + 1)
    assert place.source == "chats.jsonl row 2" and place.offset == 0


def test_rows_without_question_or_answer_are_counted(tmp_path):
    file = tmp_path / "chats.jsonl"
    file.write_text("\n".join(map(json.dumps, [*ROWS, {"prompt": "x", "input": "", "answer": None}])), "utf-8")
    corpus = open_corpus(BuildSpec("chats", (str(file),), columns=("prompt", "input", "answer")))
    assert left_out(corpus.skipped) == "left out: 2 without question or answer"
    assert [amount(number, corpus.unit) for number in (1, 2, 1.5)] == ["1 row", "2 rows", "1.5 rows"]


def test_a_build_from_a_file_of_chats_begins_with_an_estimate(tiny, tmp_path):
    file = tmp_path / "chats.jsonl"
    rows = [{"q": "Say hi" if n % 5 else "", "a": "hi " * (n % 7 + 1)} for n in range(100)]
    file.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    for limits in ({}, {"document_limit": 9}, {"limit": 300}):
        spec = BuildSpec("chats", (str(file),), kind="both", columns=("q", "a"), recipe=Recipe(0), **limits)
        guess = estimate_build(spec, open_corpus(spec), tiny.tokenizer, tiny)
        made = build(spec, open_corpus(spec), tiny.tokenizer, tiny, replace=True).manifest
        assert abs(guess.tokens / made.tokens - 1) < 0.15 and 0.5 < guess.size / made.size < 1.5, limits
        assert f"about {guess.tokens:,} tokens" in estimate_parts(guess)


def test_where_the_size_is_not_known_the_limit_that_bounds_it_is_named():
    assert estimate_parts(BuildEstimate(None), "--limit") == ["the size is not known; --limit bounds it"]
    assert estimate_parts(BuildEstimate(None)) == ["the size is not known"]


def test_the_keys_of_a_chat_are_the_states_that_it_has(tiny, chats):
    corpus = open_corpus(chats)
    assert tuple(tokens_before(corpus, tiny.tokenizer)(0)) == ()
    plain = replace(chats, kind="dense", recipe=Recipe(0, False, False))
    store = DenseStore(build(plain, corpus, tiny.tokenizer, tiny))
    wanted = written(tiny.tokenizer, "Add\n1 and 2", "3")
    states = HiddenStates(tiny.target, tiny.identity)([np.array(wanted)])[0]
    assert np.asarray(store.keys[: len(wanted) - 1], np.float32) == pytest.approx(states[:-1], abs=2e-2)


def test_documents_are_cut_at_their_limit_and_a_build_of_another_limit_is_another(tiny, chats):
    cut = replace(chats, document_limit=9)
    cut.check()
    store = build(cut, open_corpus(cut), tiny.tokenizer)
    whole = [written(tiny.tokenizer, "Add\n1 and 2", "3"), written(tiny.tokenizer, "Say hi", "hi")]
    assert tokens_of(store) == [text[:9] for text in whole] and store.manifest.parameters["document_limit"] == 9
    both = replace(cut, limit=12)
    assert tokens_of(build(both, open_corpus(both), tiny.tokenizer, replace=True)) == [whole[0][:9], whole[1][:3]]


@pytest.mark.parametrize("content, said", [
    ('{"prompt": "a"}', "row 1 has no column 'input'"), ("[1]", "line 1 of"), ('{"prompt": "x", "a', "line 1 of"),
])
def test_rows_that_are_no_chats_are_named(tiny, chats, tmp_path, content, said):
    (tmp_path / "chats.jsonl").write_text(content, "utf-8")
    with pytest.raises(UsageProblem, match=said):
        build(chats, open_corpus(chats), tiny.tokenizer)


@pytest.mark.parametrize("changes, said", [
    ({"columns": ("answer",)}, "is not a chat"), ({"sources": ("a.jsonl", "b.jsonl")}, "one file"),
    ({"sources": ("python-stdlib",)}, "one file"), ({"document_limit": 0}, "document-limit 0"),
    ({"top_p": 0.9}, "--top-p would change nothing here"),
])  # fmt: skip
def test_what_cannot_be_asked_is_refused(chats, changes, said):
    with pytest.raises(UsageProblem, match=said):
        replace(chats, **changes).check()
