"""Code of somebody else, kept within limits: functions in a forked child, and the chat templates that run in one."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest

from engines import tokenization
from engines.errors import UsageProblem
from engines.machine import CallFailed, limited
from engines.request import Request
from engines.tokenization import encode
from tests.conftest import TEMPLATE, make_tokenizer

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


SIMPLE = "{% for m in messages %}{% if loop.first and m.role != 'system' %}S{% endif %}{{ '<' + m.role }}{% endfor %}"


TOOLS = """{% if tools %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}
{%- for m in messages %}{{ m.content }}
{%- for call in m.tool_calls %}{% set call = call.function %}{{ call.name }}{% endfor %}
{%- if messages[loop.index0 - 1].role != 'tool' %}!{% endif %}{% endfor %}"""


@pytest.mark.parametrize(
    "template", [TEMPLATE, SIMPLE, "{% set system = messages[0].content %}{{ system ~ 'x' }}", TOOLS])
def test_a_template_that_puts_texts_together_needs_no_process(template, monkeypatch):
    tokenizer = make_tokenizer()
    tokenizer.chat_template = template
    wanted = encode(tokenizer, ASKED, 260)
    monkeypatch.setattr(tokenization, "limited", None)
    assert encode(tokenizer, ASKED, 260) == wanted


@pytest.mark.parametrize(
    "template",
    [
        ENDLESS, "{{ 'a' * 9 }}", "{{ 2 ** 9 }}", "{{ '%9d' % 1 }}", "{{ 'a'.center(9) }}", "{{ 'a'|center(9) }}",
        "{{ {'a': 1}|tojson(indent=9) }}", "{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}",
        "{% for c in messages[0].content %}{% endfor %}", "{% set messages = 'a' %}{% for m in messages %}{% endfor %}",
        "{% for messages in messages %}{{ messages }}{% endfor %}", "{% set x = messages ~ messages %}",
        "{% set ns = namespace(x='a') %}{% set ns.x = 'b' %}", "{% macro a() %}{% endmacro %}{{ a() }}",
        "{% for m in messages recursive %}{{ loop([m]) }}{% endfor %}", "{% set x %}{{ messages }}{% endset %}",
        "{% for m in messages %}{% else %}{% for i in range(9) %}{% endfor %}{% endfor %}", "{{ cycler }}{% for %}",
        "{% set tools = messages %}{% for m in messages %}{% for t in tools %}{% endfor %}{% endfor %}",
        "{% for tools in messages %}{% for t in tools %}{% endfor %}{% endfor %}",
        "{% for m in messages %}{% for t in tools %}{% else %}" + "{% for n in messages %}" + "{% endfor %}" * 3,
        "{% for t in tools recursive %}{% endfor %}", "{% for c in messages[0].content.tool_calls %}{% endfor %}",
        "{% include 'x' %}", "{{ range(9)|list }}", "{{ lipsum(9) }}",
    ],
)  # fmt: skip
def test_any_other_template_runs_within_limits(template, monkeypatch):
    tokenizer, asked = make_tokenizer(), []
    tokenizer.chat_template = template
    monkeypatch.setattr(tokenization, "limited", lambda render: asked.append(render) or ("x", ""))
    encode(tokenizer, ASKED, 260)
    assert asked


@pytest.mark.parametrize("template", ["{{ messages + 1 }}", "{{ raise_exception('no') }}", "{{ missing.of.it }}"])
def test_what_a_simple_template_raises_is_told(template):
    tokenizer = make_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(UsageProblem, match=r"refuses this conversation: ."):
        encode(tokenizer, ASKED, 260)


def test_only_where_there_is_a_system_prompt_it_can_be_left_out():
    tokenizer = make_tokenizer()
    tokenizer.chat_template = "{{ raise_exception('no') }}"
    for before, hint in ((), "use --raw"), ((("system", "be brief"),), "leave out the system prompt, or use --raw"):
        with pytest.raises(UsageProblem) as caught:
            encode(tokenizer, Request(conversation=(*before, *ASKED.conversation)), 260)
        assert caught.value.hint == hint


def test_a_template_that_makes_no_text_is_not_the_users_fault():
    tokenizer = make_tokenizer()
    tokenizer.chat_template = "{% if false %}{{ messages }}{% endif %}"
    with pytest.raises(UsageProblem, match="chat template makes no text") as caught:
        encode(tokenizer, ASKED, 260)
    assert caught.value.hint == "use --raw"


@pytest.mark.parametrize("template, said", [
    ("a\n{% for %}", "line 2: "), ("{{ a | no_filter }}", "No filter named 'no_filter'"), ("{{ a", "line 1: "),
])  # fmt: skip
def test_a_template_that_is_none_is_damaged(template, said):
    tokenizer = make_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(UsageProblem, match=f"is damaged: .*{said}") as caught:
        encode(tokenizer, ASKED, 260)
    assert "system prompt" not in caught.value.hint


def test_a_long_conversation_runs_within_limits(monkeypatch):
    tokenizer = make_tokenizer()
    asked = []
    monkeypatch.setattr(tokenization, "limited", lambda render: asked.append(render) or ("x", ""))
    encode(tokenizer, Request(conversation=(("user", "a" * 10_000_000),) * 9), 260)
    assert asked
