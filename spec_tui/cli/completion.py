"""``spec-tui --install-completion`` and ``--show-completion``: the script with which a shell completes commands."""

from __future__ import annotations

from pathlib import Path
from subprocess import SubprocessError

from typer.completion import Shells, get_completion_script, install

from engines.errors import UsageProblem, first_line

_PROGRAM = {"prog_name": "spec-tui", "complete_var": "_SPEC_TUI_COMPLETE"}


def install_completion(name: str) -> int:
    """Write the script where the shell of this name looks for it; "" is the one that called. Raises UsageProblem."""
    shell = _shell(name)
    try:
        _, path = install(**_PROGRAM | {"shell": shell})
    except (OSError, RuntimeError, ValueError, SubprocessError) as error:  # nobody's home, a start-up file in Latin-1
        file, why = getattr(error, "filename", None), getattr(error, "strerror", None) or first_line(error)
        raise UsageProblem(f"completion cannot be installed{f' in {file}' * bool(file)}: {why}",
                           f"spec-tui --show-completion {shell} prints it") from None
    print(f"completion for {shell} is installed in {path}; it begins with the next shell")
    return 0


def show_completion(name: str) -> int:
    """Print the script for the shell of this name; "" is the one that called. Raises UsageProblem."""
    print(get_completion_script(**_PROGRAM | {"shell": _shell(name)}))
    return 0


def _shell(name: str) -> str:
    """A shell's name, checked, or that of the shell that called this process. Raises UsageProblem."""
    import psutil

    callers = [Path(process.name()).stem for process in psutil.Process().parents()] if not name else [name]
    found = next((caller for caller in callers if caller in [*Shells]), None)
    if found is None:
        raise UsageProblem(f"there is no completion for the shell {name}" if name else "no shell called this command",
                           f"name one: {', '.join(Shells)}")
    return found
