"""Traces on disk: round trips, and files that are damaged, cut off, newer, or something else."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from codecs import BOM_UTF8
from typing import Any, Literal, Union

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.core.outcome import Reason
from engines.errors import RunFailed, UsageProblem
from engines.report.answer import Answer
from engines.report.events import Failed, Finding, Finished, Kind, Known, Loading
from engines.report.run_state import best_path, fold_all, ghosts, rate_now, rates
from engines.report.traces import Trace, TraceWriter, trace_line
from engines.request import Request
from engines.wire import Event, from_json, read_trace, to_json
from spec_tui.present.step.explain import explain
from spec_tui.present.step.phases import StepPosition, phases_of
from spec_tui.session.sample_traces import trace_path
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
def test_every_event_survives_json(event):
    line = to_json(event)
    assert b"\n" not in line and from_json(line) == event
    assert from_json(trace_line(event)) == event


@given(st.characters(categories=["Cs"]))
def test_lone_surrogates_survive(character):
    event = Loading(f"a{character}b")
    assert from_json(trace_line(event)) == event


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
    assert path.read_bytes().count(b"\n") == len(events) + 1


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
            assert f"line {whole + 1} is cut off" in read.problems[0] or read.complete
        assert read.problems
        assert ("the end of the run is missing" in read.problems[-1]) != read.complete


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
    b'{"event":"Finished","reason":"stop","tokens":[],"text":"","more":' + b"[" * 200_000,
]


@pytest.mark.parametrize("line", DAMAGE, ids=lambda line: line[:24].decode("latin-1"))
def test_damaged_lines_are_named_and_left_out(tmp_path, line):
    events, path = a_run(tmp_path)
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:2], line, b"", *lines[3:]]) + b"\n")
    read = read_trace(path)
    assert list(read.events) == events[:2] + events[3:]
    assert read.problems[0].startswith("line 3 is not ") and len(read.problems) == 3
    assert "is round 2, and what comes between it and round 0 is missing" in read.problems[1]
    assert "the checksum does not match, so the file was damaged or changed" in read.problems[2]
    assert read.problems[2].endswith(f": it should have {len(lines) - 1} lines, and has {len(lines)}")


def test_many_problems_are_counted(tmp_path):
    _, path = a_run(tmp_path)
    path.write_bytes(path.read_bytes() + b"?\n" * 100)
    problems = read_trace(path).problems
    assert len(problems) == 22 and problems[20] == "and 80 more problems" and "no checksum" in problems[21]


def test_one_behind_the_other_is_a_trace_of_two_runs(tmp_path):
    events, path = a_run(tmp_path)
    path.write_bytes(path.read_bytes() * 2)
    read = read_trace(path)
    assert read.runs == (tuple(events),) * 2 and not read.problems


def test_line_ends_of_another_system_do_not_matter(tmp_path):
    events, path = a_run(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert read_trace(path) == Trace(tuple(events))


def test_no_folder_of_this_machine_is_in_a_trace(tmp_path):
    started = next(fake_runtime.load(progress=print).run(Request((("user", "x"),))))
    with TraceWriter(str(tmp_path / "t")) as writer:
        writer.write(dataclasses.replace(started, model="/home/me/models/big", draft_model="C:\\me\\models\\small"))
    (read,) = read_trace(tmp_path / "t").events
    assert (read.model, read.draft_model) == ("models/big", "models/small")


def whole(trace: Trace) -> None:
    """All that is made of events can be made of these."""
    for run in trace.runs:
        state = fold_all(run)
        assert json.dumps(state.metrics.stats()) and len(rates(state, 20)) in (0, 20) and state.text is not None
        rate_now(state), ghosts(state)
        for index in range(len(state.rounds)):
            number = index + 1
            assert all(explain(state, StepPosition(number, phase), True).title for phase in phases_of(state, number))
            assert state.tokens_of(index) is not None and best_path(state.rounds[index].draft) is not None
        audited = state.audited
        assert audited is None or (audited.words and len(audited.gaps) == len(state.tokens))


@pytest.fixture(scope="module")
def recorded(tiny, tmp_path_factory):
    """A trace of a real run, tree, retrieval, random draws and audit in it."""
    path = tmp_path_factory.mktemp("trace") / "t.jsonl"
    options = {"retrieval": "pld"}
    request = Request((("user", "abab"),), "rasd", options, "rejection", 0.9, max_new_tokens=8, detail=True)
    events = list(tiny.run(request))
    with TraceWriter(path) as writer:
        for event in (*events, tiny.audit(Answer.from_events(events))):
            writer.write(event)
    assert not read_trace(path).problems
    return path.read_bytes()


def damaged(tmp_path, data: bytes) -> Trace | None:
    path = tmp_path / "damaged"
    path.write_bytes(data)
    try:
        return read_trace(path)
    except UsageProblem:
        return None


@given(data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_cut_off_at_any_byte(tmp_path, recorded, data):
    end = data.draw(st.integers(0, len(recorded) - 2))
    read = damaged(tmp_path, recorded[:end])
    assert read is None or read.problems
    if read is not None:
        whole(read)


@given(data=st.data())
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_changed_bytes_are_noticed_and_break_nothing(tmp_path, recorded, data):
    changed = bytearray(recorded)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(recorded) - 2))
        changed[at] = data.draw(st.sampled_from(list(b'0123456789-e."\\,[]{}x\n\x00\xff')))
    read = damaged(tmp_path, bytes(changed))
    assert bytes(changed) == recorded or read is None or read.problems
    if read is not None:
        whole(read)


def test_a_byte_order_mark_changes_nothing(tmp_path, recorded):
    path = tmp_path / "t.jsonl"
    path.write_bytes((BOM_UTF8 + recorded) * 2)  # two files behind one another
    trace = read_trace(path)
    assert not trace.problems and len(trace.runs) == 2
    with TraceWriter(path) as writer:  # it is a trace, so it may be overwritten
        writer.write(trace.events[0])
    assert read_trace(path).events == trace.events[:1]


def test_a_changed_count_in_the_checksum_line_is_noticed(tmp_path, recorded):
    body, _, seal = recorded[:-1].rpartition(b"\n")
    changed = seal.replace(b'"lines":', b'"lines":9')
    read = damaged(tmp_path, body + b"\n" + changed + b"\n")
    assert changed != seal and read is not None and read.problems


NUMBERS = [-2, -1, 0, 1, 3, 10**6, 10**400, -1e300, 1e300, None, float("inf"), True, "x", [], {}]
WORDS = {"known": Known, "kind": Kind, "reason": Reason, "verdict": Finding}  # by field: which it may say


@given(data=st.data())
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_stands_in_a_field_breaks_nothing(tmp_path, recorded, data):
    """Well-formed lines that say what cannot be: as a newer version or a liar would write them."""
    lines = data.draw(st.sampled_from([recorded, trace_path("admg").read_bytes()])).splitlines()
    number = data.draw(st.integers(0, len(lines) - 2))
    record = json.loads(lines[number])
    spot = record
    while isinstance(spot, (dict, list)) and spot:
        holder, key = spot, data.draw(st.sampled_from(sorted(spot) if isinstance(spot, dict) else range(len(spot))))
        spot = holder[key]
    others = st.sampled_from(NUMBERS)
    holder[key] = data.draw(others | st.sampled_from(typing.get_args(WORDS[key])) if key in WORDS else others)
    lines[number] = json.dumps(record).encode()
    read = damaged(tmp_path, b"\n".join(lines) + b"\n")
    assert read is not None and read.problems
    whole(read)


@pytest.mark.parametrize("known", ["accepted", "text"])
def test_a_round_that_says_less_than_the_others_leaves_the_break_even_unknown(tmp_path, known):
    lines = trace_path("draft").read_bytes().splitlines()
    number = len(lines) // 2
    lines[number] = json.dumps(json.loads(lines[number]) | {"known": known}).encode()
    read = damaged(tmp_path, b"\n".join(lines) + b"\n")
    whole(read)
    stats = fold_all(read.runs[0]).metrics.stats()
    assert stats["break_even_length"] is stats["drafted"] is None
    assert (stats["accepted"] is None) == (known == "text")


def test_a_match_that_cannot_be_is_refused(tmp_path, recorded):
    """Screens count matches by length: one of 2**60 tokens kept them busy for good."""
    lines = [json.loads(line) for line in recorded.splitlines()]
    for line in lines:
        if line.get("retrieval"):
            line["retrieval"]["match"] = 1 << 60
    trace = damaged(tmp_path, b"\n".join(json.dumps(line).encode() for line in lines))
    assert trace and any("an impossible lookup" in problem for problem in trace.problems)


def test_a_newer_trace_is_read_and_said_to_be_newer(tmp_path):
    events, path = a_run(tmp_path)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    records[0] |= {"schema": 99, "mood": "sunny"}
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    read = read_trace(path)
    assert read.events[1:] == tuple(events[1:]) and read.events[0].engine == "pld"
    assert "newer version" in read.problems[1] and "checksum does not match" in read.problems[0]


def test_the_start_may_be_missing(tmp_path):
    _, path = a_run(tmp_path)
    path.write_bytes(b"\n".join(path.read_bytes().splitlines()[1:]))
    assert "the start of the run is missing" in read_trace(path).problems[-1]


@pytest.mark.parametrize("content", [b"", b"dear all\n", b"\x00" * 100, b'{"event":"Warp"}\n'])
def test_files_that_are_no_traces(tmp_path, content):
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(UsageProblem, match="is not a trace"):
        read_trace(path)


def test_files_that_cannot_be_read(tmp_path):
    for path, words in [(tmp_path / "no", "No such file"), (tmp_path, "is a folder")]:
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
    with pytest.raises(RunFailed, match="cannot be written") as caught:
        writer.write(Finished("stop", (), ""))
    assert caught.value.hint == "name another file", "there is room"


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
