"""Puts compiled native code into a wheel for Linux on x86-64, once for each level of processors; elsewhere, without a
compiler or with SPEC_TUI_PURE_WHEEL=1 the wheel holds the sources alone, which are compiled where they run."""

import os
import platform
import re
import runpy
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import mkdtemp

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

GLIBC = 2, 28  # at least; torch's wheels need it, too
COMPILING = Path("engines", "model", "native", "compiling.py")


class NativeCode(BuildHookInterface):
    """The build hook that pyproject.toml names."""

    folder: Path | None = None

    def initialize(self, version: str, build_data: dict) -> None:
        """Compile, and say for which systems the wheel is; not for an editable install."""
        compiling = runpy.run_path(str(Path(self.root, COMPILING)))
        here = sys.platform == "linux" and platform.machine() == "x86_64" and platform.libc_ver()[0] == "glibc"
        if version == "editable" or not here or os.environ.get("SPEC_TUI_PURE_WHEEL") == "1":
            return
        if (command := compiling["compiler"]()) is None:
            return self.app.display_warning("no C++ compiler: the wheel holds no compiled native code")
        self.folder = Path(mkdtemp(prefix="spec-tui-native-"))
        files = {level: self.folder / compiling["packaged"](level).name for level in compiling["LEVELS"]}
        try:
            with ThreadPoolExecutor(os.cpu_count()) as each:
                list(each.map(lambda level: compiling["compile_library"](
                    command, files[level], compiling["for_level"](level)), files))
        except (RuntimeError, OSError) as error:
            return self.app.display_warning(f"the wheel holds no compiled native code: {error}")
        build_data["force_include"] |= {
            str(file): str(COMPILING.parent / "compiled" / file.name) for file in files.values()}
        major, minor = max(GLIBC, *map(newest_glibc, files.values()))
        build_data |= {"pure_python": False, "tag": f"py3-none-manylinux_{major}_{minor}_x86_64"}

    def finalize(self, version: str, build_data: dict, artifact_path: str) -> None:
        """Remove what was compiled: the wheel has it."""
        if self.folder:
            shutil.rmtree(self.folder)


def newest_glibc(file: Path) -> tuple[int, ...]:
    """The newest version of glibc whose functions a library calls."""
    found = re.findall(rb"GLIBC_(\d+)\.(\d+)", file.read_bytes())
    return max(tuple(map(int, version)) for version in found)
