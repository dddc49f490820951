"""Files of prompts in every form that is taken, and those that are refused."""

from __future__ import annotations

import json

import pytest

from engines.bench.prompt_files import read
from engines.errors import UsageProblem


def log(*texts: str, system: str = "") -> dict:
    turns = [{"role": role, "content": text} for role, text in zip(("user", "assistant") * 9, texts)]
    return {"messages": [{"role": "system", "content": system}] * bool(system) + turns}


PARTS = [{"type": "text", "text": "Look: "}, {"type": "image_url", "image_url": {}}, {"type": "text", "text": "what?"}]


@pytest.mark.parametrize("text, turns", [
    ("One?\r\n\n  Two?\n", [("One?",), ("  Two?",)]),
    ('{"prompt": "a"}\n{"turns": ["b", "c"], "category": "x"}', [("a",), ("b", "c")]),
    ('{"question_id": 81, "category": "writing", "turns": ["b", "c"], "reference": []}', [("b", "c")]),
    (json.dumps(log("q", "a", "r")) + "\n" + json.dumps({"body": log("s")}), [("q", "r"), ("s",)]),
    (json.dumps([log("q"), log("r")], indent=1), [("q",), ("r",)]),
    (json.dumps(log("q", "a")["messages"], indent=1), [("q",)]),
    (json.dumps(log("q"), indent=1), [("q",)]),
    (json.dumps({"messages": [{"role": "user", "content": PARTS}]}), [("Look: what?",)]),
    ('["a", "b"]', [("a",), ("b",)]),
], ids=["plain", "lines", "spec-bench", "logs", "list", "conversation", "document", "parts", "texts"])
def test_forms(text, turns):
    assert list(read("\ufeff" + text, "file").suite.prompts) == turns


@pytest.mark.parametrize("text, words", [
    ("", "there is no prompt in file"), ("\n \n", "there is no prompt in file"), ("[]", "there is no prompt in file"),
    ('{"prompt": 3}', "line 1 of file has no prompt"), ('{"prompt": "a"}\n{"x"', "line 2 of file is not JSON"),
    ('{"messages": []}', "line 1 of file has no prompt"), ("[" * 100_000, "is not JSON"),
    (json.dumps([log("q"), {"messages": [{"role": "assistant", "content": "a"}]}]), "record 2 of file has no prompt"),
    ('["a", 1]', "record 2 of file has no prompt"), ('{"messages": "x"}', "has no prompt"),
])
def test_files_that_are_refused_in_words(text, words):
    with pytest.raises(UsageProblem, match=words):
        read(text, "file")


def test_a_system_prompt_that_all_share_is_used_and_others_are_told():
    same = read(json.dumps([log("q", system="Be brief."), log("r", system="Be brief.")]), "file")
    assert same.system == "Be brief." and not same.notes
    other = read(json.dumps([log("q", system="Be brief."), log("r")]), "file")
    assert other.system == "" and "have different system prompts" in other.notes[0]
    tools = {"messages": [*log("q")["messages"], {"role": "tool", "content": "42"}]}
    assert "results of tools" in read(json.dumps([tools]), "file").notes[0]
