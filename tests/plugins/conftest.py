"""Methods of other packages, installed as anybody would install them, into a folder of the tests."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines import methods

PACKAGES = Path(__file__).parent / "packages"


def wheel(source: Path, folder: Path) -> Path:
    """A package as a wheel, made without a build tool: tests need no network."""
    project = tomllib.loads((source / "pyproject.toml").read_text("utf-8"))["project"]
    stem = f"{project['name'].replace('-', '_')}-{project['version']}"
    files = {path.relative_to(source).as_posix(): path.read_text("utf-8") for path in source.rglob("*.py")}
    (group, entries), = project["entry-points"].items()
    files |= {
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {project['name']}\n"
                                      f"Version: {project['version']}\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{stem}.dist-info/entry_points.txt": "\n".join([f"[{group}]", *(f"{k} = {v}" for k, v in entries.items())]),
    }
    files[f"{stem}.dist-info/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{stem}.dist-info/RECORD"])
    made = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return made


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which pip installed the packages: a sound one, a damaged one, one that exits, one of several
    faults, one whose id is taken."""
    folder, wheels = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("wheels")
    made = [str(wheel(PACKAGES / name, wheels)) for name in ("repeat", "damaged", "exiting", "faulty", "taken")]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index",
               "--no-deps", "--no-compile", "--target", str(folder), *made]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The packages, to be found by this process."""
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(site))
        methods._found.cache_clear()
        yield
    methods._found.cache_clear()
    packages = ("faulty_method", "repeat_method", "taken_method")
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        del sys.modules[name]
