"""Which versions of other libraries this program was tested with, and which are installed; imports none of them."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

from packaging.version import Version

TESTED = {"transformers": ("5.20.0", "5.24.0"), "torch": ("2.10.0", "2.14.1")}
"""The oldest and the newest version that the tests were run with (``make test-versions``)."""


@cache
def installed(package: str) -> str | None:
    """The version of a package that is installed, None where there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def too_old(package: str) -> bool:
    """Whether a package of ``TESTED`` is older than the oldest version that works, or not installed."""
    found = installed(package)
    return found is None or Version(found) < Version(TESTED[package][0])


def too_new(package: str) -> bool:
    """Whether a package of ``TESTED`` is newer than any version that was tested."""
    found = installed(package)
    return found is not None and Version(Version(found).public) > Version(TESTED[package][1])


def untested() -> tuple[str, ...]:
    """A sentence for each installed package whose version was not tested."""
    return tuple(_sentence(package) for package in TESTED if too_old(package) or too_new(package))


def command() -> str:
    """The command that installs tested versions of all packages that are not; "" where all are."""
    wanted = [f"'{package}>={oldest},<={newest}'" for package, (oldest, newest) in TESTED.items()
              if too_old(package) or too_new(package)]
    return f"pip install {' '.join(wanted)}" if wanted else ""


def _sentence(package: str) -> str:
    oldest, newest = TESTED[package]
    found = installed(package)
    have = f"{package} {found} is installed" if found else f"{package} is not installed"
    return f"{have}, spec-tui was tested with {oldest} to {newest}"
