"""``spec-tui doctor``: what is installed, what works, which models and datastores are here, what is missing."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from typing import TYPE_CHECKING, Any

from engines import folders, machine, methods
from engines.libraries import versions
from engines.report.wording import counted
from spec_tui import PRIVACY
from spec_tui.cli.library_probe import DECODING, LIBRARIES, probe_libraries
from spec_tui.cli.option_groups import Format, OutputFormat
from spec_tui.cli.output import console
from spec_tui.present.ansi import FateStyle
from spec_tui.present.text import as_json, one_line
from spec_tui.session.log import log_path

if TYPE_CHECKING:
    from engines.datastores.storage.catalog import CatalogEntry

Rows = list[tuple[str, str]]
_PACKAGES = (
    "torch", "transformers", "tokenizers", "safetensors", "huggingface_hub", "numpy", "textual", "rich",
    "typer", "platformdirs", "pydivsufsort", "scann", "faiss-cpu", "matplotlib",
)
_OPTIONAL = ("scann", "faiss")  # either, or an exact search, does
_VARIABLES = ("TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "HF_HOME", "HF_HUB_OFFLINE", "OMP_NUM_THREADS")


def doctor(format: OutputFormat = Format.text) -> int:
    """Show what is installed, which devices and back ends work, which models are here, and what is missing.

    Decodes a few tokens of the sample pair with three engines and compares them with transformers.generate. The exit
    code is 1 if something is broken.
    """
    from rich.table import Table
    from rich.text import Text

    facts = collect()
    code = 1 if facts["broken"] else 0
    if format is Format.json:
        print(as_json(facts, indent=2))
        return code
    grid = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for title, rows in _sections(facts).items():
        for index, (name, value) in enumerate(rows):
            heading = Text(title if index == 0 else "", style="bold")
            grid.add_row(heading, Text(one_line(name), overflow="fold"), Text(one_line(value), overflow="fold"))
        grid.add_row()
    out = console()
    out.print(grid)
    for title in ("broken", "missing"):
        for sentence in facts[title]:
            out.print(Text.assemble((f"{title}: ", "bold"), one_line(sentence)))
    out.print(Text(PRIVACY))
    return code


def _sections(facts: dict[str, Any]) -> dict[str, Rows]:
    machine, hub, shell = facts["machine"], facts["hub"], facts["terminal"]
    terminal = [
        "a terminal" if shell["terminal"] else "not a terminal",
        f"{shell['columns']}x{shell['rows']}" if shell["columns"] else "unknown size",
        shell["encoding"],
        "colour" if shell["colour"] else "no colour",
    ]
    return {
        "versions": [(name, number or "not installed") for name, number in facts["versions"].items()],
        "machine": [
            ("system", f"{machine['system']}, {machine['processor']}"),
            ("processors", f"{machine['cpus']}, {machine['usable_cpus']} usable"),
            ("memory", "unknown" if machine["memory_gb"] is None else
             f"{machine['memory_gb']} GB, {machine['free_memory_gb']} GB free"),
        ],
        "libraries": [(n, "works" if lib["works"] else lib["problem"]) for n, lib in facts["libraries"].items()],
        "decoding": _decoding(facts["decoding"]),
        "engines": [
            ("found", ", ".join(facts["engines"]["found"])),
            *(("not used", sentence) for sentence in facts["engines"]["problems"]),
        ],
        "devices": [(found["device"], found["detail"]) for found in facts["devices"]] or [("none", "")],
        "models": [(model["name"], model["problem"] or _model(model)) for model in facts["models"]],
        "sample models": [(model["name"], _model(model)) for model in facts["samples"]],
        "hub cache": [
            ("folder", hub["cache"] + (" (offline)" if hub["offline"] else "")),
            *([(model["id"], _model(model)) for model in hub["models"]] or [("models", "none")]),
        ],
        "datastores": [(s["name"], s["problem"] or s["holds"]) for s in facts["datastores"]] or [("none", "")],
        "terminal": [("stdout", ", ".join(terminal)), *shell["variables"].items()],
        "logs": [("folder", facts["logs"])],
    }


def _decoding(found: dict[str, Any]) -> Rows:
    if "engines" not in found:
        return [("sample pair", found["problem"])]
    return [(check["engine"], check["problem"] or "writes the same tokens as transformers.generate")
            for check in found["engines"]]


def _model(model: dict[str, Any]) -> str:
    if model["problem"]:
        return f"{model['problem']} ({model['path']})"
    return f"{model['type']}, {model['parameters'] / 1e6:.1f} M parameters, {model['dtype']}, {model['path']}"


def collect() -> dict[str, Any]:
    """Everything, as plain data; takes as long as importing torch."""
    from engines.datastores.storage import catalog
    from engines.hub import hub_api, hub_cache, local_models

    tried = probe_libraries()
    decoding, libraries = tried[DECODING], {name: found for name, found in tried.items() if name != DECODING}
    size, (total, free) = shutil.get_terminal_size((0, 0)), machine.ram()
    facts = {
        "versions": {"spec-tui": versions.installed("spec-tui"), "python": platform.python_version()}
        | {name: versions.installed(name) for name in _PACKAGES},
        "machine": {
            "system": f"{platform.system()} {platform.release()}",
            "processor": platform.machine(),
            "cpus": os.cpu_count(),
            "usable_cpus": machine.processors(),
            "memory_gb": None if total is None else round(total / 1e9, 1),
            "free_memory_gb": None if free is None else round(free / 1e9, 1),
        },
        "libraries": libraries,
        "decoding": decoding,
        "engines": {"found": [spec.id for spec in methods.specs()], "problems": list(methods.problems())},
        "devices": _devices(libraries["torch"]),
        "models": local_models.known(),
        "samples": list(local_models.shipped()),
        "hub": {"cache": str(hub_cache.folder()), "offline": hub_api.offline(), "models": local_models.cached()},
        "datastores": [_datastore(entry) for entry in catalog.listing()],
        "terminal": {
            "terminal": sys.stdout.isatty(), "columns": size.columns or None, "rows": size.lines or None,
            "encoding": sys.stdout.encoding, "colour": FateStyle.of(sys.stdout, os.environ).colour,
            "variables": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
        },
        "logs": str(log_path("engine").parent),
        "telemetry": "none",
    }
    return facts | {"broken": _broken(facts), "missing": _missing(facts)}


def _datastore(entry: CatalogEntry) -> dict[str, Any]:
    facts = entry.manifest
    holds = "" if facts is None else ", ".join(
        (facts.kind, counted(facts.documents, "document"), counted(facts.tokens, "token")))
    return {"name": entry.name, "path": str(entry.folder), "holds": holds, "problem": entry.problem or None}


def _devices(torch: dict[str, Any]) -> list[dict[str, Any]]:
    """Devices that torch can compute on, with their back ends."""
    if not torch["works"]:
        return []
    how = f"native code: {torch['native_code']}; tested: no slower than torch's operations"
    how = "no native code" if torch["no_native_code"] else how
    found = [{"device": "cpu", "detail": f"{torch['threads']} threads, {how}"}]
    found += [{"device": f"cuda:{i}", "detail": name} for i, name in enumerate(torch["cuda"])]
    return found + ([{"device": "mps", "detail": "Apple GPU"}] if torch["mps"] else [])


def _broken(facts: dict[str, Any]) -> list[str]:
    """What does not work and must, each with what to do."""
    libraries, decoding = facts["libraries"], facts["decoding"]
    found = [f"{sentence}; pip install --upgrade spec-tui" for sentence in versions.unsatisfied()]
    found += [
        f"{name} does not work ({libraries[name]['problem']}); pip install --force-reinstall {name}"
        for name in LIBRARIES
        if name not in _OPTIONAL and not libraries[name]["works"]
    ]
    torch = libraries["torch"]
    if torch["works"] and torch["native_obtainable"] and (why := torch["no_native_code"]):
        found.append(f"native code does not work ({why}): models run slower on the CPU; spec-tui uses none until then")
    if not decoding["works"]:
        found.append(f"the sample pair is not decoded as it should be ({decoding['problem']});"
                     f" {versions.advice() or 'please report this'}")
    return found


def _unwritable() -> list[str]:
    """The folders of ours to which nothing can be written, each with why and what that costs."""
    places = (
        (folders.data(), "SPEC_TUI_DATA_DIR", "nothing is kept, and no model, head or datastore can be added"),
        (folders.cache(), "SPEC_TUI_CACHE_DIR", "measurements and compiled code are made again at each start"),
    )
    return [f"{place} cannot be written ({why}): {cost}; set {variable} to another folder"
            for place, variable, cost in places if (why := folders.refusal(place))]


def _missing(facts: dict[str, Any]) -> list[str]:
    """What is not there, each with what it would be good for or how to get it."""
    libraries = facts["libraries"]
    found = [*versions.untested(), *_unwritable()]
    found += [
        f"the {model['name']} model is unusable ({model['problem']}): give --model"
        for model in facts["samples"]
        if model["problem"]
    ]
    if libraries["torch"]["works"] and not (libraries["torch"]["cuda"] or libraries["torch"]["mps"]):
        found.append("no GPU that torch can use: models run on the CPU")
    torch = libraries["torch"]
    if torch["works"] and (why := torch["no_native_code"]) and not torch["native_obtainable"]:
        found.append(f"no native code ({why}): models run slower on the CPU; it needs a C++ compiler, such as g++,"
                     " or a wheel for Linux on x86-64")
    if not (libraries["scann"]["works"] or libraries["faiss"]["works"]):
        found.append("neither scann nor faiss works: searching dense datastores will be exact, and slow")
    if not facts["datastores"]:
        found.append("no datastores: reinstall spec-tui, or build one with spec-tui datastore build")
    return found
