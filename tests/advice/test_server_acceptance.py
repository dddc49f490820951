"""How many tokens a server should draft: the arithmetic, and what is said."""

from __future__ import annotations

import json
import signal
from types import SimpleNamespace

import pytest

from engines.advice.server_acceptance import ServerAcceptance
from engines.bench.suite import Case, Suite
from engines.errors import RunFailed
from engines.report.events import UNDISCLOSED, Draft, Emitted, Finished, Origin, Prefilled, Round
from engines.request import Request
from spec_tui.cli.advise_server import advise_server, report
from spec_tui.cli.failures import INTERRUPTED
from spec_tui.cli.option_groups import Format

OUT = Emitted(5, "a", "a", "target")


def step(number: int, drafted: int, accepted: int, seconds: float) -> Round:
    draft = Draft((UNDISCLOSED,) * drafted, tuple(range(-1, drafted - 1)), ("x",) * drafted, (None,) * drafted,
                  (0,) * drafted, (Origin("server"),) if drafted else ())
    emitted = (*(Emitted(5, "a", "a", "accepted", n) for n in range(accepted)), OUT)
    return Round(number, number, draft, tuple(range(accepted)), emitted, None, seconds, None, None)


def answers(row: float, sizes=(0, 4)) -> ServerAcceptance:
    """Drafts of 4 tokens of which 4, 2, 1 and 0 are accepted in turns, and steps without a draft."""
    rounds = [step(n, size, (4, 2, 1, 0)[n % 4] if size else 0, 0.01 * (1 + row * size))
              for size in sizes for n in range(8)]
    return ServerAcceptance.of([[Prefilled(3, 0, 0.1, OUT, 3), *rounds, Finished("stop", (), "")]])


def test_the_size_is_the_one_with_the_most_tokens_for_its_time():
    cheap = answers(0.01)
    assert cheap.accepted == pytest.approx((3 / 4, 2 / 3, 1 / 2, 1)) and cheap.row == pytest.approx(0.01)
    assert cheap.expected == pytest.approx((1, 1.75, 2.25, 2.5, 2.75)) and cheap.best == 4
    for row in (0.05, 0.2, 0.5, 0.9):
        found = answers(row)
        rates = [tokens / (1 + row * size) for size, tokens in enumerate(found.expected)]
        assert rates[found.best] == pytest.approx(max(rates))
        for size in range(1, 5):
            assert (rates[size] > rates[size - 1]) == (row < found.pays_below(size))
    assert answers(0.9).best == 0 and "without drafts" in report(answers(0.9), "").notes[-1]
    assert "drafts of 4 tokens or more: deeper drafts were not tried (--n)." in report(cheap, "--n").notes[-1]


def test_what_was_not_seen_is_not_made_up():
    one_size = answers(0.1, sizes=(4,))
    assert one_size.row is one_size.best is None and "is not known: all drafts" in report(one_size, "").notes[-1]
    nothing = answers(0.1, sizes=(0,))
    assert not nothing.accepted and nothing.best is None and "drafted nothing" in report(nothing, "").notes[-1]


def drafting(*ways: dict[str, str], run) -> SimpleNamespace:
    """A server that drafts in these ways."""
    return SimpleNamespace(ways=ways, size_setting="most", run=run, spec=SimpleNamespace(id="llama.cpp"),
                           ready=SimpleNamespace(backend="llama.cpp 1"))


def asking(*prompts: str) -> Suite:
    return Suite("ours", tuple(Case("chat", (prompt,), str(n)) for n, prompt in enumerate(prompts)))


def unless_bad(request, cancelled):
    """An answer; none to a bad prompt, nor in a broken way."""
    if request.conversation[-1][1].startswith("bad") or request.options.get("spec") == "broken":
        raise RunFailed("out of memory", "ask again")
    yield from [Prefilled(3, 0, 0.1, OUT, 3), step(1, 4, 4, 0.01), Finished("stop", (), "")]


def test_answers_that_fail_do_not_take_the_others_with_them(capsys):
    suite = asking("one", "bad", "two")
    assert advise_server(drafting({}, run=unless_bad), suite, Request(()), 60.0, Format.text) == 0
    out, err = capsys.readouterr()
    assert out.startswith("2 answers, 5.00 tokens a step") and err.count("failed: out of memory") == 1
    ways = ({"spec": "broken"}, {"spec": "often"})
    assert advise_server(drafting(*ways, run=unless_bad), suite, Request(()), 60.0, Format.json) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["ways"][0]["options"] == {"spec": "often"} and "spec=broken\nnothing was answered" in err


def test_a_server_that_answers_no_more_is_not_asked_for_ever(capsys):
    suite = asking(*[f"bad {n}" for n in range(50)])
    with pytest.raises(RunFailed, match="out of memory"):
        advise_server(drafting({}, run=unless_bad), suite, Request(()), 60.0, Format.json)
    assert capsys.readouterr().err.count("out of memory") == 3


def test_ctrl_c_before_the_first_answer_is_told(capsys):
    def run(request, cancelled):
        signal.raise_signal(signal.SIGINT)
        raise RunFailed("the connection was closed")

    assert advise_server(drafting({}, run=run), asking("one", "two"), Request(()), 60.0, Format.json) == INTERRUPTED
    out, err = capsys.readouterr()
    assert not out and err.endswith("stopped before the first answer\n")


def test_a_second_ctrl_c_ends_the_answer_under_way_and_keeps_the_others(capsys):
    def run(request, cancelled):
        if request.conversation[-1][1] == "two":
            for _ in range(2):
                signal.raise_signal(signal.SIGINT)
        yield from unless_bad(request, cancelled)

    assert advise_server(drafting({}, run=run), asking("one", "two"), Request(()), 60.0, Format.json) == INTERRUPTED
    assert json.loads(capsys.readouterr().out)["answers"] == 1


def test_each_way_to_draft_is_asked_and_read(capsys):
    asked: list[Request] = []

    def run(request, cancelled):
        asked.append(request)
        drafted = 4 if request.options["spec"] == "often" else 0
        yield from [Prefilled(3, 0, 0.1, OUT, 3), step(1, drafted, drafted, 0.01), Finished("stop", (), "")]

    server = drafting({"spec": "often"}, {"spec": "never"}, run=run)
    suite = asking("hello", "again")
    assert advise_server(server, suite, Request(()), 60.0, Format.text) == 0
    often, never = capsys.readouterr().out.split("spec=never")
    assert "spec=often" in often and "5.00" in often and "drafted nothing" in never
    assert [a.options["spec"] for a in asked] == ["often", "often", "never", "never"]
    assert {a.engine for a in asked} == {"llama.cpp"}
    assert {a.conversation[-1][1] for a in asked} == {"hello", "again"}
    advise_server(server, suite, Request(()), 60.0, Format.json)
    found = json.loads(capsys.readouterr().out)
    assert found["server"] == "llama.cpp 1" and [way["tokens_per_step"] for way in found["ways"]] == [5.0, 1.0]
