"""What ``doctor`` finds out, as plain data."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from engines import machine
from engines.datastores.storage import catalog as places
from engines.hub import hub_cache as cache
from engines.hub import local_models as at_hand
from spec_tui.cli.library_probe import probe
from spec_tui.present.ansi import FateStyle
from spec_tui.session.log import log_path

_PACKAGES = (
    "torch", "transformers", "tokenizers", "safetensors", "huggingface_hub", "numpy", "textual", "rich",
    "typer", "platformdirs", "pydivsufsort", "scann", "faiss-cpu", "optuna", "matplotlib",
)
_VARIABLES = ("TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "HF_HOME", "HF_HUB_OFFLINE", "OMP_NUM_THREADS")


def collect() -> dict[str, Any]:
    """Everything; takes as long as importing torch."""
    libraries = probe()
    facts = {
        "versions": {"spec-tui": _version("spec-tui"), "python": platform.python_version()}
        | {name: _version(name) for name in _PACKAGES},
        "machine": _machine(),
        "libraries": libraries,
        "devices": _devices(libraries["torch"]),
        "samples": list(at_hand.shipped()),
        "hub": {"cache": str(cache.folder()), "offline": _on("HF_HUB_OFFLINE"), "models": at_hand.cached()},
        "datastores": [_datastore(entry) for entry in places.listing()],
        "terminal": _terminal(),
        "logs": str(log_path("engine").parent),
        "telemetry": "none: nothing is sent anywhere",
    }
    return facts | {"missing": _missing(facts)}


def _datastore(entry: places.CatalogEntry) -> dict[str, Any]:
    facts = entry.manifest
    holds = "" if facts is None else f"{facts.kind}, {facts.documents} documents, {facts.tokens} tokens"
    return {"name": entry.name, "path": str(entry.folder), "holds": holds, "problem": entry.problem or None}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _machine() -> dict[str, Any]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    total, free = machine.ram()
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": platform.machine(),
        "cpus": os.cpu_count(),
        "usable_cpus": usable,
        "memory_gb": None if total is None else round(total / 1e9, 1),
        "free_memory_gb": None if free is None else round(free / 1e9, 1),
    }


def _devices(torch: dict[str, Any]) -> list[dict[str, Any]]:
    """Devices that torch can compute on, with their back ends."""
    if not torch["works"]:
        return []
    linear = f"linear layers: {', '.join(['plain', *torch['layouts']])}"
    found = [{"device": "cpu", "detail": f"{torch['threads']} threads, {linear}"}]
    found += [{"device": f"cuda:{i}", "detail": name} for i, name in enumerate(torch["cuda"])]
    return found + ([{"device": "mps", "detail": "Apple GPU"}] if torch["mps"] else [])


def _terminal() -> dict[str, Any]:
    size = shutil.get_terminal_size((0, 0))
    ink = FateStyle.of(sys.stdout, os.environ)
    return {
        "terminal": sys.stdout.isatty(),
        "columns": size.columns or None,
        "rows": size.lines or None,
        "encoding": sys.stdout.encoding,
        "colour": ink.colour,
        "variables": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }


def _on(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "on", "yes", "true")


def _missing(facts: dict[str, Any]) -> list[str]:
    """What is not there, each with what it would be good for or how to get it."""
    libraries = facts["libraries"]
    found = [
        f"{name} does not work ({libraries[name]['problem']}): no model can be loaded; reinstall spec-tui"
        for name in ("torch", "transformers")
        if not libraries[name]["works"]
    ]
    found += [
        f"the sample {model['role']} model is unusable ({model['problem']}): give --model"
        for model in facts["samples"]
        if model["problem"]
    ]
    if libraries["torch"]["works"] and not (libraries["torch"]["cuda"] or libraries["torch"]["mps"]):
        found.append("no GPU that torch can use: models run on the CPU")
    if not (libraries["scann"]["works"] or libraries["faiss"]["works"]):
        found.append("neither scann nor faiss works: retrieval by embeddings will search exactly, and slowly")
    if not facts["datastores"]:
        found.append("no datastores: reinstall spec-tui, or build one with spec-tui datastore build")
    return found
