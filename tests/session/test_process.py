"""The engine process, with a decoder that needs no model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from engines.errors import UsageProblem
from engines.report.answer import Answer
from engines.report.events import (
    Audited,
    Auditing,
    Failed,
    Finished,
    Loading,
    Prefilled,
    Prefilling,
    Ready,
    Round,
    Started,
)
from engines.request import Request
from spec_tui.session import process
from spec_tui.session.engine_commands import Audit, Load, LoadRequest, Run, read_event
from spec_tui.session.process import ProcessClient
from tests.session import fake_runtime
from tests.session.inprocess import InProcessClient

FACTORY = "tests.session.fake_runtime:load"


def ask(prompt: str, **more) -> Request:
    return Request(conversation=(("user", prompt),), **more)


def load(client, request: LoadRequest) -> int:
    return client.submit(Load(request))


def run(client, request: Request) -> int:
    return client.submit(Run(request))


def audit(client, answer: Answer) -> int:
    return client.submit(Audit(answer))


def said(client) -> list:
    return [event for _, event in client.events()]


def until(client, kind, timeout: float = 20.0) -> list:
    """Everything that arrives up to the first event of this kind."""
    seen, deadline = [], time.monotonic() + timeout
    while not any(isinstance(event, kind) for event in seen):
        assert time.monotonic() < deadline, f"no {kind} among {seen[-5:]}"
        seen += said(client)
        time.sleep(0.002)
    return seen


def gone(pid: int, timeout: float = 10.0) -> bool:
    """Whether the process ends within the time; a zombie has ended."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat") as stat:
                if stat.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except OSError:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return True
        time.sleep(0.01)
    return False


@pytest.fixture
def client():
    client = ProcessClient(FACTORY)
    yield client
    client.close()


@pytest.fixture(params=["process", "thread"])
def either(request):
    client = ProcessClient(FACTORY) if request.param == "process" else InProcessClient(fake_runtime.load)
    yield client
    client.close()


def test_events_arrive_in_order(either):
    load(either, LoadRequest(model="some"))
    run(either, ask("hello", max_new_tokens=5))
    seen = until(either, Finished)
    kinds = [type(event) for event in seen]
    assert kinds == [Loading, Ready, Started, Prefilled, Round, Round, Round, Round, Finished]
    assert [event.index for event in seen if isinstance(event, Round)] == [1, 2, 3, 4]
    assert seen[1].model == "some"
    text = seen[3].first.text + "".join(e.text for r in seen[4:8] for e in r.emitted)
    assert text == seen[-1].text


def test_cancel_stops_a_run_and_the_engine_stays(either):
    load(either, LoadRequest())
    job = run(either, ask("endless"))
    until(either, Round)
    either.cancel(job)
    assert until(either, Finished)[-1].reason == "cancelled"
    run(either, ask("again", max_new_tokens=2))
    assert until(either, Finished)[-1].reason == "length"


def test_a_cancel_right_behind_the_request_is_not_lost(either):
    load(either, LoadRequest())
    either.cancel(run(either, ask("endless")))
    seen = until(either, Finished)
    assert seen[-1].reason == "cancelled"
    assert any(isinstance(event, Ready) for event in seen), "the loading must not have been stopped with it"


def test_events_carry_the_id_of_their_job_and_one_job_is_cancelled(either):
    jobs = [load(either, LoadRequest()), run(either, ask("endless")), run(either, ask("hello", max_new_tokens=2))]
    seen = []
    while not any(job == jobs[1] for job, _ in seen):
        seen += either.events()
    either.cancel(jobs[2])
    either.cancel(jobs[1])
    either.cancel(jobs[0])  # over: nothing happens
    while sum(isinstance(event, Finished) for _, event in seen) < 2:
        seen += either.events()
    assert [(job, event.reason) for job, event in seen if isinstance(event, Finished)] == [
        (jobs[1], "cancelled"), (jobs[2], "cancelled")]
    assert [job for job, event in seen if isinstance(event, Started)] == jobs[1:]
    assert [job for job, event in seen if isinstance(event, Ready)] == jobs[:1] and len(set(jobs)) == 3


def test_a_long_prompt_is_told_of_while_it_is_read(either):
    load(either, LoadRequest())
    run(either, ask("long", max_new_tokens=3))
    seen = until(either, Finished)
    parts = [(e.done, e.total, e.seconds_left) for e in seen if isinstance(e, Prefilling)]
    assert parts == [(0, 3000, None), (1000, 3000, 1.0), (2000, 3000, 1.0)]
    kinds = [type(event) for event in seen]
    assert kinds.index(Started) < kinds.index(Prefilling) < kinds.index(Prefilled)


def written(*tokens: int, model: str = "fake", **more) -> Answer:
    return Answer(model, "float32", (1, 2, 3), tokens, **more)


def test_an_answer_is_audited(either):
    audit(either, written(7))
    assert until(either, Failed)[-1].kind == "model"
    load(either, LoadRequest())
    run(either, ask("hello", max_new_tokens=3))
    audit(either, written(7, 9, 12, model="tie", probs=(0.5, 0.25, 1.0)))
    seen = until(either, Audited)
    kinds = [type(event) for event in seen]
    assert kinds.index(Finished) < kinds.index(Auditing) < kinds.index(Audited) == len(kinds) - 1
    assert (seen[-1].words, seen[-1].gaps) == ("tie at 3 (gap 0.001)", (0.0, 0.0, 0.001))
    audit(either, written(1, model="broken"))
    assert until(either, Failed)[-1].message == "the audit broke"
    run(either, ask("hello", max_new_tokens=3))
    until(either, Finished)


def test_cancel_stops_an_audit_and_the_engine_stays(either):
    load(either, LoadRequest())
    job = audit(either, written(1, model="endless"))
    until(either, Auditing)
    either.cancel(job)
    assert until(either, Failed)[-1].kind == "cancelled"
    audit(either, written(1))
    assert until(either, Audited)[-1].verdict == "identical"


def test_an_audit_that_loads_a_model_first_tells_how_far_it_is_and_can_be_stopped(either):
    load(either, LoadRequest())
    until(either, Ready)
    job = audit(either, written(1, model="unloaded"))
    while not (told := either.events()):
        time.sleep(0.002)
    assert (told[0][0], type(told[0][1])) == (job, Loading)
    either.cancel(job)
    assert until(either, Failed)[-1].kind == "cancelled"
    audit(either, written(1))
    assert until(either, Audited)[-1].verdict == "identical"


def test_another_draft_model_does_not_load_the_target_again(either):
    load(either, LoadRequest(model="fake"))
    until(either, Ready)
    for request, stage in (
        (LoadRequest(model="fake", draft_model="small"), "reading the draft model"),
        (LoadRequest(model="fake"), "reading the fake"),  # the one that is taken by itself: all is looked at again
        (LoadRequest(model="other", draft_model="small"), "reading the fake"),
        (LoadRequest(model="other", draft_model="small", dtype="bfloat16"), "reading the fake"),
    ):
        load(either, request)
        first, *_, ready = until(either, Ready)
        assert first.stage == stage and (ready.model, ready.draft_model) == (
            request.model, request.draft_model if stage != "reading the fake" else None)


def test_cancel_stops_loading(either):
    job = load(either, LoadRequest(model="endless"))
    until(either, Loading)
    either.cancel(job)
    assert until(either, Failed)[-1].kind == "cancelled"
    load(either, LoadRequest())
    until(either, Ready)


def test_loading_that_tells_of_nothing_is_stopped_at_once(client):
    job = load(client, LoadRequest(model="silent"))
    until(client, Loading)
    before, clock = client.pid, time.monotonic()
    client.cancel(job, at_once=True)
    (failed,) = said(client)
    assert time.monotonic() - clock < 2 and (failed.kind, client.alive) == ("cancelled", True)
    assert client.pid != before and gone(before)
    load(client, LoadRequest(model="fake"))
    assert until(client, Ready)[-1].model == "fake"


def test_what_a_stopped_engine_said_last_does_not_come_from_the_next(client, monkeypatch):
    begun, stopped = threading.Event(), threading.Event()

    def slow(line):
        event = read_event(line)
        if isinstance(event[1], Ready) and not begun.is_set():
            begun.set()
            stopped.wait(20)
        return event

    monkeypatch.setattr(process, "read_event", slow)
    job = load(client, LoadRequest(model="first"))
    assert begun.wait(20)
    reader = client._child._threads[0]
    client.cancel(job, at_once=True)
    stopped.set()
    reader.join(20)
    assert [type(event) for event in said(client)] == [Failed]


def test_failures_are_events_and_the_engine_stays(either):
    run(either, ask("too early"))
    assert until(either, Failed)[-1].kind == "model"
    load(either, LoadRequest(model="missing"))
    failed = until(either, Failed)[-1]
    assert (failed.kind, failed.message) == ("model", "there is no model 'missing'")
    load(either, LoadRequest())
    until(either, Ready)
    for prompt, kind in [("refuse", "usage"), ("breakdown", "failed"), ("bug", "bug")]:
        run(either, ask(prompt))
        assert until(either, Failed)[-1].kind == kind
    assert either.alive


def test_close_ends_a_run_and_leaves_nothing(either):
    load(either, LoadRequest())
    run(either, ask("endless"))
    until(either, Round)
    threads = threading.active_count()
    either.close()
    assert not either.alive
    assert threading.active_count() < threads
    run(either, ask("too late"))
    assert isinstance(said(either)[-1], Failed)


def test_close_lets_what_is_under_way_remove_its_files(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    client = ProcessClient(FACTORY)
    load(client, LoadRequest(model="compiling"))
    until(client, Loading)
    while not [*tmp_path.iterdir()]:
        time.sleep(0.01)
    client.close()
    assert not [*tmp_path.iterdir()]


def test_starting_does_not_wait_for_the_engine():
    begun = time.monotonic()
    client = ProcessClient(FACTORY)
    load(client, LoadRequest(model="endless"))
    client.cancel(run(client, ask("x" * 5_000_000)))  # more than the pipe holds
    assert client.events() is not None
    assert time.monotonic() - begun < 0.5
    client.close()


@pytest.mark.parametrize("how", ["kill", "suicide"])
def test_a_killed_engine_is_one_failure(client, how):
    load(client, LoadRequest(model="some"))
    until(client, Ready)
    run(client, ask("suicide" if how == "suicide" else "endless"))
    if how == "kill":
        until(client, Round)
        os.kill(client.pid, signal.SIGKILL)
    failed = [event for event in until(client, Failed) if isinstance(event, Failed)]
    assert [event.kind for event in failed] == ["crashed"]
    assert "SIGKILL" in failed[0].message and failed[0].hint
    deadline = time.monotonic() + 5
    while client.alive and time.monotonic() < deadline:
        time.sleep(0.002)
    assert not client.alive and client.events() == []


def test_a_restart_is_another_engine(client):
    load(client, LoadRequest(model="some"))
    until(client, Ready)
    old = client.pid
    os.kill(old, signal.SIGKILL)
    until(client, Failed)
    client.restart()
    load(client, LoadRequest(model="other"))
    seen = until(client, Ready)
    assert seen[-1].model == "other" and client.alive and client.pid != old
    run(client, ask("hello", max_new_tokens=2))
    until(client, Finished)


def test_restart_of_a_busy_engine(client):
    load(client, LoadRequest())
    run(client, ask("endless"))
    until(client, Round)
    old = client.pid
    client.events()
    client.restart()
    assert gone(old)
    load(client, LoadRequest())
    assert not any(isinstance(event, (Round, Failed)) for event in until(client, Ready))


def test_an_engine_that_does_not_listen_is_killed():
    client = ProcessClient(FACTORY, patience=0.2)
    load(client, LoadRequest())
    until(client, Ready)
    pid = client.pid
    os.kill(pid, signal.SIGSTOP)
    client.close()
    assert gone(pid, 2)


def test_what_libraries_print_stays_out_of_the_events_and_off_the_terminal(capfd, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    client = ProcessClient(FACTORY)
    load(client, LoadRequest(model="noisy"))
    assert [type(event) for event in until(client, Ready)] == [Loading, Ready]
    client.close()
    assert capfd.readouterr() == ("", "")
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("engine.log"))
    assert written.split(b"\n")[:3] == [b"noise on stdout", b"noise on stderr", b"noise of a child process"]


def test_an_engine_that_cannot_be_started(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    client = ProcessClient(FACTORY)
    assert not client.alive
    assert said(client)[0].kind == "crashed"
    client.close()


def test_the_engine_dies_with_its_parent(tmp_path):
    program = (
        "import sys, time\n"
        "from spec_tui.session.process import ProcessClient\n"
        "from spec_tui.session.engine_commands import Load, LoadRequest, Run\n"
        "from engines.request import Request\n"
        f"client = ProcessClient({FACTORY!r})\n"
        "client.submit(Load(LoadRequest()))\n"
        "client.submit(Run(Request(conversation=(('user', 'endless'),))))\n"
        "while not any('Round' in repr(e) for e in client.events()): time.sleep(0.01)\n"
        "print(client.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment)
    engine = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone(engine)


def test_the_parent_needs_no_torch_and_keeps_its_environment():
    program = (
        "import os, sys\n"
        "before = dict(os.environ)\n"
        "from spec_tui.session.process import ProcessClient\n"
        f"client = ProcessClient({FACTORY!r}); client.close()\n"
        "assert dict(os.environ) == before\n"
        "assert 'torch' not in sys.modules and 'multiprocessing' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_slow_reader_loses_nothing(client):
    """More events than the pipe and the reading thread's patience hold; the deque takes them."""
    load(client, LoadRequest())
    run(client, ask("hello", max_new_tokens=4000))
    time.sleep(0.3)  # nobody drains meanwhile
    rounds = [event.index for event in until(client, Finished) if isinstance(event, Round)]
    assert rounds == list(range(1, 4000))


def test_what_a_pipe_does_not_hold_comes_whole_wherever_it_was_cut(client):
    load(client, LoadRequest())
    asked = ask("aé漢🙂\n" * 100_000, max_new_tokens=3)
    run(client, asked)
    seen = until(client, Finished)
    assert [event.conversation for event in seen if isinstance(event, Started)] == [asked.conversation]
    assert [event.index for event in seen if isinstance(event, Round)] == [1, 2]


def test_requests_survive_the_trip():
    request = ask("é \ud800 \x1b", engine="pld", options={"k": 3}, temperature=0.5, raw=True)
    seen = []

    class Recorder(fake_runtime.FakeRuntime):
        def run(self, request, cancelled=lambda: False, progress=None):
            seen.append(request)
            raise UsageProblem("enough")

    client = InProcessClient(lambda *_: Recorder(fake_runtime.load().ready))
    load(client, LoadRequest())
    run(client, request)
    until(client, Failed)
    client.close()
    assert seen == [request]


def test_the_engine_process_leaves_a_core_to_the_screen_unless_told_otherwise(client):
    for request, threads in ((LoadRequest(), -1), (LoadRequest(threads=2), 2)):
        load(client, request)
        assert until(client, Ready)[-1].threads == threads


@pytest.mark.parametrize("entry", ["spec_tui.session.worker", "spec_tui.cli"])
def test_a_process_that_ends_removes_its_temporary_folder(entry, tmp_path):
    program = f"from engines import folders; print(folders.temporary_folder().name); from {entry} import main; main()"
    done = subprocess.run([sys.executable, "-c", program, *["--version"] * (entry == "spec_tui.cli")], text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert done.returncode == 0 and str(tmp_path) in done.stdout and not [*tmp_path.iterdir()]
