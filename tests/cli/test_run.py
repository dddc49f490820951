"""``spec-tui run`` with a decoder that needs no model: prompts, formats, errors, interrupts."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import sys

import pytest

from engines.errors import RunFailed, drafting
from engines.progress import Loading, unless
from engines.race.lanes import parse_lane
from engines.report.events import Audited, Failed, Finished, Round, Started
from engines.report.run_state import fold
from engines.wire import read_trace, to_json
from spec_tui.cli import failures, leave
from spec_tui.cli.failures import Interrupt
from spec_tui.cli.status_line import Status
from spec_tui.present.audit_text import STRICT
from spec_tui.session import kept_settings
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.session.log import log_path
from tests.session.fake_runtime import HOSTILE, FakeRuntime

STATS = {
    "new_tokens", "target_forwards", "drafted", "accepted", "acceptance_rate", "path_acceptance",
    "mean_generated_length", "tau", "tokens_per_second", "prefill_seconds", "decode_seconds", "draft_seconds",
    "verify_seconds", "other_seconds", "break_even_length", "bias", "match_lengths",
}  # fmt: skip


class Stdin(io.TextIOWrapper):
    """A stand-in for standard input."""

    def __init__(self, data: bytes, terminal: bool = False) -> None:
        super().__init__(io.BytesIO(data))
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def test_text_is_exact_in_a_pipe_and_numbers_go_to_stderr(cli):
    done = cli("run", "hello", "--max-new-tokens", "3")
    assert (done.code, done.out) == (0, "first t1! t2!")
    assert "pld: 5 tokens, 500.0 tokens/s, cut at the limit\n" in done.err
    assert "2 forward passes of the target, 2.00 tokens per verify step (M)\ndrafted 4, accepted 2 (50%)\n" in done.err
    assert "seconds: prefill 0.010, draft 0.002, verify 0.004, other 0.002\n" in done.err
    assert "\x1b" not in done.out + done.err
    assert cli("run", "hostile", "--max-new-tokens", "2").out == "first" + HOSTILE + "!"


@pytest.mark.parametrize("format", ["text", "json"])
def test_an_engine_that_was_kept_for_the_model_is_named_and_answers(cli, monkeypatch, tmp_path, format):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))
    kept_settings.keep(LoadRequest(model="sample"), parse_lane("pld:min_ngram=3"), "1.4x")
    done = cli("run", "hello", "--model", "sample", "--max-new-tokens", "3", "--format", format)
    assert done.code == 0 and "note: pld min_ngram=3, kept for this model" in done.err
    assert "first" in done.out


def test_a_kept_head_that_is_gone_is_said_to_be_left_out(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))
    kept_settings.keep_head(LoadRequest(model="sample", head="gone"))
    said = cli("run", "hello", "--model", "sample").err
    assert "note: the head gone, which is kept for this model, is left out: it is not here; --head auto forgets" in said
    cli("run", "hello", "--model", "sample", "--head", "auto")
    assert "left out" not in cli("run", "hello", "--model", "sample").err


def test_which_model_answers_where_none_is_named_is_said_on_a_terminal(cli, monkeypatch):
    assert "model get" not in cli("run", "hello").err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert "note: the sample pair, which knows little, answers" in cli("run", "hello").err
    assert "answers" not in cli("run", "hello", "--model", "mine").err


@pytest.mark.parametrize("fails, said", [(True, "the model failed"), (False, "searches no datastore")])
def test_what_is_said_during_a_run_stands_on_a_line_of_its_own(cli, monkeypatch, fails, said):
    run = FakeRuntime.run

    def building(self, request, cancelled=lambda: False, progress=lambda event: None):
        progress(Loading("building the datastore", 0.5))
        if fails:
            raise RunFailed("the model failed", "try another")
        yield from run(self, request, cancelled)

    monkeypatch.setattr(FakeRuntime, "run", building)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    done = cli("run", "hello", "--model", "mine", "--engine", "pld", "--datastore", "notes", "--max-new-tokens", "3")
    shown = done.err.partition("building the datastore 50% ...")[2].partition(said)[0]
    assert shown.startswith("\r\x1b[K") and said in done.err


def test_json_is_one_object(cli):
    sampling = ("--seed", "9", "--temperature", "0.5")
    done = cli("run", "hello", "--max-new-tokens", "3", "--format", "json", *sampling)
    found = json.loads(done.out)
    assert done.code == 0 and done.out.count("\n") == 1
    assert list(found) == [
        "engine", "model", "dtype", "device", "law", "lossless", "temperature", "seed", "prompt_tokens", "tokens",
        "text", "finish_reason", "stats",
    ]  # fmt: skip
    assert set(found["stats"]) == STATS
    assert found["tokens"] == [7, 9, 8, 9, 8] and found["text"] == "first t1! t2!"
    assert (found["engine"], found["law"], found["model"]) == ("pld", "exact", "fake")
    assert (found["temperature"], found["seed"], found["prompt_tokens"]) == (0.5, 9, 3)
    assert found["finish_reason"] == "length" and found["stats"]["target_forwards"] == 2
    assert cli("run", "hostile", "--format", "json").out.isascii()


def test_colours_on_demand_are_safe(cli, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = cli("run", "hello", "--max-new-tokens", "2").out
    assert coloured == "first\x1b[36m t1\x1b[0m\x1b[1;4;33m!\x1b[0m"
    hostile = cli("run", "hostile", "--max-new-tokens", "2").out
    assert not any(mark in hostile for mark in ("\x1b]", "\x1b[31m", "\x07", "\x9b", "\u202e", "\r"))
    monkeypatch.setenv("NO_COLOR", "1")
    assert cli("run", "hello", "--max-new-tokens", "2").out == "first t1\x1b[1;4m!\x1b[0m"


@pytest.mark.parametrize(
    "model, code, words",
    [
        ("fake", 0, "audit: identical: each of its 5 tokens is the target's own choice; its two best scores "
                     "were never closer than 1.5"),
        ("tie", 0, "audit: tie at 5 (gap 0.001): the target's choice there is"),
        ("bug", 1, "audit: BUG at 5: the target's choice there is"),
    ],
)
def test_audit_is_a_line_an_object_and_an_exit_code(cli, tmp_path, model, code, words):
    trace = tmp_path / "t.jsonl"
    ask = ("run", "hello", "--max-new-tokens", "3", "--model", model, "--audit")
    done = cli(*ask, "--trace", str(trace))
    assert (done.code, done.out) == (code, "first t1! t2!")
    *_, line, last = [line for line in done.err.splitlines() if line]
    assert (last == f"note: {STRICT}") == (model == "tie")
    assert (line if model == "tie" else last).startswith(words) and "\x1b" not in done.err and "\u202e" not in done.err
    *_, finished, audited = read_trace(trace).events
    assert isinstance(finished, Finished) and isinstance(audited, Audited) and read_trace(trace).complete
    done = cli(*ask, "--format", "json")
    found = json.loads(done.out)
    assert done.code == code and (found["text"], found["finish_reason"]) == ("first t1! t2!", "length")
    assert found["audit"] | {"event": "Audited"} == json.loads(to_json(audited))


def test_a_lossy_law_is_told_by_the_audit(cli):
    done = cli("run", "hello", "--law", "typical", "--audit", "--model", "bug")
    assert done.code == 0 and "audit: lossy: the target's distribution is changed by design; 1 of " in done.err


def test_an_audit_that_breaks_leaves_the_answer(cli, tmp_path):
    trace = tmp_path / "t.jsonl"
    ask = ("run", "hello", "--max-new-tokens", "3", "--model", "broken", "--audit")
    done = cli(*ask, "--trace", str(trace))
    assert (done.code, done.out) == (1, "first t1! t2!") and "the audit broke" in done.err and "5 tokens" in done.err
    assert isinstance(read_trace(trace).events[-1], Finished)
    done = cli(*ask, "--format", "json")
    found = json.loads(done.out)
    assert done.code == 1 and (found["audit"], found["text"]) == (None, "first t1! t2!")


def test_an_interrupted_audit(cli, monkeypatch):
    from tests.session.fake_runtime import FakeRuntime

    audit = FakeRuntime.audit

    def interrupted(self, answer, cancelled, progress):
        os.kill(os.getpid(), signal.SIGINT)
        return audit(self, answer, cancelled, progress)

    monkeypatch.setattr(FakeRuntime, "audit", interrupted)
    done = cli("run", "hello", "--model", "endless audit", "--max-new-tokens", "3", "--audit")
    assert (done.code, done.out) == (130, "first t1! t2!") and "audit: stopped before the first token" in done.err


def test_an_interrupted_answer_is_not_audited(cli, monkeypatch):
    interrupt_after(monkeypatch, 3)
    done = cli("run", "endless", "--audit", "--format", "json")
    found = json.loads(done.out)
    assert done.code == 130 and found["finish_reason"] == "cancelled" and found["audit"] is None


def test_every_row_is_recorded_in_a_trace_on_request(cli, tmp_path, monkeypatch):
    asked, run = [], FakeRuntime.run
    monkeypatch.setattr(FakeRuntime, "run", lambda *args, **kw: asked.append(args[1]) or run(*args, **kw))
    trace = str(tmp_path / "t.jsonl")
    assert [cli("run", "hello", "--trace", trace, *more).code for more in ([], ["--detail"])] == [0, 0]
    assert [request.detail for request in asked] == [False, True]
    done = cli("run", "hello", "--detail")
    assert done.code == 2 and "--trace FILE" in done.err


def test_prompt_from_a_file(cli, tmp_path):
    file = tmp_path / "prompt.txt"
    file.write_text("as it is\n\n")
    trace = tmp_path / "t.jsonl"
    assert cli("run", "--prompt-file", str(file), "--system", "be kind", "--trace", str(trace)).code == 0
    started = read_trace(trace).events[0]
    assert started.conversation == (("system", "be kind"), ("user", "as it is\n\n"))


@pytest.mark.parametrize("arguments", [[], ["-"], ["--prompt-file", "-"]])
def test_prompt_from_a_pipe(cli, monkeypatch, arguments):
    monkeypatch.setattr(sys, "stdin", Stdin("hällo\n".encode()))
    assert cli("run", *arguments, "--max-new-tokens", "2").out == "first t1!"


def test_no_prompt_on_a_terminal(cli, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Stdin(b"", terminal=True))
    done = cli("run")
    assert done.code == 2 and "there is no prompt" in done.err and 'spec-tui run "PROMPT"' in done.err


@pytest.mark.parametrize(
    "content, words",
    [
        (b"\xff\xfe\x00", "not text in UTF-8"),
        (gzip.compress(b"a prompt", mtime=0), "is compressed"),
        (b"a\0b", "NUL bytes"),
        (b"x" * (9 << 20), "longer than 8 MB"),
        (b" \n", "the prompt is empty"),
    ],
)
def test_files_that_are_no_prompts(cli, tmp_path, content, words):
    file = tmp_path / "prompt"
    file.write_bytes(content)
    done = cli("run", "--prompt-file", str(file))
    assert done.code == 2 and words in done.err


def test_a_prompt_that_is_not_utf8(cli):
    assert "not text in UTF-8" in cli("run", "caf\udce9").err


def test_an_unreadable_terminal_name_cannot_steer_it(cli):
    assert "\x1b" not in cli("run", "--prompt-file", "/no/\x1b]0;x\x07").err


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        (["x", "--prompt-file", "y"], 2, "two prompts"),
        (["--prompt-file", "/nonexistent"], 2, "there is no file"),
        (["--prompt-file", "/"], 2, "is a folder"),
        ([""], 2, "the prompt is empty"),
        (["x", "--engine", "warp"], 2, "engines are: autoregressive, pld"),
        (["x", "--engine", "pld", "--set", "speed=9"], 2, "max_ngram 1..64"),
        (["x", "--engine", "pld", "--set", "num_tokens=0"], 2, "num_tokens takes 1..256"),
        (["x", "--set", "num_tokens"], 2, "is not KEY=VALUE"),
        (["x", "--set", "=1"], 2, "is not KEY=VALUE"),
        (["x", "--temperature", "-1"], 2, "0, or at least"),
        (["x", "--temperature", "nan"], 2, "0, or at least"),
        (["x", "--temperature", "warm"], 2, "--temperature"),
        (["x", "--top-p", "0"], 2, "above 0 and at most 1"),
        (["x", "--top-k", "-1"], 2, "at least 0"),
        (["x", "--max-new-tokens", "0"], 2, "at least 1"),
        (["x", "--seed", "-1"], 2, "seed is at least 0"),
        (["x", "--law", "jungle"], 2, "laws are: exact, rejection"),
        (["x", "--format", "xml"], 2, "--format"),
        (["x", "--frobnicate"], 2, "--frobnicate"),
        (["x", "y"], 2, "extra argument"),
        (["x", "--model", "missing"], 3, "there is no model 'missing'"),
        (["refuse"], 2, "shorten it"),
        (["breakdown"], 1, "the run broke"),
    ],
)
def test_errors_are_sentences_with_a_way_out(cli, arguments, code, words):
    done = cli("run", *arguments)
    assert done.code == code
    assert words in done.err and "Traceback" not in done.err
    assert done.err.count("spec-tui: ") == 1 and "\n  " in done.err, "a way out on a line of its own"


def test_a_broken_run_keeps_its_text(cli, tmp_path):
    trace = tmp_path / "t.jsonl"
    done = cli("run", "breakdown", "--trace", str(trace))
    assert done.out == "first"
    events = read_trace(trace).events
    assert isinstance(events[0], Started) and events[-1] == Failed("the run broke", "try another", "failed")


def test_the_unexpected_is_a_bug_with_its_details_in_a_file(cli):
    done = cli("run", "bug")
    assert done.code == 1 and "this is a bug" in done.err and str(log_path("spec-tui")) in done.err
    assert "Traceback" not in done.err
    assert "surprise" in log_path("spec-tui").read_text()


def test_a_module_that_is_cut_off_is_not_taken_for_ctrl_c(cli, monkeypatch):
    class CutOff:
        @staticmethod
        def find_spec(name, *_):
            if name == "spec_tui.cli.engines":
                raise EOFError("marshal data too short")

    monkeypatch.delitem(sys.modules, "spec_tui.cli.engines", raising=False)
    monkeypatch.setattr(sys, "meta_path", [CutOff, *sys.meta_path])
    done = cli("engines")
    assert done.code == 1 and "marshal data too short" in done.err and "interrupted" not in done.err


def test_trace(cli, tmp_path):
    trace = tmp_path / "t.jsonl"
    assert cli("run", "hello", "--max-new-tokens", "4", "--trace", str(trace)).code == 0
    read = read_trace(trace)
    assert read.complete and not read.problems and len(read.events) == 6
    assert read.events[-1].text == "first t1! t2! t3!"
    assert cli("run", "hello", "--max-new-tokens", "2", "--trace", str(trace)).code == 0
    assert len(read_trace(trace).events) == 4, "a trace may be overwritten"


def test_a_run_that_never_starts_leaves_the_old_trace(cli, tmp_path):
    trace = tmp_path / "t.jsonl"
    cli("run", "hello", "--max-new-tokens", "4", "--trace", str(trace))
    before = trace.read_bytes()
    assert cli("run", "refuse", "--trace", str(trace)).code == 2
    assert cli("run", "x", "--model", "missing", "--trace", str(trace)).code == 3
    assert trace.read_bytes() == before


def test_only_traces_are_overwritten(cli, tmp_path):
    letter = tmp_path / "letter.txt"
    letter.write_text("dear all\n")
    done = cli("run", "hello", "--trace", str(letter))
    assert done.code == 2 and "is not a trace" in done.err and letter.read_text() == "dear all\n"
    assert "is a folder" in cli("run", "hello", "--trace", str(tmp_path)).err
    assert "there is no folder" in cli("run", "hello", "--trace", str(tmp_path / "no" / "t")).err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk(cli):
    done = cli("run", "hello", "--trace", "/dev/full")
    assert done.code == 1 and "No space left" in done.err and done.out == cli("run", "hello").out


def test_a_trace_of_which_nothing_can_be_written_leaves_no_file(cli, tmp_path):
    resource, done = pytest.importorskip("resource"), cli("run", "hello")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        refused = cli("run", "hello", "--trace", str(tmp_path / "t.jsonl"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert refused.code == 1 and refused.out == done.out and "t.jsonl: File too large" in refused.err
    assert not list(tmp_path.iterdir())


def interrupt_after(monkeypatch, rounds: int, times: int = 1) -> None:
    """Ctrl+c, once or twice, when this many rounds were shown."""
    seen = []

    def counting(state, event):
        seen.append(event)
        for _ in range(times if len(seen) == rounds + 2 else 0):
            os.kill(os.getpid(), signal.SIGINT)
        return fold(state, event)

    monkeypatch.setattr("spec_tui.cli.run.fold", counting)


@pytest.mark.parametrize("times", [1, 2])
def test_interrupted_text(cli, monkeypatch, tmp_path, times):
    interrupt_after(monkeypatch, 3, times)
    trace = tmp_path / "t.jsonl"
    done = cli("run", "endless", "--trace", str(trace))
    assert done.code == 130
    assert done.out.startswith("first t1! t2!")
    assert "interrupted" in done.err and "accepted" in done.err
    read = read_trace(trace)
    assert isinstance(read.events[-1], Finished) and read.events[-1].reason == "cancelled"
    assert read.events[-1].text == done.out
    assert len(read.events[-1].tokens) == 1 + 2 * sum(isinstance(event, Round) for event in read.events)


def test_interrupted_json(cli, monkeypatch):
    interrupt_after(monkeypatch, 3)
    done = cli("run", "endless", "--format", "json")
    found = json.loads(done.out)
    assert done.code == 130 and found["finish_reason"] == "cancelled"
    assert found["stats"]["new_tokens"] == len(found["tokens"]) == 1 + 2 * found["stats"]["target_forwards"]


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_while_a_datastore_is_built_for_the_run(cli, monkeypatch, number, code):
    def building(self, request, cancelled=lambda: False, progress=lambda event: None):
        Interrupt.entered.take(number, None)
        unless(cancelled, progress, "the build of the datastore")(Loading("building the datastore"))
        yield

    monkeypatch.setattr(FakeRuntime, "run", building)
    done = cli("run", "hello")
    assert done.code == code and "the build of the datastore was stopped" in done.err


def test_interrupted_while_loading(cli, monkeypatch):
    monkeypatch.setattr(Status, "show", lambda self, event: os.kill(os.getpid(), signal.SIGINT))
    done = cli("run", "hello", "--model", "endless")
    assert (done.code, done.out) == (130, "") and "interrupted" in done.err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_to_end_is_no_failure_of_a_plug_in(cli, monkeypatch):
    def import_slowly():
        with drafting():
            leave(signal.SIGTERM, None)

    monkeypatch.setattr(Status, "show", lambda self, event: import_slowly())
    done = cli("run", "hello", "--model", "endless")
    assert (done.code, done.out) == (143, "") and "the engine failed" not in done.err


def test_a_background_job_leaves_ctrl_c_to_the_foreground(cli, monkeypatch):
    monkeypatch.setattr(Status, "show", lambda self, event: os.kill(os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = cli("run", "hello", "--max-new-tokens", "3")
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert (done.code, done.out) == (0, "first t1! t2!")


def test_a_closed_pipe_ends_quietly(cli, monkeypatch):
    class Closed(io.StringIO):
        def reconfigure(self, **_):
            pass

        def flush(self):
            raise BrokenPipeError

    monkeypatch.setattr(failures, "forget_stdout", lambda: None)
    monkeypatch.setattr(sys, "stdout", Closed())
    done = cli("run", "endless")
    assert (done.code, done.err) == (0, "")


def test_a_law_that_is_not_lossless_is_marked(cli):
    done = cli("run", "hello", "--max-new-tokens", "3", "--law", "redraw")
    assert done.err.startswith("LOSSY: the law redraw changes the target's distribution\n")  # before the answer
    assert done.err.endswith("LOSSY: bias 0.250 per round\n")
    told = cli("run", "hello", "--max-new-tokens", "3", "--law", "redraw", "--narrate").out
    assert "LOSSY: bias 0.250, wrote" in told, "a round has its own bias"
    found = json.loads(cli("run", "hello", "--max-new-tokens", "3", "--law", "redraw", "--format", "json").out)
    assert found["lossless"] is False and found["stats"]["bias"] == 0.25
    usual = cli("run", "hello", "--max-new-tokens", "3", "--law", "rejection")
    assert "LOSSY" not in usual.err
    assert json.loads(cli("run", "hello", "--format", "json").out)["stats"]["bias"] is None
    assert "redraw LOSSY, typical LOSSY" in cli("run", "hello", "--law", "murphy").err
    help_page = " ".join(cli("run", "--help").out.split())
    assert "exact|rejection|block|redraw|typical" in help_page and "LOSSY: redraw, typical" in help_page


def test_a_datastore_given_to_an_engine_that_searches_none_is_said(cli):
    done = cli("run", "Hi", "--engine", "pld", "--datastore", "nowhere", "--max-new-tokens", "4")
    assert done.code == 0 and "pld searches no datastore" in done.err
