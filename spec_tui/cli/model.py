"""``spec-tui model``: what a model is and what it would take, before it is loaded or downloaded."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Context, Typer

from engines.errors import UsageProblem
from engines.hub.download_progress import in_bytes
from spec_tui.cli.options import Format, ModelOptions, OutputFormat, Without, command, complete_model
from spec_tui.cli.output import Status, console, table
from spec_tui.present.text import one_line
from spec_tui.session.client import LoadRequest

if TYPE_CHECKING:
    from engines.model.description import ModelDescription

Rows = list[tuple[str, str]]
_NAME = "A folder or a hub id. Default: the one that ships."

group = Typer(rich_markup_mode=None)


@group.callback(invoke_without_command=True)
def model(context: Context) -> None:
    """Look at models without loading them."""
    if context.invoked_subcommand is None:
        raise UsageProblem("spec-tui model takes info or list", "for example spec-tui model info owner/name")


@group.command(short_help="What a model is, what it takes, and which draft models fit it.")
@command
def info(
    name: Annotated[str | None, Argument(metavar="ID", help=_NAME, autocompletion=complete_model)] = None,
    format: OutputFormat = Format.text,
    *,
    models: Annotated[ModelOptions, Without("model", "dtype", "device", "strict", "threads")],
) -> int:
    """Describe a model: architecture, parameters, memory, download, and the draft models at hand.

    No weights are loaded or downloaded; of a hub id that is not here, configuration and tokenizer are fetched.
    """
    found = _describe(replace(models.load, model=name))
    if format is Format.json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        _print(found)
    return 0


@group.command(name="list", short_help="The models at hand: those that ship, and the hub's cache.")
@command
def list_(format: OutputFormat = Format.text) -> int:
    """List the models that can be loaded without a download."""
    from engines.hub import local_models as at_hand

    models = [{"name": f"sample {m.pop('role')}", **m} for m in at_hand.shipped()]
    models += [{"name": m.pop("id"), **m} for m in at_hand.cached()]
    if format is Format.json:
        print(json.dumps(models, indent=2))
        return 0
    words = [(m["name"], m["problem"] or f"{m['type']}, {in_number(m['parameters'])}, {m['dtype']}") for m in models]
    console().print(table(words))
    return 0


def _describe(load: LoadRequest) -> ModelDescription:
    from spec_tui.session.environment import prepare_this_process

    prepare_this_process()
    with Status() as status:
        from engines.hub.model_source import TrustPolicy
        from engines.model.description import describe
        from engines.model.loading import shipped_target

        trust = TrustPolicy(load.allow_pickle, load.trust_remote_code)
        name = load.model or str(shipped_target())
        return describe(name, load.revision, trust, load.draft_model, load.draft_revision, status.show)


def _print(found: ModelDescription) -> None:
    from rich.text import Text

    out = console()
    out.print(Text(one_line(found.name), style="bold"))
    out.print(table([(f"  {name}", value) for name, value in _facts(found)]))
    if found.memory:
        out.print()
        out.print(_memory(found))
    out.print()
    out.print(Text("draft models at hand", style="bold"))
    rows = [(f"  {_mark(c.fits)} {one_line(c.name, 34)}", _candidate(c)) for c in found.draft_models]
    out.print(table(rows) if rows else Text("  none"))


def _facts(found: ModelDescription) -> Rows:
    shape = found.shape
    rows = [
        ("refused", f"{found.problem}; {found.hint}" if found.problem else ""),
        ("where", _where(found)),
        ("architecture", f"{shape.architecture or 'unnamed'} ({shape.type})"),
        ("layers", _layers(found)),
        ("attention", ", ".join(f"{kind}: {layers} layers" for kind, layers in shape.attention.items())),
        ("vocabulary", f"{shape.vocabulary:,} rows" if shape.vocabulary else ""),
        ("context", f"{shape.context:,} tokens" if shape.context else ""),
        ("parameters", _parameters(found)),
        ("files", _files(found)),
        ("licence", found.licence or "not said"),
        ("chat template", "yes" if found.chat_template else "no: prompts are fed raw"),
        ("drafts", _drafts(found)),
        *(("note", remark) for remark in found.remarks),
    ]
    return [(name, value) for name, value in rows if value]


def _where(found: ModelDescription) -> str:
    if found.where == "folder":
        return f"the folder {found.folder}"
    place = "the hub, not downloaded" if found.to_download else "the hub's cache"
    gated = ", gated: log in with hf auth login" if found.gated else ""
    return f"{place}, revision {found.revision or 'main'} (commit {(found.commit or '')[:10]}){gated}"


def _layers(found: ModelDescription) -> str:
    s = found.shape
    if not s.layers:
        return ""
    heads = f", {s.heads} heads of {s.head_size}" if s.heads else ""
    shared = f" ({s.kv_heads} for keys and values)" if s.kv_heads and s.kv_heads != s.heads else ""
    return f"{s.layers}, hidden size {s.hidden:,}{heads}{shared}" if s.hidden else f"{s.layers}{heads}{shared}"


def _parameters(found: ModelDescription) -> str:
    if found.parameters is None:
        return "unknown: pickled weights are not opened"
    kinds = ", ".join(found.stored) if len(found.stored) == 1 else ", ".join(
        f"{in_number(count)} {dtype}" for dtype, count in found.stored.items()
    )
    quantised = f"; quantised ({found.shape.quantised})" if found.shape.quantised else ""
    return f"{in_number(found.parameters)}, stored as {kinds}{quantised}"


def in_number(count: int) -> str:
    """A large number in three digits: "11.6 M"."""
    for size, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.3g} {letter}"
    return str(count)


def _files(found: ModelDescription) -> str:
    total = in_bytes(sum(found.files.values()))
    rest = f"; {in_bytes(found.to_download)} to download" if found.to_download else ""
    return f"{len(found.files)} needed, {total} ({found.weights}){rest}"


def _drafts(found: ModelDescription) -> str:
    if found.drafts is None:
        return ""
    words = "trees" if found.drafts == "trees" else "chains only"
    return f"{words}, as far as the configuration tells; the test at loading decides"


def _memory(found: ModelDescription) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("memory")
    context = f"of {found.shape.context:,}" if found.shape.context else "whole"
    for heading in ("weights", "KV of 1,000", context, "together"):
        table.add_column(heading, justify="right")
    table.add_column("fits")
    for m in found.memory:
        cells = [m.weights, m.cache_per_1000, m.cache, m.weights + (m.cache or 0)]
        sizes = [in_bytes(c) if c is not None else "?" for c in cells]
        table.add_row(f"  {m.dtype}", *sizes, Text(_fits(found, m.fits)))
    return table


def _fits(found: ModelDescription, fits: dict[str, bool]) -> str:
    sizes = {"ram": found.machine["ram"]} | {gpu["device"]: gpu["memory"] for gpu in found.machine["gpus"]}
    return ", ".join(f"{'yes' if fit else 'no'}: {place} {in_bytes(sizes[place])}" for place, fit in fits.items())


def _mark(fits: bool | None) -> str:
    return "?" if fits is None else "✓" if fits else "✗"


def _candidate(candidate: Any) -> str:
    size = f"{in_number(candidate.parameters)}; " if candidate.parameters else ""
    return f"{size}{candidate.why}"
