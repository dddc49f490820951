"""Suites: Spec-Bench's questions as they are, and whatever else a file may hold."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.bench.suite import SHIPPED, Case, by_name, parse, shipped
from engines.errors import UsageProblem


def spec_bench() -> str:
    """Questions of our own in the shape of Spec-Bench's file: eight categories of MT-Bench with two turns, five more
    with one; keys and ids as there."""
    categories = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
    rows = [{"question_id": 81 + n, "category": name, "turns": [f"Say {n}.", "Say it again."], "reference": ["a", "b"]}
            for n, name in enumerate(name for name in categories for _ in range(2))]
    for name in ("translation", "summarization", "qa", "math_reasoning", "rag"):
        rows += [{"question_id": 500, "category": name, "turns": [f"One {name}?"]} for _ in range(3)]
    return "\n".join(map(json.dumps, rows)) + "\n"


def test_spec_benchs_questions_are_read_as_they_are():
    suite = parse(spec_bench(), "question.jsonl")
    assert suite.tasks == ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities",
                           "translation", "summary", "qa", "math_reasoning", "rag")
    assert len(suite.cases) == 31 and len(suite.places) == 47
    assert suite.cases[0] == Case("writing", ("Say 0.", "Say it again."), "81")
    assert suite.places[1] == (suite.cases[0], 1) and suite.places[-1][0].task == "rag"
    assert suite.numbers("roleplay") == (4, 5, 6, 7) and suite.numbers("translation") == (32, 33, 34)
    assert suite.of_tasks(["multi-turn"]).places == suite.places[:32], "MT-Bench's, whatever their categories"
    assert suite.of_tasks(["multi-turn", "qa"]).tasks == (*suite.tasks[:8], "qa")
    assert suite.of_tasks(["math"]).tasks == ("math",), "and not Spec-Bench's questions of one turn"
    assert sorted(n for task in suite.tasks for n in suite.numbers(task)) == list(range(47))
    assert [suite.prompts[n] for n in (0, -1)] == [("Say 0.", "Say it again."), ("One rag?",)]


def test_speed_benchs_categories_stay_apart_however_many_turns_a_question_has():
    """Its qualitative split mixes questions of one turn and of several; in the others entropy is the category."""
    rows = [{"question_id": f"{name}-{n}", "category": name, "sub_category": "x", "multiturn": bool(n),
             "turns": ["Begin."] + ["Go on."] * n}
            for name in ("coding", "stem", "low_entropy", "high_entropy") for n in (0, 1, 4)]
    suite = parse("\n".join(map(json.dumps, rows)), "speed.jsonl")
    assert suite.tasks == ("coding", "stem", "low_entropy", "high_entropy")
    assert [len(suite.numbers(task)) for task in suite.tasks] == [1 + 2 + 5] * 4
    assert {len(case.turns) for case in suite.of_tasks(["multi-turn"]).cases} == {2, 5}


def test_a_limit_takes_as_many_of_each_task_from_all_over_it():
    few = parse(spec_bench(), "question.jsonl").limited(2)
    assert [case.task for case in few.cases] == [t for t in few.tasks for _ in range(2)] and len(few.tasks) == 13
    assert [case.id for case in few.cases[:2]] == ["81", "82"]
    assert parse(spec_bench(), "q").limited(1000) == parse(spec_bench(), "q")


def test_other_files_name_their_tasks_as_they_like():
    lines = [
        {"prompt": "one"}, {"prompt": "two", "category": "math"}, {"prompt": "three", "task": "mt_bench", "id": "x"},
        {"turns": ["a", "b"], "category": "poems"}, {"turns": ["a", "b"], "category": "stem"},
    ]
    suite = parse("\ufeff" + "\n\n".join(map(json.dumps, lines)), "mine")
    assert [case.task for case in suite.cases] == ["prompts", "math", "multi-turn", "poems", "stem"]
    assert [case.id for case in suite.cases] == ["1", "3", "x", "7", "9"]


@pytest.mark.parametrize("line, words", [
    ("not json", "line 2 of bad is not JSON"), ("[1]", "line 2 of bad has no prompt"),
    ('{"turns": []}', "line 2 of bad has no prompt"), ('{"turns": ["a", ""]}', "has no prompt"),
    ('{"turns": "abc"}', "has no prompt"), ('{"prompt": 3}', "has no prompt"),
    ('{"prompt": "a", "category": 3}', "line 2 of bad has a category that is no name"),
    ('{"prompt": "a", "category": " "}', "is no name"), ("[" * 10**5, "is not JSON"),
])  # fmt: skip
def test_a_bad_line_is_named(line, words):
    with pytest.raises(UsageProblem, match=words) as problem:
        parse('{"prompt": "fine"}\n' + line, "bad")
    assert problem.value.hint
    with pytest.raises(UsageProblem, match="there is no prompt in empty"):
        parse("\n \n", "empty")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=6,
)
records = st.dictionaries(st.sampled_from(["prompt", "turns", "category", "task", "question_id", "id"]), json_values)


@given(st.lists(records.map(json.dumps) | st.text(max_size=20), max_size=5))
def test_whatever_a_file_holds_is_taken_or_refused_in_words(lines):
    try:
        suite = parse("\n".join(lines), "some")
    except UsageProblem as problem:
        assert "some" in problem.message and problem.hint
    else:
        assert suite.cases and all(case.task and case.id and all(case.turns) for case in suite.cases)


def test_the_coding_tasks_are_four_of_each_kind_and_edits_give_the_code():
    coding = by_name(Path("coding"))
    assert coding.tasks == ("write", "explain", "edit") and len(coding.cases) == 12
    assert all(len(coding.numbers(task)) == 4 for task in coding.tasks)
    for case in coding.of_tasks(["edit"]).cases:
        code = case.turns[0].partition("```python\n")[2].partition("```")[0]
        assert 20 <= len(code.splitlines()) <= 60 and ast.parse(code)
    with pytest.raises(UsageProblem, match="no question of the task 'song'"):
        coding.of_tasks(["write", "song"])


def test_a_file_is_taken_before_a_suite_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert by_name(Path("coding")) is not None and by_name(Path("other")) is None
    Path("coding").write_text("{}")
    assert by_name(Path("coding")) is None


def test_ours_is_a_suite_of_several_tasks():
    suite = shipped()
    assert len(suite.tasks) >= 6 and all(len(suite.limited(99).numbers(task)) >= 2 for task in suite.tasks)
    assert len({turn for case in suite.cases for turn in case.turns}) == len(suite.places)
    assert SHIPPED.read_text("utf-8").isascii() and any(len(case.turns) > 1 for case in suite.cases)
