"""Suffix decoding: its drafts against tries that are built, and the past answers that it keeps."""

from __future__ import annotations

import os
from collections import defaultdict
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines import UsageProblem, folders
from engines.core.outcome import DraftLimits
from engines.core.tree import DraftTree
from engines.methods.drafter import Resources
from engines.methods.shared import past_answers
from engines.methods.shared.counted_text import CountedText
from engines.methods.shared.past_answers import PastAnswers
from engines.methods.suffix import SPEC
from engines.methods.suffix.drafter import Suffix
from tests.engines.test_rest import paths_of
from tests.engines.toys import outcome

ROOM = DraftLimits(100, 500)
TEXTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=30), min_size=1, max_size=4)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))
    monkeypatch.delenv(folders.HISTORY_SETTING, raising=False)


def counted(texts) -> CountedText:
    found = CountedText()
    for text in texts:
        found.extend(text)
        found.begin()
    return found


def followed(texts, suffix) -> dict[tuple, int]:
    """The trie below a suffix: by path, how often it follows."""
    counts: dict[tuple, int] = defaultdict(int)
    for text in texts:
        for end in range(len(suffix), len(text)):
            if list(text[end - len(suffix) : end]) == list(suffix):
                for stop in range(end + 1, len(text) + 1):
                    counts[tuple(text[end:stop])] += 1
    return counts


@settings(max_examples=150)
@given(TEXTS, st.lists(st.integers(0, 2), min_size=1, max_size=8), st.integers(1, 40), st.sampled_from([0, 0.1, 0.4]))
def test_what_followed_is_counted_as_in_a_trie(texts, context, nodes, least):
    text = counted(texts)
    longest = max((n for n in range(1, len(context) + 1) if followed(texts, context[-n:])), default=0)
    falling = list(text.suffixes(context, 64))
    assert [match for match, _ in falling][:1] == [longest] * bool(longest)
    assert [match for match, _ in falling] == sorted({match for match, _ in falling}, reverse=True)
    for match, places in falling:
        counts = followed(texts, context[-match:])
        assert len(places) == sum(n for path, n in counts.items() if len(path) == 1)
        found = text.after(match, places, nodes, least, chain=False)
        tree = DraftTree(tokens=found.tokens, parents=found.parents, probs=found.shares, origin=[0] * len(found.tokens))
        tree.check(3)
        going = {path: sum(n for other, n in counts.items() if other[:-1] == path) for path in {p[:-1] for p in counts}}
        reach = {(): 1.0}
        for path in sorted(counts, key=len):
            reach[path] = reach[path[:-1]] * counts[path] / going[path[:-1]]
        for path, share in zip(paths_of(tree), found.reach):
            assert share == pytest.approx(reach[path]) and share >= least
        every = sorted((value for path, value in reach.items() if path), reverse=True)
        fewest, most = (sum(value >= least * (1 + rounding) for value in every) for rounding in (1e-9, -1e-9))
        assert min(nodes, fewest) <= len(found.reach) <= min(nodes, most)
        assert sorted(found.reach, reverse=True) == pytest.approx(every[: len(found.reach)])  # the most probable nodes
        chain = text.after(match, places, nodes, least, chain=True)
        assert chain.parents == list(range(-1, len(chain.tokens) - 1))
        for depth in range(len(chain.tokens)):
            above = tuple(chain.tokens[:depth])
            assert counts[tuple(chain.tokens[: depth + 1])] == max(n for p, n in counts.items() if p[:-1] == above)


def test_many_occurrences_are_narrowed_as_few_are():
    texts = [[1, 2, 3], [4, 2, 3]] * 60 + [[9, 1, 2, 5]]
    found = list(counted(texts).suffixes([9, 1, 2], 64))
    assert [(match, len(places)) for match, places in found] == [(3, 1), (2, 61), (1, 121)]
    assert counted(texts).after(1, found[-1][1], 9, 0, chain=False).reach == pytest.approx([120 / 121, 1 / 121])


def drafter(memory=None, keeps=True, **options) -> Suffix:
    resources = Resources(
        law=None, vocab_size=50, target=SimpleNamespace(fingerprint="of the weights"), keeps=keeps,
        memory={} if memory is None else memory,
    )
    return Suffix(resources, **SPEC.parse({"budget": "paper", **options}))


def ask(context, memory=None, answer=(), **options) -> DraftTree:
    """The draft after a prompt; ``answer`` is given to it then, and ends."""
    one = drafter(memory, **options)
    prompt = list(context)
    one.start(outcome(prompt, len(prompt) - 1, DraftTree(), (), (prompt[-1],)))
    tree = one.propose(prompt, ROOM)
    if answer:
        done = outcome([*prompt, *answer], len(prompt) - 1, tree, (), answer)
        done.reason = "stop"
        one.learn(done)
    return tree


def test_a_draft_is_as_large_as_the_match_is_long_and_the_best_score_wins():
    tree = ask([1, 2, 3, 9, 8, 7, 6, 5, 1, 2, 3], shape="chain")
    assert tree.tokens == [9, 8, 7] and tree.note.match == 3 and tree.note.score == 3
    assert ask([1, 2, 3, 9, 8, 7, 6, 5, 1, 2, 3], factor=2).tokens == [9, 8, 7, 6, 5, 1]
    # three tokens match once, one token three times: the shorter match would draft one token
    assert ask([5, 1, 2, 3, 9, 3, 8, 3, 8, 1, 2, 3]).note.match == 3
    assert not len(ask([1, 2]).tokens)


def test_past_answers_are_drafted_from_in_the_next_run_and_by_the_next_process():
    assert ask([1, 2, 3], answer=[4, 5, 6, 7, 8]).note.answers == 0
    for memory in ({}, {}):
        tree = ask([9, 4, 5, 6], memory)
        assert tree.tokens == [7, 8] and {o.source for o in tree.origins} == {"history"} and tree.note.answers == 1
    assert not len(ask([9, 4, 5, 6], history=0).tokens)
    assert not len(ask([9, 4, 5, 6], keeps=False, answer=[1]).tokens)  # a measurement: it keeps nothing either
    assert past_answers.kept().answers == 1


def test_an_answer_that_is_continued_is_kept_once():
    one = drafter()
    for begun, new in ([1, 2, 3], 4), ([1, 2, 3, 4], 5):  # the second goes on with 4
        one.start(outcome(begun, 2, DraftTree(), (), begun[-1:]))
        done = outcome([*begun, new], 2, DraftTree(), (), (new,))
        done.reason = "length"
        one.learn(done)
    assert [list(answer) for answer in PastAnswers("of the weights", 50).news()[1]] == [[3, 4], [4, 5]]


def test_what_is_forgotten_is_not_drafted_again_by_a_process_that_runs(monkeypatch):
    memory = {}
    ask([1, 2, 3], memory, answer=[4, 5, 6, 7, 8])
    assert len(ask([9, 4, 5, 6], memory).tokens)
    past_answers.forget()
    assert not len(ask([9, 4, 5, 6], memory).tokens) and past_answers.kept().size == 0
    monkeypatch.setenv(folders.HISTORY_SETTING, "off")
    ask([1, 2, 3], memory, answer=[4, 5, 6, 7, 8])
    assert past_answers.kept().size == 0


def test_answers_kept_after_forgetting_are_the_only_ones_though_the_system_reuses_the_file():
    answers = PastAnswers("x", 50)
    answers.add([1, 2, 3])
    answers.add([4, 5, 6])
    assert [list(a) for a in answers.news()[1]] == [[1, 2, 3], [4, 5, 6]]
    os.truncate(answers.file, 0)  # as a new file that gets the number of the removed one
    answers.add([1, 2, 3])  # the same prompt was asked again
    answers.add([7, 8, 9])
    fresh, found = answers.news()
    assert fresh and [list(a) for a in found] == [[1, 2, 3], [7, 8, 9]]


def test_only_the_user_can_read_them():
    ask([1, 2, 3], answer=[4])
    (file,) = past_answers.folder().iterdir()
    assert os.name != "posix" or (file.stat().st_mode & 0o077, file.parent.stat().st_mode & 0o077) == (0, 0)


def test_processes_that_append_and_one_that_was_killed_leave_the_rest_readable():
    first, second = PastAnswers("x", 50), PastAnswers("x", 50)
    first.add([1, 2, 3])
    assert [list(a) for a in second.news()[1]] == [[1, 2, 3]]
    killed = PastAnswers("y", 50)
    killed.add([4] * 9)
    with open(first.file, "ab") as file:
        file.write(killed.file.read_bytes()[:-5])  # killed while it wrote
    first.add([5, 6])
    assert second.news()[0] is False and [list(a) for a in first.news()[1]] == [[1, 2, 3], [5, 6]]
    second.add([7])
    assert [list(a) for a in second.news()[1]] == [[7]]


@settings(max_examples=100)
@given(st.data())
def test_damage_loses_answers_and_breaks_nothing(data):
    kept = PastAnswers("damaged", 50)
    kept.file.unlink(missing_ok=True)
    answers = [[1, 2, 3], [4, 5], [6] * 20]
    for answer in answers:
        kept.add(answer)
    content = bytearray(kept.file.read_bytes())
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=12))
    kept.file.write_bytes(content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content)
    found = [list(answer) for answer in PastAnswers("damaged", 50).news()[1]]
    assert all(answer in answers for answer in found)
    kept.add([9, 9])
    assert [9, 9] in [list(answer) for answer in PastAnswers("damaged", 50).news()[1]] and past_answers.kept().models


def test_tokens_of_another_vocabulary_and_what_is_no_file_are_left_out(tmp_path):
    kept = PastAnswers("x", 50)
    kept.add([49])
    kept.add([50])
    assert [list(a) for a in kept.news()[1]] == [[49]]
    kept.file.unlink()
    kept.file.mkdir()
    kept.add([1])
    assert kept.news() == (True, []) and kept.news() == (False, [])


def test_they_are_bounded(monkeypatch):
    monkeypatch.setattr(past_answers, "MOST_TOKENS", 40)
    monkeypatch.setattr(past_answers, "_LARGEST", 8 * 40)
    kept = PastAnswers("x", 2000)
    for number in range(100):
        kept.add([number] * 10)
    assert kept.file.stat().st_size <= 8 * 40 and len(kept.news()[1]) <= 4
    assert list(PastAnswers("x", 2000).news()[1][-1]) == [99] * 10
    memory = {}
    for number in range(30):
        ask([number], memory, answer=[number + 1], history=3)
    assert ask([7], memory, history=3).note.answers <= 7


def test_a_folder_that_cannot_be_written_keeps_nothing(monkeypatch):
    monkeypatch.setattr(os, "open", refused)
    assert ask([1, 2, 3], answer=[4, 5]).note.answers == 0


def refused(*_, **__):
    raise PermissionError(13, "no")


def test_what_the_disk_does_not_remove_is_said(monkeypatch):
    PastAnswers("x", 50).add([1])
    monkeypatch.setattr("pathlib.Path.unlink", refused)
    with pytest.raises(UsageProblem, match="cannot be removed"):
        past_answers.forget()
