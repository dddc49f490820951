"""OpenAI-compatible servers: vLLM by what vLLM 0.32 answered (``--per-request-spec-decode-metrics detailed``, an n-gram
drafter of 4 tokens, the sample model; recorded, shortened), and another that sends text."""

from __future__ import annotations

import json
from threading import Event
from time import monotonic, sleep

import pytest

from engines import ModelUnavailable, Request, RunFailed, UsageProblem
from engines.advice.server_acceptance import ServerAcceptance
from engines.report.events import UNDISCLOSED, Finished, Round, ServerTotals
from engines.report.metrics import measure
from engines.report.run_state import fold_all
from engines.report.trace_validation import TraceValidator
from engines.servers import connect, connection
from spec_tui.present.served_price import seen_rounds
from spec_tui.present.speed_caveats import speed_caveats
from tests.servers.misbehaving import misbehaving

__all__ = ["server"]
TURN = (("user", "Repeat: one two three one two three."),)
COUNTERS = """# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="sample"} %s
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="sample"} %s
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="sample"} %s
"""
MODELS = {"object": "list", "data": [{"id": "sample", "owned_by": "vllm", "parent": None, "max_model_len": 512}]}
TOKENS = {"count": 3, "max_model_len": 512, "tokens": [2, 204, 2861], "token_strs": ["<|user|>", "Ċ", "Ġone"]}
DETAILED = {"speculative_decoding": {"num_accepted_draft_tokens": 4, "num_draft_tokens": 9, "num_spec_steps": 3,
                                     "per_step_accepted": [0, 3, 1], "per_step_drafted": [3, 4, 2]}}


def chunk(*tokens: tuple[int, str], reason: str | None = None) -> bytes:
    """A message of vLLM's."""
    choice = {
        "index": 0, "text": "".join(text for _, text in tokens), "finish_reason": reason,
        "token_ids": [token for token, _ in tokens],
        "logprobs": {"tokens": [text for _, text in tokens], "token_logprobs": [-0.5] * len(tokens)},
    }
    return b"data: " + json.dumps({"object": "text_completion", "choices": [choice]}).encode() + b"\n\n"


def says(text: str | None, reason: str | None = None, **delta) -> bytes:
    """A message of a chat."""
    choice = {"index": 0, "delta": {"content": text} | delta, "finish_reason": reason}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def last(**more) -> bytes:
    return b"data: " + json.dumps({"choices": [], "usage": {"completion_tokens": 8}} | more).encode() + b"\n\n"


ANSWER = [
    chunk((595, " W")), chunk((40, "C")), chunk((50, "M"), (595, " W"), (40, "C"), (50, "M")),
    chunk((595, " W"), (5, ""), reason="stop"),
]
END = b"data: [DONE]\n\n"


@pytest.fixture
def server():
    with misbehaving() as made:
        made.wrong = {
            "/props": (404, {}, {"detail": "Not Found"}), "/version": (200, {}, {"version": "0.32.0"}),
            "/v1/models": (200, {}, MODELS), "/tokenize": (200, {}, TOKENS),
            "/metrics": (200, {}, (COUNTERS % (8.0, 30.0, 30.0)).encode()),
            "/v1/completions": (200, {}, [*ANSWER, last(metrics=DETAILED), END]),
        }
        yield made


def test_a_message_of_vllm_is_a_step_and_the_end_says_what_was_drafted(server):
    model = connect(server.url + "/v1/")
    assert model.ready.backend == "vLLM 0.32.0" and model.ready.context_limit == 512 and model.ready.threads is None
    started, _, *rounds, finished = events = list(model.run(Request(TURN)))
    assert started.prompt == (2, 204, 2861) and started.prompt_pieces[2] == " one" and started.lossless is None
    assert [len(event.path) for event in rounds] == [0, 3, 1] and all(e.known == "accepted" for e in rounds)
    assert [e.kind for e in rounds[1].emitted] == ["accepted"] * 3 + ["target"] and rounds[1].position == 5
    assert finished == Finished("stop", (595, 40, 50, 595, 40, 50, 595, 5), " WCM WCM W",
                                ServerTotals(None, 9, 4, (3, 2, 1, 1), (2, 1, 1, 0), drafts=3,
                                             drafted_by_round=(3, 4, 2)))
    before, after = measure(events[:-1]), measure(events)
    assert (before.drafted, before.acceptance_rate, before.accepted) == (None, None, 4)
    assert (after.drafted, after.accepted, after.new_tokens) == (9, 4, 8) and after.mean_generated_length == 7 / 3
    assert (after.drafting_rounds, after.accepted_length, after.rows) == (3, 4 / 3, {4: 1, 5: 1, 3: 1})
    assert after.path_acceptance is None, "it is not said of which draft which share was accepted"
    assert fold_all(events).metrics == after and rounds[0].emitted[0].prob == pytest.approx(0.6065, abs=1e-4)
    judge = TraceValidator()
    assert not [words for event in events if (words := judge.judge(event)[1])]
    asked = json.loads(server.bodies["/v1/completions"])
    assert asked["prompt"] == [2, 204, 2861] and asked["return_token_ids"] and asked["max_tokens"] == 256


def test_without_the_flag_the_counters_tell_where_nobody_else_asked(server):
    server.wrong["/v1/completions"] = (200, {}, [*ANSWER, last(), END])
    model = connect(server.url)
    assert "--per-request-spec-decode-metrics detailed" in model.ready.warnings[0]

    def counted(*rows: tuple[float, float, float]) -> ServerTotals:
        """The totals of an answer; the counters are read before it and after it."""
        told = iter(rows)
        server.wrong["/metrics"] = (200, {}, [lambda: [(COUNTERS % next(told)).encode()]])
        *_, finished = model.run(Request(TURN))
        return finished.totals

    told = ServerTotals(None, 9, 4, drafts=3)
    assert counted((8.0, 30.0, 30.0), (11.0, 39.0, 34.0)) == told
    assert counted((20.0, 90.0, 80.0), (23.0, 99.0, 84.0)) == told, "others were answered before"
    assert counted(("999998.0", "9.999e+06", "1.2345678901e+010"), ("1.000001e+06", "9.999009e+06", "12345678905.0")
                   ) == told, "from a million they are written with an exponent"
    assert counted((23.0, 100.0, 90.0), (50.0, 190.0, 180.0)) is None, "somebody else was answered meanwhile"
    assert counted((0, 0, 0), (1e99, 1e99, 4.0)) is None and counted((8.0, 1.0, 1.0), (7.0, 9e6, 5.0)) is None
    assert counted((0, 0, 0), (3, 4e9, 4)) is None, "no step drafts so much"


@pytest.mark.parametrize("changes", [
    {"num_draft_tokens": (1 << 60) - 1, "per_step_drafted": [(1 << 60) - 1] * 3}, {"num_spec_steps": 1 << 40},
    {"per_step_drafted": [2] * 80_000, "per_step_accepted": [2] * 80_000}, {"per_step_drafted": [3, 5000, 2]},
], ids=["drafted", "steps", "rounds", "round"])
def test_counts_that_no_such_answer_can_have_are_not_shown(server, changes):
    """Nor does it take long, however often they are said."""
    told = {"speculative_decoding": DETAILED["speculative_decoding"] | changes}
    usage = {"completion_tokens": (1 << 60) - 1}
    parts = [*ANSWER, *[last(metrics=told, usage=usage)] * 8, END]
    server.wrong["/v1/completions"] = (200, {}, parts)
    begun = monotonic()
    events = list(connect(server.url).run(Request(TURN)))
    assert monotonic() - begun < 20
    found = measure(events)
    assert (found.drafted, found.depth_tried) == (None, ()) and found.new_tokens == 8 == len(events[-1].tokens)


def test_the_depths_of_long_drafts_are_those_that_counting_one_by_one_gives(server):
    sizes, gains = [3, 4, 0, 1500, 2], [0, 3, 0, 1200, 1]
    drafts = DETAILED["speculative_decoding"] | {"num_draft_tokens": 1509, "num_accepted_draft_tokens": 1204,
                                                 "per_step_drafted": sizes, "per_step_accepted": gains}
    server.wrong["/v1/completions"] = (200, {}, [*ANSWER, last(metrics={"speculative_decoding": drafts}), END])
    *_, finished = connect(server.url).run(Request(TURN))
    tried, kept = finished.totals.depth_tried, finished.totals.depth_accepted
    assert tried == tuple(sum(depth < min(got + 1, size) for size, got in zip(sizes, gains)) for depth in range(1024))
    assert kept == tuple(sum(depth < got for got in gains) for depth in range(1024))


@pytest.mark.parametrize("tokens", [(1 << 60) - 1, 257, 0])
def test_a_server_of_text_is_not_believed_more_tokens_than_were_asked_for_nor_fewer_than_it_wrote(server, tokens):
    parts = [b'data: {"choices": [{"delta": {"content": "One two"}}]}\n\n', last(usage={"completion_tokens": tokens}),
             b'data: {"choices": [{"finish_reason": "stop"}]}\n\n', END]
    server.wrong |= {"/v1/models": (200, {}, {"data": [{"id": "a", "owned_by": "library"}]}),
                     "/v1/chat/completions": (200, {}, parts)}
    *_, finished = connect(server.url).run(Request(TURN))
    assert finished.text == "One two" and finished.totals is None


def test_two_steps_in_a_message_are_counted_at_the_end_as_what_they_were(server):
    """vLLM joins what waits to be read: the steps of ``DETAILED``, the first two of them in one message."""
    joined = [ANSWER[0], chunk((40, "C"), (50, "M"), (595, " W"), (40, "C"), (50, "M")), ANSWER[3]]
    server.wrong["/v1/completions"] = (200, {}, [*joined, last(metrics=DETAILED), END])
    *events, finished = connect(server.url).run(Request(TURN))
    seen, told = measure(events), measure([*events, finished])
    assert (seen.target_forwards, seen.accepted) == (2, 5), "one message, one step"
    assert (told.target_forwards, told.accepted, told.drafting_rounds) == (3, 4, 3)
    assert told.mean_generated_length == 7 / 3 and not finished.totals.drafted_by_round


def test_a_server_that_drafts_nothing_says_so_by_its_counters(server):
    server.wrong["/metrics"] = (200, {}, b"# no such counters\n")
    server.wrong["/v1/completions"] = (200, {}, [chunk((1, "a")), chunk((2, "b")), chunk((3, ""), reason="stop"), END])
    model = connect(server.url)
    events = list(model.run(Request(TURN)))
    assert not model.ready.warnings and measure(events).drafted == 0 and events[-1].totals is None
    parts = [chunk((1, "a")), chunk(*[(2, "b")] * 4), chunk((3, ""), reason="stop")]
    server.wrong["/v1/completions"] = (200, {}, parts)
    events = list(model.run(Request(TURN)))
    joined = measure(events)
    assert (joined.target_forwards, joined.drafted, joined.accepted) == (5, 0, 0), "several tokens in a message, too"
    times = [event.verify_seconds for event in events if isinstance(event, Round)]
    assert joined.mean_generated_length == 1 and times[:4] == [times[0]] * 4, "which share its time"


def test_messages_of_several_steps_are_not_counted_as_steps_where_the_counters_tell_fewer(server):
    server.wrong["/v1/completions"] = (200, {}, [*ANSWER, last(), END])
    told = iter([(0, 0, 0), (0, 0, 0), (3, 9, 2)])  # where the messages seem to have four accepted tokens
    server.wrong["/metrics"] = (200, {}, [lambda: [(COUNTERS % next(told)).encode()]])
    found = measure(connect(server.url).run(Request(TURN)))
    assert (found.drafted, found.accepted, found.mean_generated_length, found.tau) == (None,) * 4
    assert found.new_tokens == 8


def test_the_times_of_rounds_are_seen_by_what_they_verified_and_contain_the_connection(server):
    run = fold_all(connect(server.url).run(Request(TURN)))
    assert [(found.rows, found.count) for found in seen_rounds([run, run])] == [(3, 2), (4, 2), (5, 2)]
    assert run.started.arrival and 0 < run.started.round_trip < 5
    server.wrong["/v1/completions"] = (200, {}, [*ANSWER, last(), END])
    run = fold_all(connect(server.url).run(Request(TURN)))
    assert [(found.rows, found.count) for found in seen_rounds([run])] == [(None, 3)], "no draft is told of any round"


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404, 410, 421, 500, 503])
def test_a_gateway_that_knows_openai_s_paths_only_leads_to_a_server_of_text(server, status):
    refused = (status, {}, {"message": "not for you"})
    server.wrong |= {path: refused for path in ("/props", "/version", "/tokenize", "/metrics", "/health")}
    server.wrong["/v1/chat/completions"] = (200, {}, [says("One"), says(" two", "stop"), END])
    model = connect(server.url)
    assert list(model.run(Request(TURN)))[-1].text == "One two" and not model.token_ids
    assert (model.ready.backend, len(model.ready.warnings)) == ("vLLM", 1)


def test_llama_cpp_that_lists_its_models_and_refuses_the_rest_is_no_server_of_text(server):
    server.wrong |= {"/props": (503, {}, {"error": {"message": "Loading model"}}),
                     "/v1/models": (200, {}, {"data": [{"id": "m", "owned_by": "llamacpp"}]})}
    with pytest.raises(ModelUnavailable, match="still loading: Loading model"):
        connect(server.url)


def test_its_price_cannot_be_measured_from_outside_and_no_prompt_is_sent_for_it(server, capsys):
    from spec_tui.cli import call

    assert call(["price", "--server", server.url]) == 2
    assert "vLLM 0.32.0 reports no times of its own" in capsys.readouterr().err
    assert "/v1/completions" not in [path for path, _ in server.asked]


def test_any_other_server_gives_text_and_speed(server):
    parts = [says(""), says("One"), says(" two"), lambda: sleep(0.01), says(" three", "stop"), last(), END]
    server.wrong |= {
        "/v1/models": (200, {}, {"data": [{"id": name, "owned_by": "library"} for name in ("a:1b", "b:1b")]}),
        "/v1/chat/completions": (200, {}, parts),
    }
    with pytest.raises(ModelUnavailable, match="several models: a:1b, b:1b") as several:
        connect(server.url)
    assert "--served-model" in several.value.hint
    model = connect(server.url, model="b:1b")
    _, prefilled, *rounds, finished = events = list(model.run(Request(TURN)))
    assert model.ready.backend == "Ollama" and not model.token_ids and prefilled.prompt_tokens is None
    assert finished == Finished("stop", (UNDISCLOSED,) * 3, "One two three", ServerTotals(8))
    metrics = measure(events)
    assert metrics.new_tokens == 8 and metrics.tokens_per_second > 0
    assert (metrics.drafted, metrics.accepted, metrics.mean_generated_length, metrics.tau) == (None,) * 4
    assert all(isinstance(event, Round) and event.known == "text" for event in rounds)
    assert json.loads(server.bodies["/v1/chat/completions"])["model"] == "b:1b"
    with pytest.raises(UsageProblem, match="top-p only"):
        list(model.run(Request(TURN, top_k=5)))


@pytest.fixture
def chat(server):
    """The server as one that sends text."""
    server.wrong["/v1/models"] = (200, {}, {"data": [{"id": "a", "owned_by": "library"}]})
    return server


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_what_a_model_thinks_is_shown_marked_and_timed_as_its_tokens_are(chat, field):
    def slowly():
        for n in range(6):
            sleep(0.02)
            yield says(None, **{field: f"{n} "})

    parts = [slowly, says("The"), says(" answer", "stop"), last(), END]
    chat.wrong["/v1/chat/completions"] = (200, {}, parts)
    *_, finished = events = list(connect(chat.url).run(Request(TURN)))
    assert finished.text == "<think>\n0 1 2 3 4 5 \n</think>\n\nThe answer"
    metrics = measure(events)
    assert metrics.new_tokens == 8 and metrics.tokens_per_second < 100, "the tokens of 0.1 seconds"
    chat.wrong["/v1/chat/completions"] = (200, {}, [says(None, **{field: "Hm"}), says("", "length"), END])
    *_, finished = connect(chat.url).run(Request(TURN))
    assert (finished.text, finished.reason) == ("<think>\nHm", "length"), "the limit came before the answer"


def test_what_a_model_thought_is_not_sent_back_as_its_answer(chat):
    answer = [says(None, reasoning="Hm"), says("The answer", "stop"), END]
    chat.wrong["/v1/chat/completions"] = (200, {}, answer)
    model = connect(chat.url)
    *_, finished = model.run(Request(TURN))
    list(model.run(Request((*TURN, ("assistant", finished.text), ("user", "Why?")))))
    sent = json.loads(chat.bodies["/v1/chat/completions"])["messages"]
    assert [turn["content"] for turn in sent] == [TURN[0][1], "The answer", "Why?"]


def test_an_answer_in_one_message_says_nothing_of_drafts_or_passes(chat, capsys):
    from spec_tui.cli import call

    chat.wrong["/v1/chat/completions"] = (200, {}, [says("The whole answer.", "stop"), last(), END])
    assert call(["run", "--server", chat.url, "Hi"]) == 0
    said = capsys.readouterr().err
    assert "1 message of the server\ndrafted (not disclosed), accepted (not disclosed)\n" in said
    events = list(connect(chat.url).run(Request(TURN)))
    stats = measure(events).stats()
    assert (stats["drafted"], stats["accepted"], stats["target_forwards"]) == (None, None, None)
    assert ServerAcceptance.of([events]).drafted is None


def test_many_tokens_in_one_message_came_all_at_once(chat):
    parts = [says("The"), lambda: sleep(0.01), says(" rest." * 99, "stop"), last(usage={"completion_tokens": 1000})]
    chat.wrong["/v1/chat/completions"] = (200, {}, parts)
    run = fold_all(connect(chat.url).run(Request(TURN, max_new_tokens=1000)))
    assert run.metrics.tokens_per_second is None and "all at once" in speed_caveats(run)[0].words


def test_messages_are_not_called_tokens_where_their_number_is_not_told(chat, capsys):
    from spec_tui.cli import call

    parts = [says("The sky"), lambda: sleep(0.01), says(" is blue."), says("", "stop"), END]
    chat.wrong["/v1/chat/completions"] = (200, {}, parts)
    assert call(["run", "--server", chat.url, "Hi"]) == 0
    said = capsys.readouterr().err
    assert "server: 2 messages, " in said and " messages/s, " in said and "token" not in said.split("server: ")[1]
    assert call(["run", "--server", chat.url, "Hi", "--format", "json"]) == 0
    stats = json.loads(capsys.readouterr().out)["stats"]
    assert (stats["new_tokens"], stats["tokens_per_second"]) == (None, None)
    told = last(usage={"prompt_tokens": 7, "completion_tokens": 8})
    for more, tokens in (([], None), ([told], 7)):
        chat.wrong["/v1/chat/completions"] = (200, {}, [says("The sky", "stop"), *more, END])
        assert call(["run", "--server", chat.url, "Hi", "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["prompt_tokens"] == tokens


@pytest.mark.parametrize(("last_said", "rest"), [([END], 60.0), ([], 0.1)], ids=["[DONE]", "finish_reason"])
def test_a_complete_answer_ends_though_the_server_leaves_the_connection_open(chat, monkeypatch, last_said, rest):
    monkeypatch.setattr(connection, "_REST", rest)
    gone, parts = Event(), [says("One"), says(" two", "stop"), *last_said]
    chat.wrong["/v1/chat/completions"] = (200, {}, [*parts, lambda: gone.wait(20) and None])
    begun = monotonic()
    *_, finished = connect(chat.url).run(Request(TURN))
    gone.set()
    assert finished == Finished("stop", (UNDISCLOSED,) * 2, "One two") and monotonic() - begun < 15


def test_sglang_says_at_the_end_of_an_answer_what_was_drafted(server):
    told = {"spec_verify_ct": 3, "spec_num_proposed_drafts": 9, "spec_num_correct_drafts": 4,
            "spec_accept_length": 2.33, "spec_correct_drafts_histogram": [1, 1, 0, 1]}
    parts = [says("One two"), says(" three", "stop"), last(sglext={"spec_tokens_details": told}), END]
    server.wrong |= {
        "/v1/models": (200, {}, {"data": [{"id": "a", "owned_by": "sglang"}]}),
        "/v1/chat/completions": (200, {}, parts),
    }
    *events, finished = connect(server.url).run(Request(TURN))
    assert json.loads(server.bodies["/v1/chat/completions"])["return_spec_tokens_details"] is True
    assert finished.totals == ServerTotals(8, 9, 4, (3, 2, 1), (2, 1, 1), drafts=3, steps=3)
    before, after = measure(events), measure([*events, finished])
    assert (before.drafted, before.mean_generated_length) == (None, None), "a message is no step"
    assert (after.drafted, after.accepted, after.target_forwards) == (9, 4, 3)
    assert after.mean_generated_length == 7 / 3 and after.accepted_length == 4 / 3
    judge = TraceValidator()
    assert not [words for event in (*events, finished) if (words := judge.judge(event)[1])]
    server.wrong["/v1/chat/completions"] = (200, {}, [*parts[:2], last(), END])  # one that is older
    *events, finished = connect(server.url).run(Request(TURN))
    assert finished.totals == ServerTotals(8) and measure([*events, finished]).drafted is None


@pytest.mark.parametrize(("parts", "words"), [
    ([ANSWER[0], ANSWER[1]], "broke off"), ([last(), END], "answered with nothing"),
    ([ANSWER[0], b'data: {"error": {"message": "Token id 9 is out of vocabulary"}}\n\n', END], "out of vocabulary"),
    ([chunk((1, "a"))[:-9]], "other than JSON"),
])
def test_an_answer_that_breaks(server, parts, words):
    server.wrong["/v1/completions"] = (200, {}, parts)
    with pytest.raises(RunFailed, match=words):
        list(connect(server.url).run(Request(TURN)))


@pytest.mark.parametrize("body", [
    {"choices": [{"message": {"content": "A whole answer"}}]}, b"<html><body>Log in</body></html>",
], ids=["a whole answer", "a page"])
def test_a_server_that_does_not_stream_is_told_from_one_that_broke_off(chat, body):
    chat.wrong["/v1/chat/completions"] = (200, {}, body)
    with pytest.raises(RunFailed, match="does not stream its answers"):
        list(connect(chat.url).run(Request(TURN)))
    chat.wrong["/v1/chat/completions"] = (200, {}, [b": still loading\n\n"])
    with pytest.raises(RunFailed, match="broke off"):
        list(connect(chat.url).run(Request(TURN)))


def test_what_an_answer_can_do_without_does_not_end_it(chat):
    listed = {"data": [{"id": "a", "owned_by": "library", "max_model_len": "4096"}]}
    parts = [says("")] * 3000 + [
        b'data: {"choices": [null], "usage": {"completion_tokens": -1}}\n\n',
        b'data: {"choices": [{"delta": {"content": "One"}}], "score": NaN}\n\n',
        says([{"type": "text", "text": " two"}]), last(usage={"prompt_tokens": 10.0, "completion_tokens": "8"}), END]
    chat.wrong |= {"/v1/models": (200, {}, listed), "/v1/chat/completions": (200, {}, parts)}
    model = connect(chat.url)
    *_, finished = model.run(Request(TURN))
    assert model.ready.context_limit == 4096
    assert finished == Finished("stop", (UNDISCLOSED,) * 2, "One two", ServerTotals(8, prompt_tokens=10))


@pytest.mark.parametrize(("message", "words"), [
    ({"choices": 5}, r"\$.choices"), ({"choices": [{"token_ids": "a"}]}, r"token_ids"),
    ({"choices": [{"logprobs": {"token_logprobs": ["a"]}}]}, "token_logprobs"),
])
def test_a_field_of_another_kind_is_named(server, message, words):
    server.wrong["/v1/completions"] = (200, {}, [b"data: " + json.dumps(message).encode() + b"\n\n", END])
    with pytest.raises(RunFailed, match=words):
        list(connect(server.url).run(Request(TURN)))


def test_a_server_that_goes_on_after_the_limit_is_left(server):
    server.wrong["/v1/completions"] = (200, {}, [lambda: iter(lambda: chunk(*[(1, "a")] * 1000), None)])
    *_, finished = connect(server.url).run(Request(TURN, max_new_tokens=30))
    assert finished.reason == "length" and finished.tokens == (1,) * 30 and finished.text == "a" * 30
    text = b"data: " + json.dumps({"choices": [{"delta": {"content": "word " * 100}}]}).encode() + b"\n\n"
    server.wrong |= {"/v1/models": (200, {}, {"data": [{"id": "a", "owned_by": "library"}]}),
                     "/v1/chat/completions": (200, {}, [lambda: iter(lambda: text, None)])}
    *_, finished = connect(server.url).run(Request(TURN, max_new_tokens=30))
    assert finished.reason == "length" and len(finished.text) == 30 * 128


def test_a_token_that_is_longer_than_any_ends_the_answer(server):
    server.wrong["/v1/completions"] = (200, {}, [ANSWER[0], chunk((5, "x" * 400_000)), END])
    with pytest.raises(RunFailed, match="sends 400,000 letters as 1 token"):
        list(connect(server.url).run(Request(TURN)))
    choice = {"text": "a", "token_ids": [5], "logprobs": {"tokens": ["x" * 900_000], "token_logprobs": [-1]}}
    long = b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"
    server.wrong["/v1/completions"] = (200, {}, [ANSWER[0], long, chunk((5, ""), reason="stop"), END])
    assert len(repr(list(connect(server.url).run(Request(TURN))))) < 10_000, "nor is its label longer"


def test_a_key_that_the_server_repeats_is_not_shown(server):
    key, text = "sk-SECRET-KEY", {"/v1/models": (200, {}, {"data": [{"id": "sk-SECRET-KEY", "owned_by": "vllm"}]})}
    server.wrong |= text | {
        "/version": (200, {}, {"version": key}), "/tokenize": (200, {}, {"tokens": [1], "token_strs": [key]}),
        "/v1/completions": (200, {}, [chunk((1, f"a {key}")), chunk((5, ""), reason="stop"), END]),
    }
    model = connect(server.url, key)
    assert "SECRET" not in repr((model.ready, list(model.run(Request(TURN)))))
    assert json.loads(server.bodies["/v1/completions"])["model"] == key, "the server is asked by its own names"
    with pytest.raises(ModelUnavailable) as several:
        connect(server.url, key, model="another")
    assert "SECRET" not in several.value.message


def test_an_answer_that_the_server_ended_is_not_the_model_s_end(chat, capsys):
    from spec_tui.cli import call

    for reason, code, words in (("content_filter", 0, "ended by the server: content_filter"),
                                ("abort", 1, "ended the answer: abort"), ("error", 1, "ended the answer: error")):
        chat.wrong["/v1/chat/completions"] = (200, {}, [says("The sky"), says("", reason), last(), END])
        assert call(["run", "--server", chat.url, "Hi"]) == code
        said = capsys.readouterr()
        assert words in said.err and "The sky" in said.out
    assert "top_p" not in json.loads(chat.bodies["/v1/chat/completions"]), "TGI refuses 1.0"


def test_a_refusal_is_an_answer_and_nothing_has_a_reason(chat):
    chat.wrong["/v1/chat/completions"] = (200, {}, [says(None, refusal="I will not."), says(None, "stop"), END])
    *_, finished = connect(chat.url).run(Request(TURN))
    assert finished.text == "I will not."
    chat.wrong["/v1/chat/completions"] = (200, {}, [says(None, "tool_calls"), END])
    with pytest.raises(RunFailed, match="answered with nothing: tool_calls"):
        list(connect(chat.url).run(Request(TURN)))
    fine = says("Yes.", "stop").replace(b'{"choices"', b'{"error": "", "choices"')
    chat.wrong["/v1/chat/completions"] = (200, {}, [fine, END])
    assert list(connect(chat.url).run(Request(TURN)))[-1].text == "Yes."


def test_what_a_refusal_means(server):
    wrong = {"error": {"message": "The model `x` does not exist.", "code": 404}}
    for answer, words in (((404, {}, wrong), "does not exist"),
                          ((401, {}, {"error": "Unauthorized"}), "requires a key"),
                          ((404, {}, {"object": "error", "message": "no such model"}), "no such model"),
                          ((404, {}, {"error": "model 'm' not found"}), "model 'm' not found"),
                          ((404, {}, {"error": "Not Found"}), "has no /v1/completions"),
                          ((307, {"Location": "https://other.example/v1"}, {}), "elsewhere: https://other.example/v1"),
                          ((200, {"Content-Encoding": "gzip"}, b"\x1f\x8b"), "sends compressed answers"),
                          ((200, {}, [b'data: {"object": "error", "message": "it died"}\n\n']), "it died"),
                          ((200, {}, [b'event: error\ndata: {"message": "it died"}\n\n']), "broke off: it died"),
                          ((200, {}, [b'event: error\r', b'\ndata: {"message": "it died"}\r\n']), "broke off: it died"),
                          ((200, {}, [b'data: {"detail": "it died"}\n\n']), "it died"),
                          ((200, {}, {"error": {"message": "no room"}}), "failed: no room"),
                          ((403, {}, {"message": "not for you"}), "requires a key: not for you"),
                          ((500, {}, {"error": None, "detail": "Internal"}), r"\(500\): Internal"),
                          ((422, {}, {"detail": [{"loc": ["body", "n"], "msg": "is missing"}]}), "body.n: is missing"),
                          ((429, {}, b"too many"), "busy")):
        server.wrong["/v1/completions"] = answer
        with pytest.raises(RunFailed, match=words):
            list(connect(server.url).run(Request(TURN)))
    server.wrong["/v1/completions"] = (429, {"Retry-After": "37"}, b"too many")
    with pytest.raises(RunFailed) as refused:
        list(connect(server.url).run(Request(TURN)))
    assert refused.value.hint == "try again in 37 seconds"
    server.wrong["/v1/models"] = (200, {}, {"data": []})
    with pytest.raises(ModelUnavailable, match="names no model"):
        connect(server.url)


def test_advise_reads_what_the_server_accepts(server, capsys, tmp_path):
    from spec_tui.cli import call

    (tmp_path / "prompts").write_text("one\ntwo\n")
    asked = ["advise", "--server", server.url, "--prompts", str(tmp_path / "prompts")]
    assert call(asked) == 0
    said = capsys.readouterr().out
    assert said.startswith("2 answers, 2.33 tokens a step") and "is not known: all drafts" in said
    assert "(num_speculative_tokens in --speculative-config)" in " ".join(said.split())
    assert call([*asked, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["accepted"] == [2 / 3, 1 / 2, 1, 0] and found["best"] is None and found["answers"] == 2
    assert call([*asked, "--save"]) == 2 and "only its acceptance" in capsys.readouterr().err


def test_advise_asks_a_server_that_tells_no_drafts_once(chat, capsys, tmp_path):
    from spec_tui.cli import call

    (tmp_path / "prompts").write_text("one\ntwo\n")
    chat.wrong["/v1/chat/completions"] = (200, {}, [says("The sky", "stop"), last(), END])
    assert call(["advise", "--server", chat.url, "--prompts", str(tmp_path / "prompts")]) == 0
    assert "does not report acceptance by depth" in " ".join(capsys.readouterr().out.split())
    assert [path for path, _ in chat.asked].count("/v1/chat/completions") == 1
