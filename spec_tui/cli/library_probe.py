"""Trying out libraries in processes of their own: a library that cannot be imported, hangs, or takes its
process down (a wrong instruction set, a broken driver) is a finding of ``doctor``, not its end."""

from __future__ import annotations

import contextlib
import importlib
import json
import subprocess
import sys
from dataclasses import asdict
from time import monotonic
from typing import Any

from engines.errors import SpecError
from spec_tui.session.environment import child_environment

LIBRARIES = (
    "torch", "transformers", "tokenizers", "safetensors", "huggingface_hub", "gguf", "textual", "scann", "pydivsufsort",
    "faiss",
)
DECODING = "decoding"
"""Not a library: whether a few tokens of the sample pair come out right."""
_SECONDS, _READING = 120, 0.1  # for all, and to read what one that has ended said


def probe_libraries(libraries: tuple[str, ...] = (*LIBRARIES, DECODING)) -> dict[str, dict[str, Any]]:
    """For each library, and for ``DECODING``, ``{"works": bool, "problem": str | None, ...}``, all at the same time."""
    environment = child_environment()
    running = {
        name: subprocess.Popen(
            [sys.executable, "-P", "-m", "spec_tui.cli.library_probe", name],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment,
        )
        for name in libraries
    }
    end = monotonic() + _SECONDS
    return {name: _collect(process, end) for name, process in running.items()}


def _collect(process: subprocess.Popen, end: float) -> dict[str, Any]:
    """What a process answers until ``end``, by ``monotonic``."""
    try:
        out, _ = process.communicate(timeout=max(_READING, end - monotonic()))
        return json.loads(out.splitlines()[-1])
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"works": False, "problem": f"does not answer within {_SECONDS} s"}
    except (ValueError, IndexError):
        return {"works": False, "problem": f"crashes (exit code {process.returncode})"}


def _try(name: str) -> dict[str, Any]:
    try:
        if name == DECODING:
            return _decoding()
        module = importlib.import_module(name)
        found = _torch(module) if name == "torch" else {}
    except ModuleNotFoundError as error:
        problem = "not installed" if error.name == name else f"needs {error.name}, which is not installed"
        return {"works": False, "problem": problem}
    except SpecError as error:
        return {"works": False, "problem": f"{error.message}: {error.hint}"}
    except Exception as error:  # what a broken installation raises cannot be foreseen
        return {"works": False, "problem": f"{type(error).__name__}: {str(error)[:200]}"}
    return {"works": True, "problem": None, **found}


def _decoding() -> dict[str, Any]:
    checks = [asdict(check) for check in importlib.import_module("engines.bench.self_check").check_engines()]
    wrong = [f"{check['engine']}: {check['problem']}" for check in checks if check["problem"]]
    return {"works": not wrong, "problem": "; ".join(wrong) or None, "engines": checks}


def _torch(torch: Any) -> dict[str, Any]:
    cuda = torch.cuda.is_available()
    found = {
        "threads": torch.get_num_threads(),
        "cuda": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if cuda else [],
        "mps": bool(getattr(torch.backends, "mps", None) and torch.backends.mps.is_available()),
        "native_code": "", "no_native_code": "", "native_obtainable": False,
    }
    with contextlib.suppress(ImportError, SpecError):
        native_code = importlib.import_module("engines.model.native.native_code")
        found |= {"native_code": native_code.origin(), "native_obtainable": native_code.obtainable()}
        found["no_native_code"] = importlib.import_module("engines.model.native.native_check").unavailable()
    return found


if __name__ == "__main__":
    print(json.dumps(_try(sys.argv[1])))
