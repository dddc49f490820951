"""Which versions of other libraries this program was tested with, and which are installed. Imports none of them."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement
from packaging.version import Version

from engines.errors import LibraryProblem

TESTED = {"transformers": ("5.20.0", "5.24.0"), "torch": ("2.10.0", "2.15.0")}
"""The oldest and the newest version that passed ``make test-versions``, of the libraries that change most between
versions."""


@cache
def installed(package: str) -> str | None:
    """The version of a package that is installed, None where there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def untested() -> tuple[str, ...]:
    """A sentence for each package of ``TESTED`` that is installed in a version that was not tested."""
    return tuple(_sentence(package) for package in TESTED if _beyond(package))


def advice() -> str:
    """What installs tested versions of the packages that ``untested`` names, as a hint; "" where there are none."""
    wanted = [f"'{package}>={TESTED[package][0]},<={TESTED[package][1]}'" for package in TESTED if _beyond(package)]
    return f"install a tested version: pip install {' '.join(wanted)}" if wanted else ""


def unsatisfied() -> tuple[str, ...]:
    """A sentence for each package that this one requires and that is missing, or installed in another version than it
    asks for; nothing where it runs from a folder that was never installed."""
    found = []
    for line in (requires("spec-tui") or ()) if installed("spec-tui") else ():
        wanted = Requirement(line)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        have = installed(wanted.name)
        if have is None or not wanted.specifier.contains(have, prereleases=True):
            state = f"{wanted.name} {have} is installed" if have else f"{wanted.name} is not installed"
            found.append(f"{state}, spec-tui needs {wanted.specifier or 'it'}")
    return tuple(found)


def check(package: str) -> None:
    """Raises LibraryProblem: a package of ``TESTED`` is missing, or older than the oldest that works."""
    have = installed(package)
    if have is None or Version(have) < Version(TESTED[package][0]):
        raise LibraryProblem(_sentence(package), advice())


def unusable(package: str, error: Exception) -> LibraryProblem:
    """What is said where a package of ``TESTED`` lacks something that this program uses."""
    return LibraryProblem(f"{_sentence(package)}; this one fails: {error}",
                          advice() or f"reinstall it: pip install --force-reinstall {package}")


def _beyond(package: str) -> bool:
    have, (oldest, newest) = installed(package), TESTED[package]
    return have is None or not Version(oldest) <= Version(Version(have).public) <= Version(newest)


def _sentence(package: str) -> str:
    oldest, newest = TESTED[package]
    have = installed(package)
    state = f"{package} {have} is installed" if have else f"{package} is not installed"
    return f"{state}; spec-tui was tested with {oldest} to {newest}"
