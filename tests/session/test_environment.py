"""The environment of processes that decode."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from spec_tui.session.environment import child_environment

HUGE = "glibc.malloc.hugetlb=1"
PROGRAM = """
import os, sys
from spec_tui.session.environment import begin_in_huge_pages
print("begins")
begin_in_huge_pages()
print(os.environ["GLIBC_TUNABLES"], sys.argv[1:])
"""


def test_an_engines_process_uses_huge_pages_unless_the_user_decides(monkeypatch):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    assert child_environment()["GLIBC_TUNABLES"] == HUGE
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=1")
    assert child_environment()["GLIBC_TUNABLES"] == "glibc.malloc.check=1"


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
@pytest.mark.parametrize("own", ["", "glibc.malloc.check=1"])
def test_a_command_begins_anew_in_them_once_with_its_arguments(own):
    env = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    env |= {"GLIBC_TUNABLES": own} if own else {}
    done = subprocess.run([sys.executable, "-u", "-c", PROGRAM, "a b", "--c"], env=env, capture_output=True, text=True)
    *begins, said = done.stdout.splitlines()
    assert len(begins) == (1 if own else 2) and said == f"{own or HUGE} ['a b', '--c']", done.stderr
