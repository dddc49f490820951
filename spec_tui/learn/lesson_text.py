"""A lesson as lines, one after the other: for screen readers, and where there is no screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from spec_tui.learn.lesson import names, terms
from spec_tui.learn.walk import View, Walk
from spec_tui.present.narration import round_words
from spec_tui.present.step.phases import event_of

Asks = Callable[[str], str]
"""Asks for a line; "" where none comes."""


def told(walk: Walk, asks: Asks | None = None) -> Iterator[str]:
    """The whole lesson. With ``asks`` the learner is asked; without, the question is followed by its answer."""
    yield f"Lesson {names().index(walk.lesson.name) + 1}: {walk.lesson.title}"
    while True:
        view = walk.view()
        yield ""
        yield f"{walk.at + 1} of {walk.length}: {view.title}"
        yield _where(view)
        yield from view.paragraphs
        known = [f"{term}: {terms()[term]}" for term in view.terms]
        yield from (["Words: " + " ".join(known)] if known else [])
        yield from ([f"Read on: {view.see}"] if view.see else [])
        if view.asks:
            yield from _question(walk, view, asks)
        elif not walk.forward():
            return


def _where(view: View) -> str:
    """What stands beside the text: the run, and its round in words; of a question only what is drafted."""
    event = event_of(view.run, view.place.round)
    if event is None:
        return f"Shown: {view.name}, the prefill"
    if view.asks:
        return f"Shown: {view.name}, round {event.index}: drafted {len(event.draft.tokens)}"
    return f"Shown: {view.name}, {round_words(event)}; phase {view.place.phase}"


def _question(walk: Walk, view: View, asks: Asks | None) -> Iterator[str]:
    """The choices, then the guess; behind it the walk stands where the run tells."""
    yield from (f"{number}: {words}" for number, words in enumerate(view.options, 1))
    least, most = (1, len(view.options)) if view.options else (0, view.most)
    line = asks(f"Your guess, {least} to {most}: ").strip() if asks is not None else ""
    while line and not (line.isdecimal() and len(line) < 9 and walk.guess(int(line))):
        line = asks(f"A number from {least} to {most}, please: ").strip()
    if not line:
        right = walk.right()
        yield f"Answer: {view.options[right - 1] if view.options else right}"
        walk.tell()
