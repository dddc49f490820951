"""Traces on disk: round trips, and files that are damaged, cut off, newer, or something else."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from typing import Any, Literal, Union

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.answer import Answer
from engines.errors import RunFailed, UsageProblem
from engines.events import Event, Failed, Finished, Loading, from_json, to_json
from engines.request import Request
from spec_tui.session.trace import Trace, TraceWriter, encode, read_trace
from tests.session import fake_runtime

SCALARS = {
    str: st.text(max_size=8),
    int: st.integers(-(2**63), 2**63),
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    Any: st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
}


def some(hint: Any) -> st.SearchStrategy:
    """Values of a type as the events use it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in SCALARS:
        return SCALARS[hint]
    if hint is type(None):
        return st.none()
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(some, arguments))
    if origin is dict:
        return st.dictionaries(some(arguments[0]), some(arguments[1]), max_size=3)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(some(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(some, arguments))
    hints = typing.get_type_hints(hint)
    return st.builds(hint, **{field.name: some(hints[field.name]) for field in dataclasses.fields(hint)})


EVENTS = st.one_of(*map(some, typing.get_args(Event)))


@given(EVENTS)
@settings(deadline=None)
def test_every_event_survives_json(event):
    line = to_json(event)
    assert "\n" not in line and from_json(line) == event
    assert from_json(encode(event)) == event


@given(st.characters(categories=["Cs"]))
def test_lone_surrogates_survive(character):
    event = Loading(f"a{character}b")
    assert from_json(encode(event)) == event


def a_run(tmp_path, prompt="hello"):
    """Some events, and the file they were written to."""
    decoder = fake_runtime.load(progress=lambda event: None)
    events = list(decoder.run(Request((("user", prompt),), max_new_tokens=4)))
    with TraceWriter(tmp_path / "t.jsonl") as writer:
        for event in events:
            writer.write(event)
    return events, tmp_path / "t.jsonl"


def test_written_and_read(tmp_path):
    events, path = a_run(tmp_path, "hostile")
    assert read_trace(path) == Trace(tuple(events)) and read_trace(path).complete
    assert path.read_bytes().count(b"\n") == len(events)


def test_every_prefix_is_readable(tmp_path):
    events, path = a_run(tmp_path)
    data = path.read_bytes()
    first = data.index(b"\n") + 1
    for end in range(first, len(data), 97):
        path.write_bytes(data[:end])
        read = read_trace(path)
        whole = data[:end].count(b"\n")
        assert list(read.events[:whole]) == events[:whole]
        if data[end - 1 : end] != b"\n":
            assert f"line {whole + 1} is cut off" in read.problems[0]
        assert read.problems[-1] == "the end of the run is missing" and not read.complete


def test_a_run_without_a_newline_at_the_end_is_whole(tmp_path):
    events, path = a_run(tmp_path)
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert read_trace(path) == Trace(tuple(events))


DAMAGE = [
    b"\xff\xfe garbage",
    b"{}",
    b"[]",
    b"42",
    b'{"event":[]}',
    b'{"event":"Warp"}',
    b'{"event":"Finished"}',
    b'{"event":"Finished","reason":"boredom","tokens":[],"text":""}',
    b'{"event":"Finished","reason":"stop","tokens":[null],"text":""}',
    b'{"event":"Finished","reason":"stop","tokens":7,"text":""}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("line", DAMAGE, ids=lambda line: line[:24].decode("latin-1"))
def test_damaged_lines_are_named_and_left_out(tmp_path, line):
    events, path = a_run(tmp_path)
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:2], line, b"", *lines[3:]]) + b"\n")
    read = read_trace(path)
    assert list(read.events) == events[:2] + events[3:]
    assert len(read.problems) == 1 and read.problems[0].startswith("line 3 is not ")


def test_many_problems_are_counted(tmp_path):
    _, path = a_run(tmp_path)
    path.write_bytes(path.read_bytes() + b"?\n" * 100)
    assert len(read_trace(path).problems) == 21 and read_trace(path).problems[-1] == "and 80 more problems"


def test_a_newer_trace_is_read_and_said_to_be_newer(tmp_path):
    events, path = a_run(tmp_path)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    records[0] |= {"schema": 99, "mood": "sunny"}
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    read = read_trace(path)
    assert read.events[1:] == tuple(events[1:]) and read.events[0].engine == "pld"
    assert "newer version" in read.problems[0]


def test_the_start_may_be_missing(tmp_path):
    _, path = a_run(tmp_path)
    path.write_bytes(b"\n".join(path.read_bytes().splitlines()[1:]))
    assert read_trace(path).problems == ("the start of the run is missing",)


@pytest.mark.parametrize("content", [b"", b"dear all\n", b"\x00" * 100, b'{"event":"Warp"}\n'])
def test_files_that_are_no_traces(tmp_path, content):
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(UsageProblem, match="is not a trace"):
        read_trace(path)


def test_files_that_cannot_be_read(tmp_path):
    for path, words in [(tmp_path / "no", "No such file"), (tmp_path, "Is a directory")]:
        with pytest.raises(UsageProblem, match=words):
            read_trace(path)


def test_a_trace_may_be_overwritten_and_nothing_else(tmp_path):
    _, path = a_run(tmp_path)
    TraceWriter(path)
    assert read_trace(path).complete, "nothing is written before the first event"
    (tmp_path / "empty").touch()
    TraceWriter(tmp_path / "empty")
    letter = tmp_path / "letter"
    letter.write_text('{"dear": "all"}\n')
    with pytest.raises(UsageProblem, match="is not a trace, so it is not overwritten"):
        TraceWriter(letter)


def test_a_disk_that_fails_is_a_failed_run(tmp_path):
    folder = tmp_path / "unplugged"
    folder.mkdir()
    writer = TraceWriter(folder / "t.jsonl")
    folder.rmdir()
    with pytest.raises(RunFailed, match="cannot be written"):
        writer.write(Finished("stop", (), ""))


def test_failures_end_a_trace(tmp_path):
    with TraceWriter(tmp_path / "t") as writer:
        writer.write(next(fake_runtime.load(progress=lambda event: None).run(Request((("user", "x"),)))))
        writer.write(Failed("broke", "mend it"))
    assert read_trace(tmp_path / "t").complete


def test_a_trace_may_end_with_an_audit(tmp_path):
    path, runtime = tmp_path / "t.jsonl", fake_runtime.load()
    events = list(runtime.run(Request((("user", "hello"),), max_new_tokens=3)))
    found = runtime.audit(Answer.from_events(events))
    with TraceWriter(path) as writer:
        for event in (*events, found):
            writer.write(event)
    read = read_trace(path)
    assert read.complete and not read.problems and read.events[-1] == found
