"""The first run asks once which model shall answer."""

from __future__ import annotations

import shutil
import sys
from textwrap import wrap

from engines.errors import UsageProblem
from engines.hub.known_models import KNOWN, SAMPLE, choose, chosen
from spec_tui.cli.failures import narrate


def model_to_get(skippable: bool) -> str:
    """A known model, or ``SAMPLE`` for none: the one that was chosen before, else what somebody at the terminal says,
    else the smallest. Raises UsageProblem where nobody can be asked and ``skippable`` is not set."""
    if skippable and chosen():
        return chosen()
    if sys.stdin.isatty() and sys.stderr.isatty():
        return choose_model()
    if skippable:
        return next(iter(KNOWN))
    raise UsageProblem("the name of a model is missing", f"known models: {', '.join(KNOWN)}")


def choose_model() -> str:
    """Let somebody at the terminal choose among the known models and none, by a number and enter; it is remembered."""
    offers = [(name, f"{name} ({model.offer}): {model.good_for}", model.lacking) for name, model in KNOWN.items()]
    offers.append((SAMPLE, "neither: the sample pair that is here, which knows little", ""))
    best = max((number for number, (name, _, lacks) in enumerate(offers, 1) if name != SAMPLE and not lacks),
               default=len(offers))
    narrate("Which model should answer? It is downloaded once; ctrl+l changes it later.\n")
    for number, (_, words, lacks) in enumerate(offers, 1):
        narrate("\n".join(wrap(f"{words}. {lacks}." if lacks else words, shutil.get_terminal_size().columns - 2,
                               initial_indent=f"  {number}  ", subsequent_indent="     ")))
    while True:
        print(f"\nA number and enter [{best}]: ", end="", file=sys.stderr, flush=True)
        said = sys.stdin.readline()
        word = said.strip() or str(best)
        if not said:  # the terminal is gone
            return SAMPLE
        if word.isdecimal() and 0 < int(word) <= len(offers):
            name = offers[int(word) - 1][0]
            choose(name)
            return name
        narrate(f"Please type a number from 1 to {len(offers)}.")
