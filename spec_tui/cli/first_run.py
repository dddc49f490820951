"""The first run asks once which model shall answer."""

from __future__ import annotations

import shutil
import sys
from textwrap import wrap

from engines.errors import UsageProblem
from engines.folders import data
from engines.hub.download_progress import in_bytes
from engines.hub.known_models import KNOWN, SAMPLE, KnownModel, choose, chosen
from engines.machine import ram
from spec_tui.cli.failures import narrate


def model_to_get(skippable: bool) -> str:
    """A known model, or ``SAMPLE`` for none: the one that was chosen before, else what somebody at the terminal says,
    else the smallest. Raises UsageProblem where nobody can be asked and ``skippable`` is not set."""
    if skippable and chosen():
        return chosen()
    if sys.stdin.isatty() and sys.stderr.isatty():
        return ask()
    if skippable:
        return next(iter(KNOWN))
    raise UsageProblem("the name of a model is missing", f"known models: {', '.join(KNOWN)}")


def ask() -> str:
    """Let somebody at the terminal choose among the known models and none, by a number and enter; it is remembered."""
    offers = [(model.name, _offer(model), _lacking(model)) for model in KNOWN.values()]
    offers.append((SAMPLE, "neither: the sample pair that is here, which knows little", ""))
    best = max((number for number, (name, _, lacks) in enumerate(offers, 1) if name != SAMPLE and not lacks),
               default=len(offers))
    narrate("Which model shall answer? It is fetched once; ctrl+l changes it later.\n")
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


def _offer(model: KnownModel) -> str:
    memory = f", needs {in_bytes(model.memory)} of memory" if model.memory >= 2 * 10**9 else ""
    return f"{model.name} ({in_bytes(model.bytes)}{memory}): {model.good_for}"


def _lacking(model: KnownModel) -> str:
    """What this machine has too little of for a model, "" for nothing."""
    place = next(path for path in (data(), *data().absolute().parents) if path.exists())
    memory, room, said = ram()[1], shutil.disk_usage(place).free, []
    if memory is not None and memory < model.memory:
        said.append(f"{in_bytes(memory)} of memory are free")
    if room < model.bytes:
        said.append(f"{in_bytes(room)} are free on the disk")
    return f"Too little here: {' and '.join(said)}" if said else ""
