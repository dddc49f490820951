"""The command line put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from engines.errors import UsageProblem
from spec_tui.cli import datastore as datastore_commands
from spec_tui.cli import model as model_commands
from spec_tui.cli.application import open_application
from spec_tui.cli.bench import bench
from spec_tui.cli.compare import compare
from spec_tui.cli.doctor import doctor
from spec_tui.cli.engines import engines
from spec_tui.cli.export import export
from spec_tui.cli.learn import learn
from spec_tui.cli.options import (
    AllowPickle,
    Datastores,
    Device,
    DraftModel,
    DraftRevision,
    Dtype,
    Model,
    Revision,
    Strict,
    Threads,
    TrustRemoteCode,
)
from spec_tui.cli.price import price
from spec_tui.cli.replay import replay
from spec_tui.cli.run import run
from spec_tui.cli.search_layers import search_layers
from spec_tui.cli.sweep import sweep
from spec_tui.session.client import LoadRequest

app = typer.Typer(
    help="See speculative decoding at work: which tokens were drafted, and what became of them.\n\n"
    "Without a command, the terminal application opens.",
    epilog="Nothing is sent anywhere; there is no telemetry.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: half the time to the first line, and the same in a pipe
)


@app.callback(invoke_without_command=True)
def tui(
    context: typer.Context,
    model: Model = None,
    draft_model: DraftModel = None,
    revision: Revision = None,
    draft_revision: DraftRevision = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    strict: Strict = False,
    threads: Threads = None,
    datastore: Datastores = None,
    allow_pickle: AllowPickle = False,
    trust_remote_code: TrustRemoteCode = False,
    theme: Annotated[str | None, typer.Option(metavar="NAME", help="Colours of the application.")] = None,
    presenter: Annotated[bool, typer.Option("--presenter", help="Step large, for a projector.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> Callable[[], int]:
    load = LoadRequest(
        model, draft_model, dtype, device, revision, draft_revision, allow_pickle, trust_remote_code, strict, threads
    )
    command = context.invoked_subcommand
    if command is None:
        return _version if version else lambda: open_application(load, theme, tuple(datastore or ()), presenter)
    if load != LoadRequest() or theme is not None or datastore or presenter or version:
        raise UsageProblem("options go behind the command", f"see spec-tui {command} --help")
    return lambda: 0  # the command's own callable is what is called


def _version() -> int:
    from importlib.metadata import version

    print(f"spec-tui {version('spec-tui')}")
    return 0


app.command(
    short_help="Ask once, without the application.",
    epilog="Exit codes: 0, 1 failed run or a BUG found by --audit, 2 usage, 3 model unavailable, 130 interrupted.",
)(run)
app.command(short_help="Play a recorded run, without a model.")(replay)
app.command(short_help="Speculative decoding in short lessons.")(learn)
app.command(short_help="Write a recorded run as Markdown, page, picture or recording.")(export)
app.command(
    short_help="Engines side by side: speed, acceptance, same text.",
    epilog="Exit codes: 0, 1 a lane failed or a BUG, 2 usage, 3 model unavailable, 130 interrupted.",
)(compare)
app.command(
    short_help="Engines and transformers.generate over a suite of tasks.",
    epilog="Exit codes: 0, 1 a lane failed or a BUG, 2 usage, 3 model unavailable, 130 interrupted.",
)(bench)
app.command(short_help="One option of an engine against speed and acceptance.")(sweep)
app.command(short_help="List the engines and their options.")(engines)
app.add_typer(model_commands.group, name="model", short_help="Look at models without loading them.")
app.add_typer(
    datastore_commands.group, name="datastore", short_help="Build and look into what drafts are retrieved from."
)
app.command(name="search-layers", short_help="Which layers to leave out when a model drafts for itself.")(search_layers)
app.command(short_help="What verification costs here, and when drafts pay.")(price)
app.command(short_help="Say what works here and what is missing.")(doctor)
