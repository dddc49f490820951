"""Numbers and tokens as they stand in explanations."""

from __future__ import annotations

from collections.abc import Iterable

from engines.report.events import Choice, Prefilled, Round
from engines.report.metrics import Metrics
from engines.report.plain_text import one_line, visible
from engines.report.run_state import MISSING, RunState

MOST = 6  # tokens quoted in a row


def quoted(piece: str) -> str:
    """A token's label in quotes."""
    return f"‹{one_line(visible(piece), 24)}›"


def listed(pieces: Iterable[str], most: int = MOST) -> str:
    """Labels in a row, the last ones counted."""
    pieces = list(pieces)
    more = f" and {len(pieces) - most} more" if len(pieces) > most else ""
    return " ".join(quoted(piece) for piece in pieces[:most]) + more


def tokens(count: int) -> str:
    return counted(count, "token")


def counted(count: int, word: str) -> str:
    """1 token, 2 tokens; 1 branch, 2 branches; once, 2 times."""
    if (count, word) == (1, "time"):
        return "once"
    return f"{count:,} {word}{'' if count == 1 else 'es' if word.endswith(('ch', 's')) else 's'}"


def between(first: int, last: int) -> str:
    """The numbers to choose from: 1 or 2; 1 to 3."""
    return f"{first} {'or' if last == first + 1 else 'to'} {last}"


def p3(value: float | None) -> str:
    """A probability."""
    return "an unknown probability" if value is None else f"{value:.3f}"


def ms(seconds: float | None) -> str:
    if seconds is None:
        return "an unknown time"
    return f"{seconds * 1000:.2f} ms" if seconds < 0.01 else f"{seconds * 1000:.1f} ms"


def chosen(choice: Choice) -> str:
    """A token of the target's with its probability."""
    return f"{quoted(choice.piece)} ({p3(choice.prob)})"


def joined(parts: Iterable[str]) -> str:
    """a, b and c; "" of none."""
    words = list(parts)
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def context_tail(run: RunState, position: int, count: int) -> list[str]:
    """Labels of the last ``count`` tokens of the context before a round's position, prompt and answer; of what comes
    before a missing round, ``MISSING``."""
    pieces = [*(run.started.prompt_pieces if run.started is not None else ())]
    pieces += [run.prefilled.first.piece] if run.prefilled is not None else []
    for index, event in enumerate(run.rounds):
        pieces = [MISSING] if run.missing_before(index) else pieces
        if event.position >= position:
            break
        pieces += [token.piece for token in event.emitted]
    return pieces[-count:] if count > 0 else []


def given_length(run: RunState) -> int:
    """Tokens before the run's own: those of the prompt, and of an answer that was begun."""
    if run.prefilled is not None and run.prefilled.prompt_tokens is not None:
        return run.prefilled.prompt_tokens
    return len(run.started.prompt) if run.started is not None else 0


def prompt_length(run: RunState) -> int:
    """Tokens of the prompt."""
    return given_length(run) - (run.started.continued if run.started is not None else 0)


def rows_before(run: RunState, number: int) -> int | None:
    """KV rows in the cache before a round; None where it is not known."""
    before = run.rounds[number - 2] if number >= 2 else run.prefilled
    return None if before is None or run.missing_before(number - 1) else before.cache_length


def fed(event: Prefilled) -> int | None:
    """Tokens of the prompt that were read in this prefill; None where that is not known."""
    known = event.prompt_tokens is not None and event.reused is not None
    return max(0, event.prompt_tokens - event.reused) if known else None


def times_of(timed: Round | Metrics) -> tuple[tuple[str, float | None], ...]:
    """What took the seconds of a round or of all: "in all" where drafting is not told from verification."""
    if timed.draft_seconds is None:
        return (("in all", timed.verify_seconds),)
    return ("draft", timed.draft_seconds), ("verify", timed.verify_seconds), ("other", timed.other_seconds)


def seconds_of(event: Round) -> float:
    """What a round took, as far as it is known."""
    return (event.draft_seconds or 0.0) + (event.verify_seconds or 0.0) + (event.other_seconds or 0.0)
