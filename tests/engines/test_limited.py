"""Code of somebody else, kept within limits: functions in a forked child, and the chat templates that run in one."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest

from engines.errors import UsageProblem
from engines.machine import CallFailed, limited
from engines.request import Request
from engines.tokenization import encode
from tests.conftest import make_tokenizer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nothing is forked elsewhere")

ENDLESS = "{% for i in range(9999) %}" * 3 + "{% endfor %}" * 3
ASKED = Request(conversation=(("user", "Grüße"),))


def children() -> set[str]:
    return set(open(f"/proc/self/task/{os.getpid()}/children").read().split())


def test_values_and_failures_come_back_and_no_child_stays():
    before = children()
    assert limited(lambda: [1, "ä", None]) == [1, "ä", None]
    with pytest.raises(CallFailed, match="by zero"):
        limited(lambda: 1 // 0)
    with pytest.raises(CallFailed, match="more than 64 MiB of memory"):
        limited(lambda: len(bytearray(1 << 30)), memory=64 << 20)
    with pytest.raises(CallFailed, match=r"more than 0\.2 s"):
        limited(lambda: time.sleep(60), seconds=0.2)
    with pytest.raises(CallFailed, match="breaks down"):
        limited(lambda: os.kill(os.getpid(), signal.SIGKILL))
    assert children() == before


def test_ctrl_c_ends_the_wait_and_the_child():
    before = children()
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    begun, handler = time.monotonic(), signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            limited(lambda: time.sleep(60))
    finally:
        signal.signal(signal.SIGINT, handler)
    assert time.monotonic() - begun < 5 and children() == before


@pytest.mark.parametrize(
    "template, words",
    [
        (ENDLESS, "more than 0.5 s"), ("{{ 'a' * (10**10) }}", "memory"), ("{{ 1 / 0 }}", "division by zero"),
        ("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "recursion"), ("{% for %}", "Expected an expression"),
    ],
    ids=["endless", "huge", "zero", "recursive", "syntax"],
)
def test_templates_that_break_are_refused_in_a_sentence(template, words, monkeypatch):
    seconds = 0.5 if "0.5" in words else 10
    monkeypatch.setattr("engines.tokenization.limited", lambda call: limited(call, seconds))
    tokenizer = make_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(UsageProblem, match=words):
        encode(tokenizer, ASKED, 10_000)


def test_a_template_gives_the_tokens_that_it_gives_without_limits():
    tokenizer = make_tokenizer()
    messages = [{"role": role, "content": content} for role, content in ASKED.conversation]
    plain = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
    assert encode(tokenizer, ASKED, 10_000)[0] == list(plain)
