"""How many tokens a server should draft: the arithmetic, and what is said."""

from __future__ import annotations

import pytest

from engines.advice.served_drafts import ServedDrafts
from engines.report.events import UNDISCLOSED, Draft, Emitted, Finished, Origin, Prefilled, Round
from spec_tui.cli.advise_server import lines

OUT = Emitted(5, "a", "a", "target")


def step(number: int, drafted: int, accepted: int, seconds: float) -> Round:
    draft = Draft((UNDISCLOSED,) * drafted, tuple(range(-1, drafted - 1)), ("x",) * drafted, (None,) * drafted,
                  (0,) * drafted, (Origin("server"),) if drafted else ())
    emitted = (*(Emitted(5, "a", "a", "accepted", n) for n in range(accepted)), OUT)
    return Round(number, number, draft, tuple(range(accepted)), emitted, None, seconds, None, None)


def answers(row: float, sizes=(0, 4)) -> ServedDrafts:
    """Drafts of 4 tokens of which 4, 2, 1 and 0 are accepted in turns, and steps without a draft."""
    rounds = [step(n, size, (4, 2, 1, 0)[n % 4] if size else 0, 0.01 * (1 + row * size))
              for size in sizes for n in range(8)]
    return ServedDrafts.of([[Prefilled(3, 0, 0.1, OUT, 3), *rounds, Finished("stop", (), "")]])


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
    assert answers(0.9).best == 0 and "without drafts" in lines(answers(0.9), "")[-1]
    assert "drafts of 4 tokens or more: deeper drafts were not tried (--n)." in lines(cheap, "--n")[-1]


def test_what_was_not_seen_is_not_made_up():
    one_size = answers(0.1, sizes=(4,))
    assert one_size.row is one_size.best is None and "was not seen" in lines(one_size, "")[-1]
    nothing = answers(0.1, sizes=(0,))
    assert not nothing.accepted and nothing.best is None and "drafted nothing" in lines(nothing, "")[-1]
