"""Running a function that the model wrote against assertions, in a process of its own."""

import re
import subprocess
import sys
import tempfile

LIMITS = """\
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
except (ImportError, ValueError, OSError):
    pass
"""


def extract_code(answer: str) -> str:
    """The first fenced block of an answer, also one that was cut off; else the answer itself."""
    fenced = re.search(r"```(?:python)?\n(.*?)(?:```|\Z)", answer, re.DOTALL)
    return fenced.group(1) if fenced else answer


def passes(answer: str, tests: list[str], seconds: float = 10.0) -> bool:
    """Whether the code in the answer runs and makes every assertion true."""
    program = "\n".join(
        [LIMITS, extract_code(answer), *(f"assert {test}" for test in tests), "print('passed')"]
    )
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-c", program],
                cwd=folder,
                env={},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=seconds,
                check=False,
            )
        except (subprocess.TimeoutExpired, ValueError):
            return False
    return done.returncode == 0 and done.stdout.endswith(b"passed\n")
