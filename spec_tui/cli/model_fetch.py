"""Fetching and deleting models by name, on the command line."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from engines.errors import ModelUnavailable, UsageProblem
from engines.hub.download_progress import in_bytes
from engines.hub.known_models import KNOWN, SAMPLE, KnownModel, choose, chosen, default_label
from engines.progress import Loading
from spec_tui.cli.failures import narrate
from spec_tui.cli.prompts import confirmed
from spec_tui.cli.status_line import Status
from spec_tui.present.text import wrap

ESCAPE = b"\x1b"


class Skipped(BaseException):
    """The user pressed esc."""


def get_model(name: str | None, given: Sequence[Path], offline: bool, skippable: bool) -> int:
    """Fetch a known model unless it is here; from then on it answers where none is named. Without a name somebody at a
    terminal is asked. With ``skippable`` esc and failures end in a line, not in an error."""
    if name is None:
        name = model_to_get(skippable)
        if name == SAMPLE:
            return 0
    model = _known(name)
    if model.present:
        if not skippable:
            narrate(f"{name} is here already: {model.path}")
            choose(name)
        return 0
    instead = f"going on with {default_label()}; spec-tui model get {name} fetches it"
    try:
        if offline and not given:
            raise ModelUnavailable(f"{name} is not here, and --offline fetches nothing", "leave out --offline")
        came_from = _fetch(model, given, skippable)
    except Skipped:
        narrate(f"skipped; {instead}")
        return 0
    except ModelUnavailable as error:
        if not skippable:
            raise
        narrate(f"{name} could not be fetched ({error.message}); {instead}")
        return 0
    choose(name)
    checksums = "its checksum is" if len(model.files) == 1 else "the checksums are"
    places = " and ".join(str(file.path) for file in model.files)
    narrate(f"{name} came from {came_from}; {checksums} right: {places}")
    return 0


def fetch_first() -> None:
    """Ask once, where no model was chosen and none is here, and fetch what is chosen. Needs a terminal."""
    if chosen() or any(model.present for model in KNOWN.values()):
        return
    from engines.hub.hub_api import offline

    if not offline():
        get_model(None, (), offline=False, skippable=True)


def remove_model(name: str, yes: bool) -> int:
    """Delete a known model, after a question unless ``yes``."""
    from engines.hub.get_model import remove

    model = _known(name)
    size = sum(file.size for file in model.files if file.here)
    if size and not yes and not confirmed(f"delete {name} ({in_bytes(size)})?", "give --yes"):
        narrate("nothing was deleted")
        return 1
    freed = remove(model)
    narrate(f"{name} was deleted, which freed {in_bytes(freed)}" if freed else f"{name} was not here")
    return 0


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


def _known(name: str) -> KnownModel:
    if name not in KNOWN:
        raise UsageProblem(f"there is no known model {name!r}", f"known models: {', '.join(KNOWN)}")
    return KNOWN[name]


def _fetch(model: KnownModel, given: Sequence[Path], skippable: bool) -> str:
    from engines.hub.get_model import get
    from spec_tui.session.environment import prepare_this_process

    prepare_this_process()
    for file in model.files:
        narrate(f"{file.title}, {in_bytes(file.size)}, licence {file.licence}: {file.origin}")
    with _escape(skippable) as pressed, Status() as status:

        def show(event: Loading) -> None:
            if pressed():
                raise Skipped
            status.show(event)

        return get(model, show, given)


@contextmanager
def _escape(wanted: bool) -> Iterator[Callable[[], bool]]:
    """Tells whether esc was pressed, where the keyboard is a terminal; nothing is echoed meanwhile."""
    if not wanted or not sys.stdin.isatty():
        yield lambda: False
        return
    try:
        import termios
        import tty
    except ImportError:  # not on Windows
        yield lambda: False
        return
    import os
    import select

    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)

    def pressed() -> bool:
        found = b""
        while select.select([keyboard], [], [], 0)[0] and (key := os.read(keyboard, 64)):
            found += key
        return found.endswith(ESCAPE)  # an arrow key begins with it

    narrate("Press esc to skip it")
    try:
        tty.setcbreak(keyboard)
        yield pressed
    finally:
        with suppress(termios.error):
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
