"""The wheel in environments of its own: with the newest versions of everything that pip gives, and with the oldest that
pyproject.toml allows. In each, and without a compiler where the wheel has compiled code: the sample pair's answers by
every engine are those of this environment, families of models pass their lossless test, ``doctor`` finds nothing
broken, and the application answers in a terminal.

    python tools/test_versions.py [newest] [oldest] [--keep FOLDER]

Environments take up to 6 GB each, where pip gives torch with CUDA; they are removed at the end, unless kept.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

NEWEST, OLDEST = "newest", "oldest"
PROMPTS = ("Tell me a story about a dog.", "Write a Python function that adds two numbers.",
           "Repeat: the cat sat on the mat, the cat sat on the hat.")
TOKENS = 40
NOT_PASSED_ON = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")  # each program reads what one has compiled
SHOWN = ("torch", "transformers", "huggingface_hub", "numpy", "textual", "rich")
FAMILIES = ["tests/engines/test_families.py", "-k", "test_every_engine_is_lossless", "-m", "not thorough"]
# Runs in the environment, outside of this folder: the greedy text of every engine, as JSON. Engines that this pair
# cannot run say why; they say the same everywhere.
PROGRAM = """
import json, sys
import engines
from engines import Request, SpecError, specs
from engines.report.answer import Answer
runtime, found = engines.load("sample"), {}
for spec in specs():
    for prompt in json.loads(sys.argv[1]):
        request = Request((("user", prompt),), spec.id, max_new_tokens=int(sys.argv[2]), keeps=False)
        try:
            tokens = Answer.from_events(runtime.run(request)).tokens
            found[f"{spec.id}: {prompt}"] = [*tokens]
        except SpecError as error:
            found[f"{spec.id}: {prompt}"] = error.message
print(json.dumps({"where": engines.__file__, "texts": found}))
"""


def main() -> int:
    """Try each environment; 1 where one fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], NEWEST, OLDEST], help="default: both")
    parser.add_argument("--keep", type=Path, help="make the environments in this folder, and use those that are there")
    given = parser.parse_args()
    folder = (given.keep or Path(tempfile.mkdtemp(prefix="spec-tui-versions-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        wheel = make_wheel(folder)
        with ThreadPoolExecutor() as beside:  # pip waits for the network meanwhile
            expected = beside.submit(texts, sys.executable, ROOT, kept_in(folder))
            failed = [name for name in given.names or (NEWEST, OLDEST) if not passes(name, wheel, folder, expected)]
    finally:
        if given.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    return int(bool(failed))


def make_wheel(folder: Path) -> Path:
    """The wheel of this checkout."""
    shutil.rmtree(folder / "wheel", ignore_errors=True)
    run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder / "wheel", ROOT])
    return next((folder / "wheel").glob("*.whl"))


def oldest() -> list[str]:
    """The oldest version of each dependency, as constraints for pip."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    found = (re.match(r"([\w-]+)>=([\w.]+)[^;]*(;.*)?", line) for line in project["dependencies"])
    return [f"{match[1]}=={match[2]}{match[3] or ''}" for match in found if match]


def passes(name: str, wheel: Path, folder: Path, expected: Future[dict]) -> bool:
    """Make the environment of this name, and try everything in it; prints a line for each thing that was tried."""
    clock, environment = time.monotonic(), folder / name
    try:
        python = made(environment, name, wheel)
        say(name, f"installed in {time.monotonic() - clock:.0f} s: {versions(python)}")
        alone = kept_in(folder) | ({"CXX": "/no/such/compiler"} if "manylinux" in wheel.name else {})
        wanted, found = expected.result(), texts(str(python), folder, alone)
        differ = [key for key, tokens in wanted.items() if found.get(key) != tokens]
        say(name, f"{len(wanted) - len(differ)} of {len(wanted)} answers are those of this environment"
            + (f"; others: {', '.join(differ)}" if differ else ""))
        said = run([python, "-P", "-m", "spec_tui", "doctor"], cwd=folder, output=True, **alone)
        assert "CXX" not in alone or "native code: compiled with the package" in " ".join(said.split()), said
        say(name, "doctor finds nothing broken")
        said = run([python, "-m", "pytest", "-p", "no:cacheprovider", *FAMILIES], cwd=copied_tests(folder), output=True,
                   **alone | {"SPEC_TUI_TESTS_NATIVE": str(folder / "cache" / "native")})
        say(name, f"families: {said.strip().splitlines()[-1]}")
        answer_in_a_terminal(python, folder)
        say(name, f"the application answers in a terminal; {time.monotonic() - clock:.0f} s in all")
        return not differ
    except (subprocess.CalledProcessError, AssertionError) as error:
        said = getattr(error, "stdout", "") or ""
        say(name, f"FAILED: {error}\n{said[-4000:]}")
        return False


def made(environment: Path, name: str, wheel: Path) -> Path:
    """The Python of an environment with the wheel, what it needs, and what the tests of families need."""
    python, kept = environment / "bin" / "python", environment.exists()
    if not kept:
        run([sys.executable, "-m", "venv", environment])
    limits = environment / "oldest.txt"
    limits.write_text("\n".join(oldest()), encoding="utf-8")
    constraints = ["-c", limits] if name == OLDEST else ["--upgrade", "--upgrade-strategy", "eager"]
    install = [python, "-m", "pip", "install", "--quiet", "--no-compile"]
    run([*install, *constraints, wheel, *for_tests()])
    if kept:
        run([*install, "--no-deps", "--force-reinstall", wheel])
    return python


def for_tests() -> list[str]:
    """Requirements of the tests of families, of those in pyproject.toml: pytest, its plugins, hypothesis."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return [line for line in project["optional-dependencies"]["test"] if line.startswith(("pytest", "hypothesis"))]


def kept_in(folder: Path) -> dict[str, str]:
    """Where all programs here keep what they have compiled and measured, so that each needs to do it once only."""
    return {"SPEC_TUI_CACHE_DIR": str(folder / "cache"), "SPEC_TUI_DATA_DIR": str(folder / "data")}


def texts(python: str, folder: Path, environment: dict[str, str]) -> dict:
    """What every engine writes; ``folder``: where python is started, this checkout or a place without one."""
    said = run([python, *([] if folder == ROOT else ["-P"]), "-c", PROGRAM, json.dumps(PROMPTS), str(TOKENS)],
               cwd=folder, output=True, **environment)
    found = json.loads(said.splitlines()[-1])
    assert Path(found["where"]).is_relative_to(folder), f"engines come from {found['where']}"
    return found["texts"]


def copied_tests(folder: Path) -> Path:
    """The tests without the packages beside them, so that those of the wheel are imported."""
    place = folder / "tests-alone"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(ROOT / "tests", place / "tests", ignore=shutil.ignore_patterns("__pycache__", "__snapshots__"))
    shutil.copy(ROOT / "pyproject.toml", place)
    return place


def answer_in_a_terminal(python: Path, folder: Path) -> None:
    """Start the application, ask, and wait for the answer. Raises AssertionError: there is none."""
    from tests.e2e.terminal import Terminal

    with Terminal([str(python.parent / "spec-tui"), "--model", "sample"], **kept_in(folder)) as it:
        it.wait_for(lambda screen: "Ask" in screen or "╭" in screen)
        it.type("Tell me about a dog.")
        it.wait_for(lambda screen: "Tell me about a dog." in screen)
        it.type("\r")
        it.wait_for(lambda screen: re.search(r"· \d+ tokens · [\d.]+ tokens/s", screen))


def versions(python: Path) -> str:
    """The installed versions of some packages, in words."""
    listed = json.loads(run([python, "-m", "pip", "list", "--format", "json"], output=True))
    known = {package["name"].lower(): package["version"] for package in listed}
    return ", ".join(f"{package} {known.get(package, 'none')}" for package in SHOWN)


def run(command: list, cwd: Path = ROOT, output: bool = False, **environment: str) -> str:
    """Run a command; what it printed where ``output``. Raises CalledProcessError: it failed."""
    kept = {key: value for key, value in os.environ.items() if key not in NOT_PASSED_ON}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env={**kept, "HF_HUB_OFFLINE": "1", **environment}, check=True,
        text=True, stdout=subprocess.PIPE if output else None, stderr=None,
    )
    return done.stdout or ""


def say(name: str, words: str) -> None:
    """A line of the report."""
    print(f"{name}: {words}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
