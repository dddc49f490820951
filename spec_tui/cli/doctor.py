"""``spec-tui doctor``: what is installed, what works, what is at hand, what is missing."""

from __future__ import annotations

import json
from typing import Any

from spec_tui.cli.options import Format, OutputFormat
from spec_tui.present.text import one_line

Rows = list[tuple[str, str]]


def doctor(format: OutputFormat = Format.text) -> int:
    """Say what is installed, which devices and back ends work, which models are at hand, what is missing."""
    from spec_tui.cli.doctor_facts import collect

    facts = collect()
    if format is Format.json:
        print(json.dumps(facts, indent=2))
    else:
        _print(facts)
    return 0


def _print(facts: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for title, rows in _sections(facts).items():
        for index, (name, value) in enumerate(rows):
            heading = Text(title if index == 0 else "", style="bold")
            table.add_row(heading, Text(one_line(name)), Text(one_line(value), overflow="fold"))
        table.add_row()
    console = Console(highlight=False)
    console.print(table)
    for sentence in facts["missing"]:
        console.print(Text.assemble(("missing: ", "bold"), one_line(sentence)))
    console.print(Text("Nothing is sent anywhere; there is no telemetry."))


def _sections(facts: dict[str, Any]) -> dict[str, Rows]:
    machine, hub, libraries = facts["machine"], facts["hub"], facts["libraries"].items()
    return {
        "versions": [(name, number or "not installed") for name, number in facts["versions"].items()],
        "machine": [
            ("system", f"{machine['system']}, {machine['processor']}"),
            ("processors", f"{machine['cpus']}, {machine['usable_cpus']} usable"),
            ("memory", f"{machine['memory_gb']} GB, {machine['free_memory_gb']} GB free"),
        ],
        "libraries": [(name, "works" if found["works"] else found["problem"]) for name, found in libraries],
        "devices": [(found["device"], found["detail"]) for found in facts["devices"]] or [("none", "")],
        "sample models": [(model["role"], _model(model)) for model in facts["samples"]],
        "hub cache": [
            ("folder", hub["cache"] + (" (offline)" if hub["offline"] else "")),
            *([(model["id"], _model(model)) for model in hub["models"]] or [("models", "none")]),
        ],
        "datastores": [
            (store["name"], store["problem"] or store["holds"]) for store in facts["datastores"]
        ] or [("none", "")],
        "terminal": _terminal(facts["terminal"]),
        "logs": [("folder", facts["logs"])],
    }


def _terminal(terminal: dict[str, Any]) -> Rows:
    words = [
        "a terminal" if terminal["terminal"] else "not a terminal",
        f"{terminal['columns']}x{terminal['rows']}" if terminal["columns"] else "unknown size",
        terminal["encoding"],
        "colour" if terminal["colour"] else "no colour",
    ]
    return [("stdout", ", ".join(words)), *terminal["variables"].items()]


def _model(model: dict[str, Any]) -> str:
    if model["problem"]:
        return f"{model['problem']} ({model['path']})"
    return f"{model['type']}, {model['parameters'] / 1e6:.1f} M parameters, {model['dtype']}, {model['path']}"
