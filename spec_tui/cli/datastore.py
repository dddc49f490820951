"""``spec-tui datastore``: the stores that drafts are retrieved from. List, look into, check, remove."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Context, Option, Typer

from engines.errors import DatastoreProblem, UsageProblem
from engines.hub.download_progress import in_bytes
from spec_tui.cli.datastore_build import build, summary
from spec_tui.cli.datastore_probe import probe
from spec_tui.cli.failures import narrate
from spec_tui.cli.options import Format, OutputFormat, command, complete_datastore
from spec_tui.cli.output import console, table
from spec_tui.cli.stage_progress import StageProgress
from spec_tui.present.text import one_line

if TYPE_CHECKING:
    from engines.datastores.storage.datastore import Store

_STANDARD_LIBRARY = "python-stdlib"  # offered, though not there until it is used


Name = Annotated[str, Argument(metavar="NAME", help="Of the datastore.", autocompletion=complete_datastore)]
_CHOSEN = "Which; none checks all."

group = Typer(rich_markup_mode=None)


@group.callback(invoke_without_command=True)
def datastore(context: Context) -> None:
    """Datastores: what drafts are retrieved from."""
    if context.invoked_subcommand is None:
        raise UsageProblem(
            "spec-tui datastore takes build, list, info, verify, probe or remove", "for example spec-tui datastore list"
        )


group.command(short_help="Build one from files, folders, the hub or the model's answers.")(command(build))


@group.command(name="list", short_help="The datastores at hand.")
@command
def list_(format: OutputFormat = Format.text) -> int:
    """List the datastores at hand: your own, those that ship, unfinished builds; and what is built when it is used."""
    return _list(format)


@group.command(short_help="What is in it, and how it was made.")
@command
def info(name: Name, format: OutputFormat = Format.text) -> int:
    """Describe a datastore: kind, sizes, model, sources, how its dense part was made."""
    from engines.datastores.storage.catalog import open_store

    store = open_store(name)
    if format is Format.json:
        print(json.dumps(summary(store) | {"parameters": dict(store.manifest.parameters)}, indent=2))
    else:
        _print([(one_line(key), one_line(value)) for key, value in _facts(store)])
    return 0


@group.command(short_help="Compare checksums; measure how good an index is.")
@command
def verify(
    names: Annotated[list[str] | None, Argument(metavar="[NAME]...", help=_CHOSEN)] = None,
    recall: Annotated[bool, Option("--recall", help="Of held-out keys: recall@10 against exact search.")] = False,
    mrr: Annotated[bool, Option("--mrr", help="Of stored keys: mean reciprocal rank of themselves.")] = False,
    sample: Annotated[int, Option(metavar="N", help="Keys that --mrr asks for.", min=1)] = 1000,
    format: OutputFormat = Format.text,
) -> int:
    """Read every byte and compare it with its checksum; exit code 3 where something is damaged.

    --recall and --mrr measure the index of a dense part: what share of the nearest keys it finds, and the paper's mean
    reciprocal rank.
    """
    from engines.datastores.storage import catalog

    chosen = names or [e.name for e in catalog.listing() if not e.unfinished]
    if not chosen:
        raise UsageProblem("there are no datastores to verify", "spec-tui datastore build makes one")
    results = [_verified(name, recall, mrr, sample) for name in dict.fromkeys(chosen)]
    if format is Format.json:
        print(json.dumps(results, indent=2))
    else:
        _print([(r["name"], r["problem"] or _sound(r)) for r in results])
    return DatastoreProblem.exit_code if any(r["problem"] for r in results) else 0


group.command(short_help="What would be drafted after a text, and from where.")(command(probe))


@group.command(short_help="Delete one, and what an interrupted build of it left.")
@command
def remove(
    name: Name,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
) -> int:
    """Delete a datastore of yours. It asks first, unless --yes is given."""
    from engines.datastores.storage import catalog

    catalog.check_name(name)
    found = [e for e in catalog.listing() if e.name == name and not e.shipped]
    if not found:
        catalog.remove(name)  # which says why not
    if not yes and not _confirmed(name, sum(e.size for e in found)):
        narrate("nothing was removed")
        return 1
    catalog.remove(name)
    narrate(f"removed {name}")
    return 0


def _confirmed(name: str, size: int) -> bool:
    """Ask on the terminal. Raises UsageProblem where nobody can answer."""
    if not sys.stdin.isatty():
        raise UsageProblem(f"removing {name} needs a yes, and nobody can be asked", "give --yes")
    print(f"remove datastore {name} ({in_bytes(size)})? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _list(format: Format) -> int:
    from engines.datastores.storage import catalog
    from engines.datastores.storage.datastore import Store

    entries = catalog.listing()
    rows = []
    for entry in entries:
        facts = summary(Store(entry.folder)) if entry.manifest is not None else {"name": entry.name}
        rows.append(facts | {"shipped": entry.shipped, "unfinished": entry.unfinished, "problem": entry.problem})
    offered = not any(e.name == _STANDARD_LIBRARY and e.manifest is not None for e in entries)
    if format is Format.json:
        print(json.dumps(rows + [{"name": _STANDARD_LIBRARY, "offered": True}] * offered, indent=2))
        return 0
    lines = [(row["name"], _line(row)) for row in rows]
    if offered:
        lines.append((_STANDARD_LIBRARY, "the standard library of this Python; built in seconds when it is used"))
    _print(lines)
    return 0


def _line(row: dict[str, Any]) -> str:
    if row["unfinished"]:
        return "unfinished: the command that began it goes on; remove deletes it"
    if row["problem"]:
        return f"cannot be used: {row['problem']}"
    keys = f", {row['keys']:,} keys of {row['model']}" if row["keys"] else ""
    ships = ", ships with the program" if row["shipped"] else ""
    return f"{row['kind']}, {row['tokens']:,} tokens{keys}, {in_bytes(row['bytes'])}{ships}"


def _facts(store: Store) -> list[tuple[str, str]]:
    facts, dense = store.manifest, store.manifest.parameters.get("dense")
    rows = [
        ("name", store.name), ("folder", str(store.folder)), ("kind", facts.kind),
        ("tokens", f"{facts.tokens:,} in {facts.documents:,} documents"), ("size", in_bytes(facts.size)),
        ("vocabulary", f"{facts.vocab_size:,} tokens, fingerprint {facts.tokenizer[:16]}"), ("built", facts.created),
        ("sources", json.dumps(facts.parameters.get("sources"))),
    ]
    if facts.model is not None:
        revision = f", revision {facts.model.revision}" if facts.model.revision else ""
        rows.append(("model", f"{facts.model.name}{revision}, layer {facts.model.layer}, width {facts.model.width}"))
    if isinstance(dense, dict):
        rows += [("keys", f"{facts.keys:,}"), ("dense", json.dumps(dense))]
    return rows


def _verified(name: str, recall: bool, mrr: bool, sample: int) -> dict[str, Any]:
    """The result for one datastore; what is wrong with it is part of that. Raises UsageProblem: there is none."""
    from engines.datastores.storage.catalog import open_store
    from engines.progress import ProgressReporter

    result: dict[str, Any] = {"name": name, "problem": ""}
    try:
        with StageProgress() as progress:
            store = open_store(name)
            store.verify(ProgressReporter(f"checksums of {name}", "bytes", progress.show).report)
            result |= {"files": len(store.manifest.files), "bytes": store.manifest.size}
            if (recall or mrr) and store.manifest.kind != "sparse":
                result |= _measured(store, recall, mrr, sample, progress)
            elif recall or mrr:
                result["remark"] = "no dense part to measure"
    except DatastoreProblem as error:
        result["problem"] = error.message
        narrate(f"{error.message}\n  {error.hint}")
    return result


def _measured(store: Store, recall: bool, mrr: bool, sample: int, progress: StageProgress) -> dict[str, Any]:
    from engines.datastores.search import dense as measures

    dense = measures.DenseStore(store)
    found: dict[str, Any] = {"index": dense.index.backend, "remark": dense.remark}
    if recall:
        share = measures.recall(dense, progress=progress.show)
        found["recall"] = None if share is None else {"value": share.value, "k": share.k, "queries": share.queries}
    if mrr:
        found["mrr"] = measures.mean_reciprocal_rank(dense, sample, progress=progress.show)
    return found


def _sound(result: dict[str, Any]) -> str:
    words = [f"sound: {result['files']} files, {in_bytes(result['bytes'])}"]
    if "recall" in result:
        share = result["recall"]
        words.append("no keys were held out to measure recall" if share is None else
                     f"recall@{share['k']} {share['value']:.3f} of {share['queries']} held-out keys")  # fmt: skip
    if "mrr" in result:
        words.append(f"mean reciprocal rank {result['mrr']:.3f}")
    if "index" in result:
        words.append(f"index {result['index']}")
    if result.get("remark"):
        words.append(result["remark"])
    return "; ".join(words)


def _print(rows: list[tuple[str, str]]) -> None:
    console().print(table(rows) if rows else "there are none")
