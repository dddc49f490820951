"""The engine process imports transformers without what it never uses, and breaks nothing by it."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.session.loader import load
runtime = load(LoadRequest("sample", threads=1), print)
unused = {"torch._dynamo", "torch.distributed.tensor"}
assert not (found := unused & set(sys.modules)), found

import torch
assert torch.distributed.is_available()
doubled = torch.compile(lambda x: 2 * x, backend="eager")
assert doubled(torch.ones(2)).tolist() == [2, 2] and "torch._dynamo" in sys.modules
ids = torch.tensor([[5, 6, 7]])
assert runtime.target.model.generate(ids, max_new_tokens=3, do_sample=False).shape[1] > 3
"""


@pytest.mark.thorough
def test_the_compiler_is_not_imported_and_can_be():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
